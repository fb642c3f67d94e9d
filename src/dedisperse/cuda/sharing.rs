//! Sums of a channel group that the trials of a tile share, and the order of their computation.
//!
//! Trials whose shifts of a group differ only by a constant share one sum. Integer sums that differ in few channels
//! are computed one from the other.

use super::shape::CHANNELS;

/// Read offset of each channel of a group, relative to the row of sums; unused channels are 0.
pub(super) type Pattern = [u16; CHANNELS];

/// A group of channels of one interval, for one tile of trials.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Index of the first channel within the interval.
    pub(super) first: usize,
    pub(super) channels: usize,
    pub(super) patterns: Vec<Pattern>,
    /// Pattern of each trial, and its offset in the row.
    pub(super) trials: Vec<(usize, usize)>,
    /// Chains of patterns; each pattern is computed from its predecessor.
    pub(super) chains: Vec<Vec<usize>>,
}

impl Group {
    /// Finds the patterns that trials share. `shifts` holds each trial's shift from the channel's start, for each
    /// channel of the interval.
    pub(super) fn new(shifts: &[Vec<usize>], first: usize, channels: usize) -> Self {
        let lead = &shifts[first];
        let low = lead.iter().copied().min().unwrap_or(0);
        let mut patterns: Vec<Pattern> = Vec::new();
        let trial = |dm: usize| {
            let mut pattern = [0; CHANNELS];
            for (c, offset) in pattern.iter_mut().enumerate().take(channels) {
                *offset = (low + shifts[first + c][dm] - lead[dm]) as u16;
            }
            let known = patterns.iter().rposition(|other| *other == pattern);
            let index = known.unwrap_or_else(|| {
                patterns.push(pattern);
                patterns.len() - 1
            });
            (index, lead[dm] - low)
        };
        let trials = (0..lead.len()).map(trial).collect();
        Self { first, channels, patterns, trials, chains: Vec::new() }
    }

    /// Returns the words of a row beyond those that one trial reads.
    pub(super) fn spread(&self) -> usize {
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
    pub(super) fn path(&self, exact: bool) -> Vec<(usize, usize)> {
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
    pub(super) fn split(&mut self, path: &[(usize, usize)], parts: usize) -> Vec<usize> {
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

/// Counts the channels in which two patterns differ.
pub(super) fn differences(a: &Pattern, b: &Pattern) -> usize {
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
