//! Sources of live streams: spectra and voltages as they arrive, with what was lost filled in.
//!
//! Invariant: sample n of a source lies n sampling times after its start, whatever is lost. Lost spectra are filled with each
//! channel's median over the last 1024 rows (the lower middle value of an even number), lost voltages with zeros; both are
//! listed. A read waits until all samples asked for are there, or the stream ends; a request to stop ends the wait.
//!
//! An address stays open between observations: packets that arrive meanwhile are kept as long as there is space.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::io::voltages::layout::Layout;
use crate::io::voltages::{
    ArrivingFrames, Flag, Scratch, VoltageHeader, VoltageOptions, VoltageSource, dada,
};
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::live::capture::{Capture, Event, Statistics};
use crate::live::description::{Begun, Description};
use crate::live::header::Content;
use crate::live::packing::Packing;
use crate::live::ring::{self, Received};
use crate::live::socket;
use crate::live::stream::wrapped;
use crate::live::target::{Port, Target, VdifPort};
use crate::live::window::{Chunk, Stretch};
use crate::math::RunningMedian;
use crate::trace::{self, Slowest};
use crate::units::SECONDS_PER_DAY;
use crate::voltage::VoltageBlock;

/// Longest loss at the end of a stream that is filled in, in seconds.
const MOST_LOST_S: f64 = 600.0;

/// Longest wait between two looks at a request to stop.
const STEP: Duration = Duration::from_millis(50);

/// Bytes of a block of samples from a ring.
const RING_BYTES: usize = 1 << 16;

/// Function that returns false after a request to stop.
pub type GoesOn = Box<dyn FnMut() -> bool + Send>;

/// Open address, from which observations come one after another.
#[derive(Clone, Debug)]
pub struct Live {
    path: PathBuf,
    options: VoltageOptions,
    /// The connection, unless an observation uses it.
    connection: Arc<Mutex<Option<Connection>>>,
    behind: Arc<Mutex<Behind>>,
}

/// Samples of an observation that were dropped because its reader was slower than the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Behind {
    /// Stretches of dropped samples that were read past.
    pub stretches: u64,
    /// Blocks of the stream (of all sources) in them; blocks are dropped whole.
    pub blocks: u64,
    /// Samples in them.
    pub times: u64,
    /// The last of them.
    pub last: Option<Gap>,
    /// Stage that took longest from the last wait for samples to that stretch, if stages are timed ([`trace::sum`]).
    pub slowest: Option<Slowest>,
}

/// One observation of an address.
#[derive(Debug)]
pub enum Observation {
    /// Detected spectra.
    Spectra(LiveSpectra),
    /// Voltages.
    Voltages(LiveVoltages),
}

#[derive(Debug)]
enum Connection {
    Packets(Capture),
    Ring(Box<ring::Reader>),
}

impl Live {
    /// Opens an address: begins to receive packets, or attaches to a ring. `options` complete the headers of voltages,
    /// `buffer_bytes` is the size of a socket's buffer.
    ///
    /// # Errors
    /// Those of [`Capture::start`] and of [`ring::Reader::attach`].
    pub fn open(target: &Target, options: &VoltageOptions, buffer_bytes: usize) -> Result<Self> {
        let path = PathBuf::from(target.to_string());
        let connection = match target {
            Target::Spead(Port { address, interface }) => {
                let socket = socket::Options {
                    interface: interface.clone(),
                    buffer_bytes,
                    ..socket::Options::new(*address)
                };
                Connection::Packets(Capture::start(&socket, &path, options)?)
            }
            Target::Vdif(VdifPort { port: Port { address, interface }, numbered }) => {
                let socket = socket::Options {
                    interface: interface.clone(),
                    buffer_bytes,
                    ..socket::Options::new(*address)
                };
                Connection::Packets(Capture::start_vdif(&socket, &path, *numbered, options)?)
            }
            Target::Ring(key) => {
                let reader = ring::Reader::attach(*key, Duration::from_secs(1))?;
                Connection::Ring(Box::new(reader))
            }
        };
        let connection = Arc::new(Mutex::new(Some(connection)));
        Ok(Self { path, options: options.clone(), connection, behind: Arc::default() })
    }

