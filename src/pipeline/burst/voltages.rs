//! Search of recorded voltages on a GPU: voltages are copied in, and rows never leave the device.
//!
//! Gulps of voltages are read and copied while earlier ones are channelized and searched, and the device begins the next one while the
//! host handles the events of the present one. Rows that the host has already computed (for the automatic mask, or to fill a gap at
//! the very start) are sent before any voltages.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::stage::{Need, ROW_BYTES, Rows, Stage, Stages};
use super::work::{Gulps, SLOTS, Step, with_progress};
use crate::backend::cuda::{Buffer, Device, UploadRing, UploadSlot};
use crate::channelize::{DeviceVoltages, Plan};
use crate::clean::Cleaner;
use crate::error::{Error, Result};
use crate::io::FilterbankSource;
use crate::pipeline::cleaning::Reader;
use crate::pipeline::range::RangeSearch;
use crate::pipeline::run::Pair;
use crate::pipeline::voltage::{DeviceRows, Making, Pieces, Unread, VoltageFilterbank};
use crate::voltage::{VoltageBlock, VoltageEncoding};

/// Buffers and the stream of a search of voltages on one device.
pub(super) struct VoltageWork<'a> {
    filterbank: &'a mut VoltageFilterbank,
    stage: Stage,
    uploads: UploadRing,
    /// Threads that read and search.
    pair: Pair,
    rows: DeviceRows,
    reading: Reading,
    /// Content of each gulp being copied, the next one first.
    ahead: VecDeque<Content>,
    /// Error of reading the gulp after them.
    failed: Option<Error>,
    /// Rows of the next gulp, if its voltages were channelized ahead.
    made: Option<usize>,
    /// Whether no gulp follows the one that was channelized ahead.
    is_last: bool,
    /// Time that searching the last gulp took.
    searching: Duration,
    /// Rows of the gulps searched.
    searched: u64,
    /// Rows whose search has finished: those of all gulps before the last one searched.
    whole: u64,
}

/// Voltages that were read, after those that are searched.
struct Following<'a> {
    slot: UploadSlot<'a>,
    layouts: Layouts,
}

impl<'a> VoltageWork<'a> {
    /// Allocates buffers for gulps of about the requested rows.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when memory is too short for any gulp; [`Error::Device`] when the driver refuses.
    pub(super) fn new(
        device: &Device,
        filterbank: &'a mut VoltageFilterbank,
        stages: &Stages,
        gulps: Gulps,
    ) -> Result<Self> {
        let Gulps { asked, times, edge_rows } = gulps;
        let header = filterbank.header();
        let recorded = Recorded::new(filterbank);
        let voltage_row = Gulp::row_bytes(filterbank.plan(), recorded);
        let made = header.row_bytes() + filterbank.unjoined_row_bytes();
        let need = Need::new(header, stages).of_voltages(voltage_row, made);
        let rows = need.gulp(device, asked, times, SLOTS, ROW_BYTES)?;
        let gulp = Gulp::new(filterbank.plan(), recorded, header.row_bytes(), rows);
        let mut stage = Stage::new(device, stages, &need, gulp.rows)?;
        stage.retain_tail(device, edge_rows)?;
        Ok(Self {
            stage,
            uploads: UploadRing::new(device, gulp.bytes, SLOTS)?,
            pair: Pair::new(),
            rows: DeviceRows::new(device, filterbank, gulp.rows)?,
            filterbank,
            reading: Reading::new(gulp),
            ahead: VecDeque::with_capacity(SLOTS),
            failed: None,
            made: None,
            is_last: false,
            searching: Duration::ZERO,
            searched: 0,
            whole: 0,
        })
    }

