//! Vector operations of the kernels, for each level.
//!
//! Invariant: every operation gives the same bits at every level.
#![allow(unsafe_code)]

/// One register of unsigned bytes, 16-bit or 32-bit words, or floats.
///
/// # Safety
/// Every method requires that the level's instructions exist; pointers must be valid for the bytes that a method
/// reads or writes.
pub(super) unsafe trait Vector: Copy {
    /// Bytes of the register.
    const BYTES: usize;
    unsafe fn zero() -> Self;
    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    /// Widens half a register of bytes to 16-bit words.
    unsafe fn widen_8(from: *const u8) -> Self;
    /// Widens half a register of 16-bit words to 32-bit words.
    unsafe fn widen_16(from: *const u8) -> Self;
    unsafe fn add_8(self, other: Self) -> Self;
    unsafe fn add_16(self, other: Self) -> Self;
    unsafe fn add_32(self, other: Self) -> Self;
    unsafe fn add_f32(self, other: Self) -> Self;
    unsafe fn sub_16(self, other: Self) -> Self;
    unsafe fn sub_32(self, other: Self) -> Self;
    /// Moves the high bytes of 16-bit words down, and the low bytes up.
    unsafe fn high_8(self) -> Self;
    unsafe fn up_8(self) -> Self;
    /// Moves the high halves of 32-bit words down, and the low halves up.
    unsafe fn high_16(self) -> Self;
    unsafe fn up_16(self) -> Self;
    /// Copies a 32-bit word to all lanes.
    unsafe fn splat_32(word: u32) -> Self;
    /// Returns the lower and the upper half of the 16-bit words, as 32-bit words.
    unsafe fn halves_16(self) -> (Self, Self);
    /// Interleaves the words of both; returns the first and the second half.
    unsafe fn interleave_16(self, other: Self) -> (Self, Self);
    unsafe fn interleave_32(self, other: Self) -> (Self, Self);
}

/// Plain arrays, which the compiler vectorizes.
#[derive(Clone, Copy)]
pub(super) struct Portable([u8; 32]);

macro_rules! lanes {
    ($name:ident, $lane:ty, $count:literal) => {
        #[inline(always)]
        fn $name(self, other: Self, f: impl Fn($lane, $lane) -> $lane) -> Self {
            let a: [$lane; $count] = bytemuck::cast(self.0);
            let b: [$lane; $count] = bytemuck::cast(other.0);
            Self(bytemuck::cast(std::array::from_fn::<$lane, $count, _>(|i| f(a[i], b[i]))))
        }
    };
}

impl Portable {
    lanes!(bytes, u8, 32);
    lanes!(words, u16, 16);
    lanes!(doubles, u32, 8);
    lanes!(floats, f32, 8);
}

