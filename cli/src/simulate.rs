//! `sidereal simulate`: makes synthetic telescope data.

pub(crate) mod array;
mod burst;
mod product;
mod specs;
pub(crate) mod strain;
pub(crate) mod truth;
pub(crate) mod voltages;

use clap::{Args, Subcommand};
use sidereal::Result;

use crate::common::Common;
pub(crate) use product::{TRUTH, conclude, product};

/// Make synthetic recordings with known signals.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Array(Box<array::Arguments>),
    Burst(Box<burst::Arguments>),
    Strain(Box<strain::Arguments>),
    Voltages(Box<voltages::Arguments>),
}

pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    match &arguments.what {
        What::Array(arguments) => array::run(arguments, common),
        What::Burst(arguments) => burst::run(arguments, common),
        What::Strain(arguments) => strain::run(arguments, common),
        What::Voltages(arguments) => voltages::run(arguments, common),
    }
}
