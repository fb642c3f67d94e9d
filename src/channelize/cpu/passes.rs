//! Passes of the Fourier transforms: butterflies on registers of complex numbers, the passes that apply them, and
//! non-temporal stores of a finished spectrum. The stores can be spread over the computation of the next spectrum,
//! because a long run of them stalls on memory.
//!
//! Invariant: the source of pending stores is not changed until all of them are written.
#![allow(unsafe_code)]

use std::f64::consts::TAU;

use crate::backend::vector::{Vector, levels};

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
    /// Computes `self + i other`.
    #[inline(always)]
    unsafe fn plus_i(self, other: Self) -> Self {
        // SAFETY: forwards the caller's guarantee.
        unsafe { Self { re: self.re.sub(other.im), im: self.im.add(other.re) } }
    }
    /// Computes `self - i other`.
    #[inline(always)]
    unsafe fn minus_i(self, other: Self) -> Self {
        // SAFETY: forwards the caller's guarantee.
        unsafe { Self { re: self.re.add(other.im), im: self.im.sub(other.re) } }
    }
    /// Computes `self + x other`.
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
    /// Computes `self + w other` and `self - w other` for `w = scale (1 - i slope)`.
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
    /// Computes `self + w other` and `self - w other` for `w = scale (slope - i)`.
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

/// Returns whether to spread non-temporal stores over other work, which is faster on Intel processors. On AMD's
/// (measured on Zen 4) one uninterrupted run is faster. The results are identical.
pub(super) fn spreads() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Floats still to be written, in whole cache lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    from: *const f32,
    to: *mut f32,
    floats: usize,
    /// Registers per step.
    step: usize,
}

impl Default for Pending {
    fn default() -> Self {
        Self { from: std::ptr::null(), to: std::ptr::null_mut(), floats: 0, step: 0 }
    }
}

/// Floats per cache line.
const LINE: usize = 16;

impl Pending {
    /// Writes the partial cache lines at both ends of `to`; the rest becomes pending.
    ///
    /// # Safety
    /// `from` and `to` must each hold `floats` floats, must not overlap, and must stay valid until all is written.
    pub(super) unsafe fn new(from: *const f32, to: *mut f32, floats: usize) -> Self {
        let head = (to.addr().wrapping_neg() % 64 / 4).min(floats);
        let tail = head + (floats - head) / LINE * LINE;
        // SAFETY: all indices are below `floats`.
        unsafe {
            for i in (0..head).chain(tail..floats) {
                *to.add(i) = *from.add(i);
            }
            Self { from: from.add(head), to: to.add(head), floats: tail - head, step: 0 }
        }
    }

    /// Divides the pending floats evenly among `steps` steps.
    pub(super) fn spread(&mut self, steps: usize, lanes: usize) {
        self.step = (self.floats / lanes).div_ceil(steps.max(1));
    }

    /// Writes the next portion.
    ///
    /// # Safety
    /// Same requirements as for [`Vector`]'s methods.
    #[inline(always)]
    pub(super) unsafe fn step<V: Vector>(&mut self) {
        for _ in 0..self.step {
            if self.floats == 0 {
                break;
            }
            // SAFETY: the remainder is whole cache lines, a multiple of a register; `new`'s caller guarantees both
            // buffers.
            unsafe {
                V::load(self.from).stream(self.to);
                self.from = self.from.add(V::LANES);
                self.to = self.to.add(V::LANES);
            }
            self.floats -= V::LANES;
        }
    }
}

levels!(flush, flush_body, (pending: &mut Pending));

/// Writes all pending floats.
///
/// # Safety
/// Same requirements as for [`Pending::new`].
#[inline(always)]
unsafe fn flush_body<V: Vector>(pending: &mut Pending) {
    pending.spread(1, V::LANES);
    // SAFETY: forwards the caller's guarantee.
    unsafe { pending.step::<V>() };
}

/// Row layout. Padding rows keep rows at power-of-two distances out of the same cache set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    /// Padding rows after every 16 rows and after every 256 rows: 0 or 1 each.
    sixteen: usize,
    many: usize,
}

