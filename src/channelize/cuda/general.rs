//! General path for any plan in three steps: windowed sums, Fourier transform, output form. Lengths supported by the
//! split kernels use those two kernels instead.
//!
//! Work is divided into passes that fit in the work buffer. Transforms always run in full batches of one cuFFT plan, so
//! that a spectrum's bits do not depend on the number of spectra computed together.

use super::forms::{self, Form};
use super::fused;
use super::job::{BLOCK, Job, Pass, PassSize, Target};
use super::split::{self, Split};
use crate::backend::cuda::tune::{self, Candidate};
use crate::backend::cuda::{Arguments, Buffer, Device, Fourier, Function, Length, Source, Stream};
use crate::channelize::plan::{self, Order, Plan};
use crate::error::Result;
use crate::voltage::VoltageEncoding;

/// Maximum number of units per pass: a launch has at most 65535 blocks along y, one per unit and product (up to 4).
const MAX_UNITS: usize = 16_000;

/// Kernels and tables of a plan, and its work buffer.
#[derive(Debug)]
pub(super) struct General {
    plan: Plan,
    transform: Transform,
    form: Form,
    /// Sums, then spectra in place; axes: spectrum, stream of the pass, `pitch` floats.
    work: Buffer<f32>,
    /// Spectra and units per pass.
    pass: PassSize,
}

/// Steps from samples to spectra.
#[derive(Debug)]
enum Transform {
    /// The windowed sums are the output.
    None(Sums),
    Fourier(Sums, Fourier),
    /// Windowed sums and a transform that can run in place in the output.
    Direct(Sums, Fourier),
    Split(Box<Split>),
}

impl General {
    pub(super) fn new(plan: &Plan, device: &Device) -> Result<Self> {
        let module = device.module(&forms::source())?;
        let is_filtered = plan.options().form == plan::Form::Filtered;
        let (transform, work, pass) = match Split::new(plan, device)? {
            Some(split) => {
                let pass = split.pass_size(plan);
                let transforms = pass.spectra * pass.units * plan.input().polarizations;
                let is_plain = plan.options().form == plan::Form::Spectra;
                let values = if is_plain { 0 } else { transforms * length(plan).pitch() };
                (Transform::Split(Box::new(split)), device.buffer(values)?, pass)
            }
            None if is_filtered => {
                let (transforms, _) = sizes(plan, device);
                let sums = Sums::new(plan, device, false)?;
                (Transform::None(sums), device.buffer(0)?, pass_size(plan, transforms))
            }
            None => {
                let (transforms, batch) = sizes(plan, device);
                let (work, transforms) = work(plan, device, transforms, batch)?;
                let fourier = device.fourier(length(plan), batch.min(transforms))?;
                let sums = Sums::new(plan, device, alternates(plan))?;
                let transform = match is_direct(plan, batch) {
                    true => Transform::Direct(sums, fourier),
                    false => Transform::Fourier(sums, fourier),
                };
                (transform, work, pass_size(plan, transforms))
            }
        };
        Ok(Self {
            transform,
            form: Form::new(plan, device, &module, pass, alternates(plan))?,
            plan: plan.clone(),
            work,
            pass,
        })
    }

    /// Returns the required alignment of samples and streams, in bytes.
    pub(super) fn alignment(&self) -> usize {
        match &self.transform {
            Transform::Split(_) => 16,
            Transform::None(sums) | Transform::Fourier(sums, _) | Transform::Direct(sums, _) => {
                sums.alignment()
            }
        }
    }

    /// Enqueues a job whose first window begins `skipped` samples after the first sample of its first byte. Rows may
    /// be partial: `job.output` is the row that contains the first spectrum.
    ///
    /// # Safety
    /// The job's addresses must be valid for its sizes.
    pub(super) unsafe fn enqueue(
        &mut self,
        stream: &Stream,
        job: &Job,
        skipped: usize,
    ) -> Result<()> {
        let all = self.plan.input().antennas * self.plan.input().coarse_channels;
        let PassSize { spectra, units } = self.pass;
        // SAFETY: forwards the caller's guarantee.
        let done = unsafe { self.in_place(stream, job, skipped)? };
        for start in (done..job.spectra).step_by(spectra) {
            for first_unit in (0..all).step_by(units) {
                let size = PassSize {
                    spectra: spectra.min(job.spectra - start),
                    units: units.min(all - first_unit),
                };
                let pass = self.part(job, start, first_unit, size);
                // SAFETY: the caller guarantees the job, and the pass is part of it.
                unsafe { self.pass(stream, job, skipped, &pass)? };
            }
            self.form.swap_carry();
        }
        Ok(())
    }

