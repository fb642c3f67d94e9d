//! Time scales (UTC, TAI, UT1) and polar motion, from leap seconds and an Earth orientation table (embedded or newer)
//! or a given UT1 - UTC.

use std::sync::Arc;

use sofars::cal::jd2cal;
use sofars::ts::dat;

use crate::error::{Error, Result};
use crate::units::{Epoch, SECONDS_PER_DAY};

/// Julian date of the modified Julian day 0.
pub(super) const MJD_ZERO: f64 = 2_400_000.5;

/// 1972 January 1 (MJD): since then, UTC differs from TAI by whole seconds; first day of the table.
const FIRST_DAY: i64 = 41_317;

/// 2100 January 1: end of the interval to which SOFA's theories of the Earth's motion are fitted.
const LAST_DAY: i64 = 88_069;

/// TT - TAI in seconds.
const TT_TAI_S: f64 = 32.184;

/// Time in TAI, which has no leap seconds; the seconds of the day are unbounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tai {
    day: i64,
    seconds: f64,
}

impl Tai {
    /// Creates a time from a day (MJD) and seconds of TAI.
    pub(super) fn new(day: i64, seconds: f64) -> Self {
        Self { day, seconds }
    }

    /// Converts from UTC; a leap second is 86400 to 86401 s of its day.
    pub(super) fn from_utc(epoch: &Epoch) -> Result<Self> {
        if !epoch.seconds.is_finite() {
            return Err(Error::parameter(
                "time (s of the day)",
                epoch.seconds,
                "it must be finite",
            ));
        }
        Ok(Self { day: epoch.day, seconds: epoch.seconds + tai_utc_s(epoch.day)? })
    }

    /// Converts to UTC.
    pub(super) fn utc(&self) -> Result<Epoch> {
        if !self.seconds.is_finite() {
            return Err(Error::parameter("time (s of the day)", self.seconds, "it must be finite"));
        }
        let days = (self.seconds / SECONDS_PER_DAY).floor();
        let day = self.day.saturating_add(days as i64);
        let seconds = self.seconds - days * SECONDS_PER_DAY;
        let offset = tai_utc_s(day)?;
        if seconds >= offset {
            return Ok(Epoch { day, seconds: seconds - offset });
        }
        let before = tai_utc_s(day - 1)?;
        Ok(Epoch { day: day - 1, seconds: seconds + SECONDS_PER_DAY - before })
    }

    pub(super) fn plus_s(&self, seconds: f64) -> Self {
        Self { day: self.day, seconds: self.seconds + seconds }
    }

    /// Returns the elapsed seconds from this time to 0 h UTC of a day.
    pub(super) fn seconds_to_day(&self, day: i64) -> Result<f64> {
        let days = day.saturating_sub(self.day) as f64;
        Ok(days * SECONDS_PER_DAY + tai_utc_s(day)? - self.seconds)
    }

    /// Returns the Julian date, as the two-part sum SOFA expects, of a clock that is `ahead_s` ahead of TAI.
    pub(super) fn julian(&self, ahead_s: f64) -> (f64, f64) {
        (MJD_ZERO + self.day as f64, (self.seconds + ahead_s) / SECONDS_PER_DAY)
    }

    /// Returns the Julian date in TT.
    pub(super) fn terrestrial(&self) -> (f64, f64) {
        self.julian(TT_TAI_S)
    }

    /// Returns the modified Julian date in TAI, to better than a microsecond.
    pub(super) fn mjd(&self) -> f64 {
        self.day as f64 + self.seconds / SECONDS_PER_DAY
    }
}

/// First day (MJD) on which a leap second unknown to [`tai_utc_s`] is possible: 2027 June 28.
///
/// # Source
/// IERS, leap-seconds.list after Bulletin C 72, as the time zone database 2026f has it.
pub const LEAP_SECONDS_END_MJD: i64 = 61_584;

/// Returns TAI - UTC in seconds on a UTC day (MJD).
///
/// # Errors
/// [`Error::Parameter`] for a day before 1972 or after 2099.
/// # Source
/// SOFA's `dat`: the IERS's leap seconds, the last at the end of 2016.
pub fn tai_utc_s(day: i64) -> Result<f64> {
    let refused = || {
        let rule = format!("it must lie in the years 1972 to 2099 (MJD {FIRST_DAY} to {LAST_DAY})");
        Error::parameter("time (MJD)", day, rule)
    };
    if !(FIRST_DAY..LAST_DAY).contains(&day) {
        return Err(refused());
    }
    let (year, month, day_of_month, _) = jd2cal(MJD_ZERO, day as f64).map_err(|_| refused())?;
    dat(year, month, day_of_month, 0.0).map_err(|_| refused())
}

/// Returns the length of a UTC day in seconds: 86400, or 86401 if it ends with a leap second.
///
/// # Errors
/// As [`tai_utc_s`].
pub fn day_length_s(day: i64) -> Result<f64> {
    Ok(SECONDS_PER_DAY + tai_utc_s(day + 1)? - tai_utc_s(day)?)
}

