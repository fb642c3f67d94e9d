//! One-sided power spectral densities on a uniform frequency grid, and the design sensitivities of detectors.
//!
//! Invariant: densities are above 0 (infinity: the data are unusable at that frequency) and never NaN.

use crate::error::{Error, Result};

/// One-sided power spectral density: bin `k` is at `k * spacing_hz`, the last bin at the Nyquist frequency.
///
/// `integral of S(f) df` from 0 to the Nyquist frequency is the variance. The unit is the squared unit of the samples
/// per Hz.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerSpectrum {
    spacing_hz: f64,
    densities: Vec<f64>,
}

impl PowerSpectrum {
    /// Creates a spectrum from its densities.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless the spacing is finite and above 0, there are at least 2 densities, and each is
    /// above 0 (infinity is allowed).
    pub fn new(spacing_hz: f64, densities: Vec<f64>) -> Result<Self> {
        if !(spacing_hz.is_finite() && spacing_hz > 0.0) {
            let rule = "it must be finite and above 0";
            return Err(Error::parameter("spacing of the spectrum (Hz)", spacing_hz, rule));
        }
        if densities.len() < 2 {
            let rule = "a spectrum has at least 2";
            return Err(Error::parameter("bins of the spectrum", densities.len(), rule));
        }
        match densities.iter().position(|density| density.is_nan() || *density <= 0.0) {
            Some(bad) => {
                let rule = format!("densities must be above 0 (bin {bad})");
                Err(Error::parameter("power spectral density", densities[bad], rule))
            }
            None => Ok(Self { spacing_hz, densities }),
        }
    }

    /// Returns the spacing of the bins in Hz.
    pub fn spacing_hz(&self) -> f64 {
        self.spacing_hz
    }

    /// Returns the densities, starting at 0 Hz.
    pub fn densities(&self) -> &[f64] {
        &self.densities
    }

    /// Returns the frequency of the last bin in Hz.
    pub fn highest_hz(&self) -> f64 {
        (self.densities.len() - 1) as f64 * self.spacing_hz
    }

    /// Returns the density at any frequency: its logarithm is interpolated linearly between bins; beyond the ends,
    /// the density of the end is used.
    pub fn at(&self, frequency_hz: f64) -> f64 {
        let place = (frequency_hz / self.spacing_hz).clamp(0.0, (self.densities.len() - 1) as f64);
        let below = (place as usize).min(self.densities.len() - 2);
        let part = place - below as f64;
        let (low, high) = (self.densities[below], self.densities[below + 1]);
        if part == 0.0 {
            low
        } else if low.is_infinite() || high.is_infinite() {
            f64::INFINITY
        } else {
            (low.ln() * (1.0 - part) + high.ln() * part).exp()
        }
    }

    /// Returns the spectrum resampled to `bins` bins of another spacing.
    ///
    /// # Errors
    /// Same as [`Self::new`].
    pub fn resampled(&self, spacing_hz: f64, bins: usize) -> Result<Self> {
        Self::new(spacing_hz, (0..bins).map(|bin| self.at(bin as f64 * spacing_hz)).collect())
    }
}

/// Frequencies in Hz and amplitude spectral densities in 1/sqrt(Hz). Linear interpolation of their logarithms is within
/// 0.2 % of the published curve in power.
const ADVANCED_LIGO: [(f64, f64); 64] = [
    (9.0, 1.2397e-22),
    (10.25, 9.1944e-23),
    (11.6875, 6.8152e-23),
    (13.1875, 5.1852e-23),
    (14.8125, 3.9953e-23),
    (16.4375, 3.1710e-23),
    (18.0625, 2.5789e-23),
    (19.6875, 2.1412e-23),
    (21.3125, 1.8099e-23),
    (22.9375, 1.5543e-23),
    (24.5, 1.3607e-23),
    (26.0625, 1.2056e-23),
    (27.6875, 1.0755e-23),
    (29.3125, 9.7001e-24),
    (30.9375, 8.8380e-24),
    (32.625, 8.1036e-24),
    (34.3125, 7.4994e-24),
    (36.125, 6.9657e-24),
    (38.0, 6.5134e-24),
    (39.9375, 6.1306e-24),
    (42.0, 5.7976e-24),
    (44.1875, 5.5104e-24),
    (46.5625, 5.2584e-24),
    (49.0625, 5.0448e-24),
    (51.8125, 4.8567e-24),
    (54.8125, 4.6933e-24),
    (58.125, 4.5506e-24),
    (61.8125, 4.4255e-24),
    (66.0625, 4.3130e-24),
    (70.9375, 4.2128e-24),
    (76.5625, 4.1235e-24),
    (83.25, 4.0417e-24),
    (91.1875, 3.9671e-24),
    (105.6875, 3.8688e-24),
    (124.5625, 3.7822e-24),
    (148.25, 3.7102e-24),
    (176.3125, 3.6565e-24),
    (207.0, 3.6232e-24),
    (240.875, 3.6082e-24),
    (277.875, 3.6112e-24),
    (318.0625, 3.6321e-24),
    (359.8125, 3.6696e-24),
    (404.9375, 3.7250e-24),
    (453.75, 3.7994e-24),
    (506.6875, 3.8947e-24),
    (564.3125, 4.0130e-24),
    (627.25, 4.1570e-24),
    (696.4375, 4.3306e-24),
    (773.0, 4.5382e-24),
    (854.3125, 4.7737e-24),
    (945.1875, 5.0520e-24),
    (1047.5, 5.3810e-24),
    (1163.875, 5.7715e-24),
    (1297.3125, 6.2361e-24),
    (1452.375, 6.7936e-24),
    (1634.75, 7.4676e-24),
    (1852.375, 8.2910e-24),
    (2107.75, 9.2765e-24),
    (2421.375, 1.0507e-23),
    (2814.5625, 1.2070e-23),
    (3320.3125, 1.4103e-23),
    (3982.4375, 1.6788e-23),
    (4890.8125, 2.0497e-23),
    (8191.0, 3.4072e-23),
];

