//! Orientation and motion of the Earth at one time: apparent directions, delays and u, v, w, barycentric times.

use sofars::astro::{ab, ldsun};
use sofars::consts::{AULT, DAYSEC};
use sofars::eph::epv00;
use sofars::erst::{era00, gst06};
use sofars::pnp::{bpn2xy, c2ixys, c2tcio, pnm06a, pom00, s06, sp00};
use sofars::ts::dtdb;
use sofars::vm::{c2s, s2c};

use super::array::{Array, Location};
use super::earth::{Dut1, MJD_ZERO, Tai, plus_elapsed_s};
use super::{Matrix, Vector, cross, dot, length, minus, plus_scaled, rotate, rotate_back, unit};
use crate::error::{Error, Result};
use crate::units::{Epoch, SECONDS_PER_DAY, SPEED_OF_LIGHT_M_S};

/// Angular velocity of the Earth, in radians per second.
///
/// # Source
/// SOFA, `pvtob`: 1.00273781191135448 turns per day of UT1.
const ROTATION_RAD_S: f64 = 1.002_737_811_911_354_5 * std::f64::consts::TAU / DAYSEC;

/// Iterations of [`Frame::direction`]; each reduces the error by a factor of ten thousand.
const INVERSIONS: usize = 6;

/// A direction on the sky: ICRS (J2000) right ascension and declination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Direction {
    /// Right ascension.
    pub ra_deg: f64,
    /// Declination.
    pub dec_deg: f64,
}

impl Direction {
    /// Creates a direction.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a right ascension outside -360 to 360 degrees or a declination outside -90 to 90.
    pub fn new(ra_deg: f64, dec_deg: f64) -> Result<Self> {
        if !(-360.0..=360.0).contains(&ra_deg) {
            let rule = "it must lie within -360 to 360";
            return Err(Error::parameter("right ascension (deg)", ra_deg, rule));
        }
        if !(-90.0..=90.0).contains(&dec_deg) {
            let rule = "it must lie within -90 to 90";
            return Err(Error::parameter("declination (deg)", dec_deg, rule));
        }
        Ok(Self { ra_deg, dec_deg })
    }

    /// Returns the angle to another direction in degrees.
    pub fn distance_deg(&self, other: &Self) -> f64 {
        let (a, b) = (self.vector(), other.vector());
        length(&cross(&a, &b)).atan2(dot(&a, &b)).to_degrees()
    }

    /// Returns the unit vector, ICRS.
    pub(super) fn vector(&self) -> Vector {
        s2c(self.ra_deg.to_radians(), self.dec_deg.to_radians())
    }

    /// Returns the unit vector towards increasing declination, ICRS.
    pub(super) fn north(&self) -> Vector {
        let (sin_ra, cos_ra) = self.ra_deg.to_radians().sin_cos();
        let (sin_dec, cos_dec) = self.dec_deg.to_radians().sin_cos();
        [-sin_dec * cos_ra, -sin_dec * sin_ra, cos_dec]
    }

    fn from_vector(vector: &Vector) -> Self {
        let (ra, dec) = c2s(vector);
        Self { ra_deg: ra.to_degrees().rem_euclid(360.0), dec_deg: dec.to_degrees() }
    }
}

/// State of the Earth at one time and one position.
///
/// Converts an ICRS direction to the ITRF: deflection by the Sun; aberration by the observer's total velocity (the
/// Earth's orbit and rotation); precession and nutation (IAU 2006/2000A); the Earth's rotation (UT1); polar motion.
/// Excludes refraction, parallax and proper motion.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Rotation from GCRS to ITRF.
    rotation: Matrix,
    /// Velocity of the observer with respect to the solar system's barycentre, in units of the speed of light.
    velocity: Vector,
    /// Unit vector from the Sun to the observer, GCRS.
    from_sun: Vector,
    /// Distance from the Sun in astronomical units.
    sun_distance_au: f64,
    /// Greenwich apparent sidereal time, including the TIO locator s', in radians.
    sidereal_rad: f64,
    /// Vector from the solar system's barycentre to the observer, in m, GCRS.
    from_barycentre_m: Vector,
}

impl Frame {
    /// Computes the frame of a position (ITRF) at a time.
    pub(super) fn new(place_itrf_m: &Vector, dut1: &Dut1, moment: &Tai) -> Result<Self> {
        let orientation = dut1.orientation(moment)?;
        let (tt, tt_part) = moment.terrestrial();
        let (ut1, ut1_part) = moment.julian(orientation.ut1_tai_s);
        let precession = pnm06a(tt, tt_part);
        let (x, y) = bpn2xy(&precession);
        let celestial = c2ixys(x, y, s06(tt, tt_part, x, y));
        let era = era00(ut1, ut1_part);
        let locator = sp00(tt, tt_part);
        let [pole_x, pole_y] = orientation.pole;
        let rotation = c2tcio(&celestial, era, &pom00(pole_x, pole_y, locator));

        // `epv00` covers every year that `Tai` accepts.
        let (heliocentric, barycentric) = epv00(tt, tt_part)
            .ok_or_else(|| Error::parameter("time (MJD)", moment.mjd(), "SOFA refuses it"))?;
        let position = rotate_back(&rotation, place_itrf_m);
        let axis = celestial[2];
        let spin = cross(&axis, &position).map(|metres| metres * ROTATION_RAD_S);
        let orbit = barycentric[1].map(|au_a_day| au_a_day * AULT / DAYSEC);
        let au_m = AULT * SPEED_OF_LIGHT_M_S;
        let sun = plus_scaled(&heliocentric[0], 1.0 / au_m, &position);
        let from_barycentre = plus_scaled(&barycentric[0], 1.0 / au_m, &position);
        Ok(Self {
            rotation,
            velocity: plus_scaled(&orbit, 1.0 / SPEED_OF_LIGHT_M_S, &spin),
            from_sun: unit(&sun),
            sun_distance_au: length(&sun),
            sidereal_rad: gst06(ut1, ut1_part, tt, tt_part, &precession) + locator,
            from_barycentre_m: from_barycentre.map(|au| au * au_m),
        })
    }

