//! Orientation and motion of the Earth at one time, and the apparent direction of a source.

use sofars::astro::{ab, ldsun};
use sofars::consts::{AULT, DAYSEC};
use sofars::eph::epv00;
use sofars::erst::{era00, gst06};
use sofars::pnp::{bpn2xy, c2ixys, c2tcio, pnm06a, pom00, s06, sp00};
use sofars::vm::{c2s, s2c};

use super::orientation::Dut1;
use super::time::Tai;
use super::vector::{
    Matrix, Vector, cross, dot, length, minus, plus_scaled, rotate, rotate_back, unit,
};
use crate::error::{Error, Result};
use crate::units::SPEED_OF_LIGHT_M_S;

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
    /// Makes a direction.
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
        /// Half the arc of the difference quotient for north, in radians: short, yet free of cancellation.
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
