//! Transfer of blocks from host memory in pieces, with the corner turn on the device, and of sums and counts back to
//! the host. The copy of a piece overlaps the device's work on the previous piece.

use std::ops::{Add, Range};

use bytemuck::Pod;
use num_complex::Complex;

use super::super::block::Block;
use super::super::plan::{LANES, Plan};
use super::launch::{Clock, Shape, Spectra};
use super::sums::{Masks, Sums};
use crate::backend::cuda::{
    Arguments, Buffer, Device, DownloadRing, Extent, Function, Source, Stream, UploadRing, Variant,
    combinations,
};
use crate::backend::threads::Threads;
use crate::error::Result;

/// Pieces in flight, in either direction.
const SLOTS: usize = 3;

/// Approximate bytes of a piece; few in tests, so that short blocks have several pieces.
const PIECE_BYTES: usize = if cfg!(test) { 1 << 15 } else { 1 << 24 };

/// Bytes that a thread copies at once.
const COPY_BYTES: usize = 1 << 18;

/// Piece of a block: whole channels, or some times of one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) channels: Range<usize>,
    /// Begins at a multiple of 64.
    pub(super) times: Range<usize>,
}

/// Staging of blocks from host memory.
#[derive(Debug)]
pub(super) struct Uploader {
    plan: Plan,
    shape: Shape,
    device: Device,
    threads: Threads,
    corner_turn: CornerTurn,
    packed: UploadRing,
    masks: UploadRing<u64>,
    /// Spectra of a piece in natural order.
    natural: Option<Buffer<u8>>,
    pub(super) work: Stream,
}

impl Uploader {
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
            corner_turn: CornerTurn::new(plan, shape, device)?,
            packed: UploadRing::new(device, 0, SLOTS)?,
            masks: UploadRing::new(device, 0, SLOTS)?,
            natural: None,
            work: device.stream()?,
        })
    }

    /// Enlarges the staging memory, if necessary, for pieces of blocks of `times` times.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) without enough memory.
    pub(super) fn grow(&mut self, times: usize) -> Result<()> {
        let (channels, times) = self.piece_size(times);
        let bytes = (channels * self.channel_bytes(times)).next_power_of_two();
        if bytes <= self.packed.elements() {
            return Ok(());
        }
        self.packed.resize(0)?;
        self.natural = None;
        // A mask word covers 64 samples of an antenna, which take at least 16 bytes.
        self.masks.resize(bytes.div_ceil(16))?;
        self.natural = Some(self.device.buffer(bytes)?);
        // Resized last: the check above takes its size as that of all buffers.
        self.packed.resize(bytes)
    }

    /// Returns the bytes of a channel: the larger of packed and natural order.
    fn channel_bytes(&self, times: usize) -> usize {
        let natural = self.shape.inputs * CornerTurn::stride(&self.shape, times);
        natural.max(self.plan.panels() * self.plan.panel_bytes(times))
    }

    /// Returns the largest number of channels and times of a block's pieces.
    fn piece_size(&self, times: usize) -> (usize, usize) {
        let bytes = self.channel_bytes(times);
        if bytes <= PIECE_BYTES {
            return ((PIECE_BYTES / bytes.max(1)).min(self.plan.channels()), times);
        }
        (1, (PIECE_BYTES / self.channel_bytes(64)).max(1) * 64)
    }

    /// Returns the pieces of a block of `times` times. All times of a group of channels come before the next group.
    pub(super) fn pieces(&self, times: usize) -> impl Iterator<Item = Piece> + use<> {
        let (channels, piece_times) = self.piece_size(times);
        let all = self.plan.channels();
        (0..all).step_by(channels).flat_map(move |channel| {
            let channels = channel..all.min(channel + channels);
            (0..times).step_by(piece_times).map(move |time| Piece {
                channels: channels.clone(),
                times: time..times.min(time + piece_times),
            })
        })
    }

    /// Queues the copy of a piece to the device and its corner turn; returns the spectra and the address of their mask.
    /// Work queued in [`Uploader::work`] from now on may use them, until [`Uploader::release`].
    pub(super) fn upload(
        &mut self,
        block: Block<'_>,
        piece: &Piece,
    ) -> Result<(Spectra, Option<u64>)> {
        let (panels, times) = (self.plan.panels(), piece.times.len());
        let channels = piece.channels.len();
        let packed = Rows {
            from: block.bytes(),
            first: piece.channels.start * panels,
            pitch: self.plan.panel_bytes(block.times()),
            // Pieces begin at even times, where a group of the packed order begins.
            start: piece.times.start * LANES * self.shape.row_bytes(1),
            length: self.plan.panel_bytes(times),
        };
        let packed =
            packed.upload(channels * panels, &mut self.packed, &self.work, &self.threads)?;
        let valid = match block.valid() {
            None => None,
            Some(valid) => {
                let antennas = self.plan.antennas();
                let masks = Rows {
                    from: valid,
                    first: piece.channels.start * antennas,
                    pitch: Plan::mask_words(block.times()),
                    start: piece.times.start / 64,
                    length: Plan::mask_words(times),
                };
                let rows = channels * antennas;
                Some(masks.upload(rows, &mut self.masks, &self.work, &self.threads)?)
            }
        };
        let natural = self.natural.as_ref().map_or(0, Buffer::address);
        let input_stride = CornerTurn::stride(&self.shape, times);
        self.corner_turn.enqueue(packed, natural, channels, times, &self.work)?;
        let channel_stride = self.shape.inputs * input_stride;
        Ok((Spectra { address: natural, channel_stride, input_stride, times }, valid))
    }

    /// Waits for queued work after an error. Ignores the errors of that work, because the caller returns the first one.
    pub(super) fn settle(&self) {
        let _ = self.work.synchronize();
    }

    /// Marks that all work on the last piece is queued.
    pub(super) fn release(&mut self) -> Result<()> {
        self.packed.release(&self.work)?;
        self.masks.release(&self.work)
    }
}

