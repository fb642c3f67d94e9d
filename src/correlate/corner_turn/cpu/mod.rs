//! Corner turn on the CPU: tiles of a panel's inputs; each channel and group of times is one cache line.
//!
//! Rows are read a register of channels per input and time. A line holds a group of 4, 2 or 1 times, of 1, 2 or 8 bytes
//! each. All channels of a run of times are processed before the next run, so that rows are read sequentially and each
//! channel's panel is written several lines at a time.
//!
//! Invariant: tasks write disjoint parts of the packed block; values move, none changes.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::backend::simd::{Level, levels};
use crate::backend::threads::Threads;
use crate::correlate::block::{Rows, Spectra};
use crate::correlate::plan::{LANES, Plan};
use crate::voltage::Voltages;

/// Packed blocks of more bytes bypass the caches: their beginning would be evicted before the X-engine reads it.
const MAX_CACHED_BYTES: usize = 8 << 20;

/// Plan bound to vector instructions and threads.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    level: Level,
    threads: Threads,
    scratch: Vec<()>,
    /// One element per task; tasks need their index only.
    tasks: Vec<()>,
}

/// Packed block, shared by the tasks.
#[derive(Clone, Copy)]
struct Packed(*mut u8);

// SAFETY: each task writes its own channels, panels and times only.
unsafe impl Sync for Packed {}

impl Packed {
    fn at(self, place: usize) -> *mut u8 {
        self.0.wrapping_add(place)
    }
}

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level, threads: &Threads) -> Self {
        let scratch = vec![(); threads.count()];
        Self { plan: plan.clone(), level, threads: threads.clone(), scratch, tasks: Vec::new() }
    }

    /// Writes `times` spectra in the packed order.
    pub(super) fn run(&mut self, spectra: Spectra<'_>, times: usize, packed: &mut [u8]) {
        match spectra {
            _ if times == 0 => {}
            Spectra::Rows(rows) => self.rows(rows, times, packed),
            Spectra::Streams(voltages) => self.streams(voltages, packed),
        }
    }

    fn rows(&mut self, rows: Rows<'_>, times: usize, packed: &mut [u8]) {
        let Self { plan, level, threads, scratch, tasks } = self;
        let (size, panel_bytes) = (element_bytes(plan), plan.panel_bytes(times));
        let span = ZEROS.len() / size;
        let part = times_of_task(plan, times, plan.channels().div_ceil(span), threads.count());
        let parts = times.div_ceil(part);
        let streamed = is_streamed(packed, panel_bytes);
        let packed = Packed(packed.as_mut_ptr());
        tasks.resize(plan.channels().div_ceil(span) * parts * plan.panels(), ());
        let work = |_: &mut (), index: usize, _: &mut [()]| {
            let (panel, rest) = (index % plan.panels(), index / plan.panels());
            let (channel, start) = (rest / parts * span, rest % parts * part);
            let from = inputs(plan, panel, |input| {
                let place = (input * rows.times + rows.first) * plan.channels() + channel;
                &rows.bytes[place * size..]
            });
            let job = RowTiles {
                from,
                time_bytes: plan.channels() * size,
                channels: span.min(plan.channels() - channel),
                first: start,
                last: (start + part).min(times),
                to: packed.at((channel * plan.panels() + panel) * panel_bytes),
                panel_bytes,
                channel_bytes: plan.panels() * panel_bytes,
                streamed,
            };
            // SAFETY: the lengths of rows and block were checked against the plan; tasks differ in channels, times or
            // panel.
            unsafe { transpose_rows(*level, size, &job) }
        };
        threads.for_each_chunk(scratch, tasks, 1, work);
    }

    fn streams(&mut self, voltages: Voltages<'_>, packed: &mut [u8]) {
        let Self { plan, level, threads, scratch, tasks } = self;
        let panel_bytes = plan.panel_bytes(voltages.times());
        let streamed = is_streamed(packed, panel_bytes);
        let packed = Packed(packed.as_mut_ptr());
        tasks.resize(plan.channels() * plan.panels(), ());
        let work = |_: &mut (), index: usize, _: &mut [()]| {
            let (channel, panel) = (index / plan.panels(), index % plan.panels());
            let spectra = Spectra::Streams(voltages);
            let job = Streams {
                from: inputs(plan, panel, |input| spectra.sample(plan, input, channel, 0)),
                bytes: voltages.times() * element_bytes(plan),
                to: packed.at(index * panel_bytes),
                panel_bytes,
                pairs: element_bytes(plan) == 1,
                streamed,
            };
            // SAFETY: the lengths of streams and block were checked against the plan; tasks differ in channel or
            // panel.
            unsafe { transpose_streams(*level, &job) }
        };
        threads.for_each_chunk(scratch, tasks, 1, work);
    }
}

