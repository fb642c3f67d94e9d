//! Measured rows and their output: terminal, JSON document and CSV file.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::atomic;
use sidereal::{Error, Result};

use crate::session::{Document, Session};

/// Element of a benchmark's JSON document: the document is an array of them, each with its provenance.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only the schema is made of it")]
pub enum Line {
    Rate(Row),
    /// Line of an injection campaign.
    Campaign {
        bench: String,
        #[serde(flatten)]
        values: serde_json::Map<String, serde_json::Value>,
    },
}

/// Option for a short functional run.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Quick {
    /// On a GPU: few cases on small data, to test that everything works; the rates mean nothing.
    #[arg(long)]
    pub(crate) quick: bool,
}

/// Result of one measured case.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Row {
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

pub(crate) const HEADER: [&str; 9] =
    ["case", "device", "rate", "median", "roof", "of roof", "baseline", "ratio", "checked"];

impl Row {
    pub(crate) fn cells(&self) -> [String; 9] {
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
pub(crate) fn number(value: f64) -> String {
    let decimals = if value.abs() >= 100.0 { 0 } else { 2 - usize::from(value.abs() >= 10.0) };
    format!("{value:.decimals$}")
}

/// Output of measured rows: terminal, JSON document and CSV file.
pub(crate) struct Table<'a> {
    pub(crate) session: &'a Session<'a>,
    pub(crate) csv: Option<PathBuf>,
    pub(crate) rows: Vec<Row>,
    /// Whether each row is printed when it is added.
    pub(crate) shown: bool,
}

impl<'a> Table<'a> {
    /// Creates a table and prints the description `about` and the header.
    pub(crate) fn new(session: &'a Session<'a>, csv: Option<&Path>, about: &str) -> Result<Self> {
        let table = Self { shown: !session.json && !session.quiet, ..Self::hidden(session, csv) };
        if table.shown {
            table.print(about)?;
            table.print(&line(&HEADER.map(str::to_owned)))?;
        }
        Ok(table)
    }

    /// Creates a table for the JSON document and the CSV file only: the benchmark prints its own.
    pub(crate) fn hidden(session: &'a Session<'a>, csv: Option<&Path>) -> Self {
        Self { session, csv: csv.map(Path::to_owned), rows: Vec::new(), shown: false }
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
        self.session.caller.check_interrupt()
    }

    /// Ends the table: prints the JSON document and writes the CSV file.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when an output was wrong, because the rate of a wrong result means nothing.
    pub(crate) fn finish(self) -> Result<()> {
        if self.session.json {
            self.session.caller.print(&Document::Rows(self.rows.clone()))?;
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

    pub(crate) fn print(&self, text: &str) -> Result<()> {
        writeln!(std::io::stdout(), "{text}").map_err(|source| Error::io("standard output", source))
    }
}

pub(crate) fn line(cells: &[String; 9]) -> String {
    let [case, device, numbers @ ..] = cells;
    let numbers: String = numbers.iter().map(|cell| format!("{cell:>10}")).collect();
    format!("{case:<44}{device:<16}{numbers}")
}

pub(crate) fn write_csv(path: &Path, rows: &[Row]) -> Result<()> {
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
