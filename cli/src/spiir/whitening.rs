//! Options of whitening.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sidereal::io::psd::{self, Density};
use sidereal::math::{PowerSpectrum, advanced_ligo};
use sidereal::pipeline::cbc::{Spectrum, Strain, Whitening};
use sidereal::spiir::whiten::{Average, GateOptions, Method, RunningOptions, WelchOptions};
use sidereal::{Error, Result};

use super::design::within;
use crate::common::Common;
use crate::say::warning;

/// Frequency spacing of the design spectra, in Hz.
const SPACING_HZ: f64 = 0.25;

/// Options of whitening.
#[derive(Args, Clone, Debug)]
pub(crate) struct Whiten {
    /// Power spectrum: welch, running, aligo or a file.
    ///
    /// welch estimates it from the whole recording without the first and last 2 s; running follows the noise; aligo
    /// is Advanced LIGO's design. A file is text with two columns, Hz and strain^2/Hz (strain/sqrt(Hz) if the name
    /// contains asd), or .npy.
    #[arg(long, value_name = "PSD", default_value = "welch", help_heading = "Whitening")]
    pub(super) psd: String,
    /// Length of the spectrum's segments, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 4.0,
        allow_negative_numbers = true,
        help_heading = "Whitening"
    )]
    pub(super) psd_segment: f64,
    /// Whitening method: overlap (zero phase, seconds of latency) or minimum-phase (milliseconds).
    #[arg(
        long,
        value_enum,
        value_name = "METHOD",
        default_value = "overlap",
        help_heading = "Whitening"
    )]
    pub(super) whitening: MethodWord,
    /// Length of the whitening filter, in seconds [default: twice the spectrum's segments for overlap, else once].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, help_heading = "Whitening")]
    pub(super) whitening_length: Option<f64>,
    /// Average over the spectra of the segments: auto, median or mean.
    ///
    /// auto uses the median of 16 or more segments, which a loud wave hardly moves, otherwise the mean, because the
    /// median of few is biased low where it is the divisor.
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        default_value = "auto",
        help_heading = "Whitening"
    )]
    pub(super) psd_average: AverageWord,
    /// Gate whitened strain above this many standard deviations; 0 disables gating.
    ///
    /// A gate extends a quarter of a second on both sides.
    #[arg(
        long,
        value_name = "SIGMA",
        default_value_t = 50.0,
        allow_negative_numbers = true,
        help_heading = "Whitening"
    )]
    pub(super) gate: f64,
}

/// Averages over segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AverageWord {
    /// Chosen from the number of segments.
    Auto,
    /// Loud segments have little influence.
    Median,
    /// Every segment counts equally.
    Mean,
}

/// Number of segments from which a median gives more accurate ratios than a mean, also for weak waves
/// (docs/design/cbc.md).
const MANY: f64 = 16.0;

/// Fraction of a recording in which a running spectrum may start up without a warning.
const LEARNING: f64 = 0.1;

/// Whitening methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum MethodWord {
    /// Zero phase, by overlapping transforms.
    Overlap,
    /// Minimum phase.
    MinimumPhase,
}

impl Whiten {
    /// Returns whether whitening changes phases: filters must then be designed for it.
    pub(super) fn turns_phases(&self) -> bool {
        self.whitening == MethodWord::MinimumPhase
    }

    /// Returns the file that the spectrum is read from.
    pub(super) fn file(&self) -> Option<PathBuf> {
        (!["welch", "running"].contains(&self.psd.as_str())).then(|| spectrum_file(&self.psd))?
    }

    /// Fails if banks from files would not match the strain.
    ///
    /// # Errors
    /// [`Error::Parameter`] for whitening that changes phases.
    pub(super) fn check_bank(&self) -> Result<()> {
        if self.turns_phases() {
            let rule = "a bank in a file is made for whitening that leaves phases as they are; \
                        use overlap, or --templates, whose filters are made as the strain is whitened";
            return Err(Error::parameter("--whitening", "minimum-phase", rule));
        }
        Ok(())
    }

    /// Warns if a running spectrum starts up in a large part of a recording, in which nothing can be found.
    pub(super) fn warn_of_learning(&self, strain: &[Strain], common: &Common) {
        if self.psd != "running" {
            return;
        }
        let running = RunningOptions { segment_s: self.psd_segment, ..RunningOptions::default() };
        let learning_s = running.learning_s();
        for one in strain.iter().filter(|one| learning_s > LEARNING * one.duration_s()) {
            let whole_s = one.duration_s();
            warning!(
                quiet: common.quiet,
                "--psd running learns from the first {learning_s} s of the {whole_s} s of {}, in which nothing is found; \
                 --psd welch searches all of a short recording",
                one.detector
            );
        }
    }

    /// Returns the requested whitening for strain of a rate and a length, within a limit on memory.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option, or what reading the spectrum finds.
    pub(super) fn whitening(
        &self,
        rate_hz: u32,
        length_s: f64,
        memory: Option<u64>,
    ) -> Result<Whitening> {
        within("--psd-segment", self.psd_segment, (0.25, 1024.0), "seconds")?;
        let segments = 2.0 * length_s / self.psd_segment;
        let average = match self.psd_average {
            AverageWord::Median => Average::Median,
            AverageWord::Auto if segments >= MANY => Average::Median,
            AverageWord::Auto | AverageWord::Mean => Average::Mean,
        };
        let usual_s = match self.whitening {
            MethodWord::Overlap => 2.0 * self.psd_segment,
            MethodWord::MinimumPhase => self.psd_segment,
        };
        let filter_s = self.whitening_length.unwrap_or(usual_s);
        within("--whitening-length", filter_s, (0.25, 2048.0), "seconds")?;
        within("--gate", self.gate, (0.0, 1e6), "standard deviations")?;
        let mut welch =
            WelchOptions { segment_s: self.psd_segment, average, ..WelchOptions::default() };
        if let Some(memory) = memory {
            welch.memory_bytes = welch.memory_bytes.min((memory / 2) as usize);
        }
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
                MethodWord::Overlap => Method::Overlap { fft_s: filter_s },
                MethodWord::MinimumPhase => Method::MinimumPhase { taps_s: filter_s },
            },
            gate: (self.gate > 0.0)
                .then(|| GateOptions { threshold: self.gate, ..GateOptions::default() }),
        })
    }
}

/// Returns the file that [`spectrum`] reads.
pub(super) fn spectrum_file(word: &str) -> Option<PathBuf> {
    (word != "aligo").then(|| PathBuf::from(word))
}

/// Returns the spectrum of a name or a file, up to half the sampling rate.
///
/// # Errors
/// [`Error::Parameter`] for an unknown name that is not a file, or the error of reading.
pub(super) fn spectrum(word: &str, rate_hz: u32) -> Result<PowerSpectrum> {
    let nyquist_hz = f64::from(rate_hz) / 2.0;
    if word == "aligo" {
        return advanced_ligo(SPACING_HZ, (nyquist_hz / SPACING_HZ) as usize + 1);
    }
    let path = PathBuf::from(word);
    if !Path::new(&path).exists() {
        let rule =
            "it is neither the name of a spectrum that this verb takes (see --help) nor a file";
        return Err(Error::parameter("--psd", word, rule));
    }
    let name = word.to_lowercase();
    let amplitude = name.rsplit('/').next().is_some_and(|name| name.contains("asd"));
    psd::read(&path, if amplitude { Density::Amplitude } else { Density::Power })
}
