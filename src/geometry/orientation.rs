//! UT1 and the pole: the IERS's table, embedded, or a number that is given.

use super::time::{Tai, tai_utc_s};
use crate::error::{Error, Result};
use crate::units::{Epoch, SECONDS_PER_DAY};

/// Made by `examples/earth_orientation.py`: a line of text, then for each day UT1 - TAI in 0.1 us (i32)
/// and the pole's x and y in 20 microarcseconds (i16), little endian.
///
/// # Source
/// IERS, EOP 20 C04 and finals2000A; the line of text says its day.
const TABLE: &[u8] = include_bytes!("earth_orientation.bin");

/// The first day of the table (MJD, UTC).
const FIRST_DAY: i64 = 41_317;

const DAY_BYTES: usize = 8;
const UT1_UNIT_S: f64 = 1e-7;
const POLE_UNIT_RAD: f64 = 20e-6 / 3600.0 * (std::f64::consts::PI / 180.0);

/// Where UT1 - UTC comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Dut1 {
    /// The embedded table of the IERS.
    #[default]
    Table,
    /// A number of seconds: `--dut1`. The pole still comes from the table; outside it x = y = 0.
    Given(f64),
}

/// How the Earth stands at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Orientation {
    /// UT1 - TAI in seconds.
    pub(super) ut1_tai_s: f64,
    /// The pole's x and y in radians.
    pub(super) pole: [f64; 2],
}

/// What the embedded table is: its source, its day, and where its predictions begin.
pub fn orientation_table() -> &'static str {
    let line = TABLE.split(|byte| *byte == b'\n').next().unwrap_or_default();
    str::from_utf8(line).unwrap_or_default()
}

impl Dut1 {
    /// UT1 - UTC in seconds.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a moment outside the table, for a given number beyond 1 s, and as
    /// [`tai_utc_s`].
    /// # Numerics
    /// Between the days of the table UT1 - TAI is linear: within 0.05 ms of a curve through four days.
    pub fn at(&self, epoch: Epoch) -> Result<f64> {
        let orientation = self.orientation(&Tai::from_utc(&epoch)?)?;
        Ok(orientation.ut1_tai_s + tai_utc_s(epoch.day)?)
    }

    /// UT1 - TAI in seconds by the table; after its end what it was on its last day, before its beginning what
    /// it was on its first.
    pub(super) fn ut1_tai_or_last_s(moment: &Tai) -> f64 {
        let nearest = || {
            let rows = rows();
            let row = if moment.mjd() < FIRST_DAY as f64 { rows.first() } else { rows.last() };
            row.map_or(0.0, |row| values(row)[0])
        };
        Self::Table.orientation(moment).map_or_else(|_| nearest(), |found| found.ut1_tai_s)
    }

    pub(super) fn orientation(&self, moment: &Tai) -> Result<Orientation> {
        match *self {
            Self::Table => tabulated(moment)?.ok_or_else(|| outside(moment)),
            Self::Given(seconds) => {
                if !seconds.is_finite() || seconds.abs() > 1.0 {
                    let rule = "UT1 - UTC never exceeds 1 s";
                    return Err(Error::parameter("--dut1 (s)", seconds, rule));
                }
                let pole = tabulated(moment)?.map_or([0.0; 2], |found| found.pole);
                let ut1_tai_s = seconds - tai_utc_s(moment.utc()?.day)?;
                Ok(Orientation { ut1_tai_s, pole })
            }
        }
    }
}

fn outside(moment: &Tai) -> Error {
    let last = FIRST_DAY + rows().len() as i64 - 1;
    let rule = format!(
        "the table of UT1 - UTC reaches from MJD {FIRST_DAY} to {last}: give UT1 - UTC with --dut1"
    );
    Error::parameter("time (MJD)", moment.mjd(), rule)
}

/// The table's days.
fn rows() -> &'static [[u8; DAY_BYTES]] {
    TABLE[orientation_table().len() + 1..].as_chunks().0
}

/// The table at a moment, or `None` outside it.
fn tabulated(moment: &Tai) -> Result<Option<Orientation>> {
    let utc = moment.utc()?;
    let length_s = SECONDS_PER_DAY + tai_utc_s(utc.day + 1)? - tai_utc_s(utc.day)?;
    let index = usize::try_from(utc.day - FIRST_DAY).ok();
    let Some(row) = index.and_then(|index| rows().get(index)) else { return Ok(None) };
    let (before, part) = (values(row), utc.seconds / length_s);
    let after = match index.and_then(|index| rows().get(index + 1)) {
        Some(row) => values(row),
        // The table ends with the beginning of its last day.
        None if part == 0.0 => before,
        None => return Ok(None),
    };
    let [ut1_tai_s, x, y] = std::array::from_fn(|k| before[k] + part * (after[k] - before[k]));
    Ok(Some(Orientation { ut1_tai_s, pole: [x, y] }))
}

/// UT1 - TAI in s, and the pole in radians.
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
        let last = FIRST_DAY + rows().len() as i64 - 1;
        let days = format!("MJD {FIRST_DAY} to {last}");
        assert!(orientation_table().starts_with("IERS C04 (to MJD "));
        assert!(orientation_table().contains(&days), "{}", orientation_table());
        assert_eq!((TABLE.len() - orientation_table().len() - 1) % DAY_BYTES, 0);
    }

    #[test]
    fn published_days_are_met() {
        // IERS EOP 20 C04 at 0 h, among them the days round a leap second.
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
    fn outside_the_table_the_option_is_named() {
        let last = FIRST_DAY + rows().len() as i64 - 1;
        assert!(Dut1::Table.at(Epoch::new(last, 0.0)).is_ok());
        for day in [last, last + 1, 80_000] {
            let error = Dut1::Table.at(Epoch::new(day, 1.0)).unwrap_err().to_string();
            assert!(error.contains("--dut1") && error.contains("MJD 41317 to 6"), "{error}");
            assert_eq!(Dut1::Given(0.25).at(Epoch::new(day, 1.0)).unwrap(), 0.25);
        }
        assert!(Dut1::Given(1.5).at(Epoch::new(60000, 0.0)).is_err());
        assert!(Dut1::Given(f64::NAN).at(Epoch::new(60000, 0.0)).is_err());
    }
}
