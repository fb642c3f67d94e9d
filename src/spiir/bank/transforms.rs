//! Cache of Fourier transform plans, shared by all templates of the same length.

use std::sync::{Arc, Mutex, PoisonError};

use rustfft::{Fft, FftPlanner};

/// Planner of Fourier transforms shared by several threads.
pub(super) struct Transforms(Mutex<FftPlanner<f64>>);

impl Transforms {
    pub(super) fn new() -> Self {
        Self(Mutex::new(FftPlanner::new()))
    }

    pub(super) fn forward(&self, size: usize) -> Arc<dyn Fft<f64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).plan_fft_forward(size)
    }

    pub(super) fn inverse(&self, size: usize) -> Arc<dyn Fft<f64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).plan_fft_inverse(size)
    }
}
