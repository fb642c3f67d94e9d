//! Columns of an antenna table: comments with the location, the column names, and rows.

use std::path::Path;

use crate::error::{Error, Result};
use crate::io::csv::{Line, shown};

/// Nanoseconds in a second.
pub(super) const NS_PER_S: f64 = 1e9;

/// Coordinate frame of the antenna positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionFrame {
    /// Geocentric x, y, z (ITRF).
    Itrf,
    /// Metres east, north and up of the table's location.
    EastNorthUp,
}

/// A position on the WGS84 ellipsoid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Longitude, east positive.
    pub longitude_deg: f64,
    /// Geodetic latitude.
    pub latitude_deg: f64,
    /// Height above the ellipsoid.
    pub height_m: f64,
}

/// An antenna.
#[derive(Clone, Debug, PartialEq)]
pub struct AntennaRow {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: i64,
    /// Its position, in the table's frame.
    pub position_m: [f64; 3],
    /// Diameter of the dish, when known.
    pub diameter_m: Option<f64>,
    /// Its cable delay in seconds.
    pub delay_s: f64,
}

/// Known columns.
const COLUMNS: [&str; 10] =
    ["name", "x", "y", "z", "east", "north", "up", "number", "diameter", "delay_ns"];
const ITRF: [&str; 3] = ["x", "y", "z"];
const EAST_NORTH_UP: [&str; 3] = ["east", "north", "up"];

/// Largest distance of an antenna from the Earth's centre, or from its array's location, in m.
const FARTHEST_M: f64 = 1e8;

/// Smallest distance of an antenna from the Earth's centre, in m.
const NEAREST_M: f64 = 6e6;

/// Largest cable delay, in ns.
const LONGEST_DELAY_NS: f64 = 1e9;

/// Largest dish diameter, in m.
const WIDEST_M: f64 = 1e4;

/// Values from comments; numbers in the order of [`KEYS`].
#[derive(Default)]
pub(super) struct Comments {
    telescope: Option<String>,
    numbers: [Option<f64>; 3],
}

/// Range of each key.
const KEYS: [(&str, (f64, f64)); 3] = [
    ("longitude_deg", (-360.0, 360.0)),
    ("latitude_deg", (-90.0, 90.0)),
    ("height_m", (-1e5, 1e7)),
];

impl Comments {
    /// Parses a comment; ignores one without a known key.
    pub(super) fn take(&mut self, line: &Line<'_>, comment: &str) -> Result<()> {
        let Some((key, value)) = comment.split_once('=') else { return Ok(()) };
        let (key, value) = (key.trim(), value.trim());
        let twice = || line.fault(key, "found a second time");
        if key == "telescope" {
            return match self.telescope.replace(value.to_string()) {
                None => Ok(()),
                Some(_) => Err(twice()),
            };
        }
        let Some(index) = KEYS.iter().position(|(known, _)| *known == key) else { return Ok(()) };
        match self.numbers[index].replace(line.number(key, value, KEYS[index].1)?) {
            None => Ok(()),
            Some(_) => Err(twice()),
        }
    }

    /// Returns the array's name and location.
    pub(super) fn finish(self, path: &Path) -> Result<(String, Option<Place>)> {
        let telescope = self.telescope.unwrap_or_default();
        match self.numbers {
            [None, None, None] => Ok((telescope, None)),
            [Some(longitude_deg), Some(latitude_deg), Some(height_m)] => {
                Ok((telescope, Some(Place { longitude_deg, latitude_deg, height_m })))
            }
            numbers => {
                let missing = numbers.iter().zip(KEYS).find(|(number, _)| number.is_none());
                let key = missing.map_or("", |(_, (key, _))| key);
                let why =
                    format!("the file has no line \"# {key}=\", but other lines of its place");
                Err(Error::format(path, key, 0, why))
            }
        }
    }
}

/// Mapping of a line's fields to columns.
pub(super) struct Columns {
    frame: PositionFrame,
    fields: Vec<&'static str>,
}