fn element_bytes(plan: &Plan) -> usize {
    plan.encoding().sample_bits() / 8
}

/// Returns the first sample of each input of a panel; null for padding inputs.
fn inputs<'a>(plan: &Plan, panel: usize, from: impl Fn(usize) -> &'a [u8]) -> [*const u8; LANES] {
    std::array::from_fn(|lane| {
        let input = panel * LANES + lane;
        if input < plan.inputs() { from(input).as_ptr() } else { std::ptr::null() }
    })
}

/// Returns the times per task, in whole runs: a few tasks per thread if channels and panels alone are too few.
fn times_of_task(plan: &Plan, times: usize, spans: usize, threads: usize) -> usize {
    let parts = if threads == 1 { 1 } else { (4 * threads).div_ceil(spans * plan.panels()) };
    times.div_ceil(parts).next_multiple_of(RUN)
}

/// Returns whether lines bypass the caches: only whole, aligned ones of large blocks.
fn is_streamed(packed: &[u8], panel_bytes: usize) -> bool {
    let aligned = packed.as_ptr().addr().is_multiple_of(LINE) && panel_bytes.is_multiple_of(LINE);
    packed.len() > MAX_CACHED_BYTES && aligned
}

/// Prefetch distance in bytes of each stream.
const STREAM_AHEAD: usize = 1024;

/// Streams of a panel in one channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams {
    /// Samples of each input; null for padding inputs.
    from: [*const u8; LANES],
    /// Bytes of each stream.
    bytes: usize,
    /// Destination panel.
    to: *mut u8,
    panel_bytes: usize,
    /// Whether a word holds two pairs of times, to be split.
    pairs: bool,
    /// Whether stores bypass the caches.
    streamed: bool,
}

levels!(transpose_streams, transpose_streams_body, (job: &Streams));

/// Transposes the streams of one panel and channel.
///
/// # Safety
/// The samples of the job are readable. Its panel is writable and not shared; a streamed panel is aligned to a cache
/// line.
#[inline(always)]
unsafe fn transpose_streams_body<V: Vector>(job: &Streams) {
    let step = 4 * V::LANES;
    for start in (0..job.bytes).step_by(step) {
        let (bytes, at) = (step.min(job.bytes - start), start / 4 * LINE);
        // SAFETY: the streams hold these bytes, and the panel these lines.
        unsafe {
            let to = job.to.add(at);
            let at = |from: *const u8| from.wrapping_add(start);
            let zeros = ZEROS.as_ptr();
            let mut rows = job.from.map(|from| if from.is_null() { zeros } else { at(from) });
            if bytes == step {
                stream_tile::<V>(job, &rows, to, job.streamed);
            } else {
                let mut copies = [[0u8; LINE]; LANES];
                let mut lines = [0u8; LANES * LINE];
                for (row, copy) in rows.iter_mut().zip(&mut copies) {
                    copy.as_mut_ptr().copy_from_nonoverlapping(*row, bytes);
                    *row = copy.as_ptr();
                }
                stream_tile::<V>(job, &rows, lines.as_mut_ptr(), false);
                let left = job.panel_bytes - start / 4 * LINE;
                to.copy_from_nonoverlapping(lines.as_ptr(), left);
            }
        }
    }
    if job.streamed {
        // SAFETY: the caller guarantees the instructions.
        unsafe { V::fence() }
    }
}

/// Transposes one register of each input.
///
/// # Safety
/// Each row holds a register, and a line per word of it is writable.
#[inline(always)]
unsafe fn stream_tile<V: Vector>(
    job: &Streams,
    rows: &[*const u8; LANES],
    to: *mut u8,
    streamed: bool,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let mut tile = [V::load(ZEROS.as_ptr()); LANES];
        for (words, row) in tile.iter_mut().zip(rows) {
            V::prefetch(row.wrapping_add(STREAM_AHEAD));
            *words = V::load(*row);
        }
        V::transpose(&mut tile);
        for line in 0..V::LANES {
            if job.pairs {
                V::split(&mut tile, line);
            }
            put::<V>(&tile, line, to.add(line * LINE), streamed);
        }
    }
}

