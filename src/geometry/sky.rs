//! Directions, delays and u, v, w over an array.

use super::array::{Array, Location};
use super::frame::{Direction, Frame};
use super::orientation::Dut1;
use super::time::{Tai, plus_elapsed_s};
use super::vector::{Matrix, Vector, dot, rotate};
use crate::error::{Error, Result};
use crate::units::{Epoch, SPEED_OF_LIGHT_M_S};

/// Reference direction of the delays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PhaseCentre {
    /// A tracked direction on the sky.
    Source(Direction),
    /// The zenith of the reference point: constant delays.
    Zenith,
    /// No geometric delays, only cable delays.
    Unphased,
}

/// Source geometry of an array. It has no mutable state: every result depends only on the given time.
///
/// # Source
/// SOFA's routines in Rust (`sofars`); docs/design/geometry.md.
#[derive(Clone, Debug, PartialEq)]
pub struct Sky {
    location: Location,
    /// Unit vectors east, north and up at the reference point, ITRF.
    horizon: Matrix,
    reference_itrf_m: Vector,
    /// Vector of each antenna from the reference point, ITRF.
    offsets_m: Vec<Vector>,
    dut1: Dut1,
}

/// Apparent coordinates of a source, as stored in visibility files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Apparent {
    /// Right ascension of date: the local apparent sidereal time less the hour angle, in the ITRF.
    pub ra_deg: f64,
    /// Declination above the ITRF's equator.
    pub dec_deg: f64,
    /// Position angle of ICRS north from north of date, at the source, positive through the east.
    pub position_angle_deg: f64,
}

impl Sky {
    /// Makes the sky of an array.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an array without antennas or away from the Earth's surface.
    pub fn new(array: &Array, dut1: Dut1) -> Result<Self> {
        if array.antennas.is_empty() {
            return Err(Error::parameter("antennas", 0, "there must be one at least"));
        }
        let location = array.location()?;
        Ok(Self {
            location,
            horizon: location.axes(),
            reference_itrf_m: array.reference_itrf_m,
            offsets_m: array.offsets_m(),
            dut1,
        })
    }

    /// Returns the number of antennas.
    pub fn antennas(&self) -> usize {
        self.offsets_m.len()
    }

    /// Returns the source of UT1 - UTC.
    pub fn dut1(&self) -> &Dut1 {
        &self.dut1
    }

    /// Computes the state of the Earth at a time, to be reused for several sources.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a moment before 1972 or after 2099, and as [`Dut1::at`].
    pub fn frame(&self, epoch: Epoch) -> Result<Frame> {
        self.frame_at(&Tai::from_utc(&epoch)?)
    }

    pub(super) fn frame_at(&self, moment: &Tai) -> Result<Frame> {
        Frame::new(&self.reference_itrf_m, &self.dut1, moment)
    }

    /// Returns the unit vector of a source's apparent direction, ITRF.
    ///
    /// # Errors
    /// As [`Sky::frame`].
    pub fn itrf(&self, direction: Direction, epoch: Epoch) -> Result<[f64; 3]> {
        Ok(self.frame(epoch)?.itrf(&direction))
    }

    /// Returns the altitude above the ellipsoid's horizon and the azimuth from north through east, in degrees.
    ///
    /// # Errors
    /// As [`Sky::frame`].
    pub fn altitude_azimuth_deg(&self, direction: Direction, epoch: Epoch) -> Result<(f64, f64)> {
        let [east, north, up] = rotate(&self.horizon, &self.itrf(direction, epoch)?);
        let altitude = up.atan2(east.hypot(north)).to_degrees();
        Ok((altitude, east.atan2(north).to_degrees().rem_euclid(360.0)))
    }

