//! `sidereal dedisperse`: writes one time series per trial DM.

mod files;

use std::fmt::Debug;

use clap::Args;
use files::{Files, Kept, Lengths};
use sidereal::Result;
use sidereal::io::FilterbankHeader;
use sidereal::pipeline::burst::SearchOptions;
use sidereal::pipeline::series::{self, SeriesReport};

use crate::common::{Common, Work, tell_notes};
use crate::dm_arguments::DmArguments;
use crate::interrupt::Exit;
use crate::output::{Contents, Destination};
use crate::plots::duration;
use crate::progress::{Progress, multiple};
use crate::provenance::{Product, Provenance, Run};
use crate::resume::{Identity, Resume, RunJournal};
use crate::rfi::Rfi;
use crate::say::{note, warning};
use crate::selection::{Opened, Recording, Selection, warn_of_flagged};
use crate::{errors, gaps, json, resume, rfi};
pub(crate) use files::Document;
pub(crate) use files::Format;

/// Write one time series per trial DM: exact sums over the channels.
///
/// Writes a folder. As .npy: dedispersed.npy (axes dm, time; 32-bit floats; the samples after a trial's end hold its
/// mean) with dedispersed.json, a further range of the plan in dedispersed_2.npy and so on. As .dat (with .inf, for
/// PRESTO) and .tim (for SIGPROC): one file per trial, NAME_DM123.45.dat; all .dat of a range have the length that
/// prepsubband gives them (--numout). Voltages are channelized first (--channels).
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal dedisperse observation.fil --dm-min 0 --dm-max 100 --dm-step 0.5\n  \
    sidereal dedisperse voltages.raw --channels 64 --coherent-dm 26.8 --dm-min 26 --dm-max 27 --dm-step 0.1\n  \
    sidereal dedisperse observation.fil -o series --format dat --dm-min 26 --dm-max 27 --dm-step 0.1")]
pub(crate) struct Arguments {
    #[command(flatten)]
    recording: Recording,
    #[command(flatten)]
    destination: Destination,
    #[command(flatten)]
    resume: Resume,
    /// Format of the series.
    #[arg(long, value_enum, default_value = "npy", help_heading = "Output")]
    format: Format,
    /// With --format dat, number of samples of each series [default: at least the recording's length].
    ///
    /// Series are truncated to this length or padded with their mean. The default is a length that PRESTO transforms
    /// fast. A range of the plan that downsamples by N has an Nth of the samples.
    #[arg(long, value_name = "SAMPLES", help_heading = "Output")]
    numout: Option<u64>,
    #[command(flatten)]
    trials: DmArguments,
    #[command(flatten)]
    selection: Selection,
    /// Mask channels with outlying statistics, as search does.
    #[arg(long, help_heading = "Channels and times")]
    auto_mask: bool,
}

