//! General kernel: any plan, any encoding, any shift. Its block shapes, and its records: instructions for one interval of
//! channels and one tile of adjacent trials.
//!
//! Trials whose shifts of a group of channels differ only by a constant share one sum. Integer sums that differ in few channels
//! are computed one from the other.

use super::super::plan::{Lane, Plan, UsedChannel};
use super::history::{Job, element};
use crate::backend::cuda::tune::{self, Candidate};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Properties, Source, Stream};
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::trace::{self, Work};

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

/// Returns the model's choice of the shape for the plan.
pub(super) fn usual(plan: &Plan, device: &Device) -> Shape {
    Shape::fitting(plan, device.properties())[0]
}

/// Returns the tuned shape for the plan, or the model's choice.
pub(super) fn chosen(plan: &Plan, trials: usize, device: &Device) -> Shape {
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
        let span = trace::span(Work::Compute, "tables");
        let table = Table::new(plan, &shape, trials, threads);
        drop(span);
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
const UNUSED: [u32; 4] = [u32::MAX, 0, 0, 0];

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
            let places = rows.chain(std::iter::repeat(UNUSED));
            table.trials.extend(places.take(shape.tile_dms));
        }
        table.skew = tiles.iter().map(Tile::skew).max().unwrap_or(0);
        table
    }
}

/// Returns the first trial of each tile of all trials of a plan.
pub(super) fn tile_starts(plan: &Plan, device: &Device) -> Vec<usize> {
    let all: Vec<usize> = (0..plan.dms().len()).collect();
    let shape = chosen(plan, all.len(), device);
    tiles(plan, &shape, &all).iter().map(|tile| tile.trials[0]).collect()
}

/// Sorts trials by dispersion measure and cuts them into tiles; no shift within a tile grows beyond what a block holds.
fn tiles(plan: &Plan, shape: &Shape, trials: &[usize]) -> Vec<Tile> {
    let mut sorted = trials.to_vec();
    sorted.sort_by(|a, b| plan.dms()[*a].total_cmp(&plan.dms()[*b]));
    // Tiles have equal trial counts where the shifts allow it. Sums of floats depend on the tile, which must be the same when
    // another device has the trials before it.
    let most = match shape.lane {
        Lane::F32 => shape.tile_dms,
        _ => sorted.len().div_ceil(sorted.len().div_ceil(shape.tile_dms).max(1)),
    };
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

/// Channels of an interval.
pub(super) const CHANNELS: usize = 16;

/// Extent and shared-memory layout of a block; words have 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) threads: usize,
    /// Trials of a tile.
    tile_dms: usize,
    /// Words of a row that one trial reads.
    pub(super) words: usize,
    /// Largest number of words of a row of samples.
    max_words: usize,
    /// Largest number of words of all rows of sums of an interval.
    max_sums: usize,
    /// Largest number of words of a record.
    max_record: usize,
    /// Resident blocks per multiprocessor.
    pub(super) blocks: usize,
    pub(super) lane: Lane,
    /// Whether a word holds two sums of 16 bits.
    pub(super) packed: bool,
    /// Number of intervals whose packed sums fit 16 bits.
    flush: usize,
}

/// Shape of 512 threads: one block fills a multiprocessor with 227 KiB of shared memory.
const LARGE: Shape = Shape {
    threads: 512,
    tile_dms: 64,
    words: 256,
    max_words: 640,
    max_sums: 14336,
    max_record: 2048,
    blocks: 1,
    lane: Lane::U8,
    packed: false,
    flush: 0,
};

/// Like [`LARGE`], for unpacked words: the registers hold twice the trials, which share more sums.
const TALL: Shape = Shape { tile_dms: 128, max_sums: 12288, max_record: 3072, ..LARGE };

/// Shape of 256 threads: two blocks fit a multiprocessor.
const MIDDLE: Shape = Shape {
    threads: 256,
    words: 128,
    max_words: 384,
    max_sums: 5120,
    max_record: 1536,
    blocks: 2,
    ..LARGE
};

/// Like [`MIDDLE`], for devices with less than 100 KiB of shared memory per block.
const SMALL: Shape = Shape { max_words: 256, max_sums: 3584, blocks: 1, ..MIDDLE };

