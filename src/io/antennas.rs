//! Antenna positions in CSV: in the ITRF, or east, north and up of a location.
//!
//! Invariant: names and numbers are unique, and positions are finite.
//!
//! ```text
//! # telescope=Example
//! # longitude_deg=21.4439
//! # latitude_deg=-30.7130
//! # height_m=1053.0
//! name,east,north,up,number,diameter,delay_ns
//! m000,-8.264,-207.290,8.600,0,13.5,0.0
//! ```
//!
//! The first line that is neither empty nor a comment names the columns, in any order: `name`, then `x`, `y`, `z`
//! (ITRF) or `east`, `north`, `up`, all in metres; the columns `number` (default: the order, from 0), `diameter` (m)
//! and `delay_ns` (a fixed delay of the antenna's cable, added to the geometric one) are optional and may be empty in
//! a row. Fields may be in double quotes.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::csv::{Line, shown};
use crate::io::{atomic, csv};

/// The antennas of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct AntennaTable {
    /// The file.
    pub path: PathBuf,
    /// The array's name (`# telescope=`), empty when unknown.
    pub telescope: String,
    /// Frame of the positions.
    pub frame: PositionFrame,
    /// Reference location of the array, when known.
    pub place: Option<Place>,
    /// The antennas, in the file's order.
    pub rows: Vec<AntennaRow>,
}

/// Reads a CSV file of antennas.
///
/// # Errors
/// [`Error::Format`] naming line and column, and [`Error::Io`].
pub fn read(path: &Path) -> Result<AntennaTable> {
    /// Maximum bytes of a file: more than a million antennas.
    const LONGEST: u64 = 1 << 26;
    let file = super::compressed::open(path)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(|error| Error::io(path, error))?;
    if bytes.len() as u64 > LONGEST {
        let why = "found more than 64 MiB, expected a table of antennas";
        return Err(Error::format(path, "file", LONGEST, why));
    }
    parse(&String::from_utf8_lossy(&bytes), path)
}

/// Parses a CSV file of antennas; `path` names it in errors.
///
/// # Errors
/// [`Error::Format`] naming line and column.
pub fn parse(text: &str, path: &Path) -> Result<AntennaTable> {
    let mut comments = Comments::default();
    let mut columns: Option<Columns> = None;
    let mut rows = Vec::new();
    for line in csv::lines(text, path) {
        if let Some(comment) = line.comment() {
            comments.take(&line, comment)?;
        } else if let Some(columns) = &columns {
            rows.push((line, columns.row(&line, rows.len())?));
        } else {
            columns = Some(Columns::find(&line)?);
        }
    }
    let nothing = |why| Error::format(path, "antennas", 0, why);
    let columns = columns.ok_or_else(|| {
        nothing("the file has no line of columns, expected name,x,y,z or name,east,north,up")
    })?;
    if rows.is_empty() {
        return Err(nothing("found 0 antennas, expected one at least"));
    }
    check_twice(&rows)?;
    let (telescope, place) = comments.finish(path)?;
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    Ok(AntennaTable { path: path.to_path_buf(), telescope, frame: columns.frame(), place, rows })
}

