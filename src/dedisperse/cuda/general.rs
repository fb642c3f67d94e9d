//! General kernel: any plan, any encoding, any shift.

use super::super::plan::{Plan, UsedChannel};
use super::history::{Job, element};
use super::record::{CHANNELS, Interval, Shape, record};
use crate::backend::cuda::tune::{self, Candidate};
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
    let candidates: Vec<Candidate> = shapes.iter().map(Shape::candidate).collect();
    let words = format!(
        "channels={} trials={trials} longest={} samples={} packed={}",
        // Channels that a search masks are unknown in advance and matter little.
        plan.channels(),
        plan.max_shift(),
        element(shapes[0].lane),
        shapes[0].packed
    );
    let choice = tune::select(device, &source(&shapes[0]), &words, &candidates);
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

/// Records of a plan.
#[derive(Clone, Debug, Default)]
struct Table {
    tiles: usize,
    intervals: usize,
    /// Concatenated records; intervals vary fastest.
    records: Vec<u32>,
    /// Start of each record, in units of 16 bytes, and the end of the last one.
    starts: Vec<u32>,
    /// Output row, largest shift and skew of each trial of each tile.
    pub(super) trials: Vec<[u32; 4]>,
    /// Largest skew of a trial's times.
    skew: usize,
}

/// Unused trial slot of a tile.
const NOWHERE: [u32; 4] = [u32::MAX, 0, 0, 0];

/// Skews are multiples of this many samples, so that sums are written in whole sectors.
const SKEW_STEP: usize = 8;

/// Adjacent trials, and the skew of each one's times: half of the growth of its shifts, which halves the spread at
/// both ends of the band.
#[derive(Clone, Debug, Default)]
struct Tile {
    trials: Vec<usize>,
    skews: Vec<usize>,
}

impl Tile {
    /// Returns the largest skew of the tile: the last trial's.
    fn skew(&self) -> usize {
        self.skews.last().copied().unwrap_or(0)
    }
}

impl Table {
    /// Builds the records of the given trials on all threads.
    pub(super) fn new(plan: &Plan, shape: &Shape, trials: &[usize], threads: &Threads) -> Self {
        let tiles = tiles(plan, shape, trials);
        let order = plan.descending_channels();
        let intervals = order.len().div_ceil(CHANNELS);
        let mut records: Vec<Vec<u32>> = vec![Vec::new(); tiles.len() * intervals];
        threads.for_each(&mut records, 1, |index, target| {
            let (tile, interval) = (&tiles[index / intervals], index % intervals);
            let channels = &order[interval * CHANNELS..];
            let channels = &channels[..channels.len().min(CHANNELS)];
            let shifts = |used: &UsedChannel| {
                let trials = tile.trials.iter().zip(&tile.skews);
                trials
                    .map(|(dm, skew)| plan.shift(*dm, used.channel) + tile.skew() - skew)
                    .collect()
            };
            let interval = Interval {
                rows: channels.iter().map(|used| used.row).collect(),
                shifts: channels.iter().map(shifts).collect(),
                back: tile.skew(),
            };
            target[0] = record(shape, &interval);
        });
        let mut table = Self { tiles: tiles.len(), intervals, starts: vec![0], ..Self::default() };
        for record in &records {
            table.records.extend(record);
            table.starts.push((table.records.len() / 4) as u32);
        }
        for tile in &tiles {
            let row = |(dm, skew): (&usize, &usize)| {
                [*dm as u32, plan.trial_shift(*dm) as u32, *skew as u32, 0]
            };
            let rows = tile.trials.iter().zip(&tile.skews).map(row);
            let places = rows.chain(std::iter::repeat(NOWHERE));
            table.trials.extend(places.take(shape.tile_dms));
        }
        table.skew = tiles.iter().map(Tile::skew).max().unwrap_or(0);
        table
    }
}

/// Sorts trials by dispersion measure and cuts them into tiles; no shift within a tile grows beyond what a block holds.
fn tiles(plan: &Plan, shape: &Shape, trials: &[usize]) -> Vec<Tile> {
    let mut sorted = trials.to_vec();
    sorted.sort_by(|a, b| plan.dms()[*a].total_cmp(&plan.dms()[*b]));
    // Tiles have equal trial counts where the shifts allow it.
    let most = sorted.len().div_ceil(sorted.len().div_ceil(shape.tile_dms).max(1));
    let mut tiles: Vec<Tile> = Vec::new();
    for dm in sorted {
        let grown = |tile: &Tile| plan.trial_shift(dm) - plan.trial_shift(tile.trials[0]);
        let skew = |tile: &Tile| grown(tile) / 2 / SKEW_STEP * SKEW_STEP;
        let fits = |tile: &&mut Tile| {
            // Rounding may let another channel's shift grow by one more sample.
            tile.trials.len() < most && grown(tile) - skew(tile) < shape.max_spread()
        };
        match tiles.last_mut().filter(fits) {
            Some(tile) => {
                tile.skews.push(skew(tile));
                tile.trials.push(dm);
            }
            None => tiles.push(Tile { trials: vec![dm], skews: vec![0] }),
        }
    }
    tiles
}
