//! IMRPhenomD: inspiral, merger and ringdown of two black holes with aligned spins.
//!
//! Invariant: pure functions of a binary; nothing of detectors or noise is known here.

mod amplitude;
mod coefficients;
mod phase;
mod remnant;
mod sampled;

use std::f64::consts::TAU;

use self::amplitude::Amplitude;
use self::phase::Phase;
use self::remnant::{Bodies, Remnant};
pub(super) use self::sampled::sampled;
use super::rules::{MEGAPARSEC_S, SOLAR_MASS_S, check_binary};
use crate::error::{Error, Result};
use crate::strain::Binary;

/// Highest frequency of the model in units of 1/M.
const END: f64 = 0.2;

/// Largest accepted mass ratio and spin.
const MAX_RATIO: f64 = 100.0;
const MAX_SPIN: f64 = 0.99;

/// Largest mass ratio, spin, and spin of equal masses among the simulations that calibrate the model.
const CALIBRATED_RATIO: f64 = 18.0;
const CALIBRATED_SPIN: f64 = 0.85;
const CALIBRATED_SPIN_OF_EQUALS: f64 = 0.98;

/// Amplitude and phase of one binary's waveform as functions of frequency.
///
/// The Fourier transform `int h_plus(t) exp(-2 pi i f t) dt` of the plus polarization of a face-on source at 1 Mpc is
/// `amplitude(f) exp(-i phase(f))` for `f > 0`; the cross polarization is `h_cross = -i h_plus` in frequency. Time is
/// 0 at the peak of the amplitude, and the wave has frequency `f` at [`Self::time_s`].
///
/// # Numerics
/// Amplitude and phase agree with LALSimulation's to 5e-5 and 5e-5 rad over its range, except for a shift of time and
/// phase.
/// # Source
/// Khan et al. 2016, Phys. Rev. D 93, 044007, arXiv:1508.07253; Husa et al. 2016, Phys. Rev. D 93, 044006, arXiv:1508.07250.
#[derive(Clone, Copy, Debug)]
pub struct PhenomD {
    mass_s: f64,
    /// Scale of the amplitude per Hz, including the distance and the leading factors.
    scale: f64,
    remnant: Remnant,
    amplitude: Amplitude,
    phase: Phase,
    /// Slope of the phase at the amplitude's peak, which is time 0, and the phase there.
    peak: [f64; 2],
}

impl PhenomD {
    /// Computes the waveform of a binary; the order of the bodies does not matter.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a mass outside 0 to 1e4 solar masses, a mass ratio above 100 or a spin beyond 0.99.
    /// Mass ratios above 18 and spins beyond 0.85 (0.98 for equal masses) are an extrapolation:
    /// [`Self::is_calibrated`].
    pub fn new(binary: &Binary) -> Result<Self> {
        check_binary(binary)?;
        let bodies = Bodies::new(binary);
        let ratio = bodies.mass1 / bodies.mass2;
        if ratio > MAX_RATIO {
            let rule = format!("IMRPhenomD takes mass ratios up to {MAX_RATIO}");
            return Err(Error::parameter("mass ratio", ratio, rule));
        }
        if let Some(spin) = [bodies.chi1, bodies.chi2].into_iter().find(|s| s.abs() > MAX_SPIN) {
            let rule = format!("IMRPhenomD takes spins from -{MAX_SPIN} to {MAX_SPIN}");
            return Err(Error::parameter("spin", spin, rule));
        }
        let remnant = Remnant::new(&bodies);
        let amplitude = Amplitude::new(&bodies, &remnant);
        let phase = Phase::new(&bodies, &remnant);
        let mass_s = binary.total_mass_msun() * SOLAR_MASS_S;
        // 2 sqrt(5 / (64 pi)) of the mode l = m = 2 along the axis, sqrt(2 nu / 3) pi^(-1/6) of its amplitude.
        let axis = (5.0 / (16.0 * std::f64::consts::PI)).sqrt();
        let leading = (2.0 * bodies.nu / 3.0).sqrt() * std::f64::consts::PI.powf(-1.0 / 6.0);
        let scale = axis * leading * mass_s * mass_s / MEGAPARSEC_S;
        let peak = [phase.slope(amplitude.peak), phase.at(amplitude.peak, amplitude.peak.cbrt())];
        Ok(Self { mass_s, scale, remnant, amplitude, phase, peak })
    }

