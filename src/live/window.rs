//! Moving window of chunks: packets in any order go to their place by their counter, and chunks leave it in order of time.
//!
//! A chunk has `blocks` times x sources; `chunks` of them are in flight. A chunk leaves when it is whole, or when a packet
//! arrives for a time beyond the window. Blocks without all of their bytes are then filled with zeros and listed.
//!
//! The first packet begins a **stream**: it and all later times belong to it. Packets of earlier times are late. A packet
//! beyond the window by less than its length moves it. Packets farther ahead, behind it, or between the steps of the counter
//! are counted and left out, unless their counters advance by [`Options::confirm`] blocks without a packet in the window among
//! them: then the sender has restarted (or has been silent for long), and the window moves to the place of the last of
//! them. If that is at most [`Options::jump`] blocks ahead the stream goes on; otherwise another one begins, whose chunks
//! carry its number. A single source that falls back thus loses its own packets only.

use std::collections::VecDeque;
use std::ops::AddAssign;

use crate::error::{Error, Result};
use crate::live::packet::{Format, Part, Reason, Rejection, Shape};
use crate::view::check_length;

/// Sizes of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Times (blocks of each source) per chunk.
    pub blocks: usize,
    /// Chunks in flight. Packets may be delayed by `(chunks - 1) * blocks` blocks.
    pub chunks: usize,
    /// Blocks by which a stream may jump ahead.
    pub jump: u64,
    /// Blocks by which counters outside the window must advance until the window moves there; more than packets are delayed
    /// by, or delayed packets would pass for a restart.
    pub confirm: u64,
}

impl Options {
    /// Makes the sizes of a window of `chunks` chunks of `blocks` blocks: it follows a jump of 16 windows, and a restart
    /// after the length of one.
    pub fn new(blocks: usize, chunks: usize) -> Self {
        let window = (blocks as u64).saturating_mul(chunks as u64);
        Self { blocks, chunks, jump: window.saturating_mul(16), confirm: window }
    }

    fn check(&self, shape: &Shape) -> Result<()> {
        if self.blocks == 0 || self.blocks > 1 << 24 {
            return Err(Error::parameter("blocks", self.blocks, "it must be 1 to 2^24"));
        }
        if !(2..=64).contains(&self.chunks) {
            return Err(Error::parameter("chunks", self.chunks, "it must be 2 to 64"));
        }
        if self.confirm == 0 {
            return Err(Error::parameter("confirm", self.confirm, "it must be 1 or more"));
        }
        let block = shape.sources as u128 * shape.block_bytes as u128;
        if self.blocks as u128 * block > 1 << 40 {
            let rule =
                format!("a chunk of blocks of {block} bytes (all sources) must have at most 1 TiB");
            return Err(Error::parameter("blocks", self.blocks, rule));
        }
        let window = (2 * self.blocks * self.chunks) as u128;
        let far = window.max(self.jump.into()).max(self.confirm.into());
        let half = u128::from(shape.period.unwrap_or(1 << 63) / 2);
        if far.saturating_mul(shape.step.into()) >= half {
            let rule =
                "window, `jump` and `confirm` must be shorter than half of the counter's period";
            return Err(Error::parameter("jump", self.jump, rule));
        }
        Ok(())
    }
}

/// Consecutive blocks of a source that are lost: zeros in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The source.
    pub source: usize,
    /// Counter of the first block, continued over wraps.
    pub first: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// Samples of all sources over a stretch of time: axes time (block), source, bytes of the block.
#[derive(Clone, Debug)]
pub struct Chunk {
    bytes: Box<[u8]>,
    /// Per cell (block, source): granules that are there.
    filled: Vec<u32>,
    /// Per cell: a bit for each granule, unless the block came as a whole.
    granules: Vec<u64>,
    /// Cells with all granules.
    whole: usize,
    sources: usize,
    /// Granules of a block.
    each: u32,
    /// Number of the stream, from 0 on.
    pub stream: u64,
    /// Counter of the first block, continued over wraps from the first packet of the stream on.
    pub first: u64,
    /// Blocks of time, less than a whole chunk's at the end of a stream.
    pub blocks: usize,
    lost: Vec<Lost>,
}

