//! AVX2 and AVX-512 registers of floats.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::vector::{Target, Vector};

/// Register of 256 bits.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256);

/// Register of 512 bits.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

macro_rules! plain {
    ($splat:ident, $load:ident, $store:ident,
     $mul:ident, $mul_add:ident, $neg_mul_add:ident) => {
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            // SAFETY: the caller guarantees the instructions.
            Self(unsafe { $splat(value) })
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller guarantees the instructions and the floats.
            Self(unsafe { $load(from) })
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller guarantees the instructions and the floats.
            unsafe { $store(to, self.0) }
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            // SAFETY: the caller guarantees the instructions.
            Self(unsafe { $mul(self.0, other.0) })
        }
        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: the caller guarantees the instructions.
            Self(unsafe { $mul_add(self.0, b.0, c.0) })
        }
        #[inline(always)]
        unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: the caller guarantees the instructions.
            Self(unsafe { $neg_mul_add(self.0, b.0, c.0) })
        }
    };
}

impl Avx2 {
    /// Rounds and clips to integers from -most - 1 to most, and counts saturated samples.
    ///
    /// # Safety
    /// AVX2 exists, and `saturated` has one writable count per lane.
    #[inline(always)]
    unsafe fn round(self, im: Self, most: f32, saturated: *mut u32) -> (__m256i, __m256i) {
        // SAFETY: the caller upholds this function's contract.
        unsafe {
            let (mut re, mut im) = (self.0, im.0);
            let sign = _mm256_set1_ps(-0.0);
            let larger = _mm256_max_ps(_mm256_andnot_ps(sign, re), _mm256_andnot_ps(sign, im));
            let end = _mm256_set1_ps(most + 0.5);
            let within = _mm256_cmp_ps::<_CMP_LT_OQ>(larger, end);
            if _mm256_movemask_ps(within) != 0xff {
                let finite = self.finite(Self(im));
                let start = _mm256_set1_ps(-most - 1.5);
                let inside = |x| {
                    let low = _mm256_cmp_ps::<_CMP_GE_OQ>(x, start);
                    _mm256_and_ps(low, _mm256_cmp_ps::<_CMP_LT_OQ>(x, end))
                };
                let outside = _mm256_andnot_ps(_mm256_and_ps(inside(re), inside(im)), finite);
                let counts = _mm256_loadu_si256(saturated.cast());
                let counts = _mm256_sub_epi32(counts, _mm256_castps_si256(outside));
                _mm256_storeu_si256(saturated.cast(), counts);
                let (low, high) = (_mm256_set1_ps(-most - 1.0), _mm256_set1_ps(most));
                let clamp = |x| _mm256_and_ps(finite, _mm256_max_ps(low, _mm256_min_ps(high, x)));
                (re, im) = (clamp(re), clamp(im));
            }
            (_mm256_cvtps_epi32(re), _mm256_cvtps_epi32(im))
        }
    }

    /// Returns a mask with all bits set where both parts are finite.
    ///
    /// # Safety
    /// AVX2 exists.
    #[inline(always)]
    unsafe fn finite(self, im: Self) -> __m256 {
        // SAFETY: the caller upholds this function's contract.
        unsafe {
            let sign = _mm256_set1_ps(-0.0);
            let infinite = _mm256_set1_ps(f32::INFINITY);
            let part = |x| _mm256_cmp_ps::<_CMP_LT_OQ>(_mm256_andnot_ps(sign, x), infinite);
            _mm256_and_ps(part(self.0), part(im.0))
        }
    }
}

