//! Ring of the latest voltages: chunks of memory that the reader of a stream fills, and a keeper holds until they are needed again.
//!
//! Invariant: filling a chunk allocates nothing and waits for nothing: if the keeper has given no chunk, samples are not kept, and
//! are counted.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

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
    /// Whether the system has locked its pages.
    is_locked: bool,
}

impl Chunk {
    /// Makes a chunk and writes to all of its memory.
    fn new(sizes: &Sizes) -> Self {
        let stride = sizes.encoding.bytes(sizes.times);
        let mut bytes = vec![0; sizes.streams * stride];
        // The allocator's zeros are pages without memory until they are written.
        bytes.fill(sizes.encoding.zero_byte() ^ 1);
        let mut flags = vec![Flag { streams: 0..1, start: 1, times: 1 }; FLAGS];
        flags.clear();
        let is_locked = lock_memory(&bytes);
        Self { bytes, stride, first: 0, times: 0, flags, is_locked }
    }

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

    /// Returns the seconds that the ring holds.
    pub(super) fn seconds(&self, tsamp_s: f64) -> f64 {
        ((self.chunks - SPARE) * self.times) as f64 * tsamp_s
    }

    /// Returns the bytes of all chunks; `None` if they exceed the address space.
    pub(super) fn bytes(&self) -> Option<usize> {
        let chunk = self.streams.checked_mul(self.encoding.bytes(self.times))?;
        chunk.checked_mul(self.chunks)
    }
}

/// Size of a ring, whose memory is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RingSize {
    /// Bytes of memory.
    pub bytes: usize,
    /// Seconds that the ring holds while no dump needs its memory.
    pub seconds: f64,
    /// Whether the system has locked all of its pages in memory.
    pub is_locked: bool,
    /// Seconds that making its memory took; 0 if all of it was there.
    pub made_s: f64,
}

/// Memory of rings, which goes from one ring to the next of the same sizes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pool: Arc<Mutex<Pool>>,
}

/// Chunks that no ring uses; a dump may still hold some.
#[derive(Debug, Default)]
struct Pool {
    sizes: Option<Sizes>,
    chunks: Vec<Arc<Chunk>>,
}

impl Memory {
    /// Makes the memory of a ring for `ring_s` seconds of the voltages of a header: written to, and locked if the system permits.
    /// [`super::Tap::begin`] takes it for a ring of this size.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`] when memory does not suffice.
    pub fn prepare(
        &self,
        header: &VoltageHeader,
        ring_s: f64,
        threads: &Threads,
    ) -> Result<RingSize> {
        let (sizes, begin) = (Sizes::new(header, ring_s), Instant::now());
        let known = self.take(&sizes);
        check_memory("the latest voltages", sizes.bytes())?;
        let mut made: Vec<Option<Arc<Chunk>>> = vec![None; sizes.chunks - known.len()];
        threads.for_each(&mut made, 1, |_, made| {
            made.iter_mut().for_each(|one| *one = Some(Arc::new(Chunk::new(&sizes))));
        });
        let chunks: Vec<Arc<Chunk>> = made.into_iter().flatten().chain(known).collect();
        let size = RingSize {
            bytes: sizes.bytes().unwrap_or(usize::MAX),
            seconds: sizes.seconds(header.tsamp_s),
            is_locked: chunks.iter().all(|chunk| chunk.is_locked),
            made_s: begin.elapsed().as_secs_f64(),
        };
        chunks.into_iter().for_each(|chunk| self.put(&sizes, chunk));
        Ok(size)
    }

    /// Returns whether all chunks of a ring for `ring_s` seconds of the header's voltages are stored. Frees chunks of other sizes.
    pub fn has(&self, header: &VoltageHeader, ring_s: f64) -> bool {
        let sizes = Sizes::new(header, ring_s);
        let mut pool = self.lock();
        if pool.sizes != Some(sizes) {
            *pool = Pool::default();
        }
        pool.chunks.len() == sizes.chunks
    }

    /// Takes all chunks, if they have these sizes and nobody holds them.
    fn take(&self, sizes: &Sizes) -> Vec<Arc<Chunk>> {
        let Pool { sizes: own, mut chunks } = std::mem::take(&mut *self.lock());
        chunks.retain(|chunk| Arc::strong_count(chunk) == 1);
        chunks.truncate(sizes.chunks);
        if own == Some(*sizes) { chunks } else { Vec::new() }
    }

