//! Stages of a search on a GPU and its peers: gulps of rows are cleaned, dedispersed and searched there, and only events return.
//!
//! Invariant: all rows of a gulp are enqueued before the next gulp begins; events do not depend on gulps or devices.

use crate::backend::cuda::{
    Buffer, Device, Event, MOST_JOINED, Plane, PlaneKind, Stream, Uploaded,
};
use crate::backend::threads::Threads;
use crate::clean::Cleaner;
use crate::error::{Error, Result};
use crate::io::FilterbankHeader;
use crate::pipeline::cleaning::Cleaning;
use crate::pipeline::range::{Dedispersed, DeviceTail, RangeSearch};

/// Limit in bytes on the rows of a gulp that is read at once.
pub(super) const GULP_BYTES: usize = 32 << 20;

/// Limit in bytes on the plane of trials per gulp, of the largest range.
const DEVICE_PLANE_BYTES: usize = 2 << 30;

/// Planes of a lane: the next samples are dedispersed into one while the other is searched.
const PLANES: usize = 2;

/// Limit in bytes on the planes of all lanes, on which ranges are searched side by side. A range with a larger plane fills a device
/// alone.
const LANES_BYTES: usize = PLANES * (512 << 20);

/// The planes of all lanes take at most the free memory divided by this.
const LANES_PART: usize = 8;

/// Largest number of lanes.
const MAX_LANES: usize = 64;

/// Limit in bytes on the rows that are copied to a device at once; the copies of longer gulps overlap less with the search.
pub(super) const ROW_BYTES: usize = 2 * GULP_BYTES;

/// Limit in bytes on the rows of a gulp without copies; long gulps make the host's waits at their ends rare.
const RESIDENT_BYTES: usize = 8 * ROW_BYTES;

/// Largest number of rows per gulp.
const MAX_TIMES: usize = 1 << 20;

/// Smallest number of rows per gulp.
const MIN_TIMES: usize = 64;

/// Fraction of the free memory available to gulps; stages allocate a little more in their first call.
const SHARE: f64 = 0.75;

/// Stages of a search, from cleaned rows to events.
pub(super) struct Stages {
    pub(super) cleaning: Cleaning,
    pub(super) ranges: Vec<RangeSearch>,
}

/// Processing of rows on a device and its peers: the device cleans them, and each searches its share of the ranges. Peers that reach
/// its memory copy the rows from there. Other peers copy rows that need no cleaning from one page-locked slot of the host. The
/// uploads refill the slot after the last copy.
///
/// A gulp passes through [`Stage::begin`], [`Stage::search`] and [`Stage::collect`]. The last one waits for the device, and may begin
/// the next gulp before, so that the device goes on while the host handles the events of this one.
pub(super) struct Stage {
    /// Stream of all work before the ranges.
    stream: Stream,
    /// Completion of that work for the gulp that began last.
    ready: Event,
    shares: Shares,
    /// Rows after cleaning, if enabled.
    cleaned: Option<Buffer<u8>>,
    /// Latest rows, if the recording's end is searched.
    tail: Option<DeviceTail>,
    /// Bytes of a row as the ranges read it.
    row_bytes: usize,
    /// Whether a gulp has begun and is not searched.
    has_begun: bool,
}

/// Rows of a gulp in the memory of the device that cleans them.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) buffer: &'a Buffer<u8>,
    /// The same rows in the host's memory, if they are there.
    pub(super) uploaded: Option<Uploaded<'a>>,
    pub(super) times: usize,
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

