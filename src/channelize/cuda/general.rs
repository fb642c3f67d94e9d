//! Spectra of any plan in three steps: windowed sums, their Fourier transforms, and the form out; or in two
//! kernels of their own, where the length has them.
//!
//! Work is cut into passes whose sums should stay in the level-2 cache from step to step. Transforms always run in
//! whole batches of one plan, so that a spectrum's bits do not depend on how many are made at a time.

use super::forms::Form;
use super::job::Job;
use super::split::{Split, Target};
use crate::backend::cuda::tune::{self, Choice};
use crate::backend::cuda::{Arguments, Buffer, Device, Fourier, Function, Length, Module, Stream};
use crate::channelize::plan::{self, Plan};
use crate::error::Result;

/// Threads of a block of every kernel of this path.
pub(super) const BLOCK: usize = 256;

/// Spectra that a thread of the kernel for whole rows sums at a time.
const SPECTRA: usize = 8;

/// The most units of a pass: a launch has at most 65535 blocks along y, one for each of up to 4 products.
const MOST_UNITS: usize = 16_000;

/// A part of a job: spectra from the job's first one on, and units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub(super) first_spectrum: u64,
    pub(super) spectra: usize,
    pub(super) first_unit: usize,
    pub(super) units: usize,
    /// Address of the output row that the first spectrum belongs to.
    pub(super) output: u64,
}

/// Kernels and tables of a plan, and its work buffer.
#[derive(Debug)]
pub(super) struct General {
    plan: Plan,
    fir: Function,
    transform: Transform,
    form: Form,
    coefficients: Buffer<f32>,
    /// Sums, then spectra: axes spectrum, stream of the pass, `pitch` floats.
    work: Buffer<f32>,
    /// Spectra and units of a pass.
    pass: (usize, usize),
    _modules: [Module; 2],
}

/// What makes spectra of windowed sums.
#[derive(Debug)]
enum Transform {
    /// Nothing: sums are the output.
    None,
    Fourier(Fourier),
    /// Kernels that make the sums too.
    Split(Box<Split>),
}

impl General {
    pub(super) fn new(plan: &Plan, device: &Device) -> Result<Self> {
        let sums = device.module(&super::variants::fir(plan.input().encoding))?;
        let forms = device.module(&super::variants::forms())?;
        let scale = plan.input().scale;
        let coefficients: Vec<f32> =
            plan.coefficients().iter().map(|b| (b * scale) as f32).collect();
        let name = if plan.hop() == plan.points() { "fir" } else { "fir_overlapping" };
        let is_filtered = plan.options().form == plan::Form::Filtered;
        let (transform, work, pass) = match Split::new(plan, device)? {
            Some(split) => {
                let (spectra, units) = split.pass_sizes(plan);
                let transforms = spectra * units * plan.input().polarizations;
                let is_plain = plan.options().form == plan::Form::Spectra;
                let values = if is_plain { 0 } else { transforms * length(plan).pitch() };
                (Transform::Split(Box::new(split)), device.buffer(values)?, (spectra, units))
            }
            None if is_filtered => {
                let (transforms, _) = sizes(plan, device);
                (Transform::None, device.buffer(0)?, pass_sizes(plan, transforms))
            }
            None => {
                let (transforms, batch) = sizes(plan, device);
                let (work, transforms) = work(plan, device, transforms, batch)?;
                let fourier = device.fourier(length(plan), batch.min(transforms))?;
                (Transform::Fourier(fourier), work, pass_sizes(plan, transforms))
            }
        };
        Ok(Self {
            fir: sums.function(name, 0)?,
            transform,
            form: Form::new(plan, device, &forms, pass)?,
            coefficients: device.upload(&coefficients)?,
            plan: plan.clone(),
            work,
            pass,
            _modules: [sums, forms],
        })
    }

    /// Bytes that samples and streams must begin at a multiple of.
    pub(super) fn alignment(&self) -> usize {
        match self.transform {
            Transform::Split(_) => 16,
            _ => self.plan.input().encoding.sample_bits().div_ceil(8),
        }
    }

