//! Fourier transforms with plans and working memory that several threads share.
//!
//! Invariant: a transform has the same bits whichever thread runs it, and whatever ran before.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use num_complex::Complex64;
use rustfft::{Fft, FftDirection, FftPlanner};

/// Plans of Fourier transforms, and buffers that are used again: memory that is returned to the system and requested
/// anew for each transform costs as much as the transform.
pub(crate) struct Transforms {
    plans: Mutex<Plans>,
    free: Mutex<Free>,
}

/// Plans by length, and whether they are inverse ones. A planner builds long transforms from shorter ones that it has planned before, which changes the last
/// bits, so each plan comes from a planner of its own.
type Plans = HashMap<(usize, bool), Arc<dyn Fft<f64>>>;

/// Buffers that are not in use, by the number of bits of the length that they were requested for, so that short
/// requests do not hold long buffers.
type Free = Vec<Vec<Vec<Complex64>>>;

impl fmt::Debug for Transforms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transforms").finish_non_exhaustive()
    }
}

impl Default for Transforms {
    fn default() -> Self {
        let free = vec![Vec::new(); 1 + usize::BITS as usize];
        Self { plans: Mutex::default(), free: Mutex::new(free) }
    }
}

impl Transforms {
    /// Transforms in place with `exp(-2 pi i k n / N)`.
    pub(crate) fn forward(&self, series: &mut [Complex64]) {
        self.process(false, series);
    }

    /// Transforms in place with `exp(2 pi i k n / N)`; does not divide by N.
    pub(crate) fn inverse(&self, series: &mut [Complex64]) {
        self.process(true, series);
    }

    fn process(&self, is_inverse: bool, series: &mut [Complex64]) {
        let length = series.len();
        let direction = if is_inverse { FftDirection::Inverse } else { FftDirection::Forward };
        let plan = || FftPlanner::new().plan_fft(length, direction);
        let fft = Arc::clone(locked(&self.plans).entry((length, is_inverse)).or_insert_with(plan));
        let mut scratch = self.buffer(fft.get_inplace_scratch_len());
        fft.process_with_scratch(series, &mut scratch);
    }

    /// Returns a buffer of zeros.
    pub(crate) fn zeros(&self, length: usize) -> Buffer<'_> {
        let mut buffer = self.buffer(length);
        buffer.fill(Complex64::ZERO);
        buffer
    }

    /// Returns a buffer with a copy of the values.
    pub(crate) fn copy(&self, values: &[Complex64]) -> Buffer<'_> {
        let mut buffer = self.buffer(values.len());
        buffer.copy_from_slice(values);
        buffer
    }

    /// Returns a buffer whose values are those of an earlier use.
    pub(crate) fn buffer(&self, length: usize) -> Buffer<'_> {
        let mut values = locked(&self.free)[bits(length)].pop().unwrap_or_default();
        if values.len() < length {
            values.resize(length, Complex64::ZERO);
        }
        Buffer { values, length, bits: bits(length), free: &self.free }
    }
}

/// Returns the number of bits of a length.
fn bits(length: usize) -> usize {
    (usize::BITS - length.leading_zeros()) as usize
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Buffer of [`Transforms`], to which it returns when dropped.
pub(crate) struct Buffer<'a> {
    values: Vec<Complex64>,
    length: usize,
    bits: usize,
    free: &'a Mutex<Free>,
}

impl Buffer<'_> {
    /// Keeps the first values only.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Deref for Buffer<'_> {
    type Target = [Complex64];

    fn deref(&self) -> &[Complex64] {
        &self.values[..self.length]
    }
}

impl DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [Complex64] {
        &mut self.values[..self.length]
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        locked(self.free)[self.bits].push(std::mem::take(&mut self.values));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_does_not_depend_on_earlier_lengths() {
        let (first, second) = (Transforms::default(), Transforms::default());
        for length in [8, 16, 24, 48, 96, 128, 768, 1536, 3072] {
            first.forward(&mut vec![Complex64::ONE; length]);
        }
        for length in [3 << 11, 3 << 12, 1 << 14, 5 << 10, 9 << 9] {
            let mut both = [&first, &second].map(|transforms| {
                let wave = |n: usize| Complex64::cis((n * n % length) as f64);
                let mut series: Vec<Complex64> = (0..length).map(wave).collect();
                transforms.forward(&mut series);
                series
            });
            assert!(both[0] == both[1], "{length}");
            first.inverse(&mut both[0]);
        }
    }

    #[test]
    fn buffers_are_used_again_and_transforms_do_not_see_their_past() {
        let transforms = Transforms::default();
        let wave: Vec<Complex64> = (0..96).map(|n| Complex64::cis(f64::from(n * n))).collect();
        let mut first = transforms.copy(&wave);
        transforms.forward(&mut first);
        let expected = first.to_vec();
        let address = first.as_ptr();
        first.truncate(5);
        assert_eq!(first[..], expected[..5]);
        drop(first);
        let mut again = transforms.copy(&wave);
        assert_eq!(again.as_ptr(), address);
        transforms.forward(&mut again);
        assert_eq!(again[..], expected[..]);
        transforms.inverse(&mut again);
        let worst = again.iter().zip(&wave).map(|(a, b)| (a / 96.0 - b).norm());
        assert!(worst.fold(0.0, f64::max) < 1e-13);
        assert!(transforms.zeros(200).iter().all(|value| *value == Complex64::ZERO));
    }
}
