//! Dedispersion of filterbank rows into one time series per trial dispersion measure.
//!
//! Invariant: a block is handed over as it is made, so memory does not grow with the recording, and what was made
//! stays whatever ends the work.

use std::time::Instant;

use super::cleaning::Cleaning;
use super::options::{Part, SearchOptions, skip_to};
use super::range::{Trials, advance, prefetch, stride};
use super::run::{Ending, Status, remaining_bytes};
use crate::backend::Backend;
use crate::backend::cuda::{Device, Source};
use crate::backend::threads::Threads;
use crate::clean::Mitigated;
use crate::dedisperse::{self, Dedisperser, Output};
use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::sample::Samples;
use crate::state::GREATEST;
use crate::view::{Plane, PlaneMut, Progress};

/// Limit in bytes on the series held at once, over all ranges.
const PLANE_BYTES: usize = 128 << 20;

/// Properties of the series of one range of the DM plan.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesRange {
    /// Trials, without those whose delay is longer than the data.
    pub dms: Vec<f64>,
    /// Sampling time of the series in seconds.
    pub tsamp_s: f64,
    /// Input samples summed per output sample.
    pub downsample: usize,
    /// Start of the first sample in seconds, relative to the recording's start.
    pub start_s: f64,
}

/// Next times of a range's series.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Index of the range.
    pub range: usize,
    /// Series; axes dm, time.
    pub plane: Plane<'a, f32>,
    /// Valid elements of each row; the others lie after the trial's end and are 0.
    pub valid: &'a [usize],
}

/// Sink of the series that [`dedisperse()`] computes.
pub trait SeriesSink {
    /// Receives the ranges once, before the first block.
    ///
    /// # Errors
    /// Any error ends the run.
    fn begin(&mut self, ranges: &[SeriesRange]) -> Result<()>;

    /// Receives a block; blocks of one range are consecutive in time.
    ///
    /// # Errors
    /// Any error ends the run.
    fn block(&mut self, block: Block<'_>) -> Result<()>;

    /// Receives the progress; returning false stops the run.
    fn observe(&mut self, status: &Status) -> bool;

    /// Receives a checkpoint from which another process can resume, after each gulp; `is_last` marks the end of the
    /// run or of the recording.
    ///
    /// # Errors
    /// Any error ends the run.
    fn checkpoint(&mut self, checkpoint: &Checkpoint, is_last: bool) -> Result<()> {
        let _ = (checkpoint, is_last);
        Ok(())
    }
}

/// State of a dedispersion between two gulps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Rows read.
    pub rows: u64,
    /// Samples that the source replaced.
    pub flagged: u64,
    /// Times of each range passed to the sink.
    pub times: Vec<u64>,
}

/// Report of a dedispersion.
#[derive(Clone, Debug)]
pub struct SeriesReport {
    /// The ranges.
    pub ranges: Vec<SeriesRange>,
    /// Valid samples of each trial of each range.
    pub times: Vec<Vec<u64>>,
    /// Trials skipped because their delay is longer than the data.
    pub skipped_dms: usize,
    /// Masked channels, in recorded order.
    pub masked_channels: Vec<usize>,
    /// Interference removed, if mitigation was enabled.
    pub mitigated: Option<Mitigated>,
    /// Gaps that were filled.
    pub gaps: Vec<Gap>,
    /// Samples that were not finite, filled with their channel's level.
    pub flagged_samples: u64,
    /// Rows read.
    pub rows: u64,
    /// Length of the data in seconds.
    pub data_s: f64,
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
    /// End state of the run. After an incomplete run, the series are those of a recording that ends with the rows
    /// read; if a sink or a device failed, they are the blocks passed on before.
    pub ending: Ending,
}

/// Dedisperses a stream of rows at every trial of a plan.
///
/// The detection options (`snr`, `max_width_s`, `baseline_s`) have no effect. Sums of integers are exact and are
/// rounded once to f32. [`SeriesReport::ending`] states the reason for an early end.
///
/// # Errors
/// [`Error::Parameter`] for options that do not fit the data, or when every trial's delay is too long; errors of the
/// source and the sink before any row was read.
pub fn dedisperse(
    source: &mut dyn FilterbankSource,
    options: &SearchOptions,
    backend: &Backend,
    sink: &mut dyn SeriesSink,
) -> Result<SeriesReport> {
    dedisperse_from(source, options, backend, None, sink)
}

