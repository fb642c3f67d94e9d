//! Whitened template: an analytic signal without the ends that hold no power, and the smoothed power spectrum that
//! whitens it.

use std::collections::HashMap;
use std::f64::consts::{FRAC_PI_2, PI, TAU};
use std::sync::{Arc, Mutex, PoisonError};

use num_complex::Complex64;

use super::Options;
use crate::error::{Error, Result};
use crate::math::{Buffer, PowerSpectrum, Transforms};
use crate::strain::Waveform;

/// Padding on each side for the spread of the whitening, in seconds.
const MARGIN_S: f64 = 4.0;
/// Fractions of the power cut before the first sample and after the last.
const LOST: [f64; 2] = [1e-5, 2e-4];
/// Fraction of the peak below which a waveform has ended. After it the whitening rings with an unrelated phase.
const QUIET: f64 = 0.01;
/// Largest fraction of the power that may lie in the ringing.
const RINGING: f64 = 1e-3;
/// Cycles over which a template that starts abruptly is faded in, at most an eighth of it.
const FADE_CYCLES: f64 = 2.0;
/// Fraction of the peak above which the last sample counts as an abrupt end.
const ABRUPT: f64 = 0.1;
/// Fraction of the power in the last cycles below which an abrupt end causes no significant ripples.
const LITTLE: f64 = 1e-3;
/// Least fraction of the power that must remain after fading out an abrupt end. With less, only the click of the end
/// is in band.
const WITHOUT_END: f64 = 0.01;
/// Fraction of the power that has passed at the final frequency, and samples on each side that it is averaged over.
const FINAL_POWER: f64 = 0.999;
const FINAL_SAMPLES: usize = 4;
/// Fewest samples of a template.
const MIN_SAMPLES: usize = 8;

/// Whitened template.
#[derive(Clone, Debug)]
pub(super) struct Whitened {
    /// Samples in units of the standard deviation of whitened noise.
    pub samples: Vec<Complex64>,
    /// The same waveform with its abrupt end faded out, which has a smooth phase to place filters along.
    pub guide: Option<Vec<Complex64>>,
    /// `sum |h|^2` including the cut ends, except the part cut for early warning.
    pub power: f64,
    /// Phase advance per sample where 99.9 % of the power has passed, or at the peak if that is earlier.
    pub final_step: f64,
    /// Index of the first sample that filters follow.
    pub start: usize,
    /// Index of the last sample that filters follow; after it the whitening rings on.
    pub end: usize,
    /// Position of the waveform's peak relative to the last sample, in samples.
    pub peak_offset: i64,
}

impl Whitened {
    /// Whitens a waveform.
    ///
    /// # Errors
    /// A message if the waveform has no power in the band, or nothing remains of it.
    pub(super) fn new(
        waveform: &Waveform,
        conditioned: &Conditioned,
        options: &Options,
        transforms: &Transforms,
    ) -> std::result::Result<Self, String> {
        let rate = f64::from(waveform.rate_hz);
        let ringing =
            if options.smoothing_hz == 0.0 { 1.0 / conditioned.spacing_hz() } else { 0.0 };
        let margin = (MARGIN_S.max(ringing) * rate) as usize;
        let fade = Fade { begin: cycles(&waveform.samples, false), end: 0 };
        let all = whiten(waveform, conditioned, transforms, margin, fade);
        let peak = margin + waveform.peak;
        let early = early(waveform, options);
        let end = if early > 0 { peak.saturating_sub(early) + 1 } else { all.len() };
        let all = &all[..end];
        // Power up to each sample, which rises, so that the sample that reaches a fraction is found by bisection.
        let mut power = vec![0.0; end];
        let mut total = 0.0;
        for (to, h) in power.iter_mut().zip(all) {
            total += h.norm_sqr();
            *to = total;
        }
        let is_silent = waveform.samples.iter().all(|h| h.norm_sqr() == 0.0);
        if total <= 0.0 || !total.is_finite() || is_silent {
            return Err(format!(
                "nothing of it is left between {} Hz and the band's end, {} s before its peak",
                options.f_low_hz,
                early as f64 / rate
            ));
        }
        let reaches = |part: f64| {
            let first = power.partition_point(|sum| *sum < part * total);
            (first < power.len()).then_some(first)
        };
        let first = reaches(LOST[0]).unwrap_or(0);
        // An early-warning template ends at its cut.
        let (quiet, last) = match early {
            0 => {
                let rung = reaches(1.0 - RINGING).unwrap_or(end - 1);
                let quiet = margin + quiet_from(waveform);
                (quiet, reaches(1.0 - LOST[1]).unwrap_or(end - 1).min(quiet.max(rung)))
            }
            _ => (end - 1, end - 1),
        };
        let start = reaches(1.0 - options.power).unwrap_or(0).max(first) - first;
        let samples = all[first..=last].to_vec();
        if samples.len() < MIN_SAMPLES {
            let left = samples.len();
            return Err(format!(
                "{left} samples of it are left, at least {MIN_SAMPLES} are needed"
            ));
        }
        let ending = cycles(&waveform.samples, true);
        let ends = all.get(margin + waveform.samples.len() - ending..).unwrap_or(&[]);
        let is_loud = || ends.iter().map(Complex64::norm_sqr).sum::<f64>() > LITTLE * total;
        let guide = (is_abrupt(waveform) && is_loud()).then(|| {
            let fade = Fade { end: ending, ..fade };
            whiten(waveform, conditioned, transforms, margin, fade)[first..=last].to_vec()
        });
        let left = |guide: &Vec<Complex64>| guide.iter().map(Complex64::norm_sqr).sum::<f64>();
        if early == 0 && guide.as_ref().is_some_and(|guide| left(guide) < WITHOUT_END * total) {
            return Err(format!(
                "nothing of it is left above {} Hz but its abrupt end",
                options.f_low_hz
            ));
        }
        let passed = reaches(FINAL_POWER).unwrap_or(last).min(peak).max(first);
        let final_step = mean_step(&samples, passed - first);
        Ok(Self {
            samples,
            guide,
            final_step,
            power: total,
            start,
            end: quiet.clamp(first, last) - first,
            peak_offset: peak as i64 - last as i64,
        })
    }
}

