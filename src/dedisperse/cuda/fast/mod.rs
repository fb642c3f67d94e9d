//! Fast kernel: 8-bit samples on Hopper, for trials whose shifts of adjacent channels are nearly equal.

mod shape;
#[cfg(test)]
mod tests;
mod tile;

use super::super::plan::{Lane, Plan};
use super::job::Job;
use crate::backend::cuda::tune::{self, Choice};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Stream};
use crate::backend::threads::Threads;
use crate::error::Result;
use shape::Shape;
pub(super) use shape::variants;
use tile::{Extents, TRIALS, Tile};

/// Trials of a plan bound to the fast kernel on a device.
#[derive(Debug)]
pub(super) struct Fast {
    shape: Shape,
    tiles: usize,
    groups: usize,
    channels: usize,
    /// Groups between two moves of multiples of 256 to the high sums.
    flush: usize,
    /// Largest skew of a trial's times, in samples.
    skew: usize,
    blocks: usize,
    /// Trials left to the general kernel, in ascending order.
    left: Vec<usize>,
    entries: Buffer<u32>,
    trials: Buffer<[i32; 2]>,
    kernel: Function,
}

/// Kernel tables of a plan's trials.
#[derive(Debug, Default)]
struct Tables {
    entries: Vec<u32>,
    trials: Vec<[i32; 2]>,
    left: Vec<usize>,
}

/// Fewest trials per tile; with fewer, the general kernel is as fast.
const FEWEST: usize = 32;

/// Pitch limit in bytes: the kernel addresses 32 rows with 31-bit offsets.
const MOST_PITCH: u64 = 1 << 26;

/// Number of tiles sampled to choose a shape.
const SAMPLED: usize = 4;

impl Fast {
    /// Compiles the kernel and builds its tables. Returns `None` if the device is not Hopper, samples are wider than
    /// bytes, `pitch` (bytes between rows) is too large, or no tile of trials fits.
    pub(super) fn new(
        plan: &Plan,
        device: &Device,
        (pitch, threads): (u64, &Threads),
    ) -> Result<Option<Self>> {
        let fits = device.is_hopper() && plan.lane(1) == Lane::U8 && pitch < MOST_PITCH;
        let Some(most) = plan.largest().filter(|_| fits) else {
            return Ok(None);
        };
        let channels = plan.channels_used().len();
        // The sum's multiples of 256 are counted in 16 bits.
        if most.saturating_mul(channels as u64) >= 1 << 24 {
            return Ok(None);
        }
        let sorted = sorted(plan);
        let shapes = candidates(plan, &sorted);
        let Some(shape) = chosen(plan, &shapes, device) else { return Ok(None) };
        let tables = tables(plan, &shape, &sorted, threads);
        if tables.trials.is_empty() {
            return Ok(None);
        }
        let module = device.module(&shape.source())?;
        let skew = tables.trials.iter().map(|trial| trial[1].unsigned_abs() as usize).max();
        Ok(Some(Self {
            shape,
            tiles: tables.trials.len() / TRIALS,
            groups: channels.div_ceil(shape.group),
            channels,
            flush: shape.flush(most),
            skew: skew.unwrap_or(0),
            blocks: device.properties().multiprocessors,
            left: tables.left,
            entries: device.upload(&tables.entries)?,
            trials: device.upload(&tables.trials)?,
            kernel: module.function("dedisperse_wgmma", shape.shared_bytes())?,
        }))
    }

    /// Returns the trials that this kernel does not sum, in ascending order.
    pub(super) fn left(&self) -> &[usize] {
        &self.left
    }

    /// Queues the sums of all trials of this kernel.
    pub(super) fn launch(&self, job: &Job, stream: &Stream) -> Result<()> {
        let lead = job.input % 16;
        let times = (job.times + lead as usize + self.skew).div_ceil(self.shape.times);
        let jobs = self.tiles * times;
        let arguments = Arguments::new()
            .with(job.output)
            .with(job.input - lead)
            .with(self.entries.address())
            .with(self.trials.address())
            .with(job.pitch)
            .with(job.output_stride as u64)
            .with(lead as i32)
            .with(job.times as i32)
            .with(job.offset)
            .with(self.channels as u32)
            .with(self.tiles as u32)
            .with(self.groups as u32)
            .with(jobs as u32)
            .with(self.flush as u32 - 1);
        let grid = [self.blocks.min(jobs), 1, 1];
        // SAFETY: the arguments are the kernel's; the tables belong to it, the job's rows hold all samples
        // that the plan's shifts reach and slack around them.
        unsafe { stream.launch(&self.kernel, grid, [self.shape.threads(), 1, 1], &arguments) }
    }
}

