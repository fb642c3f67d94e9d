//! One ring of blocks: its layout in shared memory, checked when it is attached, and the steps of a writer and of a reader.
//!
//! A ring for observations is two of these: one for headers, one for data.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::options::{Generation, Key, MAX_READERS};
use super::system::{self, Change, Segment, Semaphores};

use crate::error::{Error, Result};

/// Transfers whose start and end are remembered.
pub(super) const TRANSFERS: u64 = 8;

/// Bytes of the layout before the counts of blocks.
const BASE: usize = 528;
/// The same in libraries before 2017-07, without a device.
const BASE_BEFORE_2017: usize = 520;
/// Bytes for each block behind the base: its count and its key.
const PER_BLOCK: usize = 5;

// Byte offsets of the fields.
const CONNECT_KEY: usize = 0;
const READER_KEYS: usize = 4;
const BLOCKS: usize = 40;
const BLOCK_BYTES: usize = 48;
const WRITE_NEXT: usize = 56;
const WRITE_CURRENT: usize = 64;
const WRITE_STATE: usize = 72;
const WRITE_TRANSFER: usize = 80;
const READ_BLOCKS: usize = 88;
const READ_STATES: usize = 152;
const READ_TRANSFERS: usize = 184;
const READERS: usize = 248;
const START_BLOCKS: usize = 256;
const START_BYTES: usize = 320;
const ENDED: usize = 384;
const END_BLOCKS: usize = 392;
const END_BYTES: usize = 456;
const DEVICE: usize = 520;

/// Device that stands for host memory.
const HOST: i32 = -1;

// States of the two ends.
pub(super) const DISCONNECTED: i32 = 0;
const WRITER: i32 = 2;
pub(super) const WRITING: i32 = 3;
pub(super) const READING: i32 = 6;
const READER_STOPPED: i32 = 7;

// Numbers of the semaphores for connecting.
pub(super) const WRITE: u16 = 0;
pub(super) const READ: u16 = 1;
// Numbers of a reader's semaphores.
pub(super) const START_ACK: u16 = 0;
pub(super) const END_ACK: u16 = 1;
pub(super) const FULL: u16 = 2;
pub(super) const CLEAR: u16 = 3;
pub(super) const CONNECTED: u16 = 4;
const READER_SEMAPHORES: usize = 5;

/// Time between two looks at whether the process that is waited for still lives.
const LOOK: Duration = Duration::from_millis(200);

/// Time by which a wait ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit(Option<Instant>);

impl Limit {
    /// Makes a limit from now on; one that no clock reaches is endless.
    pub(super) fn after(limit: Duration) -> Self {
        Self(Instant::now().checked_add(limit))
    }

    fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
    }
}

/// Process at one end of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process that last attached or detached there; 0 if unknown.
    pub process: i32,
    /// Whether a process is attached.
    pub is_attached: bool,
    /// Whether that process exists.
    pub is_alive: bool,
}

/// One ring of blocks in shared memory.
#[derive(Debug)]
pub(super) struct Buffer {
    path: PathBuf,
    sync: Segment,
    base: usize,
    connect: Semaphores,
    readers: Vec<Semaphores>,
    blocks: Vec<Segment>,
    block_bytes: usize,
}

