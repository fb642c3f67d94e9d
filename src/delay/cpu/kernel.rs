//! Rotates, scales, rounds and stores a run of channels of one spectrum.
#![allow(unsafe_code)]

use super::phasors::multiply;
use super::vector::{MOST_LANES, Portable, Target, Vector, levels};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::Level;

/// Real and imaginary parts of factors, one per channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factors<'a> {
    pub(super) re: &'a [f32],
    pub(super) im: &'a [f32],
}

/// Run of channels. All slices have at least `channels` elements; `to` holds bytes.
#[derive(Debug)]
pub(super) struct Run<'a> {
    /// Complex samples.
    pub(super) spectrum: &'a [f32],
    /// Phasors or gains, padded to whole registers.
    pub(super) factors: Factors<'a>,
    /// Gains that the phasors do not include, padded likewise.
    pub(super) gains: Option<Factors<'a>>,
    pub(super) channels: usize,
    /// Output bytes.
    pub(super) to: &'a mut [u8],
    /// Saturated samples of each channel.
    pub(super) limited: &'a mut [u32],
}

/// Writes a run as samples of 1, 2 or 8 bytes.
pub(super) fn align(level: Level, element_bytes: usize, run: Run<'_>) {
    let padded = run.channels.next_multiple_of(MOST_LANES);
    let is_long = |factors: Factors<'_>| factors.re.len().min(factors.im.len()) >= padded;
    assert!(is_long(run.factors) && run.gains.is_none_or(is_long), "factors for all channels");
    assert!(run.spectrum.len() >= 2 * run.channels && run.limited.len() >= run.channels);
    assert!(run.to.len() >= run.channels * element_bytes, "room for all channels");
    // SAFETY: all lengths were checked.
    unsafe { whole(level, element_bytes, run) }
}

levels!(whole, whole_body, (element_bytes: usize, run: Run<'_>));

/// # Safety
/// The level's instructions exist, and the run's slices have the required lengths.
#[inline(always)]
unsafe fn whole_body<V: Vector>(element_bytes: usize, run: Run<'_>) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        match (element_bytes, run.gains) {
            (1, None) => channels::<V, 1, false>(run),
            (1, Some(_)) => channels::<V, 1, true>(run),
            (2, None) => channels::<V, 2, false>(run),
            (2, Some(_)) => channels::<V, 2, true>(run),
            (_, None) => channels::<V, 8, false>(run),
            (_, Some(_)) => channels::<V, 8, true>(run),
        }
    }
}

/// # Safety
/// As for [`whole_body`].
#[inline(always)]
unsafe fn channels<V: Vector, const BYTES: usize, const GAINS: bool>(run: Run<'_>) {
    let Factors { re, im } = run.factors;
    let gains = run.gains.unwrap_or(run.factors);
    let whole = run.channels - run.channels % V::LANES;
    // SAFETY: the caller's promise: all registers lie within the slices.
    unsafe {
        let weight = |at: usize| {
            let phasor = (V::load(re.as_ptr().add(at)), V::load(im.as_ptr().add(at)));
            let gain = |part: &[f32]| V::load(part.as_ptr().add(at));
            if GAINS { multiply(phasor, (gain(gains.re), gain(gains.im))) } else { phasor }
        };
        for at in (0..whole).step_by(V::LANES) {
            let value = V::load_complex(run.spectrum.as_ptr().add(2 * at));
            let to = run.to.as_mut_ptr().add(at * BYTES);
            let limited = run.limited.as_mut_ptr().add(at);
            put::<V, BYTES>(multiply(value, weight(at)), &Target { to, limited });
        }
        let rest = run.channels - whole;
        if rest > 0 {
            let (mut values, mut bytes) = ([0f32; 2 * MOST_LANES], [0u8; 8 * MOST_LANES]);
            let mut limited = [0u32; MOST_LANES];
            values[..2 * rest].copy_from_slice(&run.spectrum[2 * whole..2 * run.channels]);
            let target = Target { to: bytes.as_mut_ptr(), limited: limited.as_mut_ptr() };
            put::<V, BYTES>(multiply(V::load_complex(values.as_ptr()), weight(whole)), &target);
            run.to[whole * BYTES..run.channels * BYTES].copy_from_slice(&bytes[..rest * BYTES]);
            let counts = run.limited[whole..].iter_mut().zip(&limited[..rest]);
            counts.for_each(|(count, limited)| *count += limited);
        }
    }
}

/// # Safety
/// As for [`whole_body`].
#[inline(always)]
unsafe fn put<V: Vector, const BYTES: usize>((re, im): (V, V), to: &Target) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        match BYTES {
            1 => re.store_nibbles(im, to),
            2 => re.store_bytes(im, to),
            _ => re.store_floats(im, to),
        }
    }
}
