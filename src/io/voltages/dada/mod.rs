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
//! - The first sample's time is MJD_START or UTC_START (see `time.rs`), plus PICOSECONDS, plus the time of OBS_OFFSET
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

mod geometry;
mod header;
mod scan;
mod time;
mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};

use super::fields::Fields;
use super::recording::Recording;
use super::{VoltageHeader, VoltageOptions, VoltageSource, describe};
use crate::error::{Error, Result};
use crate::units::Epoch;
use scan::Scan;
pub use time::{format_start, parse_utc};
pub use writer::Writer;

const KEYS: describe::Keys = describe::Keys {
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
    let mut file = File::open(path).map_err(|error| Error::io(path, error))?;
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
    let scan = scan::scan(paths)?;
    let tsamp_s = match describe::sampling_time(options)? {
        Some(told) => told,
        None => sampling_time(&scan.header)?,
    };
    let (segments, times) = scan.segments(tsamp_s, options.allow_gaps)?;
    let header = describe(&scan, tsamp_s, options)?;
    let layout = scan.geometry.layout();
    let recording = Recording::new(header, layout, scan.files(), segments, times);
    Ok(Box::new(recording.with_notes(&scan.cuts(), Vec::new())))
}

fn sampling_time(header: &Fields) -> Result<f64> {
    match header.number("TSAMP")? {
        Some(tsamp) if describe::TSAMP_S.contains(&(tsamp / 1e6)) => Ok(tsamp / 1e6),
        Some(tsamp) => {
            let why = format!("found {tsamp:e}, expected microseconds above 0: 1e-9 to 8.64e10");
            Err(header.fault("TSAMP", why))
        }
        None => Err(header.fault("TSAMP", "it is missing, expected microseconds a sample")),
    }
}

fn describe(scan: &Scan, tsamp_s: f64, options: &VoltageOptions) -> Result<VoltageHeader> {
    let (header, geometry) = (&scan.header, &scan.geometry);
    let streams = (geometry.encoding, geometry.counts);
    let told = describe::header(header, &KEYS, streams, tsamp_s, options)?;
    let angle = |key| header.text(key).filter(|text| text.contains(':'));
    Ok(VoltageHeader {
        path: scan.files()[0].clone(),
        format: "PSRDADA",
        ra_deg: angle("RA").and_then(describe::ra_deg),
        dec_deg: angle("DEC").and_then(describe::dec_deg),
        start: start(scan, tsamp_s)?,
        ..told
    })
}

/// Computes the start of the first sample.
fn start(scan: &Scan, tsamp_s: f64) -> Result<Epoch> {
    let Some(start) = time::start(&scan.header)? else { return Ok(Epoch::default()) };
    let offset = scan.before() as f64 * tsamp_s;
    if offset > 1e9 {
        let why = format!("found {offset} s after the observation's start");
        return Err(scan.header.fault("OBS_OFFSET", why));
    }
    Ok(start.plus_s(offset))
}