impl Shape {
    /// Lists the shapes for a sample type and packed or unpacked words, the largest first.
    pub(super) fn all(lane: Lane, packed: bool) -> [Self; 3] {
        let shapes = [if packed { LARGE } else { TALL }, MIDDLE, SMALL];
        shapes.map(|shape| Self { lane, packed, ..shape })
    }

    /// Lists the shapes that fit the device, the cost model's choice first. Floats get that one alone, because
    /// another shape adds in another order.
    fn fitting(plan: &Plan, device: &Properties) -> Vec<Self> {
        let lane = plan.lane(1);
        let most = plan.largest().unwrap_or(u64::MAX).max(1);
        // After a split the low bytes remain in the registers, and the part above them must fit 16 bits too.
        let flush = (0xffff - 0xff) / most.saturating_mul(CHANNELS as u64);
        let total = most.saturating_mul(plan.channels_used().len() as u64);
        let packed = flush > 0 && total < 1 << 24;
        let fits = |shape: &Self| shape.shared_bytes() <= device.shared_bytes;
        let mut shapes: Vec<Self> = Self::all(lane, packed).into_iter().filter(fits).collect();
        if shapes.is_empty() {
            shapes.push(Self { lane, packed, ..SMALL });
        }
        if lane == Lane::F32 {
            shapes.truncate(1);
        }
        shapes.iter_mut().for_each(|shape| shape.flush = flush.min(1 << 30) as usize);
        shapes
    }

    /// Returns the tuning candidate for this shape.
    fn candidate(&self) -> Candidate {
        let Self { threads, tile_dms, words, max_words, .. } = *self;
        let values = [threads, tile_dms, words, max_words].map(|value| value as u32);
        let name = format!("{threads} threads, {tile_dms} trials, {max_words} words a row");
        Candidate { name, values: values.to_vec() }
    }

    /// Returns the output times of a tile.
    fn tile_times(&self) -> usize {
        if self.packed { 2 * self.words } else { self.words }
    }

    /// Returns the warps of a block.
    fn warps(&self) -> usize {
        self.threads / 32
    }

    /// Returns the largest growth of a channel's shift within a tile. The margin covers the rounding of rows to whole
    /// segments and of starts to multiples of 4.
    fn max_spread(&self) -> usize {
        self.max_words - self.words - 80
    }

    /// Returns the bytes of shared memory of a block: two buffers of samples and of sums, and four records.
    fn shared_bytes(&self) -> usize {
        4 * (2 * CHANNELS * self.max_words + 2 * self.max_sums + 4 * self.max_record)
    }

    /// Lists the preprocessor constants of the kernel.
    pub(super) fn defines(&self) -> Vec<(&'static str, String)> {
        let numbers = [
            ("THREADS", self.threads),
            ("TILE_DMS", self.tile_dms),
            ("WORDS", self.words),
            ("MOST_WORDS", self.max_words),
            ("MOST_SUMS", self.max_sums),
            ("MOST_RECORD", self.max_record),
            ("CHANNELS", CHANNELS),
            ("BLOCKS", self.blocks),
            ("PACKED", usize::from(self.packed)),
            ("FLOATS", usize::from(self.lane == Lane::F32)),
        ];
        let mut defines: Vec<_> =
            numbers.into_iter().map(|(name, value)| (name, value.to_string())).collect();
        defines.push(("ELEMENT", element(self.lane).to_owned()));
        defines
    }
}

/// Read offset of each channel of a group, relative to the row of sums; unused channels are 0.
type Pattern = [u16; CHANNELS];

/// A group of channels of one interval, for one tile of trials.
#[derive(Clone, Debug)]
struct Group {
    /// Index of the first channel within the interval.
    pub(super) first: usize,
    pub(super) channels: usize,
    patterns: Vec<Pattern>,
    /// Pattern of each trial, and its offset in the row.
    pub(super) trials: Vec<(usize, usize)>,
    /// Chains of patterns; each pattern is computed from its predecessor.
    chains: Vec<Vec<usize>>,
}

