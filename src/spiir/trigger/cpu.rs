//! Peak search on the host.

use num_complex::Complex;

use super::gate::Gate;
use super::measure::{Measure, Peak, Series, power};
use super::plan::{Plan, Ratios, Trigger};
use crate::error::Result;
use crate::state::{Saved, Saving};
use crate::view::check_memory;

/// Samples compared with the threshold at a time.
const TOGETHER: usize = 64;

/// State of the search of one stream.
#[derive(Debug)]
pub(super) struct Engine {
    /// Position of each autocorrelation's maximum relative to its middle, in samples.
    shifts: Vec<f32>,
    gate: Gate,
    measure: Measure,
    /// Samples received, and samples decided.
    known: u64,
    decided: u64,
    /// Last samples of every template, `capacity` each, of which `kept` are in use from sample number `first` on.
    tails: Vec<Complex<f32>>,
    capacity: usize,
    kept: usize,
    first: u64,
}

impl Engine {
    pub(super) fn new(plan: &Plan) -> Result<Self> {
        // Twice what is needed, so that the tails move to the fronts of their rows only once per `back + latency`
        // samples.
        let capacity = (plan.back + plan.latency()) * 2;
        let bytes = capacity.checked_mul(plan.templates() * size_of::<Complex<f32>>());
        check_memory("the last signal-to-noise ratios of all templates", bytes)?;
        let measure = Measure::new(plan.half);
        Ok(Self {
            shifts: plan.autocorrelations().iter().map(|one| measure.shift(one)).collect(),
            gate: Gate::new(plan.pad),
            measure,
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
        self.search(plan, ratios, until, triggers);
        self.keep(ratios, until.saturating_sub(plan.back as u64));
        (self.known, self.decided) = (known, until);
        self.gate.forget(until);
    }

    pub(super) fn flush(&mut self, plan: &Plan, triggers: &mut Vec<Trigger>) {
        self.gate.end();
        self.search(plan, Ratios { z: &[], stride: 0, times: 0 }, self.known, triggers);
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

    /// Decides all samples before `until`.
    fn search(&mut self, plan: &Plan, ratios: Ratios<'_>, until: u64, triggers: &mut Vec<Trigger>) {
        let (begin, threshold, window) = (triggers.len(), plan.threshold(), plan.window as u64);
        for (template, autocorrelation) in plan.autocorrelations().iter().enumerate() {
            let tail = &self.tails[template * self.capacity..][..self.kept];
            let series = Series { first: self.first, tail, block: ratios.row(template) };
            for (first, piece) in series.pieces(self.decided, until) {
                for (index, chunk) in piece.chunks(TOGETHER).enumerate() {
                    if !reaches(chunk, threshold) {
                        continue;
                    }
                    let first = first + (index * TOGETHER) as u64;
                    for sample in first..first + chunk.len() as u64 {
                        if self.gate.is_open(sample) && is_peak(&series, sample, threshold, window)
                        {
                            let shift = self.shifts[template];
                            let Peak { offset, z, xi2 } =
                                self.measure.peak(&series, sample, autocorrelation, shift);
                            let template = template as u32;
                            triggers.push(Trigger { template, sample, offset, z, xi2 });
                        }
                    }
                }
            }
        }
        triggers[begin..].sort_unstable_by_key(|trigger| (trigger.sample, trigger.template));
    }

    /// Retains the samples from number `from` on.
    fn keep(&mut self, ratios: Ratios<'_>, from: u64) {
        let times = ratios.times;
        let needed = (self.known + times as u64 - from) as usize;
        let old = needed.saturating_sub(times);
        let fits = self.kept + times <= self.capacity;
        for (template, row) in self.tails.chunks_exact_mut(self.capacity).enumerate() {
            let block = ratios.row(template);
            if needed <= times {
                row[..needed].copy_from_slice(&block[times - needed..]);
            } else if fits {
                row[self.kept..][..times].copy_from_slice(block);
            } else {
                row.copy_within(self.kept - old..self.kept, 0);
                row[old..needed].copy_from_slice(block);
            }
        }
        if needed > times && fits {
            self.kept += times;
        } else {
            (self.kept, self.first) = (needed, from);
        }
    }
}

/// Tells whether any `|z|^2` reaches the threshold. The loop has no early exit, so that the compiler vectorizes it.
fn reaches(chunk: &[Complex<f32>], threshold: f32) -> bool {
    let reaches = |any: u32, z: &Complex<f32>| any | u32::from(z.norm_sqr() >= threshold);
    chunk.iter().fold(0, reaches) != 0
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