impl Buffer {
    /// Makes a ring with these blocks.
    ///
    /// # Errors
    /// [`Error::Parameter`] if one with the key exists; [`Error::Io`]. Nothing is left of a ring that could not be made.
    pub(super) fn create(
        key: Key,
        path: PathBuf,
        blocks: usize,
        block_bytes: usize,
        readers: usize,
    ) -> Result<Self> {
        let sync = Segment::create(key.0, BASE + PER_BLOCK * blocks).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                let rule = "shared memory with this key exists; destroy it or use another key";
                return Error::parameter("ring.key", key.to_string(), rule);
            }
            exhausted(&path, error)
        })?;
        let mut buffer = Self {
            connect: Semaphores::create(key.connect(), 2).map_err(|error| {
                drop(sync.remove());
                exhausted(&path, error)
            })?,
            path,
            sync,
            base: BASE,
            readers: Vec::new(),
            blocks: Vec::new(),
            block_bytes,
        };
        match buffer.fill_in(key, blocks, readers) {
            Ok(()) => Ok(buffer),
            Err(error) => {
                buffer.remove()?;
                Err(exhausted(&buffer.path, error))
            }
        }
    }

    /// Makes the semaphores and blocks of a new ring, and writes its fields.
    fn fill_in(&mut self, key: Key, blocks: usize, readers: usize) -> io::Result<()> {
        self.sync.i32(CONNECT_KEY).store(key.connect() as i32, SeqCst);
        for reader in 0..MAX_READERS {
            self.sync.i32(READER_KEYS + 4 * reader).store(key.reader(reader) as i32, SeqCst);
        }
        self.sync.u64(BLOCK_BYTES).store(self.block_bytes as u64, SeqCst);
        self.sync.u32(READERS).store(readers as u32, SeqCst);
        self.sync.i32(DEVICE).store(HOST, SeqCst);
        for transfer in 0..TRANSFERS as usize {
            self.sync.u8(ENDED + transfer).store(1, SeqCst);
        }
        for block in 0..blocks {
            self.blocks.push(Segment::create(key.block(block), self.block_bytes)?);
            let at = self.base + blocks + 4 * block;
            self.sync.copy_in(at, &(key.block(block) as i32).to_ne_bytes());
        }
        for reader in 0..readers {
            let set = Semaphores::create(key.reader(reader), READER_SEMAPHORES)?;
            for (number, value) in [(START_ACK, 8), (END_ACK, 8), (CONNECTED, 1)] {
                set.set(number, value)?;
            }
            self.readers.push(set);
        }
        // Programs that attach see no block before all exist.
        self.sync.u64(BLOCKS).store(blocks as u64, SeqCst);
        self.connect.set(READ, readers as i32)?;
        self.connect.set(WRITE, 1)
    }

    /// Attaches a ring, and checks every size in it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is none; [`Error::Format`] for sizes that do not fit each other, or blocks in device
    /// memory; [`Error::Io`].
    pub(super) fn attach(key: Key, path: PathBuf) -> Result<Self> {
        let sync = Segment::attach(key.0).map_err(|error| missing(&path, error))?;
        let sizes = Sizes::read(&sync, &path)?;
        let field = |name: &str, at: usize, why: String| Error::format(&path, name, at as u64, why);
        if sizes.base == BASE {
            let device = sync.i32(DEVICE).load(SeqCst);
            if device != HOST {
                let why = format!("found {device}, expected {HOST}: blocks in host memory");
                return Err(field("on_device_id", DEVICE, why));
            }
        }
        let semaphores = |name: &str, at: usize, key: i32, count: usize| {
            Semaphores::find(key as u32, count).map_err(|error| {
                field(name, at, format!("found {key:#x}, expected {count} semaphores: {error}"))
            })
        };
        let connect_key = sync.i32(CONNECT_KEY).load(SeqCst);
        let connect = semaphores("semkey_connect", CONNECT_KEY, connect_key, 2)?;
        let readers: Result<Vec<Semaphores>> = (0..sizes.readers)
            .map(|reader| {
                let at = READER_KEYS + 4 * reader;
                semaphores("semkey_data", at, sync.i32(at).load(SeqCst), READER_SEMAPHORES)
            })
            .collect();
        let mut blocks = Vec::with_capacity(sizes.blocks);
        for block in 0..sizes.blocks {
            let (mut key, at) = ([0; 4], sizes.base + sizes.blocks + 4 * block);
            sync.copy_out(at, &mut key);
            let key = u32::from_ne_bytes(key);
            let expected = format!("expected the {} bytes of block {block}", sizes.block_bytes);
            let segment = Segment::attach(key).map_err(|error| {
                field("shmkey", at, format!("found {key:#x}, {expected}: {error}"))
            })?;
            if segment.bytes() < sizes.block_bytes {
                let why = format!("found {key:#x} of {} bytes, {expected}", segment.bytes());
                return Err(field("shmkey", at, why));
            }
            blocks.push(segment);
        }
        let Sizes { base, block_bytes, .. } = sizes;
        Ok(Self { readers: readers?, path, sync, base, connect, blocks, block_bytes })
    }

    /// Removes the ring; memory stays until the last process detaches it.
    fn remove(&self) -> Result<()> {
        let removed: io::Result<()> = self.blocks.iter().try_for_each(Segment::remove);
        let removed = removed
            .and_then(|()| self.readers.iter().try_for_each(Semaphores::remove))
            .and_then(|()| self.connect.remove())
            .and_then(|()| self.sync.remove());
        removed.map_err(|error| self.io(error))
    }

    /// Removes the ring of a key, also one of which parts are missing. Keys are computed from the ring's, and not taken from
    /// shared memory.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is none; [`Error::Format`] if the memory of the key, or of a block's key, is none of a
    /// ring, of which nothing is removed then; [`Error::Io`].
    pub(super) fn destroy(key: Key, path: &Path) -> Result<()> {
        let sync = Segment::attach(key.0).map_err(|error| missing(path, error))?;
        // A creation that was interrupted has no count of blocks yet; its size tells it.
        let blocks = sync.bytes().saturating_sub(BASE) / PER_BLOCK;
        let is_begun = sync.bytes() == BASE + PER_BLOCK * blocks
            && sync.u64(BLOCKS).load(SeqCst) == 0
            && sync.i32(CONNECT_KEY).load(SeqCst) == key.connect() as i32;
        let (blocks, readers) = if is_begun {
            (blocks, MAX_READERS)
        } else {
            let sizes = Sizes::read(&sync, path)?;
            (sizes.blocks, sizes.readers)
        };
        let bytes = sync.u64(BLOCK_BYTES).load(SeqCst);
        for block in 0..blocks {
            let key = key.block(block);
            match Segment::attach(key) {
                Ok(found) if (found.bytes() as u64) < bytes => {
                    let why = format!(
                        "found {key:#x} of {} bytes, expected {bytes}: it is no block of this ring",
                        found.bytes()
                    );
                    return Err(Error::format(path, "shmkey", 0, why));
                }
                _ => {}
            }
        }
        let gone = |removed: io::Result<()>| match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|error| Error::io(path, error)),
        };
        for block in 0..blocks {
            gone(system::remove_segment_of(key.block(block)))?;
        }
        for set in (0..readers).map(|reader| key.reader(reader)).chain([key.connect()]) {
            gone(Semaphores::find(set, 0).and_then(|set| set.remove()))?;
        }
        sync.remove().map_err(|error| Error::io(path, error))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    pub(super) fn readers(&self) -> usize {
        self.readers.len()
    }

    pub(super) fn generation(&self) -> Generation {
        if self.base == BASE { Generation::WithDevice } else { Generation::WithoutDevice }
    }

    /// Returns the bytes of a block; `block` is any absolute number.
    pub(super) fn block(&self, block: u64) -> &Segment {
        &self.blocks[(block % self.blocks.len() as u64) as usize]
    }

    /// Returns the processes that have the ring attached, this one included, and the one that made it.
    pub(super) fn attachments(&self) -> Result<system::SegmentState> {
        self.sync.state().map_err(|error| self.io(error))
    }

    pub(super) fn io(&self, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::EIDRM | libc::EINVAL) => Error::Unavailable {
                what: self.path.display().to_string(),
                why: "it was destroyed; create it again".to_owned(),
            },
            _ => Error::io(&self.path, error),
        }
    }

    fn fault(&self, field: &str, at: usize, why: String) -> Error {
        Error::format(&self.path, field, at as u64, why)
    }

    pub(super) fn write_next(&self) -> u64 {
        self.sync.u64(WRITE_NEXT).load(SeqCst)
    }

    pub(super) fn write_current(&self) -> u64 {
        self.sync.u64(WRITE_CURRENT).load(SeqCst)
    }

    pub(super) fn write_transfer(&self) -> u64 {
        self.sync.u64(WRITE_TRANSFER).load(SeqCst)
    }

    pub(super) fn is_writing(&self) -> bool {
        self.sync.i32(WRITE_STATE).load(SeqCst) == WRITING
    }

    pub(super) fn read_block(&self, place: usize) -> u64 {
        self.sync.u64(READ_BLOCKS + 8 * place).load(SeqCst)
    }

    pub(super) fn read_transfer(&self, place: usize) -> u64 {
        self.sync.u64(READ_TRANSFERS + 8 * place).load(SeqCst)
    }

    pub(super) fn is_reading(&self, place: usize) -> bool {
        self.sync.i32(READ_STATES + 4 * place).load(SeqCst) == READING
    }

    pub(super) fn set_read_block(&self, place: usize, block: u64) {
        self.sync.u64(READ_BLOCKS + 8 * place).store(block, SeqCst);
    }

    pub(super) fn set_read_state(&self, place: usize, state: i32) {
        self.sync.i32(READ_STATES + 4 * place).store(state, SeqCst);
    }

    pub(super) fn set_write_state(&self, state: i32) {
        self.sync.i32(WRITE_STATE).store(state, SeqCst);
    }

    pub(super) fn set_write_next(&self, block: u64) {
        self.sync.u64(WRITE_NEXT).store(block, SeqCst);
    }

    /// Returns whether a transfer ends with this block.
    pub(super) fn ends_at(&self, transfer: u64, block: u64) -> bool {
        let slot = (transfer % TRANSFERS) as usize;
        self.sync.u8(ENDED + slot).load(SeqCst) != 0
            && self.sync.u64(END_BLOCKS + 8 * slot).load(SeqCst) == block
    }

    fn count(&self, block: u64) -> &std::sync::atomic::AtomicU8 {
        self.sync.u8(self.base + (block % self.blocks.len() as u64) as usize)
    }

    /// Returns the blocks that the writer has filled and not yet reclaimed.
    pub(super) fn filled(&self) -> i64 {
        (0..self.blocks.len() as u64).map(|block| i64::from(self.count(block).load(SeqCst))).sum()
    }

    /// Returns a semaphore of a reader.
    pub(super) fn value(&self, place: usize, number: u16) -> Result<i32> {
        self.readers[place].value(number).map_err(|error| self.io(error))
    }

    /// Sets a semaphore of a reader.
    pub(super) fn set_value(&self, place: usize, number: u16, value: i32) -> Result<()> {
        self.readers[place].set(number, value).map_err(|error| self.io(error))
    }

    /// Returns the transfers that have started.
    pub(super) fn started(&self) -> u64 {
        self.write_transfer().wrapping_add(u64::from(self.is_writing()))
    }

    /// Returns the blocks that a reader has taken and not cleared: 0 or 1 between the steps of a writer.
    ///
    /// Computed from the first block that it has not cleared, because the semaphores of clear blocks change while a writer waits.
    pub(super) fn held(&self, place: usize) -> Result<i64> {
        let transfer = self.read_transfer(place);
        let slot = (transfer % TRANSFERS) as usize;
        let next = if self.is_reading(place) {
            self.read_block(place)
        } else if transfer < self.started() {
            self.sync.u64(START_BLOCKS + 8 * slot).load(SeqCst)
        } else {
            self.write_current()
        };
        let uncleared = self.write_current().wrapping_sub(next) as i64;
        Ok(uncleared.wrapping_sub(i64::from(self.value(place, FULL)?)))
    }

    /// Returns whether a process waits for a semaphore of a reader.
    pub(super) fn is_awaited(&self, place: usize, number: u16) -> Result<bool> {
        let waiting = self.readers[place].waiting(number).map_err(|error| self.io(error))?;
        Ok(waiting > 0)
    }

    /// Returns the process of the writer.
    pub(super) fn writer(&self) -> Result<Peer> {
        self.peer(&self.connect, WRITE)
    }

    /// Returns the process of a reader.
    pub(super) fn reader(&self, place: usize) -> Result<Peer> {
        self.peer(&self.readers[place], CONNECTED)
    }

    fn peer(&self, set: &Semaphores, number: u16) -> Result<Peer> {
        let value = set.value(number).map_err(|error| self.io(error))?;
        let process = set.process(number).map_err(|error| self.io(error))?;
        Ok(Peer { process, is_attached: value == 0, is_alive: system::is_alive(process) })
    }

    /// Lowers or raises a semaphore for connecting, which the kernel reverts when this process ends.
    pub(super) fn connect(&self, number: u16, by: i16, limit: Duration) -> Result<bool> {
        let change = Change { number, by, undo: true };
        self.connect.change(change, limit).map_err(|error| self.io(error))
    }

    /// The same of a reader's place.
    pub(super) fn connect_reader(&self, place: usize, by: i16) -> Result<bool> {
        let change = Change { number: CONNECTED, by, undo: true };
        self.readers[place].change(change, Duration::ZERO).map_err(|error| self.io(error))
    }

    /// Raises a semaphore of a reader, which the kernel does not revert.
    pub(super) fn raise(&self, place: usize, number: u16) -> Result<()> {
        let change = Change { number, by: 1, undo: false };
        self.readers[place].change(change, LOOK).map(drop).map_err(|error| self.io(error))
    }

    /// Lowers a semaphore of a reader, which the kernel does not revert. Returns whether it could be within the limit.
    ///
    /// # Errors
    /// As `look` gives, which is asked again and again whether the process waited for is gone; [`Error::Unavailable`] if the
    /// ring was destroyed; [`Error::Io`].
    fn lower(
        &self,
        place: usize,
        number: u16,
        limit: Limit,
        look: impl Fn() -> Result<()>,
    ) -> Result<bool> {
        let change = Change { number, by: -1, undo: false };
        loop {
            let left = limit.left();
            let lowered = self.readers[place].change(change, left.min(LOOK));
            if lowered.map_err(|error| self.io(error))? {
                return Ok(true);
            }
            look()?;
            if left <= LOOK {
                return Ok(false);
            }
        }
    }

    /// Lowers a semaphore that a reader raises.
    fn await_reader(&self, place: usize, number: u16, limit: Limit) -> Result<bool> {
        self.lower(place, number, limit, || self.look_at_reader(place))
    }

    /// Fails if a reader has died or left while it held a block.
    fn look_at_reader(&self, place: usize) -> Result<()> {
        let peer = self.reader(place)?;
        let died = !peer.is_alive && (peer.is_attached || self.held(place)? > 0);
        if !died {
            return Ok(());
        }
        let why = format!(
            "process {} reads no longer, and holds a block of {}; repair the ring",
            peer.process,
            self.path.display()
        );
        Err(gone(&self.path, &format!("reader {place}: {why}")))
    }

    /// Fails if the writer has died within a transfer.
    pub(super) fn look_at_writer(&self) -> Result<()> {
        let peer = self.writer()?;
        if peer.is_alive || !self.is_writing() {
            return Ok(());
        }
        let why = format!(
            "writer: process {} writes no longer, and has left transfer {} without an end; repair the ring",
            peer.process,
            self.write_transfer()
        );
        Err(gone(&self.path, &why))
    }
}