/// Like [`dedisperse()`], from the start or from the checkpoint of an interrupted call for the same rows. The sink
/// holds the blocks that the checkpoint counts and receives those that follow.
///
/// `source` is at its first row in either case. Rows that are no longer needed are skipped.
///
/// # Errors
/// As [`dedisperse()`]; [`Error::Parameter`] for a checkpoint of other ranges.
pub fn dedisperse_from(
    source: &mut dyn FilterbankSource,
    options: &SearchOptions,
    backend: &Backend,
    resumed: Option<&Checkpoint>,
    sink: &mut dyn SeriesSink,
) -> Result<SeriesReport> {
    let begin = Instant::now();
    let header = source.header().clone();
    let part = Part::new(&header, options)?;
    let _kernels = prefetch(&header, options, part, backend, Vec::new(), sources);
    skip_to(source, part.first)?;
    let mut goes_on = || {
        let elapsed_s = begin.elapsed().as_secs_f64();
        sink.observe(&Status { times: 0, total: part.times, data_s: 0.0, elapsed_s })
    };
    let mut cleaning = Cleaning::new(source, options, part, backend, &mut goes_on)?;
    if resumed.is_some() {
        cleaning.check_whole()?;
    }
    let start_s = part.first as f64 * header.tsamp_s;
    let trials = Trials { header: &header, options, form: cleaning.form(), part };
    let mut work = Work::new(trials, backend)?;
    work.check_fit()?;
    let ranges: Vec<_> = work.ranges.iter().map(|range| range.describe(start_s)).collect();
    let mut rows = resumed.map_or(Ok(0), |from| work.resume(from, source, &mut cleaning))?;
    let earlier = resumed.map_or(0, |from| from.rows);
    sink.begin(&ranges)?;
    let mut raw = vec![0; work.gulp(&header, &cleaning, options)? * header.row_bytes()];
    let mut cleaned = Vec::new();
    let mut is_whole = true;
    let ending = loop {
        let got = match cleaning.read(source, &mut raw) {
            Ok(0) => break Ending::Complete,
            Ok(got) => got,
            Err(error) if rows == 0 && earlier == 0 => return Err(error),
            Err(error) => break Ending::after(error),
        };
        let bytes = &raw[..got * header.row_bytes()];
        let samples = Samples::new(bytes, header.encoding, got, header.channels())?;
        let samples = cleaning.clean(samples, &mut cleaned)?;
        let mut made = work.ranges.iter_mut().try_for_each(|range| range.run(samples, sink));
        rows += got as u64;
        if made.is_ok() && rows >= earlier && !cleaning.is_cut_short() {
            made = sink.checkpoint(&work.checkpoint(rows, source.flagged_samples()), false);
        }
        if let Err(error) = made {
            if work.ranges.iter().all(|range| range.produced == 0) {
                return Err(error);
            }
            is_whole = false;
            break Ending::after(error);
        }
        let data_s = rows as f64 * header.tsamp_s;
        let elapsed_s = begin.elapsed().as_secs_f64();
        let goes_on = sink.observe(&Status { times: rows, total: part.times, data_s, elapsed_s });
        // If the read of the mask's rows was cut short, all rows that the mask was made from are still processed.
        if !goes_on && !cleaning.is_cut_short() {
            break Ending::Stopped;
        }
    };
    let mut ending = if ending.is_complete() { Ending::of_source(source.cut()) } else { ending };
    // Rows of an earlier call were not all read again, so the stream's end cannot be flushed.
    is_whole &= rows >= earlier;
    rows = rows.max(earlier);
    if is_whole && !cleaning.is_cut_short() {
        // The report gives the error that ended the run, not a later error of writing the checkpoint.
        let _ = sink.checkpoint(&work.checkpoint(rows, source.flagged_samples()), true);
    }
    if is_whole
        && let Err(error) = work.ranges.iter_mut().try_for_each(|range| range.finish(rows, sink))
        && ending.is_complete()
    {
        ending = Ending::after(error);
    }
    let times: Vec<Vec<u64>> = work.ranges.iter().map(|range| range.made_times(rows)).collect();
    let late = times.iter().flatten().filter(|times| **times == 0).count();
    if ending.is_read() {
        work.skipped += late;
        if times.iter().flatten().count() == late {
            return Err(work.none_fits());
        }
    }
    Ok(SeriesReport {
        ranges,
        times,
        skipped_dms: work.skipped,
        masked_channels: cleaning.masked_channels(),
        mitigated: cleaning.mitigated(),
        gaps: source.gaps().to_vec(),
        flagged_samples: source.flagged_samples() + cleaning.flagged_samples(),
        rows,
        data_s: rows as f64 * header.tsamp_s,
        elapsed_s: begin.elapsed().as_secs_f64(),
        ending,
    })
}

