//! Arithmetic with AVX2 and AVX-512 instructions.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::tile::{Arithmetic, Kind, ROW, ROWS, float_rows, wide_columns, wide_rows};

/// Defines the type `Sum` of an `Arithmetic`, and the functions that clear, load and store it.
macro_rules! sums {
    ($register:ty, $zero:expr, $load:expr, $store:expr) => {
        type Sum = $register;
        #[inline(always)]
        unsafe fn zero() -> Self::Sum {
            // SAFETY: the caller guarantees the instructions.
            unsafe { $zero() }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self::Sum {
            // SAFETY: the caller guarantees a readable vector.
            unsafe { $load(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(sum: Self::Sum, to: *mut u8) {
            // SAFETY: the caller guarantees a writable vector.
            unsafe { $store(to.cast(), sum) }
        }
    };
}

/// 8-bit integers, sums of four products per instruction (AVX-512 VNNI). One operand of `vpdpbusd` is unsigned, so 128
/// is added to the rows (re, im) and (im, ~re). ~re instead of -re is exact for -128 as well.
pub(super) struct Bytes512;

/// 16-bit integers, sums of two products per instruction, in 512 bits.
pub(super) struct Shorts512;

/// 16-bit integers, sums of two products per instruction, in 256 bits.
pub(super) struct Shorts256;

/// Vectors of 16 floats.
pub(super) struct Floats512;

/// Vectors of 8 floats.
pub(super) struct Floats256;

// SAFETY: the methods use AVX-512 F, BW and VNNI, which callers guarantee.
unsafe impl Arithmetic for Bytes512 {
    const TIMES: usize = 2;
    const COLUMN: usize = 64;
    const LANES: usize = 16;
    const KIND: Kind = Kind::Offset;
    type Row = [__m512i; 2];
    type Column = __m512i;
    sums!(__m512i, _mm512_setzero_si512, _mm512_loadu_si512, _mm512_storeu_si512);
    #[inline(always)]
    unsafe fn row(from: *const u8) -> Self::Row {
        // SAFETY: the caller guarantees a readable row.
        unsafe {
            let from = from.cast::<i32>();
            [
                _mm512_set1_epi32(from.read_unaligned()),
                _mm512_set1_epi32(from.add(1).read_unaligned()),
            ]
        }
    }
    #[inline(always)]
    unsafe fn column(from: *const u8) -> Self::Column {
        // SAFETY: the caller guarantees a readable vector.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn add(sums: &mut [Self::Sum; 2], row: Self::Row, column: Self::Column) {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            sums[0] = _mm512_dpbusd_epi32(sums[0], row[0], column);
            sums[1] = _mm512_dpbusd_epi32(sums[1], row[1], column);
        }
    }
    #[inline(always)]
    unsafe fn rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
        // SAFETY: the caller guarantees the instructions, columns and rows of all steps.
        unsafe {
            let up = _mm512_set1_epi8(-128);
            let turned = _mm512_set1_epi16(0x7f80);
            let swap = _mm512_broadcast_i32x4(_mm_setr_epi8(
                1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14,
            ));
            let parts = |step: usize| {
                let x = _mm512_loadu_si512(columns.add(step * 64).cast());
                [_mm512_xor_si512(x, up), _mm512_xor_si512(_mm512_shuffle_epi8(x, swap), turned)]
            };
            transpose_rows(parts, steps, rows, group);
        }
    }
}

/// Stores rows of two parts of 4 bytes each; `parts` returns a vector of each part for all rows in a step.
///
/// # Safety
/// The machine has AVX-512 F, and `rows` is writable for the steps of all groups.
#[inline(always)]
unsafe fn transpose_rows(
    parts: impl Fn(usize) -> [__m512i; 2],
    steps: usize,
    rows: *mut u8,
    group: usize,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let both = |step: usize| {
            let [a, b] = parts(step);
            [_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)]
        };
        let mut step = 0;
        while step + 2 <= steps {
            let ([a, b], [c, d]) = (both(step), both(step + 1));
            // A 128-bit quarter holds a group of rows: transposes quarters and registers.
            let (ab, cd) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
            let (ef, gh) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
            let to = rows.add(step * ROWS * ROW);
            let store = |g: usize, x| _mm512_storeu_si512(to.add(g * group).cast(), x);
            store(0, _mm512_shuffle_i32x4::<0x88>(ab, cd));
            store(1, _mm512_shuffle_i32x4::<0xdd>(ab, cd));
            store(2, _mm512_shuffle_i32x4::<0x88>(ef, gh));
            store(3, _mm512_shuffle_i32x4::<0xdd>(ef, gh));
            step += 2;
        }
        if step < steps {
            let mut quarters = [[[0u8; 16]; 4]; 2];
            for (to, x) in quarters.iter_mut().zip(both(step)) {
                _mm512_storeu_si512(to.as_mut_ptr().cast(), x);
            }
            for (g, (low, high)) in quarters[0].iter().zip(&quarters[1]).enumerate() {
                let to = rows.add(g * group + step * ROWS * ROW).cast::<[[u8; 16]; 2]>();
                to.write_unaligned([*low, *high]);
            }
        }
    }
}

/// Like [`wide_rows`], with AVX-512.
///
/// # Safety
/// As for [`wide_rows`]; the machine has AVX-512 BW.
#[inline(always)]
unsafe fn wide_rows_512(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let parts = |step: usize| {
            let x = _mm512_loadu_si512(columns.add(step * 64).cast());
            let turned = _mm512_rol_epi32::<16>(x);
            let minus = _mm512_sub_epi16(_mm512_setzero_si512(), turned);
            [x, _mm512_mask_blend_epi16(0xaaaa_aaaa, turned, minus)]
        };
        transpose_rows(parts, steps, rows, group);
    }
}