/// Sizes of a ring, as its memory has them.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    base: usize,
    blocks: usize,
    block_bytes: usize,
    readers: usize,
}

impl Sizes {
    /// Reads and checks the sizes.
    fn read(sync: &Segment, path: &Path) -> Result<Self> {
        let field = |name: &str, at: usize, why: String| Error::format(path, name, at as u64, why);
        if sync.bytes() < BASE_BEFORE_2017 {
            let why = format!("found {} bytes, expected {BASE_BEFORE_2017} at least", sync.bytes());
            return Err(field("shared memory", 0, why));
        }
        let blocks = sync.u64(BLOCKS).load(SeqCst);
        let found = sync.bytes();
        let bases = [BASE, BASE_BEFORE_2017];
        let bytes = |base: usize| blocks.checked_mul(5)?.checked_add(base as u64);
        let base = bases.into_iter().find(|base| bytes(*base) == Some(found as u64));
        let Some(base) = base.filter(|_| blocks > 0) else {
            let why =
                format!("found {blocks} blocks in {found} bytes, expected {BASE} + 5 a block");
            return Err(field("nbufs", BLOCKS, why));
        };
        let block_bytes = sync.u64(BLOCK_BYTES).load(SeqCst);
        if block_bytes == 0 || block_bytes > isize::MAX as u64 {
            let why = format!("found {block_bytes}, expected 1 to {} bytes", isize::MAX);
            return Err(field("bufsz", BLOCK_BYTES, why));
        }
        let readers = sync.u32(READERS).load(SeqCst) as usize;
        if !(1..=MAX_READERS).contains(&readers) {
            let why = format!("found {readers}, expected 1 to {MAX_READERS}");
            return Err(field("n_readers", READERS, why));
        }
        Ok(Self { base, blocks: blocks as usize, block_bytes: block_bytes as usize, readers })
    }
}