/// Lists the dedispersion kernels that the ranges are expected to need on a device.
fn sources(trials: &Trials<'_>, device: &Device) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for range in &trials.options.plan.ranges {
        if let (Some(plan), _) = trials.bind(std::slice::from_ref(range))? {
            sources.extend(dedisperse::sources(&plan, device));
        }
    }
    Ok(sources)
}

/// Dedispersion of all ranges.
struct Work {
    ranges: Vec<RangeSeries>,
    skipped: usize,
    lowest_dm: f64,
}

impl Work {
    fn new(trials: Trials<'_>, backend: &Backend) -> Result<Self> {
        let mut ranges = Vec::new();
        let mut skipped = 0;
        let asked = &trials.options.plan.ranges;
        for range in asked {
            let (plan, too_long) = trials.bind(std::slice::from_ref(range))?;
            skipped += too_long;
            if let Some(plan) = plan {
                ranges.push(RangeSeries::new(ranges.len(), plan, trials.form.scale, backend)?);
            }
        }
        let lowest_dm = asked.first().map_or(0.0, |range| range.dm_min);
        Ok(Self { ranges, skipped, lowest_dm })
    }

    /// Restores a checkpoint; returns the next row of the source, counted from the part's first row.
    fn resume(
        &mut self,
        from: &Checkpoint,
        source: &mut dyn FilterbankSource,
        cleaning: &mut Cleaning,
    ) -> Result<u64> {
        if from.times.len() != self.ranges.len() {
            let rule = format!("there are {}", self.ranges.len());
            return Err(Error::parameter("ranges of the checkpoint", from.times.len(), rule));
        }
        if from.rows >= GREATEST {
            let rule = "it is damaged: no recording has that many";
            return Err(Error::parameter("rows of the checkpoint", from.rows, rule));
        }
        let mut first = from.rows;
        for (range, times) in self.ranges.iter_mut().zip(&from.times) {
            range.produced = *times;
            range.first_row = times.saturating_mul(range.plan().downsample() as u64);
            if range.first_row > from.rows {
                let rule = format!("{} rows do not give that many", from.rows);
                return Err(Error::parameter("times of the checkpoint", times, rule));
            }
            first = first.min(range.first_row);
        }
        // Fill levels depend on all rows since the first, as does the count of replaced samples.
        let first = if cleaning.looks_back() || from.flagged > 0 { 0 } else { first };
        let skipped = cleaning.skip(source, first)?;
        if skipped < first {
            let rule = format!("the data end after {skipped} rows; an earlier run had more");
            return Err(Error::parameter("row to resume from", first, rule));
        }
        self.ranges.iter_mut().for_each(|range| range.next_row = first);
        Ok(first)
    }

    fn checkpoint(&self, rows: u64, flagged: u64) -> Checkpoint {
        let times = self.ranges.iter().map(|range| range.produced).collect();
        Checkpoint { rows, flagged, times }
    }

    fn check_fit(&self) -> Result<()> {
        if self.ranges.is_empty() { Err(self.none_fits()) } else { Ok(()) }
    }

    fn none_fits(&self) -> Error {
        let rule = "its delay across the band is longer than the data: no trial fits";
        Error::parameter("dm_min", self.lowest_dm, rule)
    }

    /// Returns the rows per read: as requested, or as many as the memory for the series allows.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the memory limit is too low for a single row.
    fn gulp(
        &self,
        header: &FilterbankHeader,
        cleaning: &Cleaning,
        options: &SearchOptions,
    ) -> Result<usize> {
        let per_row: usize = self.ranges.iter().map(RangeSeries::bytes_per_row).sum();
        let most = (PLANE_BYTES / per_row.max(1)).min(PLANE_BYTES / 4 / header.row_bytes().max(1));
        let gulp = match options.gulp {
            0 => most.clamp(64, 1 << 16),
            asked => asked.min(most.max(1)),
        };
        let held = |range: &RangeSeries| {
            let plan = range.plan();
            range.dedisperser.held_bytes() + 8 * plan.dms().len() * stride(plan, None)
        };
        let held = self.ranges.iter().map(held).sum::<usize>() + cleaning.held_bytes();
        let row = per_row + header.row_bytes() + cleaning.made_row_bytes();
        let remaining = remaining_bytes(options.memory, "the series", held, row)?;
        Ok(gulp.min(remaining / row.max(1)))
    }
}

/// Dedispersion of one range: the dedisperser and its output planes.
struct RangeSeries {
    index: usize,
    dedisperser: Dedisperser,
    integers: Vec<i32>,
    floats: Vec<f32>,
    threads: Threads,
    valid: Vec<usize>,
    produced: u64,
    /// Next row, and the first row to process; another call produced the output of earlier ones.
    next_row: u64,
    first_row: u64,
    /// Factor that converts sums to counts of the recording.
    count: f32,
}

