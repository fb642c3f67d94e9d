//! Keeper of the ring: holds the latest chunks, and the chunks of each dump until they are written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::queue::{Dump, Dumping, Extent, Queue};
use super::request::{Asked, Options, Report, Request, State};
use super::ring::{Chunk, Keeping, RingSize, SPARE, Sizes};
use crate::io::voltages::VoltageHeader;
use crate::pipeline::voltage::{VoltageFormat, VoltageWriter};

/// Longest wait for a chunk before requests are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Most dumps in work, and most names of triggers that one lists.
const MOST: usize = 32;
const MOST_NAMES: usize = 64;

/// Thread that holds the latest chunks.
pub(super) struct Keeper {
    header: VoltageHeader,
    sizes: Sizes,
    keeping: Keeping,
    queue: Arc<Queue>,
    options: Options,
    /// Latest chunks in order of time.
    history: VecDeque<Arc<Chunk>>,
    /// Chunks that only dumps need.
    retired: Vec<Arc<Chunk>>,
    /// Sample after the last one received, and number of the last dump.
    end: u64,
    number: u64,
}

impl Keeper {
    pub(super) fn new(
        header: VoltageHeader,
        sizes: Sizes,
        keeping: Keeping,
        queue: Arc<Queue>,
        options: &Options,
    ) -> Self {
        let options = options.clone();
        let history = VecDeque::with_capacity(sizes.chunks);
        let retired = Vec::with_capacity(sizes.chunks);
        Self { header, sizes, keeping, queue, options, history, retired, end: 0, number: 0 }
    }

