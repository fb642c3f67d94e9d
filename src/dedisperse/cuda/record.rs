//! Records of the general kernel: its instructions for one interval of channels and one tile of trials.

use super::super::plan::Lane;
use super::shape::{CHANNELS, Shape};
use super::sharing::{Group, Pattern};

/// Words of a row that one warp builds per work item.
const PART: usize = 64;

/// Row offset of a step that completes no row.
const NOWHERE: u32 = u32::MAX;

/// Interval of channels: history rows, and each trial's shift in each channel.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) rows: Vec<u32>,
    /// Shift of each trial for each channel, counted from `back` samples before the tile's first time.
    pub(super) shifts: Vec<Vec<usize>>,
    pub(super) back: usize,
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
                lower(interval, &mut starts, (group, c));
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
fn lower(interval: &Interval, starts: &mut [i64], (lead, c): (usize, usize)) {
    let first = |c: usize, dm: usize| interval.shifts[c][dm] as i64;
    let trials = interval.shifts[c].len();
    let low = (0..trials).map(|dm| first(lead, dm)).min().unwrap_or(0);
    let least = (0..trials).map(|dm| low + first(c, dm) - first(lead, dm)).min().unwrap_or(0);
    while least < starts[c] {
        starts[c] -= 4;
    }
}

/// One way to share an interval's sums.
struct Choice {
    layout: Layout,
    groups: Vec<Group>,
    /// Words of a row of sums.
    words: usize,
    /// Words of a row of samples.
    stride: usize,
    /// Shared-memory traffic of a warp, in rows of 32 words.
    cost: usize,
}

impl Choice {
    fn new(shape: &Shape, interval: &Interval, channels: usize) -> Self {
        let layout = Layout::new(interval, channels);
        let count = layout.shifts.len();
        let group = |first| Group::new(&layout.shifts, first, channels.min(count - first));
        let mut groups: Vec<Group> = (0..count).step_by(channels).map(group).collect();
        let spread = groups.iter().map(Group::spread).max().unwrap_or(0);
        let reach = groups.iter().map(Group::reach).max().unwrap_or(0);
        let words = (shape.words + spread).next_multiple_of(PART);
        let stride = (words + reach).next_multiple_of(4);
        let build = chain(shape, &mut groups, words / PART);
        let accumulate = groups.len() * shape.tile_dms * shape.words / 32 / shape.warps();
        // Each float row is summed from its first channel and waits longer than it reads; the factor is measured.
        let build = if shape.lane == Lane::F32 { build * 3 / 2 } else { build };
        Self { layout, groups, words, stride, cost: build + accumulate }
    }

    /// Returns whether the choice fits the block's shared memory.
    fn fits(&self, shape: &Shape) -> bool {
        let rows: usize = self.groups.iter().map(|group| group.patterns.len()).sum();
        self.stride <= shape.most_words
            && rows * self.words <= shape.most_sums
            && self.record_words(shape) + 8 <= shape.most_record
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
    let best = (1..=8).min_by_key(|split| cost(*split)).unwrap_or(1);
    cost(best)
}

/// Writes the record of an interval with the cheapest sharing that fits shared memory.
pub(super) fn record(shape: &Shape, interval: &Interval) -> Vec<u32> {
    let mut best: Option<Choice> = None;
    for channels in [16, 8, 4, 2] {
        let choice = Choice::new(shape, interval, channels);
        let is_better = best.as_ref().is_none_or(|best| choice.cost < best.cost);
        if is_better && choice.fits(shape) {
            best = Some(choice);
        }
    }
    // Single channels always fit, because tiles are cut for them.
    let alone = Choice::new(shape, interval, 1);
    let best = best.filter(|best| best.cost <= alone.cost).unwrap_or(alone);
    write(shape, interval, &best)
}

fn write(shape: &Shape, interval: &Interval, choice: &Choice) -> Vec<u32> {
    let chains: usize = choice.groups.iter().map(|group| group.chains.len()).sum();
    // The kernel divides by the segments of a row with this reciprocal.
    let reciprocal = (1 << 16) / (choice.words / PART) + 1;
    let mut words = vec![
        (choice.words | reciprocal << 16) as u32,
        choice.groups.len() as u32,
        chains as u32,
        choice.stride as u32,
    ];
    for c in 0..CHANNELS {
        let c = c.min(interval.rows.len() - 1);
        let start = choice.layout.starts[c] - interval.back as i64;
        words.extend([interval.rows[c], start as i32 as u32]);
    }
    let mut row = 0;
    let mut ranges = Vec::new();
    let mut steps = Vec::new();
    for group in &choice.groups {
        words.extend((0..shape.tile_dms).map(|dm| {
            let (pattern, place) = group.trials[dm.min(group.trials.len() - 1)];
            (((row + pattern) * choice.words + place) * 4) as u32
        }));
        for chain in &group.chains {
            let begin = steps.len() / 4;
            write_chain(shape, choice, (group, row), chain, &mut steps);
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
    choice: &Choice,
    (group, first_row): (&Group, usize),
    chain: &[usize],
    steps: &mut Vec<u32>,
) {
    let place = |pattern: &Pattern, c: usize| {
        (((group.first + c) * choice.stride + usize::from(pattern[c])) * 4) as u32
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
        steps[last] = ((first_row + index) * choice.words * 4) as u32;
        before = Some(pattern);
    }
    if !(steps.len() - begin).is_multiple_of(8) {
        // Padding step that completes no row.
        let any = place(&group.patterns[chain[0]], 0);
        steps.extend([any, any, NOWHERE, factor(shape, &Kind::Single { is_first: true })]);
    }
}
