//! Arguments of `bench spiir`, on CPUs and GPUs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::table::Quick;

/// Tables of benchmark cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// 4 to 512 filters per template (Guo et al. 2018, Table 2), and two threads.
    Filters,
    /// 1024 filters at 1 to 8 rates (Guo et al. 2018, Table 3).
    Rates,
    /// Every SIMD level of this machine, 64 filters.
    Levels,
    /// Blocks of 16 to 16384 samples.
    Blocks,
    /// Decay into silence, compared with noise.
    Silence,
    /// Largest error over one hour.
    Accuracy,
    /// Comparison with an FFT matched filter, for templates of 1 to 64 s.
    Fourier,
    /// 1.4 + 1.4 solar-mass templates that one core runs in real time, from 30, 20 and 15 Hz.
    Binaries,
    /// Complete search of two detectors with 1024 templates each, step by step (Guo et al. 2018, Section 5).
    Whole,
}

/// Measure the SPIIR filter bank.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Table to measure; may be given several times.
    #[arg(long, value_enum, value_name = "NAME", default_value = "filters")]
    pub(crate) table: Vec<Name>,
    /// Measure all tables.
    #[arg(long)]
    pub(crate) all: bool,
    /// Least number of seconds spent on each case.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Seconds of data in the complete search.
    #[arg(long, default_value_t = 1000.0)]
    pub(crate) length: f64,
    /// Plot templates against latency, from the table `fourier`, to this PNG.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) quick: Quick,
}

impl Arguments {
    /// Returns the requested tables; `--all` selects those that a GPU has.
    pub(crate) fn names(&self) -> Vec<Name> {
        let on_gpu = [Name::Filters, Name::Rates, Name::Fourier, Name::Accuracy, Name::Whole];
        if self.all { on_gpu.to_vec() } else { self.table.clone() }
    }
}
