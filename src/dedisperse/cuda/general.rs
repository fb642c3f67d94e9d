//! General kernel: any plan, any encoding, any shift.

use super::super::plan::Plan;
use super::job::Job;
use super::shape::{Shape, element};
use super::table::Table;
use crate::backend::cuda::tune::{self, Choice};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Source, Stream};
use crate::backend::threads::Threads;
use crate::error::Result;

/// Trials of a plan bound to the general kernel on a device.
#[derive(Debug)]
pub(super) struct General {
    shape: Shape,
    tiles: usize,
    intervals: usize,
    records: Buffer<u32>,
    starts: Buffer<u32>,
    trials: Buffer<[u32; 4]>,
    /// Largest skew of a trial's times within its tile.
    skew: usize,
    kernel: Function,
}

/// Returns the kernel's source for a shape.
pub(super) fn source(shape: &Shape) -> Source {
    Source {
        name: "general.cu",
        text: include_str!("general.cu"),
        includes: &[],
        defines: shape.defines(),
    }
}

/// Returns the tuned shape for the plan, or the model's choice.
fn chosen(plan: &Plan, trials: usize, device: &Device) -> Shape {
    let shapes = Shape::fitting(plan, device.properties());
    let candidates: Vec<Choice> = shapes.iter().map(Shape::choice).collect();
    let words = format!(
        "channels={} trials={trials} longest={} samples={} packed={}",
        // Channels that a search masks are unknown in advance and matter little.
        plan.channels(),
        plan.max_shift(),
        element(shapes[0].lane),
        shapes[0].packed
    );
    let choice = tune::choice(device, &source(&shapes[0]), &words, &candidates);
    let index = candidates.iter().position(|candidate| *candidate == choice).unwrap_or(0);
    shapes[index]
}

impl General {
    /// Compiles the kernel and builds its tables.
    pub(super) fn new(
        plan: &Plan,
        trials: &[usize],
        device: &Device,
        threads: &Threads,
    ) -> Result<Self> {
        let shape = chosen(plan, trials.len(), device);
        let table = Table::new(plan, &shape, trials, threads);
        let module = device.module(&source(&shape))?;
        Ok(Self {
            shape,
            tiles: table.tiles,
            intervals: table.intervals,
            records: device.upload(&table.records)?,
            starts: device.upload(&table.starts)?,
            trials: device.upload(&table.trials)?,
            skew: table.skew,
            kernel: module.function("sum_shared", shape.shared_bytes())?,
        })
    }

    /// Queues the sums of all trials of this kernel. A sum that needs a sample at or past `available`, counted from
    /// the first output time, is 0.
    pub(super) fn launch(&self, job: &Job, available: u64, stream: &Stream) -> Result<()> {
        let shape = &self.shape;
        let bytes = shape.lane.bytes() as u64;
        // Loads read four samples at a time, so the input starts on a multiple of four.
        let skip = (job.input / bytes % 4) as usize;
        let tiles = (skip + job.times + self.skew).div_ceil(shape.tile_times());
        let arguments = Arguments::new()
            .with(job.output)
            .with(job.output_stride as i64)
            .with(job.input - skip as u64 * bytes)
            .with((job.pitch / bytes) as i64)
            .with(self.records.address())
            .with(self.starts.address())
            .with(self.trials.address())
            .with(self.intervals as i32)
            .with(skip as i32)
            .with(job.times as i32)
            .with(available.min(1 << 62) as i64)
            .with(job.offset)
            .with(shape.flush as i32);
        let grid = [self.tiles, tiles, 1];
        // SAFETY: the arguments are the kernel's; the tables belong to it, the job's rows hold all samples
        // that the plan's shifts reach and slack around them.
        unsafe { stream.launch(&self.kernel, grid, [shape.threads, 1, 1], &arguments) }
    }
}