impl Columns {
    /// Parses the line of column names.
    pub(super) fn find(line: &Line<'_>) -> Result<Self> {
        let mut fields: Vec<&'static str> = Vec::new();
        for field in line.fields()? {
            let name = field.to_ascii_lowercase();
            let Some(known) = COLUMNS.iter().find(|known| **known == name) else {
                let known = COLUMNS.join(", ");
                let why = format!("found {}, expected columns among {known}", shown(&field));
                return Err(line.fault("columns", why));
            };
            if fields.contains(known) {
                return Err(line.fault(known, "found the column a second time"));
            }
            fields.push(known);
        }
        let has = |name: &&str| fields.contains(name);
        let frame = match (ITRF.iter().any(has), EAST_NORTH_UP.iter().any(has)) {
            (true, false) => PositionFrame::Itrf,
            (false, true) => PositionFrame::EastNorthUp,
            (both, _) => {
                let found = if both { "both" } else { "neither" };
                let why = format!("found {found}, expected either x,y,z or east,north,up");
                return Err(line.fault("columns", why));
            }
        };
        let columns = Self { frame, fields };
        let needed = columns.axes();
        if let Some(missing) = ["name"].iter().chain(&needed).find(|name| !columns.has(name)) {
            return Err(line.fault(missing, "the table has no such column"));
        }
        Ok(columns)
    }

    pub(super) fn frame(&self) -> PositionFrame {
        self.frame
    }

    fn axes(&self) -> [&'static str; 3] {
        match self.frame {
            PositionFrame::Itrf => ITRF,
            PositionFrame::EastNorthUp => EAST_NORTH_UP,
        }
    }

    fn has(&self, name: &str) -> bool {
        self.fields.contains(&name)
    }

    /// Parses a row; `order` is the antenna's number if the row has none.
    pub(super) fn row(&self, line: &Line<'_>, order: usize) -> Result<AntennaRow> {
        let fields = line.fields()?;
        if fields.len() > self.fields.len() {
            let (found, expected) = (fields.len(), self.fields.len());
            let why = format!("found {found} fields, expected {expected}");
            return Err(line.fault("columns", why));
        }
        // A missing field is equivalent to an empty one.
        let field = |name: &str| {
            let index = self.fields.iter().position(|known| *known == name);
            index.and_then(|index| fields.get(index)).map_or("", String::as_str)
        };
        let optional = |name: &str, range| {
            let filled = Some(field(name)).filter(|text| !text.is_empty());
            filled.map(|text| line.number(name, text, range)).transpose()
        };
        let mut position_m = [0.0; 3];
        for (metres, axis) in position_m.iter_mut().zip(self.axes()) {
            *metres = line.number(axis, field(axis), (-FARTHEST_M, FARTHEST_M))?;
        }
        self.check_distance(line, &position_m)?;
        let delay_ns = optional("delay_ns", (-LONGEST_DELAY_NS, LONGEST_DELAY_NS))?;
        Ok(AntennaRow {
            name: name(line, field("name"))?,
            number: number(line, field("number"), order)?,
            position_m,
            diameter_m: optional("diameter", (f64::MIN_POSITIVE, WIDEST_M))?,
            delay_s: delay_ns.unwrap_or(0.0) / NS_PER_S,
        })
    }

    fn check_distance(&self, line: &Line<'_>, position_m: &[f64; 3]) -> Result<()> {
        let distance = position_m.iter().map(|metres| metres * metres).sum::<f64>().sqrt();
        if self.frame == PositionFrame::Itrf && !(NEAREST_M..=FARTHEST_M).contains(&distance) {
            let why = format!(
                "found a point {distance:.1} m from the Earth's centre, expected geocentric metres \
                 (local ones have the columns east,north,up)"
            );
            return Err(line.fault("x, y, z", why));
        }
        Ok(())
    }
}

fn name(line: &Line<'_>, field: &str) -> Result<String> {
    if field.trim().is_empty() {
        return Err(line.fault("name", "found nothing, expected a name"));
    }
    if field.contains(char::is_control) {
        let why = format!("found {}, expected no control characters", shown(field));
        return Err(line.fault("name", why));
    }
    Ok(field.to_string())
}

fn number(line: &Line<'_>, field: &str, order: usize) -> Result<i64> {
    if field.is_empty() {
        return Ok(order as i64);
    }
    let found =
        field.parse::<i64>().ok().filter(|number| (0..=i64::from(i32::MAX)).contains(number));
    found.ok_or_else(|| {
        let why = format!("found {}, expected a whole number from 0", shown(field));
        line.fault("number", why)
    })
}
