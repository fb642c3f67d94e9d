//! The `sidereal` command: one file a verb.

mod bench;
mod common;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use common::Common;
use sidereal::{Error, Result};

/// From what a telescope records to what an astronomer looks for.
#[derive(Parser, Debug)]
#[command(name = "sidereal", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Measure this machine, beside roofs and baselines measured in the same run.
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidereal: {error}");
            ExitCode::from(if matches!(error, Error::Parameter { .. }) { 2 } else { 1 })
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.verb {
        Verb::Bench(bench) => bench::run(bench, &arguments.common),
    }
}
