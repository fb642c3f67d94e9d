//! `sidereal simulate`: what a telescope would have recorded.

mod burst;
mod specs;
mod truth;
mod voltages;

use clap::{Args, Subcommand};
use sidereal::Result;

use crate::common::Common;

/// Makes what a telescope would have recorded, with known bursts in it.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Burst(Box<burst::Arguments>),
    Voltages(Box<voltages::Arguments>),
}

pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    match &arguments.what {
        What::Burst(arguments) => burst::run(arguments, common),
        What::Voltages(arguments) => voltages::run(arguments, common),
    }
}
