//! The energy of a circular orbit and the flux of its waves, as series in the orbital velocity.
//!
//! Spins are along the orbit's angular momentum, the bodies are black holes (their quadrupole is that of Kerr), nothing
//! falls through horizons.
//!
//! # Source
//! Without spins: Blanchet 2014, Living Reviews in Relativity 17, 2, eqs. 232 and 314. Spin and orbit: Bohe, Marsat &
//! Blanchet 2013, arXiv:1303.7431, eqs. 3.33 and 4.14. Spin and spin: Bohe, Faye, Marsat & Porter 2015,
//! arXiv:1501.01529, eqs. 3.33 and 4.14.

use std::f64::consts::PI;

use super::series::Series;
use crate::strain::Binary;

/// Euler's constant.
const EULER_GAMMA: f64 = 0.577_215_664_901_532_9;

/// What the coefficients are made of.
pub(super) struct Bodies {
    /// Symmetric mass ratio `m1 m2 / M^2`.
    pub(super) nu: f64,
    /// `(m1 - m2) / M`.
    delta: f64,
    /// `(S1 + S2) / M^2`.
    spin: f64,
    /// `(S2 / m2 - S1 / m1) / M`.
    spin_difference: f64,
}

impl Bodies {
    pub(super) fn new(binary: &Binary) -> Self {
        let total = binary.total_mass_msun();
        let (first, second) = (binary.mass1_msun / total, binary.mass2_msun / total);
        Self {
            nu: first * second,
            delta: first - second,
            spin: first * first * binary.spin1z + second * second * binary.spin2z,
            spin_difference: second * binary.spin2z - first * binary.spin1z,
        }
    }

    /// The energy over `-(nu M / 2) v^2`.
    pub(super) fn energy(&self) -> Series {
        let Self { nu, delta, spin: s, spin_difference: d } = *self;
        let (nu2, nu3) = (nu * nu, nu * nu * nu);
        let spins_2 = -4.0 * s * s - 4.0 * delta * s * d + (4.0 * nu - 1.0) * d * d;
        let spins_3 = s * s * (-25.0 / 9.0 + 10.0 / 3.0 * nu)
            + delta * s * d * (10.0 / 3.0 + 10.0 / 3.0 * nu)
            + d * d * (2.5 - 7.5 * nu - 10.0 / 3.0 * nu2);
        Series::new([
            1.0,
            0.0,
            -0.75 - nu / 12.0,
            14.0 / 3.0 * s + 2.0 * delta * d,
            -27.0 / 8.0 + 19.0 / 8.0 * nu - nu2 / 24.0 + spins_2,
            (11.0 - 61.0 / 9.0 * nu) * s + delta * (3.0 - 10.0 / 3.0 * nu) * d,
            -675.0 / 64.0 + (34445.0 / 576.0 - 205.0 / 96.0 * PI * PI) * nu
                - 155.0 / 96.0 * nu2
                - 35.0 / 5184.0 * nu3
                + spins_3,
            (135.0 / 4.0 - 367.0 / 4.0 * nu + 29.0 / 12.0 * nu2) * s
                + delta * (27.0 / 4.0 - 39.0 * nu + 5.0 / 12.0 * nu2) * d,
        ])
    }

    /// The flux over `(32/5) nu^2 v^10`.
    pub(super) fn flux(&self) -> Series {
        let Self { nu, delta, spin: s, spin_difference: d } = *self;
        let (nu2, nu3) = (nu * nu, nu * nu * nu);
        let spins_2 = 8.0 * s * s + 8.0 * delta * s * d + (33.0 / 16.0 - 8.0 * nu) * d * d;
        let spins_3 = s * s * (-5239.0 / 504.0 - 271.0 / 56.0 - 43.0 * nu)
            + delta * s * d * (-817.0 / 56.0 - 279.0 / 28.0 - 43.0 * nu)
            + d * d
                * (-25.0 / 8.0 - 279.0 / 56.0 + (243.0 / 56.0 + 344.0 / 21.0) * nu + 43.0 * nu2);
        let sixth = 6_643_739_519.0 / 69_854_400.0 + 16.0 / 3.0 * PI * PI
            - 1712.0 / 105.0 * (EULER_GAMMA + 4_f64.ln())
            + (-134_543.0 / 7776.0 + 41.0 / 48.0 * PI * PI) * nu
            - 94_403.0 / 3024.0 * nu2
            - 775.0 / 324.0 * nu3;
        Series::new([
            1.0,
            0.0,
            -1247.0 / 336.0 - 35.0 / 12.0 * nu,
            4.0 * PI - 4.0 * s - 1.25 * delta * d,
            -44_711.0 / 9072.0 + 9271.0 / 504.0 * nu + 65.0 / 18.0 * nu2 + spins_2,
            (-8191.0 / 672.0 - 583.0 / 24.0 * nu) * PI
                + (-4.5 + 272.0 / 9.0 * nu) * s
                + delta * (-13.0 / 16.0 + 43.0 / 4.0 * nu) * d,
            sixth - 16.0 * PI * s - 31.0 / 6.0 * PI * delta * d + spins_3,
            (-16_285.0 / 504.0 + 214_745.0 / 1728.0 * nu + 193_385.0 / 3024.0 * nu2) * PI
                + (476_645.0 / 6804.0 + 6172.0 / 189.0 * nu - 2810.0 / 27.0 * nu2) * s
                + delta * (9535.0 / 336.0 + 1849.0 / 126.0 * nu - 1501.0 / 36.0 * nu2) * d,
        ])
        .with_logarithm(-1712.0 / 105.0)
    }
}