impl Spread {
    /// Returns the storage index of a row; 8 or 16 rows from a multiple of 8 or 16 are contiguous.
    #[inline(always)]
    pub(super) fn place(self, row: usize) -> usize {
        row + (row >> 4) * self.sixteen + (row >> 8) * self.many
    }
}

/// One pass over all rows.
#[derive(Clone, Debug)]
struct Pass {
    radix: usize,
    /// Rows per segment; the pass divides each segment into `radix` segments.
    length: usize,
    /// Twiddle factors (real, imaginary) of outputs 1.. of the butterflies at offsets 1.. of a segment.
    twiddles: Vec<f32>,
}

/// Passes of one transform length.
#[derive(Clone, Debug)]
pub(super) struct Passes {
    points: usize,
    spread: Spread,
    passes: Vec<Pass>,
    /// Row of the first output of each butterfly of the last pass.
    rows: Vec<u32>,
}

/// Output of the last pass: row `k` at `at + k * row`, imaginary parts `imaginary` floats further.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) at: *mut f32,
    pub(super) row: usize,
    pub(super) imaginary: usize,
}

/// Complex output of the last pass: row `k` is stored at index `(k + rotation) mod points`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RotatedTarget {
    pub(super) at: *mut f32,
    pub(super) rotation: usize,
    /// Whether to use non-temporal stores; `at` must then be aligned to a cache line.
    pub(super) streams: bool,
}

/// Returns `exp(-2 pi i index / points)`.
pub(super) fn root(index: usize, points: usize) -> (f64, f64) {
    let (sin, cos) = (-TAU * (index % points) as f64 / points as f64).sin_cos();
    (cos, sin)
}

/// Minimum number of rows for which padding rows are inserted.
const SPREAD: usize = 256;

/// Returns the radices for a length, or `None` if it has a prime factor over 5.
fn radices(points: usize, most: usize) -> Option<Vec<usize>> {
    let mut rest = points;
    let mut radices = Vec::new();
    for odd in [5, 3] {
        while rest.is_multiple_of(odd) {
            radices.push(odd);
            rest /= odd;
        }
    }
    if !rest.is_power_of_two() {
        return None;
    }
    let mut bits = rest.trailing_zeros();
    let largest = most.trailing_zeros();
    // With many rows, the last butterflies have radix 16, so that the strides of earlier passes are multiples of 16.
    let last = if points >= SPREAD && bits >= 4 { 4 } else { 0 };
    bits -= last;
    for left in (1..=bits.div_ceil(largest)).rev() {
        let own = bits.div_ceil(left);
        radices.push(1 << own);
        bits -= own;
    }
    if last > 0 {
        radices.push(1 << last);
    }
    if radices.is_empty() {
        radices.push(1);
    }
    Some(radices)
}

impl Passes {
    /// Returns the passes for `points` rows if butterflies for all factors exist; `most` is the largest radix.
    pub(super) fn new(points: usize, most: usize) -> Option<Self> {
        let radices = radices(points, most)?;
        let mut length = points;
        let mut passes = Vec::new();
        for &radix in &radices {
            let step = length / radix;
            let mut twiddles = Vec::new();
            for (j, a) in (1..step).flat_map(|j| (1..radix).map(move |a| (j, a))) {
                let (re, im) = root(j * a, length);
                twiddles.extend([re as f32, im as f32]);
            }
            passes.push(Pass { radix, length, twiddles });
            length = step;
        }
        let rows = first_rows(&radices);
        let is_spread = points >= SPREAD && radices.last() == Some(&16);
        let steps = || passes.iter().map(|pass: &Pass| pass.length / pass.radix);
        // The storage index must be linear in multiples of each pass's step.
        let is_wide = steps().all(|step| step <= 16 || step.is_multiple_of(256));
        let spread = Spread {
            sixteen: usize::from(is_spread),
            many: usize::from(is_spread && is_wide && points.is_power_of_two()),
        };
        Some(Self { points, spread, passes, rows })
    }

    /// Returns the row layout.
    pub(super) fn spread(&self) -> Spread {
        self.spread
    }

    /// Returns the number of butterflies of all passes.
    fn butterflies(&self) -> usize {
        self.passes.iter().map(|pass| self.points / pass.radix).sum()
    }

