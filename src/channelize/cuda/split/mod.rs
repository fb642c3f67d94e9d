//! Long power-of-two transforms in two kernels: windowed sums with the first part of the transform, then the rest.
//! The intermediate values of a pass should stay in the L2 cache.
//!
//! Invariant: a spectrum's value depends on the samples under its window and on nothing else.

mod shape;

use super::job::{Job, Pass, Target};
use crate::backend::cuda::tune::{self, Choice};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Stream};
use crate::channelize::plan::Plan;
use crate::error::Result;
pub(super) use shape::Shape;

/// Both kernels of a plan, their tables and the intermediate buffer.
#[derive(Debug)]
pub(super) struct Split {
    shape: Shape,
    /// First kernel for full batches, and for launches shorter than a batch.
    batches: Function,
    single: Function,
    lines: Function,
    /// Blocks of the first kernel resident on the device.
    blocks: usize,
    coefficients: Buffer<f32>,
    twiddles: Buffer<f32>,
    row_factors: Buffer<f32>,
    line_factors: [Buffer<f32>; 2],
    /// Intermediate values; axes: spectrum, stream of the pass, k1, c2.
    values: Buffer<f32>,
}

impl Split {
    /// Returns `None` if the plan or the device has no such kernels.
    pub(super) fn new(plan: &Plan, device: &Device) -> Result<Option<Self>> {
        let Some(shape) = chosen(plan, device) else { return Ok(None) };
        let sums = device.module(&shape.sums_source())?;
        let lines = device.module(&shape.lines_source())?;
        let batches = sums.function("split_sums_batches", shape.sums_bytes())?;
        let resident = batches.blocks_per_multiprocessor(shape.sums_threads())?;
        let scale = plan.input().scale;
        let coefficients: Vec<f32> =
            plan.coefficients().iter().map(|b| (b * scale) as f32).collect();
        // The kernel may load one row of taps past the end.
        let room = vec![0.0; plan.points()];
        let (shape, values) = values(plan, device, shape)?;
        let [second, third] = shape.line_factors();
        let kernel = if third.is_empty() { "split_lines" } else { "split_long_lines" };
        Ok(Some(Self {
            single: sums.function("split_sums_single", shape.sums_bytes_of_one())?,
            lines: lines.function(kernel, shape.lines_bytes())?,
            blocks: (resident * device.properties().multiprocessors).max(1),
            coefficients: device.upload(&[coefficients, room].concat())?,
            twiddles: device.upload(&shape.twiddles())?,
            row_factors: device.upload(&shape.row_factors())?,
            line_factors: [device.upload(&second)?, device.upload(&third)?],
            values,
            shape,
            batches,
        }))
    }

    /// Returns the spectra and units per pass.
    pub(super) fn pass_sizes(&self, plan: &Plan) -> (usize, usize) {
        pass_sizes(plan, &self.shape)
    }

    /// Enqueues the first kernel for a pass.
    ///
    /// # Safety
    /// The job's addresses must be valid for its sizes, and the pass must be part of the job.
    pub(super) unsafe fn sums(
        &self,
        stream: &Stream,
        job: &Job,
        pass: &Pass,
        plan: &Plan,
    ) -> Result<()> {
        let input = plan.input();
        let skipped = (pass.first_spectrum - job.first_spectrum) * plan.hop() as u64;
        let groups = self.shape.line() / self.shape.group;
        let streams = pass.units * input.polarizations;
        let is_short = pass.spectra < self.shape.batch;
        let (function, batch) =
            if is_short { (&self.single, 1) } else { (&self.batches, self.shape.batch) };
        let batches = pass.spectra.div_ceil(batch);
        let share = share(self.blocks, groups * streams, batches);
        let arguments = Arguments::new()
            .with(job.input + skipped * self.shape.sample_bytes as u64)
            .with(job.stride)
            .with(self.coefficients.address())
            .with(self.twiddles.address())
            .with(self.row_factors.address())
            .with(self.values.address())
            .with(pass.spectra as u32)
            .with((share * batch) as u32)
            .with(pass.first_unit as u32)
            .with(input.coarse_channels as u32)
            .with(input.polarizations as u32)
            .with(u32::from(plan.options().reverse_coarse));
        let grid = [groups, batches.div_ceil(share), streams];
        // SAFETY: the arguments match the kernel; the caller guarantees the job, and `values` has space for a pass.
        unsafe { stream.launch(function, grid, [self.shape.sums_threads(), 1, 1], &arguments) }
    }

