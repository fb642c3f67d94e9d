//! Sample layout from a SUBINT header: DATA has the axes time, polarization, channel.
//!
//! Invariant: a [`Layout`]'s samples fill the DATA column exactly.
//!
//! # Source
//! PSRFITS definition 6.x (Hotan, van Straten & Manchester 2004, PASA 21, 302; its web page for the search-mode
//! cards), and FITS Standard 4.0, section 5.2.5, for TZERO.

use super::fits::Header;
use super::table::{Column, Table};
use crate::error::Result;
use crate::io::rows::Chosen;
use crate::io::{Polarizations, TSAMP_S};
use crate::sample::Encoding;

/// Maximum plausible number of polarization products.
const MAX_POLARIZATIONS: u64 = 8;

/// Sample layout of a row of the SUBINT table.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Channels per spectrum.
    pub(super) channels: usize,
    /// Polarization products per spectrum.
    pub(super) polarizations: usize,
    /// Spectra per row of the table.
    pub(super) block_times: u64,
    /// Spectra in the last row; fewer than `block_times` if it is padded.
    pub(super) last_times: u64,
    /// Bits per sample.
    pub(super) bits: usize,
    /// Encoding of a sample after conversion to the order of [`crate::sample`]; sub-byte samples are unsigned.
    pub(super) encoding: Encoding,
    /// Whether sub-byte samples are two's complement.
    pub(super) signed_bits: bool,
    /// Whether samples are big endian.
    pub(super) big_endian: bool,
    /// XOR mask of each sample's most significant byte (0 or 0x80): FITS's conversion to the other signedness.
    pub(super) sign_flip: u8,
    /// Sampling time in seconds.
    pub(super) tsamp_s: f64,
    /// Zero level of the digitizer (ZERO_OFF).
    pub(super) zero_offset: f32,
    /// The DATA column.
    pub(super) data: Column,
}

impl Layout {
    /// Reads and validates the SUBINT header.
    ///
    /// # Errors
    /// [`Error::Format`] for numbers that are missing, invalid, or inconsistent with the DATA column.
    pub(super) fn new(header: &Header, table: &Table) -> Result<Self> {
        let Some(data) = table.column("DATA") else {
            return Err(header.fault("TTYPE", "the SUBINT table has no DATA column"));
        };
        if table.rows == 0 {
            return Err(header.fault("NAXIS2", "the SUBINT table has no rows"));
        }
        let channels = in_range(header, "NCHAN", crate::units::MAX_CHANNELS as u64)?;
        let polarizations = in_range(header, "NPOL", MAX_POLARIZATIONS)?;
        let block_times = in_range(header, "NSBLK", u64::from(u32::MAX))?;
        let bits = in_range(header, "NBITS", 32)?;
        let sample_bits = channels * polarizations * bits;
        let bytes = block_times.checked_mul(sample_bits).map(|bits| bits.div_ceil(8));
        if bytes != Some(data.bytes) {
            let why = format!(
                "DATA holds {} bytes a row, but NSBLK {block_times} x NPOL {polarizations} x NCHAN {channels} x NBITS {bits} makes {}",
                data.bytes,
                bytes.map_or("too many".to_string(), |bytes| bytes.to_string())
            );
            return Err(header.fault("NSBLK", why));
        }
        let signed = header.integer("SIGNINT")?.unwrap_or(0) == 1;
        let kind = sample_kind(header, data, bits, signed)?;
        Ok(Self {
            channels: channels as usize,
            polarizations: polarizations as usize,
            block_times,
            last_times: last_times(header, table.rows, block_times)?,
            bits: bits as usize,
            encoding: kind.encoding,
            signed_bits: signed && bits < 8,
            big_endian: kind.big_endian,
            sign_flip: kind.sign_flip,
            tsamp_s: sampling_time(header)?,
            zero_offset: header.real("ZERO_OFF")?.unwrap_or(0.0) as f32,
            data: data.clone(),
        })
    }

    /// Returns the bits of one spectrum with all its polarizations.
    pub(super) fn spectrum_bits(&self) -> u64 {
        (self.channels * self.polarizations * self.bits) as u64
    }

