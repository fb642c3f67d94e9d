//! Power spectrum that tracks the noise: geometric means of running medians.
//!
//! Invariant: the densities after an update depend on the periodograms so far alone.

use std::collections::VecDeque;

use super::welch::{Periodogram, even_samples};
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::state::{Saved, Saving};

/// Options of a running spectrum.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningOptions {
    /// Length of a segment in seconds; segments overlap by half.
    pub segment_s: f64,
    /// Number of latest segments in the median.
    pub median_samples: usize,
    /// Number of medians in the geometric mean: the memory of the spectrum in segments.
    pub average_samples: usize,
    /// Segments before the spectrum is valid; until then nothing is whitened.
    pub settle: usize,
    /// Prior spectrum. If present, the spectrum is valid from the start, and the prior counts as `average_samples`
    /// medians.
    pub initial: Option<PowerSpectrum>,
}

impl Default for RunningOptions {
    fn default() -> Self {
        Self { segment_s: 4.0, median_samples: 7, average_samples: 64, settle: 8, initial: None }
    }
}

impl RunningOptions {
    /// Returns the seconds at a recording's start that the spectrum needs, in which nothing is whitened.
    pub fn learning_s(&self) -> f64 {
        if self.initial.is_some() { 0.0 } else { (self.settle + 1) as f64 / 2.0 * self.segment_s }
    }
}

/// Running power spectral density.
///
/// `m` is each bin's median over the latest 7 periodograms, and `ln G += (ln m - b - ln G) / N`, with `N` the smaller
/// of the number of updates and 64. The density is `G exp(gamma)`, with `gamma` Euler's constant. `b - gamma` is the
/// exact mean of `ln m` for exponentially distributed powers of mean 1: `b = -k C(n, k) sum_i (-1)^i C(k - 1, i) ln(n
/// - k + 1 + i) / (n - k + 1 + i)`, with `k` the middle of `n` (the lower one of an even number). The code subtracts
/// `b - gamma` at once.
///
/// # Source
/// Messick et al. 2017, Phys. Rev. D 95, 042001, section II.B. The bias is derived here from order statistics,
/// because the geometric mean of medians has another bias than the median.
#[derive(Clone, Debug)]
pub struct RunningPsd {
    spacing_hz: f64,
    median_samples: usize,
    average_samples: usize,
    /// Ring of the latest periodograms; axes: bin, segment.
    latest: Vec<f64>,
    /// Logarithms of the densities.
    logarithms: Vec<f64>,
    densities: Vec<f64>,
    /// Mean of `ln m` for powers of mean 1, `b - gamma`, by the number of powers.
    biases: Vec<f64>,
    sorted: Vec<f64>,
    updates: u64,
    /// Logarithms of the prior spectrum, empty without one.
    initial: Vec<f64>,
}

/// Limit on the numbers of segments in the median and of medians in the mean.
const MAX_SAMPLES: usize = 1 << 12;
/// Longest median: beyond it the sum of its bias loses precision.
const MAX_MEDIAN: usize = 31;

impl RunningPsd {
    /// Creates a spectrum of `bins` bins.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a median or a mean of no samples or of too many.
    pub fn new(spacing_hz: f64, bins: usize, options: &RunningOptions) -> Result<Self> {
        let check = |name, value: usize, most: usize| {
            let rule = format!("it must be 1 to {most}");
            (1..=most).contains(&value).then_some(()).ok_or(Error::parameter(name, value, rule))
        };
        check("segments of the running median", options.median_samples, MAX_MEDIAN)?;
        check("medians of the running mean", options.average_samples, MAX_SAMPLES)?;
        let initial = match &options.initial {
            None => Vec::new(),
            Some(spectrum) => {
                let known = spectrum.resampled(spacing_hz, bins)?;
                let mut logarithms: Vec<f64> =
                    known.densities().iter().map(|density| density.ln()).collect();
                fill_infinite(&mut logarithms);
                logarithms
            }
        };
        let mut running = Self {
            spacing_hz,
            median_samples: options.median_samples,
            average_samples: options.average_samples,
            latest: vec![0.0; bins * options.median_samples],
            logarithms: vec![0.0; bins],
            densities: vec![0.0; bins],
            biases: (0..=options.median_samples).map(logarithm_bias).collect(),
            sorted: Vec::with_capacity(options.median_samples),
            updates: 0,
            initial,
        };
        running.reset();
        Ok(running)
    }