/// Times of a run.
pub(super) const RUN: usize = 16;

/// Prefetch distance in bytes of each row of spectra.
const ROW_AHEAD: usize = 256;

/// Source of padding inputs and times: zeros, as long as the longest run of channels.
pub(super) static ZEROS: [u8; 4096] = [0; 4096];

/// Spectra of a panel, for some channels and times.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowTiles {
    /// First channel of each input at time 0; null for padding inputs.
    pub(super) from: [*const u8; LANES],
    /// Bytes from one time to the next.
    pub(super) time_bytes: usize,
    /// Channels; at most as many as [`ZEROS`] holds.
    pub(super) channels: usize,
    /// First time, a multiple of the times of a line.
    pub(super) first: usize,
    /// Time after the last.
    pub(super) last: usize,
    /// Panel of the first channel, from time 0 on.
    pub(super) to: *mut u8,
    pub(super) panel_bytes: usize,
    /// Bytes from one channel's panel to the next.
    pub(super) channel_bytes: usize,
    /// Whether stores bypass the caches.
    pub(super) streamed: bool,
}

levels!(transpose_rows, transpose_rows_body, (element_bytes: usize, job: &RowTiles));

/// Transposes spectra of 1, 2 or 8 bytes a sample.
///
/// # Safety
/// The rows of the job are readable. Its lines are writable and not shared; streamed lines are aligned to cache
/// lines.
#[inline(always)]
unsafe fn transpose_rows_body<V: Vector>(element_bytes: usize, job: &RowTiles) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        match element_bytes {
            1 => transpose_groups::<V, 4>(job),
            2 => transpose_groups::<V, 2>(job),
            _ => transpose_groups::<V, 1>(job),
        }
        if job.streamed {
            V::fence();
        }
    }
}

/// # Safety
/// As for [`transpose_rows_body`].
#[inline(always)]
unsafe fn transpose_groups<V: Vector, const TIMES: usize>(job: &RowTiles) {
    let channels = 4 * V::LANES / size(TIMES);
    let mut rows = [ZEROS.as_ptr(); RUN * LANES];
    for time in (job.first..job.last).step_by(RUN) {
        job.rows(time, TIMES, &mut rows);
        let groups = RUN.min(job.last - time).div_ceil(TIMES);
        for start in (0..job.channels).step_by(channels) {
            let columns = Columns::new(job, start * size(TIMES), size(TIMES));
            for (group, rows) in rows.chunks_exact(TIMES * LANES).take(groups).enumerate() {
                let line = (time / TIMES + group) * line_bytes(TIMES);
                let bytes = line_bytes(TIMES).min(job.panel_bytes - line);
                let count = channels.min(job.channels - start);
                // SAFETY: by this function's contract the rows hold these channels and the block these lines.
                unsafe {
                    let to = job.to.add(start * job.channel_bytes + line);
                    let RowTiles { channel_bytes, streamed, .. } = *job;
                    let place = Place { to, channel_bytes, streamed };
                    if count == channels && bytes == line_bytes(TIMES) {
                        tile::<V, TIMES>(rows, columns, &place);
                    } else {
                        part::<V, TIMES>(rows, columns, &place, count, bytes);
                    }
                }
            }
        }
    }
}

/// Returns the bytes of a sample in a line of `times` times.
const fn size(times: usize) -> usize {
    if times == 1 { 8 } else { 4 / times }
}

/// Returns the bytes of a channel's lines: real and imaginary parts of floats have one each.
const fn line_bytes(times: usize) -> usize {
    if times == 1 { 2 * LINE } else { LINE }
}

impl RowTiles {
    /// Fills in the rows of a run of times; axes group of times, input, time of the group.
    fn rows(&self, first: usize, of_group: usize, rows: &mut [*const u8; RUN * LANES]) {
        for (i, row) in rows.iter_mut().enumerate() {
            let (group, input) = (i / (of_group * LANES), i / of_group % LANES);
            let (time, from) = (first + group * of_group + i % of_group, self.from[input]);
            let is_padding = from.is_null() || time >= self.last;
            let from = from.wrapping_add(time * self.time_bytes);
            *row = if is_padding { ZEROS.as_ptr() } else { from };
        }
    }
}