    /// Searches the next gulp while later ones are read and copied; returns its rows, none at the end.
    fn take(&mut self, stages: &mut Stages) -> Result<Option<usize>> {
        if self.ahead.is_empty() {
            let (reader, _) = stages.cleaning.parts();
            let (slot, begin) = (self.uploads.current(), Instant::now());
            self.ahead.push_back(self.reading.next(reader, self.filterbank, slot)?);
            self.reading.took = begin.elapsed();
        }
        let times = match self.ahead[0] {
            Content::Voltages(layouts) => self.take_voltages(layouts, stages)?,
            Content::Rows(times) => self.take_rows(times, stages)?,
            Content::End => return self.failed.take().map_or(Ok(None), Err),
        };
        self.uploads.release(self.stage.stream())?;
        self.ahead.pop_front();
        self.whole = self.searched;
        self.searched += times as u64;
        Ok(Some(times))
    }

    /// Searches rows that the host has computed, while the next gulp is read.
    fn take_rows(&mut self, times: usize, stages: &mut Stages) -> Result<usize> {
        let Stages { cleaning, ranges } = stages;
        let (reader, cleaner) = cleaning.parts();
        let Self { filterbank, stage, uploads, pair, reading, .. } = self;
        let (buffer, mut later) = uploads.acquire(stage.stream())?;
        let slot = later.next().expect("there are two slots at least");
        let search = || stage.run(Rows { buffer, uploaded: None, times }, cleaner, ranges);
        let (next, searched) = pair.run(|| reading.next(reader, filterbank, slot), search);
        searched?;
        drop(later);
        self.push(next);
        Ok(times)
    }

    /// Searches voltages, and channelizes those after them ahead, if they were read. Results must not wait for the next voltages of a
    /// live source: they are read ahead only if the search takes longer than reading.
    fn take_voltages(&mut self, layouts: Layouts, stages: &mut Stages) -> Result<usize> {
        let Stages { cleaning, ranges } = stages;
        let (reader, cleaner) = cleaning.parts();
        let Self { filterbank, stage, uploads, rows, reading, ahead, failed, made, .. } = self;
        let (input, mut later) = uploads.acquire(stage.stream())?;
        let next = match ahead.get(1) {
            Some(Content::Voltages(layouts)) if !self.is_last => {
                later.next().map(|slot| Following { slot, layouts: *layouts })
            }
            _ => None,
        };
        let mut later = later.skip(ahead.len() - 1 - usize::from(next.is_some()));
        let waits = self.is_last || filterbank.is_live() && self.searching < reading.took;
        let (mut unread, making) = filterbank.split();
        let mut maker = Maker { rows, making, reader, left_rows: reading.left_rows };
        let (is_searched, begin) = (AtomicBool::new(false), Instant::now());
        let read_later = || {
            while !matches!(ahead.back(), Some(Content::End))
                && (ahead.len() == 1 || !is_searched.load(Ordering::Relaxed))
                && let Some(slot) = later.next()
            {
                let begin = Instant::now();
                ahead.push_back(reading.voltages(&mut unread, slot).unwrap_or_else(|error| {
                    *failed = Some(error);
                    Content::End
                }));
                reading.took = begin.elapsed();
            }
        };
        let search = || {
            let present = Present { input, layouts, made: made.take() };
            let searched = maker.search(stage, present, next, cleaner, ranges);
            is_searched.store(true, Ordering::Relaxed);
            (searched, begin.elapsed())
        };
        let (searched, searching) =
            if waits { search() } else { self.pair.run(read_later, search).1 };
        self.searching = searching;
        self.reading.left_rows = maker.left_rows;
        drop(later);
        let Searched { times, ahead } = searched?;
        self.made = ahead;
        Ok(times)
    }

    /// Adds the content of the next gulp, or the end before an error of reading it.
    fn push(&mut self, read: Result<Content>) {
        self.ahead.push_back(read.unwrap_or_else(|error| {
            self.failed = Some(error);
            Content::End
        }));
    }
}

