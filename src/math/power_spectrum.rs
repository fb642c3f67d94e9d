//! One-sided power spectral densities on a uniform frequency grid.
//!
//! Invariant: densities are above 0 (infinity means that nothing is known there) and never NaN.

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
}
