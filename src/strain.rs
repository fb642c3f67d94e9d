//! Compact binaries, their gravitational waveforms, and the filter banks of files and searches.
//!
//! Invariant: a waveform's samples are finite and its peak is one of them.

use num_complex::{Complex, Complex64};

use crate::error::{Error, Result};

/// Detector-frame (redshifted) masses and aligned spins of a compact binary.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Binary {
    /// Mass of the first body, in solar masses.
    pub mass1_msun: f64,
    /// Mass of the second body, in solar masses.
    pub mass2_msun: f64,
    /// Spin of the first body along the orbit's angular momentum, in units of its mass squared (-1 to 1).
    pub spin1z: f64,
    /// Spin of the second body along the orbit's angular momentum, in units of its mass squared (-1 to 1).
    pub spin2z: f64,
}

impl Binary {
    /// Makes a binary without spins.
    pub fn of_masses(mass1_msun: f64, mass2_msun: f64) -> Self {
        Self { mass1_msun, mass2_msun, ..Self::default() }
    }

    /// Returns the sum of the masses, in solar masses.
    pub fn total_mass_msun(&self) -> f64 {
        self.mass1_msun + self.mass2_msun
    }

    /// Returns the chirp mass `(m1 m2)^(3/5) / (m1 + m2)^(1/5)`, in solar masses.
    pub fn chirp_mass_msun(&self) -> f64 {
        (self.mass1_msun * self.mass2_msun).powf(0.6) / self.total_mass_msun().powf(0.2)
    }
}

/// A gravitational wave `h = h_plus - i h_cross` as a series of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Waveform {
    /// Name in tables and files.
    pub name: String,
    /// The source, when known.
    pub binary: Option<Binary>,
    /// Approximant, such as IMRPhenomD, when known.
    pub approximant: Option<String>,
    /// Sampling rate in Hz.
    pub rate_hz: u32,
    /// `h_plus - i h_cross` of a face-on source at [`Self::distance_mpc`]; the phase is continuous in time.
    pub samples: Vec<Complex64>,
    /// Index of the sample with the largest `|h|`: the event time.
    pub peak: usize,
    /// Distance of the source, in Mpc.
    pub distance_mpc: f64,
}

impl Waveform {
    /// Makes a waveform of an unknown approximant and finds its peak.
    ///
    /// # Errors
    /// [`Error::Parameter`] if it has no sample, a non-finite sample or only zeros, or if the rate or the distance is
    /// not above 0.
    pub fn new(
        name: impl Into<String>,
        binary: Option<Binary>,
        rate_hz: u32,
        samples: Vec<Complex64>,
        distance_mpc: f64,
    ) -> Result<Self> {
        if rate_hz == 0 {
            return Err(Error::parameter("rate of the waveform (Hz)", 0, "it must be above 0"));
        }
        if !(distance_mpc.is_finite() && distance_mpc > 0.0) {
            let rule = "it must be finite and above 0";
            return Err(Error::parameter("distance (Mpc)", distance_mpc, rule));
        }
        if let Some(bad) = samples.iter().find(|h| !h.is_finite()) {
            return Err(Error::parameter(
                "waveform",
                bad.to_string(),
                "its samples must be finite",
            ));
        }
        let peak = (0..samples.len()).reduce(|best, index| {
            if samples[index].norm_sqr() > samples[best].norm_sqr() { index } else { best }
        });
        match peak {
            Some(peak) if samples[peak].norm_sqr() > 0.0 => {
                let approximant = None;
                let name = name.into();
                Ok(Self { name, binary, approximant, rate_hz, samples, peak, distance_mpc })
            }
            _ => {
                let rule = "it needs samples that are not 0";
                Err(Error::parameter("waveform", format!("{} samples", samples.len()), rule))
            }
        }
    }

    /// Returns the length in seconds.
    pub fn duration_s(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate_hz)
    }
}