/// Sorts the trials by dispersion measure.
fn sorted(plan: &Plan) -> Vec<usize> {
    let mut trials: Vec<usize> = (0..plan.dms().len()).collect();
    trials.sort_by(|a, b| plan.dms()[*a].total_cmp(&plan.dms()[*b]));
    trials
}

/// Returns the trials per tile, equal for all tiles but the last.
fn per_tile(trials: usize) -> usize {
    trials.div_ceil(trials.div_ceil(TRIALS).max(1)).max(1)
}

/// Lists the shapes to tune over, the model's choice first; empty if no tile of trials fits any shape.
fn candidates(plan: &Plan, sorted: &[usize]) -> Vec<Shape> {
    let parts: Vec<&[usize]> = sorted.chunks(per_tile(sorted.len())).collect();
    let sampled = parts.len().min(SAMPLED);
    let spaced = |i: usize| parts[i * (parts.len() - 1) / (sampled - 1).max(1)];
    let ranked = |share: usize| {
        let part = |i| &spaced(i)[..spaced(i).len().div_ceil(share)];
        let extents: Vec<Extents> = (0..sampled).map(|i| Extents::new(plan, part(i))).collect();
        Shape::ranked(&extents)
    };
    let whole = ranked(1);
    // Tiles that do not fit are split in halves.
    if whole.is_empty() { ranked(2) } else { whole }
}

/// Returns the tuned shape for the plan, or the model's choice.
fn chosen(plan: &Plan, shapes: &[Shape], device: &Device) -> Option<Shape> {
    let candidates: Vec<Choice> = shapes.iter().map(Shape::choice).collect();
    let shifts = || (0..plan.dms().len()).map(|dm| plan.trial_shift(dm));
    let words = format!(
        "channels={} trials={} shortest={} longest={} most={}",
        plan.channels(),
        plan.dms().len(),
        shifts().min().unwrap_or(0),
        plan.max_shift(),
        plan.largest().unwrap_or(0),
    );
    let choice = tune::choice(device, &shapes.first()?.source(), &words, &candidates);
    let index = candidates.iter().position(|candidate| *candidate == choice);
    Some(shapes[index.unwrap_or(0)])
}

/// Builds the tables of all trials on all threads.
fn tables(plan: &Plan, shape: &Shape, sorted: &[usize], threads: &Threads) -> Tables {
    let parts: Vec<&[usize]> = sorted.chunks(per_tile(sorted.len())).collect();
    let mut made: Vec<(Vec<Tile>, Vec<usize>)> = vec![Default::default(); parts.len()];
    let mut workers = vec![(); threads.count()];
    threads.for_each_chunk(&mut workers, &mut made, 1, |(), index, target| {
        target[0] = tiles(plan, shape, parts[index]);
    });
    let mut tables = Tables::default();
    for (tiles, left) in made {
        for tile in tiles {
            tables.entries.extend(tile.entries);
            tables.trials.extend(tile.trials);
        }
        tables.left.extend(left);
    }
    tables.left.sort_unstable();
    tables
}

/// Builds one tile, or splits the trials in halves; returns the trials that do not fit.
fn tiles(plan: &Plan, shape: &Shape, trials: &[usize]) -> (Vec<Tile>, Vec<usize>) {
    if let Some(tile) = Tile::new(plan, shape, trials) {
        return (vec![tile], Vec::new());
    }
    if trials.len() < 2 * FEWEST - 1 {
        return (Vec::new(), trials.to_vec());
    }
    let (first, second) = trials.split_at(trials.len() / 2);
    let mut whole = (Vec::new(), Vec::new());
    for half in [first, second] {
        let (tiles, left) = tiles(plan, shape, half);
        whole.0.extend(tiles);
        whole.1.extend(left);
    }
    whole
}