    /// Opens sockets for a stream whose packets carry no header; `path` names it in headers and errors.
    ///
    /// # Errors
    /// Those of [`Capture::start_described`].
    pub fn described(
        path: &Path,
        sockets: &[socket::Options],
        description: &Description,
    ) -> Result<Self> {
        let capture = Capture::start_described(sockets, path, description)?;
        let connection = Arc::new(Mutex::new(Some(Connection::Packets(capture))));
        let (path, options) = (path.to_path_buf(), VoltageOptions::default());
        Ok(Self { path, options, connection, behind: Arc::default() })
    }

    /// Returns the place of the counters of packets, for a watcher; `None` for a ring or during an observation.
    pub fn shared_statistics(&self) -> Option<Arc<Mutex<Statistics>>> {
        match &*self.connection.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Connection::Packets(capture)) => Some(capture.shared_statistics()),
            _ => None,
        }
    }

    /// Returns what was dropped of the current or last observation.
    pub fn behind(&self) -> Behind {
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the port of a socket, which the system has chosen if 0 was asked for; `None` for a ring or during an observation.
    pub fn port(&self) -> Option<u16> {
        match &*self.connection.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Connection::Packets(capture)) => Some(capture.port()),
            _ => None,
        }
    }

    /// Returns the advice about the size of the socket's buffer, if it is smaller than asked for.
    pub fn advice(&self) -> Option<String> {
        match &*self.connection.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Connection::Packets(capture)) => capture.advice().map(str::to_owned),
            _ => None,
        }
    }

    /// Waits for the next observation: a header and, from packets, the first samples.
    ///
    /// # Errors
    /// [`Error::stopped`] after a request to stop; [`Error::Format`] for an invalid header in a ring; [`Error::Unavailable`] while
    /// another observation of this address is read, and as receiving fails.
    pub fn next(&self, mut goes_on: GoesOn) -> Result<Observation> {
        let taken = self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(connection) = taken else {
            return Err(Error::Unavailable {
                what: self.path.display().to_string(),
                why: "an observation of it is being read".into(),
            });
        };
        let mut lease = Lease { connection: Some(connection), home: Arc::clone(&self.connection) };
        let opened = match lease.connection.as_mut() {
            Some(Connection::Packets(capture)) => first_samples(capture, &self.path, &mut goes_on)?,
            Some(Connection::Ring(reader)) => {
                next_header(reader, &self.path, &self.options, &mut goes_on)?
            }
            None => return Err(Error::stopped(&self.path)),
        };
        let Opened { content, order, streams, blocks } = opened;
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = Behind::default();
        let (path, behind) = (self.path.clone(), Arc::clone(&self.behind));
        let feed = Feed { lease, blocks, path, goes_on, place: 0, taken: 0, behind };
        Ok(match content {
            Content::Spectra(header) => Observation::Spectra(LiveSpectra::new(header, feed)),
            Content::Voltages(header) => {
                Observation::Voltages(LiveVoltages::new(header, order, streams, feed)?)
            }
        })
    }
}

/// Connection in use; it returns to its address when the observation is dropped.
#[derive(Debug)]
struct Lease {
    connection: Option<Connection>,
    home: Arc<Mutex<Option<Connection>>>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = self.connection.take();
    }
}

/// Observation before its first read.
struct Opened {
    content: Content,
    /// Order of voltages in a block.
    order: Option<Order>,
    /// Streams of each source of voltages.
    streams: Vec<Vec<Range<usize>>>,
    blocks: Blocks,
}

