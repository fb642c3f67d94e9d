//! IMRPhenomD as samples in time, from its Fourier transform.

use std::f64::consts::{PI, TAU};

use num_complex::Complex64;
use rustfft::FftPlanner;

use super::PhenomD;
use crate::error::{Error, Result};
use crate::waveform::rules::InspiralOptions;

/// Most samples of a transform.
const MAX_SAMPLES: f64 = (1_u64 << 25) as f64;

/// Width of the rise below the lowest frequency, in units of the square root of the frequency's rate there, which is
/// the width of a chirp's spectrum within which frequency and time correspond; and the bounds of the width as
/// fractions of the lowest frequency.
const RISE_ROOTS: f64 = 2.0;
const RISE: [f64; 2] = [0.03, 0.5];

/// Fraction of the highest frequency at which the amplitude starts to fall to 0.
const FALL: f64 = 0.9;

/// Time padded before the lowest frequency and after the peak: for the spread of the rise and the fall, in
/// reciprocals of their widths, and for the ringdown, in damping times.
const SPREAD: [f64; 2] = [6.0, 20.0];
const RINGDOWN: f64 = 12.0;

/// Fraction of the power that may be cut off at each end.
const LOST: f64 = 1e-9;

/// Computes `h_plus - i h_cross` in time for a face-on source.
///
/// Includes the complete wave from the lowest frequency on. Below it the spectrum rises smoothly (Planck taper) over
/// a width of [`RISE_ROOTS`]; likewise it falls over the last tenth below the Nyquist frequency or the model's end.
/// The peak of `|h|` is a sample at which `h` is negative, like the end of an inspiral. The ends that are cut hold
/// 1e-9 of the power.
///
/// # Errors
/// [`Error::Parameter`] for a lowest frequency above the ringdown or the beginning of the fall, or a length above
/// 2^25 samples.
pub(in crate::waveform) fn sampled(
    wave: &PhenomD,
    options: &InspiralOptions,
) -> Result<Vec<Complex64>> {
    let band = Band::new(wave, options)?;
    let rate = f64::from(options.rate_hz);
    let damping = RINGDOWN * wave.damping_s();
    let before_s = (-wave.time_s(band.start)).max(0.0) + SPREAD[0] / (band.low - band.start);
    let after_s = damping + SPREAD[1] / (band.end - band.fall);
    let length = ((before_s + after_s) * rate).ceil();
    if length.is_nan() || length > MAX_SAMPLES {
        let rule = format!("at {rate} Hz, it must stay below {MAX_SAMPLES} samples");
        return Err(Error::parameter("length of the waveform (s)", before_s, rule));
    }
    let points = fast_size(length as usize);
    let mut spectrum = Spectrum::new(wave, &band, rate, points);
    spectrum.scale(1.0 / options.distance_mpc);
    let mut transform = FftPlanner::new();
    let inverse = transform.plan_fft_inverse(points);
    let mut series = spectrum.shifted(0.0, 0.0);
    inverse.process(&mut series);
    let (peak, part) = peak(&series);
    // Moves the peak to sample 0 and makes h negative real there.
    series = spectrum.shifted(peak as f64 + part, PI);
    inverse.process(&mut series);
    let turn = series[0].arg() - PI;
    let turn = Complex64::from_polar(1.0, -turn);
    // Samples before the peak are at the end of the transform.
    let before = ((before_s * rate) as usize).min(points - 1);
    series.rotate_right(before);
    series.iter_mut().for_each(|h| *h = (*h * turn).conj());
    Ok(trimmed(series))
}

/// Frequencies between which the spectrum rises and falls.
struct Band {
    start: f64,
    low: f64,
    fall: f64,
    end: f64,
}

impl Band {
    fn new(wave: &PhenomD, options: &InspiralOptions) -> Result<Self> {
        let low = options.f_low_hz;
        let end = wave.end_hz().min(f64::from(options.rate_hz) / 2.0);
        let fall = FALL * end;
        let highest = fall.min(wave.ringdown_hz());
        if low >= highest {
            let rule =
                format!("the binary makes no waveform in band: it must be below {highest:.1} Hz");
            return Err(Error::parameter("lowest frequency (Hz)", low, rule));
        }
        let step = 1e-3 * low;
        let passing_s = wave.time_s(low + step) - wave.time_s(low - step);
        let rate = if passing_s > 0.0 { 2.0 * step / passing_s } else { f64::INFINITY };
        let width = (RISE_ROOTS * rate.sqrt()).clamp(RISE[0] * low, RISE[1] * low);
        Ok(Self { start: low - width, low, fall, end })
    }