    /// Enqueues the second kernel for a pass.
    ///
    /// # Safety
    /// The target must have space for the pass's spectra.
    pub(super) unsafe fn lines(
        &self,
        stream: &Stream,
        pass: &Pass,
        plan: &Plan,
        to: &Target,
    ) -> Result<()> {
        let input = plan.input();
        let streams = pass.units * input.polarizations;
        let [row, antenna, place, polarization] = to.strides.map(|floats| (floats / 2) as u64);
        let [second, third] = &self.line_factors;
        let arguments = Arguments::new().with(self.values.address()).with(second.address());
        let arguments = if third.is_empty() { arguments } else { arguments.with(third.address()) };
        let arguments = arguments
            .with(streams as u32)
            .with(input.polarizations as u32)
            .with(row)
            .with(antenna)
            .with(place)
            .with(polarization)
            .with(pass.first_unit as u32)
            .with(input.coarse_channels as u32)
            .with(to.address);
        let groups = self.shape.first() / self.shape.lines;
        let grid = [pass.spectra * streams * groups, 1, 1];
        // SAFETY: the arguments match the kernel; the caller guarantees the target.
        unsafe { stream.launch(&self.lines, grid, [self.shape.lines_threads(), 1, 1], &arguments) }
    }
}

/// Returns the shape measured fastest on this device, or else the model's choice.
fn chosen(plan: &Plan, device: &Device) -> Option<Shape> {
    let candidates = Shape::candidates(plan, device.properties());
    let first = candidates.first()?;
    let choices: Vec<Choice> = candidates.iter().map(Shape::choice).collect();
    let choice = tune::choice(device, &first.sums_source(), &first.tuning_key(), &choices);
    candidates.iter().find(|shape| shape.choice() == choice).or(Some(first)).copied()
}

/// Allocates the intermediate buffer, halving its size until the allocation succeeds.
fn values(plan: &Plan, device: &Device, mut shape: Shape) -> Result<(Shape, Buffer<f32>)> {
    loop {
        let (spectra, units) = pass_sizes(plan, &shape);
        let transforms = spectra * units * plan.input().polarizations;
        match device.buffer(2 * plan.points() * transforms) {
            Ok(buffer) => return Ok((shape, buffer)),
            Err(error) if shape.pass_mib == 1 => return Err(error),
            Err(_) => shape.pass_mib /= 2,
        }
    }
}

/// Returns the spectra and units per pass: at least one batch of spectra, with as many units as fit.
fn pass_sizes(plan: &Plan, shape: &Shape) -> (usize, usize) {
    let input = plan.input();
    let unit = 8 * shape.points * input.polarizations;
    let most = (shape.pass_mib << 20) / unit;
    let units = (most / shape.batch).clamp(1, input.antennas * input.coarse_channels);
    ((most / units).max(shape.batch), units)
}

/// Returns the number of consecutive batches per block that minimizes the estimated time. `blocks` blocks run at a
/// time, `columns` counts groups of columns and streams, and starting a block costs half a batch.
fn share(blocks: usize, columns: usize, batches: usize) -> usize {
    let time = |share: &usize| {
        (columns * batches.div_ceil(*share)).div_ceil(blocks) * (2 * share.min(&batches) + 1)
    };
    (1..=batches).min_by_key(time).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_share_the_batches() {
        assert_eq!(share(264, 64, 8), 2);
        assert_eq!(share(264, 64, 256), 64);
        assert_eq!(share(264, 64, 1), 1);
        assert_eq!(share(264, 1000, 3), 3);
    }
}
