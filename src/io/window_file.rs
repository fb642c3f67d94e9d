//! Prototype filters from files: text with one number per line, or a one-dimensional `.npy` array.

use std::fs;
use std::path::Path;

use super::npy;
use crate::error::{Error, Result};
use crate::math::Window;

/// Magic bytes of `.npy`.
const NPY_MAGIC: &[u8] = b"\x93NUMPY";

/// Bound on the largest coefficient and on its inverse, so that powers of 16-bit samples stay within single
/// precision.
const LARGEST: f64 = 1e9;

/// Reads the coefficients of a filter bank of `taps` rows of `points`, in the order of their use: coefficient `t
/// points + c` weighs sample `c` of row `t`, the oldest row first.
///
/// In text, `#` starts a comment, and empty lines are ignored.
///
/// # Errors
/// [`Error::Format`], naming the line for text, for an invalid or non-finite number, a count of coefficients other
/// than `taps x points`, only zeros, or a largest coefficient outside 1e-9 to 1e9; [`Error::Io`].
pub fn read_window(path: &Path, taps: usize, points: usize) -> Result<Window> {
    let bytes = fs::read(path).map_err(|error| Error::io(path, error))?;
    let coefficients =
        if bytes.starts_with(NPY_MAGIC) { array(path)? } else { text(path, &bytes)? };
    if coefficients.len() != taps.saturating_mul(points) {
        let why = format!(
            "found {} coefficients, expected {} ({taps} taps x {points} points)",
            coefficients.len(),
            taps.saturating_mul(points)
        );
        return Err(Error::format(path, "window", 0, why));
    }
    if coefficients.iter().all(|coefficient| *coefficient == 0.0) {
        let why = "found zeros only, expected one coefficient at least that is not 0";
        return Err(Error::format(path, "window", 0, why));
    }
    let largest = coefficients.iter().fold(0.0, |largest: f64, one| largest.max(one.abs()));
    if !(1.0 / LARGEST..=LARGEST).contains(&largest) {
        let why = format!("found {largest:e} as the largest coefficient, expected 1e-9 to 1e9");
        return Err(Error::format(path, "window", 0, why));
    }
    Ok(Window::Custom(coefficients))
}

fn array(path: &Path) -> Result<Vec<f64>> {
    let array = npy::read(path)?;
    if array.shape.len() != 1 {
        let why = format!("found the shape {:?}, expected one axis", array.shape);
        return Err(Error::format(path, "shape", 0, why));
    }
    if let Some(index) = array.values.iter().position(|value| !value.is_finite()) {
        let why = format!("found {}, expected a finite number", array.values[index]);
        return Err(Error::format(path, format!("element {index}"), 0, why));
    }
    Ok(array.values)
}

fn text(path: &Path, bytes: &[u8]) -> Result<Vec<f64>> {
    let mut coefficients = Vec::new();
    let mut offset = 0;
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let words = line.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
        if !words.is_empty() {
            coefficients.push(number(words).ok_or_else(|| {
                let found = String::from_utf8_lossy(&words[..words.len().min(40)]);
                let why = format!("found {found:?}, expected one finite number");
                Error::format(path, format!("line {}", index + 1), offset, why)
            })?);
        }
        offset += line.len() as u64 + 1;
    }
    Ok(coefficients)
}

fn number(words: &[u8]) -> Option<f64> {
    let value: f64 = str::from_utf8(words).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(bytes: &[u8], taps: usize, points: usize) -> std::result::Result<Vec<f64>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("window.txt");
        fs::write(&path, bytes).unwrap();
        match read_window(&path, taps, points) {
            Ok(Window::Custom(coefficients)) => Ok(coefficients),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn text_and_arrays_are_read() {
        let words = b"# two taps\r\n 0.25\r\n\n-1e-3 # the middle\n.5\n1\n";
        assert_eq!(from(words, 2, 2).unwrap(), [0.25, -1e-3, 0.5, 1.0]);
        assert_eq!(from(b"1\n2", 1, 2).unwrap(), [1.0, 2.0]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("window.npy");
        npy::write_f32(&path, &[4], &[0.5, 0.25, -1.0, 3.0]).unwrap();
        let expected = Window::Custom(vec![0.5, 0.25, -1.0, 3.0]);
        assert_eq!(read_window(&path, 2, 2).unwrap(), expected);
        npy::write_f32(&path, &[2, 2], &[0.5; 4]).unwrap();
        assert!(read_window(&path, 2, 2).unwrap_err().to_string().contains("[2, 2]"));
        npy::write_f32(&path, &[4], &[0.5, f32::NAN, 0.0, 0.0]).unwrap();
        assert!(read_window(&path, 2, 2).unwrap_err().to_string().contains("element 1"));
    }

    #[test]
    fn errors_name_file_line_and_numbers() {
        let short = from(b"1\n2\n3\n", 2, 2).unwrap_err();
        assert!(short.contains("window.txt") && short.contains("found 3"), "{short}");
        assert!(short.contains("expected 4 (2 taps x 2 points)"), "{short}");
        for words in [&b"1\n2 3\n4\n"[..], b"1\nx\n", b"1\ninf\n", b"1\nNaN\n", b"1\n\xff\xfe\n"] {
            let error = from(words, 2, 2).unwrap_err();
            assert!(error.contains("line 2") && error.contains("at byte 2"), "{error}");
        }
        assert!(from(b"0\n-0.0\n", 1, 2).unwrap_err().contains("zeros only"));
        assert!(from(b"", 1, 2).unwrap_err().contains("found 0"));
    }
}
