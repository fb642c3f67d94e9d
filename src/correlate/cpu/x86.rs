//! The arithmetic in AVX2 and AVX-512 instructions.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::portable::{float_rows, wide_rows, widened};
use super::tile::{Arithmetic, Kind, ROW, ROWS};

/// 8-bit integers, sums of four products at once (AVX-512 VNNI). One side of `vpdpbusd` is unsigned: rows
/// stand 128 higher, as (re, im) and (im, ~re), which are exact for -128 as well.
pub(super) struct Bytes512;

/// 16-bit integers, sums of two products at once, in 512 bits.
pub(super) struct Shorts512;

/// The same in 256 bits.
pub(super) struct Shorts256;

/// Floats, 16 side by side.
pub(super) struct Floats512;

/// Floats, 8 side by side.
pub(super) struct Floats256;

// SAFETY: the methods use AVX-512 F, BW and VNNI, which callers promise.
unsafe impl Arithmetic for Bytes512 {
    const TIMES: usize = 2;
    const COLUMN: usize = 64;
    const LANES: usize = 16;
    const KIND: Kind = Kind::Offset;
    type Sum = __m512i;
    type Row = [__m512i; 2];
    type Column = __m512i;
    #[inline(always)]
    unsafe fn zero() -> Self::Sum {
        // SAFETY: the caller promises the instructions.
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Sum {
        // SAFETY: the caller promises a vector.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(sum: Self::Sum, to: *mut u8) {
        // SAFETY: the caller promises room for a vector.
        unsafe { _mm512_storeu_si512(to.cast(), sum) }
    }
    #[inline(always)]
    unsafe fn row(from: *const u8) -> Self::Row {
        // SAFETY: the caller promises a row.
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
        // SAFETY: the caller promises a vector.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn add(sums: &mut [Self::Sum; 2], row: Self::Row, column: Self::Column) {
        // SAFETY: the caller promises the instructions.
        unsafe {
            sums[0] = _mm512_dpbusd_epi32(sums[0], row[0], column);
            sums[1] = _mm512_dpbusd_epi32(sums[1], row[1], column);
        }
    }
    #[inline(always)]
    unsafe fn columns(packed: *const u8, _steps: usize, _buffer: *mut u8) -> *const u8 {
        packed
    }
    #[inline(always)]
    unsafe fn rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
        // SAFETY: the caller promises the instructions, columns and rows of all steps.
        unsafe {
            let up = _mm512_set1_epi8(-128);
            let turned = _mm512_set1_epi16(0x7f80);
            let swap = _mm512_broadcast_i32x4(_mm_setr_epi8(
                1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14,
            ));
            for step in 0..steps {
                let x = _mm512_loadu_si512(columns.add(step * 64).cast());
                let a = _mm512_xor_si512(x, up);
                let b = _mm512_xor_si512(_mm512_shuffle_epi8(x, swap), turned);
                let (low, high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
                let to = rows.add(step * ROWS * ROW);
                let store = |g: usize, low: __m128i, high: __m128i| {
                    let to = to.add(g * group).cast::<__m128i>();
                    _mm_storeu_si128(to, low);
                    _mm_storeu_si128(to.add(1), high);
                };
                store(0, _mm512_castsi512_si128(low), _mm512_castsi512_si128(high));
                store(1, _mm512_extracti32x4_epi32::<1>(low), _mm512_extracti32x4_epi32::<1>(high));
                store(2, _mm512_extracti32x4_epi32::<2>(low), _mm512_extracti32x4_epi32::<2>(high));
                store(3, _mm512_extracti32x4_epi32::<3>(low), _mm512_extracti32x4_epi32::<3>(high));
            }
        }
    }
}

/// 16-bit integers in registers of one width.
macro_rules! shorts {
    ($name:ident, $lanes:literal, $register:ident, $zero:ident, $load:ident, $store:ident, $set:ident,
     $multiply:ident, $add:ident) => {
        // SAFETY: the methods use the width's instructions only, which callers promise.
        unsafe impl Arithmetic for $name {
            const TIMES: usize = 1;
            const COLUMN: usize = 64;
            const LANES: usize = $lanes;
            const KIND: Kind = Kind::Integer;
            type Sum = $register;
            type Row = [$register; 2];
            type Column = $register;
            #[inline(always)]
            unsafe fn zero() -> Self::Sum {
                // SAFETY: the caller promises the instructions.
                unsafe { $zero() }
            }
            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self::Sum {
                // SAFETY: the caller promises a vector.
                unsafe { $load(from.cast()) }
            }
            #[inline(always)]
            unsafe fn store(sum: Self::Sum, to: *mut u8) {
                // SAFETY: the caller promises room for a vector.
                unsafe { $store(to.cast(), sum) }
            }
            #[inline(always)]
            unsafe fn row(from: *const u8) -> Self::Row {
                let from = from.cast::<i32>();
                // SAFETY: the caller promises a row.
                unsafe { [$set(from.read_unaligned()), $set(from.add(1).read_unaligned())] }
            }
            #[inline(always)]
            unsafe fn column(from: *const u8) -> Self::Column {
                // SAFETY: the caller promises a vector.
                unsafe { $load(from.cast()) }
            }
            #[inline(always)]
            unsafe fn add(sums: &mut [Self::Sum; 2], row: Self::Row, column: Self::Column) {
                // SAFETY: the caller promises the instructions.
                unsafe {
                    sums[0] = $add(sums[0], $multiply(row[0], column));
                    sums[1] = $add(sums[1], $multiply(row[1], column));
                }
            }
            #[inline(always)]
            unsafe fn columns(packed: *const u8, steps: usize, buffer: *mut u8) -> *const u8 {
                // SAFETY: the caller's promise is handed on.
                unsafe { widened(packed, steps, buffer) }
            }
            #[inline(always)]
            unsafe fn rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
                // SAFETY: the caller's promise is handed on.
                unsafe { wide_rows(columns, steps, rows, group) }
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
    _mm512_add_epi32
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
    _mm256_add_epi32
);

/// Floats in registers of one width.
macro_rules! floats {
    ($name:ident, $lanes:literal, $register:ident, $zero:ident, $load:ident, $store:ident, $set:ident,
     $mul_add:ident, $neg_mul_add:ident) => {
        // SAFETY: the methods use the width's instructions only, which callers promise.
        unsafe impl Arithmetic for $name {
            const TIMES: usize = 1;
            const COLUMN: usize = 128;
            const LANES: usize = $lanes;
            const KIND: Kind = Kind::Float;
            type Sum = $register;
            type Row = [$register; 2];
            type Column = [$register; 2];
            #[inline(always)]
            unsafe fn zero() -> Self::Sum {
                // SAFETY: the caller promises the instructions.
                unsafe { $zero() }
            }
            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self::Sum {
                // SAFETY: the caller promises a vector.
                unsafe { $load(from.cast()) }
            }
            #[inline(always)]
            unsafe fn store(sum: Self::Sum, to: *mut u8) {
                // SAFETY: the caller promises room for a vector.
                unsafe { $store(to.cast(), sum) }
            }
            #[inline(always)]
            unsafe fn row(from: *const u8) -> Self::Row {
                let from = from.cast::<f32>();
                // SAFETY: the caller promises a row.
                unsafe { [$set(from.read_unaligned()), $set(from.add(1).read_unaligned())] }
            }
            #[inline(always)]
            unsafe fn column(from: *const u8) -> Self::Column {
                // SAFETY: the caller promises a vector of both parts.
                unsafe { [$load(from.cast()), $load(from.add(64).cast())] }
            }
            #[inline(always)]
            unsafe fn add(sums: &mut [Self::Sum; 2], row: Self::Row, column: Self::Column) {
                // SAFETY: the caller promises the instructions.
                unsafe {
                    sums[0] = $mul_add(row[0], column[0], sums[0]);
                    sums[1] = $mul_add(row[1], column[0], sums[1]);
                    sums[0] = $mul_add(row[1], column[1], sums[0]);
                    sums[1] = $neg_mul_add(row[0], column[1], sums[1]);
                }
            }
            #[inline(always)]
            unsafe fn columns(packed: *const u8, _steps: usize, _buffer: *mut u8) -> *const u8 {
                packed
            }
            #[inline(always)]
            unsafe fn rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
                // SAFETY: the caller's promise is handed on.
                unsafe { float_rows(columns, steps, rows, group) }
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
    _mm512_fnmadd_ps
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
    _mm256_fnmadd_ps
);