    /// Returns the pass with the job's spectra from `start` and the units from `first_unit`.
    fn part(&self, job: &Job, start: usize, first_unit: usize, size: PassSize) -> Pass {
        let PassSize { spectra, units } = size;
        let per_row = self.plan.spectra_per_row() as u64;
        let row_bytes = (self.plan.row_elements() * self.plan.element_bytes()) as u64;
        let first_spectrum = job.first_spectrum + start as u64;
        let row = first_spectrum / per_row - job.first_spectrum / per_row;
        Pass { first_spectrum, spectra, first_unit, units, output: job.output + row * row_bytes }
    }

    /// Computes the job's leading spectra that fill whole transform batches directly in the output; returns their
    /// number.
    unsafe fn in_place(&mut self, stream: &Stream, job: &Job, skipped: usize) -> Result<usize> {
        let input = self.plan.input();
        let (streams, units) = (input.streams(), input.antennas * input.coarse_channels);
        let Transform::Direct(_, fourier) = &self.transform else { return Ok(0) };
        let batch = fourier.batch() / streams;
        if !job.output.is_multiple_of(ALIGNED) {
            return Ok(0);
        }
        let whole = job.spectra / batch * batch;
        let step = (self.pass.spectra / batch).max(1) * batch;
        for start in (0..whole).step_by(step) {
            let size = PassSize { spectra: step.min(whole - start), units };
            let pass = self.part(job, start, 0, size);
            let to = Target::output(&self.plan, &pass);
            let Transform::Direct(sums, fourier) = &mut self.transform else { return Ok(0) };
            // SAFETY: the caller guarantees the job; the transforms cover whole batches of its output.
            unsafe {
                sums.enqueue(stream, job, skipped, &pass, &to, false)?;
                for at in (0..pass.spectra).step_by(batch) {
                    let row = 8 * self.plan.row_elements() as u64;
                    fourier.run_at(pass.output + at as u64 * row, stream)?;
                }
            }
        }
        Ok(whole)
    }

    unsafe fn pass(
        &mut self,
        stream: &Stream,
        job: &Job,
        skipped: usize,
        pass: &Pass,
    ) -> Result<()> {
        let (plan, work) = (&self.plan, self.work.address());
        let pitch = length(plan).pitch();
        let in_output = Target::output(plan, pass);
        let in_work = Target::work(plan, pass, work, pitch);
        // SAFETY: the caller guarantees the job; the work buffer has space for a pass.
        unsafe {
            match &mut self.transform {
                Transform::None(sums) => {
                    return sums.enqueue(stream, job, skipped, pass, &in_output, true);
                }
                Transform::Split(split) => {
                    split.sums(stream, job, pass, plan)?;
                    if self.work.is_empty() {
                        return split.lines(stream, pass, plan, &in_output);
                    }
                    split.lines(stream, pass, plan, &in_work)?;
                }
                Transform::Fourier(sums, fourier) | Transform::Direct(sums, fourier) => {
                    sums.enqueue(stream, job, skipped, pass, &in_work, false)?;
                    let transforms = pass.spectra * pass.units * plan.input().polarizations;
                    for batch in 0..transforms.div_ceil(fourier.batch()) {
                        fourier.run(&mut self.work, batch * fourier.batch() * pitch, stream)?;
                    }
                }
            }
            self.form.enqueue(stream, work, pass, job.saturated)
        }
    }
}

/// Required alignment of the output for in-place transforms, in bytes.
const ALIGNED: u64 = 16;

