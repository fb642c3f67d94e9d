//! Capture thread: packets of sockets to chunks in order of time, for streams that carry their header and for streams with a
//! [`Description`].
//!
//! The thread waits for a header, makes the window for it, and receives until the stream ends: by a stop heap, by another
//! header, or because the sender began to count anew. Then it waits for the next header. A described stream begins with its
//! first packet, and ends when the sender counts anew or is idle; one of VDIF frames is described by the first of them, anew after
//! each idle time. The thread allocates when a stream begins, and, if the stream carries its header, for a short time after its first
//! packets. It does not allocate to process packets, and never waits for its consumer. If the consumer is slow, the window runs out of free chunks: it drops
//! and counts whole chunks until half of them are free, and [`Event::Overrun`] reports their blocks.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver as Queue, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::io::voltages::VoltageOptions;
use crate::live::clock::{Clock, now};
use crate::live::cores::Cores;
use crate::live::description::{Begun, Description, IDLE, Packets};
use crate::live::discovery::Discovery;
use crate::live::heaps::Heaps;
use crate::live::packet::Format;
use crate::live::socket::{BATCH, MOST_RECEIVERS, Options as SocketOptions, Receiver, wait};
use crate::live::spead::{Control, Packet};
use crate::live::stream::{END_ID, Stream, header_of};
use crate::live::window::{
    Chunk, Counts, Fill, Options as WindowOptions, Ready, Stretch, Totals, Window,
};

/// Longest wait for packets before other work is looked at.
const STEP: Duration = Duration::from_millis(20);

/// Time without packets after a stop heap, within which delayed packets still count.
const SETTLING: Duration = Duration::from_millis(100);

/// Longest time of a chunk, in seconds, which delays the samples in it if a packet is lost.
const CHUNK_S: f64 = 0.05;

/// Most bytes of a chunk. The few chunks in turn stay in the cache, and a chunk that is used for the first time costs few page faults.
const CHUNK_BYTES: usize = 512 << 10;

/// Chunks in flight in the window, unless [`CHUNK_BYTES`] makes chunks short.
const FLYING: usize = 8;

/// Most chunks in flight, and most bytes of a window of short chunks.
const MOST_FLYING: usize = 64;
const WINDOW_BYTES: usize = 32 << 20;

/// Time for which a loop makes chunks, while a socket holds the packets that come.
const GROWING: Duration = Duration::from_micros(200);

/// Length in seconds of the buffer before the consumer, about the consumer's start-up time; its least and most bytes, its bytes when a
/// stream begins, and its least and most chunks.
const WAITING_S: f64 = 1.0;
const WAITING_BYTES: usize = 96 << 20;
const MOST_WAITING_BYTES: usize = 1 << 30;
const FIRST_BYTES: usize = 8 << 20;
const LEAST_WAITING: usize = 16;
const MOST_WAITING: usize = 2048;

/// Output of a capture.
#[derive(Debug)]
pub enum Event {
    /// A stream begins.
    Begin(Box<Begun>),
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
    /// Messages that the kernel dropped: packets, or several that it had joined.
    pub dropped: u64,
    /// Packets that came before the first header, or after a stream's end.
    pub without_header: u64,
    /// Headers that were invalid, with the error of the last.
    pub invalid_headers: u64,
    /// Error of the last invalid header.
    pub header_error: Option<String>,
    /// Time of the packets against the system's clock, of a stream with a clock.
    pub clock: Option<ClockDifference>,
    /// Chunks that wait for the consumer or are used by it.
    pub fill: Fill,
}

/// Time of the packets less that of the system's clock as they arrive, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockDifference {
    /// That of the last packets.
    pub last_ns: i64,
    /// The one farthest from 0 since the capture began.
    pub worst_ns: i64,
}

impl Statistics {
    /// Adds the counters of another capture, whose sources follow.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.sources.extend(other.sources);
        self.totals += other.totals;
        self.dropped += other.dropped;
        self.without_header += other.without_header;
        self.invalid_headers += other.invalid_headers;
        self.header_error = self.header_error.or(other.header_error);
        let worst = |clock: &ClockDifference| clock.worst_ns.unsigned_abs();
        self.clock = self.clock.into_iter().chain(other.clock).max_by_key(worst);
        self
    }

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
    waiting: Arc<Waiting>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    advice: Option<String>,
    port: u16,
}

