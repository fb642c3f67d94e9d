//! Checks a filter bank's rows from a device against the CPU's.

use rustfft::num_complex::Complex;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::cuda::Buffer;
use sidereal::channelize::{Channelizer, Form, Output, Plan};
use sidereal::voltage::Voltages;

use super::super::random::Random;

/// Rows that are compared.
const ROWS: usize = 12;

/// Compares some rows of one stream's output: the first, the last and others.
pub(super) fn is_right(plan: &Plan, host: &[u8], output: &Buffer<u8>, rows: usize) -> Result<bool> {
    let row_bytes = plan.row_elements() * plan.element_bytes();
    let mut found = vec![0; row_bytes];
    let mut random = Random::new();
    for index in 0..ROWS.min(rows) {
        let row = match index {
            0 => 0,
            1 => rows - 1,
            _ => random.below(rows),
        };
        output.download(row * row_bytes, &mut found)?;
        if !is_row(plan, host, row, &found)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether `found` is row `row`.
pub(super) fn is_row(plan: &Plan, host: &[u8], row: usize, found: &[u8]) -> Result<bool> {
    let encoding = plan.input().encoding;
    let times = plan.span() + (plan.spectra_per_row() - 1) * plan.hop();
    let first = encoding.bytes(row * plan.samples_per_row());
    let input = Voltages::one(&host[first..first + encoding.bytes(times)], encoding)?;
    let peak = (0..times).map(|n| input.value(0, n).norm()).fold(0.0, f64::max);
    let sum: f64 = plan.coefficients().iter().map(|b| b.abs()).sum();
    let steps = plan.taps() as f64 + 8.0 * ((2 * plan.points()) as f64).log2();
    // Both sides may differ from the exact values by this.
    let bound = 2.0 * steps * peak * sum / f64::from(1 << 24);
    let mut channelizer = Channelizer::new(plan.clone(), &Backend::best(1))?;
    if let Form::Detected(_) = plan.options().form {
        let mut truth = vec![0f32; plan.row_elements()];
        channelizer.run(input, Output::F32(&mut truth))?;
        let spectra = plan.spectra_per_row() as f64;
        let near = |found: f32, truth: f32| {
            let power = f64::from(truth);
            let allowed = 2.0 * bound * (spectra * power).sqrt() + spectra * bound * bound;
            f64::from((found - truth).abs()) <= allowed + 1e-6 * power
        };
        return Ok(floats(found).zip(truth).all(|(found, truth)| near(found, truth)));
    }
    let mut truth = vec![Complex::<f32>::ZERO; plan.row_elements()];
    channelizer.run(input, Output::Complex(&mut truth))?;
    let truth = truth.iter().flat_map(|z| [z.re, z.im]);
    Ok(floats(found).zip(truth).all(|(found, truth)| f64::from((found - truth).abs()) <= bound))
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}
