//! `sidereal bench injections`: injects binaries of known masses, sky positions and signal-to-noise ratios into
//! simulated noise of two detectors, searches for them and compares the events with the truth.

mod case;
mod draw;
mod figure;
mod report;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sidereal::backend::threads::Threads;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::plots::Png;
use crate::provenance::Made;
use case::{Outcome, Setup};
use draw::Case;

/// Inject binaries into noise of two detectors, search for them and compare the events with the truth.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Number of binaries.
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    injections: usize,
    /// Seed of the binaries and the noise.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Sampling rate of the strain in Hz.
    #[arg(long, default_value_t = 2048, value_name = "HZ")]
    rate: u32,
    /// Source of the power spectrum.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "design")]
    psd: Spectrum,
    /// Whitening method of the strain.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "overlap")]
    whitening: Whitening,
    /// Filters that halve and double the sampling rate.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "paper")]
    resampling: Resampling,
    /// Early warning: end the templates this many seconds before the merger.
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    before: f64,
    /// Also write the table as Markdown.
    #[arg(long, value_name = "FILE.md")]
    pub(super) markdown: Option<PathBuf>,
    /// Also plot recovered against injected values.
    #[arg(long, value_name = "FILE.png")]
    pub(super) plot: Option<PathBuf>,
}

/// Power spectra that whiten strain and templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Spectrum {
    /// Design curve that the noise was made with.
    Design,
    /// Welch estimate from each recording.
    Welch,
}

/// Whitening methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Whitening {
    /// Overlap-add with zero phase.
    Overlap,
    /// Minimum phase.
    MinimumPhase,
}

/// Resampling filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Resampling {
    /// Linear phase, 384 and 32 taps.
    Paper,
    /// Filters with less delay.
    LowLatency,
    /// No resampling: one rate.
    None,
}

pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    if !(1..=100_000).contains(&arguments.injections) {
        let rule = "it must be 1 to 100000";
        return Err(Error::parameter("--injections", arguments.injections, rule));
    }
    if !(1024..=16_384).contains(&arguments.rate) {
        return Err(Error::parameter("--rate (Hz)", arguments.rate, "it must be 1024 to 16384"));
    }
    let setup = Setup::new(arguments)?;
    let outcomes = campaign(&setup, arguments, common)?;
    if common.json {
        report::print_json(&outcomes, common)?;
    } else if !common.quiet {
        report::print(&outcomes);
    }
    if let Some(path) = &arguments.markdown {
        report::write_markdown(path, &outcomes)?;
    }
    if let Some(path) = &arguments.plot {
        figure::draw(&Png::new(path, &Made::new(common, &[])?), &outcomes)?;
    }
    Ok(())
}

/// Runs the cases in parallel, each on its own thread.
fn campaign(setup: &Setup, arguments: &Arguments, common: &Common) -> Result<Vec<Outcome>> {
    let threads = Threads::new(common.threads()?);
    let mut outcomes: Vec<Option<Result<Outcome>>> =
        (0..arguments.injections).map(|_| None).collect();
    let mut scratch = vec![(); threads.count()];
    threads.for_each_chunk(&mut scratch, &mut outcomes, 1, |(), index, outcome| {
        outcome[0] = Some(setup.run(&Case::draw(arguments.seed, index as u64)));
    });
    outcomes.into_iter().flatten().collect()
}
