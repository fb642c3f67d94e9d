//! Arguments of `bench injections`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Inject binaries into noise of two detectors, search for them and compare the events with the truth.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Number of binaries.
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    pub(crate) injections: usize,
    /// Seed of the binaries and the noise.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// Sampling rate of the strain in Hz.
    #[arg(long, default_value_t = 2048, value_name = "HZ")]
    pub(crate) rate: u32,
    /// Source of the power spectrum.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "design")]
    pub(crate) psd: Spectrum,
    /// Whitening method of the strain.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "overlap")]
    pub(crate) whitening: Whitening,
    /// Filters that halve and double the sampling rate.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "paper")]
    pub(crate) resampling: Resampling,
    /// Early warning: end the templates this many seconds before the merger.
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    pub(crate) before: f64,
    /// Also write the table as Markdown.
    #[arg(long, value_name = "FILE.md")]
    pub(crate) markdown: Option<PathBuf>,
    /// Also plot recovered against injected values.
    #[arg(long, value_name = "FILE.png")]
    pub(crate) plot: Option<PathBuf>,
}

/// Power spectra that whiten strain and templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Spectrum {
    /// Design curve that the noise was made with.
    Design,
    /// Welch estimate from each recording.
    Welch,
}

/// Whitening methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Whitening {
    /// Overlap-add with zero phase.
    Overlap,
    /// Minimum phase.
    MinimumPhase,
}

/// Resampling filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Resampling {
    /// Linear phase, 384 and 32 taps.
    Paper,
    /// Filters with less delay.
    LowLatency,
    /// No resampling: one rate.
    None,
}
