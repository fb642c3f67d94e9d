//! Fringe against delay: Fourier transform of a visibility over frequency.

use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftPlanner};

/// Zero-padding factor for a small band, so that fringes are smooth curves.
const PADDING: usize = 4;
/// Largest length of a zero-padded transform.
const PADDED: usize = 1 << 16;
/// Largest number of missing grid channels per existing channel.
const SPARSE: usize = 16;
/// Largest offset of a channel's centre from the grid, as a fraction of the channel's width.
const TOLERANCE: f64 = 0.05;

/// Transform of the spectra of one band.
pub(super) struct Lags {
    /// Index of each channel on the regular grid.
    places: Vec<usize>,
    step_hz: f64,
    transform: Arc<dyn Fft<f32>>,
    grid: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

impl Lags {
    /// Creates the transform for channels at rising frequencies; `None` unless they lie on a regular grid.
    pub(super) fn new(frequencies_hz: &[f64]) -> Option<Self> {
        let steps = frequencies_hz.windows(2).map(|pair| pair[1] - pair[0]);
        let step_hz = steps.fold(f64::INFINITY, f64::min);
        if !(step_hz > 0.0 && step_hz.is_finite()) {
            return None;
        }
        let first = *frequencies_hz.first()?;
        let mut places = Vec::with_capacity(frequencies_hz.len());
        for hertz in frequencies_hz {
            let place = (hertz - first) / step_hz;
            let within = place < (SPARSE * frequencies_hz.len()) as f64;
            if !within || (place - place.round()).abs() > TOLERANCE {
                return None;
            }
            places.push(place.round() as usize);
        }
        let least = places.last()? + 1;
        let length = (PADDING * least).min(PADDED.max(least)).next_power_of_two();
        let transform = FftPlanner::new().plan_fft_inverse(length);
        let scratch = vec![Complex::default(); transform.get_inplace_scratch_len()];
        let grid = vec![Complex::default(); length];
        Some(Self { places, step_hz, transform, grid, scratch })
    }

    /// Returns the number of delays.
    pub(super) fn delays(&self) -> usize {
        self.grid.len()
    }

    /// Returns the first delay and the step, in ns.
    pub(super) fn delays_ns(&self) -> (f64, f64) {
        let step = 1e9 / (self.step_hz * self.grid.len() as f64);
        (-((self.grid.len() / 2) as f64) * step, step)
    }

    /// Adds the amplitude at each delay, `|mean_f V(f) exp(2 pi i f tau)|` over the valid channels. For `V =
    /// conj(x_1) x_2`, a delay is positive if the second antenna is later.
    pub(super) fn add(&mut self, spectrum: &[Complex<f32>], sums: &mut [f32]) {
        self.grid.fill(Complex::default());
        let mut valid = 0usize;
        for (place, value) in self.places.iter().zip(spectrum) {
            if value.is_finite() {
                self.grid[*place] = *value;
                valid += 1;
            }
        }
        self.transform.process_with_scratch(&mut self.grid, &mut self.scratch);
        let scale = 1.0 / valid.max(1) as f32;
        // Negative delays are in the second half of the transform and go first here.
        let half = self.grid.len() / 2;
        let shifted = self.grid[half..].iter().chain(&self.grid[..half]);
        sums.iter_mut().zip(shifted).for_each(|(sum, value)| *sum += scale * value.norm());
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;

    #[test]
    fn a_delay_is_found_with_its_sign() {
        let frequencies: Vec<f64> = (0..200).map(|c| 1.4e9 + 50e3 * f64::from(c)).collect();
        let mut lags = Lags::new(&frequencies).unwrap();
        let (first, step) = lags.delays_ns();
        for late_ns in [0.0, 730.0, -4100.0] {
            // The second antenna is later: x_2 = x_1 exp(-2 pi i f tau).
            let fringe = |hz: &f64| {
                let value = Complex::from_polar(3.0, -TAU * hz * late_ns * 1e-9);
                Complex::new(value.re as f32, value.im as f32)
            };
            let mut spectrum: Vec<Complex<f32>> = frequencies.iter().map(fringe).collect();
            spectrum[17] = Complex::new(f32::NAN, 0.0);
            let mut sums = vec![0.0; lags.delays()];
            lags.add(&spectrum, &mut sums);
            let (peak, most) = sums.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
            assert!((first + peak as f64 * step - late_ns).abs() <= step, "{late_ns} {peak}");
            assert!((most - 3.0).abs() < 0.1, "{most}");
        }
    }

    #[test]
    fn channels_must_lie_on_a_grid() {
        assert_eq!(Lags::new(&[1e9, 1.1e9, 1.4e9, 1.5e9]).unwrap().delays(), 32);
        assert!(Lags::new(&[1e9, 1.1e9, 1.25e9]).is_none());
        assert!(Lags::new(&[1e9, 1.0001e9, 2e9]).is_none());
        assert!(Lags::new(&[1e9]).is_none());
        assert!(Lags::new(&[]).is_none());
        assert!(Lags::new(&[1e9, 1e9]).is_none());
    }
}
