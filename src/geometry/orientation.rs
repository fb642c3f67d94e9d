//! UT1 and polar motion from the embedded IERS table, a newer table or a given value.

use std::sync::Arc;

use super::time::{Tai, tai_utc_s};
use crate::error::{Error, Result};
use crate::units::{Epoch, SECONDS_PER_DAY};

/// Table made by `examples/earth_orientation.py`: a line of text, then for each day UT1 - TAI in 0.1 us (i32) and the
/// pole's x and y in 20 microarcseconds (i16), little endian.
///
/// # Source
/// IERS, EOP 20 C04 and finals2000A; the line of text has the date.
const TABLE: &[u8] = include_bytes!("earth_orientation.bin");

/// First day of the table (MJD, UTC).
const FIRST_DAY: i64 = 41_317;

const DAY_BYTES: usize = 8;
const UT1_UNIT_S: f64 = 1e-7;
const POLE_UNIT_RAD: f64 = 20e-6 / 3600.0 * (std::f64::consts::PI / 180.0);

/// Largest accepted change of UT1 - TAI within a day, in seconds; every year on record is below 4 ms.
const LARGEST_STEP_S: f64 = 0.02;

/// Source of UT1 - UTC.
///
/// After the last day of a table, UT1 - TAI and the pole keep their last values ([`Dut1::last_day`]).
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Dut1 {
    /// The embedded IERS table.
    #[default]
    Table,
    /// A newer table; the embedded one before its first day.
    Newer(Arc<OrientationTable>),
    /// A given value in seconds (`--dut1`). The pole comes from the embedded table.
    Given(f64),
}

/// One day of an Earth orientation table, at 0 h UTC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrientationDay {
    /// UT1 - UTC in seconds.
    pub ut1_utc_s: f64,
    /// The pole's x and y in arcseconds.
    pub pole_arcsec: [f64; 2],
}

/// Table of UT1 and the pole that replaces the embedded one from its first day on.
#[derive(Clone, Debug, PartialEq)]
pub struct OrientationTable {
    about: String,
    first: i64,
    /// UT1 - TAI in s and the pole in radians, per day.
    days: Vec<[f64; 3]>,
}

impl OrientationTable {
    /// Makes a table of consecutive days from `first` (MJD, UTC); `about` describes its source.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a table without days, one that begins after the embedded one ends, one in which UT1 -
    /// TAI jumps (a leap second unknown to [`tai_utc_s`]), and as [`tai_utc_s`].
    pub fn new(about: impl Into<String>, first: i64, days: &[OrientationDay]) -> Result<Self> {
        const TABLE: &str = "Earth orientation table";
        if days.is_empty() || !(FIRST_DAY..=last_day() + 1).contains(&first) {
            let rule = format!("its first day must be MJD {FIRST_DAY} to {}", last_day() + 1);
            return Err(Error::parameter(
                TABLE,
                format!("{} days from MJD {first}", days.len()),
                rule,
            ));
        }
        let values = |(day, own): (i64, &OrientationDay)| {
            let [x, y] = own.pole_arcsec.map(|arcsec| (arcsec / 3600.0).to_radians());
            Ok([own.ut1_utc_s - tai_utc_s(day)?, x, y])
        };
        let days = (first..).zip(days).map(values).collect::<Result<Vec<_>>>()?;
        let jump =
            days.windows(2).position(|pair| (pair[1][0] - pair[0][0]).abs() > LARGEST_STEP_S);
        if let Some(index) = jump {
            let rule = format!(
                "UT1 - TAI changes by {:.3} s on this day, at most {LARGEST_STEP_S} s are possible: the table is \
                 damaged, or has a leap second that this version does not know",
                days[index + 1][0] - days[index][0]
            );
            return Err(Error::parameter(TABLE, format!("MJD {}", first + index as i64), rule));
        }
        Ok(Self { about: about.into(), first, days })
    }

    /// Returns the last day (MJD, UTC); the table ends at 0 h of that day.
    pub fn last_day(&self) -> i64 {
        self.first + self.days.len() as i64 - 1
    }
}

