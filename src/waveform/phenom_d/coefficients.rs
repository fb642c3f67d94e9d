//! Calibration of IMRPhenomD: coefficients as polynomials in the symmetric mass ratio and the reduced spin, and the
//! remnant black hole.
//!
//! # Source
//! Khan et al. 2016, arXiv:1508.07253, table V; digits beyond those printed are from the authors' implementation.

use std::f64::consts::{PI, SQRT_2};

use crate::strain::Binary;

/// `l00 + l10 nu + sum_{k = 1..3} (chi - 1)^k (l0k + l1k nu + l2k nu^2)`, with the coefficients in this order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit([f64; 11]);

impl Fit {
    pub(super) fn at(&self, nu: f64, chi: f64) -> f64 {
        let Self([l00, l10, spins @ ..]) = self;
        let xi = chi - 1.0;
        let of_spins = spins
            .chunks_exact(3)
            .rev()
            .fold(0.0, |sum, l| (sum + l[0] + nu * (l[1] + nu * l[2])) * xi);
        l00 + l10 * nu + of_spins
    }
}

/// Fits of a waveform.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fits {
    /// Inspiral amplitude: coefficients of `f^(7/3)`, `f^(8/3)`, `f^3`.
    pub(super) rho1: Fit,
    pub(super) rho2: Fit,
    pub(super) rho3: Fit,
    /// Amplitude in the middle of the intermediate region.
    pub(super) middle: Fit,
    /// Merger-ringdown amplitude: height, decay and width of the Lorentzian.
    pub(super) gamma1: Fit,
    pub(super) gamma2: Fit,
    pub(super) gamma3: Fit,
    /// Inspiral phase: coefficients of `f`, `3/4 f^(4/3)`, `3/5 f^(5/3)`, `1/2 f^2`.
    pub(super) sigma1: Fit,
    pub(super) sigma2: Fit,
    pub(super) sigma3: Fit,
    pub(super) sigma4: Fit,
    /// Intermediate phase: coefficients of `f`, `ln f`, `-f^-3 / 3`.
    pub(super) beta1: Fit,
    pub(super) beta2: Fit,
    pub(super) beta3: Fit,
    /// Merger-ringdown phase: coefficients of `f`, `-1/f`, `4/3 f^(3/4)` and of the arctangent, and its centre
    /// relative to the ringdown frequency.
    pub(super) alpha1: Fit,
    pub(super) alpha2: Fit,
    pub(super) alpha3: Fit,
    pub(super) alpha4: Fit,
    pub(super) alpha5: Fit,
}