/// Returns the samples from the end of an early-warning template to its peak; 0 for a whole template.
fn early(waveform: &Waveform, options: &Options) -> usize {
    let rate = f64::from(waveform.rate_hz);
    let before = (options.before_s * rate).round() as usize;
    let Some(f_stop_hz) = options.f_stop_hz else { return before };
    // The last sample of the inspiral at which the phase advances by less than that of the frequency.
    let most = TAU * f_stop_hz / rate;
    let inspiral = &waveform.samples[..=waveform.peak];
    let is_slow = |pair: &[Complex64]| (pair[1] * pair[0].conj()).arg().abs() < most;
    let slow = inspiral.windows(2).rposition(is_slow).unwrap_or(0);
    before.max(inspiral.len().saturating_sub(2 + slow))
}

/// Returns the mean phase advance per sample around one of them.
fn mean_step(h: &[Complex64], at: usize) -> f64 {
    let near = &h[at.saturating_sub(FINAL_SAMPLES).min(h.len() - 2)..];
    let turn = |pair: &[Complex64]| pair[1] * pair[0].conj();
    near.windows(2).take(2 * FINAL_SAMPLES).map(turn).sum::<Complex64>().arg()
}

/// Returns the index of the last sample above [`QUIET`] times the peak.
fn quiet_from(waveform: &Waveform) -> usize {
    let least = QUIET * QUIET * waveform.samples[waveform.peak].norm_sqr();
    waveform.samples.iter().rposition(|h| h.norm_sqr() > least).unwrap_or(waveform.peak)
}

/// Whitens the faded-in `h_plus` and returns its analytic signal, padded by `margin` samples on each side.
fn whiten<'a>(
    waveform: &Waveform,
    conditioned: &Conditioned,
    transforms: &'a Transforms,
    margin: usize,
    fade: Fade,
) -> Buffer<'a> {
    let samples = &waveform.samples;
    let used = samples.len() + 2 * margin;
    let size = fast_size(used, 1);
    let mut series = transforms.zeros(size);
    for (at, (out, h)) in series[margin..].iter_mut().zip(samples).enumerate() {
        out.re = h.re * fade.at(at, samples.len());
    }
    transforms.forward(&mut series);
    let spacing = f64::from(waveform.rate_hz) / size as f64;
    let half = size / 2;
    let factors = conditioned.factors.get(size, || {
        let factor = |bin: usize| 2.0 * conditioned.gain(bin as f64 * spacing) / size as f64;
        (0..=half).map(|bin| if bin == 0 { 0.0 } else { factor(bin) }).collect()
    });
    series.iter_mut().zip(&*factors).for_each(|(value, factor)| *value *= *factor);
    series[half + 1..].fill(Complex64::ZERO);
    transforms.inverse(&mut series);
    series.truncate(used);
    series
}

