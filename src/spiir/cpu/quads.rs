//! Vector operations that only the filters use: registers of floats seen as quads of four lanes.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(target_arch = "x86_64")]
use crate::backend::vector::{Avx2, Avx512};
use crate::backend::vector::{Portable, Vector};

/// Samples of a tile, the unit of transposition and summation.
pub(super) const TILE: usize = 16;

/// Parts of the transposition of a tile.
pub(super) const PARTS: usize = 8;

/// States below this become 0 at the end of a tile, long before they would be denormal; so do NaNs.
const SILENCE: f32 = 1e-25;

/// Register of floats in quads.
///
/// # Safety
/// As for [`Vector`].
pub(super) unsafe trait Quads: Vector {
    /// Sets lanes below [`SILENCE`] to 0.
    unsafe fn flush(self) -> Self;
    /// Sums quads: in each quad, lane `i` of the result is the sum of that quad of register `i`.
    unsafe fn sum_quads(rows: [Self; 4]) -> Self;
    /// Interleaves pairs of floats of both registers.
    unsafe fn zip_pairs(self, other: Self) -> [Self; 2];
    /// Intermediate state of a transposition from rows of time to rows of lanes.
    type Turned: Copy;
    unsafe fn no_turned() -> Self::Turned;
    /// Performs part `part` of the [`PARTS`] of a transposition; parts run in order. For each of [`TILE`] samples
    /// from `x` on it writes one register whose lane `l` is the sample `offsets[l]` earlier.
    unsafe fn turn(
        part: usize,
        turned: &mut Self::Turned,
        x: *const f32,
        offsets: *const u32,
        to: *mut f32,
    );
}

// SAFETY: the methods need only valid pointers, which the caller ensures.
unsafe impl Quads for Portable {
    #[inline(always)]
    unsafe fn flush(self) -> Self {
        Self(self.0.map(|x| if x.abs() >= SILENCE { x } else { 0.0 }))
    }
    #[inline(always)]
    unsafe fn sum_quads(rows: [Self; 4]) -> Self {
        Self(std::array::from_fn(|lane| {
            let quad = &rows[lane % 4].0[lane / 4 * 4..];
            (quad[0] + quad[2]) + (quad[1] + quad[3])
        }))
    }
    #[inline(always)]
    unsafe fn zip_pairs(self, other: Self) -> [Self; 2] {
        let half = |first: usize| {
            Self(std::array::from_fn(|lane| {
                let from = if lane % 4 < 2 { self.0 } else { other.0 };
                from[first + lane / 4 * 2 + lane % 2]
            }))
        };
        [half(0), half(4)]
    }
    type Turned = ();
    #[inline(always)]
    unsafe fn no_turned() {}
    #[inline(always)]
    unsafe fn turn(
        part: usize,
        (): &mut Self::Turned,
        x: *const f32,
        offsets: *const u32,
        to: *mut f32,
    ) {
        for lane in 0..Self::LANES {
            // SAFETY: the caller provides valid offsets, the samples they reach, and space for the output.
            unsafe {
                let from = x.sub(*offsets.add(lane) as usize);
                for sample in 2 * part..2 * part + 2 {
                    *to.add(sample * Self::LANES + lane) = *from.add(sample);
                }
            }
        }
    }
}

/// Transposes 4x4 blocks within quads in two steps: four rows `[row][column]` become `[column][row]`.
#[cfg(target_arch = "x86_64")]
macro_rules! transpose_quads {
    ($rows:expr, $low:ident, $high:ident, $low_pairs:ident, $high_pairs:ident, $to_pairs:ident,
     $from_pairs:ident) => {{
        let rows = $rows;
        let pairs = [
            $to_pairs($low(rows[0], rows[1])),
            $to_pairs($low(rows[2], rows[3])),
            $to_pairs($high(rows[0], rows[1])),
            $to_pairs($high(rows[2], rows[3])),
        ];
        [
            $from_pairs($low_pairs(pairs[0], pairs[1])),
            $from_pairs($high_pairs(pairs[0], pairs[1])),
            $from_pairs($low_pairs(pairs[2], pairs[3])),
            $from_pairs($high_pairs(pairs[2], pairs[3])),
        ]
    }};
}

