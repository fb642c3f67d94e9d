//! Signals of one detector: projected waves and glitches with sub-sample timing, and the ground truth.

use std::f64::consts::{PI, SQRT_2, TAU};
use std::ops::Range;

use num_complex::Complex64;
use rustfft::FftPlanner;

use super::options::{DetectorOptions, Glitch, Injection, Source, StrainOptions};
use crate::error::Result;
use crate::math::{bessel_i0, sinc};
use crate::strain::{Binary, Waveform};
use crate::units::Gps;

/// Quantities that a search can find.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// Injections, in the order of the options.
    pub injections: Vec<InjectionTruth>,
}

/// Injection as received by the detectors.
#[derive(Clone, Debug, PartialEq)]
pub struct InjectionTruth {
    /// Name of the waveform.
    pub name: String,
    /// Binary, if known.
    pub binary: Option<Binary>,
    /// Approximant of its waveform, if known.
    pub approximant: Option<String>,
    /// Time at which `|h|` peaks at the Earth's centre.
    pub gps: Gps,
    /// Length of the waveform in seconds.
    pub duration_s: f64,
    /// Root sum of squares of the detectors' SNRs.
    pub network_snr: f64,
    /// Truth of each detector, in the order of the options.
    pub detectors: Vec<DetectorTruth>,
}

/// Injection in one detector.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectorTruth {
    /// Name of the detector.
    pub name: &'static str,
    /// Time at which `|h|` peaks at the detector.
    pub gps: Gps,
    /// Optimal SNR of the whole waveform, `sqrt(4 integral |s(f)|^2 / S(f) df)`.
    pub snr: f64,
    /// Phase of a matched filter with h_plus of the face-on waveform, `arg integral s(f) conj(h_plus(f)) / S(f) df`.
    pub phase_rad: f64,
    /// Antenna patterns at the event's time.
    pub patterns: (f64, f64),
    /// Distance at which the same binary overhead and face on has the same strength, in Mpc.
    pub effective_distance_mpc: f64,
    /// Seconds of the waveform before the start and after the end of the data.
    pub cut_s: (f64, f64),
}

/// Response of a detector to an injection: its strain is `Re(factor h)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Projection {
    pub(super) factor: Complex64,
    pub(super) gps: Gps,
    patterns: (f64, f64),
    effective_distance_mpc: f64,
}

impl Projection {
    /// Computes `s = F+ (1 + cos^2 i)/2 h+ + Fx cos i hx` with `h = h+ - i hx`, times the ratio of the distances.
    pub(super) fn new(injection: &Injection, detector: &DetectorOptions, wave: &Waveform) -> Self {
        let Injection { ra_rad, dec_rad, polarization_rad, gps, distance_mpc, .. } = *injection;
        let site = detector.interferometer;
        let patterns = site.antenna_pattern(ra_rad, dec_rad, polarization_rad, gps);
        let cos_i = injection.inclination_rad.cos();
        let along = Complex64::new(0.5 * (1.0 + cos_i * cos_i) * patterns.0, cos_i * patterns.1);
        let turn = Complex64::cis(-2.0 * injection.phase_rad);
        Self {
            factor: along * turn * (wave.distance_mpc / distance_mpc),
            gps: gps.plus_s(site.delay_from_centre_s(ra_rad, dec_rad, gps)),
            patterns,
            effective_distance_mpc: distance_mpc / along.norm(),
        }
    }

    pub(super) fn truth(
        &self,
        name: &'static str,
        products: &Products,
        cut_before_s: f64,
        cut_after_s: f64,
    ) -> DetectorTruth {
        // Re(factor (h+ - i hx)) = re h+ + im hx.
        let Complex64 { re, im } = self.factor;
        let power = re * re * products.plus
            + im * im * products.cross
            + 2.0 * re * im * products.cross_plus.re;
        let filtered = re * products.plus + im * products.cross_plus;
        DetectorTruth {
            name,
            gps: self.gps,
            snr: power.max(0.0).sqrt(),
            phase_rad: filtered.arg(),
            patterns: self.patterns,
            effective_distance_mpc: self.effective_distance_mpc,
            cut_s: (cut_before_s, cut_after_s),
        }
    }
}

/// Fourier transform of a wave.
pub(super) struct Spectrum {
    bins: Vec<Complex64>,
    spacing_hz: f64,
    rate_hz: f64,
}