/// Published calibration.
pub(super) const FITS: Fits = Fits {
    rho1: Fit([
        3_931.897_989_719_669_6,
        -17_395.758_706_812_805,
        3_132.375_545_898_835,
        343_965.860_923_613_77,
        -1_216_256.581_998_199_7,
        -70_698.006_004_288_53,
        1_383_907.177_859_705,
        -3_966_276.189_097_944_6,
        -60_017.524_236_525_96,
        803_515.118_182_573_5,
        -2_091_710.365_941_658,
    ]),
    rho2: Fit([
        -40_105.476_537_716_57,
        112_253.016_970_670_1,
        23_561.696_065_836_168,
        -3_476_180.699_403_351,
        11_375_936.708_494_82,
        754_313.112_716_645_4,
        -13_084_760.446_252_68,
        36_444_584.853_928_134,
        596_226.612_472_288,
        -7_427_790.114_356_440_5,
        18_928_977.514_040_343,
    ]),
    rho3: Fit([
        83_208.354_712_665_37,
        -191_237.726_414_592_4,
        -210_916.245_478_299_2,
        8_717_975.083_525_68,
        -26_914_942.420_669_552,
        -1_988_980.652_736_272_2,
        30_888_029.960_154_563,
        -83_908_702.792_561_62,
        -1_453_503.195_344_649_7,
        17_063_528.990_822_166,
        -42_748_659.731_120_914,
    ]),
    middle: Fit([
        0.814_983_873_050_778_5,
        2.574_755_351_745_465_8,
        1.161_019_803_549_678_6,
        -2.362_777_178_555_153_7,
        6.771_038_707_057_573,
        0.757_078_293_860_683_4,
        -2.725_689_689_043_247_4,
        7.114_038_039_714_996_5,
        0.176_693_414_929_347_9,
        -0.797_869_098_316_818_3,
        2.116_239_150_200_515_3,
    ]),
    gamma1: Fit([
        0.006_927_402_739_328_343,
        0.030_204_742_903_289_11,
        0.006_308_024_337_706_171,
        -0.120_741_306_611_311_38,
        0.262_715_989_057_813_24,
        0.003_415_177_364_719_879_4,
        -0.107_793_386_111_883_74,
        0.270_989_669_668_917_47,
        0.000_737_418_593_855_928_3,
        -0.027_496_210_383_762_81,
        0.073_315_078_913_570_2,
    ]),
    gamma2: Fit([
        1.010_344_404_799_477,
        0.000_899_312_200_723_454_8,
        0.283_949_116_804_459,
        -4.049_752_962_958_005,
        13.207_828_172_665_366,
        0.103_962_784_868_054_26,
        -7.025_059_158_961_947,
        24.784_892_370_130_475,
        0.030_932_024_756_058_92,
        -2.692_402_389_685_166_3,
        9.609_374_464_684_983,
    ]),
    gamma3: Fit([
        1.308_161_560_703_610_6,
        -0.005_537_729_694_807_678,
        -0.067_829_179_386_210_07,
        -0.668_983_497_076_711_7,
        3.403_147_966_134_083,
        -0.052_965_773_744_118_66,
        -0.992_379_320_311_136_2,
        4.820_681_208_409_587,
        -0.006_134_139_870_393_713,
        -0.384_292_533_086_963_65,
        1.756_175_442_198_598_4,
    ]),
    sigma1: Fit([
        2_096.551_999_295_543,
        1_463.749_316_826_155_3,
        1_312.549_328_609_852_2,
        18_307.330_017_082_117,
        -43_534.144_074_610_7,
        -833.288_954_351_111_4,
        32_047.319_971_831_87,
        -108_609.450_375_208_59,
        452.251_363_981_122_04,
        8_353.439_546_391_714,
        -44_531.325_003_732_2,
    ]),
    sigma2: Fit([
        -10_114.056_472_621_156,
        -44_631.011_094_581_85,
        -6_541.308_761_668_722,
        -266_959.234_193_075_04,
        686_328.322_931_798_4,
        3_405.637_218_767_968_5,
        -437_507.720_820_901_5,
        1_631_817.130_734_469_7,
        -7_462.648_563_007_646,
        -114_585.251_771_533_19,
        674_402.468_909_867_6,
    ]),
    sigma3: Fit([
        22_933.658_273_436_497,
        230_960.008_149_795_06,
        14_961.083_974_183_695,
        1_194_018.134_231_814_2,
        -3_104_223.969_305_276_4,
        -3_038.166_617_199_259,
        1_872_032.284_909_359_2,
        -7_309_145.012_085_539,
        42_738.228_714_754_11,
        467_502.018_616_601,
        -3_064_853.498_512_499,
    ]),
    sigma4: Fit([
        -14_621.715_222_183_57,
        -377_812.857_938_710_4,
        -9_608.682_631_509_726,
        -1_710_892.525_721_405_6,
        4_332_924.601_416_521,
        -22_366.683_262_266_528,
        -2_501_971.638_637_746_7,
        10_274_495.902_259_542,
        -85_360.300_790_342_46,
        -570_025.344_173_751_5,
        4_396_844.346_849_777,
    ]),
    beta1: Fit([
        97.897_473_279_855_83,
        -42.659_730_877_489_224,
        153.484_210_379_049_13,
        -1_417.062_076_076_895_4,
        2_752.861_414_366_502_7,
        138.740_646_955_864_9,
        -1_433.658_507_513_588_1,
        2_857.741_895_243_075_8,
        41.025_109_467_376_126,
        -423.680_737_974_639,
        850.359_433_565_717_3,
    ]),
    beta2: Fit([
        -3.282_701_958_759_534,
        -9.051_384_468_245_866,
        -12.415_449_742_258_042,
        55.471_644_770_978_7,
        -106.051_099_389_663_35,
        -11.953_044_553_690_658,
        76.807_046_183_654_18,
        -155.331_729_480_983_94,
        -3.412_926_159_239_326_3,
        25.572_377_569_952_536,
        -54.408_036_707_740_465,
    ]),
    beta3: Fit([
        -2.515_642_981_879_956_5e-05,
        1.975_025_694_220_132_7e-05,
        -1.837_067_146_929_591_5e-05,
        2.188_631_704_131_197_3e-05,
        8.250_240_316_860_033e-05,
        7.157_371_250_566_708e-06,
        -5.578_000_011_227_068_5e-05,
        0.000_191_420_828_840_721_78,
        5.447_166_261_464_217e-06,
        -3.220_610_095_021_982e-05,
        7.974_016_714_984_341e-05,
    ]),
    alpha1: Fit([
        43.315_147_096_953_48,
        638.633_267_918_808_1,
        -32.857_687_472_160_59,
        2_415.893_826_937_031_5,
        -5_766.875_169_379_177,
        -61.854_593_071_738_41,
        2_953.967_762_459_948,
        -8_986.290_575_914_97,
        -21.571_435_779_762_044,
        981.215_822_467_342_8,
        -3_239.566_489_593_028_6,
    ]),
    alpha2: Fit([
        -0.070_202_094_490_917_23,
        -0.162_697_984_506_870_84,
        -0.187_251_468_518_549_9,
        1.138_313_650_449_945,
        -2.833_419_630_443_004_6,
        -0.171_379_556_868_406_17,
        1.719_754_933_811_952_7,
        -4.539_717_148_261_272,
        -0.049_983_437_357_548_705,
        0.606_207_205_594_830_9,
        -1.682_769_616_644_546,
    ]),
    alpha3: Fit([
        9.598_807_238_347_9,
        -397.054_385_955_574_33,
        16.202_126_189_517_813,
        -1_574.828_698_671_703_7,
        3_600.341_084_383_109_3,
        27.092_429_659_075_467,
        -1_786.482_357_315_139,
        5_152.919_378_666_511,
        11.175_710_130_033_895,
        -577.799_942_317_748_1,
        1_808.730_762_932_043,
    ]),
    alpha4: Fit([
        -0.029_894_873_844_936_07,
        1.402_210_644_858_373_8,
        -0.073_560_494_686_338_46,
        0.833_700_654_227_866_1,
        0.224_000_828_239_739_1,
        -0.055_202_870_001_177_226,
        0.566_718_634_360_657_8,
        0.718_693_197_338_050_3,
        -0.015_507_437_354_325_743,
        0.157_503_227_792_771_87,
        0.210_768_157_151_762_28,
    ]),
    alpha5: Fit([
        0.997_440_827_836_309_9,
        -0.007_884_449_714_907_203,
        -0.059_046_901_195_591_035,
        1.395_871_239_676_408_8,
        -4.516_631_601_676_276,
        -0.055_853_431_368_696_92,
        1.751_658_003_934_360_3,
        -5.990_208_965_347_804,
        -0.017_945_336_522_161_195,
        0.596_509_779_482_599_2,
        -2.060_887_936_797_180_4,
    ]),
};

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

/// Magnitude of the imaginary part of the same quantity.
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
        let scale = 2.0 * PI * (1.0 - radiated_energy(bodies));
        Self {
            spin,
            ringdown: polynomial(&RINGDOWN, x) / scale,
            damping: polynomial(&DAMPING, x) / scale,
        }
    }
}

/// Returns the value at `x` of a polynomial whose terms rise in power.
pub(super) fn polynomial(terms: &[f64], x: f64) -> f64 {
    terms.iter().rev().fold(0.0, |sum, term| sum * x + term)
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
            assert!((polynomial(&RINGDOWN, x) - real).abs() < 1e-5, "{spin}");
            assert!((polynomial(&DAMPING, x) - imaginary).abs() < 1e-5, "{spin}");
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
