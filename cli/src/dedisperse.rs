//! `sidereal dedisperse`: dedispersed time series, in PRESTO's, SIGPROC's or numpy's format.

use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::backend::threads::Threads;
use sidereal::io::FilterbankHeader;
use sidereal::io::npy::{self, Order};
use sidereal::io::presto::{Inf, SeriesWriter, good_length};
use sidereal::io::sigproc::{TimeSeries, TimeSeriesWriter};
use sidereal::pipeline::burst::{SearchOptions, Status};
use sidereal::pipeline::series::{self, Block, Checkpoint, SeriesRange, SeriesReport, SeriesSink};
use sidereal::pipeline::{Ending, overlapped};
use sidereal::units::{DM_CONSTANT, HZ_PER_MHZ, SECONDS_PER_DAY, dispersion_delay_s};
use sidereal::view::Plane;
use sidereal::{Error, Result, trace};

use crate::batch::{Batch, PerInput};
use crate::common::{Common, Gpus, Work, tell_notes};
use crate::dm_arguments::DmArguments;
use crate::gaps::{self, Gap};
use crate::interrupt::{self, Exit};
use crate::output::{Contents, Destination, Folder, FolderKind};
use crate::plots::duration;
use crate::progress::{Progress, multiple};
use crate::provenance::{Product, Provenance, Run};
use crate::resume::{self, Identity, Resume, RunJournal};
use crate::rfi::{self, Rfi};
use crate::say::{note, warning};
use crate::selection::{Observation, Opened, Recording, Selection, warn_of_flagged};
use crate::{errors, flags, geometry, json, space};

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
    pub(crate) recording: Recording,
    #[command(flatten)]
    destination: Destination,
    #[command(flatten)]
    batch: Batch,
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
    pub(crate) trials: DmArguments,
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
    writes: |_, name| writes(name),
};

/// Suffix of the folder's default name.
const SUFFIX: &str = "dedispersed";

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    arguments.batch.run(arguments, common)
}

