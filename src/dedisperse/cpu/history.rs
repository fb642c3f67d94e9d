//! History: channel-major samples, as many as the longest delay and one block need, unpacked and transposed from input rows.
//!
//! Invariant: a row holds its samples in a circle of `capacity` elements, and its first `mirror`
//! elements once more behind the circle's end, so that short reads never wrap.
#![allow(unsafe_code)]

use std::ops::Add;

use super::super::plan::{Lane, Plan};
use crate::backend::threads::Threads;
use crate::backend::vector::prefetch;
use crate::sample::{Encoding, Samples};

/// Largest number of channel strips that one thread fills side by side.
const MAX_STRIPS: usize = 8;

/// Binned times per corner-turn step.
const TIMES: usize = 128;

/// Element of the history.
pub(super) trait Element: bytemuck::Pod + Default + Send + Sync {
    /// Adds two elements; the plan's checks exclude overflow.
    fn plus(self, other: Self) -> Self;
    /// Converts a small count.
    fn from_u8(value: u8) -> Self;
    /// Converts a value above the range's lower end; the plan's checks guarantee that it fits.
    fn from_u32(value: u32) -> Self;
}

macro_rules! elements {
    ($($type:ty: $plus:ident),*) => {$(
        impl Element for $type {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.$plus(other)
            }
            #[inline(always)]
            fn from_u8(value: u8) -> Self {
                Self::from(value)
            }
            #[inline(always)]
            fn from_u32(value: u32) -> Self {
                value as Self
            }
        }
    )*};
}

elements!(u8: wrapping_add, u16: wrapping_add, u32: wrapping_add, f32: add);

/// Sizes of a history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) rows: usize,
    pub(super) capacity: usize,
    pub(super) mirror: usize,
}

impl Size {
    /// Returns the elements between rows: ring, mirror, the incomplete bin, and padding that spreads rows over a
    /// cache's sets.
    pub(super) fn stride(&self) -> usize {
        (self.capacity + self.mirror.max(TIMES) + 1).next_multiple_of(128) + 64
    }
}

/// Channel-major samples.
#[derive(Debug)]
pub(super) struct History<L> {
    data: Vec<L>,
    size: Size,
    /// Recorded channel of each row.
    channels: Vec<usize>,
    unpack: Unpack,
    /// One buffer per thread.
    scratch: Vec<Turn<L>>,
}

/// Corner-turn buffers of a thread: axes time, channel and the transpose.
#[derive(Debug)]
struct Turn<L> {
    times: Vec<[L; WIDTH]>,
    channels: Vec<[L; TIMES]>,
}

impl<L: Element> History<L> {
    pub(super) fn new(plan: &Plan, size: Size, threads: &Threads) -> Self {
        let turn = || Turn {
            times: vec![[L::default(); WIDTH]; TIMES],
            channels: vec![[L::default(); TIMES]; WIDTH],
        };
        Self {
            // Spare elements after the last row, for whole vectors.
            data: vec![L::default(); size.rows * size.stride() + 512],
            size,
            channels: plan.channels_used().to_vec(),
            unpack: Unpack::new(plan),
            scratch: (0..threads.count()).map(|_| turn()).collect(),
        }
    }

    /// Loads input rows; `before` rows came earlier.
    pub(super) fn load(&mut self, input: Samples<'_>, before: u64, threads: &Threads) {
        let stride = self.size.stride();
        let filler = Filler {
            input,
            before,
            size: self.size,
            channels: &self.channels,
            unpack: &self.unpack,
        };
        let rows = &mut self.data[..self.size.rows * stride];
        let strips = (self.size.rows / (4 * WIDTH * threads.count())).clamp(1, MAX_STRIPS);
        let chunk = strips * WIDTH;
        threads.for_each_chunk(&mut self.scratch, rows, chunk * stride, |turn, index, rows| {
            filler.fill(turn, index * chunk, rows);
        });
    }
}

/// Fills rows of the history from one stretch of input.
#[derive(Clone, Copy)]
struct Filler<'a> {
    input: Samples<'a>,
    before: u64,
    size: Size,
    channels: &'a [usize],
    unpack: &'a Unpack,
}

