//! Real input transformed in pairs: combines the spectra of even and odd samples.
#![allow(unsafe_code)]

use super::vector::{Portable, Vector, levels};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::Level;

/// Computes `X[k] = E[k] + w^k O[k]` from `Z = E + i O`, `w = exp(-pi i / C)`, for k = 0 .. C - 1.
pub(super) fn divide(level: Level, halves: &[f32], re: &mut [f32], im: &mut [f32]) {
    // SAFETY: the body is safe.
    unsafe { both(level, halves, re, im) };
}

levels!(both, both_body, (halves: &[f32], re: &mut [f32], im: &mut [f32]));

/// # Safety
/// None beyond support for the SIMD level.
#[inline(always)]
unsafe fn both_body<V: Vector>(halves: &[f32], re: &mut [f32], im: &mut [f32]) {
    let channels = re.len();
    (re[0], im[0]) = (re[0] + im[0], 0.0);
    if channels.is_multiple_of(2) {
        im[channels / 2] = -im[channels / 2];
    }
    // Bins 1 .. middle, and their mirror bins.
    let middle = channels.div_ceil(2);
    let upper = channels - middle + 1;
    let (low_re, high_re) = re.split_at_mut(upper);
    let (low_im, high_im) = im.split_at_mut(upper);
    let count = middle - 1;
    let (low_re, low_im) = (&mut low_re[1..=count], &mut low_im[1..=count]);
    let (high_re, high_im) = (&mut high_re[..count], &mut high_im[..count]);
    let (cos, sin) = (&halves[1..=count], &halves[channels + 1..channels + 1 + count]);
    for i in 0..count {
        let j = count - 1 - i;
        let (a, b, c, d) = (low_re[i], low_im[i], high_re[j], high_im[j]);
        let (even_re, even_im) = (0.5 * (a + c), 0.5 * (b - d));
        let (odd_re, odd_im) = (0.5 * (b + d), 0.5 * (c - a));
        let turned_re = cos[i] * odd_re - sin[i] * odd_im;
        let turned_im = cos[i] * odd_im + sin[i] * odd_re;
        (low_re[i], low_im[i]) = (even_re + turned_re, even_im + turned_im);
        (high_re[j], high_im[j]) = (even_re - turned_re, turned_im - even_im);
    }
}
