//! `sidereal replot`: plots candidates of any program.

use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::dedisperse::dm_plan::DmPlan;
use sidereal::geometry::Dut1;
use sidereal::io::candidates::{self, Listed};
use sidereal::pipeline::Ending;
use sidereal::pipeline::burst::CleanedRows;
use sidereal::pipeline::burst::{Report, SearchOptions};
use sidereal::single_pulse::Candidate;
use sidereal::units::{DM_CONSTANT, SECONDS_PER_DAY};
use sidereal::{Error, Result};

use crate::common::{Common, Gpus, Work};
use crate::dm_arguments::check_constant;
use crate::output::{Contents, Destination, Folder, FolderKind};
use crate::provenance::{Made, Product};
use crate::rfi::Rfi;
use crate::say::warning;
use crate::search::{Found, Pictures, is_picture, stem};
use crate::selection::{Cleaning, Opened, Recording, file_name};
use crate::{interrupt, json};

/// Name of the document.
const DOCUMENT: &str = "replot.json";

/// Name of a search's summary, beside its candidates.
const SUMMARY: &str = "summary.json";

/// Largest size of a summary in bytes.
const MAX_SUMMARY: u64 = 1 << 28;

/// Plot candidates of any program as search plots its own.
///
/// Rows are cleaned as in search: --rfi is auto, or that of the search whose summary.json is beside the list.
///
/// Writes a folder: one PNG per candidate, the best first, overview.png, and replot.json with the list of plots.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal replot observation.fil heimdall.cand\n  \
    sidereal replot observation.fil cands.csv -o pictures --snr 8 --max-plots 20\n  \
    sidereal replot voltages.raw obs_DM56.70.singlepulse --channels 64")]
pub(crate) struct Arguments {
    #[command(flatten)]
    recording: Recording,
    /// List of candidates: Heimdall's or search's .cand, PRESTO's .singlepulse, or a .csv.
    ///
    /// A .csv has the columns snr, dm, time_s and width_s, or those of `your` and FETCH. The format is recognized by
    /// content. Channels that a search masked, according to the summary.json beside its list, are masked in the plots
    /// as well.
    #[arg(required = true, value_name = "CANDIDATES")]
    candidates: PathBuf,
    #[command(flatten)]
    destination: Destination,
    /// Plot candidates of at least this S/N.
    #[arg(long, value_name = "S/N", allow_negative_numbers = true, help_heading = "Output")]
    snr: Option<f64>,
    /// Plot at most this many of the best candidates.
    #[arg(long, default_value_t = 100, value_name = "N", help_heading = "Output")]
    max_plots: usize,
    #[command(flatten)]
    cleaning: Cleaning,
    /// Keep channels with outlying statistics.
    ///
    /// By default (--rfi auto) they are masked.
    #[arg(long, help_heading = "Channels and times")]
    no_auto_mask: bool,
    /// Dispersion constant, in s MHz^2 pc^-1 cm^3 (PRESTO uses 1/2.41e-4, SIGPROC 4148.741601).
    #[arg(
        long,
        value_name = "K",
        allow_negative_numbers = true,
        default_value_t = DM_CONSTANT,
        help_heading = "Dispersion measures"
    )]
    dm_constant: f64,
}

/// Contents of the folder.
const CONTENTS: Contents = Contents { verb: "replot", documents: &[DOCUMENT], writes };

fn writes(_: &Path, name: &str) -> bool {
    name == DOCUMENT || (is_picture(name) && name.ends_with(".png"))
}

/// Contents of replot.json.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document {
    file: String,
    list: String,
    /// Number of candidates in the list.
    listed: usize,
    /// Number of these that are below --snr.
    below_snr: usize,
    /// Number of these that lie outside the recording.
    outside: usize,
    masked_channels: Vec<usize>,
    /// RFI mitigation: `auto`, `none` or the steps.
    rfi: String,
    complete: bool,
    reason: Option<String>,
    /// Plotted candidates, best first.
    drawn: Vec<Drawn>,
}

