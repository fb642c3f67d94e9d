//! PSRDADA files: a text header followed by samples.
//!
//! A header has HDR_SIZE bytes (4096 by default), with or without NUL padding, `HEADER` and an end mark. Conventions:
//!
//! - ORDER names the axes outermost first by T, F, P and A (NANT). The default is TFP; MeerKAT's MKBF (INSTRUMENT)
//!   has heaps of 256 samples with the axes polarization, channel, time. If an axis is outside T, or T appears twice
//!   as in TAFTP, samples come in heaps of RESOLUTION bytes.
//! - NBIT is 4 (complex only, real part in the high nibble), 8, 16 or 32 (float); NDIM 2 is complex. Samples are
//!   two's complement unless ENCODING is OFFSETBINARY (8 bits), and little endian.
//! - A negative BW means that the channels descend and that each is a lower sideband. TSAMP is in microseconds.
//! - The first sample's time is MJD_START or UTC_START, plus PICOSECONDS, plus the time of OBS_OFFSET
//!   bytes of samples.
//! - The file's length, not FILE_SIZE, determines the number of samples. The reader drops a sample or heap truncated
//!   by the file's end; [`VoltageSource::cut`] reports it, and also a file shorter than its FILE_SIZE. OBS_OFFSET
//!   orders several files, or FILE_NUMBER if OBS_OFFSET is the same in all. Gaps between files are flagged; in an
//!   overlap (OBS_OVERLAP) the earlier file's samples are used. In files joined end to end, the next header follows
//!   FILE_SIZE bytes.
//! - BASIS is Linear or Circular. PFB_NCHN, PFB_NTAP, PFB_WIN, PFB_OVER (our extension) describe the filter bank that
//!   made the channels.
//!
//! # Source
//! PSRDADA's ASCII headers as baseband 4.2 and dspsr read them; MKBF as in dspsr's unpacker.

mod header;
mod writer;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::compressed;
use crate::io::voltages::fields::Fields;
use crate::io::voltages::layout::Layout;
use crate::io::voltages::recording::{Recording, Segment, gap_fault};
use crate::io::voltages::{VoltageHeader, VoltageOptions, VoltageSource, fields};
use crate::units::{Epoch, SECONDS_PER_DAY};
use header::{Geometry, same};

pub use header::{format_start, parse_header, parse_utc};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use writer::Order;
pub use writer::{Writer, header_text};
pub(crate) use writer::{format_header, is_reversed};

const KEYS: fields::Keys = fields::Keys {
    middle: "FREQ",
    width: "BW",
    source: "SOURCE",
    telescope: "TELESCOPE",
    basis: "BASIS",
};

/// Returns whether a file's first bytes are a PSRDADA header.
pub(super) fn detect(first: &[u8]) -> bool {
    header::detect(first)
}

/// Reads the header of a file.
///
/// # Errors
/// [`Error::Format`] for an invalid header; [`Error::Io`].
pub fn header(path: &Path) -> Result<Fields> {
    let mut file = compressed::open(path)?;
    header::read(&mut file, path, 0)
}

/// Opens the files of one recording, given in any order.
///
/// # Errors
/// [`Error::Format`] naming file, key, byte, what was found and what was expected, for headers that are invalid,
/// unsupported or inconsistent with each other; [`Error::Parameter`] for invalid options; [`Error::Io`].
pub fn open(paths: &[PathBuf], options: &VoltageOptions) -> Result<Box<dyn VoltageSource>> {
    if paths.is_empty() {
        return Err(Error::parameter("files", 0, "one at least is needed"));
    }
    let scan = scan(paths)?;
    let tsamp_s = match fields::sampling_time(options)? {
        Some(told) => told,
        None => sampling_time(&scan.header)?,
    };
    let (segments, times) = scan.segments(tsamp_s, options.allow_gaps)?;
    let header = describe(&scan, tsamp_s, options)?;
    let layout = scan.geometry.layout();
    let recording = Recording::new(header, layout, scan.files(), segments, times);
    Ok(Box::new(recording.with_notes(&scan.cuts(), Vec::new())))
}

/// Describes the voltages that follow a header in a stream, such as a ring; `path` names the stream.
///
/// # Errors
/// [`Error::Format`] for keys that are missing, invalid or unsupported; [`Error::Parameter`] for invalid options.
pub(crate) fn describe_stream(
    fields: &Fields,
    path: &Path,
    options: &VoltageOptions,
) -> Result<VoltageHeader> {
    let geometry = Geometry::new(fields)?;
    let tsamp_s = match fields::sampling_time(options)? {
        Some(given) => given,
        None => sampling_time(fields)?,
    };
    let start = stream_start(fields, tsamp_s, geometry.frame_bytes())?;
    let header = described(fields, path, &geometry, tsamp_s, options)?;
    Ok(VoltageHeader { start, ..header })
}

/// Returns the order of the samples that follow a header of voltages.
///
/// # Errors
/// As [`describe_stream`].
pub(crate) fn stream_layout(fields: &Fields) -> Result<Layout> {
    Ok(Geometry::new(fields)?.layout())
}

