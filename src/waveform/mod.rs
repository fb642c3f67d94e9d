//! Gravitational waveforms of compact binaries from their masses and spins.
//!
//! Invariant: pure functions of a binary; nothing of detectors or noise is known here.

mod options;
mod phenom_d;
mod post_newtonian;
mod taylor;

pub use options::{
    Amplitude, Approximant, End, InspiralOptions, MEGAPARSEC_S, SOLAR_MASS_S, SpinOrder,
};
pub use phenom_d::PhenomD;
pub use taylor::isco_hz;

use crate::error::Result;
use crate::math::Transforms;
use crate::strain::{Binary, Waveform};
use taylor::{Orbit, Span};

/// Computes the wave of a face-on binary from `f_low_hz` to the end of the orbit, or through merger and ringdown.
///
/// The phase of `h = h_plus - i h_cross` decreases with time, and the peak of `|h|` is a sample.
///
/// An inspiral is `-(4 nu M / R) v^2 q(v) exp(-2 i phi)` with `v^3 = M dphi/dt` and `q` the amplitude correction. The
/// last sample is the end of the orbit, where phi is 0, and the peak of `|h|`. IMRPhenomD is [`PhenomD`] transformed
/// to the time domain: the complete wave from `f_low_hz` on, preceded by a rise that is smooth in frequency; at its
/// peak `h` is negative, and the ringdown follows.
///
/// | result    | axes | type    | unit   |
/// |-----------|------|---------|--------|
/// | `samples` | time | complex | strain |
///
/// # Errors
/// [`crate::Error::Parameter`] for a mass outside 0 to 1e4 solar masses, a spin outside -1 to 1, a frequency not
/// below the Nyquist frequency, masses whose wave ends below `f_low_hz`, a length above 2^26 samples (IMRPhenomD:
/// 2^25), or the errors of [`PhenomD::new`].
/// # Numerics
/// Time and phase are integrals over `v` with a relative error of about 1e-12; quintic polynomials in time between
/// their knots keep the phase error below 1e-8 rad.
/// # Source
/// Buonanno, Iyer, Ochsner, Pan & Sathyaprakash 2009, arXiv:0907.0700 (the approximants); docs/design/waveform.md has
/// all equations.
/// # Examples
/// Two black holes at the distance of GW150914 stretch space by some parts in 10^21, and ring down after that:
///
/// ```
/// use sidereal::strain::Binary;
/// use sidereal::waveform::{Approximant, InspiralOptions, inspiral};
///
/// # fn main() -> sidereal::Result<()> {
/// let approximant = Approximant::IMRPhenomD;
/// let options = InspiralOptions { approximant, f_low_hz: 20.0, distance_mpc: 410.0, ..InspiralOptions::default() };
/// let wave = inspiral(&Binary::of_masses(39.0, 32.0), &options)?;
/// let strain = wave.samples[wave.peak].norm();
/// assert!((1e-21..3e-21).contains(&strain), "{strain}");
/// assert!(wave.samples[wave.peak + 41].norm() < 0.3 * strain, "10 ms later");
/// # Ok(())
/// # }
/// ```
pub fn inspiral(binary: &Binary, options: &InspiralOptions) -> Result<Waveform> {
    inspiral_with(binary, options, &Transforms::default())
}

/// Like [`inspiral`], with plans and memory that many waveforms share.
///
/// # Errors
/// As [`inspiral`].
pub(crate) fn inspiral_with(
    binary: &Binary,
    options: &InspiralOptions,
    transforms: &Transforms,
) -> Result<Waveform> {
    let wave = match options.approximant {
        Approximant::IMRPhenomD => {
            options::check_options(options)?;
            phenom_d::sampled(&PhenomD::new(binary)?, options, transforms)?
        }
        Approximant::TaylorT4 | Approximant::TaylorT2 => {
            let span = Span::new(binary, options)?;
            let orbit = Orbit::new(&span, options.fade_in_cycles / options.f_low_hz);
            let scale = 4.0 * span.nu * span.mass_s / (options.distance_mpc * MEGAPARSEC_S);
            orbit.wave(options.rate_hz, scale)?
        }
    };
    let (rate_hz, distance_mpc) = (options.rate_hz, options.distance_mpc);
    let wave = Waveform::new(name(binary), Some(*binary), rate_hz, wave, distance_mpc)?;
    Ok(Waveform { approximant: Some(options.approximant.name().to_owned()), ..wave })
}