/// Dedisperses one recording.
fn run_one(arguments: &Arguments, common: &Common) -> Result<Exit> {
    let lengths = Lengths::new(arguments.numout, arguments.format)?;
    let also = arguments.selection.files(&arguments.trials);
    let kind = FolderKind { suffix: SUFFIX, contents: CONTENTS };
    let (recording, destination) = (&arguments.recording, &arguments.destination);
    let (folder, is_resumed) =
        arguments.resume.folder(destination, recording, &also, kind, common)?;
    let opening = trace::span(trace::Work::Read, "header and plan");
    let backend = common.backend_for(Work::on_trials(&arguments.recording.inputs), Gpus::One)?;
    let mut opened = arguments.recording.open(arguments.trials.dm_constant, &backend)?;
    let (header, delay_s) = (opened.source.header().clone(), opened.delay_s());
    let mut options = arguments.options(&opened)?;
    drop(opening);
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
        columns: [Vec::new(), Vec::new()],
        // Blocks are formatted while the backend's threads work on the next one.
        threads: Threads::new(backend.host().threads().count()),
    };
    let from = resumed.as_ref().map(|from| &from.checkpoint);
    let source = opened.source.rows_mut();
    let report = series::dedisperse_from(source, &options, &backend, from, &mut files);
    if report.is_err() && !is_resumed {
        // No trial fits, so there is nothing to resume.
        resume::clear(&folder.file(""))?;
    }
    let report = report?;
    let writing = trace::span(trace::Work::Write, "products");
    files.finish(&report)?;
    progress.finish();
    let provenance = Provenance::new(common, &[arguments.recording.files(), also].concat())?;
    let run = Run::new(common).on(&backend).took(report.elapsed_s, report.data_s);
    let documents = Document::all(&report, &opened, options.dm_constant, &lengths).into_iter();
    let product = |one| Product::new("dedisperse", one, provenance.clone(), run.clone());
    let documents: Vec<_> = documents.map(product).collect();
    for (index, document) in documents.iter().enumerate() {
        json::write(&folder.file(numbered("dedispersed", index, "json")), document)?;
    }
    if report.ending.is_read() || !files.has_checkpoints {
        resume::clear(&folder.file(""))?;
    } else {
        resume::mark(&folder.file(""))?;
    }
    let place = folder.place().to_path_buf();
    folder.finish()?;
    drop(writing);
    warn(&report, common);
    tell_notes(&backend, common);
    warn_of_flagged(report.flagged_samples, common.quiet);
    gaps::warn(&gaps::listed(&report.gaps, header.tsamp_s, delay_s), common.quiet);
    match documents.as_slice() {
        _ if common.quiet && !common.json => {}
        [one] if common.json => json::print_one(one, common.is_batch)?,
        many if common.json => json::print_one(&many, common.is_batch)?,
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

impl PerInput for Arguments {
    fn inputs(&self) -> &[PathBuf] {
        &self.recording.inputs
    }

    fn of_one(&self, input: &Path) -> Self {
        let recording = self.recording.of_one(input);
        let destination = self.destination.of_each(&recording, SUFFIX);
        Self { recording, destination, ..self.clone() }
    }

    fn place(&self) -> PathBuf {
        self.destination.place(&self.recording, SUFFIX)
    }

    fn run(&self, common: &Common) -> Result<Exit> {
        run_one(self, common)
    }
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
        self.selection.options(opened, &self.trials, rfi, auto_mask)
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

/// Contents of dedispersed.json.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document<'a> {
    observation: Observation,
    /// Masked channels, numbered as recorded.
    masked_channels: &'a [usize],
    dms: &'a [f64],
    tsamp_s: f64,
    start_s: f64,
    downsample: usize,
    /// Valid samples of each trial.
    times: &'a [u64],
    /// Length to which .dat series were truncated or padded, as prepsubband does.
    #[serde(skip_serializing_if = "Option::is_none")]
    numout: Option<u64>,
    /// Whether these are the series of the whole recording; otherwise `reason` states why not.
    complete: bool,
    reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<Gap>,
    /// Number of samples that were not finite and were replaced by their channel's level.
    flagged_samples: u64,
    /// Filter bank that made the spectra from voltages.
    #[serde(skip_serializing_if = "Option::is_none")]
    geometry: Option<&'a geometry::Document>,
}

impl<'a> Document<'a> {
    /// Makes one document per range.
    fn all(
        report: &'a SeriesReport,
        opened: &'a Opened,
        dm_constant: f64,
        lengths: &Lengths,
    ) -> Vec<Self> {
        let (header, delay_s) = (opened.source.header(), opened.delay_s());
        let gaps = gaps::listed(&report.gaps, header.tsamp_s, delay_s);
        let document = |(range, times): (&'a SeriesRange, &'a Vec<u64>)| Self {
            observation: Observation::new(header, dm_constant),
            masked_channels: &report.masked_channels,
            dms: &range.dms,
            tsamp_s: range.tsamp_s,
            start_s: delay_s + range.start_s,
            downsample: range.downsample,
            times,
            numout: lengths.of(range, report.rows),
            complete: report.ending.is_complete(),
            reason: flags::reason(&report.ending),
            gaps: gaps.clone(),
            flagged_samples: report.flagged_samples,
            geometry: opened.geometry.as_ref(),
        };
        report.ranges.iter().zip(&report.times).map(document).collect()
    }
}

/// Returns `stem.extension` for the first range, `stem_2.extension` for the second.
fn numbered(stem: &str, index: usize, extension: &str) -> String {
    match index {
        0 => format!("{stem}.{extension}"),
        _ => format!("{stem}_{}.{extension}", index + 1),
    }
}

/// Returns whether a file of this name is one of the outputs.
fn writes(name: &str) -> bool {
    let Some((stem, extension)) = name.rsplit_once('.') else { return false };
    let range = || stem.strip_prefix("dedispersed_").map(str::parse::<usize>);
    let dm = || stem.rsplit_once("_DM").map(|(_, dm)| dm.parse::<f64>());
    match extension {
        "npy" | "json" => stem == "dedispersed" || matches!(range(), Some(Ok(_))),
        "dat" | "inf" | "tim" => matches!(dm(), Some(Ok(_))),
        _ => false,
    }
}

/// Lengths of the series of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    /// Each series has as many samples as its trial.
    Own,
    /// Length that prepsubband chooses.
    Good,
    /// This many samples at full time resolution.
    Given(u64),
}

