//! Interpolation of band-limited complex series: position and value of the maximum between samples.

use num_complex::Complex;

use crate::math::{bessel_i0, sinc};

/// Taps on either side of a sample.
pub(super) const HALF: usize = 8;
/// Taps of an interpolation filter.
pub(super) const TAPS: usize = 2 * HALF + 1;
/// Trial positions per sample.
pub(super) const STEPS: usize = 16;
/// Trial positions from half a sample before to half a sample after, and one more at each end.
pub(super) const ROWS: usize = STEPS + 3;
/// Shape of the Kaiser window: images at -60 dB, flat to 0.39 cycles per sample.
const KAISER_BETA: f64 = 5.65;

/// Windowed-sinc filters, one per trial position.
#[derive(Debug)]
pub(super) struct Interpolator {
    rows: [[f32; TAPS]; ROWS],
}

impl Interpolator {
    pub(super) fn new() -> Self {
        let row = |row: usize| {
            let offset = (row as f64 - 1.0) / STEPS as f64 - 0.5;
            std::array::from_fn(|tap| kernel(tap as f64 - HALF as f64 - offset) as f32)
        };
        Self { rows: std::array::from_fn(row) }
    }

    /// Returns the filters in the order of their trial positions.
    pub(super) fn rows(&self) -> &[[f32; TAPS]; ROWS] {
        &self.rows
    }

    /// Finds the maximum of `|z|` within half a sample of the middle of `TAPS` samples. Returns its offset in samples
    /// and the filter that evaluates the series there.
    ///
    /// The result is the best of 17 trial positions, refined by a parabola through the adjacent ones.
    pub(super) fn peak(&self, around: &[Complex<f32>]) -> (f32, [f32; TAPS]) {
        let powers: [f32; ROWS] =
            std::array::from_fn(|row| apply(&self.rows[row], around).norm_sqr());
        let inner = 1..ROWS - 1;
        let best = inner.reduce(|best, row| if powers[row] > powers[best] { row } else { best });
        let best = best.unwrap_or(ROWS / 2);
        let (before, here, after) = (powers[best - 1], powers[best], powers[best + 1]);
        let bend = before - 2.0 * here + after;
        let step = if bend < 0.0 { 0.5 * (before - after) / bend } else { 0.0 };
        let whole = (best as f32 - 1.0) - STEPS as f32 / 2.0;
        let half = STEPS as f32 / 2.0;
        // At an end of the range the vertex may lie outside it.
        let place = (whole + step.clamp(-0.5, 0.5)).clamp(-half, half);
        (place / STEPS as f32, self.between(best, place - whole))
    }

    /// Returns the filter that evaluates the series at an offset of at most half a sample.
    pub(super) fn at(&self, offset: f32) -> [f32; TAPS] {
        let place = (offset * STEPS as f32).clamp(-0.5 * STEPS as f32, 0.5 * STEPS as f32);
        let row = (place.round() + STEPS as f32 / 2.0) as usize + 1;
        self.between(row, place - place.round())
    }

    /// Returns the filter `step` steps after trial position `row`, by a parabola through each tap.
    fn between(&self, row: usize, step: f32) -> [f32; TAPS] {
        let weights = [0.5 * step * (step - 1.0), 1.0 - step * step, 0.5 * step * (step + 1.0)];
        let [before, here, after] = [&self.rows[row - 1], &self.rows[row], &self.rows[row + 1]];
        std::array::from_fn(|tap| {
            weights[0] * before[tap] + weights[1] * here[tap] + weights[2] * after[tap]
        })
    }
}

/// Returns `sum_j taps[j] z[j]`.
pub(super) fn apply(taps: &[f32; TAPS], z: &[Complex<f32>]) -> Complex<f32> {
    taps.iter().zip(z).map(|(tap, z)| z * *tap).sum()
}

/// Computes `target[m] = sum_j taps[j] z[m + j]`.
pub(super) fn apply_all(taps: &[f32; TAPS], z: &[Complex<f32>], target: &mut [Complex<f32>]) {
    target.fill(Complex::default());
    for (tap, z) in taps.iter().zip(z.windows(target.len())) {
        for (sum, z) in target.iter_mut().zip(z) {
            *sum += z * *tap;
        }
    }
}

/// Returns the windowed sinc at `x` samples from its middle.
fn kernel(x: f64) -> f64 {
    let edge = x / (HALF as f64 + 0.5);
    let window = bessel_i0(KAISER_BETA * (1.0 - edge * edge).max(0.0).sqrt());
    sinc(x) * window / bessel_i0(KAISER_BETA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_between_samples_is_found() {
        let interpolator = Interpolator::new();
        for (step, frequency) in (-8..=8).flat_map(|step| [(step, 0.03), (step, 0.15), (step, 0.3)])
        {
            let truth = step as f32 / 16.2;
            // An envelope as narrow as the band allows, on a carrier of `frequency` cycles per sample.
            let value = |sample: i32| {
                let x = sample as f32 - truth;
                let envelope = 10.0 * (-0.5 * (x / 4.0).powi(2)).exp();
                Complex::from_polar(envelope, 0.7 + std::f32::consts::TAU * frequency * x)
            };
            let around: Vec<_> = (-8..=8).map(value).collect();
            let (offset, taps) = interpolator.peak(&around);
            let z = apply(&taps, &around);
            let same = apply(&interpolator.at(offset), &around);
            assert!((z - same).norm() < 1e-3, "{z} is {same} for {truth} at {frequency}");
            assert!((offset - truth).abs() < 0.02, "{offset} for {truth} at {frequency}");
            assert!((z.norm() - 10.0).abs() < 0.02, "{z} for {truth} at {frequency}");
            let turn = std::f32::consts::TAU * frequency * (offset - truth);
            assert!((z.arg() - 0.7 - turn).abs() < 0.003, "{z} for {truth} at {frequency}");
        }
    }

    #[test]
    fn nothing_but_zeros_stays_where_it_is() {
        let (offset, taps) = Interpolator::new().peak(&[Complex::default(); TAPS]);
        assert!(offset.abs() <= 0.5 && taps.iter().all(|tap| tap.is_finite()));
    }
}
