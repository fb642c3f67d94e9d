//! In-place Fourier transform over rows with one transform per lane: radix 2 to 16, no shuffles.
//!
//! Invariant: a row is the real parts of all lanes, then the imaginary ones.
#![allow(unsafe_code)]

use std::f64::consts::TAU;

use super::butterfly::{Complexes, butterfly};
use super::pending::Pending;
use crate::backend::vector::{Vector, levels};

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
    /// Rows of each segment that the pass divides.
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

/// Minimum number of rows that are padded.
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

/// Returns the output row of each last butterfly's output 0: the segment index with its digits reversed.
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