/// Inner products `<a|b> = 4 integral a(f) conj(b(f)) / S(f) df` of a wave's two polarizations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Products {
    /// `<h+|h+>`.
    pub(super) plus: f64,
    cross: f64,
    /// `<hx|h+>`, complex: the output of a matched filter.
    cross_plus: Complex64,
}

impl Spectrum {
    pub(super) fn new(samples: &[Complex64], rate_hz: u32) -> Self {
        let length = samples.len().next_power_of_two().max(2 * rate_hz as usize);
        let mut bins = samples.to_vec();
        bins.resize(length, Complex64::ZERO);
        FftPlanner::new().plan_fft_forward(length).process(&mut bins);
        let rate_hz = f64::from(rate_hz);
        Self { bins, spacing_hz: rate_hz / length as f64, rate_hz }
    }

    /// Computes the products of `h = h+ - i hx` for a detector's noise, from the lowest noise frequency on.
    pub(super) fn products(&self, detector: &DetectorOptions, lowest_hz: f64) -> Products {
        let length = self.bins.len();
        let mut products = Products::default();
        let first = (lowest_hz / self.spacing_hz).ceil().max(1.0) as usize;
        for bin in first..length / 2 {
            let density = detector.psd.at(bin as f64 * self.spacing_hz);
            let (up, down) = (self.bins[bin], self.bins[length - bin].conj());
            let (plus, cross) = (0.5 * (up + down), 0.5 * Complex64::I * (up - down));
            products.plus += plus.norm_sqr() / density;
            products.cross += cross.norm_sqr() / density;
            products.cross_plus += cross * plus.conj() / density;
        }
        // A transform is a sum of samples over the rate.
        let scale = 4.0 * self.spacing_hz / (self.rate_hz * self.rate_hz);
        Products {
            plus: products.plus * scale,
            cross: products.cross * scale,
            cross_plus: products.cross_plus * scale,
        }
    }
}

/// Taps of the sinc on either side.
const HALF: i64 = 96;

/// Kaiser's beta: side lobes at -118 dB, flat response to 0.96 of the Nyquist frequency.
const BETA: f64 = 12.0;

/// Time as a sample number and the following fraction of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Position {
    pub(super) whole: i64,
    pub(super) part: f64,
}

impl Position {
    pub(super) fn new(gps: Gps, start: Gps, rate_hz: u32) -> Self {
        const NS: i128 = 1_000_000_000;
        let product = (i128::from(gps.ns) - i128::from(start.ns)) * i128::from(rate_hz);
        let part = product.rem_euclid(NS) as f64 / NS as f64;
        Self { whole: product.div_euclid(NS) as i64, part }
    }
}

/// Series of samples whose sample `origin` lies at a position.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// Numbers of the first sample that it contributes to, and of the first sample after the last one.
    pub(super) first: i64,
    pub(super) end: i64,
    taps: Vec<f64>,
}

impl Placed {
    pub(super) fn new(position: Position, origin: usize, length: usize) -> Self {
        let first = position.whole - origin as i64 - HALF + 1;
        let tap = |d: i64| {
            let x = d as f64 - position.part;
            let inside = 1.0 - (x / HALF as f64).powi(2);
            sinc(x) * bessel_i0(BETA * inside.max(0.0).sqrt()) / bessel_i0(BETA)
        };
        let taps = (1 - HALF..=HALF).map(tap).collect();
        Self { first, end: first + length as i64 + 2 * HALF - 1, taps }
    }

    /// Adds `series` to samples that start at number `start`.
    pub(super) fn add(&self, series: &[f64], start: u64, samples: &mut [f64]) {
        let start = start as i64;
        let from = self.first.max(start);
        let to = self.end.min(start + samples.len() as i64);
        for number in from..to {
            // Sample m of the series uses the tap number - first - m.
            let last = (number - self.first) as usize;
            let lowest = last.saturating_sub(self.taps.len() - 1);
            let highest = last.min(series.len() - 1);
            let terms = series[lowest..=highest].iter();
            let taps = self.taps[last - highest..=last - lowest].iter().rev();
            samples[(number - start) as usize] +=
                terms.zip(taps).map(|(h, tap)| h * tap).sum::<f64>();
        }
    }
}

/// Half-length of a glitch in time constants; beyond it the glitch is below 1e-15 of its peak.
const GLITCH_TAUS: f64 = 6.0;

/// Injection in one detector; its samples are computed when needed and freed afterwards.
#[derive(Debug)]
pub(super) struct Signal {
    source: Source,
    factor: Complex64,
    placed: Placed,
    series: Vec<f64>,
}

