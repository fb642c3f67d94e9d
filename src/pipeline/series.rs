//! Dedispersion of filterbank rows into one time series per trial dispersion measure.
//!
//! Invariant: blocks are handed over while the next ones are made, two gulps exist, and what was handed
//! over stays whatever ends the work.

use std::time::Instant;

use super::cleaning::{Cleaning, clean};
use super::gulps::Gulps;
use super::options::{Part, SearchOptions, skip_to};
use super::overlap::overlapped;
use super::range::{TrialGroup, Trials, advance, prefetch, stride};
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
use crate::trace;
use crate::view::{Plane, PlaneMut, Progress};

/// Limit in bytes on the series held at once, over all ranges.
const PLANE_BYTES: usize = 192 << 20;

/// Limit in bytes on the rows of a gulp.
const ROW_BYTES: usize = 32 << 20;

/// Gulps of series in memory: one is passed to the sink while the next is computed.
const GULPS: usize = 2;

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
    let gulp = work.gulp(&header, &cleaning, options)?;
    let is_cut_short = cleaning.is_cut_short();
    let mut passed: Vec<u64> = work.ranges.iter().map(|range| range.produced).collect();
    let mut gulps: [_; GULPS] = std::array::from_fn(|_| Gulp::default());
    let mut read = Gulps::new(gulp, header.row_bytes());
    let mut producer = Producer {
        cleaning: &mut cleaning,
        work: &mut work,
        read: &mut read,
        cleaned: Vec::new(),
        rows,
        earlier,
        is_whole: true,
        fault: None,
    };
    let mut goes_on = true;
    let made = overlapped(
        &mut gulps,
        |gulp| Ok(producer.fill(source, gulp)),
        |gulp, _| {
            rows = gulp.rows;
            gulp.pass(sink, &mut passed)?;
            if let Some(checkpoint) = &gulp.checkpoint {
                sink.checkpoint(checkpoint, false)?;
            }
            let data_s = rows as f64 * header.tsamp_s;
            let elapsed_s = begin.elapsed().as_secs_f64();
            let status = Status { times: rows, total: part.times, data_s, elapsed_s };
            // If the read of the mask's rows was cut short, all rows that the mask was made from are still processed.
            goes_on = goes_on && (sink.observe(&status) || is_cut_short);
            Ok(goes_on)
        },
    );
    let Producer { mut is_whole, fault, .. } = producer;
    let ending = match (made, fault) {
        (Err(error), _) => {
            is_whole = false;
            Err(error)
        }
        (Ok(Ending::Complete), Some(fault)) => Err(fault),
        (Ok(ending), _) => Ok(ending),
    };
    let is_empty = match is_whole {
        true => rows == 0 && earlier == 0,
        false => passed.iter().all(|times| *times == 0),
    };
    let ending = match ending {
        Err(error) if is_empty => return Err(error),
        other => other.unwrap_or_else(Ending::after),
    };
    let mut ending = ending.with_cut(source.cut());
    // Rows of an earlier call were not all read again, so the stream's end cannot be flushed.
    is_whole &= rows >= earlier;
    rows = rows.max(earlier);
    if is_whole && !cleaning.is_cut_short() {
        // The report gives the error that ended the run, not a later error of writing the checkpoint.
        let _ = sink.checkpoint(&work.checkpoint(rows, read.flagged_samples()), true);
    }
    if is_whole
        && let Err(error) = work.finish(rows, &mut gulps[0], sink, &mut passed)
        && ending.is_complete()
    {
        ending = Ending::after(error);
    }
    let made = work.ranges.iter().zip(&passed);
    let times: Vec<Vec<u64>> = made.map(|(range, passed)| range.times(rows, *passed)).collect();
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
        flagged_samples: read.flagged_samples() + cleaning.flagged_samples(),
        rows,
        data_s: rows as f64 * header.tsamp_s,
        elapsed_s: begin.elapsed().as_secs_f64(),
        ending,
    })
}

