//! Parsing and formatting of the values in a `.inf` file.

/// PRESTO stores texts in 100 bytes.
const MAX_TEXT: usize = 90;

/// Parses a finite number.
pub(super) fn number(value: &str) -> std::result::Result<f64, String> {
    match value.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(format!("found {value:?}, expected a number")),
    }
}

/// Parses a non-negative integer.
pub(super) fn count(value: &str) -> std::result::Result<u64, String> {
    // Older writers format counts as floats: 131072.0.
    let whole = value.trim().trim_end_matches('0').trim_end_matches('.');
    let exact = value.trim().parse::<u64>().ok();
    exact
        .or_else(|| value.contains('.').then(|| whole.parse().ok()).flatten())
        .ok_or_else(|| format!("found {value:?}, expected a whole number"))
}

/// Formats one line of at most [`MAX_TEXT`] bytes, `Unknown` if empty, because PRESTO stops at an empty value.
pub(super) fn text(value: &str) -> String {
    let line = value.lines().next().unwrap_or_default().trim();
    let line = crate::io::printable(line);
    let mut end = line.len().min(MAX_TEXT);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    if end == 0 { "Unknown".into() } else { line[..end].into() }
}

/// Formats twelve significant digits without trailing zeros, as PRESTO writes frequencies.
pub(super) fn digits12(value: f64) -> String {
    let rounded: f64 = format!("{value:.11e}").parse().unwrap_or(value);
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_be_written_as_floats() {
        assert_eq!(count("1310.0"), Ok(1310));
        assert_eq!(count("1310"), Ok(1310));
        assert!(count("13.5").is_err() && count("").is_err() && count(".").is_err());
    }
}