impl Group {
    /// Finds the patterns that trials share; `None` if there are more than `most`. `shifts` holds each trial's shift from
    /// the channel's start, for each channel of the interval.
    pub(super) fn new(
        shifts: &[Vec<usize>],
        first: usize,
        channels: usize,
        most: usize,
    ) -> Option<Self> {
        let lead = &shifts[first];
        let low = lead.iter().copied().min().unwrap_or(0);
        let mut patterns: Vec<Pattern> = Vec::new();
        let mut known = Known::default();
        let mut trials = Vec::with_capacity(lead.len());
        for dm in 0..lead.len() {
            let mut pattern = [0; CHANNELS];
            for (c, offset) in pattern.iter_mut().enumerate().take(channels) {
                *offset = (low + shifts[first + c][dm] - lead[dm]) as u16;
            }
            let index = known.index(&pattern, &patterns);
            if index == patterns.len() {
                if index == most {
                    return None;
                }
                patterns.push(pattern);
            }
            trials.push((index, lead[dm] - low));
        }
        Some(Self { first, channels, patterns, trials, chains: Vec::new() })
    }

    /// Returns the words of a row beyond those that one trial reads.
    fn spread(&self) -> usize {
        self.trials.iter().map(|trial| trial.1).max().unwrap_or(0)
    }

    /// Returns the largest read offset of a channel.
    pub(super) fn reach(&self) -> usize {
        let offsets = self.patterns.iter().flatten();
        offsets.map(|offset| usize::from(*offset)).max().unwrap_or(0)
    }

    /// Returns the steps that sum a pattern from all its channels.
    fn whole(&self) -> usize {
        self.channels.div_ceil(2)
    }

    /// Orders the patterns so that few channels differ between neighbours; returns each with its number of steps.
    fn path(&self, exact: bool) -> Vec<(usize, usize)> {
        if !exact {
            return (0..self.patterns.len()).map(|pattern| (pattern, usize::MAX)).collect();
        }
        let mut left: Vec<usize> = (1..self.patterns.len()).collect();
        let mut path = Vec::with_capacity(self.patterns.len());
        let mut now = 0;
        while !left.is_empty() {
            let steps = |other: &usize| differences(&self.patterns[now], &self.patterns[*other]);
            let (at, least) = nearest(left.iter().map(steps));
            path.push((now, least));
            now = left.swap_remove(at);
        }
        path.push((now, usize::MAX));
        path
    }

    /// Splits a path into about `parts` chains, and wherever a new sum is shorter than the difference. Returns each
    /// chain's steps.
    fn split(&mut self, path: &[(usize, usize)], parts: usize) -> Vec<usize> {
        let whole = self.whole();
        let cost = |steps: usize| steps.min(whole);
        let total: usize = whole + path.iter().map(|link| cost(link.1)).sum::<usize>();
        let target = total.div_ceil(parts);
        self.chains.clear();
        let mut costs = Vec::new();
        let (mut chain, mut steps) = (Vec::new(), whole);
        for (pattern, link) in path {
            chain.push(*pattern);
            if *link > whole || steps + link > target.max(whole) {
                self.chains.push(std::mem::take(&mut chain));
                costs.push(steps);
                steps = whole;
            } else {
                steps += link;
            }
        }
        if !chain.is_empty() {
            self.chains.push(chain);
            costs.push(steps);
        }
        costs
    }
}

/// Places of a group's patterns by their hash: 0 if free, else 1 + an index.
struct Known([u8; 256]);

/// A tile has fewer trials than [`Known`] has places, so a search of it ends.
const _: () = assert!(TALL.tile_dms < 255 && LARGE.tile_dms < 255);

