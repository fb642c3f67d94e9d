//! Samples of a SUBINT table: layout (DATA has the axes time, polarization, channel), scaling, and conversion to rows.
//!
//! Invariant: a [`Layout`]'s samples fill the DATA column exactly.
//!
//! # Source
//! PSRFITS definition 6.x (Hotan, van Straten & Manchester 2004, PASA 21, 302; its web page for the search-mode
//! cards), and FITS Standard 4.0, section 5.2.5, for TZERO.

use std::io::{Read, Seek};

use crate::error::Result;
use crate::io::psrfits::fits::Header;
use crate::io::psrfits::fits::{Column, Table};
use crate::io::rows::{Chosen, byte_encoding, encode};
use crate::io::{Polarizations, TSAMP_S};
use crate::sample::{Encoding, unpack_f32};

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
    signed_bits: bool,
    /// Whether samples are big endian.
    big_endian: bool,
    /// XOR mask of each sample's most significant byte (0 or 0x80): FITS's conversion to the other signedness.
    sign_flip: u8,
    /// Sampling time in seconds.
    pub(super) tsamp_s: f64,
    /// Zero level of the digitizer (ZERO_OFF).
    zero_offset: f32,
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
    fn is_byte_aligned(&self) -> bool {
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

/// Columns of scaling factors, if present: value = ((raw - ZERO_OFF) DAT_SCL + DAT_OFFS) DAT_WTS, in f32. Trivial
/// factors (1, 0 and 1 throughout) leave samples their width.
///
/// # Source
/// PSRFITS definition (DAT_SCL, DAT_OFFS, DAT_WTS); the order of operations of PRESTO, sigpyproc and `your`.
#[derive(Clone, Debug)]
pub(super) struct Scaling {
    scales: Option<Column>,
    offsets: Option<Column>,
    weights: Option<Column>,
    zero_offset: f32,
    is_trivial: bool,
}

/// Factors of one row: axes polarization, channel, or channel alone if they apply to all polarizations.
#[derive(Clone, Debug, Default)]
pub(super) struct Factors {
    scales: Vec<f64>,
    offsets: Vec<f64>,
    weights: Vec<f64>,
    scratch: Vec<u8>,
}

impl Scaling {
    /// Finds the columns and reads all of them once, to detect trivial factors.
    ///
    /// # Errors
    /// [`crate::Error::Format`] for a column of the wrong length, for a factor that is not finite, and if every
    /// weight is 0.
    pub(super) fn scan<R: Read + Seek>(
        input: &mut R,
        table: &Table,
        layout: &Layout,
    ) -> Result<Self> {
        let products = layout.channels * layout.polarizations;
        let find = |name| factor_column(table, name, products, layout.channels);
        let mut scaling = Self {
            scales: find("DAT_SCL")?,
            offsets: find("DAT_OFFS")?,
            weights: find("DAT_WTS")?,
            zero_offset: layout.zero_offset,
            is_trivial: layout.zero_offset == 0.0,
        };
        let mut factors = Factors::default();
        let mut any_weight = scaling.weights.is_none();
        for row in 0..table.rows {
            scaling.read(input, table, row, &mut factors)?;
            let is_all =
                |values: &[f64], trivial: f64| values.iter().all(|value| *value == trivial);
            scaling.is_trivial &= is_all(&factors.scales, 1.0)
                && is_all(&factors.offsets, 0.0)
                && is_all(&factors.weights, 1.0);
            any_weight |= factors.weights.iter().any(|weight| *weight != 0.0);
        }
        match &scaling.weights {
            Some(column) if !any_weight => {
                Err(table.fault(column, 0, "every weight of the file is 0"))
            }
            _ => Ok(scaling),
        }
    }

    /// Returns whether samples need no scaling.
    pub(super) fn is_trivial(&self) -> bool {
        self.is_trivial
    }

    /// Reads one row's factors; those of a missing column stay empty.
    ///
    /// # Errors
    /// As [`Scaling::scan`].
    pub(super) fn read<R: Read + Seek>(
        &self,
        input: &mut R,
        table: &Table,
        row: u64,
        factors: &mut Factors,
    ) -> Result<()> {
        let Factors { scales, offsets, weights, scratch } = factors;
        let columns = [(&self.scales, scales), (&self.offsets, offsets), (&self.weights, weights)];
        for (column, values) in columns {
            if let Some(column) = column {
                table.read_reals(input, column, row, scratch, values)?;
            }
        }
        Ok(())
    }

    /// Scales one polarization's raw samples.
    fn apply(&self, factors: &Factors, polarization: usize, values: &mut [f32]) {
        let channels = values.len();
        values.iter_mut().for_each(|value| *value -= self.zero_offset);
        let of = |all: &[f64]| part(all, polarization, channels);
        for (value, scale) in values.iter_mut().zip(&factors.scales[of(&factors.scales)]) {
            *value *= *scale as f32;
        }
        for (value, offset) in values.iter_mut().zip(&factors.offsets[of(&factors.offsets)]) {
            *value += *offset as f32;
        }
        for (value, weight) in values.iter_mut().zip(&factors.weights[of(&factors.weights)]) {
            *value *= *weight as f32;
        }
    }
}

/// Returns the range of one polarization's factors; a column with a single set of channels applies to all
/// polarizations.
fn part(all: &[f64], polarization: usize, channels: usize) -> std::ops::Range<usize> {
    let start = if all.len() > channels { polarization * channels } else { 0 };
    start..all.len().min(start + channels)
}

fn factor_column(
    table: &Table,
    name: &str,
    products: usize,
    channels: usize,
) -> Result<Option<Column>> {
    let Some(column) = table.column(name) else { return Ok(None) };
    let elements = column.elements;
    if elements == products as u64 || elements == channels as u64 {
        return Ok(Some(column.clone()));
    }
    let why = format!("{elements} elements a row found, expected {products} or {channels}");
    Err(table.fault(column, 0, why))
}

/// Converter of recorded spectra to rows of one encoding.
#[derive(Clone, Debug)]
pub(super) struct Converter {
    layout: Layout,
    chosen: Chosen,
    encoding: Encoding,
    is_copy: bool,
    order: BitOrder,
    values: Vec<f32>,
    addend: Vec<f32>,
}

impl Converter {
    /// Makes a converter for one polarization, or the sum of two, scaled unless the factors are trivial.
    pub(super) fn new(layout: &Layout, chosen: Chosen, scaling: &Scaling) -> Self {
        let native = layout.encoding;
        let recorded = if layout.signed_bits { Encoding::I8 } else { native };
        let is_copy = scaling.is_trivial()
            && chosen.second.is_none()
            && !layout.signed_bits
            && layout.is_byte_aligned();
        let encoding = match (scaling.is_trivial(), chosen.second) {
            (false, _) => Encoding::F32,
            (true, None) if is_copy => native,
            (true, None) => byte_encoding(recorded),
            // The sum of two signed nibbles fits a signed byte.
            (true, Some(_)) if layout.signed_bits => Encoding::I8,
            (true, Some(_)) => chosen.encoding(native),
        };
        let order = BitOrder::new(layout.bits);
        let values = vec![0.0; layout.channels];
        let addend = values.clone();
        Self { layout: layout.clone(), chosen, encoding, is_copy, order, values, addend }
    }

    /// Returns the encoding of the rows that [`Converter::convert`] writes.
    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the bytes of a row that [`Converter::convert`] writes.
    pub(super) fn row_bytes(&self) -> usize {
        self.layout.channels * self.encoding.bits() / 8
    }

    /// Converts the spectra in `raw`, whose first `phase` bits belong to an earlier spectrum.
    pub(super) fn convert(
        &mut self,
        raw: &mut [u8],
        phase: usize,
        scaling: &Scaling,
        factors: &Factors,
        rows: &mut [u8],
    ) {
        self.order.apply(&self.layout, raw);
        let row_bytes = self.row_bytes();
        for (time, row) in rows.chunks_exact_mut(row_bytes).enumerate() {
            let spectrum = phase + time * self.layout.spectrum_bits() as usize;
            if self.is_copy {
                let start =
                    (spectrum + self.chosen.first * self.layout.channels * self.layout.bits) / 8;
                row.copy_from_slice(&raw[start..start + row_bytes]);
                continue;
            }
            self.unpack(raw, spectrum, self.chosen.first, scaling, factors);
            if let Some(second) = self.chosen.second {
                std::mem::swap(&mut self.values, &mut self.addend);
                self.unpack(raw, spectrum, second, scaling, factors);
                self.values.iter_mut().zip(&self.addend).for_each(|(y, x)| *y += x);
            }
            encode(&self.values, self.encoding, row);
        }
    }

    /// Unpacks one polarization of a spectrum to values.
    fn unpack(
        &mut self,
        raw: &[u8],
        spectrum: usize,
        polarization: usize,
        scaling: &Scaling,
        factors: &Factors,
    ) {
        let layout = &self.layout;
        let start = spectrum + polarization * layout.channels * layout.bits;
        if start.is_multiple_of(8) {
            unpack_f32(&raw[start / 8..], layout.encoding, &mut self.values);
        } else {
            let mask = ((1u16 << layout.bits) - 1) as u8;
            for (channel, value) in self.values.iter_mut().enumerate() {
                let bit = start + channel * layout.bits;
                *value = f32::from((raw[bit / 8] >> (bit % 8)) & mask);
            }
        }
        if layout.signed_bits {
            let half = f32::from(1u8 << (layout.bits - 1));
            let signed = self.values.iter_mut().filter(|value| **value >= half);
            signed.for_each(|value| *value -= 2.0 * half);
        }
        if !scaling.is_trivial() {
            scaling.apply(factors, polarization, &mut self.values);
        }
    }
}

/// Conversion to the bit and byte order of [`crate::sample`].
#[derive(Clone, Debug)]
struct BitOrder(Option<Box<[u8; 256]>>);

impl BitOrder {
    /// Makes a table that reverses the samples within a byte; none for whole-byte samples.
    fn new(bits: usize) -> Self {
        if bits >= 8 {
            return Self(None);
        }
        let mut table = Box::new([0u8; 256]);
        for (byte, turned) in table.iter_mut().enumerate() {
            let mask = (1usize << bits) - 1;
            let samples =
                (0..8 / bits).map(|k| ((byte >> (k * bits)) & mask) << (8 - (k + 1) * bits));
            *turned = samples.sum::<usize>() as u8;
        }
        Self(Some(table))
    }

    fn apply(&self, layout: &Layout, raw: &mut [u8]) {
        if let Some(table) = &self.0 {
            raw.iter_mut().for_each(|byte| *byte = table[usize::from(*byte)]);
            return;
        }
        let bytes = layout.bits / 8;
        if layout.big_endian {
            raw.chunks_exact_mut(bytes).for_each(<[u8]>::reverse);
        }
        if layout.sign_flip != 0 {
            raw.chunks_exact_mut(bytes).for_each(|sample| sample[bytes - 1] ^= layout.sign_flip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_byte_are_turned() {
        let turned = |bits, byte: u8| BitOrder::new(bits).0.unwrap()[usize::from(byte)];
        assert_eq!(turned(4, 0x2f), 0xf2);
        assert_eq!(turned(2, 0b00_01_10_11), 0b11_10_01_00);
        assert_eq!(turned(1, 0b0000_0011), 0b1100_0000);
        assert!(BitOrder::new(8).0.is_none());
    }
}
