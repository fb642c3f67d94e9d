//! Launches the fused kernel, which filters, transforms and writes the output form in one pass.
//!
//! Invariant: a spectrum's value depends on the samples under its window and on nothing else.

use super::job::Job;
use super::shape::Shape;
use crate::backend::cuda::tune::{self, Choice};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Module, Stream};
use crate::channelize::plan::{Form, Plan};
use crate::error::Result;

/// Maximum number of rows that are grouped to make an item a whole number of batches.
const MOST_ROWS: usize = 16;

/// Maximum number of blocks along y; equals the kernel's constant.
const MOST_BLOCKS: usize = 65_535;

/// Maximum number of waves of blocks per launch.
const MOST_ROUNDS: usize = 8;

/// Fused kernels of a plan and their device tables.
#[derive(Debug)]
pub(super) struct Fused {
    /// Sorted by batch size, descending; the last kernel's batch is one spectrum.
    kernels: Vec<Kernel>,
    tables: Tables,
    /// Elements per row, elements from product to product, spectra per row, units.
    row_elements: usize,
    product_elements: usize,
    row_spectra: usize,
    units: usize,
}

#[derive(Debug)]
struct Kernel {
    function: Function,
    threads: usize,
    /// Blocks per cluster, and clusters resident on the device.
    cluster: usize,
    groups: usize,
    /// Spectra per batch.
    batch: usize,
}

/// Tables that the kernel reads.
#[derive(Debug)]
struct Tables {
    coefficients: Buffer<f32>,
    factors: Buffer<f32>,
    /// Each unit's first row element and first gain.
    places: Buffer<u32>,
    /// Gain of each element of a polarization.
    gains: Buffer<f32>,
}

impl Kernel {
    /// Returns `None` if the device cannot run the cluster.
    fn new(
        device: &Device,
        module: &Module,
        shape: &Shape,
        (name, shared_bytes, batch): (&str, usize, usize),
    ) -> Result<Option<Self>> {
        let function = module.function(name, shared_bytes)?;
        let Shape { threads, cluster, .. } = *shape;
        let groups = if cluster > 1 {
            function.clusters(cluster, threads)?
        } else {
            let multiprocessors = device.properties().multiprocessors;
            (multiprocessors * function.blocks_per_multiprocessor(threads)?).max(1)
        };
        Ok((groups > 0).then_some(Self { function, threads, cluster, groups, batch }))
    }

    /// Returns a shape's kernels: for full batches, and for launches shorter than a batch.
    fn of_shape(device: &Device, module: &Module, shape: &Shape) -> Result<Vec<Self>> {
        let (all, one) = (shape.shared_bytes(), shape.shared_bytes_of_one());
        let name = if shape.cluster > 1 { "channelize_cluster" } else { "channelize" };
        let mut found = vec![Self::new(device, module, shape, (name, all, shape.batch))?];
        if shape.cluster == 1 && shape.batch > 1 {
            found.push(Self::new(device, module, shape, ("channelize_single", one, 1))?);
        }
        Ok(found.into_iter().flatten().collect())
    }
}

impl Fused {
    /// Returns `None` if the plan or the device has no fused kernel.
    pub(super) fn new(plan: &Plan, device: &Device) -> Result<Option<Self>> {
        let shapes = chosen(plan, device);
        let Some(shape) = shapes.last() else { return Ok(None) };
        let mut kernels = Vec::new();
        for shape in &shapes {
            let module = device.module(&shape.source())?;
            kernels.extend(Kernel::of_shape(device, &module, shape)?);
        }
        let input = plan.input();
        Ok(Some(Self {
            kernels,
            tables: Tables::new(plan, shape, device)?,
            row_elements: plan.row_elements(),
            product_elements: input.coarse_channels * plan.output_channels(),
            row_spectra: plan.spectra_per_row(),
            units: input.streams() / shape.polarizations,
        }))
    }

