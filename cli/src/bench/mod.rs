//! `bench`: measures this machine's rates beside roofs and baselines from the same run.

mod channelize;
mod correlate;
mod dedisperse;
#[cfg(feature = "cuda")]
mod gpu;
mod injections;
mod plane;
mod pulse;
mod quality;
mod recovery;
mod spiir;
mod telescopes;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::atomic;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::output::{Existing, Files, WritingFiles};
use crate::provenance::Made;
use crate::{interrupt, json};
#[cfg(feature = "cuda")]
pub(crate) use spiir::bank as spiir_bank;

/// Measure the rates of this machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Replace files and folders that exist.
    #[arg(long, global = true)]
    overwrite: bool,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    Channelize(channelize::Arguments),
    Correlate(correlate::Arguments),
    /// Measure dedispersion: additions per second for several channel counts, bit depths and bands.
    Dedisperse(dedisperse::Arguments),
    #[cfg(feature = "cuda")]
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
    pub(crate) fn of_the_host(&self) -> Option<&'static str> {
        match &self.what {
            What::Correlate(arguments) => arguments.of_the_host(),
            What::Recovery(_) => Some("bench recovery"),
            What::Injections(_) => Some("bench injections"),
            #[cfg(feature = "cuda")]
            What::Device(_) => None,
            What::Channelize(_)
            | What::Dedisperse(_)
            | What::Pulse(_)
            | What::Spiir(_)
            | What::Telescopes(_)
            | What::Plane(_) => None,
        }
    }
}

impl What {
    /// Returns the paths of the output files.
    fn outputs(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let (one, other) = match self {
            Self::Channelize(one) => (&mut one.csv, None),
            Self::Correlate(one) => (&mut one.csv, None),
            Self::Dedisperse(one) => (&mut one.csv, None),
            #[cfg(feature = "cuda")]
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
    let mut what = arguments.what.clone();
    let mut outputs = Vec::new();
    for place in what.outputs() {
        let is_picture = place.extension().is_some_and(|end| end == "png");
        let ends: &[&str] = if is_picture { &[] } else { &[BESIDE] };
        let files = Files::begin(place, ends, &writing)?;
        outputs.push((files, (!is_picture).then(|| place.display().to_string())));
        *place = outputs.last().map_or_else(PathBuf::new, |(files, _)| files.main());
    }
    let done = measure(&what, existing, common);
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

/// Element of a benchmark's JSON document: the document is an array of them, each with its provenance.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only the schema is made of it")]
pub(crate) enum Line {
    Rate(Row),
    /// Line of an injection campaign.
    Campaign {
        bench: String,
        #[serde(flatten)]
        values: serde_json::Map<String, serde_json::Value>,
    },
}

/// Prints the JSON document.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn print<T: Serialize + Clone>(lines: &[T], common: &Common) -> Result<()> {
    let made = Made::new(common, &[])?;
    let lines: Vec<_> = lines.iter().map(|line| made.product("bench", line.clone())).collect();
    json::print(&lines)
}

fn measure(what: &What, existing: Existing, common: &Common) -> Result<()> {
    match what {
        What::Channelize(arguments) => channelize::run(arguments, existing, common),
        What::Correlate(arguments) => correlate::run(arguments, common),
        What::Dedisperse(arguments) => dedisperse::run(arguments, common),
        #[cfg(feature = "cuda")]
        What::Device(arguments) => gpu::device::run(arguments, common),
        What::Pulse(arguments) => pulse::run(arguments, common),
        What::Telescopes(arguments) => telescopes::run(arguments, common),
        What::Recovery(arguments) => recovery::run(arguments, common),
        What::Injections(arguments) => injections::run(arguments, common),
        What::Plane(arguments) => plane::run(arguments, common),
        What::Spiir(arguments) => spiir::run(arguments, common),
    }
}

/// Option for a short functional run.
#[cfg(feature = "cuda")]
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Quick {
    /// On a GPU: few cases on small data, to test that everything works; the rates mean nothing.
    #[arg(long)]
    quick: bool,
}

/// Result of one measured case.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Row {
    /// Name of the benchmark, for example `dedisperse`.
    pub(crate) bench: &'static str,
    pub(crate) case: String,
    /// Name of the backend.
    pub(crate) device: String,
    /// Best rate of all runs.
    pub(crate) rate: f64,
    pub(crate) unit: &'static str,
    /// Roof, measured between the runs.
    pub(crate) roof: f64,
    pub(crate) roof_unit: &'static str,
    pub(crate) fraction_of_roof: f64,
    /// Baseline, measured between the runs, in the unit of the rate.
    pub(crate) baseline: f64,
    pub(crate) ratio_to_baseline: f64,
    /// Whether the outputs equal the baseline's.
    pub(crate) checked: bool,
    /// Median rate of all runs.
    #[serde(skip)]
    pub(crate) median: f64,
}

const HEADER: [&str; 9] =
    ["case", "device", "rate", "median", "roof", "of roof", "baseline", "ratio", "checked"];

impl Row {
    fn cells(&self) -> [String; 9] {
        [
            self.case.clone(),
            self.device.clone(),
            number(self.rate),
            number(self.median),
            number(self.roof),
            format!("{:.2}", self.fraction_of_roof),
            number(self.baseline),
            format!("{:.1}", self.ratio_to_baseline),
            if self.checked { "yes" } else { "NO" }.to_owned(),
        ]
    }
}

/// Formats a value with about three digits.
fn number(value: f64) -> String {
    let decimals = if value.abs() >= 100.0 { 0 } else { 2 - usize::from(value.abs() >= 10.0) };
    format!("{value:.decimals$}")
}

/// Output of measured rows: terminal, JSON document and CSV file.
pub(crate) struct Table<'a> {
    common: &'a Common,
    csv: Option<PathBuf>,
    rows: Vec<Row>,
    /// Whether each row is printed when it is added.
    shown: bool,
}