#[derive(Serialize, JsonSchema)]
struct Drawn {
    picture: String,
    dm: f64,
    time_s: f64,
    snr: f64,
    width_s: f64,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    check_constant(arguments.dm_constant)?;
    if arguments.recording.is_pipe() {
        let rule = "a pipe can't be read once for each candidate; give a file";
        return Err(Error::parameter("INPUT", arguments.recording.name(), rule));
    }
    let also = arguments.also();
    let kind = FolderKind { suffix: "replot", contents: CONTENTS };
    let folder = arguments.destination.begin(&arguments.recording, &also, kind, common)?;
    let backend = common.backend_for(Work::on_trials(&arguments.recording.inputs), Gpus::One)?;
    let opened = arguments.recording.open(arguments.dm_constant, &backend)?;
    arguments.recording.warn(opened.source.rows(), common);
    let earlier = arguments.earlier(opened.source.header().channels(), common);
    let (rfi, options) = arguments.options(&opened, earlier)?;
    let is_cleaned = options.mitigation.is_some() || options.auto_mask || options.mask.is_some();
    let masked = if is_cleaned {
        let again = arguments.recording.open(arguments.dm_constant, &backend)?.source.into_rows();
        let goes_on = &mut || !interrupt::requested();
        let rows = CleanedRows::new(again, &options, &backend.on_host(), goes_on)?;
        (0..rows.masked().len()).filter(|channel| rows.masked()[*channel]).collect()
    } else {
        options.zapped.clone()
    };
    let (mut found, mut document) = arguments.found(&opened, &options, rfi, masked, common)?;
    found.made.run = found.made.run.on(&backend);
    let pictures = Pictures {
        recording: &arguments.recording,
        backend: &backend,
        options: &options,
        found: &found,
        folder: &folder,
        is_cleaned,
        spooled: false,
    };
    pictures.draw_overview()?;
    pictures.draw(arguments.max_plots, common)?;
    let drawn = found.report.candidates.iter().take(arguments.max_plots).enumerate();
    document.drawn = drawn.map(|(index, candidate)| Drawn::new(index, candidate)).collect();
    finish(folder, &found.made.product("replot", document), common)
}

fn finish(folder: Folder, product: &Product<Document>, common: &Common) -> Result<()> {
    let document = &product.document;
    json::write(&folder.file(DOCUMENT), product)?;
    let place = folder.place().to_path_buf();
    folder.finish()?;
    if document.outside > 0 {
        warning!(quiet: common.quiet,
            "{} candidates lie outside of the recording and were not drawn.",
            document.outside
        );
    }
    if common.json {
        return json::print(product);
    }
    if common.quiet {
        return Ok(());
    }
    let (drawn, listed) = (document.drawn.len(), document.listed);
    json::say(&format!("Drew {drawn} of {listed} candidates.\nWrote {}", place.display()))
}

impl Arguments {
    /// Returns every input file except the recording.
    fn also(&self) -> Vec<PathBuf> {
        [&self.candidates].into_iter().chain(self.cleaning.files()).cloned().collect()
    }

    /// Returns the search options that plots depend on, and the mitigation.
    fn options(&self, opened: &Opened, earlier: Earlier) -> Result<(Rfi, SearchOptions)> {
        // Nothing is searched, so any plan is valid.
        let plan = DmPlan::fixed(&[(0.0, 1.0, 1.0)])?;
        // If a search lists its masked channels, no others are masked.
        let (rfi, auto_mask) =
            self.cleaning.rfi(earlier.rfi.unwrap_or(Rfi::Auto), self.no_auto_mask);
        let auto_mask = auto_mask && earlier.masked.is_none();
        let header = opened.source.header();
        let options = self.cleaning.options(header, plan, rfi, auto_mask)?;
        let mut zapped = [options.zapped.as_slice(), &earlier.masked.unwrap_or_default()].concat();
        zapped.sort_unstable();
        zapped.dedup();
        let given = self.cleaning.rfi_block.map(|_| options.mitigation_block_s);
        let mitigation_block_s = given.or(earlier.block_s).unwrap_or(options.mitigation_block_s);
        let dm_constant = self.dm_constant;
        Ok((rfi, SearchOptions { dm_constant, zapped, mitigation_block_s, ..options }))
    }

