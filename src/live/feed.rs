//! Samples of an observation in order, as blocks of packets or of a ring, with what was lost between them.
//!
//! Invariant: each sample is either in a block or counted as missing, in order of time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::io::Gap;
use crate::live::capture::{Capture, Event, Statistics};
use crate::live::description::Begun;
use crate::live::ring::{self, Received};
use crate::live::sorting::{Chunks, Part};
use crate::live::stream::wrapped;
use crate::live::window::{Chunk, Fill, Stretch};
use crate::trace::{self, Slowest};

/// Longest wait between two looks at a request to stop.
pub(super) const STEP: Duration = Duration::from_millis(50);

/// Function that returns false after a request to stop.
pub type GoesOn = Box<dyn FnMut() -> bool + Send>;

/// Samples of an observation that were dropped because its reader was slower than the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Behind {
    /// Stretches of dropped samples that were read past.
    pub stretches: u64,
    /// Blocks of the stream (of all sources) that end in them. A stream drops whole blocks, a reader of several streams any samples.
    pub blocks: u64,
    /// Samples in them.
    pub times: u64,
    /// The last of them.
    pub last: Option<Gap>,
    /// Stage that took longest from the last wait for samples to that stretch, if stages are timed ([`trace::sum`]).
    pub slowest: Option<Slowest>,
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

/// Progress of the current or last observation, for watchers.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Samples that were taken, lost ones included.
    pub(super) taken: AtomicU64,
    /// Whether the end of the stream has been read.
    pub(super) has_ended: AtomicBool,
}

#[derive(Debug)]
pub(super) enum Connection {
    Packets(Capture),
    Ring(Box<ring::Reader>),
}

/// Connection in use; it returns to its address when the observation is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) connection: Option<Connection>,
    pub(super) home: Arc<Mutex<Option<Connection>>>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = self.connection.take();
    }
}

/// Stream of packets of which samples were read, and which may go on.
#[derive(Debug)]
pub(super) struct Going {
    pub(super) begun: Box<Begun>,
    /// Counter of the packets of a later sample than the first, and its number since that of the header.
    pub(super) counter: u64,
    pub(super) position: u64,
}

/// Samples of an observation in order.
pub(super) struct Feed {
    pub(super) blocks: Blocks,
    lease: Lease,
    path: PathBuf,
    goes_on: GoesOn,
    /// Samples of the block in use that were taken.
    place: usize,
    /// Samples of the observation that were taken, lost ones included.
    taken: u64,
    behind: Arc<Mutex<Behind>>,
    /// The stream when the observation began; its place for the next one, if it goes on.
    going: Option<Going>,
    next_going: Arc<Mutex<Option<Going>>>,
    progress: Arc<Progress>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        let is_end = matches!(self.blocks.ahead, Some(Event::End { .. }));
        let going = self.going.take().filter(|_| !is_end && !self.blocks.has_ended);
        let passed = self.taken + self.blocks.missing - self.place as u64;
        if let Some(Connection::Packets(capture)) = &self.lease.connection {
            // A stream that goes on needs the memory of its chunks.
            let Blocks { held, chunk, ahead, .. } = &mut self.blocks;
            let ahead = ahead.take().and_then(|event| match event {
                Event::Chunk(chunk) => Some(chunk),
                _ => None,
            });
            let chunks = held.drain(..).chain(chunk.take()).chain(ahead);
            chunks.for_each(|chunk| capture.recycle(chunk));
        }
        *self.next_going.lock().unwrap_or_else(PoisonError::into_inner) = going.map(|going| {
            Going { counter: self.blocks.expected, position: going.position + passed, ..going }
        });
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Feed").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Feed {
    /// Begins an observation with the blocks of its first samples.
    pub(super) fn new(
        lease: Lease,
        blocks: Blocks,
        path: PathBuf,
        goes_on: GoesOn,
        behind: Arc<Mutex<Behind>>,
        progress: Arc<Progress>,
    ) -> Self {
        let next_going = Arc::default();
        let (place, taken, going) = (0, 0, None);
        Self { blocks, lease, path, goes_on, place, taken, behind, going, next_going, progress }
    }

