//! Tracked direction, the sky over the array, and the delays of each antenna and spectrum.
//!
//! Invariant: a tracked direction has a known start; a spectrum's delay depends on its number alone.

use super::inputs::{Recordings, later, since};
use super::options::{Asked, CorrelateOptions, PhaseCentre};
use crate::error::{Error, Result};
use crate::geometry::{self, Array, DelayModel, DelayPolynomial, Direction, Sky};
use crate::io::voltages::VoltageHeader;
use crate::units::Epoch;

/// Seconds between altitude samples.
const ALTITUDES_S: f64 = 600.0;

/// Largest number of altitude samples; covers the longest observation whose delays are modelled.
const MOST_ALTITUDES: f64 = 14_400.0;

/// Sky over an array, and the tracked direction.
#[derive(Clone, Debug)]
pub(super) struct Tracking {
    /// None if the time is unknown.
    sky: Option<Sky>,
    direction: Option<Direction>,
    dut1_s: f64,
    /// Altitude of the source from start to end, at most ten minutes apart.
    altitudes_deg: Vec<f64>,
}

impl Tracking {
    /// # Errors
    /// [`Error::Parameter`] for a source without a known start of the recording; as [`Sky::frame`].
    pub(super) fn new(
        array: &Array,
        header: &VoltageHeader,
        times: u64,
        options: &CorrelateOptions,
    ) -> Result<Self> {
        let direction = match &options.phase_centre {
            PhaseCentre::Sidereal { ra_deg, dec_deg, .. } => {
                Some(Direction::new(*ra_deg, *dec_deg)?)
            }
            PhaseCentre::Drift => None,
        };
        if header.start.day == 0 {
            if direction.is_some() {
                let rule = format!(
                    "{} does not say its start, and without it no source can be tracked (`PhaseCentre::Drift`)",
                    header.path.display()
                );
                return Err(Error::parameter("start", "unknown", rule));
            }
            return Ok(Self { sky: None, direction, dut1_s: 0.0, altitudes_deg: Vec::new() });
        }
        let sky = Sky::new(array, options.dut1.clone())?;
        let dut1_s = options.dut1.at(header.start)?;
        let observation = (header.start, times as f64 * header.tsamp_s);
        let altitudes_deg = match direction {
            Some(source) => altitudes_deg(&sky, source, observation)?,
            None => Vec::new(),
        };
        Ok(Self { sky: Some(sky), direction, dut1_s, altitudes_deg })
    }

    /// Returns the sky; none if the time is unknown.
    pub(super) fn sky(&self) -> Option<&Sky> {
        self.sky.as_ref()
    }

    /// Returns the tracked direction.
    pub(super) fn direction(&self) -> Option<Direction> {
        self.direction
    }

    /// Returns UT1 - UTC at the start.
    pub(super) fn dut1_s(&self) -> f64 {
        self.dut1_s
    }

    /// Returns the altitude of the source at the start and at the end.
    pub(super) fn altitudes_deg(&self) -> Option<(f64, f64)> {
        self.altitudes_deg.first().copied().zip(self.altitudes_deg.last().copied())
    }

    /// Returns the lowest altitude of the source.
    pub(super) fn lowest_deg(&self) -> Option<f64> {
        self.altitudes_deg.iter().copied().reduce(f64::min)
    }
}

/// Computes altitudes from the start to the end of an observation, at most ten minutes apart.
fn altitudes_deg(
    sky: &Sky,
    source: Direction,
    (start, length_s): (Epoch, f64),
) -> Result<Vec<f64>> {
    let steps = (length_s / ALTITUDES_S).ceil().clamp(1.0, MOST_ALTITUDES);
    let altitude = |step: usize| {
        let epoch = later(start, length_s * (step as f64 / steps))?;
        Ok(sky.altitude_azimuth_deg(source, epoch)?.0)
    };
    (0..=steps as usize).map(altitude).collect()
}