/// Computation of rows from voltages.
struct Maker<'a> {
    rows: &'a mut DeviceRows,
    making: Making<'a>,
    reader: &'a mut Reader,
    /// Rows left to compute.
    left_rows: u64,
}

/// Voltages that are searched.
struct Present<'a> {
    input: &'a Buffer<u8>,
    layouts: Layouts,
    /// Number of their rows, if these were made ahead and have begun.
    made: Option<usize>,
}

/// Rows of voltages.
struct Searched {
    /// Number of those that were searched.
    times: usize,
    /// Number of those that were made ahead, if any voltages were.
    ahead: Option<usize>,
}

impl Maker<'_> {
    /// Searches the rows of voltages. Makes those of the next voltages before waiting for the device, which begins them.
    fn search(
        &mut self,
        stage: &mut Stage,
        present: Present<'_>,
        next: Option<Following<'_>>,
        mut cleaner: Option<&mut Cleaner>,
        ranges: &mut [RangeSearch],
    ) -> Result<Searched> {
        let times = match present.made {
            Some(times) => times,
            None => {
                let times = self.make(present.input, present.layouts, stage)?;
                if times > 0 {
                    stage.begin(self.made(times), cleaner.as_deref_mut(), ranges)?;
                }
                times
            }
        };
        let searched = if times > 0 { stage.search(self.made(times), ranges) } else { Ok(()) };
        let following = next.filter(|_| searched.is_ok());
        let ahead = following.map(|Following { slot, layouts }| {
            let uploaded = slot.sent(stage.stream())?;
            self.make(uploaded.buffer(), layouts, stage)
        });
        let ahead = ahead.transpose();
        let begun = ahead.as_ref().ok().copied().flatten().filter(|ahead| *ahead > 0);
        let begun = begun.map(|ahead| self.made(ahead));
        match begun {
            Some(begun) if times == 0 => stage.begin(begun, cleaner, ranges)?,
            None if times == 0 => {}
            // Also after an error: other devices have found events.
            begun => {
                let collected = stage.collect(begun, cleaner, ranges);
                searched.and(collected)?;
            }
        }
        let ahead = ahead?;
        Ok(Searched { times, ahead })
    }

    /// Enqueues the computation of the rows of voltages; returns their number.
    fn make(&mut self, input: &Buffer<u8>, layouts: Layouts, stage: &Stage) -> Result<usize> {
        let Self { rows, making, reader, left_rows } = self;
        let times = rows.make(making, input, layouts.pieces(), stage.stream())?;
        reader.note_gaps(making.gaps());
        // Samples after the last row may complete further ones.
        let times = usize::try_from(*left_rows).map_or(times, |left| times.min(left));
        *left_rows = left_rows.saturating_sub(times as u64);
        Ok(times)
    }

    /// Returns the rows made last.
    fn made(&self, times: usize) -> Rows<'_> {
        Rows { buffer: self.rows.rows(), uploaded: None, times }
    }
}

impl Step for VoltageWork<'_> {
    fn step(&mut self, stages: &mut Stages) -> Result<usize> {
        loop {
            match self.take(stages).map_err(|error| with_progress(error, self.whole))? {
                // Too few voltages for a row.
                Some(0) => {}
                Some(times) => return Ok(times),
                None => return Ok(0),
            }
        }
    }

    fn step_begun(&mut self, stages: &mut Stages) -> Result<usize> {
        if self.made.is_none() {
            return Ok(0);
        }
        self.is_last = true;
        let times = self.take(stages).map_err(|error| with_progress(error, self.whole))?;
        Ok(times.unwrap_or(0))
    }

    fn finish(&mut self, times: u64, stages: &mut Stages) -> Result<usize> {
        let finished = self.stage.finish(times, stages);
        finished.map_err(|error| with_progress(error, self.whole))
    }

    fn source(&self) -> &dyn FilterbankSource {
        &*self.filterbank
    }

    fn tail(&mut self) -> Result<Vec<u8>> {
        self.stage.tail().map_err(|error| with_progress(error, self.whole))
    }
}

