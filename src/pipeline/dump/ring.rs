//! Ring of the latest voltages: chunks of memory that the reader of a stream fills, and a keeper holds until they are needed again.
//!
//! Invariant: filling a chunk allocates nothing and waits for nothing: if the keeper has given no chunk, samples are not kept, and
//! are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::backend::lock_memory;
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::view::check_memory;
use crate::voltage::{VoltageBlock, VoltageEncoding, Voltages};

/// Most bytes of a chunk, and its longest time in seconds.
const CHUNK_BYTES: usize = 8 << 20;
const CHUNK_S: f64 = 0.05;

/// Samples of a chunk are a multiple of this, so that every encoding has whole bytes.
pub(super) const STEP: usize = 8;

/// Chunks beside those that hold the seconds asked for: the one being filled, and free ones for the time until the keeper has
/// given others back.
pub(super) const SPARE: usize = 6;

/// Flags of a chunk, beyond which all of its samples count as lost.
const FLAGS: usize = 4096;

/// Samples of all streams of a stretch of time; rows of [`Chunk::stride`] bytes.
#[derive(Debug)]
pub(super) struct Chunk {
    bytes: Vec<u8>,
    pub(super) stride: usize,
    /// First sample, counted from the start of the stream.
    pub(super) first: u64,
    pub(super) times: usize,
    /// Lost samples, counted from the chunk's first one.
    pub(super) flags: Vec<Flag>,
}

impl Chunk {
    /// Returns the sample after the last one.
    pub(super) fn end(&self) -> u64 {
        self.first + self.times as u64
    }

    /// Returns the bytes of a stream.
    pub(super) fn row(&self, stream: usize) -> &[u8] {
        &self.bytes[stream * self.stride..][..self.stride]
    }

    fn lose(&mut self, flag: Flag, streams: usize) {
        match self.flags.last() {
            Some(last) if last.streams == (0..streams) && last.times == u64::MAX => {}
            _ if self.flags.len() < FLAGS - 1 => self.flags.push(flag),
            _ => self.flags.push(Flag { streams: 0..streams, start: 0, times: u64::MAX }),
        }
    }
}

/// Counters of the ring, which any thread may read.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Chunks that wait to be filled.
    pub(super) free: AtomicUsize,
    /// Samples per stream that were not kept, since no chunk was free.
    pub(super) missed: AtomicU64,
    /// Whether no more samples will come.
    pub(super) is_ended: AtomicBool,
    /// Whether the system refused to lock the pages of a chunk in memory.
    pub(super) is_unlocked: AtomicBool,
}

/// Sizes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) streams: usize,
    pub(super) encoding: VoltageEncoding,
    /// Samples per stream in a chunk.
    pub(super) times: usize,
    /// Number of chunks, the spare ones included.
    pub(super) chunks: usize,
}

impl Sizes {
    /// Computes the sizes of a ring for `seconds` of voltages.
    pub(super) fn new(header: &VoltageHeader, seconds: f64) -> Self {
        let bits = header.sample_bits().max(1);
        let most = (CHUNK_S / header.tsamp_s).min(8.0 * CHUNK_BYTES as f64 / bits as f64) as usize;
        let times = (most / STEP).max(1) * STEP;
        let chunks = (seconds / header.tsamp_s / times as f64).ceil().clamp(1.0, 1e9) as usize;
        let (streams, encoding) = (header.streams(), header.encoding);
        Self { streams, encoding, times, chunks: chunks + SPARE }
    }

    /// Returns the bytes of all chunks; `None` if they exceed the address space.
    pub(super) fn bytes(&self) -> Option<usize> {
        let chunk = self.streams.checked_mul(self.encoding.bytes(self.times))?;
        chunk.checked_mul(self.chunks)
    }
}

/// Ends of the ring that the keeper holds.
pub(super) struct Keeping {
    sizes: Sizes,
    /// Chunks to be made.
    left: usize,
    pub(super) full: Receiver<Arc<Chunk>>,
    pub(super) free: SyncSender<Arc<Chunk>>,
    pub(super) counters: Arc<Counters>,
}

/// End of the ring that the reader of the stream holds.
#[derive(Debug)]
pub(super) struct Feeder {
    sizes: Sizes,
    full: SyncSender<Arc<Chunk>>,
    free: Receiver<Arc<Chunk>>,
    counters: Arc<Counters>,
    threads: Threads,
    chunk: Option<Arc<Chunk>>,
}

/// Source of voltages whose latest samples a ring holds, once there is one.
pub(super) struct Tapped {
    source: Box<dyn VoltageSource>,
    begins: Receiver<Feeder>,
    feeder: Option<Feeder>,
    /// Samples so far.
    time: u64,
}

/// Makes a ring with its spare chunks; the keeper makes the others ([`Keeping::make`]), while the first samples come.
///
/// # Errors
/// [`crate::Error::Unavailable`] when memory does not suffice.
pub(super) fn ring(sizes: Sizes, threads: Threads) -> Result<(Feeder, Keeping)> {
    check_memory("the latest voltages", sizes.bytes())?;
    let (full, filled) = sync_channel(sizes.chunks);
    let (back, free) = sync_channel(sizes.chunks);
    let counters = Arc::new(Counters::default());
    let feeder =
        Feeder { sizes, full, free, counters: Arc::clone(&counters), threads, chunk: None };
    let left = sizes.chunks;
    let mut keeping = Keeping { sizes, left, full: filled, free: back, counters };
    (0..SPARE).for_each(|_| keeping.make());
    Ok((feeder, keeping))
}