    /// Adds the densities of one segment.
    ///
    /// # Errors
    /// [`Error::Shape`] unless their number is that of the bins.
    pub fn update(&mut self, densities: &[f64]) -> Result<()> {
        crate::view::check_length(
            "densities of a segment",
            self.logarithms.len(),
            densities.len(),
        )?;
        let place = (self.updates % self.median_samples as u64) as usize;
        self.updates += 1;
        let kept = self.updates.min(self.median_samples as u64) as usize;
        let before = if self.initial.is_empty() { 0 } else { self.average_samples as u64 };
        let count = (self.updates + before).min(self.average_samples as u64) as f64;
        let rows = self.latest.chunks_exact_mut(self.median_samples);
        let bins = rows.zip(&mut self.logarithms).zip(&mut self.densities).zip(densities);
        for (((row, logarithm), density), new) in bins {
            // Replaces a power of 0, which has no logarithm, by the least positive number.
            row[place] = if new.is_finite() { new.max(f64::MIN_POSITIVE) } else { f64::MAX };
            self.sorted.clear();
            self.sorted.extend_from_slice(&row[..kept]);
            let middle = (kept - 1) / 2;
            let (_, median, _) = self.sorted.select_nth_unstable_by(middle, f64::total_cmp);
            *logarithm += (median.ln() - self.biases[kept] - *logarithm) / count;
            *density = logarithm.exp();
        }
        Ok(())
    }

    /// Returns the number of segments so far.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Returns the densities; all 0 before the first segment.
    pub fn densities(&self) -> &[f64] {
        &self.densities
    }

    /// Returns the distance between bins in Hz.
    pub fn spacing_hz(&self) -> f64 {
        self.spacing_hz
    }

    /// Returns the spectrum, or `None` before the first segment.
    pub fn spectrum(&self) -> Option<PowerSpectrum> {
        PowerSpectrum::new(self.spacing_hz, self.densities.clone()).ok()
    }

    fn save(&self, to: &mut Saving) {
        to.part("running spectrum");
        to.number(self.updates);
        to.f64s(self.latest.iter());
        to.f64s(self.logarithms.iter());
        to.f64s(self.densities.iter());
    }

    fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("running spectrum")?;
        self.updates = from.number()?;
        from.fill_f64(&mut self.latest)?;
        from.fill_f64(&mut self.logarithms)?;
        from.fill_f64(&mut self.densities)
    }

    /// Discards all segments.
    pub fn reset(&mut self) {
        self.updates = 0;
        self.logarithms.fill(0.0);
        self.densities.fill(0.0);
        for (place, logarithm) in self.initial.iter().enumerate() {
            self.logarithms[place] = *logarithm;
            self.densities[place] = logarithm.exp();
        }
    }
}

/// Replaces infinite (unknown) logarithms by the greatest known one.
fn fill_infinite(logarithms: &mut [f64]) {
    let known = logarithms.iter().copied().filter(|logarithm| logarithm.is_finite());
    let greatest = known.fold(f64::NEG_INFINITY, f64::max);
    let greatest = if greatest.is_finite() { greatest } else { 0.0 };
    for logarithm in logarithms.iter_mut().filter(|logarithm| !logarithm.is_finite()) {
        *logarithm = greatest;
    }
}

/// Returns the mean of the logarithm of the lower median of `samples` exponential powers of mean 1.
fn logarithm_bias(samples: usize) -> f64 {
    /// Euler's constant.
    const GAMMA: f64 = 0.577_215_664_901_532_9;
    if samples == 0 {
        return 0.0;
    }
    let rank = samples.div_ceil(2);
    let choose = |n: usize, k: usize| {
        (0..k).fold(1.0, |product, i| product * (n - i) as f64 / (i + 1) as f64)
    };
    let terms = (0..rank).map(|i| {
        let sign = if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        let rate = (samples - rank + 1 + i) as f64;
        sign * choose(rank - 1, i) * rate.ln() / rate
    });
    -(rank as f64) * choose(samples, rank) * terms.sum::<f64>() - GAMMA
}