    /// Returns the time that a source's plane wave takes from the observer to the solar system's barycentre, in s.
    pub(super) fn light_time_to_barycentre_s(&self, source: &Direction) -> f64 {
        dot(&self.from_barycentre_m, &source.vector()) / SPEED_OF_LIGHT_M_S
    }

    /// Returns the unit vector of a source's apparent direction, ITRF.
    pub fn itrf(&self, direction: &Direction) -> [f64; 3] {
        self.appear(&direction.vector())
    }

    /// Converts a unit vector from the ICRS to the apparent direction in the ITRF.
    fn appear(&self, icrs: &Vector) -> Vector {
        let deflected = ldsun(*icrs, self.from_sun, self.sun_distance_au);
        let contraction = (1.0 - dot(&self.velocity, &self.velocity)).sqrt();
        let proper = ab(&deflected, &self.velocity, self.sun_distance_au, contraction);
        rotate(&self.rotation, &proper)
    }

    /// Returns the ICRS direction of a source that appears in direction `itrf`.
    pub fn direction(&self, itrf: &[f64; 3]) -> Direction {
        let target = unit(itrf);
        let mut icrs = rotate_back(&self.rotation, &target);
        for _ in 0..INVERSIONS {
            let miss = minus(&target, &self.appear(&icrs));
            icrs = unit(&plus_scaled(&icrs, 1.0, &rotate_back(&self.rotation, &miss)));
        }
        Direction::from_vector(&icrs)
    }

    /// Returns the unit vectors u, v and w of a source, ITRF, as rows: w towards its apparent direction, v towards
    /// increasing ICRS declination, u to the east.
    pub fn uvw_axes(&self, direction: &Direction) -> [[f64; 3]; 3] {
        /// Half the arc of the difference quotient for north, in radians; a shorter arc would suffer from cancellation.
        const STEP: f64 = 1e-3;
        let (centre, north) = (direction.vector(), direction.north());
        let above = self.appear(&unit(&plus_scaled(&centre, STEP, &north)));
        let below = self.appear(&unit(&plus_scaled(&centre, -STEP, &north)));
        let w = self.appear(&centre);
        let arc = minus(&above, &below);
        let v = unit(&plus_scaled(&arc, -dot(&arc, &w), &w));
        [cross(&v, &w), v, w]
    }

    /// Returns Greenwich apparent sidereal time in radians.
    pub(super) fn sidereal_rad(&self) -> f64 {
        self.sidereal_rad
    }
}

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
    /// Creates the source geometry of an array.
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
        start: Epoch,
        length_s: f64,
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

    /// Returns each antenna's geometric delay in seconds for a phase centre.
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

/// Returns the time at which a wave passes the solar system's barycentre, as a modified Julian date in TDB. The wave
/// passes `place_itrf_m` (ITRF, m) at `moment` (UTC); the result adds the light travel time from there to the
/// barycentre along the source's direction.
///
/// # Errors
/// As [`Dut1::at`].
/// # Numerics
/// An error of 1 s in UT1 changes the result by at most 1.6 us. Agrees within 60 us with astropy's
/// `Time.light_travel_time(kind='barycentric')`; most of the difference is the Earth's position (SOFA's `epv00`).
/// Neither includes the Shapiro delay (up to 120 us). The date's resolution is 0.6 us.
/// # Source
/// SOFA's `epv00` and `dtdb`.
pub fn barycentric_mjd(
    moment: Epoch,
    place_itrf_m: [f64; 3],
    source: &Direction,
    dut1: &Dut1,
) -> Result<f64> {
    let tai = Tai::from_utc(&moment)?;
    let frame = Frame::new(&place_itrf_m, dut1, &tai)?;
    let (tt_day, tt_part) = tai.terrestrial();
    let tdb_tt_s = dtdb(tt_day, tt_part, 0.0, 0.0, 0.0, 0.0);
    let later_s = tdb_tt_s + frame.light_time_to_barycentre_s(source);
    Ok(tt_day - MJD_ZERO + (tt_part + later_s / SECONDS_PER_DAY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::site_itrf_m;

    /// astropy 8.0.2: `Time(mjd, scale='utc', location=EarthLocation.from_geocentric(...))`, then
    /// `(t.tdb + t.light_travel_time(SkyCoord(ra, dec), 'barycentric')).mjd`.
    const ASTROPY: [(&str, i64, f64, f64, f64, f64); 4] = [
        ("GBT", 58_000, 43_200.0, 187.5, 12.4, 58_000.495_482_476_035),
        ("Parkes", 55_562, 14.25, 249.97, -59.91, 55_561.996_760_889_02),
        ("MeerKAT", 59_945, 86_000.0, 0.0, 89.0, 59_945.998_369_543_566),
        ("Arecibo", 45_000, 1000.5, 82.99, 33.15, 45_000.016_043_085_794),
    ];

    #[test]
    fn times_are_those_of_astropy() {
        for (site, day, seconds, ra_deg, dec_deg, expected) in ASTROPY {
            let source = Direction { ra_deg, dec_deg };
            let place = site_itrf_m(site).unwrap();
            let found =
                barycentric_mjd(Epoch { day, seconds }, place, &source, &Dut1::Table).unwrap();
            let off_s = (found - expected) * SECONDS_PER_DAY;
            assert!(off_s.abs() < 60e-6, "{site} {off_s:e} s");
        }
    }
}