/// Bits per load of the kernels.
const ALIGNED_BITS: usize = 128;

/// Largest number of pieces per gulp; one is copied while the next is read.
const PIECES: usize = 4;

/// Smallest size in bytes of a piece of voltages.
const PIECE_BYTES: usize = 4 << 20;

/// Content of a gulp.
#[derive(Clone, Copy, Debug)]
enum Content {
    /// Number of rows.
    Rows(usize),
    Voltages(Layouts),
    /// End of the source.
    End,
}

/// Layout of the voltages of a gulp.
#[derive(Clone, Copy, Debug)]
struct Layouts {
    pieces: [DeviceVoltages; PIECES],
    count: usize,
    /// Whether the recording ends after them.
    is_last: bool,
}

impl Layouts {
    fn new() -> Self {
        let none = DeviceVoltages { first_byte: 0, stride: 0, times: 0 };
        Self { pieces: [none; PIECES], count: 0, is_last: false }
    }

    /// Returns the pieces in order.
    fn pieces(&self) -> Pieces<'_> {
        Pieces { layouts: &self.pieces[..self.count], is_last: self.is_last }
    }

    fn push(&mut self, layout: DeviceVoltages) {
        self.pieces[self.count] = layout;
        self.count += 1;
    }
}

/// Sizes of a gulp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gulp {
    encoding: VoltageEncoding,
    streams: usize,
    row_bytes: usize,
    /// Samples of each stream between allowed piece starts, so that kernels can read the pieces in place.
    step: usize,
    /// Samples of each stream in a piece, and in the gulp.
    piece: usize,
    samples: usize,
    /// Largest number of rows computed from it.
    rows: usize,
    /// Recorded samples, after those of a row, that the row may depend on.
    delay: usize,
    /// Bytes of its voltages, or of one row if larger.
    bytes: usize,
}

/// Recorded voltages that rows are computed from.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    encoding: VoltageEncoding,
    streams: usize,
    /// Samples, after those of a row, that the row may depend on.
    delay: usize,
    /// Most samples that were read earlier and whose rows are not computed.
    backlog: usize,
}

impl Recorded {
    fn new(filterbank: &VoltageFilterbank) -> Self {
        let (header, delay) = (filterbank.recorded(), filterbank.delay());
        let (encoding, streams) = (header.encoding, header.streams());
        Self { encoding, streams, delay, backlog: filterbank.backlog() }
    }
}

impl Gulp {
    /// Returns the bytes of voltages per row, at most those of a gulp.
    fn row_bytes(plan: &Plan, recorded: Recorded) -> usize {
        let bits = recorded.streams * recorded.encoding.sample_bits();
        plan.samples_per_row().saturating_mul(bits).div_ceil(8).min(ROW_BYTES)
    }