impl Lengths {
    /// Selects the lengths that `--numout` asks for in a format.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a length that no format or PRESTO has.
    fn new(numout: Option<u64>, format: Format) -> Result<Self> {
        match (numout, format) {
            (None, Format::Dat) => Ok(Self::Good),
            (None, _) => Ok(Self::Own),
            (Some(length), Format::Dat) if length >= 2 && length.is_multiple_of(2) => {
                Ok(Self::Given(length))
            }
            (Some(length), Format::Dat) => {
                let rule = "PRESTO's realfft and accelsearch need an even number of samples";
                Err(Error::parameter("--numout", length, rule))
            }
            (Some(length), _) => {
                let rule = "only --format dat has one length for all trials";
                Err(Error::parameter("--numout", length, rule))
            }
        }
    }

    /// Returns the length of a range's series for `rows` rows of the recording; `None` if each series has its own.
    fn of(self, range: &SeriesRange, rows: u64) -> Option<u64> {
        let downsample = range.downsample.max(1) as u64;
        match self {
            Self::Own => None,
            Self::Good => Some(good_length(rows / downsample)),
            Self::Given(length) => Some(length.div_ceil(downsample).next_multiple_of(2)),
        }
    }

    /// Returns the largest number of samples to write while the number of rows is unknown.
    fn most(self, range: &SeriesRange) -> u64 {
        if matches!(self, Self::Given(_)) { self.of(range, 0) } else { None }.unwrap_or(u64::MAX)
    }
}

/// Running sum of a trial's samples, for the mean that pads its series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Level {
    sum: f64,
    times: u64,
}

impl Level {
    /// Adds samples one by one, so that the sum does not depend on the block sizes.
    fn add(&mut self, values: &[f32]) {
        self.sum = values.iter().fold(self.sum, |sum, value| sum + f64::from(*value));
        self.times += values.len() as u64;
    }

    fn mean(self) -> f32 {
        if self.times == 0 { 0.0 } else { (self.sum / self.times as f64) as f32 }
    }
}

/// Times transposed at once: a cache line of each row.
const CACHED_TIMES: usize = 16;

/// Approximate bytes transposed per write: a piece stays in the cache until it is written.
const PIECE_BYTES: usize = 4 << 20;

/// Open series of one range.
enum Writer {
    Npy(npy::Writer),
    Dat(Vec<SeriesWriter>),
    Tim(Vec<TimeSeriesWriter>),
}

impl Writer {
    /// Truncates each trial's series to its number of samples in `times`.
    fn cut(&mut self, times: &[u64]) -> Result<()> {
        match self {
            Self::Npy(writer) => writer.cut(times.iter().copied().max().unwrap_or(0)),
            Self::Dat(writers) => {
                writers.iter_mut().zip(times).try_for_each(|(writer, times)| writer.cut(*times))
            }
            Self::Tim(writers) => {
                writers.iter_mut().zip(times).try_for_each(|(writer, times)| writer.cut(*times))
            }
        }
    }
}

/// All files of one call. A file is open only while a block is written to it. It has its name in the folder being
/// filled from the start, so that a later run can resume it.
struct Files<'a> {
    folder: &'a Folder,
    format: Format,
    stem: &'a str,
    header: &'a FilterbankHeader,
    progress: &'a Progress,
    /// Number of rows to come, if known.
    rows: Option<u64>,
    common: &'a Common,
    keeper: RunJournal,
    /// Whether the recording can be read again: otherwise checkpoints are useless.
    has_checkpoints: bool,
    /// Checkpoint of the earlier run that this one resumes.
    resumed: Option<Kept>,
    writers: Vec<Writer>,
    lengths: Lengths,
    /// Ranges of the plan, with the levels of their trials.
    ranges: Vec<(SeriesRange, Vec<Level>)>,
    /// Padded copy of a block whose trials end at different times.
    filled: Vec<f32>,
    /// Pieces of a block in the order of the NumPy array (axes time, DM): one is written while the next is transposed.
    columns: [Vec<f32>; 2],
    threads: Threads,
}

