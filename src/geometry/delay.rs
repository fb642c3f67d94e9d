//! Antenna delays over an observation, as piecewise polynomials of time.

use std::ops::Range;

use super::earth::{Dut1, Tai, tai_utc_s};
use super::sky::{PhaseCentre, Sky};
use crate::error::{Error, Result};
use crate::units::Epoch;

/// Coefficients per polynomial: degree 5.
const TERMS: usize = 6;

/// Length of a polynomial piece, in seconds.
const MAX_PIECE_S: f64 = 480.0;

/// Shortest fitted interval, in seconds, also for a shorter piece, so that the polynomial stays valid slightly
/// outside it.
const MIN_FIT_S: f64 = 60.0;

/// Shortest piece, in seconds. Pieces end at midnight, where the interpolated Earth orientation has a corner, unless
/// a shorter piece would result.
const MIN_PIECE_S: f64 = 1.0;

/// Longest observation, in seconds: a hundred days.
const MAX_LENGTH_S: f64 = 8.64e6;

/// Maximum bytes of all antennas' pieces: twenty days of 4096 antennas.
const MAX_BYTES: usize = 1 << 30;

/// Delay of one antenna over an interval.
///
/// `delay(t) = c_0 + c_1 t + c_2 t^2 ...`, t in seconds of elapsed time since `start`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayPolynomial {
    /// Time at which t is 0.
    pub start: Epoch,
    /// Length of the interval.
    pub length_s: f64,
    /// Coefficients in s, s/s, s/s^2 ...
    pub coefficients: [f64; TERMS],
}

impl DelayPolynomial {
    /// Returns the delay in seconds at `seconds` after the start.
    pub fn at(&self, seconds: f64) -> f64 {
        self.coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * seconds + coefficient)
    }

    /// Returns the delay rate, in seconds per second.
    pub fn rate(&self, seconds: f64) -> f64 {
        let terms = self.coefficients.iter().enumerate().skip(1).rev();
        terms.fold(0.0, |sum, (power, coefficient)| sum * seconds + power as f64 * coefficient)
    }
}

/// Delays of all antennas over an observation: pieces of 480 s from its start on, one polynomial each, shorter only before
/// midnight. They do not depend on the observation's length.
///
/// # Numerics
/// Within 1e-13 s of the delays that [`Sky`] computes, for antennas up to the Earth's diameter from the reference,
/// from a second before the start to a second after the end.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayModel {
    start: Epoch,
    length_s: f64,
    /// Start of each piece, in seconds of elapsed time since `start`.
    starts_s: Vec<f64>,
    /// End of the last piece.
    end_s: f64,
    /// Axes antenna, piece.
    pieces: Vec<Vec<DelayPolynomial>>,
}

impl DelayModel {
    /// Fits an observation from `start` over `length_s` seconds of elapsed time.
    ///
    /// `cables_s` are fixed delays added to each antenna's geometric delay: one per antenna, or none.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a length that is not above 0 and at most a hundred days (less for more than about 800
    /// antennas: all pieces take at most a gibibyte), or for a given UT1 - UTC if the observation contains a leap
    /// second; [`Error::Shape`] for a wrong number of cable delays; and as [`Sky::frame`].
    pub fn fit(
        sky: &Sky,
        centre: PhaseCentre,
        start: Epoch,
        length_s: f64,
        cables_s: &[f64],
    ) -> Result<Self> {
        check(sky, &start, length_s, cables_s)?;
        let intervals = (length_s / MAX_PIECE_S).ceil() as usize;
        let bytes = intervals * sky.antennas() * size_of::<DelayPolynomial>();
        if bytes > MAX_BYTES {
            let rule = format!(
                "the delays of {} antennas would take {bytes} bytes, and {MAX_BYTES} are the most",
                sky.antennas()
            );
            return Err(Error::parameter("observation's length (s)", length_s, rule));
        }
        let pieces = vec![Vec::with_capacity(intervals + 1); sky.antennas()];
        let mut model = Self { start, length_s: 0.0, starts_s: Vec::new(), end_s: 0.0, pieces };
        model.extend(sky, &centre, cables_s, 0.0..length_s)?;
        Ok(model)
    }

    /// Extends the delays to the end of `kept` seconds of elapsed time, and drops pieces that end before its start. The
    /// sky, the phase centre and the cables are those given to [`DelayModel::fit`].
    ///
    /// # Errors
    /// As [`Sky::frame`].
    pub fn extend(
        &mut self,
        sky: &Sky,
        centre: &PhaseCentre,
        cables_s: &[f64],
        kept: Range<f64>,
    ) -> Result<()> {
        let origin = Tai::from_utc(&self.start)?;
        while self.end_s < kept.end {
            let Interval { end_s, fit_s } = interval(&origin, self.end_s)?;
            let from = origin.plus_s(self.end_s);
            let (start, length_s) = (from.utc()?, end_s - self.end_s);
            let fitted = fit_piece(sky, centre, &from, fit_s)?;
            for (antenna, mut coefficients) in fitted.into_iter().enumerate() {
                coefficients[0] += cables_s.get(antenna).copied().unwrap_or(0.0);
                self.pieces[antenna].push(DelayPolynomial { start, length_s, coefficients });
            }
            self.starts_s.push(self.end_s);
            self.end_s = end_s;
        }
        let passed = self.starts_s.partition_point(|start| *start <= kept.start).saturating_sub(1);
        if passed > 0 {
            self.starts_s.drain(..passed);
            self.pieces.iter_mut().for_each(|pieces| drop(pieces.drain(..passed)));
        }
        self.length_s = self.length_s.max(kept.end);
        Ok(())
    }

