//! Zeroes bad samples, with smooth edges in the adjacent good samples.
//!
//! Invariant: sample `k` comes out when sample `k + latency` has gone in, and is finite.

use std::collections::VecDeque;

use crate::error::Result;
use crate::state::{Saved, Saving};

/// Lengths in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Edges {
    /// Good samples zeroed before and after a bad one.
    pub(super) zero: usize,
    /// Samples over which the weight falls before those, and rises after those.
    pub(super) before: usize,
    pub(super) after: usize,
}

/// Delay line that applies weights to its samples.
pub(super) struct Fade {
    edges: Edges,
    /// Weights of the `before` and `after` edges, from the bad side.
    falling: Vec<f64>,
    rising: Vec<f64>,
    /// Samples not yet output, each with a flag for bad.
    waiting: VecDeque<(f64, bool)>,
    /// Sample numbers at which the pending runs of bad samples start.
    runs: VecDeque<u64>,
    /// Whether the stream begins as if bad samples preceded it.
    begins_bad: bool,
    pushed: u64,
    popped: u64,
    /// Number of the sample after the last bad one that was output.
    after_bad: Option<u64>,
}

/// Returns the weights of a raised cosine from 0 to 1, both exclusive.
fn edge(length: usize) -> Vec<f64> {
    let step = std::f64::consts::FRAC_PI_2 / (length + 1) as f64;
    (1..=length).map(|place| (place as f64 * step).sin().powi(2)).collect()
}

impl Fade {
    pub(super) fn new(edges: Edges, begins_bad: bool) -> Self {
        let latency = edges.zero + edges.before;
        Self {
            edges,
            falling: edge(edges.before),
            rising: edge(edges.after),
            waiting: VecDeque::with_capacity(latency + 1),
            runs: VecDeque::with_capacity(latency / 2 + 2),
            begins_bad,
            pushed: 0,
            popped: 0,
            after_bad: begins_bad.then_some(0),
        }
    }

    /// Returns how many samples must follow before a sample is output.
    pub(super) fn latency(&self) -> usize {
        self.edges.zero + self.edges.before
    }

    /// Appends a sample. Returns the next output sample and its weight, which is 1 if the sample is unchanged.
    pub(super) fn push(&mut self, sample: f64, is_bad: bool) -> Option<(f64, f64)> {
        if is_bad && !self.waiting.back().is_some_and(|last| last.1) {
            self.runs.push_back(self.pushed);
        }
        self.waiting.push_back((sample, is_bad));
        self.pushed += 1;
        if self.waiting.len() <= self.latency() {
            return None;
        }
        let (sample, is_bad) = self.waiting.pop_front()?;
        let number = self.popped;
        self.popped += 1;
        if self.runs.front().is_some_and(|first| *first <= number) {
            self.runs.pop_front();
        }
        if is_bad {
            self.after_bad = Some(number + 1);
            return Some((0.0, 0.0));
        }
        // Distances in samples, 0 for an adjacent sample.
        let after = self.after_bad.map_or(u64::MAX, |bad| number - bad);
        let before = self.runs.front().map_or(u64::MAX, |first| first - number - 1);
        let weight = self.weight(after, &self.rising) * self.weight(before, &self.falling);
        Some((if weight == 0.0 { 0.0 } else { sample * weight }, weight))
    }

    fn weight(&self, distance: u64, edge: &[f64]) -> f64 {
        match distance.checked_sub(self.edges.zero as u64) {
            None => 0.0,
            Some(place) => {
                edge.get(usize::try_from(place).unwrap_or(usize::MAX)).copied().unwrap_or(1.0)
            }
        }
    }

    /// Passes over samples that leave all but the counters as they are: a bad sample after bad ones, or a good one after
    /// good ones.
    pub(super) fn skip(&mut self, samples: u64) {
        if self.after_bad == Some(self.popped) {
            self.after_bad = Some(self.popped + samples);
        }
        self.pushed += samples;
        self.popped += samples;
    }

    pub(super) fn reset(&mut self) {
        self.waiting.clear();
        self.runs.clear();
        (self.pushed, self.popped) = (0, 0);
        self.after_bad = self.begins_bad.then_some(0);
    }

    pub(super) fn save(&self, to: &mut Saving) {
        to.part("fade");
        to.number(self.popped);
        to.maybe(self.after_bad);
        let samples: Vec<f64> = self.waiting.iter().map(|(sample, _)| *sample).collect();
        to.f64s(samples.iter());
        to.flags(self.waiting.iter().map(|(_, is_bad)| *is_bad));
        to.number(self.runs.len() as u64);
        self.runs.iter().for_each(|first| to.number(*first));
    }

    pub(super) fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("fade")?;
        self.popped = from.number()?;
        self.after_bad = from.maybe()?;
        if self.after_bad.is_some_and(|after| after > self.popped) {
            return Err(from.fault("last bad sample", "it has not been produced yet".into()));
        }
        let samples = from.f64s(self.latency())?;
        let flags = from.flags(samples.len())?;
        self.waiting.clear();
        self.waiting.extend(samples.iter().copied().zip(flags));
        self.pushed = self.popped + self.waiting.len() as u64;
        self.runs.clear();
        for _ in 0..from.at_most(self.waiting.len())? {
            let first = from.number()?;
            let before = self.runs.back().map_or(self.popped, |before| before + 1);
            if !(before..self.pushed).contains(&first) {
                return Err(from.fault("run of bad samples", format!("it begins at {first}")));
            }
            self.runs.push_back(first);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the weights of a stream from their definition, with a search for the distances.
    fn expected(bad: &[bool], edges: Edges, begins_bad: bool) -> Vec<f64> {
        let weight = |distance: usize, length: usize| match distance.checked_sub(edges.zero) {
            None => 0.0,
            Some(place) => edge(length).get(place).copied().unwrap_or(1.0),
        };
        let one = |k: usize| {
            if bad[k] {
                return 0.0;
            }
            let before = bad[k..].iter().position(|bad| *bad);
            let after = bad[..k].iter().rposition(|bad| *bad).map(|last| k - last - 1);
            let after = after.or(begins_bad.then_some(k));
            let rising = after.map_or(1.0, |distance| weight(distance, edges.after));
            rising * before.map_or(1.0, |distance| weight(distance - 1, edges.before))
        };
        (0..bad.len()).map(one).collect()
    }

    #[test]
    fn weights_are_those_of_the_distances() {
        let bad: Vec<bool> =
            (0..200).map(|k| matches!(k, 40 | 50..60 | 63 | 65 | 67 | 130)).collect();
        for (zero, before, after) in [(0, 0, 0), (0, 5, 5), (3, 4, 7), (2, 0, 9), (0, 30, 0)] {
            for begins_bad in [false, true] {
                let edges = Edges { zero, before, after };
                let mut fade = Fade::new(edges, begins_bad);
                let mut found = Vec::new();
                for bad in bad.iter().copied().chain(std::iter::repeat_n(false, fade.latency())) {
                    found.extend(fade.push(if bad { f64::NAN } else { 1.0 }, bad));
                }
                let weights: Vec<f64> = found.iter().map(|found| found.0).collect();
                let expected = expected(&bad, edges, begins_bad);
                assert_eq!(weights, expected, "{edges:?} {begins_bad}");
                assert!(found.iter().all(|(sample, weight)| sample == weight));
            }
        }
    }
}
