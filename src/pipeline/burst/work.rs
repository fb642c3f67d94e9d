//! Buffers of a search: one gulp of rows at a time through every range, on the host, or on a GPU, where rows are copied
//! in and only events return.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::stage::{GULP_BYTES, Need, ROW_BYTES, Rows, Stage, Stages};
use crate::backend::cuda::{self, Device, UploadRing, UploadSlot};
use crate::clean::Cleaner;
use crate::error::{Error, Result};
use crate::io::FilterbankSource;
use crate::pipeline::cleaning::{Reader, clean};
use crate::pipeline::gulps;
use crate::pipeline::options::SearchOptions;
use crate::pipeline::range::{RangeSearch, Tail};
use crate::pipeline::recent::RecentRows;
use crate::pipeline::run::{Pair, remaining_bytes};
use crate::pipeline::voltage::{DeviceRows, VoltageFilterbank};
use crate::sample::Samples;
use crate::trace::{self, Work};

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

/// Processes rows of a source through all stages, on the host or on a device.
pub(super) trait Step: Send {
    /// Processes the next gulp; returns its number of rows, 0 at the end. The ranges hold its events.
    fn step(&mut self, stages: &mut Stages) -> Result<usize>;

    /// Processes the gulp that a device has begun, if any, and reads no other; returns its number of rows. A search that stops calls it
    /// before [`Self::finish`].
    fn step_begun(&mut self, _: &mut Stages) -> Result<usize> {
        Ok(0)
    }

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

/// Bytes of rows per copy, which several threads read; the next rows are read meanwhile.
const PIECE_BYTES: usize = 32 << 20;

/// Buffers and the stream of a search on one device.
pub(super) struct DeviceWork<'a> {
    source: &'a mut dyn FilterbankSource,
    stage: Stage,
    uploads: UploadRing,
    /// Threads that read and search.
    pair: Pair,
    ahead: ReadAhead,
    /// Rows of the gulps searched.
    searched: u64,
    /// Rows whose search has finished: those of all gulps before the last one searched.
    whole: u64,
    /// Time that searching the last gulp took.
    searching: Duration,
    /// Whether no gulp follows the one that has begun.
    is_last: bool,
}

/// Gulps that were read and are copied to a device.
struct ReadAhead {
    /// Rows of each gulp, the next one first; 0 marks the end.
    times: VecDeque<usize>,
    /// Error that ended reading after these gulps.
    failed: Option<Error>,
    recent: Option<Arc<RecentRows>>,
    /// Time that reading the last gulp took, of those whose rows the reader did not hold before.
    reading: Duration,
}

/// Gulp that was read, after the one that is searched.
struct Following<'a> {
    slot: UploadSlot<'a>,
    times: usize,
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
            ahead: ReadAhead {
                times: VecDeque::with_capacity(SLOTS),
                failed: None,
                recent,
                reading: Duration::ZERO,
            },
            searched: 0,
            whole: 0,
            searching: Duration::ZERO,
            is_last: false,
        })
    }

    /// Searches the next gulp while later ones are read and copied: one more, and a second if the source is faster
    /// than the search, so that a slow source does not delay it. If the gulp after this one has been read, the device begins it, and the
    /// host handles this one's events meanwhile. Results must not wait for the next gulp of a live source:
    /// it is read ahead only if the search takes longer than reading, and no rows are in hand.
    fn take(&mut self, stages: &mut Stages) -> Result<usize> {
        let Stages { cleaning, ranges } = stages;
        let (reader, cleaner) = cleaning.parts();
        let Self { source, stage, uploads, ahead, .. } = self;
        if ahead.times.is_empty() {
            ahead.read(reader, &mut **source, uploads.current())?;
        }
        let times = ahead.times[0];
        if times == 0 {
            return ahead.failed.take().map_or(Ok(0), Err);
        }
        let (uploaded, mut later) = uploads.acquire_for_peers(stage.stream())?;
        let next = ahead.times.get(1).copied().filter(|times| *times > 0 && !self.is_last);
        let next = next.and_then(|times| Some(Following { slot: later.next()?, times }));
        let mut later = later.skip(ahead.times.len() - 1 - usize::from(next.is_some()));
        let is_slow = || reader.has_rows() || self.searching < ahead.reading;
        let waits = self.is_last || source.is_live() && is_slow();
        let (is_searched, begin) = (AtomicBool::new(false), Instant::now());
        let read_later = || -> Result<()> {
            while ahead.times.back() != Some(&0)
                && (ahead.times.len() == 1 || !is_searched.load(Ordering::Relaxed))
                && let Some(slot) = later.next()
            {
                ahead.read(reader, &mut **source, slot)?;
            }
            Ok(())
        };
        let search = || {
            let rows = Rows { buffer: uploaded.buffer(), uploaded: Some(uploaded), times };
            let searched = search_gulp(stage, rows, next, cleaner, ranges);
            is_searched.store(true, Ordering::Relaxed);
            (searched, begin.elapsed())
        };
        let (read, (searched, searching)) =
            if waits { (Ok(()), search()) } else { self.pair.run(read_later, search) };
        self.searching = searching;
        searched?;
        drop(later);
        self.uploads.release(self.stage.stream())?;
        read?;
        self.ahead.times.pop_front();
        self.whole = self.searched;
        self.searched += times as u64;
        Ok(times)
    }
}