impl<'a> Table<'a> {
    /// Creates a table and prints the description `about` and the header.
    pub(crate) fn new(common: &'a Common, csv: Option<&Path>, about: &str) -> Result<Self> {
        let table = Self { shown: !common.json && !common.quiet, ..Self::hidden(common, csv) };
        if table.shown {
            table.print(about)?;
            table.print(&line(&HEADER.map(str::to_owned)))?;
        }
        Ok(table)
    }

    /// Creates a table for the JSON document and the CSV file only: the benchmark prints its own.
    pub(crate) fn hidden(common: &'a Common, csv: Option<&Path>) -> Self {
        Self { common, csv: csv.map(Path::to_owned), rows: Vec::new(), shown: false }
    }

    /// Adds a case, prints it and writes it at once: a table takes minutes and may be interrupted.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::stopped`] when the user asked to stop.
    pub(crate) fn push(&mut self, row: Row) -> Result<()> {
        if self.shown {
            self.print(&line(&row.cells()))?;
        }
        self.rows.push(row);
        if let Some(path) = &self.csv {
            write_csv(path, &self.rows)?;
        }
        interrupt::check()
    }

    /// Ends the table: prints the JSON document and writes the CSV file.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when an output was wrong, because the rate of a wrong result means nothing.
    pub(crate) fn finish(self) -> Result<()> {
        if self.common.json {
            print(&self.rows, self.common)?;
        }
        if let Some(path) = &self.csv {
            write_csv(path, &self.rows)?;
        }
        match self.rows.iter().find(|row| !row.checked) {
            None => Ok(()),
            Some(row) => Err(Error::Unavailable {
                what: format!("the rate of {}", row.case),
                why: "its output differs from the plain loop's".to_owned(),
            }),
        }
    }

    fn print(&self, text: &str) -> Result<()> {
        writeln!(std::io::stdout(), "{text}").map_err(|source| Error::io("standard output", source))
    }
}

fn line(cells: &[String; 9]) -> String {
    let [case, device, numbers @ ..] = cells;
    let numbers: String = numbers.iter().map(|cell| format!("{cell:>10}")).collect();
    format!("{case:<44}{device:<16}{numbers}")
}

fn write_csv(path: &Path, rows: &[Row]) -> Result<()> {
    let mut text = String::from(
        "bench,case,device,rate,unit,roof,roof_unit,fraction_of_roof,baseline,ratio_to_baseline,\
         checked,median\n",
    );
    for row in rows {
        let numbers = [row.fraction_of_roof, row.baseline, row.ratio_to_baseline];
        let numbers = numbers.map(|x| format!("{x:.4}")).join(",");
        text += &format!(
            "{},\"{}\",{},{:.4},{},{:.4},{},{numbers},{},{:.4}\n",
            row.bench,
            row.case,
            row.device,
            row.rate,
            row.unit,
            row.roof,
            row.roof_unit,
            row.checked,
            row.median
        );
    }
    atomic::write(path, text.as_bytes())
}

/// Returns the best and the median of the rates.
pub(crate) fn best_and_median(rates: &mut [f64]) -> (f64, f64) {
    rates.sort_by(f64::total_cmp);
    let best = rates.last().copied().unwrap_or(0.0);
    (best, rates.get(rates.len() / 2).copied().unwrap_or(0.0))
}
