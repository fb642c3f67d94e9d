//! What the fast kernel does with 64 trials and each group of channels, in the kernel's words.

use super::super::super::plan::Plan;
use super::shape::{POSITIONS, Shape};

/// Trials of a tile.
pub(super) const TRIALS: usize = 64;

/// Trials of a tile that share a warp's rows.
const SLAB: usize = 16;

/// The most samples that a tile's times are skewed by.
const MOST_SKEW: i32 = 1024;

/// The table of one tile.
#[derive(Clone, Debug, Default)]
pub(super) struct Tile {
    /// What the kernel is told of each group, one after another.
    pub(super) entries: Vec<u32>,
    /// Each trial's row of the output, or -1, and the skew of its times.
    pub(super) trials: Vec<[i32; 2]>,
}

/// Channels of the groups that shapes have.
const GROUPS: [usize; 2] = [32, 64];

/// What a tile's groups need of a shape, for groups of each size.
#[derive(Clone, Debug)]
pub(super) struct Extents([Option<Vec<Extent>>; GROUPS.len()]);

/// What one group needs.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Times by which the trials' frames part.
    spread: usize,
    /// Positions of the window.
    window: usize,
}

impl Extents {
    /// Of a tile of up to 64 trials.
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

    /// Whether every group fits a shape.
    pub(super) fn fits(&self, shape: &Shape) -> bool {
        let holds = |of: &Extent| shape.holds(of.spread, of.window);
        self.of(shape.group).is_some_and(|groups| groups.iter().all(holds))
    }

    /// The mean of the windows of groups of so many channels.
    pub(super) fn mean_window(&self, channels: usize) -> f64 {
        let groups = self.of(channels).unwrap_or_default();
        groups.iter().map(|of| of.window).sum::<usize>() as f64 / groups.len().max(1) as f64
    }
}

/// One group of channels: each channel's shifts, and the trials' frames.
struct Group<'a> {
    /// Axes channel, trial.
    shifts: &'a [[i32; TRIALS]],
    /// Even shifts that each trial's sums over the group are made at.
    frames: [i32; TRIALS],
    skew: &'a [i32; TRIALS],
}

impl Tile {
    /// The table of up to 64 trials; none where a window or a row does not fit.
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

/// Shifts of the channels that are summed; trials past the end are the last one again.
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

/// The even number closest to each trial's mean shift.
fn frames(shifts: &[[i32; TRIALS]]) -> [i32; TRIALS] {
    let channels = shifts.len() as i64;
    std::array::from_fn(|d| {
        let sum: i64 = shifts.iter().map(|row| i64::from(row[d])).sum();
        2 * ((sum + channels) / (2 * channels)) as i32
    })
}

/// What to move each trial's times by, so that the trials' frames stay close in all groups: half of what they
/// part by over the band. None is positive.
fn skew(frames: &[[i32; TRIALS]]) -> Option<[i32; TRIALS]> {
    let mut skew: [i32; TRIALS] = std::array::from_fn(|d| {
        let apart = || frames.iter().map(|row| row[d] - row[0]);
        let (low, high) = (apart().min().unwrap_or(0), apart().max().unwrap_or(0));
        -2 * (low + high).div_euclid(4)
    });
    let most = skew.iter().copied().max().unwrap_or(0);
    skew.iter_mut().for_each(|skew| *skew -= most);
    skew.iter().all(|skew| *skew >= -MOST_SKEW).then_some(skew)
}

/// The smallest and the largest of the trials' frames.
fn ends(moved: &[i32; TRIALS]) -> (i32, i32) {
    moved.iter().fold((i32::MAX, i32::MIN), |(low, high), at| (low.min(*at), high.max(*at)))
}

impl Group<'_> {
    /// What it needs of a shape.
    fn extent(&self) -> Extent {
        let moved = self.moved();
        let (first, last) = ends(&moved);
        Extent { spread: (last - first) as usize, window: self.window(&self.starts()) }
    }

    /// Appends the group's entry; none where it does not fit.
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
            self.append_sources(&starts, (32 * part, first), &mut tile.entries);
            tile.entries.extend([chunks as u32, 0, 0, 0]);
        }
        Some(())
    }

    /// The trials' frames, their times moved.
    fn moved(&self) -> [i32; TRIALS] {
        std::array::from_fn(|d| self.frames[d] + self.skew[d])
    }

    /// The smallest shift of each channel beyond the trials' frames.
    fn starts(&self) -> Vec<i32> {
        self.shifts.iter().map(|row| self.start(row)).collect()
    }

    /// The smallest shift of a channel beyond the trials' frames.
    fn start(&self, row: &[i32; TRIALS]) -> i32 {
        row.iter().zip(&self.frames).map(|(shift, frame)| shift - frame).min().unwrap_or(0)
    }

    /// Where in the window a trial reads a channel.
    fn position(&self, channel: usize, d: usize, start: i32) -> usize {
        (self.shifts[channel][d] - self.frames[d] - start) as usize
    }

    /// Positions of the group's window.
    fn window(&self, starts: &[i32]) -> usize {
        let positions = starts.iter().enumerate().flat_map(|(channel, start)| {
            (0..TRIALS).map(move |d| self.position(channel, d, *start))
        });
        positions.max().unwrap_or(0) + 1
    }

    /// Where the samples of 32 channels begin: each row's first sample, then bytes and bits from there.
    fn append_sources(
        &self,
        starts: &[i32],
        (channel, first): (usize, i32),
        entries: &mut Vec<u32>,
    ) {
        let begin = |k: usize| first + starts[(channel + k).min(starts.len() - 1)];
        entries.extend((0..32).map(|k| (begin(k) & !15) as u32));
        for k in 0..32 {
            let offset = begin(k) & 15;
            entries.extend([offset & !3, (offset & 3) * 8].map(|value| value as u32));
        }
    }

    /// The bits, as the lanes of a warp hold the left factor of a product of 16 trials and 32 channels.
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
