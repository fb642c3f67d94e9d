//! Post-Newtonian energy and flux of two bodies as series in the orbital velocity, and corrections of the wave's
//! amplitude and phase relative to those of the orbit, for a face-on binary.
//!
//! Spins are aligned with the orbital angular momentum, the bodies are black holes (with the quadrupole of Kerr), and
//! absorption by horizons is neglected. Along the axis only the modes with azimuthal number 2 contribute to the wave.
//!
//! # Source
//! Series without spins: Blanchet 2014, Living Reviews in Relativity 17, 2, eqs. 232 and 314. Spin-orbit: Bohe, Marsat,
//! Faye & Blanchet 2013, arXiv:1303.7431, and for its tails Marsat, Bohe, Blanchet & Buonanno 2014, arXiv:1307.6793,
//! eq. 4.9. Spin-spin: Bohe, Faye, Marsat & Porter 2015, arXiv:1501.01529, eqs. 3.33 and 4.14. Amplitude and phase:
//! Blanchet, Faye, Iyer & Sinha 2008, arXiv:0802.1249, section VIII at inclination 0 and the logarithm in its phase; spins: Arun,
//! Buonanno, Faye & Ochsner 2009, arXiv:0810.5336, the modes (2, 2) and (3, 2).

use std::f64::consts::PI;

use num_complex::Complex64;

use super::options::Amplitude;
use crate::strain::Binary;

/// Coefficients of a series, up to the eighth power (4PN).
const TERMS: usize = 9;

/// Powers of the spins stored separately: zero, one, two.
const SPINS: usize = 3;

/// Power of the logarithmic term.
const LOGARITHM: usize = 6;

/// `sum_k (c_k0 + c_k1 + c_k2) v^k + l v^6 ln v`; `c_kp` is of power p in the spins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Series {
    terms: [[f64; SPINS]; TERMS],
    logarithm: f64,
}

impl Series {
    /// Creates a series without a logarithm.
    pub(super) fn new(terms: [[f64; SPINS]; TERMS]) -> Self {
        Self { terms, logarithm: 0.0 }
    }

    pub(super) fn with_logarithm(self, logarithm: f64) -> Self {
        Self { logarithm, ..self }
    }

    /// Multiplies each term by a factor that depends on its power.
    pub(super) fn scaled(mut self, factor: impl Fn(usize) -> f64) -> Self {
        for (power, term) in self.terms.iter_mut().enumerate() {
            term.iter_mut().for_each(|part| *part *= factor(power));
        }
        self.logarithm *= factor(LOGARITHM);
        self
    }

    /// Returns the series of `self / other`; both have first term 1 and second term 0.
    pub(super) fn over(self, other: Self) -> Self {
        let mut terms = self.terms;
        for power in 1..TERMS {
            for k in 0..power {
                let (done, divisor) = (terms[k], other.terms[power - k]);
                for (p, a) in done.iter().enumerate() {
                    for (q, b) in divisor.iter().enumerate().take(SPINS - p) {
                        terms[power][p + q] -= a * b;
                    }
                }
            }
        }
        // The logarithm times any other term than the first has at least the eighth power, of which only the part
        // linear in the spins is kept.
        Self { terms, logarithm: self.logarithm - other.logarithm }
    }

    /// Returns the reciprocal of the series.
    pub(super) fn inverse(self) -> Self {
        let mut one = [[0.0; SPINS]; TERMS];
        one[0][0] = 1.0;
        Self::new(one).over(self)
    }

    /// Drops the terms for which `keep`, a function of the powers of velocity and spins, is false.
    pub(super) fn kept(mut self, keep: impl Fn(usize, usize) -> bool) -> Self {
        for (power, term) in self.terms.iter_mut().enumerate() {
            for (spins, part) in term.iter_mut().enumerate() {
                if !keep(power, spins) {
                    *part = 0.0;
                }
            }
        }
        self
    }