/// Number of chunks that the consumer holds or that wait for it in the queue, and its limit.
#[derive(Debug, Default)]
struct Waiting {
    held: AtomicUsize,
    capacity: AtomicUsize,
}

impl Waiting {
    /// Counts the chunk of an event, before the consumer can give it back.
    fn count(&self, event: &Event) {
        self.held.fetch_add(usize::from(matches!(event, Event::Chunk(_))), Ordering::Relaxed);
    }

    /// Takes back [`Waiting::count`] for an event that was not sent.
    fn discount(&self, event: &Event) {
        self.held.fetch_sub(usize::from(matches!(event, Event::Chunk(_))), Ordering::Relaxed);
    }
}

impl Capture {
    /// Opens a socket and starts the thread for streams that carry their header. `path` names the stream in errors, `options`
    /// complete its headers.
    ///
    /// # Errors
    /// Those of [`Receiver::new`]; [`Error::Io`] if no thread can be started.
    pub fn start(socket: &SocketOptions, path: &Path, options: &VoltageOptions) -> Result<Self> {
        let headers =
            Headers::Carried { options: options.clone(), text: Vec::new(), invalid: Vec::new() };
        Self::spawn(std::slice::from_ref(socket), path, headers)
    }

    /// Opens sockets and starts the thread for a stream with a description, whose packets come to any of them.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no socket or too many, or a window that is impossible; those of [`Receiver::new`];
    /// [`Error::Io`] if no thread can be started.
    pub fn start_described(
        sockets: &[SocketOptions],
        path: &Path,
        description: &Description,
    ) -> Result<Self> {
        Self::spawn(sockets, path, Headers::Known(Box::new(description.clone())))
    }

    /// Opens a socket and starts the thread for VDIF frames, behind a sequence number or not. `options` complete what the first
    /// frames say.
    ///
    /// # Errors
    /// Those of [`Receiver::new`]; [`Error::Io`] if no thread can be started.
    pub fn start_vdif(
        socket: &SocketOptions,
        path: &Path,
        numbered: bool,
        options: &VoltageOptions,
    ) -> Result<Self> {
        let discovery = Box::new(Discovery::new(numbered, options));
        Self::spawn(std::slice::from_ref(socket), path, Headers::Sought(discovery))
    }