/// Returns the time of the first sample that follows a header in a stream, OBS_OFFSET included; day 0 if it is unknown.
///
/// # Errors
/// [`Error::Format`] for an invalid date or offset.
pub(crate) fn stream_start(header: &Fields, tsamp_s: f64, frame_bytes: u64) -> Result<Epoch> {
    let Some(start) = header::start(header)? else { return Ok(Epoch::default()) };
    let offset = header.count("OBS_OFFSET")?.unwrap_or(0);
    Ok(start.plus_s((offset / frame_bytes.max(1)) as f64 * tsamp_s))
}

fn sampling_time(header: &Fields) -> Result<f64> {
    match header.number("TSAMP")? {
        Some(tsamp) if fields::TSAMP_S.contains(&(tsamp / 1e6)) => Ok(tsamp / 1e6),
        Some(tsamp) => {
            let why = format!("found {tsamp:e}, expected microseconds above 0: 1e-9 to 8.64e10");
            Err(header.fault("TSAMP", why))
        }
        None => Err(header.fault("TSAMP", "it is missing, expected microseconds a sample")),
    }
}

fn describe(scan: &Scan, tsamp_s: f64, options: &VoltageOptions) -> Result<VoltageHeader> {
    let path = &scan.files()[0];
    let header = described(&scan.header, path, &scan.geometry, tsamp_s, options)?;
    Ok(VoltageHeader { start: start(scan, tsamp_s)?, ..header })
}

/// Describes voltages, all but their start.
fn described(
    header: &Fields,
    path: &Path,
    geometry: &Geometry,
    tsamp_s: f64,
    options: &VoltageOptions,
) -> Result<VoltageHeader> {
    let told = fields::header(header, &KEYS, geometry.encoding, geometry.counts, tsamp_s, options)?;
    let angle = |key| header.text(key).filter(|text| text.contains(':'));
    Ok(VoltageHeader {
        path: path.to_path_buf(),
        format: "PSRDADA",
        ra_deg: angle("RA").and_then(fields::ra_deg),
        dec_deg: angle("DEC").and_then(fields::dec_deg),
        ..told
    })
}

/// Computes the start of the first sample.
fn start(scan: &Scan, tsamp_s: f64) -> Result<Epoch> {
    let Some(start) = header::start(&scan.header)? else { return Ok(Epoch::default()) };
    let offset = scan.before() as f64 * tsamp_s;
    if offset > 1e9 {
        let why = format!("found {offset} s after the observation's start");
        return Err(scan.header.fault("OBS_OFFSET", why));
    }
    Ok(start.plus_s(offset))
}

/// Longest accepted gap, in seconds; a longer one indicates a damaged header.
const MAX_GAP_S: f64 = SECONDS_PER_DAY;

/// A header and its samples.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    header: Fields,
    /// Byte offset of its samples.
    data: u64,
    /// Whole samples per stream.
    times: u64,
    /// Bytes of the observation before its samples.
    place: u64,
    /// Description of its truncation by the file's end.
    cut: Option<String>,
}

/// All parts of a recording, in order of time.
#[derive(Debug)]
struct Scan {
    header: Fields,
    geometry: Geometry,
    parts: Vec<Part>,
}

/// Reads the headers of files, given in any order.
///
/// # Errors
/// [`Error::Format`] for headers that are invalid or inconsistent with each other; [`Error::Io`].
fn scan(paths: &[PathBuf]) -> Result<Scan> {
    let mut parts = Vec::new();
    for path in paths {
        scan_file(path, &mut parts)?;
    }
    place_by_number(&mut parts)?;
    parts.sort_by_key(|part| part.place);
    let header = parts[0].header.clone();
    for part in &parts[1..] {
        same(&header, &part.header)?;
    }
    let geometry = Geometry::new(&header)?;
    Ok(Scan { header, geometry, parts })
}

/// Reads the parts of one file; files joined end to end have several.
fn scan_file(path: &Path, parts: &mut Vec<Part>) -> Result<()> {
    let io = |error| Error::io(path, error);
    let mut file = compressed::open(path)?;
    let length = file.metadata().map_err(io)?.len();
    let mut at = 0;
    loop {
        let header = header::read(&mut file, path, at)?;
        let geometry = Geometry::new(&header)?;
        let data = at + header.bytes();
        let size = header.count("FILE_SIZE")?.unwrap_or(0);
        let next = data.checked_add(size).filter(|next| size > 0 && *next < length);
        let next = match next {
            Some(next) if another(&mut file, next).map_err(io)? => Some(next),
            _ => None,
        };
        let bytes = next.unwrap_or(length) - data;
        let times = bytes / geometry.frame_bytes() / geometry.unit_times() * geometry.unit_times();
        let promised = if next.is_none() { size } else { 0 };
        let cut = cut(path, bytes, promised, times, &geometry);
        if times == 0 {
            let why = format!(
                "{bytes} bytes follow the header, expected {} samples ({} bytes) at least",
                geometry.unit_times(),
                u128::from(geometry.unit_times()) * u128::from(geometry.frame_bytes())
            );
            return Err(Error::format(path, "data", data, why));
        }
        let place = header.count("OBS_OFFSET")?.unwrap_or(0);
        parts.push(Part { path: path.to_path_buf(), header, data, times, place, cut });
        match next {
            Some(next) => at = next,
            None => return Ok(()),
        }
    }
}

