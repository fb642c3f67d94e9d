//! Polarization of a pulse, as a mixture of two independent waves in its two polarizations.

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::simulate::bounds::within;

/// State of polarization: fraction and kind of the polarized power.
///
/// Stokes Q = I linear cos(2 angle), U = I linear sin(2 angle), V = I circular. An impulse is one wave and thus
/// always fully polarized: if less is requested, it has the right power in each polarization, and their relative
/// phase is 0 as far as it is free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Polarization {
    /// Fraction of the power that is linearly polarized, 0 to 1.
    pub linear: f64,
    /// Position angle in radians.
    pub angle_rad: f64,
    /// Fraction of the power that is circularly polarized, -1 to 1; it has the sign of V.
    pub circular: f64,
}

impl Polarization {
    /// Unpolarized state.
    pub const UNPOLARIZED: Self = Self { linear: 0.0, angle_rad: 0.0, circular: 0.0 };

    /// Checks the values; `names` label the linear fraction, angle and circular fraction in errors.
    pub(in crate::simulate) fn check(&self, names: [&'static str; 3]) -> Result<()> {
        let [linear, angle, circular] = names;
        within(linear, self.linear, 0.0, 1.0)?;
        within(angle, self.angle_rad, -1e3, 1e3)?;
        within(circular, self.circular, -1.0, 1.0)?;
        let degree = self.linear.hypot(self.circular);
        if degree > 1.0 + 1e-9 {
            let rule = "with the linear part it makes more than all of the power";
            return Err(Error::parameter(circular, self.circular, rule));
        }
        Ok(())
    }

    /// Returns the polarizations as mixtures of two independent waves a and b of unit power: first `m[0] a`, second
    /// `m[1] a + m[2] b`, of power 1 in sum.
    ///
    /// Linear feeds: `<|X|^2> = (1 + Q) / 2`, `<X Y*> = (U + i V) / 2`; circular ones:
    /// `<|R|^2> = (1 + V) / 2`, `<R L*> = (Q + i U) / 2`.
    pub(in crate::simulate) fn mixture(&self, circular_feeds: bool) -> Mixture {
        let q = self.linear * (2.0 * self.angle_rad).cos();
        let u = self.linear * (2.0 * self.angle_rad).sin();
        let v = self.circular;
        let (difference, cross) = if circular_feeds {
            (v, Complex::new(0.5 * q, 0.5 * u))
        } else {
            (q, Complex::new(0.5 * u, 0.5 * v))
        };
        let first = (0.5 * (1.0 + difference)).max(0.0);
        let second = (0.5 * (1.0 - difference)).max(0.0);
        if first < 1e-12 {
            return Mixture { first: 0.0, common: Complex::new(0.0, 0.0), own: second.sqrt() };
        }
        let common = cross.conj() / first.sqrt();
        let own = (second - common.norm_sqr()).max(0.0).sqrt();
        Mixture { first: first.sqrt(), common, own: if own < 1e-6 { 0.0 } else { own } }
    }
}

/// Weights of two waves in two polarizations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::simulate) struct Mixture {
    /// Weight of wave a in the first polarization.
    pub(in crate::simulate) first: f64,
    /// Weight of wave a in the second.
    pub(in crate::simulate) common: Complex<f64>,
    /// Weight of wave b in the second.
    pub(in crate::simulate) own: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_has_the_stokes_parameters_asked_for() {
        let cases = [(0.0, 0.0, 0.0), (0.5, 0.4, 0.3), (1.0, 1.0, 0.0), (0.0, 0.0, -1.0)];
        for (linear, angle_rad, circular) in cases {
            let state = Polarization { linear, angle_rad, circular };
            let (q, u) = (linear * (2.0 * angle_rad).cos(), linear * (2.0 * angle_rad).sin());
            for feeds in [false, true] {
                let mixture = state.mixture(feeds);
                let first = mixture.first.powi(2);
                let second = mixture.common.norm_sqr() + mixture.own.powi(2);
                let cross = 2.0 * mixture.first * mixture.common.conj();
                let difference = first - second;
                let found = if feeds {
                    (cross.re, cross.im, difference)
                } else {
                    (difference, cross.re, cross.im)
                };
                assert!((first + second - 1.0).abs() < 1e-6);
                let error = [found.0 - q, found.1 - u, found.2 - circular];
                assert!(error.iter().all(|e| e.abs() < 1e-6), "{state:?} {feeds} {found:?}");
            }
        }
    }

    #[test]
    fn more_than_all_is_refused() {
        let state = Polarization { linear: 0.9, angle_rad: 0.0, circular: 0.9 };
        assert!(state.check([""; 3]).is_err());
        assert!(Polarization { circular: 0.4, ..state }.check([""; 3]).is_ok());
    }
}