/// Returns the UTC `seconds` of elapsed time later, leap seconds included: 2 s after 23:59:59 is 00:00:00 on a day
/// that ends with a leap second. During the leap second, the seconds of the day are 86400 to 86401.
///
/// # Errors
/// As [`tai_utc_s`].
pub fn plus_elapsed_s(epoch: &Epoch, seconds: f64) -> Result<Epoch> {
    Tai::from_utc(epoch)?.plus_s(seconds).utc()
}

/// Converts a time that is written in TAI to UTC.
///
/// # Errors
/// As [`tai_utc_s`].
pub fn utc_of_tai(tai: &Epoch) -> Result<Epoch> {
    Tai::new(tai.day, tai.seconds).utc()
}

/// Returns the elapsed seconds between two UTC times, leap seconds included: the inverse of [`plus_elapsed_s`].
///
/// # Errors
/// As [`tai_utc_s`], for times on different days.
pub fn elapsed_s(earlier: &Epoch, later: &Epoch) -> Result<f64> {
    let leaps = if earlier.day == later.day {
        0.0
    } else {
        tai_utc_s(later.day)? - tai_utc_s(earlier.day)?
    };
    Ok(later.seconds_since(earlier) + leaps)
}

/// Table made by `examples/earth_orientation.py`: a line of text, then for each day UT1 - TAI in 0.1 us (i32) and the
/// pole's x and y in 20 microarcseconds (i16), little endian.
///
/// # Source
/// IERS, EOP 20 C04 and finals2000A; the line of text has the date.
const TABLE: &[u8] = include_bytes!("earth_orientation.bin");

const DAY_BYTES: usize = 8;
const UT1_UNIT_S: f64 = 1e-7;
const POLE_UNIT_RAD: f64 = 20e-6 / 3600.0 * (std::f64::consts::PI / 180.0);

/// Largest accepted change of UT1 - TAI within a day, in seconds; every year on record is below 4 ms.
const MAX_STEP_S: f64 = 0.02;

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
    /// A given value in seconds. The pole comes from the embedded table.
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
    /// Creates a table of consecutive days from `first` (MJD, UTC); `about` describes its source.
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
        let jump = days.windows(2).position(|pair| (pair[1][0] - pair[0][0]).abs() > MAX_STEP_S);
        if let Some(index) = jump {
            let rule = format!(
                "UT1 - TAI changes by {:.3} s on this day, at most {MAX_STEP_S} s are possible: the table is \
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
        let (before, after) = (self.day(utc.day), self.day(utc.day + 1));
        let part = utc.seconds / day_length_s(utc.day)?;
        let [mut ut1_tai_s, x, y] =
            std::array::from_fn(|k| before[k] + part * (after[k] - before[k]));
        if let Self::Given(seconds) = *self {
            if !seconds.is_finite() || seconds.abs() > 1.0 {
                let rule = "UT1 - UTC never exceeds 1 s";
                return Err(Error::parameter("dut1_s", seconds, rule));
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
    fn leap_seconds_are_counted() {
        assert_eq!(tai_utc_s(57753).unwrap(), 36.0);
        assert_eq!(tai_utc_s(57754).unwrap(), 37.0);
        assert_eq!(tai_utc_s(51178).unwrap(), 31.0);
        assert_eq!(tai_utc_s(51179).unwrap(), 32.0);
        assert_eq!(tai_utc_s(41317).unwrap(), 10.0);
        let before = Epoch::new(57753, 86399.0);
        let after = |seconds| plus_elapsed_s(&before, seconds).unwrap();
        assert_eq!(after(1.5), Epoch { day: 57753, seconds: 86400.5 });
        assert_eq!(after(2.0), Epoch::new(57754, 0.0));
        assert_eq!(after(2.0 + 86400.0), Epoch::new(57755, 0.0));
        assert_eq!(plus_elapsed_s(&Epoch::new(57755, 0.0), -86402.0).unwrap(), before);
        for seconds in [0.25, 1.5, 2.0, 86402.0, 1e7, -86402.0] {
            assert_eq!(elapsed_s(&before, &after(seconds)).unwrap(), seconds);
            assert_eq!(elapsed_s(&after(seconds), &before).unwrap(), -seconds);
        }
        assert!(elapsed_s(&before, &Epoch::new(99_999, 0.0)).is_err());
        assert_eq!(
            plus_elapsed_s(&Epoch::new(57755, 0.0), -1.0).unwrap(),
            Epoch::new(57754, 86399.0)
        );
    }

    #[test]
    fn days_outside_are_refused() {
        for day in [0, 41_316, 88_069, i64::MAX, i64::MIN] {
            assert!(tai_utc_s(day).unwrap_err().to_string().contains("1972 to 2099"), "{day}");
        }
        assert!(plus_elapsed_s(&Epoch::new(60000, 0.0), f64::NAN).is_err());
        assert!(plus_elapsed_s(&Epoch::new(60000, 0.0), 1e300).is_err());
    }

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
