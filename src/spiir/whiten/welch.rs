//! Power spectra of strain: Hann-windowed, half-overlapping segments, averaged by median or mean.
//!
//! Invariant: a segment counts only if every sample of it may be used.

use std::f64::consts::PI;
use std::ops::Range;
use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::view::{check_length, check_memory};

/// Average over the segments' spectra.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Average {
    /// Median of each bin divided by its bias, which is robust against loud transients.
    #[default]
    Median,
    /// Mean of each bin.
    Mean,
}

/// Number of segments from which a median gives more accurate ratios than a mean, also for weak waves
/// (docs/design/cbc.md).
const MANY: f64 = 16.0;

impl Average {
    /// Returns the average that gives the more accurate signal-to-noise ratios for this length of strain.
    pub fn usual(length_s: f64, segment_s: f64) -> Self {
        if 2.0 * length_s / segment_s >= MANY { Self::Median } else { Self::Mean }
    }
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
const MAX_SEGMENT: f64 = (1_u64 << 26) as f64;

/// Returns the samples in `seconds` seconds, an even number.
///
/// # Errors
/// [`Error::Parameter`] for fewer than 16 samples or more than 2^26.
pub(super) fn even_samples(name: &'static str, seconds: f64, rate_hz: u32) -> Result<usize> {
    let samples = (seconds * f64::from(rate_hz) / 2.0).round() * 2.0;
    if !(16.0..=MAX_SEGMENT).contains(&samples) {
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
    welch_of(&mut |take| take(samples, valid), times, rate_hz, options)
}

/// Receiver of pieces of strain in order: samples, and their validity.
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
    times: u64,
    rate_hz: u32,
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
            let (medians, good) = medians_of_each(&mut each, bins, most, options.memory_bytes)?;
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

/// Number of segments held regardless of the memory limit: the transform of one takes as much memory.
const MIN_SEGMENTS: usize = 16;

/// Pass over the strain: calls its argument with the values of each segment, one slice of all bins per segment, and
/// returns the number of segments.
type Pass<'a> = dyn FnMut(&mut dyn FnMut(&[f64])) -> Result<usize> + 'a;

/// Returns the median of each of `bins` bins over at most `most` segments, and the number of segments. `bytes` limits
/// the memory of held segments, counts or collected values.
///
/// # Errors
/// Those of `pass`; [`crate::Error::Unavailable`] without memory.
fn medians_of_each(
    pass: &mut Pass<'_>,
    bins: usize,
    most: u64,
    bytes: usize,
) -> Result<(Vec<f64>, usize)> {
    let capacity = (bytes / 8 / bins).max(MIN_SEGMENTS);
    if most <= capacity as u64 {
        return held(pass, bins, most as usize);
    }
    let buckets = 1_usize << (bytes / 4 / bins).clamp(16, 4096).ilog2();
    check_memory("the counts of all segments' spectra", bins.checked_mul(buckets * 4))?;
    let mut brackets = vec![Bracket::all(); bins];
    let mut segments;
    loop {
        let mut counts = vec![0_u32; bins * buckets];
        segments = pass(&mut |row| {
            let rows = counts.chunks_exact_mut(buckets);
            for ((value, bracket), counts) in row.iter().zip(&brackets).zip(rows) {
                if let Some(place) = bracket.place(key(*value)) {
                    counts[(place >> bracket.shift(buckets)) as usize] += 1;
                }
            }
        })?;
        for (bracket, counts) in brackets.iter_mut().zip(counts.chunks_exact(buckets)) {
            bracket.narrow(counts, segments / 2, buckets);
        }
        if brackets.iter().all(|bracket| bracket.inside <= capacity || bracket.bits == 0) {
            break;
        }
    }
    let mut rows: Vec<Collected> = vec![Collected::default(); bins];
    pass(&mut |row| {
        for ((value, bracket), collected) in row.iter().zip(&brackets).zip(&mut rows) {
            let key = key(*value);
            match bracket.place(key) {
                // All values in the bracket are equal and need no memory.
                Some(_) if bracket.bits == 0 => {}
                Some(_) => collected.inside.push(key),
                None if key < bracket.low => collected.below = collected.below.max(key),
                None => {}
            }
        }
    })?;
    let medians = brackets.iter().zip(rows);
    let medians = medians.map(|(bracket, collected)| collected.median(bracket, segments));
    Ok((medians.collect(), segments))
}

/// Computes the medians of segments held in memory.
fn held(pass: &mut Pass<'_>, bins: usize, most: usize) -> Result<(Vec<f64>, usize)> {
    let numbers = bins.checked_mul(most);
    check_memory("the spectra of all segments", numbers.and_then(|n| n.checked_mul(8)))?;
    // Axes: segment, bin.
    let mut all = Vec::with_capacity(bins * most);
    let segments = pass(&mut |row| all.extend_from_slice(row))?;
    let mut column = vec![0.0; segments];
    let medians = (0..bins).map(|bin| {
        let values = all[bin..].iter().step_by(bins);
        column.iter_mut().zip(values).for_each(|(to, value)| *to = *value);
        median(&mut column)
    });
    Ok((medians.collect(), segments))
}

/// Returns the median; for an even number of values the mean of the middle two.
fn median(values: &mut [f64]) -> f64 {
    let half = values.len() / 2;
    let is_even = values.len().is_multiple_of(2);
    let (below, middle, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    let middle = *middle;
    if !is_even {
        return middle;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    0.5 * (lower + middle)
}

/// Returns an integer key in the order of `f64::total_cmp`.
fn key(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// Returns the value of a key.
fn value(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key })
}

/// Keys `low .. low + 2^bits`, which include a median.
#[derive(Clone, Copy)]
struct Bracket {
    low: u64,
    bits: u32,
    /// Number of values below and inside the bracket.
    below: usize,
    inside: usize,
}

impl Bracket {
    fn all() -> Self {
        Self { low: 0, bits: 64, below: 0, inside: usize::MAX }
    }

    /// Returns a key's offset in the bracket.
    fn place(&self, key: u64) -> Option<u64> {
        let place = key.checked_sub(self.low)?;
        (place.checked_shr(self.bits).unwrap_or(0) == 0).then_some(place)
    }

    /// Returns the bits of an offset within its bucket.
    fn shift(&self, buckets: usize) -> u32 {
        self.bits.saturating_sub(buckets.ilog2())
    }

    /// Narrows the bracket to the bucket that holds the value of this rank.
    fn narrow(&mut self, counts: &[u32], rank: usize, buckets: usize) {
        let shift = self.shift(buckets);
        let mut below = self.below;
        for (bucket, count) in (0_u64..).zip(counts) {
            let count = *count as usize;
            if rank < below + count {
                self.low += bucket << shift;
                (self.bits, self.below, self.inside) = (shift, below, count);
                return;
            }
            below += count;
        }
    }
}

/// Values of a bin that the last pass collects.
#[derive(Clone, Default)]
struct Collected {
    /// Greatest key below the bracket.
    below: u64,
    /// All keys in the bracket, unless they are equal.
    inside: Vec<u64>,
}

impl Collected {
    fn median(mut self, bracket: &Bracket, segments: usize) -> f64 {
        let rank = segments / 2 - bracket.below;
        self.inside.sort_unstable();
        let at = |rank: usize| self.inside.get(rank).copied().unwrap_or(bracket.low);
        let middle = value(at(rank));
        if !segments.is_multiple_of(2) {
            return middle;
        }
        let lower = if rank == 0 { value(self.below) } else { value(at(rank - 1)) };
        0.5 * (lower + middle)
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

    /// Returns values over many orders of magnitude, some of them equal.
    fn numbers(segments: usize, bins: usize) -> Vec<Vec<f64>> {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut number = |bin: usize| match bin % 4 {
            0 => -(next().max(1e-9)).ln(),
            1 => (next() * 8.0).floor(),
            2 => 10_f64.powf(80.0 * next() - 60.0),
            _ => 1e-46 * (1.0 + 1e-9 * next()),
        };
        (0..segments).map(|_| (0..bins).map(&mut number).collect()).collect()
    }

    #[test]
    fn medians_are_the_same_bits_whatever_the_memory() {
        for segments in [40, 41, 3000] {
            let rows = numbers(segments, 8);
            let mut passes = 0;
            let mut pass = |take: &mut dyn FnMut(&[f64])| {
                passes += 1;
                rows.iter().for_each(|row| take(row));
                Ok(segments)
            };
            let whole = medians_of_each(&mut pass, 8, segments as u64, 1 << 20).expect("held");
            for bytes in [1, 2000, 20_000] {
                let found = medians_of_each(&mut pass, 8, segments as u64, bytes).expect("counted");
                let bits = |(medians, count): &(Vec<f64>, usize)| {
                    (medians.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), *count)
                };
                assert_eq!(bits(&found), bits(&whole), "{segments} segments, {bytes} bytes");
            }
            assert!(passes > 4 && passes < 70, "{passes}");
        }
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0, 10.0]), 2.5);
    }
}