/// Builds the model of the delays to remove.
///
/// # Errors
/// [`Error::Shape`] for a number of delays that differs from the antennas; as [`DelayModel::fit`].
pub(super) fn model(
    asked: &Asked<'_>,
    tracking: &Tracking,
    recordings: &Recordings,
) -> Result<Model> {
    let (antennas, header) = (asked.array.antennas.len(), &recordings.header);
    let cables_s = &asked.options.cable_delays_s;
    for (what, actual) in
        [("cable delays", cables_s.len()), ("delays", asked.delays.map_or(0, <[_]>::len))]
    {
        if actual != 0 && actual != antennas {
            return Err(Error::Shape { what, expected: antennas, actual });
        }
    }
    if let Some(invalid) = cables_s.iter().find(|delay| !delay.is_finite()) {
        return Err(Error::parameter("cable delay (s)", invalid, "it must be finite"));
    }
    let cable = |antenna: usize| cables_s.get(antenna).copied().unwrap_or(0.0);
    if let Some(given) = asked.delays {
        let with_cable = |(antenna, polynomial): (usize, &DelayPolynomial)| {
            let mut own = *polynomial;
            own.coefficients[0] += cable(antenna);
            Ok((own, since(&polynomial.start, &header.start)?))
        };
        let all = given.iter().enumerate().map(with_cable).collect::<Result<_>>()?;
        return Ok(Model::Given(all));
    }
    if let (Some(direction), Some(sky)) = (tracking.direction(), tracking.sky()) {
        let centre = geometry::PhaseCentre::Source(direction);
        let length_s = recordings.times as f64 * header.tsamp_s;
        let model = DelayModel::fit(sky, centre, header.start, length_s, cables_s)?;
        return Ok(Model::Fitted(model));
    }
    if cables_s.iter().all(|delay| *delay == 0.0) {
        return Ok(Model::None);
    }
    let fixed = |antenna| {
        let coefficients = [cable(antenna), 0.0, 0.0, 0.0, 0.0, 0.0];
        (DelayPolynomial { start: header.start, length_s: 0.0, coefficients }, 0.0)
    };
    Ok(Model::Given((0..antennas).map(fixed).collect()))
}

/// Bound on delays in samples; longer than any recording.
const FARTHEST: f64 = 1e15;

/// Delay model.
#[derive(Clone, Debug)]
pub(super) enum Model {
    /// No delays.
    None,
    /// Delays of a phase centre and of cables, from the common start on.
    Fitted(DelayModel),
    /// One polynomial per antenna, and the seconds from its start to the common start.
    Given(Vec<(DelayPolynomial, f64)>),
}

/// Delays of all antennas at all spectra.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    model: Model,
    tsamp_s: f64,
    hop: u64,
    span: u64,
}

/// Delay of a spectrum, and its whole-sample shift: samples are read `shift` later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Delay {
    pub(super) delay_s: f64,
    pub(super) shift: i64,
}

impl Delays {
    /// Computes delays for spectra that cover samples `s hop` to `s hop + span`.
    pub(super) fn new(model: Model, tsamp_s: f64, (hop, span): (u64, u64)) -> Self {
        Self { model, tsamp_s, hop, span }
    }

    /// Returns the shift in seconds of an antenna whose sampling is offset by `sample_lag` samples.
    pub(super) fn shift_s(&self, shift: i64, sample_lag: f64) -> f64 {
        (shift as f64 + sample_lag) * self.tsamp_s
    }

    /// Returns the delay at the centre of the shifted window, for an antenna whose sampling is offset by `sample_lag`
    /// samples.
    pub(super) fn at(&self, antenna: usize, sample_lag: f64, spectrum: u64) -> Delay {
        let middle = (spectrum * self.hop) as f64 + 0.5 * self.span as f64;
        let delay_s =
            |shift: f64| self.delay_s(antenna, (middle + shift + sample_lag) * self.tsamp_s);
        // The first estimate uses the reference point's time; the delay changes little until the antenna's own time.
        let shift = self.samples(delay_s(self.samples(delay_s(0.0), sample_lag)), sample_lag);
        Delay { delay_s: delay_s(shift), shift: shift as i64 }
    }

    /// Returns the delay rounded to whole samples.
    fn samples(&self, delay_s: f64, sample_lag: f64) -> f64 {
        (delay_s / self.tsamp_s - sample_lag).round().clamp(-FARTHEST, FARTHEST)
    }

    fn delay_s(&self, antenna: usize, seconds: f64) -> f64 {
        match &self.model {
            Model::None => 0.0,
            Model::Fitted(model) => model.at(antenna, seconds),
            Model::Given(all) => {
                let (polynomial, since_s) = &all[antenna];
                polynomial.at(seconds + since_s)
            }
        }
    }
}
