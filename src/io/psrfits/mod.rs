//! PSRFITS search mode: a FITS file whose SUBINT table has one block of spectra per row.
//!
//! Invariant: reading holds about a megabyte of a row at a time, whatever the row's length.
//!
//! # Source
//! Hotan, van Straten & Manchester 2004, PASA 21, 302, and the PSRFITS definition's web page.

mod fits;
mod gaps;
mod layout;
mod samples;
mod scale;
mod source;
mod table;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::{Beam, FilterbankHeader, FilterbankSource, Polarizations, sexagesimal};
use crate::units::{Band, HZ_PER_MHZ, SECONDS_PER_DAY};
use fits::Header;
use gaps::Timing;
use layout::Layout;
use samples::Converter;
use scale::Scaling;
use source::Source;
use table::Table;

/// Opens a PSRFITS search-mode file.
///
/// Samples keep their recorded width if the file's scales, offsets, weights and zero level are all trivial; otherwise
/// they become f32. A sum of two polarizations has a wider type. Rows lost by the recorder (jumps of OFFS_SUB) are an
/// error unless `allow_gaps` is set; then each channel's median over the spectra before the gap fills them.
///
/// | rows          | axes          | type                            | unit           |
/// |---------------|---------------|---------------------------------|----------------|
/// | of the source | time, channel | the header's `encoding`         | as recorded    |
///
/// # Errors
/// [`Error::Format`] naming the card or column for a file that is not a PSRFITS search-mode file, ends early, is
/// inconsistent or has gaps; [`Error::Parameter`] for a polarization that it lacks; [`Error::Io`].
/// # Source
/// PSRFITS definition 6.x; scaling has the order of operations of PRESTO and `your`.
pub fn open(
    path: &Path,
    polarizations: Polarizations,
    allow_gaps: bool,
) -> Result<Box<dyn FilterbankSource>> {
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    from_reader(file, path, polarizations, allow_gaps)
}

/// Opens any seekable stream like [`open`]; `path` names it in errors.
///
/// # Errors
/// As [`open`].
pub fn from_reader<R: Read + Seek + Send + 'static>(
    mut input: R,
    path: &Path,
    polarizations: Polarizations,
    allow_gaps: bool,
) -> Result<Box<dyn FilterbankSource>> {
    let bytes = input.seek(SeekFrom::End(0)).map_err(|e| Error::io(path, e))?;
    let primary = Header::read(&mut input, path, 0)?;
    check_primary(&primary, path)?;
    let subint = find_subint(&mut input, path, &primary, bytes)?;
    let table = Table::new(&subint, path, bytes)?;
    let layout = Layout::new(&subint, &table)?;
    let kind = subint.text("POL_TYPE").unwrap_or_default();
    let select = layout.select(polarizations, kind)?;
    let scaling = Scaling::scan(&mut input, &table, &layout)?;
    let timing = gaps::scan(&mut input, &table, &layout, allow_gaps)?;
    let converter = Converter::new(&layout, select, &scaling);
    let lost: u64 = timing.gaps.iter().map(|gap| gap.times).sum();
    let header = FilterbankHeader {
        path: path.to_path_buf(),
        format: "PSRFITS",
        source_name: primary.text("SRC_NAME").unwrap_or_default().to_string(),
        telescope: primary.text("TELESCOP").unwrap_or_default().to_string(),
        ra_deg: primary.text("RA").and_then(sexagesimal::parse).map(|hours| hours * 15.0),
        dec_deg: primary.text("DEC").and_then(sexagesimal::parse),
        beam: Beam::named(primary.text("IBEAM"), None),
        tstart_mjd: start_mjd(&primary, &subint, &layout, &timing)?,
        tsamp_s: layout.tsamp_s,
        band: read_band(&mut input, &primary, &subint, &table, &layout)?,
        encoding: converter.encoding(),
        recorded_bits: layout.bits,
        recorded_polarizations: layout.polarizations,
        times: Some((table.rows - 1) * layout.block_times + layout.last_times + lost),
    };
    Ok(Box::new(Source::new(input, header, table, layout, (scaling, timing.gaps, converter))))
}

