//! Measurement of a peak in a band-limited complex series: its position between samples, its value, and the xi-squared
//! test of its shape.

use num_complex::Complex;

use super::plan::{Autocorrelation, HALF, MAX_SHIFT, norm};
use crate::math::{bessel_i0, sinc};

/// Contiguous samples of one template's signal-to-noise ratio.
#[derive(Clone, Copy)]
pub(super) struct Series<'a> {
    /// Stream number of the first retained sample.
    pub(super) first: u64,
    /// Retained samples.
    pub(super) tail: &'a [Complex<f32>],
    /// Samples after them.
    pub(super) block: &'a [Complex<f32>],
}

impl<'a> Series<'a> {
    /// Returns a sample; `None` outside the series.
    pub(super) fn get(&self, sample: u64) -> Option<Complex<f32>> {
        let at = sample.checked_sub(self.first)? as usize;
        let value = self.tail.get(at).or_else(|| self.block.get(at - self.tail.len()));
        value.copied()
    }

    /// Returns `|z|^2` of a sample; 0 outside the series or if it is not finite.
    pub(super) fn power(&self, sample: u64) -> f32 {
        self.get(sample).map_or(0.0, power)
    }

    /// Returns the samples from `from` to before `until` in two slices, each with the number of its first sample.
    pub(super) fn pieces(&self, from: u64, until: u64) -> [(u64, &'a [Complex<f32>]); 2] {
        let (from, until) = ((from - self.first) as usize, (until - self.first) as usize);
        let kept = self.tail.len();
        let old = &self.tail[from.min(kept)..until.min(kept)];
        let new = &self.block[from.max(kept) - kept..until.max(kept) - kept];
        [(self.first + from as u64, old), (self.first + from.max(kept) as u64, new)]
    }

    /// Copies the samples from `from` on, which may be before the stream's start, to `target`. Samples outside the
    /// series or not finite become 0. Returns the range of `target` that the series covers.
    fn gather(&self, from: i64, target: &mut [Complex<f32>]) -> std::ops::Range<usize> {
        let end = self.first as i64 + (self.tail.len() + self.block.len()) as i64;
        let place = |sample: i64| (sample - from).clamp(0, target.len() as i64) as usize;
        let held = place(self.first as i64)..place(end);
        target.fill(Complex::default());
        for (index, value) in target[held.clone()].iter_mut().enumerate() {
            let sample = from + (held.start + index) as i64;
            if let Some(z) = self.get(sample as u64).filter(|z| power(*z) > 0.0) {
                *value = z;
            }
        }
        held
    }
}

/// Returns `|z|^2`; 0 if it is not finite.
pub(super) fn power(z: Complex<f32>) -> f32 {
    let power = z.norm_sqr();
    if power < f32::INFINITY { power } else { 0.0 }
}

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
    fn peak(&self, around: &[Complex<f32>]) -> (f32, [f32; TAPS]) {
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
    fn at(&self, offset: f32) -> [f32; TAPS] {
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
fn apply(taps: &[f32; TAPS], z: &[Complex<f32>]) -> Complex<f32> {
    taps.iter().zip(z).map(|(tap, z)| z * *tap).sum()
}

/// Computes `target[m] = sum_j taps[j] z[m + j]`.
fn apply_all(taps: &[f32; TAPS], z: &[Complex<f32>], target: &mut [Complex<f32>]) {
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

/// Measured peak.
#[derive(Clone, Copy)]
pub(super) struct Peak {
    pub(super) offset: f32,
    pub(super) z: Complex<f32>,
    pub(super) xi2: f32,
}

/// Measures peaks: their offset between samples, value and shape.
#[derive(Debug)]
pub(super) struct Measure {
    interpolator: Interpolator,
    /// Series around a peak, and the same series shifted to the peak's offset.
    around: Vec<Complex<f32>>,
    moved: Vec<Complex<f32>>,
}

impl Measure {
    /// Allocates buffers for autocorrelations of up to `half` samples on either side.
    pub(super) fn new(half: usize) -> Self {
        let moved = vec![Complex::default(); 2 * half + 1];
        let around = vec![Complex::default(); 2 * (half + HALF) + 1];
        Self { interpolator: Interpolator::new(), around, moved }
    }

    /// Returns the position of the maximum of `|A|` relative to the middle, in samples. The peak may be off the
    /// middle if the filters match their template only approximately. Returns 0 without a peak near the middle.
    pub(super) fn shift(&self, autocorrelation: &Autocorrelation) -> f32 {
        let values = &autocorrelation.values;
        let half = autocorrelation.half();
        let near = half.saturating_sub(MAX_SHIFT)..(half + MAX_SHIFT + 1).min(values.len());
        let power = |at: usize| values[at].norm_sqr();
        let best = near.clone().reduce(|best, at| if power(at) > power(best) { at } else { best });
        let best = best.unwrap_or(half);
        let has_neighbours = best >= HALF && best + HALF < values.len();
        if best == near.start || best + 1 == near.end || !has_neighbours {
            return 0.0;
        }
        let (offset, _) = self.interpolator.peak(&values[best - HALF..=best + HALF]);
        best as f32 - half as f32 + offset
    }

    /// Measures the peak at `sample`, which lies `shift` samples after the time of `A[0]`.
    pub(super) fn peak(
        &mut self,
        series: &Series<'_>,
        sample: u64,
        autocorrelation: &Autocorrelation,
        shift: f32,
    ) -> Peak {
        let mut middle = [Complex::default(); TAPS];
        series.gather(sample as i64 - HALF as i64, &mut middle);
        let offset = self.interpolator.peak(&middle).0 - shift;
        let whole = offset.round();
        let taps = self.interpolator.at(offset - whole);

        let half = autocorrelation.half();
        let around = &mut self.around[..2 * (half + HALF) + 1];
        let first = sample as i64 + whole as i64 - (half + HALF) as i64;
        let held = series.gather(first, around);
        let z = apply(&taps, &around[half..half + TAPS]);
        let moved = &mut self.moved[..2 * half + 1];
        apply_all(&taps, around, moved);
        // Only samples inside the series count.
        let end = held.end.saturating_sub(HALF).min(moved.len());
        let held = held.start.saturating_sub(HALF).min(end)..end;
        Peak { offset, z, xi2: xi2(z, &moved[held.clone()], autocorrelation, held) }
    }
}

/// Returns `sum_m |z[m] - z A[m]|^2 / sum_m (2 - 2 |A[m]|^2)` over the samples `held` of the autocorrelation.
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
    // With almost no samples the test is void, and 1 is neutral.
    if norm > 0.0 { (left / f64::from(norm)).min(f64::from(f32::MAX)) as f32 } else { 1.0 }
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
