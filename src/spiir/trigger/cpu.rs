//! Peak search in streams of signal-to-noise ratios.

use num_complex::Complex;

use super::gate::Gate;
use super::measure::{Measure, Peak, Series, power};
use super::plan::{Autocorrelation, Sizes, Trigger, TriggerOptions};
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use crate::view::{check_length, check_memory};

/// Samples compared with the threshold at a time.
const TOGETHER: usize = 64;

/// Finds the peaks of every template's signal-to-noise ratio.
///
/// Sample `t` is a trigger if `|z[t]| >= threshold`, `|z[t]|` is the maximum within the window on either side (of
/// equal values the earliest), and no sample within the pad is invalid. The trigger time is that of the peak of the
/// interpolated series, minus the offset of the peak of `|A|` from its middle. Amplitude and phase are those of the
/// series at that time. With the series interpolated there,
///
/// `xi2 = sum_m |z[t + m] - z[t] A[m]|^2 / sum_m (2 - 2 |A[m]|^2)`, `|m| <= ` half the autocorrelation's length.
///
/// | buffer     | axes           | type        | unit                                 | access   |
/// |------------|----------------|-------------|--------------------------------------|----------|
/// | `z`        | template, time | complex f32 | standard deviations, each quadrature | read     |
/// | `valid`    | time           | bool        |                                      | read     |
/// | `triggers` | trigger        | [`Trigger`] |                                      | appended |
///
/// # Numerics
/// Triggers are ordered by sample, then template, and do not depend on how the stream was split. Values that are not
/// finite count as 0. After its longest block, [`Finder::run`] allocates only to grow the trigger list.
/// # Source
/// Messick et al. 2017, Phys. Rev. D 95, 042001 (xi-squared).
#[derive(Debug)]
pub struct Finder {
    autocorrelations: Vec<Autocorrelation>,
    /// Position of each autocorrelation's maximum after its middle, in samples.
    shifts: Vec<f32>,
    /// Least `|z|^2` of a trigger.
    threshold: f32,
    /// Samples on either side within which a trigger is the maximum.
    window: u64,
    /// Samples before and after a sample that its decision reads.
    back: usize,
    latency: usize,
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

impl Finder {
    /// Creates a peak search over templates with these autocorrelations.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an unusable rate, threshold, window or pad, no template, or an autocorrelation
    /// without a middle of 1 and a norm above 0; [`Error::Unavailable`] if the history does not fit in memory.
    pub fn new(options: &TriggerOptions, autocorrelations: &[Autocorrelation]) -> Result<Self> {
        let Sizes { half, window, pad, back, latency } = Sizes::new(options, autocorrelations)?;
        // Twice what is needed, so that the tails move to the fronts of their rows only once per `back + latency`
        // samples.
        let capacity = (back + latency) * 2;
        let bytes = capacity.checked_mul(autocorrelations.len() * size_of::<Complex<f32>>());
        check_memory("the last signal-to-noise ratios of all templates", bytes)?;
        let measure = Measure::new(half);
        let shifts = autocorrelations.iter().map(|one| measure.shift(one)).collect();
        Ok(Self {
            autocorrelations: autocorrelations.to_vec(),
            shifts,
            threshold: options.threshold * options.threshold,
            window: window as u64,
            back,
            latency,
            gate: Gate::new(pad),
            measure,
            known: 0,
            decided: 0,
            tails: vec![Complex::default(); capacity * autocorrelations.len()],
            capacity,
            kept: 0,
            first: 0,
        })
    }

    /// Returns the number of templates.
    pub fn templates(&self) -> usize {
        self.autocorrelations.len()
    }

    /// Returns the bytes it occupies.
    pub fn held_bytes(&self) -> usize {
        let shapes = self.autocorrelations.iter().map(|one| one.values.len()).sum::<usize>();
        (self.tails.len() + shapes) * size_of::<Complex<f32>>()
    }

    /// Returns how many samples must follow a sample before it can be decided.
    pub fn latency(&self) -> usize {
        self.latency
    }

