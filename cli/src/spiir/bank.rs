//! `sidereal spiir bank`: makes filters from templates.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::templates::open;
use sidereal::pipeline::cbc::{design, write_bank};
use sidereal::spiir::bank::{self, Bank, BankTemplate};
use sidereal::{Error, Result};

use super::inputs::{spectrum, spectrum_file};
use super::templates::{self, Design, Placement};
use crate::common::Common;
use crate::json;
use crate::output::{Existing, Files, WritingFiles};
use crate::plots::{plural, short};
use crate::provenance::{self, Product, Provenance, Run};

/// Make a bank of filters from templates, for noise of one power spectrum.
///
/// Templates are series in HDF5 (plus and cross, or complex), or masses and aligned spins in CSV, LIGO_LW
/// (sngl_inspiral, .xml or .xml.gz) or a PyCBC bank; for masses the program generates waveforms (--approximant).
/// Prints for each template its filters, their number at each rate, their match with the template, and the horizon
/// distance.
///
/// Without a template file, --masses places the templates: random binaries are proposed until nearly all match a
/// template. BANK.csv then lists the masses and spins.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("waves").args(["templates", "masses"]).required(true))]
#[command(after_help = "Examples:\n  \
    sidereal spiir bank masses.csv -o bank.h5 --psd aligo --f-low 30\n  \
    sidereal spiir bank template.hdf5 -o bank.h5 --psd H1_asd.txt --match 0.98 --json\n  \
    sidereal spiir bank --masses 10:60 --spins=-0.9:0.9 --min-match 0.97 -o bank.h5")]
pub(crate) struct Arguments {
    /// Template file.
    #[arg(value_name = "TEMPLATES")]
    templates: Option<PathBuf>,
    /// File to write.
    #[arg(short, long, value_name = "BANK", help_heading = "Output")]
    output: PathBuf,
    /// Replace BANK if it exists.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
    /// Power spectrum: aligo (Advanced LIGO's design) or a file.
    ///
    /// The file is text with two columns, Hz and strain^2/Hz (strain/sqrt(Hz) if the name contains asd), or .npy.
    #[arg(long, value_name = "PSD", default_value = "aligo", help_heading = "Noise")]
    psd: String,
    /// Sampling rate of the strain, in Hz.
    #[arg(long, value_name = "HZ", default_value_t = 4096, help_heading = "Noise")]
    rate: u32,
    /// Detector that the spectrum belongs to, such as H1; unspecified by default.
    #[arg(long, value_name = "NAME", default_value = "", help_heading = "Noise")]
    detector: String,
    #[command(flatten)]
    placement: Placement,
    #[command(flatten)]
    design: Design,
}

/// Suffix of the name of the list of placed templates.
const CSV: &str = ".csv";

/// Most templates listed on the terminal.
const LISTED: usize = 50;

/// Summary of one template.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Row {
    name: String,
    filters: usize,
    effective_filters: f64,
    /// Number of filters at each rate.
    rates: Vec<Rate>,
    #[serde(rename = "match")]
    fit: f64,
    epsilon: f64,
    horizon_mpc: f64,
    sigma_1mpc: f64,
    duration_s: f64,
    f_low_hz: f64,
    f_final_hz: f64,
    /// Waveform approximant, if the waveform was generated from masses.
    #[serde(skip_serializing_if = "Option::is_none")]
    approximant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mass1_msun: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mass2_msun: Option<f64>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Rate {
    rate_hz: u32,
    filters: usize,
}

/// Summary of a bank.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    file: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    detector: String,
    rate_hz: u32,
    latency_s: f64,
    filters: usize,
    /// Report on the placement of the templates, if they were placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    placement: Option<templates::Report>,
    templates: Vec<Row>,
    #[serde(flatten)]
    missed: Missed,
}

impl Document {
    /// Summarizes a bank.
    ///
    /// # Errors
    /// As [`Bank::plan`].
    pub(crate) fn new(file: &Path, bank: &Bank, detector: &str) -> Result<Self> {
        let plan = bank.plan()?;
        Ok(Self {
            file: file.display().to_string(),
            detector: detector.to_owned(),
            rate_hz: bank.rate_hz,
            latency_s: plan.latency() as f64 / f64::from(bank.rate_hz),
            filters: plan.filters(),
            placement: None,
            templates: bank.templates.iter().map(|one| row(one, bank.rate_hz)).collect(),
            missed: Missed::new(bank),
        })
    }

