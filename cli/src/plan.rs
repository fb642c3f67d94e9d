//! `sidereal plan`: plans the trial DMs.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::dedisperse::dm_plan::{DmPlan, Row};
use sidereal::io::OpenOptions;
use sidereal::units::HZ_PER_MHZ;
use sidereal::{Error, Result};

use crate::band::{BandArguments, Setup};
use crate::common::Common;
use crate::dm_arguments::{self, DmArguments};
use crate::output::{Existing, Files, WritingFiles};
use crate::provenance::Made;
use crate::{json, say};

const EXAMPLES: &str = "Examples:\n  \
    sidereal plan recording.fil --dm-max 1000\n  \
    sidereal plan --telescope chime-frb --toml chime.toml\n  \
    sidereal plan --fch1 1500 --foff -0.29 --channels 1024 --tsamp 64e-6 --ddplan\n\n\
    Each row is a range of trials, first and last, with one step and one time bin. Smearing is what\n\
    widens a pulse at the row's highest trial: dispersion within a channel, the length of a time bin,\n\
    and half a step over the whole band. Give the TOML file to `sidereal search --plan`.";

/// Plan the trial DMs: their steps and time resolution.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Recording that gives band and sampling time; alternatively, use the options below.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Also write the plan to this file.
    #[arg(long, short = 'o', alias = "output", value_name = "OUT")]
    toml: Option<PathBuf>,
    /// Replace OUT if it exists.
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    band: BandArguments,
    #[command(flatten)]
    dms: DmArguments,
}

/// JSON document of the plan.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document {
    way: String,
    centre_mhz: f64,
    bandwidth_mhz: f64,
    channels: usize,
    tsamp_s: f64,
    trials: usize,
    adds_per_s: f64,
    ranges: Vec<Line>,
}

#[derive(Serialize, JsonSchema)]
struct Line {
    dm_min: f64,
    /// End of the range, not itself a trial.
    dm_max: f64,
    dm_last: f64,
    dm_step: f64,
    downsample: usize,
    trials: usize,
    channel_ms: f64,
    sampling_ms: f64,
    step_ms: f64,
    total_ms: f64,
    adds_per_s: f64,
    work_fraction: f64,
}

pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let files = arguments.begin(common)?;
    let setup = arguments.setup(common)?;
    let limits = setup.telescope.map(|telescope| (telescope.dm_min, telescope.dm_max));
    let Setup { band, tsamp_s, .. } = &setup;
    let plan = arguments.dms.plan(band, *tsamp_s, limits, None)?;
    let made = Made::new(common, &arguments.inputs())?;
    let product = made.product("plan", document(&plan, &setup, arguments));
    if let Some(files) = files {
        dm_arguments::write_plan(&files.main(), &plan, &heading(&product.document), &made)?;
        files.finish()?;
    }
    if common.json {
        return json::print(&product);
    }
    if common.quiet {
        return Ok(());
    }
    json::say(&table(&product.document))?;
    match &arguments.toml {
        Some(path) => json::say(&format!("written to {}", path.display())),
        None => Ok(()),
    }
}

impl Arguments {
    /// Returns every input file.
    fn inputs(&self) -> Vec<PathBuf> {
        self.file.iter().chain(&self.dms.plan).cloned().collect()
    }

    /// Begins the file, if requested.
    fn begin(&self, common: &Common) -> Result<Option<Files>> {
        let Some(path) = &self.toml else { return Ok(None) };
        let inputs = self.inputs();
        let existing = Existing::new(self.overwrite);
        let writing = WritingFiles { option: "--toml", existing, inputs: &inputs, common };
        Files::begin(path, &[], &writing).map(Some)
    }

    fn setup(&self, common: &Common) -> Result<Setup> {
        let Some(file) = &self.file else { return self.band.setup() };
        if self.band.given() {
            let rule = "a recording has its own band; leave out either it or the band's options";
            return Err(Error::parameter("FILE", file.display(), rule));
        }
        let source = sidereal::io::open(std::slice::from_ref(file), &OpenOptions::default())?;
        say::warn_of_recording(source.warnings(), source.cut(), common.quiet);
        let header = source.header();
        Ok(Setup { band: header.band.clone(), tsamp_s: header.tsamp_s, telescope: None })
    }
}

fn document(plan: &DmPlan, setup: &Setup, arguments: &Arguments) -> Document {
    let rows = plan.rows(&setup.band, setup.tsamp_s, arguments.dms.dm_constant);
    Document {
        way: arguments.dms.way(),
        centre_mhz: setup.band.centre_hz() / HZ_PER_MHZ,
        bandwidth_mhz: setup.band.bandwidth_hz() / HZ_PER_MHZ,
        channels: setup.band.channels(),
        tsamp_s: setup.tsamp_s,
        trials: plan.trials(),
        adds_per_s: rows.iter().map(|row| row.adds_per_s).sum(),
        ranges: rows.iter().map(line).collect(),
    }
}

fn line(row: &Row) -> Line {
    Line {
        dm_min: row.range.dm_min,
        dm_max: row.range.dm_max,
        dm_last: row.dms.last().copied().unwrap_or(row.range.dm_min),
        dm_step: row.range.dm_step,
        downsample: row.range.downsample,
        trials: row.dms.len(),
        channel_ms: row.channel_ms,
        sampling_ms: row.sampling_ms,
        step_ms: row.step_ms,
        total_ms: row.total_ms,
        adds_per_s: row.adds_per_s,
        work_fraction: row.work_fraction,
    }
}

fn heading(document: &Document) -> String {
    let trials = document.trials;
    format!(
        "{trials} trials, {}, for {} channels over {} MHz around {} MHz, sampled every {} µs",
        document.way,
        document.channels,
        rounded(document.bandwidth_mhz),
        rounded(document.centre_mhz),
        rounded(document.tsamp_s * 1e6),
    )
}

/// Rounds off the noise of binary arithmetic.
fn rounded(value: f64) -> f64 {
    format!("{value:.6}").parse().unwrap_or(value)
}

fn table(document: &Document) -> String {
    let mut text = heading(document);
    text.push_str(
        "\n\n                                                     smearing (ms)\n    \
         DM from         to     step  bin  trials   channel       bin      step     total    \
         Gadd/s   work\n",
    );
    for line in &document.ranges {
        let _ = writeln!(
            text,
            "{:>11.3}{:>11.3}{:>9.3}{:>5}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10.3}{:>6.1}%",
            line.dm_min,
            line.dm_last,
            line.dm_step,
            line.downsample,
            line.trials,
            short(line.channel_ms),
            short(line.sampling_ms),
            short(line.step_ms),
            short(line.total_ms),
            line.adds_per_s / 1e9,
            100.0 * line.work_fraction,
        );
    }
    let total = document.adds_per_s / 1e9;
    let _ = write!(text, "{:>11}{:>33}{:>50.3}", "in all", document.trials, total);
    text
}

/// Formats a number with about four digits.
fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    }
}