impl Filler<'_> {
    /// Fills history rows from `first` on: all their channels for a few times, then the next times, so that whole
    /// stretches of input rows are read while they are in the cache.
    fn fill<L: Element>(&self, turn: &mut Turn<L>, first: usize, rows: &mut [L]) {
        let stride = self.size.stride();
        let channels = &self.channels[first..first + rows.len() / stride];
        let bin = self.unpack.downsample;
        let mut time = 0;
        while time < self.input.times() {
            let before = self.before + time as u64;
            let open = (before % bin as u64) as usize;
            let times = (TIMES * bin - open).min(self.input.times() - time);
            let part = Self { input: self.input.slice(time, times), before, ..*self };
            let mut done = 0;
            while done < channels.len() {
                let strip = channels[done] / WIDTH;
                let within = channels[done..].iter().take_while(|c| **c / WIDTH == strip).count();
                let rows = &mut rows[done * stride..][..within * stride];
                part.strip(turn, open, &channels[done..done + within], rows);
                done += within;
            }
            time += times;
        }
    }

    /// Fills the rows of the channels in one strip of the input, over at most [`TIMES`] bins. The first bin already
    /// holds `open` rows.
    fn strip<L: Element>(
        &self,
        turn: &mut Turn<L>,
        open: usize,
        channels: &[usize],
        rows: &mut [L],
    ) {
        let bin = self.unpack.downsample;
        if open > 0 {
            let stride = self.size.stride();
            for (channel, row) in channels.iter().zip(rows.chunks_exact(stride)) {
                turn.times[0][channel % WIDTH] = row[stride - 1];
            }
        }
        let first = self.before / bin as u64;
        self.ask(first, rows);
        self.unpack.run(self.input, channels[0] / WIDTH, open, &mut turn.times);
        let bins = (open + self.input.times()) / bin;
        // The incomplete bin is transposed too.
        transpose(&turn.times, (bins + 1).min(TIMES), &mut turn.channels);
        self.store(turn, first, bins, channels, rows);
    }

    /// Prefetches the cache lines that the next bins are written to.
    fn ask<L: Element>(&self, first: u64, rows: &[L]) {
        let position = (first % self.size.capacity as u64) as usize;
        for row in rows.chunks_exact(self.size.stride()) {
            prefetch_all(&row[position..position + TIMES]);
        }
    }

    /// Copies transposed channels to their rows: complete bins, then the incomplete one.
    fn store<L: Element>(
        &self,
        turn: &Turn<L>,
        first: u64,
        bins: usize,
        channels: &[usize],
        rows: &mut [L],
    ) {
        let position = (first % self.size.capacity as u64) as usize;
        let stride = self.size.stride();
        for (channel, row) in channels.iter().zip(rows.chunks_exact_mut(stride)) {
            let values = &turn.channels[channel % WIDTH];
            if let Some(open) = values.get(bins) {
                row[stride - 1] = *open;
            }
            self.put(row, position, &values[..bins]);
        }
    }

    /// Writes values into a row's ring and its mirror.
    fn put<L: Element>(&self, row: &mut [L], position: usize, values: &[L]) {
        let Size { capacity, mirror, .. } = self.size;
        let whole = values.len().min(capacity - position);
        row[position..position + whole].copy_from_slice(&values[..whole]);
        row[..values.len() - whole].copy_from_slice(&values[whole..]);
        if position < mirror {
            let part = whole.min(mirror - position);
            row[capacity + position..][..part].copy_from_slice(&values[..part]);
        }
        let part = (values.len() - whole).min(mirror);
        row[capacity..][..part].copy_from_slice(&values[whole..whole + part]);
    }
}

/// History in the element type that the plan needs.
#[derive(Debug)]
pub(super) enum Lanes {
    U8(History<u8>),
    U16(History<u16>),
    U32(History<u32>),
    F32(History<f32>),
}

/// Evaluates an expression of the history in any element type.
macro_rules! each {
    ($lanes:expr, $history:ident => $value:expr) => {
        match $lanes {
            Lanes::U8($history) => $value,
            Lanes::U16($history) => $value,
            Lanes::U32($history) => $value,
            Lanes::F32($history) => $value,
        }
    };
}

impl Lanes {
    pub(super) fn new(lane: Lane, plan: &Plan, size: Size, threads: &Threads) -> Self {
        match lane {
            Lane::U8 => Self::U8(History::new(plan, size, threads)),
            Lane::U16 => Self::U16(History::new(plan, size, threads)),
            Lane::U32 => Self::U32(History::new(plan, size, threads)),
            Lane::F32 => Self::F32(History::new(plan, size, threads)),
        }
    }

