//! UTC and elapsed time, leap seconds included.

use sofars::cal::jd2cal;
use sofars::ts::dat;

use crate::error::{Error, Result};
use crate::units::{Epoch, SECONDS_PER_DAY};

/// Julian date of the modified Julian day 0.
const MJD_ZERO: f64 = 2_400_000.5;

/// 1972 January 1: since then, UTC differs from TAI by whole seconds.
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
    /// Makes a time from a day (MJD) and seconds of TAI.
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
}