/// Lists the dedispersion kernels that the ranges are expected to need on the first device, which dedisperses all.
fn sources(trials: &Trials<'_>, devices: &[Device]) -> Result<Vec<Vec<Source>>> {
    let mut sources = Vec::new();
    for range in &trials.options.plan.ranges {
        if let (Some(plan), _) = trials.bind(TrialGroup::of(range))? {
            sources.extend(dedisperse::sources(&plan, &devices[0]));
        }
    }
    Ok(vec![sources])
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
            let (plan, too_long) = trials.bind(TrialGroup::of(range))?;
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

    /// Passes the series that remain after `rows` rows to the sink.
    fn finish(
        &mut self,
        rows: u64,
        gulp: &mut Gulp,
        sink: &mut dyn SeriesSink,
        passed: &mut [u64],
    ) -> Result<()> {
        for range in &mut self.ranges {
            while range.flush(rows, gulp)? {
                gulp.pass(sink, passed)?;
            }
        }
        Ok(())
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
        let most = (PLANE_BYTES / per_row.max(1)).min(ROW_BYTES / header.row_bytes().max(1));
        let gulp = match options.gulp {
            0 => most.clamp(64, 1 << 16),
            asked => asked.min(most.max(1)),
        };
        let held = |range: &RangeSeries| {
            let plan = range.plan();
            range.dedisperser.held_bytes() + 8 * plan.dms().len() * stride(plan, None)
        };
        let held = self.ranges.iter().map(held).sum::<usize>() + cleaning.held_bytes();
        let row = per_row + Gulps::BUFFERS * header.row_bytes() + cleaning.made_row_bytes();
        let remaining = remaining_bytes(options.memory, "the series", held, row)?;
        Ok(gulp.min(remaining / row.max(1)))
    }
}

/// Dedispersion of the rows of a source, one gulp per call.
struct Producer<'a> {
    cleaning: &'a mut Cleaning,
    work: &'a mut Work,
    read: &'a mut Gulps,
    cleaned: Vec<u8>,
    /// Rows dedispersed so far.
    rows: u64,
    /// Rows of an earlier call, whose series the sink holds.
    earlier: u64,
    /// Whether all rows that were read are dedispersed.
    is_whole: bool,
    /// Error that ended the data.
    fault: Option<Error>,
}

impl Producer<'_> {
    /// Dedisperses the next rows; returns their number, 0 at the end of the data or after an error.
    fn fill(&mut self, source: &mut dyn FilterbankSource, gulp: &mut Gulp) -> usize {
        gulp.clear();
        let (reader, cleaner) = self.cleaning.parts();
        let times = match self.read.advance(reader, source) {
            Ok(times) => times,
            Err(error) => {
                self.fault = Some(error);
                return 0;
            }
        };
        if times == 0 {
            return 0;
        }
        self.rows += times as u64;
        let (encoding, channels) = (source.header().encoding, source.header().channels());
        let (work, cleaned) = (&mut *self.work, &mut self.cleaned);
        let made = self.read.process(times, reader, source, |bytes| {
            let samples = Samples::new(bytes, encoding, times, channels)?;
            let samples = clean(cleaner, samples, cleaned)?;
            work.ranges.iter_mut().try_for_each(|range| range.run(samples, gulp))
        });
        if let Err(error) = made {
            (self.is_whole, self.fault) = (false, Some(error));
            return 0;
        }
        gulp.rows = self.rows;
        let has_checkpoint = self.rows >= self.earlier && !self.cleaning.is_cut_short();
        let flagged = self.read.flagged_samples();
        gulp.checkpoint = has_checkpoint.then(|| self.work.checkpoint(self.rows, flagged));
        times
    }
}

/// Series of all ranges from some consecutive rows.
#[derive(Default)]
struct Gulp {
    /// Blocks in order; those from number `used` on are spare buffers.
    blocks: Vec<Made>,
    used: usize,
    /// Rows read up to its end, and the checkpoint there.
    rows: u64,
    checkpoint: Option<Checkpoint>,
}

/// Computed block; its plane has `valid.len()` trials and rows of `stride` elements.
#[derive(Default)]
struct Made {
    range: usize,
    floats: Vec<f32>,
    stride: usize,
    times: usize,
    valid: Vec<usize>,
}

impl Gulp {
    fn clear(&mut self) {
        self.used = 0;
    }

    /// Returns the buffer of the next block, for a plane of `dms` rows of `stride` elements.
    fn next(&mut self, range: usize, dms: usize, stride: usize) -> &mut Made {
        if self.used == self.blocks.len() {
            self.blocks.push(Made::default());
        }
        let made = &mut self.blocks[self.used];
        self.used += 1;
        (made.range, made.stride, made.times) = (range, stride, 0);
        made.valid.clear();
        made.valid.resize(dms, 0);
        if made.floats.len() < dms * stride {
            made.floats.resize(dms * stride, 0.0);
        }
        made
    }

    /// Passes the blocks to the sink, and counts each range's times in `passed`.
    fn pass(&self, sink: &mut dyn SeriesSink, passed: &mut [u64]) -> Result<()> {
        for Made { range, floats, stride, times, valid } in &self.blocks[..self.used] {
            if *times > 0 {
                let (range, dms) = (*range, valid.len());
                let plane = Plane::new(&floats[..dms * stride], dms, *stride, *times)?;
                sink.block(Block { range, plane, valid })?;
                passed[range] += *times as u64;
            }
        }
        Ok(())
    }
}