impl<'a> Files<'a> {
    /// Returns the bytes of all series of `rows` rows.
    fn need(&self, ranges: &[SeriesRange], rows: u64) -> u64 {
        let (lowest, highest) = (self.header.band.lowest_hz(), self.header.band.highest_hz());
        let samples = |range: &SeriesRange| -> u64 {
            let all = rows / range.downsample as u64;
            let delay = |dm: &f64| {
                (dispersion_delay_s(*dm, lowest, highest, DM_CONSTANT) / range.tsamp_s) as u64
            };
            match self.format {
                Format::Npy => all.saturating_mul(range.dms.len() as u64),
                Format::Dat => {
                    let length = self.lengths.of(range, rows).unwrap_or(all);
                    length.saturating_mul(range.dms.len() as u64)
                }
                Format::Tim => range.dms.iter().map(|dm| all.saturating_sub(delay(dm))).sum(),
            }
        };
        ranges.iter().map(samples).fold(0, u64::saturating_add).saturating_mul(4)
    }

    /// Completes every file; drops the series of trials that turned out too long.
    fn finish(&mut self, report: &SeriesReport) -> Result<()> {
        let failed = matches!(report.ending, Ending::Failed(_));
        let ranges = self.ranges.drain(..);
        for ((mut writer, times), (range, levels)) in
            self.writers.drain(..).zip(&report.times).zip(ranges)
        {
            if failed {
                let most = self.lengths.most(&range);
                let times: Vec<u64> = times.iter().map(|times| most.min(*times)).collect();
                writer.cut(&times)?;
            }
            let length = self.lengths.of(&range, report.rows).unwrap_or(0);
            match writer {
                Writer::Npy(writer) => writer.finish()?,
                Writer::Dat(writers) => {
                    for ((mut writer, times), level) in writers.into_iter().zip(times).zip(levels) {
                        if *times > 0 {
                            writer.fill(length, level.mean())?;
                            writer.finish()?;
                        } else {
                            writer.discard()?;
                        }
                    }
                }
                Writer::Tim(writers) => {
                    for (writer, times) in writers.into_iter().zip(times) {
                        if *times > 0 { writer.finish() } else { writer.discard() }?;
                    }
                }
            }
        }
        Ok(())
    }

    fn writer(&self, index: usize, range: &SeriesRange, decimals: usize) -> Result<Writer> {
        let path = |dm: &f64, extension: &str| {
            self.folder.file(format!("{}_DM{dm:.decimals$}.{extension}", self.stem))
        };
        let times = |from: &Kept| from.checkpoint.times.get(index).copied().unwrap_or(0);
        let written = self.resumed.as_ref().map_or(0, times);
        Ok(match self.format {
            Format::Npy => {
                let path = self.folder.file(numbered("dedispersed", index, "npy"));
                let dms = range.dms.len();
                Writer::Npy(npy::Writer::in_place(&path, dms, Order::Fortran, written)?)
            }
            Format::Dat => {
                let written = written.min(self.lengths.most(range));
                let dat = |dm: &f64| self.dat(&path(dm, "dat"), *dm, range, written);
                let writers = range.dms.iter().map(dat);
                Writer::Dat(writers.collect::<Result<_>>()?)
            }
            Format::Tim => {
                let tim = |dm: &f64| self.tim(&path(dm, "tim"), *dm, range, written);
                let writers = range.dms.iter().map(tim);
                Writer::Tim(writers.collect::<Result<_>>()?)
            }
        })
    }

    fn dat(&self, path: &Path, dm: f64, range: &SeriesRange, written: u64) -> Result<SeriesWriter> {
        let mut inf = Inf::new(&self.shifted(range), dm, range.tsamp_s);
        inf.notes += concat!(
            "\nsidereal ",
            env!("CARGO_PKG_VERSION"),
            ": options, masks and checksums are in dedispersed.json"
        );
        inf.notes += &format!("\nrun: {}", Run::new(self.common).line());
        let mut writer = SeriesWriter::in_place(path, &inf, written)?;
        writer.release()?;
        Ok(writer)
    }

