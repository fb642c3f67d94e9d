//! Blocks from the host's memory, piece by piece: the next one is copied while a piece is worked on.

use std::ops::Range;

use super::super::block::Block;
use super::super::plan::{LANES, Plan};
use super::shape::Shape;
use super::turn::Turn;
use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::backend::threads::Threads;
use crate::error::Result;

/// Pieces under way.
const SLOTS: usize = 3;

/// Bytes of a piece, about; few in tests, so that short blocks have several.
const PIECE_BYTES: usize = if cfg!(test) { 1 << 15 } else { 1 << 24 };

/// Bytes that a thread copies at a time.
const COPY: usize = 1 << 18;

/// A piece of a block: whole channels, or some times of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) channels: Range<usize>,
    /// From a multiple of 64 on.
    pub(super) times: Range<usize>,
}

/// A piece's memory on both sides.
#[derive(Debug)]
struct Slot {
    packed: Pinned<u8>,
    mask: Pinned<u64>,
    device_packed: Buffer<u8>,
    device_mask: Buffer<u64>,
    natural: Buffer<u8>,
    /// After the copies.
    copied: Event,
    /// After the last work on what was copied.
    worked: Event,
}

/// A piece on the device, in natural order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) spectra: u64,
    pub(super) input_stride: usize,
    /// Address of the mask.
    pub(super) valid: Option<u64>,
}

/// Streams and staging memory.
#[derive(Debug)]
pub(super) struct Host {
    plan: Plan,
    shape: Shape,
    device: Device,
    threads: Threads,
    workers: Vec<()>,
    turn: Turn,
    copies: Stream,
    pub(super) work: Stream,
    slots: Vec<Slot>,
    /// Of a slot's spectra.
    bytes: usize,
    next: usize,
}

impl Host {
    pub(super) fn new(
        plan: &Plan,
        shape: &Shape,
        device: &Device,
        threads: &Threads,
    ) -> Result<Self> {
        Ok(Self {
            plan: plan.clone(),
            shape: *shape,
            device: device.clone(),
            threads: threads.clone(),
            workers: vec![(); threads.count()],
            turn: Turn::new(plan, shape, device)?,
            copies: device.stream()?,
            work: device.stream()?,
            slots: Vec::new(),
            bytes: 0,
            next: 0,
        })
    }