/// Order of voltages in a block.
#[derive(Debug)]
enum Order {
    /// Whole bytes of each sample.
    Bytes(Layout),
    /// Packed samples, a frame of each source.
    Frames(ArrivingFrames, Scratch),
}

/// Blocks of samples of all sources, as they arrive.
#[derive(Debug)]
struct Blocks {
    /// Samples per block.
    times: usize,
    /// Bytes per block of all sources.
    block_bytes: usize,
    /// Advance of the counter per block, for packets.
    step: u64,
    sources: usize,
    /// Whether consecutive blocks without a loss are used as one.
    are_joined: bool,
    /// Whether the end says how many samples of the last block are data.
    has_end: bool,
    /// Samples of the block in use; fewer than `times` in the last block.
    valid: usize,
    /// Lost samples before the block in use.
    missing: u64,
    /// Blocks among them, the last ones, that were dropped because the reader was too slow.
    overrun: Option<Overrun>,
    /// Counter of the next block that is expected, for packets.
    expected: u64,
    /// Chunk in use, and the blocks in it: the first one in use, and how many.
    chunk: Option<Chunk>,
    block: usize,
    used: usize,
    /// Width of samples in chunks, and the block in use with samples of 16 bits, if theirs is another.
    packing: Packing,
    unpacked: Vec<u8>,
    /// Event after the chunk.
    ahead: Option<Event>,
    /// Block from a ring.
    buffer: Vec<u8>,
    filled: usize,
    has_ended: bool,
    /// Most samples that are lost at the end of a stream.
    most_lost: u64,
    /// Describes an incomplete last sample, which is left out.
    cut: Option<String>,
}

impl Blocks {
    fn new(times: usize, block_bytes: usize) -> Self {
        Self {
            times,
            block_bytes,
            step: times as u64,
            sources: 1,
            are_joined: false,
            has_end: false,
            valid: 0,
            missing: 0,
            overrun: None,
            expected: 0,
            chunk: None,
            block: 0,
            used: 1,
            packing: Packing::None,
            unpacked: Vec::new(),
            ahead: None,
            buffer: Vec::new(),
            filled: 0,
            has_ended: false,
            most_lost: 0,
            cut: None,
        }
    }
}

/// Dropped blocks.
#[derive(Clone, Copy, Debug)]
struct Overrun {
    blocks: u64,
    times: u64,
    /// Stage that took longest before.
    slowest: Option<Slowest>,
}

/// Samples that come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Samples of the block in use, from its `start` on.
    Samples {
        start: usize,
        times: usize,
    },
    /// Lost samples.
    Missing(u64),
    End,
}

/// Waits for a stream's header and its first samples.
fn first_samples(capture: &mut Capture, path: &Path, goes_on: &mut GoesOn) -> Result<Opened> {
    let mut stream = None;
    loop {
        let event = wait(capture, path, goes_on)?;
        match (event, &stream) {
            (Event::Begin(begun), _) => stream = Some(begun),
            (Event::Failed(error), _) => return Err(error),
            (Event::Chunk(chunk), Some(begun)) => {
                return Ok(opened(begun, chunk));
            }
            (Event::Chunk(chunk), None) => capture.recycle(chunk),
            // A stream of which nothing came.
            (Event::End { .. }, _) => stream = None,
            (Event::Gap(_) | Event::Overrun(_), _) => {}
        }
    }
}

