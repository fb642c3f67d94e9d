//! The search for peaks in streams of signal-to-noise ratios.

use num_complex::Complex;

use super::found::Trigger;
use super::gate::Gate;
use super::options::{Autocorrelation, TriggerOptions};
use super::series::{Series, power};
use super::shape::{Measure, Peak};
use super::sizes::Sizes;
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use crate::view::{check_length, check_memory};

/// Samples that are compared with the threshold together.
const TOGETHER: usize = 64;

/// Finds the peaks of every template's signal-to-noise ratio.
///
/// Sample `t` is a trigger where `|z[t]| >= threshold`, `|z[t]|` is greatest within the window to either side (the
/// earlier of equals), and no sample within the pad is invalid. Its time is that of the interpolated series' peak,
/// less what `|A|` has its own peak behind its middle; its amplitude and phase are the series' at that time, and with
/// the series interpolated there,
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
/// Triggers come by sample, then by template, and do not depend on how the stream was split. Values that are not
/// finite count as 0. [`Finder::run`] allocates nothing but room for triggers, once it has seen its longest block.
/// # Source
/// Messick et al. 2017, Phys. Rev. D 95, 042001 (xi-squared).
#[derive(Debug)]
pub struct Finder {
    autocorrelations: Vec<Autocorrelation>,
    /// How far behind its middle each of them is greatest, in samples.
    shifts: Vec<f32>,
    /// Least `|z|^2` of a trigger.
    threshold: f32,
    /// Samples to either side among which a trigger is the greatest.
    window: u64,
    /// Samples before a sample, and after it, that decide about it.
    back: usize,
    latency: usize,
    gate: Gate,
    measure: Measure,
    /// Samples seen, and samples decided about.
    known: u64,
    decided: u64,
    /// The last samples of every template: `capacity` for each, of which `kept` are in use, from number `first`.
    tails: Vec<Complex<f32>>,
    capacity: usize,
    kept: usize,
    first: u64,
}

impl Finder {
    /// A search over templates with these autocorrelations.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a rate, threshold, window or pad that can't be used, no template, or an
    /// autocorrelation without a middle of 1 and a norm above 0; [`Error::Unavailable`] if the history does not fit
    /// the memory.
    pub fn new(options: &TriggerOptions, autocorrelations: &[Autocorrelation]) -> Result<Self> {
        let Sizes { half, window, pad, back, latency } = Sizes::new(options, autocorrelations)?;
        // Twice what is needed: the tails are moved to their rows' fronts once in so many samples.
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

    /// Number of templates.
    pub fn templates(&self) -> usize {
        self.autocorrelations.len()
    }

    /// Bytes that it takes.
    pub fn held_bytes(&self) -> usize {
        let shapes = self.autocorrelations.iter().map(|one| one.values.len()).sum::<usize>();
        (self.tails.len() + shapes) * size_of::<Complex<f32>>()
    }

    /// Samples that must follow a sample before it is known whether it is a trigger.
    pub fn latency(&self) -> usize {
        self.latency
    }

    /// Takes the next `times` samples of each template, the first of its row of `stride`, and appends the triggers
    /// that are certain by now.
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

    /// Ends the stream: appends the triggers among its last [`Self::latency`] samples. Another stream may begin.
    pub fn flush(&mut self, triggers: &mut Vec<Trigger>) {
        self.gate.end();
        self.search(&[], 0, 0, self.known, triggers);
        self.reset();
    }

    /// Forgets the stream, so that another may begin.
    pub fn reset(&mut self) {
        self.gate.reset();
        (self.known, self.decided, self.kept, self.first) = (0, 0, 0, 0);
    }

    /// Samples of each template so far.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Saves what it keeps of the stream.
    pub fn save(&self, to: &mut Saving) {
        to.part("finder");
        to.number(self.known);
        to.number(self.kept as u64);
        for row in self.tails.chunks_exact(self.capacity) {
            to.complex(&row[..self.kept]);
        }
        self.gate.save(to);
    }

    /// Goes on where a finder of the same options was saved.
    ///
    /// # Errors
    /// [`Error::Format`] for what such a finder does not save; it is then to be [reset](Self::reset).
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

    /// Decides about all samples before `until`.
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

    /// Keeps the samples from number `from` on.
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

/// Does any `|z|^2` reach the threshold? A plain loop over integers' bits, which the compiler turns to vectors.
fn reaches(chunk: &[Complex<f32>], threshold: f32) -> bool {
    let reaches = |any: u32, z: &Complex<f32>| any | u32::from(z.norm_sqr() >= threshold);
    chunk.iter().fold(0, reaches) != 0
}

/// Is `|z|^2` at `sample` at least the threshold and the greatest within the window, the earlier of equals?
fn is_peak(series: &Series<'_>, sample: u64, threshold: f32, window: u64) -> bool {
    let here = series.get(sample).map_or(0.0, power);
    let beats = |away: u64| {
        let before = sample.checked_sub(away).map_or(0.0, |before| series.power(before));
        here > before && here >= series.power(sample + away)
    };
    here >= threshold && (1..=window).all(beats)
}
