//! Benchmarks of sidereal's stages beside roofs and peers from the same run, and campaigns that search for injected
//! signals.

#![allow(missing_docs, reason = "the command line is the only user")]

mod channelize;
mod correlate;
mod dedisperse;
mod gpu;
mod injections;
mod plane;
mod pulse;
mod quality;
mod recovery;
mod session;
mod spiir;
mod table;
mod telescopes;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sidereal::Result;

pub use injections::{
    Outcome as Injected, Pair as InjectedPair, Recovered as RecoveredPair, recovered,
};
pub use plane::Sums;
pub use quality::{
    Bank, CENTRE, CHANNELS, LEAKAGE, SCALLOPING, check as check_quality,
    measure_all as measure_quality, powers_db,
};
pub use recovery::{BANDS, Band, Outcome as Recovered, SNRS, Scored, WIDTHS_S};
pub use session::{Caller, Curve, Document, Figure, Session};
pub use spiir::bank as spiir_bank;
pub use table::{Line, Row};

/// Arguments of `bench`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    Channelize(channelize::Arguments),
    Correlate(correlate::Arguments),
    /// Measure dedispersion: additions per second for several channel counts, bit depths and bands.
    Dedisperse(dedisperse::Arguments),
    Device(gpu::device::Arguments),
    Pulse(pulse::Arguments),
    Telescopes(telescopes::Arguments),
    Recovery(recovery::Arguments),
    Injections(injections::Arguments),
    Plane(plane::Arguments),
    Spiir(spiir::Arguments),
}

impl Arguments {
    /// Returns the benchmark's name if it has no GPU kernels.
    pub fn cpu_only_name(&self) -> Option<&'static str> {
        match &self.command {
            Command::Correlate(arguments) => arguments.cpu_only_name(),
            Command::Recovery(_) => Some("bench recovery"),
            Command::Injections(_) => Some("bench injections"),
            _ => None,
        }
    }

    /// Returns the paths of the output files.
    pub fn outputs(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let (one, other) = match &mut self.command {
            Command::Channelize(one) => (&mut one.csv, None),
            Command::Correlate(one) => (&mut one.csv, None),
            Command::Dedisperse(one) => (&mut one.csv, None),
            Command::Device(one) => (&mut one.csv, None),
            Command::Pulse(one) => (&mut one.csv, None),
            Command::Telescopes(one) => (&mut one.csv, None),
            Command::Recovery(one) => (&mut one.markdown, one.plot.as_mut()),
            Command::Injections(one) => (&mut one.markdown, one.plot.as_mut()),
            Command::Plane(one) => (&mut one.plot, None),
            Command::Spiir(one) => (&mut one.csv, one.plot.as_mut()),
        };
        one.iter_mut().chain(other)
    }

    /// Returns the folder of figures of `channelize --quality`, which [`measure_quality`] and not [`Arguments::run`]
    /// measures.
    pub fn quality_folder(&self) -> Option<&PathBuf> {
        match &self.command {
            Command::Channelize(arguments) => arguments.quality.then_some(&arguments.output),
            _ => None,
        }
    }

    /// Runs the benchmark.
    ///
    /// # Errors
    /// Those of the measured stages; [`sidereal::Error::Unavailable`] when an output was wrong.
    pub fn run(&self, session: &Session<'_>) -> Result<()> {
        match &self.command {
            Command::Channelize(arguments) => channelize::run(arguments, session),
            Command::Correlate(arguments) => correlate::run(arguments, session),
            Command::Dedisperse(arguments) => dedisperse::run(arguments, session),
            Command::Device(arguments) => gpu::device::run(arguments, session),
            Command::Pulse(arguments) => pulse::run(arguments, session),
            Command::Telescopes(arguments) => telescopes::run(arguments, session),
            Command::Recovery(arguments) => recovery::run(arguments, session),
            Command::Injections(arguments) => injections::run(arguments, session),
            Command::Plane(arguments) => plane::run(arguments, session),
            Command::Spiir(arguments) => spiir::run(arguments, session),
        }
    }
}