fn check_twice(rows: &[(Line<'_>, AntennaRow)]) -> Result<()> {
    let (mut names, mut numbers) = (HashSet::new(), HashSet::new());
    for (line, row) in rows {
        if !names.insert(row.name.as_str()) {
            return Err(line.fault("name", format!("found {:?} a second time", row.name)));
        }
        if !numbers.insert(row.number) {
            return Err(line.fault("number", format!("found {} a second time", row.number)));
        }
    }
    Ok(())
}

/// Writes a CSV file of antennas, with all columns.
///
/// # Errors
/// [`Error::Io`].
pub fn write(path: &Path, table: &AntennaTable) -> Result<()> {
    let mut text = String::new();
    if !table.telescope.is_empty() {
        let _ = writeln!(text, "# telescope={}", table.telescope.replace(char::is_control, " "));
    }
    if let Some(Place { longitude_deg, latitude_deg, height_m }) = table.place {
        let _ = writeln!(text, "# longitude_deg={longitude_deg}\n# latitude_deg={latitude_deg}");
        let _ = writeln!(text, "# height_m={height_m}");
    }
    let axes = match table.frame {
        PositionFrame::Itrf => "x,y,z",
        PositionFrame::EastNorthUp => "east,north,up",
    };
    let _ = writeln!(text, "name,{axes},number,diameter,delay_ns");
    for row in &table.rows {
        let ([a, b, c], number) = (row.position_m, row.number);
        let diameter = row.diameter_m.map_or_else(String::new, |metres| metres.to_string());
        let (name, delay_ns) = (csv::quoted(&row.name), row.delay_s * NS_PER_S);
        let _ = writeln!(text, "{name},{a},{b},{c},{number},{diameter},{delay_ns}");
    }
    atomic::write(path, text.as_bytes())
}

/// Nanoseconds in a second.
const NS_PER_S: f64 = 1e9;

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
const MAX_COORDINATE_M: f64 = 1e8;

/// Smallest distance of an antenna from the Earth's centre, in m.
const NEAREST_M: f64 = 6e6;

/// Largest cable delay, in ns.
const MAX_DELAY_NS: f64 = 1e9;

/// Largest dish diameter, in m.
const MAX_DIAMETER_M: f64 = 1e4;

/// Values from comments; numbers in the order of [`KEYS`].
#[derive(Default)]
struct Comments {
    telescope: Option<String>,
    numbers: [Option<f64>; 3],
}

/// Range of each key.
const KEYS: [(&str, RangeInclusive<f64>); 3] =
    [("longitude_deg", -360.0..=360.0), ("latitude_deg", -90.0..=90.0), ("height_m", -1e5..=1e7)];

impl Comments {
    /// Parses a comment; ignores one without a known key.
    fn take(&mut self, line: &Line<'_>, comment: &str) -> Result<()> {
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
        match self.numbers[index].replace(line.number(key, value, KEYS[index].1.clone())?) {
            None => Ok(()),
            Some(_) => Err(twice()),
        }
    }

    /// Returns the array's name and location.
    fn finish(self, path: &Path) -> Result<(String, Option<Place>)> {
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
struct Columns {
    frame: PositionFrame,
    fields: Vec<&'static str>,
}

impl Columns {
    /// Parses the line of column names.
    fn find(line: &Line<'_>) -> Result<Self> {
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

    fn frame(&self) -> PositionFrame {
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
    fn row(&self, line: &Line<'_>, order: usize) -> Result<AntennaRow> {
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
            *metres = line.number(axis, field(axis), -MAX_COORDINATE_M..=MAX_COORDINATE_M)?;
        }
        self.check_distance(line, &position_m)?;
        let delay_ns = optional("delay_ns", -MAX_DELAY_NS..=MAX_DELAY_NS)?;
        Ok(AntennaRow {
            name: name(line, field("name"))?,
            number: number(line, field("number"), order)?,
            position_m,
            diameter_m: optional("diameter", f64::MIN_POSITIVE..=MAX_DIAMETER_M)?,
            delay_s: delay_ns.unwrap_or(0.0) / NS_PER_S,
        })
    }

    fn check_distance(&self, line: &Line<'_>, position_m: &[f64; 3]) -> Result<()> {
        let distance = position_m.iter().map(|metres| metres * metres).sum::<f64>().sqrt();
        if self.frame == PositionFrame::Itrf && !(NEAREST_M..=MAX_COORDINATE_M).contains(&distance)
        {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> std::result::Result<AntennaTable, String> {
        parse(text, Path::new("a.csv")).map_err(|error| error.to_string())
    }

    #[test]
    fn both_frames_are_read() {
        let text = "\u{feff}# telescope= An array \r\n#longitude_deg=21.5\n# latitude_deg = -30.25\n\
                    # height_m=1e3\n# a remark: 1\n\n Name, up,East,north ,delay_ns\n\
                    a,3,1,2,-1.5\r\n\"b, \"\"2\"\"\",6.5,4,5e-1,\n";
        let table = read_text(text).unwrap();
        assert_eq!(
            (table.telescope.as_str(), table.frame),
            ("An array", PositionFrame::EastNorthUp)
        );
        let place = Place { longitude_deg: 21.5, latitude_deg: -30.25, height_m: 1000.0 };
        assert_eq!(table.place, Some(place));
        let row = &table.rows[0];
        assert_eq!((row.name.as_str(), row.number, row.position_m), ("a", 0, [1.0, 2.0, 3.0]));
        assert!((row.delay_s + 1.5e-9).abs() < 1e-24 && row.diameter_m.is_none());
        assert_eq!((table.rows[1].name.as_str(), table.rows[1].number), ("b, \"2\"", 1));
        assert_eq!((table.rows[1].position_m, table.rows[1].delay_s), ([4.0, 0.5, 6.5], 0.0));

        let text = "name,x,y,z,number,diameter\nea01,-1601188.9,-5042000.5,3554843.4,7,25\n";
        let table = read_text(text).unwrap();
        assert_eq!((table.frame, table.place), (PositionFrame::Itrf, None));
        assert_eq!((table.rows[0].number, table.rows[0].diameter_m), (7, Some(25.0)));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let row = |name: &str, number| AntennaRow {
            name: name.to_string(),
            number,
            position_m: [0.1 + number as f64, -1e-7, 1.0 / 3.0],
            diameter_m: (number > 1).then_some(13.5),
            delay_s: 0.0,
        };
        let place = Place { longitude_deg: 116.67, latitude_deg: -26.703_319, height_m: 377.827 };
        let mut table = AntennaTable {
            path: path.clone(),
            telescope: "T".to_string(),
            frame: PositionFrame::EastNorthUp,
            place: Some(place),
            rows: vec![row("a", 1), row("b,\"c\"", 5), row("d e", 0)],
        };
        write(&path, &table).unwrap();
        assert_eq!(read(&path).unwrap(), table);
        table.place = None;
        table.telescope.clear();
        write(&path, &table).unwrap();
        assert_eq!(read(&path).unwrap(), table);
    }

    #[test]
    fn faults_name_line_and_column() {
        let enu = "name,east,north,up,number,diameter,delay_ns\n";
        let faults = [
            (String::new(), "no line of columns"),
            (enu.to_string(), "found 0 antennas"),
            ("name,x,y\na,1,2\n".to_string(), "line 1, z"),
            ("x,y,z\n1,2,3\n".to_string(), "line 1, name"),
            ("name,x,y,z,x\n".to_string(), "a second time"),
            ("name,x,y,z,up\n".to_string(), "line 1"),
            ("name,x,y,z,colour\n".to_string(), "found \"colour\""),
            ("name,x,y,z\na,1,2,3\n".to_string(), "east,north,up"),
            (format!("{enu}a,1,2\n"), "line 2, up"),
            (format!("{enu}a,1,2,x,0,,\n"), "line 2, up (at byte 44)"),
            (format!("{enu}a,1,nan,3,0,,\n"), "line 2, north"),
            (format!("{enu}a,1e9,2,3,0,,\n"), "line 2, east"),
            (format!("{enu}a,1,2,3,0.5,,\n"), "line 2, number"),
            (format!("{enu}a,1,2,3,-1,,\n"), "line 2, number"),
            (format!("{enu}a,1,2,3,0,0,\n"), "line 2, diameter"),
            (format!("{enu}a,1,2,3,0,,inf\n"), "line 2, delay_ns"),
            (format!("{enu}a,1,2,3,0,,,9\n"), "found 8 fields"),
            (format!("{enu},1,2,3,0,,\n"), "line 2, name"),
            (format!("{enu}\"a\rb\",1,2,3,0,,\n"), "line 2, name"),
            (format!("{enu}\"a,1,2,3,0,,\n"), "quotes"),
            (format!("{enu}a,1,2,3,0,,\nb,1,2,3,0,,\n"), "line 3, number"),
            (format!("{enu}a,1,2,3,0,,\na,1,2,3,1,,\n"), "line 3, name"),
            (format!("# latitude_deg=91\n{enu}a,1,2,3,0,,\n"), "line 1, latitude_deg"),
            (format!("# latitude_deg=9\n{enu}a,1,2,3,0,,\n"), "longitude_deg"),
            (format!("# height_m=1\n# height_m=2\n{enu}a,1,2,3,0,,\n"), "line 2, height_m"),
        ];
        for (text, named) in faults {
            let error = read_text(&text).unwrap_err();
            assert!(error.contains(named) && error.starts_with("a.csv: "), "{text:?}: {error}");
        }
    }
}