// SAFETY: each method uses instructions of its level only, which callers guarantee.
unsafe impl Vector for Avx2 {
    const LANES: usize = 8;
    plain!(
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_mul_ps,
        _mm256_fmadd_ps,
        _mm256_fnmadd_ps
    );
    #[inline(always)]
    unsafe fn load_complex(from: *const f32) -> (Self, Self) {
        // SAFETY: the caller guarantees the instructions and 8 complex numbers.
        unsafe {
            let (a, b) = (_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8)));
            let low = _mm256_permute2f128_ps::<0x20>(a, b);
            let high = _mm256_permute2f128_ps::<0x31>(a, b);
            let even = _mm256_shuffle_ps::<0x88>(low, high);
            (Self(even), Self(_mm256_shuffle_ps::<0xdd>(low, high)))
        }
    }
    #[inline(always)]
    unsafe fn rotate(self, sine: Self, quarters: *const i32) -> (Self, Self) {
        // SAFETY: the caller guarantees the instructions and 8 numbers.
        unsafe {
            let q = _mm256_loadu_si256(quarters.cast());
            let odd = _mm256_castsi256_ps(_mm256_slli_epi32::<31>(q));
            let c = _mm256_blendv_ps(self.0, sine.0, odd);
            let s = _mm256_blendv_ps(sine.0, self.0, odd);
            let sign = |q| {
                let bit = _mm256_and_si256(q, _mm256_set1_epi32(2));
                _mm256_castsi256_ps(_mm256_slli_epi32::<30>(bit))
            };
            let next = _mm256_add_epi32(q, _mm256_set1_epi32(1));
            (Self(_mm256_xor_ps(c, sign(next))), Self(_mm256_xor_ps(s, sign(q))))
        }
    }
    #[inline(always)]
    unsafe fn store_floats(self, im: Self, to: &Target) {
        // SAFETY: the caller guarantees the instructions and 8 complex numbers.
        unsafe {
            let finite = self.finite(im);
            let (re, im) = (_mm256_and_ps(finite, self.0), _mm256_and_ps(finite, im.0));
            let (low, high) = (_mm256_unpacklo_ps(re, im), _mm256_unpackhi_ps(re, im));
            let to = to.to.cast::<f32>();
            _mm256_storeu_ps(to, _mm256_permute2f128_ps::<0x20>(low, high));
            _mm256_storeu_ps(to.add(8), _mm256_permute2f128_ps::<0x31>(low, high));
        }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, im: Self, to: &Target) {
        // SAFETY: the caller guarantees the instructions, 8 samples and counts.
        unsafe {
            let (re, im) = self.round(im, 127.0, to.saturated);
            let both = _mm256_or_si256(
                _mm256_and_si256(re, _mm256_set1_epi32(255)),
                _mm256_and_si256(_mm256_slli_epi32::<8>(im), _mm256_set1_epi32(0xff00)),
            );
            let shorts = _mm256_packus_epi32(both, both);
            let shorts = _mm256_permute4x64_epi64::<0x08>(shorts);
            _mm_storeu_si128(to.to.cast(), _mm256_castsi256_si128(shorts));
        }
    }
    #[inline(always)]
    unsafe fn store_nibbles(self, im: Self, to: &Target) {
        // SAFETY: the caller guarantees the instructions, 8 samples and counts.
        unsafe {
            let (re, im) = self.round(im, 7.0, to.saturated);
            let both = _mm256_or_si256(
                _mm256_and_si256(_mm256_slli_epi32::<4>(re), _mm256_set1_epi32(0xf0)),
                _mm256_and_si256(im, _mm256_set1_epi32(15)),
            );
            let shorts = _mm256_permute4x64_epi64::<0x08>(_mm256_packus_epi32(both, both));
            let shorts = _mm256_castsi256_si128(shorts);
            _mm_storel_epi64(to.to.cast(), _mm_packus_epi16(shorts, shorts));
        }
    }
}

impl Avx512 {
    /// Returns the larger magnitude of both parts. It is below infinity only if both are finite, or if exactly one is
    /// NaN, which a product with finite factors never yields.
    ///
    /// # Safety
    /// AVX-512 DQ exists.
    #[inline(always)]
    unsafe fn larger(self, im: Self) -> __m512 {
        // SAFETY: the caller upholds this function's contract.
        unsafe { _mm512_range_ps::<0b1011>(self.0, im.0) }
    }