/// Stream and planes of one range at a time. Ranges on different lanes run side by side.
struct Lane {
    stream: Stream,
    planes: [Plane; PLANES],
    /// Samples of each trial in each plane.
    samples: [Dedispersed; PLANES],
    /// Index of the plane that is dedispersed into, until its search is submitted.
    next: usize,
    /// Completion of the dedispersion enqueued last.
    dedispersed: Event,
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
        slots * self.row + self.made + self.cleaned + PLANES * self.plane
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
            has_begun: false,
        })
    }

    /// Stores the latest rows after cleaning, `rows` of them.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when memory is too short; [`Error::Device`] when the driver refuses.
    pub(super) fn retain_tail(&mut self, device: &Device, rows: usize) -> Result<()> {
        let tail = (rows > 0).then(|| DeviceTail::new(device, rows * self.row_bytes));
        self.tail = tail.transpose()?;
        Ok(())
    }

    /// Returns the stored rows.
    pub(super) fn tail(&mut self) -> Result<Vec<u8>> {
        self.tail.as_mut().map_or(Ok(Vec::new()), DeviceTail::take)
    }

    /// Returns whether a gulp has begun and is not searched.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns the stream of its work.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Builds a stage for rows that are already on the device; also returns the rows per gulp.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when memory is too short; [`Error::Device`] when the driver refuses.
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

    /// Enqueues the cleaning of a gulp, and the dedispersion of the first ranges. All rows of the gulp before must have been
    /// [searched](Stage::search).
    pub(super) fn begin(
        &mut self,
        rows: Rows<'_>,
        cleaner: Option<&mut Cleaner>,
        ranges: &mut [RangeSearch],
    ) -> Result<()> {
        self.clean(rows, cleaner)?;
        let Self { shares, ready, cleaned, row_bytes, .. } = self;
        let gulp = Gulp::new(rows, cleaned.as_ref(), *row_bytes);
        shares.each(ranges, |share, ranges| {
            share.begin(gulp, ready, ranges)?;
            Ok(0)
        })?;
        self.has_begun = true;
        Ok(())
    }

    /// Enqueues the search of the gulp that has begun, and the dedispersion of its other ranges; waits for all ranges but the last of each
    /// device.
    pub(super) fn search(&mut self, rows: Rows<'_>, ranges: &mut [RangeSearch]) -> Result<()> {
        let Self { shares, cleaned, row_bytes, .. } = self;
        let gulp = Gulp::new(rows, cleaned.as_ref(), *row_bytes);
        self.has_begun = false;
        shares.each(ranges, |share, ranges| {
            share.search(gulp, ranges)?;
            Ok(0)
        })?;
        self.shares.all.iter().try_for_each(|share| share.keep_rows(&self.stream))
    }

    /// Begins the next gulp, if its rows are there, and waits for the search of this one; the ranges hold its events, also if a
    /// device fails.
    pub(super) fn collect(
        &mut self,
        next: Option<Rows<'_>>,
        cleaner: Option<&mut Cleaner>,
        ranges: &mut [RangeSearch],
    ) -> Result<()> {
        let cleaned = next.map_or(Ok(()), |rows| self.clean(rows, cleaner));
        let next = next.filter(|_| cleaned.is_ok());
        let Self { shares, ready, cleaned: buffer, row_bytes, .. } = self;
        let next = next.map(|rows| Gulp::new(rows, buffer.as_ref(), *row_bytes));
        let collected = shares.each(ranges, |share, ranges| {
            let begun = next.map_or(Ok(()), |gulp| share.begin(gulp, ready, ranges));
            share.collect(ranges).and(begun)?;
            Ok(0)
        });
        self.has_begun = next.is_some() && collected.is_ok();
        cleaned.and(collected.map(|_| ()))
    }

    /// Begins, searches and collects a gulp.
    pub(super) fn run(
        &mut self,
        rows: Rows<'_>,
        mut cleaner: Option<&mut Cleaner>,
        ranges: &mut [RangeSearch],
    ) -> Result<()> {
        self.begin(rows, cleaner.as_deref_mut(), ranges)?;
        let searched = self.search(rows, ranges);
        self.collect(None, cleaner, ranges).and(searched)
    }

    /// Enqueues the cleaning of rows, after which they are `ready`.
    fn clean(&mut self, rows: Rows<'_>, cleaner: Option<&mut Cleaner>) -> Result<()> {
        let Rows { buffer, times, .. } = rows;
        let buffer = match (cleaner, &mut self.cleaned) {
            (Some(cleaner), Some(cleaned)) => {
                cleaner.enqueue(buffer, times, cleaned, &self.stream)?;
                &*cleaned
            }
            _ => buffer,
        };
        if let Some(tail) = &mut self.tail {
            tail.push(buffer, times * self.row_bytes, &self.stream)?;
        }
        self.stream.record(&self.ready)
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

/// Rows of a gulp as the ranges read them, in the memory of the device that cleans them.
#[derive(Clone, Copy)]
struct Gulp<'a> {
    rows: &'a Buffer<u8>,
    /// The same rows in the host's memory, if they are there.
    uploaded: Option<Uploaded<'a>>,
    bytes: usize,
    times: usize,
}

