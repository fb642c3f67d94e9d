//! Sources of live streams: spectra and voltages as they arrive, with what was lost filled in.
//!
//! Invariant: sample n of a source lies n sampling times after its start, whatever is lost. Lost spectra are filled with each
//! channel's median over the last 1024 rows (the lower middle value of an even number), lost voltages with zeros; both are
//! listed. A read waits until all samples asked for are there, or the stream ends; a request to stop ends the wait.
//!
//! An address stays open between observations: packets that arrive meanwhile are kept as long as there is space.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::io::voltages::{VoltageOptions, dada};
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::live::capture::{Capture, Event, Statistics};
use crate::live::description::{Begun, Description};
pub use crate::live::feed::{Behind, GoesOn};
use crate::live::feed::{
    Blocks, Connection, Feed, Going, Joined, Lease, Next, Progress, STEP, wait,
};
use crate::live::header::Content;
use crate::live::ring;
use crate::live::socket;
use crate::live::sorting::{Order, Sorter};
use crate::live::target::{Port, Target, VdifPort};
pub use crate::live::voltages::LiveVoltages;
use crate::live::window::Chunk;
use crate::math::RunningMedian;
use crate::units::SECONDS_PER_DAY;

/// Longest loss at the end of a stream that is filled in, in seconds.
const MOST_LOST_S: f64 = 600.0;

/// Bytes of a block of samples from a ring.
const RING_BYTES: usize = 1 << 16;

/// Open address, from which observations come one after another.
#[derive(Clone, Debug)]
pub struct Live {
    path: PathBuf,
    options: VoltageOptions,
    /// The connection, unless an observation uses it.
    connection: Arc<Mutex<Option<Connection>>>,
    behind: Arc<Mutex<Behind>>,
    /// Stream in which the last observation was left.
    going: Arc<Mutex<Option<Going>>>,
    progress: Arc<Progress>,
}

/// One observation of an address.
#[derive(Debug)]
pub enum Observation {
    /// Detected spectra.
    Spectra(LiveSpectra),
    /// Voltages.
    Voltages(LiveVoltages),
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
        let (options, behind, going) = (options.clone(), Arc::default(), Arc::default());
        let progress = Arc::default();
        Ok(Self { path, options, connection, behind, going, progress })
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
        let (behind, going, progress) = (Arc::default(), Arc::default(), Arc::default());
        Ok(Self { path, options, connection, behind, going, progress })
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

    /// Returns the samples per stream that were read of the current or last observation, lost ones included.
    pub fn samples_read(&self) -> u64 {
        self.progress.taken.load(Ordering::Relaxed)
    }

