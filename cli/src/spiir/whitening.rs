//! The options of whitening.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sidereal::io::psd;
use sidereal::math::design_psd;
use sidereal::math::power_spectrum::PowerSpectrum;
use sidereal::pipeline::chirp::{Spectrum, Whitening};
use sidereal::spiir::whiten::{GateOptions, Method, RunningOptions, WelchOptions};
use sidereal::{Error, Result};

use super::design::within;

/// Spacing of the design spectra, in Hz.
const SPACING_HZ: f64 = 0.25;

/// How strain is whitened.
#[derive(Args, Clone, Debug)]
pub(crate) struct Whiten {
    /// The power spectrum: welch (of the whole recording, its first and last 2 s left out), running (follows the noise),
    /// aligo (Advanced LIGO's design), or a file: text of two columns, Hz and strain^2/Hz (strain/sqrt(Hz) where the
    /// name holds asd), or .npy.
    #[arg(long, value_name = "PSD", default_value = "welch", help_heading = "Whitening")]
    pub(super) psd: String,
    /// Segments of the spectrum, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 4.0,
        allow_negative_numbers = true,
        help_heading = "Whitening"
    )]
    pub(super) psd_segment: f64,
    /// overlap (zero phase, seconds of latency) or minimum-phase (milliseconds).
    #[arg(long, value_enum, value_name = "METHOD", default_value = "overlap", help_heading = "Whitening")]
    pub(super) whitening: MethodWord,
    /// Length of the whitening filter, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 4.0,
        allow_negative_numbers = true,
        help_heading = "Whitening"
    )]
    pub(super) whitening_length: f64,
    /// Gate whitened strain beyond so many standard deviations, a quarter of a second on both sides; 0 gates nothing.
    #[arg(
        long,
        value_name = "SIGMA",
        default_value_t = 50.0,
        allow_negative_numbers = true,
        help_heading = "Whitening"
    )]
    pub(super) gate: f64,
}

/// The whitening filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum MethodWord {
    /// Zero phase, by overlapping transforms.
    Overlap,
    /// Minimum phase.
    MinimumPhase,
}

impl Whiten {
    /// What is asked for, for strain of a rate.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option, or what reading the spectrum finds.
    pub(super) fn whitening(&self, rate_hz: u32) -> Result<Whitening> {
        within("--psd-segment", self.psd_segment, (0.25, 1024.0), "seconds")?;
        within("--whitening-length", self.whitening_length, (0.25, 1024.0), "seconds")?;
        within("--gate", self.gate, (0.0, 1e6), "standard deviations")?;
        let welch = WelchOptions { segment_s: self.psd_segment, ..WelchOptions::default() };
        let spectrum = match self.psd.as_str() {
            "welch" => Spectrum::Welch(welch),
            "running" => {
                let running =
                    RunningOptions { segment_s: self.psd_segment, ..RunningOptions::default() };
                Spectrum::Running(running, welch)
            }
            other => Spectrum::Given(spectrum(other, rate_hz)?),
        };
        Ok(Whitening {
            spectrum,
            method: match self.whitening {
                MethodWord::Overlap => Method::Overlap { fft_s: self.whitening_length },
                MethodWord::MinimumPhase => Method::MinimumPhase { taps_s: self.whitening_length },
            },
            gate: (self.gate > 0.0)
                .then(|| GateOptions { threshold: self.gate, ..GateOptions::default() }),
        })
    }
}

/// The spectrum of a name or a file, up to half the rate.
///
/// # Errors
/// [`Error::Parameter`] for a name that is none and no file, or what reading finds.
pub(super) fn spectrum(word: &str, rate_hz: u32) -> Result<PowerSpectrum> {
    let nyquist_hz = f64::from(rate_hz) / 2.0;
    if word == "aligo" {
        return Ok(design_psd::advanced_ligo(SPACING_HZ, (nyquist_hz / SPACING_HZ) as usize + 1));
    }
    let path = PathBuf::from(word);
    if !Path::new(&path).exists() {
        let rule = "it is neither a spectrum's name (welch, running, aligo) nor a file";
        return Err(Error::parameter("--psd", word, rule));
    }
    psd::read(&path)
}
