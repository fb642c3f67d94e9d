//! Transposition of square blocks of floats in registers.
#![allow(unsafe_code)]

use super::vector::{Portable, Vector, levels};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::Level;

levels!(square, square_body, (from: *const f32, from_row: usize, to: *mut f32, to_row: usize));

/// Transposes `LANES` rows of `LANES` floats.
///
/// # Safety
/// Both arrays must hold `LANES` rows, `from_row` and `to_row` floats apart.
#[inline(always)]
unsafe fn square_body<V: Vector>(from: *const f32, from_row: usize, to: *mut f32, to_row: usize) {
    // SAFETY: forwards the caller's guarantee.
    unsafe {
        let mut x = [V::splat(0.0); 16];
        for (i, x) in x.iter_mut().enumerate().take(V::LANES) {
            *x = V::load(from.add(i * from_row));
        }
        V::transpose(&mut x);
        for (i, x) in x.iter().enumerate().take(V::LANES) {
            x.store(to.add(i * to_row));
        }
    }
}
