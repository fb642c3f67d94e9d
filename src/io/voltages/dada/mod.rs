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
//! - The length comes from the file, not from FILE_SIZE; a sample or heap that the file's end cuts
//!   off is passed over. Several files lie as OBS_OFFSET says, or FILE_NUMBER where that is the same
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
use crate::io::sexagesimal;
use crate::units::{Epoch, HZ_PER_MHZ};
use scan::Scan;
pub use writer::Writer;

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
    let (segments, times) = scan.segments(tsamp_s)?;
    let header = describe(&scan, tsamp_s, options)?;
    let layout = scan.geometry.layout();
    Ok(Box::new(Recording::new(header, layout, scan.files(), segments, times)))
}

fn sampling_time(header: &Fields) -> Result<f64> {
    match header.number("TSAMP")? {
        Some(tsamp) if tsamp > 0.0 && (1e6 / tsamp).is_finite() => Ok(tsamp / 1e6),
        Some(tsamp) => {
            Err(header.fault("TSAMP", format!("found {tsamp}, expected microseconds above 0")))
        }
        None => Err(header.fault("TSAMP", "it is missing, expected microseconds a sample")),
    }
}

fn describe(scan: &Scan, tsamp_s: f64, options: &VoltageOptions) -> Result<VoltageHeader> {
    let (header, geometry) = (&scan.header, &scan.geometry);
    let counts = geometry.counts;
    let middle = match describe::told_centre(options)? {
        Some(told) => Some(told),
        None => header.number("FREQ")?.map(|mhz| mhz * HZ_PER_MHZ),
    };
    let rate = if geometry.encoding.is_complex() { 1.0 / tsamp_s } else { 0.5 / tsamp_s };
    let width = header.number("BW")?.filter(|mhz| *mhz != 0.0);
    let width = width.map_or(rate * counts.channels as f64, |mhz| mhz * HZ_PER_MHZ);
    let text = |key| header.text(key).unwrap_or_default().to_string();
    let ra = header.text("RA").filter(|text| text.contains(':'));
    let dec = header.text("DEC").filter(|text| text.contains(':'));
    let start = match time::start(header)? {
        Some(start) => {
            let offset = scan.before() as f64 * tsamp_s;
            if offset > 1e9 {
                let why = format!("found {offset} s after the observation's start");
                return Err(header.fault("OBS_OFFSET", why));
            }
            start.plus_s(offset)
        }
        None => Epoch::default(),
    };
    Ok(VoltageHeader {
        path: scan.files()[0].clone(),
        format: "PSRDADA",
        source_name: text("SOURCE"),
        telescope: text("TELESCOPE"),
        ra_deg: ra
            .and_then(sexagesimal::parse)
            .map(|h| h * 15.0)
            .filter(|d| (0.0..=360.0).contains(d)),
        dec_deg: dec.and_then(sexagesimal::parse).filter(|deg| deg.abs() <= 90.0),
        start,
        tsamp_s,
        centres_hz: describe::centres(middle, width, counts.channels),
        lower_sideband: options.lower_sideband.unwrap_or(width < 0.0),
        encoding: geometry.encoding,
        scale: 1.0,
        recorded_bits: geometry.encoding.bits(),
        antennas: counts.antennas,
        polarizations: counts.polarizations,
        circular: header.text("BASIS").and_then(describe::circular),
        times: None,
        filter: describe::parse_filter(describe::FILTER_KEYS.map(|key| header.text(key))),
    })
}