impl<'a> Gulp<'a> {
    /// Returns the gulp whose rows may have been `cleaned`.
    fn new(rows: Rows<'a>, cleaned: Option<&'a Buffer<u8>>, row_bytes: usize) -> Self {
        Self {
            rows: cleaned.unwrap_or(rows.buffer),
            uploaded: rows.uploaded.filter(|_| cleaned.is_none()),
            bytes: rows.times * row_bytes,
            times: rows.times,
        }
    }
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
        let lanes = (bytes / (4 * PLANES * words)).min(ranges.len()).clamp(1, MAX_LANES);
        let lane = |_| Lane::new(device, kind, words);
        Ok(Self {
            ranges: ranges.len(),
            lanes: (0..lanes).map(lane).collect::<Result<_>>()?,
            copy,
            ordinal: Some(device.ordinal()),
        })
    }

    /// Enqueues the dedispersion of the first ranges of a gulp, whose rows are there after `ready`.
    fn begin(&mut self, gulp: Gulp<'_>, ready: &Event, ranges: &mut [RangeSearch]) -> Result<()> {
        let ready = match &mut self.copy {
            None => ready,
            Some(copy) => {
                copy.fill(gulp, ready)?;
                &copy.done
            }
        };
        for lane in &self.lanes {
            lane.stream.wait(ready)?;
        }
        self.dedisperse(gulp, ranges)
    }

    /// Enqueues the dedispersion of the first of some ranges, one on each lane.
    fn dedisperse(&mut self, gulp: Gulp<'_>, ranges: &mut [RangeSearch]) -> Result<()> {
        let rows = self.copy.as_ref().map_or(gulp.rows, |copy| &copy.rows);
        for (range, lane) in ranges.iter_mut().zip(&mut self.lanes) {
            let plane = &mut lane.planes[lane.next];
            lane.samples[lane.next] = range.enqueue(rows, gulp.times, plane, &lane.stream)?;
            lane.stream.record(&lane.dedispersed)?;
            if let Some(copy) = &self.copy {
                copy.stream.wait(&lane.dedispersed)?;
            }
        }
        Ok(())
    }

    /// Enqueues the search of all ranges, as many at a time as there are lanes, and waits for all but the last ones. While a range
    /// is searched, the next one on its lane is dedispersed.
    fn search(&mut self, gulp: Gulp<'_>, ranges: &mut [RangeSearch]) -> Result<()> {
        let mut rest = ranges;
        loop {
            let (own, later) = rest.split_at_mut(self.lanes.len().min(rest.len()));
            for (range, lane) in own.iter_mut().zip(&mut self.lanes) {
                range.submit_search(
                    &lane.planes[lane.next],
                    lane.samples[lane.next],
                    &lane.stream,
                )?;
                lane.next = (lane.next + 1) % PLANES;
            }
            if later.is_empty() {
                return Ok(());
            }
            self.dedisperse(gulp, later)?;
            self.collect(own)?;
            rest = later;
        }
    }

    /// Waits for the ranges that were submitted last, which are the last of those given.
    fn collect(&mut self, ranges: &mut [RangeSearch]) -> Result<()> {
        let Some(last) = ranges.chunks_mut(self.lanes.len()).last() else { return Ok(()) };
        last.iter_mut().zip(&self.lanes).try_for_each(|(range, lane)| {
            range.collect_search(lane.samples[(lane.next + 1) % PLANES], &lane.stream)
        })
    }

    /// Makes the stream that replaces the rows wait until they have been read.
    fn keep_rows(&self, stream: &Stream) -> Result<()> {
        match &self.copy {
            Some(copy) => stream.wait(&copy.done),
            None => self.lanes.iter().try_for_each(|lane| stream.wait(&lane.dedispersed)),
        }
    }

    /// Ends the stream after `times` rows; returns the number of trials whose delay is longer than the data.
    fn finish(&mut self, times: u64, ranges: &mut [RangeSearch]) -> Result<usize> {
        // One lane for all ranges: dedispersers and detectors wait for their work on other streams.
        let Some(Lane { stream, planes: [plane, ..], .. }) = self.lanes.first_mut() else {
            return Ok(0);
        };
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
    /// Allocates planes of `words` words.
    fn new(device: &Device, kind: PlaneKind, words: usize) -> Result<Self> {
        let plane = || Plane::new(device, kind, 1, words);
        Ok(Self {
            stream: device.stream()?,
            planes: [plane()?, plane()?],
            samples: [Dedispersed::default(); PLANES],
            next: 0,
            dedispersed: device.event()?,
        })
    }
}
