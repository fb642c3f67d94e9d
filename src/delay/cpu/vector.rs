//! Vector operations of the delay correction for each vector level, on registers of floats.
//!
//! Invariant: lanes never mix, but where complex numbers are taken apart or put together.
#![allow(unsafe_code)]

/// Most floats in a register.
pub(super) const MOST_LANES: usize = 16;

/// Destination of a register's samples and saturation counts.
pub(super) struct Target {
    /// First sample of the register.
    pub(super) to: *mut u8,
    /// Saturated samples of each channel.
    pub(super) saturated: *mut u32,
}

/// Register of single-precision floats.
///
/// # Safety
/// Every method may be called only where the level's instructions exist; pointers must be valid for
/// what a method reads or writes.
pub(super) unsafe trait Vector: Copy {
    /// Floats in the register: 8 or 16.
    const LANES: usize;
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn mul(self, other: Self) -> Self;
    /// Computes `self * b + c`, rounded once if the level has a fused instruction.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// Computes `c - self * b`.
    unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self;
    /// Loads `LANES` complex numbers and separates real and imaginary parts.
    unsafe fn load_complex(from: *const f32) -> (Self, Self);
    /// Rotates cosines and sines by `quarters` quarter turns.
    unsafe fn rotate(self, sine: Self, quarters: *const i32) -> (Self, Self);
    /// Stores complex floats; 0 where one is not finite.
    unsafe fn store_floats(self, im: Self, to: &Target);
    /// Rounds, clips and stores complex integers of 8 bits; 0 where a float is not finite.
    unsafe fn store_bytes(self, im: Self, to: &Target);
    /// Like [`Vector::store_bytes`], with 4 bits.
    unsafe fn store_nibbles(self, im: Self, to: &Target);
}

/// Plain arrays, which the compiler vectorizes.
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
unsafe impl Vector for Portable {
    const LANES: usize = 8;
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
    unsafe fn load_complex(from: *const f32) -> (Self, Self) {
        // SAFETY: the caller guarantees 8 readable complex numbers.
        let both = unsafe { from.cast::<[[f32; 2]; 8]>().read_unaligned() };
        (Self(both.map(|z| z[0])), Self(both.map(|z| z[1])))
    }
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

pub(super) use crate::backend::simd::levels;
