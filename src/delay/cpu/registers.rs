//! Operations of the delay correction on vector registers: rotation by quarter turns, and rounding to samples.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(target_arch = "x86_64")]
use crate::backend::vector::{Avx2, Avx512};
use crate::backend::vector::{Portable, Vector};

/// Destination of a register's samples and saturation counts.
pub(super) struct Target {
    /// First sample of the register.
    pub(super) to: *mut u8,
    /// Saturated samples of each channel.
    pub(super) saturated: *mut u32,
}

/// Complex numbers in two registers: real parts in `self`, imaginary parts in the other.
///
/// # Safety
/// As for [`Vector`].
pub(super) unsafe trait Samples: Vector {
    /// Rotates cosines and sines by `quarters` quarter turns.
    unsafe fn rotate(self, sine: Self, quarters: *const i32) -> (Self, Self);
    /// Stores complex floats; 0 where either part is not finite.
    unsafe fn store_floats(self, im: Self, to: &Target);
    /// Rounds, clips and stores complex integers of 8 bits; 0 where either part is not finite.
    unsafe fn store_bytes(self, im: Self, to: &Target);
    /// Like [`Samples::store_bytes`], with 4 bits.
    unsafe fn store_nibbles(self, im: Self, to: &Target);
}

impl Portable {
    /// Rounds and clips to integers from -most - 1 to most, and counts saturated samples.
    ///
    /// # Safety
    /// `saturated` has one writable count per lane.
    #[inline(always)]
    unsafe fn round(self, im: Self, most: f32, saturated: *mut u32) -> [(i32, i32); 8] {
        let mut whole = [(0, 0); 8];
        for (lane, whole) in whole.iter_mut().enumerate() {
            let (re, im) = (self.0[lane], im.0[lane]);
            // No branches, so that the compiler vectorizes the loop.
            let is_number = re.is_finite() & im.is_finite();
            let outside = |x: f32| (x >= most + 0.5) | (x < -most - 1.5);
            let is_saturated = is_number & (outside(re) | outside(im));
            // SAFETY: the caller upholds this function's contract.
            unsafe { *saturated.add(lane) += u32::from(is_saturated) };
            // Floats of size 1.5 * 2^23 have no fraction bits: the addition rounds to nearest, ties to even.
            let part = |x: f32| {
                let x = if is_number { x } else { 0.0 };
                let x = x.clamp(-most - 1.0, most) + 12_582_912.0;
                x.to_bits() as i32 - 12_582_912f32.to_bits() as i32
            };
            *whole = (part(re), part(im));
        }
        whole
    }
}

// SAFETY: nothing is required beyond valid pointers, which callers guarantee.
unsafe impl Samples for Portable {
    #[inline(always)]
    unsafe fn rotate(self, sine: Self, quarters: *const i32) -> (Self, Self) {
        // SAFETY: the caller guarantees 8 readable numbers.
        let quarters = unsafe { quarters.cast::<[i32; 8]>().read_unaligned() };
        let (mut re, mut im) = (self.0, sine.0);
        for (lane, q) in quarters.into_iter().enumerate() {
            let (c, s) = if q & 1 == 0 { (re[lane], im[lane]) } else { (im[lane], re[lane]) };
            re[lane] = if (q + 1) & 2 == 0 { c } else { -c };
            im[lane] = if q & 2 == 0 { s } else { -s };
        }
        (Self(re), Self(im))
    }
    #[inline(always)]
    unsafe fn store_floats(self, im: Self, to: &Target) {
        let mut both = [[0f32; 2]; 8];
        for (lane, z) in both.iter_mut().enumerate() {
            let (re, im) = (self.0[lane], im.0[lane]);
            *z = if re.is_finite() && im.is_finite() { [re, im] } else { [0.0; 2] };
        }
        // SAFETY: the caller guarantees 8 writable complex numbers.
        unsafe { to.to.cast::<[[f32; 2]; 8]>().write_unaligned(both) }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, im: Self, to: &Target) {
        // SAFETY: the caller guarantees 8 writable samples and counts.
        unsafe {
            let whole = self.round(im, 127.0, to.saturated);
            to.to.cast::<[[u8; 2]; 8]>().write(whole.map(|z| [z.0 as u8, z.1 as u8]));
        }
    }
    #[inline(always)]
    unsafe fn store_nibbles(self, im: Self, to: &Target) {
        // SAFETY: the caller guarantees 8 writable samples and counts.
        unsafe {
            let whole = self.round(im, 7.0, to.saturated);
            to.to.cast::<[u8; 8]>().write(whole.map(|z| (z.0 << 4 | z.1 & 15) as u8));
        }
    }
}

/// Stores complex floats.
///
/// # Safety
/// As for [`Vector`], and `to` has two registers.
#[inline(always)]
unsafe fn store_complex<V: Vector>(re: V, im: V, to: *mut u8) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let (first, second) = re.interleave(im);
        first.store(to);
        second.store(to.add(V::BYTES));
    }
}

#[cfg(target_arch = "x86_64")]
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
#[cfg(target_arch = "x86_64")]
unsafe impl Samples for Avx2 {
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
            store_complex(Self(re), Self(im), to.to);
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

#[cfg(target_arch = "x86_64")]
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
#[cfg(target_arch = "x86_64")]
unsafe impl Samples for Avx512 {
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
            store_complex(Self(re), Self(im), to.to);
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