    /// Returns the antiderivative of the series times `v^-9`, relative to that of `v^-9`, for powers below the
    /// eighth.
    pub(super) fn antiderivative(self) -> Self {
        let logarithm = self.logarithm;
        let mut result =
            self.scaled(|power| if power < 8 { 8.0 / (8.0 - power as f64) } else { 0.0 });
        // The antiderivative of v^-3 ln v is -(ln v + 1/2) v^-2 / 2.
        result.terms[LOGARITHM][0] += 2.0 * logarithm;
        result
    }

    pub(super) fn at(&self, v: f64) -> f64 {
        let sum = self.terms.iter().rev().fold(0.0, |sum, [a, b, c]| sum * v + (a + b + c));
        sum + self.logarithm * v.powi(LOGARITHM as i32) * v.ln()
    }
}

/// Parameters of the coefficients.
pub(super) struct Bodies {
    /// Symmetric mass ratio `m1 m2 / M^2`.
    pub(super) nu: f64,
    /// `(m1 - m2) / M`.
    delta: f64,
    /// `(S1 + S2) / M^2`.
    spin: f64,
    /// `(S2 / m2 - S1 / m1) / M`.
    spin_difference: f64,
    /// Contribution of the spins to the third power in the amplitude.
    amplitude: f64,
}

impl Bodies {
    pub(super) fn new(binary: &Binary) -> Self {
        let total = binary.total_mass_msun();
        let (first, second) = (binary.mass1_msun / total, binary.mass2_msun / total);
        let (nu, delta) = (first * second, first - second);
        let half_sum = 0.5 * (binary.spin1z + binary.spin2z);
        let half_difference = 0.5 * (binary.spin1z - binary.spin2z);
        Self {
            nu,
            delta,
            amplitude: (8.0 * nu - 4.0) / 3.0 * half_sum - 4.0 / 3.0 * delta * half_difference,
            spin: first * first * binary.spin1z + second * second * binary.spin2z,
            spin_difference: second * binary.spin2z - first * binary.spin1z,
        }
    }

    /// Returns the correction of the amplitude.
    pub(super) fn amplitude(&self, order: Amplitude, has_spins: bool) -> Correction {
        match order {
            Amplitude::Leading => Correction::leading(),
            Amplitude::OneAndHalfPn => Correction::one_and_half_pn(self.nu, self.amplitude),
            Amplitude::Customary if has_spins => {
                Correction::one_and_half_pn(self.nu, self.amplitude)
            }
            Amplitude::ThreePn | Amplitude::Customary => {
                Correction::three_pn(self.nu, self.amplitude)
            }
        }
    }

    /// Returns the energy divided by `-(nu M / 2) v^2`.
    pub(super) fn energy(&self) -> Series {
        let Self { nu, delta, spin: s, spin_difference: d, .. } = *self;
        let (nu2, nu3) = (nu * nu, nu * nu * nu);
        let second = -27.0 / 8.0 + 19.0 / 8.0 * nu - nu2 / 24.0;
        let spins_second = -4.0 * s * s - 4.0 * delta * s * d + (4.0 * nu - 1.0) * d * d;
        let third = -675.0 / 64.0 + (34_445.0 / 576.0 - 205.0 / 96.0 * PI * PI) * nu
            - 155.0 / 96.0 * nu2
            - 35.0 / 5184.0 * nu3;
        let spins_third = s * s * (-25.0 / 9.0 + 10.0 / 3.0 * nu)
            + delta * s * d * (10.0 / 3.0 + 10.0 / 3.0 * nu)
            + d * d * (2.5 - 7.5 * nu - 10.0 / 3.0 * nu2);
        let orbit_half = (11.0 - 61.0 / 9.0 * nu) * s + delta * (3.0 - 10.0 / 3.0 * nu) * d;
        let orbit_last = (135.0 / 4.0 - 367.0 / 4.0 * nu + 29.0 / 12.0 * nu2) * s
            + delta * (27.0 / 4.0 - 39.0 * nu + 5.0 / 4.0 * nu2) * d;
        Series::new([
            [1.0, 0.0, 0.0],
            [0.0; 3],
            [-0.75 - nu / 12.0, 0.0, 0.0],
            [0.0, 14.0 / 3.0 * s + 2.0 * delta * d, 0.0],
            [second, 0.0, spins_second],
            [0.0, orbit_half, 0.0],
            [third, 0.0, spins_third],
            [0.0, orbit_last, 0.0],
            [0.0; 3],
        ])
    }