    /// Tells whether a binary is in the calibrated range of the model.
    pub fn is_calibrated(binary: &Binary) -> bool {
        let [a, b] = [binary.mass1_msun, binary.mass2_msun];
        let ratio = (a / b).max(b / a);
        let spin = binary.spin1z.abs().max(binary.spin2z.abs());
        let most = if ratio < 1.01 { CALIBRATED_SPIN_OF_EQUALS } else { CALIBRATED_SPIN };
        ratio <= CALIBRATED_RATIO && spin <= most
    }

    /// Returns `|h_plus(f)|` of a face-on source at 1 Mpc in 1/Hz; 0 above the end.
    pub fn amplitude(&self, f_hz: f64) -> f64 {
        self.at(f_hz)[0]
    }

    /// Returns the phase lag of `h_plus(f)` in radians; the phase and its slope are 0 at the peak.
    pub fn phase(&self, f_hz: f64) -> f64 {
        self.at(f_hz)[1]
    }

    /// Returns [`Self::amplitude`] and [`Self::phase`].
    pub fn at(&self, f_hz: f64) -> [f64; 2] {
        let f = f_hz * self.mass_s;
        if f.is_nan() || f <= 0.0 || f > END {
            return [0.0; 2];
        }
        let root = f.cbrt();
        // f^(-7/6)
        let decline = 1.0 / (f * root.sqrt());
        let [slope, phase] = self.peak;
        [
            self.scale * decline * self.amplitude.at(f, root),
            self.phase.at(f, root) - phase - slope * (f - self.amplitude.peak),
        ]
    }

    /// Returns the time at which the wave has this frequency, in seconds after that of its peak in frequency.
    pub fn time_s(&self, f_hz: f64) -> f64 {
        let f = (f_hz * self.mass_s).clamp(f64::MIN_POSITIVE, END);
        (self.phase.slope(f) - self.peak[0]) * self.mass_s / TAU
    }

    /// Returns the highest frequency of the model in Hz.
    pub fn end_hz(&self) -> f64 {
        END / self.mass_s
    }

    /// Returns the frequency in Hz of the peak of the amplitude times `f^(7/6)`.
    pub fn peak_hz(&self) -> f64 {
        self.amplitude.peak / self.mass_s
    }

    /// Returns the frequency of the ringdown in Hz.
    pub fn ringdown_hz(&self) -> f64 {
        self.remnant.ringdown / self.mass_s
    }

    /// Returns the decay time of the ringdown's amplitude in seconds.
    pub fn damping_s(&self) -> f64 {
        self.mass_s / (TAU * self.remnant.damping)
    }

