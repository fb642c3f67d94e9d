//! Transfer of blocks from host memory in pieces with their corner turn on the device, and of sums and counts back to the
//! host: the next piece is copied while the device processes one.

use std::ops::{Add, Range};

use bytemuck::Pod;
use num_complex::Complex;

use super::super::block::Block;
use super::super::plan::{LANES, Plan};
use super::launch::{Clock, Shape, Spectra};
use super::sums::{Masks, Sums};
use crate::backend::cuda::{
    Arguments, Buffer, Device, Event, Extent, Function, Pinned, Source, Stream, Variant,
    combinations,
};
use crate::backend::threads::Threads;
use crate::error::Result;

/// Pieces in flight, in either direction.
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

/// Piece on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) spectra: Spectra,
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
        let input_stride = CornerTurn::stride(&self.shape, times);
        let (from, to) = (slot.device_packed.address(), slot.natural.address());
        self.corner_turn.enqueue(from, to, piece.channels.len(), times, &self.work)?;
        Ok(Arrived {
            spectra: Spectra {
                address: slot.natural.address(),
                channel_stride: self.shape.inputs * input_stride,
                input_stride,
                times,
            },
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
        from: u64,
        to: u64,
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

/// Elements that a thread writes at once.
const READ: usize = 1 << 14;

/// Counts of samples since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Samples counted for all baselines alike, in blocks without a mask.
    pub(super) all: u64,
    /// Whether the device holds further counts, of blocks with a mask.
    pub(super) some: bool,
}

/// State needed to read sums and counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) plan: &'a Plan,
    pub(super) sums: &'a Sums,
    pub(super) masks: &'a Masks,
    pub(super) clock: Clock,
    pub(super) counted: Counted,
}

impl Reader<'_> {
    /// Reads the sums of whole channels from `first` on. 32-bit sums are widened on the host, because their transfer
    /// takes half the time.
    pub(super) fn sums<N, T>(
        &self,
        outbox: &mut Outbox,
        first: usize,
        output: &mut [Complex<T>],
    ) -> Result<()>
    where
        N: Pod + Sync + Into<T>,
        T: Pod + Send + Sync + Add<Output = T>,
    {
        let (clock, pairs) = (self.clock, self.plan.pairs());
        if !clock.is_pending() && !clock.is_settled() {
            output.fill(Complex { re: T::zeroed(), im: T::zeroed() });
            return Ok(());
        }
        let start = first * self.plan.baselines();
        let elements = start..start + output.len() / pairs;
        outbox.bring(
            elements,
            self.sums.words(clock),
            &mut |range, to, stream| self.sums.read(clock, range, to, stream),
            &mut |range, words, (threads, workers)| {
                let to = &mut output[(range.start - start) * pairs..][..range.len() * pairs];
                if clock.is_settled() {
                    let from: &[Complex<T>] = bytemuck::cast_slice(words);
                    threads.for_each_chunk(workers, to, READ, |(), index, to| {
                        to.copy_from_slice(&from[index * READ..][..to.len()]);
                    });
                } else {
                    let from: &[Complex<N>] = bytemuck::cast_slice(words);
                    threads.for_each_chunk(workers, to, READ, |(), index, to| {
                        // Turns -0.0 into 0.0, so that the bits do not depend on the split of the stream.
                        let wide = |sum: N| T::zeroed() + sum.into();
                        for (to, from) in to.iter_mut().zip(&from[index * READ..]) {
                            *to = Complex { re: wide(from.re), im: wide(from.im) };
                        }
                    });
                }
            },
        )
    }

    /// Reads the counts of whole channels from `first` on.
    pub(super) fn counts(
        &self,
        outbox: &mut Outbox,
        first: usize,
        counts: &mut [u64],
    ) -> Result<()> {
        let all = self.counted.all;
        if !self.counted.some {
            counts.fill(all);
            return Ok(());
        }
        let start = first * self.plan.baselines();
        outbox.bring(
            start..start + counts.len(),
            1,
            &mut |range, to, stream| {
                let bytes = range.len() * size_of::<u64>();
                // SAFETY: source and destination hold this many counts.
                unsafe { stream.copy_within(self.masks.at(range.start), to, bytes) }
            },
            &mut |range, words, (threads, workers)| {
                let to = &mut counts[range.start - start..][..range.len()];
                threads.for_each_chunk(workers, to, READ, |(), index, to| {
                    for (to, count) in to.iter_mut().zip(&words[index * READ..]) {
                        *to = all + count;
                    }
                });
            },
        )
    }
}

