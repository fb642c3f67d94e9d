//! History: channel-major samples, as many as the longest delay and one block need.
//!
//! Invariant: a row holds its samples in a circle of `capacity` elements, and its first `mirror`
//! elements once more behind the circle's end, so that short reads never wrap.

use super::super::plan::{Lane, Plan};
use super::transpose::transpose;
use super::unpack::{Unpack, WIDTH};
use super::vector::prefetch;
use crate::backend::threads::Threads;
use crate::sample::Samples;

/// Largest number of channel strips that one thread fills side by side.
const MOST_STRIPS: usize = 8;

/// Binned times per corner-turn step.
pub(super) const TIMES: usize = 128;

/// Element of the history.
pub(super) trait Element: bytemuck::Pod + Default + Send + Sync {
    /// Adds two elements; the plan's checks exclude overflow.
    fn plus(self, other: Self) -> Self;
    /// Converts a small count.
    fn from_u8(value: u8) -> Self;
    /// Converts a value above the range's lower end; the plan's checks guarantee that it fits.
    fn from_u32(value: u32) -> Self;
}

macro_rules! integer_element {
    ($($type:ty),*) => {$(
        impl Element for $type {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
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

integer_element!(u8, u16, u32);

impl Element for f32 {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
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

    pub(super) fn data(&self) -> &[L] {
        &self.data
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
        let strips = (self.size.rows / (4 * WIDTH * threads.count())).clamp(1, MOST_STRIPS);
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
        let bin = self.unpack.downsample();
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
        let bin = self.unpack.downsample();
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
        self.store(turn, (first, bins), channels, rows);
    }

    /// Prefetches the cache lines that the next bins are written to.
    fn ask<L: Element>(&self, first: u64, rows: &[L]) {
        let position = (first % self.size.capacity as u64) as usize;
        for row in rows.chunks_exact(self.size.stride()) {
            prefetch(&row[position..position + TIMES]);
        }
    }

    /// Copies transposed channels to their rows: complete bins, then the incomplete one.
    fn store<L: Element>(
        &self,
        turn: &Turn<L>,
        (first, bins): (u64, usize),
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
        match self {
            Self::U8(history) => history.load(input, before, threads),
            Self::U16(history) => history.load(input, before, threads),
            Self::U32(history) => history.load(input, before, threads),
            Self::F32(history) => history.load(input, before, threads),
        }
    }

    /// Returns the address of the first element.
    pub(super) fn bytes(&self) -> *const u8 {
        match self {
            Self::U8(history) => history.data().as_ptr(),
            Self::U16(history) => history.data().as_ptr().cast(),
            Self::U32(history) => history.data().as_ptr().cast(),
            Self::F32(history) => history.data().as_ptr().cast(),
        }
    }
}
