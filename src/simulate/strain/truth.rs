//! Ground truth of simulated strain, with the detectability of each injection.

use num_complex::Complex64;
use rustfft::FftPlanner;

use super::options::{DetectorOptions, Injection};
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
        cut_s: (f64, f64),
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
            cut_s,
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
