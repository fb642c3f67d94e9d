//! Zero-phase whitening: frames of half the kernel's length under Hann windows that add up to 1, each convolved with
//! the kernel of its time.
//!
//! Invariant: frames lie at multiples of half their length from the stream's first sample; with one kernel the sum is
//! the plain convolution.

use std::collections::VecDeque;
use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use crate::error::Result;
use crate::state::{Saved, Saving};

/// Convolves a stream frame by frame.
pub(super) struct Overlap {
    /// Samples between consecutive frames, half a frame.
    hop: usize,
    origin: usize,
    window: Vec<f64>,
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
    response: Vec<Complex<f64>>,
    buffer: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
    /// Samples of the last frame.
    samples: VecDeque<f64>,
    /// Sums of frames. The first belongs to sample `first`; those before `known` are complete.
    sums: VecDeque<f64>,
    first: i64,
    known: i64,
    pushed: u64,
}

impl Overlap {
    /// Returns the bytes it occupies, including the tables of its transforms.
    pub(super) fn held_bytes(&self) -> usize {
        80 * self.response.len() + 8 * (self.window.len() + 2 * self.hop)
    }

    /// Creates a filter for kernels of `coefficients` with lag 0 at `origin`, with frames of `2 hop` samples.
    pub(super) fn new(coefficients: usize, origin: usize, hop: usize) -> Self {
        let points = (2 * hop + coefficients).next_power_of_two();
        let mut planner = FftPlanner::new();
        let forward = planner.plan_fft_forward(points);
        let inverse = planner.plan_fft_inverse(points);
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        let step = std::f64::consts::FRAC_PI_2 / hop as f64;
        let mut overlap = Self {
            hop,
            origin,
            window: (0..2 * hop).map(|n| (n as f64 * step).sin().powi(2)).collect(),
            forward,
            inverse,
            response: vec![Complex::default(); points],
            buffer: vec![Complex::default(); points],
            scratch: vec![Complex::default(); scratch],
            samples: VecDeque::with_capacity(2 * hop),
            sums: VecDeque::with_capacity(2 * points),
            first: 0,
            known: 0,
            pushed: 0,
        };
        overlap.reset();
        overlap
    }

    /// Returns how many samples must follow before one is known.
    pub(super) fn latency(&self) -> usize {
        2 * self.hop - 1 + self.origin
    }

    /// Sets the kernel for the frames that end from now on.
    pub(super) fn set_kernel(&mut self, kernel: &[f64]) {
        self.response.fill(Complex::default());
        let scale = 1.0 / self.response.len() as f64;
        for (value, coefficient) in self.response.iter_mut().zip(kernel) {
            *value = Complex::new(coefficient * scale, 0.0);
        }
        self.forward.process_with_scratch(&mut self.response, &mut self.scratch);
    }

    /// Appends a sample and returns the next whitened one.
    pub(super) fn push(&mut self, sample: f64) -> Option<f64> {
        self.samples.pop_front();
        self.samples.push_back(sample);
        self.pushed += 1;
        if self.pushed.is_multiple_of(self.hop as u64) {
            self.add_frame();
        }
        if self.pushed <= self.latency() as u64 {
            return None;
        }
        debug_assert!(self.first < self.known, "known later than the latency says");
        self.first += 1;
        self.sums.pop_front()
    }

    /// Convolves the frame that ends now and adds it to the sums.
    fn add_frame(&mut self) {
        self.buffer.fill(Complex::default());
        let windowed =
            self.samples.iter().zip(&self.window).map(|(sample, window)| sample * window);
        for (value, sample) in self.buffer.iter_mut().zip(windowed) {
            *value = Complex::new(sample, 0.0);
        }
        self.forward.process_with_scratch(&mut self.buffer, &mut self.scratch);
        self.buffer.iter_mut().zip(&self.response).for_each(|(value, response)| *value *= response);
        self.inverse.process_with_scratch(&mut self.buffer, &mut self.scratch);
        // The convolution's first value is at the frame's first sample plus the kernel's most negative lag.
        let start = self.pushed as i64 - 2 * self.hop as i64 - self.origin as i64;
        let end = start + self.buffer.len() as i64;
        while self.first + (self.sums.len() as i64) < end {
            self.sums.push_back(0.0);
        }
        let skipped = (self.first - start).max(0) as usize;
        let from = (start - self.first).max(0) as usize;
        let sums = self.sums.iter_mut().skip(from);
        for (sum, value) in sums.zip(self.buffer.iter().skip(skipped)) {
            *sum += value.re;
        }
        self.known = start + self.hop as i64;
    }

    pub(super) fn reset(&mut self) {
        self.samples.clear();
        self.samples.resize(2 * self.hop, 0.0);
        self.sums.clear();
        (self.first, self.known, self.pushed) = (0, 0, 0);
    }

    /// Saves the state of the stream; the kernel must be set separately.
    pub(super) fn save(&self, to: &mut Saving) {
        to.part("overlap");
        to.number(self.pushed);
        to.f64s(self.samples.iter());
        to.f64s(self.sums.iter());
    }

    pub(super) fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("overlap")?;
        self.pushed = from.number()?;
        let mut samples = vec![0.0; self.samples.len()];
        from.fill_f64(&mut samples)?;
        self.samples = samples.into();
        // Derives the start of the sums and the end of the last frame from the number of samples.
        self.first = self.pushed.saturating_sub(self.latency() as u64) as i64;
        let (hop, frame) = (self.hop as i64, self.pushed / self.hop as u64 * self.hop as u64);
        let start = frame as i64 - 2 * hop - self.origin as i64;
        let held = if frame == 0 { 0 } else { start + self.buffer.len() as i64 - self.first };
        self.known = if frame == 0 { 0 } else { start + hop };
        let mut sums = vec![0.0; usize::try_from(held).unwrap_or(0)];
        from.fill_f64(&mut sums)?;
        self.sums = sums.into();
        Ok(())
    }
}
