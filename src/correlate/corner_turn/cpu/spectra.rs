//! Spectra of 16 inputs: a register of channels of each input and time in, a line of inputs a channel out.
//!
//! A line holds a group of 4, 2 or 1 times, of 1, 2 or 8 bytes each. All channels of a run of times are
//! turned before the next run, so that rows are read from end to end, and each channel's panel is written
//! several lines at a time.
#![allow(unsafe_code)]

use super::kernel::{LINE, LINES, put};
use super::vector::{Portable, Vector, levels};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::Level;
use crate::correlate::plan::LANES;

/// Times of a run.
pub(super) const RUN: usize = 16;

/// How far ahead rows are asked for, in bytes of each.
const AHEAD: usize = 256;

/// What inputs and times that are nobody's are read from: as long as the longest run of channels.
pub(super) static NOBODY: [u8; 4096] = [0; 4096];

/// A panel's spectra, for some channels and times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spectra {
    /// Each input's first channel at time 0; null where there is no input.
    pub(super) from: [*const u8; LANES],
    /// From one time to the next.
    pub(super) time_bytes: usize,
    /// At most as many as [`NOBODY`] holds.
    pub(super) channels: usize,
    /// The first time, a multiple of a line's.
    pub(super) first: usize,
    /// The time behind the last.
    pub(super) last: usize,
    /// The first channel's panel, from time 0 on.
    pub(super) to: *mut u8,
    pub(super) panel_bytes: usize,
    /// From one channel's panel to the next.
    pub(super) channel_bytes: usize,
    /// Whether lines are written past the caches.
    pub(super) streamed: bool,
}

levels!(turn, turn_body, (element_bytes: usize, job: &Spectra));

/// Turns spectra of 1, 2 or 8 bytes a sample.
///
/// # Safety
/// The job's rows are readable, and its lines writable and nobody else's; streamed ones begin at cache
/// lines.
#[inline(always)]
unsafe fn turn_body<V: Vector>(element_bytes: usize, job: &Spectra) {
    // SAFETY: the caller's promise is handed on.
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
/// As [`turn_body`]'s.
#[inline(always)]
unsafe fn turn_group<V: Vector, const TIMES: usize>(job: &Spectra) {
    let channels = 4 * V::LANES / size(TIMES);
    let mut rows = [NOBODY.as_ptr(); RUN * LANES];
    for time in (job.first..job.last).step_by(RUN) {
        job.rows(time, TIMES, &mut rows);
        let groups = RUN.min(job.last - time).div_ceil(TIMES);
        for start in (0..job.channels).step_by(channels) {
            let columns = Columns::new(job, start * size(TIMES), size(TIMES));
            for (group, rows) in rows.chunks_exact(TIMES * LANES).take(groups).enumerate() {
                let line = (time / TIMES + group) * line_bytes(TIMES);
                let bytes = line_bytes(TIMES).min(job.panel_bytes - line);
                let count = channels.min(job.channels - start);
                // SAFETY: the caller's promise: the rows hold these channels, the block these lines.
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

/// Bytes of a sample, of which a line holds so many times.
const fn size(times: usize) -> usize {
    if times == 1 { 8 } else { 4 / times }
}

/// Bytes of a channel's lines: real and imaginary parts of floats have one each.
const fn line_bytes(times: usize) -> usize {
    if times == 1 { 2 * LINE } else { LINE }
}

impl Spectra {
    /// The rows of a run of times; axes group of times, input, time of the group.
    fn rows(&self, first: usize, of_group: usize, rows: &mut [*const u8; RUN * LANES]) {
        for (i, row) in rows.iter_mut().enumerate() {
            let (group, input) = (i / (of_group * LANES), i / of_group % LANES);
            let (time, from) = (first + group * of_group + i % of_group, self.from[input]);
            let is_nobody = from.is_null() || time >= self.last;
            let from = from.wrapping_add(time * self.time_bytes);
            *row = if is_nobody { NOBODY.as_ptr() } else { from };
        }
    }
}

/// Which part of each row is turned, in bytes from its beginning, and which is asked for.
#[derive(Clone, Copy)]
struct Columns {
    start: usize,
    ahead: usize,
}

impl Columns {
    /// Asks for what follows in the row, or else in the row that is turned after it.
    fn new(job: &Spectra, start: usize, size: usize) -> Self {
        let (ahead, row) = (start + AHEAD, job.channels * size);
        let next = (RUN * job.time_bytes).wrapping_sub(row);
        Self { start, ahead: if ahead < row { ahead } else { ahead.wrapping_add(next) } }
    }
}

/// Where the lines of a tile go: the first channel's to `to`.
struct Place {
    to: *mut u8,
    channel_bytes: usize,
    streamed: bool,
}

/// Turns only some channels, or writes only the first bytes of each line.
///
/// # Safety
/// As [`turn_body`]'s.
#[inline(always)]
unsafe fn part<V: Vector, const TIMES: usize>(
    rows: &[*const u8],
    columns: Columns,
    place: &Place,
    (channels, bytes): (usize, usize),
) {
    let (mut copies, mut lines) = ([0u8; LINES * LINE], [0u8; LINES * LINE]);
    let mut copied = [NOBODY.as_ptr(); LINES];
    // SAFETY: the caller's promise; copies and lines hold the largest tile.
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

/// Turns one register of each row.
///
/// # Safety
/// As [`turn_body`]'s; each row has a register from its columns' start on.
#[inline(always)]
unsafe fn tile<V: Vector, const TIMES: usize>(rows: &[*const u8], columns: Columns, place: &Place) {
    let rows = &rows[..TIMES * LANES];
    // SAFETY: the caller's promise; a prefetch reads nothing.
    unsafe {
        for row in rows {
            V::prefetch(row.wrapping_add(columns.ahead));
        }
        let mut tiles = [[V::load(NOBODY.as_ptr()); LANES]; TIMES];
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
