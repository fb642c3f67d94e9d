//! `bench channelize`: input samples per second through the polyphase filter bank.

mod cases;
mod check;
mod measure;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sidereal::backend::threads::Threads;
use sidereal::{Error, Result};

#[cfg(feature = "cuda")]
use super::Quick;
use super::Table;
use crate::common::{Common, Device};
use crate::output::Existing;

const ABOUT: &str = "\
10^6 samples a second, complex or real as they come in, of all streams together (LOFAR's tables: 10^9
floating-point operations a second): the best and the median of all runs. Every run takes
buffers that are longer than the caches. Roof: copying as many bytes as go in and come out, with ordinary
stores, on as many threads (LOFAR's tables: the roofline, from that copy and from the arithmetic peak).
Baseline: rustfft's transforms alone, out of place over complex floats in the same memory, on one thread (two
cores: ours on one; --scipy: SciPy's rate). Roof, baseline and ours take turns. Outputs are compared with
sums in double precision first.";

/// Tables of benchmark cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
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
    table: Vec<Name>,
    /// Measure all tables.
    #[arg(long)]
    all: bool,
    /// Least number of seconds spent on each case.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    pub(super) only: Option<String>,
    /// Size of the input buffer and of the output buffer, as complex floats, in MiB each: more than the caches.
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    working_set: usize,
    /// Output file of benches/channelize_scipy.py on this machine: its rates become baselines.
    #[arg(long, value_name = "FILE")]
    scipy: Option<PathBuf>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    #[cfg(feature = "cuda")]
    #[command(flatten)]
    quick: Quick,
    /// Measure scalloping loss and leakage of every window instead of rates, with figures (Adamek, Novotny & Armour
    /// 2016, Figures 3 and 4).
    #[arg(long)]
    quality: bool,
    /// Folder for the figures of --quality.
    #[arg(
        short,
        long,
        value_name = "DIR",
        default_value = "sidereal-quality",
        requires = "quality"
    )]
    output: PathBuf,
}

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, existing: Existing, common: &Common) -> Result<()> {
    if arguments.quality {
        return super::quality::run(&arguments.output, existing, common);
    }
    if common.device == Device::Reference {
        let rule = "the reference is too slow to be measured; leave --device out";
        return Err(Error::parameter("--device", "reference", rule));
    }
    if !arguments.seconds.is_finite() || arguments.seconds < 0.0 {
        let rule = "it must be finite and not negative";
        return Err(Error::parameter("--seconds", arguments.seconds, rule));
    }
    if !(16..=1 << 16).contains(&arguments.working_set) {
        return Err(Error::parameter(
            "--working-set",
            arguments.working_set,
            "it must be 16 to 65536 MiB",
        ));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = super::gpu::Gpu::of(&common.backend()?, arguments.quick)? {
        return super::gpu::channelize::run(&gpu, arguments, common);
    }
    let threads = Threads::new(common.threads).count();
    let mut cases = Vec::new();
    for name in Name::value_variants() {
        if arguments.all || arguments.table.contains(name) {
            cases.extend(cases::cases(*name, threads));
        }
    }
    if let Some(path) = &arguments.scipy {
        cases.extend(cases::scipy(path)?);
    }
    if let Some(part) = &arguments.only {
        cases.retain(|case| case.name.contains(part));
        if cases.is_empty() {
            return Err(Error::parameter("--only", part, "no case's name contains it"));
        }
    }
    let mut table = Table::new(common, arguments.csv.as_deref(), ABOUT)?;
    let mut memory = measure::Memory::new(arguments.working_set);
    for case in &cases {
        table.push(memory.measure(case, arguments.seconds)?)?;
    }
    table.finish()
}