    /// Returns the flux divided by `(32/5) nu^2 v^10`; the eighth power holds only the spin-orbit tail.
    pub(super) fn flux(&self) -> Series {
        let Self { nu, .. } = *self;
        let (nu2, nu3) = (nu * nu, nu * nu * nu);
        let second = -44_711.0 / 9072.0 + 9271.0 / 504.0 * nu + 65.0 / 18.0 * nu2;
        let third = 6_643_739_519.0 / 69_854_400.0 + 16.0 / 3.0 * PI * PI
            - 1712.0 / 105.0 * (EULER_GAMMA + 4_f64.ln())
            + (-134_543.0 / 7776.0 + 41.0 / 48.0 * PI * PI) * nu
            - 94_403.0 / 3024.0 * nu2
            - 775.0 / 324.0 * nu3;
        let last = -16_285.0 / 504.0 + 214_745.0 / 1728.0 * nu + 193_385.0 / 3024.0 * nu2;
        let [orbit_3, orbit_5, orbit_6, orbit_7, orbit_8] = self.flux_of_spin_and_orbit();
        let [spins_4, spins_6] = self.flux_of_spin_and_spin();
        Series::new([
            [1.0, 0.0, 0.0],
            [0.0; 3],
            [-1247.0 / 336.0 - 35.0 / 12.0 * nu, 0.0, 0.0],
            [4.0 * PI, orbit_3, 0.0],
            [second, 0.0, spins_4],
            [(-8191.0 / 672.0 - 583.0 / 24.0 * nu) * PI, orbit_5, 0.0],
            [third, orbit_6, spins_6],
            [last * PI, orbit_7, 0.0],
            [0.0, orbit_8, 0.0],
        ])
        .with_logarithm(-1712.0 / 105.0)
    }

    /// Returns the spin-orbit terms of the powers 3, 5, 6, 7 and 8.
    fn flux_of_spin_and_orbit(&self) -> [f64; 5] {
        let Self { nu, delta, spin, spin_difference, .. } = *self;
        let nu2 = nu * nu;
        let sum = |s: f64, d: f64| s * spin + delta * d * spin_difference;
        [
            sum(-4.0, -1.25),
            sum(-4.5 + 272.0 / 9.0 * nu, -13.0 / 16.0 + 43.0 / 4.0 * nu),
            PI * sum(-16.0, -31.0 / 6.0),
            sum(
                476_645.0 / 6804.0 + 6172.0 / 189.0 * nu - 2810.0 / 27.0 * nu2,
                9535.0 / 336.0 + 1849.0 / 126.0 * nu - 1501.0 / 36.0 * nu2,
            ),
            PI * sum(
                -3485.0 / 96.0 + 13_879.0 / 72.0 * nu,
                -7163.0 / 672.0 + 130_583.0 / 2016.0 * nu,
            ),
        ]
    }

    /// Returns the spin-spin terms of the powers 4 and 6.
    fn flux_of_spin_and_spin(&self) -> [f64; 2] {
        let Self { nu, delta, spin: s, spin_difference: d, .. } = *self;
        let second = 8.0 * s * s + 8.0 * delta * s * d + (33.0 / 16.0 - 8.0 * nu) * d * d;
        let third = s * s * (-5239.0 / 504.0 - 271.0 / 56.0 - 43.0 * nu)
            + delta * s * d * (-817.0 / 56.0 - 279.0 / 28.0 - 43.0 * nu)
            + d * d
                * (-25.0 / 8.0 - 279.0 / 56.0
                    + (243.0 / 56.0 + 344.0 / 21.0) * nu
                    + 43.0 * nu * nu);
        [second, third]
    }
}

