//! Power spectral densities in files: two-column text, or `.npy`.
//!
//! Invariant: a spectrum's bins come from the file's own points, and none is NaN.
//!
//! Each line of text has a frequency in Hz and a density, separated by spaces, tabs or a comma; lines that begin with
//! `#` or `%` are comments. A `.npy` file has two axes: points of frequency and density, or two such rows. Its first
//! bytes identify it.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use super::{atomic, compressed, npy};
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;

/// Quantity of a file's densities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Density {
    /// Power spectral densities, in 1/Hz.
    #[default]
    Power,
    /// Amplitude spectral densities, in 1/sqrt(Hz): the square roots.
    Amplitude,
}

/// Maximum bytes of a file.
const MAX_BYTES: u64 = 1 << 30;

/// Maximum number of bins of a spectrum.
const MAX_BINS: f64 = (1_u64 << 26) as f64;

/// Largest deviation of a frequency from a uniform grid, in grid spacings.
const GRID_ERROR: f64 = 1e-3;

/// Reads a spectrum.
///
/// Points on a uniform grid that begins at 0 Hz are used unchanged. Other points are resampled to a grid with the
/// smallest spacing between two points (but at most 2^20 bins), linearly in the logarithms of frequency and density.
/// Outside their range the density is unknown and set to infinity. A density of 0, which some programs write for
/// "unknown", also becomes infinity.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] with line and column for an invalid number, a frequency below 0 or not above the
/// one before it, a density below 0 or NaN, or fewer than 2 points.
pub fn read(path: &Path, density: Density) -> Result<PowerSpectrum> {
    let mut bytes = Vec::new();
    compressed::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::io(path, error))?;
    if bytes.len() as u64 > MAX_BYTES {
        let why = format!("found more than {MAX_BYTES} bytes, expected a power spectrum");
        return Err(Error::format(path, "size", MAX_BYTES, why));
    }
    let points = if bytes.starts_with(b"\x93NUMPY") {
        from_array(path, &npy::read(path)?)?
    } else {
        match std::str::from_utf8(&bytes) {
            Ok(text) => parse(text, path)?,
            Err(error) => {
                let why = "found bytes that are not text, expected two columns of text or .npy";
                return Err(Error::format(path, "text", error.valid_up_to() as u64, why));
            }
        }
    };
    let powers = points.iter().map(|point| match density {
        Density::Power => (point.hertz, point.density),
        Density::Amplitude => (point.hertz, point.density * point.density),
    });
    // A power of 0, also after underflow, means unknown.
    let known = |value: f64| if value > 0.0 { value } else { f64::INFINITY };
    let powers: Vec<(f64, f64)> = powers.map(|(hertz, value)| (hertz, known(value))).collect();
    spectrum(path, &powers)
}

/// Writes a spectrum as text: a comment, then each bin's frequency and density.
///
/// # Errors
/// [`Error::Io`].
pub fn write(path: &Path, spectrum: &PowerSpectrum, density: Density) -> Result<()> {
    let unit = match density {
        Density::Power => "1/Hz",
        Density::Amplitude => "1/sqrt(Hz)",
    };
    let mut text = format!("# frequency (Hz), one-sided spectral density ({unit})\n");
    for (bin, power) in spectrum.densities().iter().enumerate() {
        let value = match density {
            Density::Power => *power,
            Density::Amplitude => power.sqrt(),
        };
        let _ = writeln!(text, "{} {value:e}", bin as f64 * spectrum.spacing_hz());
    }
    atomic::write(path, text.as_bytes())
}

/// A line of a file, or a row of an array.
struct Point {
    hertz: f64,
    density: f64,
}

impl Point {
    /// Checks a point against the one before; returns the faulty column and the reason.
    fn fault(&self, before: Option<f64>) -> Option<(&'static str, String)> {
        let Self { hertz, density } = *self;
        if !(hertz.is_finite() && hertz >= 0.0) {
            return Some(("frequency", format!("found {hertz}, expected 0 Hz or more")));
        }
        if let Some(before) = before.filter(|before| hertz <= *before) {
            return Some((
                "frequency",
                format!("found {hertz} after {before}, expected a higher frequency"),
            ));
        }
        if density.is_nan() || density < 0.0 {
            return Some(("density", format!("found {density}, expected 0 or more")));
        }
        None
    }
}

fn parse(text: &str, path: &Path) -> Result<Vec<Point>> {
    let mut points: Vec<Point> = Vec::new();
    let mut at = 0;
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        let line = whole.trim();
        let fault = |column: &str, why: String| {
            Error::format(path, format!("line {}, {column}", index + 1), at, why)
        };
        if !line.is_empty() && !line.starts_with(['#', '%']) {
            let split = line.split(|letter: char| letter == ',' || letter.is_whitespace());
            let words: Vec<&str> = split.filter(|word| !word.is_empty()).collect();
            let &[hertz, density] = words.as_slice() else {
                let why = format!("found {} columns, expected frequency and density", words.len());
                return Err(fault("columns", why));
            };
            let number = |column: &str, word: &str| {
                let short: String = word.chars().take(40).collect();
                let why = format!("found {short:?}, expected a number");
                word.parse::<f64>().map_err(|_| fault(column, why))
            };
            let point =
                Point { hertz: number("frequency", hertz)?, density: number("density", density)? };
            if let Some((column, why)) = point.fault(points.last().map(|before| before.hertz)) {
                return Err(fault(column, why));
            }
            points.push(point);
        }
        at += whole.len() as u64;
    }
    Ok(points)
}

