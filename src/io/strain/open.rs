//! Opens recorded strain of any format.
//!
//! Invariant: what a file says of itself is never overruled by an option; the two must agree.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::{StrainHeader, StrainSource, gwf, hdf5, join, npy};
use crate::error::{Error, Result};
use crate::io::gwf::{Gwf, is_gwf, listed};
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

/// Opens one file: GWOSC's HDF5 (versions 1 to 3), a series that gwpy wrote to HDF5, a channel of a frame file (GWF,
/// versions 6 to 9), or a raw one-dimensional `.npy` (which needs [`OpenOptions::rate_hz`] and
/// [`OpenOptions::start`]).
///
/// [`OpenOptions::channel`] selects one of several channels. The default is the only floating-point channel (of
/// [`OpenOptions::detector`], if given), or the only one of those whose name ends in STRAIN.
///
/// Non-finite samples, and seconds without the required bits, read as 0 and are marked invalid.
///
/// # Errors
/// [`Error::Format`] naming file and field for a file that is none of these, is truncated, contradicts the requested
/// rate, start or detector, or lacks a required quality bit; [`Error::Parameter`] for a raw file without rate or
/// start, or if a channel must be selected; [`Error::Unavailable`] for an unsupported HDF5 filter or GWF version;
/// [`Error::Io`].
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn StrainSource>> {
    crate::io::check_seekable(path)?;
    let mut magic = [0; 8];
    let mut file = std::fs::File::open(path).map_err(|error| Error::io(path, error))?;
    let mut found = 0;
    while found < magic.len() {
        match file.read(&mut magic[found..]).map_err(|error| Error::io(path, error))? {
            0 => break,
            more => found += more,
        }
    }
    match &magic {
        b"\x89HDF\r\n\x1a\n" => hdf5::open(path, options),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => npy::open(path, options),
        [b'I', b'G', b'W', b'D', ..] => gwf::open(path, options),
        _ if found == 0 => Err(Error::format(path, "file", 0, "the file is empty")),
        _ => {
            let why = format!(
                "{} found, expected an HDF5 file, a frame file (GWF) or a .npy file{}",
                magic[..found].escape_ascii(),
                crate::io::foreign::clause(path)
            );
            Err(Error::format(path, "magic", 0, why))
        }
    }
}

/// Returns whether a file is a frame file, or HDF5 with strain; recognizes damaged files, too.
pub fn is_strain(path: &Path) -> bool {
    is_gwf(path) || hdf5::is_strain(path)
}

/// Lists the channels of a frame file or of gwpy's HDF5; none for files with a single unnamed series.
///
/// # Errors
/// As [`open`].
pub fn channels(path: &Path) -> Result<Vec<String>> {
    if is_gwf(path) {
        return Ok(Gwf::open(path)?.names().map(str::to_owned).collect());
    }
    hdf5::channels(path)
}

/// Returns the name of the channel that [`open`] reads, for formats that have channels.
///
/// # Errors
/// As [`open`].
pub fn channel_of(path: &Path, options: &OpenOptions) -> Result<Option<String>> {
    if is_gwf(path) {
        return gwf::choose(&Gwf::open(path)?, path, options).map(Some);
    }
    hdf5::channel_of(path, options)
}

/// Makes the error that asks for a channel.
pub(super) fn ask_for_channel(path: &Path, names: &[&str]) -> Error {
    let rule = format!("{} holds {}, one of which must be named", path.display(), listed(names));
    Error::parameter("--channel", "none", rule)
}

/// Opens several files of one detector, in any order, as one stream; gaps between them read as invalid samples. Raw
/// files need a start each: open them one by one and use [`super::join`].
///
/// # Errors
/// As [`open`]; [`Error::Format`] for files of different detectors or rates, for overlaps, and for distances that are
/// not a whole number of samples; [`Error::Parameter`] for no files.
pub fn open_all(paths: &[PathBuf], options: &OpenOptions) -> Result<Box<dyn StrainSource>> {
    let [path] = paths else {
        let sources: Result<Vec<_>> = paths.iter().map(|path| open(path, options)).collect();
        return join::join(sources?);
    };
    open(path, options)
}

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
    let Some(start) = hdf5::start(said.start_s) else {
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
