//! Triggers and their ranking.

use num_complex::Complex;

/// Peak of one template's signal-to-noise ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trigger {
    /// Index of the template in its bank.
    pub template: u32,
    /// Sample of the stream, from 0, at which `|z|` is the maximum.
    pub sample: u64,
    /// Time of the signal's end relative to that sample, in samples: -0.5 to 0.5, unless the filters' own peak is
    /// offset from the end of their template.
    pub offset: f32,
    /// Signal-to-noise ratio at that time, interpolated between samples.
    pub z: Complex<f32>,
    /// Mean square of the residual of `z` around the peak after subtracting the template's own shape, relative to
    /// Gaussian noise: 1 on average for a signal in noise, more for a glitch.
    pub xi2: f32,
}

impl Trigger {
    /// Returns the signal-to-noise ratio `|z|`.
    pub fn snr(&self) -> f32 {
        self.z.norm()
    }

    /// Returns the phase of `z` in radians.
    pub fn phase(&self) -> f32 {
        self.z.arg()
    }

    /// Returns the signal-to-noise ratio reduced by a mismatch of the shape: see [`reweighted`].
    pub fn reweighted(&self) -> f32 {
        reweighted(self.snr(), self.xi2)
    }
}

/// Returns the ranking of a trigger, `rho / ((1 + xi2^3) / 2)^(1/6)` for `xi2 > 1` and `rho` otherwise.
///
/// # Source
/// Babak et al. 2013, Phys. Rev. D 87, 024033; Usman et al. 2016, Class. Quantum Grav. 33, 215004: their reweighted
/// signal-to-noise ratio, with xi-squared in place of the reduced chi-squared.
pub fn reweighted(snr: f32, xi2: f32) -> f32 {
    if xi2 > 1.0 {
        let xi2 = f64::from(xi2);
        (f64::from(snr) / ((1.0 + xi2.powi(3)) / 2.0).powf(1.0 / 6.0)) as f32
    } else {
        snr
    }
}

#[cfg(test)]
mod tests {
    use super::reweighted;

    #[test]
    fn only_bad_shapes_cost_rank() {
        assert_eq!(reweighted(8.0, 0.5), 8.0);
        assert_eq!(reweighted(8.0, 1.0), 8.0);
        assert!((reweighted(8.0, 2.0) - 8.0 / 4.5_f32.powf(1.0 / 6.0)).abs() < 1e-5);
        assert!(reweighted(8.0, f32::MAX) < 1e-10);
    }
}
