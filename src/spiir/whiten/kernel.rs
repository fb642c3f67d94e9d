//! Design of whitening filters: from a power spectrum to an impulse response.
//!
//! Invariant: a kernel is finite whatever the spectrum, and asks for no memory once its designer is made.

use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftPlanner};

/// Start of the cutoff below the lowest frequency, as a fraction of that frequency.
const WALL: f64 = 0.75;
/// Floor of the response below the cutoff, relative to the whitening gain: a minimum-phase filter cannot have zeros.
const FLOOR: f64 = 1e-4;

/// Shape of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) rate_hz: u32,
    pub(super) f_low_hz: f64,
    /// Samples of the zero-phase kernel, an even number: its lags are `-length / 2 + 1` to `length / 2 - 1`.
    pub(super) length: usize,
    /// Coefficients of the minimum-phase kernel derived from it; `None` for the zero-phase kernel itself.
    pub(super) taps: Option<usize>,
}

impl Shape {
    /// Returns the number of coefficients.
    pub(super) fn coefficients(&self) -> usize {
        self.taps.unwrap_or(self.length - 1)
    }

    /// Returns the index of lag 0 among the coefficients.
    pub(super) fn origin(&self) -> usize {
        if self.taps.is_some() { 0 } else { self.length / 2 - 1 }
    }
}

/// Designs kernels.
pub(super) struct Designer {
    shape: Shape,
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
    buffer: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
    /// Hann window over the lags from 0 on.
    window: Vec<f64>,
    /// Least response of a minimum-phase kernel.
    least: Vec<f64>,
}

impl Designer {
    /// Returns the bytes it occupies, including the tables of its transforms.
    pub(super) fn held_bytes(&self) -> usize {
        64 * self.buffer.len() + 8 * (self.window.len() + self.least.len())
    }

    pub(super) fn new(shape: Shape) -> Self {
        // Longer than the kernel: the cepstrum is longer than the response.
        let points = shape.length * if shape.taps.is_some() { 8 } else { 2 };
        let mut planner = FftPlanner::new();
        let forward = planner.plan_fft_forward(points);
        let inverse = planner.plan_fft_inverse(points);
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        let half = shape.length / 2;
        let angle = std::f64::consts::FRAC_PI_2 / half as f64;
        Self {
            shape,
            forward,
            inverse,
            buffer: vec![Complex::default(); points],
            scratch: vec![Complex::default(); scratch],
            window: (0..half).map(|lag| (lag as f64 * angle).cos().powi(2)).collect(),
            least: vec![0.0; points / 2 + 1],
        }
    }

    /// Writes the kernel for densities `spacing_hz` apart.
    pub(super) fn design(&mut self, spacing_hz: f64, densities: &[f64], kernel: &mut [f64]) {
        self.zero_phase(spacing_hz, densities);
        let (points, half) = (self.buffer.len(), self.shape.length / 2);
        let Some(taps) = self.shape.taps else {
            for (place, coefficient) in kernel.iter_mut().enumerate() {
                *coefficient = self.buffer[(place + points - (half - 1)) % points].re;
            }
            return;
        };
        self.minimum_phase();
        let scale = 1.0 / points as f64;
        for (place, coefficient) in kernel.iter_mut().enumerate() {
            // The second half of the kernel is tapered.
            let part = (2.0 * place as f64 / taps as f64 - 1.0).max(0.0);
            let window = (part * std::f64::consts::FRAC_PI_2).cos().powi(2);
            *coefficient = self.buffer.get(place).map_or(0.0, |value| value.re * scale * window);
        }
    }

    /// Computes the zero-phase kernel, lag 0 first and negative lags at the end.
    fn zero_phase(&mut self, spacing_hz: f64, densities: &[f64]) {
        let points = self.buffer.len();
        let rate = f64::from(self.shape.rate_hz);
        let f_low = self.shape.f_low_hz;
        let at_low = interpolated(densities, f_low / spacing_hz);
        for bin in 0..=points / 2 {
            let frequency = bin as f64 * rate / points as f64;
            let mut density = interpolated(densities, frequency / spacing_hz);
            if frequency < f_low {
                density = density.max(at_low);
            }
            let whole = (2.0 / (rate * density)).sqrt();
            let whole = if whole.is_finite() { whole } else { 0.0 };
            let wall = ((frequency / f_low - WALL) / (1.0 - WALL)).clamp(0.0, 1.0);
            let wall = (wall * std::f64::consts::FRAC_PI_2).sin().powi(2);
            self.least[bin] = FLOOR * whole;
            let value = Complex::new(whole * wall, 0.0);
            self.buffer[bin] = value;
            self.buffer[(points - bin) % points] = value;
        }
        self.inverse.process_with_scratch(&mut self.buffer, &mut self.scratch);
        let scale = 1.0 / points as f64;
        let half = self.shape.length / 2;
        self.buffer[half..=points - half].fill(Complex::default());
        for lag in 0..half {
            let window = scale * self.window[lag];
            self.buffer[lag] = Complex::new(self.buffer[lag].re * window, 0.0);
            if lag > 0 {
                self.buffer[points - lag] = self.buffer[lag];
            }
        }
    }

    /// Converts the zero-phase kernel in the buffer to the minimum-phase kernel of the same magnitude.
    fn minimum_phase(&mut self) {
        let points = self.buffer.len();
        self.forward.process_with_scratch(&mut self.buffer, &mut self.scratch);
        let greatest = self.buffer.iter().map(|value| value.re.abs()).fold(0.0, f64::max);
        // Bounds the logarithm even if the response is 0 everywhere.
        let last = (greatest * 1e-12).max(f64::MIN_POSITIVE);
        for (bin, value) in self.buffer.iter_mut().enumerate() {
            let least = self.least[bin.min(points - bin)].max(last);
            *value = Complex::new(value.re.abs().max(least).ln(), 0.0);
        }
        self.inverse.process_with_scratch(&mut self.buffer, &mut self.scratch);
        let scale = 1.0 / points as f64;
        for (lag, value) in self.buffer.iter_mut().enumerate() {
            let fold = match lag {
                0 => 1.0,
                lag if 2 * lag < points => 2.0,
                lag if 2 * lag == points => 1.0,
                _ => 0.0,
            };
            *value = Complex::new(value.re * scale * fold, 0.0);
        }
        self.forward.process_with_scratch(&mut self.buffer, &mut self.scratch);
        self.buffer.iter_mut().for_each(|value| *value = value.exp());
        self.inverse.process_with_scratch(&mut self.buffer, &mut self.scratch);
    }
}

/// Returns the density between bins by logarithmic interpolation; beyond the last bin, the last density.
fn interpolated(densities: &[f64], place: f64) -> f64 {
    let place = place.clamp(0.0, (densities.len() - 1) as f64);
    let below = (place as usize).min(densities.len().saturating_sub(2));
    let part = place - below as f64;
    let (low, high) = (densities[below], densities[(below + 1).min(densities.len() - 1)]);
    if part == 0.0 {
        low
    } else if part == 1.0 {
        high
    } else if low.is_infinite() || high.is_infinite() {
        f64::INFINITY
    } else {
        (low.ln() * (1.0 - part) + high.ln() * part).exp()
    }
}