/// Offsets in each row, in bytes: of the part to process, and of the part to prefetch.
#[derive(Clone, Copy)]
struct Columns {
    start: usize,
    ahead: usize,
}

impl Columns {
    /// Prefetches the next part of the row, or of the row that is processed after it.
    fn new(job: &RowTiles, start: usize, size: usize) -> Self {
        let (ahead, row) = (start + ROW_AHEAD, job.channels * size);
        let next = (RUN * job.time_bytes).wrapping_sub(row);
        Self { start, ahead: if ahead < row { ahead } else { ahead.wrapping_add(next) } }
    }
}

/// Destination of a tile's lines; `to` is the line of the first channel.
struct Place {
    to: *mut u8,
    channel_bytes: usize,
    streamed: bool,
}

/// Transposes some of the channels of a tile, or writes only the first bytes of each line.
///
/// # Safety
/// As for [`transpose_rows_body`].
#[inline(always)]
unsafe fn part<V: Vector, const TIMES: usize>(
    rows: &[*const u8],
    columns: Columns,
    place: &Place,
    channels: usize,
    bytes: usize,
) {
    let (mut copies, mut lines) = ([0u8; LINES * LINE], [0u8; LINES * LINE]);
    let mut copied = [ZEROS.as_ptr(); LINES];
    // SAFETY: the caller upholds this function's contract; copies and lines hold the largest tile.
    unsafe {
        for (i, (row, copy)) in rows.iter().zip(&mut copied).enumerate() {
            let to = copies.as_mut_ptr().add(i * LINE);
            to.copy_from_nonoverlapping(row.add(columns.start), channels * size(TIMES));
            *copy = to;
        }
        let to = lines.as_mut_ptr();
        let whole = Place { to, channel_bytes: line_bytes(TIMES), streamed: false };
        tile::<V, TIMES>(&copied, Columns { start: 0, ahead: 0 }, &whole);
        for channel in 0..channels {
            let line = lines.as_ptr().add(channel * line_bytes(TIMES));
            place.to.add(channel * place.channel_bytes).copy_from_nonoverlapping(line, bytes);
        }
    }
}

/// Transposes one register of each row.
///
/// # Safety
/// As for [`transpose_rows_body`]; each row has a register from its columns' start on.
#[inline(always)]
unsafe fn tile<V: Vector, const TIMES: usize>(rows: &[*const u8], columns: Columns, place: &Place) {
    let rows = &rows[..TIMES * LANES];
    // SAFETY: the caller upholds this function's contract; a prefetch reads nothing.
    unsafe {
        for row in rows {
            V::prefetch(row.wrapping_add(columns.ahead));
        }
        let mut tiles = [[V::load(ZEROS.as_ptr()); LANES]; TIMES];
        for input in 0..LANES {
            let load =
                |time: usize| V::load(rows[input * TIMES + time].wrapping_add(columns.start));
            match TIMES {
                4 => {
                    let (a, b) = load(0).unpack_bytes(load(1));
                    let (c, d) = load(2).unpack_bytes(load(3));
                    (tiles[0][input], tiles[1][input]) = a.unpack_shorts(c);
                    (tiles[2][input], tiles[3][input]) = b.unpack_shorts(d);
                }
                2 => (tiles[0][input], tiles[1][input]) = load(0).unpack_shorts(load(1)),
                _ => tiles[0][input] = load(0),
            }
        }
        for (quarter, tile) in tiles.iter_mut().enumerate() {
            V::transpose(tile);
            for line in 0..V::LANES {
                let word = (line / 4 * TIMES + quarter) * 4 + line % 4;
                let at = match TIMES {
                    1 => word / 2 * place.channel_bytes + word % 2 * LINE,
                    _ => word * place.channel_bytes,
                };
                if TIMES == 4 {
                    V::split(tile, line);
                }
                put::<V>(tile, line, place.to.add(at), place.streamed);
            }
        }
    }
}

