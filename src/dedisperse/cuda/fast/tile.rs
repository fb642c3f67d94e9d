//! Tables of the fast kernel for one tile of 64 trials.

use super::super::super::plan::Plan;
use super::shape::{POSITIONS, Shape};

/// Trials of a tile.
pub(super) const TRIALS: usize = 64;

/// Trials whose rows one warp of each warpgroup processes.
const SLAB: usize = 16;

/// Largest skew of a tile's times, in samples.
const MOST_SKEW: i32 = 1024;

/// Kernel table of one tile.
#[derive(Clone, Debug, Default)]
pub(super) struct Tile {
    /// Kernel entries of all groups, in order.
    pub(super) entries: Vec<u32>,
    /// Output row of each trial, or -1, and the skew of its times.
    pub(super) trials: Vec<[i32; 2]>,
}

/// Group sizes of the shapes, in channels.
const GROUPS: [usize; 2] = [32, 64];

/// Resources that a tile's groups need, for each group size.
#[derive(Clone, Debug)]
pub(super) struct Extents([Option<Vec<Extent>>; GROUPS.len()]);

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
    pub(super) fn fits(&self, shape: &Shape) -> bool {
        let holds = |of: &Extent| shape.holds(of.spread, of.window);
        self.of(shape.group).is_some_and(|groups| groups.iter().all(holds))
    }

    /// Returns the mean window of groups of `channels` channels.
    pub(super) fn mean_window(&self, channels: usize) -> f64 {
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
    skew.iter().all(|skew| *skew >= -MOST_SKEW).then_some(skew)
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
            self.append_sources(&starts, (32 * part, first), &mut tile.entries);
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
