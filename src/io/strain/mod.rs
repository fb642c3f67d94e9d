//! Recorded gravitational-wave strain: the source trait, the common header, and one module per format.
//!
//! Invariant: missing samples, and samples that the recording flags as bad, are returned as invalid samples, so times
//! never shift.

mod gwf;
mod hdf5;
mod open;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::gwf::listed;
use crate::units::Gps;
use crate::view::check_length;

pub use open::{Bits, bits, channel_of, channels, is_strain, open, open_all};
#[cfg(target_os = "linux")]
pub(crate) use writer::QUALITY_BITS;
pub use writer::{ALL_INJECTIONS, ALL_QUALITY, NewStrain, StrainWriter};

/// Header common to all strain formats.
#[derive(Clone, Debug, PartialEq)]
pub struct StrainHeader {
    /// Path of the data.
    pub path: PathBuf,
    /// The format's name, as `info` prints it.
    pub format: &'static str,
    /// Two-letter detector prefix: `H1`, `L1`, `V1`, `K1`; empty when unknown.
    pub detector: String,
    /// Time of the first sample.
    pub start: Gps,
    /// Sampling rate.
    pub rate_hz: u32,
    /// Number of samples, when known beforehand.
    pub times: Option<u64>,
}

/// Strain of one detector as a stream of samples.
pub trait StrainSource: Send {
    /// Returns the header.
    fn header(&self) -> &StrainHeader;

    /// Reads the next samples to the start of `samples`, and their validity to `valid`; invalid samples are 0.
    /// Returns their number; 0 at the end.
    ///
    /// # Errors
    /// [`crate::Error::Io`] and [`crate::Error::Format`] of the file, [`crate::Error::Shape`] if the slices differ in
    /// length.
    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize>;

    /// Skips samples; returns the number skipped, less than requested only at the end.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn skip(&mut self, samples: u64) -> Result<u64> {
        let (mut strain, mut valid) = ([0.0; 1024], [false; 1024]);
        let mut done = 0;
        while done < samples {
            let piece = (samples - done).min(1024) as usize;
            match self.read(&mut strain[..piece], &mut valid[..piece])? {
                0 => break,
                count => done += count as u64,
            }
        }
        Ok(done)
    }

    /// Describes the truncation of a recording whose last, incomplete piece was dropped; `None` for a complete
    /// recording.
    ///
    /// Known at opening for a file, after the end of the data for a pipe.
    fn cut(&self) -> Option<&str> {
        None
    }

    /// Returns warnings for the user, a sentence each: missing, odd or skipped parts of the recording.
    fn warnings(&self) -> &[String] {
        &[]
    }
}

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
const MAX_RATE_HZ: f64 = 1e6;
/// First letters of detector prefixes: GEO, KAGRA, LIGO Hanford, Livingston and India, Virgo, CIT's 40 m (C).
const SITES: &str = "GKHLAIVC";

/// Properties stored in a file.
struct FileMetadata {
    format: &'static str,
    detector: Option<String>,
    spacing_s: f64,
    start_s: f64,
}