    /// Works until the stream has ended or its source is dropped, then closes every dump.
    pub(super) fn run(mut self, requests: &Receiver<Asked>) {
        let begin = Instant::now();
        if !self.keeping.is_growing() {
            self.is_ready(0.0);
        }
        loop {
            if self.keeping.is_growing() {
                self.keeping.make();
                if !self.keeping.is_growing() {
                    self.is_ready(begin.elapsed().as_secs_f64());
                }
            }
            let wait = if self.keeping.is_growing() { Duration::ZERO } else { LOOK };
            match self.keeping.full.recv_timeout(wait) {
                Ok(chunk) => self.take(chunk),
                Err(RecvTimeoutError::Timeout) => {
                    if self.keeping.counters.is_ended.load(Ordering::Relaxed) {
                        break;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while let Ok(asked) = requests.try_recv() {
                self.begin(asked);
            }
            self.give_back();
        }
        while let Ok(asked) = requests.try_recv() {
            self.begin(asked);
        }
        let mut dumping = self.queue.lock();
        for dump in dumping.dumps.iter_mut().filter(|dump| !dump.is_closed) {
            dump.is_closed = true;
            dump.reason.get_or_insert_with(|| "the observation ended before it".to_owned());
        }
        dumping.is_over = true;
        drop(dumping);
        self.queue.wake();
        // The writer may still hold some of them.
        let rest = self.history.drain(..).chain(self.retired.drain(..));
        let rest = rest.chain(self.keeping.full.try_iter());
        rest.for_each(|chunk| self.keeping.memory.put(&self.keeping.sizes, chunk));
    }

    /// Reports that all memory of the ring is made.
    fn is_ready(&self, made_s: f64) {
        (self.options.ready)(&RingSize {
            bytes: self.sizes.bytes().unwrap_or(usize::MAX),
            seconds: self.sizes.seconds(self.header.tsamp_s),
            is_locked: self.keeping.is_locked,
            made_s,
        });
    }

    /// Adds a chunk to the history, and to the dumps that need it.
    fn take(&mut self, chunk: Arc<Chunk>) {
        self.end = chunk.end();
        let mut dumping = self.queue.lock();
        let mut has_grown = false;
        for dump in &mut dumping.dumps {
            let before = dump.held;
            dump.hold(std::iter::once(&chunk));
            has_grown |= dump.held != before;
        }
        drop(dumping);
        if has_grown {
            self.queue.wake();
        }
        self.history.push_back(chunk);
    }

    /// Gives chunks back to the reader of the stream, so that it always finds free ones.
    fn give_back(&mut self) {
        let is_free = |chunk: &Arc<Chunk>| Arc::strong_count(chunk) == 1;
        let mut index = 0;
        while index < self.retired.len() {
            if is_free(&self.retired[index]) {
                let chunk = self.retired.swap_remove(index);
                self.keeping.give(chunk);
            } else {
                index += 1;
            }
        }
        while !self.keeping.is_growing()
            && self.keeping.counters.free.load(Ordering::Relaxed) < SPARE - 2
        {
            let is_short = self.history.len() < (self.sizes.chunks - SPARE) / 2;
            if is_short && !self.retired.is_empty() {
                self.give_up();
                break;
            }
            let Some(oldest) = self.history.pop_front() else { break };
            if is_free(&oldest) {
                self.keeping.give(oldest);
            } else {
                self.retired.push(oldest);
            }
        }
    }

    /// Lets the dump of the lowest priority, and of those the latest, end with what is written, since the ring needs the memory of its
    /// samples.
    fn give_up(&self) {
        let mut dumping = self.queue.lock();
        // Other dumps hold only what the ring holds anyway.
        let is_retired =
            |chunk: &Arc<Chunk>| self.retired.iter().any(|other| Arc::ptr_eq(chunk, other));
        let holds_memory = |dump: &&mut Dump| dump.chunks.iter().any(is_retired);
        let unfinished = dumping.dumps.iter_mut().filter(holds_memory);
        let Some(dump) = unfinished.min_by_key(|dump| (dump.priority, u64::MAX - dump.number))
        else {
            return;
        };
        dump.chunks.clear();
        dump.is_closed = true;
        dump.reason.get_or_insert_with(|| {
            "the disk was too slow: the ring needed the memory of its samples".to_owned()
        });
        drop(dumping);
        self.queue.wake();
    }

    /// Begins a dump, joins it with another, or refuses it.
    fn begin(&mut self, asked: Asked) {
        let admitted = self.admit(&asked);
        let report = admitted.unwrap_or_else(|reason| Report::refused(asked.request, reason));
        (self.options.listener)(&report);
        self.queue.wake();
    }

    fn admit(&mut self, asked: &Asked) -> Result<Report, String> {
        let request = &asked.request;
        let seconds = |samples: u64| samples as f64 * self.header.tsamp_s;
        let Some(extent) = Extent::new(&request.sweep, &self.header) else {
            return Err("its window lies before the stream began, or is no window".to_owned());
        };
        let ring = ((self.sizes.chunks - SPARE) * self.sizes.times) as u64;
        let length = extent.range.end - extent.range.start;
        if length > ring {
            let (length_s, ring_s) = (seconds(length), seconds(ring));
            return Err(format!("its window has {length_s:.3} s, the ring {ring_s:.3} s"));
        }
        let oldest = self.history.front().map_or(self.end, |chunk| chunk.first);
        if extent.range.end <= oldest {
            let late_s = seconds(oldest - extent.range.end);
            return Err(format!("it came {late_s:.3} s after the ring had passed its window"));
        }
        if extent.range.start > self.end + ring {
            let early_s = seconds(extent.range.start - self.end);
            return Err(format!("its window begins {early_s:.3} s after the latest sample"));
        }
        let mut dumping = self.queue.lock();
        if let Some(report) = self.join(&mut dumping, request, &extent, ring) {
            return Ok(report);
        }
        if dumping.dumps.len() >= MOST {
            return Err(format!("{MOST} dumps are in work"));
        }
        let bytes = self.bytes(length);
        if !self.takes(bytes) {
            return Err("the quota of the dumps is reached".to_owned());
        }
        self.number += 1;
        let mut dump = Dump {
            number: self.number,
            names: vec![request.name.clone()],
            priority: request.priority,
            sweep: request.sweep,
            windows: extent.windows,
            written: extent.range.start,
            range: extent.range,
            chunks: VecDeque::with_capacity(self.sizes.chunks),
            held: 0,
            is_closed: false,
            is_open: false,
            is_ending: false,
            bytes,
            reason: None,
            asked: asked.at,
        };
        if dump.range.start < oldest {
            dump.reason = Some("the ring begins after its window does".to_owned());
        }
        dump.hold(self.history.iter());
        let report = dump.report(State::Waiting);
        dumping.dumps.push(dump);
        Ok(report)
    }

    /// Joins a request with a dump in work whose windows overlap.
    fn join(
        &self,
        dumping: &mut Dumping,
        request: &Request,
        extent: &Extent,
        ring: u64,
    ) -> Option<Report> {
        // A header that is written first keeps its window.
        let is_final = self.options.format != VoltageFormat::Dada;
        let can_grow = |dump: &&mut Dump| {
            dump.reason.is_none() && !dump.is_ending && !(dump.is_open && is_final)
        };
        dumping.dumps.iter_mut().filter(can_grow).find_map(|dump| {
            let sweep = dump.sweep.joined(&request.sweep);
            let joined = Extent::new(&sweep, &self.header)?;
            let length = joined.range.end - joined.range.start;
            if length > ring || !dump.can_join(extent, &joined) {
                return None;
            }
            let own = dump.range.end - dump.range.start;
            let added = self.bytes(length).saturating_sub(self.bytes(own));
            if !self.takes(added) {
                return None;
            }
            dump.bytes += added;
            dump.sweep = sweep;
            if !dump.is_open {
                dump.written = joined.range.start;
            }
            (dump.windows, dump.range) = (joined.windows, joined.range);
            dump.hold_more(self.history.iter());
            dump.priority = dump.priority.max(request.priority);
            if dump.names.len() < MOST_NAMES {
                dump.names.push(request.name.clone());
            }
            let names = vec![request.name.clone()];
            Some(Report { names, ..dump.report(State::Joined) })
        })
    }

    /// Takes bytes from the quota; returns false, and takes none, if it has fewer.
    fn takes(&self, bytes: u64) -> bool {
        let Some(quota) = &self.options.quota else { return true };
        let taken = quota
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.is_ok()
    }

    /// Returns the bytes of a file with this number of samples per stream.
    fn bytes(&self, samples: u64) -> u64 {
        VoltageWriter::bytes(&self.header, samples)
    }
}
