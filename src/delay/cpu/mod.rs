//! Delay correction on the CPU: phasors of a run of channels, then all polarizations of the run.
//!
//! Invariant: the same bits for any split of a stream.
#![allow(unsafe_code)]

mod phasors;
mod registers;

use num_complex::Complex;

use super::plan::{Plan, Rows, Slope};
use crate::backend::simd::Level;
use crate::backend::vector::{MAX_LANES, levels};
use phasors::{BLOCK, Phasors, RUN, multiply};
use registers::{Samples, Target};

/// Plan bound to vector instructions.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    level: Level,
    /// Gain of all elements, included in the phasors.
    gain: Complex<f32>,
    /// Gains of each element, if they differ: real and imaginary parts.
    gains: Option<(Vec<f32>, Vec<f32>)>,
    phasors: Phasors,
    /// Factors for zero phases and one gain for all.
    unrotated: Phasors,
    /// Saturated samples of the current call.
    current: Vec<u32>,
    saturated: Vec<u64>,
}

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level) -> Self {
        let all = &plan.options().gains;
        let one = if all.len() == 1 { all[0] } else { Complex::ONE };
        // Registers may extend beyond the last element.
        let part = |part: fn(&Complex<f32>) -> f32| -> Vec<f32> {
            all.iter().map(part).chain([0.0; MAX_LANES]).collect()
        };
        Self {
            gain: one,
            gains: (all.len() > 1).then(|| (part(|gain| gain.re), part(|gain| gain.im))),
            phasors: Phasors::new(one),
            unrotated: Phasors::new(one),
            current: vec![0; plan.row_elements()],
            saturated: vec![0; plan.row_elements()],
            plan: plan.clone(),
            level,
        }
    }

    pub(super) fn run(&mut self, spectra: &[Complex<f32>], slopes: &[Slope], rows: Rows<'_>) {
        let Rows { bytes, times, first } = rows;
        let spectra = spectra.chunks_exact(self.plan.row_elements());
        let slopes = slopes.chunks_exact(self.plan.options().coarse_channels);
        for (time, (spectrum, slopes)) in (first..).zip(spectra.zip(slopes)) {
            let rows = Rows { bytes: &mut *bytes, times, first: time };
            self.spectrum(bytemuck::cast_slice(spectrum), slopes, rows);
        }
        for (all, current) in self.saturated.iter_mut().zip(&mut self.current) {
            *all += u64::from(std::mem::take(current));
        }
    }

    fn spectrum(&mut self, spectrum: &[f32], slopes: &[Slope], rows: Rows<'_>) {
        let (channels, fine) = (self.plan.channels(), self.plan.options().channels);
        // No early exit, so that the compiler vectorizes the loop.
        let is_unrotated =
            slopes.iter().fold(true, |unrotated, slope| unrotated & (*slope == Slope::default()));
        let by_products = fine >= 4 * BLOCK;
        let (level, gain, mut start) = (self.level, self.gain, 0);
        while start < channels {
            let (coarse, k) = (start / fine, start % fine);
            let end = if by_products { start - k + fine } else { channels };
            let run = (start, RUN.min(end - start));
            if by_products && !is_unrotated {
                self.phasors.products(level, slopes[coarse], (k, run.1), gain);
            } else if !is_unrotated {
                self.phasors.each(level, (slopes, fine), run, gain);
            }
            for polarization in 0..self.plan.options().polarizations {
                let row = (polarization * rows.times + rows.first) * channels;
                let to = &mut rows.bytes[(row + run.0) * self.plan.element_bytes()..];
                self.channels(spectrum, is_unrotated, polarization * channels + run.0, (run.1, to));
            }
            start += run.1;
        }
    }

    /// Processes one polarization of a run, from its first element on.
    fn channels(
        &mut self,
        spectrum: &[f32],
        is_unrotated: bool,
        element: usize,
        (channels, to): (usize, &mut [u8]),
    ) {
        let phasors = if is_unrotated { &self.unrotated } else { &self.phasors };
        let phasors = Factors { re: &phasors.re, im: &phasors.im };
        let gains = self.gains.as_ref();
        let gains = gains.map(|(re, im)| Factors { re: &re[element..], im: &im[element..] });
        let run = Run {
            spectrum: &spectrum[2 * element..],
            factors: gains.filter(|_| is_unrotated).unwrap_or(phasors),
            gains: gains.filter(|_| !is_unrotated),
            channels,
            to,
            saturated: &mut self.current[element..],
        };
        align(self.level, self.plan.element_bytes(), run);
    }

    pub(super) fn saturated(&self) -> &[u64] {
        &self.saturated
    }

    pub(super) fn reset(&mut self) {
        self.saturated.fill(0);
    }
}