    /// Queues a job whose first window begins `skipped` samples behind the first one of its first byte. Rows
    /// need not be whole: `job.output` is the row that the first spectrum belongs to.
    ///
    /// # Safety
    /// The job's addresses have room for all that its sizes say.
    pub(super) unsafe fn enqueue(
        &mut self,
        stream: &Stream,
        job: &Job,
        skipped: usize,
    ) -> Result<()> {
        let all = self.plan.input().antennas * self.plan.input().coarse_channels;
        let (spectra, units) = self.pass;
        let per_row = self.plan.spectra_per_row() as u64;
        let row_bytes = (self.plan.row_elements() * self.plan.element_bytes()) as u64;
        let first_row = job.first_spectrum / per_row;
        for start in (0..job.spectra).step_by(spectra) {
            let first_spectrum = job.first_spectrum + start as u64;
            for first_unit in (0..all).step_by(units) {
                let pass = Pass {
                    first_spectrum,
                    spectra: spectra.min(job.spectra - start),
                    first_unit,
                    units: units.min(all - first_unit),
                    output: job.output + (first_spectrum / per_row - first_row) * row_bytes,
                };
                // SAFETY: the caller vouches for the job, of which the pass is a part.
                unsafe { self.pass(stream, job, skipped, &pass)? };
            }
            self.form.turn();
        }
        Ok(())
    }

    unsafe fn pass(
        &mut self,
        stream: &Stream,
        job: &Job,
        skipped: usize,
        pass: &Pass,
    ) -> Result<()> {
        if let Transform::Split(split) = &self.transform {
            // SAFETY: the caller vouches for the job; the work buffer has room for a pass.
            unsafe {
                split.sums(stream, job, pass, &self.plan)?;
                split.lines(stream, pass, self.plan.input().polarizations, &self.target(pass))?;
                if self.work.is_empty() {
                    return Ok(());
                }
                return self.form.enqueue(stream, self.work.address(), pass, job.saturated);
            }
        }
        // SAFETY: the caller's promise is handed on; the work buffer has room for a pass.
        unsafe { self.sums(stream, job, skipped, pass)? };
        let Transform::Fourier(fourier) = &mut self.transform else { return Ok(()) };
        let transforms = pass.spectra * pass.units * self.plan.input().polarizations;
        for batch in 0..transforms.div_ceil(fourier.batch()) {
            let at = batch * fourier.batch() * length(&self.plan).pitch();
            fourier.run(&mut self.work, at, stream)?;
        }
        // SAFETY: as above.
        unsafe { self.form.enqueue(stream, self.work.address(), pass, job.saturated) }
    }

    /// Where spectra of two kernels go: into the output, or for other forms into the work buffer.
    fn target(&self, pass: &Pass) -> Target {
        let (plan, points) = (&self.plan, self.plan.points());
        let (coarse, polarizations) = (plan.input().coarse_channels, plan.input().polarizations);
        if self.work.is_empty() {
            return Target {
                address: pass.output,
                row: plan.row_elements(),
                antenna: polarizations * coarse * points,
                place: points,
                polarization: coarse * points,
                first_unit: pass.first_unit,
                coarse_channels: coarse,
            };
        }
        let unit = polarizations * points;
        Target {
            address: self.work.address(),
            row: pass.units * unit,
            antenna: unit,
            place: 0,
            polarization: points,
            first_unit: 0,
            coarse_channels: 1,
        }
    }