    /// Returns whether every polarization's spectrum starts and ends on a byte.
    pub(super) fn is_byte_aligned(&self) -> bool {
        (self.channels * self.bits).is_multiple_of(8)
    }

    /// Returns the selected products: one, or two to be summed.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] for a number that the file does not have.
    pub(super) fn select(&self, wanted: Polarizations, kind: &str) -> Result<Chosen> {
        match wanted {
            Polarizations::One(number) => Chosen::one(number, self.polarizations),
            Polarizations::Total => {
                let kind = kind.to_ascii_uppercase();
                let single = ["I", "STOKE", "AA+BB"].iter().any(|start| kind.starts_with(start));
                let second = (self.polarizations > 1 && !single).then_some(1);
                Ok(Chosen { first: 0, second })
            }
        }
    }
}

struct SampleKind {
    encoding: Encoding,
    big_endian: bool,
    sign_flip: u8,
}

/// Determines the sample type from NBITS, SIGNINT, and the DATA column's TFORM and TZERO.
///
/// A column of type `I` is signed, as FITS defines, whatever SIGNINT says; astropy and PRESTO agree. 16-bit samples
/// in a column of type `B` are little endian, as in PRESTO and `your`.
fn sample_kind(header: &Header, data: &Column, bits: u64, signed: bool) -> Result<SampleKind> {
    let kind = |encoding, big_endian, sign_flip| Ok(SampleKind { encoding, big_endian, sign_flip });
    match (bits, data.letter, data.zero) {
        (1, 'B' | 'X', 0.0) if !signed => kind(Encoding::U1, false, 0),
        (2, 'B' | 'X', 0.0) => kind(Encoding::U2, false, 0),
        (4, 'B' | 'X', 0.0) => kind(Encoding::U4, false, 0),
        (8, 'B', 0.0) => kind(if signed { Encoding::I8 } else { Encoding::U8 }, false, 0),
        (8, 'B', -128.0) => kind(Encoding::I8, false, 0x80),
        (16, 'I', 0.0) => kind(Encoding::I16, true, 0),
        (16, 'I', 32768.0) => kind(Encoding::U16, true, 0x80),
        (16, 'B', 0.0) => kind(if signed { Encoding::I16 } else { Encoding::U16 }, false, 0),
        (32, 'E', 0.0) => kind(Encoding::F32, true, 0),
        (_, letter, zero) => {
            let why = format!(
                "{bits} found, with TFORM {letter}, TZERO {zero} and SIGNINT {}; expected 1 (unsigned), 2, 4, 8, 16 or 32 (float)",
                u8::from(signed)
            );
            Err(header.fault("NBITS", why))
        }
    }
}

/// Returns a card that must be 1 to `most`.
fn in_range(header: &Header, key: &str, most: u64) -> Result<u64> {
    let count = header.count(key)?;
    if count == 0 || count > most {
        return Err(header.fault(key, format!("{count} found, expected 1 to {most}")));
    }
    Ok(count)
}

fn sampling_time(header: &Header) -> Result<f64> {
    match header.real("TBIN")? {
        Some(time) if TSAMP_S.contains(&time) => Ok(time),
        Some(time) => {
            Err(header.fault("TBIN", format!("{time:?} s found, expected 1e-9 to 86400 s")))
        }
        None => Err(header.fault("TBIN", "the card is missing or has no value")),
    }
}

/// Returns the valid spectra in the last row, from NSTOT if it ends within that row.
///
/// A file cut from a longer one may have the whole recording's NSTOT, and some writers put 0. Such a value says
/// nothing about the last row, which then counts in full.
fn last_times(header: &Header, rows: u64, block_times: u64) -> Result<u64> {
    let before = (rows - 1).saturating_mul(block_times);
    let valid = header.integer("NSTOT")?.and_then(|total| u64::try_from(total).ok());
    let last = valid.and_then(|total| total.checked_sub(before)).unwrap_or(0);
    Ok(if (1..=block_times).contains(&last) { last } else { block_times })
}