/// Makes an observation of a stream and its first chunk.
fn opened(begun: &Begun, chunk: Chunk) -> Opened {
    let shape = begun.shape();
    let mut blocks = Blocks::new(begun.times(), shape.sources * shape.block_bytes);
    let units = chunk.first.wrapping_sub(begun.first());
    let units = shape.period.map_or(units, |period| units % period);
    let passed = units / shape.step * begun.times() as u64;
    let content = starting(begun.content().clone(), passed);
    blocks.most_lost = (MOST_LOST_S / content.tsamp_s()) as u64;
    (blocks.step, blocks.sources, blocks.has_end) = (shape.step, shape.sources, begun.has_end());
    // Their bytes follow each other as in one longer block.
    let is_long = begun.layout().map_or(shape.sources == 1, Layout::is_endless);
    blocks.packing = begun.packing();
    blocks.are_joined =
        is_long && !begun.has_end() && begun.frames().is_none() && blocks.packing == Packing::None;
    if blocks.packing != Packing::None {
        let bytes = blocks.packing.unpacked_bytes(blocks.block_bytes).unwrap_or(0);
        blocks.unpacked = vec![0; bytes];
    }
    (blocks.expected, blocks.chunk) = (chunk.first, Some(chunk));
    let order = match begun.frames() {
        Some(frames) => Some(Order::Frames(frames.clone(), Scratch::default())),
        None => begun.layout().cloned().map(Order::Bytes),
    };
    Opened { content, order, streams: begun.streams().to_vec(), blocks }
}

/// Waits for an event.
fn wait(capture: &Capture, path: &Path, goes_on: &mut GoesOn) -> Result<Event> {
    loop {
        if !goes_on() {
            return Err(Error::stopped(path));
        }
        let event = capture.next_now().or_else(|| trace::waiting(|| capture.next(STEP)));
        if let Some(event) = event {
            return Ok(event);
        }
    }
}

/// Moves the start of a stream's header to its sample `first`.
fn starting(mut content: Content, first: u64) -> Content {
    let seconds = first as f64 * content.tsamp_s();
    match &mut content {
        Content::Spectra(header) if first > 0 && header.tstart_mjd > 0.0 => {
            header.tstart_mjd += seconds / SECONDS_PER_DAY;
        }
        Content::Voltages(header) if first > 0 && header.start.day != 0 => {
            header.start = header.start.plus_s(seconds);
        }
        Content::Spectra(_) | Content::Voltages(_) => {}
    }
    content
}

/// Waits for the header of a ring's next transfer.
fn next_header(
    reader: &mut ring::Reader,
    path: &Path,
    options: &VoltageOptions,
    goes_on: &mut GoesOn,
) -> Result<Opened> {
    let fields = loop {
        if !goes_on() {
            return Err(Error::stopped(path));
        }
        if let Some(fields) = reader.header(STEP)? {
            break fields;
        }
    };
    let content = Content::new(&fields, path, options)?;
    let (frame_bytes, unit, layout) = match &content {
        Content::Spectra(header) => (header.row_bytes(), 1, None),
        Content::Voltages(_) => {
            let layout = dada::stream_layout(&fields)?;
            (layout.frame_bytes() as usize, layout.unit_times() as usize, Some(layout))
        }
    };
    let times = (RING_BYTES / frame_bytes.max(1)).max(1).next_multiple_of(unit);
    let mut blocks = Blocks::new(times, times * frame_bytes);
    blocks.buffer = vec![0; blocks.block_bytes];
    let order = layout.map(Order::Bytes);
    Ok(Opened { content, order, streams: Vec::new(), blocks })
}

/// Samples of an observation in order.
struct Feed {
    blocks: Blocks,
    lease: Lease,
    path: PathBuf,
    goes_on: GoesOn,
    /// Samples of the block in use that were taken.
    place: usize,
    /// Samples of the observation that were taken, lost ones included.
    taken: u64,
    behind: Arc<Mutex<Behind>>,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Feed").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Feed {
    /// Returns the next samples, at most `most` of them, or the number of those lost.
    fn next(&mut self, most: usize) -> Result<Next> {
        loop {
            if self.blocks.missing > 0 {
                return Ok(Next::Missing(self.blocks.missing.min(most as u64)));
            }
            if self.place < self.blocks.valid {
                let times = (self.blocks.valid - self.place).min(most);
                return Ok(Next::Samples { start: self.place, times });
            }
            if self.blocks.has_ended {
                return Ok(Next::End);
            }
            self.place = 0;
            match &mut self.lease.connection {
                Some(Connection::Packets(capture)) => {
                    self.blocks.advance(capture, &self.path, &mut self.goes_on)?;
                    if let Some(overrun) = self.blocks.overrun.take() {
                        let start_time = self.taken + self.blocks.missing - overrun.times;
                        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
                        behind.add(&overrun, start_time);
                    }
                }
                Some(Connection::Ring(reader)) => {
                    self.blocks.fill(reader, &self.path, &mut self.goes_on)?;
                }
                None => return Ok(Next::End),
            }
        }
    }

