//! `bench correlate`: operations per second of the X-engine.

mod cases;
mod check;
mod cherk;
mod measure;
mod turn;
mod whole;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sidereal::backend::threads::Threads;
use sidereal::{Error, Result};

#[cfg(feature = "cuda")]
use super::Quick;
use super::Table;
use crate::common::{Common, Device};
use cherk::Cherk;

const ABOUT: &str = "\
10^9 operations a second of antennas with two polarizations (n inputs): 8 for a complex multiply-add, n (n + 1) / 2
sums over 1024 samples, from packed spectra to sums that stay in the X-engine: the best and the median of all
runs, over blocks of 32 MiB (8 bit) and more. Integration: as many samples in all, each integration read out.
Bandwidth: kHz of each polarization that the threads keep up with. Roof: multiply-adds of the same kind with
operands in registers. Baseline: cherk of complex floats on one thread (--scipy), or else our plain loops; two
threads: ours on one. Roof, baseline and ours take turns. Sums are compared with sums of single products first.";

/// Tables of benchmark cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
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
    table: Vec<Name>,
    /// Measure all tables.
    #[arg(long)]
    all: bool,
    /// Measure the corner turn and the alignment before the X-engine instead of the X-engine.
    #[arg(long, conflicts_with_all = ["table", "all", "scipy"])]
    turn: bool,
    /// Measure all of `correlate` instead, from voltages to a file, and the time of each step.
    #[arg(long, conflicts_with_all = ["table", "all", "only", "scipy", "turn"])]
    whole: bool,
    /// Least number of seconds spent on each case.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    pub(super) only: Option<String>,
    /// Python with SciPy: its cherk becomes the baseline, timed alternately with the X-engine.
    #[arg(long, value_name = "PYTHON")]
    scipy: Option<PathBuf>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    #[cfg(feature = "cuda")]
    #[command(flatten)]
    quick: Quick,
}

impl Arguments {
    /// Returns the benchmark's name if it has no GPU kernels.
    pub(super) fn of_the_host(&self) -> Option<&'static str> {
        self.turn.then_some("bench correlate --turn")
    }

    /// Returns the requested tables.
    pub(super) fn tables(&self) -> &[Name] {
        if self.all { Name::value_variants() } else { &self.table }
    }
}

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    if common.device == Device::Reference {
        let rule = "the reference is too slow to be measured; leave --device out";
        return Err(Error::parameter("--device", "reference", rule));
    }
    if !arguments.seconds.is_finite() || arguments.seconds < 0.0 {
        let rule = "it must be finite and not negative";
        return Err(Error::parameter("--seconds", arguments.seconds, rule));
    }
    if arguments.turn {
        let mut table = Table::new(common, arguments.csv.as_deref(), turn::ABOUT)?;
        let (threads, only) = (Threads::new(common.threads).count(), arguments.only.as_deref());
        turn::rows(threads, arguments.seconds, only, |row| table.push(row))?;
        return table.finish();
    }
    if arguments.whole {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = super::gpu::Gpu::of(&common.backend()?, arguments.quick)? {
            return super::gpu::correlate_whole::run(&gpu, arguments.csv.as_deref(), common);
        }
        return whole::run(common, (arguments.csv.clone(), arguments.seconds));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = super::gpu::Gpu::of(&common.backend()?, arguments.quick)? {
        return super::gpu::correlate::run(&gpu, arguments, common);
    }
    let threads = Threads::new(common.threads).count();
    let cases = cases::chosen(arguments.tables(), threads, arguments.only.as_deref())?;
    let mut cherk = arguments.scipy.as_deref().map(Cherk::start).transpose()?;
    let mut table = Table::new(common, arguments.csv.as_deref(), ABOUT)?;
    for case in &cases {
        table.push(measure::measure(case, cherk.as_mut(), arguments.seconds)?)?;
    }
    table.finish()
}