    /// Returns the start of the observation.
    pub fn start(&self) -> Epoch {
        self.start
    }

    /// Returns the observation's length in seconds.
    pub fn length_s(&self) -> f64 {
        self.length_s
    }

    /// Returns the number of antennas.
    pub fn antennas(&self) -> usize {
        self.pieces.len()
    }

    /// Returns an antenna's pieces, in order of time.
    pub fn polynomials(&self, antenna: usize) -> &[DelayPolynomial] {
        &self.pieces[antenna]
    }

    /// Returns an antenna's delay in seconds, `seconds` of elapsed time after the start. The outer pieces extrapolate
    /// slightly before the start and after the end.
    pub fn at(&self, antenna: usize, seconds: f64) -> f64 {
        let (piece, since) = self.piece(antenna, seconds);
        piece.at(since)
    }

    /// Returns the rate of an antenna's delay, in seconds per second.
    pub fn rate(&self, antenna: usize, seconds: f64) -> f64 {
        let (piece, since) = self.piece(antenna, seconds);
        piece.rate(since)
    }

    /// Returns the piece that covers a time, and the seconds since its start.
    fn piece(&self, antenna: usize, seconds: f64) -> (&DelayPolynomial, f64) {
        let index = self.starts_s.partition_point(|start| *start <= seconds).saturating_sub(1);
        (&self.pieces[antenna][index], seconds - self.starts_s[index])
    }
}

/// Time interval of a piece, in seconds of elapsed time.
struct Interval {
    /// End, since the observation's start.
    end_s: f64,
    /// Ends of the fitted interval, since the piece's start.
    fit_s: [f64; 2],
}

/// Returns the piece that starts `at_s` seconds after the start.
fn interval(origin: &Tai, at_s: f64) -> Result<Interval> {
    let mut day = origin.plus_s(at_s).utc()?.day;
    if origin.seconds_to_day(day + 1)? - at_s < MIN_PIECE_S {
        day += 1;
    }
    let (dawn_s, midnight_s) = (origin.seconds_to_day(day)?, origin.seconds_to_day(day + 1)?);
    let left_s = midnight_s - at_s - MAX_PIECE_S;
    let end_s = if left_s < MIN_PIECE_S { midnight_s } else { at_s + MAX_PIECE_S };
    // Centre the fitted interval on the piece, but keep it within the day.
    let fit_s = (end_s - at_s).max(MIN_FIT_S);
    let middle_s = at_s + 0.5 * (end_s - at_s - fit_s);
    let first_s = middle_s.min(midnight_s - fit_s).max(dawn_s) - at_s;
    Ok(Interval { end_s, fit_s: [first_s, first_s + fit_s] })
}

fn check(sky: &Sky, start: &Epoch, length_s: f64, cables_s: &[f64]) -> Result<()> {
    if !(length_s > 0.0 && length_s <= MAX_LENGTH_S) {
        let rule = format!("it must be above 0 and at most {MAX_LENGTH_S} s");
        return Err(Error::parameter("observation's length (s)", length_s, rule));
    }
    if !cables_s.is_empty() && cables_s.len() != sky.antennas() {
        let (expected, actual) = (sky.antennas(), cables_s.len());
        return Err(Error::Shape { what: "cable delays", expected, actual });
    }
    if let Some(bad) = cables_s.iter().find(|delay| !delay.is_finite()) {
        return Err(Error::parameter("cable delay (s)", bad, "it must be finite"));
    }
    let end = Tai::from_utc(start)?.plus_s(length_s).utc()?;
    let leaps = tai_utc_s(end.day)? - tai_utc_s(start.day)?;
    match sky.dut1() {
        Dut1::Given(seconds) if leaps != 0.0 => {
            let rule = "a leap second lies within the observation: leave UT1 - UTC to the table";
            Err(Error::parameter("dut1_s", seconds, rule))
        }
        _ => Ok(()),
    }
}

/// Fits each antenna's coefficients for the piece that starts at `from`, over the interval from `first_s` to `last_s`
/// after that start.
fn fit_piece(
    sky: &Sky,
    centre: &PhaseCentre,
    from: &Tai,
    [first_s, last_s]: [f64; 2],
) -> Result<Vec<[f64; TERMS]>> {
    // Chebyshev nodes spread the error evenly over the piece.
    let nodes: [f64; TERMS] = std::array::from_fn(|k| {
        let angle = std::f64::consts::PI * (k as f64 + 0.5) / TERMS as f64;
        first_s + 0.5 * (last_s - first_s) * (1.0 - angle.cos())
    });
    let mut delays = Vec::with_capacity(TERMS);
    for node in nodes {
        delays.push(sky.delays_at(centre, &from.plus_s(node))?);
    }
    let antenna = |antenna| interpolate(&nodes, std::array::from_fn(|node| delays[node][antenna]));
    Ok((0..sky.antennas()).map(antenna).collect())
}

/// Interpolates values at nodes by Newton's divided differences, converted to powers.
fn interpolate(nodes: &[f64; TERMS], values: [f64; TERMS]) -> [f64; TERMS] {
    let mut differences = values;
    for order in 1..TERMS {
        for node in (order..TERMS).rev() {
            let step = nodes[node] - nodes[node - order];
            differences[node] = (differences[node] - differences[node - 1]) / step;
        }
    }
    let mut coefficients = [0.0; TERMS];
    for node in (0..TERMS).rev() {
        // Horner step: multiply by (t - node), then add the next difference.
        for power in (0..TERMS).rev() {
            let lower = if power > 0 { coefficients[power - 1] } else { 0.0 };
            coefficients[power] = lower - nodes[node] * coefficients[power];
        }
        coefficients[0] += differences[node];
    }
    coefficients
}
