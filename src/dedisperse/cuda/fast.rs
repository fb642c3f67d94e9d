//! Fast kernel: 8-bit samples on Hopper, for trials whose shifts of adjacent channels are nearly equal.

use super::super::plan::{Lane, Plan};
use super::history::Job;
use crate::backend::cuda::tune::{self, Candidate};
use crate::backend::cuda::{
    Arguments, Better, Buffer, Device, Function, Module, Source, Stream, Variant,
};
use crate::backend::threads::Threads;
use crate::error::Result;

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
    /// Best kernel, until it is compiled; `kernel` is the quick one before.
    better: Option<Better>,
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
const MAX_PITCH: u64 = 1 << 26;

/// Number of tiles sampled to choose a shape.
const SAMPLED: usize = 4;

impl Fast {
    /// Compiles the kernel of a shape that [`shape`] returned and builds its tables. Returns `None` if `pitch` (bytes
    /// between rows) is too large, or no tile of trials fits.
    pub(super) fn new(
        plan: &Plan,
        shape: Shape,
        device: &Device,
        pitch: u64,
        threads: &Threads,
    ) -> Result<Option<Self>> {
        if pitch >= MAX_PITCH {
            return Ok(None);
        }
        let Some(most) = plan.largest() else { return Ok(None) };
        let channels = plan.channels_used().len();
        let tables = tables(plan, &shape, &sorted(plan), threads);
        if tables.trials.is_empty() {
            return Ok(None);
        }
        let (module, better) = device.module_or_quick(&shape.source(), &shape.quick_source())?;
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
            kernel: function(&module, &shape)?,
            better,
        }))
    }

    /// Takes the best kernel if it is ready. Loads and allocates once.
    pub(super) fn improve(&mut self, device: &Device) {
        // If the best kernel cannot be compiled or loaded, the quick one gives the same sums.
        if let Some(better) = self.better.take_if(|better| better.is_ready())
            && let Some(module) = better.module(device)
            && let Ok(kernel) = function(&module, &self.shape)
        {
            self.kernel = kernel;
        }
    }

    /// Takes the kernel that compiles quickly.
    #[cfg(test)]
    pub(super) fn take_quick(&mut self, device: &Device) {
        let module = device.module(&self.shape.quick_source()).unwrap();
        self.kernel = function(&module, &self.shape).unwrap();
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

/// Returns the kernel of a module for a shape.
fn function(module: &Module, shape: &Shape) -> Result<Function> {
    module.function("dedisperse_wgmma", shape.shared_bytes())
}

/// Returns the shape for a plan, computed on `threads`. Returns `None` if the device is not Hopper, samples are wider
/// than bytes, or no tile of trials fits.
pub(super) fn shape(plan: &Plan, device: &Device, threads: &Threads) -> Option<Shape> {
    let fits = device.is_hopper() && plan.lane(1) == Lane::U8;
    let most = plan.largest().filter(|_| fits)?;
    // The sum's multiples of 256 are counted in 16 bits.
    if most.saturating_mul(plan.channels_used().len() as u64) >= 1 << 24 {
        return None;
    }
    chosen(plan, &candidates(plan, &sorted(plan), threads), device)
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
fn candidates(plan: &Plan, sorted: &[usize], threads: &Threads) -> Vec<Shape> {
    let parts: Vec<&[usize]> = sorted.chunks(per_tile(sorted.len())).collect();
    let sampled = parts.len().min(SAMPLED);
    let spaced = |i: usize| parts[i * (parts.len() - 1) / (sampled - 1).max(1)];
    let ranked = |share: usize| {
        let part = |i| &spaced(i)[..spaced(i).len().div_ceil(share)];
        let mut extents = vec![Extents::default(); sampled];
        threads.for_each(&mut extents, 1, |i, target| target[0] = Extents::new(plan, part(i)));
        Shape::ranked(&extents)
    };
    let whole = ranked(1);
    // Tiles that do not fit are split in halves.
    if whole.is_empty() { ranked(2) } else { whole }
}

/// Returns the tuned shape for the plan, or the model's choice.
fn chosen(plan: &Plan, shapes: &[Shape], device: &Device) -> Option<Shape> {
    let candidates: Vec<Candidate> = shapes.iter().map(Shape::candidate).collect();
    let shifts = || (0..plan.dms().len()).map(|dm| plan.trial_shift(dm));
    let words = format!(
        "channels={} trials={} shortest={} longest={} most={}",
        plan.channels(),
        plan.dms().len(),
        shifts().min().unwrap_or(0),
        plan.max_shift(),
        plan.largest().unwrap_or(0),
    );
    let choice = tune::select(device, &shapes.first()?.source(), &words, &candidates);
    let index = candidates.iter().position(|candidate| *candidate == choice);
    Some(shapes[index.unwrap_or(0)])
}

/// Builds the tables of all trials on all threads.
fn tables(plan: &Plan, shape: &Shape, sorted: &[usize], threads: &Threads) -> Tables {
    let parts: Vec<&[usize]> = sorted.chunks(per_tile(sorted.len())).collect();
    let mut made: Vec<(Vec<Tile>, Vec<usize>)> = vec![Default::default(); parts.len()];
    threads.for_each(&mut made, 1, |index, target| {
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

/// Extent and resources of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Consumer warpgroups; one more warpgroup stages.
    teams: usize,
    /// Column blocks of products in flight in each warpgroup.
    flight: usize,
    /// Output times of a block.
    pub(super) times: usize,
    /// Channels of a group.
    group: usize,
    /// Staged groups in the ring.
    ring: usize,
    /// Units of 32 channels in flight from global memory.
    depth: usize,
    /// Sets of 8 window positions.
    sets: usize,
}

/// Window positions of one set of bits.
const POSITIONS: usize = 8;

/// Maximum of staged samples of a channel: 4 for each thread of a warpgroup.
const MAX_COLUMNS: usize = 512;

/// Few warps with many registers each, for narrow windows.
const NARROW: Shape =
    Shape { teams: 2, flight: 2, times: 384, group: 32, ring: 3, depth: 1, sets: 1 };

/// Many warps with few registers each.
const MANY: Shape = Shape { teams: 4, flight: 1, ..NARROW };

/// Like [`MANY`], for windows of up to 16 positions.
const WIDE: Shape = Shape { ring: 2, sets: 2, ..MANY };

impl Shape {
    /// All shapes; on ties the model prefers the earlier one ([`Shape::ranked`]).
    const ALL: [Self; 6] = [
        Self { times: 448, ..NARROW },
        NARROW,
        Self { times: 448, ..MANY },
        MANY,
        Self { times: 448, ..WIDE },
        WIDE,
    ];

    /// Lists the shapes that fit the most sampled tiles, the model's choice first: the first shape that is also fast
    /// for the tiles' mean window. The others are tuning candidates.
    fn ranked(extents: &[Extents]) -> Vec<Self> {
        let unfit = |shape: &Self| {
            let groups: Vec<&Extents> = extents.iter().filter(|of| of.fits(shape)).collect();
            let mean = groups.iter().map(|of| of.mean_window(shape.group)).sum::<f64>();
            let is_slow = mean > shape.max_mean_window() * groups.len() as f64;
            (extents.len() - groups.len(), is_slow)
        };
        let mut ranked: Vec<(usize, bool, Self)> = Vec::new();
        for shape in Self::ALL {
            let (unfit, is_slow) = unfit(&shape);
            if unfit < extents.len() {
                ranked.push((unfit, is_slow, shape));
            }
        }
        // Drops shapes that fit fewer tiles than others do: the general kernel would sum the rest.
        let least = ranked.iter().map(|of| of.0).min();
        ranked.retain(|of| Some(of.0) == least);
        ranked.sort_by_key(|of| of.1);
        ranked.into_iter().map(|of| of.2).collect()
    }

    /// Returns the tuning candidate for this shape.
    fn candidate(&self) -> Candidate {
        let Self { teams, flight, times, group, ring, depth, sets } = *self;
        let values = [teams, flight, times, group, ring, depth, sets].map(|value| value as u32);
        let name = format!("{teams} warpgroups, {times} times, {} positions", self.max_positions());
        Candidate { name, values: values.to_vec() }
    }

    /// Returns the largest mean window for which the shape is fast.
    fn max_mean_window(&self) -> f64 {
        if self.teams == 2 { 5.5 } else { f64::INFINITY }
    }

    /// Returns whether a group fits whose frames differ by up to `spread` and whose window has `window` positions.
    fn holds(&self, spread: usize, window: usize) -> bool {
        let columns = self.times + spread + window - 1;
        window <= self.max_positions() && columns <= self.max_columns()
    }

    /// Returns the source of the best kernel for this shape.
    pub(super) fn source(&self) -> Source {
        self.kernel(0)
    }

    /// Returns the source of the kernel that compiles quickly.
    pub(super) fn quick_source(&self) -> Source {
        self.kernel(1)
    }

    fn kernel(&self, quick: usize) -> Source {
        let numbers = [
            ("TEAMS", self.teams),
            ("FLIGHT", self.flight),
            ("TIMES", self.times),
            ("GROUP", self.group),
            ("RING", self.ring),
            ("DEPTH", self.depth),
            ("SETS", self.sets),
            ("QUICK", quick),
        ];
        Source {
            name: "wgmma.cu",
            text: include_str!("wgmma.cu"),
            includes: &[],
            defines: numbers.into_iter().map(|(name, value)| (name, value.to_string())).collect(),
        }
    }

    /// Returns the threads of a block.
    pub(super) fn threads(&self) -> usize {
        128 * (self.teams + 1)
    }

    /// Returns the positions of the widest window.
    fn max_positions(&self) -> usize {
        POSITIONS * self.sets
    }

    /// Returns the largest number of staged samples of a channel.
    fn max_columns(&self) -> usize {
        MAX_COLUMNS.min(self.times + 128)
    }

    /// Returns the bytes between rows of sums: 16 more than a multiple of 128, to avoid bank conflicts.
    pub(super) fn row_bytes(&self) -> usize {
        2 * self.max_columns() + 16
    }

    /// Returns the sets of one-hot bits of a group; a set covers 32 channels and 8 positions.
    fn hot_sets(&self) -> usize {
        self.sets * self.group / 32
    }

    /// Returns the size of the kernel's `Head` in bytes.
    fn head_bytes(&self) -> usize {
        4 * (TRIALS + 4) + 2048 * self.hot_sets()
    }

    /// Returns the bytes of shared memory of a block, as the kernel lays it out.
    fn shared_bytes(&self) -> usize {
        let staged = self.ring * self.group * (self.max_columns() + 8);
        let raw = 4 * (self.depth + 1) * (32 * 144 + 256);
        let sums = TRIALS * (self.row_bytes() + 2 * self.times);
        let heads = if self.ring == 2 { 4 } else { 8 };
        let barriers = 8 * (heads + 2 * self.ring + 8);
        staged + raw + sums + heads * self.head_bytes() + barriers
    }

    /// Returns how many groups of samples up to `most` fit 16 bits on top of a byte, rounded down to a power of two.
    fn flush(&self, most: u64) -> usize {
        let groups = (0xffff - 0xff) / (most.max(1) * self.group as u64);
        1 << groups.ilog2()
    }
}

/// Lists the variants of the fast kernel: every best one, and quick ones of all shapes or of [`NARROW`], [`MANY`] and
/// [`WIDE`].
pub(in super::super) fn variants(is_all: bool) -> Vec<Variant> {
    let quick = if is_all { &Shape::ALL[..] } else { &[NARROW, MANY, WIDE] };
    let sources = Shape::ALL.iter().map(Shape::source);
    sources.chain(quick.iter().map(Shape::quick_source)).map(Variant::hopper).collect()
}

/// Trials of a tile.
const TRIALS: usize = 64;

/// Trials whose rows one warp of each warpgroup processes.
const SLAB: usize = 16;

/// Largest skew of a tile's times, in samples.
const MAX_SKEW: i32 = 1024;

/// Kernel table of one tile.
#[derive(Clone, Debug, Default)]
struct Tile {
    /// Kernel entries of all groups, in order.
    entries: Vec<u32>,
    /// Output row of each trial, or -1, and the skew of its times.
    pub(super) trials: Vec<[i32; 2]>,
}

/// Group sizes of the shapes, in channels.
const GROUPS: [usize; 2] = [32, 64];

/// Resources that a tile's groups need, for each group size.
#[derive(Clone, Debug, Default)]
struct Extents([Option<Vec<Extent>>; GROUPS.len()]);

/// Resources that one group needs.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Difference between the largest and smallest frame, in samples.
    spread: usize,
    /// Window positions.
    window: usize,
}

impl Extents {
    /// Computes the extents of a tile of up to 64 trials.
    pub(super) fn new(plan: &Plan, trials: &[usize]) -> Self {
        let shifts = shifts(plan, trials);
        Self(GROUPS.map(|channels| {
            let frames: Vec<_> = shifts.chunks(channels).map(frames).collect();
            let skew = skew(&frames)?;
            let groups = shifts.chunks(channels).zip(frames);
            let group = |(shifts, frames)| Group { shifts, frames, skew: &skew }.extent();
            Some(groups.map(group).collect())
        }))
    }

    fn of(&self, channels: usize) -> Option<&[Extent]> {
        let place = GROUPS.iter().position(|size| *size == channels)?;
        self.0[place].as_deref()
    }

    /// Returns whether every group fits a shape.
    fn fits(&self, shape: &Shape) -> bool {
        let holds = |of: &Extent| shape.holds(of.spread, of.window);
        self.of(shape.group).is_some_and(|groups| groups.iter().all(holds))
    }

    /// Returns the mean window of groups of `channels` channels.
    fn mean_window(&self, channels: usize) -> f64 {
        let groups = self.of(channels).unwrap_or_default();
        groups.iter().map(|of| of.window).sum::<usize>() as f64 / groups.len().max(1) as f64
    }
}

/// Group of channels: each channel's shifts and the trials' frames.
struct Group<'a> {
    /// Axes channel, trial.
    shifts: &'a [[i32; TRIALS]],
    /// Even shift of each trial's group sum.
    frames: [i32; TRIALS],
    skew: &'a [i32; TRIALS],
}

impl Tile {
    /// Builds the table of up to 64 trials; `None` if a window or a row does not fit.
    pub(super) fn new(plan: &Plan, shape: &Shape, trials: &[usize]) -> Option<Self> {
        let shifts = shifts(plan, trials);
        let frames: Vec<_> = shifts.chunks(shape.group).map(frames).collect();
        let skew = skew(&frames)?;
        let mut tile = Self::default();
        for (shifts, frames) in shifts.chunks(shape.group).zip(frames) {
            Group { shifts, frames, skew: &skew }.append(shape, &mut tile)?;
        }
        let row = |d: usize| trials.get(d).map_or(-1, |dm| *dm as i32);
        tile.trials = (0..TRIALS).map(|d| [row(d), skew[d]]).collect();
        Some(tile)
    }
}

/// Returns the shifts of the summed channels; the last trial pads the tile to 64.
fn shifts(plan: &Plan, trials: &[usize]) -> Vec<[i32; TRIALS]> {
    let channels = plan.channels_used().iter();
    let shift = |channel: &usize| {
        let mut row = [0; TRIALS];
        for (d, shift) in row.iter_mut().enumerate() {
            *shift = plan.shift(trials[d.min(trials.len() - 1)], *channel) as i32;
        }
        row
    };
    channels.map(shift).collect()
}

/// Returns the even number closest to each trial's mean shift.
fn frames(shifts: &[[i32; TRIALS]]) -> [i32; TRIALS] {
    let channels = shifts.len() as i64;
    std::array::from_fn(|d| {
        let sum: i64 = shifts.iter().map(|row| i64::from(row[d])).sum();
        2 * ((sum + channels) / (2 * channels)) as i32
    })
}

/// Computes the skew of each trial's times that keeps the frames close in all groups: half of their spread over the
/// band. No skew is positive.
fn skew(frames: &[[i32; TRIALS]]) -> Option<[i32; TRIALS]> {
    let mut skew: [i32; TRIALS] = std::array::from_fn(|d| {
        let apart = || frames.iter().map(|row| row[d] - row[0]);
        let (low, high) = (apart().min().unwrap_or(0), apart().max().unwrap_or(0));
        -2 * (low + high).div_euclid(4)
    });
    let most = skew.iter().copied().max().unwrap_or(0);
    skew.iter_mut().for_each(|skew| *skew -= most);
    skew.iter().all(|skew| *skew >= -MAX_SKEW).then_some(skew)
}

/// Returns the smallest and the largest frame.
fn ends(moved: &[i32; TRIALS]) -> (i32, i32) {
    moved.iter().fold((i32::MAX, i32::MIN), |(low, high), at| (low.min(*at), high.max(*at)))
}

impl Group<'_> {
    /// Returns the resources that the group needs.
    fn extent(&self) -> Extent {
        let moved = self.moved();
        let (first, last) = ends(&moved);
        Extent { spread: (last - first) as usize, window: self.window(&self.starts()) }
    }

    /// Appends the group's entry; returns `None` if it does not fit.
    fn append(&self, shape: &Shape, tile: &mut Tile) -> Option<()> {
        let moved = self.moved();
        let (first, last) = ends(&moved);
        let spread = (last - first) as usize;
        let starts = self.starts();
        let window = self.window(&starts);
        if !shape.holds(spread, window) {
            return None;
        }
        let blocks = (shape.times + spread).div_ceil(64);
        let row = |d: usize| d * shape.row_bytes() + 2 * (moved[d] - first) as usize;
        tile.entries.extend((0..TRIALS).map(|d| row(d) as u32));
        tile.entries.extend([window as u32, blocks as u32, 0, 0]);
        self.append_bits(shape, &starts, &mut tile.entries);
        let columns = shape.times + spread + window - 1;
        let chunks = (columns.next_multiple_of(4) + 16).div_ceil(16);
        for part in 0..shape.group / 32 {
            self.append_sources(&starts, 32 * part, first, &mut tile.entries);
            tile.entries.extend([chunks as u32, 0, 0, 0]);
        }
        Some(())
    }

    /// Returns the trials' frames after skewing.
    fn moved(&self) -> [i32; TRIALS] {
        std::array::from_fn(|d| self.frames[d] + self.skew[d])
    }

    /// Returns each channel's smallest shift relative to the trials' frames.
    fn starts(&self) -> Vec<i32> {
        self.shifts.iter().map(|row| self.start(row)).collect()
    }

    /// Returns a channel's smallest shift relative to the trials' frames.
    fn start(&self, row: &[i32; TRIALS]) -> i32 {
        row.iter().zip(&self.frames).map(|(shift, frame)| shift - frame).min().unwrap_or(0)
    }

    /// Returns the window position at which a trial reads a channel.
    fn position(&self, channel: usize, d: usize, start: i32) -> usize {
        (self.shifts[channel][d] - self.frames[d] - start) as usize
    }

    /// Returns the number of window positions of the group.
    fn window(&self, starts: &[i32]) -> usize {
        let positions = starts.iter().enumerate().flat_map(|(channel, start)| {
            (0..TRIALS).map(move |d| self.position(channel, d, *start))
        });
        positions.max().unwrap_or(0) + 1
    }

    /// Appends the starts of 32 channels' samples: each row's first sample, then the byte and bit offsets from there.
    fn append_sources(&self, starts: &[i32], channel: usize, first: i32, entries: &mut Vec<u32>) {
        let begin = |k: usize| first + starts[(channel + k).min(starts.len() - 1)];
        entries.extend((0..32).map(|k| (begin(k) & !15) as u32));
        for k in 0..32 {
            let offset = begin(k) & 15;
            entries.extend([offset & !3, (offset & 3) * 8].map(|value| value as u32));
        }
    }

    /// Appends the one-hot bits in the lane order of the left `wgmma` operand: 16 trials x 32 channels.
    fn append_bits(&self, shape: &Shape, starts: &[i32], entries: &mut Vec<u32>) {
        let begin = entries.len();
        let half = TRIALS / SLAB * 32;
        entries.resize(begin + shape.hot_sets() * half * 4, 0);
        for (channel, start) in starts.iter().enumerate() {
            let (quarter, byte) = (channel % 16 / 4, channel % 4);
            for d in 0..TRIALS {
                let position = self.position(channel, d, *start);
                let (slab, row) = (d / SLAB, d % SLAB);
                let set = position / POSITIONS * (shape.group / 32) + channel / 32;
                let lane = set * half + slab * 32 + row % 8 * 4 + quarter;
                let register = row / 8 + channel % 32 / 16 * 2;
                entries[begin + 4 * lane + register] |= 1 << (8 * byte + position % POSITIONS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Encoding;
    use crate::units::{Band, DM_CONSTANT};

    /// Plans `dms` trials from `first` on in steps of `step`, over 300 MHz around 1400 MHz.
    fn plan(channels: usize, first: f64, step: f64, dms: usize) -> Plan {
        let width = 300.0 / channels as f64;
        Plan::new(super::super::super::plan::Options {
            band: Band::uniform(1550.0 - 0.5 * width, -width, channels).unwrap(),
            tsamp_s: 64e-6,
            dms: (0..dms).map(|i| first + i as f64 * step).collect(),
            downsample: 1,
            encoding: Encoding::U8,
            range: None,
            masked: Vec::new(),
            dm_constant: DM_CONSTANT,
        })
        .unwrap()
    }

    /// Returns the shapes to tune over for a plan.
    fn shapes(channels: usize, first: f64, step: f64, dms: usize) -> Vec<Shape> {
        let plan = plan(channels, first, step, dms);
        candidates(&plan, &sorted(&plan), &Threads::new(2))
    }

    #[test]
    fn wide_windows_take_other_shapes() {
        assert_eq!(shapes(1024, 0.0, 0.1, 1500)[0], Shape::ALL[0]);
        assert_eq!(shapes(1024, 150.0, 0.2, 750)[0], Shape::ALL[1]);
        assert_eq!(shapes(1024, 300.0, 0.25, 800)[0], Shape::ALL[3]);
        assert_eq!(shapes(512, 300.0, 0.25, 800)[0], Shape::ALL[5]);
    }

    #[test]
    fn only_shapes_that_fit_the_tiles_are_candidates() {
        let narrow = shapes(1024, 0.0, 0.1, 1500);
        assert_eq!(narrow, Shape::ALL);
        let wide = shapes(1024, 150.0, 0.2, 750);
        assert!(wide.len() > 1 && wide.iter().all(|shape| shape.times == 384), "{wide:?}");
        // Only halves of a tile fit.
        let coarse = shapes(1024, 300.0, 0.4, 800);
        assert!(!coarse.is_empty() && coarse.iter().all(|shape| shape.times == 384), "{coarse:?}");
        assert_eq!(shapes(1024, 300.0, 50.0, 64), []);
        let mut choices: Vec<_> = Shape::ALL.iter().map(Shape::candidate).collect();
        choices.dedup_by(|a, b| a.values == b.values || a.name == b.name);
        assert_eq!(choices.len(), Shape::ALL.len());
    }

    #[test]
    fn every_trial_is_in_a_tile_or_left() {
        let threads = Threads::new(2);
        for (step, some_left) in [(0.1, false), (3.0, true)] {
            let plan = plan(1024, 0.0, step, 150);
            let tables = tables(&plan, &MANY, &sorted(&plan), &threads);
            let in_tiles = tables.trials.iter().filter(|trial| trial[0] >= 0);
            let mut found: Vec<usize> = in_tiles.map(|trial| trial[0] as usize).collect();
            assert_eq!(!tables.left.is_empty(), some_left);
            found.extend(&tables.left);
            found.sort_unstable();
            assert_eq!(found, (0..150).collect::<Vec<_>>());
            let words = MANY.head_bytes() / 4 + 100;
            assert_eq!(tables.entries.len(), tables.trials.len() / TRIALS * 32 * words);
        }
    }

    #[test]
    fn shared_memory_fits_a_block() {
        assert!(Shape::ALL.iter().all(|shape| shape.shared_bytes() <= 232_448));
        assert_eq!(Shape::ALL[0].flush(255), 8);
        assert_eq!(Shape::ALL[0].flush(15), 128);
    }
}