/// Orientation of the Earth at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Orientation {
    /// UT1 - TAI in seconds.
    pub(super) ut1_tai_s: f64,
    /// The pole's x and y in radians.
    pub(super) pole: [f64; 2],
}

/// Describes the embedded table: its source, its date and the start of its predictions.
pub fn orientation_table() -> &'static str {
    let line = TABLE.split(|byte| *byte == b'\n').next().unwrap_or_default();
    str::from_utf8(line).unwrap_or_default()
}

impl Dut1 {
    /// Returns UT1 - UTC in seconds.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a given number beyond 1 s, and as [`tai_utc_s`].
    /// # Numerics
    /// Interpolates UT1 - TAI linearly between the table's days: within 0.05 ms of a curve through four days. After
    /// the last day it is constant, which adds an error of at most 1 ms per day.
    pub fn at(&self, epoch: Epoch) -> Result<f64> {
        let orientation = self.orientation(&Tai::from_utc(&epoch)?)?;
        Ok(orientation.ut1_tai_s + tai_utc_s(epoch.day)?)
    }

    /// Describes the table in use; `None` for a given value.
    pub fn about(&self) -> Option<&str> {
        match self {
            Self::Table => Some(orientation_table()),
            Self::Newer(table) => Some(&table.about),
            Self::Given(_) => None,
        }
    }

    /// Returns the last day (MJD, UTC) of the table in use, which ends at 0 h of that day; `None` for a given value.
    pub fn last_day(&self) -> Option<i64> {
        match self {
            Self::Table => Some(last_day()),
            Self::Newer(table) => Some(table.last_day().max(last_day())),
            Self::Given(_) => None,
        }
    }

    /// Returns UT1 - TAI in seconds from the table, or the nearest tabulated value outside it.
    pub(super) fn ut1_tai_or_last_s(&self, moment: &Tai) -> f64 {
        self.orientation(moment).map_or_else(
            |_| self.day(if moment.mjd() < FIRST_DAY as f64 { FIRST_DAY } else { i64::MAX })[0],
            |found| found.ut1_tai_s,
        )
    }

    pub(super) fn orientation(&self, moment: &Tai) -> Result<Orientation> {
        let utc = moment.utc()?;
        let length_s = SECONDS_PER_DAY + tai_utc_s(utc.day + 1)? - tai_utc_s(utc.day)?;
        let (before, after) = (self.day(utc.day), self.day(utc.day + 1));
        let part = utc.seconds / length_s;
        let [mut ut1_tai_s, x, y] =
            std::array::from_fn(|k| before[k] + part * (after[k] - before[k]));
        if let Self::Given(seconds) = *self {
            if !seconds.is_finite() || seconds.abs() > 1.0 {
                let rule = "UT1 - UTC never exceeds 1 s";
                return Err(Error::parameter("--dut1 (s)", seconds, rule));
            }
            ut1_tai_s = seconds - tai_utc_s(utc.day)?;
        }
        Ok(Orientation { ut1_tai_s, pole: [x, y] })
    }

    /// Returns UT1 - TAI in s and the pole in radians at 0 h of a day, or of the nearest tabulated day.
    fn day(&self, day: i64) -> [f64; 3] {
        if let Self::Newer(table) = self {
            let day = day.min(table.last_day().max(last_day()));
            let index = usize::try_from(day - table.first).ok();
            if let Some(values) = index.and_then(|index| table.days.get(index)) {
                return *values;
            }
        }
        let index = (day.clamp(FIRST_DAY, last_day()) - FIRST_DAY) as usize;
        values(&rows()[index])
    }
}

/// Returns the rows of the embedded table.
fn rows() -> &'static [[u8; DAY_BYTES]] {
    TABLE[orientation_table().len() + 1..].as_chunks().0
}

/// Returns the last day (MJD, UTC) of the embedded table.
fn last_day() -> i64 {
    FIRST_DAY + rows().len() as i64 - 1
}