    /// Staging memory for pieces of blocks of so many times: more than before, if it takes more.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) without room.
    pub(super) fn grow(&mut self, times: usize) -> Result<()> {
        let (channels, times) = self.most(times);
        let bytes = (channels * self.channel_bytes(times)).next_power_of_two();
        if bytes > self.bytes {
            self.slots.clear();
            self.bytes = 0;
            let slots = (0..SLOTS).map(|_| Slot::new(&self.device, bytes));
            self.slots = slots.collect::<Result<_>>()?;
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Bytes that a channel takes, packed or not.
    fn channel_bytes(&self, times: usize) -> usize {
        let natural = self.shape.inputs * Turn::stride(&self.shape, times);
        natural.max(self.plan.panels() * self.plan.panel_bytes(times))
    }

    /// Channels and times of a block's pieces, at most.
    fn most(&self, times: usize) -> (usize, usize) {
        let bytes = self.channel_bytes(times);
        if bytes <= PIECE_BYTES {
            return ((PIECE_BYTES / bytes.max(1)).min(self.plan.channels()), times);
        }
        (1, (PIECE_BYTES / self.channel_bytes(64)).max(1) * 64)
    }

    /// The pieces of a block of so many times: all times of some channels one after another.
    pub(super) fn pieces(&self, times: usize) -> impl Iterator<Item = Piece> + use<> {
        let (channels, most) = self.most(times);
        let all = self.plan.channels();
        (0..all).step_by(channels).flat_map(move |channel| {
            let channels = channel..all.min(channel + channels);
            (0..times).step_by(most).map(move |time| Piece {
                channels: channels.clone(),
                times: time..times.min(time + most),
            })
        })
    }

    /// Queues the copy of a piece to the device and its turn: it is there for what is queued in [`Host::work`] from now
    /// on, until [`Host::release`].
    pub(super) fn bring(&mut self, block: Block<'_>, piece: &Piece) -> Result<Arrived> {
        let slot = &mut self.slots[self.next];
        slot.copied.synchronize()?;
        let (panels, times) = (self.plan.panels(), piece.times.len());
        let rows = Rows {
            from: block.bytes(),
            first: piece.channels.start * panels,
            pitch: self.plan.panel_bytes(block.times()),
            // Even times begin a group.
            start: piece.times.start * LANES * self.shape.row_bytes(1),
            length: self.plan.panel_bytes(times),
        };
        let bytes = piece.channels.len() * panels * rows.length;
        let target = &mut slot.packed.as_mut_slice()[..bytes];
        self.threads.for_each_chunk(&mut self.workers, target, COPY, |(), index, part| {
            rows.copy(index * COPY, part);
        });
        let words = block.valid().map(|valid| {
            let antennas = self.plan.antennas();
            let rows = Rows {
                from: valid,
                first: piece.channels.start * antennas,
                pitch: Plan::mask_words(block.times()),
                start: piece.times.start / 64,
                length: Plan::mask_words(times),
            };
            let words = piece.channels.len() * antennas * rows.length;
            let target = &mut slot.mask.as_mut_slice()[..words];
            let chunk = COPY / size_of::<u64>();
            self.threads.for_each_chunk(&mut self.workers, target, chunk, |(), index, part| {
                rows.copy(index * chunk, part);
            });
            words
        });
        self.copies.wait(&slot.worked)?;
        // SAFETY: the host's side is not touched before `copied` has passed.
        unsafe {
            self.copies.copy_in(&slot.packed, 0..bytes, &mut slot.device_packed, 0)?;
            if let Some(words) = words {
                self.copies.copy_in(&slot.mask, 0..words, &mut slot.device_mask, 0)?;
            }
        }
        self.copies.record(&slot.copied)?;
        self.work.wait(&slot.copied)?;
        let addresses = (slot.device_packed.address(), slot.natural.address());
        self.turn.enqueue(addresses, piece.channels.len(), times, &self.work)?;
        Ok(Arrived {
            spectra: slot.natural.address(),
            input_stride: Turn::stride(&self.shape, times),
            valid: words.map(|_| slot.device_mask.address()),
        })
    }

    /// Waits for all that is under way, when not all of it could be queued: whether it fails is of no interest then.
    pub(super) fn settle(&self) {
        for stream in [&self.copies, &self.work] {
            let _ = stream.synchronize();
        }
    }

    /// All work on the piece that came last is queued.
    pub(super) fn release(&mut self) -> Result<()> {
        self.work.record(&self.slots[self.next].worked)?;
        self.next = (self.next + 1) % self.slots.len();
        Ok(())
    }
}

impl Slot {
    fn new(device: &Device, bytes: usize) -> Result<Self> {
        // A word for 64 samples of an antenna, which take 16 bytes at least.
        let words = bytes.div_ceil(16);
        Ok(Self {
            packed: device.pinned(bytes)?,
            mask: device.pinned(words)?,
            device_packed: device.buffer(bytes)?,
            device_mask: device.buffer(words)?,
            natural: device.buffer(bytes)?,
            copied: device.event()?,
            worked: device.event()?,
        })
    }
}

/// Parts of rows `pitch` elements apart that become one behind another.
#[derive(Clone, Copy, Debug)]
struct Rows<'a, T> {
    from: &'a [T],
    first: usize,
    pitch: usize,
    start: usize,
    length: usize,
}

impl<T: Copy> Rows<'_, T> {
    /// Copies what belongs from element `at` of the result on.
    fn copy(&self, mut at: usize, mut to: &mut [T]) {
        if self.length == self.pitch {
            let first = self.first * self.pitch + at;
            to.copy_from_slice(&self.from[first..first + to.len()]);
            return;
        }
        while !to.is_empty() {
            let (row, column) = (at / self.length, at % self.length);
            let count = to.len().min(self.length - column);
            let (part, rest) = to.split_at_mut(count);
            let first = (self.first + row) * self.pitch + self.start + column;
            part.copy_from_slice(&self.from[first..first + count]);
            (at, to) = (at + count, rest);
        }
    }
}