impl Chunk {
    /// Makes a chunk of a caller's buffer of `options.blocks * shape.sources * shape.block_bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Shape`] for another length.
    pub fn new(shape: &Shape, options: &Options, bytes: Box<[u8]>) -> Result<Self> {
        shape.check()?;
        options.check(shape)?;
        let cells = options.blocks * shape.sources;
        check_length("chunk (bytes)", cells * shape.block_bytes, bytes.len())?;
        Ok(Self {
            bytes,
            filled: vec![0; cells],
            granules: vec![0; cells * shape.granules().div_ceil(64)],
            whole: 0,
            sources: shape.sources,
            each: shape.granules() as u32,
            stream: 0,
            first: 0,
            blocks: options.blocks,
            lost: Vec::with_capacity(shape.sources * options.blocks.div_ceil(2)),
        })
    }

    /// Makes a chunk of zeros.
    fn empty(shape: &Shape, options: &Options) -> Result<Self> {
        let bytes = options.blocks * shape.sources * shape.block_bytes;
        Self::new(shape, options, vec![0; bytes].into_boxed_slice())
    }

    /// Returns the samples: axes block, source, byte. Lost blocks are zeros. Past the end of a stream bytes are undefined.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the lost blocks, by source and then by time.
    pub fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// Returns whether all bytes of a block of a source came.
    ///
    /// # Panics
    /// If there is no such block or source.
    pub fn is_present(&self, block: usize, source: usize) -> bool {
        assert!(block < self.blocks && source < self.sources, "block {block}, source {source}");
        self.filled[block * self.sources + source] == self.each
    }

    fn clear(&mut self, stream: u64, first: u64) {
        self.filled.fill(0);
        self.granules.fill(0);
        self.lost.clear();
        (self.whole, self.stream, self.first) = (0, stream, first);
    }
}

/// Output of a window, in order of time.
#[derive(Debug)]
pub enum Ready {
    /// A chunk with samples.
    Chunk(Chunk),
    /// A stretch of whole chunks of which no packet came.
    Gap(Stretch),
    /// A stretch of whole chunks that was dropped since no buffer was free.
    Overrun(Stretch),
}

/// Stretch of time of all sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Number of the stream.
    pub stream: u64,
    /// Counter of the first block, continued over wraps.
    pub first: u64,
    /// Blocks of time.
    pub blocks: u64,
}

/// Counters of one source. Each packet is counted once, in the first seven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets placed.
    pub received: u64,
    /// Packets behind the window, or of times before the first packet of the stream.
    pub late: u64,
    /// Packets too far ahead of the window.
    pub ahead: u64,
    /// Packets whose samples were there already.
    pub duplicate: u64,
    /// Packets of a wrong length, or whose samples overlap others.
    pub wrong_length: u64,
    /// Packets that violate the format, are marked invalid, or lie between the steps of the counter.
    pub invalid: u64,
    /// Packets dropped since no buffer was free.
    pub overrun: u64,
    /// Blocks that left the window without some or all of their bytes, without those of an overrun.
    pub missing: u64,
    /// Blocks among the missing of which some bytes came.
    pub incomplete: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.late += other.late;
        self.ahead += other.ahead;
        self.duplicate += other.duplicate;
        self.wrong_length += other.wrong_length;
        self.invalid += other.invalid;
        self.overrun += other.overrun;
        self.missing += other.missing;
        self.incomplete += other.incomplete;
    }
}

/// Chunks between the window and its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Chunks that have left the window and have not come back.
    pub held: usize,
    /// Chunks beside those in flight; if all are held, the next chunks are overruns, until half of them are free. 0 before the first
    /// stream.
    pub capacity: usize,
}

/// Counters of packets of no known source, and of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets of unknown sources.
    pub wrong_source: u64,
    /// Packets of a wrong length before their source could be read.
    pub wrong_length: u64,
    /// Packets that violate the format before their source could be read.
    pub invalid: u64,
    /// Parts of heaps whose items have not arrived.
    pub unplaced: u64,
    /// Packets without samples: descriptors, controls.
    pub without_samples: u64,
    /// Streams begun.
    pub streams: u64,
    /// Jumps ahead within a stream, beyond the window.
    pub jumps: u64,
    /// Blocks of time dropped since no buffer was free.
    pub overrun_blocks: u64,
    /// Blocks of time of gaps and overruns that are not listed, since the list was full.
    pub unlisted_blocks: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.wrong_source += other.wrong_source;
        self.wrong_length += other.wrong_length;
        self.invalid += other.invalid;
        self.unplaced += other.unplaced;
        self.without_samples += other.without_samples;
        self.streams += other.streams;
        self.jumps += other.jumps;
        self.overrun_blocks += other.overrun_blocks;
        self.unlisted_blocks += other.unlisted_blocks;
    }
}