/// Register of 32-bit words.
///
/// # Safety
/// Every method may be called only where the level's instructions exist; pointers must be valid for
/// what a method reads or writes.
pub(super) unsafe trait Vector: Copy {
    /// Words in the register: 4, 8 or 16.
    const LANES: usize;
    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    /// Stores without allocating cache lines; `to` is aligned to the register's size.
    unsafe fn stream(self, to: *mut u8);
    /// Prefetches the cache line of an address, which need not be valid.
    unsafe fn prefetch(from: *const u8);
    /// Orders a run of [`Vector::stream`] before later stores.
    unsafe fn fence();
    /// Interleaves bytes of both, of the low halves of each 128 bits and of the high halves.
    unsafe fn unpack_bytes(self, other: Self) -> (Self, Self);
    /// Like [`Vector::unpack_bytes`], for 16-bit values.
    unsafe fn unpack_shorts(self, other: Self) -> (Self, Self);
    /// Transposes each square of `LANES` rows.
    unsafe fn transpose(rows: &mut [Self; 16]);
    /// Reorders row `line` of all squares together: the 16-bit values at even positions, then those at odd ones.
    unsafe fn split(rows: &mut [Self; 16], line: usize);
}

/// Plain arrays, which the compiler vectorizes.
#[derive(Clone, Copy)]
pub(super) struct Portable([[u8; 4]; 4]);

// SAFETY: nothing is required beyond valid pointers, which callers guarantee.
unsafe impl Vector for Portable {
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller guarantees 16 readable bytes.
        Self(unsafe { from.cast::<[[u8; 4]; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller guarantees 16 writable bytes.
        unsafe { to.cast::<[[u8; 4]; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: as for `store`.
        unsafe { self.store(to) }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
    #[inline(always)]
    unsafe fn fence() {}
    #[inline(always)]
    unsafe fn unpack_bytes(self, other: Self) -> (Self, Self) {
        let (a, b) = (self.0, other.0);
        let word = |i: usize| {
            let (row, at) = (i / 2, i % 2 * 2);
            [a[row][at], b[row][at], a[row][at + 1], b[row][at + 1]]
        };
        (Self([0, 1, 2, 3].map(word)), Self([4, 5, 6, 7].map(word)))
    }
    #[inline(always)]
    unsafe fn unpack_shorts(self, other: Self) -> (Self, Self) {
        let (a, b) = (self.0, other.0);
        let word = |i: usize| {
            let (row, at) = (i / 2, i % 2 * 2);
            [a[row][at], a[row][at + 1], b[row][at], b[row][at + 1]]
        };
        (Self([0, 1, 2, 3].map(word)), Self([4, 5, 6, 7].map(word)))
    }
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; 16]) {
        for square in rows.chunks_exact_mut(4) {
            let [a, b, c, d] = [square[0].0, square[1].0, square[2].0, square[3].0];
            for (i, row) in square.iter_mut().enumerate() {
                row.0 = [a[i], b[i], c[i], d[i]];
            }
        }
    }
    #[inline(always)]
    unsafe fn split(rows: &mut [Self; 16], line: usize) {
        let words = [0, 1, 2, 3].map(|square| rows[4 * square + line].0);
        let half = |word: usize, at: usize| {
            let two = &words[word / 4][word % 4][at..at + 2];
            [two[0], two[1]]
        };
        for square in 0..4 {
            let (first, at) = (square % 2 * 8, square / 2 * 2);
            rows[4 * square + line].0 = [0, 1, 2, 3].map(|i| {
                let ([a, b], [c, d]) = (half(first + 2 * i, at), half(first + 2 * i + 1, at));
                [a, b, c, d]
            });
        }
    }
}

/// Bytes of a cache line: one 32-bit word of each of 16 inputs.
pub(super) const LINE: usize = 64;

/// Lines of the largest tile.
pub(super) const LINES: usize = 64;

/// Writes a line of a tile.
///
/// # Safety
/// The line is writable, and aligned to a cache line if it is streamed.
#[inline(always)]
pub(super) unsafe fn put<V: Vector>(
    tile: &[V; LANES],
    line: usize,
    to: *mut u8,
    is_streamed: bool,
) {
    for i in 0..LANES / V::LANES {
        // SAFETY: the caller upholds this function's contract; a line is 16 words.
        unsafe {
            let (register, to) = (tile[i * V::LANES + line], to.add(4 * i * V::LANES));
            if is_streamed { register.stream(to) } else { register.store(to) }
        }
    }
}
