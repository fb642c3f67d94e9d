//! Time series of one template: the retained tail and the newest block.

use num_complex::Complex;

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
    pub(super) fn gather(&self, from: i64, target: &mut [Complex<f32>]) -> std::ops::Range<usize> {
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
