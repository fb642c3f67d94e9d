//! Reader of antenna positions.

use std::path::Path;

use sidereal::geometry::{Array, Location};
use sidereal::io::antennas;
use sidereal::{Error, Result, pipeline};

/// Array with the delays of its cables.
#[derive(Clone, Debug)]
pub(crate) struct Positions {
    pub(crate) array: Array,
    /// One delay per antenna.
    pub(crate) cable_delays_s: Vec<f64>,
}

impl Positions {
    /// Reads a CSV file; `location` is its reference position if the file has none.
    ///
    /// # Errors
    /// As [`antennas::read`] and [`pipeline::array`]; [`Error::Parameter`] for a position that is given
    /// twice.
    pub(crate) fn read(path: &Path, location: Option<Location>) -> Result<Self> {
        let table = antennas::read(path)?;
        if let (Some(_), Some(Location { longitude_deg, latitude_deg, .. })) =
            (table.place, location)
        {
            let rule = format!("{} has a place of its own", path.display());
            let found = format!("{longitude_deg},{latitude_deg}");
            return Err(Error::parameter("--location", found, rule));
        }
        let array = pipeline::array(&table, location)?;
        let cable_delays_s = table.rows.iter().map(|row| row.delay_s).collect();
        Ok(Self { array, cable_delays_s })
    }

    /// Returns the antennas' names, in the file's order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.array.antennas.iter().map(|antenna| antenna.name.clone()).collect()
    }
}

/// Parses `LONGITUDE,LATITUDE,HEIGHT`: degrees east, degrees north, metres.
pub(crate) fn parse_location(words: &str) -> std::result::Result<Location, String> {
    let usage = "write it as LON,LAT,HEIGHT: degrees east, degrees and metres above the ellipsoid";
    let number = |word: &str| word.trim().parse::<f64>().map_err(|_| usage.to_owned());
    let numbers = words.split(',').map(number).collect::<std::result::Result<Vec<f64>, _>>()?;
    let [longitude_deg, latitude_deg, height_m] = numbers[..] else {
        return Err(usage.to_owned());
    };
    let fine = longitude_deg.abs() <= 360.0 && latitude_deg.abs() <= 90.0 && height_m.abs() <= 1e7;
    let location = Location { longitude_deg, latitude_deg, height_m };
    fine.then_some(location).ok_or_else(|| usage.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_from_the_file_or_the_option() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("field.csv");
        let read = |text: &str, location| {
            std::fs::write(&path, text).unwrap();
            Positions::read(&path, location).map_err(|error| error.to_string())
        };
        let place = parse_location("21.5,-30.7,1000").unwrap();
        let local = "name,east,north,up,delay_ns\na,10,20,3,5\nb,0,0,0,\n";
        let given = read(local, Some(place)).unwrap();
        assert_eq!(given.names(), ["a", "b"]);
        assert_eq!(given.cable_delays_s, [5e-9, 0.0]);
        let said = format!("# longitude_deg=21.5\n# latitude_deg=-30.7\n# height_m=1000\n{local}");
        assert_eq!(read(&said, None).unwrap().array, given.array);
        assert!(read(&said, Some(place)).unwrap_err().contains("has a place of its own"));
        assert!(read(local, None).unwrap_err().contains("field.csv"));
    }

    #[test]
    fn locations_are_three_numbers() {
        for words in ["", "1,2", "1,2,3,4", "a,2,3", "1,91,3", "nan,0,0", "1,2,inf"] {
            assert!(parse_location(words).is_err(), "{words}");
        }
    }
}
