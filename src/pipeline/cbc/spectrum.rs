//! Which power spectrum strain is whitened with, and how.

use super::strain::Strain;
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
    /// The power spectrum of strain that its templates are whitened with; of strain that can't be read to its end, that
    /// of what comes before.
    ///
    /// # Errors
    /// As [`whiten::welch`], naming the recording; those of the source where nothing can be read.
    pub fn spectrum(&self, strain: &Strain) -> Result<PowerSpectrum> {
        let welch = match &self.spectrum {
            Spectrum::Given(psd) => return Ok(psd.clone()),
            Spectrum::Welch(welch) | Spectrum::Running(_, welch) => welch,
        };
        let of = |strain: &Strain| {
            let size = (strain.times, strain.rate_hz);
            whiten::welch_of(&mut |take| strain.for_each(take), size, welch)
        };
        of(strain).or_else(|fault| {
            if matches!(fault, Error::Parameter { .. }) {
                return Err(whose(fault, strain));
            }
            match strain.readable()? {
                0 => Err(fault),
                known => {
                    let mut before = strain.clone();
                    before.times = known;
                    of(&before).map_err(|error| whose(error, strain))
                }
            }
        })
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
fn whose(error: Error, recording: &Strain) -> Error {
    match error {
        Error::Parameter { name, value, rule } => {
            let (detector, path) = (&recording.detector, recording.path.display());
            Error::Parameter { name, value, rule: format!("{rule}: strain of {detector}, {path}") }
        }
        other => other,
    }
}