    /// Queues the windowed sums: into the work buffer, or where they are all that is wanted, into the output.
    unsafe fn sums(&self, stream: &Stream, job: &Job, skipped: usize, pass: &Pass) -> Result<()> {
        let plan = &self.plan;
        let input = plan.input();
        let (points, coarse) = (plan.points(), input.coarse_channels);
        let pitch = length(plan).pitch();
        let in_pass = pass.units * input.polarizations;
        // Address, and floats from spectrum, antenna, place and polarization to the next.
        let (output, strides) = if matches!(self.transform, Transform::Fourier(_)) {
            let own = pass.first_unit * input.polarizations * pitch;
            let unit = input.polarizations * pitch;
            let start = self.work.address().wrapping_sub(4 * own as u64);
            (start, [in_pass * pitch, coarse * unit, unit, pitch])
        } else {
            let row = 2 * plan.row_elements();
            let polarization = 2 * coarse * points;
            (pass.output, [row, input.polarizations * polarization, 2 * points, polarization])
        };
        let first_sample =
            (pass.first_spectrum - job.first_spectrum) * plan.hop() as u64 + skipped as u64;
        let rotation = pass.first_spectrum % points as u64 * plan.hop() as u64 % points as u64;
        let arguments = Arguments::new()
            .with(job.input)
            .with(job.stride)
            .with(first_sample)
            .with(self.coefficients.address())
            .with(output);
        let arguments = strides.iter().fold(arguments, |all, stride| all.with(*stride as u64));
        let numbers = [
            points,
            plan.taps(),
            plan.hop(),
            rotation as usize,
            pass.spectra,
            pass.first_unit,
            coarse,
            input.polarizations,
            usize::from(plan.options().reverse_coarse),
            usize::from(matches!(self.transform, Transform::None)),
        ];
        let arguments = numbers.iter().fold(arguments, |all, number| all.with(*number as u32));
        let own = if plan.hop() == points { SPECTRA } else { 1 };
        let threads = pass.spectra.div_ceil(own) * points;
        let grid = [threads.div_ceil(BLOCK), in_pass, 1];
        // SAFETY: the arguments are the kernel's; the caller vouches for the job.
        unsafe { stream.launch(&self.fir, grid, [BLOCK, 1, 1], &arguments) }
    }
}

/// What is transformed.
fn length(plan: &Plan) -> Length {
    match plan.input().encoding.is_complex() {
        true => Length::Complex(plan.points()),
        false => Length::Real(plan.points()),
    }
}

/// Transforms of a pass, and of a batch of them; at least a unit's.
fn sizes(plan: &Plan, device: &Device) -> (usize, usize) {
    let properties = device.properties();
    let most = pass_bytes(plan, device) / (4 * length(plan).pitch());
    let batch = (properties.l2_bytes / 2).clamp(1 << 18, 1 << 25) / (4 * length(plan).pitch());
    let least = plan.input().polarizations;
    // Not of the pass: its size may be tuned, and the batch decides about last bits.
    let batch = batch.max(1);
    ((most / batch * batch).max(least.next_multiple_of(batch)), batch)
}

/// Bytes of a pass: four level-2 caches, unless another part was measured to be better.
fn pass_bytes(plan: &Plan, device: &Device) -> usize {
    let cache = device.properties().l2_bytes;
    let candidates = [(4, 1), (2, 1), (1, 1), (1, 2)].map(|(part, of)| Choice {
        name: format!("passes of {part}/{of} of the level-2 cache"),
        values: vec![part, of],
    });
    let shape = format!("points={} encoding={:?}", plan.points(), plan.input().encoding);
    let choice = tune::choice(device, &super::variants::forms(), &shape, &candidates);
    let [part, of] = choice.values[..] else { return 4 * cache };
    (cache * part as usize / (of as usize).max(1)).clamp(1 << 20, 1 << 28)
}

/// The work buffer, of half the size again and again until there is memory for it.
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
                // Batches that a pass does not fill are transformed too.
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

/// Spectra and units of a pass of so many transforms.
fn pass_sizes(plan: &Plan, transforms: usize) -> (usize, usize) {
    let input = plan.input();
    let units = input.antennas * input.coarse_channels;
    let in_pass = units.min(transforms / input.polarizations).clamp(1, MOST_UNITS);
    let spectra = (transforms / (in_pass * input.polarizations)).max(1);
    if in_pass < units { (1, in_pass) } else { (spectra, in_pass) }
}