    /// Returns whether the current or last observation has been read to its end, or nobody reads it any more.
    pub fn has_ended(&self) -> bool {
        let is_free = self.connection.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        is_free || self.progress.has_ended.load(Ordering::Relaxed)
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
    pub fn next(&self, goes_on: GoesOn) -> Result<Observation> {
        self.going.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.resume(goes_on)
    }

    /// Returns whether the last observation was left before its stream had ended.
    pub fn is_going(&self) -> bool {
        self.going.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits for the next observation as [`Live::next`]; a stream in which the last one was left goes on as another observation,
    /// from the latest samples on.
    ///
    /// # Errors
    /// Those of [`Live::next`].
    pub fn resume(&self, mut goes_on: GoesOn) -> Result<Observation> {
        let taken = self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(connection) = taken else {
            return Err(Error::Unavailable {
                what: self.path.display().to_string(),
                why: "an observation of it is being read".into(),
            });
        };
        let mut lease = Lease { connection: Some(connection), home: Arc::clone(&self.connection) };
        let opened = match lease.connection.as_mut() {
            Some(Connection::Packets(capture)) => {
                let going = self.going.lock().unwrap_or_else(PoisonError::into_inner).take();
                first_samples(capture, &self.path, going, &mut goes_on)?
            }
            Some(Connection::Ring(reader)) => {
                next_header(reader, &self.path, &self.options, &mut goes_on)?
            }
            None => return Err(Error::stopped(&self.path)),
        };
        let Opened { content, passed, sorter, streams, blocks, going } = opened;
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = Behind::default();
        self.progress.taken.store(0, Ordering::Relaxed);
        self.progress.has_ended.store(false, Ordering::Relaxed);
        let (path, behind) = (self.path.clone(), Arc::clone(&self.behind));
        let progress = Arc::clone(&self.progress);
        let feed = Feed::new(lease, blocks, path, goes_on, behind, progress);
        let feed = feed.keep_place(going, &self.going);
        Ok(match content {
            Content::Spectra(header) => Observation::Spectra(LiveSpectra::new(header, feed)),
            Content::Voltages(header) => {
                Observation::Voltages(LiveVoltages::new(header, sorter, streams, feed, passed)?)
            }
        })
    }
}

/// Observation before its first read.
struct Opened {
    content: Content,
    /// Samples from that of the header to the first one, by their numbers.
    passed: u64,
    /// Sorter of voltages.
    sorter: Option<Sorter>,
    /// Streams of each source of voltages.
    streams: Vec<Vec<Range<usize>>>,
    blocks: Blocks,
    /// Place in a stream of packets.
    going: Option<Going>,
}

/// Waits for a stream's header and its first samples, or for the latest samples of a stream that goes on.
fn first_samples(
    capture: &mut Capture,
    path: &Path,
    going: Option<Going>,
    goes_on: &mut GoesOn,
) -> Result<Opened> {
    let mut stream = going;
    while stream.is_some()
        && let Some(event) = capture.next_now()
    {
        match event {
            Event::Chunk(chunk) => capture.recycle(chunk),
            Event::End { .. } => stream = None,
            Event::Begin(begun) => {
                stream = Some(Going::at_start(begun));
                break;
            }
            Event::Failed(error) => return Err(error),
            Event::Gap(_) | Event::Overrun(_) => {}
        }
    }
    loop {
        let event = wait(capture, path, goes_on)?;
        match (event, stream.take()) {
            (Event::Begin(begun), _) => stream = Some(Going::at_start(begun)),
            (Event::Failed(error), _) => return Err(error),
            (Event::Chunk(chunk), Some(going)) => return Ok(opened(going, chunk)),
            (Event::Chunk(chunk), None) => capture.recycle(chunk),
            // A stream of which nothing came.
            (Event::End { .. }, _) => {}
            (Event::Gap(_) | Event::Overrun(_), going) => stream = going,
        }
    }
}

impl Going {
    /// Returns the place at the start of a stream.
    fn at_start(begun: Box<Begun>) -> Self {
        Self { counter: begun.first(), begun, position: 0 }
    }
}

/// Makes an observation of a stream and its first chunk.
fn opened(going: Going, chunk: Chunk) -> Opened {
    let begun = &*going.begun;
    let shape = begun.shape();
    let mut blocks = Blocks::new(begun.times(), shape.sources * shape.block_bytes);
    let units = chunk.first.wrapping_sub(going.counter);
    let units = shape.period.map_or(units, |period| units % period);
    let passed = going.position + units / shape.step * begun.times() as u64;
    let content = starting(begun.content().clone(), passed);
    blocks.most_lost = (MOST_LOST_S / content.tsamp_s()) as u64;
    (blocks.step, blocks.sources, blocks.has_end) = (shape.step, shape.sources, begun.has_end());
    blocks.joined = match begun.content() {
        Content::Voltages(_) => Joined::All,
        // Their bytes follow each other as in one longer block.
        Content::Spectra(_) if shape.sources == 1 && !begun.has_end() => Joined::Whole,
        Content::Spectra(_) => Joined::None,
    };
    (blocks.expected, blocks.chunk) = (chunk.first, Some(chunk));
    let order = match begun.frames() {
        Some(frames) => Some(Order::Frames(frames.clone())),
        None => begun.layout().map(|layout| Order::Bytes(layout.clone())),
    };
    let streams = begun.streams().to_vec();
    let sorter = sorter(&content, order, &streams);
    let going = Some(Going { counter: blocks.expected, position: passed, ..going });
    Opened { content, passed, sorter, streams, blocks, going }
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

/// Makes the sorter of voltages.
fn sorter(
    content: &Content,
    order: Option<Order>,
    streams: &[Vec<Range<usize>>],
) -> Option<Sorter> {
    let Content::Voltages(header) = content else { return None };
    order.map(|order| Sorter::new(order, header.encoding, streams))
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
    let sorter = sorter(&content, order, &[]);
    let (streams, going) = (Vec::new(), None);
    Ok(Opened { content, passed: 0, sorter, streams, blocks, going })
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