/// Contents of a dedispersion's folder.
const CONTENTS: Contents = Contents {
    verb: "dedisperse",
    documents: &["dedispersed.json"],
    writes: |_, name| files::writes(name),
};

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    let lengths = Lengths::new(arguments.numout, arguments.format)?;
    let also = arguments.selection.files(&arguments.trials);
    let product = ("dedispersed", CONTENTS);
    let (recording, destination) = (&arguments.recording, &arguments.destination);
    let (folder, is_resumed) = arguments.resume.begin(
        &recording.files(),
        || destination.resume(recording, &also, product, common),
        || destination.begin(recording, &also, product, common),
        common,
    )?;
    let backend = common.backend_for(Work::on_trials(&arguments.recording.inputs))?;
    let mut opened = arguments.recording.open(arguments.trials.dm_constant, &backend)?;
    let (header, delay_s) = (opened.source.header().clone(), opened.delay_s());
    let mut options = arguments.options(&opened)?;
    options.memory = common.memory;
    arguments.recording.warn(opened.source.rows(), common);
    if common.verbose && !common.quiet {
        note!("on {}", backend.name());
    }
    let progress = Progress::new(common, header.times, header.channels(), header.tsamp_s);
    progress.doing("Dedispersing");
    let stem = arguments.recording.stem();
    let files = [recording.files(), also.clone()].concat();
    let own: [(&str, &dyn Debug); 2] =
        [("--format", &arguments.format), ("--numout", &arguments.numout)];
    let run = Identity::new("dedisperse", &files, &own, &backend)?;
    let mut keeper = RunJournal::new(folder.file(""), run.with(recording, &options));
    let left = if is_resumed { keeper.resume(folder.place())? } else { None };
    let resumed = left.map(|left| Kept::read(left.state())).transpose()?;
    if let Some(from) = &resumed {
        resume::tell(from.checkpoint.rows, common);
    }
    let rows = rows(&header, &options);
    let mut files = Files {
        folder: &folder,
        format: arguments.format,
        stem: &stem,
        header: &header,
        progress: &progress,
        rows,
        common,
        keeper,
        has_checkpoints: resume::can_be_read_again(&arguments.recording),
        resumed: resumed.clone(),
        writers: Vec::new(),
        lengths,
        ranges: Vec::new(),
        filled: Vec::new(),
    };
    let from = resumed.as_ref().map(|from| &from.checkpoint);
    let source = opened.source.rows_mut();
    let report = series::dedisperse_from(source, &options, &backend, from, &mut files);
    if report.is_err() && !is_resumed {
        // No trial fits, so there is nothing to resume.
        resume::clear(&folder.file(""))?;
    }
    let report = report?;
    files.finish(&report)?;
    progress.finish();
    let provenance = Provenance::new(common, &[arguments.recording.files(), also].concat())?;
    let run = Run::new(common).on(&backend).took(report.elapsed_s, report.data_s);
    let documents = Document::all(&report, &opened, (options.dm_constant, &lengths)).into_iter();
    let product = |one| Product::new("dedisperse", one, provenance.clone(), run.clone());
    let documents: Vec<_> = documents.map(product).collect();
    for (index, document) in documents.iter().enumerate() {
        json::write(&folder.file(files::numbered("dedispersed", index, "json")), document)?;
    }
    if report.ending.is_read() || !files.has_checkpoints {
        resume::clear(&folder.file(""))?;
    } else {
        resume::mark(&folder.file(""))?;
    }
    let place = folder.place().to_path_buf();
    folder.finish()?;
    warn(&report, common);
    tell_notes(&backend, common);
    warn_of_flagged(report.flagged_samples, common.quiet);
    gaps::warn(&gaps::listed(&report.gaps, header.tsamp_s, delay_s), common.quiet);
    match documents.as_slice() {
        _ if common.quiet && !common.json => {}
        [one] if common.json => json::print(one)?,
        many if common.json => json::print(&many)?,
        _ => {
            let rfi =
                rfi::Document::new(arguments.rfi(), report.mitigated.as_ref(), header.tsamp_s);
            json::say(&format!("{}{}Wrote {}", text(&report), rfi.text(), place.display()))?;
        }
    }
    Ok(errors::ended(&report.ending, &place))
}

/// Returns the number of rows that will be read, if known.
fn rows(header: &FilterbankHeader, options: &SearchOptions) -> Option<u64> {
    let (start_s, end_s) = options.time_range.unwrap_or((0.0, f64::INFINITY));
    let length_s = header.duration_s()?.min(end_s) - start_s;
    Some((length_s.max(0.0) / header.tsamp_s) as u64)
}

impl Arguments {
    /// Returns the steps of mitigation: none unless `--rfi` is given.
    fn rfi(&self) -> Rfi {
        self.selection.cleaning.rfi.unwrap_or(Rfi::None)
    }

    fn options(&self, opened: &Opened) -> Result<SearchOptions> {
        // Detection options have no effect here.
        let rfi = self.rfi();
        let auto_mask = self.auto_mask || rfi.has_mask();
        self.selection.options(opened, &self.trials, (rfi, auto_mask))
    }
}

fn warn(report: &SeriesReport, common: &Common) {
    if report.skipped_dms > 0 {
        warning!(quiet: common.quiet,
            "{} trials were skipped: their delay across the band is longer than \
             the data.",
            report.skipped_dms
        );
    }
}

fn text(report: &SeriesReport) -> String {
    let trials: usize = report.ranges.iter().map(|range| range.dms.len()).sum();
    format!(
        "Dedispersed {} of data at {trials} trial DMs in {}: {} x real time.\n",
        duration(report.data_s),
        duration(report.elapsed_s),
        multiple(report.data_s / report.elapsed_s.max(1e-9)),
    )
}
