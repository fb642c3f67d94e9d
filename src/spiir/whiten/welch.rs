//! Power spectra of strain: Hann-windowed, half-overlapping segments, averaged by median or mean.
//!
//! Invariant: a segment counts only if every sample of it may be used.

use std::f64::consts::PI;
use std::ops::Range;
use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use super::medians;
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::view::check_length;

/// Average over the segments' spectra.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Average {
    /// Median of each bin divided by its bias, which is robust against loud transients.
    #[default]
    Median,
    /// Mean of each bin.
    Mean,
}

/// Options of [`welch`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WelchOptions {
    /// Length of a segment in seconds; the spectrum's spacing is its reciprocal.
    pub segment_s: f64,
    /// Average over the segments.
    pub average: Average,
    /// Seconds left out at both ends.
    pub skip_ends_s: f64,
    /// Fewest segments of a spectrum.
    pub min_segments: usize,
    /// Memory limit in bytes for the segments of a median; the spectrum does not depend on it.
    pub memory_bytes: usize,
}

impl Default for WelchOptions {
    fn default() -> Self {
        Self {
            segment_s: 4.0,
            average: Average::Median,
            skip_ends_s: 2.0,
            min_segments: 4,
            memory_bytes: 32 << 20,
        }
    }
}

/// Longest segment in samples.
const LONGEST: f64 = (1_u64 << 26) as f64;

/// Returns the samples in `seconds` seconds, an even number.
///
/// # Errors
/// [`Error::Parameter`] for fewer than 16 samples or more than 2^26.
pub(super) fn even_samples(name: &'static str, seconds: f64, rate_hz: u32) -> Result<usize> {
    let samples = (seconds * f64::from(rate_hz) / 2.0).round() * 2.0;
    if !(16.0..=LONGEST).contains(&samples) {
        let rule = format!("it must be 16 samples to 2^26 at {rate_hz} Hz");
        return Err(Error::parameter(name, seconds, rule));
    }
    Ok(samples as usize)
}

/// Computes the power spectral density of strain by Welch's method.
///
/// `S[k] = 2 / (rate sum w^2) average_j |sum_n w[n] x[n + j N / 2] exp(-2 pi i k n / N)|^2`, one-sided (bins 0 and
/// Nyquist without the 2), with `w` the periodic Hann window. The median is divided by its bias for that number of
/// segments. Nothing is subtracted from the samples.
///
/// | buffer    | axes | type | unit   | access |
/// |-----------|------|------|--------|--------|
/// | `samples` | time | f64  | strain | read   |
/// | `valid`   | time | bool |        | read   |
///
/// # Errors
/// [`Error::Shape`] for slices of different lengths; [`Error::Parameter`] for a segment of fewer than 16 samples, if
/// fewer than `min_segments` segments hold only valid samples, or if their spectrum has a zero.
/// # Source
/// Welch 1967, IEEE Trans. Audio Electroacoust. 15, 70; the median and its bias: Allen et al. 2012, Phys. Rev. D 85,
/// 122006, appendix B.
pub fn welch(
    samples: &[f64],
    valid: &[bool],
    rate_hz: u32,
    options: &WelchOptions,
) -> Result<PowerSpectrum> {
    check_length("flags of valid samples", samples.len(), valid.len())?;
    let times = samples.len() as u64;
    welch_of(&mut |take| take(samples, valid), (times, rate_hz), options)
}

/// Receives pieces of strain in order: samples, and their validity.
pub type Take<'a> = dyn FnMut(&[f64], &[bool]) -> Result<()> + 'a;

