//! Parsers of sky positions from the command line.

/// Right ascension and declination in degrees (J2000).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Position {
    pub(crate) ra_deg: f64,
    pub(crate) dec_deg: f64,
}

/// Parses `RA,DEC`: in degrees (`83.633,22.0145`), or as `05:34:31.9,22:00:52` or `5h34m31.9s,22d0m52s`, where the
/// right ascension is in hours.
pub(crate) fn parse_position(words: &str) -> Result<Position, String> {
    let usage = "write it as RA,DEC: in degrees, such as 83.633,22.0145, or as 05:34:31.9,22:00:52";
    let (ra, dec) = words.split_once(',').ok_or(usage)?;
    let hours = ra.contains([':', 'h']);
    let ra_deg = angle(ra).ok_or_else(|| format!("\"{ra}\" is no right ascension; {usage}"))?;
    let ra_deg = if hours { 15.0 * ra_deg } else { ra_deg };
    let dec_deg = angle(dec).ok_or_else(|| format!("\"{dec}\" is no declination; {usage}"))?;
    if !(0.0..=360.0).contains(&ra_deg) {
        return Err(format!("the right ascension is {ra_deg} degrees, expected 0 to 360"));
    }
    if !(-90.0..=90.0).contains(&dec_deg) {
        return Err(format!("the declination is {dec_deg} degrees, expected -90 to 90"));
    }
    Ok(Position { ra_deg, dec_deg })
}

/// Parses a number, or up to three sexagesimal fields.
fn angle(words: &str) -> Option<f64> {
    let words = words.trim();
    let negative = words.starts_with('-');
    let body = words.strip_prefix(['-', '+']).unwrap_or(words);
    let body = body.strip_suffix('s').unwrap_or(body);
    let mut value = 0.0;
    let mut unit = 1.0;
    for (place, part) in body.split([':', 'h', 'd', 'm']).enumerate() {
        let digits = part.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let number = part.parse::<f64>().ok().filter(|n| digits && n.is_finite())?;
        if place > 2 || (place > 0 && number >= 60.0) {
            return None;
        }
        value += number * unit;
        unit /= 60.0;
    }
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_degrees_or_hours_and_degrees() {
        let crab = Position { ra_deg: 83.625, dec_deg: -22.5 };
        for words in ["83.625,-22.5", "05:34:30,-22:30:00", "5h34m30s,-22d30m0s", "5:34.5, -22:30"]
        {
            assert_eq!(parse_position(words), Ok(crab), "{words}");
        }
        assert_eq!(parse_position("0,-0:30").unwrap().dec_deg, -0.5);
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for words in [
            "",
            "83",
            "83,",
            ",22",
            "x,22",
            "83,91",
            "361,0",
            "-1,0",
            "24:00:01,0",
            "1:60,0",
            "nan,0",
            "0,inf",
            "1:2:3:4,0",
            "--1,0",
            "0,-90.0001",
            "1,2,3",
        ] {
            assert!(parse_position(words).is_err(), "{words}");
        }
    }
}
