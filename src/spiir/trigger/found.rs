//! A trigger, and how it ranks.

use num_complex::Complex;

/// A peak of one template's signal-to-noise ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trigger {
    /// Index of the template in its bank.
    pub template: u32,
    /// The sample of the stream, from 0, at which `|z|` is greatest.
    pub sample: u64,
    /// How far behind that sample the signal's end lies, in samples: -0.5 to 0.5, but for filters whose own peak
    /// lies beside the end of their template.
    pub offset: f32,
    /// The signal-to-noise ratio there, between samples.
    pub z: Complex<f32>,
    /// Mean square of what remains of `z` round the peak once the template's own shape is taken away, in units of
    /// what Gaussian noise leaves: 1 on average for a signal in noise, more for a glitch.
    pub xi2: f32,
}

impl Trigger {
    /// The signal-to-noise ratio `|z|`.
    pub fn snr(&self) -> f32 {
        self.z.norm()
    }

    /// The phase of `z`, in radians.
    pub fn phase(&self) -> f32 {
        self.z.arg()
    }

    /// The signal-to-noise ratio lowered where the shape is wrong: see [`reweighted`].
    pub fn reweighted(&self) -> f32 {
        reweighted(self.snr(), self.xi2)
    }
}

/// The ranking of a trigger, `rho / ((1 + xi2^3) / 2)^(1/6)` where `xi2 > 1` and `rho` elsewhere.
///
/// # Source
/// Babak et al. 2013, Phys. Rev. D 87, 024033; Usman et al. 2016, Class. Quantum Grav. 33, 215004: their reweighted
/// signal-to-noise ratio, with xi-squared in the place of the reduced chi-squared.
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
