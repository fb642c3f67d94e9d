//! Buffers of a search: one gulp of rows at a time through every range, on the host, or on a GPU, where rows are copied
//! in and only events return.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::backend::cuda::{
    self, Buffer, Device, Event, MOST_JOINED, Plane, PlaneKind, Stream, UploadRing, UploadSlot,
    Uploaded,
};
use crate::backend::threads::Threads;
use crate::clean::Cleaner;
use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, FilterbankSource};
use crate::pipeline::cleaning::{Cleaning, Reader, clean};
use crate::pipeline::gulps;
use crate::pipeline::options::SearchOptions;
use crate::pipeline::range::{DeviceTail, RangeSearch, Tail};
use crate::pipeline::recent::RecentRows;
use crate::pipeline::run::{Pair, remaining_bytes};
use crate::pipeline::voltage::{DeviceRows, VoltageFilterbank};
use crate::sample::Samples;
use crate::trace::{self, Work};

/// Limit in bytes on the rows of a gulp.
pub(super) const GULP_BYTES: usize = 32 << 20;

/// Limit in bytes on the dedispersed planes per gulp, over all ranges.
const PLANE_BYTES: usize = 96 << 20;

/// Source of a search.
pub enum Source<'a> {
    /// Filterbank rows.
    Rows(&'a mut dyn FilterbankSource),
    /// Recorded voltages, from which the search's GPU computes rows if the filter bank runs on it.
    Voltages(&'a mut VoltageFilterbank),
}

impl<'a> Source<'a> {
    /// Converts the source to filterbank rows.
    pub fn into_rows(self) -> &'a mut dyn FilterbankSource {
        match self {
            Self::Rows(rows) => rows,
            Self::Voltages(filterbank) => filterbank,
        }
    }

    /// Lists the kernels that a device needs to compute the rows there.
    pub(super) fn kernels(&self) -> Vec<cuda::Source> {
        match self {
            Self::Voltages(filterbank) if filterbank.device().is_some() => {
                DeviceRows::sources(filterbank)
            }
            Self::Voltages(_) | Self::Rows(_) => Vec::new(),
        }
    }

    /// Returns the source as filterbank rows.
    pub fn rows(&mut self) -> &mut dyn FilterbankSource {
        match self {
            Self::Rows(rows) => &mut **rows,
            Self::Voltages(filterbank) => &mut **filterbank,
        }
    }
}

/// Stages of a search, from cleaned rows to events.
pub(super) struct Stages {
    pub(super) cleaning: Cleaning,
    pub(super) ranges: Vec<RangeSearch>,
}

/// Processes rows of a source through all stages, on the host or on a device.
pub(super) trait Step: Send {
    /// Processes the next gulp; returns its number of rows, 0 at the end. The ranges hold its events.
    fn step(&mut self, stages: &mut Stages) -> Result<usize>;

    /// Ends the stream after `times` rows; returns the number of trials whose delay is longer than the data.
    fn finish(&mut self, times: u64, stages: &mut Stages) -> Result<usize>;

    /// Returns the source of the rows.
    fn source(&self) -> &dyn FilterbankSource;

    /// Returns the samples that the source replaced in the rows processed, or also in those read ahead.
    fn flagged_samples(&self) -> u64 {
        self.source().flagged_samples()
    }

    /// Returns the last rows after cleaning, as many as the search of the recording's end needs.
    fn tail(&mut self) -> Result<Vec<u8>>;
}

/// Buffers of a search on the host.
pub(super) struct HostWork<'a> {
    source: &'a mut dyn FilterbankSource,
    gulps: gulps::Gulps,
    cleaned: Vec<u8>,
    tail: Tail,
    recent: Option<Arc<RecentRows>>,
}

