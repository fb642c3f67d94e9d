//! IMRPhenomD: inspiral, merger and ringdown of two black holes with aligned spins, as a function of frequency and as
//! samples in time.
//!
//! Invariant: pure functions of a binary; nothing of detectors or noise is known here.

mod amplitude;
mod coefficients;
mod phase;

use std::f64::consts::{PI, TAU};

use num_complex::Complex64;

use self::amplitude::Amplitude;
use self::coefficients::{Bodies, Remnant};
use self::phase::Phase;
use super::options::{InspiralOptions, MEGAPARSEC_S, SOLAR_MASS_S, check_binary};
use crate::error::{Error, Result};
use crate::math::{Buffer, Transforms};
use crate::strain::Binary;

/// Highest frequency of the model in units of 1/M.
const END: f64 = 0.2;

/// Largest accepted mass ratio and spin.
const MAX_RATIO: f64 = 100.0;
const MAX_SPIN: f64 = 0.99;

/// Largest mass ratio, spin, and spin of equal masses among the simulations that calibrate the model.
const CALIBRATED_RATIO: f64 = 18.0;
const CALIBRATED_SPIN: f64 = 0.85;
const CALIBRATED_SPIN_OF_EQUALS: f64 = 0.98;

/// Amplitude and phase of one binary's waveform as functions of frequency.
///
/// The Fourier transform `int h_plus(t) exp(-2 pi i f t) dt` of the plus polarization of a face-on source at 1 Mpc is
/// `amplitude(f) exp(-i phase(f))` for `f > 0`; the cross polarization is `h_cross = -i h_plus` in frequency. Time is
/// 0 at the peak of the amplitude, and the wave has frequency `f` at [`Self::time_s`].
///
/// # Numerics
/// Amplitude and phase agree with LALSimulation's to 5e-5 and 5e-5 rad over its range, except for a shift of time and
/// phase.
/// # Source
/// Khan et al. 2016, Phys. Rev. D 93, 044007, arXiv:1508.07253; Husa et al. 2016, Phys. Rev. D 93, 044006,
/// arXiv:1508.07250.
#[derive(Clone, Copy, Debug)]
pub struct PhenomD {
    mass_s: f64,
    /// Scale of the amplitude per Hz, including the distance and the leading factors.
    scale: f64,
    remnant: Remnant,
    amplitude: Amplitude,
    phase: Phase,
    /// Slope of the phase at the amplitude's peak, which is time 0, and the phase there.
    peak: [f64; 2],
}

impl PhenomD {
    /// Computes the waveform of a binary; the order of the bodies does not matter.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a mass outside 0 to 1e4 solar masses, a mass ratio above 100 or a spin beyond 0.99.
    /// Mass ratios above 18 and spins beyond 0.85 (0.98 for equal masses) are an extrapolation:
    /// [`Self::is_calibrated`].
    pub fn new(binary: &Binary) -> Result<Self> {
        check_binary(binary)?;
        let bodies = Bodies::new(binary);
        let ratio = bodies.mass1 / bodies.mass2;
        if ratio > MAX_RATIO {
            let rule = format!("IMRPhenomD takes mass ratios up to {MAX_RATIO}");
            return Err(Error::parameter("mass ratio", ratio, rule));
        }
        if let Some(spin) = [bodies.chi1, bodies.chi2].into_iter().find(|s| s.abs() > MAX_SPIN) {
            let rule = format!("IMRPhenomD takes spins from -{MAX_SPIN} to {MAX_SPIN}");
            return Err(Error::parameter("spin", spin, rule));
        }
        let remnant = Remnant::new(&bodies);
        let amplitude = Amplitude::new(&bodies, &remnant);
        let phase = Phase::new(&bodies, &remnant);
        let mass_s = binary.total_mass_msun() * SOLAR_MASS_S;
        // 2 sqrt(5 / (64 pi)) of the mode l = m = 2 along the axis, sqrt(2 nu / 3) pi^(-1/6) of its amplitude.
        let axis = (5.0 / (16.0 * PI)).sqrt();
        let leading = (2.0 * bodies.nu / 3.0).sqrt() * PI.powf(-1.0 / 6.0);
        let scale = axis * leading * mass_s * mass_s / MEGAPARSEC_S;
        let peak = [phase.slope(amplitude.peak), phase.at(amplitude.peak, amplitude.peak.cbrt())];
        Ok(Self { mass_s, scale, remnant, amplitude, phase, peak })
    }

    /// Tells whether a binary is in the calibrated range of the model.
    pub fn is_calibrated(binary: &Binary) -> bool {
        let [a, b] = [binary.mass1_msun, binary.mass2_msun];
        let ratio = (a / b).max(b / a);
        let spin = binary.spin1z.abs().max(binary.spin2z.abs());
        let most = if ratio < 1.01 { CALIBRATED_SPIN_OF_EQUALS } else { CALIBRATED_SPIN };
        ratio <= CALIBRATED_RATIO && spin <= most
    }

