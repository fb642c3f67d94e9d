//! PSRDADA files: a header of text, and samples behind it.
//!
//! A header has HDR_SIZE bytes (4096 where it does not say), filled up with NULs or not, with or
//! without `HEADER` and an end mark. What is decided here:
//!
//! - ORDER names the axes outermost first by T, F, P and A (NANT); without it TFP, and MeerKAT's MKBF
//!   (INSTRUMENT) has heaps of 256 samples of the axes polarization, channel, time. Where something
//!   lies outside of T, or T stands twice as in TAFTP, samples come in heaps of RESOLUTION bytes.
//! - NBIT is 4 (complex only, real part in the high nibble), 8, 16 or 32 (float); NDIM 2 is complex;
//!   two's complement unless ENCODING says OFFSETBINARY (8 bits); little endian.
//! - BW below 0 says both: the channels descend, and each is a lower sideband. TSAMP is in
//!   microseconds.
//! - The first sample's time is MJD_START or UTC_START (as `time.rs` says), PICOSECONDS, and OBS_OFFSET
//!   bytes of samples.
//! - The length comes from the file, not from FILE_SIZE; a sample or heap that the file's end cuts off is left out, and
//!   [`VoltageSource::cut`] says so, as of a file that is shorter than its FILE_SIZE. Several files lie as OBS_OFFSET says, or FILE_NUMBER where that is the same
//!   in all; what is missing between them is flagged, and of an overlap (OBS_OVERLAP) the earlier
//!   file's samples are taken. Files joined end to end are told by the header behind FILE_SIZE bytes.
//! - BASIS is Linear or Circular; PFB_NCHN, PFB_NTAP, PFB_WIN, PFB_OVER (ours) the filter bank that made
//!   the channels.
//!
//! # Source
//! PSRDADA's ASCII headers as baseband 4.2 and dspsr read them; MKBF as dspsr's unpacker has it.

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

/// Whether a file's first bytes are those of a PSRDADA file.
pub(super) fn detect(first: &[u8]) -> bool {
    header::detect(first)
}

/// A file's own header.
///
/// # Errors
/// [`Error::Format`] for what is no header; [`Error::Io`].
pub fn header(path: &Path) -> Result<Fields> {
    let mut file = File::open(path).map_err(|error| Error::io(path, error))?;
    header::read(&mut file, path, 0)
}

/// Opens the files of one recording, in any order.
///
/// # Errors
/// [`Error::Format`] naming file, key, byte, what was found and what was expected, for headers that
/// break a rule, ask for what is not supported, or do not belong together; [`Error::Parameter`] for
/// options that make no sense; [`Error::Io`].
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

/// The first sample's start.
fn start(scan: &Scan, tsamp_s: f64) -> Result<Epoch> {
    let Some(start) = time::start(&scan.header)? else { return Ok(Epoch::default()) };
    let offset = scan.before() as f64 * tsamp_s;
    if offset > 1e9 {
        let why = format!("found {offset} s after the observation's start");
        return Err(scan.header.fault("OBS_OFFSET", why));
    }
    Ok(start.plus_s(offset))
}