    /// Starts the thread. It opens the sockets and makes the window of a described stream itself, so that the memory of both lies on
    /// the NUMA node of its cores.
    fn spawn(sockets: &[SocketOptions], path: &Path, headers: Headers) -> Result<Self> {
        if !(1..=MOST_RECEIVERS).contains(&sockets.len()) {
            let rule = format!("there must be 1 to {MOST_RECEIVERS}");
            return Err(Error::parameter("sockets", sockets.len(), rule));
        }
        let sockets = sockets.to_vec();
        let (sender, events) = sync_channel(MOST_WAITING);
        let (back, returned) = sync_channel(MOST_FLYING + MOST_WAITING);
        let statistics = Arc::new(Mutex::new(Statistics::default()));
        let waiting = Arc::new(Waiting::default());
        let stop = Arc::new(AtomicBool::new(false));
        let mut capturing = Capturing {
            receivers: Vec::with_capacity(sockets.len()),
            path: path.to_path_buf(),
            headers,
            sender,
            returned,
            outbox: VecDeque::with_capacity(2 * MOST_WAITING),
            statistics: Arc::clone(&statistics),
            waiting: Arc::clone(&waiting),
            before: Statistics::default(),
            stop: Arc::clone(&stop),
            current: None,
            next: None,
        };
        let (opened, told) = sync_channel(1);
        let builder = std::thread::Builder::new().name("capture".to_owned());
        let thread = builder.spawn(move || {
            let result = capturing.open(&sockets);
            let is_open = result.is_ok();
            if opened.send(result).is_ok() && is_open {
                capturing.run();
            }
        });
        let thread = thread.map_err(|error| Error::io(path, error))?;
        // A thread that has ended without a word has panicked.
        let Ok(result) = told.recv() else {
            return match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => Err(Error::stopped(path)),
            };
        };
        let (Opened { advice, port }, thread) = (result?, Some(thread));
        Ok(Self { events, back, statistics, waiting, stop, thread, advice, port })
    }

    /// Returns the next event; `None` if none came within the limit, or after the thread has ended.
    pub fn next(&self, limit: Duration) -> Option<Event> {
        self.events.recv_timeout(limit).ok()
    }

    /// Returns the next event if it is there.
    pub fn next_now(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Gives a chunk back.
    pub fn recycle(&self, chunk: Chunk) {
        self.waiting.held.fetch_sub(1, Ordering::Relaxed);
        // A chunk of an earlier stream finds no place, and its memory is freed.
        let _ = self.back.try_send(chunk);
    }

    /// Returns the number of chunks that the consumer holds or that wait for it, and its limit. Unlike [`Statistics::fill`], which is
    /// up to 0.1 s old, it changes with each chunk.
    pub(super) fn fill(&self) -> Fill {
        let Waiting { held, capacity } = &*self.waiting;
        Fill { held: held.load(Ordering::Relaxed), capacity: capacity.load(Ordering::Relaxed) }
    }

    /// Returns the counters, as of at most 0.1 s ago.
    pub fn statistics(&self) -> Statistics {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the shared counters, for a watcher that runs concurrently with the consumer.
    pub fn shared_statistics(&self) -> Arc<Mutex<Statistics>> {
        Arc::clone(&self.statistics)
    }

    /// Returns, if the kernel's buffer is smaller than asked for, the sizes and the line that mends it.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// Returns the port of the first socket.
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

/// Facts about sockets that are open.
struct Opened {
    advice: Option<String>,
    port: u16,
}

/// Origin of a stream's header.
enum Headers {
    /// Heaps of the stream.
    Carried {
        options: VoltageOptions,
        /// Text of the current header.
        text: Vec<u8>,
        /// Text of the last invalid header.
        invalid: Vec<u8>,
    },
    /// A description.
    Known(Box<Description>),
    /// The first frames.
    Sought(Box<Discovery>),
}

/// Stream that is being received.
struct Current {
    begun: Begun,
    packets: Packets,
    window: Window,
    /// Number of the window's stream, once a chunk has left it.
    number: Option<u64>,
    /// Whether the consumer has received the stream's begin event and not its end event.
    is_open: bool,
    /// Whether the heap that ends the stream has come, and the number of the sample after the last one.
    is_ending: bool,
    end: Option<u64>,
    /// Counter of the last packet with samples since the last look at the clock.
    counter: Option<u64>,
    /// Whether a packet with samples has come since the last look at the time.
    is_heard: bool,
    /// Chunks for the consumer that are still to be made.
    lacking: usize,
}

/// State of the thread.
struct Capturing {
    receivers: Vec<Receiver>,
    path: PathBuf,
    headers: Headers,
    sender: SyncSender<Event>,
    returned: Queue<Chunk>,
    /// Events that found no space in the queue.
    outbox: VecDeque<Event>,
    statistics: Arc<Mutex<Statistics>>,
    waiting: Arc<Waiting>,
    /// Counters of the streams that have ended, and of packets outside streams.
    before: Statistics,
    stop: Arc<AtomicBool>,
    /// The stream; a described one is kept between its observations.
    current: Option<Current>,
    /// Discovery of the next stream of frames.
    next: Option<Box<Discovery>>,
}

impl Capturing {
    /// Moves the thread to its cores, opens the sockets and makes the window of a described stream.
    fn open(&mut self, sockets: &[SocketOptions]) -> Result<Opened> {
        if let Some(known) = self.headers.known() {
            let cores = known.cores();
            cores.map_or(Ok(()), Cores::pin)?;
            let mut current = Current::described(known)?;
            if cores.is_some() {
                current.window.touch();
            }
            self.current = Some(current);
        }
        for socket in sockets {
            self.receivers.push(Receiver::new(socket)?);
        }
        let advice = self.receivers.iter().find_map(Receiver::advice);
        Ok(Opened { advice, port: self.receivers[0].port()? })
    }

    fn run(&mut self) {
        let (mut published, mut last) = (Instant::now(), Instant::now());
        let mut heard = last;
        while !self.stop.load(Ordering::Relaxed) {
            let count = match self.receive() {
                Ok(count) => count,
                Err(error) => {
                    self.outbox.push_back(Event::Failed(error));
                    break;
                }
            };
            let time = Instant::now();
            if count > 0 {
                last = time;
            }
            if let Some(current) = &mut self.current {
                if std::mem::take(&mut current.is_heard) {
                    heard = time;
                }
                let is_over = match &self.headers {
                    Headers::Carried { .. } => current.is_ending && time - last >= SETTLING,
                    Headers::Known(known) => time - heard >= known.idle() && current.has_samples(),
                    Headers::Sought(_) => false,
                };
                if is_over {
                    self.end();
                }
            }
            if let Headers::Sought(discovery) = &self.headers
                && !discovery.is_empty()
                && time - last >= IDLE
            {
                self.describe();
            }
            if let Err(error) = self.hand_over() {
                self.outbox.push_back(Event::Failed(error));
                break;
            }
            if time - published >= Duration::from_millis(50) {
                published = time;
                self.before.dropped = self.receivers.iter().map(Receiver::drops).sum();
                self.compare_clocks();
                self.publish();
            }
        }
        self.end();
        self.before.dropped = self.receivers.iter().map(Receiver::drops).sum();
        self.publish();
        // The consumer takes what is left, or drops the queue.
        while let Some(event) = self.outbox.pop_front() {
            self.waiting.count(&event);
            if self.sender.send(event).is_err() {
                return;
            }
        }
    }

    /// Waits for packets and takes them in; returns how many came.
    fn receive(&mut self) -> Result<usize> {
        if let [receiver] = self.receivers.as_mut_slice() {
            let count = receiver.receive(STEP)?;
            self.take_all(0, count)?;
            return Ok(count);
        }
        wait(&self.receivers, STEP)?;
        let mut sum = 0;
        for which in 0..self.receivers.len() {
            let count = self.receivers[which].receive_now()?;
            self.take_all(which, count)?;
            sum += count;
        }
        Ok(sum)
    }

    /// Takes in the packets of the last batch of a receiver, which may fill many chunks where the kernel joins packets.
    fn take_all(&mut self, which: usize, count: usize) -> Result<()> {
        for index in 0..count {
            if index > 0 && index % BATCH == 0 {
                self.hand_over()?;
            }
            self.take(which, index);
        }
        Ok(())
    }

    /// Passes full chunks to the consumer, takes back those that it has used, and makes those that are lacking.
    fn hand_over(&mut self) -> Result<()> {
        while let Ok(chunk) = self.returned.try_recv() {
            if let Some(current) = &mut self.current {
                let _ = current.window.recycle(chunk);
            }
        }
        self.pass_on();
        let Some(current) = &mut self.current else { return Ok(()) };
        current.grow(GROWING)?;
        let capacity = current.window.fill().capacity + current.lacking;
        self.waiting.capacity.store(capacity, Ordering::Relaxed);
        Ok(())
    }

    /// Takes in a packet of the last batch of a receiver.
    fn take(&mut self, which: usize, index: usize) {
        let packet = self.receivers[which].packet(index);
        if let Headers::Sought(discovery) = &mut self.headers {
            if discovery.add(packet) {
                self.describe();
            }
            return;
        }
        if let Some(current) = &mut self.current
            && current.take(packet)
        {
            return;
        }
        let Headers::Carried { text, .. } = &self.headers else { return };
        if let Some(found) = header_of(packet) {
            if self.current.is_some() && text == found {
                return;
            }
            let found = found.to_vec();
            self.begin(found);
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
    fn begin(&mut self, found: Vec<u8>) {
        let Headers::Carried { options, text, invalid } = &mut self.headers else { return };
        if found == *invalid {
            return;
        }
        let stream = Stream::parse(&found, &self.path, options);
        match stream.and_then(|stream| Current::carried(&stream)) {
            Ok(current) => {
                *text = found;
                self.end();
                self.outbox.push_back(Event::Begin(Box::new(current.begun.clone())));
                self.current = Some(Current { is_open: true, ..current });
            }
            Err(error) => {
                self.before.invalid_headers += 1;
                self.before.header_error = Some(error.to_string());
                *invalid = found;
            }
        }
    }

    /// Begins the stream that the first frames describe, with the packets held back, or seeks another one.
    fn describe(&mut self) {
        let Headers::Sought(discovery) = &mut self.headers else { return };
        let next = Box::new(discovery.again());
        let found = discovery
            .description()
            .and_then(|description| Ok((Current::described(&description)?, description)));
        match found {
            Ok((mut current, description)) => {
                self.before.without_header += discovery.dropped();
                discovery.held().for_each(|packet| {
                    current.take(packet);
                });
                self.current = Some(current);
                self.headers = Headers::Known(Box::new(description));
                self.next = Some(next);
            }
            Err(error) => {
                self.before.without_header += discovery.dropped() + discovery.held().count() as u64;
                self.before.invalid_headers += 1;
                self.before.header_error = Some(error.to_string());
                *discovery = next;
            }
        }
    }

    /// Ends the current stream.
    fn end(&mut self) {
        let Some(current) = &mut self.current else { return };
        current.window.finish();
        let known = self.headers.known();
        current.drain(&mut self.outbox, usize::MAX, known);
        let end = std::mem::take(&mut current.is_open).then_some(Event::End { end: current.end });
        current.number = None;
        let next = self.next.take();
        if known.is_none() || next.is_some() {
            add(&mut self.before, &current.window);
            self.current = None;
        }
        if let Some(next) = next {
            self.headers = Headers::Sought(next);
        }
        // The counters at the end of a stream are those of all of its packets.
        self.before.dropped = self.receivers.iter().map(Receiver::drops).sum();
        let mut statistics = self.statistics.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut statistics, &self.before, self.current.as_ref());
        self.outbox.extend(end);
    }

    /// Passes events to the consumer, as many as the queue takes.
    fn pass_on(&mut self) {
        loop {
            let Some(event) = self.outbox.pop_front() else {
                let Some(current) = &mut self.current else { return };
                current.drain(&mut self.outbox, 1, self.headers.known());
                if self.outbox.is_empty() {
                    return;
                }
                continue;
            };
            self.waiting.count(&event);
            match self.sender.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Full(event)) => {
                    self.waiting.discount(&event);
                    return self.outbox.push_front(event);
                }
                Err(TrySendError::Disconnected(_)) => {
                    self.stop.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    /// Compares the time of the last packet with the system's clock.
    fn compare_clocks(&mut self) {
        let clock = self.headers.known().and_then(Description::clock).copied();
        let counter = self.current.as_mut().and_then(|current| current.counter.take());
        let (Some(clock), Some(counter)) = (clock, counter) else { return };
        let ahead_s = |clock: Clock| clock.ahead_s(counter, &now());
        // A damaged counter has no date.
        let Ok(ahead_s) = ahead_s(clock) else { return };
        let last_ns = (ahead_s * 1e9) as i64;
        let worst_ns = self.before.clock.map_or(0, |before| before.worst_ns);
        let is_worse = last_ns.unsigned_abs() > worst_ns.unsigned_abs();
        let worst_ns = if is_worse { last_ns } else { worst_ns };
        self.before.clock = Some(ClockDifference { last_ns, worst_ns });
    }

    /// Publishes the counters unless somebody reads them at this moment.
    fn publish(&mut self) {
        if let Ok(mut statistics) = self.statistics.try_lock() {
            write(&mut statistics, &self.before, self.current.as_ref());
        }
    }
}

impl Headers {
    /// Returns the description of a stream without a header.
    fn known(&self) -> Option<&Description> {
        match self {
            Self::Carried { .. } | Self::Sought(_) => None,
            Self::Known(known) => Some(known),
        }
    }
}

impl Current {
    /// Makes the window of a stream that carries its header.
    fn carried(stream: &Stream) -> Result<Self> {
        let heaps = Heaps::new(stream.item_map())?;
        let begun = Begun::of(stream, heaps.shape());
        Self::new(begun, Packets::Heaps(heaps))
    }

    /// Makes the window of a described stream.
    fn described(description: &Description) -> Result<Self> {
        let mut current = Self::new(description.begun().clone(), description.packets().clone())?;
        current.grow(Duration::MAX)?;
        Ok(current)
    }

    /// Makes the window with few chunks for the consumer: samples follow a header at once, and a socket holds about a millisecond of a
    /// fast stream. The other chunks are made between packets.
    fn new(begun: Begun, packets: Packets) -> Result<Self> {
        let shape = packets.shape();
        let block_s = begun.content().tsamp_s() * begun.times() as f64;
        let block_bytes = shape.block_bytes * shape.sources;
        let by_time = (CHUNK_S / block_s).clamp(1.0, 1e6) as usize;
        let by_bytes = (CHUNK_BYTES / block_bytes).max(1);
        // Short chunks make a window as long as that of chunks of 50 ms, if its bytes allow it.
        let chunks = by_time.div_ceil(by_bytes).saturating_mul(FLYING);
        let chunks = chunks.min(WINDOW_BYTES / (by_bytes * block_bytes));
        // A short counter allows a short window only.
        let half = shape.period.map_or(1 << 62, |period| (period - 1) / 2) / shape.step;
        let chunks = chunks.min((half.saturating_sub(1) / 2).min(1 << 16) as usize);
        let chunks = chunks.clamp(FLYING, MOST_FLYING);
        let by_period = (half.saturating_sub(1) / (2 * chunks as u64)).max(1) as usize;
        let options = WindowOptions::new(by_time.min(by_bytes).min(by_period), chunks);
        let options = WindowOptions { jump: options.jump.min(half.saturating_sub(1)), ..options };
        let waiting = (WAITING_S / block_s * block_bytes as f64) as usize;
        let waiting =
            waiting.clamp(WAITING_BYTES, MOST_WAITING_BYTES) / (options.blocks * block_bytes);
        let waiting = waiting.clamp(LEAST_WAITING, MOST_WAITING);
        // The first batch may hold as many bytes.
        let first = FIRST_BYTES / (options.blocks * block_bytes);
        let first = first.clamp(LEAST_WAITING, waiting);
        let window = Window::with_buffers(shape, options, chunks + first)?;
        Ok(Self {
            begun,
            packets,
            window,
            number: None,
            is_open: false,
            is_ending: false,
            end: None,
            counter: None,
            is_heard: false,
            lacking: waiting - first,
        })
    }

    /// Makes the chunks for the consumer that are lacking, as many as can be made in about this time.
    fn grow(&mut self, limit: Duration) -> Result<()> {
        let begin = Instant::now();
        while self.lacking > 0 && begin.elapsed() < limit {
            self.window.grow()?;
            self.lacking -= 1;
        }
        Ok(())
    }

    /// Takes in a packet; returns false for one without samples, which may be of another kind.
    fn take(&mut self, packet: &[u8]) -> bool {
        match self.packets.part(packet) {
            Ok(Some(part)) => {
                (self.counter, self.is_heard) = (Some(part.counter), true);
                self.window.place(&part);
            }
            Ok(None) => {
                self.window.pass();
                return false;
            }
            Err(rejection) => self.window.reject(rejection),
        }
        true
    }

    /// Returns whether samples have come since the last end.
    fn has_samples(&self) -> bool {
        self.is_open || self.window.is_open()
    }

    /// Moves at most `most` outputs of the window to `outbox`; a stream that began to count anew is another one.
    fn drain(&mut self, outbox: &mut VecDeque<Event>, most: usize, known: Option<&Description>) {
        for _ in 0..most {
            let Some(ready) = self.window.take() else { return };
            let (number, first, event) = match ready {
                Ready::Chunk(chunk) => (chunk.stream, chunk.first, Event::Chunk(chunk)),
                Ready::Gap(stretch) => (stretch.stream, stretch.first, Event::Gap(stretch)),
                Ready::Overrun(stretch) => (stretch.stream, stretch.first, Event::Overrun(stretch)),
            };
            if self.is_open && self.number.is_some_and(|before| before != number) {
                outbox.push_back(Event::End { end: None });
                self.is_open = false;
            }
            if !self.is_open {
                let begun = match known {
                    Some(known) => known.begin(first, &now()),
                    None => self.begun.clone(),
                };
                outbox.push_back(Event::Begin(Box::new(begun)));
            }
            (self.number, self.is_open) = (Some(number), true);
            outbox.push_back(event);
        }
    }
}

/// Writes the counters of all streams, the current one included.
fn write(statistics: &mut Statistics, before: &Statistics, current: Option<&Current>) {
    // A derived clone would make the list of sources anew.
    let mut sources = std::mem::take(&mut statistics.sources);
    sources.clone_from(&before.sources);
    let mut header_error = statistics.header_error.take();
    header_error.clone_from(&before.header_error);
    let Statistics { totals, dropped, without_header, invalid_headers, clock, .. } = *before;
    *statistics = Statistics {
        sources,
        totals,
        dropped,
        without_header,
        invalid_headers,
        header_error,
        clock,
        fill: Fill::default(),
    };
    if let Some(current) = current {
        add(statistics, &current.window);
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
    statistics.fill = window.fill();
}
