//! Corner turn of spectra of 16 inputs: loads a register of channels of each input and time, stores a line of inputs
//! per channel.
//!
//! A line holds a group of 4, 2 or 1 times, of 1, 2 or 8 bytes each. All channels of a run of times are processed
//! before the next run, so that rows are read sequentially and each channel's panel is written several lines at a
//! time.
#![allow(unsafe_code)]

use super::vector::{LINE, LINES, Portable, Vector, levels, put};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::Level;
use crate::correlate::plan::LANES;

/// Times of a run.
pub(super) const RUN: usize = 16;

/// Prefetch distance in bytes of each row.
const AHEAD: usize = 256;

/// Source of padding inputs and times: zeros, as long as the longest run of channels.
pub(super) static ZEROS: [u8; 4096] = [0; 4096];

/// Spectra of a panel, for some channels and times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spectra {
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

levels!(turn, turn_body, (element_bytes: usize, job: &Spectra));

/// Transposes spectra of 1, 2 or 8 bytes a sample.
///
/// # Safety
/// The rows of the job are readable. Its lines are writable and not shared; streamed lines are aligned to cache
/// lines.
#[inline(always)]
unsafe fn turn_body<V: Vector>(element_bytes: usize, job: &Spectra) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        match element_bytes {
            1 => turn_group::<V, 4>(job),
            2 => turn_group::<V, 2>(job),
            _ => turn_group::<V, 1>(job),
        }
        if job.streamed {
            V::fence();
        }
    }
}

/// # Safety
/// As for [`turn_body`].
#[inline(always)]
unsafe fn turn_group<V: Vector, const TIMES: usize>(job: &Spectra) {
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
                    let Spectra { channel_bytes, streamed, .. } = *job;
                    let place = Place { to, channel_bytes, streamed };
                    if count == channels && bytes == line_bytes(TIMES) {
                        tile::<V, TIMES>(rows, columns, &place);
                    } else {
                        part::<V, TIMES>(rows, columns, &place, (count, bytes));
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

impl Spectra {
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
    fn new(job: &Spectra, start: usize, size: usize) -> Self {
        let (ahead, row) = (start + AHEAD, job.channels * size);
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
/// As for [`turn_body`].
#[inline(always)]
unsafe fn part<V: Vector, const TIMES: usize>(
    rows: &[*const u8],
    columns: Columns,
    place: &Place,
    (channels, bytes): (usize, usize),
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
/// As for [`turn_body`]; each row has a register from its columns' start on.
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