impl RangeSeries {
    fn new(index: usize, plan: dedisperse::Plan, scale: i32, backend: &Backend) -> Result<Self> {
        let valid = vec![0; plan.dms().len()];
        let (dedisperser, threads) = (Dedisperser::new(plan, backend)?, backend.host().threads());
        let (integers, floats) = (Vec::new(), Vec::new());
        // Exact: the scale is a power of two.
        let count = 1.0 / scale as f32;
        let (produced, next_row, first_row) = (0, 0, 0);
        Ok(Self {
            index,
            dedisperser,
            integers,
            floats,
            threads,
            valid,
            produced,
            next_row,
            first_row,
            count,
        })
    }

    fn plan(&self) -> &dedisperse::Plan {
        self.dedisperser.plan()
    }

    fn describe(&self, start_s: f64) -> SeriesRange {
        let plan = self.plan();
        let (dms, tsamp_s) = (plan.dms().to_vec(), plan.tsamp_s());
        SeriesRange { dms, tsamp_s, downsample: plan.downsample(), start_s }
    }

    /// Returns the bytes of both planes per input row.
    fn bytes_per_row(&self) -> usize {
        (8 * self.plan().dms().len()).div_ceil(self.plan().downsample())
    }

    fn valid_times(&self, rows: u64) -> Vec<u64> {
        let plan = self.plan();
        (0..plan.dms().len()).map(|dm| plan.valid_times(rows, dm)).collect()
    }

    /// Returns the valid samples of each trial passed to the sink.
    fn made_times(&self, rows: u64) -> Vec<u64> {
        self.valid_times(rows).into_iter().map(|times| times.min(self.produced)).collect()
    }

    fn run(&mut self, samples: Samples<'_>, sink: &mut dyn SeriesSink) -> Result<()> {
        let early = self.first_row.saturating_sub(self.next_row).min(samples.times() as u64);
        self.next_row += samples.times() as u64;
        let early = early as usize;
        let mut rest = samples.slice(early, samples.times() - early);
        while rest.times() > 0 {
            let stride = stride(self.plan(), Some(rest));
            let progress = self.step(stride, Some(rest))?;
            rest = rest.slice(progress.consumed, rest.times() - progress.consumed);
            self.valid.fill(progress.produced);
            self.pass_block(stride, progress.produced, sink)?;
        }
        Ok(())
    }

    /// Ends the stream after `rows` rows.
    fn finish(&mut self, rows: u64, sink: &mut dyn SeriesSink) -> Result<()> {
        let ends = self.valid_times(rows);
        let stride = stride(self.plan(), None);
        loop {
            let produced = self.step(stride, None)?.produced;
            if produced == 0 {
                return Ok(());
            }
            for (valid, end) in self.valid.iter_mut().zip(&ends) {
                *valid = end.saturating_sub(self.produced).min(produced as u64) as usize;
            }
            self.pass_block(stride, produced, sink)?;
        }
    }

    /// Dedisperses rows, or flushes the remainder at the end, into the float plane.
    fn step(&mut self, stride: usize, rows: Option<Samples<'_>>) -> Result<Progress> {
        let dms = self.plan().dms().len();
        let size = dms * stride;
        if self.floats.len() < size {
            self.floats.resize(size, 0.0);
        }
        if !self.plan().output_is_integer() {
            let plane = PlaneMut::new(&mut self.floats[..size], dms, stride)?;
            return advance(&mut self.dedisperser, rows, Output::F32(plane));
        }
        if self.integers.len() < size {
            self.integers.resize(size, 0);
        }
        let plane = PlaneMut::new(&mut self.integers[..size], dms, stride)?;
        let progress = advance(&mut self.dedisperser, rows, Output::I32(plane))?;
        let (integers, count) = (&self.integers[..size], self.count);
        self.threads.for_each(&mut self.floats[..size], stride, |dm, floats| {
            let made = floats.iter_mut().zip(&integers[dm * stride..]).take(progress.produced);
            made.for_each(|(float, integer)| *float = *integer as f32 * count);
        });
        Ok(progress)
    }

    fn pass_block(
        &mut self,
        stride: usize,
        produced: usize,
        sink: &mut dyn SeriesSink,
    ) -> Result<()> {
        if produced == 0 {
            return Ok(());
        }
        let dms = self.plan().dms().len();
        let plane = Plane::new(&self.floats[..dms * stride], dms, stride, produced)?;
        sink.block(Block { range: self.index, plane, valid: &self.valid })?;
        self.produced += produced as u64;
        Ok(())
    }
}
