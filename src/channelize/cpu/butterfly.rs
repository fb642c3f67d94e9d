//! Small Fourier transforms in registers: 2, 3, 4, 5, 8 and 16 points, one transform per lane.
//!
//! Invariant: output in natural order, in place, forward sign, no scaling.
#![allow(unsafe_code)]

use crate::backend::vector::Vector;

/// One register of complex numbers, as real and imaginary parts.
#[derive(Clone, Copy)]
pub(super) struct Complexes<V> {
    pub(super) re: V,
    pub(super) im: V,
}

/// # Safety
/// Same requirements as for [`Vector`]'s methods.
impl<V: Vector> Complexes<V> {
    /// Loads real parts from `from` and imaginary parts `imaginary` floats further.
    #[inline(always)]
    pub(super) unsafe fn load(from: *const f32, imaginary: usize) -> Self {
        // SAFETY: forwards the caller's guarantee.
        unsafe { Self { re: V::load(from), im: V::load(from.add(imaginary)) } }
    }
    #[inline(always)]
    pub(super) unsafe fn store(self, to: *mut f32, imaginary: usize) {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            self.re.store(to);
            self.im.store(to.add(imaginary));
        }
    }
    #[inline(always)]
    pub(super) unsafe fn times(self, w: Self) -> Self {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let re = self.im.neg_mul_add(w.im, self.re.mul(w.re));
            Self { re, im: self.im.mul_add(w.re, self.re.mul(w.im)) }
        }
    }
    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: forwards the caller's guarantee.
        unsafe { Self { re: self.re.add(other.re), im: self.im.add(other.im) } }
    }
    #[inline(always)]
    unsafe fn minus(self, other: Self) -> Self {
        // SAFETY: forwards the caller's guarantee.
        unsafe { Self { re: self.re.sub(other.re), im: self.im.sub(other.im) } }
    }
    /// `self + i other`.
    #[inline(always)]
    unsafe fn plus_i(self, other: Self) -> Self {
        // SAFETY: forwards the caller's guarantee.
        unsafe { Self { re: self.re.sub(other.im), im: self.im.add(other.re) } }
    }
    /// `self - i other`.
    #[inline(always)]
    unsafe fn minus_i(self, other: Self) -> Self {
        // SAFETY: forwards the caller's guarantee.
        unsafe { Self { re: self.re.add(other.im), im: self.im.sub(other.re) } }
    }
    /// `self + x other`.
    #[inline(always)]
    unsafe fn plus_real(self, x: f32, other: Self) -> Self {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let x = V::splat(x);
            Self { re: other.re.mul_add(x, self.re), im: other.im.mul_add(x, self.im) }
        }
    }
    #[inline(always)]
    unsafe fn scaled(self, x: f32) -> Self {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let x = V::splat(x);
            Self { re: self.re.mul(x), im: self.im.mul(x) }
        }
    }
    /// `self + w other` and `self - w other` for `w = scale (1 - i slope)`.
    #[inline(always)]
    unsafe fn both_cosine(self, other: Self, scale: f32, slope: f32) -> (Self, Self) {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let t = V::splat(slope);
            let re = other.im.mul_add(t, other.re);
            let im = other.re.neg_mul_add(t, other.im);
            self.both(Self { re, im }, scale)
        }
    }
    /// `self + w other` and `self - w other` for `w = scale (slope - i)`.
    #[inline(always)]
    unsafe fn both_sine(self, other: Self, scale: f32, slope: f32) -> (Self, Self) {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let (t, x) = (V::splat(slope), V::splat(scale));
            let re = other.re.mul_add(t, other.im);
            let negative = other.im.neg_mul_add(t, other.re);
            let plus = Self { re: re.mul_add(x, self.re), im: negative.neg_mul_add(x, self.im) };
            (plus, Self { re: re.neg_mul_add(x, self.re), im: negative.mul_add(x, self.im) })
        }
    }
    #[inline(always)]
    unsafe fn both(self, other: Self, scale: f32) -> (Self, Self) {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let x = V::splat(scale);
            let minus =
                Self { re: other.re.neg_mul_add(x, self.re), im: other.im.neg_mul_add(x, self.im) };
            (self.plus_real(scale, other), minus)
        }
    }
}

type Registers<V> = [Complexes<V>; 16];

