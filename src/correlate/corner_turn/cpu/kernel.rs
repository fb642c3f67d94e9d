//! Output lines of 16 inputs, for both kernels.
#![allow(unsafe_code)]

use super::vector::Vector;
use crate::correlate::plan::LANES;

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