/// Returns whether odd columns are negated, which makes the transform's frequencies ascend.
fn alternates(plan: &Plan) -> bool {
    let is_even = plan.points().is_multiple_of(2) && plan.hop() == plan.points();
    let is_complex = plan.input().encoding.is_complex();
    is_complex && is_even && plan.options().order == Order::Ascending && is_plain(plan)
}

fn is_plain(plan: &Plan) -> bool {
    plan.options().form == plan::Form::Spectra
}

/// Returns whether the transform yields complex spectra in the output's order.
fn is_ordered(plan: &Plan) -> bool {
    let is_ordered = plan.options().order == Order::Natural || alternates(plan);
    is_plain(plan) && plan.input().encoding.is_complex() && is_ordered
}

/// Returns whether transforms of this batch size can run in the output: a batch must hold whole spectra of all
/// streams.
fn is_direct(plan: &Plan, batch: usize) -> bool {
    let streams = plan.input().streams();
    is_ordered(plan) && batch.is_multiple_of(streams) && streams <= MAX_UNITS
}

/// Returns the kind and length of the transform.
fn length(plan: &Plan) -> Length {
    match plan.input().encoding.is_complex() {
        true => Length::Complex(plan.points()),
        false => Length::Real(plan.points()),
    }
}

/// Returns the transforms per pass and per batch; a pass holds at least one unit.
fn sizes(plan: &Plan, device: &Device) -> (usize, usize) {
    let properties = device.properties();
    let most = pass_bytes(plan, device) / (4 * length(plan).pitch());
    // Larger batches are faster, but waste more work if few transforms are needed.
    let part = if is_ordered(plan) { 2 * properties.l2_bytes } else { properties.l2_bytes / 2 };
    let batch = part.clamp(1 << 18, 1 << 27) / (4 * length(plan).pitch());
    let least = plan.input().polarizations;
    // The batch size must not depend on the tuned pass size, because it affects the last bits of the results.
    let batch = batch.max(1);
    // Rounds to whole spectra of all streams if they fit.
    let streams = plan.whole_streams();
    let batch = if batch < streams { batch } else { batch / streams * streams };
    ((most / batch * batch).max(least.next_multiple_of(batch)), batch)
}

/// Returns the bytes of a pass: four times the L2 cache, unless tuning found another size to be faster.
fn pass_bytes(plan: &Plan, device: &Device) -> usize {
    let cache = device.properties().l2_bytes;
    let candidates = [(4, 1), (8, 1), (2, 1), (1, 1), (1, 2)].map(|(part, of)| Candidate {
        name: format!("passes of {part}/{of} of the level-2 cache"),
        values: vec![part, of],
    });
    let shape = format!("points={} encoding={:?}", plan.points(), plan.input().encoding);
    let choice = tune::select(device, &forms::source(), &shape, &candidates);
    let [part, of] = choice.values[..] else { return 4 * cache };
    (cache * part as usize / (of as usize).max(1)).clamp(1 << 20, 1 << 29)
}

/// Allocates the work buffer, halving its size until the allocation succeeds.
fn work(
    plan: &Plan,
    device: &Device,
    transforms: usize,
    batch: usize,
) -> Result<(Buffer<f32>, usize)> {
    let least = plan.input().polarizations.next_multiple_of(batch);
    let mut transforms = transforms;
    loop {
        match device.buffer(transforms * length(plan).pitch()) {
            Ok(mut buffer) => {
                // Batches that a pass only partly fills are transformed whole, so the buffer must be initialized.
                let (stream, all) = (device.stream()?, 0..buffer.len());
                stream.fill(&mut buffer, all, 0)?;
                stream.synchronize()?;
                return Ok((buffer, transforms));
            }
            Err(error) if transforms == least => return Err(error),
            Err(_) => transforms = (transforms / 2 / batch * batch).max(least),
        }
    }
}

/// Returns the spectra and units of a pass of `transforms` transforms.
fn pass_size(plan: &Plan, transforms: usize) -> PassSize {
    let input = plan.input();
    let units = input.antennas * input.coarse_channels;
    let in_pass = units.min(transforms / input.polarizations).clamp(1, MAX_UNITS);
    let spectra = (transforms / (in_pass * input.polarizations)).max(1);
    PassSize { spectra: if in_pass < units { 1 } else { spectra }, units: in_pass }
}