    fn tim(
        &self,
        path: &Path,
        dm: f64,
        range: &SeriesRange,
        written: u64,
    ) -> Result<TimeSeriesWriter> {
        let header = self.shifted(range);
        let series = TimeSeries {
            source_name: header.source_name,
            telescope: header.telescope,
            ra_deg: header.ra_deg,
            dec_deg: header.dec_deg,
            tstart_mjd: header.tstart_mjd,
            tsamp_s: range.tsamp_s,
            dm,
            frequency_mhz: header.band.highest_hz() / HZ_PER_MHZ,
        };
        let mut writer = TimeSeriesWriter::in_place(path, &series, written)?;
        writer.release()?;
        Ok(writer)
    }

    /// Returns the recording's header with the start of the series.
    fn shifted(&self, range: &SeriesRange) -> FilterbankHeader {
        let known = self.header.tstart_mjd > 0.0;
        let later = if known { range.start_s / SECONDS_PER_DAY } else { 0.0 };
        FilterbankHeader { tstart_mjd: self.header.tstart_mjd + later, ..self.header.clone() }
    }
}

impl SeriesSink for Files<'_> {
    fn begin(&mut self, ranges: &[SeriesRange]) -> Result<()> {
        if let Some(rows) = self.rows {
            let there = self.resumed.as_ref().map_or(0, |from| from.checkpoint.rows);
            let need = self.need(ranges, rows.saturating_sub(there));
            space::check(self.folder.place(), need, self.common)?;
        }
        let decimals = decimals(ranges.iter().flat_map(|range| &range.dms));
        for (index, range) in ranges.iter().enumerate() {
            self.writers.push(self.writer(index, range, decimals)?);
        }
        let mut sums = self.resumed.iter().flat_map(|from| &from.sums).copied();
        for (index, range) in ranges.iter().enumerate() {
            let written = self.resumed.as_ref().map(|from| &from.checkpoint.times);
            let written = written.and_then(|times| times.get(index).copied()).unwrap_or(0);
            let times = written.min(self.lengths.most(range));
            let level = |_: &f64| Level { sum: sums.next().unwrap_or(0.0), times };
            let levels = range.dms.iter().map(level).collect();
            self.ranges.push((range.clone(), levels));
        }
        Ok(())
    }

    fn block(&mut self, block: Block<'_>) -> Result<()> {
        let expected = self.writers.len();
        let found = self.writers.get_mut(block.range).zip(self.ranges.get_mut(block.range));
        let Some((writer, (range, levels))) = found else {
            let actual = block.range;
            return Err(Error::Shape { what: "ranges of the plan", expected, actual });
        };
        let row = |dm: usize| &block.plane.row(dm)[..block.valid[dm]];
        let most = self.lengths.most(range);
        match writer {
            Writer::Npy(writer) => {
                self.threads.for_each(levels, 1, |dm, level| level[0].add(row(dm)));
                let (block, threads) = (even(block, levels, &mut self.filled)?, &self.threads);
                let piece = (PIECE_BYTES / (4 * block.dms())).next_multiple_of(CACHED_TIMES);
                let mut done = 0;
                let transpose = |columns: &mut Vec<f32>| {
                    let times = done..block.times().min(done + piece);
                    done = times.end;
                    by_time(block, times.clone(), threads, columns);
                    Ok(times.len())
                };
                overlapped(&mut self.columns, transpose, |columns, times| {
                    writer.write(&columns[..times * block.dms()])?;
                    Ok(true)
                })?;
                writer.release()
            }
            Writer::Dat(writers) => {
                let pairs = writers.iter_mut().zip(levels);
                let mut files: Vec<_> =
                    pairs.map(|(writer, level)| (writer, level, Ok(()))).collect();
                self.threads.for_each(&mut files, 1, |dm, file| {
                    let (writer, level, outcome) = &mut file[0];
                    let room = most.saturating_sub(writer.bins());
                    let values = &row(dm)[..room.min(row(dm).len() as u64) as usize];
                    *outcome = writer.write(values).and_then(|()| writer.release());
                    level.add(values);
                });
                files.into_iter().try_for_each(|(_, _, outcome)| outcome)
            }
            Writer::Tim(writers) => {
                let mut files: Vec<_> = writers.iter_mut().map(|writer| (writer, Ok(()))).collect();
                self.threads.for_each(&mut files, 1, |dm, file| {
                    let (writer, outcome) = &mut file[0];
                    *outcome = writer.write(row(dm)).and_then(|()| writer.release());
                });
                files.into_iter().try_for_each(|(_, outcome)| outcome)
            }
        }
    }

    fn observe(&mut self, status: &Status) -> bool {
        self.progress.total(status.total);
        self.progress.at(status.times);
        !interrupt::requested()
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint, is_last: bool) -> Result<()> {
        if !self.has_checkpoints || !(is_last || self.keeper.is_due()) {
            return Ok(());
        }
        let levels = self.ranges.iter().flat_map(|(_, levels)| levels);
        let sums = levels.map(|level| level.sum).collect();
        self.keeper.checkpoint(&Kept { checkpoint: checkpoint.clone(), sums }.state())
    }
}

