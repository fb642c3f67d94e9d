//! Vector operations of the kernels, for each SIMD level.
//!
//! Invariant: lanes never mix, but in the operations that are named for it.
#![allow(unsafe_code)]

/// Register of single-precision floats.
///
/// # Safety
/// Methods may be called only if the CPU supports the level's instructions; pointers must be valid for the method's
/// reads or writes.
pub(super) unsafe trait Vector: Copy {
    /// Floats in the register: 8 or 16.
    const LANES: usize;
    /// Register of `LANES` 32-bit integers.
    type Words: Copy;
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Stores without caching (non-temporal); `to` must be aligned to the register's size.
    unsafe fn stream(self, to: *mut f32);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// Computes `self * b + c`, with one rounding if the level has fused multiply-add.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// Computes `c - self * b`.
    unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self;
    /// Reverses the lanes.
    unsafe fn reverse(self) -> Self;
    /// Interleaves the lanes of both registers; returns the first half and the second.
    unsafe fn interleave(self, other: Self) -> (Self, Self);
    /// Returns the even and the odd lanes of both registers: the inverse of `interleave`.
    unsafe fn deinterleave(self, other: Self) -> (Self, Self);
    /// Transposes the first [`Vector::LANES`] registers as a square matrix.
    unsafe fn transpose(rows: &mut [Self; 16]);
    /// Loads words of 1, 2 or 4 bytes, zero-extended.
    unsafe fn words_1(from: *const u8) -> Self::Words;
    unsafe fn words_2(from: *const u8) -> Self::Words;
    unsafe fn words_4(from: *const u8) -> Self::Words;
    /// Flips the bits of `mask` in each word.
    unsafe fn flip_bits(words: Self::Words, mask: i32) -> Self::Words;
    /// Extracts a signed field as floats: shifts each word left by `LEFT` bits, then arithmetically right by `RIGHT`
    /// bits.
    unsafe fn field<const LEFT: u32, const RIGHT: u32>(words: Self::Words) -> Self;
}

/// Plain arrays that the compiler vectorizes.
#[derive(Clone, Copy)]
pub(super) struct Portable([f32; 8]);

impl Portable {
    #[inline(always)]
    fn map2(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let mut result = self.0;
        for (a, b) in result.iter_mut().zip(other.0) {
            *a = f(*a, b);
        }
        Self(result)
    }
}

// SAFETY: requires only valid pointers, which the callers guarantee.
unsafe impl Vector for Portable {
    const LANES: usize = 8;
    type Words = [i32; 8];
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; 8])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller guarantees 8 readable floats.
        Self(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees 8 writable floats.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut f32) {
        // SAFETY: as for `store`.
        unsafe { self.store(to) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.map2(other, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.map2(other, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.map2(other, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        self.map2(b, |a, b| a * b).map2(c, |a, c| a + c)
    }
    #[inline(always)]
    unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self {
        self.map2(b, |a, b| a * b).map2(c, |a, c| c - a)
    }
    #[inline(always)]
    unsafe fn reverse(self) -> Self {
        let [a, b, c, d, e, f, g, h] = self.0;
        Self([h, g, f, e, d, c, b, a])
    }
    #[inline(always)]
    unsafe fn interleave(self, other: Self) -> (Self, Self) {
        let (a, b) = (self.0, other.0);
        (
            Self([a[0], b[0], a[1], b[1], a[2], b[2], a[3], b[3]]),
            Self([a[4], b[4], a[5], b[5], a[6], b[6], a[7], b[7]]),
        )
    }
    #[inline(always)]
    unsafe fn deinterleave(self, other: Self) -> (Self, Self) {
        let (a, b) = (self.0, other.0);
        (
            Self([a[0], a[2], a[4], a[6], b[0], b[2], b[4], b[6]]),
            Self([a[1], a[3], a[5], a[7], b[1], b[3], b[5], b[7]]),
        )
    }
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; 16]) {
        let from = *rows;
        for (i, row) in rows.iter_mut().take(8).enumerate() {
            for (j, value) in row.0.iter_mut().enumerate() {
                *value = from[j].0[i];
            }
        }
    }
    #[inline(always)]
    unsafe fn words_1(from: *const u8) -> [i32; 8] {
        // SAFETY: the caller guarantees 8 readable bytes.
        let bytes = unsafe { from.cast::<[u8; 8]>().read_unaligned() };
        bytes.map(i32::from)
    }
    #[inline(always)]
    unsafe fn words_2(from: *const u8) -> [i32; 8] {
        // SAFETY: the caller guarantees 16 readable bytes.
        let words = unsafe { from.cast::<[[u8; 2]; 8]>().read_unaligned() };
        words.map(|word| i32::from(u16::from_le_bytes(word)))
    }
    #[inline(always)]
    unsafe fn words_4(from: *const u8) -> [i32; 8] {
        // SAFETY: the caller guarantees 32 readable bytes.
        let words = unsafe { from.cast::<[[u8; 4]; 8]>().read_unaligned() };
        words.map(i32::from_le_bytes)
    }
    #[inline(always)]
    unsafe fn flip_bits(words: [i32; 8], mask: i32) -> [i32; 8] {
        words.map(|word| word ^ mask)
    }
    #[inline(always)]
    unsafe fn field<const LEFT: u32, const RIGHT: u32>(words: [i32; 8]) -> Self {
        Self(words.map(|word| ((word << LEFT) >> RIGHT) as f32))
    }
}

pub(super) use crate::backend::simd::levels;

/// Returns the floats per register of a level.
pub(super) fn lanes(level: crate::backend::simd::Level) -> usize {
    match level {
        crate::backend::simd::Level::Avx512(_) => 16,
        _ => 8,
    }
}
