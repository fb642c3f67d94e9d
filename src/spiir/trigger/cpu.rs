//! Peak search on the host.

use std::ops::Range;

use num_complex::Complex;

use super::gate::Gate;
use super::measure::{Measure, Peak, Series, power};
use super::plan::{Plan, Ratios, Trigger};
use crate::backend::simd::{Level, leveled};
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::state::{Saved, Saving};
use crate::view::check_memory;

/// Samples compared with the threshold at a time.
const TOGETHER: usize = 64;

/// Least templates that a thread takes at a time, and least samples of all of them, so that the work outweighs waking a thread.
const GROUP: usize = 16;
const GROUP_SAMPLES: usize = 1 << 16;

/// State of the search of one stream.
#[derive(Debug)]
pub(super) struct Engine {
    level: Level,
    threads: Threads,
    /// Position of each autocorrelation's maximum relative to its middle, in samples.
    shifts: Vec<f32>,
    gate: Gate,
    workers: Vec<Worker>,
    /// Samples received, and samples decided.
    known: u64,
    decided: u64,
    /// Last samples of every template, `capacity` each, of which `kept` are in use from sample number `first` on.
    tails: Vec<Complex<f32>>,
    capacity: usize,
    kept: usize,
    first: u64,
}

/// Buffers of a thread.
#[derive(Debug)]
struct Worker {
    measure: Measure,
    /// For each [`TOGETHER`] samples, whether one reaches the threshold.
    marks: Vec<bool>,
    triggers: Vec<Trigger>,
}

/// Move of every template's last samples: those from the old tail and the whole block, or the end of the block.
#[derive(Clone, Copy)]
struct Move {
    kept: usize,
    times: usize,
    /// Samples that are needed, and those of them from the old tail.
    needed: usize,
    old: usize,
    /// Whether the block fits after the old tail.
    fits: bool,
}

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level, threads: &Threads) -> Result<Self> {
        // Twice what is needed, so that the tails move to the fronts of their rows only once per `back + latency`
        // samples.
        let capacity = (plan.back + plan.latency()) * 2;
        let bytes = capacity.checked_mul(plan.templates() * size_of::<Complex<f32>>());
        check_memory("the last signal-to-noise ratios of all templates", bytes)?;
        let measure = Measure::new(plan.half);
        let shifts = plan.autocorrelations().iter().map(|one| measure.shift(one)).collect();
        let worker = |_| {
            let measure = Measure::new(plan.half);
            Worker { measure, marks: Vec::new(), triggers: Vec::new() }
        };
        Ok(Self {
            level,
            threads: threads.clone(),
            shifts,
            gate: Gate::new(plan.pad),
            workers: (0..threads.count()).map(worker).collect(),
            known: 0,
            decided: 0,
            tails: vec![Complex::default(); capacity * plan.templates()],
            capacity,
            kept: 0,
            first: 0,
        })
    }

    pub(super) fn held_bytes(&self, plan: &Plan) -> usize {
        let shapes = plan.autocorrelations().iter().map(|one| one.values.len()).sum::<usize>();
        (self.tails.len() + shapes) * size_of::<Complex<f32>>()
    }

    pub(super) fn known(&self) -> u64 {
        self.known
    }

    pub(super) fn certain(&self) -> u64 {
        self.decided
    }

    pub(super) fn run(
        &mut self,
        plan: &Plan,
        ratios: Ratios<'_>,
        valid: &[bool],
        triggers: &mut Vec<Trigger>,
    ) {
        self.gate.push(valid);
        let known = self.known + ratios.times as u64;
        let until = known.saturating_sub(plan.latency() as u64).max(self.decided);
        let from = until.saturating_sub(plan.back as u64);
        let moved = self.moved(ratios.times, from);
        self.search(plan, ratios, until, Some(moved), triggers);
        if moved.needed > moved.times && moved.fits {
            self.kept += moved.times;
        } else {
            (self.kept, self.first) = (moved.needed, from);
        }
        (self.known, self.decided) = (known, until);
        self.gate.forget(until);
    }

    pub(super) fn flush(&mut self, plan: &Plan, triggers: &mut Vec<Trigger>) {
        self.gate.end();
        let none = Ratios { z: &[], stride: 0, times: 0 };
        self.search(plan, none, self.known, None, triggers);
        self.reset();
    }

    pub(super) fn reset(&mut self) {
        self.gate.reset();
        (self.known, self.decided, self.kept, self.first) = (0, 0, 0, 0);
    }

    pub(super) fn save(&self, to: &mut Saving) {
        to.part("finder");
        to.number(self.known);
        to.number(self.kept as u64);
        for row in self.tails.chunks_exact(self.capacity) {
            to.complex(&row[..self.kept]);
        }
        self.gate.save(to);
    }

    pub(super) fn load(&mut self, plan: &Plan, from: &mut Saved<'_>) -> Result<()> {
        from.part("finder")?;
        self.known = from.number()?;
        self.kept = from.at_most(self.capacity)?;
        self.decided = self.known.saturating_sub(plan.latency() as u64);
        let needed = self.known - self.decided.saturating_sub(plan.back as u64);
        let Some(first) = self.known.checked_sub(self.kept as u64) else {
            return Err(from.fault("kept samples", format!("{} of {}", self.kept, self.known)));
        };
        if (self.kept as u64) < needed {
            return Err(from.fault("kept samples", format!("{} found, {needed} needed", self.kept)));
        }
        self.first = first;
        for row in self.tails.chunks_exact_mut(self.capacity) {
            from.fill_complex(&mut row[..self.kept])?;
        }
        self.gate.load(from, self.known, self.decided)
    }

    /// Returns the move that retains the samples from number `from` on, after a block of `times` samples.
    fn moved(&self, times: usize, from: u64) -> Move {
        let needed = (self.known + times as u64 - from) as usize;
        let (kept, old) = (self.kept, needed.saturating_sub(times));
        Move { kept, times, needed, old, fits: kept + times <= self.capacity }
    }

    /// Decides all samples before `until`, and then retains the last ones.
    fn search(
        &mut self,
        plan: &Plan,
        ratios: Ratios<'_>,
        until: u64,
        moved: Option<Move>,
        triggers: &mut Vec<Trigger>,
    ) {
        let Self { level, threads, shifts, gate, workers, tails, capacity, .. } = self;
        let (gate, kept, first, decided) = (&*gate, self.kept, self.first, self.decided);
        let each = (GROUP_SAMPLES / ratios.times.max(1)).clamp(GROUP, shifts.len().max(GROUP));
        threads.for_each_chunk(workers, tails, each * *capacity, |worker, group, tails| {
            for (place, row) in tails.chunks_exact_mut(*capacity).enumerate() {
                let template = group * each + place;
                let block = ratios.row(template);
                let series = Series { first, tail: &row[..kept], block };
                let shift = shifts[template];
                worker.search(plan, *level, template, shift, &series, gate, decided..until);
                if let Some(moved) = moved {
                    moved.retain(row, block);
                }
            }
        });
        let begin = triggers.len();
        workers.iter_mut().for_each(|worker| triggers.append(&mut worker.triggers));
        triggers[begin..].sort_unstable_by_key(|trigger| (trigger.sample, trigger.template));
    }
}

