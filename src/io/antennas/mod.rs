//! Antenna positions in CSV: in the ITRF, or east, north and up of a location.
//!
//! Invariant: every row has a name and a number of its own and finite positions.
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

mod columns;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

pub use self::columns::{AntennaRow, Place, PositionFrame};
use self::columns::{Columns, Comments, NS_PER_S};
use super::atomic;
use super::csv::{self, Line};
use crate::error::{Error, Result};

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
    /// Enough for more than a million antennas.
    const LONGEST: u64 = 1 << 26;
    let file = fs::File::open(path).map_err(|error| Error::io(path, error))?;
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
