//! A Fourier transform over rows, one a lane: in place, radix 2 to 16, no shuffles.
//!
//! Invariant: a row is the real parts of all lanes, then the imaginary ones.
#![allow(unsafe_code)]

use std::f64::consts::TAU;

use super::butterfly::{Complexes, butterfly};
use super::vector::{Portable, Vector, levels};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::Level;

/// One pass over all rows.
#[derive(Clone, Debug)]
struct Pass {
    radix: usize,
    /// Rows of each part that the pass divides.
    length: usize,
    /// Factors of outputs 1.. of the butterflies at 1.. of a part, (real, imaginary).
    twiddles: Vec<f32>,
}

/// The passes of one length.
#[derive(Clone, Debug)]
pub(super) struct Passes {
    points: usize,
    passes: Vec<Pass>,
    /// For each butterfly of the last pass, the row of its first output.
    rows: Vec<u32>,
}

/// Where the last pass writes: row `k` at `at + k * row`, imaginary parts `imaginary` floats further.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) at: *mut f32,
    pub(super) row: usize,
    pub(super) imaginary: usize,
}

/// `exp(-2 pi i index / points)`.
pub(super) fn root(index: usize, points: usize) -> (f64, f64) {
    let (sin, cos) = (-TAU * (index % points) as f64 / points as f64).sin_cos();
    (cos, sin)
}

/// The radices for a length, or none where it has a factor over 5.
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
    let passes = bits.div_ceil(largest);
    for left in (1..=passes).rev() {
        let own = bits.div_ceil(left);
        radices.push(1 << own);
        bits -= own;
    }
    if radices.is_empty() {
        radices.push(1);
    }
    Some(radices)
}

impl Passes {
    /// Passes for `points` rows, where there are kernels for its factors; `most` is the largest radix.
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
        Some(Self { points, passes, rows })
    }
}

/// The output row of each last butterfly's output 0: the parts' numbers with their digits reversed.
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

/// Transforms the rows in place, and writes the outcome to the target.
///
/// # Safety
/// `rows` has [`Passes::points`] rows, the target room for as many, apart from them.
#[inline(always)]
unsafe fn transform_body<V: Vector>(passes: &Passes, rows: *mut f32, target: Target) {
    let Some((last, before)) = passes.passes.split_last() else { return };
    // SAFETY: the caller's promise is handed on; radices are those of the butterflies.
    unsafe {
        for pass in before {
            match pass.radix {
                2 => middle::<V, 2>(pass, passes.points, rows),
                3 => middle::<V, 3>(pass, passes.points, rows),
                4 => middle::<V, 4>(pass, passes.points, rows),
                5 => middle::<V, 5>(pass, passes.points, rows),
                8 => middle::<V, 8>(pass, passes.points, rows),
                _ => middle::<V, 16>(pass, passes.points, rows),
            }
        }
        match last.radix {
            1 => end::<V, 1>(&passes.rows, rows, target),
            2 => end::<V, 2>(&passes.rows, rows, target),
            3 => end::<V, 3>(&passes.rows, rows, target),
            4 => end::<V, 4>(&passes.rows, rows, target),
            5 => end::<V, 5>(&passes.rows, rows, target),
            8 => end::<V, 8>(&passes.rows, rows, target),
            _ => end::<V, 16>(&passes.rows, rows, target),
        }
    }
}

/// # Safety
/// As for [`transform`].
#[inline(always)]
unsafe fn middle<V: Vector, const RADIX: usize>(pass: &Pass, points: usize, rows: *mut f32) {
    let row = 2 * V::LANES;
    let step = pass.length / RADIX;
    // SAFETY: part + j + a step < points, and there are RADIX - 1 factors for each j but 0.
    unsafe {
        for part in (0..points).step_by(pass.length) {
            for j in 0..step {
                let at = rows.add((part + j) * row);
                let zero = Complexes { re: V::splat(0.0), im: V::splat(0.0) };
                let mut x = [zero; 16];
                for (a, x) in x.iter_mut().enumerate().take(RADIX) {
                    *x = Complexes::load(at.add(a * step * row), V::LANES);
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
                    x.store(at.add(a * step * row), V::LANES);
                }
            }
        }
    }
}

/// # Safety
/// As for [`transform`].
#[inline(always)]
unsafe fn end<V: Vector, const RADIX: usize>(first: &[u32], rows: *const f32, target: Target) {
    let row = 2 * V::LANES;
    let step = first.len() * target.row;
    // SAFETY: the butterflies' rows are `RADIX first.len()`, the number of points.
    unsafe {
        for (part, first) in first.iter().enumerate() {
            let at = rows.add(part * RADIX * row);
            let zero = Complexes { re: V::splat(0.0), im: V::splat(0.0) };
            let mut x = [zero; 16];
            for (a, x) in x.iter_mut().enumerate().take(RADIX) {
                *x = Complexes::load(at.add(a * row), V::LANES);
            }
            if RADIX > 1 {
                butterfly::<V, RADIX>(&mut x);
            }
            let to = target.at.add(*first as usize * target.row);
            for (a, x) in x.iter().enumerate().take(RADIX) {
                x.store(to.add(a * step), target.imaginary);
            }
        }
    }
}
