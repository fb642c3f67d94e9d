//! Remnant black hole: its spin, its mass, and the frequency of its ringdown.

use std::f64::consts::{PI, SQRT_2};

use crate::strain::Binary;

/// Real part of `M omega` of the mode l = m = 2, n = 0 in powers of `sqrt(2 (1 - a)) - 1`.
///
/// # Source
/// Leaver's continued fractions (1985, Proc. R. Soc. A 402, 285), solved at 181 spins from -0.9999 to 0.9999 and
/// fitted up to 0.9985 to 1.2e-6. They reproduce the values of Berti, Cardoso & Will 2006, gr-qc/0512160.
const RINGDOWN: [f64; 13] = [
    0.464_123_102_438_025_7,
    -0.267_453_046_445_975_3,
    0.143_320_662_669_514_85,
    -0.071_559_778_397_496_07,
    0.032_545_486_128_120_55,
    -0.011_573_571_473_285_672,
    0.001_925_856_732_189_345_3,
    -0.000_994_284_142_284_511_2,
    0.004_428_147_230_439_985,
    -0.004_440_637_632_995_716_5,
    6.714_447_518_215_355e-5,
    0.001_826_064_406_541_798_8,
    -0.000_661_671_772_853_096_9,
];

/// Imaginary part of the same, without its sign.
const DAMPING: [f64; 13] = [
    0.085_638_706_893_819_64,
    0.015_068_543_777_959_768,
    -0.023_122_498_336_324_272,
    0.019_845_560_235_462_044,
    -0.015_801_696_571_663_068,
    0.010_520_068_652_972_156,
    -0.003_417_170_465_733_829_7,
    -0.006_143_426_954_828_744,
    0.004_758_704_446_277_764,
    0.006_914_045_281_389_568,
    -0.006_409_872_785_216_967,
    -0.002_186_759_973_550_856_6,
    0.002_361_732_450_248_263_7,
];

/// Largest final spin of the fits.
const MAX_SPIN: f64 = 0.998_5;

/// Remnant in units of the initial total mass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remnant {
    /// Dimensionless spin; negative if opposite to the orbit.
    pub(super) spin: f64,
    /// Frequency of the ringdown.
    pub(super) ringdown: f64,
    /// Damping rate divided by 2 pi.
    pub(super) damping: f64,
}

impl Remnant {
    pub(super) fn new(bodies: &Bodies) -> Self {
        let spin = final_spin(bodies).clamp(-MAX_SPIN, MAX_SPIN);
        let x = (1.0 - spin).sqrt() * SQRT_2 - 1.0;
        let sum = |terms: &[f64]| terms.iter().rev().fold(0.0, |sum, term| sum * x + term);
        let scale = 2.0 * PI * (1.0 - radiated_energy(bodies));
        Self { spin, ringdown: sum(&RINGDOWN) / scale, damping: sum(&DAMPING) / scale }
    }
}

/// Returns the spin of the remnant.
///
/// # Source
/// Husa et al. 2016, arXiv:1508.07250, equation 3.6.
fn final_spin(bodies: &Bodies) -> f64 {
    let nu = bodies.nu;
    let s = bodies.mass1.powi(2) * bodies.chi1 + bodies.mass2.powi(2) * bodies.chi2;
    let orbit = 3.464_101_615_137_754_4
        + nu * (-4.399_247_300_629_289
            + nu * (9.397_292_189_321_194 - nu * 13.180_949_901_606_242));
    let linear = 1.0 / nu - 0.085_091_782_141_876_7 - 5.837_029_316_602_263 * nu;
    let square = 0.101_466_524_297_187_8 - 2.096_774_699_683_215_7 * nu;
    let cube = -1.354_680_661_782_435_6 + 4.108_962_025_369_336 * nu;
    let fourth = -0.867_696_935_255_553_9 + 2.064_046_835_273_906 * nu;
    nu * (orbit + s * (linear + s * (square + s * (cube + s * fourth))))
}

/// Returns the radiated energy in units of the total mass.
///
/// # Source
/// Husa et al. 2016, arXiv:1508.07250, equations 3.7 and 3.8.
fn radiated_energy(bodies: &Bodies) -> f64 {
    let nu = bodies.nu;
    let [square1, square2] = [bodies.mass1, bodies.mass2].map(|mass| mass * mass);
    let s = (square1 * bodies.chi1 + square2 * bodies.chi2) / (square1 + square2);
    let orbit = 0.055_974_469_826_360_077
        + nu * (0.580_951_076_311_513_2
            + nu * (-0.960_672_667_937_231_2 + nu * 3.352_411_249_771_192));
    let above = -0.003_030_233_587_884_550_7
        + nu * (-2.006_611_085_135_107_3 + nu * 7.705_056_780_239_921_5);
    let below =
        -0.671_440_305_472_058_9 + nu * (-1.475_692_943_770_290_8 + nu * 7.304_676_214_885_011);
    nu * orbit * (1.0 + above * s) / (1.0 + below * s)
}

/// Binary in units of its total mass, the heavier body first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bodies {
    pub(super) mass1: f64,
    pub(super) mass2: f64,
    pub(super) chi1: f64,
    pub(super) chi2: f64,
    /// Symmetric mass ratio.
    pub(super) nu: f64,
    /// `mass1 - mass2`.
    pub(super) difference: f64,
    /// Reduced spin `chi_PN`.
    ///
    /// # Source
    /// Khan et al. 2016, equation 3.
    pub(super) chi: f64,
}

impl Bodies {
    pub(super) fn new(binary: &Binary) -> Self {
        let total = binary.total_mass_msun();
        let first = (binary.mass1_msun / total, binary.spin1z);
        let second = (binary.mass2_msun / total, binary.spin2z);
        let ((mass1, chi1), (mass2, chi2)) =
            if first.0 >= second.0 { (first, second) } else { (second, first) };
        let (nu, difference) = (mass1 * mass2, mass1 - mass2);
        let chi = 0.5 * ((chi1 + chi2) * (1.0 - 76.0 / 113.0 * nu) + difference * (chi1 - chi2));
        Self { mass1, mass2, chi1, chi2, nu, difference, chi }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strain::Binary;

    #[test]
    fn ringdowns_are_those_of_the_published_tables() {
        // Berti, Cardoso & Will 2006: M omega of l = m = 2, n = 0.
        for (spin, real, imaginary) in [
            (0.0, 0.373_67, 0.088_96),
            (0.5, 0.464_12, 0.085_64),
            (0.7, 0.532_60, 0.080_79),
            (0.9, 0.671_61, 0.064_87),
        ] {
            let x = (1.0_f64 - spin).sqrt() * SQRT_2 - 1.0;
            let sum = |terms: &[f64]| terms.iter().rev().fold(0.0, |sum, term| sum * x + term);
            assert!((sum(&RINGDOWN) - real).abs() < 1e-5, "{spin}");
            assert!((sum(&DAMPING) - imaginary).abs() < 1e-5, "{spin}");
        }
    }

    #[test]
    fn equal_masses_without_spins_leave_a_known_hole() {
        let remnant = Remnant::new(&Bodies::new(&Binary::of_masses(30.0, 30.0)));
        // Numerical relativity: 0.68646, with 4.83 % of the mass radiated.
        assert!((remnant.spin - 0.6864).abs() < 5e-4, "{remnant:?}");
        let radiated = radiated_energy(&Bodies::new(&Binary::of_masses(30.0, 30.0)));
        assert!((radiated - 0.0483).abs() < 5e-4, "{radiated}");
    }
}