impl Signal {
    pub(super) fn new(
        source: &Source,
        wave: &Waveform,
        projection: &Projection,
        start: Gps,
    ) -> Self {
        let position = Position::new(projection.gps, start, wave.rate_hz);
        let placed = Placed::new(position, wave.peak, wave.samples.len());
        Self { source: source.clone(), factor: projection.factor, placed, series: Vec::new() }
    }

    /// Returns whether a part of it is in these samples.
    pub(super) fn reaches(&self, samples: Range<u64>) -> bool {
        self.placed.first < samples.end as i64 && self.placed.end > samples.start as i64
    }

    /// Adds it to samples that start at number `start`.
    pub(super) fn add(&mut self, start: u64, rate_hz: u32, samples: &mut [f64]) -> Result<()> {
        let end = (start + samples.len() as u64) as i64;
        if self.placed.end <= start as i64 {
            self.series = Vec::new();
            return Ok(());
        }
        if self.placed.first >= end {
            return Ok(());
        }
        if self.series.is_empty() {
            let wave = self.source.waveform(rate_hz)?;
            let factor = self.factor;
            self.series =
                wave.samples.iter().map(|h| factor.re * h.re - factor.im * h.im).collect();
        }
        self.placed.add(&self.series, start, samples);
        Ok(())
    }
}

/// Glitch in one detector.
#[derive(Clone, Copy, Debug)]
pub(super) struct SineGaussian {
    position: Position,
    rate_hz: f64,
    tau_s: f64,
    frequency_hz: f64,
    height: f64,
}

impl SineGaussian {
    pub(super) fn new(
        glitch: &Glitch,
        detector: &DetectorOptions,
        options: &StrainOptions,
    ) -> Self {
        let StrainOptions { start, rate_hz, lowest_hz, .. } = *options;
        let mut unit = Self {
            position: Position { whole: 0, part: 0.0 },
            rate_hz: f64::from(rate_hz),
            tau_s: glitch.q / (SQRT_2 * PI * glitch.frequency_hz),
            frequency_hz: glitch.frequency_hz,
            height: 1.0,
        };
        let half = unit.half();
        let samples: Vec<Complex64> = (-half..=half).map(|n| unit.at(n).into()).collect();
        let power = Spectrum::new(&samples, rate_hz).products(detector, lowest_hz).plus;
        unit.position = Position::new(glitch.gps, start, rate_hz);
        unit.height = glitch.snr / power.sqrt();
        unit
    }

    /// Returns its half-length in samples.
    fn half(&self) -> i64 {
        (GLITCH_TAUS * self.tau_s * self.rate_hz).ceil() as i64
    }

    fn at(&self, number: i64) -> f64 {
        let t = ((number - self.position.whole) as f64 - self.position.part) / self.rate_hz;
        self.height * (-(t / self.tau_s).powi(2)).exp() * (TAU * self.frequency_hz * t).sin()
    }

    /// Adds it to samples that start at number `start`.
    pub(super) fn add(&self, start: u64, samples: &mut [f64]) {
        let start = start as i64;
        let from = (self.position.whole - self.half()).max(start);
        let to = (self.position.whole + self.half() + 1).min(start + samples.len() as i64);
        for number in from..to {
            samples[(number - start) as usize] += self.at(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_is_moved_by_parts_of_a_sample() {
        let start = Gps::from_s(1e9);
        let at = Position::new(start.plus_s(1000.3 / 4096.0), start, 4096);
        assert!(at.whole == 1000 && (at.part - 0.3).abs() < 1e-5);
        let before = Position::new(start.plus_s(-0.25 / 4096.0), start, 4096);
        assert!(before.whole == -1 && (before.part - 0.75).abs() < 1e-5);
        for turns in [0.01, 0.3, 0.47] {
            let wave = |t: f64| (std::f64::consts::TAU * turns * t).cos();
            let series: Vec<f64> = (0..1000).map(|m| wave(f64::from(m) - 400.0)).collect();
            let placed = Placed::new(Position { whole: 1000, part: 0.3 }, 400, series.len());
            let mut samples = vec![0.0; 1800];
            let (one, two) = samples.split_at_mut(777);
            placed.add(&series, 0, one);
            placed.add(&series, 777, two);
            for (number, sample) in samples.iter().enumerate().take(1400).skip(800) {
                let expected = wave(number as f64 - 1000.3);
                assert!((sample - expected).abs() < 2e-5, "{turns} {number}");
            }
            assert!(samples[..500].iter().all(|x| *x == 0.0));
            assert_eq!((placed.first, placed.end), (505, 1696));
        }
    }
}
