//! Orbit of an inspiral: its range of velocities, and phase and velocity at each sample, counted back from its end.

use std::f64::consts::PI;

use num_complex::Complex64;

use super::options::{
    Approximant, End, InspiralOptions, SOLAR_MASS_S, SpinOrder, check_binary, check_options,
};
use super::post_newtonian::{Bodies, Correction, Series};
use crate::error::{Error, Result};
use crate::strain::Binary;

/// Returns the wave frequency in Hz at the innermost stable circular orbit of a nonspinning body of the binary's
/// mass.
pub fn isco_hz(binary: &Binary) -> f64 {
    velocity_hz(ISCO, binary.total_mass_msun() * SOLAR_MASS_S)
}

/// Velocity at the innermost stable circular orbit, `6^(-1/2)`.
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

impl Span {
    /// Checks the options and finds the inspiral's velocity range.
    pub(super) fn new(binary: &Binary, options: &InspiralOptions) -> Result<Self> {
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
                && (options.end != End::Customary
                    || has_spins
                    || equations.is_before_coalescence(v))
        };
        let low = velocity_at(options.f_low_hz, mass_s);
        let nyquist = velocity_at(f64::from(options.rate_hz) / 2.0, mass_s);
        match last_velocity(low, latest, goes_on) {
            Some(end) => Ok(Self {
                mass_s,
                nu: bodies.nu,
                rate: equations.rate,
                correction: bodies.amplitude(options.amplitude, has_spins),
                low,
                end: end.min(nyquist),
            }),
            None => {
                let end = last_velocity(MIN_VELOCITY, latest, goes_on).unwrap_or(0.0);
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
const MIN_VELOCITY: f64 = 1e-3;

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

/// Most samples of a waveform.
const MAX_SAMPLES: f64 = (1_u64 << 26) as f64;

/// Largest ratio of the velocities of two consecutive knots.
const KNOT_RATIO: f64 = 1.002;

/// Point of the orbit.
#[derive(Clone, Copy, Debug)]
struct Knot {
    /// Time relative to the end in seconds, not above 0.
    time_s: f64,
    /// Phase (0 at the end) and its first and second derivatives by time.
    phase: [f64; 3],
    /// Amplitude of the wave, `v^2` times its correction, and its derivative by time.
    amplitude: [f64; 2],
    /// Correction of the wave's phase and its derivative by time.
    correction: [f64; 2],
}

/// Orbit from the beginning of the amplitude rise to its end.
pub(super) struct Orbit {
    /// Knots from the earliest to the end.
    knots: Vec<Knot>,
    /// Times at which the wave begins to rise and has its lowest frequency; seconds relative to the end, not above 0.
    start_s: f64,
    low_s: f64,
}

impl Orbit {
    /// Integrates an orbit that starts `rise_s` seconds before its lowest frequency.
    pub(super) fn new(span: &Span, rise_s: f64) -> Self {
        let mut walk = Walk { span, v: span.end, time_s: 0.0, phase: 0.0 };
        let mut knots = vec![walk.knot()];
        walk.back_to(span.low, &mut knots);
        let low_s = walk.time_s;
        let start_s = low_s - rise_s;
        while walk.time_s > start_s {
            walk.back_to(walk.v / KNOT_RATIO, &mut knots);
        }
        knots.reverse();
        Self { knots, start_s, low_s }
    }

    /// Returns the corrected wave `-scale v^2 exp(-2 i phi)`; the last sample is the orbit's end.
    pub(super) fn wave(&self, rate_hz: u32, scale: f64) -> Result<Vec<Complex64>> {
        let rate = f64::from(rate_hz);
        let last = (-self.start_s * rate).floor();
        if last.is_nan() || last >= MAX_SAMPLES {
            let rule = format!("at {rate_hz} Hz, it must stay below {MAX_SAMPLES} samples");
            return Err(Error::parameter("length of the waveform (s)", -self.start_s, rule));
        }
        let last = last as usize;
        let mut wave = Vec::with_capacity(last + 1);
        for pair in self.knots.windows(2) {
            let piece = Piece::between(&pair[0], &pair[1]);
            while wave.len() <= last && (wave.len() as f64 - last as f64) / rate <= pair[1].time_s {
                let time_s = (wave.len() as f64 - last as f64) / rate;
                wave.push(self.rise(time_s) * piece.wave(time_s - pair[0].time_s, scale));
            }
        }
        Ok(wave)
    }

    /// Returns the amplitude factor of the initial rise.
    fn rise(&self, time_s: f64) -> f64 {
        if time_s >= self.low_s {
            return 1.0;
        }
        let part = (time_s - self.start_s) / (self.low_s - self.start_s);
        (0.5 * PI * part).sin().powi(2)
    }
}

/// Polynomials in the time since a knot, valid up to the next one.
struct Piece {
    phase: [f64; 6],
    amplitude: [f64; 4],
    correction: [f64; 4],
}

impl Piece {
    /// Returns the polynomials with the values and derivatives of both knots.
    fn between(a: &Knot, b: &Knot) -> Self {
        let t = b.time_s - a.time_s;
        let [p, w, d] = a.phase;
        // Residuals at the second knot of a parabola from the first knot, in value and derivatives.
        let value = (b.phase[0] - p - t * (w + 0.5 * t * d)) / t.powi(3);
        let first = (b.phase[1] - w - t * d) / (t * t);
        let second = (b.phase[2] - d) / t;
        let cubic = 10.0 * value - 4.0 * first + 0.5 * second;
        let quartic = (-15.0 * value + 7.0 * first - second) / t;
        let quintic = (6.0 * value - 3.0 * first + 0.5 * second) / (t * t);
        Self {
            phase: [p, w, 0.5 * d, cubic, quartic, quintic],
            amplitude: cubic_between(a.amplitude, b.amplitude, t),
            correction: cubic_between(a.correction, b.correction, t),
        }
    }

    fn wave(&self, time_s: f64, scale: f64) -> Complex64 {
        let sum = |terms: &[f64]| terms.iter().rev().fold(0.0, |sum, term| sum * time_s + term);
        let phase = sum(&self.correction) - 2.0 * sum(&self.phase);
        Complex64::from_polar(1.0, phase) * (-scale * sum(&self.amplitude))
    }
}

/// Returns the cubic with these values and derivatives at 0 and at `t`.
fn cubic_between([h, s]: [f64; 2], [later, later_slope]: [f64; 2], t: f64) -> [f64; 4] {
    let value = (later - h - t * s) / (t * t);
    let slope = (later_slope - s) / t;
    [h, s, 3.0 * value - slope, (slope - 2.0 * value) / t]
}

/// Integrator of time and phase over the velocity.
struct Walk<'a> {
    span: &'a Span,
    v: f64,
    time_s: f64,
    phase: f64,
}

impl Walk<'_> {
    /// Returns `dt/dv` in seconds.
    fn slope(&self, v: f64) -> f64 {
        let leading = 5.0 * self.span.mass_s / (32.0 * self.span.nu * v.powi(9));
        leading * self.span.rate.at(v)
    }

    /// Integrates back to the velocity `v` and appends a knot after each step.
    fn back_to(&mut self, v: f64, knots: &mut Vec<Knot>) {
        let steps = ((self.v / v).ln() / KNOT_RATIO.ln()).ceil().max(1.0);
        let ratio = (v / self.v).powf(1.0 / steps);
        for _ in 0..steps as usize {
            self.step_to(self.v * ratio);
            knots.push(self.knot());
        }
    }

    fn step_to(&mut self, v: f64) {
        let [time, phase] = integrals(self.v, v, |at| {
            let slope = self.slope(at);
            [slope, slope * at.powi(3) / self.span.mass_s]
        });
        self.time_s += time;
        self.phase += phase;
        self.v = v;
    }

    fn knot(&self) -> Knot {
        let (v, mass_s) = (self.v, self.span.mass_s);
        let rate = 1.0 / self.slope(v);
        let by = self.span.correction.at(v);
        let amplitude = v * v * by.factor;
        Knot {
            time_s: self.time_s,
            phase: [self.phase, v.powi(3) / mass_s, 3.0 * v * v * rate / mass_s],
            amplitude: [amplitude, amplitude * (2.0 / v + by.factor_slope) * rate],
            correction: [by.phase, by.phase_slope * rate],
        }
    }
}

/// Nodes and weights of the Gauss-Legendre rule of order 5 on -1 to 1.
const GAUSS: [(f64, f64); 5] = [
    (0.0, 0.568_888_888_888_888_9),
    (-0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
    (0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
    (-0.906_179_845_938_664, 0.236_926_885_056_189_1),
    (0.906_179_845_938_664, 0.236_926_885_056_189_1),
];

/// Integrates two functions from `from` to `to`, exactly for polynomials up to degree 9.
fn integrals(from: f64, to: f64, functions: impl Fn(f64) -> [f64; 2]) -> [f64; 2] {
    let (half, middle) = (0.5 * (to - from), 0.5 * (to + from));
    let mut sums = [0.0; 2];
    for (node, weight) in GAUSS {
        let values = functions(middle + half * node);
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += weight * half * value;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninth_powers_are_exact() {
        let [tenth, minus] = integrals(1.0, 2.0, |x| [x.powi(9), -1.0]);
        assert!((tenth - 102.3).abs() < 1e-12 && (minus + 1.0).abs() < 1e-15);
    }
}
