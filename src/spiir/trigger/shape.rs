//! Xi-squared test of a peak's shape.

use num_complex::Complex;

use super::interpolate::{HALF, Interpolator, TAPS, apply, apply_all};
use super::options::{Autocorrelation, TriggerOptions, norm};
use super::series::Series;
use crate::error::{Error, Result};

/// Largest distance of an autocorrelation's peak from its middle, in samples.
const FARTHEST: usize = 8;

/// Returns the samples needed on either side of a peak for an autocorrelation of `half` samples on either side.
pub(super) const fn reach(half: usize) -> usize {
    half + HALF + FARTHEST + 1
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

    /// Returns the position of the maximum of `|A|` after the middle, in samples. Filters that match their template
    /// only approximately may have an offset peak. Returns 0 without a peak near the middle.
    pub(super) fn shift(&self, autocorrelation: &Autocorrelation) -> f32 {
        let values = &autocorrelation.values;
        let half = autocorrelation.half();
        let near = half.saturating_sub(FARTHEST)..(half + FARTHEST + 1).min(values.len());
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

/// Sizes derived from the options.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Half-length of the longest autocorrelation.
    pub(super) half: usize,
    /// Samples on either side within which a trigger is the maximum.
    pub(super) window: usize,
    /// Samples by which a gate is extended.
    pub(super) pad: usize,
    /// Samples before and after a sample that its detection and measurement read.
    pub(super) back: usize,
    /// Samples that must follow before a sample can be decided.
    pub(super) latency: usize,
}

impl Sizes {
    /// Checks the options and derives the sizes.
    ///
    /// # Errors
    /// As `Finder::new`.
    pub(super) fn new(
        options: &TriggerOptions,
        autocorrelations: &[Autocorrelation],
    ) -> Result<Self> {
        options.check()?;
        if autocorrelations.is_empty() || u32::try_from(autocorrelations.len()).is_err() {
            let rule = "there must be 1 to 2^32 - 1";
            return Err(Error::parameter("templates", autocorrelations.len(), rule));
        }
        for (template, autocorrelation) in autocorrelations.iter().enumerate() {
            autocorrelation.check(template)?;
        }
        let half = autocorrelations.iter().map(Autocorrelation::half).max().unwrap_or(0);
        let (window, pad) = (options.window(), options.gate_pad());
        let back = window.max(reach(half));
        Ok(Self { half, window, pad, back, latency: back.max(pad) })
    }
}