/// Returns a name made of the masses and any nonzero spins.
fn name(binary: &Binary) -> String {
    let masses = format!("{}+{}", binary.mass1_msun, binary.mass2_msun);
    match (binary.spin1z, binary.spin2z) {
        (0.0, 0.0) => masses,
        (first, second) => format!("{masses}_{first}_{second}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(masses: (f64, f64), options: InspiralOptions) -> Result<Waveform> {
        inspiral(&Binary::of_masses(masses.0, masses.1), &options)
    }

    #[test]
    fn the_last_sample_is_the_peak_and_frequencies_are_those_asked_for() {
        let options = InspiralOptions { f_low_hz: 30.0, ..Default::default() };
        let made = wave((1.4, 1.4), options).expect("an inspiral");
        let h = &made.samples;
        assert_eq!(made.peak, h.len() - 1);
        let frequency = |at: usize| -(h[at + 1] / h[at]).arg() / std::f64::consts::TAU * 4096.0;
        let rise = (2.0 / 30.0 * 4096.0) as usize;
        assert!((frequency(rise) - 30.0).abs() < 0.01, "{}", frequency(rise));
        assert!((frequency(h.len() - 2) - 1570.0).abs() < 80.0, "{}", frequency(h.len() - 2));
        // Newtonian chirp time: 5/256 (pi f)^(-8/3) Mc^(-5/3), a few percent less with its corrections.
        let newton = 5.0 / 256.0
            * (std::f64::consts::PI * 30.0).powf(-8.0 / 3.0)
            * (made.binary.map_or(0.0, |b| b.chirp_mass_msun()) * SOLAR_MASS_S).powf(-5.0 / 3.0);
        let seconds = made.duration_s() - 2.0 / 30.0;
        assert!((seconds / newton - 1.0).abs() < 0.05, "{seconds} {newton}");
        assert!(h[0].norm() < 1e-3 * h[rise].norm());
    }

    #[test]
    fn what_makes_no_inspiral_is_refused() {
        let options = InspiralOptions { f_low_hz: 30.0, ..Default::default() };
        for masses in [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1e5, 1.0), (80.0, 100.0)] {
            assert!(wave(masses, options).is_err(), "{masses:?}");
        }
        for bad in [
            InspiralOptions { f_low_hz: 2048.0, ..options },
            InspiralOptions { f_low_hz: f64::NAN, ..options },
            InspiralOptions { f_low_hz: 1e-3, ..options },
            InspiralOptions { f_low_hz: 1e-300, ..options },
            InspiralOptions { rate_hz: 0, ..options },
            InspiralOptions { distance_mpc: 0.0, ..options },
            InspiralOptions { fade_in_cycles: -1.0, ..options },
        ] {
            assert!(wave((1.4, 1.4), bad).is_err(), "{bad:?}");
        }
        let fast = Binary { spin1z: 1.0, ..Binary::of_masses(10.0, 10.0) };
        assert!(inspiral(&fast, &options).is_err());
        let heavy = wave((80.0, 100.0), options).map_err(|error| error.to_string());
        assert!(heavy.is_err_and(|text| text.contains("no inspiral in band")));
    }

    #[test]
    fn extreme_binaries_make_finite_waves_or_errors() {
        let mut made = 0;
        for (mass1_msun, mass2_msun) in
            [(0.5, 0.5), (1e4, 0.7), (3.0, 60.0), (30.0, 30.0), (1e4, 1e4)]
        {
            for (spin1z, spin2z) in [(0.0, 0.0), (0.99, 0.99), (-0.99, -0.99), (0.99, -0.99)] {
                let binary = Binary { mass1_msun, mass2_msun, spin1z, spin2z };
                for approximant in [Approximant::TaylorT4, Approximant::TaylorT2] {
                    for end in [End::Customary, End::Isco, End::MinimumEnergy] {
                        let amplitude = Amplitude::ThreePn;
                        let options = InspiralOptions {
                            approximant,
                            end,
                            amplitude,
                            f_low_hz: 40.0,
                            rate_hz: 1024,
                            spin_order: SpinOrder::Full,
                            ..Default::default()
                        };
                        if let Ok(wave) = inspiral(&binary, &options) {
                            made += 1;
                            assert!(wave.samples.iter().all(|h| h.is_finite()));
                            assert!(wave.samples.len() < 1 << 20, "{binary:?}");
                        }
                    }
                }
            }
        }
        assert!(made >= 60, "{made}");
    }
}