/// Parts of rows to copy contiguously: elements `start .. start + length` of each row of `pitch` elements in `from`,
/// from row `first` on.
#[derive(Clone, Copy, Debug)]
struct Rows<'a, T> {
    from: &'a [T],
    first: usize,
    pitch: usize,
    start: usize,
    length: usize,
}

impl<T: Pod + Send + Sync> Rows<'_, T> {
    /// Queues the copy of `rows` rows to the device; returns their address.
    fn upload(
        &self,
        rows: usize,
        ring: &mut UploadRing<T>,
        work: &Stream,
        threads: &Threads,
    ) -> Result<u64> {
        let chunk = COPY_BYTES / size_of::<T>();
        let fill = |to: &mut [T]| {
            threads.for_each(to, chunk, |index, part| self.copy(index * chunk, part));
        };
        Ok(ring.upload(rows * self.length, work, fill)?.address())
    }

    /// Copies the concatenated parts to `to`, from their element `at` on.
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
    /// Samples of blocks without a mask, common to all baselines.
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
    /// Reads the sums of whole channels from `first` on. 32-bit sums are converted on the host, because their transfer
    /// takes half the time.
    pub(super) fn sums<N, T>(
        &self,
        downloads: &mut Downloader,
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
        downloads.download(
            elements,
            self.sums.words(clock),
            |range, to, stream| self.sums.read(clock, range, to, stream),
            |range, words, threads| {
                let to = &mut output[(range.start - start) * pairs..][..range.len() * pairs];
                if clock.is_settled() {
                    let from: &[Complex<T>] = bytemuck::cast_slice(words);
                    threads.for_each(to, READ, |index, to| {
                        to.copy_from_slice(&from[index * READ..][..to.len()]);
                    });
                } else {
                    let from: &[Complex<N>] = bytemuck::cast_slice(words);
                    threads.for_each(to, READ, |index, to| {
                        // Adding 0 converts -0.0 to 0.0, so that the bits do not depend on the split of the stream.
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
        downloads: &mut Downloader,
        first: usize,
        counts: &mut [u64],
    ) -> Result<()> {
        let all = self.counted.all;
        if !self.counted.some {
            counts.fill(all);
            return Ok(());
        }
        let start = first * self.plan.baselines();
        downloads.download(
            start..start + counts.len(),
            1,
            |range, to, stream| {
                let bytes = range.len() * size_of::<u64>();
                // SAFETY: source and destination hold this many counts.
                unsafe { stream.copy_within(self.masks.at(range.start), to, bytes) }
            },
            |range, words, threads| {
                let to = &mut counts[range.start - start..][..range.len()];
                threads.for_each(to, READ, |index, to| {
                    for (to, count) in to.iter_mut().zip(&words[index * READ..]) {
                        *to = all + count;
                    }
                });
            },
        )
    }
}

/// Staging of sums and counts to host memory.
#[derive(Debug)]
pub(super) struct Downloader {
    ring: DownloadRing<u64>,
    pub(super) work: Stream,
    threads: Threads,
}

impl Downloader {
    /// Allocates pieces of `words` 64-bit words, clamped to 16 to 2^20.
    pub(super) fn new(device: &Device, words: usize, threads: &Threads) -> Result<Self> {
        Ok(Self {
            ring: DownloadRing::new(device, words.clamp(16, 1 << 20), SLOTS)?,
            work: device.stream()?,
            threads: threads.clone(),
        })
    }

    /// Transfers elements of `words` words each. A piece holds at least one element. `make` queues the production of
    /// elements at a device address, `take` consumes their words on the host.
    fn download(
        &mut self,
        elements: Range<usize>,
        words: usize,
        make: impl FnMut(Range<usize>, u64, &Stream) -> Result<()>,
        take: impl FnMut(Range<usize>, &[u64], &Threads),
    ) -> Result<()> {
        let done = self.pieces(elements, words, make, take);
        // Work in flight must end before its memory is reused.
        done.inspect_err(|_| self.ring.discard())
    }

    fn pieces(
        &mut self,
        elements: Range<usize>,
        words: usize,
        mut make: impl FnMut(Range<usize>, u64, &Stream) -> Result<()>,
        mut take: impl FnMut(Range<usize>, &[u64], &Threads),
    ) -> Result<()> {
        let Self { ring, work, threads } = self;
        let mut receive = |ring: &mut DownloadRing<u64>| -> Result<bool> {
            let Some((range, words)) = ring.receive()? else { return Ok(false) };
            take(range, words, threads);
            Ok(true)
        };
        let each = ring.elements() / words;
        for start in elements.clone().step_by(each) {
            if ring.is_full() {
                receive(ring)?;
            }
            let range = start..elements.end.min(start + each);
            make(range.clone(), ring.target(work)?.address(), work)?;
            let count = range.len() * words;
            ring.send(range, count, work)?;
        }
        while receive(ring)? {}
        Ok(())
    }
}
