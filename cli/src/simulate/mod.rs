//! `sidereal simulate`: makes synthetic telescope data.

pub(crate) mod array;
pub(crate) mod burst;
mod recording;
pub(crate) mod strain;
pub(crate) mod voltages;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use sidereal::Result;

use crate::common::Common;
use crate::output::{Existing, Files, WritingFiles};
use crate::provenance::{Product, Provenance, Run};
use crate::{interrupt, json};

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

/// Options of the files to write.
#[derive(Args, Clone, Debug)]
#[group(skip)]
struct Output {
    /// File to write.
    #[arg(value_name = "OUT", required_unless_present = "output")]
    out: Option<PathBuf>,
    /// Same as OUT.
    #[arg(short, long, value_name = "OUT", conflicts_with = "out")]
    output: Option<PathBuf>,
    /// Replace OUT and its truth file if they exist.
    #[arg(long)]
    overwrite: bool,
}

impl Output {
    fn path(&self) -> &Path {
        self.out.as_deref().or(self.output.as_deref()).unwrap_or(Path::new(""))
    }

    /// Begins OUT and its truth file.
    fn begin(&self, common: &Common) -> Result<Files> {
        let existing = Existing::new(self.overwrite);
        let writing = WritingFiles { option: "OUT", existing, inputs: &[], common };
        Files::begin(self.path(), &[TRUTH], &writing)
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

/// Formats counts with their singular or plural names; omits zeros.
fn list(counts: &[(usize, &str, &str)]) -> String {
    let mut parts = Vec::new();
    for (number, one, several) in counts.iter().filter(|(number, ..)| *number > 0) {
        parts.push(format!("{number} {}", if *number == 1 { one } else { several }));
    }
    if parts.is_empty() { "noise alone".to_owned() } else { parts.join(", ") }
}