    /// Returns the rows that the buffer needs, including padding and the rounding up to 16.
    pub(super) fn room(&self) -> usize {
        self.spread.place(self.points.next_multiple_of(16)) + 1
    }
}

/// Returns the output row of output 0 of each butterfly of the last pass: the segment index with its digits reversed.
fn first_rows(radices: &[usize]) -> Vec<u32> {
    let Some((_, before)) = radices.split_last() else { return vec![0] };
    let mut rows = vec![0u32];
    let mut weight = 1;
    for radix in before {
        rows = rows
            .iter()
            .flat_map(|row| (0..*radix).map(move |a| row + (a * weight) as u32))
            .collect();
        weight *= radix;
    }
    rows
}

levels!(transform, transform_body, (passes: &Passes, rows: *mut f32, target: Target));

/// Transforms the rows in place and writes the result to the target.
///
/// # Safety
/// `rows` must hold one row per point; the target must have as much space and not overlap.
#[inline(always)]
unsafe fn transform_body<V: Vector>(passes: &Passes, rows: *mut f32, target: Target) {
    // SAFETY: forwards the caller's guarantee.
    unsafe {
        before::<V>(passes, rows, &mut Pending::default());
        last::<V, Target>(passes, rows, target, &mut Pending::default());
    }
}

levels!(transform_in_place, in_place_body, (
    passes: &Passes,
    rows: *mut f32,
    target: RotatedTarget,
    pending: &mut Pending,
));

/// Like [`transform`], but writes complex values and interleaves the pending stores with the computation.
///
/// # Safety
/// Same requirements as for [`transform`].
#[inline(always)]
unsafe fn in_place_body<V: Vector>(
    passes: &Passes,
    rows: *mut f32,
    target: RotatedTarget,
    pending: &mut Pending,
) {
    let (at, rotation, points) = (target.at, target.rotation, passes.points);
    // SAFETY: forwards the caller's guarantee.
    unsafe {
        pending.spread(passes.butterflies(), V::LANES);
        before::<V>(passes, rows, pending);
        if target.streams {
            last::<V, Rotated<true>>(passes, rows, Rotated { at, rotation, points }, pending);
        } else {
            last::<V, Rotated<false>>(passes, rows, Rotated { at, rotation, points }, pending);
        }
    }
}

/// Runs all passes except the last.
///
/// # Safety
/// Same requirements as for [`transform`].
#[inline(always)]
unsafe fn before<V: Vector>(passes: &Passes, rows: *mut f32, pending: &mut Pending) {
    let Some((_, before)) = passes.passes.split_last() else { return };
    // SAFETY: forwards the caller's guarantee; the radices match the butterflies.
    unsafe {
        for pass in before {
            match pass.radix {
                2 => middle::<V, 2>(pass, passes, rows, pending),
                3 => middle::<V, 3>(pass, passes, rows, pending),
                4 => middle::<V, 4>(pass, passes, rows, pending),
                5 => middle::<V, 5>(pass, passes, rows, pending),
                8 => middle::<V, 8>(pass, passes, rows, pending),
                _ => middle::<V, 16>(pass, passes, rows, pending),
            }
        }
    }
}

/// Runs the last pass; its outputs go to `sink`.
///
/// # Safety
/// Same requirements as for [`transform`].
#[inline(always)]
unsafe fn last<V: Vector, S: Sink>(
    passes: &Passes,
    rows: *const f32,
    sink: S,
    pending: &mut Pending,
) {
    let Some(last) = passes.passes.last() else { return };
    // SAFETY: forwards the caller's guarantee; the radices match the butterflies.
    unsafe {
        match last.radix {
            1 => end::<V, S, 1>(passes, rows, sink, pending),
            2 => end::<V, S, 2>(passes, rows, sink, pending),
            3 => end::<V, S, 3>(passes, rows, sink, pending),
            4 => end::<V, S, 4>(passes, rows, sink, pending),
            5 => end::<V, S, 5>(passes, rows, sink, pending),
            8 => end::<V, S, 8>(passes, rows, sink, pending),
            _ => end::<V, S, 16>(passes, rows, sink, pending),
        }
    }
}