    /// Takes samples or lost samples that [`Feed::next`] has returned.
    fn take(&mut self, taken: Next) {
        match taken {
            Next::Samples { times, .. } => {
                self.place += times;
                self.taken += times as u64;
            }
            Next::Missing(times) => {
                self.blocks.missing -= times;
                self.taken += times;
            }
            Next::End => {}
        }
    }

    fn statistics(&self) -> Option<Statistics> {
        match &self.lease.connection {
            Some(Connection::Packets(capture)) => Some(capture.statistics()),
            _ => None,
        }
    }
}

impl Behind {
    /// Adds a stretch; one that follows the last extends it.
    fn add(&mut self, overrun: &Overrun, start_time: u64) {
        let gap = Gap { start_time, times: overrun.times };
        self.blocks += overrun.blocks;
        self.times += gap.times;
        match &mut self.last {
            Some(last) if last.start_time + last.times == gap.start_time => last.times += gap.times,
            _ => {
                self.stretches += 1;
                self.last = Some(gap);
            }
        }
        self.slowest = overrun.slowest.or(self.slowest);
    }
}

impl Blocks {
    /// Returns the bytes of the blocks in use, unpacked.
    fn bytes(&self) -> &[u8] {
        match &self.chunk {
            Some(_) if self.packing != Packing::None => &self.unpacked,
            Some(chunk) => {
                let (first, end) = (self.block, self.block + self.used);
                &chunk.bytes()[first * self.block_bytes..end * self.block_bytes]
            }
            None => &self.buffer,
        }
    }

    /// Returns whether all sources of a block in use are there.
    fn is_whole(&self, block: usize) -> bool {
        let is_present = |chunk: &Chunk| (0..self.sources).all(|s| chunk.is_present(block, s));
        self.chunk.as_ref().is_none_or(is_present)
    }

    /// Copies rows of the blocks in use, from row `start` on; the sources are groups of channels.
    fn copy_rows(&self, start: usize, rows: &mut [u8], row_bytes: usize) {
        let bytes = self.bytes();
        if self.sources == 1 {
            return rows.copy_from_slice(&bytes[start * row_bytes..][..rows.len()]);
        }
        let group = row_bytes / self.sources;
        for (source, bytes) in bytes.chunks_exact(self.times * group).enumerate() {
            let from = bytes.chunks_exact(group).skip(start);
            for (row, from) in rows.chunks_exact_mut(row_bytes).zip(from) {
                row[source * group..][..group].copy_from_slice(from);
            }
        }
    }