impl<'a> HostWork<'a> {
    /// Allocates buffers for gulps of the requested rows, or of as many as the memory for the planes allows.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`] when the memory limit is too low for any gulp.
    pub(super) fn new(
        source: &'a mut dyn FilterbankSource,
        stages: &Stages,
        options: &SearchOptions,
        edge_rows: usize,
    ) -> Result<Self> {
        let (Stages { cleaning, ranges, .. }, row_bytes) = (stages, source.header().row_bytes());
        let per_time: usize = ranges.iter().map(RangeSearch::plane_bytes_per_row).sum();
        let most = (PLANE_BYTES / per_time.max(1)).min(GULP_BYTES / row_bytes.max(1));
        let gulp = match options.gulp {
            0 => most.clamp(256, 1 << 16),
            asked => asked.min(most.max(1)),
        };
        let made = cleaning.made_row_bytes();
        let cleaned_row = if made == 0 { row_bytes } else { made };
        let tail = Tail::new(edge_rows * cleaned_row)?;
        let edge = ranges.iter().map(RangeSearch::edge_plane_bytes).max().filter(|_| edge_rows > 0);
        let held = ranges.iter().map(RangeSearch::held_bytes).sum::<usize>()
            + cleaning.held_bytes()
            + tail.held_bytes()
            + edge.unwrap_or(0)
            + options.recent.as_ref().map_or(0, |recent| recent.held_bytes());
        let row = per_time + gulps::Gulps::BUFFERS * row_bytes + made;
        let remaining = remaining_bytes(options.memory, "the search", held, row)?;
        let gulp = gulp.min(remaining / row.max(1));
        let gulps = gulps::Gulps::new(gulp, row_bytes);
        let recent = options.recent.clone();
        Ok(Self { source, gulps, cleaned: Vec::new(), tail, recent })
    }
}

impl Step for HostWork<'_> {
    fn step(&mut self, stages: &mut Stages) -> Result<usize> {
        let Self { source, gulps, cleaned, tail, recent } = self;
        let Stages { cleaning, ranges } = stages;
        let (reader, cleaner) = cleaning.parts();
        let times = gulps.advance(reader, &mut **source)?;
        if times == 0 {
            return Ok(0);
        }
        let header = source.header();
        let (encoding, channels) = (header.encoding, header.channels());
        gulps.process(times, reader, &mut **source, |bytes| {
            let _span = trace::span(Work::Compute, "search of rows");
            if let Some(recent) = recent {
                recent.push(bytes);
            }
            let samples = Samples::new(bytes, encoding, times, channels)?;
            let samples = clean(cleaner, samples, cleaned)?;
            tail.push(samples.bytes());
            ranges.iter_mut().try_for_each(|range| range.run(samples))
        })?;
        Ok(times)
    }

    fn finish(&mut self, times: u64, stages: &mut Stages) -> Result<usize> {
        let _span = trace::span(Work::Compute, "search of the last rows");
        let mut skipped = 0;
        for range in &mut stages.ranges {
            skipped += range.finish(times)?;
        }
        Ok(skipped)
    }

    fn source(&self) -> &dyn FilterbankSource {
        &*self.source
    }

    fn flagged_samples(&self) -> u64 {
        self.gulps.flagged_samples()
    }

    fn tail(&mut self) -> Result<Vec<u8>> {
        Ok(self.tail.take())
    }
}

/// Input buffers: one is searched while the next is copied and the one after it filled.
pub(super) const SLOTS: usize = 3;

/// Limit in bytes on the plane of trials per gulp, of the largest range.
const DEVICE_PLANE_BYTES: usize = 2 << 30;

/// Limit in bytes on the planes of all lanes, on which ranges are searched side by side. A range with a larger plane fills a device
/// alone.
const LANES_BYTES: usize = 512 << 20;

/// The planes of all lanes take at most the free memory divided by this.
const LANES_PART: usize = 8;

/// Largest number of lanes.
const MAX_LANES: usize = 64;