/// Most 64-bit words of a part.
const WORDS: usize = 1 << 20;

/// Memory of a part on the host and on the device.
#[derive(Debug)]
struct OutSlot {
    device: Buffer<u64>,
    host: Pinned<u64>,
    made: Event,
    copied: Event,
    /// Elements in flight.
    range: Option<Range<usize>>,
}

/// Streams and staging memory.
#[derive(Debug)]
pub(super) struct Outbox {
    device: Device,
    slots: Vec<OutSlot>,
    pub(super) work: Stream,
    copies: Stream,
    pub(super) threads: Threads,
    pub(super) workers: Vec<()>,
}

/// Produces elements at a device address.
pub(super) type Make<'a> = &'a mut dyn FnMut(Range<usize>, u64, &Stream) -> Result<()>;

/// Consumes the words of elements on the host.
pub(super) type Take<'a> = &'a mut dyn FnMut(Range<usize>, &[u64], (&Threads, &mut [()]));

impl Outbox {
    /// Allocates parts of `words` words, limited to 16 to 2^20.
    pub(super) fn new(device: &Device, words: usize, threads: &Threads) -> Result<Self> {
        let words = words.clamp(16, WORDS);
        let slot = |_| {
            Ok(OutSlot {
                device: device.buffer(words)?,
                host: device.pinned(words)?,
                made: device.event()?,
                copied: device.event()?,
                range: None,
            })
        };
        Ok(Self {
            device: device.clone(),
            slots: (0..SLOTS).map(slot).collect::<Result<_>>()?,
            work: device.stream()?,
            copies: device.stream()?,
            threads: threads.clone(),
            workers: vec![(); threads.count()],
        })
    }

    /// Transfers elements of `words` words each. A part holds at least one element.
    pub(super) fn bring(
        &mut self,
        elements: Range<usize>,
        words: usize,
        make: Make<'_>,
        take: Take<'_>,
    ) -> Result<()> {
        self.parts(elements, words, make, take).inspect_err(|_| {
            // Work in flight must end before its memory is reused.
            let _ = self.device.synchronize();
            self.slots.iter_mut().for_each(|slot| slot.range = None);
        })
    }

    fn parts(
        &mut self,
        elements: Range<usize>,
        words: usize,
        make: Make<'_>,
        take: Take<'_>,
    ) -> Result<()> {
        let most = self.slots[0].device.len() / words;
        for (index, start) in elements.clone().step_by(most).enumerate() {
            let slot = index % SLOTS;
            self.hand_out(slot, words, take)?;
            let range = start..elements.end.min(start + most);
            let slot = &mut self.slots[slot];
            make(range.clone(), slot.device.address(), &self.work)?;
            self.work.record(&slot.made)?;
            self.copies.wait(&slot.made)?;
            let all = 0..range.len() * words;
            // SAFETY: the host memory is not accessed before `copied` has passed.
            unsafe { self.copies.copy_out(&slot.device, all, &mut slot.host, 0)? };
            self.copies.record(&slot.copied)?;
            slot.range = Some(range);
        }
        let next = elements.len().div_ceil(most);
        (next..next + SLOTS).try_for_each(|index| self.hand_out(index % SLOTS, words, take))
    }

    /// Waits for the transfer of a slot, if there is one, and passes its elements to `take`.
    fn hand_out(&mut self, slot: usize, words: usize, take: Take<'_>) -> Result<()> {
        let slot = &mut self.slots[slot];
        if let Some(range) = slot.range.take() {
            slot.copied.synchronize()?;
            let words = &slot.host.as_slice()[..range.len() * words];
            take(range, words, (&self.threads, &mut self.workers));
        }
        Ok(())
    }
}