/// Fade lengths in samples: the waveform rises and falls as `sin^2`.
#[derive(Clone, Copy, Debug)]
struct Fade {
    begin: usize,
    end: usize,
}

impl Fade {
    fn at(self, at: usize, length: usize) -> f64 {
        let rise = |at: usize, over: usize| match at < over {
            true => (PI * (at as f64 + 0.5) / (2.0 * over as f64)).sin().powi(2),
            false => 1.0,
        };
        rise(at, self.begin) * rise(length - 1 - at, self.end)
    }
}

/// Returns the samples of a waveform's first or last [`FADE_CYCLES`] cycles, at most an eighth of it.
fn cycles(samples: &[Complex64], is_end: bool) -> usize {
    let longest = samples.len() / 8;
    let mut phase = 0.0;
    let mut passes = |pair: &[Complex64]| {
        phase += (pair[1] * pair[0].conj()).arg().abs();
        phase >= FADE_CYCLES * TAU
    };
    let mut pairs = samples.windows(2);
    let passed = match is_end {
        true => pairs.rev().take(longest).position(&mut passes),
        false => pairs.by_ref().take(longest).position(&mut passes),
    };
    passed.unwrap_or(longest)
}

fn is_abrupt(waveform: &Waveform) -> bool {
    let samples = &waveform.samples;
    let last = samples.last().map_or(0.0, |h| h.norm());
    last > ABRUPT * samples[waveform.peak].norm()
}

/// Returns the least `2^a`, `3 2^a` or `9 2^a` that is at least `length` and a multiple of `2^halvings`.
pub(super) fn fast_size(length: usize, halvings: u32) -> usize {
    let sizes = [1, 3, 9].map(|factor: usize| {
        let power = length.div_ceil(factor).next_power_of_two().max(1 << halvings);
        factor * power
    });
    sizes.into_iter().min().unwrap_or(length)
}

/// Bins of the smoothed spectrum per smoothing width.
const BINS_A_WIDTH: f64 = 32.0;
/// Most bins of the smoothed spectrum.
const MAX_BINS: f64 = (1_u64 << 26) as f64;
/// Limit on the product of bins and bins per width. Above it the smoothed spectrum gets coarser, down to
/// [`BINS_A_WIDTH`].
const MAX_PRODUCTS: f64 = (1_u64 << 28) as f64;
/// Start of the rising taper as a fraction of the lowest frequency.
const OPENING: f64 = 0.9;
/// Start of the falling taper as a fraction of the highest frequency.
const CLOSING: f64 = 0.9;

/// Values that depend on the size of a transform only, computed once for each size.
pub(super) struct OfSize<T>(Mutex<HashMap<usize, Arc<[T]>>>);

impl<T> Default for OfSize<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> OfSize<T> {
    /// Returns the values for a size, made by `make` for the first caller, for which others wait.
    pub(super) fn get(&self, size: usize, make: impl FnOnce() -> Vec<T>) -> Arc<[T]> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(size).or_insert_with(|| make().into()))
    }
}

/// Band with the smoothed spectrum in it.
pub(super) struct Conditioned {
    smooth: PowerSpectrum,
    /// Factors of the bins from 0 to half the size of a transform of a template, which whiten it.
    factors: OfSize<f64>,
    f_low_hz: f64,
    f_high_hz: f64,
    rate_hz: f64,
}

impl Conditioned {
    /// Smooths a spectrum for templates of this rate.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the band is empty or exceeds the Nyquist frequency or the spectrum.
    pub(super) fn new(psd: &PowerSpectrum, options: &Options, rate_hz: u32) -> Result<Self> {
        let nyquist = f64::from(rate_hz) / 2.0;
        let f_low_hz = options.f_low_hz;
        let f_high_hz = options.f_high_hz.unwrap_or(nyquist);
        if !(f_high_hz > 0.0 && f_high_hz <= nyquist) {
            let rule = format!("it must lie within 0 to {nyquist} Hz, half the template's rate");
            return Err(Error::parameter("highest frequency (Hz)", f_high_hz, rule));
        }
        if !(f_low_hz > 0.0 && f_low_hz < CLOSING * f_high_hz) {
            let rule = format!("it must lie within 0 to {} Hz", CLOSING * f_high_hz);
            return Err(Error::parameter("lowest frequency (Hz)", f_low_hz, rule));
        }
        // A spectrum may lack the last bin.
        if psd.highest_hz() + psd.spacing_hz() < f_high_hz {
            let rule = format!("the template's band ends at {f_high_hz} Hz");
            let name = "highest frequency of the power spectrum (Hz)";
            return Err(Error::parameter(name, psd.highest_hz(), rule));
        }
        let smooth = smoothed(psd, options.smoothing_hz, f_high_hz)?;
        // Both integrals use the same spacing: sums of different spacings differ at the band's edges.
        let bins = bins_within(smooth.spacing_hz(), f_low_hz, f_high_hz);
        let range =
            |spectrum: &PowerSpectrum| newtonian_range(spectrum, smooth.spacing_hz(), bins.clone());
        let (before, after) = (range(psd), range(&smooth));
        if before <= 0.0 || after <= 0.0 {
            let rule = format!("it is nowhere finite between {f_low_hz} and {f_high_hz} Hz");
            return Err(Error::parameter("power spectrum", "infinite", rule));
        }
        let scale = after / before;
        let densities = smooth.densities().iter().map(|density| density * scale).collect();
        let smooth = PowerSpectrum::new(smooth.spacing_hz(), densities)?;
        let factors = OfSize::default();
        Ok(Self { smooth, factors, f_low_hz, f_high_hz, rate_hz: f64::from(rate_hz) })
    }