    /// Returns the altitudes in degrees at the start and the end of an observation of `length_s` elapsed seconds; a
    /// negative altitude is below the horizon.
    ///
    /// # Errors
    /// As [`Sky::frame`].
    pub fn altitudes_deg(
        &self,
        direction: Direction,
        (start, length_s): (Epoch, f64),
    ) -> Result<[f64; 2]> {
        let (first, _) = self.altitude_azimuth_deg(direction, start)?;
        let (last, _) = self.altitude_azimuth_deg(direction, plus_elapsed_s(&start, length_s)?)?;
        Ok([first, last])
    }

    /// Returns the arrival time at each antenna less that at the reference point, in seconds.
    ///
    /// `delay_i = -(r_i - r_ref) . s / c`, s the unit vector of the apparent direction.
    ///
    /// # Errors
    /// As [`Sky::frame`].
    pub fn delays_s(&self, direction: Direction, epoch: Epoch) -> Result<Vec<f64>> {
        let towards = self.itrf(direction, epoch)?;
        Ok(self.offsets_m.iter().map(|offset| delay_s(offset, &towards)).collect())
    }

    /// Returns each antenna's u, v, w in metres: w towards the source's apparent direction, v towards ICRS north, u
    /// to the east. A baseline's u, v, w are the second antenna's less the first's.
    ///
    /// # Errors
    /// As [`Sky::frame`].
    pub fn uvw_m(&self, direction: Direction, epoch: Epoch) -> Result<Vec<[f64; 3]>> {
        let axes = self.frame(epoch)?.uvw_axes(&direction);
        Ok(self.offsets_m.iter().map(|offset| rotate(&axes, offset)).collect())
    }

    /// Returns each antenna's position in metres east, north and up of the reference point.
    pub fn enu_m(&self) -> Vec<[f64; 3]> {
        self.offsets_m.iter().map(|offset| rotate(&self.horizon, offset)).collect()
    }

    /// Returns the ICRS direction that appears in the zenith of the ellipsoid.
    ///
    /// # Errors
    /// As [`Sky::frame`].
    pub fn zenith(&self, epoch: Epoch) -> Result<Direction> {
        Ok(self.frame(epoch)?.direction(&self.horizon[2]))
    }

    /// Returns the local apparent sidereal time of the reference point, in radians, 0 to 2 pi.
    ///
    /// # Errors
    /// As [`Sky::frame`].
    pub fn local_sidereal_time_rad(&self, epoch: Epoch) -> Result<f64> {
        let sidereal = self.frame(epoch)?.sidereal_rad();
        let local = sidereal + self.location.longitude_deg.to_radians();
        Ok(local.rem_euclid(std::f64::consts::TAU))
    }

    /// Returns a source's apparent coordinates of date.
    ///
    /// # Errors
    /// As [`Sky::frame`].
    pub fn apparent(&self, direction: Direction, epoch: Epoch) -> Result<Apparent> {
        let frame = self.frame(epoch)?;
        let [u, v, w] = frame.uvw_axes(&direction);
        let longitude = w[1].atan2(w[0]);
        // In the u-v plane, north of date has the direction (u_z, v_z).
        let position_angle = -u[2].atan2(v[2]);
        Ok(Apparent {
            ra_deg: (frame.sidereal_rad() + longitude).to_degrees().rem_euclid(360.0),
            dec_deg: w[2].atan2(w[0].hypot(w[1])).to_degrees(),
            position_angle_deg: position_angle.to_degrees(),
        })
    }

    /// Returns each antenna's delay for a phase centre.
    pub(super) fn delays_at(&self, centre: &PhaseCentre, moment: &Tai) -> Result<Vec<f64>> {
        let towards = match centre {
            PhaseCentre::Source(direction) => self.frame_at(moment)?.itrf(direction),
            PhaseCentre::Zenith => self.horizon[2],
            PhaseCentre::Unphased => return Ok(vec![0.0; self.offsets_m.len()]),
        };
        Ok(self.offsets_m.iter().map(|offset| delay_s(offset, &towards)).collect())
    }
}

fn delay_s(offset_m: &Vector, towards: &Vector) -> f64 {
    -dot(offset_m, towards) / SPEED_OF_LIGHT_M_S
}
