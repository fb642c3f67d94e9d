//! Validation of a file's properties against those known to the caller.
//!
//! Invariant: what a file says of itself is never overruled by an option; the two must agree.

use std::path::Path;

use super::StrainHeader;
use crate::error::{Error, Result};
use crate::io::gwf::listed;
use crate::units::Gps;

/// Options for opening strain: properties known to the caller, and the required data quality.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenOptions {
    /// Two-letter detector prefix, for files that do not store it.
    pub detector: Option<String>,
    /// Time of the first sample, for formats that do not store it.
    pub start: Option<Gps>,
    /// Sampling rate, for formats that do not store it.
    pub rate_hz: Option<u32>,
    /// Name of the channel, for frame files and gwpy's HDF5 files with several, such as `H1:GDS-CALIB_STRAIN`.
    pub channel: Option<String>,
    /// Names of the data-quality bits that a second must have. `None` requires `DATA` and `CBC_CAT1`, if the file has
    /// them; an empty list requires none.
    pub required_quality: Option<Vec<String>>,
    /// Names of the injection bits that a second must have, such as `NO_CBC_HW_INJ`; none by default.
    pub required_injections: Vec<String>,
}

/// Highest plausible sampling rate, in Hz.
const HIGHEST_RATE_HZ: f64 = 1e6;
/// First letters of detector prefixes: GEO, KAGRA, LIGO Hanford, Livingston and India, Virgo, CIT's 40 m (C).
const SITES: &str = "GKHLAIVC";

/// Properties stored in a file.
pub(super) struct Said {
    pub(super) format: &'static str,
    pub(super) detector: Option<String>,
    pub(super) spacing_s: f64,
    pub(super) start_s: f64,
}

/// Validates a file's properties, also against the options.
pub(super) fn finish_header(
    path: &Path,
    said: Said,
    times: u64,
    options: &OpenOptions,
) -> Result<StrainHeader> {
    let fault = |field: &str, why: String| Error::format(path, field, 0, why);
    let rate = (1.0 / said.spacing_s).round();
    // Accept an integer rate to a part in 10^6, because some files print the spacing with few digits.
    if !(1.0..=HIGHEST_RATE_HZ).contains(&rate) || (rate * said.spacing_s - 1.0).abs() > 1e-6 {
        let found = said.spacing_s;
        let why = format!("{found} s found, expected 1 s over a whole rate of at most 1 MHz");
        return Err(fault("sample spacing", why));
    }
    let rate_hz = rate as u32;
    if let Some(asked) = options.rate_hz.filter(|asked| *asked != rate_hz) {
        return Err(fault("rate", format!("{rate_hz} Hz found, expected {asked} Hz")));
    }
    let Some(start) = start_of(said.start_s) else {
        let why = format!("{} s found, expected GPS seconds from 0 to 5e9", said.start_s);
        return Err(fault("start", why));
    };
    if let Some(asked) = options.start.filter(|asked| (asked.ns - start.ns).abs() > 1000) {
        return Err(fault("start", format!("{} found, expected {}", start.s(), asked.s())));
    }
    let known = said.detector.filter(|text| !text.is_empty()).or_else(|| detector_of_name(path));
    let detector = match (known, &options.detector) {
        (Some(known), Some(asked)) if known != *asked => {
            return Err(fault("detector", format!("{known:?} found, expected {asked:?}")));
        }
        (Some(known), _) => known,
        (None, asked) => asked.clone().unwrap_or_default(),
    };
    let path = path.to_path_buf();
    Ok(StrainHeader { path, format: said.format, detector, start, rate_hz, times: Some(times) })
}

/// Returns the detector in a file's name, such as `H-H1_GWOSC_4KHZ_R1-1126259447-32.hdf5`.
fn detector_of_name(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    let mut parts = stem.split(|c: char| !c.is_ascii_alphanumeric());
    let found = parts.find(|part| match part.as_bytes() {
        [site, number] => SITES.as_bytes().contains(site) && number.is_ascii_digit(),
        _ => false,
    });
    found.map(str::to_string)
}

/// Converts a file's start time; `None` if out of range.
fn start_of(start_s: f64) -> Option<Gps> {
    // Up to the year 2140.
    (0.0..5e9).contains(&start_s).then(|| Gps::from_s(start_s))
}

/// Makes the error that asks for a channel.
pub(super) fn ask_for_channel(path: &Path, names: &[&str]) -> Error {
    let rule = format!("{} holds {}, one of which must be named", path.display(), listed(names));
    Error::parameter("--channel", "none", rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detectors_are_found_in_names() {
        let cases = [
            ("x/H-H1_LOSC_4_V2-1126259446-32.hdf5", Some("H1")),
            ("V1.npy", Some("V1")),
            ("strain.npy", None),
            ("K-K1-12.hdf5", Some("K1")),
            ("X1.npy", None),
        ];
        for (name, expected) in cases {
            assert_eq!(detector_of_name(Path::new(name)).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn headers_must_agree_with_the_options() {
        let said = || Said {
            format: "npy",
            detector: Some("H1".into()),
            spacing_s: 0.000_244_140_625,
            start_s: 1e9,
        };
        let path = Path::new("x.npy");
        let options = OpenOptions::default();
        let header = finish_header(path, said(), 8, &options).expect("a header");
        assert_eq!((header.rate_hz, header.start.ns), (4096, 1_000_000_000_000_000_000));
        let wrong = [
            OpenOptions { rate_hz: Some(2048), ..options.clone() },
            OpenOptions { detector: Some("L1".into()), ..options.clone() },
            OpenOptions { start: Some(Gps::from_s(1e9 + 1.0)), ..options.clone() },
        ];
        for options in wrong {
            assert!(finish_header(path, said(), 8, &options).is_err(), "{options:?}");
        }
        for spacing_s in [0.0, f64::NAN, -1.0, 1e-9, 0.3, 2.0] {
            let said = Said { spacing_s, ..said() };
            assert!(finish_header(path, said, 8, &options).is_err(), "{spacing_s}");
        }
        for start_s in [f64::NAN, -1.0, 1e300] {
            let said = Said { start_s, ..said() };
            assert!(finish_header(path, said, 8, &options).is_err(), "{start_s}");
        }
    }
}
