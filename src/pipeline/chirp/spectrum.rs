//! Which power spectrum strain is whitened with, and how.

use super::recording::Recording;
use crate::error::{Error, Result};
use crate::math::power_spectrum::PowerSpectrum;
use crate::spiir::whiten::{self, GateOptions, Method, Psd, RunningOptions, WelchOptions};

/// Where the power spectrum comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Spectrum {
    /// Known beforehand.
    Given(PowerSpectrum),
    /// Welch's method over the whole recording.
    Welch(WelchOptions),
    /// Follows the noise as it comes; templates are whitened with Welch's spectrum of the whole recording.
    Running(RunningOptions, WelchOptions),
}

/// How strain is whitened.
#[derive(Clone, Debug, PartialEq)]
pub struct Whitening {
    /// The power spectrum.
    pub spectrum: Spectrum,
    /// The filter that is made of it.
    pub method: Method,
    /// Gates for loud glitches; none when `None`.
    pub gate: Option<GateOptions>,
}

impl Whitening {
    /// The power spectrum of a recording that its templates are whitened with.
    ///
    /// # Errors
    /// As [`whiten::welch`], naming the recording.
    pub fn spectrum(&self, recording: &Recording) -> Result<PowerSpectrum> {
        match &self.spectrum {
            Spectrum::Given(psd) => Ok(psd.clone()),
            Spectrum::Welch(welch) | Spectrum::Running(_, welch) => {
                whiten::welch(&recording.samples, &recording.valid, recording.rate_hz, welch)
                    .map_err(|error| whose(error, recording))
            }
        }
    }

    /// What the whitener is asked for, given the recording's spectrum and a bank's lowest frequency.
    pub fn options(&self, rate_hz: u32, psd: &PowerSpectrum, f_low_hz: f64) -> whiten::Options {
        let psd = match &self.spectrum {
            Spectrum::Running(running, _) => Psd::Running(running.clone()),
            _ => Psd::Fixed(psd.clone()),
        };
        let usual = match self.method {
            Method::Overlap { .. } => whiten::Options::new(rate_hz, psd),
            Method::MinimumPhase { .. } => whiten::Options::low_latency(rate_hz, psd),
        };
        // Templates open a little below their lowest frequency: the strain must be whole there.
        let f_low_hz = usual.f_low_hz.min(0.9 * f_low_hz);
        whiten::Options { method: self.method, gate: self.gate, f_low_hz, ..usual }
    }
}

/// An error that says which recording it is about.
fn whose(error: Error, recording: &Recording) -> Error {
    match error {
        Error::Parameter { name, value, rule } => {
            let (detector, path) = (&recording.detector, recording.path.display());
            Error::Parameter { name, value, rule: format!("{rule}: strain of {detector}, {path}") }
        }
        other => other,
    }
}