    /// Returns the list in the form of a search's result, and the document without the plots.
    fn found(
        &self,
        opened: &Opened,
        options: &SearchOptions,
        rfi: Rfi,
        masked: Vec<usize>,
        common: &Common,
    ) -> Result<(Found, Document)> {
        let mut header = opened.source.header().clone();
        let delay_s = opened.delay_s();
        if header.tstart_mjd > 0.0 {
            header.tstart_mjd -= delay_s / SECONDS_PER_DAY;
        }
        let mut listed = candidates::read(&self.candidates, header.tsamp_s)?;
        let all = listed.len();
        let length_s = header.duration_s().map_or(f64::INFINITY, |length_s| length_s + delay_s);
        listed.retain(|one| one.time_s < length_s);
        let inside = listed.len();
        listed.retain(|one| self.snr.is_none_or(|least| one.snr >= least));
        listed.sort_by(|a, b| b.snr.total_cmp(&a.snr).then(a.time_s.total_cmp(&b.time_s)));
        let dms = listed.iter().map(|one| one.dm);
        let (low, high) = (dms.clone().fold(f64::INFINITY, f64::min), dms.fold(0.0, f64::max));
        let document = Document {
            file: header.path.display().to_string(),
            list: self.candidates.display().to_string(),
            listed: all,
            below_snr: inside - listed.len(),
            outside: all - inside,
            masked_channels: masked.clone(),
            rfi: rfi.to_string(),
            complete: true,
            reason: None,
            drawn: Vec::new(),
        };
        let report = Report {
            absorbed: Vec::new(),
            candidates: listed.iter().map(candidate).collect(),
            dms: if listed.is_empty() { Vec::new() } else { vec![low, high] },
            skipped_dms: 0,
            masked_channels: masked,
            mitigated: None,
            removals: None,
            left_out: 0,
            gaps: Vec::new(),
            unsearched: Vec::new(),
            flagged_samples: 0,
            times: header.times.unwrap_or(0),
            data_s: header.duration_s().unwrap_or(0.0),
            elapsed_s: 0.0,
            ending: Ending::Complete,
        };
        let inputs = [self.recording.files(), self.also()].concat();
        let made = Made::new(common, &inputs)?;
        let lowest = listed.last().map_or(1.0, |one| one.snr);
        let found = Found {
            sources: Vec::new(),
            report,
            delay_s,
            geometry: opened.geometry.clone(),
            snr: self.snr.unwrap_or(lowest).max(1e-3),
            rfi,
            max_per_minute: None,
            plan: options.plan.clone(),
            dm_constant: options.dm_constant,
            dut1: Dut1::Table,
            dropped: None,
            made,
            drawn: self.max_plots,
            files: self.recording.inputs.clone(),
            header,
        };
        Ok((found, document))
    }

    /// Reads the settings of the search that left its summary beside the list.
    fn earlier(&self, channels: usize, common: &Common) -> Earlier {
        let path = self.candidates.with_file_name(SUMMARY);
        let is_short = std::fs::metadata(&path).is_ok_and(|found| found.len() <= MAX_SUMMARY);
        let summary = is_short.then(|| std::fs::read(&path).ok()).flatten();
        let summary: Option<serde_json::Value> =
            summary.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(summary) = summary else { return Earlier::default() };
        let of = summary["file"].as_str().map(|file| file_name(Path::new(file)));
        let of_this = of == self.recording.inputs.first().map(|input| file_name(input));
        let masked = summary["masked_channels"].as_array().map(Vec::as_slice).unwrap_or_default();
        let numbers = masked.iter().filter_map(|number| usize::try_from(number.as_u64()?).ok());
        let masked: Vec<usize> = numbers.filter(|channel| *channel < channels).collect();
        if !of_this || masked.len() >= channels {
            let path = path.display();
            warning!(quiet: common.quiet, "{path} is of another recording; no channel is left out for it.");
            return Earlier::default();
        }
        let rfi =
            summary["interference"]["asked"].as_str().and_then(|words| Rfi::parse(words).ok());
        let block_s = summary["interference"]["block_s"].as_f64().filter(|seconds| *seconds > 0.0);
        Earlier { masked: Some(masked), rfi, block_s }
    }
}

/// Cleaning of an earlier search.
#[derive(Default)]
struct Earlier {
    /// Channels that it masked; `None` if there was no search.
    masked: Option<Vec<usize>>,
    rfi: Option<Rfi>,
    /// Length of its mitigation's blocks.
    block_s: Option<f64>,
}

impl Drawn {
    fn new(index: usize, candidate: &Candidate) -> Self {
        Self {
            picture: stem(index, candidate) + ".png",
            dm: candidate.dm,
            time_s: candidate.time_s,
            snr: candidate.snr,
            width_s: candidate.width_s,
        }
    }
}

fn candidate(listed: &Listed) -> Candidate {
    let Listed { snr, dm, time_s, width_s } = *listed;
    let (begin_s, end_s) = (time_s - 0.5 * width_s, time_s + 0.5 * width_s);
    Candidate {
        dm,
        time_s,
        snr,
        width_s,
        members: 1,
        range: 0,
        trial: 0,
        peak_begin_s: begin_s,
        peak_end_s: end_s,
        begin_s,
        end_s,
        dm_min: dm,
        dm_max: dm,
        band_fraction: 1.0,
    }
}
