//! `sidereal simulate`: what a telescope would have recorded.

mod array;
mod burst;
mod specs;
mod strain;
mod truth;
mod voltages;

use std::path::Path;

use clap::{Args, Subcommand};
use serde::Serialize;
use sidereal::Result;
use sidereal::io::atomic;

use crate::common::Common;
use crate::json;

/// Makes what a telescope would have recorded, with known signals in it.
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

/// Writes the truth file, and says what has been made.
fn conclude(
    truth_path: &Path,
    document: &impl Serialize,
    common: &Common,
    summary: impl FnOnce() -> String,
) -> Result<()> {
    atomic::write(truth_path, json::text(document)?.as_bytes())?;
    if common.json {
        return json::print(document);
    }
    if common.quiet {
        return Ok(());
    }
    json::say(&summary())?;
    json::say(&format!("what is in it: {}", truth_path.display()))
}
