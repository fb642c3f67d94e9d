//! Antenna positions and the array's reference point.

use sofars::coords::{gc2gd, gd2gc};

use super::vector::{Matrix, Vector, length, minus, rotate, rotate_back};
use crate::error::{Error, Result};

/// SOFA's identifier of the WGS84 ellipsoid.
const WGS84: i32 = 1;

/// Largest plausible distance of a ground antenna from the Earth's centre, in m.
const FARTHEST_M: f64 = 1e8;

/// Smallest plausible distance of a ground antenna from the Earth's centre, in m.
const NEAREST_M: f64 = 6e6;

/// An antenna.
#[derive(Clone, Debug, PartialEq)]
pub struct Antenna {
    /// Its name.
    pub name: String,
    /// Antenna number in visibility files.
    pub number: i64,
    /// Position in the ITRF: geocentric, x towards longitude 0, z towards the north pole.
    pub itrf_m: [f64; 3],
    /// Diameter of the dish, when known.
    pub diameter_m: Option<f64>,
}

/// Position on the WGS84 ellipsoid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Location {
    /// Longitude, east positive.
    pub longitude_deg: f64,
    /// Geodetic latitude.
    pub latitude_deg: f64,
    /// Height above the ellipsoid.
    pub height_m: f64,
}

/// Antennas with a common reference point, to which delays refer.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Its name.
    pub name: String,
    /// Its antennas, at least one.
    pub antennas: Vec<Antenna>,
    /// The reference point in the ITRF.
    pub reference_itrf_m: [f64; 3],
}

impl Location {
    /// Converts a position in the ITRF.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a point that is not near the Earth's surface.
    /// # Source
    /// SOFA's `gc2gd`.
    pub fn from_itrf(itrf_m: [f64; 3]) -> Result<Self> {
        check_itrf(&itrf_m, "position (m from the Earth's centre)")?;
        let refused = |code| Error::parameter("position", code, "SOFA's gc2gd refuses it");
        let (longitude, latitude, height_m) = gc2gd(WGS84, itrf_m).map_err(refused)?;
        let (longitude_deg, latitude_deg) = (longitude.to_degrees(), latitude.to_degrees());
        Ok(Self { longitude_deg, latitude_deg, height_m })
    }

    /// Returns the position in the ITRF.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a longitude outside -360 to 360 degrees, a latitude outside -90 to 90, or a height
    /// that is not near the Earth's surface.
    /// # Source
    /// SOFA's `gd2gc`.
    pub fn itrf_m(&self) -> Result<[f64; 3]> {
        let Self { longitude_deg, latitude_deg, height_m } = *self;
        if !(-360.0..=360.0).contains(&longitude_deg) {
            let rule = "it must lie within -360 to 360";
            return Err(Error::parameter("longitude_deg", longitude_deg, rule));
        }
        if !(-90.0..=90.0).contains(&latitude_deg) {
            let rule = "it must lie within -90 to 90";
            return Err(Error::parameter("latitude_deg", latitude_deg, rule));
        }
        if !(-1e5..=1e7).contains(&height_m) {
            let rule = "it must lie within -1e5 to 1e7 m";
            return Err(Error::parameter("height_m", height_m, rule));
        }
        let refused = |code| Error::parameter("location", code, "SOFA's gd2gc refuses it");
        gd2gc(WGS84, longitude_deg.to_radians(), latitude_deg.to_radians(), height_m)
            .map_err(refused)
    }

    /// Returns the unit vectors east, north and up in the ITRF, as rows.
    pub(super) fn axes(&self) -> Matrix {
        let (sin_lon, cos_lon) = self.longitude_deg.to_radians().sin_cos();
        let (sin_lat, cos_lat) = self.latitude_deg.to_radians().sin_cos();
        [
            [-sin_lon, cos_lon, 0.0],
            [-sin_lat * cos_lon, -sin_lat * sin_lon, cos_lat],
            [cos_lat * cos_lon, cos_lat * sin_lon, sin_lat],
        ]
    }

