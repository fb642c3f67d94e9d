//! Options of an inspiral, and the range of velocities they give.

use std::f64::consts::PI;

use super::amplitude::{Amplitude, Correction};
use super::coefficients::Bodies;
use super::series::Series;
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

/// Returns the wave frequency in Hz at the innermost stable circular orbit of a nonspinning body of the binary's
/// mass.
pub fn isco_hz(binary: &Binary) -> f64 {
    velocity_hz(ISCO, binary.total_mass_msun() * SOLAR_MASS_S)
}

/// Velocity at that orbit.
const ISCO: f64 = 0.408_248_290_463_863;

/// Returns the wave frequency of an orbit with this velocity.
fn velocity_hz(v: f64, mass_s: f64) -> f64 {
    v.powi(3) / (PI * mass_s)
}

fn velocity_at(frequency_hz: f64, mass_s: f64) -> f64 {
    (PI * mass_s * frequency_hz).cbrt()
}

/// Rate of an inspiral and the velocities at its ends.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// Total mass in seconds.
    pub(super) mass_s: f64,
    pub(super) nu: f64,
    pub(super) rate: Rate,
    pub(super) correction: Correction,
    /// Velocity at the lowest frequency.
    pub(super) low: f64,
    /// Velocity at the end.
    pub(super) end: f64,
}

/// `dt/dv` relative to `5 M / (32 nu v^9)`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rate {
    /// Reciprocal of this series.
    Inverse(Series),
    /// This series.
    Direct(Series),
}

impl Rate {
    pub(super) fn at(&self, v: f64) -> f64 {
        match self {
            Self::Inverse(series) => 1.0 / series.at(v),
            Self::Direct(series) => series.at(v),
        }
    }
}

/// Checks the options and finds the inspiral's velocity range.
pub(super) fn span(binary: &Binary, options: &InspiralOptions) -> Result<Span> {
    check_binary(binary)?;
    check_options(options)?;
    let mass_s = binary.total_mass_msun() * SOLAR_MASS_S;
    let has_spins = binary.spin1z != 0.0 || binary.spin2z != 0.0;
    let bodies = Bodies::new(binary);
    let equations = Equations::new(&bodies, options);
    let at_isco = match options.end {
        End::Customary => !has_spins,
        End::Isco => true,
        End::MinimumEnergy => false,
    };
    let latest = if at_isco { ISCO } else { 1.0 };
    let goes_on = |v: f64| {
        RATES.contains(&equations.rate.at(v))
            && (at_isco || equations.energy_slope.at(v) > 0.0)
            && (options.end != End::Customary || has_spins || equations.is_before_coalescence(v))
    };
    let low = velocity_at(options.f_low_hz, mass_s);
    let nyquist = velocity_at(f64::from(options.rate_hz) / 2.0, mass_s);
    match last_velocity(low, latest, goes_on) {
        Some(end) => Ok(Span {
            mass_s,
            nu: bodies.nu,
            rate: equations.rate,
            correction: bodies.amplitude(options.amplitude, has_spins),
            low,
            end: end.min(nyquist),
        }),
        None => {
            let end = last_velocity(LEAST_VELOCITY, latest, goes_on).unwrap_or(0.0);
            let rule = format!(
                "masses of {} and {} solar masses make no inspiral in band: theirs ends at {:.1} Hz",
                binary.mass1_msun,
                binary.mass2_msun,
                velocity_hz(end, mass_s)
            );
            Err(Error::parameter("lowest frequency (Hz)", options.f_low_hz, rule))
        }
    }
}

/// Series of an approximant for two bodies.
struct Equations {
    rate: Rate,
    /// Derivative of the energy by the velocity, relative to its first term.
    energy_slope: Series,
    /// Time before coalescence of T2, relative to its first term.
    time: Option<Series>,
}

impl Equations {
    fn new(bodies: &Bodies, options: &InspiralOptions) -> Self {
        let is_full = options.spin_order == SpinOrder::Full;
        let is_kept = |power, spins| match (power, spins) {
            (0..=6, _) | (7, 0) => true,
            // In the seventh power, only terms linear in the spins are known.
            (7, 1) => is_full,
            _ => false,
        };
        let energy_slope = bodies.energy().scaled(|power| 1.0 + power as f64 / 2.0);
        let series = bodies.flux().over(energy_slope);
        let (rate, time) = if options.approximant == Approximant::TaylorT2 {
            let series = series.inverse().kept(is_kept);
            (Rate::Direct(series), Some(series.antiderivative()))
        } else {
            let is_tail = |power, spins| is_full && power == 8 && spins == 1;
            let series = series.kept(|power, spins| is_kept(power, spins) || is_tail(power, spins));
            (Rate::Inverse(series), None)
        };
        Self { rate, energy_slope: energy_slope.kept(is_kept), time }
    }

    fn is_before_coalescence(&self, v: f64) -> bool {
        self.time.is_none_or(|time| time.at(v) > 0.0)
    }
}

/// Velocity below that of all accepted inspirals.
const LEAST_VELOCITY: f64 = 1e-3;

/// Range of `dt/dv`, relative to its first term, within which the series is meaningful.
const RATES: std::ops::RangeInclusive<f64> = 0.02..=50.0;

/// Ratio of consecutive velocities in the search for the end.
const STEP: f64 = 1.002;

/// Returns the greatest velocity from `low` up to at most `latest` until which `goes_on` holds.
fn last_velocity(low: f64, latest: f64, goes_on: impl Fn(f64) -> bool) -> Option<f64> {
    if low >= latest || !goes_on(low) {
        return None;
    }
    let mut good = low;
    while good < latest {
        let mut bad = (good * STEP).min(latest);
        if goes_on(bad) {
            good = bad;
            continue;
        }
        while bad - good > 1e-13 {
            let middle = 0.5 * (good + bad);
            if goes_on(middle) { good = middle } else { bad = middle }
        }
        break;
    }
    (good > low).then_some(good)
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
