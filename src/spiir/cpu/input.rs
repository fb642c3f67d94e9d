//! Inputs of all rates: the recent samples of each level, and the downsampling to the next level.
#![allow(unsafe_code)]

use std::ops::Range;

use super::super::plan::Plan;
use super::resample::{HALVED, Halving, Phases, halve};
use super::vector::TILE;
use crate::backend::simd::Level;
use crate::error::Result;
use crate::state::{Saved, Saving};

/// Full-rate samples processed at a time.
pub(super) const PIECE: usize = 1024;

/// Recent samples of a level; those before the stream's start are 0.
#[derive(Debug)]
struct History {
    samples: Vec<f32>,
    /// Samples that must be retained.
    keep: usize,
    filled: usize,
    /// Stream index of the first sample held.
    first: i64,
}

impl History {
    /// Samples read beyond the last one and discarded.
    const SLACK: usize = 2 * HALVED;

    fn floats(keep: usize) -> usize {
        2 * keep + 4 * PIECE + Self::SLACK
    }

    fn new(keep: usize) -> Self {
        let samples = vec![0.0; Self::floats(keep)];
        Self { samples, keep, filled: keep, first: -(keep as i64) }
    }

    fn reset(&mut self) {
        self.samples.fill(0.0);
        (self.filled, self.first) = (self.keep, -(self.keep as i64));
    }

    /// Saves the samples that must be retained; earlier ones are not read again.
    fn save(&self, to: &mut Saving) {
        to.f32s(self.samples[self.filled - self.keep..self.filled].iter());
    }

    /// Restores the history of a stream of `end` samples.
    fn load(&mut self, from: &mut Saved<'_>, end: u64) -> Result<()> {
        self.samples.fill(0.0);
        (self.filled, self.first) = (self.keep, end as i64 - self.keep as i64);
        from.fill_f32(&mut self.samples[..self.keep])
    }

    /// Returns space for the next samples and [`Self::SLACK`] more; the caller then advances [`Self::filled`].
    fn room(&mut self, samples: usize) -> &mut [f32] {
        if self.filled + samples + Self::SLACK > self.samples.len() {
            self.samples.copy_within(self.filled - self.keep..self.filled, 0);
            self.first += (self.filled - self.keep) as i64;
            self.filled = self.keep;
        }
        &mut self.samples[self.filled..][..samples + Self::SLACK]
    }

    fn end(&self) -> u64 {
        (self.first + self.filled as i64) as u64
    }
}

/// Inputs of all levels.
#[derive(Debug)]
pub(super) struct Inputs {
    histories: Vec<History>,
    /// Range of each level's samples in the last piece.
    fresh: Vec<Range<u64>>,
    down: Phases,
    /// Samples with even and with odd indices.
    split: [Vec<f32>; 2],
}

impl Inputs {
    /// Returns the samples that a level retains.
    fn keep(plan: &Plan, level: usize) -> usize {
        plan.history(level) + plan.options().resampler.down.len() + 2 * TILE
    }

    /// Returns the bytes of all inputs.
    pub(super) fn bytes(plan: &Plan) -> usize {
        (0..plan.levels()).map(|level| 4 * History::floats(Self::keep(plan, level))).sum()
    }

    pub(super) fn new(plan: &Plan) -> Self {
        let levels = plan.levels();
        let down = Phases::new(&plan.options().resampler.down);
        let half = PIECE / 2 + down.reach() + 2 * History::SLACK;
        Self {
            histories: (0..levels).map(|level| History::new(Self::keep(plan, level))).collect(),
            fresh: vec![0..0; levels],
            split: [vec![0.0; half], vec![0.0; half]],
            down,
        }
    }

    pub(super) fn reset(&mut self) {
        self.histories.iter_mut().for_each(History::reset);
        self.fresh.fill(0..0);
    }

    pub(super) fn save(&self, to: &mut Saving) {
        to.part("inputs");
        self.histories.iter().for_each(|history| history.save(to));
    }

    /// Restores the inputs of a stream of `taken` samples.
    pub(super) fn load(&mut self, from: &mut Saved<'_>, taken: u64) -> Result<()> {
        from.part("inputs")?;
        let mut end = taken;
        for history in &mut self.histories {
            history.load(from, end)?;
            end = end.div_ceil(2);
        }
        Ok(())
    }

    /// Returns the range of a level's samples in the last piece.
    pub(super) fn fresh(&self, level: usize) -> Range<u64> {
        self.fresh[level].clone()
    }

    /// Returns a pointer to a level's sample; the level's history precedes it.
    pub(super) fn at(&self, level: usize, sample: u64) -> *const f32 {
        let history = &self.histories[level];
        let place = (sample as i64 - history.first) as usize;
        debug_assert!(place <= history.filled);
        // Derived from the whole slice because samples before this one are read too.
        history.samples.as_ptr().wrapping_add(place)
    }

    /// Appends at most [`PIECE`] samples and extends every level to them. Values that are not finite become 0.
    pub(super) fn extend(&mut self, piece: &[f32], vectors: Level) {
        let history = &mut self.histories[0];
        let begin = history.end();
        for (to, x) in history.room(piece.len()).iter_mut().zip(piece) {
            *to = if x.is_finite() { *x } else { 0.0 };
        }
        history.filled += piece.len();
        self.fresh[0] = begin..begin + piece.len() as u64;
        for level in 1..self.histories.len() {
            self.halve(level, vectors);
        }
    }

    /// Extends `level` to the end of the level above it.
    fn halve(&mut self, level: usize, vectors: Level) {
        let (above, below) = self.histories.split_at_mut(level);
        let (above, below) = (&above[level - 1], &mut below[0]);
        let fresh = below.end()..above.end().div_ceil(2);
        let outputs = (fresh.end - fresh.start) as usize;
        self.fresh[level] = fresh.clone();
        if outputs == 0 {
            return;
        }
        let reach = self.down.reach();
        let first = 2 * (fresh.start as i64 - reach as i64) - above.first;
        // Each odd sample precedes the even one of the same index.
        for (odd, split) in self.split.iter_mut().enumerate() {
            let from = above.samples[first as usize - odd..].iter().step_by(2);
            split[..reach + outputs].iter_mut().zip(from).for_each(|(to, x)| *to = *x);
        }
        let to = below.room(outputs).as_mut_ptr();
        let [even, odd] = [0, 1].map(|odd: usize| self.split[odd].as_ptr().wrapping_add(reach));
        let work = Halving { phases: &self.down, even, odd, outputs, to };
        // SAFETY: the split samples begin `reach` before the first output's and have twice the slack after them; the
        // history has the slack after its free space.
        unsafe { halve(vectors, &work) };
        below.filled += outputs;
    }
}