/// Spectra per thread of the kernel for any plan, if windows are a whole row apart.
const SPECTRA: usize = 8;

/// Spectra and threads of the kernel for pairs of columns.
const BATCH: usize = 16;
const THREADS: usize = 128;

/// Minimum number of points for which the kernel for pairs is compiled.
const MIN_POINTS: usize = 256;

/// Returns the kernel of the windowed sums of a plan.
fn sums(plan: &Plan) -> Source {
    pairs(plan).unwrap_or_else(|| fir(plan.input().encoding))
}

/// Lists the kernels of a plan without a fused kernel.
pub(super) fn sources(plan: &Plan, device: &Device) -> Vec<Source> {
    let mut sources = split::sources(plan, device);
    if sources.is_empty() {
        sources.push(sums(plan));
    }
    sources.push(forms::source());
    sources
}

/// Kernel of the windowed sums of a plan, and its coefficients.
#[derive(Debug)]
pub(super) struct Sums {
    plan: Plan,
    kernel: Kernel,
    coefficients: Buffer<f32>,
}

#[derive(Debug)]
enum Kernel {
    /// Kernel for any plan.
    Any(Function),
    /// Kernels for pairs of columns: for full batches, and for launches shorter than a batch.
    Pairs { batches: Function, single: Function },
}

impl Sums {
    /// Builds the kernel; `alternates` negates odd columns.
    pub(super) fn new(plan: &Plan, device: &Device, alternates: bool) -> Result<Self> {
        let scale = plan.input().scale;
        let sign =
            |index: usize| if alternates && index % plan.points() % 2 == 1 { -1.0 } else { 1.0 };
        let coefficient = |(index, b): (usize, &f64)| (b * scale) as f32 * sign(index);
        let mut coefficients: Vec<f32> =
            plan.coefficients().iter().enumerate().map(coefficient).collect();
        // A kernel may load one row of taps past the end.
        coefficients.resize(plan.span() + plan.points(), 0.0);
        let kernel = match pairs(plan) {
            Some(source) => {
                let module = device.module(&source)?;
                let batches = module.function("sums_batches", 0)?;
                let single = module.function("sums_single", 0)?;
                Kernel::Pairs { batches, single }
            }
            None => {
                let module = device.module(&sums(plan))?;
                let name = if plan.hop() == plan.points() { "fir" } else { "fir_overlapping" };
                Kernel::Any(module.function(name, 0)?)
            }
        };
        let coefficients = device.upload(&coefficients)?;
        Ok(Self { plan: plan.clone(), kernel, coefficients })
    }

    /// Returns the required alignment of samples and streams, in bytes.
    pub(super) fn alignment(&self) -> usize {
        let encoding = self.plan.input().encoding;
        // Samples that share bytes are read byte by byte.
        let sample = if encoding.group_samples() > 1 { 1 } else { encoding.sample_bits() / 8 };
        if matches!(self.kernel, Kernel::Any(_)) { sample } else { 2 * sample }
    }