    /// Computes the sizes for about `rows` rows of `row_bytes` bytes each, or for part of a row that exceeds a gulp.
    fn new(plan: &Plan, recorded: Recorded, row_bytes: usize, rows: usize) -> Self {
        let Recorded { encoding, streams, delay, backlog } = recorded;
        let bits = encoding.sample_bits();
        let aligned = ALIGNED_BITS / common_divisor(ALIGNED_BITS, bits);
        let row = plan.samples_per_row();
        let most = ROW_BYTES * 8 / (streams * encoding.sample_bits());
        let wanted = if row <= most { rows.saturating_mul(row) } else { most.max(1) };
        let step = row / common_divisor(row, aligned) * aligned;
        let whole = |samples: usize| match samples / step * step {
            0 => samples.next_multiple_of(aligned),
            whole => whole,
        };
        let samples = whole(wanted);
        let worth = PIECE_BYTES * 8 / (streams * encoding.sample_bits());
        let least = if step <= samples { step } else { 1 };
        let piece = whole(samples.div_ceil(PIECES).max(worth).max(least)).min(samples);
        Self {
            encoding,
            streams,
            row_bytes,
            step,
            piece,
            samples,
            rows: plan.max_rows(samples + backlog),
            delay,
            bytes: (streams * encoding.bytes(samples)).max(row_bytes),
        }
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Position among the voltages.
#[derive(Clone, Copy, Debug)]
struct Position {
    /// Samples since the filter bank's start.
    taken: u64,
    /// Samples left to read.
    left: u64,
}

/// Progress of reading voltages.
#[derive(Debug)]
struct Reading {
    gulp: Gulp,
    /// Position among the voltages, once they are read.
    voltages: Option<Position>,
    /// Rows left to compute from them.
    left_rows: u64,
    /// Whether the end of the source was reached.
    has_ended: bool,
    /// Time that reading the last gulp took.
    took: Duration,
}

impl Reading {
    fn new(gulp: Gulp) -> Self {
        Self { gulp, voltages: None, left_rows: 0, has_ended: false, took: Duration::ZERO }
    }

    /// Reads and sends the next gulp: rows while the host has some, then voltages.
    fn next(
        &mut self,
        reader: &mut Reader,
        filterbank: &mut VoltageFilterbank,
        mut slot: UploadSlot<'_>,
    ) -> Result<Content> {
        if self.voltages.is_none() && !reader.holds_rows() && filterbank.can_split() {
            let taken = filterbank.taken();
            let left = wanted(filterbank.plan(), taken, reader.left());
            let later = if left > 0 { self.gulp.delay as u64 } else { 0 };
            // Dedispersed samples are copied anyway, so pieces may begin anywhere.
            let taken = if later > 0 { 0 } else { taken };
            self.left_rows = reader.left();
            self.voltages = Some(Position { taken, left: left.saturating_add(later) });
        }
        if self.voltages.is_some() {
            return self.voltages(&mut filterbank.split().0, slot);
        }
        let Gulp { rows, bytes, row_bytes, .. } = self.gulp;
        let most = rows.min(bytes / row_bytes) * row_bytes;
        let times = reader.read(filterbank, &mut slot.host()?[..most])?;
        if times == 0 {
            return Ok(Content::End);
        }
        slot.send(times * row_bytes)?;
        Ok(Content::Rows(times))
    }

    /// Reads and sends the next gulp of voltages.
    fn voltages(&mut self, unread: &mut Unread<'_>, mut slot: UploadSlot<'_>) -> Result<Content> {
        let mut layouts = Layouts::new();
        let mut sent = 0;
        slot.host()?;
        while layouts.count < PIECES {
            let most = self.piece(unread.held());
            let Gulp { encoding, streams, .. } = self.gulp;
            let length = streams * encoding.bytes(most);
            let rest = slot.rest();
            if most == 0 || length > rest.len() {
                break;
            }
            // Kernels read a piece in place only if it begins at a multiple of this size.
            let padded = length.next_multiple_of(ALIGNED_BITS / 8).min(rest.len());
            let mut block = VoltageBlock::lent(rest, encoding, streams, most)?;
            let times = unread.read(&mut block)?;
            if times == 0 {
                layouts.is_last = self.gulp.delay > 0 && !self.has_ended;
                self.has_ended = true;
                break;
            }
            let stride = block.stride();
            layouts.push(DeviceVoltages { first_byte: sent, stride, times });
            slot.send(padded)?;
            sent += padded;
            self.pass(times as u64);
        }
        if layouts.count == 0 && !layouts.is_last {
            return Ok(Content::End);
        }
        Ok(Content::Voltages(layouts))
    }

    /// Returns the maximum samples of the next piece; `held` samples are already read.
    fn piece(&self, held: usize) -> usize {
        let Gulp { step, piece, .. } = self.gulp;
        let Some(Position { taken, left }) = self.voltages else { return 0 };
        let past = (taken % step as u64) as usize;
        let most = match held {
            0 if past == 0 => piece,
            // Up to the next allowed piece start.
            0 => piece.min(step - past),
            held => piece.min(held),
        };
        most.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    fn pass(&mut self, times: u64) {
        if let Some(position) = &mut self.voltages {
            position.taken += times;
            position.left = position.left.saturating_sub(times);
        }
    }
}

/// Returns the samples after the first `taken` ones that the next `rows` rows need.
fn wanted(plan: &Plan, taken: u64, rows: u64) -> u64 {
    if rows == 0 || rows == u64::MAX {
        return rows;
    }
    let last = plan.rows(taken).saturating_add(rows);
    // The last row's windows end this many samples after the row's own samples.
    let overlap = (plan.span() - plan.hop()) as u64;
    let end = last.saturating_mul(plan.samples_per_row() as u64).saturating_add(overlap);
    end.saturating_sub(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channelize::{Detection, Feed, Form, Options, Products};

    /// Returns the sizes for voltages that the plan channelizes as recorded.
    fn gulp(plan: &Plan, row_bytes: usize, rows: usize) -> Gulp {
        Gulp::new(plan, recorded(plan), row_bytes, rows)
    }

    fn recorded(plan: &Plan) -> Recorded {
        let (encoding, streams) = (plan.input().encoding, plan.input().streams());
        Recorded { encoding, streams, delay: 0, backlog: 0 }
    }

    fn plan(channels: usize, spectra: usize, encoding: VoltageEncoding) -> Plan {
        let detection = Detection {
            products: Products::I,
            feed: Feed::Linear,
            spectra,
            channels: 1,
            interpolate_dc: false,
        };
        let mut options = Options::new(channels, 4, encoding);
        (options.form, options.input.polarizations) = (Form::Detected(detection), 2);
        Plan::new(options).unwrap()
    }

    #[test]
    fn pieces_begin_where_kernels_can_read_them() {
        use VoltageEncoding::{Complex8, Complex16, Real2};
        // 64 KiB of voltages per row, 1024 rows in four pieces.
        let sizes = gulp(&plan(1024, 16, Complex8), 4096, 1024);
        assert_eq!((sizes.step, sizes.piece, sizes.samples), (1 << 14, 1 << 22, 1 << 24));
        assert_eq!((sizes.rows, sizes.bytes), (1025, 64 << 20));
        // Few rows form one piece; 3 channels of 4 samples per byte begin a row within a byte.
        let sizes = gulp(&plan(3, 1, Real2), 12, 100);
        assert_eq!((sizes.step, sizes.piece, sizes.samples), (192, 576, 576));
        // The voltages of a row may exceed a gulp's, and a row may exceed its voltages.
        let long = plan(1024, 1 << 20, Complex16);
        assert_eq!(Gulp::row_bytes(&long, recorded(&long)), ROW_BYTES);
        let sizes = gulp(&long, 4096, 1);
        assert_eq!((sizes.rows, sizes.bytes, sizes.piece), (1, ROW_BYTES, ROW_BYTES / 8 / PIECES));
        assert_eq!(gulp(&plan(64, 1, Real2), 256, 1).bytes, 256);
    }

    #[test]
    fn no_more_samples_are_wanted_than_the_rows_need() {
        let plan = plan(8, 5, VoltageEncoding::Complex8);
        for taken in [0, 7, 40, 63, 1000] {
            let before = plan.rows(taken);
            for rows in [1, 2, 30] {
                let end = taken + wanted(&plan, taken, rows);
                assert_eq!(plan.rows(end), before + rows, "{taken} {rows}");
                assert_eq!(plan.rows(end - 1), before + rows - 1, "{taken} {rows}");
            }
        }
        assert_eq!((wanted(&plan, 99, 0), wanted(&plan, 99, u64::MAX)), (0, u64::MAX));
    }
}