/// Transforms the first `POINTS` registers in place.
///
/// # Safety
/// Same requirements as for [`Vector`]'s methods.
#[inline(always)]
pub(super) unsafe fn butterfly<V: Vector, const POINTS: usize>(x: &mut Registers<V>) {
    // SAFETY: forwards the caller's guarantee.
    unsafe {
        match POINTS {
            2 => (x[0], x[1]) = (x[0].plus(x[1]), x[0].minus(x[1])),
            3 => three(x),
            4 => {
                let y = four(x[0], x[1], x[2], x[3]);
                (x[0], x[1], x[2], x[3]) = (y[0], y[1], y[2], y[3]);
            }
            5 => five(x),
            8 => {
                let y = eight([x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]]);
                (x[0], x[1], x[2], x[3]) = (y[0], y[1], y[2], y[3]);
                (x[4], x[5], x[6], x[7]) = (y[4], y[5], y[6], y[7]);
            }
            _ => sixteen(x),
        }
    }
}

#[inline(always)]
unsafe fn three<V: Vector>(x: &mut Registers<V>) {
    // SAFETY: forwards the caller's guarantee.
    unsafe {
        let sum = x[1].plus(x[2]);
        let difference = x[1].minus(x[2]).scaled(0.866_025_4);
        let middle = x[0].plus_real(-0.5, sum);
        x[0] = x[0].plus(sum);
        (x[1], x[2]) = (middle.minus_i(difference), middle.plus_i(difference));
    }
}

#[inline(always)]
unsafe fn four<V: Vector>(
    a: Complexes<V>,
    b: Complexes<V>,
    c: Complexes<V>,
    d: Complexes<V>,
) -> [Complexes<V>; 4] {
    // SAFETY: forwards the caller's guarantee.
    unsafe {
        let (even, odd) = (a.plus(c), a.minus(c));
        let (sum, difference) = (b.plus(d), b.minus(d));
        [even.plus(sum), odd.minus_i(difference), even.minus(sum), odd.plus_i(difference)]
    }
}

#[inline(always)]
unsafe fn five<V: Vector>(x: &mut Registers<V>) {
    const C1: f32 = 0.309_017;
    const C2: f32 = -0.809_017;
    const S1: f32 = 0.951_056_5;
    const S2: f32 = 0.587_785_25;
    // SAFETY: forwards the caller's guarantee.
    unsafe {
        let (a, b) = (x[1].plus(x[4]), x[2].plus(x[3]));
        let (c, d) = (x[1].minus(x[4]), x[2].minus(x[3]));
        let (near, far) =
            (x[0].plus_real(C1, a).plus_real(C2, b), x[0].plus_real(C2, a).plus_real(C1, b));
        let (first, second) = (c.scaled(S1).plus_real(S2, d), c.scaled(S2).plus_real(-S1, d));
        x[0] = x[0].plus(a).plus(b);
        (x[1], x[4]) = (near.minus_i(first), near.plus_i(first));
        (x[2], x[3]) = (far.minus_i(second), far.plus_i(second));
    }
}

#[inline(always)]
unsafe fn eight<V: Vector>(x: [Complexes<V>; 8]) -> [Complexes<V>; 8] {
    const H: f32 = std::f32::consts::FRAC_1_SQRT_2;
    // SAFETY: forwards the caller's guarantee.
    unsafe {
        let even = four(x[0], x[2], x[4], x[6]);
        let odd = four(x[1], x[3], x[5], x[7]);
        let (y1, y5) = even[1].both_cosine(odd[1], H, 1.0);
        let (y3, y7) = even[3].both_cosine(odd[3], -H, -1.0);
        let (y0, y4) = (even[0].plus(odd[0]), even[0].minus(odd[0]));
        [y0, y1, even[2].minus_i(odd[2]), y3, y4, y5, even[2].plus_i(odd[2]), y7]
    }
}

#[inline(always)]
unsafe fn sixteen<V: Vector>(x: &mut Registers<V>) {
    const H: f32 = std::f32::consts::FRAC_1_SQRT_2;
    /// Cosine and tangent of 1/16 turn.
    const COS: f32 = 0.923_879_5;
    const TAN: f32 = 0.414_213_57;
    // SAFETY: forwards the caller's guarantee.
    unsafe {
        let even = eight([x[0], x[2], x[4], x[6], x[8], x[10], x[12], x[14]]);
        let odd = eight([x[1], x[3], x[5], x[7], x[9], x[11], x[13], x[15]]);
        (x[0], x[8]) = (even[0].plus(odd[0]), even[0].minus(odd[0]));
        (x[1], x[9]) = even[1].both_cosine(odd[1], COS, TAN);
        (x[2], x[10]) = even[2].both_cosine(odd[2], H, 1.0);
        (x[3], x[11]) = even[3].both_sine(odd[3], COS, TAN);
        (x[4], x[12]) = (even[4].minus_i(odd[4]), even[4].plus_i(odd[4]));
        (x[5], x[13]) = even[5].both_sine(odd[5], COS, -TAN);
        (x[6], x[14]) = even[6].both_cosine(odd[6], -H, -1.0);
        (x[7], x[15]) = even[7].both_cosine(odd[7], -COS, -TAN);
    }
}
