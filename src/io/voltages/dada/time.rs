//! Start time of a PSRDADA recording: UTC_START, MJD_START or both.

use crate::error::Result;
use crate::io::voltages::fields::Fields;
use crate::units::{Epoch, SECONDS_PER_DAY};

/// The modified Julian day of 1 January 1970.
const UNIX_DAY: i64 = 40587;

/// Returns the start of the observation, before OBS_OFFSET.
///
/// MJD_START takes precedence, unless UTC_START is a whole second and equals MJD_START within its printed digits;
/// then that second is exact. PICOSECONDS are added.
///
/// # Errors
/// [`crate::Error::Format`] for an invalid date.
pub(super) fn start(header: &Fields) -> Result<Option<Epoch>> {
    let utc = match header.text("UTC_START") {
        Some(text) => Some(parse_utc(text).ok_or_else(|| {
            let why = format!("found {text:?}, expected a date such as 2013-07-02-01:37:40");
            header.fault("UTC_START", why)
        })?),
        None => None,
    };
    let mjd = match header.text("MJD_START") {
        Some(text) => parse_mjd(text).ok_or_else(|| {
            let why = format!("found {text:?}, expected a modified Julian date");
            header.fault("MJD_START", why)
        })?,
        None => None,
    };
    let picoseconds = header.number("PICOSECONDS")?.unwrap_or(0.0);
    let start = match (utc, mjd) {
        (Some(utc), Some((mjd, resolution))) => {
            let same = mjd.seconds_since(&utc).abs() <= resolution;
            Some(if same && utc.seconds.fract() == 0.0 { utc } else { mjd })
        }
        (utc, mjd) => utc.or(mjd.map(|(mjd, _)| mjd)),
    };
    Ok(start.map(|start| start.plus_s(picoseconds.clamp(0.0, 1e12) * 1e-12)))
}

/// Parses UTC from `yyyy-mm-dd-hh:mm:ss.fff`, also with `T` or a space before the hour and with a trailing `Z`;
/// `None` for an invalid date.
pub fn parse_utc(text: &str) -> Option<Epoch> {
    let (date, time) = (text.get(..10)?, text.get(11..)?);
    if !text[10..].starts_with(['-', 'T', ' ']) {
        return None;
    }
    let mut parts = date.split('-').map(|part| part.parse::<u32>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || !(1900..=9999).contains(&year) {
        return None;
    }
    let days = [31, 28 + u32::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if day == 0 || day > *days.get(month.checked_sub(1)? as usize)? {
        return None;
    }
    let mut parts = time.trim_end_matches('Z').split(':');
    let (hours, minutes) = (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u32>().ok()?);
    let seconds = parts.next()?.parse::<f64>().ok()?;
    // 60 to 61 is a leap second.
    if parts.next().is_some() || hours > 23 || minutes > 59 || !(0.0..61.0).contains(&seconds) {
        return None;
    }
    let seconds = f64::from(hours * 3600 + minutes * 60) + seconds;
    Some(Epoch::new(day_number(year, month, day), seconds))
}

/// Parses an MJD and returns it with the resolution of its last digit in seconds; the inner value is `None` for 0.
fn parse_mjd(text: &str) -> Option<Option<(Epoch, f64)>> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let day: i64 = whole.parse().ok()?;
    if !(0..10_000_000).contains(&day) || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part: f64 = format!("0.{fraction}").parse().ok()?;
    let digits = i32::try_from(fraction.len()).unwrap_or(i32::MAX).min(300);
    // An `f64` of this size resolves about 1e-11 s.
    let resolution = (SECONDS_PER_DAY * 10f64.powi(-digits)).max(1e-10);
    let known = day > 0 || part > 0.0;
    Some(known.then(|| (Epoch::new(day, part * SECONDS_PER_DAY), resolution)))
}

fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Returns the modified Julian day of a Gregorian date.
fn day_number(year: u32, month: u32, day: u32) -> i64 {
    // Start years in March, so that the leap day is the last day of the year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    // Days from 1 March of year 0 to 1 January 1970: 719468.
    i64::from(days) - 719_468 + UNIX_DAY
}

/// Returns the Gregorian date of a modified Julian day.
fn date(day: i64) -> (i64, i64, i64) {
    let days = day - UNIX_DAY + 719_468;
    let (cycle, rest) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (rest - rest / 1460 + rest / 36_524 - rest / 146_096) / 365;
    let days = rest - (365 * year + year / 4 - year / 100);
    let month = (5 * days + 2) / 153;
    let day = days - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + 400 * cycle + next, month, day)
}

/// Formats UTC_START and MJD_START, to better than a nanosecond.
pub fn format_start(start: &Epoch) -> (String, String) {
    // Round to nanoseconds, so that a start of whole nanoseconds is written exactly.
    let nanoseconds = (start.seconds * 1e9).round() as i64;
    let (year, month, day) = date(start.day + nanoseconds / 86_400_000_000_000);
    let nanoseconds = nanoseconds % 86_400_000_000_000;
    let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    let fraction = if rest == 0 { String::new() } else { format!(".{rest:09}") };
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let part = format!("{:.18}", (start.seconds / SECONDS_PER_DAY).min(1.0 - f64::EPSILON));
    let utc = format!("{year:04}-{month:02}-{day:02}-{clock}{fraction}");
    (utc, format!("{}{}", start.day, part.trim_start_matches('0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_the_calendar_has_them() {
        for (text, day) in [
            ("1970-01-01-00:00:00", 40587),
            ("2000-02-29-00:00:00", 51603),
            ("2013-07-02-01:37:40", 56475),
            ("1900-03-01-00:00:00", 15079),
            ("2026-12-31T23:59:59.5Z", 61405),
        ] {
            let epoch = parse_utc(text).unwrap();
            assert_eq!(epoch.day, day, "{text}");
            let (year, month, day) = date(epoch.day);
            assert_eq!(format!("{year:04}-{month:02}-{day:02}"), text[..10]);
        }
        for wrong in [
            "2013-02-29-00:00:00",
            "2013-13-01-00:00:00",
            "2013-00-01-00:00:00",
            "",
            "2013-07-02",
            "2013-07-02-24:00:00",
            "2013-07-02-00:60:00",
            "2013-07-02-00:00:61",
            "2013-07-02-00:00",
            "2013-07-02_00:00:00",
            "2013-07-02-00:00:nan",
            "2013-07-02-\u{e9}0:00:00",
            "1-1-1-1:1:1",
        ] {
            assert_eq!(parse_utc(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn moments_go_round() {
        for (day, seconds) in
            [(56475, 5860.0), (59596, 22_670.998_315), (60000, 86_399.999_999_999_9)]
        {
            let epoch = Epoch::new(day, seconds);
            let (utc, mjd) = format_start(&epoch);
            let (again, _) = parse_mjd(&mjd).unwrap().unwrap();
            assert!(again.seconds_since(&epoch).abs() < 1e-10, "{mjd}");
            assert!(parse_utc(&utc).unwrap().seconds_since(&epoch).abs() < 1e-9, "{utc}");
        }
        assert_eq!(format_start(&Epoch::new(56475, 5860.0)).0, "2013-07-02-01:37:40");
        assert_eq!(parse_mjd("0"), Some(None));
        for wrong in ["", "x", "-1.5", "1.5.5", "56475.x", "99999999999"] {
            assert_eq!(parse_mjd(wrong), None, "{wrong}");
        }
    }
}