// SAFETY: the methods use only AVX2 and FMA, whose availability the caller ensures.
#[cfg(target_arch = "x86_64")]
unsafe impl Quads for Avx2 {
    #[inline(always)]
    unsafe fn flush(self) -> Self {
        // SAFETY: the caller ensures that the instructions are available.
        unsafe {
            let size = _mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0);
            let heard = _mm256_cmp_ps::<_CMP_GE_OQ>(size, _mm256_set1_ps(SILENCE));
            Self(_mm256_and_ps(self.0, heard))
        }
    }
    #[inline(always)]
    unsafe fn sum_quads(rows: [Self; 4]) -> Self {
        // SAFETY: the caller ensures that the instructions are available.
        unsafe {
            let [r0, r1, r2, r3] = [rows[0].0, rows[1].0, rows[2].0, rows[3].0];
            let a = _mm256_add_ps(_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
            let b = _mm256_add_ps(_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
            let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
            let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            Self(_mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high)))
        }
    }
    #[inline(always)]
    unsafe fn zip_pairs(self, other: Self) -> [Self; 2] {
        // SAFETY: the caller ensures that the instructions are available.
        unsafe {
            let (a, b) = (_mm256_castps_pd(self.0), _mm256_castps_pd(other.0));
            let low = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            let high = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
            let first = _mm256_permute2f128_ps::<0x20>(low, high);
            [Self(first), Self(_mm256_permute2f128_ps::<0x31>(low, high))]
        }
    }
    type Turned = [[Self; 4]; 2];
    #[inline(always)]
    unsafe fn no_turned() -> Self::Turned {
        // SAFETY: the caller ensures that the instructions are available.
        unsafe { [[Self::splat(0.0); 4]; 2] }
    }
    #[inline(always)]
    unsafe fn turn(
        part: usize,
        turned: &mut Self::Turned,
        x: *const f32,
        offsets: *const u32,
        to: *mut f32,
    ) {
        // Parts 0 to 3 process the first 8 samples, the others the last 8.
        let half = part / 4;
        // SAFETY: the caller ensures that the instructions are available, and provides offsets, the samples they
        // reach, and space.
        unsafe {
            if part % 4 < 2 {
                let r = part % 4;
                let mut rows = [_mm256_setzero_ps(); 4];
                for (k, row) in rows.iter_mut().enumerate() {
                    let from = x.sub(*offsets.add(4 * r + k) as usize);
                    *row = _mm256_loadu_ps(from.add(8 * half));
                }
                let quads = transpose_quads!(
                    rows,
                    _mm256_unpacklo_ps,
                    _mm256_unpackhi_ps,
                    _mm256_unpacklo_pd,
                    _mm256_unpackhi_pd,
                    _mm256_castps_pd,
                    _mm256_castpd_ps
                );
                turned[r] = [Self(quads[0]), Self(quads[1]), Self(quads[2]), Self(quads[3])];
                return;
            }
            let to = to.add(half * 64);
            for k in 0..2 {
                let s = 2 * (part % 2) + k;
                let (a, b) = (turned[0][s].0, turned[1][s].0);
                _mm256_storeu_ps(to.add(8 * s), _mm256_permute2f128_ps::<0x20>(a, b));
                _mm256_storeu_ps(to.add(8 * (s + 4)), _mm256_permute2f128_ps::<0x31>(a, b));
            }
        }
    }
}