/// Limit in bytes on the rows of a gulp; longer gulps hide less of the copy.
pub(super) const ROW_BYTES: usize = 2 * GULP_BYTES;

/// Limit in bytes on the rows of a gulp without copies; long gulps make the host's waits at their ends rare.
const RESIDENT_BYTES: usize = 8 * ROW_BYTES;

/// Bytes of rows per copy, which several threads read; the next rows are read meanwhile.
const PIECE_BYTES: usize = 32 << 20;

/// Largest number of rows per gulp.
const MAX_TIMES: usize = 1 << 20;

/// Smallest number of rows per gulp.
const MIN_TIMES: usize = 64;

/// Fraction of the free memory available to gulps; stages allocate a little more in their first call.
const SHARE: f64 = 0.75;

/// Buffers and the stream of a search on one device.
pub(super) struct DeviceWork<'a> {
    source: &'a mut dyn FilterbankSource,
    stage: Stage,
    uploads: UploadRing,
    /// Threads that read and search.
    pair: Pair,
    /// Rows of each gulp being copied, the next one first; 0 marks the end.
    ahead: VecDeque<usize>,
    /// Error that ended reading after these gulps.
    failed: Option<Error>,
    recent: Option<Arc<RecentRows>>,
    /// Rows of the gulps enqueued.
    queued: u64,
    /// Rows whose search has finished: those of all gulps before the last one enqueued.
    whole: u64,
    /// Times that reading and searching the last gulp took.
    reading: Duration,
    searching: Duration,
}

/// Gulps of a search on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gulps {
    /// Rows of a gulp; 0 selects automatically.
    pub(super) asked: usize,
    /// Rows of the data, if known.
    pub(super) times: Option<u64>,
    /// Latest rows to store.
    pub(super) edge_rows: usize,
}

/// Processing of rows on a device and its peers: the device cleans them, and each searches its share of the ranges. Peers that reach
/// its memory copy the rows from there. Other peers copy rows that need no cleaning from one page-locked slot of the host. The
/// uploads refill the slot after the last copy.
pub(super) struct Stage {
    /// Stream of all work before the ranges.
    stream: Stream,
    /// Completion of that work for the current gulp.
    ready: Event,
    shares: Shares,
    /// Rows after cleaning, if enabled.
    cleaned: Option<Buffer<u8>>,
    /// Latest rows, if the recording's end is searched.
    tail: Option<DeviceTail>,
    /// Bytes of a row as the ranges read it.
    row_bytes: usize,
}

/// Shares of the devices that have any ranges, in the order of the ranges.
struct Shares {
    all: Vec<Share>,
    /// One thread of the host for each.
    side_by_side: Threads,
}

/// Search of some ranges on one device.
struct Share {
    /// Number of the ranges.
    ranges: usize,
    lanes: Vec<Lane>,
    /// Rows of the current gulp, if another device has cleaned them.
    copy: Option<RowCopy>,
    /// Number of the device, for errors; none if the machine has no other.
    ordinal: Option<usize>,
}

/// Copy of a gulp's rows on a peer.
struct RowCopy {
    /// Number of the peer among those of the device that cleans the rows.
    peer: usize,
    /// Whether it reaches that device's memory.
    is_reached: bool,
    stream: Stream,
    rows: Buffer<u8>,
    /// Completion of the copy.
    done: Event,
}

/// Stream and plane of one range at a time. Ranges on different lanes run side by side.
struct Lane {
    stream: Stream,
    plane: Plane,
    /// Completion of the work enqueued last.
    done: Event,
    /// Samples of each trial that were dedispersed last.
    produced: usize,
}

/// Device memory per row of a search.
pub(super) struct Need {
    /// Bytes of a row as recorded and copied over the bus.
    row: usize,
    /// Bytes of a row computed on the device from voltages, 0 if rows are copied in.
    made: usize,
    /// Bytes of a cleaned row, 0 without cleaning.
    cleaned: usize,
    /// Bytes of a row as the ranges read it.
    searched: usize,
    /// Bytes of the largest range's plane.
    plane: usize,
}