fn missing(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::Unavailable {
            what: path.display().to_string(),
            why: "no shared memory has its key; create the ring".to_owned(),
        },
        _ => Error::io(path, error),
    }
}

/// Makes the error of a ring for which the system has no memory, segments or semaphores.
fn exhausted(path: &Path, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::ENOMEM | libc::EINVAL) => Error::Unavailable {
            what: format!("shared memory for {}", path.display()),
            why: "memory or a limit of the system is exhausted; `ipcs -l` lists limits, `ipcs` what is in use"
                .to_owned(),
        },
        _ => Error::io(path, error),
    }
}

/// Makes the error of a process that is no longer at its end of a ring.
fn gone(path: &Path, why: &str) -> Error {
    Error::io(path, io::Error::new(io::ErrorKind::ConnectionAborted, why))
}

/// A writer's position in a ring. Every step that has to wait may be repeated: it continues where it stopped.
#[derive(Debug, Default)]
pub(super) struct WriteEnd {
    /// Whether a transfer has started.
    is_writing: bool,
    /// Block in use.
    block: Option<u64>,
    /// Readers that have acknowledged the step in progress.
    started: usize,
    cleared: usize,
    ended: usize,
}

impl WriteEnd {
    /// Continues a transfer that another process has started.
    pub(super) fn resume(&mut self) {
        self.is_writing = true;
    }