/// Returns Advanced LIGO's design sensitivity: broadband, zero signal-recycling detuning, high laser power.
///
/// Below 9 Hz, the curve continues with the slope between the two lowest points, to infinity at 0 Hz.
///
/// # Errors
/// Same as [`PowerSpectrum::new`].
/// # Source
/// LIGO-T0900288-v3, the curve ZERO_DET_high_P, which is also the design sensitivity in LIGO-P1200087.
pub fn advanced_ligo(spacing_hz: f64, bins: usize) -> Result<PowerSpectrum> {
    let density = |bin: usize| amplitude_at(&ADVANCED_LIGO, bin as f64 * spacing_hz).powi(2);
    PowerSpectrum::new(spacing_hz, (0..bins).map(density).collect())
}

/// Interpolates a curve as a power law between points; beyond the ends, extrapolates the power law of the two nearest
/// points.
fn amplitude_at(points: &[(f64, f64)], frequency_hz: f64) -> f64 {
    if frequency_hz <= 0.0 {
        return f64::INFINITY;
    }
    let above = points.partition_point(|(at, _)| *at < frequency_hz).clamp(1, points.len() - 1);
    let ((low_hz, low), (high_hz, high)) = (points[above - 1], points[above]);
    let slope = (high / low).ln() / (high_hz / low_hz).ln();
    // Near 0 Hz, the square must not overflow.
    (low * (frequency_hz / low_hz).powf(slope)).min(1e150)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn densities_between_bins_are_their_geometric_means() {
        let spectrum = PowerSpectrum::new(2.0, vec![1.0, 4.0, f64::INFINITY]).expect("a spectrum");
        assert_eq!(spectrum.highest_hz(), 4.0);
        assert!((spectrum.at(1.0) - 2.0).abs() < 1e-15);
        assert_eq!(spectrum.at(2.0), 4.0);
        assert_eq!(spectrum.at(3.0), f64::INFINITY);
        assert_eq!(spectrum.resampled(1.0, 3).expect("finer").densities()[1], spectrum.at(1.0));
        for bad in [0.0, -1.0, f64::NAN] {
            assert!(PowerSpectrum::new(1.0, vec![1.0, bad]).is_err());
        }
    }

    #[test]
    fn the_curve_is_that_of_the_design() {
        let spectrum = advanced_ligo(0.25, 8193).expect("a spectrum");
        assert_eq!(spectrum.at(0.0), f64::INFINITY);
        // Published: about 1.5e-22 at 9 Hz, 3.6e-24 at the minimum, 8.9e-24 at 2 kHz.
        let amplitude = |hertz: f64| spectrum.at(hertz).sqrt();
        assert!((amplitude(236.25) / 3.609e-24 - 1.0).abs() < 0.005);
        assert!((amplitude(2000.0) / 8.87e-24 - 1.0).abs() < 0.02, "{}", amplitude(2000.0));
        assert!(amplitude(5.0) > 3.5 * amplitude(9.0));
        assert!(amplitude(0.25).is_finite());
        assert!(advanced_ligo(0.0, 10).is_err() && advanced_ligo(1.0, 1).is_err());
    }
}