impl Need {
    pub(super) fn new(header: &FilterbankHeader, stages: &Stages) -> Self {
        let Stages { cleaning, ranges, .. } = stages;
        let cleaned = cleaning.cleaned_row_bytes();
        Self {
            row: header.row_bytes(),
            made: 0,
            cleaned: cleaned.unwrap_or(0),
            searched: cleaned.unwrap_or(header.row_bytes()),
            plane: ranges.iter().map(RangeSearch::plane_bytes_per_row).max().unwrap_or(0).max(1),
        }
    }

    /// Sets the sizes for rows of `made` bytes that the device computes from `row` bytes of voltages.
    pub(super) fn of_voltages(self, row: usize, made: usize) -> Self {
        Self { row, made, ..self }
    }

    /// Returns the device bytes per row with `slots` copies of the input.
    fn bytes(&self, slots: usize) -> usize {
        slots * self.row + self.made + self.cleaned + self.plane
    }

    /// Returns the need of a peer, which has a copy of the rows that the ranges read.
    fn of_peer(&self) -> Self {
        Self { row: self.searched, made: 0, cleaned: 0, ..*self }
    }

    /// Returns the rows per gulp: `asked`, or as many as fit the limits on planes and on rows (`max_bytes`), fewer if
    /// memory for `slots` copies of the input is short on the device, or for one on a peer, or the data have only `times`.
    ///
    /// # Errors
    /// [`Error::Unavailable`], with the need and the free memory, when not even a small gulp fits.
    pub(super) fn gulp(
        &self,
        device: &Device,
        asked: usize,
        times: Option<u64>,
        slots: usize,
        max_bytes: usize,
    ) -> Result<usize> {
        // Rows may be long: many channels, or a second of voltages.
        let least = MIN_TIMES.min(ROW_BYTES / self.row.max(1)).max(1);
        let mut fitting = self.fitting(device, least, slots)?;
        for peer in device.peers() {
            fitting = fitting.min(self.of_peer().fitting(peer, least, 1)?);
        }
        let rows = max_bytes / self.row.max(1);
        let good = (DEVICE_PLANE_BYTES / self.plane).min(rows).clamp(rows.clamp(1, 256), MAX_TIMES);
        let wanted = if asked == 0 { good } else { asked };
        let whole = times.map_or(usize::MAX, |times| times.clamp(1, 1 << 40) as usize);
        Ok(wanted.min(fitting).min(whole).max(1))
    }

    /// Returns the rows for which a device has memory.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if they are fewer than `least`.
    fn fitting(&self, device: &Device, least: usize, slots: usize) -> Result<usize> {
        let bytes = self.bytes(slots);
        let free = (SHARE * device.free_bytes()? as f64) as usize;
        if free / bytes >= least {
            return Ok(free / bytes);
        }
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        Err(Error::Unavailable {
            what: format!(
                "{} MiB on CUDA device {} for gulps of {least} rows, beside the stages' own",
                mib(least * bytes),
                device.ordinal()
            ),
            why: format!(
                "{} MiB can be had; fewer trials, a shorter `baseline_s` or `Backend::Cpu` need less",
                mib(free)
            ),
        })
    }
}

impl Stage {
    /// Allocates the buffers for gulps of at most `gulp` rows.
    pub(super) fn new(device: &Device, stages: &Stages, need: &Need, gulp: usize) -> Result<Self> {
        let Stages { cleaning, ranges, .. } = stages;
        let (cleaned, row_bytes) = (cleaning.cleaned_row_bytes(), need.searched);
        let mut all = Vec::new();
        for own in ranges.chunk_by(|a, b| a.device() == b.device()) {
            let peer = own[0].device().checked_sub(1);
            let copy = peer.map(|peer| RowCopy::new(device, peer, gulp * row_bytes)).transpose()?;
            let bound = peer.map_or(device, |peer| &device.peers()[peer]);
            all.push(Share::new(bound, own, gulp, copy)?);
        }
        if let ([only], Ok(1)) = (&mut all[..], Device::count()) {
            only.ordinal = None;
        }
        Ok(Self {
            stream: device.stream()?,
            ready: device.event()?,
            shares: Shares { side_by_side: Threads::new(all.len().max(1)), all },
            cleaned: cleaned.map(|bytes| device.buffer(gulp * bytes)).transpose()?,
            tail: None,
            row_bytes,
        })
    }