    pub(super) fn load(&mut self, input: Samples<'_>, before: u64, threads: &Threads) {
        each!(self, history => history.load(input, before, threads));
    }

    /// Returns the address of the first element.
    pub(super) fn bytes(&self) -> *const u8 {
        each!(self, history => history.data.as_ptr().cast())
    }
}

/// Channels in a strip: whole bytes for every encoding.
const WIDTH: usize = 64;

/// Rows to prefetch ahead; they are too far apart for the hardware prefetcher.
const AHEAD: usize = 24;

/// Conversion of samples to elements.
#[derive(Debug)]
struct Unpack {
    encoding: Encoding,
    downsample: usize,
    low: i32,
    high: i32,
    /// Whether the range covers the whole encoding, so that no value is clipped.
    whole: bool,
    /// For each byte value, its packed samples, one per byte.
    packed: Vec<u64>,
}

impl Unpack {
    pub(super) fn new(plan: &Plan) -> Self {
        let (low, high) = plan.range();
        let encoding = plan.encoding();
        let bits = encoding.bits();
        let expand = |byte: u64| {
            let sample = |k: usize| (byte >> (k * bits) & ((1 << bits) - 1)) << (8 * k);
            (0..8 / bits).map(sample).sum()
        };
        let packed = if bits < 8 { (0..256).map(expand).collect() } else { Vec::new() };
        Self {
            encoding,
            downsample: plan.downsample(),
            low,
            high,
            whole: encoding.range() == Some((low, high)),
            packed,
        }
    }

    /// Sums input rows of one strip of channels into bins; the first bin already holds `open` rows.
    pub(super) fn run<L: Element>(
        &self,
        input: Samples<'_>,
        strip: usize,
        open: usize,
        bins: &mut [[L; WIDTH]],
    ) {
        let channels = WIDTH.min(input.channels() - strip * WIDTH);
        let start = strip * WIDTH * self.encoding.bits() / 8;
        let bytes = channels * self.encoding.bits() / 8;
        let (mut bin, mut filled) = (0, open);
        for time in 0..input.times() {
            if time + AHEAD < input.times() {
                prefetch_all(&input.row(time + AHEAD)[start..start + bytes]);
            }
            let row = &input.row(time)[start..start + bytes];
            self.row(row, filled > 0, &mut bins[bin]);
            filled += 1;
            if filled == self.downsample {
                (bin, filled) = (bin + 1, 0);
            }
        }
    }

    fn row<L: Element>(&self, row: &[u8], add: bool, sums: &mut [L; WIDTH]) {
        match self.encoding {
            Encoding::F32 => {
                let values =
                    row.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                put(values.map(|x| bytemuck::cast::<f32, L>(x)), add, sums);
            }
            Encoding::U16 => {
                let values = row.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
                put(values.map(|x| self.element(i32::from(x))), add, sums);
            }
            Encoding::I16 => {
                let values = row.chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]]));
                put(values.map(|x| self.element(i32::from(x))), add, sums);
            }
            Encoding::U8 if self.whole => put(row.iter().map(|x| L::from_u8(*x)), add, sums),
            Encoding::U8 => put(row.iter().map(|x| self.element(i32::from(*x))), add, sums),
            Encoding::I8 if self.whole => {
                put(row.iter().map(|x| L::from_u8(*x ^ 0x80)), add, sums);
            }
            Encoding::I8 => put(row.iter().map(|x| self.element(i32::from(*x as i8))), add, sums),
            Encoding::U1 => self.packed_row::<L, 8>(row, add, sums),
            Encoding::U2 => self.packed_row::<L, 4>(row, add, sums),
            Encoding::U4 => self.packed_row::<L, 2>(row, add, sums),
        }
    }

    #[inline(always)]
    fn element<L: Element>(&self, value: i32) -> L {
        L::from_u32((value.clamp(self.low, self.high) - self.low) as u32)
    }

    /// Unpacks a row of samples of `8 / EACH` bits.
    fn packed_row<L: Element, const EACH: usize>(
        &self,
        row: &[u8],
        add: bool,
        sums: &mut [L; WIDTH],
    ) {
        let mut values = [[0u8; EACH]; WIDTH];
        for (values, byte) in values.iter_mut().zip(row) {
            let samples = self.packed[usize::from(*byte)].to_le_bytes();
            values.copy_from_slice(&samples[..EACH]);
        }
        let values = values.as_flattened().iter();
        if self.whole {
            put(values.map(|x| L::from_u8(*x)), add, sums);
        } else {
            put(values.map(|x| self.element(i32::from(*x))), add, sums);
        }
    }
}