/// Real and imaginary parts of factors, one per channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factors<'a> {
    re: &'a [f32],
    im: &'a [f32],
}

/// Run of channels. All slices have at least `channels` elements; `to` holds bytes.
#[derive(Debug)]
pub(super) struct Run<'a> {
    /// Complex samples.
    spectrum: &'a [f32],
    /// Phasors or gains, padded to whole registers.
    factors: Factors<'a>,
    /// Gains that the phasors do not include, padded likewise.
    gains: Option<Factors<'a>>,
    channels: usize,
    /// Output bytes.
    to: &'a mut [u8],
    /// Saturated samples of each channel.
    saturated: &'a mut [u32],
}

/// Writes a run as samples of 1, 2 or 8 bytes.
fn align(level: Level, element_bytes: usize, run: Run<'_>) {
    let padded = run.channels.next_multiple_of(MAX_LANES);
    let is_long = |factors: Factors<'_>| factors.re.len().min(factors.im.len()) >= padded;
    assert!(is_long(run.factors) && run.gains.is_none_or(is_long), "factors for all channels");
    assert!(run.spectrum.len() >= 2 * run.channels && run.saturated.len() >= run.channels);
    assert!(run.to.len() >= run.channels * element_bytes, "room for all channels");
    // SAFETY: all lengths were checked.
    unsafe { whole(level, element_bytes, run) }
}

levels!(whole, whole_body, (element_bytes: usize, run: Run<'_>));

/// # Safety
/// The level's instructions exist, and the run's slices have the required lengths.
#[inline(always)]
unsafe fn whole_body<V: Samples>(element_bytes: usize, run: Run<'_>) {
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
unsafe fn channels<V: Samples, const BYTES: usize, const GAINS: bool>(run: Run<'_>) {
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
            let value = load_complex(run.spectrum.as_ptr().add(2 * at));
            let to = run.to.as_mut_ptr().add(at * BYTES);
            let saturated = run.saturated.as_mut_ptr().add(at);
            put::<V, BYTES>(multiply(value, weight(at)), &Target { to, saturated });
        }
        let rest = run.channels - whole;
        if rest > 0 {
            let (mut values, mut bytes) = ([0f32; 2 * MAX_LANES], [0u8; 8 * MAX_LANES]);
            let mut saturated = [0u32; MAX_LANES];
            values[..2 * rest].copy_from_slice(&run.spectrum[2 * whole..2 * run.channels]);
            let target = Target { to: bytes.as_mut_ptr(), saturated: saturated.as_mut_ptr() };
            put::<V, BYTES>(multiply(load_complex(values.as_ptr()), weight(whole)), &target);
            run.to[whole * BYTES..run.channels * BYTES].copy_from_slice(&bytes[..rest * BYTES]);
            let counts = run.saturated[whole..].iter_mut().zip(&saturated[..rest]);
            counts.for_each(|(count, saturated)| *count += saturated);
        }
    }
}

/// Loads a register of complex numbers and separates real and imaginary parts.
///
/// # Safety
/// As for [`whole_body`].
#[inline(always)]
unsafe fn load_complex<V: Samples>(from: *const f32) -> (V, V) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { V::load(from).deinterleave(V::load(from.add(V::LANES))) }
}

/// # Safety
/// As for [`whole_body`].
#[inline(always)]
unsafe fn put<V: Samples, const BYTES: usize>((re, im): (V, V), to: &Target) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        match BYTES {
            1 => re.store_nibbles(im, to),
            2 => re.store_bytes(im, to),
            _ => re.store_floats(im, to),
        }
    }
}
