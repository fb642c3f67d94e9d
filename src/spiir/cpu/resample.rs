//! Halving the rate of an input, doubling the rate of a sum.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::vector::{Portable, TILE, Vector};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::{Level, levels};

/// Outputs that [`halve`] may write too many.
pub(super) const HALVED: usize = 32;

/// A tap, and the samples of its phase that it reaches back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tap {
    weight: f32,
    back: usize,
}

/// A filter's taps at even and at odd places.
#[derive(Clone, Debug)]
pub(super) struct Phases([Vec<Tap>; 2]);

impl Phases {
    /// Taps so small that no sum shows them are left out: every second one of a half-band filter.
    pub(super) fn new(taps: &[f32]) -> Self {
        let most = taps.iter().fold(0f32, |most, tap| most.max(tap.abs()));
        let phase = |odd: usize| {
            let own = taps.iter().skip(odd).step_by(2).enumerate();
            let heard = own.filter(|(_, weight)| weight.abs() > 1e-12 * most);
            heard.map(|(back, weight)| Tap { weight: *weight, back }).collect()
        };
        Self([phase(0), phase(1)])
    }

    /// Samples of a phase that the filter reaches back, at most.
    pub(super) fn reach(&self) -> usize {
        self.0.iter().flatten().map(|tap| tap.back).max().unwrap_or(0)
    }
}

/// An input at even and at odd places, brought to half the rate.
#[derive(Debug)]
pub(super) struct Halving<'a> {
    pub(super) phases: &'a Phases,
    /// The even sample of the first output, and the odd one before it.
    pub(super) even: *const f32,
    pub(super) odd: *const f32,
    pub(super) outputs: usize,
    pub(super) to: *mut f32,
}

levels!(halve, halve_body, (work: &Halving<'_>));

/// # Safety
/// The instructions exist, and all pointers are valid: samples of both phases as far as the taps reach back, and
/// [`HALVED`] more than `outputs` of them as of the outputs.
#[inline(always)]
unsafe fn halve_body<V: Vector>(work: &Halving<'_>) {
    // SAFETY: the caller's promise is handed on.
    unsafe {
        for at in (0..work.outputs).step_by(2 * V::LANES) {
            let [mut even, mut odd] = [[V::zero(); 2]; 2];
            for tap in &work.phases.0[0] {
                add_tap(&mut even, work.even.add(at).sub(tap.back), tap.weight);
            }
            for tap in &work.phases.0[1] {
                add_tap(&mut odd, work.odd.add(at).sub(tap.back), tap.weight);
            }
            even[0].add(odd[0]).store(work.to.add(at));
            even[1].add(odd[1]).store(work.to.add(at + V::LANES));
        }
    }
}

/// # Safety
/// The instructions exist, and two registers can be read.
#[inline(always)]
unsafe fn add_tap<V: Vector>(sums: &mut [V; 2], from: *const f32, weight: f32) {
    // SAFETY: the caller's promise is handed on.
    unsafe {
        let weight = V::splat(weight);
        sums[0] = V::load(from).mul_add(weight, sums[0]);
        sums[1] = V::load(from.add(V::LANES)).mul_add(weight, sums[1]);
    }
}

/// Tiles of a sum at twice the rate of a lower one.
#[derive(Debug)]
pub(super) struct Doubling<'a> {
    pub(super) phases: &'a Phases,
    /// The lower sum at half the first tile's place.
    pub(super) lower: *const Complex<f32>,
    pub(super) tiles: usize,
    pub(super) to: *mut Complex<f32>,
}

levels!(double, double_body, (work: &Doubling<'_>));

/// # Safety
/// The instructions exist, and all pointers are valid: lower sums as far as the taps reach back, and room for all
/// tiles.
#[inline(always)]
unsafe fn double_body<V: Vector>(work: &Doubling<'_>) {
    // SAFETY: the caller's promise is handed on.
    unsafe {
        // A tile has as many floats of lower sums as samples.
        for at in (0..work.tiles * TILE).step_by(V::LANES) {
            let from = work.lower.cast::<f32>().add(at);
            let [mut even, mut odd] = [V::zero(); 2];
            for tap in &work.phases.0[0] {
                even = V::load(from.sub(2 * tap.back)).mul_add(V::splat(tap.weight), even);
            }
            for tap in &work.phases.0[1] {
                odd = V::load(from.sub(2 * tap.back)).mul_add(V::splat(tap.weight), odd);
            }
            let [low, high] = even.zip_pairs(odd);
            let to = work.to.cast::<f32>().add(2 * at);
            low.store(to);
            high.store(to.add(V::LANES));
        }
    }
}
