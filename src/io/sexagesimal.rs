//! Sexagesimal angles: `hh:mm:ss.ssss` and SIGPROC's packed `hhmmss.s`.
//!
//! Invariant: an invalid text or number gives `None`, never a wrong angle.

/// Resolution of seconds: a tenth of a microsecond.
const PARTS_PER_SECOND: f64 = 1e7;

/// Converts SIGPROC's packed `ddmmss.s` to degrees; `None` if minutes or seconds are out of range.
pub(super) fn unpack_degrees(packed: f64) -> Option<f64> {
    if !packed.is_finite() || packed.abs() > 9_995_959.999_999_9 {
        return None;
    }
    let whole = packed.abs();
    let degrees = (whole / 10_000.0).floor();
    let minutes = ((whole - degrees * 10_000.0) / 100.0).floor();
    let seconds = whole - degrees * 10_000.0 - minutes * 100.0;
    join(packed.is_sign_negative(), degrees, minutes, seconds)
}

/// Converts degrees to SIGPROC's packed `ddmmss.s` (or hours to `hhmmss.s`).
pub(super) fn pack_degrees(degrees: f64) -> f64 {
    let (negative, whole, minutes, seconds) = split(degrees);
    let packed = whole * 10_000.0 + minutes * 100.0 + seconds;
    if negative { -packed } else { packed }
}

/// Parses text such as `-08:47:43.7463` to degrees (or hours); minutes and seconds are optional.
pub(super) fn parse(text: &str) -> Option<f64> {
    let text = text.trim();
    let negative = text.starts_with('-');
    let mut parts = text.trim_start_matches(['-', '+']).splitn(3, ':').map(|part| {
        let number = part.trim().parse::<f64>().ok()?;
        (number.is_finite() && number >= 0.0).then_some(number)
    });
    let degrees = parts.next()??;
    let minutes = parts.next().unwrap_or(Some(0.0))?;
    let seconds = parts.next().unwrap_or(Some(0.0))?;
    join(negative, degrees, minutes, seconds)
}

/// Formats degrees (or hours) as `-08:47:43.7463`, with four decimals.
pub(super) fn format(degrees: f64) -> String {
    // Round first, so that 59.99996 seconds do not print as 60.0000.
    let rounded = (degrees * 3600.0 * 1e4).round() / (3600.0 * 1e4);
    let (negative, whole, minutes, seconds) = split(rounded);
    format!("{}{whole:02.0}:{minutes:02.0}:{seconds:07.4}", if negative { "-" } else { "" })
}

fn join(negative: bool, degrees: f64, minutes: f64, seconds: f64) -> Option<f64> {
    if degrees > 360.0 || minutes >= 60.0 || seconds >= 60.0 {
        return None;
    }
    let angle = degrees + minutes / 60.0 + seconds / 3600.0;
    Some(if negative { -angle } else { angle })
}

fn split(degrees: f64) -> (bool, f64, f64, f64) {
    let total = (degrees.abs() * 3600.0 * PARTS_PER_SECOND).round();
    let parts_in_minute = 60.0 * PARTS_PER_SECOND;
    let minutes = (total / parts_in_minute).floor();
    let seconds = (total - minutes * parts_in_minute) / PARTS_PER_SECOND;
    (degrees < 0.0, (minutes / 60.0).floor(), minutes % 60.0, seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_angles_keep_their_sign_and_value() {
        assert_eq!(unpack_degrees(-3015.0), Some(-(30.0 / 60.0 + 15.0 / 3600.0)));
        assert_eq!(pack_degrees(-(30.0 / 60.0 + 15.0 / 3600.0)), -3015.0);
        for packed in [53431.9, 220052.2, 0.1, 235959.9999, -84743.7463] {
            let again = pack_degrees(unpack_degrees(packed).unwrap());
            assert!((again - packed).abs() < 1e-6, "{packed} {again}");
        }
    }

    #[test]
    fn what_is_no_angle_is_none() {
        for packed in [f64::NAN, f64::INFINITY, 6000.0, 60.0, 1e300, 4_000_000.0] {
            assert_eq!(unpack_degrees(packed), None, "{packed}");
        }
        for text in ["", "x", "1:60:0", "1:2:60", "1:-2:3", "inf", "--1:2:x"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn text_goes_round() {
        assert_eq!(format(parse("-08:47:43.7463").unwrap()), "-08:47:43.7463");
        assert_eq!(format(parse("-00:00:01.5").unwrap()), "-00:00:01.5000");
        assert_eq!(format(parse("18:07:37.9999").unwrap()), "18:07:37.9999");
        assert_eq!(format(5.0 - 1e-10), "05:00:00.0000");
        assert_eq!(parse("12:30"), Some(12.5));
    }
}
