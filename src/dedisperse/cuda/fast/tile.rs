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
    /// The mean of the groups' windows.
    pub(super) mean_window: f64,
}

/// One group of channels: each channel's shifts, and the trials' frames.
struct Group<'a> {
    shape: &'a Shape,
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
        let frames: Vec<_> = shifts.chunks(shape.group).map(|part| frames(part, shape)).collect();
        let skew = skew(&frames)?;
        let mut tile = Self::default();
        let (mut windows, groups) = (0, frames.len());
        for (shifts, frames) in shifts.chunks(shape.group).zip(frames) {
            windows += Group { shape, shifts, frames, skew: &skew }.append(&mut tile)?;
        }
        tile.mean_window = windows as f64 / groups as f64;
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
fn frames(shifts: &[[i32; TRIALS]], shape: &Shape) -> [i32; TRIALS] {
    let channels = shifts.len().min(shape.group) as i64;
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

impl Group<'_> {
    /// Appends the group's entry and returns its window; none where it does not fit.
    fn append(&self, tile: &mut Tile) -> Option<usize> {
        let shape = self.shape;
        let moved: [i32; TRIALS] = std::array::from_fn(|d| self.frames[d] + self.skew[d]);
        let (first, last) = (moved.iter().min()?, moved.iter().max()?);
        let spread = (last - first) as usize;
        let starts: Vec<i32> = self.shifts.iter().map(|row| self.start(row)).collect();
        let window = self.window(&starts)?;
        let columns = shape.times + spread + window - 1;
        if columns > shape.most_columns() {
            return None;
        }
        let blocks = (shape.times + spread).div_ceil(64);
        let row = |d: usize| d * shape.row_bytes() + 2 * (moved[d] - first) as usize;
        tile.entries.extend((0..TRIALS).map(|d| row(d) as u32));
        tile.entries.extend([window as u32, blocks as u32, 0, 0]);
        self.append_bits(&starts, &mut tile.entries);
        let chunks = (columns.next_multiple_of(4) + 16).div_ceil(16);
        for part in 0..shape.group / 32 {
            self.append_sources(&starts, (32 * part, *first), &mut tile.entries);
            tile.entries.extend([chunks as u32, 0, 0, 0]);
        }
        Some(window)
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
    fn window(&self, starts: &[i32]) -> Option<usize> {
        let positions = starts.iter().enumerate().flat_map(|(channel, start)| {
            (0..TRIALS).map(move |d| self.position(channel, d, *start))
        });
        let window = positions.max()? + 1;
        (window <= self.shape.most_positions()).then_some(window)
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
    fn append_bits(&self, starts: &[i32], entries: &mut Vec<u32>) {
        let begin = entries.len();
        let half = TRIALS / SLAB * 32;
        entries.resize(begin + self.shape.hot_sets() * half * 4, 0);
        for (channel, start) in starts.iter().enumerate() {
            let (quarter, byte) = (channel % 16 / 4, channel % 4);
            for d in 0..TRIALS {
                let position = self.position(channel, d, *start);
                let (slab, row) = (d / SLAB, d % SLAB);
                let set = position / POSITIONS * (self.shape.group / 32) + channel / 32;
                let lane = set * half + slab * 32 + row % 8 * 4 + quarter;
                let register = row / 8 + channel % 32 / 16 * 2;
                entries[begin + 4 * lane + register] |= 1 << (8 * byte + position % POSITIONS);
            }
        }
    }
}