    pub(super) fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// Returns the block in use.
    pub(super) fn block(&self) -> Option<u64> {
        self.block
    }

    /// Waits until a transfer can start. Returns whether it can.
    pub(super) fn may_start(&mut self, buffer: &Buffer, limit: Limit) -> Result<bool> {
        while !self.is_writing && self.started < buffer.readers() {
            if !buffer.await_reader(self.started, START_ACK, limit)? {
                return Ok(false);
            }
            self.started += 1;
        }
        Ok(true)
    }

    /// Starts a transfer with the next block, after [`WriteEnd::may_start`].
    pub(super) fn start(&mut self, buffer: &Buffer) {
        if std::mem::replace(&mut self.is_writing, true) {
            return;
        }
        self.started = 0;
        let slot = (buffer.write_transfer() % TRANSFERS) as usize;
        let first = buffer.write_current();
        buffer.sync.u64(START_BLOCKS + 8 * slot).store(first, SeqCst);
        buffer.sync.u64(START_BYTES + 8 * slot).store(0, SeqCst);
        // A reader may still be in the transfer that had this slot before.
        if first == 0 {
            buffer.sync.u8(ENDED + slot).store(0, SeqCst);
        }
        buffer.set_write_state(WRITING);
    }

    /// Waits for a free block. Returns whether there is one.
    pub(super) fn open(&mut self, buffer: &Buffer, limit: Limit) -> Result<bool> {
        if self.block.is_some() {
            return Ok(true);
        }
        let next = buffer.write_next();
        let count = buffer.count(next);
        while count.load(SeqCst) > 0 {
            while self.cleared < buffer.readers() {
                if !buffer.await_reader(self.cleared, CLEAR, limit)? {
                    return Ok(false);
                }
                self.cleared += 1;
            }
            self.cleared = 0;
            count.fetch_sub(1, SeqCst);
        }
        buffer.set_write_next(next.wrapping_add(1));
        self.block = Some(next);
        Ok(true)
    }

