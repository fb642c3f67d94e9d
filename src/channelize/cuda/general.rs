//! Spectra of any plan in three steps: windowed sums, their Fourier transforms, and the form out; or in two
//! kernels of their own, where the length has them.
//!
//! Work is cut into passes whose sums should stay in the level-2 cache from step to step. Transforms always run in
//! whole batches of one plan, so that a spectrum's bits do not depend on how many are made at a time.

use super::forms::Form;
use super::job::Job;
use super::split::Split;
use super::sums::{Sums, Target};
use crate::backend::cuda::tune::{self, Choice};
use crate::backend::cuda::{Buffer, Device, Fourier, Length, Stream};
use crate::channelize::plan::{self, Order, Plan};
use crate::error::Result;

/// Threads of a block of every kernel of this path.
pub(super) const BLOCK: usize = 256;

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
    transform: Transform,
    form: Form,
    /// Sums, then spectra: axes spectrum, stream of the pass, `pitch` floats.
    work: Buffer<f32>,
    /// Spectra and units of a pass.
    pass: (usize, usize),
}

/// What makes spectra of samples.
#[derive(Debug)]
enum Transform {
    /// Nothing: windowed sums are the output.
    None(Sums),
    Fourier(Sums, Fourier),
    /// The same where spectra may be transformed in the output.
    Direct(Sums, Fourier),
    Split(Box<Split>),
}

impl General {
    pub(super) fn new(plan: &Plan, device: &Device) -> Result<Self> {
        let module = device.module(&super::variants::forms())?;
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
                let sums = Sums::new(plan, device, false)?;
                (Transform::None(sums), device.buffer(0)?, pass_sizes(plan, transforms))
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
                (transform, work, pass_sizes(plan, transforms))
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

    /// Bytes that samples and streams must begin at a multiple of.
    pub(super) fn alignment(&self) -> usize {
        match &self.transform {
            Transform::Split(_) => 16,
            Transform::None(sums) | Transform::Fourier(sums, _) | Transform::Direct(sums, _) => {
                sums.alignment()
            }
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
        // SAFETY: the caller's promise is handed on.
        let done = unsafe { self.in_place(stream, job, skipped)? };
        for start in (done..job.spectra).step_by(spectra) {
            for first_unit in (0..all).step_by(units) {
                let count = (spectra.min(job.spectra - start), units.min(all - first_unit));
                let pass = self.part(job, start, first_unit, count);
                // SAFETY: the caller vouches for the job, of which the pass is a part.
                unsafe { self.pass(stream, job, skipped, &pass)? };
            }
            self.form.turn();
        }
        Ok(())
    }

    /// Spectra of a job from `start` on, and units from `first_unit` on.
    fn part(
        &self,
        job: &Job,
        start: usize,
        first_unit: usize,
        (spectra, units): (usize, usize),
    ) -> Pass {
        let per_row = self.plan.spectra_per_row() as u64;
        let row_bytes = (self.plan.row_elements() * self.plan.element_bytes()) as u64;
        let first_spectrum = job.first_spectrum + start as u64;
        let row = first_spectrum / per_row - job.first_spectrum / per_row;
        Pass { first_spectrum, spectra, first_unit, units, output: job.output + row * row_bytes }
    }

    /// Queues the first spectra of a job, those that fill whole batches of transforms, in the output itself; says how
    /// many.
    unsafe fn in_place(&mut self, stream: &Stream, job: &Job, skipped: usize) -> Result<usize> {
        let input = self.plan.input();
        let (streams, units) = (input.streams(), input.antennas * input.coarse_channels);
        let Transform::Direct(_, fourier) = &self.transform else { return Ok(0) };
        let batch = fourier.batch() / streams;
        if !job.output.is_multiple_of(ALIGNED) {
            return Ok(0);
        }
        let whole = job.spectra / batch * batch;
        let step = (self.pass.0 / batch).max(1) * batch;
        for start in (0..whole).step_by(step) {
            let pass = self.part(job, start, 0, (step.min(whole - start), units));
            let to = Target::output(&self.plan, &pass);
            let Transform::Direct(sums, fourier) = &mut self.transform else { return Ok(0) };
            // SAFETY: the caller vouches for the job, of whose output whole batches are transformed.
            unsafe {
                sums.enqueue(stream, (job, skipped), &pass, &to, false)?;
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
        // SAFETY: the caller vouches for the job; the work buffer has room for a pass.
        unsafe {
            match &mut self.transform {
                Transform::None(sums) => {
                    return sums.enqueue(stream, (job, skipped), pass, &in_output, true);
                }
                Transform::Split(split) => {
                    split.sums(stream, job, pass, plan)?;
                    if self.work.is_empty() {
                        return split.lines(stream, pass, plan, &in_output);
                    }
                    split.lines(stream, pass, plan, &in_work)?;
                }
                Transform::Fourier(sums, fourier) | Transform::Direct(sums, fourier) => {
                    sums.enqueue(stream, (job, skipped), pass, &in_work, false)?;
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

/// Bytes that the output must begin at a multiple of for transforms in it.
const ALIGNED: u64 = 16;

/// Whether every second column's sign is turned, so that frequencies come in ascending order.
fn alternates(plan: &Plan) -> bool {
    let is_even = plan.points().is_multiple_of(2) && plan.hop() == plan.points();
    let is_complex = plan.input().encoding.is_complex();
    is_complex && is_even && plan.options().order == Order::Ascending && is_plain(plan)
}

fn is_plain(plan: &Plan) -> bool {
    plan.options().form == plan::Form::Spectra
}

/// Whether complex spectra come out of the transforms as they go into the output.
fn is_ordered(plan: &Plan) -> bool {
    let is_ordered = plan.options().order == Order::Natural || alternates(plan);
    is_plain(plan) && plan.input().encoding.is_complex() && is_ordered
}

/// Whether so many of them a batch may be transformed in the output: all streams of whole spectra.
fn is_direct(plan: &Plan, batch: usize) -> bool {
    let streams = plan.input().streams();
    is_ordered(plan) && batch.is_multiple_of(streams) && streams <= MOST_UNITS
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
    // Larger batches are faster, and cost more where few are transformed.
    let part = if is_ordered(plan) { 2 * properties.l2_bytes } else { properties.l2_bytes / 2 };
    let batch = part.clamp(1 << 18, 1 << 27) / (4 * length(plan).pitch());
    let least = plan.input().polarizations;
    // Not of the pass: its size may be tuned, and the batch decides about last bits.
    let batch = batch.max(1);
    // Whole spectra of all streams, where they fit.
    let streams = plan.input().streams();
    let batch = if batch < streams { batch } else { batch / streams * streams };
    ((most / batch * batch).max(least.next_multiple_of(batch)), batch)
}

/// Bytes of a pass: four level-2 caches, unless another part was measured to be better.
fn pass_bytes(plan: &Plan, device: &Device) -> usize {
    let cache = device.properties().l2_bytes;
    let candidates = [(4, 1), (8, 1), (2, 1), (1, 1), (1, 2)].map(|(part, of)| Choice {
        name: format!("passes of {part}/{of} of the level-2 cache"),
        values: vec![part, of],
    });
    let shape = format!("points={} encoding={:?}", plan.points(), plan.input().encoding);
    let choice = tune::choice(device, &super::variants::forms(), &shape, &candidates);
    let [part, of] = choice.values[..] else { return 4 * cache };
    (cache * part as usize / (of as usize).max(1)).clamp(1 << 20, 1 << 29)
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
