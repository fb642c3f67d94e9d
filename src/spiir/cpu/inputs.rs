//! Inputs of all rates: recent samples of each level, and resampling by a factor of 2.
#![allow(unsafe_code)]

use std::ops::Range;

use num_complex::Complex;

use super::super::plan::Plan;
use super::quads::{Quads, TILE};
use crate::backend::simd::Level;
use crate::backend::vector::{Vector, levels};
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
    fn free(&mut self, samples: usize) -> &mut [f32] {
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
        // The pointer derives from the whole slice, because samples before this one are read too.
        history.samples.as_ptr().wrapping_add(place)
    }

    /// Appends at most [`PIECE`] samples and extends every level to them. Values that are not finite become 0.
    pub(super) fn extend(&mut self, piece: &[f32], vectors: Level) {
        let history = &mut self.histories[0];
        let begin = history.end();
        for (to, x) in history.free(piece.len()).iter_mut().zip(piece) {
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
        let to = below.free(outputs).as_mut_ptr();
        let [even, odd] = [0, 1].map(|odd: usize| self.split[odd].as_ptr().wrapping_add(reach));
        let work = Halving { phases: &self.down, even, odd, outputs, to };
        // SAFETY: the split samples begin `reach` before the first output's and have twice the slack after them; the
        // history has the slack after its free space.
        unsafe { halve(vectors, &work) };
        below.filled += outputs;
    }
}

/// Outputs that [`halve`] may write beyond those requested.
const HALVED: usize = 32;

/// Tap, and the samples of its phase that it reaches back.
#[derive(Clone, Copy, Debug)]
struct Tap {
    weight: f32,
    back: usize,
}

/// Polyphase components of a filter: its taps at even and at odd indices.
#[derive(Clone, Debug)]
pub(super) struct Phases([Vec<Tap>; 2]);

impl Phases {
    /// Splits the taps. Drops those too small to change any sum, such as every second tap of a half-band filter.
    pub(super) fn new(taps: &[f32]) -> Self {
        let most = taps.iter().fold(0f32, |most, tap| most.max(tap.abs()));
        let phase = |odd: usize| {
            let own = taps.iter().skip(odd).step_by(2).enumerate();
            let heard = own.filter(|(_, weight)| weight.abs() > 1e-12 * most);
            heard.map(|(back, weight)| Tap { weight: *weight, back }).collect()
        };
        Self([phase(0), phase(1)])
    }

    /// Returns the most samples of a phase that the filter reaches back.
    pub(super) fn reach(&self) -> usize {
        self.0.iter().flatten().map(|tap| tap.back).max().unwrap_or(0)
    }
}

/// Arguments of [`halve`]: the even and odd samples of an input.
#[derive(Debug)]
pub(super) struct Halving<'a> {
    phases: &'a Phases,
    /// Even sample of the first output, and the odd one before it.
    even: *const f32,
    odd: *const f32,
    outputs: usize,
    to: *mut f32,
}

levels!(halve, halve_body, (work: &Halving<'_>));

/// # Safety
/// The instructions must be available, and all pointers valid: samples of both phases as far back as the taps reach,
/// and [`HALVED`] more of them and of the outputs than `outputs`.
#[inline(always)]
unsafe fn halve_body<V: Vector>(work: &Halving<'_>) {
    // SAFETY: upheld by the caller.
    unsafe {
        for at in (0..work.outputs).step_by(2 * V::LANES) {
            let [mut even, mut odd] = [[V::splat(0.0); 2]; 2];
            for tap in &work.phases.0[0] {
                add_tap(&mut even, work.even.add(at).sub(tap.back), tap.weight);
            }
            for tap in &work.phases.0[1] {
                add_tap(&mut odd, work.odd.add(at).sub(tap.back), tap.weight);
            }
            even[0].add(odd[0]).store(work.to.add(at));
            even[1].add(odd[1]).store(work.to.add(at + V::LANES));
        }
    }
}

/// # Safety
/// The instructions must be available, and two registers readable.
#[inline(always)]
unsafe fn add_tap<V: Vector>(sums: &mut [V; 2], from: *const f32, weight: f32) {
    // SAFETY: upheld by the caller.
    unsafe {
        let weight = V::splat(weight);
        sums[0] = V::load(from).mul_add(weight, sums[0]);
        sums[1] = V::load(from.add(V::LANES)).mul_add(weight, sums[1]);
    }
}

/// Arguments of [`double`]: tiles of a sum at twice the rate of a lower one.
#[derive(Debug)]
pub(super) struct Doubling<'a> {
    pub(super) phases: &'a Phases,
    /// Lower-rate sum at half the first tile's index.
    pub(super) lower: *const Complex<f32>,
    pub(super) tiles: usize,
    pub(super) to: *mut Complex<f32>,
}

levels!(double, double_body, (work: &Doubling<'_>));

/// # Safety
/// The instructions must be available, and all pointers valid: lower-rate sums as far back as the taps reach, and
/// space for all tiles.
#[inline(always)]
unsafe fn double_body<V: Quads>(work: &Doubling<'_>) {
    // SAFETY: upheld by the caller.
    unsafe {
        // A tile has as many floats of lower-rate sums as samples.
        for at in (0..work.tiles * TILE).step_by(V::LANES) {
            let from = work.lower.cast::<f32>().add(at);
            let [mut even, mut odd] = [V::splat(0.0); 2];
            for tap in &work.phases.0[0] {
                even = V::load(from.sub(2 * tap.back)).mul_add(V::splat(tap.weight), even);
            }
            for tap in &work.phases.0[1] {
                odd = V::load(from.sub(2 * tap.back)).mul_add(V::splat(tap.weight), odd);
            }
            let [low, high] = even.zip_pairs(odd);
            let to = work.to.cast::<f32>().add(2 * at);
            low.store(to);
            high.store(to.add(V::LANES));
        }
    }
}