    /// Waits until the transfer can end. Returns whether it can.
    pub(super) fn may_end(&mut self, buffer: &Buffer, limit: Limit) -> Result<bool> {
        while self.ended < buffer.readers() {
            if !buffer.await_reader(self.ended, END_ACK, limit)? {
                return Ok(false);
            }
            self.ended += 1;
        }
        Ok(true)
    }

    /// Gives the block in use to the readers.
    pub(super) fn fill(&mut self, buffer: &Buffer) -> Result<()> {
        if self.block.take().is_none() {
            return Ok(());
        }
        let current = buffer.write_current();
        buffer.count(current).fetch_add(1, SeqCst);
        buffer.sync.u64(WRITE_CURRENT).store(current.wrapping_add(1), SeqCst);
        (0..buffer.readers()).try_for_each(|place| buffer.raise(place, FULL))
    }

    /// Gives the block in use to the readers as the last of the transfer, with its first `bytes` bytes; after
    /// [`WriteEnd::may_end`].
    pub(super) fn end(&mut self, buffer: &Buffer, bytes: usize) -> Result<()> {
        self.ended = 0;
        let transfer = buffer.write_transfer();
        let slot = (transfer % TRANSFERS) as usize;
        buffer.sync.u64(END_BLOCKS + 8 * slot).store(buffer.write_current(), SeqCst);
        buffer.sync.u64(END_BYTES + 8 * slot).store(bytes as u64, SeqCst);
        buffer.sync.u8(ENDED + slot).store(1, SeqCst);
        buffer.sync.u64(WRITE_TRANSFER).store(transfer.wrapping_add(1), SeqCst);
        buffer.set_write_state(WRITER);
        self.is_writing = false;
        self.fill(buffer)
    }