    /// Stores the latest rows after cleaning, `rows` of them.
    ///
    /// # Errors
    /// As [`DeviceWork::new`].
    pub(super) fn retain_tail(&mut self, device: &Device, rows: usize) -> Result<()> {
        let tail = (rows > 0).then(|| DeviceTail::new(device, rows * self.row_bytes));
        self.tail = tail.transpose()?;
        Ok(())
    }

    /// Returns the stored rows.
    pub(super) fn tail(&mut self) -> Result<Vec<u8>> {
        self.tail.as_mut().map_or(Ok(Vec::new()), DeviceTail::take)
    }

    /// Returns the stream of its work.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Builds a stage for rows that are already on the device; also returns the rows per gulp.
    ///
    /// # Errors
    /// As [`DeviceWork::new`].
    pub(super) fn resident(
        device: &Device,
        header: &FilterbankHeader,
        stages: &Stages,
        asked: usize,
        times: Option<u64>,
    ) -> Result<(Self, usize)> {
        let need = Need::new(header, stages);
        let gulp = need.gulp(device, asked, times, 1, RESIDENT_BYTES)?;
        Ok((Self::new(device, stages, &need, gulp)?, gulp))
    }

    /// Cleans, dedisperses and searches rows, which the host's memory may hold as well (`uploaded`); the ranges hold the events, also
    /// if a device fails.
    pub(super) fn run(
        &mut self,
        rows: &Buffer<u8>,
        uploaded: Option<Uploaded<'_>>,
        times: usize,
        cleaner: Option<&mut Cleaner>,
        ranges: &mut [RangeSearch],
    ) -> Result<()> {
        let uploaded = uploaded.filter(|_| self.cleaned.is_none());
        let rows = match (cleaner, &mut self.cleaned) {
            (Some(cleaner), Some(cleaned)) => {
                cleaner.enqueue(rows, times, cleaned, &self.stream)?;
                &*cleaned
            }
            _ => rows,
        };
        if let Some(tail) = &mut self.tail {
            tail.push(rows, times * self.row_bytes, &self.stream)?;
        }
        self.stream.record(&self.ready)?;
        let gulp = Gulp { rows, uploaded, bytes: times * self.row_bytes, times };
        let ready = &self.ready;
        self.shares.each(ranges, |share, ranges| {
            share.run(gulp, ready, ranges)?;
            Ok(0)
        })?;
        self.shares.all.iter().try_for_each(|share| share.keep_rows(&self.stream))
    }

    /// Ends the stream after `times` rows; returns the number of trials whose delay is longer than the data.
    pub(super) fn finish(&mut self, times: u64, stages: &mut Stages) -> Result<usize> {
        let ranges = &mut stages.ranges;
        let skipped = self.shares.each(ranges, |share, ranges| share.finish(times, ranges))?;
        self.stream.synchronize()?;
        Ok(skipped)
    }
}

/// Work of one device.
struct Job<'a> {
    share: &'a mut Share,
    ranges: &'a mut [RangeSearch],
    outcome: Result<usize>,
}