/// Describes what the file's end truncates: the difference between `bytes` present and `promised` (FILE_SIZE; 0 if
/// absent), and the last incomplete sample or heap.
fn cut(path: &Path, bytes: u64, promised: u64, times: u64, geometry: &Geometry) -> Option<String> {
    let unit = geometry.unit_times() * geometry.frame_bytes();
    let rest = bytes - times * geometry.frame_bytes();
    let what = if geometry.unit_times() == 1 { "sample" } else { "heap" };
    let mut words = Vec::new();
    if bytes < promised {
        words.push(format!("it holds {bytes} of the {promised} bytes promised (FILE_SIZE)"));
    }
    if rest > 0 {
        words.push(format!("its last {what} has {rest} of {unit} bytes and is left out"));
    }
    (!words.is_empty()).then(|| format!("{}: {}", path.display(), words.join(", and ")))
}

/// Returns whether another header begins at this byte.
fn another(file: &mut File, at: u64) -> std::io::Result<bool> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(at))?;
    file.take(header::DEFAULT_HEADER).read_to_end(&mut bytes)?;
    Ok(header::detect(&bytes))
}

/// Orders the parts by FILE_NUMBER if all have the same OBS_OFFSET.
fn place_by_number(parts: &mut [Part]) -> Result<()> {
    if parts.len() < 2 || parts.iter().any(|part| part.place != parts[0].place) {
        return Ok(());
    }
    let mut first = u64::MAX;
    for part in parts.iter() {
        first = first.min(part.header.count("FILE_NUMBER")?.unwrap_or(0));
    }
    for part in parts {
        let number = part.header.count("FILE_NUMBER")?.unwrap_or(0) - first;
        let size = part.header.count("FILE_SIZE")?.unwrap_or(0);
        let place = number.checked_mul(size).and_then(|bytes| bytes.checked_add(part.place));
        part.place = place.ok_or_else(|| {
            let why = format!("found {number} files of {size} bytes before this one");
            part.header.fault("FILE_NUMBER", why)
        })?;
    }
    Ok(())
}

impl Scan {
    /// Returns the path of each part, in order of time; a file with several parts occurs several times.
    fn files(&self) -> Vec<PathBuf> {
        self.parts.iter().map(|part| part.path.clone()).collect()
    }

    /// Returns the descriptions of truncated files.
    fn cuts(&self) -> Vec<String> {
        self.parts.iter().filter_map(|part| part.cut.clone()).collect()
    }

    /// Returns the samples of the observation before the recording's first.
    fn before(&self) -> u64 {
        self.parts[0].place / self.geometry.frame_bytes()
    }

    /// Computes the segments of the parts, and the total number of samples.
    ///
    /// # Errors
    /// [`Error::Format`] for parts that overlap by more than OBS_OVERLAP, begin within a sample, or are more than a
    /// day apart or (unless `allow_gaps`) too far apart relative to the data before.
    fn segments(&self, tsamp_s: f64, allow_gaps: bool) -> Result<(Vec<Segment>, u64)> {
        let frame = self.geometry.frame_bytes();
        let overlap = self.header.count("OBS_OVERLAP")?.unwrap_or(0) / frame;
        let mut segments = Vec::new();
        let (mut reached, mut data) = (0u64, 0u64);
        for (file, part) in self.parts.iter().enumerate() {
            let bytes = part.place - self.parts[0].place;
            let start = bytes / frame;
            let passed = reached.saturating_sub(start);
            let fault = |why: String| {
                let key = if part.header.text("OBS_OFFSET").is_some_and(|text| text != "0") {
                    "OBS_OFFSET"
                } else {
                    "FILE_NUMBER"
                };
                Err(part.header.fault(key, why))
            };
            if !bytes.is_multiple_of(frame) {
                let why = format!(
                    "it begins {bytes} bytes after the first file, which is no whole \
                                   number of samples of {frame} bytes"
                );
                return fault(why);
            }
            if passed > overlap {
                let why = format!(
                    "it begins {passed} samples before the end of the file before, expected {overlap} \
                     (OBS_OVERLAP) at most"
                );
                return fault(why);
            }
            if start.saturating_sub(reached) as f64 * tsamp_s > MAX_GAP_S {
                return fault(
                    "it begins more than a day after the file before, expected no longer \
                              gap in one recording"
                        .to_string(),
                );
            }
            let [gap_s, start_s, data_s] =
                [start.saturating_sub(reached), reached, data].map(|count| count as f64 * tsamp_s);
            if let Some(why) = gap_fault(gap_s, start_s, data_s, allow_gaps) {
                return fault(why);
            }
            if passed < part.times {
                data += part.times - passed;
                reached = start + part.times;
                let times = part.times - passed;
                segments.push(Segment {
                    file,
                    offset: part.data,
                    start: start + passed,
                    passed,
                    times,
                });
            }
        }
        Ok((segments, reached))
    }
}