    fn gain(&self, f: f64) -> f64 {
        rise((f - self.start) / (self.low - self.start))
            * rise((self.end - f) / (self.end - self.fall))
    }
}

/// Planck taper: 0 up to 0, 1 from 1 on, with all derivatives continuous.
///
/// # Source
/// McKechan, Robinson & Sathyaprakash 2010, arXiv:1003.2939.
fn rise(x: f64) -> f64 {
    if x <= 0.0 {
        0.0
    } else if x >= 1.0 {
        1.0
    } else {
        1.0 / ((1.0 / x - 1.0 / (1.0 - x)).exp() + 1.0)
    }
}

/// Twice the transform of `h_plus` at positive frequencies, which is the transform of `conj(h)`.
struct Spectrum {
    points: usize,
    first: usize,
    bins: Vec<Complex64>,
}

impl Spectrum {
    fn new(wave: &PhenomD, band: &Band, rate: f64, points: usize) -> Self {
        let spacing = rate / points as f64;
        let first = ((band.start / spacing).ceil() as usize).max(1);
        let last = ((band.end / spacing).floor() as usize).min((points - 1) / 2);
        let bins = (first..=last).map(|bin| {
            let f = bin as f64 * spacing;
            let [amplitude, phase] = wave.at(f);
            Complex64::from_polar(2.0 * spacing * band.gain(f) * amplitude, -phase)
        });
        Self { points, first, bins: bins.collect() }
    }

    fn scale(&mut self, factor: f64) {
        self.bins.iter_mut().for_each(|bin| *bin *= factor);
    }

    /// Returns all points of the wave shifted `samples` samples earlier and rotated by `phase`.
    fn shifted(&self, samples: f64, phase: f64) -> Vec<Complex64> {
        let mut all = vec![Complex64::ZERO; self.points];
        let step = TAU * samples / self.points as f64;
        for (bin, value) in (self.first..).zip(&self.bins) {
            all[bin] = value * Complex64::from_polar(1.0, step * bin as f64 + phase);
        }
        all
    }
}

/// Returns the sample of the greatest modulus, and the offset in samples of the peak of a parabola through it.
fn peak(series: &[Complex64]) -> (usize, f64) {
    let peak = (0..series.len())
        .reduce(|best, at| if series[at].norm_sqr() > series[best].norm_sqr() { at } else { best })
        .unwrap_or(0);
    let at = |offset: usize| series[(peak + offset) % series.len()].norm();
    let (before, here, after) = (at(series.len() - 1), at(0), at(1));
    let curvature = before - 2.0 * here + after;
    let part = if curvature < 0.0 { 0.5 * (before - after) / curvature } else { 0.0 };
    (peak, part)
}

/// Trims the ends that hold a negligible fraction of the power.
fn trimmed(mut series: Vec<Complex64>) -> Vec<Complex64> {
    let total: f64 = series.iter().map(Complex64::norm_sqr).sum();
    let lost = |sum: &mut f64, h: &Complex64| {
        *sum += h.norm_sqr();
        Some(*sum <= LOST * total)
    };
    let start = series.iter().scan(0.0, lost).take_while(|is_lost| *is_lost).count();
    let end = series.iter().rev().scan(0.0, lost).take_while(|is_lost| *is_lost).count();
    series.truncate(series.len() - end);
    series.split_off(start.min(series.len() - 1))
}

