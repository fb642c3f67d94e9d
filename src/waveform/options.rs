//! Binaries and options of a waveform, and their checks.

use crate::error::{Error, Result};
use crate::strain::Binary;

/// Solar mass `G M_sun / c^3` in seconds.
///
/// # Source
/// IAU 2015 resolution B3: the nominal solar mass parameter, 1.3271244e20 m^3 s^-2.
pub const SOLAR_MASS_S: f64 = 4.925_490_947_641_267_5e-6;

/// Megaparsec in light seconds.
///
/// # Source
/// IAU 2015 resolution B2: a parsec is 648000/pi astronomical units of 149597870700 m.
pub const MEGAPARSEC_S: f64 = 3.085_677_581_491_367e22 / crate::units::SPEED_OF_LIGHT_M_S;

/// Heaviest body in solar masses.
const MAX_MASS_MSUN: f64 = 1e4;

/// Longest rise in cycles.
const MAX_FADE_IN_CYCLES: f64 = 100.0;

/// Waveform approximant: inspirals to 3.5PN, or inspiral, merger and ringdown.
///
/// # Source
/// Buonanno et al. 2009, arXiv:0907.0700, sections III.D (T4) and III.B (T2); Khan et al. 2016, arXiv:1508.07253 (D).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approximant {
    /// `dv/dt` as a series in v.
    #[default]
    TaylorT4,
    /// `dt/dv` as a series in v.
    TaylorT2,
    /// Inspiral, merger and ringdown, calibrated to numerical relativity: [`super::PhenomD`].
    IMRPhenomD,
}

/// Total mass in solar masses above which the merger is in band, so that inspiral approximants are insufficient.
const MERGER_MSUN: f64 = 4.0;

impl Approximant {
    /// Returns the default approximant of a binary: IMRPhenomD above 4 solar masses in total, TaylorT4 below.
    pub fn usual(binary: &Binary) -> Self {
        if binary.total_mass_msun() > MERGER_MSUN { Self::IMRPhenomD } else { Self::TaylorT4 }
    }

    /// Returns its name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::TaylorT4 => "TaylorT4",
            Self::TaylorT2 => "TaylorT2",
            Self::IMRPhenomD => "IMRPhenomD",
        }
    }
}

/// Latest end of an inspiral; it ends earlier where the approximant breaks down or at the Nyquist frequency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// As LALSimulation's approximants of the same names, so that waveforms agree. Without spins at the innermost
    /// stable circular orbit, T2 also where its time reaches coalescence; with spins (SpinTaylor) at the minimum of
    /// energy.
    #[default]
    Customary,
    /// At the innermost stable circular orbit of a nonspinning body of the total mass, `v = 6^(-1/2)`.
    Isco,
    /// At the minimum of the orbital energy.
    MinimumEnergy,
}

/// Highest order of the spins in the phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpinOrder {
    /// Spin-orbit to 3PN and spin-spin to 3PN, as LALSimulation's approximants.
    #[default]
    ThreePn,
    /// Spin-orbit to 3.5PN, in T4 with the tail at 4PN; spin-spin to 3PN.
    Full,
}

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

/// Options of a waveform.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InspiralOptions {
    /// Approximant.
    pub approximant: Approximant,
    /// Starting frequency of the wave (twice the orbital frequency) in Hz.
    pub f_low_hz: f64,
    /// Samples per second.
    pub rate_hz: u32,
    /// Distance of the source in Mpc.
    pub distance_mpc: f64,
    /// Cycles of an inspiral before `f_low_hz` over which the amplitude rises from 0 as a squared sine; 0 begins
    /// abruptly. IMRPhenomD rises in frequency instead.
    pub fade_in_cycles: f64,
    /// End of an inspiral.
    pub end: End,
    /// Amplitude order of an inspiral.
    pub amplitude: Amplitude,
    /// Spin order of an inspiral.
    pub spin_order: SpinOrder,
}

impl Default for InspiralOptions {
    /// Returns TaylorT4 from 15 Hz at 4096 Hz and 1 Mpc, with a rise of 2 cycles, and LALSimulation's conventions.
    fn default() -> Self {
        Self {
            approximant: Approximant::default(),
            f_low_hz: 15.0,
            rate_hz: 4096,
            distance_mpc: 1.0,
            fade_in_cycles: 2.0,
            end: End::default(),
            amplitude: Amplitude::default(),
            spin_order: SpinOrder::default(),
        }
    }
}

pub(super) fn check_binary(binary: &Binary) -> Result<()> {
    for mass in [binary.mass1_msun, binary.mass2_msun] {
        if !(mass > 0.0 && mass <= MAX_MASS_MSUN) {
            let rule = format!("it must be above 0 and at most {MAX_MASS_MSUN}");
            return Err(Error::parameter("mass (solar masses)", mass, rule));
        }
    }
    for spin in [binary.spin1z, binary.spin2z] {
        if spin.is_nan() || spin.abs() >= 1.0 {
            let rule = "it must lie between -1 and 1, in units of the mass squared";
            return Err(Error::parameter("spin", spin, rule));
        }
    }
    Ok(())
}

pub(super) fn check_options(options: &InspiralOptions) -> Result<()> {
    let InspiralOptions { f_low_hz, rate_hz, distance_mpc, fade_in_cycles, .. } = *options;
    if rate_hz == 0 {
        return Err(Error::parameter("rate of the waveform (Hz)", 0, "it must be above 0"));
    }
    let nyquist = f64::from(rate_hz) / 2.0;
    if !(f_low_hz > 0.0 && f_low_hz < nyquist) {
        let rule = format!("it must lie between 0 and Nyquist's frequency, {nyquist} Hz");
        return Err(Error::parameter("lowest frequency (Hz)", f_low_hz, rule));
    }
    if !(distance_mpc > 0.0 && distance_mpc.is_finite()) {
        return Err(Error::parameter(
            "distance (Mpc)",
            distance_mpc,
            "it must be finite and above 0",
        ));
    }
    if !(0.0..=MAX_FADE_IN_CYCLES).contains(&fade_in_cycles) {
        let rule = format!("it must lie between 0 and {MAX_FADE_IN_CYCLES}");
        return Err(Error::parameter("cycles of the rise", fade_in_cycles, rule));
    }
    Ok(())
}