/// Euler's constant.
pub(super) const EULER_GAMMA: f64 = 0.577_215_664_901_532_9;

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
    fn quotients_are_those_of_the_series() {
        let plain = |terms: [f64; TERMS]| Series::new(terms.map(|term| [term, 0.0, 0.0]));
        let a = plain([1.0, 0.0, 0.5, -2.0, 1.0, 3.0, -1.0, 2.0, 0.0]).with_logarithm(4.0);
        let b = plain([1.0, 0.0, -1.5, 1.0, 0.25, -2.0, 1.0, 1.0, 0.0]);
        let v = 1e-2;
        assert!((a.over(b).at(v) - a.at(v) / b.at(v)).abs() < 1e-13);
        assert!((a.inverse().at(v) - 1.0 / a.at(v)).abs() < 1e-13);
    }

    #[test]
    fn antiderivatives_have_the_series_as_their_slope() {
        let mut terms = [[0.0; SPINS]; TERMS];
        for (power, term) in terms.iter_mut().enumerate().take(8) {
            term[0] = 1.0 + power as f64;
        }
        let series = Series::new(terms).with_logarithm(3.0);
        let time = |v: f64| -series.antiderivative().at(v) / (8.0 * v.powi(8));
        let slope = (time(0.5 + 1e-5) - time(0.5 - 1e-5)) / 2e-5;
        let expected = series.at(0.5) / 0.5_f64.powi(9);
        assert!((slope / expected - 1.0).abs() < 1e-8, "{slope} {expected}");
    }

    #[test]
    fn powers_of_the_spins_are_kept_apart() {
        let mut terms = [[0.0; SPINS]; TERMS];
        terms[0][0] = 1.0;
        terms[2][1] = 3.0;
        let square = Series::new(terms).inverse().kept(|_, spins| spins == 2);
        assert!((square.at(0.1) - 9e-4).abs() < 1e-18);
    }

    /// Published third and higher post-Newtonian terms of `dv/dt` for bodies without spin.
    #[test]
    fn quotients_are_the_published_series() {
        let bodies = Bodies::new(&Binary::of_masses(3.0, 1.0));
        let nu = 3.0 / 16.0;
        let series = bodies.flux().over(bodies.energy().scaled(|power| 1.0 + power as f64 / 2.0));
        let of = |power: usize| {
            let one = series.kept(|found, _| found == power).with_logarithm(0.0);
            one.at(0.5) / 0.5_f64.powi(power as i32)
        };
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-12;
        assert!(near(of(2), -743.0 / 336.0 - 11.0 / 4.0 * nu));
        assert!(near(of(5), -PI * (4159.0 / 672.0 + 189.0 / 8.0 * nu)));
        let last = -4415.0 / 4032.0 + 358_675.0 / 6048.0 * nu + 91_495.0 / 1512.0 * nu * nu;
        assert!(near(of(7), PI * last));
    }

    /// Tagoshi et al. 1996 (gr-qc/9603028) found -11/4, 33/16, -59/16, -65 pi/6 and 611/504 for a Kerr black hole.
    #[test]
    fn a_light_body_radiates_as_around_kerr() {
        let kerr = Bodies { nu: 0.0, delta: 1.0, spin: 1.0, spin_difference: -1.0, amplitude: 0.0 };
        let [three, five, six, ..] = kerr.flux_of_spin_and_orbit();
        let [four, spins_six] = kerr.flux_of_spin_and_spin();
        let found = [three, five, six, four, spins_six];
        let expected = [-2.75, -59.0 / 16.0, -65.0 / 6.0 * PI, 33.0 / 16.0, 611.0 / 504.0];
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }

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