    /// Processes the next `times` samples of each template, at the start of its row of `stride`, and appends the
    /// triggers that are certain.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `z.len() == templates * stride`, `times <= stride` and `valid.len() == times`.
    pub fn run(
        &mut self,
        z: &[Complex<f32>],
        stride: usize,
        times: usize,
        valid: &[bool],
        triggers: &mut Vec<Trigger>,
    ) -> Result<()> {
        let what = "signal-to-noise ratios (template, time)";
        check_length(what, self.templates() * stride, z.len())?;
        check_length("valid samples", times, valid.len())?;
        if times > stride {
            let what = "row of signal-to-noise ratios";
            return Err(Error::Shape { what, expected: times, actual: stride });
        }
        self.gate.push(valid);
        let known = self.known + times as u64;
        let until = known.saturating_sub(self.latency as u64).max(self.decided);
        self.search(z, stride, times, until, triggers);
        self.keep(z, stride, times, until.saturating_sub(self.back as u64));
        (self.known, self.decided) = (known, until);
        self.gate.forget(until);
        Ok(())
    }

    /// Ends the stream and appends the triggers of its last [`Self::latency`] samples. A new stream may follow.
    pub fn flush(&mut self, triggers: &mut Vec<Trigger>) {
        self.gate.end();
        self.search(&[], 0, 0, self.known, triggers);
        self.reset();
    }

    /// Discards the stream, so that another may begin.
    pub fn reset(&mut self) {
        self.gate.reset();
        (self.known, self.decided, self.kept, self.first) = (0, 0, 0, 0);
    }

    /// Returns the samples received per template.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Saves the stream's state.
    pub fn save(&self, to: &mut Saving) {
        to.part("finder");
        to.number(self.known);
        to.number(self.kept as u64);
        for row in self.tails.chunks_exact(self.capacity) {
            to.complex(&row[..self.kept]);
        }
        self.gate.save(to);
    }

    /// Restores the state saved by a finder with the same options.
    ///
    /// # Errors
    /// [`Error::Format`] for a state that such a finder does not save, after which [`reset`](Self::reset) is
    /// required.
    pub fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("finder")?;
        self.known = from.number()?;
        self.kept = from.at_most(self.capacity)?;
        self.decided = self.known.saturating_sub(self.latency as u64);
        let needed = self.known - self.decided.saturating_sub(self.back as u64);
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
    fn search(
        &mut self,
        z: &[Complex<f32>],
        stride: usize,
        times: usize,
        until: u64,
        triggers: &mut Vec<Trigger>,
    ) {
        let begin = triggers.len();
        for template in 0..self.templates() {
            let tail = &self.tails[template * self.capacity..][..self.kept];
            let block = if times > 0 { &z[template * stride..][..times] } else { &[] };
            let series = Series { first: self.first, tail, block };
            for (first, piece) in series.pieces(self.decided, until) {
                for (index, chunk) in piece.chunks(TOGETHER).enumerate() {
                    if !reaches(chunk, self.threshold) {
                        continue;
                    }
                    let first = first + (index * TOGETHER) as u64;
                    for sample in first..first + chunk.len() as u64 {
                        if self.gate.is_open(sample)
                            && is_peak(&series, sample, self.threshold, self.window)
                        {
                            let shape = &self.autocorrelations[template];
                            let shift = self.shifts[template];
                            let Peak { offset, z, xi2 } =
                                self.measure.peak(&series, sample, shape, shift);
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
    fn keep(&mut self, z: &[Complex<f32>], stride: usize, times: usize, from: u64) {
        let needed = (self.known + times as u64 - from) as usize;
        let old = needed.saturating_sub(times);
        let room = self.kept + times <= self.capacity;
        for (template, row) in self.tails.chunks_exact_mut(self.capacity).enumerate() {
            let block = &z[template * stride..][..times];
            if needed <= times {
                row[..needed].copy_from_slice(&block[times - needed..]);
            } else if room {
                row[self.kept..][..times].copy_from_slice(block);
            } else {
                row.copy_within(self.kept - old..self.kept, 0);
                row[old..needed].copy_from_slice(block);
            }
        }
        if needed > times && room {
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