/// Consumer of the last pass's rows.
///
/// # Safety
/// Same requirements as for [`Vector`]'s methods; the row must be one of the transform's.
unsafe trait Sink: Copy {
    unsafe fn put<V: Vector>(self, row: usize, x: Complexes<V>);
}

// SAFETY: writes only the row's own storage.
unsafe impl Sink for Target {
    #[inline(always)]
    unsafe fn put<V: Vector>(self, row: usize, x: Complexes<V>) {
        // SAFETY: forwards the caller's guarantee.
        unsafe { x.store(self.at.add(row * self.row), self.imaginary) }
    }
}

/// Sink for a [`RotatedTarget`].
#[derive(Clone, Copy)]
struct Rotated<const STREAMS: bool> {
    at: *mut f32,
    rotation: usize,
    points: usize,
}

// SAFETY: writes only the row's own storage.
unsafe impl<const STREAMS: bool> Sink for Rotated<STREAMS> {
    #[inline(always)]
    unsafe fn put<V: Vector>(self, row: usize, x: Complexes<V>) {
        let rotated = row + self.rotation;
        let index = if rotated >= self.points { rotated - self.points } else { rotated };
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let (first, second) = x.re.interleave(x.im);
            let to = self.at.add(index * 2 * V::LANES);
            if STREAMS {
                first.stream(to);
                second.stream(to.add(V::LANES));
            } else {
                first.store(to);
                second.store(to.add(V::LANES));
            }
        }
    }
}

/// Runs one pass in place; any but the last.
///
/// # Safety
/// Same requirements as for [`transform`].
#[inline(always)]
unsafe fn middle<V: Vector, const RADIX: usize>(
    pass: &Pass,
    passes: &Passes,
    rows: *mut f32,
    pending: &mut Pending,
) {
    let row = 2 * V::LANES;
    let step = pass.length / RADIX;
    // The storage index of a sum of rows is the sum of their indices for the segments and steps used here.
    let between = passes.spread.place(step) * row;
    // SAFETY: part + j + a step < points, and every j except 0 has RADIX - 1 factors.
    unsafe {
        for part in (0..passes.points).step_by(pass.length) {
            for j in 0..step {
                let at = rows.add(passes.spread.place(part + j) * row);
                let zero = Complexes { re: V::splat(0.0), im: V::splat(0.0) };
                let mut x = [zero; 16];
                for (a, x) in x.iter_mut().enumerate().take(RADIX) {
                    *x = Complexes::load(at.add(a * between), V::LANES);
                }
                butterfly::<V, RADIX>(&mut x);
                if j > 0 {
                    let factors = pass.twiddles.as_ptr().add((j - 1) * (RADIX - 1) * 2);
                    for (a, x) in x.iter_mut().enumerate().take(RADIX).skip(1) {
                        let factor = factors.add(2 * (a - 1));
                        let (re, im) = (V::splat(*factor), V::splat(*factor.add(1)));
                        *x = x.times(Complexes { re, im });
                    }
                }
                for (a, x) in x.iter().enumerate().take(RADIX) {
                    x.store(at.add(a * between), V::LANES);
                }
                pending.step::<V>();
            }
        }
    }
}

/// Runs the last pass with radix `RADIX`.
///
/// # Safety
/// Same requirements as for [`transform`].
#[inline(always)]
unsafe fn end<V: Vector, S: Sink, const RADIX: usize>(
    passes: &Passes,
    rows: *const f32,
    sink: S,
    pending: &mut Pending,
) {
    let row = 2 * V::LANES;
    let first = &passes.rows;
    // SAFETY: the butterflies cover `RADIX first.len()` rows, the number of points.
    unsafe {
        for (part, start) in first.iter().enumerate() {
            let at = rows.add(passes.spread.place(part * RADIX) * row);
            let zero = Complexes { re: V::splat(0.0), im: V::splat(0.0) };
            let mut x = [zero; 16];
            for (a, x) in x.iter_mut().enumerate().take(RADIX) {
                *x = Complexes::load(at.add(a * row), V::LANES);
            }
            if RADIX > 1 {
                butterfly::<V, RADIX>(&mut x);
            }
            for (a, x) in x.iter().enumerate().take(RADIX) {
                sink.put(*start as usize + a * first.len(), *x);
            }
            pending.step::<V>();
        }
    }
}