    /// Returns the smoothed spectrum's spacing in Hz.
    fn spacing_hz(&self) -> f64 {
        self.smooth.spacing_hz()
    }

    /// Returns the whitening gain at a frequency: whitened noise has unit variance per sample.
    fn gain(&self, frequency_hz: f64) -> f64 {
        let taper = self.taper(frequency_hz);
        if taper == 0.0 {
            return 0.0;
        }
        taper / (self.smooth.at(frequency_hz) * self.rate_hz / 2.0).sqrt()
    }

    /// Returns the taper: `sin^2` below the lowest frequency, `cos^2` below the highest.
    fn taper(&self, f: f64) -> f64 {
        let (opening, closing) = (OPENING * self.f_low_hz, CLOSING * self.f_high_hz);
        if f <= opening || f >= self.f_high_hz {
            0.0
        } else if f < self.f_low_hz {
            (FRAC_PI_2 * (f - opening) / (self.f_low_hz - opening)).sin().powi(2)
        } else if f > closing {
            (FRAC_PI_2 * (f - closing) / (self.f_high_hz - closing)).cos().powi(2)
        } else {
            1.0
        }
    }
}

/// Computes a running median over the width on both sides, then a running mean under a window that falls to half at
/// the width, up to the band's highest frequency.
///
/// # Errors
/// [`Error::Parameter`] if the width is so small for the band that it needs more than [`MAX_BINS`] bins.
fn smoothed(psd: &PowerSpectrum, width_hz: f64, f_high_hz: f64) -> Result<PowerSpectrum> {
    if width_hz == 0.0 {
        return Ok(psd.clone());
    }
    // The median reads one width around a bin, the mean two.
    let highest_hz = psd.highest_hz().min(f_high_hz + 4.0 * width_hz);
    let mut spacing = psd.spacing_hz().min(width_hz / BINS_A_WIDTH);
    // Both the number of bins and the windows in bins are inversely proportional to the spacing.
    let work = (highest_hz / spacing) * (width_hz / spacing);
    if work > MAX_PRODUCTS {
        spacing = (spacing * (work / MAX_PRODUCTS).sqrt()).min(width_hz / BINS_A_WIDTH);
    }
    let bins = (highest_hz / spacing).round() + 1.0;
    if bins > MAX_BINS {
        let rule = format!(
            "a spectrum up to {highest_hz} Hz smoothed over so little has {bins} bins, more than {MAX_BINS}"
        );
        return Err(Error::parameter("smoothing of the power spectrum (Hz)", width_hz, rule));
    }
    let fine = psd.resampled(spacing, bins as usize)?;
    let half = ((width_hz / spacing) as usize).max(1);
    PowerSpectrum::new(spacing, running_mean(&running_median(fine.densities(), half), 2 * half))
}

/// Returns the median of `2 half + 1` values around each value, of fewer at the ends.
fn running_median(values: &[f64], half: usize) -> Vec<f64> {
    let mut sorted: Vec<f64> = Vec::with_capacity(2 * half + 2);
    let place = |sorted: &[f64], value: f64| sorted.partition_point(|other| *other < value);
    for value in &values[..half.min(values.len())] {
        sorted.insert(place(&sorted, *value), *value);
    }
    let median = |(at, _): (usize, &f64)| {
        if let Some(value) = values.get(at + half) {
            sorted.insert(place(&sorted, *value), *value);
        }
        if at > half {
            sorted.remove(place(&sorted, values[at - half - 1]));
        }
        sorted[sorted.len() / 2]
    };
    values.iter().enumerate().map(median).collect()
}

