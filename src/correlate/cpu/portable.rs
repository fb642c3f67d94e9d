//! Arithmetic on plain arrays, and the preparation of columns and rows without vector instructions.
#![allow(unsafe_code)]

use super::super::plan::LANES;
use super::tile::{Arithmetic, Kind, ROW, ROWS};

/// 16-bit integers in plain arrays.
pub(super) struct Integers;

/// Single-precision floats in plain arrays.
pub(super) struct Floats;

// SAFETY: nothing is required beyond valid pointers, which callers guarantee.
unsafe impl Arithmetic for Integers {
    const TIMES: usize = 1;
    const COLUMN: usize = 64;
    const LANES: usize = 8;
    const KIND: Kind = Kind::Integer;
    type Sum = [i32; 8];
    type Row = [i16; 4];
    type Column = [i16; 16];
    #[inline(always)]
    unsafe fn zero() -> Self::Sum {
        [0; 8]
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Sum {
        // SAFETY: the caller guarantees a readable vector.
        unsafe { from.cast::<[i32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(sum: Self::Sum, to: *mut u8) {
        // SAFETY: the caller guarantees room for a vector.
        unsafe { to.cast::<[i32; 8]>().write_unaligned(sum) }
    }
    #[inline(always)]
    unsafe fn row(from: *const u8) -> Self::Row {
        // SAFETY: the caller guarantees a readable row.
        unsafe { from.cast::<[i16; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn column(from: *const u8) -> Self::Column {
        // SAFETY: the caller guarantees a readable vector.
        unsafe { from.cast::<[i16; 16]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn add(sums: &mut [Self::Sum; 2], row: Self::Row, column: Self::Column) {
        let row = row.map(i32::from);
        for lane in 0..8 {
            let (re, im) = (i32::from(column[2 * lane]), i32::from(column[2 * lane + 1]));
            sums[0][lane] = sums[0][lane].wrapping_add(row[0] * re + row[1] * im);
            sums[1][lane] = sums[1][lane].wrapping_add(row[2] * re + row[3] * im);
        }
    }
    #[inline(always)]
    unsafe fn add_more(_sums: &mut [Self::Sum; 2], _row: Self::Row, _column: Self::Column) {}
    #[inline(always)]
    unsafe fn columns(packed: *const u8, steps: usize, buffer: *mut u8) -> *const u8 {
        // SAFETY: the caller upholds this function's contract.
        unsafe { wide_columns(packed, steps, buffer) }
    }
    #[inline(always)]
    unsafe fn rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { wide_rows(columns, steps, rows, group) }
    }
}

// SAFETY: nothing is required beyond valid pointers, which callers guarantee.
unsafe impl Arithmetic for Floats {
    const TIMES: usize = 1;
    const COLUMN: usize = 128;
    const LANES: usize = 8;
    const KIND: Kind = Kind::Float;
    type Sum = [f32; 8];
    type Row = [f32; 2];
    type Column = [[f32; 8]; 2];
    #[inline(always)]
    unsafe fn zero() -> Self::Sum {
        [0.0; 8]
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Sum {
        // SAFETY: the caller guarantees a readable vector.
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(sum: Self::Sum, to: *mut u8) {
        // SAFETY: the caller guarantees room for a vector.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(sum) }
    }
    #[inline(always)]
    unsafe fn row(from: *const u8) -> Self::Row {
        // SAFETY: the caller guarantees a readable row.
        unsafe { from.cast::<[f32; 2]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn column(from: *const u8) -> Self::Column {
        // SAFETY: the caller guarantees readable vectors of both parts.
        unsafe { [Self::load(from), Self::load(from.add(64))] }
    }
    #[inline(always)]
    unsafe fn add(sums: &mut [Self::Sum; 2], [re, im]: Self::Row, column: Self::Column) {
        for lane in 0..8 {
            sums[0][lane] += re * column[0][lane];
            sums[1][lane] += im * column[0][lane];
        }
    }
    #[inline(always)]
    unsafe fn add_more(sums: &mut [Self::Sum; 2], [re, im]: Self::Row, column: Self::Column) {
        for lane in 0..8 {
            sums[0][lane] += im * column[1][lane];
            sums[1][lane] -= re * column[1][lane];
        }
    }
    #[inline(always)]
    unsafe fn columns(packed: *const u8, _steps: usize, _buffer: *mut u8) -> *const u8 {
        packed
    }
    #[inline(always)]
    unsafe fn rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { float_rows(columns, steps, rows, group) }
    }
}

/// Converts bytes of pairs of times to 16-bit integers, axes time, input, (re, im).
///
/// # Safety
/// Both pointers are valid for `steps` times, rounded up to pairs.
#[inline(always)]
pub(super) unsafe fn wide_columns(packed: *const u8, steps: usize, buffer: *mut u8) -> *const u8 {
    for pair in 0..steps.div_ceil(2) {
        // SAFETY: the caller guarantees whole pairs.
        unsafe {
            let x = packed.add(pair * 64).cast::<[[i8; 4]; LANES]>().read_unaligned();
            let mut wide = [[[0i16; 2]; LANES]; 2];
            for lane in 0..LANES {
                wide[0][lane] = [i16::from(x[lane][0]), i16::from(x[lane][1])];
                wide[1][lane] = [i16::from(x[lane][2]), i16::from(x[lane][3])];
            }
            buffer.add(pair * 128).cast::<[[[i16; 2]; LANES]; 2]>().write_unaligned(wide);
        }
    }
    buffer
}

/// Prepares rows of 16-bit integers: (re, im) and (im, -re).
///
/// # Safety
/// As for [`Arithmetic::rows`].
#[inline(always)]
pub(super) unsafe fn wide_rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
    for step in 0..steps {
        // SAFETY: the caller guarantees columns and rows of all steps.
        unsafe {
            let x = columns.add(step * 64).cast::<[[i16; 2]; LANES]>().read_unaligned();
            for (g, x) in x.chunks_exact(ROWS).enumerate() {
                let mut out = [[0i16; 4]; ROWS];
                for (out, [re, im]) in out.iter_mut().zip(x) {
                    *out = [*re, *im, *im, -re];
                }
                let to = rows.add(g * group + step * ROWS * ROW);
                to.cast::<[[i16; 4]; ROWS]>().write_unaligned(out);
            }
        }
    }
}

/// Prepares rows of floats: (re, im).
///
/// # Safety
/// As for [`Arithmetic::rows`].
#[inline(always)]
pub(super) unsafe fn float_rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
    for step in 0..steps {
        // SAFETY: the caller guarantees columns and rows of all steps.
        unsafe {
            let [re, im] = columns.add(step * 128).cast::<[[f32; LANES]; 2]>().read_unaligned();
            for g in 0..LANES / ROWS {
                let mut out = [[0f32; 2]; ROWS];
                for r in 0..ROWS {
                    out[r] = [re[g * ROWS + r], im[g * ROWS + r]];
                }
                let to = rows.add(g * group + step * ROWS * ROW);
                to.cast::<[[f32; 2]; ROWS]>().write_unaligned(out);
            }
        }
    }
}