/// Running spectrum of a stream, which it splits into segments.
pub(super) struct Follower {
    running: RunningPsd,
    periodogram: Periodogram,
    /// Latest samples, and whether each was unaltered.
    samples: VecDeque<f64>,
    length: usize,
    pushed: u64,
    /// Length of the current run of unaltered samples.
    good: u64,
    settle: u64,
}

impl Follower {
    /// Returns the bytes it occupies, including the tables of its transforms.
    pub(super) fn held_bytes(&self) -> usize {
        let running = &self.running;
        let bins = running.logarithms.len();
        8 * (running.latest.len() + 4 * bins) + 72 * self.length
    }

    pub(super) fn new(rate_hz: u32, options: &RunningOptions) -> Result<Self> {
        let length =
            even_samples("segment of the running spectrum (s)", options.segment_s, rate_hz)?;
        let running = RunningPsd::new(f64::from(rate_hz) / length as f64, length / 2 + 1, options)?;
        let settle = if options.initial.is_some() { 0 } else { options.settle.max(1) as u64 };
        Ok(Self {
            running,
            periodogram: Periodogram::new(length, rate_hz),
            samples: VecDeque::with_capacity(length),
            length,
            pushed: 0,
            good: 0,
            settle,
        })
    }

    /// Appends a sample; returns whether the spectrum has changed.
    pub(super) fn push(&mut self, sample: f64, is_good: bool) -> bool {
        if self.samples.len() == self.length {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.pushed += 1;
        self.good = if is_good { self.good + 1 } else { 0 };
        let is_end = self.pushed.is_multiple_of(self.length as u64 / 2);
        if !is_end || self.good < self.length as u64 {
            return false;
        }
        let densities = self.periodogram.densities(self.samples.iter().copied());
        self.running.update(densities).is_ok()
    }

    /// Returns the samples of a segment.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Passes over zeros that follow a segment of altered zeros: multiples of half a segment.
    pub(super) fn skip(&mut self, samples: u64) {
        self.pushed += samples;
    }

    pub(super) fn running(&self) -> &RunningPsd {
        &self.running
    }

    pub(super) fn is_settled(&self) -> bool {
        self.running.updates() >= self.settle
    }

    pub(super) fn save(&self, to: &mut Saving) {
        to.part("segments");
        to.number(self.pushed);
        to.number(self.good);
        to.f64s(self.samples.iter());
        self.running.save(to);
    }

    pub(super) fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("segments")?;
        (self.pushed, self.good) = (from.number()?, from.number()?);
        self.samples = from.f64s(self.length)?.into();
        self.running.load(from)
    }

    pub(super) fn reset(&mut self) {
        self.running.reset();
        self.samples.clear();
        (self.pushed, self.good) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bias_of_single_powers_is_eulers_constant() {
        assert!((logarithm_bias(1) + 0.577_215_664_901_532_9).abs() < 1e-15);
        // The lesser of two has half the mean.
        let two = logarithm_bias(2) + 0.577_215_664_901_532_9 + 2f64.ln();
        assert!(two.abs() < 1e-14);
        // A long median has a narrow distribution: its logarithm is ln(ln 2) except for half its relative variance, 1
        // / (2 n ln^2 2).
        let long = logarithm_bias(31) - 2f64.ln().ln();
        assert!(long.abs() < 0.03, "{long}");
    }

    #[test]
    fn a_constant_power_is_found_but_for_the_bias() {
        let options = RunningOptions::default();
        let mut running = RunningPsd::new(1.0, 3, &options).expect("a spectrum");
        assert!(running.spectrum().is_none());
        for _ in 0..200 {
            running.update(&[1.0, 2.0, 4.0]).expect("three bins");
        }
        let expected = (-logarithm_bias(7)).exp();
        for (density, power) in running.densities().iter().zip([1.0, 2.0, 4.0]) {
            // The memory of the first, shorter medians decays by a factor of 63 / 64 per segment.
            assert!((density / (power * expected) - 1.0).abs() < 0.05, "{density}");
        }
        assert!(running.update(&[1.0]).is_err());
    }
}