/// Returns the least `2^a` or `3 2^a` that is at least `length`.
fn fast_size(length: usize) -> usize {
    length.next_power_of_two().min(3 * length.div_ceil(3).next_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strain::Binary;
    use crate::waveform::{Approximant, inspiral};

    fn options(f_low_hz: f64) -> InspiralOptions {
        let approximant = Approximant::IMRPhenomD;
        InspiralOptions { approximant, f_low_hz, ..InspiralOptions::default() }
    }

    #[test]
    fn the_series_has_the_spectrum_from_the_lowest_frequency_on() {
        let binaries = [
            (Binary::of_masses(30.0, 30.0), 20.0),
            (Binary { spin1z: 0.8, spin2z: -0.5, ..Binary::of_masses(12.0, 3.0) }, 30.0),
            (Binary { spin1z: -0.85, spin2z: -0.85, ..Binary::of_masses(100.0, 60.0) }, 15.0),
        ];
        for (binary, f_low_hz) in binaries {
            let made = inspiral(&binary, &options(f_low_hz)).expect("a waveform");
            let wave = PhenomD::new(&binary).expect("a waveform");
            let rate = f64::from(made.rate_hz);
            let transform = |f: f64| {
                let turned = |(n, h): (usize, &Complex64)| {
                    let time_s = (n as f64 - made.peak as f64) / rate;
                    h.re * Complex64::from_polar(1.0 / rate, -TAU * f * time_s)
                };
                made.samples.iter().enumerate().map(turned).sum::<Complex64>()
            };
            // The model's own time and phase of the peak are removed.
            let f = [1.0, 1.05, 1.5, 2.0, 4.0].map(|part| part * f_low_hz);
            let phase = f.map(|f| (transform(f) * Complex64::from_polar(1.0, wave.phase(f))).arg());
            let slope = (phase[1] - phase[0]) / (f[1] - f[0]);
            for (f, found) in f.into_iter().zip(phase) {
                let amplitude = transform(f).norm() / wave.amplitude(f);
                assert!((amplitude - 1.0).abs() < 2e-3, "{binary:?} {f} Hz: {amplitude}");
                let turns = (found - phase[0] - slope * (f - f_low_hz)) / TAU;
                assert!((turns - turns.round()).abs() < 3e-3, "{binary:?} {f} Hz: {turns}");
            }
            // The spectrum falls quickly below the lowest frequency.
            assert!(transform(0.45 * f_low_hz).norm() < 2e-3 * transform(f_low_hz).norm());
        }
    }

    #[test]
    fn the_ringdown_follows_the_peak_and_the_phase_falls() {
        let binary = Binary::of_masses(36.0, 29.0);
        let made = inspiral(&binary, &options(20.0)).expect("a waveform");
        let wave = PhenomD::new(&binary).expect("a waveform");
        let (h, peak) = (&made.samples, made.peak);
        let rate = f64::from(made.rate_hz);
        assert_eq!(made.approximant.as_deref(), Some("IMRPhenomD"));
        assert!(h[peak].re < 0.0 && h[peak].im.abs() < 1e-3 * h[peak].norm());
        let frequency = |at: usize| -(h[at + 1] / h[at]).arg() / TAU * rate;
        let late = peak + (2.5 * wave.damping_s() * rate) as usize;
        assert!((frequency(late) / wave.ringdown_hz() - 1.0).abs() < 0.05, "{}", frequency(late));
        let later = late + (wave.damping_s() * rate) as usize;
        let fall = (h[late].norm() / h[later].norm()).ln();
        assert!((fall - 1.0).abs() < 0.2, "{fall}");
        let (first, last) = (h[0].norm(), h[h.len() - 1].norm());
        assert!(first.max(last) < 1e-3 * h[peak].norm(), "{first} {last}");
        // The frequency is the lowest one at the time that the model gives.
        let low = peak.saturating_add_signed((wave.time_s(20.0) * rate) as isize);
        assert!((frequency(low) - 20.0).abs() < 1.0, "{}", frequency(low));
    }

    #[test]
    fn what_has_no_wave_in_band_is_refused() {
        let low =
            |f: f64, binary: Binary| inspiral(&binary, &options(f)).map_err(|e| e.to_string());
        let text = low(40.0, Binary::of_masses(500.0, 500.0)).expect_err("no wave in band");
        assert!(text.contains("below 17."), "{text}");
        assert!(low(1900.0, Binary::of_masses(1.4, 1.4)).is_err());
        assert!(low(0.5, Binary::of_masses(1.4, 1.4)).is_err());
        assert!(low(2e-4, Binary::of_masses(1.4, 1.4)).is_err());
        assert!(low(40.0, Binary { spin1z: 0.995, ..Binary::of_masses(30.0, 30.0) }).is_err());
    }
}
