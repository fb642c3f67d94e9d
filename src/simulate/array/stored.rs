//! Effect of quantization on a Gaussian signal: its mean square, and the scaling of a correlation.

use crate::math::normal::{cumulative, density};
use crate::voltage::{TWO_BIT_HIGH, VoltageEncoding};

/// Statistics of a Gaussian number after rounding and clipping to its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stored {
    /// Mean square, counts^2.
    pub(super) power: f64,
    /// Factor on a small correlation with another number, for each of the two: `<q(x) x> / <x^2>`.
    pub(super) gain: f64,
}

impl Stored {
    /// Computes the statistics for an rms in counts.
    ///
    /// # Source
    /// Bussgang 1952, MIT Research Laboratory of Electronics Technical Report 216.
    pub(super) fn new(encoding: VoltageEncoding, rms: f64) -> Self {
        let exact = Self { power: rms * rms, gain: 1.0 };
        if rms <= 0.0 {
            return exact;
        }
        let high = f64::from(TWO_BIT_HIGH);
        let levels: Vec<f64> = match encoding.bits() {
            2 => vec![-high, -1.0, 1.0, high],
            32 => return exact,
            bits => {
                let half = 1i32 << (bits - 1);
                (-half..half).map(f64::from).collect()
            }
        };
        let thresholds: Vec<f64> =
            levels.windows(2).map(|pair| 0.5 * (pair[0] + pair[1]) / rms).collect();
        let mut stored = Self { power: levels[0] * levels[0], gain: 0.0 };
        for (pair, threshold) in levels.windows(2).zip(&thresholds) {
            // Sums the mean square in steps: a value above a threshold has the next level's square.
            let step = pair[1] * pair[1] - pair[0] * pair[0];
            stored.power += step * cumulative(-threshold);
            stored.gain += (pair[1] - pair[0]) * density(*threshold) / rms;
        }
        stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fine_levels_change_little() {
        let stored = Stored::new(VoltageEncoding::Complex8, 16.0);
        assert!((stored.power - 256.0 - 1.0 / 12.0).abs() < 1e-6, "{stored:?}");
        assert!((stored.gain - 1.0).abs() < 1e-9);
        let stored = Stored::new(VoltageEncoding::Real16, 512.0);
        assert!((stored.power - 512.0f64.powi(2) - 1.0 / 12.0).abs() < 1e-4, "{stored:?}");
        assert_eq!(Stored::new(VoltageEncoding::ComplexF32, 3.0), Stored { power: 9.0, gain: 1.0 });
    }

    #[test]
    fn two_bits_keep_what_the_books_say() {
        // The efficiency of 2 bits at thresholds of 0.9816 sigma is 0.881 in a correlation: Cooper 1970.
        let rms = 0.5 * (1.0 + f64::from(TWO_BIT_HIGH)) / 0.9816;
        let stored = Stored::new(VoltageEncoding::Real2, rms);
        let efficiency = stored.gain.powi(2) * rms * rms / stored.power;
        assert!((efficiency - 0.881).abs() < 2e-3, "{efficiency}");
    }
}