    /// Rounds and clips to integers from -most - 1 to most, and counts saturated samples.
    ///
    /// # Safety
    /// AVX-512 exists, and `saturated` has one writable count per lane.
    #[inline(always)]
    unsafe fn round(self, im: Self, most: f32, saturated: *mut u32) -> (__m512i, __m512i) {
        // SAFETY: the caller upholds this function's contract.
        unsafe {
            let (larger, end) = (self.larger(im), _mm512_set1_ps(most + 0.5));
            let (mut re, mut im) = (self.0, im.0);
            if _mm512_cmp_ps_mask::<_CMP_LT_OQ>(larger, end) != 0xffff {
                let infinite = _mm512_set1_ps(f32::INFINITY);
                let finite = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(larger, infinite);
                let start = _mm512_set1_ps(-most - 1.5);
                let inside = |x| {
                    let low = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, start);
                    _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(low, x, end)
                };
                let outside = finite & !(inside(re) & inside(im));
                let counts = _mm512_loadu_si512(saturated.cast());
                let one = _mm512_set1_epi32(1);
                let counts = _mm512_mask_add_epi32(counts, outside, counts, one);
                _mm512_storeu_si512(saturated.cast(), counts);
                let (low, high) = (_mm512_set1_ps(-most - 1.0), _mm512_set1_ps(most));
                let clamp = |x| _mm512_maskz_max_ps(finite, low, _mm512_min_ps(high, x));
                (re, im) = (clamp(re), clamp(im));
            }
            (_mm512_cvtps_epi32(re), _mm512_cvtps_epi32(im))
        }
    }
}

// SAFETY: each method uses instructions of its level only, which callers guarantee.
unsafe impl Vector for Avx512 {
    const LANES: usize = 16;
    plain!(
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_mul_ps,
        _mm512_fmadd_ps,
        _mm512_fnmadd_ps
    );
    #[inline(always)]
    unsafe fn load_complex(from: *const f32) -> (Self, Self) {
        // SAFETY: the caller guarantees the instructions and 16 complex numbers.
        unsafe {
            let (a, b) = (_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(16)));
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            let re = _mm512_permutex2var_ps(a, even, b);
            (Self(re), Self(_mm512_permutex2var_ps(a, odd, b)))
        }
    }
    #[inline(always)]
    unsafe fn rotate(self, sine: Self, quarters: *const i32) -> (Self, Self) {
        // SAFETY: the caller guarantees the instructions and 16 numbers.
        unsafe {
            let q = _mm512_loadu_si512(quarters.cast());
            let odd = _mm512_test_epi32_mask(q, _mm512_set1_epi32(1));
            let c = _mm512_castps_si512(_mm512_mask_blend_ps(odd, self.0, sine.0));
            let s = _mm512_castps_si512(_mm512_mask_blend_ps(odd, sine.0, self.0));
            let two = _mm512_set1_epi32(2);
            let sign = |q| _mm512_slli_epi32::<30>(_mm512_and_si512(q, two));
            let next = _mm512_add_epi32(q, _mm512_set1_epi32(1));
            let re = _mm512_xor_si512(c, sign(next));
            let im = _mm512_xor_si512(s, sign(q));
            (Self(_mm512_castsi512_ps(re)), Self(_mm512_castsi512_ps(im)))
        }
    }
    #[inline(always)]
    unsafe fn store_floats(self, im: Self, to: &Target) {
        // SAFETY: the caller guarantees the instructions and 16 complex numbers.
        unsafe {
            let infinite = _mm512_set1_ps(f32::INFINITY);
            let finite = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.larger(im), infinite);
            let re = _mm512_maskz_mov_ps(finite, self.0);
            let im = _mm512_maskz_mov_ps(finite, im.0);
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high =
                _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            let to = to.to.cast::<f32>();
            _mm512_storeu_ps(to, _mm512_permutex2var_ps(re, low, im));
            _mm512_storeu_ps(to.add(16), _mm512_permutex2var_ps(re, high, im));
        }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, im: Self, to: &Target) {
        // SAFETY: the caller guarantees the instructions, 16 samples and counts.
        unsafe {
            let (re, im) = self.round(im, 127.0, to.saturated);
            let im = _mm512_slli_epi32::<8>(im);
            // Bits of `re` where the mask has ones, else of `im`.
            let both = _mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi32(255), re, im);
            _mm256_storeu_si256(to.to.cast(), _mm512_cvtepi32_epi16(both));
        }
    }
    #[inline(always)]
    unsafe fn store_nibbles(self, im: Self, to: &Target) {
        // SAFETY: the caller guarantees the instructions, 16 samples and counts.
        unsafe {
            let (re, im) = self.round(im, 7.0, to.saturated);
            let re = _mm512_slli_epi32::<4>(re);
            let both = _mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi32(15), im, re);
            _mm_storeu_si128(to.to.cast(), _mm512_cvtepi32_epi8(both));
        }
    }
}
