//! Delay correction on the CPU: phasors of a run of channels, then all polarizations of the run.
//!
//! Invariant: the same bits for any split of a stream.

mod kernel;
mod phasors;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

use num_complex::Complex;

use super::plan::{Plan, Slope};
use super::rows::Rows;
use crate::backend::simd::Level;
use kernel::{Factors, Run};
use phasors::{BLOCK, Phasors, RUN};
use vector::MOST_LANES;

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
    still: Phasors,
    /// Saturated samples of the current call.
    limited: Vec<u32>,
    saturated: Vec<u64>,
}

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level) -> Self {
        let all = &plan.options().gains;
        let one = if all.len() == 1 { all[0] } else { Complex::ONE };
        // Registers may extend beyond the last element.
        let part = |part: fn(&Complex<f32>) -> f32| -> Vec<f32> {
            all.iter().map(part).chain([0.0; MOST_LANES]).collect()
        };
        Self {
            gain: one,
            gains: (all.len() > 1).then(|| (part(|gain| gain.re), part(|gain| gain.im))),
            phasors: Phasors::new(one),
            still: Phasors::new(one),
            limited: vec![0; plan.row_elements()],
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
        for (all, limited) in self.saturated.iter_mut().zip(&mut self.limited) {
            *all += u64::from(std::mem::take(limited));
        }
    }

    fn spectrum(&mut self, spectrum: &[f32], slopes: &[Slope], rows: Rows<'_>) {
        let (channels, fine) = (self.plan.channels(), self.plan.options().channels);
        // No early exit, so that the compiler vectorizes the loop.
        let is_still =
            slopes.iter().fold(true, |still, slope| still & (*slope == Slope::default()));
        let by_products = fine >= 4 * BLOCK;
        let (level, gain, mut start) = (self.level, self.gain, 0);
        while start < channels {
            let (coarse, k) = (start / fine, start % fine);
            let end = if by_products { start - k + fine } else { channels };
            let run = (start, RUN.min(end - start));
            if by_products && !is_still {
                self.phasors.products(level, slopes[coarse], (k, run.1), gain);
            } else if !is_still {
                self.phasors.each(level, (slopes, fine), run, gain);
            }
            for polarization in 0..self.plan.options().polarizations {
                let row = (polarization * rows.times + rows.first) * channels;
                let to = &mut rows.bytes[(row + run.0) * self.plan.element_bytes()..];
                self.channels(spectrum, is_still, polarization * channels + run.0, (run.1, to));
            }
            start += run.1;
        }
    }

    /// Processes one polarization of a run, from its first element on.
    fn channels(
        &mut self,
        spectrum: &[f32],
        is_still: bool,
        element: usize,
        (channels, to): (usize, &mut [u8]),
    ) {
        let phasors = if is_still { &self.still } else { &self.phasors };
        let phasors = Factors { re: &phasors.re, im: &phasors.im };
        let gains = self.gains.as_ref();
        let gains = gains.map(|(re, im)| Factors { re: &re[element..], im: &im[element..] });
        let run = Run {
            spectrum: &spectrum[2 * element..],
            factors: gains.filter(|_| is_still).unwrap_or(phasors),
            gains: gains.filter(|_| !is_still),
            channels,
            to,
            limited: &mut self.limited[element..],
        };
        kernel::align(self.level, self.plan.element_bytes(), run);
    }

    pub(super) fn saturated(&self) -> &[u64] {
        &self.saturated
    }

    pub(super) fn reset(&mut self) {
        self.saturated.fill(0);
    }
}
