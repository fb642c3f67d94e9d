//! Running sums in registers: adds rows of one type, returns 32-bit elements.
//!
//! Invariant: no running sum overflows while it takes no more rows than the shape's segment.
#![allow(unsafe_code)]

use super::vector::Vector;

/// Running sums in one or two registers.
pub(super) trait Running<V>: Copy {
    /// Elements of a row in one vector.
    const ELEMENTS: usize;
    unsafe fn zero() -> Self;
    unsafe fn add(self, from: *const u8) -> Self;
    /// Returns the sums as 32-bit elements in order: the first [`PARTS`](Self::PARTS) vectors.
    unsafe fn spread(self) -> [V; 4];
    /// Number of vectors of 32-bit elements.
    const PARTS: usize;
}

/// Sums of bytes in 16-bit words: `high` sums the high bytes, `low` whole words modulo 2^16.
#[derive(Clone, Copy)]
pub(super) struct Bytes<V> {
    low: V,
    high: V,
}

/// Sums of 16-bit words within 16 bits.
#[derive(Clone, Copy)]
pub(super) struct Words<V>(V);

/// Sums of 16-bit words as halves of 32-bit words.
#[derive(Clone, Copy)]
pub(super) struct Wide<V> {
    low: V,
    high: V,
}

/// Sums of 32-bit words.
#[derive(Clone, Copy)]
pub(super) struct Doubles<V>(V);

/// Sums of floats.
#[derive(Clone, Copy)]
pub(super) struct Floats<V>(V);

impl<V: Vector> Running<V> for Bytes<V> {
    const ELEMENTS: usize = V::BYTES;
    const PARTS: usize = 4;
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller promises the level, here and below.
        unsafe { Self { low: V::zero(), high: V::zero() } }
    }
    #[inline(always)]
    unsafe fn add(self, from: *const u8) -> Self {
        // SAFETY: as above.
        unsafe {
            let row = V::load(from);
            Self { low: self.low.add_16(row), high: self.high.add_16(row.high_8()) }
        }
    }
    #[inline(always)]
    unsafe fn spread(self) -> [V; 4] {
        // SAFETY: as above.
        unsafe {
            let even = self.low.sub_16(self.high.up_8());
            let (first, second) = even.interleave_16(self.high);
            let ((a, b), (c, d)) = (first.halves_16(), second.halves_16());
            [a, b, c, d]
        }
    }
}

impl<V: Vector> Running<V> for Words<V> {
    const ELEMENTS: usize = V::BYTES / 2;
    const PARTS: usize = 2;
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller promises the level, here and below.
        unsafe { Self(V::zero()) }
    }
    #[inline(always)]
    unsafe fn add(self, from: *const u8) -> Self {
        // SAFETY: as above.
        unsafe { Self(self.0.add_16(V::load(from))) }
    }
    #[inline(always)]
    unsafe fn spread(self) -> [V; 4] {
        // SAFETY: as above.
        unsafe {
            let (a, b) = self.0.halves_16();
            [a, b, b, b]
        }
    }
}

impl<V: Vector> Running<V> for Wide<V> {
    const ELEMENTS: usize = V::BYTES / 2;
    const PARTS: usize = 2;
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller promises the level, here and below.
        unsafe { Self { low: V::zero(), high: V::zero() } }
    }
    #[inline(always)]
    unsafe fn add(self, from: *const u8) -> Self {
        // SAFETY: as above.
        unsafe {
            let row = V::load(from);
            Self { low: self.low.add_32(row), high: self.high.add_32(row.high_16()) }
        }
    }
    #[inline(always)]
    unsafe fn spread(self) -> [V; 4] {
        // SAFETY: as above.
        unsafe {
            let even = self.low.sub_32(self.high.up_16());
            let (a, b) = even.interleave_32(self.high);
            [a, b, b, b]
        }
    }
}

impl<V: Vector> Running<V> for Doubles<V> {
    const ELEMENTS: usize = V::BYTES / 4;
    const PARTS: usize = 1;
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller promises the level, here and below.
        unsafe { Self(V::zero()) }
    }
    #[inline(always)]
    unsafe fn add(self, from: *const u8) -> Self {
        // SAFETY: as above.
        unsafe { Self(self.0.add_32(V::load(from))) }
    }
    #[inline(always)]
    unsafe fn spread(self) -> [V; 4] {
        [self.0; 4]
    }
}

impl<V: Vector> Running<V> for Floats<V> {
    const ELEMENTS: usize = V::BYTES / 4;
    const PARTS: usize = 1;
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller promises the level, here and below.
        unsafe { Self(V::zero()) }
    }
    #[inline(always)]
    unsafe fn add(self, from: *const u8) -> Self {
        // SAFETY: as above.
        unsafe { Self(self.0.add_f32(V::load(from))) }
    }
    #[inline(always)]
    unsafe fn spread(self) -> [V; 4] {
        [self.0; 4]
    }
}
