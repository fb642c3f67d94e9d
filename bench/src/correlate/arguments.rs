//! Arguments of `bench correlate`, on CPUs and GPUs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::table::Quick;

/// Tables of benchmark cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// 32 to 256 antennas at 8 bit; 4 bit and f32 at 128 antennas; two threads.
    Headline,
    /// 8 to 1024 antennas at 4 bit, 8 bit and f32.
    Sizes,
    /// Every SIMD level of this machine, 128 antennas.
    Levels,
    /// Antennas times channels (Clark et al. 2011, Figure 5).
    Channels,
    /// Integrations of 64 to 16384 samples at a constant total number of samples (Clark et al. 2011, Figure 6).
    Integration,
    /// Bandwidth that one core sustains, by number of antennas (Clark et al. 2011, Figure 8).
    Bandwidth,
}

/// Measure the X-engine.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Table to measure; may be given several times.
    #[arg(long, value_enum, value_name = "NAME", default_value = "headline")]
    pub(crate) table: Vec<Name>,
    /// Measure all tables.
    #[arg(long)]
    pub(crate) all: bool,
    /// Measure the corner turn and the alignment before the X-engine instead of the X-engine.
    #[arg(long, conflicts_with_all = ["table", "all", "scipy"])]
    pub(crate) turn: bool,
    /// Measure all of `correlate` instead, from voltages to a file, and the time of each step.
    #[arg(long, conflicts_with_all = ["table", "all", "only", "scipy", "turn"])]
    pub(crate) whole: bool,
    /// Least number of seconds spent on each case.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Python with SciPy: its cherk becomes the baseline, timed alternately with the X-engine.
    #[arg(long, value_name = "PYTHON")]
    pub(crate) scipy: Option<PathBuf>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) quick: Quick,
}

impl Arguments {
    /// Returns the benchmark's name if it has no GPU kernels.
    pub(crate) fn cpu_only_name(&self) -> Option<&'static str> {
        self.turn.then_some("bench correlate --turn")
    }

    /// Returns the requested tables.
    pub(crate) fn tables(&self) -> &[Name] {
        if self.all { Name::value_variants() } else { &self.table }
    }
}