/// Returns a block in which all trials have the same length: shorter ones are padded with their mean.
fn even<'a>(
    block: Block<'a>,
    levels: &[Level],
    filled: &'a mut Vec<f32>,
) -> Result<Plane<'a, f32>> {
    let (dms, times) = (block.plane.dms(), block.plane.times());
    if block.valid.iter().all(|valid| *valid >= times) {
        return Ok(block.plane);
    }
    filled.clear();
    for (dm, level) in levels.iter().enumerate() {
        filled.extend_from_slice(&block.plane.row(dm)[..block.valid[dm].min(times)]);
        filled.resize((dm + 1) * times, level.mean());
    }
    Plane::new(filled, dms, times, times)
}

/// Transposes some times of a block (axes DM, time) to axes time, DM.
fn by_time(block: Plane<'_, f32>, times: Range<usize>, threads: &Threads, columns: &mut Vec<f32>) {
    let dms = block.dms();
    columns.resize(dms * times.len(), 0.0);
    threads.for_each(columns, CACHED_TIMES * dms, |index, columns| {
        let first = times.start + index * CACHED_TIMES;
        let times = columns.len() / dms;
        for dm in 0..dms {
            let row = &block.row(dm)[first..first + times];
            for (column, value) in columns.chunks_exact_mut(dms).zip(row) {
                column[dm] = *value;
            }
        }
    });
}

/// State of an interrupted run: its position, and the sum of each trial's samples.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    checkpoint: Checkpoint,
    sums: Vec<f64>,
}

impl Kept {
    fn state(&self) -> Vec<u8> {
        let Checkpoint { rows, flagged, times } = &self.checkpoint;
        let head = [*rows, *flagged, times.len() as u64];
        let words = head.into_iter().chain(times.iter().copied());
        words.chain(self.sums.iter().map(|sum| sum.to_bits())).flat_map(u64::to_le_bytes).collect()
    }

    /// Reads the position of an interrupted run from its saved state.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a state of another length.
    fn read(state: &[u8]) -> Result<Self> {
        let bad = || Error::parameter("bytes of the checkpoint", state.len(), "it is damaged");
        let (words, rest) = state.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [rows, flagged, ranges, ref lists @ ..] = words[..] else { return Err(bad()) };
        let ranges = usize::try_from(ranges).map_err(|_| bad())?;
        let (times, sums) =
            lists.split_at_checked(ranges).filter(|_| rest.is_empty()).ok_or_else(bad)?;
        let checkpoint = Checkpoint { rows, flagged, times: times.to_vec() };
        Ok(Self { checkpoint, sums: sums.iter().map(|bits| f64::from_bits(*bits)).collect() })
    }
}

