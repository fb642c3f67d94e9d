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
    /// Heads, group after group.
    pub(super) heads: Vec<u32>,
    /// One-hot bits: axes group, set, 16 trials, lane.
    pub(super) hot: Vec<[u32; 4]>,
    /// Each trial's row of the output, or -1, and the skew of its times.
    pub(super) trials: Vec<[i32; 2]>,
    /// Passes over shared memory, which the time goes with.
    pub(super) wavefronts: usize,
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
        for (shifts, frames) in shifts.chunks(shape.group).zip(frames) {
            Group { shape, shifts, frames, skew: &skew }.append(&mut tile)?;
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
    /// Appends the group's head and bits; none where they do not fit.
    fn append(&self, tile: &mut Tile) -> Option<()> {
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
        let (rows, low) = self.rows(&moved.map(|frame| (frame - first) as usize))?;
        let quads = columns.div_ceil(4);
        let blocks = (shape.times + spread).div_ceil(64);
        tile.heads.extend(rows);
        self.append_channels(&starts, *first, &mut tile.heads);
        tile.heads.extend(low.map(|low| low as u32));
        let chunks = (4 * quads + 16).div_ceil(16);
        tile.heads.extend([window, blocks, chunks, quads].map(|value| value as u32));
        self.append_bits(&starts, &mut tile.hot);
        // Samples are written, read twice, written; products read 64 columns of 32 channels; sums are
        // written and read.
        let stage = shape.group * 4 * columns / 128;
        let products = window * blocks * shape.group / 2;
        tile.wavefronts += stage + products + 2 * shape.times;
        Some(())
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

    /// Where each trial's sums begin in the row buffer, in words, and the first column that is kept of each
    /// 16 trials, from the trials' first columns.
    fn rows(&self, columns: &[usize; TRIALS]) -> Option<([u32; TRIALS], [usize; TRIALS / SLAB])> {
        let least = |slab: usize| columns[slab * SLAB..][..SLAB].iter().copied().min();
        let low: [usize; TRIALS / SLAB] = std::array::from_fn(|s| least(s).unwrap_or(0) & !15);
        let inside = |d: usize| columns[d] - low[d / SLAB];
        let room = self.shape.row_columns() - self.shape.times;
        let word = |d: usize| (d * self.shape.row_words() + inside(d) / 2) as u32;
        (0..TRIALS).all(|d| inside(d) <= room).then(|| (std::array::from_fn(word), low))
    }

    /// Where each channel's samples begin: bytes and bits within the raw row, then the row's first sample.
    fn append_channels(&self, starts: &[i32], first: i32, heads: &mut Vec<u32>) {
        let begin = |k: usize| first + starts[k.min(starts.len() - 1)];
        for k in 0..self.shape.group {
            let offset = begin(k) & 15;
            heads.extend([offset & !3, (offset & 3) * 8].map(|value| value as u32));
        }
        heads.extend((0..self.shape.group).map(|k| (begin(k) & !15) as u32));
    }

    /// The bits, as the lanes of a warp hold the left factor of a product of 16 trials and 32 channels.
    fn append_bits(&self, starts: &[i32], hot: &mut Vec<[u32; 4]>) {
        let begin = hot.len();
        let half = TRIALS / SLAB * 32;
        hot.resize(begin + self.shape.hot_sets() * half, [0; 4]);
        for (channel, start) in starts.iter().enumerate() {
            let (quarter, byte) = (channel % 16 / 4, channel % 4);
            for d in 0..TRIALS {
                let position = self.position(channel, d, *start);
                let (slab, row) = (d / SLAB, d % SLAB);
                let set = position / POSITIONS * (self.shape.group / 32) + channel / 32;
                let word = &mut hot[begin + set * half + slab * 32 + row % 8 * 4 + quarter];
                word[row / 8 + channel % 32 / 16 * 2] |= 1 << (8 * byte + position % POSITIONS);
            }
        }
    }
}
