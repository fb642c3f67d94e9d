//! Corner turn of streams of 16 inputs in one channel: loads words of times, stores lines of inputs.
#![allow(unsafe_code)]

use super::vector::{LINE, Portable, Vector, levels, put};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::Level;
use crate::correlate::plan::LANES;

/// Prefetch distance in bytes of each stream.
const AHEAD: usize = 1024;

/// Zeros, read for padding inputs.
static ZEROS: [u8; LINE] = [0; LINE];

/// Streams of a panel in one channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams {
    /// Samples of each input; null for padding inputs.
    pub(super) from: [*const u8; LANES],
    /// Bytes of each stream.
    pub(super) bytes: usize,
    /// Destination panel.
    pub(super) to: *mut u8,
    pub(super) panel_bytes: usize,
    /// Whether a word holds two pairs of times, to be split.
    pub(super) pairs: bool,
    /// Whether stores bypass the caches.
    pub(super) streamed: bool,
}

levels!(turn, turn_body, (job: &Streams));

/// Transposes the streams of one panel and channel.
///
/// # Safety
/// The samples of the job are readable. Its panel is writable and not shared; a streamed panel is aligned to a cache
/// line.
#[inline(always)]
unsafe fn turn_body<V: Vector>(job: &Streams) {
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
                tile::<V>(job, &rows, to, job.streamed);
            } else {
                let mut copies = [[0u8; LINE]; LANES];
                let mut lines = [0u8; LANES * LINE];
                for (row, copy) in rows.iter_mut().zip(&mut copies) {
                    copy.as_mut_ptr().copy_from_nonoverlapping(*row, bytes);
                    *row = copy.as_ptr();
                }
                tile::<V>(job, &rows, lines.as_mut_ptr(), false);
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
unsafe fn tile<V: Vector>(job: &Streams, rows: &[*const u8; LANES], to: *mut u8, streamed: bool) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let mut tile = [V::load(ZEROS.as_ptr()); LANES];
        for (words, row) in tile.iter_mut().zip(rows) {
            V::prefetch(row.wrapping_add(AHEAD));
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
