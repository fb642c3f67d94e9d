//! Power spectrum and method of whitening.

use super::strain::Strain;
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::spiir::whiten::{self, GateOptions, Method, Psd, RunningOptions, WelchOptions};

/// Source of the power spectrum.
#[derive(Clone, Debug, PartialEq)]
pub enum Spectrum {
    /// Given in advance.
    Given(PowerSpectrum),
    /// Welch's method over the whole recording.
    Welch(WelchOptions),
    /// Tracks the noise along the stream; templates are whitened with Welch's spectrum of the whole recording.
    Running(RunningOptions, WelchOptions),
}

/// Whitening of strain.
#[derive(Clone, Debug, PartialEq)]
pub struct Whitening {
    /// Power spectrum.
    pub spectrum: Spectrum,
    /// Method of the whitening filter.
    pub method: Method,
    /// Gates for loud glitches; `None` disables them.
    pub gate: Option<GateOptions>,
}

impl Whitening {
    /// Returns the power spectrum for whitening the templates. For strain that cannot be read to its end, it is the
    /// spectrum of the readable part.
    ///
    /// # Errors
    /// As [`whiten::welch`], naming the recording; errors of the source when nothing can be read.
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

    /// Returns the whitener's options for the recording's spectrum and a bank's lowest frequency.
    pub fn options(&self, rate_hz: u32, psd: &PowerSpectrum, f_low_hz: f64) -> whiten::Options {
        let psd = match &self.spectrum {
            Spectrum::Running(running, _) => Psd::Running(running.clone()),
            _ => Psd::Fixed(psd.clone()),
        };
        let usual = match self.method {
            Method::Overlap { .. } => whiten::Options::new(rate_hz, psd),
            Method::MinimumPhase { .. } => whiten::Options::low_latency(rate_hz, psd),
        };
        // Templates start a little below their lowest frequency; the whitener must pass the strain there.
        let f_low_hz = usual.f_low_hz.min(0.9 * f_low_hz);
        whiten::Options { method: self.method, gate: self.gate, f_low_hz, ..usual }
    }
}

/// Adds the recording to an error.
fn whose(error: Error, recording: &Strain) -> Error {
    match error {
        Error::Parameter { name, value, rule } => {
            let (detector, path) = (&recording.detector, recording.path.display());
            Error::Parameter { name, value, rule: format!("{rule}: strain of {detector}, {path}") }
        }
        other => other,
    }
}