    /// Returns `|h_plus(f)|` of a face-on source at 1 Mpc in 1/Hz; 0 above the end.
    pub fn amplitude(&self, f_hz: f64) -> f64 {
        self.at(f_hz)[0]
    }

    /// Returns the phase lag of `h_plus(f)` in radians; the phase and its slope are 0 at the peak.
    pub fn phase(&self, f_hz: f64) -> f64 {
        self.at(f_hz)[1]
    }

    /// Returns [`Self::amplitude`] and [`Self::phase`].
    pub fn at(&self, f_hz: f64) -> [f64; 2] {
        let f = f_hz * self.mass_s;
        if f.is_nan() || f <= 0.0 || f > END {
            return [0.0; 2];
        }
        let root = f.cbrt();
        // f^(-7/6)
        let decline = 1.0 / (f * root.sqrt());
        let [slope, phase] = self.peak;
        [
            self.scale * decline * self.amplitude.at(f, root),
            self.phase.at(f, root) - phase - slope * (f - self.amplitude.peak),
        ]
    }

    /// Returns the time at which the wave has this frequency, in seconds after that of its peak in frequency.
    pub fn time_s(&self, f_hz: f64) -> f64 {
        let f = (f_hz * self.mass_s).clamp(f64::MIN_POSITIVE, END);
        (self.phase.slope(f) - self.peak[0]) * self.mass_s / TAU
    }

    /// Returns the highest frequency of the model in Hz.
    pub fn end_hz(&self) -> f64 {
        END / self.mass_s
    }

    /// Returns the frequency in Hz of the peak of the amplitude times `f^(7/6)`.
    pub fn peak_hz(&self) -> f64 {
        self.amplitude.peak / self.mass_s
    }

    /// Returns the frequency of the ringdown in Hz.
    pub fn ringdown_hz(&self) -> f64 {
        self.remnant.ringdown / self.mass_s
    }

    /// Returns the decay time of the ringdown's amplitude in seconds.
    pub fn damping_s(&self) -> f64 {
        self.mass_s / (TAU * self.remnant.damping)
    }