/// Returns the mean of the finite values under a Hann window of `2 half + 1` values around each value. A rectangular
/// window would leave steps in the spectrum's slope, which cause echoes of the template. Infinite values remain
/// infinite.
fn running_mean(values: &[f64], half: usize) -> Vec<f64> {
    let shape =
        |at: usize| (FRAC_PI_2 * (at as f64 - half as f64) / (half + 1) as f64).cos().powi(2);
    let weights: Vec<f64> = (0..=2 * half).map(shape).collect();
    let mean = |at: usize| {
        if values[at].is_infinite() {
            return f64::INFINITY;
        }
        let first = at.saturating_sub(half);
        let near = &values[first..(at + half + 1).min(values.len())];
        let pairs = near.iter().zip(&weights[first + half - at..]);
        let finite = pairs.filter(|(value, _)| value.is_finite());
        let (sum, total) = finite.fold((0.0, 0.0), |(sum, total), (value, weight)| {
            (sum + value * weight, total + weight)
        });
        sum / total
    };
    (0..values.len()).map(mean).collect()
}

/// Returns the bins of a band.
fn bins_within(spacing_hz: f64, f_low_hz: f64, f_high_hz: f64) -> std::ops::RangeInclusive<usize> {
    (f_low_hz / spacing_hz).ceil() as usize..=(f_high_hz / spacing_hz).floor() as usize
}

/// Computes `integral of f^(-7/3) / S(f) df` over these bins, proportional to the square of the range of a light
/// binary.
fn newtonian_range(
    psd: &PowerSpectrum,
    spacing_hz: f64,
    bins: std::ops::RangeInclusive<usize>,
) -> f64 {
    let frequencies = bins.map(|bin| bin as f64 * spacing_hz);
    spacing_hz * frequencies.map(|f| f.powf(-7.0 / 3.0) / psd.at(f)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_white_spectrum_whitens_to_unit_variance_within_the_band() {
        let psd = PowerSpectrum::new(0.5, vec![8.0; 2049]).expect("a spectrum");
        let options = Options { f_low_hz: 20.0, ..Options::default() };
        let conditioned = Conditioned::new(&psd, &options, 2048).expect("a band");
        for f in [20.0, 100.0, 900.0] {
            assert!((conditioned.gain(f) - (8.0 * 1024.0_f64).sqrt().recip()).abs() < 1e-9, "{f}");
        }
        for f in [0.0, 17.9, 1024.0, 1100.0] {
            assert_eq!(conditioned.gain(f), 0.0, "{f}");
        }
        assert!(conditioned.gain(19.0) < conditioned.gain(20.0));
    }

    #[test]
    fn lines_go_and_what_is_unknown_does_not_spread() {
        let mut densities = vec![1.0; 2049];
        densities[200] = 1e6;
        densities[..20].fill(f64::INFINITY);
        let psd = PowerSpectrum::new(0.5, densities).expect("a spectrum");
        let smooth = smoothed(&psd, 4.0, 1024.0).expect("smooth");
        assert!((smooth.at(100.0) - 1.0).abs() < 1e-9);
        assert!(smooth.at(5.0).is_infinite() && (smooth.at(14.0) - 1.0).abs() < 1e-9);
        assert_eq!(smoothed(&psd, 0.0, 1024.0).expect("as it is"), psd);
    }

    #[test]
    fn bins_follow_the_band_and_not_the_spectrum() {
        let whole = PowerSpectrum::new(0.25, (0..40_000).map(|k| 1.0 + f64::from(k % 7)).collect());
        let whole = whole.expect("a spectrum");
        let all = smoothed(&whole, 4.0, 1e4).expect("smooth");
        let part = smoothed(&whole, 4.0, 1024.0).expect("smooth");
        // The values in the band are bitwise equal.
        let used = 1024 * 8;
        assert_eq!(part.densities()[..=used], all.densities()[..=used]);
        let high = PowerSpectrum::new(1e12, vec![1.0, 1.0]).expect("a spectrum");
        assert!(smoothed(&high, 4.0, 1024.0).expect("smooth").densities().len() < 1 << 14);
        let fine = PowerSpectrum::new(1e-3, vec![1.0; 1 << 21]).expect("a spectrum");
        let smooth = smoothed(&fine, 500.0, 2000.0).expect("smooth");
        assert!(smooth.densities().len() < 1 << 16);
        assert!(smoothed(&high, 1e-4, 1024.0).is_err());
    }
}
