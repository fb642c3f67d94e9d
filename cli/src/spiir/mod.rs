//! `sidereal spiir`: filter banks for gravitational waves, their signal-to-noise ratios, and events.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod announce;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod background;
mod bank;
mod filter;
pub(crate) mod inputs;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod live;
mod search;
mod templates;

use clap::{Args, Subcommand};
use sidereal::Result;

use crate::common::Common;
use crate::interrupt::Exit;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use announce::Alert;
pub(crate) use bank::Document as BankDocument;
pub(crate) use filter::Document as FilterDocument;
#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
pub(crate) use live::{
    AROUND_S, AroundEvent, DetectorView, EventState, SpectrumLine, StrainView, TrackLine, Viewer,
};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use live::{
    Document as LiveDocument, EventLine, GapLine, LiveArguments, run as run_live,
};
pub(crate) use search::{
    Arguments as SearchArguments, Document as SearchDocument, run_into, writes,
};

/// Search strain for compact binaries with summed parallel infinite impulse response filters.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Bank(Box<bank::Arguments>),
    Filter(Box<filter::Arguments>),
    Search(Box<search::Arguments>),
}

impl Arguments {
    /// Returns the verb's name if it has no GPU kernels.
    pub(crate) fn cpu_only_name(&self) -> Option<&'static str> {
        match self.command {
            Command::Bank(_) => Some("spiir bank"),
            Command::Filter(_) | Command::Search(_) => None,
        }
    }

    /// Returns whether several processes can divide the work.
    pub(crate) fn is_divided(&self) -> bool {
        matches!(self.command, Command::Search(_))
    }
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    match &arguments.command {
        Command::Bank(arguments) => bank::run(arguments, common).map(Exit::from),
        Command::Filter(arguments) => filter::run(arguments, common),
        Command::Search(arguments) => search::run(arguments, common),
    }
}
