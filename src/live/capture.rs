//! Capture thread: packets of a socket to chunks in order of time, for streams that carry their header.
//!
//! The thread waits for a header, makes the window for it, and receives until the stream ends: by a stop heap, by another
//! header, or because the sender began to count anew. Then it waits for the next header. It allocates when a stream begins
//! and not for packets, and never waits for its consumer. If the consumer is slow, the window runs out of free chunks: it drops
//! and counts whole chunks, and [`Event::Overrun`] reports their blocks.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Queue, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::io::voltages::VoltageOptions;
use crate::live::heaps::Heaps;
use crate::live::packet::Format;
use crate::live::socket::{Options as SocketOptions, Receiver};
use crate::live::spead::{Control, Packet};
use crate::live::stream::{END_ID, Stream, header_of};
use crate::live::window::{
    Chunk, Counts, Options as WindowOptions, Ready, Stretch, Totals, Window,
};

/// Longest wait for packets before other work is looked at.
const STEP: Duration = Duration::from_millis(20);

/// Time without packets after a stop heap, within which delayed packets still count.
const SETTLING: Duration = Duration::from_millis(100);

/// Longest time of a chunk, in seconds, which delays the samples in it if a packet is lost.
const CHUNK_S: f64 = 0.05;

/// Most bytes of a chunk.
const CHUNK_BYTES: usize = 4 << 20;

/// Chunks in flight in the window.
const FLYING: usize = 8;

/// Bytes of samples that may wait for the consumer, and the least and the most chunks of them.
const WAITING_BYTES: usize = 64 << 20;
const LEAST_WAITING: usize = 16;
const MOST_WAITING: usize = 1024;

/// Output of a capture.
#[derive(Debug)]
pub enum Event {
    /// A stream begins.
    Begin(Box<Stream>),
    /// Samples.
    Chunk(Chunk),
    /// No packet of these blocks came.
    Gap(Stretch),
    /// These blocks were dropped, since the consumer was too slow.
    Overrun(Stretch),
    /// The stream ends.
    End {
        /// Number of the sample after the last one, if the sender has sent it.
        end: Option<u64>,
    },
    /// Receiving has failed.
    Failed(Error),
}

/// Counters of a capture since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Counters of each source, of all streams.
    pub sources: Vec<Counts>,
    /// Counters that belong to no source.
    pub totals: Totals,
    /// Packets that the kernel dropped.
    pub dropped: u64,
    /// Packets that came before the first header, or after a stream's end.
    pub without_header: u64,
    /// Headers that were invalid, with the error of the last.
    pub invalid_headers: u64,
    /// Error of the last invalid header.
    pub header_error: Option<String>,
}

impl Statistics {
    /// Sums a counter over the sources.
    pub fn sum(&self, counter: impl Fn(&Counts) -> u64) -> u64 {
        self.sources.iter().map(counter).sum()
    }
}

/// Capture thread and the queues to it.
#[derive(Debug)]
pub struct Capture {
    events: Queue<Event>,
    back: SyncSender<Chunk>,
    statistics: Arc<Mutex<Statistics>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    advice: Option<String>,
    port: u16,
}

