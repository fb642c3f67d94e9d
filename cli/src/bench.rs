//! `bench`: measures this machine's rates beside roofs and baselines from the same run.

use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::pipeline::Ranks;
use sidereal::{Error, Result};
use sidereal_bench::{Caller, Document, Figure, LEAKAGE, SCALLOPING, Session};

use crate::common::Common;
use crate::interrupt::Exit;
use crate::output::{Contents, Existing, Files, Folder, Writing, WritingFiles};
use crate::plots::{Png, bench as figures};
use crate::provenance::Made;
use crate::{interrupt, json, ranks};

/// Measure the rates of this machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    bench: sidereal_bench::Arguments,
    /// Replace files and folders that exist.
    #[arg(long, global = true)]
    overwrite: bool,
}

impl Arguments {
    /// Returns the benchmark's name if it has no GPU kernels.
    pub(crate) fn cpu_only_name(&self) -> Option<&'static str> {
        self.bench.cpu_only_name()
    }

    /// Returns whether several processes measure together.
    pub(crate) fn is_divided(&self) -> bool {
        self.bench.is_divided()
    }
}

/// Extension of the JSON document beside a table: the table itself cannot hold provenance.
const BESIDE: &str = ".json";

/// Contents of the folder of `channelize --quality`.
const QUALITY: Contents = Contents {
    verb: "bench channelize --quality",
    documents: &[SCALLOPING, LEAKAGE],
    writes: |_, _| false,
};

/// Document beside a table.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TableDocument {
    /// Path of the table: CSV or Markdown.
    file: String,
}

/// Runs the requested benchmark. Renames its files to their final names at the end, also after an interruption
/// between two cases or after an error.
///
/// # Errors
/// [`Error::Unavailable`] if the process is not the `sidereal` program, because some benchmarks start the program of
/// their process again.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    if arguments.is_divided() {
        return ranks::run(
            common,
            |common, own| measure_exchange(own, common).map(Exit::from),
            |common, own| measure_exchange(Some(own), common),
        );
    }
    measure_alone(arguments, common).map(Exit::from)
}

/// Measures the exchange between ranks; rank 0 prints the rates.
fn measure_exchange(own: Option<Ranks>, common: &Common) -> Result<()> {
    let Some(own) = own else {
        let rule = "mpirun -n N starts the processes that exchange data";
        return Err(Error::parameter("--exchange", "one process", rule));
    };
    match sidereal_bench::measure_exchange(own)? {
        Some(rates) => common.print(&Document::One(rates)),
        None => Ok(()),
    }
}

fn measure_alone(arguments: &Arguments, common: &Common) -> Result<()> {
    // Another program needs arguments to call this command line.
    if common.program.as_ref().is_none_or(|program| !program.arguments.is_empty()) {
        let why =
            "it needs the program that `cargo install` makes, and Python runs this command line";
        return Err(Error::Unavailable { what: "bench".to_owned(), why: why.to_owned() });
    }
    let existing = Existing::new(arguments.overwrite);
    let writing = WritingFiles { option: "FILE", existing, inputs: &[], common };
    let mut bench = arguments.bench.clone();
    let mut outputs = Vec::new();
    for path in bench.outputs() {
        let is_picture = path.extension().is_some_and(|end| end == "png");
        let ends: &[&str] = if is_picture { &[] } else { &[BESIDE] };
        let files = Files::begin(path, ends, &writing)?;
        outputs.push((files, (!is_picture).then(|| path.display().to_string())));
        *path = outputs.last().map_or_else(PathBuf::new, |(files, _)| files.main());
    }
    let done = measure(&bench, existing, common);
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

fn measure(bench: &sidereal_bench::Arguments, existing: Existing, common: &Common) -> Result<()> {
    let session = Session {
        backend: common.backend()?,
        threads: common.threads,
        json: common.json,
        quiet: common.quiet,
        caller: common,
    };
    let draw = |path: &Path, figure: Figure<'_>| {
        figures::draw(&Png::new(path, &Made::new(common, &[])?), figure)
    };
    let Some(place) = bench.quality_folder() else { return bench.run(&session, &draw) };
    let folder =
        Folder::begin(place, &Writing { contents: QUALITY, existing, inputs: &[], common })?;
    let banks = sidereal_bench::measure_quality(&session)?;
    let backend = &session.backend;
    draw(&folder.file(SCALLOPING), Figure::Scalloping(&banks, backend))?;
    draw(&folder.file(LEAKAGE), Figure::Leakage(&banks, backend))?;
    folder.finish()?;
    sidereal_bench::check_quality(&banks)
}

/// Prints an array of documents.
fn print_all<T: Serialize>(made: &Made, documents: &[T]) -> Result<()> {
    let products = documents.iter().map(|document| made.product("bench", document));
    json::print(&products.collect::<Vec<_>>())
}

impl Caller for Common {
    fn print(&self, document: &Document) -> Result<()> {
        let made = Made::new(self, &[])?;
        match document {
            Document::Rows(rows) => print_all(&made, rows),
            Document::Lines(lines) => print_all(&made, lines),
            Document::Scores(scores) => print_all(&made, scores),
            Document::One(value) => json::print(&made.product("bench", value)),
        }
    }

    fn check_interrupt(&self) -> Result<()> {
        interrupt::check()
    }

    fn has_ranks(&self) -> bool {
        cfg!(feature = "mpi")
    }

    fn hold(&self, folder: &Path) -> Box<dyn std::any::Any> {
        Box::new(interrupt::Unfinished::new(folder.to_owned()))
    }
}