    /// Enqueues a pass of a job whose first window begins `skipped` samples after the first sample of its first byte.
    /// If `widens`, real sums are written as complex values.
    ///
    /// # Safety
    /// The job's addresses must be valid for its sizes, and the target for the pass.
    pub(super) unsafe fn enqueue(
        &self,
        stream: &Stream,
        job: &Job,
        skipped: usize,
        pass: &Pass,
        to: &Target,
        widens: bool,
    ) -> Result<()> {
        let (plan, input) = (&self.plan, self.plan.input());
        let points = plan.points();
        let first_sample =
            (pass.first_spectrum - job.first_spectrum) * plan.hop() as u64 + skipped as u64;
        let streams = pass.units * input.polarizations;
        match &self.kernel {
            Kernel::Any(function) => {
                let rotation =
                    pass.first_spectrum % points as u64 * plan.hop() as u64 % points as u64;
                let arguments = Arguments::new()
                    .with(job.input)
                    .with(job.stride)
                    .with(first_sample)
                    .with(self.coefficients.address())
                    .with(to.address);
                let arguments = wide(arguments, &to.strides);
                let arguments = short(
                    arguments,
                    &[points, plan.taps(), plan.hop(), rotation as usize, pass.spectra],
                );
                let arguments = self.units(arguments, pass).with(u32::from(widens));
                let own = if plan.hop() == points { SPECTRA } else { 1 };
                let threads = pass.spectra.div_ceil(own) * points;
                let grid = [threads.div_ceil(BLOCK), streams, 1];
                // SAFETY: the arguments match the kernel; the caller guarantees the job.
                unsafe { stream.launch(function, grid, [BLOCK, 1, 1], &arguments) }
            }
            Kernel::Pairs { batches, single } => {
                let (function, batch) =
                    if pass.spectra < BATCH { (single, 1) } else { (batches, BATCH) };
                let first = first_sample * (input.encoding.sample_bits() / 8) as u64;
                let arguments = Arguments::new()
                    .with(job.input + first)
                    .with(job.stride)
                    .with(self.coefficients.address())
                    .with(to.address);
                let arguments = wide(arguments, &to.strides.map(|floats| floats / 4));
                let arguments = short(arguments, &[points / 2, pass.spectra]);
                let arguments = self.units(arguments, pass);
                let blocks = (points / 2).div_ceil(THREADS);
                let grid = [blocks, pass.spectra.div_ceil(batch), streams];
                // SAFETY: as above.
                unsafe { stream.launch(function, grid, [THREADS, 1, 1], &arguments) }
            }
        }
    }

    /// Appends the arguments that select the pass's streams.
    fn units(&self, arguments: Arguments, pass: &Pass) -> Arguments {
        let input = self.plan.input();
        let reverses = usize::from(self.plan.options().reverse_coarse);
        let numbers = [pass.first_unit, input.coarse_channels, input.polarizations, reverses];
        short(arguments, &numbers)
    }
}

fn wide(arguments: Arguments, numbers: &[usize]) -> Arguments {
    numbers.iter().fold(arguments, |all, number| all.with(*number as u64))
}

fn short(arguments: Arguments, numbers: &[usize]) -> Arguments {
    numbers.iter().fold(arguments, |all, number| all.with(*number as u32))
}

/// Returns the kernel for pairs of columns if the plan allows it: windows one row apart and an even number of complex
/// samples per row.
pub(super) fn pairs(plan: &Plan) -> Option<Source> {
    let points = plan.points();
    let (encoding, sample_bytes) = fused::encoding(plan.input().encoding)?;
    if points < MIN_POINTS || points % 2 == 1 || plan.hop() != points {
        return None;
    }
    let constants = [
        ("TAPS", plan.taps()),
        ("BATCH", BATCH),
        ("THREADS", THREADS),
        // A ring of taps needs more registers.
        ("RESIDENT", if plan.taps() > fused::MAX_HELD { 3 } else { 4 }),
        ("AHEAD", if sample_bytes == 8 { 2 } else { 4 }),
        ("PRODUCT_ORDER", 2),
        ("ENCODING", encoding),
        ("CONVERSION", usize::from(sample_bytes == 2)),
    ];
    Some(Source {
        name: "sums.cu",
        text: include_str!("sums.cu"),
        includes: &[
            ("decode.cuh", include_str!("decode.cuh")),
            ("fir.cuh", include_str!("fir.cuh")),
        ],
        defines: constants.map(|(name, value)| (name, value.to_string())).to_vec(),
    })
}

/// Returns the kernel of windowed sums for any plan, by encoding.
pub(super) fn fir(encoding: VoltageEncoding) -> Source {
    let place = VoltageEncoding::ALL.iter().position(|other| *other == encoding).unwrap_or(0);
    Source {
        name: "fir.cu",
        text: include_str!("fir.cu"),
        includes: &[("voltage.cuh", include_str!("../../backend/cuda/voltage.cuh"))],
        defines: vec![("ENCODING", place.to_string())],
    }
}