/// Like [`welch`], for `times` samples that are not in memory. Each call of `pass` delivers all of them piece by
/// piece.
///
/// A mean needs one pass, and so does a median of few segments. A median of many needs about three passes, and memory
/// that does not grow with their number. The result is bitwise that of [`welch`] for any split into pieces.
///
/// # Errors
/// As [`welch`]; those of `pass`.
pub fn welch_of(
    pass: &mut dyn FnMut(&mut Take<'_>) -> Result<()>,
    (times, rate_hz): (u64, u32),
    options: &WelchOptions,
) -> Result<PowerSpectrum> {
    let length = even_samples("Welch segment (s)", options.segment_s, rate_hz)?;
    let skip = options.skip_ends_s * f64::from(rate_hz);
    if !(skip.is_finite() && skip >= 0.0) {
        let rule = "it must be 0 s or more";
        return Err(Error::parameter("seconds left out at the ends", options.skip_ends_s, rule));
    }
    let skip = (skip.round() as u64).min(times / 2);
    let bins = length / 2 + 1;
    let mut periodogram = Periodogram::new(length, rate_hz);
    let mut each = |take: &mut dyn FnMut(&[f64])| -> Result<usize> {
        let mut segments = Segments::new(length, skip..times - skip);
        pass(&mut |samples, valid| {
            check_length("flags of valid samples", samples.len(), valid.len())?;
            segments.push(samples, valid, &mut |segment| {
                take(periodogram.densities(segment.iter().copied()));
            });
            Ok(())
        })?;
        let least = options.min_segments.max(1);
        if segments.good < least {
            let rule = format!(
                "{least} segments of {} s without invalid samples are needed for a power spectrum (in {} s of strain)",
                options.segment_s,
                (times - 2 * skip) as f64 / f64::from(rate_hz)
            );
            return Err(Error::parameter("good segments", segments.good, rule));
        }
        Ok(segments.good)
    };
    let densities = match options.average {
        Average::Mean => {
            let mut sums = vec![0.0; bins];
            let good = each(&mut |densities| {
                sums.iter_mut().zip(densities).for_each(|(sum, density)| *sum += density);
            })?;
            sums.iter().map(|sum| sum / good as f64).collect::<Vec<_>>()
        }
        Average::Median => {
            let most = (times - 2 * skip) / (length as u64 / 2);
            let (medians, good) = medians::of_each(&mut each, bins, most, options.memory_bytes)?;
            let bias = median_bias(good);
            medians.iter().map(|median| median / bias).collect()
        }
    };
    PowerSpectrum::new(f64::from(rate_hz) / length as f64, densities)
}

/// Splits a stream into half-overlapping segments.
struct Segments {
    length: usize,
    /// Range of the samples that count.
    inside: Range<u64>,
    taken: u64,
    held: Vec<f64>,
    /// Length of the current run of usable samples.
    run: usize,
    /// Segments whose samples are all usable.
    good: usize,
}

impl Segments {
    fn new(length: usize, inside: Range<u64>) -> Self {
        Self { length, inside, taken: 0, held: Vec::with_capacity(length), run: 0, good: 0 }
    }

    fn push(&mut self, samples: &[f64], valid: &[bool], take: &mut dyn FnMut(&[f64])) {
        for (sample, valid) in samples.iter().zip(valid) {
            let is_inside = self.inside.contains(&self.taken);
            self.taken += 1;
            if !is_inside {
                continue;
            }
            self.held.push(*sample);
            self.run = if *valid && sample.is_finite() { self.run + 1 } else { 0 };
            if self.held.len() == self.length {
                if self.run >= self.length {
                    self.good += 1;
                    take(&self.held);
                }
                self.held.drain(..self.length / 2);
            }
        }
    }
}

/// Returns the median of `segments` exponentially distributed powers relative to their mean.
fn median_bias(segments: usize) -> f64 {
    let pairs = (1..=(segments - 1) / 2).map(|pair| 2.0 * pair as f64);
    1.0 + pairs.map(|even| 1.0 / (even + 1.0) - 1.0 / even).sum::<f64>()
}

/// One-sided densities of single Hann-windowed segments; allocates only when created.
pub(super) struct Periodogram {
    window: Vec<f64>,
    scale: f64,
    fft: Arc<dyn Fft<f64>>,
    buffer: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
    densities: Vec<f64>,
}

impl Periodogram {
    pub(super) fn new(length: usize, rate_hz: u32) -> Self {
        let window: Vec<f64> =
            (0..length).map(|n| (PI * n as f64 / length as f64).sin().powi(2)).collect();
        let power: f64 = window.iter().map(|value| value * value).sum();
        let fft = FftPlanner::new().plan_fft_forward(length);
        let scratch = vec![Complex::default(); fft.get_inplace_scratch_len()];
        let buffer = vec![Complex::default(); length];
        let scale = 2.0 / (f64::from(rate_hz) * power);
        Self { window, scale, fft, buffer, scratch, densities: vec![0.0; length / 2 + 1] }
    }

    /// Returns the densities of one segment.
    pub(super) fn densities(&mut self, samples: impl Iterator<Item = f64>) -> &[f64] {
        for ((value, window), sample) in self.buffer.iter_mut().zip(&self.window).zip(samples) {
            *value = Complex::new(window * sample, 0.0);
        }
        self.fft.process_with_scratch(&mut self.buffer, &mut self.scratch);
        let last = self.densities.len() - 1;
        for (bin, (density, value)) in self.densities.iter_mut().zip(&self.buffer).enumerate() {
            let sides = if bin == 0 || bin == last { 0.5 } else { 1.0 };
            *density = sides * self.scale * value.norm_sqr();
        }
        &self.densities
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bias_is_that_of_the_harmonic_series() {
        assert_eq!(median_bias(1), 1.0);
        assert!((median_bias(3) - (1.0 - 0.5 + 1.0 / 3.0)).abs() < 1e-15);
        assert_eq!(median_bias(4), median_bias(3));
        assert!((median_bias(100_001) - 2f64.ln()).abs() < 1e-5);
    }

    #[test]
    fn a_spectrum_needs_enough_good_segments() {
        let samples: Vec<f64> = (0..2048).map(|n| f64::from((n * n) % 97) - 48.0).collect();
        let mut valid = vec![true; 2048];
        let options = WelchOptions { segment_s: 1.0, skip_ends_s: 0.0, ..WelchOptions::default() };
        let spectrum = welch(&samples, &valid, 256, &options).expect("15 segments");
        assert_eq!((spectrum.spacing_hz(), spectrum.densities().len()), (1.0, 129));
        valid[900] = false;
        valid[300] = false;
        valid[1500] = false;
        let all = WelchOptions { min_segments: 10, ..options };
        assert!(welch(&samples, &valid, 256, &all).expect_err("9 left").to_string().contains("9"));
        assert!(welch(&samples[..100], &valid[..100], 256, &options).is_err());
        assert!(welch(&[0.0; 2048], &[true; 2048], 256, &options).is_err(), "no power");
        assert!(welch(&samples, &valid[1..], 256, &options).is_err());
    }
}