    /// Keeps the place in a stream for the next observation, if the stream has not ended by then.
    pub(super) fn keep_place(
        mut self,
        going: Option<Going>,
        next_going: &Arc<Mutex<Option<Going>>>,
    ) -> Self {
        (self.going, self.next_going) = (going, Arc::clone(next_going));
        self
    }

    /// Returns the next samples, at most `most` of them, or the number of those lost.
    pub(super) fn next(&mut self, most: usize) -> Result<Next> {
        loop {
            if self.blocks.missing > 0 {
                return Ok(Next::Missing(self.blocks.missing.min(most as u64)));
            }
            if self.place < self.blocks.valid {
                let times = (self.blocks.valid - self.place).min(most);
                return Ok(Next::Samples { start: self.place, times });
            }
            if self.blocks.has_ended {
                self.progress.has_ended.store(true, Ordering::Relaxed);
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
    pub(super) fn take(&mut self, taken: Next) {
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
        self.progress.taken.store(self.taken, Ordering::Relaxed);
    }

    /// Drops the next samples, at most `most` of them, because their reader is too slow; returns how many, those that were lost before
    /// included, 0 at the end of the stream.
    ///
    /// # Errors
    /// As [`Feed::next`].
    pub(super) fn drop_next(&mut self, most: usize) -> Result<usize> {
        let next = self.next(most)?;
        let times = match next {
            Next::End => return Ok(0),
            // These are counted where they were lost.
            Next::Missing(times) => times as usize,
            Next::Samples { times, .. } => {
                let per_block = self.blocks.times as u64;
                let end = self.taken + times as u64;
                // Blocks are counted with their last sample.
                let blocks = end / per_block - self.taken / per_block;
                let overrun = Overrun { blocks, times: times as u64, slowest: trace::slowest() };
                let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
                behind.add(&overrun, self.taken);
                times
            }
        };
        self.take(next);
        self.release();
        Ok(times)
    }

    /// Returns the fill of the memory between the stream and its reader; that of a ring is unknown.
    pub(super) fn fill(&self) -> Fill {
        match &self.lease.connection {
            Some(Connection::Packets(capture)) => capture.fill(),
            _ => Fill::default(),
        }
    }

    /// Returns whether all samples before the end were taken.
    pub(super) fn has_ended(&self) -> bool {
        self.blocks.has_ended && self.blocks.missing == 0 && self.place >= self.blocks.valid
    }

    /// Returns whether samples that were not taken have arrived, or are known to be lost.
    pub(super) fn has_more(&self) -> bool {
        let Blocks { missing, valid, block, used, ref chunk, ref ahead, .. } = self.blocks;
        let has_blocks = chunk.as_ref().is_some_and(|chunk| block + used < chunk.blocks);
        let is_end = matches!(ahead, Some(Event::End { .. }));
        missing > 0 || self.place < valid || has_blocks || ahead.is_some() && !is_end
    }

    /// Returns whether the samples that were taken stay in memory until [`Feed::release`].
    pub(super) fn holds(&self) -> bool {
        self.blocks.chunk.is_some() && self.blocks.joined == Joined::All
    }

    /// Gives back the chunks whose samples were taken.
    pub(super) fn release(&mut self) {
        if let Some(Connection::Packets(capture)) = &self.lease.connection {
            self.blocks.held.drain(..).for_each(|chunk| capture.recycle(chunk));
        }
    }

    pub(super) fn statistics(&self) -> Option<Statistics> {
        match &self.lease.connection {
            Some(Connection::Packets(capture)) => Some(capture.statistics()),
            _ => None,
        }
    }
}

/// Blocks of samples of all sources, as they arrive.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Samples per block.
    pub(super) times: usize,
    /// Bytes per block of all sources.
    pub(super) block_bytes: usize,
    /// Advance of the counter per block, for packets.
    pub(super) step: u64,
    pub(super) sources: usize,
    /// Consecutive blocks of a chunk that are used as one.
    pub(super) joined: Joined,
    /// Whether the end says how many samples of the last block are data.
    pub(super) has_end: bool,
    /// Samples of the block in use; fewer than `times` in the last block.
    valid: usize,
    /// Lost samples before the block in use.
    missing: u64,
    /// Blocks among them, the last ones, that were dropped because the reader was too slow.
    overrun: Option<Overrun>,
    /// Counter of the next block that is expected, for packets.
    pub(super) expected: u64,
    /// Chunk in use, and the blocks in it: the first one in use, and how many.
    pub(super) chunk: Option<Chunk>,
    pub(super) block: usize,
    used: usize,
    /// Chunks before it whose samples the reader still needs.
    held: Vec<Chunk>,
    /// Event after the chunk.
    ahead: Option<Event>,
    /// Block from a ring.
    pub(super) buffer: Vec<u8>,
    filled: usize,
    has_ended: bool,
    /// Most samples that are lost at the end of a stream.
    pub(super) most_lost: u64,
    /// Describes an incomplete last sample, which is left out.
    pub(super) cut: Option<String>,
}

impl Blocks {
    pub(super) fn new(times: usize, block_bytes: usize) -> Self {
        Self {
            times,
            block_bytes,
            step: times as u64,
            sources: 1,
            joined: Joined::None,
            has_end: false,
            valid: 0,
            missing: 0,
            overrun: None,
            expected: 0,
            chunk: None,
            block: 0,
            used: 1,
            held: Vec::new(),
            ahead: None,
            buffer: Vec::new(),
            filled: 0,
            has_ended: false,
            most_lost: 0,
            cut: None,
        }
    }

    /// Returns the bytes of the blocks in use.
    fn bytes(&self) -> &[u8] {
        self.chunk.as_ref().map_or(&self.buffer, |chunk| {
            let (first, end) = (self.block, self.block + self.used);
            &chunk.bytes()[first * self.block_bytes..end * self.block_bytes]
        })
    }

    /// Returns whether all sources of a block in use are there.
    pub(super) fn is_whole(&self, block: usize) -> bool {
        let is_present = |chunk: &Chunk| (0..self.sources).all(|s| chunk.is_present(block, s));
        self.chunk.as_ref().is_none_or(is_present)
    }

    /// Returns a chunk that is held or in use, by its number; `None` for samples of a ring.
    fn held_chunk(&self, number: usize) -> Option<&Chunk> {
        self.held.get(number).or(self.chunk.as_ref())
    }

    /// Returns the place of samples of the blocks in use, which are for the samples `at` and later of a block of voltages.
    pub(super) fn part(&self, start: usize, times: usize, at: usize) -> Part {
        let before = if self.chunk.is_some() { self.block * self.times } else { 0 };
        Part { chunk: self.held.len(), first: before + start, times, at }
    }

    /// Copies rows of the blocks in use, from row `start` on; the sources are groups of channels.
    pub(super) fn copy_rows(&self, start: usize, rows: &mut [u8], row_bytes: usize) {
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
            match self.joined {
                Joined::All => self.held.push(chunk),
                Joined::None | Joined::Whole => capture.recycle(chunk),
            }
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
        self.used = match self.joined {
            Joined::Whole if self.is_whole(self.block) => {
                let more = (self.block + 1..blocks).take_while(|block| self.is_whole(*block));
                1 + more.count()
            }
            // The last block of a chunk may have to wait for what follows it.
            Joined::All => (blocks - usize::from(self.has_end)).saturating_sub(self.block).max(1),
            Joined::None | Joined::Whole => 1,
        };
        self.valid = self.used * self.times;
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

/// Consecutive blocks of a chunk that are used as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    None,
    /// Those without a loss.
    Whole,
    /// All of them, which stay in memory until the reader releases them.
    All,
}

impl Chunks for Blocks {
    fn bytes(&self, chunk: usize) -> &[u8] {
        self.held_chunk(chunk).map_or(&self.buffer, Chunk::bytes)
    }

    fn is_present(&self, chunk: usize, block: usize, source: usize) -> bool {
        self.held_chunk(chunk).is_none_or(|chunk| chunk.is_present(block, source))
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
pub(super) enum Next {
    /// Samples of the block in use, from its `start` on.
    Samples {
        start: usize,
        times: usize,
    },
    /// Lost samples.
    Missing(u64),
    End,
}

/// Waits for an event.
pub(super) fn wait(capture: &Capture, path: &Path, goes_on: &mut GoesOn) -> Result<Event> {
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
