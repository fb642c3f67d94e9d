//! Options of places on the sky and on the Earth: directions, antenna positions, UT1 and polar motion.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use sidereal::geometry::{Array, Dut1, Location, OrientationDay, OrientationTable};
use sidereal::io::{antennas, read_earth_orientation};
use sidereal::units::Epoch;
use sidereal::{Error, Result, pipeline};

use crate::common::Common;
use crate::say::warning;
use crate::selection::file_name;

/// Right ascension and declination in degrees (J2000).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Position {
    pub(crate) ra_deg: f64,
    pub(crate) dec_deg: f64,
}

/// Parses `RA,DEC`: in degrees (`83.633,22.0145`), or as `05:34:31.9,22:00:52` or `5h34m31.9s,22d0m52s`, where the
/// right ascension is in hours.
pub(crate) fn parse_position(words: &str) -> std::result::Result<Position, String> {
    let usage = "write it as RA,DEC: in degrees, such as 83.633,22.0145, or as 05:34:31.9,22:00:52";
    let (ra, dec) = words.split_once(',').ok_or(usage)?;
    let hours = ra.contains([':', 'h']);
    let ra_deg = angle(ra).ok_or_else(|| format!("\"{ra}\" is not a right ascension; {usage}"))?;
    let ra_deg = if hours { 15.0 * ra_deg } else { ra_deg };
    let dec_deg = angle(dec).ok_or_else(|| format!("\"{dec}\" is not a declination; {usage}"))?;
    if !(0.0..=360.0).contains(&ra_deg) {
        return Err(format!("the right ascension is {ra_deg} degrees, expected 0 to 360"));
    }
    if !(-90.0..=90.0).contains(&dec_deg) {
        return Err(format!("the declination is {dec_deg} degrees, expected -90 to 90"));
    }
    Ok(Position { ra_deg, dec_deg })
}

/// Parses a number, or up to three sexagesimal fields.
fn angle(words: &str) -> Option<f64> {
    let words = words.trim();
    let negative = words.starts_with('-');
    let body = words.strip_prefix(['-', '+']).unwrap_or(words);
    let body = body.strip_suffix('s').unwrap_or(body);
    let mut value = 0.0;
    let mut unit = 1.0;
    for (place, part) in body.split([':', 'h', 'd', 'm']).enumerate() {
        let digits = part.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let number = part.parse::<f64>().ok().filter(|n| digits && n.is_finite())?;
        if place > 2 || (place > 0 && number >= 60.0) {
            return None;
        }
        value += number * unit;
        unit /= 60.0;
    }
    Some(if negative { -value } else { value })
}

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

/// Option for a table.
#[derive(Args, Clone, Debug)]
pub(crate) struct EarthOrientation {
    /// Table of UT1 and polar motion from the IERS: finals2000A.all (or .data, .daily) or finals.all.
    ///
    /// It replaces the built-in table from its first day on (https://datacenter.iers.org). After a table's last day
    /// its last values are used, with a warning.
    #[arg(long, value_name = "FILE", help_heading = "Sky")]
    pub(crate) earth_orientation: Option<PathBuf>,
}

impl EarthOrientation {
    /// Returns the source of UT1 - UTC; `given` is the value of `--dut1`.
    ///
    /// # Errors
    /// As [`read_earth_orientation`] and [`OrientationTable::new`].
    pub(crate) fn dut1(&self, given: Option<f64>) -> Result<Dut1> {
        let Some(path) = &self.earth_orientation else {
            return Ok(given.map_or(Dut1::Table, Dut1::Given));
        };
        let table = read_earth_orientation(path)?;
        let days: Vec<_> = table
            .days
            .iter()
            .map(|(ut1_utc_s, pole)| OrientationDay { ut1_utc_s: *ut1_utc_s, pole_arcsec: *pole })
            .collect();
        let last = table.first + days.len() as i64 - 1;
        let measured = table.measured.map_or("all".to_owned(), |day| format!("after {day}"));
        let about = format!(
            "{}: UT1-UTC and the pole, MJD {} to {last}, predicted {measured}",
            file_name(path),
            table.first
        );
        let table =
            OrientationTable::new(about, table.first, &days).map_err(|error| match error {
                Error::Parameter { value, rule, .. } => {
                    Error::format(path, "days", 0, format!("found {value}, but {rule}"))
                }
                other => other,
            })?;
        Ok(Dut1::Newer(Arc::new(table)))
    }

    /// Returns the file, if given.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.earth_orientation.clone()
    }
}

/// Warns of observations that end after the last day of the table in use.
pub(crate) fn warn_of_orientation(dut1: &Dut1, start: Epoch, length_s: f64, common: &Common) {
    let end = Epoch::new(start.day, start.seconds + length_s);
    let Some(last) = dut1.last_day().filter(|last| start.day > 0 && end.day >= *last) else {
        return;
    };
    warning!(quiet: common.quiet,
        "the observation ends on MJD {}, and the table of UT1 and the pole ends with MJD {last}, whose values are taken \
         from then on; --earth-orientation FILE gives a newer one (finals2000A.all of the IERS).",
        end.day
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_degrees_or_hours_and_degrees() {
        let crab = Position { ra_deg: 83.625, dec_deg: -22.5 };
        for words in ["83.625,-22.5", "05:34:30,-22:30:00", "5h34m30s,-22d30m0s", "5:34.5, -22:30"]
        {
            assert_eq!(parse_position(words), Ok(crab), "{words}");
        }
        assert_eq!(parse_position("0,-0:30").unwrap().dec_deg, -0.5);
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for words in [
            "",
            "83",
            "83,",
            ",22",
            "x,22",
            "83,91",
            "361,0",
            "-1,0",
            "24:00:01,0",
            "1:60,0",
            "nan,0",
            "0,inf",
            "1:2:3:4,0",
            "--1,0",
            "0,-90.0001",
            "1,2,3",
        ] {
            assert!(parse_position(words).is_err(), "{words}");
        }
    }

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