impl ReadAhead {
    /// Reads a gulp in pieces, each copied while the next is read, up to an error of the source. Rows of a live source do not wait
    /// for later ones.
    fn read(
        &mut self,
        reader: &mut Reader,
        source: &mut dyn FilterbankSource,
        gulp: UploadSlot<'_>,
    ) -> Result<()> {
        let (was_held, begin) = (reader.has_rows(), Instant::now());
        let times = self.read_pieces(reader, source, gulp)?;
        self.times.push_back(times);
        if !was_held {
            self.reading = begin.elapsed();
        }
        Ok(())
    }

    fn read_pieces(
        &mut self,
        reader: &mut Reader,
        source: &mut dyn FilterbankSource,
        mut gulp: UploadSlot<'_>,
    ) -> Result<usize> {
        let row_bytes = source.header().row_bytes();
        let piece = (PIECE_BYTES / row_bytes).max(1) * row_bytes;
        let mut rows = 0;
        gulp.host()?;
        loop {
            let rest = gulp.rest();
            let end = rest.len().min(piece);
            if end == 0 || self.failed.is_some() {
                return Ok(rows);
            }
            let times = match reader.read(source, &mut rest[..end]) {
                Ok(0) => return Ok(rows),
                Ok(times) => times,
                Err(error) => {
                    self.failed = Some(error);
                    return Ok(rows);
                }
            };
            if let Some(recent) = &self.recent {
                recent.push(&rest[..times * row_bytes]);
            }
            gulp.send(times * row_bytes)?;
            rows += times;
            if source.is_live() {
                return Ok(rows);
            }
        }
    }
}

/// Searches a gulp, after beginning it unless the stage has. Begins the next one, if it was read, before waiting for the device.
fn search_gulp(
    stage: &mut Stage,
    rows: Rows<'_>,
    next: Option<Following<'_>>,
    mut cleaner: Option<&mut Cleaner>,
    ranges: &mut [RangeSearch],
) -> Result<()> {
    if !stage.has_begun() {
        stage.begin(rows, cleaner.as_deref_mut(), ranges)?;
    }
    let searched = stage.search(rows, ranges);
    let next = next.filter(|_| searched.is_ok()).map(|Following { slot, times }| {
        let uploaded = slot.sent(stage.stream())?;
        Ok::<_, Error>(Rows { buffer: uploaded.buffer(), uploaded: Some(uploaded), times })
    });
    let (next, sent) = match next.transpose() {
        Ok(next) => (next, Ok(())),
        Err(error) => (None, Err(error)),
    };
    // Also after an error: other devices have found events.
    let collected = stage.collect(next, cleaner, ranges);
    searched.and(collected).and(sent)
}

/// Adds the number of completely searched rows to a device error.
pub(super) fn with_progress(error: Error, whole: u64) -> Error {
    let Error::Device { call, code, text } = error else { return error };
    let text = format!("{text}; the first {whole} rows were searched completely");
    Error::Device { call, code, text }
}

impl Step for DeviceWork<'_> {
    fn step(&mut self, stages: &mut Stages) -> Result<usize> {
        self.take(stages).map_err(|error| with_progress(error, self.whole))
    }

    fn step_begun(&mut self, stages: &mut Stages) -> Result<usize> {
        if !self.stage.has_begun() {
            return Ok(0);
        }
        self.is_last = true;
        self.step(stages)
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
