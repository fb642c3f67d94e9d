//! `sidereal simulate`: makes synthetic telescope data.

pub(crate) mod array;
pub(crate) mod burst;
mod product;
mod recording;
pub(crate) mod strain;
pub(crate) mod voltages;

use clap::{Args, Subcommand};
use sidereal::Result;

pub(crate) use self::product::TRUTH;
use crate::common::Common;

/// Make synthetic recordings with known signals.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Array(Box<array::Arguments>),
    Burst(Box<burst::Arguments>),
    Strain(Box<strain::Arguments>),
    Voltages(Box<voltages::Arguments>),
}

pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    match &arguments.command {
        Command::Array(arguments) => array::run(arguments, common),
        Command::Burst(arguments) => burst::run(arguments, common),
        Command::Strain(arguments) => strain::run(arguments, common),
        Command::Voltages(arguments) => voltages::run(arguments, common),
    }
}