/// Decodes UT1 - TAI in s and the pole in radians.
fn values(row: &[u8; DAY_BYTES]) -> [f64; 3] {
    let [a, b, c, d, x0, x1, y0, y1] = *row;
    [
        f64::from(i32::from_le_bytes([a, b, c, d])) * UT1_UNIT_S,
        f64::from(i16::from_le_bytes([x0, x1])) * POLE_UNIT_RAD,
        f64::from(i16::from_le_bytes([y0, y1])) * POLE_UNIT_RAD,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_what_its_line_says() {
        let last = last_day();
        let days = format!("MJD {FIRST_DAY} to {last}");
        assert!(orientation_table().starts_with("IERS C04 (to MJD "));
        assert!(orientation_table().contains(&days), "{}", orientation_table());
        assert_eq!((TABLE.len() - orientation_table().len() - 1) % DAY_BYTES, 0);
    }

    #[test]
    fn published_days_are_met() {
        // IERS EOP 20 C04 at 0 h, including the days around a leap second.
        let at = |day, seconds| Dut1::Table.at(Epoch { day, seconds }).unwrap();
        let published =
            [(41317, -0.0454859), (46000, -0.0538054), (57753, -0.4077697), (57754, 0.5912870)];
        for (day, ut1_utc_s) in published {
            assert!((at(day, 0.0) - ut1_utc_s).abs() < 1e-7, "{day}");
        }
        let step = at(57754, 0.0) - at(57753, 86400.999);
        assert!((step - 1.0).abs() < 1e-4, "{step}");
    }

    #[test]
    fn after_the_last_day_the_table_holds_its_values() {
        let last = last_day();
        assert_eq!(Dut1::Table.last_day(), Some(last));
        let end = Dut1::Table.at(Epoch::new(last, 0.0)).unwrap();
        for day in [last, last + 1, 80_000] {
            assert_eq!(Dut1::Table.at(Epoch::new(day, 1.0)).unwrap(), end);
            assert_eq!(Dut1::Given(0.25).at(Epoch::new(day, 1.0)).unwrap(), 0.25);
        }
        assert!(Dut1::Given(1.5).at(Epoch::new(60000, 0.0)).is_err());
        assert!(Dut1::Given(f64::NAN).at(Epoch::new(60000, 0.0)).is_err());
        assert!(Dut1::Table.at(Epoch::new(FIRST_DAY - 1, 0.0)).is_err());
    }

    #[test]
    fn a_newer_table_takes_over_from_its_first_day() {
        let first = last_day() - 10;
        let day = |index: i32| OrientationDay {
            ut1_utc_s: 0.1 - 1e-3 * f64::from(index),
            pole_arcsec: [0.25, 0.4],
        };
        let days: Vec<_> = (0..100).map(day).collect();
        let table = OrientationTable::new("newer", first, &days).unwrap();
        let newer = Dut1::Newer(Arc::new(table));
        assert_eq!(newer.last_day(), Some(first + 99));
        let at = |dut1: &Dut1, day, seconds| dut1.at(Epoch { day, seconds }).unwrap();
        assert_eq!(at(&newer, first - 2, 100.0), at(&Dut1::Table, first - 2, 100.0));
        assert!((at(&newer, first, 0.0) - 0.1).abs() < 1e-12);
        assert!((at(&newer, first + 50, 43_200.0) - 0.0495).abs() < 1e-12);
        assert!((at(&newer, first + 200, 7.0) - 0.001).abs() < 1e-12);
        let moment = Tai::from_utc(&Epoch::new(first + 5, 0.0)).unwrap();
        let pole = newer.orientation(&moment).unwrap().pole.map(|x| x.to_degrees() * 3600.0);
        assert!((pole[0] - 0.25).abs() < 1e-12 && (pole[1] - 0.4).abs() < 1e-12);

        let refused = |first, days: &[OrientationDay]| {
            OrientationTable::new("", first, days).unwrap_err().to_string()
        };
        assert!(refused(first, &[]).contains("0 days"));
        assert!(refused(last_day() + 2, &days).contains("its first day must be MJD 41317 to"));
        let leap = |index: i32| OrientationDay {
            ut1_utc_s: day(index).ut1_utc_s + f64::from(u8::from(index > 20)),
            ..day(index)
        };
        let error = refused(first, &(0..40).map(leap).collect::<Vec<_>>());
        let named = format!("MJD {}", first + 20);
        assert!(error.contains(&named) && error.contains("leap second"), "{error}");
    }
}