/// Returns the number of decimals that distinguishes all trials, at least 2.
fn decimals<'a>(dms: impl Iterator<Item = &'a f64>) -> usize {
    let mut dms: Vec<f64> = dms.copied().collect();
    dms.sort_by(f64::total_cmp);
    let closest = dms.windows(2).map(|pair| pair[1] - pair[0]).filter(|step| *step > 0.0);
    let closest = closest.fold(f64::INFINITY, f64::min);
    // A step of at least one unit of the last decimal keeps rounded names distinct.
    (2..9).find(|decimals| closest >= 0.999 * 10f64.powi(-*decimals)).unwrap_or(9) as usize
}

/// Format of time series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One NumPy array.
    Npy,
    /// PRESTO's .dat and .inf, one pair per trial.
    Dat,
    /// SIGPROC's .tim, one file per trial.
    Tim,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_the_block_s_times() {
        let (dms, stride, times) = (3, 50, 37);
        let data: Vec<f32> = (0..dms * stride).map(|k| k as f32).collect();
        let block = Plane::new(&data, dms, stride, times).unwrap();
        let mut columns = vec![-1.0; 1000];
        for part in [0..times, 3..20, 5..5] {
            by_time(block, part.clone(), &Threads::new(2), &mut columns);
            assert_eq!(columns.len(), dms * part.len());
            for (k, value) in columns.iter().enumerate() {
                assert_eq!(*value, (k % dms * stride + part.start + k / dms) as f32);
            }
        }
    }

    #[test]
    fn what_is_kept_goes_round_and_damage_is_told() {
        let checkpoint = Checkpoint { rows: 7, flagged: 1, times: vec![5, 2] };
        let kept = Kept { checkpoint, sums: vec![1.5, -3.0, 0.25] };
        let state = kept.state();
        assert_eq!(Kept::read(&state).unwrap(), kept);
        let many = [0, 0, u64::MAX].map(u64::to_le_bytes).concat();
        for bad in [&state[..16], &state[..state.len() - 1], &state[..32], &many[..]] {
            assert!(Kept::read(bad).is_err(), "{} bytes", bad.len());
        }
    }

    #[test]
    fn series_of_a_range_have_one_even_length() {
        let range =
            |downsample| SeriesRange { dms: vec![1.0], tsamp_s: 1e-3, downsample, start_s: 0.0 };
        let good = Lengths::new(None, Format::Dat).unwrap();
        assert_eq!(
            (good.of(&range(1), 531_000), good.of(&range(4), 531_000)),
            (Some(537_600), Some(134_400))
        );
        let given = Lengths::new(Some(1000), Format::Dat).unwrap();
        assert_eq!((given.of(&range(1), 7), given.of(&range(8), 7)), (Some(1000), Some(126)));
        assert_eq!((given.most(&range(1)), good.most(&range(1))), (1000, u64::MAX));
        assert_eq!(Lengths::new(None, Format::Npy).unwrap().of(&range(1), 7), None);
        for (length, format) in [(0, Format::Dat), (999, Format::Dat), (1000, Format::Tim)] {
            let error = Lengths::new(Some(length), format).unwrap_err().to_string();
            assert!(error.contains("--numout"), "{error}");
        }
    }

    #[test]
    fn names_tell_trials_apart() {
        assert_eq!(decimals([1.0, 1.5, 2.0].iter()), 2);
        assert_eq!(decimals([1.0, 1.01, 1.02].iter()), 2);
        assert_eq!(decimals([1.0, 1.005].iter()), 3);
        assert_eq!(decimals([7.0].iter()), 2);
        assert_eq!(numbered("a", 0, "npy"), "a.npy");
        assert_eq!(numbered("a", 1, "npy"), "a_2.npy");
        for name in ["dedispersed.npy", "dedispersed_2.json", "a.b_DM1.50.dat", "x_DM-3.00.tim"] {
            assert!(writes(name), "{name}");
        }
        for name in ["thesis.tex", "mine.npy", "dedispersed_x.npy", "a_DM.inf", "a_DM1.50.png"] {
            assert!(!writes(name), "{name}");
        }
    }
}