impl Shares {
    /// Calls `work` for each share and its ranges, all at the same time; returns the sum of the results.
    ///
    /// # Errors
    /// That of the first device that failed, which it names if the machine has several.
    fn each(
        &mut self,
        mut ranges: &mut [RangeSearch],
        work: impl Fn(&mut Share, &mut [RangeSearch]) -> Result<usize> + Sync,
    ) -> Result<usize> {
        let Self { all, side_by_side } = self;
        let mut jobs: [Option<Job<'_>>; MOST_JOINED] = std::array::from_fn(|_| None);
        let jobs = &mut jobs[..all.len()];
        for (job, share) in jobs.iter_mut().zip(all) {
            let (own, rest) = ranges.split_at_mut(share.ranges);
            *job = Some(Job { share, ranges: own, outcome: Ok(0) });
            ranges = rest;
        }
        side_by_side.for_each(jobs, 1, |_, jobs| {
            for Job { share, ranges, outcome } in jobs.iter_mut().flatten() {
                let ordinal = share.ordinal;
                *outcome = work(share, ranges).map_err(|error| match ordinal {
                    Some(ordinal) => error.on_device(ordinal),
                    None => error,
                });
            }
        });
        let done = jobs.iter_mut().flatten();
        done.map(|job| std::mem::replace(&mut job.outcome, Ok(0))).sum()
    }
}

/// Rows of a gulp in the memory of the device that cleans them.
#[derive(Clone, Copy)]
struct Gulp<'a> {
    rows: &'a Buffer<u8>,
    /// The same rows in the host's memory, if they are there.
    uploaded: Option<Uploaded<'a>>,
    bytes: usize,
    times: usize,
}

impl Share {
    /// Allocates the buffers for the ranges on a device; a peer has a `copy` of the rows.
    fn new(
        device: &Device,
        ranges: &[RangeSearch],
        gulp: usize,
        copy: Option<RowCopy>,
    ) -> Result<Self> {
        let words = ranges.iter().map(|range| range.plane_words(gulp)).max().unwrap_or(1);
        let is_integer = ranges.iter().all(RangeSearch::is_integer);
        let kind = if is_integer { PlaneKind::I32 } else { PlaneKind::F32 };
        let bytes = LANES_BYTES.min(device.free_bytes()? / LANES_PART);
        let lanes = (bytes / (4 * words)).min(ranges.len()).clamp(1, MAX_LANES);
        let lane = |_| Lane::new(device, kind, words);
        Ok(Self {
            ranges: ranges.len(),
            lanes: (0..lanes).map(lane).collect::<Result<_>>()?,
            copy,
            ordinal: Some(device.ordinal()),
        })
    }

    /// Dedisperses and searches rows, which are there after `ready`.
    fn run(&mut self, gulp: Gulp<'_>, ready: &Event, ranges: &mut [RangeSearch]) -> Result<()> {
        let (rows, ready) = match &mut self.copy {
            None => (gulp.rows, ready),
            Some(copy) => {
                copy.fill(gulp, ready)?;
                (&copy.rows, &copy.done)
            }
        };
        for lane in &self.lanes {
            lane.stream.wait(ready)?;
        }
        for ranges in ranges.chunks_mut(self.lanes.len()) {
            // All ranges are dedispersed before any is searched, which may wait for the device.
            for (range, lane) in ranges.iter_mut().zip(&mut self.lanes) {
                lane.produced = range.enqueue(rows, gulp.times, &mut lane.plane, &lane.stream)?;
            }
            for (range, lane) in ranges.iter_mut().zip(&self.lanes) {
                range.enqueue_search(&lane.plane, lane.produced, &lane.stream)?;
            }
        }
        for lane in &self.lanes {
            lane.stream.record(&lane.done)?;
            if let Some(copy) = &self.copy {
                copy.stream.wait(&lane.done)?;
            }
        }
        Ok(())
    }

    /// Makes the stream that replaces the rows wait until they have been read.
    fn keep_rows(&self, stream: &Stream) -> Result<()> {
        match &self.copy {
            Some(copy) => stream.wait(&copy.done),
            None => self.lanes.iter().try_for_each(|lane| stream.wait(&lane.done)),
        }
    }