/// Validates a file's properties, also against the options.
fn finish_header(
    path: &Path,
    metadata: FileMetadata,
    times: u64,
    options: &OpenOptions,
) -> Result<StrainHeader> {
    let fault = |field: &str, why: String| Error::format(path, field, 0, why);
    let rate = (1.0 / metadata.spacing_s).round();
    // Accept an integer rate to a part in 10^6, because some files print the spacing with few digits.
    if !(1.0..=MAX_RATE_HZ).contains(&rate) || (rate * metadata.spacing_s - 1.0).abs() > 1e-6 {
        let found = metadata.spacing_s;
        let why = format!("{found} s found, expected 1 s over a whole rate of at most 1 MHz");
        return Err(fault("sample spacing", why));
    }
    let rate_hz = rate as u32;
    if let Some(asked) = options.rate_hz.filter(|asked| *asked != rate_hz) {
        return Err(fault("rate", format!("{rate_hz} Hz found, expected {asked} Hz")));
    }
    let Some(start) = start_of(metadata.start_s) else {
        let why = format!("{} s found, expected GPS seconds from 0 to 5e9", metadata.start_s);
        return Err(fault("start", why));
    };
    if let Some(asked) = options.start.filter(|asked| (asked.ns - start.ns).abs() > 1000) {
        return Err(fault("start", format!("{} found, expected {}", start.s(), asked.s())));
    }
    let known =
        metadata.detector.filter(|text| !text.is_empty()).or_else(|| detector_of_name(path));
    let detector = match (known, &options.detector) {
        (Some(known), Some(asked)) if known != *asked => {
            return Err(fault("detector", format!("{known:?} found, expected {asked:?}")));
        }
        (Some(known), _) => known,
        (None, asked) => asked.clone().unwrap_or_default(),
    };
    let path = path.to_path_buf();
    Ok(StrainHeader { path, format: metadata.format, detector, start, rate_hz, times: Some(times) })
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
fn ask_for_channel(path: &Path, names: &[&str]) -> Error {
    let rule = format!("{} holds {}, one of which must be named", path.display(), listed(names));
    Error::parameter("strain.channel", "none", rule)
}

/// Default required bits, if the file has them.
const DEFAULT_BITS: [&str; 2] = ["DATA", "CBC_CAT1"];
/// Maximum seconds in a mask: over a year.
const MAX_MASK: u64 = 1 << 25;

/// Validity of the steps of a mask, of which a set bit means that a test is passed.
///
/// # Source
/// GWOSC's file format: bits of `quality/simple/DQmask` and `quality/injections/Injmask`, one number per second, named
/// by `DQShortnames` and `InjShortnames`.
#[derive(Clone, Debug, PartialEq)]
struct Mask {
    /// Samples of strain per step.
    samples: u64,
    /// Samples from the mask's start to the strain's start.
    offset: u64,
    is_good: Vec<bool>,
}

impl Mask {
    /// Makes a mask; a step is good if it has all bits of `wanted`.
    fn new([samples, offset]: [u64; 2], numbers: &[f64], wanted: u32) -> Self {
        let is_good = numbers.iter().map(|number| *number as u32 & wanted == wanted).collect();
        Self { samples, offset, is_good }
    }

    fn is_good(&self, sample: u64) -> bool {
        let step = (sample + self.offset) / self.samples;
        self.is_good.get(step as usize).copied().unwrap_or(false)
    }
}

/// Returns the samples of strain per mask step, and the samples from the mask's start to the strain's start, which is
/// `late_s` later.
fn mask_steps(spacing_s: f64, late_s: f64, rate_hz: u32) -> std::result::Result<[u64; 2], String> {
    let samples = spacing_s * f64::from(rate_hz);
    if !(1.0..1e9).contains(&samples) || samples.fract() != 0.0 {
        return Err(format!("steps of {spacing_s} s, expected whole samples at {rate_hz} Hz"));
    }
    let offset = late_s * f64::from(rate_hz);
    if !(0.0..1e12).contains(&offset) || offset.fract() != 0.0 {
        return Err(format!(
            "the mask begins {late_s} s before the strain, expected 0 or whole samples"
        ));
    }
    Ok([samples as u64, offset as u64])
}

/// Returns the first second of a mask.
fn whole_second(spacing_s: f64, first_s: f64) -> std::result::Result<i64, String> {
    if spacing_s != 1.0 || first_s.fract() != 0.0 || !(0.0..5e9).contains(&first_s) {
        return Err(format!(
            "steps of {spacing_s} s from GPS {first_s} on, expected whole seconds of 1 s"
        ));
    }
    Ok(first_s as i64)
}

/// Longest accepted gap between two files, in seconds; a longer one is presumed to be a mistake.
const MAX_GAP_S: u64 = 1_000_000;

/// A source with the index of its first sample in the stream.
struct Part {
    first: u64,
    source: Box<dyn StrainSource>,
}

struct Joined {
    header: StrainHeader,
    parts: Vec<Part>,
    /// The part being read, or the next one after a gap.
    part: usize,
    next: u64,
    cut: Option<String>,
    warnings: Vec<String>,
}

/// Joins sources of known length in order of time.
///
/// # Errors
/// [`Error::Parameter`] for none; [`Error::Format`] for different detectors or rates, for overlaps, for a distance
/// that is not a whole number of samples, or a gap of more than a million seconds.
pub fn join(mut sources: Vec<Box<dyn StrainSource>>) -> Result<Box<dyn StrainSource>> {
    sources.sort_by_key(|source| source.header().start);
    let Some(first) = sources.first() else {
        return Err(Error::parameter("files of strain", 0, "there must be at least one"));
    };
    let mut header = first.header().clone();
    let mut parts = Vec::with_capacity(sources.len());
    let cuts: Vec<&str> = sources.iter().filter_map(|source| source.cut()).collect();
    let cut = (!cuts.is_empty()).then(|| cuts.join("; "));
    let warnings = sources.iter().flat_map(|source| source.warnings().to_vec()).collect();
    let mut end = 0;
    for source in sources {
        let first = place(&header, source.header(), end)?;
        let Some(times) = source.header().times else {
            let why = "its length is not known, so nothing can follow it";
            return Err(Error::format(&source.header().path, "length", 0, why));
        };
        end = first + times;
        parts.push(Part { first, source });
    }
    header.times = Some(end);
    Ok(Box::new(Joined { header, parts, part: 0, next: 0, cut, warnings }))
}

/// Returns the index of a file's first sample in the stream, which has `end` samples so far.
fn place(stream: &StrainHeader, file: &StrainHeader, end: u64) -> Result<u64> {
    let fault = |field: &str, why: String| Err(Error::format(&file.path, field, 0, why));
    if file.detector != stream.detector {
        let why = format!("{:?} found, expected {:?}", file.detector, stream.detector);
        return fault("detector", why);
    }
    if file.rate_hz != stream.rate_hz {
        let why = format!("{} Hz found, expected {} Hz", file.rate_hz, stream.rate_hz);
        return fault("rate", why);
    }
    let rate = i128::from(stream.rate_hz);
    let distance_ns = i128::from(file.start.ns) - i128::from(stream.start.ns);
    let first = (distance_ns * rate + 500_000_000).div_euclid(1_000_000_000);
    // Start times are accurate to about 0.1 us.
    if (first * 1_000_000_000 - distance_ns * rate).abs() > 1000 * rate {
        let why = format!(
            "{distance_ns} ns after the first file, which is not a whole number of samples"
        );
        return fault("start", why);
    }
    let first = first as u64;
    if first < end {
        let seconds = (end - first) as f64 / f64::from(stream.rate_hz);
        return fault("start", format!("it overlaps the strain before it by {seconds} s"));
    }
    let gap_s = (first - end) / u64::from(stream.rate_hz);
    if gap_s > MAX_GAP_S {
        return fault("start", format!("a gap of {gap_s} s, expected {MAX_GAP_S} s at most"));
    }
    Ok(first)
}

impl StrainSource for Joined {
    fn header(&self) -> &StrainHeader {
        &self.header
    }

    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize> {
        check_length("flags of valid samples", samples.len(), valid.len())?;
        let mut done = 0;
        while done < samples.len() {
            let Some(part) = self.parts.get_mut(self.part) else { break };
            let (samples, valid) = (&mut samples[done..], &mut valid[done..]);
            let count = if self.next < part.first {
                let count = (part.first - self.next).min(samples.len() as u64) as usize;
                samples[..count].fill(0.0);
                valid[..count].fill(false);
                count
            } else {
                let count = part.source.read(samples, valid)?;
                if count == 0 {
                    self.part += 1;
                }
                count
            };
            self.next += count as u64;
            done += count;
        }
        Ok(done)
    }
    fn skip(&mut self, samples: u64) -> Result<u64> {
        let mut done = 0;
        while done < samples {
            let Some(part) = self.parts.get_mut(self.part) else { break };
            let count = if self.next < part.first {
                (part.first - self.next).min(samples - done)
            } else {
                let count = part.source.skip(samples - done)?;
                if count == 0 {
                    self.part += 1;
                }
                count
            };
            self.next += count;
            done += count;
        }
        Ok(done)
    }

    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Samples per read.
const PIECE: usize = 1 << 14;

/// Contents of a recording, found by reading all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Header of the recording.
    pub header: StrainHeader,
    /// Number of samples.
    pub times: u64,
    /// Number of valid samples.
    pub valid_times: u64,
    /// Runs of invalid samples: the first sample, and the first after the run.
    pub gaps: Vec<(u64, u64)>,
    /// Root mean square of the valid samples.
    pub rms: f64,
}

impl Summary {
    /// Reads a source to its end.
    ///
    /// # Errors
    /// Those of [`StrainSource::read`].
    pub fn read(source: &mut dyn StrainSource) -> Result<Self> {
        let (mut samples, mut valid) = (vec![0.0; PIECE], vec![false; PIECE]);
        let mut summary = Self {
            header: source.header().clone(),
            times: 0,
            valid_times: 0,
            gaps: Vec::new(),
            rms: 0.0,
        };
        let mut squares = 0.0;
        loop {
            let count = source.read(&mut samples, &mut valid)?;
            if count == 0 {
                break;
            }
            for (sample, is_valid) in samples[..count].iter().zip(&valid) {
                if *is_valid {
                    summary.valid_times += 1;
                    squares += sample * sample;
                } else {
                    summary.add_bad();
                }
                summary.times += 1;
            }
        }
        summary.rms = (squares / summary.valid_times.max(1) as f64).sqrt();
        Ok(summary)
    }

    fn add_bad(&mut self) {
        match self.gaps.last_mut() {
            Some(last) if last.1 == self.times => last.1 += 1,
            _ => self.gaps.push((self.times, self.times + 1)),
        }
    }

    /// Returns the length in seconds.
    pub fn seconds(&self) -> f64 {
        self.times as f64 / f64::from(self.header.rate_hz)
    }

    /// Returns the valid length in seconds.
    pub fn valid_seconds(&self) -> f64 {
        self.valid_times as f64 / f64::from(self.header.rate_hz)
    }

    /// Returns the time of a sample.
    pub fn time(&self, sample: u64) -> Gps {
        self.header.start.plus_samples(sample as i64, self.header.rate_hz)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = &self.header;
        let detector =
            if header.detector.is_empty() { "unknown detector" } else { &header.detector };
        write!(
            f,
            "{}: {detector}, {} Hz, GPS {} + {} s, {} s valid, {} gaps, rms {:.3e}",
            header.format,
            header.rate_hz,
            header.start.s(),
            self.seconds(),
            self.valid_seconds(),
            self.gaps.len(),
            self.rms
        )
    }
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
        let metadata = || FileMetadata {
            format: "npy",
            detector: Some("H1".into()),
            spacing_s: 0.000_244_140_625,
            start_s: 1e9,
        };
        let path = Path::new("x.npy");
        let options = OpenOptions::default();
        let header = finish_header(path, metadata(), 8, &options).expect("a header");
        assert_eq!((header.rate_hz, header.start.ns), (4096, 1_000_000_000_000_000_000));
        let wrong = [
            OpenOptions { rate_hz: Some(2048), ..options.clone() },
            OpenOptions { detector: Some("L1".into()), ..options.clone() },
            OpenOptions { start: Some(Gps::from_s(1e9 + 1.0)), ..options.clone() },
        ];
        for options in wrong {
            assert!(finish_header(path, metadata(), 8, &options).is_err(), "{options:?}");
        }
        for spacing_s in [0.0, f64::NAN, -1.0, 1e-9, 0.3, 2.0] {
            let metadata = FileMetadata { spacing_s, ..metadata() };
            assert!(finish_header(path, metadata, 8, &options).is_err(), "{spacing_s}");
        }
        for start_s in [f64::NAN, -1.0, 1e300] {
            let metadata = FileMetadata { start_s, ..metadata() };
            assert!(finish_header(path, metadata, 8, &options).is_err(), "{start_s}");
        }
    }
}