    /// Converts metres east, north and up of this location to the ITRF.
    ///
    /// # Errors
    /// As [`Location::itrf_m`].
    pub fn itrf_of_enu_m(&self, enu_m: [f64; 3]) -> Result<[f64; 3]> {
        let (origin, offset) = (self.itrf_m()?, rotate_back(&self.axes(), &enu_m));
        Ok(std::array::from_fn(|k| origin[k] + offset[k]))
    }
}

impl Array {
    /// Makes an array from positions in the ITRF. The default reference point is the antennas' mean.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no antenna, two with the same name or number, or a position that is not near the
    /// Earth's surface.
    pub fn from_itrf(
        name: &str,
        antennas: Vec<Antenna>,
        reference_itrf_m: Option<[f64; 3]>,
    ) -> Result<Self> {
        if antennas.is_empty() {
            return Err(Error::parameter("antennas", 0, "there must be one at least"));
        }
        check_names(&antennas)?;
        for antenna in &antennas {
            check_itrf(&antenna.itrf_m, "antenna's position (m from the Earth's centre)")?;
        }
        let mean = |k: usize| {
            antennas.iter().map(|antenna| antenna.itrf_m[k]).sum::<f64>() / antennas.len() as f64
        };
        let reference_itrf_m = reference_itrf_m.unwrap_or_else(|| std::array::from_fn(mean));
        check_itrf(&reference_itrf_m, "reference position (m from the Earth's centre)")?;
        Ok(Self { name: name.to_string(), antennas, reference_itrf_m })
    }

    /// Makes an array from metres east, north and up of `location`, the reference point. Antennas are numbered from
    /// 0.
    ///
    /// # Errors
    /// As [`Array::from_itrf`] and [`Location::itrf_m`].
    pub fn from_enu(
        name: &str,
        antennas: &[(String, [f64; 3])],
        location: Location,
    ) -> Result<Self> {
        let antenna = |(number, (name, enu_m)): (usize, &(String, [f64; 3]))| {
            let itrf_m = location.itrf_of_enu_m(*enu_m)?;
            Ok(Antenna { name: name.clone(), number: number as i64, itrf_m, diameter_m: None })
        };
        let antennas: Result<Vec<Antenna>> = antennas.iter().enumerate().map(antenna).collect();
        Self::from_itrf(name, antennas?, Some(location.itrf_m()?))
    }

    /// Returns the location of the reference point.
    ///
    /// # Errors
    /// As [`Location::from_itrf`].
    pub fn location(&self) -> Result<Location> {
        Location::from_itrf(self.reference_itrf_m)
    }

    /// Returns an antenna's position in metres east, north and up of the reference point.
    ///
    /// # Errors
    /// As [`Array::location`], and [`Error::Shape`] for an index out of range.
    pub fn enu_m(&self, index: usize) -> Result<[f64; 3]> {
        let missing =
            || Error::Shape { what: "antenna", expected: self.antennas.len(), actual: index };
        let antenna = self.antennas.get(index).ok_or_else(missing)?;
        Ok(rotate(&self.location()?.axes(), &minus(&antenna.itrf_m, &self.reference_itrf_m)))
    }

    /// Returns the index of the antenna with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.antennas.iter().position(|antenna| antenna.name == name)
    }

    /// Returns each antenna's vector from the reference point, ITRF.
    pub(super) fn offsets_m(&self) -> Vec<Vector> {
        let offset = |antenna: &Antenna| minus(&antenna.itrf_m, &self.reference_itrf_m);
        self.antennas.iter().map(offset).collect()
    }
}

fn check_itrf(itrf_m: &Vector, what: &'static str) -> Result<()> {
    let distance = length(itrf_m);
    if !(NEAREST_M..=FARTHEST_M).contains(&distance) {
        return Err(Error::parameter(what, distance, "it must lie within 6e6 to 1e8 m"));
    }
    Ok(())
}

fn check_names(antennas: &[Antenna]) -> Result<()> {
    let mut names: Vec<&str> = antennas.iter().map(|antenna| antenna.name.as_str()).collect();
    let mut numbers: Vec<i64> = antennas.iter().map(|antenna| antenna.number).collect();
    names.sort_unstable();
    numbers.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::parameter("antenna", twice[0], "each name may stand once"));
    }
    if let Some(twice) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::parameter("antenna number", twice[0], "each number may stand once"));
    }
    Ok(())
}