    /// Moves to the next block of packets, or to lost ones.
    fn advance(&mut self, capture: &Capture, path: &Path, goes_on: &mut GoesOn) -> Result<()> {
        let was_in_use = std::mem::take(&mut self.valid) > 0;
        if was_in_use {
            self.block += self.used;
            self.expected = self.expected.wrapping_add(self.step.wrapping_mul(self.used as u64));
        }
        if let Some(chunk) = self.chunk.take_if(|chunk| self.block == chunk.blocks) {
            capture.recycle(chunk);
        }
        if self.chunk.is_none() {
            let event = match self.ahead.take() {
                Some(event) => event,
                None => wait(capture, path, goes_on)?,
            };
            match event {
                Event::Chunk(chunk) => {
                    self.skip_to(chunk.first);
                    (self.chunk, self.block) = (Some(chunk), 0);
                }
                Event::Gap(stretch) => {
                    self.skip_past(&stretch, capture, path, goes_on)?;
                }
                Event::Overrun(stretch) => {
                    let slowest = trace::slowest();
                    let times = self.skip_past(&stretch, capture, path, goes_on)?;
                    self.overrun = Some(Overrun { blocks: stretch.blocks, times, slowest });
                }
                Event::End { end } => {
                    self.has_ended = true;
                    // The last heaps may be lost.
                    let lost = end.map_or(0, |end| wrapped(end.wrapping_sub(self.expected)));
                    self.missing += if lost <= self.most_lost { lost } else { 0 };
                }
                Event::Begin(_) => {}
                Event::Failed(error) => return Err(error),
            }
        }
        let Some(chunk) = &self.chunk else { return Ok(()) };
        let blocks = chunk.blocks;
        self.used = 1;
        if self.are_joined && self.is_whole(self.block) {
            let more = (self.block + 1..blocks).take_while(|block| self.is_whole(*block));
            self.used += more.count();
        }
        self.valid = self.used * self.times;
        if self.packing != Packing::None {
            let packed = &chunk.bytes()[self.block * self.block_bytes..][..self.block_bytes];
            self.packing.unpack(packed, &mut self.unpacked)?;
        }
        if !self.has_end {
            return Ok(());
        }
        if self.block + 1 == blocks && self.ahead.is_none() {
            // The end says how many samples of the last block are of the recording.
            self.ahead = Some(wait(capture, path, goes_on)?);
        }
        if let (Some(Event::End { end: Some(end) }), true) = (&self.ahead, self.block + 1 == blocks)
        {
            let valid = wrapped(end.wrapping_sub(self.expected));
            self.valid = valid.min(self.times as u64) as usize;
        }
        Ok(())
    }

    /// Counts the samples up to the end of a stretch as lost; returns those of the stretch.
    fn skip_past(
        &mut self,
        stretch: &Stretch,
        capture: &Capture,
        path: &Path,
        goes_on: &mut GoesOn,
    ) -> Result<u64> {
        let units = self.step.wrapping_mul(stretch.blocks);
        self.skip_to(stretch.first.wrapping_add(units));
        let times = stretch.blocks.saturating_mul(self.times as u64).min(self.missing);
        if !self.has_end {
            return Ok(times);
        }
        let next = match wait(capture, path, goes_on) {
            // The next read stops.
            Err(error) if error.is_stop() => return Ok(times),
            next => next?,
        };
        let mut beyond = 0;
        if let Event::End { end: Some(end) } = next {
            // The last block of a recording may have fewer samples.
            beyond = wrapped(self.expected.wrapping_sub(end));
            beyond = if beyond < times.min(self.times as u64) { beyond } else { 0 };
        }
        self.expected = self.expected.wrapping_sub(beyond);
        self.ahead = Some(next);
        self.missing -= beyond;
        Ok(times - beyond)
    }

    /// Counts the samples up to the block of counter `first` as lost.
    fn skip_to(&mut self, first: u64) {
        let units = first.wrapping_sub(self.expected);
        if units <= i64::MAX as u64 {
            self.missing += units / self.step * self.times as u64;
            self.expected = first;
        }
    }

    /// Fills the block from a ring.
    fn fill(&mut self, reader: &mut ring::Reader, path: &Path, goes_on: &mut GoesOn) -> Result<()> {
        if std::mem::take(&mut self.valid) > 0 {
            self.filled = 0;
        }
        while self.filled < self.buffer.len() && !self.has_ended {
            if !goes_on() {
                return Err(Error::stopped(path));
            }
            match reader.read(&mut self.buffer[self.filled..], STEP)? {
                Received::Bytes(bytes) => self.filled += bytes,
                Received::Waiting => {}
                Received::End => self.has_ended = true,
            }
        }
        let sample_bytes = self.block_bytes / self.times;
        self.valid = self.filled / sample_bytes;
        let rest = self.filled % sample_bytes;
        if rest > 0 {
            let path = path.display();
            self.cut = Some(format!(
                "{path}: the data end {rest} bytes into a sample, which has {sample_bytes} bytes and is left out"
            ));
        }
        Ok(())
    }
}

