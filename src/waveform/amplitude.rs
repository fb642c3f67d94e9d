//! Corrections of the wave's amplitude and phase relative to those of the orbit, for a face-on binary.
//!
//! Only the modes with azimuthal number 2 contribute along the axis; this is their sum.
//!
//! # Source
//! Blanchet, Faye, Iyer & Sinha 2008, arXiv:0802.1249, section VIII at inclination 0 and the logarithm in its phase;
//! spins: Arun, Buonanno, Faye & Ochsner 2009, arXiv:0810.5336, the modes (2, 2) and (3, 2).

use std::f64::consts::PI;

use num_complex::Complex64;

/// Euler's constant.
pub(super) const EULER_GAMMA: f64 = 0.577_215_664_901_532_9;

/// Order of the wave's amplitude as a function of orbital velocity, for a face-on binary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Amplitude {
    /// 3PN without spins, 1.5PN with them, as LALSimulation's approximants.
    #[default]
    Customary,
    /// Leading order, `v^2`.
    Leading,
    /// 1.5PN, including spins.
    OneAndHalfPn,
    /// 3PN with its contribution to the phase; spins to 1.5PN.
    ThreePn,
}

/// `sum_k c_k v^k + l v^6 ln v`, and the tail terms of the phase.
#[derive(Clone, Debug)]
pub(super) struct Correction {
    terms: [Complex64; 7],
    logarithm: f64,
    /// Coefficients of `v^3 ln v` and `v^5 ln v` in the phase.
    tail: [f64; 2],
}

/// Correction at one velocity.
pub(super) struct Corrected {
    /// Factor of the amplitude.
    pub(super) factor: f64,
    /// Derivative of its logarithm by the velocity.
    pub(super) factor_slope: f64,
    /// Excess in radians of the wave's phase over minus twice the orbital phase.
    pub(super) phase: f64,
    /// Derivative of `phase` by the velocity.
    pub(super) phase_slope: f64,
}

impl Correction {
    /// Returns no correction: the leading order.
    pub(super) fn leading() -> Self {
        let mut terms = [Complex64::ZERO; 7];
        terms[0] = Complex64::ONE;
        Self { terms, logarithm: 0.0, tail: [0.0; 2] }
    }

    /// Returns the correction to 1.5PN for a symmetric mass ratio and the spins' contribution to the third power.
    pub(super) fn one_and_half_pn(nu: f64, spins: f64) -> Self {
        let mut whole = Self::three_pn(nu, spins);
        whole.terms[4..].fill(Complex64::ZERO);
        Self { logarithm: 0.0, tail: [0.0; 2], ..whole }
    }

    /// Returns the correction to 3PN for the same arguments.
    pub(super) fn three_pn(nu: f64, spins: f64) -> Self {
        let nu2 = nu * nu;
        let third = 7_380_577.0 / 176_400.0 - 856.0 / 105.0 * (EULER_GAMMA + 2.0 * 2_f64.ln())
            + 2.0 / 3.0 * PI * PI
            + (-7523.0 / 720.0 + 41.0 / 96.0 * PI * PI) * nu
            + 145.0 / 108.0 * nu2
            + 7.0 / 1296.0 * nu2 * nu;
        let terms = [
            Complex64::ONE,
            Complex64::ZERO,
            (-13.0 / 6.0 + nu / 6.0).into(),
            (2.0 * PI + spins).into(),
            (-93.0 / 40.0 - 127.0 / 72.0 * nu + nu2 / 24.0).into(),
            Complex64::new(-PI / 3.0 * (13.0 + 2.0 * nu), -1.2 - 18.8 * nu),
            Complex64::new(third, 428.0 / 105.0 * PI),
        ];
        Self { terms, logarithm: -856.0 / 105.0, tail: [12.0, -6.0 * nu] }
    }

    pub(super) fn at(&self, v: f64) -> Corrected {
        let (mut sum, mut slope) = (Complex64::ZERO, Complex64::ZERO);
        for term in self.terms.iter().rev() {
            slope = slope * v + sum;
            sum = sum * v + term;
        }
        let ln = v.ln();
        sum += self.logarithm * v.powi(6) * ln;
        slope += self.logarithm * v.powi(5) * (6.0 * ln + 1.0);
        let ratio = slope / sum;
        let [third, fifth] = self.tail.map(|tail| tail * v * v);
        Corrected {
            factor: sum.norm(),
            factor_slope: ratio.re,
            phase: sum.arg() + (third + fifth * v * v) * v * ln,
            phase_slope: ratio.im + third * (3.0 * ln + 1.0) + fifth * v * v * (5.0 * ln + 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_derivatives() {
        let full = Correction::three_pn(0.2, -0.3);
        let (below, at, above) = (full.at(0.3 - 1e-5), full.at(0.3), full.at(0.3 + 1e-5));
        let slope = (above.phase - below.phase) / 2e-5;
        assert!((slope - at.phase_slope).abs() < 1e-7 * slope.abs(), "{slope}");
        let slope = (above.factor.ln() - below.factor.ln()) / 2e-5;
        assert!((slope - at.factor_slope).abs() < 1e-7 * slope.abs(), "{slope}");
        let small = full.at(1e-4);
        assert!((small.factor - 1.0).abs() < 1e-7 && small.phase.abs() < 1e-9);
    }
}