    /// Returns the dimensionless spin of the remnant; negative if opposite to the orbit.
    pub fn final_spin(&self) -> f64 {
        self.remnant.spin
    }
}

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
pub(super) fn sampled(
    wave: &PhenomD,
    options: &InspiralOptions,
    transforms: &Transforms,
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
    let mut series = spectrum.shifted(0.0, 0.0, transforms);
    transforms.inverse(&mut series);
    let (peak, part) = peak(&series);
    drop(series);
    // Moves the peak to sample 0 and makes h negative real there.
    let mut series = spectrum.shifted(peak as f64 + part, PI, transforms);
    transforms.inverse(&mut series);
    let turn = series[0].arg() - PI;
    let turn = Complex64::from_polar(1.0, -turn);
    // Samples before the peak are at the end of the transform.
    let before = ((before_s * rate) as usize).min(points - 1);
    series.rotate_right(before);
    series.iter_mut().for_each(|h| *h = (*h * turn).conj());
    Ok(trimmed(&series).to_vec())
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
    fn shifted<'a>(&self, samples: f64, phase: f64, transforms: &'a Transforms) -> Buffer<'a> {
        let mut all = transforms.zeros(self.points);
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
fn trimmed(series: &[Complex64]) -> &[Complex64] {
    let total: f64 = series.iter().map(Complex64::norm_sqr).sum();
    let lost = |sum: &mut f64, h: &Complex64| {
        *sum += h.norm_sqr();
        Some(*sum <= LOST * total)
    };
    let start = series.iter().scan(0.0, lost).take_while(|is_lost| *is_lost).count();
    let end = series.iter().rev().scan(0.0, lost).take_while(|is_lost| *is_lost).count();
    let kept = &series[..series.len() - end];
    &kept[start.min(kept.len() - 1)..]
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

    /// Masses, spins, `|h_plus|` at 1 Mpc and the phase at [`FREQUENCIES`], minus a line through its second and fifth
    /// values.
    type Case = ((f64, f64, f64, f64), [f64; 6], [f64; 6]);

    /// Frequencies in units of 1/M.
    const FREQUENCIES: [f64; 6] = [0.005, 0.012, 0.016, 0.03, 0.07, 0.11];

    /// Values of LALSimulation 6.2.1, `SimIMRPhenomDGenerateFD`.
    const CASES: [Case; 6] = [
        (
            (30.0, 30.0, 0.0, 0.0),
            [
                4.070_03e-20,
                1.329_211e-20,
                9.027_144e-21,
                4.119_207e-21,
                2.258_777e-21,
                1.586_15e-22,
            ],
            [60.885, 0.0, -5.1479, -8.0613, 0.0, 13.2772],
        ),
        (
            (29.0, 36.0, -0.44, 0.33),
            [
                4.743_371e-20,
                1.545_167e-20,
                1.047_76e-20,
                4.764_493e-21,
                2.613_256e-21,
                1.863_776e-22,
            ],
            [61.4391, 0.0, -5.1744, -8.0774, 0.0, 13.2737],
        ),
        (
            (5.0, 50.0, -0.6, 0.8),
            [
                1.992_097e-20,
                6.889_028e-21,
                4.834_73e-21,
                2.130_872e-21,
                7.606_665e-22,
                1.493_819e-22,
            ],
            [225.3815, 0.0, -21.5881, -31.8212, 0.0, 43.1353],
        ),
        (
            (30.0, 30.0, 0.98, 0.98),
            [4.285_122e-20, 1.542_2e-20, 1.107_794e-20, 5.536_706e-21, 2.636_528e-21, 1.935_67e-21],
            [83.2436, 0.0, -9.0333, -14.8249, 0.0, 23.2479],
        ),
        (
            (60.0, 3.5, -0.85, 0.3),
            [
                1.866_682e-20,
                3.826_766e-21,
                1.787_091e-21,
                8.080_535e-22,
                7.308_491e-23,
                1.871_262e-24,
            ],
            [136.6782, 0.0, -3.339, -4.8171, 0.0, 4.0259],
        ),
        (
            (3.0, 1.4, 0.2, 0.0),
            [
                2.044_52e-22,
                6.722_76e-23,
                4.574_115e-23,
                2.056_338e-23,
                1.066_748e-23,
                6.354_878e-25,
            ],
            [72.4411, 0.0, -6.1649, -9.4933, 0.0, 14.9414],
        ),
    ];

    #[test]
    fn amplitude_and_phase_are_those_of_lalsimulation() {
        for ((mass1_msun, mass2_msun, spin1z, spin2z), amplitudes, phases) in CASES {
            let binary = Binary { mass1_msun, mass2_msun, spin1z, spin2z };
            let wave = PhenomD::new(&binary).expect("a waveform");
            let f_hz = FREQUENCIES.map(|f| f / (binary.total_mass_msun() * SOLAR_MASS_S));
            let found = f_hz.map(|f| wave.phase(f));
            let slope = (found[4] - found[1]) / (f_hz[4] - f_hz[1]);
            for (index, f) in f_hz.into_iter().enumerate() {
                let amplitude = wave.amplitude(f) / amplitudes[index];
                assert!((amplitude - 1.0).abs() < 5e-5, "{binary:?} {f} Hz: {amplitude}");
                let phase = found[index] - found[1] - slope * (f - f_hz[1]);
                assert!((phase - phases[index]).abs() < 3e-4, "{binary:?} {f} Hz: {phase}");
            }
        }
    }

    #[test]
    fn time_passes_as_the_phase_says() {
        let binary = Binary { spin1z: 0.3, ..Binary::of_masses(1.4, 20.0) };
        let wave = PhenomD::new(&binary).expect("a waveform");
        assert_eq!(wave.time_s(wave.peak_hz()), 0.0);
        assert!(wave.phase(wave.peak_hz()).abs() < 1e-9);
        let (f, step) = (40.0, 1e-3);
        let slope = (wave.phase(f + step) - wave.phase(f - step)) / (2.0 * step * TAU);
        assert!((wave.time_s(f) - slope).abs() < 1e-6 && slope < 0.0, "{slope}");
        assert!(wave.amplitude(wave.end_hz() * 1.01) == 0.0 && wave.amplitude(0.0) == 0.0);
    }

    #[test]
    fn the_range_is_known() {
        let spin = |ratio: f64, spin: f64| Binary {
            spin1z: spin,
            spin2z: spin,
            ..Binary::of_masses(10.0 * ratio, 10.0)
        };
        assert!(
            PhenomD::is_calibrated(&spin(1.0, 0.98)) && PhenomD::is_calibrated(&spin(18.0, 0.85))
        );
        assert!(
            !PhenomD::is_calibrated(&spin(2.0, 0.9)) && !PhenomD::is_calibrated(&spin(19.0, 0.0))
        );
        assert!(PhenomD::new(&spin(2.0, 0.9)).is_ok() && PhenomD::new(&spin(2.0, 0.995)).is_err());
        assert!(
            PhenomD::new(&spin(101.0, 0.0)).is_err() && PhenomD::new(&spin(f64::NAN, 0.0)).is_err()
        );
    }

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
