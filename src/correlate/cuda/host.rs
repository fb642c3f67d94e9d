//! Transfer of blocks from host memory in pieces, and their corner turn on the device: the next piece is copied while
//! the device processes one.

use std::ops::Range;

use super::super::block::Block;
use super::super::plan::{LANES, Plan};
use super::shape::Shape;
use crate::backend::cuda::{
    Arguments, Buffer, Device, Event, Extent, Function, Pinned, Source, Stream, Variant,
    combinations,
};
use crate::backend::threads::Threads;
use crate::error::Result;

/// Pieces in flight.
const SLOTS: usize = 3;

/// Approximate bytes of a piece; few in tests, so that short blocks have several pieces.
const PIECE_BYTES: usize = if cfg!(test) { 1 << 15 } else { 1 << 24 };

/// Bytes that a thread copies at once.
const COPY: usize = 1 << 18;

/// Piece of a block: whole channels, or some times of one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) channels: Range<usize>,
    /// Begins at a multiple of 64.
    pub(super) times: Range<usize>,
}

/// Memory of a piece on the host and on the device.
#[derive(Debug)]
struct Slot {
    packed: Pinned<u8>,
    mask: Pinned<u64>,
    device_packed: Buffer<u8>,
    device_mask: Buffer<u64>,
    natural: Buffer<u8>,
    /// Recorded after the copies.
    copied: Event,
    /// Recorded after the last work on the copied data.
    worked: Event,
}

/// Piece on the device, in natural order (channel, input, time).
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) spectra: u64,
    pub(super) input_stride: usize,
    /// Address of the validity mask.
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
    corner_turn: CornerTurn,
    copies: Stream,
    pub(super) work: Stream,
    slots: Vec<Slot>,
    /// Bytes of a slot's spectra.
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
            corner_turn: CornerTurn::new(plan, shape, device)?,
            copies: device.stream()?,
            work: device.stream()?,
            slots: Vec::new(),
            bytes: 0,
            next: 0,
        })
    }

    /// Enlarges the staging memory, if necessary, for pieces of blocks of `times` times.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) without enough memory.
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

    /// Returns the bytes of a channel: the larger of packed and natural order.
    fn channel_bytes(&self, times: usize) -> usize {
        let natural = self.shape.inputs * CornerTurn::stride(&self.shape, times);
        natural.max(self.plan.panels() * self.plan.panel_bytes(times))
    }

    /// Returns the largest number of channels and times of a block's pieces.
    fn most(&self, times: usize) -> (usize, usize) {
        let bytes = self.channel_bytes(times);
        if bytes <= PIECE_BYTES {
            return ((PIECE_BYTES / bytes.max(1)).min(self.plan.channels()), times);
        }
        (1, (PIECE_BYTES / self.channel_bytes(64)).max(1) * 64)
    }

    /// Returns the pieces of a block of `times` times. All times of a group of channels come before the next group.
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

    /// Queues the copy of a piece to the device and its corner turn. Work queued in [`Host::work`] from now on may
    /// use it, until [`Host::release`].
    pub(super) fn bring(&mut self, block: Block<'_>, piece: &Piece) -> Result<Arrived> {
        let slot = &mut self.slots[self.next];
        slot.copied.synchronize()?;
        let (panels, times) = (self.plan.panels(), piece.times.len());
        let rows = Rows {
            from: block.bytes(),
            first: piece.channels.start * panels,
            pitch: self.plan.panel_bytes(block.times()),
            // Pieces begin at even times, where a group of the packed order begins.
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
        // SAFETY: the host memory is not accessed before `copied` has passed.
        unsafe {
            self.copies.copy_in(&slot.packed, 0..bytes, &mut slot.device_packed, 0)?;
            if let Some(words) = words {
                self.copies.copy_in(&slot.mask, 0..words, &mut slot.device_mask, 0)?;
            }
        }
        self.copies.record(&slot.copied)?;
        self.work.wait(&slot.copied)?;
        let addresses = (slot.device_packed.address(), slot.natural.address());
        self.corner_turn.enqueue(addresses, piece.channels.len(), times, &self.work)?;
        Ok(Arrived {
            spectra: slot.natural.address(),
            input_stride: CornerTurn::stride(&self.shape, times),
            valid: words.map(|_| slot.device_mask.address()),
        })
    }

    /// Waits for queued work after an error. Its own errors are ignored, since the first one is returned.
    pub(super) fn settle(&self) {
        for stream in [&self.copies, &self.work] {
            let _ = stream.synchronize();
        }
    }

    /// Marks that all work on the last piece is queued.
    pub(super) fn release(&mut self) -> Result<()> {
        self.work.record(&self.slots[self.next].worked)?;
        self.next = (self.next + 1) % self.slots.len();
        Ok(())
    }
}