impl Default for Known {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl Known {
    /// Returns the index of a pattern among `patterns`, or that of the next one, for which it takes a place.
    fn index(&mut self, pattern: &Pattern, patterns: &[Pattern]) -> usize {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let words: [u64; 4] = bytemuck::cast(*pattern);
        let mixed = words
            .iter()
            .fold(0u64, |hash, word| (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR));
        let mut place = (mixed >> 56) as usize;
        loop {
            match usize::from(self.0[place]) {
                0 => {
                    self.0[place] = patterns.len() as u8 + 1;
                    return patterns.len();
                }
                index if patterns[index - 1] == *pattern => return index - 1,
                _ => place = (place + 1) % self.0.len(),
            }
        }
    }
}

/// Counts the channels in which two patterns differ.
fn differences(a: &Pattern, b: &Pattern) -> usize {
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}

/// Returns the index and value of the first smallest value.
fn nearest(values: impl Iterator<Item = usize>) -> (usize, usize) {
    let mut best = (0, usize::MAX);
    for (at, value) in values.enumerate() {
        if value < best.1 {
            best = (at, value);
        }
    }
    best
}

/// Words of a row that one warp builds per work item.
const PART: usize = 64;

/// Row offset of a step that completes no row.
const NOWHERE: u32 = u32::MAX;

/// Interval of channels: history rows, and each trial's shift in each channel.
#[derive(Clone, Debug)]
struct Interval {
    pub(super) rows: Vec<u32>,
    /// Shift of each trial for each channel, counted from `back` samples before the tile's first time.
    pub(super) shifts: Vec<Vec<usize>>,
    back: usize,
}

/// Sample rows of an interval, relative to each channel's start.
struct Layout {
    starts: Vec<i64>,
    /// Shift of each trial relative to the channel's start.
    shifts: Vec<Vec<usize>>,
}

impl Layout {
    /// Aligns starts to multiples of 4 samples; `channels` is the size of the groups.
    fn new(interval: &Interval, channels: usize) -> Self {
        let start = |shifts: &Vec<usize>| shifts.iter().copied().min().unwrap_or(0) as i64 & !3;
        let mut starts: Vec<i64> = interval.shifts.iter().map(start).collect();
        for group in (0..starts.len()).step_by(channels) {
            for c in group..starts.len().min(group + channels) {
                lower(interval, &mut starts, group, c);
            }
        }
        let relative = |(shifts, start): (&Vec<usize>, &i64)| {
            shifts.iter().map(|shift| (*shift as i64 - start) as usize).collect()
        };
        let shifts = interval.shifts.iter().zip(&starts).map(relative).collect();
        Self { starts, shifts }
    }
}

/// Moves the start of channel `c` back until every trial reads it at or after its offset in the group's row of sums.
fn lower(interval: &Interval, starts: &mut [i64], lead: usize, c: usize) {
    let first = |c: usize, dm: usize| interval.shifts[c][dm] as i64;
    let trials = interval.shifts[c].len();
    let low = (0..trials).map(|dm| first(lead, dm)).min().unwrap_or(0);
    let least = (0..trials).map(|dm| low + first(c, dm) - first(lead, dm)).min().unwrap_or(0);
    while least < starts[c] {
        starts[c] -= 4;
    }
}

/// One way to share an interval's sums.
struct Sharing {
    layout: Layout,
    groups: Vec<Group>,
    /// Words of a row of sums.
    words: usize,
    /// Words of a row of samples.
    stride: usize,
    /// Shared-memory traffic of a warp, in rows of 32 words.
    cost: usize,
}

impl Sharing {
    /// Shares the sums of groups of `channels` channels; `None` if that does not fit the block's shared memory. Most of
    /// those that do not fit have too many rows of sums, which is known before their order is.
    fn new(shape: &Shape, interval: &Interval, channels: usize) -> Option<Self> {
        let layout = Layout::new(interval, channels);
        let count = layout.shifts.len();
        let most = shape.max_sums / shape.words.next_multiple_of(PART);
        let (mut groups, mut rows) = (Vec::<Group>::new(), 0);
        for first in (0..count).step_by(channels) {
            let channels = channels.min(count - first);
            let group = Group::new(&layout.shifts, first, channels, most - rows)?;
            rows += group.patterns.len();
            groups.push(group);
        }
        let spread = groups.iter().map(Group::spread).max().unwrap_or(0);
        let reach = groups.iter().map(Group::reach).max().unwrap_or(0);
        let words = (shape.words + spread).next_multiple_of(PART);
        let stride = (words + reach).next_multiple_of(4);
        if stride > shape.max_words || rows * words > shape.max_sums {
            return None;
        }
        let build = chain(shape, &mut groups, words / PART);
        let accumulate = groups.len() * shape.tile_dms * shape.words / 32 / shape.warps();
        // Each float row is summed from its first channel and waits longer than it reads; the factor is measured.
        let build = if shape.lane == Lane::F32 { build * 3 / 2 } else { build };
        let sharing = Self { layout, groups, words, stride, cost: build + accumulate };
        (sharing.record_words(shape) + 8 <= shape.max_record).then_some(sharing)
    }