    /// Returns acknowledgements that an unfinished step has taken, so that another writer finds them.
    pub(super) fn give_back(&mut self, buffer: &Buffer) -> Result<()> {
        for (count, number) in
            [(&mut self.started, START_ACK), (&mut self.cleared, CLEAR), (&mut self.ended, END_ACK)]
        {
            for place in 0..std::mem::take(count) {
                buffer.raise(place, number)?;
            }
        }
        Ok(())
    }
}

/// Bytes of a block that a reader has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Absolute number.
    pub(super) block: u64,
    /// Bytes of the transfer in it: from `start` to `end`.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether the transfer ends with it.
    pub(super) is_last: bool,
}

/// A reader's position in a ring.
#[derive(Debug)]
pub(super) struct ReadEnd {
    pub(super) place: usize,
    /// Whether a transfer has started.
    is_reading: bool,
    taken: Option<Taken>,
}

impl ReadEnd {
    /// Continues where the last reader of a place has stopped.
    pub(super) fn new(buffer: &Buffer, place: usize) -> Self {
        Self { place, is_reading: buffer.is_reading(place), taken: None }
    }

    pub(super) fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// Takes the next block, or returns the one in use; `None` if none came within the limit.
    ///
    /// # Errors
    /// [`Error::Format`] for counters that contradict each other; otherwise as `look`, which is asked again and again whether
    /// the writer is gone.
    pub(super) fn take(
        &mut self,
        buffer: &Buffer,
        limit: Limit,
        look: impl Fn() -> Result<()>,
    ) -> Result<Option<Taken>> {
        if self.taken.is_some() {
            return Ok(self.taken);
        }
        if !buffer.lower(self.place, FULL, limit, look)? {
            return Ok(None);
        }
        let transfer = buffer.read_transfer(self.place);
        let slot = (transfer % TRANSFERS) as usize;
        let first = buffer.sync.u64(START_BLOCKS + 8 * slot).load(SeqCst);
        if !self.is_reading {
            buffer.set_read_block(self.place, first);
            buffer.set_read_state(self.place, READING);
            self.is_reading = true;
            buffer.raise(self.place, START_ACK)?;
        }
        let block = buffer.read_block(self.place);
        let ahead = buffer.write_current().wrapping_sub(block);
        if ahead == 0 || ahead > buffer.blocks() as u64 {
            let why = format!(
                "found block {block} in transfer {transfer}, expected one of the {} before block {} (w_buf_curr)",
                buffer.blocks(),
                buffer.write_current()
            );
            return Err(buffer.fault("r_bufs", READ_BLOCKS + 8 * self.place, why));
        }
        let is_last = buffer.ends_at(transfer, block);
        let word = |at: usize, name: &str, most: usize| {
            let found = buffer.sync.u64(at + 8 * slot).load(SeqCst);
            let why = || format!("found {found}, expected {most} bytes at most");
            usize::try_from(found)
                .ok()
                .filter(|found| *found <= most)
                .ok_or_else(|| buffer.fault(name, at + 8 * slot, why()))
        };
        let size = buffer.block_bytes();
        let end = if is_last { word(END_BYTES, "e_byte", size)? } else { size };
        let start = if block == first { word(START_BYTES, "s_byte", end)? } else { 0 };
        self.taken = Some(Taken { block, start, end, is_last });
        Ok(self.taken)
    }

