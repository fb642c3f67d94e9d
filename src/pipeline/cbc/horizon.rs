//! Distance at which a matched filter finds an inspiral.

use crate::math::PowerSpectrum;
use crate::strain::Binary;
use crate::waveform::{MEGAPARSEC_S, SOLAR_MASS_S, isco_hz};

/// Returns the distance in Mpc at which the inspiral of two masses (in solar masses, detector frame) overhead and face-on has a
/// signal-to-noise ratio, for noise of a spectrum from `f_low_hz` up to the innermost stable circular orbit.
///
/// The amplitude is that of the stationary phase at the lowest order, `|h(f)| = sqrt(5 / 24) pi^(-2/3) (c / D) (G M_c /
/// c^3)^(5/6) f^(-7/6)`.
///
/// # Source
/// Allen et al. 2012, Phys. Rev. D 85, 122006, section III.
pub fn horizon_mpc(psd: &PowerSpectrum, masses_msun: [f64; 2], f_low_hz: f64, snr: f64) -> f64 {
    let [m1, m2] = masses_msun;
    let (total, product) = (m1 + m2, m1 * m2);
    let chirp_s = SOLAR_MASS_S * product.powf(0.6) / total.powf(0.2);
    let f_last_hz = isco_hz(&nonspinning(masses_msun));
    let spacing_hz = psd.spacing_hz();
    let powers = psd.densities().iter().enumerate().filter_map(|(bin, density)| {
        let hertz = bin as f64 * spacing_hz;
        let is_in_band = hertz >= f_low_hz && hertz <= f_last_hz && *density > 0.0;
        is_in_band.then(|| hertz.powf(-7.0 / 3.0) / density)
    });
    let amplitude = (5.0_f64 / 24.0).sqrt() * std::f64::consts::PI.powf(-2.0 / 3.0) / MEGAPARSEC_S
        * chirp_s.powf(5.0 / 6.0);
    2.0 * amplitude * (powers.sum::<f64>() * spacing_hz).sqrt() / snr
}

fn nonspinning([mass1_msun, mass2_msun]: [f64; 2]) -> Binary {
    Binary { mass1_msun, mass2_msun, spin1z: 0.0, spin2z: 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::advanced_ligo;

    #[test]
    fn the_horizon_is_that_of_the_integral() {
        let flat = PowerSpectrum::new(0.01, vec![1e-46; 204_801]).expect("a spectrum");
        let last = isco_hz(&nonspinning([1.4, 1.4]));
        assert!((last - 1570.4).abs() < 1.0, "{last}");
        let integral = 0.75 * (20.0_f64.powf(-4.0 / 3.0) - last.powf(-4.0 / 3.0)) / 1e-46;
        let chirp_s = SOLAR_MASS_S * 1.4 * 2.0_f64.powf(-0.2);
        let expected =
            2.0 * (5.0_f64 / 24.0 * integral).sqrt() * std::f64::consts::PI.powf(-2.0 / 3.0)
                / MEGAPARSEC_S
                * chirp_s.powf(5.0 / 6.0)
                / 8.0;
        let found = horizon_mpc(&flat, [1.4, 1.4], 20.0, 8.0);
        assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
        // Two neutron stars in Advanced LIGO's design: a range of 173 to 200 Mpc, times 2.26.
        let design = advanced_ligo(0.25, 8193).expect("a spectrum");
        let found = horizon_mpc(&design, [1.4, 1.4], 20.0, 8.0);
        assert!((390.0..455.0).contains(&found), "{found}");
    }
}