    /// Returns the dimensionless spin of the remnant; negative if opposite to the orbit.
    pub fn final_spin(&self) -> f64 {
        self.remnant.spin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Masses, spins, `|h_plus|` at 1 Mpc and the phase at [`FREQUENCIES`], minus a line through its second and fifth
    /// values.
    type Case = ((f64, f64, f64, f64), [f64; 6], [f64; 6]);

    /// Frequencies in units of 1/M.
    const FREQUENCIES: [f64; 6] = [0.005, 0.012, 0.016, 0.03, 0.07, 0.11];

    /// Values of LALSimulation 6.2.1, `SimIMRPhenomDGenerateFD`.
    const CASES: [Case; 6] = [
        (
            (30.0, 30.0, 0.0, 0.0),
            [
                4.070_03e-20,
                1.329_211e-20,
                9.027_144e-21,
                4.119_207e-21,
                2.258_777e-21,
                1.586_15e-22,
            ],
            [60.885, 0.0, -5.1479, -8.0613, 0.0, 13.2772],
        ),
        (
            (29.0, 36.0, -0.44, 0.33),
            [
                4.743_371e-20,
                1.545_167e-20,
                1.047_76e-20,
                4.764_493e-21,
                2.613_256e-21,
                1.863_776e-22,
            ],
            [61.4391, 0.0, -5.1744, -8.0774, 0.0, 13.2737],
        ),
        (
            (5.0, 50.0, -0.6, 0.8),
            [
                1.992_097e-20,
                6.889_028e-21,
                4.834_73e-21,
                2.130_872e-21,
                7.606_665e-22,
                1.493_819e-22,
            ],
            [225.3815, 0.0, -21.5881, -31.8212, 0.0, 43.1353],
        ),
        (
            (30.0, 30.0, 0.98, 0.98),
            [4.285_122e-20, 1.542_2e-20, 1.107_794e-20, 5.536_706e-21, 2.636_528e-21, 1.935_67e-21],
            [83.2436, 0.0, -9.0333, -14.8249, 0.0, 23.2479],
        ),
        (
            (60.0, 3.5, -0.85, 0.3),
            [
                1.866_682e-20,
                3.826_766e-21,
                1.787_091e-21,
                8.080_535e-22,
                7.308_491e-23,
                1.871_262e-24,
            ],
            [136.6782, 0.0, -3.339, -4.8171, 0.0, 4.0259],
        ),
        (
            (3.0, 1.4, 0.2, 0.0),
            [
                2.044_52e-22,
                6.722_76e-23,
                4.574_115e-23,
                2.056_338e-23,
                1.066_748e-23,
                6.354_878e-25,
            ],
            [72.4411, 0.0, -6.1649, -9.4933, 0.0, 14.9414],
        ),
    ];

    #[test]
    fn amplitude_and_phase_are_those_of_lalsimulation() {
        for ((mass1_msun, mass2_msun, spin1z, spin2z), amplitudes, phases) in CASES {
            let binary = Binary { mass1_msun, mass2_msun, spin1z, spin2z };
            let wave = PhenomD::new(&binary).expect("a waveform");
            let f_hz = FREQUENCIES.map(|f| f / (binary.total_mass_msun() * SOLAR_MASS_S));
            let found = f_hz.map(|f| wave.phase(f));
            let slope = (found[4] - found[1]) / (f_hz[4] - f_hz[1]);
            for (index, f) in f_hz.into_iter().enumerate() {
                let amplitude = wave.amplitude(f) / amplitudes[index];
                assert!((amplitude - 1.0).abs() < 5e-5, "{binary:?} {f} Hz: {amplitude}");
                let phase = found[index] - found[1] - slope * (f - f_hz[1]);
                assert!((phase - phases[index]).abs() < 3e-4, "{binary:?} {f} Hz: {phase}");
            }
        }
    }

    #[test]
    fn time_passes_as_the_phase_says() {
        let binary = Binary { spin1z: 0.3, ..Binary::of_masses(1.4, 20.0) };
        let wave = PhenomD::new(&binary).expect("a waveform");
        assert_eq!(wave.time_s(wave.peak_hz()), 0.0);
        assert!(wave.phase(wave.peak_hz()).abs() < 1e-9);
        let (f, step) = (40.0, 1e-3);
        let slope = (wave.phase(f + step) - wave.phase(f - step)) / (2.0 * step * TAU);
        assert!((wave.time_s(f) - slope).abs() < 1e-6 && slope < 0.0, "{slope}");
        assert!(wave.amplitude(wave.end_hz() * 1.01) == 0.0 && wave.amplitude(0.0) == 0.0);
    }

    #[test]
    fn the_range_is_known() {
        let spin = |ratio: f64, spin: f64| Binary {
            spin1z: spin,
            spin2z: spin,
            ..Binary::of_masses(10.0 * ratio, 10.0)
        };
        assert!(
            PhenomD::is_calibrated(&spin(1.0, 0.98)) && PhenomD::is_calibrated(&spin(18.0, 0.85))
        );
        assert!(
            !PhenomD::is_calibrated(&spin(2.0, 0.9)) && !PhenomD::is_calibrated(&spin(19.0, 0.0))
        );
        assert!(PhenomD::new(&spin(2.0, 0.9)).is_ok() && PhenomD::new(&spin(2.0, 0.995)).is_err());
        assert!(
            PhenomD::new(&spin(101.0, 0.0)).is_err() && PhenomD::new(&spin(f64::NAN, 0.0)).is_err()
        );
    }
}