/// One chunk of the window.
#[derive(Debug)]
enum Slot {
    /// No packet came yet.
    Empty,
    Filled(Chunk),
    /// A packet came, and no buffer was free.
    Overrun,
}

/// Position of the window in its stream.
#[derive(Clone, Copy, Debug)]
struct Position {
    /// Counter of the window's first block, as sent.
    counter: u64,
    /// The same, continued over wraps.
    first: u64,
    /// Blocks from the window's first block to the end of what came.
    end: u64,
    /// Blocks before the window's first that left in whole chunks.
    whole: u64,
}

/// Advance of counters outside the window.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    last: u64,
    advanced: u64,
    /// Packets near it, less those elsewhere outside the window.
    votes: u32,
}

/// Place of a counter in the window.
enum Place {
    /// In the window, or beyond it by less than its length.
    Inside(u64),
    /// Out of it by this number of blocks from its first.
    Outside(i64),
    /// Between the steps.
    Between,
}

/// Moving window.
#[derive(Debug)]
pub struct Window {
    shape: Shape,
    options: Options,
    slots: VecDeque<Slot>,
    /// Number of chunks that exist.
    buffers: usize,
    free: Vec<Chunk>,
    /// Whether samples are dropped until half of the chunks are free.
    is_behind: bool,
    ready: VecDeque<Ready>,
    position: Option<Position>,
    candidate: Option<Candidate>,
    counts: Vec<Counts>,
    totals: Totals,
}

impl Window {
    /// Makes a window over the chunks given: at least one more than are in flight, and as many more as the caller holds
    /// while packets arrive.
    ///
    /// # Errors
    /// [`Error::Parameter`] for impossible sizes or too few chunks; [`Error::Shape`] for chunks of other sizes.
    pub fn new(shape: Shape, options: Options, chunks: Vec<Chunk>) -> Result<Self> {
        shape.check()?;
        options.check(&shape)?;
        if chunks.len() <= options.chunks {
            let rule = format!("there must be more than the {} chunks in flight", options.chunks);
            return Err(Error::parameter("buffers", chunks.len(), rule));
        }
        let mut window = Self {
            shape,
            options,
            slots: (0..options.chunks).map(|_| Slot::Empty).collect(),
            ready: VecDeque::with_capacity(2 * chunks.len() + 16),
            buffers: chunks.len(),
            free: Vec::with_capacity(chunks.len()),
            is_behind: false,
            position: None,
            candidate: None,
            counts: vec![Counts::default(); shape.sources],
            totals: Totals::default(),
        };
        for chunk in chunks {
            window.recycle(chunk)?;
        }
        Ok(window)
    }

    /// Makes a window with `buffers` chunks of its own.
    ///
    /// # Errors
    /// Those of [`Window::new`].
    pub fn with_buffers(shape: Shape, options: Options, buffers: usize) -> Result<Self> {
        shape.check()?;
        options.check(&shape)?;
        let chunk = |_| Chunk::empty(&shape, &options);
        Self::new(shape, options, (0..buffers).map(chunk).collect::<Result<_>>()?)
    }

    /// Adds a chunk.
    ///
    /// # Errors
    /// Those of [`Chunk::new`].
    pub(crate) fn grow(&mut self) -> Result<()> {
        self.free.push(Chunk::empty(&self.shape, &self.options)?);
        self.buffers += 1;
        self.free.reserve(self.buffers - self.free.len());
        self.ready.reserve((2 * self.buffers + 16).saturating_sub(self.ready.len()));
        Ok(())
    }

    /// Writes to each page of the free chunks, so that the system places them on the node of the calling thread.
    pub(crate) fn touch(&mut self) {
        for chunk in &mut self.free {
            // The compiler may not leave out a write of an unknown value.
            chunk.bytes.iter_mut().step_by(4096).for_each(|byte| *byte = std::hint::black_box(0));
        }
    }

    /// Returns the counters of each source.
    pub fn counts(&self) -> &[Counts] {
        &self.counts
    }

    /// Returns the counters that belong to no source.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns how many chunks wait for the caller or are used by it, and the most that may.
    pub fn fill(&self) -> Fill {
        let held = self.buffers - self.free.len() - self.flying();
        Fill { held, capacity: self.buffers - self.options.chunks }
    }