    /// Enqueues `job.spectra` spectra of every stream.
    ///
    /// # Safety
    /// The job's addresses must be valid for its sizes.
    pub(super) unsafe fn enqueue(&self, stream: &Stream, job: &Job) -> Result<()> {
        let fitting = self.kernels.iter().find(|kernel| kernel.batch <= job.spectra);
        let Some(kernel) = fitting else { return Ok(()) };
        let item = self.item_spectra(kernel.batch);
        let items = job.spectra.div_ceil(item);
        let arguments = Arguments::new()
            .with(job.input)
            .with(job.stride)
            .with(job.output)
            .with(self.row_elements as u64)
            .with(self.product_elements as u64)
            .with(job.saturated)
            .with(self.tables.coefficients.address())
            .with(self.tables.factors.address())
            .with(self.tables.places.address())
            .with(self.tables.gains.address());
        let last = job.spectra - (items - 1) * item;
        let numbers = [
            job.spectra,
            self.row_spectra,
            self.units,
            items,
            item,
            item.div_ceil(kernel.batch),
            last.div_ceil(kernel.batch),
        ];
        let arguments = numbers.iter().fold(arguments, |all, number| all.with(*number as u32));
        let deep = self.units.div_ceil(MOST_BLOCKS);
        let along = kernel.cluster * groups(kernel.groups, self.units, items);
        let grid = [along, self.units.min(MOST_BLOCKS), deep];
        let block = [kernel.threads, 1, 1];
        // SAFETY: the arguments match the kernel; the caller guarantees the job.
        unsafe { stream.launch(&kernel.function, grid, block, &arguments) }
    }

    /// Returns the spectra of an item, which one block computes batch by batch: whole rows, and at least one batch.
    fn item_spectra(&self, batch: usize) -> usize {
        let row = self.row_spectra;
        let whole = (1..=MOST_ROWS).find(|rows| (rows * row).is_multiple_of(batch));
        row * whole.unwrap_or((8 * batch).div_ceil(row))
    }
}

/// Returns the shape measured fastest on this device, or else the model's choice, and the shape for shorter launches.
fn chosen(plan: &Plan, device: &Device) -> Vec<Shape> {
    let candidates = Shape::candidates(plan, device.properties());
    let Some(first) = candidates.first() else { return Vec::new() };
    let choices: Vec<Choice> = candidates.iter().map(Shape::choice).collect();
    let choice = tune::choice(device, &first.source(), &first.tuning_key(), &choices);
    let best = candidates.iter().find(|shape| shape.choice() == choice).unwrap_or(first);
    best.with_single_block(&candidates)
}

/// Returns the number of block groups per unit that minimizes the estimated time of the last wave. `at_a_time` groups
/// run concurrently over all units, and starting a group costs half an item.
fn groups(at_a_time: usize, units: usize, items: usize) -> usize {
    let time =
        |groups: usize| (units * groups).div_ceil(at_a_time) * (2 * items.div_ceil(groups) + 1);
    let choices = (1..=MOST_ROUNDS).map(|rounds| (rounds * at_a_time / units).clamp(1, items));
    choices.min_by_key(|groups| time(*groups)).unwrap_or(1)
}

impl Tables {
    fn new(plan: &Plan, shape: &Shape, device: &Device) -> Result<Self> {
        let scale = plan.input().scale;
        let mut coefficients: Vec<f32> =
            plan.coefficients().iter().map(|b| (b * scale) as f32).collect();
        // The kernel may load one row of taps past the end.
        coefficients.resize(plan.span() + plan.points(), 0.0);
        Ok(Self {
            coefficients: device.upload(&coefficients)?,
            factors: device.upload(&shape.factors())?,
            places: device.upload(&places(plan, shape))?,
            gains: device.upload(&gains(plan))?,
        })
    }
}

/// Returns each unit's first row element and first gain. A unit is a stream, or the streams of both polarizations.
fn places(plan: &Plan, shape: &Shape) -> Vec<u32> {
    let input = plan.input();
    let products = input.polarizations / shape.polarizations;
    let mut places = Vec::with_capacity(2 * input.streams() / shape.polarizations);
    for antenna in 0..input.antennas {
        for coarse in 0..input.coarse_channels {
            // The coarse channel order is its own inverse.
            let place = plan.coarse_channel(coarse);
            for product in 0..products {
                let element = plan.row_offset(antenna, product, place);
                places.extend([element as u32, (place * plan.output_channels()) as u32]);
            }
        }
    }
    places
}

/// Returns the gain of each output channel of a polarization; empty without requantization.
fn gains(plan: &Plan) -> Vec<f32> {
    let Form::Requantized { gains, .. } = &plan.options().form else { return Vec::new() };
    match gains.as_slice() {
        [gain] => vec![*gain; plan.channels() * plan.input().coarse_channels],
        _ => gains.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_together() {
        assert_eq!(groups(132, 1, 8192), 132);
        assert_eq!(groups(132, 2, 8192), 66);
        assert_eq!(groups(132, 1, 5), 5);
        assert_eq!(groups(132, 1000, 1), 1);
        // 100 groups, one per unit, would leave a quarter of the device idle.
        let found = groups(132, 100, 1000);
        assert!((100 * found).is_multiple_of(132) || 100 * found > 500, "{found}");
    }
}
