//! Gaussian noise with the known spectrum of a detector: steep at low frequencies, with a line.

use rustfft::FftPlanner;
use rustfft::num_complex::Complex;
use sidereal::math::PowerSpectrum;

/// Standard normal numbers.
pub(crate) fn gaussian(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    };
    move || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
}

/// One-sided density at a frequency, of the order of a detector's: 10^4 times the floor's amplitude at 5 Hz, and a line
/// at 60 Hz of 1000 times the floor's amplitude and half a Hz.
pub(crate) fn density(frequency_hz: f64) -> f64 {
    let f = frequency_hz.max(5.0);
    let line = 1e6 / (1.0 + ((frequency_hz - 60.0) / 0.05).powi(2)).powi(3);
    1e-46 * ((30.0 / f).powi(10) + 1.0 + (f / 300.0).powi(2) + line)
}

/// The spectrum in bins of `1 / seconds`, its line as wide as a Hann window of that length makes it.
pub(crate) fn spectrum(rate_hz: u32, seconds: u32) -> PowerSpectrum {
    let bins = (rate_hz * seconds / 2 + 1) as usize;
    let spacing = 1.0 / f64::from(seconds);
    let fine = 32;
    let window = |offset: f64| {
        let sinc = |x: f64| {
            if x == 0.0 {
                1.0
            } else {
                (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x)
            }
        };
        sinc(offset) + 0.5 * (sinc(offset - 1.0) + sinc(offset + 1.0))
    };
    let seen = |bin: usize| {
        let points = (-8 * fine..=8 * fine).map(|step| f64::from(step) / f64::from(fine));
        let (mut sum, mut weights) = (0.0, 0.0);
        for offset in points {
            let weight = window(offset).powi(2);
            sum += weight * density((bin as f64 + offset) * spacing);
            weights += weight;
        }
        sum / weights
    };
    PowerSpectrum::new(spacing, (0..bins).map(seen).collect()).expect("densities above 0")
}

/// Periodic noise of [`density`].
pub(crate) fn coloured_noise(rate_hz: u32, seconds: u32, seed: u64) -> Vec<f64> {
    let times = (rate_hz * seconds) as usize;
    let mut noise = gaussian(seed);
    let mut values = vec![Complex::new(0.0, 0.0); times];
    for bin in 1..times / 2 {
        let sigma = (density(bin as f64 / f64::from(seconds)) * f64::from(seconds) / 4.0).sqrt();
        values[bin] = Complex::new(noise(), noise()) * sigma;
        values[times - bin] = values[bin].conj();
    }
    FftPlanner::new().plan_fft_inverse(times).process(&mut values);
    values.iter().map(|value| value.re / f64::from(seconds)).collect()
}

/// Mean density between two frequencies.
pub(crate) fn band_mean(spectrum: &PowerSpectrum, low_hz: f64, high_hz: f64) -> f64 {
    let bin = |frequency: f64| (frequency / spectrum.spacing_hz()).round() as usize;
    let band = &spectrum.densities()[bin(low_hz)..bin(high_hz)];
    band.iter().sum::<f64>() / band.len() as f64
}
