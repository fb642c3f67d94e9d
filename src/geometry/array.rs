//! Antenna positions, the array's reference point, and positions of radio telescopes.

use sofars::coords::{gc2gd, gd2gc};

use super::{Matrix, Vector, length, minus, rotate, rotate_back};
use crate::error::{Error, Result};

/// SOFA's identifier of the WGS84 ellipsoid.
const WGS84: i32 = 1;

/// Largest plausible distance of a ground antenna from the Earth's centre, in m.
const MAX_DISTANCE_M: f64 = 1e8;

/// Smallest plausible distance of a ground antenna from the Earth's centre, in m.
const MIN_DISTANCE_M: f64 = 6e6;

/// Antenna of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Antenna {
    /// Name of the antenna.
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
    /// Name of the array.
    pub name: String,
    /// Antennas, at least one.
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
    /// Creates an array from positions in the ITRF. The default reference point is the antennas' mean.
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

    /// Creates an array from metres east, north and up of `location`, the reference point. Antennas are numbered from
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
    if !(MIN_DISTANCE_M..=MAX_DISTANCE_M).contains(&distance) {
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
        return Err(Error::parameter("antenna", twice[0], "each name must be unique"));
    }
    if let Some(twice) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::parameter("antenna number", twice[0], "each number must be unique"));
    }
    Ok(())
}

/// Telescope names found in recordings, without spaces and hyphens, and the position in the ITRF, in m.
///
/// # Source
/// The observatories of PINT and Tempo2, as of 2026. Positions are accurate to tens of metres.
const SITES: &[(&[&str], [f64; 3])] = &[
    (&["arecibo", "ao"], [2_390_487.08, -5_564_731.357, 1_994_720.633]),
    (&["askap"], [-2_556_088.476, 5_097_405.971, -2_848_428.398]),
    (&["ata", "hcro"], [-2_524_263.18, -4_123_529.78, 4_147_966.36]),
    (&["atca", "narrabri"], [-4_752_329.7, 2_790_505.934, -3_200_483.747]),
    (&["chime"], [-2_059_166.313, -3_621_302.972, 4_814_304.113]),
    (&["effelsberg", "eff"], [4_033_947.146, 486_990.898, 4_900_431.067]),
    (&["fast"], [-1_668_557.0, 5_506_838.0, 2_744_934.0]),
    (&["gbt", "greenbank"], [882_589.289, -4_924_872.368, 3_943_729.418]),
    (&["gmrt", "ugmrt"], [1_656_342.3, 5_797_947.77, 2_073_243.16]),
    (&["hobart"], [-3_950_077.96, 2_522_377.31, -4_311_667.52]),
    (&["jodrell", "lovell", "jb"], [3_822_625.769, -154_105.255, 5_086_486.256]),
    (&["kat7"], [5_109_943.105, 2_003_650.736, -3_239_908.32]),
    (&["lofar"], [3_826_577.462, 461_022.624, 5_064_892.526]),
    (&["lwa", "lwa1"], [-1_602_196.6, -5_042_313.47, 3_553_971.51]),
    (&["lwasv"], [-1_531_155.544, -5_045_324.305, 3_579_583.895]),
    (&["meerkat", "mk"], [5_109_360.133, 2_006_852.586, -3_238_948.127]),
    (&["molonglo", "most", "utmost"], [-4_483_311.64, 2_648_815.92, -3_671_909.31]),
    (&["mwa"], [-2_559_454.08, 5_095_372.14, -2_849_057.18]),
    (&["nancay", "ncy"], [4_324_165.81, 165_927.11, 4_670_132.83]),
    (&["northerncross"], [4_461_242.882, 919_559.835, 4_449_633.22]),
    (&["ooty", "ort"], [1_442_712.95, 6_087_044.73, 1_251_052.35]),
    (&["parkes", "murriyang", "pks"], [-4_554_231.5, 2_816_759.1, -3_454_036.3]),
    (&["srt"], [4_865_182.766, 791_922.689, 4_035_137.174]),
    (&["vla", "jvla"], [-1_601_192.0, -5_041_981.4, 3_554_871.4]),
    (&["wsrt", "westerbork"], [3_828_445.659, 445_223.6, 5_064_921.568]),
];

/// Returns a telescope's position in the ITRF, in m, by its name in a recording; ignores case, spaces and hyphens.
pub fn site_itrf_m(telescope: &str) -> Option<[f64; 3]> {
    let letters = telescope.chars().filter(|letter| letter.is_alphanumeric());
    let name: String = letters.flat_map(char::to_lowercase).collect();
    SITES.iter().find(|(names, _)| names.contains(&name.as_str())).map(|(_, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_stand_on_the_earth() {
        for (names, place) in SITES {
            let location = Location::from_itrf(*place).unwrap();
            assert!((-100.0..3000.0).contains(&location.height_m), "{names:?} {location:?}");
        }
        let parkes = Location::from_itrf(site_itrf_m("PARKES").unwrap()).unwrap();
        assert!((parkes.longitude_deg - 148.2635).abs() < 0.001, "{parkes:?}");
        assert!((parkes.latitude_deg + 32.9984).abs() < 0.001, "{parkes:?}");
        assert_eq!(site_itrf_m("KAT-7"), site_itrf_m("kat 7"));
        assert_eq!(site_itrf_m("Fake"), None);
        assert_eq!(site_itrf_m(""), None);
    }
}