fn from_array(path: &Path, array: &npy::Array) -> Result<Vec<Point>> {
    let values = &array.values;
    let point = |hertz: f64, density: f64| Point { hertz, density };
    let points: Vec<Point> = match array.shape[..] {
        [_, 2] => values.chunks_exact(2).map(|pair| point(pair[0], pair[1])).collect(),
        [2, length] => (0..length).map(|at| point(values[at], values[at + length])).collect(),
        _ => {
            let why = format!("found {:?}, expected two columns or two rows", array.shape);
            return Err(Error::format(path, "shape", 0, why));
        }
    };
    let mut before = None;
    for (row, point) in points.iter().enumerate() {
        if let Some((column, why)) = point.fault(before) {
            return Err(Error::format(path, format!("row {row}, {column}"), 0, why));
        }
        before = Some(point.hertz);
    }
    Ok(points)
}

/// Makes a spectrum from points of ascending frequency.
fn spectrum(path: &Path, points: &[(f64, f64)]) -> Result<PowerSpectrum> {
    let fault = |why: String| Error::format(path, "points", 0, why);
    let [(first, _), .., (last, _)] = *points else {
        return Err(fault(format!("found {}, expected 2 at least", points.len())));
    };
    let steps = (points.len() - 1) as f64;
    let mean = (last - first) / steps;
    let on_grid = |(index, (hertz, _)): (usize, &(f64, f64))| {
        (hertz - index as f64 * mean).abs() <= GRID_ERROR * mean
    };
    if points.iter().enumerate().all(on_grid) {
        return PowerSpectrum::new(mean, points.iter().map(|(_, power)| *power).collect());
    }
    let closest = points.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(f64::MAX, f64::min);
    let spacing_hz = closest.max(last / FINEST_BINS);
    let bins = (last / spacing_hz).floor() + 1.0;
    if !(2.0..=MAX_BINS).contains(&bins) {
        return Err(fault(format!("they make {bins} bins, expected 2 to {MAX_BINS}")));
    }
    let at = |bin: usize| between(points, bin as f64 * spacing_hz);
    PowerSpectrum::new(spacing_hz, (0..bins as usize).map(at).collect())
}

/// Maximum number of bins for resampled points.
const FINEST_BINS: f64 = (1_u64 << 20) as f64;

/// Interpolates the density at a frequency; infinite outside the points' range.
fn between(points: &[(f64, f64)], hertz: f64) -> f64 {
    let above = points.partition_point(|(at, _)| *at < hertz);
    let Some(&(high_hz, high)) = points.get(above) else { return f64::INFINITY };
    if high_hz == hertz {
        return high;
    }
    let Some(&(low_hz, low)) = above.checked_sub(1).and_then(|below| points.get(below)) else {
        return f64::INFINITY;
    };
    if low.is_infinite() || high.is_infinite() {
        return f64::INFINITY;
    }
    // Interpolate linearly in frequency next to 0 Hz, whose logarithm is infinite.
    let part = match low_hz > 0.0 {
        true => (hertz / low_hz).ln() / (high_hz / low_hz).ln(),
        false => hertz / high_hz,
    };
    (low.ln() * (1.0 - part) + high.ln() * part).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str, density: Density) -> std::result::Result<PowerSpectrum, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("psd.txt");
        std::fs::write(&path, text).unwrap();
        read(&path, density).map_err(|error| error.to_string())
    }

    #[test]
    fn uniform_grids_are_taken_as_they_are() {
        let text = "# a remark\n0 0\n0.25,4e-46\r\n% another\n0.5\t1e-46\n";
        let spectrum = read_text(text, Density::Power).unwrap();
        assert_eq!(spectrum.spacing_hz(), 0.25);
        assert_eq!(spectrum.densities(), [f64::INFINITY, 4e-46, 1e-46]);
        let spectrum = read_text("0 2e-23\n1 3e-23\n", Density::Amplitude).unwrap();
        assert!((spectrum.at(1.0) / 9e-46 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn other_points_are_brought_onto_a_grid() {
        let spectrum = read_text("10 1e-44\n20 4e-44\n40 1.6e-43\n", Density::Power).unwrap();
        assert_eq!((spectrum.spacing_hz(), spectrum.densities().len()), (10.0, 5));
        assert_eq!(spectrum.densities()[0], f64::INFINITY);
        assert!((spectrum.at(30.0) / 9e-44 - 1.0).abs() < 1e-9, "{}", spectrum.at(30.0));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("psd.txt");
        let made = PowerSpectrum::new(0.125, vec![f64::INFINITY, 1.25e-45, 3e-46]).unwrap();
        write(&path, &made, Density::Power).unwrap();
        assert_eq!(read(&path, Density::Power).unwrap(), made);
        write(&path, &made, Density::Amplitude).unwrap();
        let read = read(&path, Density::Amplitude).unwrap();
        assert!((read.at(0.25) / 3e-46 - 1.0).abs() < 1e-14);
    }

    #[test]
    fn faults_name_line_and_column() {
        let faults = [
            ("", "found 0, expected 2"),
            ("1 2\n", "found 1, expected 2"),
            ("1 2\n1 3\n", "line 2, frequency"),
            ("-1 2\n1 3\n", "line 1, frequency"),
            ("1 2\nnan 3\n", "line 2, frequency"),
            ("1 2\n2 nan\n", "line 2, density"),
            ("1 2\n2 -1\n", "line 2, density"),
            ("1 2\n2 x\n", "line 2, density"),
            ("1 2\n2 3 4\n", "line 2, columns"),
        ];
        for (text, named) in faults {
            let error = read_text(text, Density::Power).unwrap_err();
            assert!(error.contains(named), "{text:?}: {error}");
        }
    }
}
