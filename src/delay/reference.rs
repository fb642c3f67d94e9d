//! Reference implementation of the delay correction as loops: slow; all other variants are tested against it.

use std::f64::consts::TAU;

use num_complex::{Complex, Complex64};

use super::plan::{Plan, Rows, Slope};
use crate::voltage::VoltageEncoding;

/// Rotation, gains and rounding in double precision.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    saturated: Vec<u64>,
}

impl Engine {
    /// Starts a new stream.
    pub(super) fn new(plan: &Plan) -> Self {
        Self { plan: plan.clone(), saturated: vec![0; plan.row_elements()] }
    }

    /// Writes `slopes.len() / coarse channels` spectra.
    pub(super) fn run(&mut self, spectra: &[Complex<f32>], slopes: &[Slope], rows: Rows<'_>) {
        let Self { plan, saturated } = self;
        let (channels, size) = (plan.channels(), plan.element_bytes());
        for (time, row) in spectra.chunks_exact(plan.row_elements()).enumerate() {
            for (element, value) in row.iter().enumerate() {
                let (polarization, channel) = (element / channels, element % channels);
                let (coarse, k) =
                    (channel / plan.options().channels, channel % plan.options().channels);
                let slope = slopes[time * plan.options().coarse_channels + coarse];
                let turns = slope.start.fract() + k as f64 * slope.step.fract();
                let gain = wide(plan.gain(element));
                let corrected =
                    wide(*value) * gain * Complex64::from_polar(1.0, TAU * turns.fract());
                let at = (polarization * rows.times + rows.first + time) * channels + channel;
                let bytes = &mut rows.bytes[at * size..][..size];
                saturated[element] += u64::from(write(corrected, plan.options().encoding, bytes));
            }
        }
    }

    /// Returns the saturated complex samples; axes polarization, channel.
    pub(super) fn saturated(&self) -> &[u64] {
        &self.saturated
    }
}

fn wide(value: Complex<f32>) -> Complex64 {
    Complex64::new(f64::from(value.re), f64::from(value.im))
}

/// Rounds to nearest, ties to even, clips and stores a value. Returns whether it was clipped.
fn write(value: Complex64, encoding: VoltageEncoding, bytes: &mut [u8]) -> bool {
    let is_number = (value.re as f32).is_finite() && (value.im as f32).is_finite();
    let value = if is_number { value } else { Complex64::ZERO };
    if encoding == VoltageEncoding::ComplexF32 {
        bytes[..4].copy_from_slice(&(value.re as f32).to_le_bytes());
        bytes[4..].copy_from_slice(&(value.im as f32).to_le_bytes());
        return false;
    }
    let most = f64::from(1 << (encoding.bits() - 1)) - 1.0;
    let whole = Complex64::new(value.re.round_ties_even(), value.im.round_ties_even());
    let part = |x: f64| x.clamp(-most - 1.0, most) as i8 as u8;
    let (re, im) = (part(whole.re), part(whole.im));
    match bytes {
        [byte] => *byte = re << 4 | im & 15,
        bytes => bytes.copy_from_slice(&[re, im]),
    }
    let outside = |x: f64| x < -most - 1.0 || x > most;
    outside(whole.re) || outside(whole.im)
}