// SAFETY: requires only valid pointers, which callers guarantee.
unsafe impl Vector for Portable {
    const BYTES: usize = 32;
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0; 32])
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller promises 32 readable bytes.
        Self(unsafe { from.cast::<[u8; 32]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller promises 32 writable bytes.
        unsafe { to.cast::<[u8; 32]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn widen_8(from: *const u8) -> Self {
        // SAFETY: the caller promises 16 readable bytes.
        let half = unsafe { from.cast::<[u8; 16]>().read_unaligned() };
        Self(bytemuck::cast(half.map(u16::from)))
    }
    #[inline(always)]
    unsafe fn widen_16(from: *const u8) -> Self {
        // SAFETY: the caller promises 16 readable bytes.
        let half = unsafe { from.cast::<[u16; 8]>().read_unaligned() };
        Self(bytemuck::cast(half.map(u32::from)))
    }
    #[inline(always)]
    unsafe fn add_8(self, other: Self) -> Self {
        self.bytes(other, u8::wrapping_add)
    }
    #[inline(always)]
    unsafe fn add_16(self, other: Self) -> Self {
        self.words(other, u16::wrapping_add)
    }
    #[inline(always)]
    unsafe fn add_32(self, other: Self) -> Self {
        self.doubles(other, u32::wrapping_add)
    }
    #[inline(always)]
    unsafe fn add_f32(self, other: Self) -> Self {
        self.floats(other, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub_16(self, other: Self) -> Self {
        self.words(other, u16::wrapping_sub)
    }
    #[inline(always)]
    unsafe fn sub_32(self, other: Self) -> Self {
        self.doubles(other, u32::wrapping_sub)
    }
    #[inline(always)]
    unsafe fn high_8(self) -> Self {
        self.words(self, |a, _| a >> 8)
    }
    #[inline(always)]
    unsafe fn up_8(self) -> Self {
        self.words(self, |a, _| a << 8)
    }
    #[inline(always)]
    unsafe fn high_16(self) -> Self {
        self.doubles(self, |a, _| a >> 16)
    }
    #[inline(always)]
    unsafe fn up_16(self) -> Self {
        self.doubles(self, |a, _| a << 16)
    }
    #[inline(always)]
    unsafe fn splat_32(word: u32) -> Self {
        Self(bytemuck::cast([word; 8]))
    }
    #[inline(always)]
    unsafe fn halves_16(self) -> (Self, Self) {
        let words: [u16; 16] = bytemuck::cast(self.0);
        let half = |start| std::array::from_fn::<u32, 8, _>(|i| u32::from(words[start + i]));
        (Self(bytemuck::cast(half(0))), Self(bytemuck::cast(half(8))))
    }
    #[inline(always)]
    unsafe fn interleave_16(self, other: Self) -> (Self, Self) {
        let (a, b): ([u16; 16], [u16; 16]) = (bytemuck::cast(self.0), bytemuck::cast(other.0));
        let word = |i: usize| if i.is_multiple_of(2) { a[i / 2] } else { b[i / 2] };
        let half = |start| std::array::from_fn::<u16, 16, _>(|i| word(start + i));
        (Self(bytemuck::cast(half(0))), Self(bytemuck::cast(half(16))))
    }
    #[inline(always)]
    unsafe fn interleave_32(self, other: Self) -> (Self, Self) {
        let (a, b): ([u32; 8], [u32; 8]) = (bytemuck::cast(self.0), bytemuck::cast(other.0));
        let word = |i: usize| if i.is_multiple_of(2) { a[i / 2] } else { b[i / 2] };
        let half = |start| std::array::from_fn::<u32, 8, _>(|i| word(start + i));
        (Self(bytemuck::cast(half(0))), Self(bytemuck::cast(half(8))))
    }
}

/// Prefetches the cache lines that hold `values`.
#[inline(always)]
pub(super) fn prefetch<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(values)).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, and the address lies in the slice.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(values.as_ptr().cast::<i8>().add(line)) }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    //! AVX2 and AVX-512 registers.

    use std::arch::x86_64::*;

    use crate::dedisperse::cpu::vector::Vector;

    /// 256 bits.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2(__m256i);

    /// 512 bits.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512(__m512i);

    macro_rules! register {
        ($name:ident, $bytes:literal, $load:ident, $store:ident, $zero:ident,
         $widen_8:ident, $widen_16:ident, $half_load:ident, $half:ty,
         [$($binary:ident = $instruction:ident),*], [$($shift:ident = $shifting:ident $by:literal),*],
         ($splat:ident, $low_half:ident, $high_half:ident),
         [$($mix:ident = $mix_low:ident $mix_high:ident),*], $join:ident,
         $float:ident, $to_float:ident, $from_float:ident) => {
            // SAFETY: each method is one instruction of the level, whose presence callers guarantee.
            unsafe impl Vector for $name {
                const BYTES: usize = $bytes;
                #[inline(always)]
                unsafe fn zero() -> Self {
                    // SAFETY: the caller promises the level.
                    Self(unsafe { $zero() })
                }
                #[inline(always)]
                unsafe fn load(from: *const u8) -> Self {
                    // SAFETY: the caller promises the level and the bytes.
                    Self(unsafe { $load(from.cast()) })
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut u8) {
                    // SAFETY: the caller promises the level and the bytes.
                    unsafe { $store(to.cast(), self.0) }
                }
                #[inline(always)]
                unsafe fn widen_8(from: *const u8) -> Self {
                    // SAFETY: the caller promises the level and the bytes.
                    Self(unsafe { $widen_8($half_load(from.cast())) })
                }
                #[inline(always)]
                unsafe fn widen_16(from: *const u8) -> Self {
                    // SAFETY: the caller promises the level and the bytes.
                    Self(unsafe { $widen_16($half_load(from.cast())) })
                }
                $(
                    #[inline(always)]
                    unsafe fn $binary(self, other: Self) -> Self {
                        // SAFETY: the caller promises the level.
                        Self(unsafe { $instruction(self.0, other.0) })
                    }
                )*
                $(
                    #[inline(always)]
                    unsafe fn $shift(self) -> Self {
                        // SAFETY: the caller promises the level.
                        Self(unsafe { $shifting::<$by>(self.0) })
                    }
                )*
                #[inline(always)]
                unsafe fn splat_32(word: u32) -> Self {
                    // SAFETY: the caller promises the level.
                    Self(unsafe { $splat(word.cast_signed()) })
                }
                #[inline(always)]
                unsafe fn halves_16(self) -> (Self, Self) {
                    // SAFETY: the caller promises the level.
                    unsafe {
                        let (low, high) = ($low_half(self.0), $high_half::<1>(self.0));
                        (Self($widen_16(low)), Self($widen_16(high)))
                    }
                }
                $(
                    #[inline(always)]
                    unsafe fn $mix(self, other: Self) -> (Self, Self) {
                        // SAFETY: the caller promises the level.
                        unsafe {
                            let (low, high) =
                                ($mix_low(self.0, other.0), $mix_high(self.0, other.0));
                            let (first, second) = $join(low, high);
                            (Self(first), Self(second))
                        }
                    }
                )*
                #[inline(always)]
                unsafe fn add_f32(self, other: Self) -> Self {
                    // SAFETY: the caller promises the level.
                    unsafe {
                        let sum = $float($to_float(self.0), $to_float(other.0));
                        Self($from_float(sum))
                    }
                }
            }
        };
    }

    /// Reorders 128-bit lanes that were interleaved separately.
    #[inline(always)]
    unsafe fn join_256(low: __m256i, high: __m256i) -> (__m256i, __m256i) {
        // SAFETY: the caller promises AVX2.
        unsafe {
            let first = _mm256_permute2x128_si256::<0x20>(low, high);
            (first, _mm256_permute2x128_si256::<0x31>(low, high))
        }
    }

    /// Like [`join_256`].
    #[inline(always)]
    unsafe fn join_512(low: __m512i, high: __m512i) -> (__m512i, __m512i) {
        // SAFETY: the caller promises AVX-512 F.
        unsafe {
            let first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
            let second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
            let first = _mm512_permutex2var_epi64(low, first, high);
            (first, _mm512_permutex2var_epi64(low, second, high))
        }
    }

    register!(
        Avx2, 32, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_setzero_si256,
        _mm256_cvtepu8_epi16, _mm256_cvtepu16_epi32, _mm_loadu_si128, __m128i,
        [add_8 = _mm256_add_epi8, add_16 = _mm256_add_epi16, add_32 = _mm256_add_epi32,
         sub_16 = _mm256_sub_epi16, sub_32 = _mm256_sub_epi32],
        [high_8 = _mm256_srli_epi16 8, up_8 = _mm256_slli_epi16 8,
         high_16 = _mm256_srli_epi32 16, up_16 = _mm256_slli_epi32 16],
        (_mm256_set1_epi32, _mm256_castsi256_si128, _mm256_extracti128_si256),
        [interleave_16 = _mm256_unpacklo_epi16 _mm256_unpackhi_epi16,
         interleave_32 = _mm256_unpacklo_epi32 _mm256_unpackhi_epi32], join_256,
        _mm256_add_ps, _mm256_castsi256_ps, _mm256_castps_si256
    );

    register!(
        Avx512, 64, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_setzero_si512,
        _mm512_cvtepu8_epi16, _mm512_cvtepu16_epi32, _mm256_loadu_si256, __m256i,
        [add_8 = _mm512_add_epi8, add_16 = _mm512_add_epi16, add_32 = _mm512_add_epi32,
         sub_16 = _mm512_sub_epi16, sub_32 = _mm512_sub_epi32],
        [high_8 = _mm512_srli_epi16 8, up_8 = _mm512_slli_epi16 8,
         high_16 = _mm512_srli_epi32 16, up_16 = _mm512_slli_epi32 16],
        (_mm512_set1_epi32, _mm512_castsi512_si256, _mm512_extracti64x4_epi64),
        [interleave_16 = _mm512_unpacklo_epi16 _mm512_unpackhi_epi16,
         interleave_32 = _mm512_unpacklo_epi32 _mm512_unpackhi_epi32], join_512,
        _mm512_add_ps, _mm512_castsi512_ps, _mm512_castps_si512
    );
}