/// Like [`float_rows`], with AVX-512.
///
/// # Safety
/// As for [`float_rows`]; the machine has AVX-512 F.
#[inline(always)]
unsafe fn float_rows_512(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let parts = |step: usize| {
            let re = columns.add(step * 128);
            [_mm512_loadu_si512(re.cast()), _mm512_loadu_si512(re.add(64).cast())]
        };
        transpose_rows(parts, steps, rows, group);
    }
}

/// Implements the arithmetic of 16-bit integers for one register width.
macro_rules! shorts {
    ($name:ident, $lanes:literal, $register:ident, $zero:ident, $load:ident, $store:ident, $set:ident,
     $multiply:ident, $add:ident, $rows:ident) => {
        // SAFETY: the methods use the width's instructions only, which callers guarantee.
        unsafe impl Arithmetic for $name {
            const TIMES: usize = 1;
            const COLUMN: usize = 64;
            const LANES: usize = $lanes;
            const KIND: Kind = Kind::Integer;
            type Row = [$register; 2];
            type Column = $register;
            sums!($register, $zero, $load, $store);
            #[inline(always)]
            unsafe fn row(from: *const u8) -> Self::Row {
                let from = from.cast::<i32>();
                // SAFETY: the caller guarantees a readable row.
                unsafe { [$set(from.read_unaligned()), $set(from.add(1).read_unaligned())] }
            }
            #[inline(always)]
            unsafe fn column(from: *const u8) -> Self::Column {
                // SAFETY: the caller guarantees a readable vector.
                unsafe { $load(from.cast()) }
            }
            #[inline(always)]
            unsafe fn add(sums: &mut [Self::Sum; 2], row: Self::Row, column: Self::Column) {
                // SAFETY: the caller guarantees the instructions.
                unsafe {
                    sums[0] = $add(sums[0], $multiply(row[0], column));
                    sums[1] = $add(sums[1], $multiply(row[1], column));
                }
            }
            #[inline(always)]
            unsafe fn add_more(_sums: &mut [Self::Sum; 2], _row: Self::Row, _column: Self::Column) {
            }
            #[inline(always)]
            unsafe fn columns(packed: *const u8, steps: usize, buffer: *mut u8) -> *const u8 {
                // SAFETY: the caller upholds this function's contract.
                unsafe { wide_columns(packed, steps, buffer) }
            }
            #[inline(always)]
            unsafe fn rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
                // SAFETY: the caller upholds this function's contract.
                unsafe { $rows(columns, steps, rows, group) }
            }
        }
    };
}

shorts!(
    Shorts512,
    16,
    __m512i,
    _mm512_setzero_si512,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_set1_epi32,
    _mm512_madd_epi16,
    _mm512_add_epi32,
    wide_rows_512
);
shorts!(
    Shorts256,
    8,
    __m256i,
    _mm256_setzero_si256,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_set1_epi32,
    _mm256_madd_epi16,
    _mm256_add_epi32,
    wide_rows
);

/// Implements the arithmetic of floats for one register width.
macro_rules! floats {
    ($name:ident, $lanes:literal, $register:ident, $zero:ident, $load:ident, $store:ident, $set:ident,
     $mul_add:ident, $neg_mul_add:ident, $rows:ident) => {
        // SAFETY: the methods use the width's instructions only, which callers guarantee.
        unsafe impl Arithmetic for $name {
            const TIMES: usize = 1;
            const COLUMN: usize = 128;
            const LANES: usize = $lanes;
            const KIND: Kind = Kind::Float;
            type Row = [$register; 2];
            type Column = [$register; 2];
            sums!($register, $zero, $load, $store);
            #[inline(always)]
            unsafe fn row(from: *const u8) -> Self::Row {
                let from = from.cast::<f32>();
                // SAFETY: the caller guarantees a readable row.
                unsafe { [$set(from.read_unaligned()), $set(from.add(1).read_unaligned())] }
            }
            #[inline(always)]
            unsafe fn column(from: *const u8) -> Self::Column {
                // SAFETY: the caller guarantees readable vectors of both parts.
                unsafe { [$load(from.cast()), $load(from.add(64).cast())] }
            }
            #[inline(always)]
            unsafe fn add(sums: &mut [Self::Sum; 2], row: Self::Row, column: Self::Column) {
                // SAFETY: the caller guarantees the instructions.
                unsafe {
                    sums[0] = $mul_add(row[0], column[0], sums[0]);
                    sums[1] = $mul_add(row[1], column[0], sums[1]);
                }
            }
            #[inline(always)]
            unsafe fn add_more(sums: &mut [Self::Sum; 2], row: Self::Row, column: Self::Column) {
                // SAFETY: the caller guarantees the instructions.
                unsafe {
                    sums[0] = $mul_add(row[1], column[1], sums[0]);
                    sums[1] = $neg_mul_add(row[0], column[1], sums[1]);
                }
            }
            #[inline(always)]
            unsafe fn rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
                // SAFETY: the caller upholds this function's contract.
                unsafe { $rows(columns, steps, rows, group) }
            }
        }
    };
}

floats!(
    Floats512,
    16,
    __m512,
    _mm512_setzero_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_set1_ps,
    _mm512_fmadd_ps,
    _mm512_fnmadd_ps,
    float_rows_512
);
floats!(
    Floats256,
    8,
    __m256,
    _mm256_setzero_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_set1_ps,
    _mm256_fmadd_ps,
    _mm256_fnmadd_ps,
    float_rows
);
