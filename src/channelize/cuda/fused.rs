//! Launches the kernel that filters, transforms and forms the output in one pass.
//!
//! Invariant: a spectrum's value depends on the samples under its window and on nothing else.

use super::job::Job;
use super::shape::Shape;
use crate::backend::cuda::tune::{self, Choice};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Module, Stream};
use crate::channelize::plan::{Form, Plan};
use crate::error::Result;

/// Rows are grouped until their spectra are whole batches, but not more of them than this.
const MOST_ROWS: usize = 16;

/// The most blocks along y, as the kernel has it.
const MOST_BLOCKS: usize = 65_535;

/// The most rounds of blocks of a launch.
const MOST_ROUNDS: usize = 8;

/// The fused kernels of a plan, and their tables on the device.
#[derive(Debug)]
pub(super) struct Fused {
    /// The one of the most spectra a batch first, the last one of one.
    kernels: Vec<Kernel>,
    tables: Tables,
    /// Elements of a row, elements from product to product, spectra of a row, units.
    row_elements: usize,
    product_elements: usize,
    row_spectra: usize,
    units: usize,
}

#[derive(Debug)]
struct Kernel {
    function: Function,
    threads: usize,
    /// Blocks that make a batch together, and how many such groups the device runs at a time.
    cluster: usize,
    groups: usize,
    /// Spectra of a batch.
    batch: usize,
}

/// What the kernel reads besides samples.
#[derive(Debug)]
struct Tables {
    coefficients: Buffer<f32>,
    factors: Buffer<f32>,
    /// Of each unit, its first element of a row, and its first gain.
    places: Buffer<u32>,
    /// Of each element of a polarization.
    gains: Buffer<f32>,
}

impl Kernel {
    /// None when the device can't run its blocks together.
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

    /// Those of a shape: for whole batches, and for launches of fewer spectra.
    fn of_shape(device: &Device, module: &Module, shape: &Shape) -> Result<Vec<Self>> {
        let (all, one) = (shape.shared_bytes(), shape.shared_bytes_of_one());
        let name = if shape.cluster > 1 { "channelize_together" } else { "channelize" };
        let mut found = vec![Self::new(device, module, shape, (name, all, shape.batch))?];
        if shape.cluster == 1 && shape.batch > 1 {
            found.push(Self::new(device, module, shape, ("channelize_few", one, 1))?);
        }
        Ok(found.into_iter().flatten().collect())
    }
}

impl Fused {
    /// None when this plan or device has no fused kernel.
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

    /// Queues `job.spectra` spectra of every stream.
    ///
    /// # Safety
    /// The job's addresses have room for all that its sizes say.
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
        // SAFETY: the arguments are the kernel's; the caller vouches for the job.
        unsafe { stream.launch(&kernel.function, grid, block, &arguments) }
    }

    /// Spectra that a block makes one batch after another: whole rows, at least a batch.
    fn item_spectra(&self, batch: usize) -> usize {
        let row = self.row_spectra;
        let whole = (1..=MOST_ROWS).find(|rows| (rows * row).is_multiple_of(batch));
        row * whole.unwrap_or((8 * batch).div_ceil(row))
    }
}

/// The shape that was measured best on this device, or the model's own, and the one for fewer spectra.
fn chosen(plan: &Plan, device: &Device) -> Vec<Shape> {
    let candidates = Shape::candidates(plan, device.properties());
    let Some(first) = candidates.first() else { return Vec::new() };
    let choices: Vec<Choice> = candidates.iter().map(Shape::choice).collect();
    let choice = tune::choice(device, &first.source(), &first.question(), &choices);
    let best = candidates.iter().find(|shape| shape.choice() == choice).unwrap_or(first);
    best.with_alone(&candidates)
}

/// Groups of blocks that share a unit's items, so that the last one ends early: `at_a_time` of all units' run
/// at a time, and the start of one takes as long as half an item.
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
        // The kernel may load a tap more than there are.
        coefficients.resize(plan.span() + plan.points(), 0.0);
        Ok(Self {
            coefficients: device.upload(&coefficients)?,
            factors: device.upload(&shape.factors())?,
            places: device.upload(&places(plan, shape))?,
            gains: device.upload(&gains(plan))?,
        })
    }
}

/// The first element in a row, and the first gain, of each unit: of each stream, or of the streams of both
/// polarizations.
fn places(plan: &Plan, shape: &Shape) -> Vec<u32> {
    let input = plan.input();
    let products = input.polarizations / shape.polarizations;
    let mut places = Vec::with_capacity(2 * input.streams() / shape.polarizations);
    for antenna in 0..input.antennas {
        for coarse in 0..input.coarse_channels {
            // Turning the order round twice gives it back.
            let place = plan.coarse_channel(coarse);
            for product in 0..products {
                let element = plan.row_offset(antenna, product, place);
                places.extend([element as u32, (place * plan.output_channels()) as u32]);
            }
        }
    }
    places
}

/// A gain for each output channel of a polarization; none where nothing is requantized.
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
        // 100 units alone would leave a quarter of the device idle.
        let found = groups(132, 100, 1000);
        assert!((100 * found).is_multiple_of(132) || 100 * found > 500, "{found}");
    }
}
