//! AVX2 and AVX-512 registers of floats.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::vector::Vector;

/// 256 bits.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256);

/// 512 bits.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

macro_rules! plain {
    ($splat:ident, $load:ident, $store:ident, $stream:ident, $mul_add:ident, $neg_mul_add:ident,
     [$($binary:ident = $instruction:ident),*]) => {
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            // SAFETY: the caller guarantees the level.
            Self(unsafe { $splat(value) })
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller guarantees the level and the floats.
            Self(unsafe { $load(from) })
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller guarantees the level and the floats.
            unsafe { $store(to, self.0) }
        }
        #[inline(always)]
        unsafe fn stream(self, to: *mut f32) {
            // SAFETY: the caller guarantees the level, the floats and their alignment.
            unsafe { $stream(to, self.0) }
        }
        $(
            #[inline(always)]
            unsafe fn $binary(self, other: Self) -> Self {
                // SAFETY: the caller guarantees the level.
                Self(unsafe { $instruction(self.0, other.0) })
            }
        )*
        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: the caller guarantees the level.
            Self(unsafe { $mul_add(self.0, b.0, c.0) })
        }
        #[inline(always)]
        unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: the caller guarantees the level.
            Self(unsafe { $neg_mul_add(self.0, b.0, c.0) })
        }
    };
}