    /// Ends the stream after `times` rows; returns the number of trials whose delay is longer than the data.
    fn finish(&mut self, times: u64, ranges: &mut [RangeSearch]) -> Result<usize> {
        // One lane for all ranges: dedispersers and detectors wait for their work on other streams.
        let Some(Lane { stream, plane, .. }) = self.lanes.first_mut() else { return Ok(0) };
        let mut skipped = 0;
        for range in ranges {
            skipped += range.enqueue_finish(times, plane, stream)?;
        }
        stream.synchronize()?;
        Ok(skipped)
    }
}

impl RowCopy {
    /// Allocates `bytes` bytes on a peer of a device.
    fn new(device: &Device, peer: usize, bytes: usize) -> Result<Self> {
        let own = &device.peers()[peer];
        Ok(Self {
            peer,
            is_reached: own.reaches(device)?,
            stream: own.stream()?,
            rows: own.buffer(bytes)?,
            done: own.event()?,
        })
    }

    /// Enqueues the copy of a gulp, whose rows are in the other device's memory after `ready`.
    fn fill(&mut self, gulp: Gulp<'_>, ready: &Event) -> Result<()> {
        let Self { peer, is_reached, stream, rows, done } = self;
        match gulp.uploaded.filter(|_| !*is_reached) {
            Some(uploaded) => uploaded.copy_to_peer(*peer, gulp.bytes, rows, stream)?,
            None => {
                stream.wait(ready)?;
                stream.copy_from_peer(gulp.rows, 0..gulp.bytes, rows)?;
            }
        }
        stream.record(done)
    }
}

impl Lane {
    /// Allocates a plane of `words` words.
    fn new(device: &Device, kind: PlaneKind, words: usize) -> Result<Self> {
        Ok(Self {
            stream: device.stream()?,
            plane: Plane::new(device, kind, 1, words)?,
            done: device.event()?,
            produced: 0,
        })
    }
}

impl<'a> DeviceWork<'a> {
    /// Allocates the buffers of a search.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when memory is too short for any gulp; [`Error::Device`] when the driver refuses.
    pub(super) fn new(
        device: &Device,
        source: &'a mut dyn FilterbankSource,
        stages: &Stages,
        gulps: Gulps,
        recent: Option<Arc<RecentRows>>,
    ) -> Result<Self> {
        let Gulps { asked, times, edge_rows } = gulps;
        let (header, row_bytes) = (source.header(), source.header().row_bytes());
        let need = Need::new(header, stages);
        let gulp = need.gulp(device, asked, times, SLOTS, ROW_BYTES)?;
        let mut stage = Stage::new(device, stages, &need, gulp)?;
        stage.retain_tail(device, edge_rows)?;
        Ok(Self {
            source,
            stage,
            uploads: UploadRing::with_peers(device, gulp * row_bytes, SLOTS)?,
            pair: Pair::new(),
            ahead: VecDeque::with_capacity(SLOTS),
            failed: None,
            recent,
            queued: 0,
            whole: 0,
            reading: Duration::ZERO,
            searching: Duration::ZERO,
        })
    }

