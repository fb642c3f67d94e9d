//! AVX2 and AVX-512 registers of words.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::Vector;

/// Register of 256 bits.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256i);

/// Register of 512 bits.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512i);

macro_rules! plain {
    ($load:ident, $store:ident, $stream:ident, $bytes:ident, $shorts:ident) => {
        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller guarantees the instructions and the bytes.
            Self(unsafe { $load(from.cast()) })
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller guarantees the instructions and the bytes.
            unsafe { $store(to.cast(), self.0) }
        }
        #[inline(always)]
        unsafe fn stream(self, to: *mut u8) {
            // SAFETY: the caller guarantees the instructions, the bytes and their alignment.
            unsafe { $stream(to.cast(), self.0) }
        }
        #[inline(always)]
        unsafe fn prefetch(from: *const u8) {
            // SAFETY: a prefetch reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
        }
        #[inline(always)]
        unsafe fn fence() {
            // SAFETY: every x86-64 has the instruction.
            unsafe { _mm_sfence() }
        }
        #[inline(always)]
        unsafe fn unpack_bytes(self, other: Self) -> (Self, Self) {
            // SAFETY: the caller guarantees the instructions.
            unsafe { $bytes(self.0, other.0) }
        }
        #[inline(always)]
        unsafe fn unpack_shorts(self, other: Self) -> (Self, Self) {
            // SAFETY: the caller guarantees the instructions.
            unsafe { $shorts(self.0, other.0) }
        }
    };
}

macro_rules! pairs {
    ($name:ident, $type:ident, $number:ty, $low:ident, $high:ident) => {
        #[inline(always)]
        unsafe fn $name(a: $number, b: $number) -> ($type, $type) {
            // SAFETY: the caller guarantees the instructions.
            unsafe { ($type($low(a, b)), $type($high(a, b))) }
        }
    };
}

pairs!(bytes_256, Avx2, __m256i, _mm256_unpacklo_epi8, _mm256_unpackhi_epi8);
pairs!(shorts_256, Avx2, __m256i, _mm256_unpacklo_epi16, _mm256_unpackhi_epi16);
pairs!(bytes_512, Avx512, __m512i, _mm512_unpacklo_epi8, _mm512_unpackhi_epi8);
pairs!(shorts_512, Avx512, __m512i, _mm512_unpacklo_epi16, _mm512_unpackhi_epi16);

// SAFETY: each method uses instructions of its level only, which callers guarantee.
unsafe impl Vector for Avx2 {
    const LANES: usize = 8;
    plain!(_mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256, bytes_256, shorts_256);
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; 16]) {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            for square in rows.chunks_exact_mut(8) {
                let mut fours = [square[0].0; 8];
                for i in 0..2 {
                    let [a, b, c, d] = [0, 1, 2, 3].map(|k| square[4 * i + k].0);
                    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
                    fours[4 * i] = _mm256_unpacklo_epi64(ab, cd);
                    fours[4 * i + 1] = _mm256_unpackhi_epi64(ab, cd);
                    let (ab, cd) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
                    fours[4 * i + 2] = _mm256_unpacklo_epi64(ab, cd);
                    fours[4 * i + 3] = _mm256_unpackhi_epi64(ab, cd);
                }
                for k in 0..4 {
                    square[k].0 = _mm256_permute2x128_si256::<0x20>(fours[k], fours[k + 4]);
                    square[k + 4].0 = _mm256_permute2x128_si256::<0x31>(fours[k], fours[k + 4]);
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn split(rows: &mut [Self; 16], line: usize) {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            let order = _mm256_setr_epi8(
                0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13, 2,
                3, 6, 7, 10, 11, 14, 15,
            );
            let halves = |register: Self| {
                _mm256_permute4x64_epi64::<0xd8>(_mm256_shuffle_epi8(register.0, order))
            };
            let (a, b) = (halves(rows[line]), halves(rows[8 + line]));
            rows[line].0 = _mm256_permute2x128_si256::<0x20>(a, b);
            rows[8 + line].0 = _mm256_permute2x128_si256::<0x31>(a, b);
        }
    }
}

// SAFETY: each method uses instructions of its level only, which callers guarantee.
unsafe impl Vector for Avx512 {
    const LANES: usize = 16;
    plain!(_mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512, bytes_512, shorts_512);
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; 16]) {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            // Quarter q of register `4 i + k` holds column `4 q + k` of rows `4 i ..`.
            let mut fours = [rows[0].0; 16];
            for i in 0..4 {
                let [a, b, c, d] = [0, 1, 2, 3].map(|k| rows[4 * i + k].0);
                let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
                fours[4 * i] = _mm512_unpacklo_epi64(ab, cd);
                fours[4 * i + 1] = _mm512_unpackhi_epi64(ab, cd);
                let (ab, cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
                fours[4 * i + 2] = _mm512_unpacklo_epi64(ab, cd);
                fours[4 * i + 3] = _mm512_unpackhi_epi64(ab, cd);
            }
            for k in 0..4 {
                let [a, b, c, d] = [fours[k], fours[4 + k], fours[8 + k], fours[12 + k]];
                let even = _mm512_shuffle_i32x4::<0x88>(a, b);
                let odd = _mm512_shuffle_i32x4::<0xdd>(a, b);
                let (even_cd, odd_cd) =
                    (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
                rows[k].0 = _mm512_shuffle_i32x4::<0x88>(even, even_cd);
                rows[8 + k].0 = _mm512_shuffle_i32x4::<0xdd>(even, even_cd);
                rows[4 + k].0 = _mm512_shuffle_i32x4::<0x88>(odd, odd_cd);
                rows[12 + k].0 = _mm512_shuffle_i32x4::<0xdd>(odd, odd_cd);
            }
        }
    }
    #[inline(always)]
    unsafe fn split(rows: &mut [Self; 16], line: usize) {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            // Value `2 i` goes to position i, value `2 i + 1` to position 16 + i.
            let order = _mm512_set_epi16(
                31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24, 22, 20,
                18, 16, 14, 12, 10, 8, 6, 4, 2, 0,
            );
            rows[line].0 = _mm512_permutexvar_epi16(order, rows[line].0);
        }
    }
}