/// Spectra of an observation.
#[derive(Debug)]
pub struct LiveSpectra {
    header: FilterbankHeader,
    feed: Feed,
    row: u64,
    median: RunningMedian,
    /// Row that fills the current gap.
    filling: Option<Vec<u8>>,
    gaps: Vec<Gap>,
}

impl LiveSpectra {
    fn new(header: FilterbankHeader, feed: Feed) -> Self {
        let median = RunningMedian::dense(header.encoding, header.channels());
        Self { header, feed, row: 0, median, filling: None, gaps: Vec::new() }
    }

    /// Returns the counters of the packets received; `None` for a ring.
    pub fn statistics(&self) -> Option<Statistics> {
        self.feed.statistics()
    }

    /// Fills rows that were lost, and lists them.
    fn fill(&mut self, rows: &mut [u8]) {
        let row_bytes = self.header.row_bytes();
        let filling = self.filling.get_or_insert_with(|| self.median.row());
        rows.chunks_exact_mut(row_bytes).for_each(|row| row.copy_from_slice(filling));
        let times = (rows.len() / row_bytes) as u64;
        match self.gaps.last_mut() {
            Some(gap) if gap.start_time + gap.times == self.row => gap.times += times,
            _ => self.gaps.push(Gap { start_time: self.row, times }),
        }
    }
}

impl FilterbankSource for LiveSpectra {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let asked = self.header.times_in(rows)?;
        let mut done = 0;
        while done < asked {
            let next = match self.feed.next(asked - done) {
                // The rows before a request to stop are returned first.
                Err(error) if error.is_stop() && done > 0 => break,
                next => next?,
            };
            let rest = &mut rows[done * row_bytes..];
            let times = match next {
                Next::End => break,
                Next::Missing(times) => {
                    self.fill(&mut rest[..times as usize * row_bytes]);
                    times as usize
                }
                Next::Samples { start, times } => {
                    let blocks = &self.feed.blocks;
                    let rest = &mut rest[..times * row_bytes];
                    if !blocks.is_whole(blocks.block) {
                        self.fill(rest);
                    } else {
                        blocks.copy_rows(start, rest, row_bytes);
                        self.median.observe_rows(self.row, rest);
                        self.filling = None;
                    }
                    times
                }
            };
            self.feed.take(next);
            self.row += times as u64;
            done += times;
        }
        Ok(done)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let mut scratch = vec![0; self.header.row_bytes() * 256];
        let mut done = 0;
        while done < times {
            let wanted = (times - done).min(256) as usize * self.header.row_bytes();
            match self.read(&mut scratch[..wanted])? {
                0 => break,
                read => done += read as u64,
            }
        }
        Ok(done)
    }

    fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn is_live(&self) -> bool {
        true
    }

    fn cut(&self) -> Option<&str> {
        self.feed.blocks.cut.as_deref()
    }
}

/// Lists lost samples; joins them with those of the same streams directly before, among the last `most` flags.
fn add_flag(flags: &mut Vec<Flag>, lost: Flag, most: usize) {
    let same = |flag: &&mut Flag| flag.streams == lost.streams;
    match flags.iter_mut().rev().take(most).find(same) {
        Some(flag) if flag.start + flag.times == lost.start => flag.times += lost.times,
        _ => flags.push(lost),
    }
}

/// Voltages of an observation.
#[derive(Debug)]
pub struct LiveVoltages {
    header: VoltageHeader,
    order: Order,
    /// Streams of each source.
    streams: Vec<Vec<Range<usize>>>,
    feed: Feed,
}