    /// Searches the next gulp while later ones are read and copied: one more, and a second if the source is faster
    /// than the search, so that a slow source does not delay it. Results must not wait for the next gulp of a live source:
    /// it is read ahead only if the search takes longer than reading, and no rows are in hand.
    fn take(&mut self, stages: &mut Stages) -> Result<usize> {
        let Stages { cleaning, ranges } = stages;
        let (reader, cleaner) = cleaning.parts();
        let source = &mut *self.source;
        if self.ahead.is_empty() {
            let (was_held, begin) = (reader.has_rows(), Instant::now());
            let recent = self.recent.as_deref();
            let times = read(reader, source, self.uploads.current(), recent, &mut self.failed)?;
            self.ahead.push_back(times);
            if !was_held {
                self.reading = begin.elapsed();
            }
        }
        let times = self.ahead[0];
        if times == 0 {
            return self.failed.take().map_or(Ok(0), Err);
        }
        let (stage, ahead, failed) = (&mut self.stage, &mut self.ahead, &mut self.failed);
        let recent = self.recent.as_deref();
        let (uploaded, later) = self.uploads.acquire_for_peers(&stage.stream)?;
        let mut later = later.skip(ahead.len() - 1);
        let waits = source.is_live() && (reader.has_rows() || self.searching < self.reading);
        let is_searched = AtomicBool::new(false);
        let (reading, begin) = (&mut self.reading, Instant::now());
        let read_later = || -> Result<()> {
            while ahead.back() != Some(&0)
                && (ahead.len() == 1 || !is_searched.load(Ordering::Relaxed))
                && let Some(gulp) = later.next()
            {
                let (was_held, begin) = (reader.has_rows(), Instant::now());
                ahead.push_back(read(reader, source, gulp, recent, failed)?);
                if !was_held {
                    *reading = begin.elapsed();
                }
            }
            Ok(())
        };
        let search = || {
            let rows = uploaded.buffer();
            let searched = stage.run(rows, Some(uploaded), times, cleaner, ranges);
            is_searched.store(true, Ordering::Relaxed);
            (searched, begin.elapsed())
        };
        let (read, (searched, searching)) =
            if waits { (Ok(()), search()) } else { self.pair.run(read_later, search) };
        self.searching = searching;
        searched?;
        drop(later);
        self.uploads.release(&self.stage.stream)?;
        read?;
        self.ahead.pop_front();
        self.whole = self.queued;
        self.queued += times as u64;
        Ok(times)
    }
}

/// Adds the number of completely searched rows to a device error.
pub(super) fn with_progress(error: Error, whole: u64) -> Error {
    let Error::Device { call, code, text } = error else { return error };
    let text = format!("{text}; the first {whole} rows were searched completely");
    Error::Device { call, code, text }
}

/// Reads a gulp in pieces, each copied while the next is read; returns its rows, including those before an error of
/// the source. Rows of a live source do not wait for later ones.
fn read(
    reader: &mut Reader,
    source: &mut dyn FilterbankSource,
    mut gulp: UploadSlot<'_>,
    recent: Option<&RecentRows>,
    failed: &mut Option<Error>,
) -> Result<usize> {
    let row_bytes = source.header().row_bytes();
    let piece = (PIECE_BYTES / row_bytes).max(1) * row_bytes;
    let mut rows = 0;
    gulp.host()?;
    loop {
        let rest = gulp.rest();
        let end = rest.len().min(piece);
        if end == 0 || failed.is_some() {
            return Ok(rows);
        }
        let times = match reader.read(source, &mut rest[..end]) {
            Ok(0) => return Ok(rows),
            Ok(times) => times,
            Err(error) => {
                *failed = Some(error);
                return Ok(rows);
            }
        };
        if let Some(recent) = recent {
            recent.push(&rest[..times * row_bytes]);
        }
        gulp.send(times * row_bytes)?;
        rows += times;
        if source.is_live() {
            return Ok(rows);
        }
    }
}

impl Step for DeviceWork<'_> {
    fn step(&mut self, stages: &mut Stages) -> Result<usize> {
        self.take(stages).map_err(|error| with_progress(error, self.whole))
    }

    fn finish(&mut self, times: u64, stages: &mut Stages) -> Result<usize> {
        let finished = self.stage.finish(times, stages);
        finished.map_err(|error| with_progress(error, self.whole))
    }

    fn source(&self) -> &dyn FilterbankSource {
        &*self.source
    }

    fn tail(&mut self) -> Result<Vec<u8>> {
        self.stage.tail().map_err(|error| with_progress(error, self.whole))
    }
}