    /// Keeps a chunk for the next ring.
    pub(super) fn put(&self, sizes: &Sizes, chunk: Arc<Chunk>) {
        let mut pool = self.lock();
        if pool.sizes != Some(*sizes) {
            *pool = Pool { sizes: Some(*sizes), chunks: Vec::with_capacity(sizes.chunks) };
        }
        pool.chunks.push(chunk);
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends of the ring that the keeper holds.
pub(super) struct Keeping {
    pub(super) sizes: Sizes,
    /// Chunks to be made.
    left: usize,
    /// Whether the pages of all chunks so far are locked.
    pub(super) is_locked: bool,
    pub(super) full: Receiver<Arc<Chunk>>,
    free: SyncSender<Arc<Chunk>>,
    pub(super) memory: Memory,
    pub(super) counters: Arc<Counters>,
}

/// End of the ring that the reader of the stream holds.
#[derive(Debug)]
pub(super) struct Feeder {
    sizes: Sizes,
    full: SyncSender<Arc<Chunk>>,
    free: Receiver<Arc<Chunk>>,
    memory: Memory,
    counters: Arc<Counters>,
    threads: Threads,
    chunk: Option<Arc<Chunk>>,
    /// Chunks that nobody takes any more.
    rest: Vec<Arc<Chunk>>,
}

/// Source of voltages whose latest samples a ring holds, once there is one.
pub(super) struct Tapped {
    source: Box<dyn VoltageSource>,
    begins: Receiver<Feeder>,
    feeder: Option<Feeder>,
    /// Samples so far.
    time: u64,
}

/// Makes a ring of the chunks that the memory has; if they are too few, the spare ones are made, and the keeper makes the others
/// ([`Keeping::make`]) while the first samples come.
///
/// # Errors
/// [`crate::Error::Unavailable`] when memory does not suffice.
pub(super) fn ring(sizes: Sizes, threads: Threads, memory: Memory) -> Result<(Feeder, Keeping)> {
    let known = memory.take(&sizes);
    check_memory("the latest voltages", sizes.bytes())?;
    let (full, filled) = sync_channel(sizes.chunks);
    let (back, free) = sync_channel(sizes.chunks);
    let counters = Arc::new(Counters::default());
    let feeder = Feeder {
        sizes,
        full,
        free,
        memory: memory.clone(),
        counters: Arc::clone(&counters),
        threads,
        chunk: None,
        rest: Vec::with_capacity(sizes.chunks),
    };
    let (count, left) = (known.len(), sizes.chunks - known.len());
    let is_locked = known.iter().all(|chunk| chunk.is_locked);
    let mut keeping =
        Keeping { sizes, left, is_locked, full: filled, free: back, memory, counters };
    known.into_iter().for_each(|chunk| keeping.give(chunk));
    (count..SPARE).for_each(|_| keeping.make());
    Ok((feeder, keeping))
}

impl Keeping {
    /// Returns whether chunks are to be made.
    pub(super) fn is_growing(&self) -> bool {
        self.left > 0
    }

    /// Makes a chunk and gives it to the reader of the stream.
    pub(super) fn make(&mut self) {
        if self.left > 0 {
            self.left -= 1;
            let chunk = Chunk::new(&self.sizes);
            self.is_locked &= chunk.is_locked;
            self.give(Arc::new(chunk));
        }
    }

    /// Gives a chunk to the reader of the stream, or to the next ring if there is no reader any more.
    pub(super) fn give(&self, chunk: Arc<Chunk>) {
        self.counters.free.fetch_add(1, Ordering::Relaxed);
        if let Err(TrySendError::Full(chunk) | TrySendError::Disconnected(chunk)) =
            self.free.try_send(chunk)
        {
            self.memory.put(&self.sizes, chunk);
        }
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
        if let Some(chunk) = self.chunk.take()
            && let Err(TrySendError::Full(chunk) | TrySendError::Disconnected(chunk)) =
                self.full.try_send(chunk)
        {
            // The queue has space for all chunks; without a keeper nothing is kept.
            self.rest.push(chunk);
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        let rest = self.rest.drain(..).chain(self.chunk.take()).chain(self.free.try_iter());
        rest.for_each(|chunk| self.memory.put(&self.sizes, chunk));
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