    /// Returns the block in use to the writer. Returns whether the transfer has ended with it.
    pub(super) fn clear(&mut self, buffer: &Buffer) -> Result<bool> {
        let Some(taken) = self.taken.take() else { return Ok(false) };
        buffer.raise(self.place, CLEAR)?;
        self.is_reading = !taken.is_last;
        self.after(buffer, taken)?;
        Ok(taken.is_last)
    }

    /// Counts a block that was cleared, and acknowledges the end of a transfer.
    fn after(&self, buffer: &Buffer, taken: Taken) -> Result<()> {
        buffer.set_read_block(self.place, taken.block.wrapping_add(1));
        if taken.is_last {
            buffer.set_read_state(self.place, READER_STOPPED);
            let next = buffer.read_transfer(self.place).wrapping_add(1);
            buffer.sync.u64(READ_TRANSFERS + 8 * self.place).store(next, SeqCst);
            buffer.raise(self.place, END_ACK)?;
        }
        Ok(())
    }

    /// Puts the block in use back, so that the place's next reader takes it again.
    pub(super) fn put_back(&mut self, buffer: &Buffer) -> Result<()> {
        match self.taken.take() {
            Some(_) => buffer.raise(self.place, FULL),
            None => Ok(()),
        }
    }
}

impl Buffer {
    /// Completes the count of a block that a dead reader of a place had cleared already: see [`ReadEnd::clear`].
    pub(super) fn count_cleared(&self, place: usize) -> Result<()> {
        let (block, transfer) = (self.read_block(place), self.read_transfer(place));
        let is_last = self.ends_at(transfer, block);
        let taken = Taken { block, start: 0, end: 0, is_last };
        ReadEnd::new(self, place).after(self, taken)
    }
}

/// Words of shared memory by their offsets, for tests that damage them.
#[cfg(test)]
impl Buffer {
    pub(super) fn poke(&self, at: usize, value: u64) {
        self.sync.u64(at).store(value, SeqCst);
    }

    pub(super) fn poke_i32(&self, at: usize, value: i32) {
        self.sync.i32(at).store(value, SeqCst);
    }
}
