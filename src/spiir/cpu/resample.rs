//! Downsampling of inputs and upsampling of sums by a factor of 2.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::vector::{Portable, TILE, Vector};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::{Level, levels};

/// Outputs that [`halve`] may write beyond those requested.
pub(super) const HALVED: usize = 32;

/// Tap, and the samples of its phase that it reaches back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tap {
    weight: f32,
    back: usize,
}

/// Polyphase components of a filter: its taps at even and at odd indices.
#[derive(Clone, Debug)]
pub(super) struct Phases([Vec<Tap>; 2]);

impl Phases {
    /// Splits the taps, without those too small to change any sum: every second one of a half-band filter.
    pub(super) fn new(taps: &[f32]) -> Self {
        let most = taps.iter().fold(0f32, |most, tap| most.max(tap.abs()));
        let phase = |odd: usize| {
            let own = taps.iter().skip(odd).step_by(2).enumerate();
            let heard = own.filter(|(_, weight)| weight.abs() > 1e-12 * most);
            heard.map(|(back, weight)| Tap { weight: *weight, back }).collect()
        };
        Self([phase(0), phase(1)])
    }

    /// Returns the most samples of a phase that the filter reaches back.
    pub(super) fn reach(&self) -> usize {
        self.0.iter().flatten().map(|tap| tap.back).max().unwrap_or(0)
    }
}

/// Arguments of [`halve`]: the even and odd samples of an input.
#[derive(Debug)]
pub(super) struct Halving<'a> {
    pub(super) phases: &'a Phases,
    /// Even sample of the first output, and the odd one before it.
    pub(super) even: *const f32,
    pub(super) odd: *const f32,
    pub(super) outputs: usize,
    pub(super) to: *mut f32,
}

levels!(halve, halve_body, (work: &Halving<'_>));

/// # Safety
/// The instructions must be available, and all pointers valid: samples of both phases as far back as the taps reach,
/// and [`HALVED`] more of them and of the outputs than `outputs`.
#[inline(always)]
unsafe fn halve_body<V: Vector>(work: &Halving<'_>) {
    // SAFETY: upheld by the caller.
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
/// The instructions must be available, and two registers readable.
#[inline(always)]
unsafe fn add_tap<V: Vector>(sums: &mut [V; 2], from: *const f32, weight: f32) {
    // SAFETY: upheld by the caller.
    unsafe {
        let weight = V::splat(weight);
        sums[0] = V::load(from).mul_add(weight, sums[0]);
        sums[1] = V::load(from.add(V::LANES)).mul_add(weight, sums[1]);
    }
}

/// Arguments of [`double`]: tiles of a sum at twice the rate of a lower one.
#[derive(Debug)]
pub(super) struct Doubling<'a> {
    pub(super) phases: &'a Phases,
    /// Lower-rate sum at half the first tile's index.
    pub(super) lower: *const Complex<f32>,
    pub(super) tiles: usize,
    pub(super) to: *mut Complex<f32>,
}

levels!(double, double_body, (work: &Doubling<'_>));

/// # Safety
/// The instructions must be available, and all pointers valid: lower-rate sums as far back as the taps reach, and
/// space for all tiles.
#[inline(always)]
unsafe fn double_body<V: Vector>(work: &Doubling<'_>) {
    // SAFETY: upheld by the caller.
    unsafe {
        // A tile has as many floats of lower-rate sums as samples.
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