impl Slot {
    fn new(device: &Device, bytes: usize) -> Result<Self> {
        // A mask word covers 64 samples of an antenna, which take at least 16 bytes.
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

/// Parts of rows that lie `pitch` elements apart, to be copied contiguously.
#[derive(Clone, Copy, Debug)]
struct Rows<'a, T> {
    from: &'a [T],
    first: usize,
    pitch: usize,
    start: usize,
    length: usize,
}

impl<T: Copy> Rows<'_, T> {
    /// Fills `to` with the result from element `at` on.
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

/// Threads of a block.
const BLOCK: usize = 256;

/// Corner-turn kernel.
#[derive(Debug)]
pub(super) struct CornerTurn {
    shape: Shape,
    panels: usize,
    /// Times of a group in the packed order, and steps of a group.
    group: (usize, usize),
    /// Bytes of a step of one input.
    unit: usize,
    function: Function,
}

fn source(defines: Vec<(&'static str, String)>) -> Source {
    Source { name: "corner_turn.cu", text: include_str!("corner_turn.cu"), includes: &[], defines }
}

/// Returns the variants for the kernel table.
pub(super) fn variants(extent: Extent) -> Vec<Variant> {
    let variant = |defines| Variant::plain(source(defines), extent);
    combinations(&[("UNIT", &["2", "4"])], extent).into_iter().map(variant).collect()
}

impl CornerTurn {
    pub(super) fn new(plan: &Plan, shape: &Shape, device: &Device) -> Result<Self> {
        // A pair of integer samples is one step, a float sample two.
        let steps = if shape.is_float() { 2 } else { 1 };
        let unit = shape.row_bytes(plan.group()) / steps;
        let module = device.module(&source(vec![("UNIT", unit.to_string())]))?;
        Ok(Self {
            shape: *shape,
            panels: plan.panels(),
            group: (plan.group(), steps),
            unit,
            function: module.function("corner_turn", 0)?,
        })
    }

    /// Returns the bytes from one input to the next for `times` times.
    pub(super) fn stride(shape: &Shape, times: usize) -> usize {
        shape.row_bytes(times).next_multiple_of(16)
    }

    /// Queues the corner turn of some channels from one address to another.
    pub(super) fn enqueue(
        &self,
        (from, to): (u64, u64),
        channels: usize,
        times: usize,
        stream: &Stream,
    ) -> Result<()> {
        let steps = times.div_ceil(self.group.0) * self.group.1;
        // Steps of a block: 64 of 4 bytes, or 128 of 2.
        let parts = steps.div_ceil(256 / self.unit);
        let stride = Self::stride(&self.shape, times);
        let arguments = Arguments::new()
            .with(from)
            .with(self.panels as u32)
            .with(self.shape.inputs as u32)
            .with(steps as i64)
            .with(parts as u32)
            .with(to)
            .with((self.shape.inputs * stride) as i64)
            .with(stride as i64);
        let grid = [channels * self.panels * parts, 1, 1];
        const { assert!(LANES == 16) };
        // SAFETY: the arguments match the kernel, and both buffers hold these channels and times.
        unsafe { stream.launch(&self.function, grid, [BLOCK, 1, 1], &arguments) }
    }
}
