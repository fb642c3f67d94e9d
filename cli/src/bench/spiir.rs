//! `bench spiir`: filter samples per second of the bank of recursive filters.

pub(super) mod accuracy;
pub(crate) mod bank;
mod cases;
mod fourier;
pub(super) mod measure;
mod plain;
mod whole;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sidereal::backend::Backend;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::{Error, Result};

#[cfg(feature = "cuda")]
use super::Quick;
use super::Table;
use crate::common::{Common, Device};

const ABOUT: &str = "\
10^9 operations a second, 12 for each filter and sample of its own rate: the best and the median of all runs.
Templates have the filters that a chirp asks for (0.02 cycles of error each), at 4096 Hz. Roof: the direct form's,
12/16 of the multiply-adds with operands in registers, on as many threads. Baseline: a plain loop over one filter
after another on one thread, without vector instructions (two threads: ours on one; rates: 10^6 template samples a
second, beside all filters at one rate; silence: beside noise). Roof, baseline and ours take turns. Some
templates are compared with the sums in double precision first. Accuracy: the largest error in an hour, in 10^-6 of
the output's root mean square, beside what is allowed (as roof) and the root mean square error (as baseline).";

/// Tables of benchmark cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
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
    table: Vec<Name>,
    /// Measure all tables.
    #[arg(long)]
    all: bool,
    /// Least number of seconds spent on each case.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Seconds of data in the complete search.
    #[arg(long, default_value_t = 1000.0)]
    pub(super) length: f64,
    /// Plot templates against latency, from the table `fourier`, to this PNG.
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    pub(super) only: Option<String>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    #[cfg(feature = "cuda")]
    #[command(flatten)]
    quick: Quick,
}

impl Arguments {
    /// Returns the requested tables; `--all` selects those that a GPU has.
    #[cfg(feature = "cuda")]
    pub(super) fn names(&self) -> Vec<Name> {
        let on_gpu = [Name::Filters, Name::Rates, Name::Fourier, Name::Accuracy, Name::Whole];
        if self.all { on_gpu.to_vec() } else { self.table.clone() }
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
    #[cfg(feature = "cuda")]
    if let Some(gpu) = super::gpu::Gpu::of(&common.backend()?, arguments.quick)? {
        return super::gpu::spiir::run(&gpu, arguments, common);
    }
    let threads = Threads::new(common.threads).count();
    let names = if arguments.all { Name::value_variants() } else { &arguments.table };
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|part| name.contains(part));
    let mut table = Table::new(common, arguments.csv.as_deref(), ABOUT)?;
    let mut found = false;
    for name in names {
        for case in cases::cases(*name, threads).iter().filter(|case| wanted(&case.name)) {
            table.push(measure::measure(case, arguments.seconds)?)?;
            found = true;
        }
        found |= match name {
            Name::Fourier => {
                fourier::run(&mut table, arguments.seconds, &wanted, arguments.plot.as_deref())?
            }
            Name::Binaries => fourier::binaries(&mut table, arguments.seconds, &wanted)?,
            Name::Whole if wanted("the whole search") => {
                whole::run(&mut table, arguments.length, common.threads)?;
                true
            }
            _ => false,
        };
        if *name == Name::Accuracy {
            for case in accuracy::CASES.iter().filter(|case| wanted(case.name)) {
                let backend = Backend::Cpu(Level::best(), Threads::new(1));
                table.push(accuracy::measure(case, &backend, false)?)?;
                found = true;
            }
        }
    }
    if !found {
        let part = arguments.only.as_deref().unwrap_or_default();
        return Err(Error::parameter("--only", part, "no case's name contains it"));
    }
    table.finish()
}