    /// Returns the chunks in flight that have a buffer.
    fn flying(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Filled(_))).count()
    }

    /// Returns whether a stream has begun and not ended.
    pub fn is_open(&self) -> bool {
        self.position.is_some()
    }

    /// Takes a packet in. It allocates nothing.
    pub fn receive(&mut self, format: &mut impl Format, packet: &[u8]) {
        match format.part(packet) {
            Ok(Some(part)) => self.place(&part),
            Ok(None) => self.pass(),
            Err(rejection) => self.reject(rejection),
        }
    }

    /// Counts a packet without samples.
    pub fn pass(&mut self) {
        self.totals.without_samples += 1;
    }

    /// Counts a packet that its format rejected.
    pub fn reject(&mut self, Rejection { reason, source }: Rejection) {
        let counts = source.and_then(|source| self.counts.get_mut(source));
        let totals = &mut self.totals;
        match (reason, counts) {
            (Reason::WrongLength, Some(counts)) => counts.wrong_length += 1,
            (Reason::WrongLength, None) => totals.wrong_length += 1,
            (Reason::Invalid, Some(counts)) => counts.invalid += 1,
            (Reason::Invalid, None) => totals.invalid += 1,
            (Reason::WrongSource, _) => totals.wrong_source += 1,
            (Reason::Unplaced, _) => totals.unplaced += 1,
        }
    }

    /// Places the samples of a packet.
    pub fn place(&mut self, part: &Part<'_>) {
        let Some(counts) = self.counts.get_mut(part.source) else {
            self.totals.wrong_source += 1;
            return;
        };
        if self.shape.period.is_some_and(|period| part.counter >= period) {
            counts.invalid += 1;
            return;
        }
        if !fits(&self.shape, part) {
            counts.wrong_length += 1;
            return;
        }
        let position = match self.position {
            Some(position) => position,
            None => self.begin(part.counter),
        };
        match self.locate(&position, part.counter) {
            Place::Inside(block) => {
                self.candidate = None;
                self.put(block, part);
            }
            Place::Outside(block) if !self.confirms(part.counter) => {
                let counts = &mut self.counts[part.source];
                match block {
                    0.. => counts.ahead += 1,
                    _ if block.unsigned_abs() <= position.whole => counts.duplicate += 1,
                    _ => counts.late += 1,
                }
            }
            Place::Between if !self.confirms(part.counter) => {
                self.counts[part.source].invalid += 1;
            }
            Place::Outside(block) if block >= 0 && block as u64 <= self.options.jump => {
                self.totals.jumps += 1;
                self.put(block as u64, part);
            }
            Place::Outside(_) | Place::Between => {
                self.finish();
                self.begin(part.counter);
                self.put(0, part);
            }
        }
    }

    /// Ends the stream: everything in the window leaves it, up to the last block of which something came. The next
    /// packet begins another stream.
    pub fn finish(&mut self) {
        while self.position.is_some_and(|position| position.end > 0) {
            self.advance();
        }
        (self.position, self.candidate) = (None, None);
    }

    /// Returns the next chunk or stretch that has left the window.
    pub fn take(&mut self) -> Option<Ready> {
        self.ready.pop_front()
    }

    /// Gives a chunk back for use.
    ///
    /// # Errors
    /// [`Error::Shape`] for a chunk of other sizes; [`Error::Parameter`] if the window has all of its chunks.
    pub fn recycle(&mut self, chunk: Chunk) -> Result<()> {
        // A chunk of an earlier window of the same sizes may come when this one has all of its own.
        if self.free.len() + self.flying() == self.buffers {
            return Err(Error::parameter(
                "buffers",
                self.buffers,
                "the window has all of its chunks",
            ));
        }
        let cells = self.options.blocks * self.shape.sources;
        check_length("chunk (bytes)", cells * self.shape.block_bytes, chunk.bytes.len())?;
        check_length("chunk (sources)", self.shape.sources, chunk.sources)?;
        check_length("chunk (cells)", cells, chunk.filled.len())?;
        let words = cells * self.shape.granules().div_ceil(64);
        check_length("chunk (words of granules)", words, chunk.granules.len())?;
        self.free.push(chunk);
        Ok(())
    }

    fn begin(&mut self, counter: u64) -> Position {
        let position = Position { counter, first: counter, end: 0, whole: 0 };
        self.totals.streams += 1;
        self.is_behind = false;
        (self.position, self.candidate) = (Some(position), None);
        position
    }

    fn locate(&self, position: &Position, counter: u64) -> Place {
        let units = self.shape.distance(position.counter, counter);
        // Checked when the window was made: a step is at most 2^62.
        let step = self.shape.step as i64;
        if units % step != 0 {
            return Place::Between;
        }
        let reach = (2 * self.options.blocks * self.options.chunks) as i64;
        match units / step {
            block if (0..reach).contains(&block) => Place::Inside(block as u64),
            block => Place::Outside(block),
        }
    }

    /// Adds a counter outside the window to those before; returns whether they have advanced far enough to move there.
    fn confirms(&mut self, counter: u64) -> bool {
        let step = self.shape.step;
        let near = (self.options.blocks * self.options.chunks) as u64;
        let start = Candidate { last: counter, advanced: 0, votes: 1 };
        let next = match self.candidate {
            None => start,
            Some(before) => {
                let units = self.shape.distance(before.last, counter);
                let is_near = units.unsigned_abs().is_multiple_of(step)
                    && units.unsigned_abs() / step <= near;
                let is_ahead = is_near && units > 0;
                match before.votes {
                    _ if is_near => Candidate {
                        last: if is_ahead { counter } else { before.last },
                        advanced: before.advanced + u64::from(is_ahead),
                        votes: before.votes.saturating_add(1),
                    },
                    // Strays replace the candidate if they are the majority.
                    0 | 1 => start,
                    votes => Candidate { votes: votes - 1, ..before },
                }
            }
        };
        self.candidate = Some(next);
        next.advanced >= self.options.confirm && next.last == counter
    }

    /// Places samples at a block at or after the window's first; moves the window if it is beyond.
    fn put(&mut self, mut block: u64, part: &Part<'_>) {
        self.candidate = None;
        let span = self.options.blocks as u64;
        if let Some(position) = &mut self.position {
            position.end = position.end.max(block + 1);
        }
        while block >= span * self.options.chunks as u64 {
            self.advance();
            block -= span;
        }
        let Some(position) = self.position else { return };
        let (slot, block) = ((block / span) as usize, (block % span) as usize);
        if matches!(self.slots[slot], Slot::Empty) {
            self.slots[slot] = match self.buffer() {
                None => Slot::Overrun,
                Some(mut chunk) => {
                    let units = (slot as u64 * span).wrapping_mul(self.shape.step);
                    let stream = self.totals.streams.wrapping_sub(1);
                    chunk.clear(stream, position.first.wrapping_add(units));
                    Slot::Filled(chunk)
                }
            };
        }
        let counts = &mut self.counts[part.source];
        let Slot::Filled(chunk) = &mut self.slots[slot] else {
            counts.overrun += 1;
            return;
        };
        match chunk.put(&self.shape, block, part) {
            Put::Placed => counts.received += 1,
            Put::Duplicate => counts.duplicate += 1,
            Put::Overlap => counts.wrong_length += 1,
        }
        while let Some(Slot::Filled(chunk)) = self.slots.front()
            && chunk.whole == chunk.filled.len()
        {
            self.advance();
        }
    }

    /// Returns a free chunk; `None` once all are held, until at most half are, so that few long times are lost and not many short ones.
    fn buffer(&mut self) -> Option<Chunk> {
        if self.is_behind {
            let Fill { held, capacity } = self.fill();
            self.is_behind = 2 * held > capacity;
        }
        let chunk = if self.is_behind { None } else { self.free.pop() };
        self.is_behind |= chunk.is_none();
        chunk
    }

    /// Lets the first chunk leave, and moves the window by one chunk.
    fn advance(&mut self) {
        let Some(position) = &mut self.position else { return };
        let span = self.options.blocks as u64;
        let blocks = span.min(position.end);
        let stretch =
            Stretch { stream: self.totals.streams.wrapping_sub(1), first: position.first, blocks };
        position.end = position.end.saturating_sub(span);
        position.counter = self.shape.advanced(position.counter, span * self.shape.step);
        position.first = position.first.wrapping_add(span.wrapping_mul(self.shape.step));
        let mut whole = 0;
        let slot = self.slots.pop_front().unwrap_or(Slot::Empty);
        self.slots.push_back(Slot::Empty);
        match slot {
            Slot::Filled(mut chunk) => {
                whole = if chunk.whole == chunk.filled.len() { position.whole + span } else { 0 };
                chunk.blocks = blocks as usize;
                chunk.close(&self.shape, &mut self.counts);
                self.ready.push_back(Ready::Chunk(chunk));
            }
            Slot::Empty => {
                self.counts.iter_mut().for_each(|counts| counts.missing += blocks);
                self.list(Ready::Gap(stretch), blocks);
            }
            Slot::Overrun => {
                self.totals.overrun_blocks += blocks;
                self.list(Ready::Overrun(stretch), blocks);
            }
        }
        if let Some(position) = &mut self.position {
            position.whole = whole;
        }
    }

    /// Lists a stretch, or extends the one before it. The list of what the caller has not taken never grows.
    fn list(&mut self, next: Ready, blocks: u64) {
        let step = self.shape.step;
        // A place is kept for each chunk.
        let has_room = self.ready.len() + self.buffers < self.ready.capacity();
        match (self.ready.back_mut(), &next) {
            (Some(Ready::Gap(before)), Ready::Gap(stretch))
            | (Some(Ready::Overrun(before)), Ready::Overrun(stretch))
                if before.stream == stretch.stream
                    && before.first.wrapping_add(before.blocks.wrapping_mul(step))
                        == stretch.first =>
            {
                before.blocks += blocks;
            }
            _ if has_room => self.ready.push_back(next),
            _ => self.totals.unlisted_blocks += blocks,
        }
    }
}

