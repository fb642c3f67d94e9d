//! Antennas' positions from their file, as an array.

use std::path::Path;

use sidereal::geometry::{Antenna, Array, Location};
use sidereal::io::antennas::{self, AntennaTable, PositionFrame};
use sidereal::{Error, Result};

/// An array, and what its cables add.
#[derive(Clone, Debug)]
pub(crate) struct Positions {
    pub(crate) array: Array,
    /// One an antenna.
    pub(crate) cable_delays_s: Vec<f64>,
}

impl Positions {
    /// Reads a CSV file; `location` is the reference where the file says none.
    ///
    /// # Errors
    /// As [`antennas::read`] and [`Array::from_itrf`]; [`Error::Parameter`] for a location that is lacking
    /// or given twice.
    pub(crate) fn read(path: &Path, location: Option<Location>) -> Result<Self> {
        let table = antennas::read(path)?;
        let own = table.place.map(|place| Location {
            longitude_deg: place.longitude_deg,
            latitude_deg: place.latitude_deg,
            height_m: place.height_m,
        });
        if let (Some(_), Some(Location { longitude_deg, latitude_deg, .. })) = (own, location) {
            let rule = format!("{} has a place of its own", path.display());
            let found = format!("{longitude_deg},{latitude_deg}");
            return Err(Error::parameter("--location", found, rule));
        }
        let array = array(&table, own.or(location))?;
        let cable_delays_s = table.rows.iter().map(|row| row.delay_s).collect();
        Ok(Self { array, cable_delays_s })
    }

    /// The antennas' names, in the file's order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.array.antennas.iter().map(|antenna| antenna.name.clone()).collect()
    }
}

fn array(table: &AntennaTable, location: Option<Location>) -> Result<Array> {
    let name = array_name(table);
    let itrf_m = |position_m: [f64; 3]| match (table.frame, location) {
        (PositionFrame::Itrf, _) => Ok(position_m),
        (PositionFrame::EastNorthUp, Some(location)) => location.itrf_of_enu_m(position_m),
        (PositionFrame::EastNorthUp, None) => {
            let rule = format!(
                "{} has metres east, north and up, and does not say of which place: write it there as \
                 \"# longitude_deg=...\", \"# latitude_deg=...\" and \"# height_m=...\", or give it here",
                table.path.display()
            );
            Err(Error::parameter("--location", "not given", rule))
        }
    };
    let antennas = table.rows.iter().map(|row| {
        Ok(Antenna {
            name: row.name.clone(),
            number: row.number,
            itrf_m: itrf_m(row.position_m)?,
            diameter_m: row.diameter_m,
        })
    });
    let reference = location.map(|location| location.itrf_m()).transpose()?;
    Array::from_itrf(&name, antennas.collect::<Result<_>>()?, reference)
}

/// The array's name, else the file's.
fn array_name(table: &AntennaTable) -> String {
    if !table.telescope.is_empty() {
        return table.telescope.clone();
    }
    table.path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

/// Reads `LONGITUDE,LATITUDE,HEIGHT`: degrees east, degrees, metres.
pub(crate) fn parse_location(words: &str) -> std::result::Result<Location, String> {
    let usage = "write it as LON,LAT,HEIGHT: degrees east, degrees and metres above the ellipsoid";
    let numbers: Vec<f64> = words
        .split(',')
        .map(|word| word.trim().parse().map_err(|_| format!("\"{word}\" is no number; {usage}")))
        .collect::<std::result::Result<_, _>>()?;
    let [longitude_deg, latitude_deg, height_m] = numbers[..] else { return Err(usage.to_owned()) };
    let fine = longitude_deg.abs() <= 360.0 && latitude_deg.abs() <= 90.0 && height_m.abs() <= 1e7;
    fine.then_some(Location { longitude_deg, latitude_deg, height_m })
        .ok_or_else(|| usage.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, location: Option<Location>) -> std::result::Result<Positions, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("field.csv");
        std::fs::write(&path, text).unwrap();
        Positions::read(&path, location).map_err(|error| error.to_string())
    }

    #[test]
    fn a_place_comes_from_the_file_or_the_option() {
        let place = parse_location("21.5,-30.7,1000").unwrap();
        let local = "name,east,north,up,delay_ns\na,10,20,3,5\nb,0,0,0,\n";
        let given = read(local, Some(place)).unwrap();
        assert_eq!(given.names(), ["a", "b"]);
        assert_eq!(given.cable_delays_s, [5e-9, 0.0]);
        assert_eq!(given.array.name, "field");
        let enu = given.array.enu_m(0).unwrap();
        assert!((enu[0] - 10.0).abs() < 1e-6 && (enu[1] - 20.0).abs() < 1e-6, "{enu:?}");
        let said = format!("# longitude_deg=21.5\n# latitude_deg=-30.7\n# height_m=1000\n{local}");
        assert_eq!(read(&said, None).unwrap().array, given.array);
        assert!(read(&said, Some(place)).unwrap_err().contains("has a place of its own"));
        assert!(read(local, None).unwrap_err().contains("--location"));
    }

    #[test]
    fn locations_are_three_numbers() {
        for words in ["", "1,2", "1,2,3,4", "a,2,3", "1,91,3", "nan,0,0", "1,2,inf"] {
            assert!(parse_location(words).is_err(), "{words}");
        }
    }
}
