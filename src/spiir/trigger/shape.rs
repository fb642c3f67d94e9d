//! The test of a peak's shape: xi-squared.

use num_complex::Complex;

use super::interpolate::{HALF, Interpolator, TAPS, apply, apply_all};
use super::options::{Autocorrelation, norm};
use super::series::Series;

/// Measures peaks: their offset between samples, their value and their shape.
#[derive(Debug)]
pub(super) struct Measure {
    interpolator: Interpolator,
    /// The series round a peak, and the same moved to the peak's offset.
    around: Vec<Complex<f32>>,
    moved: Vec<Complex<f32>>,
}

impl Measure {
    /// Room for autocorrelations of up to `half` samples to either side.
    pub(super) fn new(half: usize) -> Self {
        let moved = vec![Complex::default(); 2 * half + 1];
        let around = vec![Complex::default(); 2 * (half + HALF) + 1];
        Self { interpolator: Interpolator::new(), around, moved }
    }

    /// Offset, value and xi-squared of the peak at `sample`.
    pub(super) fn peak(
        &mut self,
        series: &Series<'_>,
        sample: u64,
        autocorrelation: &Autocorrelation,
    ) -> (f32, Complex<f32>, f32) {
        let half = autocorrelation.half();
        let around = &mut self.around[..2 * (half + HALF) + 1];
        let held = series.gather(sample as i64 - (half + HALF) as i64, around);
        let middle = &around[half..half + TAPS];
        let (offset, taps) = self.interpolator.peak(middle);
        let z = apply(&taps, middle);
        let moved = &mut self.moved[..2 * half + 1];
        apply_all(&taps, around, moved);
        // What the stream does not hold says nothing about the shape.
        let held = held.start.saturating_sub(HALF)..(held.end - HALF).min(moved.len());
        (offset, z, xi2(z, &moved[held.clone()], autocorrelation, held))
    }
}

/// `sum_m |z[m] - z A[m]|^2 / sum_m (2 - 2 |A[m]|^2)` over the samples `held` of the autocorrelation.
fn xi2(
    z: Complex<f32>,
    moved: &[Complex<f32>],
    autocorrelation: &Autocorrelation,
    held: std::ops::Range<usize>,
) -> f32 {
    let shape = &autocorrelation.values[held];
    let left = moved.iter().zip(shape).map(|(moved, a)| f64::from((moved - z * a).norm_sqr()));
    let left: f64 = left.sum();
    let norm = if shape.len() == autocorrelation.values.len() {
        autocorrelation.norm
    } else {
        norm(shape)
    };
    // With hardly a sample of the shape there is nothing to test: neither good nor bad.
    if norm > 0.0 { (left / f64::from(norm)).min(f64::from(f32::MAX)) as f32 } else { 1.0 }
}