// SAFETY: the methods use only AVX-512 F and DQ, whose availability the caller ensures.
#[cfg(target_arch = "x86_64")]
unsafe impl Quads for Avx512 {
    #[inline(always)]
    unsafe fn flush(self) -> Self {
        // SAFETY: the caller ensures that the instructions are available.
        unsafe {
            let (size, silence) = (_mm512_abs_ps(self.0), _mm512_set1_ps(SILENCE));
            let heard = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(size, silence);
            Self(_mm512_maskz_mov_ps(heard, self.0))
        }
    }
    #[inline(always)]
    unsafe fn sum_quads(rows: [Self; 4]) -> Self {
        // SAFETY: the caller ensures that the instructions are available.
        unsafe {
            let [r0, r1, r2, r3] = [rows[0].0, rows[1].0, rows[2].0, rows[3].0];
            let a = _mm512_add_ps(_mm512_unpacklo_ps(r0, r1), _mm512_unpackhi_ps(r0, r1));
            let b = _mm512_add_ps(_mm512_unpacklo_ps(r2, r3), _mm512_unpackhi_ps(r2, r3));
            let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
            let (low, high) = (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
            Self(_mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high)))
        }
    }
    #[inline(always)]
    unsafe fn zip_pairs(self, other: Self) -> [Self; 2] {
        // SAFETY: the caller ensures that the instructions are available.
        unsafe {
            let (a, b) = (_mm512_castps_pd(self.0), _mm512_castps_pd(other.0));
            let low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
            let high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
            let low = _mm512_permutex2var_pd(a, low, b);
            let high = _mm512_permutex2var_pd(a, high, b);
            [Self(_mm512_castpd_ps(low)), Self(_mm512_castpd_ps(high))]
        }
    }
    /// turned[r][s]: quad q holds sample 4 q + s of rows 4 r to 4 r + 3.
    type Turned = [[Self; 4]; 4];
    #[inline(always)]
    unsafe fn no_turned() -> Self::Turned {
        // SAFETY: the caller ensures that the instructions are available.
        unsafe { [[Self::splat(0.0); 4]; 4] }
    }
    #[inline(always)]
    unsafe fn turn(
        part: usize,
        turned: &mut Self::Turned,
        x: *const f32,
        offsets: *const u32,
        to: *mut f32,
    ) {
        // SAFETY: the caller ensures that the instructions are available, and provides offsets, the samples they
        // reach, and space.
        unsafe {
            if part < 4 {
                let mut rows = [_mm512_setzero_ps(); 4];
                for (k, row) in rows.iter_mut().enumerate() {
                    *row = _mm512_loadu_ps(x.sub(*offsets.add(4 * part + k) as usize));
                }
                let quads = transpose_quads!(
                    rows,
                    _mm512_unpacklo_ps,
                    _mm512_unpackhi_ps,
                    _mm512_unpacklo_pd,
                    _mm512_unpackhi_pd,
                    _mm512_castps_pd,
                    _mm512_castpd_ps
                );
                turned[part] = [Self(quads[0]), Self(quads[1]), Self(quads[2]), Self(quads[3])];
                return;
            }
            let s = part - 4;
            let [a, b] = [turned[0][s].0, turned[1][s].0];
            let [c, d] = [turned[2][s].0, turned[3][s].0];
            let (ab, cd) = (_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0x44>(c, d));
            _mm512_storeu_ps(to.add(16 * s), _mm512_shuffle_f32x4::<0x88>(ab, cd));
            _mm512_storeu_ps(to.add(16 * (s + 4)), _mm512_shuffle_f32x4::<0xdd>(ab, cd));
            let (ab, cd) = (_mm512_shuffle_f32x4::<0xee>(a, b), _mm512_shuffle_f32x4::<0xee>(c, d));
            _mm512_storeu_ps(to.add(16 * (s + 8)), _mm512_shuffle_f32x4::<0x88>(ab, cd));
            _mm512_storeu_ps(to.add(16 * (s + 12)), _mm512_shuffle_f32x4::<0xdd>(ab, cd));
        }
    }
}
