//! Arguments of `bench channelize`, on CPUs and GPUs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::table::Quick;

/// Tables of benchmark cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// 1024 channels with several tap counts, 8 bit, two cores.
    Headline,
    /// 64 to 65536 channels times 4 to 64 taps.
    Sizes,
    /// Every voltage encoding.
    Types,
    /// Channels x taps = 4096, 64 stations with two polarizations, 16 bit: the filter alone, and with the transform
    /// (van der Veldt et al. 2012).
    Lofar,
    /// 65536 channels, two polarizations, 8 bit, 8 to 64 taps.
    Vegas,
    /// Tap counts at 1024 and at 512 channels.
    Taps,
    /// Channel counts at 8 and 16 taps, including 3072 channels.
    Channels,
    /// Detected and requantized spectra, oversampling, channel orders.
    Forms,
}

/// Measure the polyphase filter bank.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Table to measure; may be given several times.
    #[arg(long, value_enum, value_name = "NAME", default_value = "headline")]
    pub(crate) table: Vec<Name>,
    /// Measure all tables.
    #[arg(long)]
    pub(crate) all: bool,
    /// Least number of seconds spent on each case.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Size of the input buffer and of the output buffer, as complex floats, in MiB each: more than the caches.
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    pub(crate) working_set: usize,
    /// Output file of benches/channelize_scipy.py on this machine: its rates become baselines.
    #[arg(long, value_name = "FILE")]
    pub(crate) scipy: Option<PathBuf>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) quick: Quick,
    /// Measure scalloping loss and leakage of every window instead of rates, with figures (Adamek, Novotny & Armour
    /// 2016, Figures 3 and 4).
    #[arg(long)]
    pub(crate) quality: bool,
    /// Folder for the figures of --quality.
    #[arg(
        short,
        long,
        value_name = "DIR",
        default_value = "sidereal-quality",
        requires = "quality"
    )]
    pub(crate) output: PathBuf,
}