impl Worker {
    /// Decides a template's samples.
    fn search(
        &mut self,
        plan: &Plan,
        level: Level,
        template: usize,
        shift: f32,
        series: &Series<'_>,
        gate: &Gate,
        samples: Range<u64>,
    ) {
        let (threshold, window) = (plan.threshold(), plan.window as u64);
        let autocorrelation = &plan.autocorrelations()[template];
        for (first, piece) in series.pieces(samples.start, samples.end) {
            self.marks.clear();
            self.marks.resize(piece.len().div_ceil(TOGETHER), false);
            mark(level, piece, threshold, &mut self.marks);
            let marked = piece.chunks(TOGETHER).zip((first..).step_by(TOGETHER)).zip(&self.marks);
            for ((chunk, first), _) in marked.filter(|(_, mark)| **mark) {
                for (sample, z) in (first..).zip(chunk) {
                    let is_loud = z.norm_sqr() >= threshold && gate.is_open(sample);
                    if is_loud && is_peak(series, sample, threshold, window) {
                        let Peak { offset, z, xi2 } =
                            self.measure.peak(series, sample, autocorrelation, shift);
                        let template = template as u32;
                        self.triggers.push(Trigger { template, sample, offset, z, xi2 });
                    }
                }
            }
        }
    }
}

impl Move {
    /// Moves the last samples of a template.
    fn retain(self, row: &mut [Complex<f32>], block: &[Complex<f32>]) {
        let Self { kept, times, needed, old, fits } = self;
        if needed <= times {
            row[..needed].copy_from_slice(&block[times - needed..]);
        } else if fits {
            row[kept..][..times].copy_from_slice(block);
        } else {
            row.copy_within(kept - old..kept, 0);
            row[old..needed].copy_from_slice(block);
        }
    }
}

leveled!(
    /// Marks the parts of [`TOGETHER`] samples in which any `|z|^2` reaches the threshold.
    mark, mark_all, (piece: &[Complex<f32>], threshold: f32, marks: &mut [bool])
);

#[inline(always)]
fn mark_all(piece: &[Complex<f32>], threshold: f32, marks: &mut [bool]) {
    // The inner loop has no early exit, so that the compiler vectorizes it.
    let reaches = |any: u32, z: &Complex<f32>| any | u32::from(z.norm_sqr() >= threshold);
    for (chunk, mark) in piece.chunks(TOGETHER).zip(marks) {
        *mark = chunk.iter().fold(0, reaches) != 0;
    }
}

/// Tells whether `|z|^2` at `sample` is at least the threshold and the maximum within the window, the earliest of
/// equals.
fn is_peak(series: &Series<'_>, sample: u64, threshold: f32, window: u64) -> bool {
    let here = series.get(sample).map_or(0.0, power);
    let beats = |away: u64| {
        let before = sample.checked_sub(away).map_or(0.0, |before| series.power(before));
        here > before && here >= series.power(sample + away)
    };
    here >= threshold && (1..=window).all(beats)
}
