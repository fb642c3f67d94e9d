//! `sidereal bench`: the tables of the papers, this machine beside them.

mod plane;
mod pulse;
mod recovery;
mod telescopes;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use sidereal::io::atomic;
use sidereal::{Error, Result};

use crate::common::Common;

/// Measure this machine against its own roofs, plain code and published figures.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand, Debug)]
enum Bench {
    Pulse(pulse::Arguments),
    Telescopes(telescopes::Arguments),
    Recovery(recovery::Arguments),
    Plane(plane::Arguments),
}

pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    match &arguments.bench {
        Bench::Pulse(arguments) => pulse::run(arguments, common),
        Bench::Telescopes(arguments) => telescopes::run(arguments, common),
        Bench::Recovery(arguments) => recovery::run(arguments, common),
        Bench::Plane(arguments) => plane::run(arguments, common),
    }
}

/// One measurement; the keys of the JSON document and the columns of the CSV file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Which bench.
    pub(crate) bench: &'static str,
    /// Its case.
    pub(crate) case: String,
    /// What ran it.
    pub(crate) device: String,
    /// What was measured, in `unit`.
    pub(crate) rate: f64,
    pub(crate) unit: &'static str,
    /// What the machine could do at best, measured in the same run.
    pub(crate) roof: f64,
    pub(crate) roof_unit: &'static str,
    pub(crate) fraction_of_roof: f64,
    /// Plain or published code for the same work.
    pub(crate) baseline: f64,
    pub(crate) ratio_to_baseline: f64,
    /// Whether the output was compared with the truth, and equal.
    pub(crate) checked: bool,
}

/// Where a bench's rows go besides the terminal.
#[derive(Args, Clone, Debug)]
pub(crate) struct Output {
    /// Also write the rows as a CSV file.
    #[arg(long, value_name = "FILE.csv")]
    csv: Option<PathBuf>,
}

impl Output {
    /// The table on the terminal unless JSON is asked for, then as [`Output::write`].
    pub(crate) fn finish(&self, rows: &[Row], common: &Common) -> Result<()> {
        if !common.json {
            print_table(rows);
        }
        self.write(rows, common)
    }

    /// Writes the CSV file, and prints the JSON document, where asked for.
    #[allow(clippy::print_stdout)]
    pub(crate) fn write(&self, rows: &[Row], common: &Common) -> Result<()> {
        if let Some(path) = &self.csv {
            write_csv(path, rows)?;
        }
        if common.json {
            let text = serde_json::to_string_pretty(rows)
                .map_err(|error| Error::format("-", "JSON", 0, error.to_string()))?;
            println!("{text}");
        }
        match rows.iter().find(|row| !row.checked) {
            Some(row) => {
                let what = format!("{} {}", row.bench, row.case);
                Err(Error::Unavailable { what, why: "its output was not the expected one".into() })
            }
            None => Ok(()),
        }
    }
}

/// A table of every row: its rate, and what that is of the roof and of the baseline.
#[allow(clippy::print_stdout)]
fn print_table(rows: &[Row]) {
    let width = rows.iter().map(|row| row.case.chars().count()).max().unwrap_or(0).max(4);
    let device = rows.iter().map(|row| row.device.len()).max().unwrap_or(0).max(6);
    println!(
        "{:<width$}  {:<device$}  {:>11}  {:>8}  {:>11}  {}",
        "case", "device", "rate", "of roof", "to baseline", "checked"
    );
    for row in rows {
        println!(
            "{:<width$}  {:<device$}  {:>11.3e}  {:>8.2}  {:>11.2}  {}",
            row.case,
            row.device,
            row.rate,
            row.fraction_of_roof,
            row.ratio_to_baseline,
            if row.checked { "yes" } else { "NO" }
        );
    }
    if let Some(row) = rows.first() {
        println!("rate in {}; roof in {}", row.unit, row.roof_unit);
    }
}

fn write_csv(path: &Path, rows: &[Row]) -> Result<()> {
    let mut text = String::from(
        "bench,case,device,rate,unit,roof,roof_unit,fraction_of_roof,baseline,ratio_to_baseline,\
         checked\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{},\"{}\",\"{}\",{:.6e},{},{:.6e},{},{:.4},{:.6e},{:.4},{}",
            row.bench,
            row.case,
            row.device,
            row.rate,
            row.unit,
            row.roof,
            row.roof_unit,
            row.fraction_of_roof,
            row.baseline,
            row.ratio_to_baseline,
            row.checked
        );
    }
    atomic::write(path, text.as_bytes())
}
