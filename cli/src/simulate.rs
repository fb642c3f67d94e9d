//! `sidereal simulate`: makes synthetic telescope data.

pub(crate) mod array;
mod burst;
mod specs;
pub(crate) mod strain;
pub(crate) mod truth;
pub(crate) mod voltages;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use sidereal::Result;

use crate::common::Common;
use crate::output::Files;
use crate::provenance::{Product, Provenance, Run};
use crate::{interrupt, json};

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

/// Suffix that a truth file's name adds to the recording's.
pub(crate) const TRUTH: &str = ".truth.json";

/// Wraps the truth of a simulation with its provenance; `inputs` are the files that the simulation reads.
fn product<T>(name: &str, truth: T, inputs: &[PathBuf], common: &Common) -> Result<Product<T>> {
    Ok(Product::new(name, truth, Provenance::new(common, inputs)?, Run::new(common)))
}

/// Writes the truth file, renames all files to their final names, and reports the output.
fn conclude(
    files: Files,
    product: &impl Serialize,
    common: &Common,
    summary: impl FnOnce() -> String,
) -> Result<()> {
    json::write(&files.beside(TRUTH), product)?;
    let truth_path = files.place_beside(TRUTH);
    interrupt::check()?;
    files.finish()?;
    if common.json {
        return json::print(product);
    }
    if common.quiet {
        return Ok(());
    }
    json::say(&summary())?;
    json::say(&format!("what is in it: {}", truth_path.display()))
}
