//! Benchmarks of sidereal's stages beside roofs and peers from the same run, and campaigns that search for injected
//! signals.

#![allow(missing_docs, reason = "the command line is the only user")]

mod chains;
mod channelize;
mod correlate;
mod dedisperse;
mod device;
mod gpu;
mod gpus;
mod injections;
#[cfg(target_os = "linux")]
mod latency;
#[cfg(target_os = "linux")]
mod live;
#[cfg(target_os = "linux")]
mod live_dump;
#[cfg(target_os = "linux")]
mod live_sender;
#[cfg(target_os = "linux")]
mod live_spiir;
#[cfg(target_os = "linux")]
mod loopback;
mod peers;
mod plane;
mod pulse;
mod quality;
mod random;
mod recovery;
mod rows;
mod runner;
mod spiir;
mod telescopes;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sidereal::Result;
use sidereal::backend::Backend;

pub use chains::scale::measure_exchange;
pub use injections::{
    Outcome as Injected, Pair as InjectedPair, Recovered as RecoveredPair, recovered,
};
pub use plane::Sums;
pub use quality::{
    Bank, CENTRE, CHANNELS, LEAKAGE, SCALLOPING, check as check_quality,
    measure_all as measure_quality, powers_db,
};
pub use recovery::{BANDS, Band, Outcome as Recovered, SNRS, WIDTHS_S};
pub use runner::{Caller, Document, Line, Row, Score, Session};
pub use spiir::{Curve, bank as spiir_bank};

/// Data of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Figure<'a> {
    /// DM-time plane and its differences from float64 sums.
    Plane(&'a Sums),
    /// Recovered against injected values of binaries.
    Injections(&'a [Injected]),
    /// Recovered against injected values of bursts.
    Recovery(&'a [Recovered]),
    /// Templates in real time against latency.
    Latency(&'a [Curve]),
    /// Power of a tone that moves over three channels.
    Scalloping(&'a [Bank], &'a Backend),
    /// Power of a tone between two channels over the whole band.
    Leakage(&'a [Bank], &'a Backend),
}

/// Arguments of `bench`.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    Chains(chains::Arguments),
    Scale(chains::scale::Arguments),
    Channelize(channelize::Arguments),
    Correlate(correlate::Arguments),
    /// Measure dedispersion: additions per second for several channel counts, bit depths and bands.
    Dedisperse(dedisperse::Arguments),
    Device(device::Arguments),
    Gpus(gpus::Arguments),
    #[cfg(target_os = "linux")]
    Latency(latency::Arguments),
    #[cfg(target_os = "linux")]
    Live(live::Arguments),
    #[cfg(target_os = "linux")]
    LiveSpiir(live_spiir::Arguments),
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
            #[cfg(target_os = "linux")]
            Command::Live(_) => Some("bench live"),
            _ => None,
        }
    }

    /// Returns whether the processes that mpirun starts measure together, in [`measure_exchange`].
    pub fn is_divided(&self) -> bool {
        matches!(&self.command, Command::Scale(arguments) if arguments.is_exchange())
    }

    /// Returns the paths of the output files.
    pub fn outputs(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let (one, other) = match &mut self.command {
            Command::Chains(one) => (&mut one.csv, None),
            Command::Scale(one) => (&mut one.csv, None),
            Command::Channelize(one) => (&mut one.csv, None),
            Command::Correlate(one) => (&mut one.csv, None),
            Command::Dedisperse(one) => (&mut one.csv, None),
            Command::Device(one) => (&mut one.csv, None),
            Command::Gpus(one) => (&mut one.csv, None),
            #[cfg(target_os = "linux")]
            Command::Latency(one) => (&mut one.markdown, None),
            #[cfg(target_os = "linux")]
            Command::Live(one) => (&mut one.csv, None),
            #[cfg(target_os = "linux")]
            Command::LiveSpiir(one) => (&mut one.markdown, None),
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

    /// Runs the benchmark; `draw` draws a figure into a file.
    ///
    /// # Errors
    /// Those of the measured stages and of `draw`; [`sidereal::Error::Unavailable`] when an output was wrong.
    pub fn run(
        &self,
        session: &Session<'_>,
        draw: &dyn Fn(&Path, Figure<'_>) -> Result<()>,
    ) -> Result<()> {
        let draw = |plot: &Option<PathBuf>, figure| match plot {
            Some(path) => draw(path, figure),
            None => Ok(()),
        };
        match &self.command {
            Command::Chains(arguments) => chains::run(arguments, session),
            Command::Scale(arguments) => chains::scale::run(arguments, session),
            Command::Channelize(arguments) => channelize::run(arguments, session),
            Command::Correlate(arguments) => correlate::run(arguments, session),
            Command::Dedisperse(arguments) => dedisperse::run(arguments, session),
            Command::Device(arguments) => device::run(arguments, session),
            Command::Gpus(arguments) => gpus::run(arguments, session),
            #[cfg(target_os = "linux")]
            Command::Latency(arguments) => latency::run(arguments, session),
            #[cfg(target_os = "linux")]
            Command::Live(arguments) => live::run(arguments, session),
            #[cfg(target_os = "linux")]
            Command::LiveSpiir(arguments) => live_spiir::run(arguments, session),
            Command::Pulse(arguments) => pulse::run(arguments, session),
            Command::Telescopes(arguments) => telescopes::run(arguments, session),
            Command::Recovery(arguments) => {
                let outcomes = recovery::run(arguments, session)?;
                draw(&arguments.plot, Figure::Recovery(&outcomes))
            }
            Command::Injections(arguments) => {
                let outcomes = injections::run(arguments, session)?;
                draw(&arguments.plot, Figure::Injections(&outcomes))
            }
            Command::Plane(arguments) => {
                let sums = plane::run(session)?;
                draw(&arguments.plot, Figure::Plane(&sums))?;
                plane::check(&sums)
            }
            Command::Spiir(arguments) => {
                let mut curves = Vec::new();
                let done = spiir::run(arguments, session, &mut curves);
                if !curves.is_empty() {
                    draw(&arguments.plot, Figure::Latency(&curves))?;
                }
                done
            }
        }
    }
}