/// Dedispersion of one range: the dedisperser and its plane of integers.
struct RangeSeries {
    index: usize,
    dedisperser: Dedisperser,
    integers: Vec<i32>,
    threads: Threads,
    produced: u64,
    /// Next row, and the first row to process; another call produced the output of earlier ones.
    next_row: u64,
    first_row: u64,
    /// Factor that converts sums to counts of the recording.
    count: f32,
    /// Whether the host dedisperses.
    on_host: bool,
}

impl RangeSeries {
    fn new(index: usize, plan: dedisperse::Plan, scale: i32, backend: &Backend) -> Result<Self> {
        Ok(Self {
            index,
            dedisperser: Dedisperser::new(plan, backend)?,
            integers: Vec::new(),
            threads: backend.host().threads(),
            produced: 0,
            next_row: 0,
            first_row: 0,
            // Exact: the scale is a power of two.
            count: 1.0 / scale as f32,
            on_host: !backend.is_gpu(),
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

    /// Returns the bytes of all planes per input row.
    fn bytes_per_row(&self) -> usize {
        let sample = size_of::<i32>() + GULPS * size_of::<f32>();
        (sample * self.plan().dms().len()).div_ceil(self.plan().downsample())
    }

    fn valid_times(&self, rows: u64) -> Vec<u64> {
        let plan = self.plan();
        (0..plan.dms().len()).map(|dm| plan.valid_times(rows, dm)).collect()
    }

    /// Returns the valid samples of each trial, of which the sink has received `passed`.
    fn times(&self, rows: u64, passed: u64) -> Vec<u64> {
        self.valid_times(rows).into_iter().map(|times| times.min(passed)).collect()
    }

    fn run(&mut self, samples: Samples<'_>, gulp: &mut Gulp) -> Result<()> {
        let early = self.first_row.saturating_sub(self.next_row).min(samples.times() as u64);
        self.next_row += samples.times() as u64;
        let early = early as usize;
        let mut rest = samples.slice(early, samples.times() - early);
        while rest.times() > 0 {
            let stride = stride(self.plan(), Some(rest));
            let made = gulp.next(self.index, self.plan().dms().len(), stride);
            let progress = self.step(Some(rest), made)?;
            rest = rest.slice(progress.consumed, rest.times() - progress.consumed);
            made.valid.fill(progress.produced);
            self.produced += progress.produced as u64;
        }
        Ok(())
    }

    /// Makes a block of the series that remain after `rows` rows; returns false at their end.
    fn flush(&mut self, rows: u64, gulp: &mut Gulp) -> Result<bool> {
        gulp.clear();
        let (dms, stride) = (self.plan().dms().len(), stride(self.plan(), None));
        let made = gulp.next(self.index, dms, stride);
        let produced = self.step(None, made)?.produced as u64;
        for (valid, end) in made.valid.iter_mut().zip(self.valid_times(rows)) {
            *valid = end.saturating_sub(self.produced).min(produced) as usize;
        }
        self.produced += produced;
        Ok(produced > 0)
    }

    /// Dedisperses rows, or flushes the remainder at the end, into a block.
    fn step(&mut self, rows: Option<Samples<'_>>, made: &mut Made) -> Result<Progress> {
        let _span = self.on_host.then(|| trace::span(trace::Work::Compute, "dedisperse"));
        let (dms, stride) = (made.valid.len(), made.stride);
        let size = dms * stride;
        let floats = &mut made.floats[..size];
        if !self.plan().output_is_integer() {
            let plane = PlaneMut::new(floats, dms, stride)?;
            let progress = advance(&mut self.dedisperser, rows, Output::F32(plane))?;
            made.times = progress.produced;
            return Ok(progress);
        }
        if self.integers.len() < size {
            self.integers.resize(size, 0);
        }
        let plane = PlaneMut::new(&mut self.integers[..size], dms, stride)?;
        let progress = advance(&mut self.dedisperser, rows, Output::I32(plane))?;
        let (integers, count) = (&self.integers[..size], self.count);
        self.threads.for_each(floats, stride, |dm, floats| {
            let made = floats.iter_mut().zip(&integers[dm * stride..]).take(progress.produced);
            made.for_each(|(float, integer)| *float = *integer as f32 * count);
        });
        made.times = progress.produced;
        Ok(progress)
    }
}