    /// Returns an upper bound on the record's words.
    fn record_words(&self, shape: &Shape) -> usize {
        let steps = |group: &Group| {
            let whole = group.channels.div_ceil(2);
            let more = group.patterns.len() * whole.max(1);
            more + group.chains.len() * (whole + 1)
        };
        let chains: usize = self.groups.iter().map(|group| group.chains.len()).sum();
        let steps: usize = self.groups.iter().map(steps).sum();
        4 + 2 * CHANNELS + self.groups.len() * shape.tile_dms + chains + 4 + 4 * steps
    }
}

/// Splits the groups' patterns into chains that keep all warps busy. Returns the mean of the busiest warp's cost and
/// the average cost.
fn chain(shape: &Shape, groups: &mut [Group], parts: usize) -> usize {
    let exact = shape.lane != Lane::F32;
    let paths: Vec<_> = groups.iter().map(|group| group.path(exact)).collect();
    let warps = shape.warps();
    let mut cost = |split: usize| {
        let mut busy = vec![0; warps];
        let mut item = 0;
        for (group, path) in groups.iter_mut().zip(&paths) {
            let steps = group.split(path, split);
            for (chain, steps) in group.chains.iter().zip(steps) {
                for _ in 0..parts {
                    // A step reads two rows of 32 words twice, and its own record; a completed row is written.
                    busy[item % warps] += 5 * steps.next_multiple_of(2) + 2 * chain.len();
                    item += 1;
                }
            }
        }
        let total: usize = busy.iter().sum();
        (busy.iter().copied().max().unwrap_or(0) + total.div_ceil(warps)) / 2
    };
    // Each float pattern is a chain of its own, however they are split.
    let most = if exact { 8 } else { 1 };
    let best = (1..=most).min_by_key(|split| cost(*split)).unwrap_or(1);
    cost(best)
}

/// Writes the record of an interval with the cheapest sharing that fits shared memory.
fn record(shape: &Shape, interval: &Interval) -> Vec<u32> {
    // Of equal costs the largest groups; single channels always fit, because tiles are cut for them.
    let sharings = [16, 8, 4, 2, 1].into_iter();
    let fitting = sharings.filter_map(|channels| Sharing::new(shape, interval, channels));
    let best = fitting.min_by_key(|sharing| sharing.cost).expect("single channels fit");
    write(shape, interval, &best)
}

fn write(shape: &Shape, interval: &Interval, sharing: &Sharing) -> Vec<u32> {
    let chains: usize = sharing.groups.iter().map(|group| group.chains.len()).sum();
    // The kernel divides by the segments of a row with this reciprocal.
    let reciprocal = (1 << 16) / (sharing.words / PART) + 1;
    let mut words = vec![
        (sharing.words | reciprocal << 16) as u32,
        sharing.groups.len() as u32,
        chains as u32,
        sharing.stride as u32,
    ];
    for c in 0..CHANNELS {
        let c = c.min(interval.rows.len() - 1);
        let start = sharing.layout.starts[c] - interval.back as i64;
        words.extend([interval.rows[c], start as i32 as u32]);
    }
    let mut row = 0;
    let mut ranges = Vec::new();
    let mut steps = Vec::new();
    for group in &sharing.groups {
        words.extend((0..shape.tile_dms).map(|dm| {
            let (pattern, place) = group.trials[dm.min(group.trials.len() - 1)];
            (((row + pattern) * sharing.words + place) * 4) as u32
        }));
        for chain in &group.chains {
            let begin = steps.len() / 4;
            write_chain(shape, sharing, group, row, chain, &mut steps);
            ranges.push((begin | (steps.len() / 4) << 16) as u32);
        }
        row += group.patterns.len();
    }
    ranges.resize(ranges.len().next_multiple_of(4), 0);
    words.extend(ranges);
    words.extend(steps);
    words
}

/// Operation of a step besides adding `plus`; integer and float kernels encode it differently.
enum Kind {
    /// Adds a second channel. `is_first` starts a new sum (floats only).
    Add { is_first: bool },
    /// Adds no second channel.
    Single { is_first: bool },
    /// Subtracts the channel's sample of the previous pattern.
    Replace,
}

fn factor(shape: &Shape, kind: &Kind) -> u32 {
    match (shape.lane == Lane::F32, kind) {
        (true, Kind::Add { is_first }) => u32::from(*is_first),
        (true, Kind::Single { is_first }) => u32::from(*is_first) | 2,
        (false, Kind::Add { .. }) => 1,
        (false, Kind::Single { .. }) => 0,
        (_, Kind::Replace) => u32::MAX,
    }
}

/// Writes a chain of an even number of steps: the first pattern from all channels, each other one from its
/// predecessor.
fn write_chain(
    shape: &Shape,
    sharing: &Sharing,
    group: &Group,
    first_row: usize,
    chain: &[usize],
    steps: &mut Vec<u32>,
) {
    let place = |pattern: &Pattern, c: usize| {
        (((group.first + c) * sharing.stride + usize::from(pattern[c])) * 4) as u32
    };
    let begin = steps.len();
    let mut before: Option<&Pattern> = None;
    for index in chain {
        let pattern = &group.patterns[*index];
        match before {
            None => {
                for c in (0..group.channels).step_by(2) {
                    let is_first = c == 0;
                    let kind = if c + 1 < group.channels {
                        Kind::Add { is_first }
                    } else {
                        Kind::Single { is_first }
                    };
                    let second = place(pattern, (c + 1).min(group.channels - 1));
                    steps.extend([place(pattern, c), second, NOWHERE, factor(shape, &kind)]);
                }
            }
            Some(old) => {
                for c in (0..group.channels).filter(|c| old[*c] != pattern[*c]) {
                    let kind = factor(shape, &Kind::Replace);
                    steps.extend([place(pattern, c), place(old, c), NOWHERE, kind]);
                }
            }
        }
        let last = steps.len() - 2;
        steps[last] = ((first_row + index) * sharing.words * 4) as u32;
        before = Some(pattern);
    }
    if !(steps.len() - begin).is_multiple_of(8) {
        // Padding step that completes no row.
        let any = place(&group.patterns[chain[0]], 0);
        steps.extend([any, any, NOWHERE, factor(shape, &Kind::Single { is_first: true })]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_patterns_are_found_at_their_index() {
        // Patterns that differ in one place, each asked for several times.
        let mut patterns: Vec<Pattern> = Vec::new();
        let mut known = Known::default();
        for asked in 0..1000_usize {
            let mut pattern = [0; CHANNELS];
            pattern[asked % 16] = (asked * 7 % 128 / 16) as u16;
            let expected = patterns.iter().position(|other| *other == pattern);
            let index = known.index(&pattern, &patterns);
            assert_eq!(index, expected.unwrap_or(patterns.len()));
            if index == patterns.len() {
                patterns.push(pattern);
            }
        }
        assert!(patterns.len() > 60, "{}", patterns.len());
    }

    #[test]
    fn single_channels_fit_every_shape() {
        for (lane, packed) in super::super::KINDS {
            for shape in Shape::all(lane, packed) {
                let last = shape.max_spread() - 1;
                let trial = |dm: usize| dm * last / (shape.tile_dms - 1);
                for start in 0..4 {
                    let interval = Interval {
                        rows: (0..CHANNELS as u32).collect(),
                        shifts: vec![
                            (0..shape.tile_dms).map(|dm| start + trial(dm)).collect();
                            CHANNELS
                        ],
                        back: 0,
                    };
                    assert!(Sharing::new(&shape, &interval, 1).is_some(), "{shape:?} {start}");
                }
            }
        }
    }
}