impl LiveVoltages {
    fn new(
        header: VoltageHeader,
        order: Option<Order>,
        streams: Vec<Vec<Range<usize>>>,
        feed: Feed,
    ) -> Result<Self> {
        let Some(order) = order else {
            let why = "found spectra, expected voltages";
            return Err(Error::format(&header.path, "STATE", 0, why));
        };
        Ok(Self { header, order, streams, feed })
    }

    /// Returns the counters of the packets received; `None` for a ring.
    pub fn statistics(&self) -> Option<Statistics> {
        self.feed.statistics()
    }

    /// Lists samples that were lost, `at` samples after the start of `block`.
    fn lose(&self, streams: Range<usize>, times: u64, block: &mut VoltageBlock, at: usize) {
        let most = self.streams.iter().map(Vec::len).sum();
        add_flag(block.flags_mut(), Flag { streams, start: at as u64, times }, most);
    }

    /// Copies samples of the block in use to samples `at` and later of `block`.
    fn copy(&mut self, start: usize, times: usize, block: &mut VoltageBlock, at: usize) {
        let blocks = &self.feed.blocks;
        match &mut self.order {
            Order::Bytes(layout) => {
                for run in 0..layout.runs() {
                    let from = layout.offset(run, start as u64) as usize;
                    let bytes = &blocks.bytes()[from..][..layout.run_bytes(times as u64) as usize];
                    layout.scatter(run, bytes, block, at);
                }
            }
            Order::Frames(frames, scratch) => {
                let payloads = blocks.bytes().chunks_exact(frames.payload_bytes());
                for (thread, payload) in payloads.enumerate() {
                    let is_present = |chunk: &Chunk| chunk.is_present(blocks.block, thread);
                    let payload = blocks.chunk.as_ref().is_some_and(is_present).then_some(payload);
                    frames.unpack(thread, payload, start..start + times, block, at, scratch);
                }
            }
        }
        for source in 0..self.streams.len() {
            let blocks = &self.feed.blocks;
            let is_lost = |chunk: &Chunk| !chunk.is_present(blocks.block, source);
            if blocks.chunk.as_ref().is_some_and(is_lost) {
                for range in 0..self.streams[source].len() {
                    let streams = self.streams[source][range].clone();
                    self.lose(streams, times as u64, block, at);
                }
            }
        }
    }
}

impl VoltageSource for LiveVoltages {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let capacity = block.capacity();
        block.flags_mut().clear();
        let mut done = 0;
        while done < capacity {
            let unit = match &self.order {
                Order::Bytes(layout) => layout.left_in_unit(self.feed.place as u64),
                Order::Frames(..) => u64::MAX,
            };
            let next = match self.feed.next((capacity - done).min(unit.min(1 << 30) as usize)) {
                Err(error) if error.is_stop() && done > 0 => break,
                next => next?,
            };
            let times = match next {
                Next::End => break,
                Next::Missing(times) => {
                    let encoding = self.header.encoding;
                    let bytes = encoding.bytes(done)..encoding.bytes(done + times as usize);
                    block.rows_mut().for_each(|row| row[bytes.clone()].fill(encoding.zero_byte()));
                    self.lose(0..self.header.streams(), times, block, done);
                    times as usize
                }
                Next::Samples { start, times } => {
                    self.copy(start, times, block, done);
                    times
                }
            };
            self.feed.take(next);
            done += times;
        }
        block.set_times(done)?;
        Ok(done)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let mut scratch = self.header.block(times.min(4096) as usize);
        let mut done = 0;
        while done < times {
            if times - done < scratch.capacity() as u64 {
                scratch = self.header.block((times - done) as usize);
            }
            match self.read(&mut scratch)? {
                0 => break,
                read => done += read as u64,
            }
        }
        Ok(done)
    }

    fn is_live(&self) -> bool {
        true
    }

    fn cut(&self) -> Option<&str> {
        self.feed.blocks.cut.as_deref()
    }
}