    /// Formats the summary as a table.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{}: {}, {} at {} Hz and below, known {} s late\n",
            self.file,
            plural(self.templates.len(), "template"),
            plural(self.filters, "filter"),
            self.rate_hz,
            short(self.latency_s, 3),
        );
        if let Some(placement) = &self.placement {
            let _ = writeln!(text, "{}", placement.text());
        }
        let shown = &self.templates[..self.templates.len().min(LISTED)];
        let width = shown.iter().map(|row| row.name.len()).max().unwrap_or(0).max(8);
        let _ = writeln!(
            text,
            "{:width$}  {:10}  {:>7}  {:>9}  {:>7}  {:>12}  {:>9}  filters at each rate (Hz)",
            "template", "waveform", "filters", "effective", "match", "horizon (Mpc)", "length (s)"
        );
        for row in shown {
            let rates: Vec<String> = row
                .rates
                .iter()
                .map(|rate| format!("{}: {}", rate.rate_hz, rate.filters))
                .collect();
            let _ = writeln!(
                text,
                "{:width$}  {:10}  {:>7}  {:>9.1}  {:>7.4}  {:>12.1}  {:>10.3}  {}",
                row.name,
                row.approximant.as_deref().unwrap_or("-"),
                row.filters,
                row.effective_filters,
                row.fit,
                row.horizon_mpc,
                row.duration_s,
                rates.join(", "),
            );
        }
        if shown.len() < self.templates.len() {
            let more = plural(self.templates.len() - shown.len(), "template");
            let _ = writeln!(text, "and {more} more, which --json lists");
        }
        for line in self.missed.lines() {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

fn row(template: &BankTemplate, rate_hz: u32) -> Row {
    let rate = |branch: &sidereal::spiir::Branch| Rate {
        rate_hz: rate_hz >> branch.halvings,
        filters: branch.filters.len(),
    };
    Row {
        name: template.name.clone(),
        filters: template.filters.filters(),
        effective_filters: template.filters.effective_filters(),
        rates: template.filters.branches.iter().map(rate).collect(),
        fit: template.fit,
        epsilon: template.epsilon,
        horizon_mpc: template.horizon_mpc,
        sigma_1mpc: template.sigma_1mpc,
        duration_s: template.duration_s,
        f_low_hz: template.f_low_hz,
        f_final_hz: template.f_final_hz,
        approximant: template.approximant.clone(),
        mass1_msun: template.binary.map(|binary| binary.mass1_msun),
        mass2_msun: template.binary.map(|binary| binary.mass2_msun),
    }
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let mut read = Vec::from_iter(arguments.templates.clone());
    read.extend(spectrum_file(&arguments.psd));
    let existing = Existing::new(arguments.overwrite);
    let writing = WritingFiles { option: "--output", existing, inputs: &read, common };
    let lists: &[&str] = if arguments.placement.is_asked() { &[CSV] } else { &[] };
    let files = Files::begin(&arguments.output, lists, &writing)?;
    if !(16..=1 << 20).contains(&arguments.rate) {
        return Err(Error::parameter("--rate", arguments.rate, "it must be 16 to 1048576"));
    }
    let psd = spectrum(&arguments.psd, arguments.rate)?;
    let backend = common.backend()?;
    let threads = backend.host().threads();
    let (templates, placed) = match &arguments.templates {
        Some(path) => (open(path)?, None),
        None => {
            let (design, rate_hz) = (&arguments.design, arguments.rate);
            let (placed, report) = arguments.placement.place(&psd, design, rate_hz, &threads)?;
            templates::write_csv(&files.beside(CSV), &placed.binaries)?;
            (templates::placed(&placed), Some(report))
        }
    };
    let source = arguments.design.source(templates, arguments.rate, &threads, common.quiet)?;
    let bank = design(&source, &psd, &threads)?;
    let provenance = Provenance::new(common, &read)?;
    let run = Run::new(common).on(&backend);
    let lines = provenance::lines(&provenance, &run)?;
    let from = match &arguments.templates {
        Some(path) => path.display().to_string(),
        None => "placed templates".to_owned(),
    };
    let comment = format!("{from} for {}\n{lines}", arguments.psd);
    write_bank(&files.main(), &bank, &arguments.detector, &comment)?;
    let mut document = Document::new(&arguments.output, &bank, &arguments.detector)?;
    document.placement = placed;
    files.finish()?;
    if common.json {
        return json::print(&Product::new("spiir-bank", document, provenance, run));
    }
    if common.quiet { Ok(()) } else { json::say(document.table().trim_end()) }
}

/// Most templates of each kind listed on the terminal.
const MISSED_LISTED: usize = 5;

/// Template that was dropped from the bank.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LeftOut {
    name: String,
    /// Best match that its filters reached; null if none were made.
    #[serde(rename = "match")]
    fit: Option<f64>,
    reason: String,
}

/// Template that was kept although its match is below the requested one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Below {
    name: String,
    #[serde(rename = "match")]
    fit: f64,
}

/// Templates of a bank whose filters miss the requested match.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Missed {
    /// Dropped templates.
    left_out: Vec<LeftOut>,
    /// Kept templates with a match below the requested one.
    below_match: Vec<Below>,
}

impl Missed {
    /// Collects those of a bank.
    pub(crate) fn new(bank: &Bank) -> Self {
        let left_out = |one: &bank::LeftOut| LeftOut {
            name: one.name.clone(),
            fit: one.fit,
            reason: one.reason.clone(),
        };
        let asked = bank.options.minimum_match;
        let below = bank.templates.iter().filter(|template| template.fit < asked);
        Self {
            left_out: bank.left_out.iter().map(left_out).collect(),
            below_match: below.map(|one| Below { name: one.name.clone(), fit: one.fit }).collect(),
        }
    }

    /// Formats them as lines; empty if all templates reach the match.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.left_out.is_empty() {
            lines.push(format!("{} left out:", plural(self.left_out.len(), "template")));
            let each = self.left_out.iter().map(|one| format!("  {}: {}", one.name, one.reason));
            lines.extend(listed(each));
        }
        if !self.below_match.is_empty() {
            let count = plural(self.below_match.len(), "template");
            lines.push(format!("{count} kept with less than the match that was asked for:"));
            let mut worst: Vec<&Below> = self.below_match.iter().collect();
            worst.sort_by(|a, b| a.fit.total_cmp(&b.fit));
            let each = worst.iter().map(|one| format!("  {}: {}", one.name, short(one.fit, 4)));
            lines.extend(listed(each));
        }
        lines
    }
}

/// Returns the first of them and the number of the others.
fn listed(mut each: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    let more = each.len().saturating_sub(MISSED_LISTED);
    let mut lines: Vec<String> = each.by_ref().take(MISSED_LISTED).collect();
    if more > 0 {
        lines.push(format!("  and {more} more (--json lists all)"));
    }
    lines
}