impl Keeping {
    /// Returns whether chunks are to be made.
    pub(super) fn is_growing(&self) -> bool {
        self.left > 0
    }

    /// Makes a chunk, writes to all of its memory, and gives it to the reader of the stream.
    pub(super) fn make(&mut self) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let stride = self.sizes.encoding.bytes(self.sizes.times);
        let mut bytes = vec![0; self.sizes.streams * stride];
        // The allocator's zeros are pages without memory until they are written.
        bytes.fill(self.sizes.encoding.zero_byte() ^ 1);
        if !lock_memory(&bytes) {
            self.counters.is_unlocked.store(true, Ordering::Relaxed);
        }
        let flags = Vec::with_capacity(FLAGS);
        self.give(Arc::new(Chunk { bytes, stride, first: 0, times: 0, flags }));
    }

    /// Gives a chunk to the reader of the stream.
    pub(super) fn give(&self, chunk: Arc<Chunk>) {
        self.counters.free.fetch_add(1, Ordering::Relaxed);
        // The queue has space for all chunks; without a reader nothing is needed.
        let _ = self.free.try_send(chunk);
    }
}

impl Feeder {
    /// Copies samples of the stream, from sample `time` on, into the ring.
    fn add(&mut self, time: u64, voltages: Voltages<'_>, flags: &[Flag]) {
        let mut taken = 0;
        while taken < voltages.times() {
            let time = time + taken as u64;
            let filled = (time % self.sizes.times as u64) as usize;
            if filled == 0 {
                self.begin(time);
            }
            let times = (self.sizes.times - filled).min(voltages.times() - taken);
            match &mut self.chunk {
                Some(chunk) => {
                    // The keeper gives back only chunks that nobody else holds.
                    if let Some(chunk) = Arc::get_mut(chunk) {
                        let part = Part { voltages, taken, filled, times };
                        part.copy(chunk, flags, &self.sizes, &self.threads);
                    }
                }
                None => {
                    self.counters.missed.fetch_add(times as u64, Ordering::Relaxed);
                }
            }
            taken += times;
            if filled + times == self.sizes.times {
                self.send();
            }
        }
    }

    /// Takes a chunk for the next samples, if one is free.
    fn begin(&mut self, time: u64) {
        self.chunk = self.free.try_recv().ok();
        let Some(chunk) = self.chunk.as_mut().and_then(Arc::get_mut) else { return };
        self.counters.free.fetch_sub(1, Ordering::Relaxed);
        (chunk.first, chunk.times) = (time, 0);
        chunk.flags.clear();
    }

    fn send(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            // The queue has space for all chunks; without a keeper nothing is kept.
            let _ = self.full.try_send(chunk);
        }
    }
}

/// Samples `taken .. taken + times` of a block, which lie `filled` samples after a chunk's first.
struct Part<'a> {
    voltages: Voltages<'a>,
    taken: usize,
    filled: usize,
    times: usize,
}

impl Part<'_> {
    fn copy(&self, chunk: &mut Chunk, flags: &[Flag], sizes: &Sizes, threads: &Threads) {
        let bytes = |times| sizes.encoding.bytes(times);
        let (from, to) = (bytes(self.taken), bytes(self.filled));
        let length = bytes(self.times);
        let rows = (CHUNK_BYTES / 16 / length.max(1)).clamp(1, sizes.streams.max(1));
        let stride = chunk.stride;
        threads.for_each(&mut chunk.bytes, rows * stride, |index, part| {
            for (row, own) in part.chunks_exact_mut(stride).enumerate() {
                let recorded = self.voltages.row(index * rows + row);
                own[to..to + length].copy_from_slice(&recorded[from..from + length]);
            }
        });
        chunk.times = self.filled + self.times;
        let (begin, end) = (self.taken as u64, (self.taken + self.times) as u64);
        for flag in flags {
            let start = flag.start.max(begin);
            let times = flag.start.saturating_add(flag.times).min(end).saturating_sub(start);
            if times > 0 {
                let start = start - begin + self.filled as u64;
                let flag = Flag { streams: flag.streams.clone(), start, times };
                chunk.lose(flag, sizes.streams);
            }
        }
    }
}

impl Tapped {
    pub(super) fn new(source: Box<dyn VoltageSource>, begins: Receiver<Feeder>) -> Self {
        Self { source, begins, feeder: None, time: 0 }
    }
}

impl VoltageSource for Tapped {
    fn header(&self) -> &VoltageHeader {
        self.source.header()
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = self.source.read(block)?;
        if self.feeder.is_none() {
            self.feeder = self.begins.try_recv().ok();
        }
        if let Some(feeder) = &mut self.feeder {
            feeder.add(self.time, block.voltages(), block.flags());
            if times < block.capacity() {
                feeder.send();
            }
        }
        self.time += times as u64;
        Ok(times)
    }

    fn flags(&self) -> &[Flag] {
        self.source.flags()
    }

    fn is_live(&self) -> bool {
        self.source.is_live()
    }

    fn cut(&self) -> Option<&str> {
        self.source.cut()
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }
}
