//! `bench`: measures this machine's rates beside roofs and baselines from the same run.

mod channelize;
mod correlate;
mod dedisperse;
mod gpu;
mod injections;
mod plane;
mod pulse;
mod quality;
mod recovery;
mod spiir;
mod table;
mod telescopes;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::Result;

use crate::common::Common;
use crate::json;
use crate::output::{Existing, Files, WritingFiles};
use crate::provenance::Made;
pub(crate) use spiir::bank as spiir_bank;
pub(crate) use table::Quick;
pub(crate) use table::{Line, Row, Table, best_and_median, print};

/// Measure the rates of this machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Replace files and folders that exist.
    #[arg(long, global = true)]
    overwrite: bool,
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
    pub(crate) fn cpu_only_name(&self) -> Option<&'static str> {
        match &self.command {
            Command::Correlate(arguments) => arguments.cpu_only_name(),
            Command::Recovery(_) => Some("bench recovery"),
            Command::Injections(_) => Some("bench injections"),
            Command::Device(_) => None,
            Command::Channelize(_)
            | Command::Dedisperse(_)
            | Command::Pulse(_)
            | Command::Spiir(_)
            | Command::Telescopes(_)
            | Command::Plane(_) => None,
        }
    }
}

impl Command {
    /// Returns the paths of the output files.
    fn outputs(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let (one, other) = match self {
            Self::Channelize(one) => (&mut one.csv, None),
            Self::Correlate(one) => (&mut one.csv, None),
            Self::Dedisperse(one) => (&mut one.csv, None),
            Self::Device(one) => (&mut one.csv, None),
            Self::Pulse(one) => (&mut one.csv, None),
            Self::Telescopes(one) => (&mut one.csv, None),
            Self::Recovery(one) => (&mut one.markdown, one.plot.as_mut()),
            Self::Injections(one) => (&mut one.markdown, one.plot.as_mut()),
            Self::Plane(one) => (&mut one.plot, None),
            Self::Spiir(one) => (&mut one.csv, one.plot.as_mut()),
        };
        one.iter_mut().chain(other)
    }
}

/// Runs the requested benchmark. Renames its files to their final names at the end, also after an interruption
/// between two cases or after an error.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let existing = Existing::new(arguments.overwrite);
    let writing = WritingFiles { option: "FILE", existing, inputs: &[], common };
    let mut command = arguments.command.clone();
    let mut outputs = Vec::new();
    for path in command.outputs() {
        let is_picture = path.extension().is_some_and(|end| end == "png");
        let ends: &[&str] = if is_picture { &[] } else { &[BESIDE] };
        let files = Files::begin(path, ends, &writing)?;
        outputs.push((files, (!is_picture).then(|| path.display().to_string())));
        *path = outputs.last().map_or_else(PathBuf::new, |(files, _)| files.main());
    }
    let done = measure(&command, existing, common);
    let finish = |(files, table): (Files, Option<String>)| {
        if let Some(file) = table {
            let made = Made::new(common, &[])?;
            json::write(
                &files.beside(BESIDE),
                &made.product("bench-table", TableDocument { file }),
            )?;
        }
        files.finish()
    };
    let written = outputs.into_iter().filter(|(files, _)| files.main().exists());
    done.and(written.map(finish).fold(Ok(()), Result::and))
}

/// Extension of the JSON document beside a table: the table itself cannot hold provenance.
const BESIDE: &str = ".json";

/// Document beside a table.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TableDocument {
    /// Path of the table: CSV or Markdown.
    file: String,
}

fn measure(command: &Command, existing: Existing, common: &Common) -> Result<()> {
    match command {
        Command::Channelize(arguments) => channelize::run(arguments, existing, common),
        Command::Correlate(arguments) => correlate::run(arguments, common),
        Command::Dedisperse(arguments) => dedisperse::run(arguments, common),
        Command::Device(arguments) => gpu::device::run(arguments, common),
        Command::Pulse(arguments) => pulse::run(arguments, common),
        Command::Telescopes(arguments) => telescopes::run(arguments, common),
        Command::Recovery(arguments) => recovery::run(arguments, common),
        Command::Injections(arguments) => injections::run(arguments, common),
        Command::Plane(arguments) => plane::run(arguments, common),
        Command::Spiir(arguments) => spiir::run(arguments, common),
    }
}