fn check_primary(primary: &Header, path: &Path) -> Result<()> {
    let kind = primary.text("FITSTYPE").unwrap_or_default();
    if kind != "PSRFITS" {
        let what = crate::io::foreign::clause(path);
        let why = format!("{kind:?} found, expected \"PSRFITS\"{what}");
        return Err(primary.fault("FITSTYPE", why));
    }
    let mode = primary.text("OBS_MODE").unwrap_or_default();
    if ["PSR", "CAL"].contains(&mode) {
        let why = format!("{mode:?} found (folded data), expected \"SEARCH\"");
        return Err(primary.fault("OBS_MODE", why));
    }
    Ok(())
}

/// Reads the header of the first unit named SUBINT.
fn find_subint<R: Read + Seek>(
    input: &mut R,
    path: &Path,
    primary: &Header,
    bytes: u64,
) -> Result<Header> {
    let mut start = primary.next_start()?;
    while start < bytes {
        let header = Header::read(input, path, start)?;
        let is_table = header.text("XTENSION") == Some("BINTABLE");
        if is_table && header.text("EXTNAME") == Some("SUBINT") {
            return Ok(header);
        }
        start = header.next_start()?;
    }
    let why = format!("no binary table of the name SUBINT in the file of {bytes} bytes");
    Err(Error::format(path, "EXTNAME", bytes, why))
}

/// Computes the start: STT_IMJD + STT_SMJD + STT_OFFS, plus the rows of earlier files from NSUBOFFS or the first
/// row's OFFS_SUB, whichever is larger.
fn start_mjd(primary: &Header, subint: &Header, layout: &Layout, timing: &Timing) -> Result<f64> {
    let real = |key| Ok::<f64, Error>(primary.real(key)?.unwrap_or(0.0));
    let rows = subint.integer("NSUBOFFS")?.unwrap_or(0).max(0) as f64;
    let rows = rows.max(timing.rows_before as f64);
    let before_s = rows * layout.block_times as f64 * layout.tsamp_s;
    let seconds = real("STT_SMJD")? + real("STT_OFFS")? + before_s;
    Ok(real("STT_IMJD")? + seconds / SECONDS_PER_DAY)
}

/// Reads channel centres from the first row's DAT_FREQ, or from OBSFREQ and CHAN_BW without that column.
fn read_band<R: Read + Seek>(
    input: &mut R,
    primary: &Header,
    subint: &Header,
    table: &Table,
    layout: &Layout,
) -> Result<Band> {
    let channels = layout.channels;
    let width_mhz = subint.real("CHAN_BW")?.unwrap_or(0.0);
    let Some(column) = table.column("DAT_FREQ") else {
        let Some(centre) = primary.real("OBSFREQ")? else {
            return Err(primary.fault("OBSFREQ", "no centre frequency and no column DAT_FREQ"));
        };
        let first = centre - width_mhz * (channels as f64 - 1.0) / 2.0;
        return Band::uniform(first, width_mhz, channels)
            .map_err(|error| subint.fault("CHAN_BW", error.to_string()));
    };
    if column.elements != channels as u64 {
        let why = format!("{} elements a row found, expected {channels}", column.elements);
        return Err(table.fault(column, 0, why));
    }
    let (mut scratch, mut centres) = (Vec::new(), Vec::new());
    table.read_reals(input, (column, 0), &mut scratch, &mut centres)?;
    centres.iter_mut().for_each(|centre| *centre *= HZ_PER_MHZ);
    let spacing_hz = (centres[channels - 1] - centres[0]).abs() / (channels.max(2) - 1) as f64;
    let width_hz = if width_mhz == 0.0 { spacing_hz } else { width_mhz.abs() * HZ_PER_MHZ };
    Band::from_centres(centres, width_hz).map_err(|error| table.fault(column, 0, error.to_string()))
}
