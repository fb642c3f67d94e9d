//! Energy of a circular orbit and flux of its waves as series in the orbital velocity.
//!
//! Spins are aligned with the orbital angular momentum, the bodies are black holes (with the quadrupole of Kerr), and
//! absorption by horizons is neglected.
//!
//! # Source
//! Without spins: Blanchet 2014, Living Reviews in Relativity 17, 2, eqs. 232 and 314. Spin-orbit: Bohe, Marsat, Faye
//! & Blanchet 2013, arXiv:1303.7431, and for its tails Marsat, Bohe, Blanchet & Buonanno 2014, arXiv:1307.6793, eq.
//! 4.9. Spin-spin: Bohe, Faye, Marsat & Porter 2015, arXiv:1501.01529, eqs. 3.33 and 4.14.

use std::f64::consts::PI;

use super::amplitude::{Amplitude, Correction, EULER_GAMMA};
use super::series::Series;
use crate::strain::Binary;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
