//! Alignment on the CPU.
//!
//! Invariant: the same bits for any split of a stream.

use std::f64::consts::TAU;

use num_complex::Complex;

use super::plan::{Plan, Slope};
use super::rows::Rows;
use crate::backend::simd::Level;
use crate::voltage::VoltageEncoding;

/// A plan bound to vector instructions.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    saturated: Vec<u64>,
}

impl Engine {
    pub(super) fn new(plan: &Plan, _level: Level) -> Self {
        Self { plan: plan.clone(), saturated: vec![0; plan.row_elements()] }
    }

    pub(super) fn run(&mut self, spectra: &[Complex<f32>], slopes: &[Slope], rows: Rows<'_>) {
        let Self { plan, saturated } = self;
        let (channels, size) = (plan.channels(), plan.element_bytes());
        let fine = plan.options().channels;
        let spectra = spectra.chunks_exact(plan.row_elements());
        for (time, (row, slopes)) in
            spectra.zip(slopes.chunks_exact(plan.options().coarse_channels)).enumerate()
        {
            for (element, value) in row.iter().enumerate() {
                let (polarization, channel) = (element / channels, element % channels);
                let slope = slopes[channel / fine];
                let turns = slope.start + (channel % fine) as f64 * slope.step;
                let (sin, cos) = (TAU * turns.fract()).sin_cos();
                let aligned = value * plan.gain(element) * Complex::new(cos as f32, sin as f32);
                let at = (polarization * rows.times + rows.first + time) * channels + channel;
                let bytes = &mut rows.bytes[at * size..][..size];
                saturated[element] += u64::from(write(aligned, plan.options().encoding, bytes));
            }
        }
    }

    pub(super) fn saturated(&self) -> &[u64] {
        &self.saturated
    }

    pub(super) fn reset(&mut self) {
        self.saturated.fill(0);
    }
}

/// Rounds to nearest, ties to even, limits and stores; whether it was limited.
fn write(value: Complex<f32>, encoding: VoltageEncoding, bytes: &mut [u8]) -> bool {
    if encoding == VoltageEncoding::ComplexF32 {
        bytes[..4].copy_from_slice(&value.re.to_le_bytes());
        bytes[4..].copy_from_slice(&value.im.to_le_bytes());
        return false;
    }
    let most = (1 << (encoding.bits() - 1)) as f32 - 1.0;
    let (re, im) = (value.re.round_ties_even(), value.im.round_ties_even());
    let part = |x: f32| x.clamp(-most - 1.0, most) as i8 as u8;
    match bytes {
        [byte] => *byte = part(re) << 4 | part(im) & 15,
        bytes => bytes.copy_from_slice(&[part(re), part(im)]),
    }
    let outside = |x: f32| x < -most - 1.0 || x > most;
    outside(re) || outside(im)
}
