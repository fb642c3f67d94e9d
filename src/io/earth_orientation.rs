//! Tables of UT1 and the pole: the IERS's finals2000A and finals.
//!
//! Invariant: days are consecutive, and every number is plausible for the Earth.
//!
//! # Source
//! IERS, readme.finals2000A: columns 8-15 MJD, 17 flag of the pole (I measured, P predicted), 19-27 its x, 38-46 its
//! y (arcseconds), 58 flag of UT1, 59-68 UT1 - UTC (seconds).

use std::path::Path;

use super::csv::{Line, lines, shown};
use crate::error::{Error, Result};

/// Maximum bytes of a file; finals2000A.all has 4 MB.
const MAX_BYTES: u64 = 64 << 20;

/// Columns of a line: name, byte range counted from 0, and range of the number.
const MJD: Column = Column { name: "MJD (columns 8 to 15)", at: 7..15, range: 41_317.0..=88_068.0 };
const POLE_X: Column =
    Column { name: "x of the pole (columns 19 to 27)", at: 18..27, range: -2.0..=2.0 };
const POLE_Y: Column =
    Column { name: "y of the pole (columns 38 to 46)", at: 37..46, range: -2.0..=2.0 };
const UT1_UTC: Column =
    Column { name: "UT1 - UTC (columns 59 to 68)", at: 58..68, range: -1.0..=1.0 };

struct Column {
    name: &'static str,
    at: std::ops::Range<usize>,
    range: std::ops::RangeInclusive<f64>,
}

/// A table of the Earth's orientation at 0 h UTC of consecutive days.
#[derive(Clone, Debug, PartialEq)]
pub struct EarthOrientation {
    /// The first day (MJD).
    pub first: i64,
    /// Last day (MJD) with a measured UT1; later ones are predicted. `None` if all are predicted.
    pub measured: Option<i64>,
    /// UT1 - UTC in seconds, and the pole's x and y in arcseconds, per day.
    pub days: Vec<(f64, [f64; 2])>,
}

/// Reads a file in the format of finals2000A.all, finals2000A.data, finals2000A.daily or finals.all, up to the first
/// line without UT1 - UTC.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] naming the line and the column.
pub fn read_earth_orientation(path: &Path) -> Result<EarthOrientation> {
    let size = std::fs::metadata(path).map_err(|error| Error::io(path, error))?.len();
    if size > MAX_BYTES {
        let why = format!("found {size} bytes, expected a table of at most {MAX_BYTES}");
        return Err(Error::format(path, "size", 0, why));
    }
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    let is_text = bytes.iter().all(|byte| byte.is_ascii_graphic() || b" \t\r\n".contains(byte));
    let text = std::str::from_utf8(&bytes).ok().filter(|_| is_text);
    let text = text.ok_or_else(|| {
        let why =
            "found bytes that are not text, expected finals2000A.all or finals.all of the IERS";
        Error::format(path, "text", 0, why)
    })?;
    parse(text, path)
}

fn parse(text: &str, path: &Path) -> Result<EarthOrientation> {
    let mut table = EarthOrientation { first: 0, measured: None, days: Vec::new() };
    for line in lines(text, path) {
        let whole = line.whole();
        if whole.get(UT1_UTC.at).is_none_or(|field| field.trim().is_empty())
            && whole.get(MJD.at).is_some_and(|field| field.trim().parse::<f64>().is_ok())
            && whole.len() > 68
        {
            // The first day without a prediction ends the table.
            break;
        }
        let day = MJD.of(&line)?;
        if day.fract() != 0.0 {
            return Err(line.fault(MJD.name, format!("found {day}, expected a whole day")));
        }
        let expected = table.first + table.days.len() as i64;
        if table.days.is_empty() {
            table.first = day as i64;
        } else if day as i64 != expected {
            let why =
                format!("found {day}, expected {expected}, the day after that of the line before");
            return Err(line.fault(MJD.name, why));
        }
        match whole.as_bytes().get(57) {
            Some(b'I') => table.measured = Some(day as i64),
            Some(b'P') => {}
            found => {
                let found = found.map_or_else(String::new, |byte| char::from(*byte).to_string());
                let why = format!("found {}, expected I or P", shown(&found));
                return Err(line.fault("flag of UT1 (column 58)", why));
            }
        }
        table.days.push((UT1_UTC.of(&line)?, [POLE_X.of(&line)?, POLE_Y.of(&line)?]));
    }
    if table.days.is_empty() {
        let why = "found no day with UT1 - UTC, expected lines of finals2000A.all or finals.all";
        return Err(Error::format(path, "days", 0, why));
    }
    Ok(table)
}

impl Column {
    fn of(&self, line: &Line<'_>) -> Result<f64> {
        line.number(
            self.name,
            line.whole().get(self.at.clone()).unwrap_or("").trim(),
            self.range.clone(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// finals2000A.all of 2026-11-02.
    const LINES: &str = "\
26 7 1 61222.00 I  0.190313 0.000030  0.422160 0.000027  I-0.0117325 0.0000058  0.6893 0.0037  I     0.306    0.154     0.052    0.113                                                     
26 7 2 61223.00 I  0.191402 0.000030  0.421537 0.000027  P-0.0118431 0.0000061  0.4686 0.0043  P     0.310    0.154     0.070    0.113                                                     
26 7 3 61224.00                                                                                                                                                                            
";

    #[test]
    fn lines_are_read_by_their_columns() {
        let table = parse(LINES, Path::new("finals")).unwrap();
        assert_eq!((table.first, table.measured), (61_222, Some(61_222)));
        assert_eq!(table.days[0], (-0.011_732_5, [0.190_313, 0.422_16]));
        assert_eq!(table.days[1], (-0.011_843_1, [0.191_402, 0.421_537]));
        assert_eq!(table.days.len(), 2);
    }

    #[test]
    fn damage_is_told_by_line_and_column() {
        let cases = [
            ("61223.00", "61224.00", "line 2, MJD (columns 8 to 15)", "expected 61223"),
            ("61222.00", "61222.50", "line 1, MJD (columns 8 to 15)", "whole day"),
            ("61222.00", "6x222.00", "line 1, MJD (columns 8 to 15)", "6x222.00"),
            ("P-0.0118431", "P-1.0118431", "line 2, UT1 - UTC (columns 59 to 68)", "-1 to 1"),
            ("P-0.0118431", "X-0.0118431", "line 2, flag of UT1 (column 58)", "I or P"),
            (" 0.190313", "      nan", "line 1, x of the pole (columns 19 to 27)", "nan"),
            (" 0.421537", " 4.421537", "line 2, y of the pole (columns 38 to 46)", "-2 to 2"),
            ("0.4686", "", "", ""),
        ];
        for (found, spoilt, field, why) in cases {
            let text = LINES.replace(found, spoilt);
            match parse(&text, Path::new("finals")) {
                Err(error) => {
                    let error = error.to_string();
                    let named = [field, why, "finals", "found", "expected"];
                    assert!(named.iter().all(|word| error.contains(word)), "{spoilt}: {error}");
                    assert!(!field.is_empty(), "{error}");
                }
                Ok(_) => assert!(field.is_empty(), "{spoilt}"),
            }
        }
        for text in ["", "no table\n", "a,b,c\n1,2,3\n", LINES.lines().nth(2).unwrap()] {
            assert!(parse(text, Path::new("finals")).is_err(), "{text}");
        }
        let cut = &LINES[..120];
        assert!(parse(cut, Path::new("finals")).is_ok(), "the columns that are used are there");
        assert!(parse(&LINES[..60], Path::new("finals")).is_err());
    }
}
