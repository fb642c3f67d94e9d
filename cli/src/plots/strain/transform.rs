//! Transforms for plots: band-pass filter, time-frequency energy, and the template's expected signal.

use num_complex::{Complex, Complex64};
use rustfft::FftPlanner;

/// Width of a band edge over which the gain falls, as a fraction of the edge's frequency.
const EDGE: f64 = 0.15;

/// Returns the whitened strain expected from a template with SNR `z` that ends at sample `last` (rounded to the
/// nearest): `Re(z h)`, for the whitened template `h` with `sum |h|^2 = 2`; 0 outside.
pub(crate) fn overlay(
    whitened: &[Complex<f32>],
    z: Complex<f32>,
    last: f64,
    samples: usize,
) -> Vec<f32> {
    let mut series = vec![0.0; samples];
    let first = last.round() as i64 + 1 - whitened.len() as i64;
    for (place, value) in series.iter_mut().enumerate() {
        let inside = usize::try_from(place as i64 - first).ok();
        if let Some(h) = inside.and_then(|index| whitened.get(index)) {
            *value = (z * h).re;
        }
    }
    series
}

fn spectrum(series: &[f32], length: usize) -> Vec<Complex64> {
    let mut values: Vec<Complex64> = series
        .iter()
        .map(|x| Complex64::new(if x.is_finite() { (*x).into() } else { 0.0 }, 0.0))
        .collect();
    values.resize(length, Complex64::ZERO);
    FftPlanner::new().plan_fft_forward(length).process(&mut values);
    values
}

/// Returns a length that transforms fast and keeps the ends from wrapping into each other.
fn padded(samples: usize) -> usize {
    (samples + samples / 8 + 64).next_power_of_two()
}

/// Filters a series to the frequencies `low_hz` to `high_hz` with zero phase; the edges fall as a cosine.
pub(crate) fn band(series: &[f32], rate_hz: f64, low_hz: f64, high_hz: f64) -> Vec<f32> {
    if series.is_empty() {
        return Vec::new();
    }
    let length = padded(series.len());
    let mut values = spectrum(series, length);
    let step = rate_hz / length as f64;
    for (bin, value) in values.iter_mut().enumerate() {
        let hertz = bin.min(length - bin) as f64 * step;
        *value *= edge(hertz, low_hz) * (1.0 - edge(hertz, high_hz)) / length as f64;
    }
    FftPlanner::new().plan_fft_inverse(length).process(&mut values);
    values[..series.len()].iter().map(|value| value.re as f32).collect()
}

/// Returns the gain of an edge: 0 below and 1 above a frequency.
fn edge(hertz: f64, at: f64) -> f64 {
    let part = ((hertz / at.max(1e-9) - 1.0) / EDGE + 0.5).clamp(0.0, 1.0);
    0.5 - 0.5 * (std::f64::consts::PI * part).cos()
}

/// Computes the energy in Gaussian tiles, normalized to a mean of 1 for white noise of unit variance. Rows are
/// frequencies, columns the given samples; NaN outside of the series.
pub(crate) fn constant_q(
    series: &[f32],
    rate_hz: f64,
    quality: f64,
    frequencies_hz: impl Iterator<Item = f64>,
    places: &[f64],
) -> Vec<f32> {
    let samples = series.len();
    let length = padded(samples);
    let values = spectrum(series, length);
    let inverse = FftPlanner::new().plan_fft_inverse(length);
    let mut plane = Vec::new();
    for hertz in frequencies_hz {
        let (middle, sigma) =
            (hertz * length as f64 / rate_hz, hertz / quality * length as f64 / rate_hz);
        let mut tile = vec![Complex64::ZERO; length];
        let (mut power, half) = (0.0, length / 2);
        let first = (middle - 5.0 * sigma).max(1.0) as usize;
        for bin in first..((middle + 5.0 * sigma) as usize + 1).min(half) {
            let weight = (-0.5 * ((bin as f64 - middle) / sigma).powi(2)).exp();
            tile[bin] = values[bin] * weight;
            power += weight * weight;
        }
        inverse.process(&mut tile);
        // White noise has a power of `samples` in each bin. The unscaled inverse concentrates it within the series:
        // its mean there is `power * samples * length / samples`.
        let noise = power * length as f64;
        plane.extend(places.iter().map(|place| {
            let inside = *place >= 0.0 && *place < samples as f64 && noise > 0.0;
            if inside { (tile[*place as usize].norm_sqr() / noise) as f32 } else { f32::NAN }
        }));
    }
    plane
}

#[cfg(test)]
mod unit {
    use super::*;

    /// Makes approximately Gaussian noise of unit variance: sums of uniform numbers.
    fn noise(samples: usize) -> Vec<f32> {
        let mut state = 7_u64;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        (0..samples).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect()
    }

    #[test]
    fn noise_has_unit_energy_and_a_tone_its_own() {
        let mut series = noise(8192);
        let places: Vec<f64> = (1000..7000).step_by(10).map(f64::from).collect();
        let rows = [100.0, 200.0, 400.0];
        let plane = constant_q(&series, 4096.0, 8.0, rows.into_iter(), &places);
        let mean = plane.iter().sum::<f32>() / plane.len() as f32;
        assert!((mean - 1.0).abs() < 0.15, "{mean}");
        for (time, value) in series.iter_mut().enumerate() {
            *value += 3.0 * (std::f32::consts::TAU * 200.0 / 4096.0 * time as f32).sin();
        }
        let plane = constant_q(&series, 4096.0, 8.0, rows.into_iter(), &places);
        let energy: Vec<f32> = plane.chunks(places.len()).map(|row| row.iter().sum()).collect();
        assert!(energy[1] > 20.0 * energy[0] && energy[1] > 20.0 * energy[2]);
        assert!(
            constant_q(&series, 4096.0, 8.0, rows.into_iter(), &[-1.0, 1e9])
                .iter()
                .all(|x| x.is_nan())
        );
    }

    #[test]
    fn a_band_keeps_its_own_and_nothing_else() {
        let tone =
            |hertz: f32| move |k: usize| (std::f32::consts::TAU * hertz / 1024.0 * k as f32).sin();
        let inside: Vec<f32> = (0..2048).map(tone(100.0)).collect();
        let outside: Vec<f32> = (0..2048).map(tone(300.0)).collect();
        let mid = |series: &[f32]| band(series, 1024.0, 50.0, 200.0)[500..1500].to_vec();
        let worst =
            mid(&inside).iter().zip(&inside[500..]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 0.02, "{worst}");
        assert!(mid(&outside).iter().all(|x| x.abs() < 0.02));
        assert!(band(&[], 1024.0, 1.0, 2.0).is_empty());
    }

    #[test]
    fn the_overlay_ends_at_the_output_sample() {
        let h = [Complex::new(1.0, 0.0), Complex::new(0.0, 1.0)];
        assert_eq!(overlay(&h, Complex::new(2.0, 3.0), 3.2, 5), [0.0, 0.0, 2.0, -3.0, 0.0]);
        assert_eq!(overlay(&h, Complex::new(1.0, 0.0), -7.0, 2), [0.0, 0.0]);
    }
}