/// Prefetches the cache lines that hold `values`.
#[inline(always)]
fn prefetch_all<T>(values: &[T]) {
    for line in (0..size_of_val(values)).step_by(64) {
        prefetch(values.as_ptr().cast::<u8>().wrapping_add(line));
    }
}

#[inline(always)]
fn put<L: Element>(values: impl Iterator<Item = L>, add: bool, sums: &mut [L; WIDTH]) {
    if add {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.plus(value));
    } else {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = value);
    }
}

/// Side of the squares that are transposed at once, so that both sides stay in few cache lines.
const TILE: usize = 16;

/// Computes `output[c][t] = input[t][c]` for the first `times` of the input, rounded up to whole squares.
fn transpose<L: Element>(input: &[[L; WIDTH]], times: usize, output: &mut [[L; TIMES]]) {
    for time in (0..times).step_by(TILE) {
        for channel in (0..WIDTH).step_by(TILE) {
            if size_of::<L>() == 1 {
                let input: &[[u8; WIDTH]] = bytemuck::cast_slice(input);
                square_of_bytes(input, bytemuck::cast_slice_mut(output), time, channel);
            } else {
                square(input, output, time, channel);
            }
        }
    }
}

fn square<L: Element>(
    input: &[[L; WIDTH]],
    output: &mut [[L; TIMES]],
    time: usize,
    channel: usize,
) {
    for (c, row) in output[channel..channel + TILE].iter_mut().enumerate() {
        let row = &mut row[time..time + TILE];
        for (value, input) in row.iter_mut().zip(&input[time..time + TILE]) {
            *value = input[channel + c];
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn square_of_bytes(input: &[[u8; WIDTH]], output: &mut [[u8; TIMES]], time: usize, channel: usize) {
    square(input, output, time, channel);
}

/// Interleaves row k with row k + 8 four times: each round moves one bit of the row number into the column number, so
/// that four rounds exchange the two.
#[cfg(target_arch = "x86_64")]
fn square_of_bytes(input: &[[u8; WIDTH]], output: &mut [[u8; TIMES]], time: usize, channel: usize) {
    use std::arch::x86_64::{
        __m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_unpackhi_epi8, _mm_unpacklo_epi8,
    };
    let load = |t: usize| -> __m128i {
        let row: &[u8] = &input[time + t][channel..channel + TILE];
        // SAFETY: the slice has 16 bytes; SSE2 is part of every x86-64.
        unsafe { _mm_loadu_si128(row.as_ptr().cast()) }
    };
    let mut rows: [__m128i; TILE] = std::array::from_fn(load);
    for _ in 0..4 {
        // SAFETY: SSE2 is part of every x86-64.
        rows = std::array::from_fn(|k| unsafe {
            if k.is_multiple_of(2) {
                _mm_unpacklo_epi8(rows[k / 2], rows[k / 2 + TILE / 2])
            } else {
                _mm_unpackhi_epi8(rows[k / 2], rows[k / 2 + TILE / 2])
            }
        });
    }
    for (row, output) in rows.iter().zip(&mut output[channel..channel + TILE]) {
        let output = &mut output[time..time + TILE];
        // SAFETY: the slice has 16 bytes.
        unsafe { _mm_storeu_si128(output.as_mut_ptr().cast(), *row) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_and_times_change_places() {
        let bytes: Vec<[u8; WIDTH]> =
            (0..TIMES).map(|t| std::array::from_fn(|c| (t * 7 + c * 31) as u8)).collect();
        let words: Vec<[u16; WIDTH]> = bytes.iter().map(|row| row.map(u16::from)).collect();
        let mut turned = vec![[0u8; TIMES]; WIDTH];
        let mut turned_words = vec![[0u16; TIMES]; WIDTH];
        transpose(&bytes, TIMES, &mut turned);
        transpose(&words, TIMES, &mut turned_words);
        for (c, row) in turned.iter().enumerate() {
            for (t, value) in row.iter().enumerate() {
                assert_eq!(*value, bytes[t][c]);
                assert_eq!(turned_words[c][t], u16::from(*value));
            }
        }
    }
}
