//! Vector operations of the corner turn for each vector level, on registers of 32-bit words.
//!
//! Invariant: values move, none changes.
#![allow(unsafe_code)]

use crate::correlate::plan::LANES;

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

pub(super) use crate::backend::simd::levels;

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
