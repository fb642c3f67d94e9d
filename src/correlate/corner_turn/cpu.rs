//! Corner turn on the CPU, in register tiles of the inputs of one panel.
//!
//! A tile loads one register of channels per input and time. A channel's group of times fills one cache line (4 times
//! of 1-byte samples or 2 of 2-byte samples) or two (1 time of 8-byte samples). All channels of a run of times are
//! processed before the next run, so that rows are read sequentially and each channel's panel is written several lines
//! at a time.
//!
//! Invariant: tasks write disjoint parts of the packed block; samples are copied unchanged.
#![allow(unsafe_code)]

use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::backend::vector::{self, Portable, Vector, levels};
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

/// Returns the times per task, in whole runs. Divides time only if channels and panels give too few tasks.
fn times_of_task(plan: &Plan, times: usize, spans: usize, threads: usize) -> usize {
    let parts = if threads == 1 { 1 } else { (4 * threads).div_ceil(spans * plan.panels()) };
    times.div_ceil(parts).next_multiple_of(RUN)
}

/// Returns whether stores bypass the caches: only those of large blocks with whole, aligned lines.
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
    /// Whether a 32-bit word holds two pairs of times, which must be split (1-byte samples).
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
unsafe fn transpose_streams_body<V: Split>(job: &Streams) {
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
        vector::fence();
    }
}

/// Transposes one register of each input.
///
/// # Safety
/// Each row has one readable register; `to` has one writable line per 32-bit word of a register.
#[inline(always)]
unsafe fn stream_tile<V: Split>(
    job: &Streams,
    rows: &[*const u8; LANES],
    to: *mut u8,
    streamed: bool,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let mut tile = [V::load(ZEROS.as_ptr()); LANES];
        for (words, row) in tile.iter_mut().zip(rows) {
            vector::prefetch_l2(row.wrapping_add(STREAM_AHEAD));
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

/// Times per run.
const RUN: usize = 16;

/// Prefetch distance in bytes of each row of spectra.
const ROW_AHEAD: usize = 256;

/// Zeros read for padding inputs and times. Their length limits the channels of a task.
static ZEROS: [u8; 4096] = [0; 4096];

/// Task of the transpose of rows: a range of channels and times of one panel.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowTiles {
    /// First channel of each input at time 0; null for padding inputs.
    from: [*const u8; LANES],
    /// Bytes from one time to the next.
    time_bytes: usize,
    /// Number of channels, limited by the length of [`ZEROS`].
    channels: usize,
    /// First time, a multiple of the times of a line.
    first: usize,
    /// Time after the last.
    last: usize,
    /// Panel of the first channel, from time 0 on.
    to: *mut u8,
    panel_bytes: usize,
    /// Bytes from one channel's panel to the next.
    channel_bytes: usize,
    /// Whether stores bypass the caches.
    streamed: bool,
}

levels!(transpose_rows, transpose_rows_body, (element_bytes: usize, job: &RowTiles));

/// Transposes spectra of 1, 2 or 8 bytes a sample.
///
/// # Safety
/// The rows of the job are readable. Its lines are writable and not shared; streamed lines are aligned to cache
/// lines.
#[inline(always)]
unsafe fn transpose_rows_body<V: Split>(element_bytes: usize, job: &RowTiles) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        match element_bytes {
            1 => transpose_groups::<V, 4>(job),
            2 => transpose_groups::<V, 2>(job),
            _ => transpose_groups::<V, 1>(job),
        }
    }
    if job.streamed {
        vector::fence();
    }
}