/// Returns whether a payload lies in its block and covers whole granules.
fn fits(shape: &Shape, part: &Part<'_>) -> bool {
    let Some(end) = part.offset.checked_add(part.payload.len()) else { return false };
    let is_whole = |at: usize| at.is_multiple_of(shape.granule_bytes) || at == shape.block_bytes;
    part.offset < end && end <= shape.block_bytes && is_whole(part.offset) && is_whole(end)
}

/// Outcome of samples at their place.
enum Put {
    Placed,
    Duplicate,
    Overlap,
}

impl Chunk {
    /// Copies the samples of a part that [`fits`].
    fn put(&mut self, shape: &Shape, block: usize, part: &Part<'_>) -> Put {
        let cell = block * shape.sources + part.source;
        if self.filled[cell] == self.each {
            return Put::Duplicate;
        }
        if part.payload.len() == shape.block_bytes && self.filled[cell] == 0 {
            // A block that comes as a whole needs no presence of its granules.
            self.bytes[cell * shape.block_bytes..][..shape.block_bytes]
                .copy_from_slice(part.payload);
            self.filled[cell] = self.each;
            self.whole += 1;
            return Put::Placed;
        }
        let (granules, words) = (shape.granules(), shape.granules().div_ceil(64));
        let first = part.offset / shape.granule_bytes;
        let end = (part.offset + part.payload.len()).div_ceil(shape.granule_bytes);
        let bits = &mut self.granules[cell * words..][..words];
        let mask = |word: usize| {
            let (low, high) = (first.max(64 * word), end.min(64 * (word + 1)));
            (u64::MAX >> (64 - (high - low))) << (low % 64)
        };
        let touched = first / 64..end.div_ceil(64);
        let there: u32 = touched.clone().map(|word| (bits[word] & mask(word)).count_ones()).sum();
        if there as usize == end - first {
            return Put::Duplicate;
        }
        if there > 0 {
            return Put::Overlap;
        }
        touched.for_each(|word| bits[word] |= mask(word));
        let bytes = &mut self.bytes[cell * shape.block_bytes + part.offset..];
        bytes[..part.payload.len()].copy_from_slice(part.payload);
        self.filled[cell] += (end - first) as u32;
        self.whole += usize::from(self.filled[cell] as usize == granules);
        Put::Placed
    }

    /// Fills lost blocks with zeros, lists and counts them.
    fn close(&mut self, shape: &Shape, counts: &mut [Counts]) {
        let granules = shape.granules() as u32;
        if self.whole == self.filled.len() {
            return;
        }
        for (source, counts) in counts.iter_mut().enumerate() {
            let mut run: Option<Lost> = None;
            for block in 0..self.blocks {
                let cell = block * shape.sources + source;
                if self.filled[cell] == granules {
                    self.lost.extend(run.take());
                    continue;
                }
                self.bytes[cell * shape.block_bytes..][..shape.block_bytes].fill(shape.zero_byte);
                counts.missing += 1;
                counts.incomplete += u64::from(self.filled[cell] > 0);
                let first = self.first.wrapping_add((block as u64).wrapping_mul(shape.step));
                run.get_or_insert(Lost { source, first, blocks: 0 }).blocks += 1;
            }
            self.lost.extend(run);
        }
    }
}