/// Infinite impulse response filter `y[k] = a y[k - 1] + b x[k - delay]` at the rate of its branch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter {
    /// Pole, `|a| < 1`.
    pub a: Complex<f32>,
    /// Weight of the input.
    pub b: Complex<f32>,
    /// Delay of the input in samples of the branch.
    pub delay: u32,
}

/// Filters of one template that run at one rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Branch {
    /// Number of halvings of the rate: the branch runs at `rate_hz / 2^halvings`.
    pub halvings: u32,
    /// Filters of the branch.
    pub filters: Vec<Filter>,
}

/// One template: the sum of all its filters is its signal-to-noise ratio.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template {
    /// One branch per rate that has filters, in increasing order of halvings.
    pub branches: Vec<Branch>,
}

/// Filters for downsampling and upsampling by 2.
#[derive(Clone, Debug, PartialEq)]
pub struct Resampler {
    /// Taps of the filter before decimation.
    pub down: Vec<f32>,
    /// Delay of `down` in whole samples of the higher rate; the remainder is part of its phase response.
    pub down_delay: usize,
    /// Taps of the filter after zero insertion.
    pub up: Vec<f32>,
    /// Delay of `up` in samples of the higher rate.
    pub up_delay: usize,
}

/// Filters of one template and its properties for a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BankTemplate {
    /// Name of the waveform.
    pub name: String,
    /// Binary, if known.
    pub binary: Option<Binary>,
    /// Approximant of its waveform, such as IMRPhenomD, if known.
    pub approximant: Option<String>,
    /// Filters.
    pub filters: Template,
    /// Match between the filters and the whitened template, from 0 to 1. It includes the rounding of the
    /// coefficients, the resampler's response and the truncation of the template.
    pub fit: f64,
    /// Match before the weights were fitted.
    pub placement_fit: f64,
    /// Tolerance at which the filters were placed, in cycles.
    pub epsilon: f64,
    /// Signal-to-noise ratio of an optimally oriented source at 1 Mpc in the exact matched filter.
    pub sigma_1mpc: f64,
    /// Distance in Mpc at which this signal-to-noise ratio is 8.
    pub horizon_mpc: f64,
    /// `A[m] = (u * h)[L - 1 + m] / (u * h)[L - 1]` of the response `u` and the whitened template `h` at the strain's
    /// rate; `A[0] = 1` is the middle.
    pub autocorrelation: Vec<Complex<f32>>,
    /// `sum(2 - 2 |A|^2)`.
    pub autocorrelation_norm: f32,
    /// Event time minus the time of the output sample at which the signal-to-noise ratio peaks, in seconds.
    pub peak_offset_s: f64,
    /// Length of the whitened template in seconds.
    pub duration_s: f64,
    /// Lowest frequency used, in Hz.
    pub f_low_hz: f64,
    /// Template frequency in Hz when 99.9 % of its power has passed, or at its peak if that is earlier.
    pub f_final_hz: f64,
    /// Whitened template with `sum |h|^2 = 2` in increasing time: an analytic signal whose real part is the whitened
    /// `h_plus`. The response is `conj(h[L - 1 - n])`.
    pub whitened: Vec<Complex<f32>>,
}

/// Template that was rejected from a bank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeftOut {
    /// Index among the waveforms of the bank, from 0.
    pub index: usize,
    /// Name of the waveform.
    pub name: String,
    /// Best match, if filters were designed.
    pub fit: Option<f64>,
    /// Reason of the rejection.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_found_and_nonsense_refused() {
        let wave = |values: &[f64]| {
            let samples = values.iter().map(|re| Complex64::new(*re, 0.0)).collect();
            Waveform::new("w", None, 4096, samples, 1.0)
        };
        assert_eq!(wave(&[0.0, -3.0, 2.0]).map(|w| w.peak).ok(), Some(1));
        assert!(wave(&[]).is_err() && wave(&[0.0]).is_err() && wave(&[f64::NAN]).is_err());
        assert!((Binary::of_masses(1.4, 1.4).chirp_mass_msun() - 1.2188).abs() < 1e-4);
    }
}