// SAFETY: the methods use the level's instructions, whose support the callers guarantee.
unsafe impl Vector for Avx2 {
    const LANES: usize = 8;
    type Words = __m256i;
    plain!(
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_stream_ps,
        _mm256_fmadd_ps,
        _mm256_fnmadd_ps,
        [add = _mm256_add_ps, sub = _mm256_sub_ps, mul = _mm256_mul_ps]
    );
    #[inline(always)]
    unsafe fn reverse(self) -> Self {
        // SAFETY: the caller guarantees the level.
        unsafe {
            let order = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
            Self(_mm256_permutevar8x32_ps(self.0, order))
        }
    }
    #[inline(always)]
    unsafe fn interleave(self, other: Self) -> (Self, Self) {
        // SAFETY: the caller guarantees the level.
        unsafe {
            let low = _mm256_unpacklo_ps(self.0, other.0);
            let high = _mm256_unpackhi_ps(self.0, other.0);
            let first = _mm256_permute2f128_ps::<0x20>(low, high);
            (Self(first), Self(_mm256_permute2f128_ps::<0x31>(low, high)))
        }
    }
    #[inline(always)]
    unsafe fn deinterleave(self, other: Self) -> (Self, Self) {
        // SAFETY: the caller guarantees the level.
        unsafe {
            let even = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(self.0, other.0));
            let odd = _mm256_castps_pd(_mm256_shuffle_ps::<0xdd>(self.0, other.0));
            let even = _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(even));
            (Self(even), Self(_mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(odd))))
        }
    }
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; 16]) {
        // SAFETY: the caller guarantees the level.
        unsafe {
            let mut pairs = [rows[0].0; 8];
            for i in 0..4 {
                pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i].0, rows[2 * i + 1].0);
                pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i].0, rows[2 * i + 1].0);
            }
            let mut fours = pairs;
            for i in 0..2 {
                fours[4 * i] = _mm256_shuffle_ps::<0x44>(pairs[4 * i], pairs[4 * i + 2]);
                fours[4 * i + 1] = _mm256_shuffle_ps::<0xee>(pairs[4 * i], pairs[4 * i + 2]);
                fours[4 * i + 2] = _mm256_shuffle_ps::<0x44>(pairs[4 * i + 1], pairs[4 * i + 3]);
                fours[4 * i + 3] = _mm256_shuffle_ps::<0xee>(pairs[4 * i + 1], pairs[4 * i + 3]);
            }
            for i in 0..4 {
                rows[i].0 = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
                rows[i + 4].0 = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
            }
        }
    }
    #[inline(always)]
    unsafe fn words_1(from: *const u8) -> __m256i {
        // SAFETY: the caller guarantees the level and 8 bytes.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast())) }
    }
    #[inline(always)]
    unsafe fn words_2(from: *const u8) -> __m256i {
        // SAFETY: the caller guarantees the level and 16 bytes.
        unsafe { _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn words_4(from: *const u8) -> __m256i {
        // SAFETY: the caller guarantees the level and 32 bytes.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn flip_bits(words: __m256i, mask: i32) -> __m256i {
        // SAFETY: the caller guarantees the level.
        unsafe { _mm256_xor_si256(words, _mm256_set1_epi32(mask)) }
    }
    #[inline(always)]
    unsafe fn field<const LEFT: u32, const RIGHT: u32>(words: __m256i) -> Self {
        // SAFETY: the caller guarantees the level.
        unsafe {
            let (left, right) = (_mm_cvtsi32_si128(LEFT as i32), _mm_cvtsi32_si128(RIGHT as i32));
            Self(_mm256_cvtepi32_ps(_mm256_sra_epi32(_mm256_sll_epi32(words, left), right)))
        }
    }
}

// SAFETY: the methods use the level's instructions, whose support the callers guarantee.
unsafe impl Vector for Avx512 {
    const LANES: usize = 16;
    type Words = __m512i;
    plain!(
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_stream_ps,
        _mm512_fmadd_ps,
        _mm512_fnmadd_ps,
        [add = _mm512_add_ps, sub = _mm512_sub_ps, mul = _mm512_mul_ps]
    );
    #[inline(always)]
    unsafe fn reverse(self) -> Self {
        // SAFETY: the caller guarantees the level.
        unsafe {
            let order = _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
            Self(_mm512_permutexvar_ps(order, self.0))
        }
    }
    #[inline(always)]
    unsafe fn interleave(self, other: Self) -> (Self, Self) {
        // SAFETY: the caller guarantees the level.
        unsafe {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high =
                _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            let first = _mm512_permutex2var_ps(self.0, low, other.0);
            (Self(first), Self(_mm512_permutex2var_ps(self.0, high, other.0)))
        }
    }
    #[inline(always)]
    unsafe fn deinterleave(self, other: Self) -> (Self, Self) {
        // SAFETY: the caller guarantees the level.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            let first = _mm512_permutex2var_ps(self.0, even, other.0);
            (Self(first), Self(_mm512_permutex2var_ps(self.0, odd, other.0)))
        }
    }
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; 16]) {
        // SAFETY: the caller guarantees the level.
        unsafe {
            let mut pairs = [rows[0].0; 16];
            for i in 0..8 {
                pairs[2 * i] = _mm512_unpacklo_ps(rows[2 * i].0, rows[2 * i + 1].0);
                pairs[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i].0, rows[2 * i + 1].0);
            }
            let mut fours = pairs;
            for i in 0..4 {
                fours[4 * i] = _mm512_shuffle_ps::<0x44>(pairs[4 * i], pairs[4 * i + 2]);
                fours[4 * i + 1] = _mm512_shuffle_ps::<0xee>(pairs[4 * i], pairs[4 * i + 2]);
                fours[4 * i + 2] = _mm512_shuffle_ps::<0x44>(pairs[4 * i + 1], pairs[4 * i + 3]);
                fours[4 * i + 3] = _mm512_shuffle_ps::<0xee>(pairs[4 * i + 1], pairs[4 * i + 3]);
            }
            // Quarter q of register `4 i + k` holds column `4 q + k` of rows `4 i ..`.
            for k in 0..4 {
                let [a, b, c, d] = [fours[k], fours[4 + k], fours[8 + k], fours[12 + k]];
                let (even_ab, odd_ab) =
                    (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
                let (even_cd, odd_cd) =
                    (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
                rows[k].0 = _mm512_shuffle_f32x4::<0x88>(even_ab, even_cd);
                rows[8 + k].0 = _mm512_shuffle_f32x4::<0xdd>(even_ab, even_cd);
                rows[4 + k].0 = _mm512_shuffle_f32x4::<0x88>(odd_ab, odd_cd);
                rows[12 + k].0 = _mm512_shuffle_f32x4::<0xdd>(odd_ab, odd_cd);
            }
        }
    }
    #[inline(always)]
    unsafe fn words_1(from: *const u8) -> __m512i {
        // SAFETY: the caller guarantees the level and 16 bytes.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn words_2(from: *const u8) -> __m512i {
        // SAFETY: the caller guarantees the level and 32 bytes.
        unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn words_4(from: *const u8) -> __m512i {
        // SAFETY: the caller guarantees the level and 64 bytes.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn flip_bits(words: __m512i, mask: i32) -> __m512i {
        // SAFETY: the caller guarantees the level.
        unsafe { _mm512_xor_si512(words, _mm512_set1_epi32(mask)) }
    }
    #[inline(always)]
    unsafe fn field<const LEFT: u32, const RIGHT: u32>(words: __m512i) -> Self {
        // SAFETY: the caller guarantees the level.
        unsafe {
            let top = _mm512_slli_epi32::<LEFT>(words);
            Self(_mm512_cvtepi32_ps(_mm512_srai_epi32::<RIGHT>(top)))
        }
    }
}