impl Capture {
    /// Opens a socket and starts the thread. `path` names the stream in errors, `options` complete its headers.
    ///
    /// # Errors
    /// Those of [`Receiver::new`]; [`Error::Io`] if no thread can be started.
    pub fn start(socket: &SocketOptions, path: &Path, options: &VoltageOptions) -> Result<Self> {
        let receiver = Receiver::new(socket)?;
        let (advice, port) = (receiver.advice(), receiver.port()?);
        let (sender, events) = sync_channel(MOST_WAITING);
        let (back, returned) = sync_channel(FLYING + MOST_WAITING);
        let statistics = Arc::new(Mutex::new(Statistics::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let mut capturing = Capturing {
            receiver,
            path: path.to_path_buf(),
            options: options.clone(),
            sender,
            returned,
            outbox: VecDeque::with_capacity(2 * MOST_WAITING),
            statistics: Arc::clone(&statistics),
            before: Statistics::default(),
            stop: Arc::clone(&stop),
            header: Vec::new(),
            invalid: Vec::new(),
            current: None,
        };
        let builder = std::thread::Builder::new().name("capture".to_owned());
        let thread = builder.spawn(move || capturing.run());
        let thread = Some(thread.map_err(|error| Error::io(path, error))?);
        Ok(Self { events, back, statistics, stop, thread, advice, port })
    }

    /// Returns the next event; `None` if none came within the limit, or after the thread has ended.
    pub fn next(&self, limit: Duration) -> Option<Event> {
        self.events.recv_timeout(limit).ok()
    }

    /// Gives a chunk back.
    pub fn recycle(&self, chunk: Chunk) {
        // A chunk of an earlier stream finds no place, and its memory is freed.
        let _ = self.back.try_send(chunk);
    }

    /// Returns the counters, as of at most 0.1 s ago.
    pub fn statistics(&self) -> Statistics {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns, if the kernel's buffer is smaller than asked for, the sizes and the line that mends it.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// Returns the port of the socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the current stream: what is in the window comes as chunks, then [`Event::End`], and no further packets.
    pub fn finish(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.finish();
        // The thread may wait for space in the queue.
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let _ = self.events.recv_timeout(STEP);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Stream that is being received.
struct Current {
    stream: Stream,
    heaps: Heaps,
    window: Window,
    /// Number of the window's stream, once a chunk has left it.
    number: Option<u64>,
    /// Whether the heap that ends the stream has come, and the number of the sample after the last one.
    is_ending: bool,
    end: Option<u64>,
}

/// State of the thread.
struct Capturing {
    receiver: Receiver,
    path: PathBuf,
    options: VoltageOptions,
    sender: SyncSender<Event>,
    returned: Queue<Chunk>,
    /// Events that found no space in the queue.
    outbox: VecDeque<Event>,
    statistics: Arc<Mutex<Statistics>>,
    /// Counters of the streams that have ended, and of packets outside streams.
    before: Statistics,
    stop: Arc<AtomicBool>,
    /// Text of the current header.
    header: Vec<u8>,
    /// Text of the last invalid header.
    invalid: Vec<u8>,
    current: Option<Current>,
}

impl Capturing {
    fn run(&mut self) {
        let (mut published, mut last) = (Instant::now(), Instant::now());
        while !self.stop.load(Ordering::Relaxed) {
            while let Ok(chunk) = self.returned.try_recv() {
                if let Some(current) = &mut self.current {
                    let _ = current.window.recycle(chunk);
                }
            }
            let count = match self.receiver.receive(STEP) {
                Ok(count) => count,
                Err(error) => {
                    self.outbox.push_back(Event::Failed(error));
                    break;
                }
            };
            for index in 0..count {
                self.take(index);
            }
            let now = Instant::now();
            if count > 0 {
                last = now;
            } else if now - last >= SETTLING
                && self.current.as_ref().is_some_and(|current| current.is_ending)
            {
                self.end();
            }
            self.pass_on();
            if now - published >= Duration::from_millis(50) {
                (published, self.before.dropped) = (now, self.receiver.drops());
                self.publish();
            }
        }
        self.end();
        self.before.dropped = self.receiver.drops();
        self.publish();
        // The consumer takes what is left, or drops the queue.
        while let Some(event) = self.outbox.pop_front() {
            if self.sender.send(event).is_err() {
                return;
            }
        }
    }

    /// Takes in a packet of the last batch.
    fn take(&mut self, index: usize) {
        let packet = self.receiver.packet(index);
        if let Some(Current { heaps, window, .. }) = &mut self.current {
            match heaps.part(packet) {
                Ok(Some(part)) => return window.place(&part),
                Ok(None) => window.pass(),
                Err(rejection) => return window.reject(rejection),
            }
        }
        if let Some(text) = header_of(packet) {
            if self.current.is_some() && self.header == text {
                return;
            }
            let text = text.to_vec();
            self.begin(text);
        } else if let Ok(packet) = Packet::parse(packet)
            && packet.control() == Some(Control::Stop)
        {
            if let Some(current) = &mut self.current {
                (current.is_ending, current.end) = (true, packet.value(END_ID));
            }
        } else if self.current.is_none() {
            self.before.without_header += 1;
        }
    }

    /// Begins the stream of a header, after the end of the one before.
    fn begin(&mut self, text: Vec<u8>) {
        if text == self.invalid {
            return;
        }
        let stream = Stream::parse(&text, &self.path, &self.options);
        match stream.and_then(Current::new) {
            Ok(current) => {
                self.end();
                self.header = text;
                self.outbox.push_back(Event::Begin(Box::new(current.stream.clone())));
                self.current = Some(current);
            }
            Err(error) => {
                self.before.invalid_headers += 1;
                self.before.header_error = Some(error.to_string());
                self.invalid = text;
            }
        }
    }

    /// Ends the current stream.
    fn end(&mut self) {
        let Some(mut current) = self.current.take() else { return };
        current.window.finish();
        current.drain(&mut self.outbox, usize::MAX);
        add(&mut self.before, &current.window);
        // The counters at the end of a stream are those of all of its packets.
        self.before.dropped = self.receiver.drops();
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.before);
        self.outbox.push_back(Event::End { end: current.end });
    }

    /// Passes events to the consumer, as many as the queue takes.
    fn pass_on(&mut self) {
        loop {
            let Some(event) = self.outbox.pop_front() else {
                let Some(current) = &mut self.current else { return };
                current.drain(&mut self.outbox, 1);
                if self.outbox.is_empty() {
                    return;
                }
                continue;
            };
            match self.sender.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Full(event)) => return self.outbox.push_front(event),
                Err(TrySendError::Disconnected(_)) => {
                    self.stop.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    /// Publishes the counters unless somebody reads them at this moment.
    fn publish(&mut self) {
        if let Ok(mut statistics) = self.statistics.try_lock() {
            statistics.clone_from(&self.before);
            if let Some(current) = &self.current {
                add(&mut statistics, &current.window);
            }
        }
    }
}

impl Current {
    fn new(stream: Stream) -> Result<Self> {
        let heaps = Heaps::new(stream.item_map())?;
        let shape = heaps.shape();
        let heap_s = stream.content().tsamp_s() * stream.times() as f64;
        let by_time = (CHUNK_S / heap_s).clamp(1.0, 1e6) as usize;
        let by_bytes = (CHUNK_BYTES / (shape.block_bytes * shape.sources)).max(1);
        let options = WindowOptions::new(by_time.min(by_bytes), FLYING);
        let chunk_bytes = options.blocks * shape.sources * shape.block_bytes;
        let waiting = (WAITING_BYTES / chunk_bytes).clamp(LEAST_WAITING, MOST_WAITING);
        let window = Window::with_buffers(shape, options, FLYING + waiting)?;
        Ok(Self { stream, heaps, window, number: None, is_ending: false, end: None })
    }

    /// Moves at most `most` outputs of the window to `outbox`; a stream that began to count anew is another one.
    fn drain(&mut self, outbox: &mut VecDeque<Event>, most: usize) {
        for _ in 0..most {
            let Some(ready) = self.window.take() else { return };
            let (number, event) = match ready {
                Ready::Chunk(chunk) => (chunk.stream, Event::Chunk(chunk)),
                Ready::Gap(stretch) => (stretch.stream, Event::Gap(stretch)),
                Ready::Overrun(stretch) => (stretch.stream, Event::Overrun(stretch)),
            };
            if self.number.is_some_and(|before| before != number) {
                outbox.push_back(Event::End { end: None });
                outbox.push_back(Event::Begin(Box::new(self.stream.clone())));
            }
            self.number = Some(number);
            outbox.push_back(event);
        }
    }
}

/// Adds the counters of a window.
fn add(statistics: &mut Statistics, window: &Window) {
    let Statistics { sources, totals, .. } = statistics;
    if sources.len() < window.counts().len() {
        sources.resize(window.counts().len(), Counts::default());
    }
    for (sum, counts) in sources.iter_mut().zip(window.counts()) {
        *sum += *counts;
    }
    *totals += *window.totals();
}