/// # Safety
/// As for [`transpose_rows_body`].
#[inline(always)]
unsafe fn transpose_groups<V: Split, const TIMES: usize>(job: &RowTiles) {
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

/// Returns the bytes of one channel's group: one line, or one line each for real and imaginary parts of floats.
const fn line_bytes(times: usize) -> usize {
    if times == 1 { 2 * LINE } else { LINE }
}

impl RowTiles {
    /// Fills `rows` with the addresses of a run of times; axes group of times, input, time of the group.
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
    /// Selects for prefetch the next part of the row, or the start of the row that is processed after it.
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
unsafe fn part<V: Split, const TIMES: usize>(
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
/// As for [`transpose_rows_body`]; each row has one readable register at `columns.start`.
#[inline(always)]
unsafe fn tile<V: Split, const TIMES: usize>(rows: &[*const u8], columns: Columns, place: &Place) {
    let rows = &rows[..TIMES * LANES];
    // SAFETY: the caller upholds this function's contract; a prefetch reads nothing.
    unsafe {
        for row in rows {
            vector::prefetch_l2(row.wrapping_add(columns.ahead));
        }
        let mut tiles = [[V::load(ZEROS.as_ptr()); LANES]; TIMES];
        for input in 0..LANES {
            let load =
                |time: usize| V::load(rows[input * TIMES + time].wrapping_add(columns.start));
            match TIMES {
                4 => {
                    let (a, b) = load(0).unpack_8(load(1));
                    let (c, d) = load(2).unpack_8(load(3));
                    (tiles[0][input], tiles[1][input]) = a.unpack_16(c);
                    (tiles[2][input], tiles[3][input]) = b.unpack_16(d);
                }
                2 => (tiles[0][input], tiles[1][input]) = load(0).unpack_16(load(1)),
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

/// Separation of the two pairs of times in a transposed tile of 1-byte samples.
///
/// # Safety
/// As for [`Vector`].
unsafe trait Split: Vector {
    /// Reorders an output line, which is row `line` of each square block of the tile: the 16-bit values at even
    /// positions, then those at odd positions.
    unsafe fn split(rows: &mut [Self; 16], line: usize);
}

// SAFETY: plain arrays need no special instructions.
unsafe impl Split for Portable {
    #[inline(always)]
    unsafe fn split(rows: &mut [Self; 16], line: usize) {
        let values: [[u16; 16]; 2] = [rows[line], rows[8 + line]].map(|row| bytemuck::cast(row.0));
        for (parity, row) in [line, 8 + line].into_iter().enumerate() {
            let value = |i: usize| values[i / 8][i % 8 * 2 + parity];
            rows[row].0 = bytemuck::cast(std::array::from_fn::<u16, 16, _>(value));
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Split;
    use crate::backend::vector::{Avx2, Avx512};

    // SAFETY: the methods use the level's instructions only, which callers guarantee.
    unsafe impl Split for Avx2 {
        #[inline(always)]
        unsafe fn split(rows: &mut [Self; 16], line: usize) {
            // SAFETY: the caller guarantees the instructions.
            unsafe {
                let order = _mm256_setr_epi8(
                    0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13,
                    2, 3, 6, 7, 10, 11, 14, 15,
                );
                let halves = |register: Self| {
                    let register = _mm256_castps_si256(register.0);
                    _mm256_permute4x64_epi64::<0xd8>(_mm256_shuffle_epi8(register, order))
                };
                let (a, b) = (halves(rows[line]), halves(rows[8 + line]));
                rows[line].0 = _mm256_castsi256_ps(_mm256_permute2x128_si256::<0x20>(a, b));
                rows[8 + line].0 = _mm256_castsi256_ps(_mm256_permute2x128_si256::<0x31>(a, b));
            }
        }
    }

    // SAFETY: as above.
    unsafe impl Split for Avx512 {
        #[inline(always)]
        unsafe fn split(rows: &mut [Self; 16], line: usize) {
            // SAFETY: the caller guarantees the instructions.
            unsafe {
                // Value `2 i` goes to position i, value `2 i + 1` to position 16 + i.
                let order = _mm512_set_epi16(
                    31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24, 22,
                    20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0,
                );
                let row = _mm512_castps_si512(rows[line].0);
                rows[line].0 = _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, row));
            }
        }
    }
}

/// Bytes of a cache line: one 32-bit word of each of 16 inputs.
const LINE: usize = 64;

/// Lines of the largest tile.
const LINES: usize = 64;

/// Writes a line of a tile.
///
/// # Safety
/// The line is writable, and aligned to a cache line if it is streamed.
#[inline(always)]
unsafe fn put<V: Split>(tile: &[V; LANES], line: usize, to: *mut u8, is_streamed: bool) {
    for i in 0..LANES / V::LANES {
        // SAFETY: the caller upholds this function's contract; a line is 16 words.
        unsafe {
            let (register, to) = (tile[i * V::LANES + line], to.add(4 * i * V::LANES));
            if is_streamed { register.stream(to) } else { register.store(to) }
        }
    }
}
