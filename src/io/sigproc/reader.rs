//! Streaming reader of a SIGPROC filterbank file or pipe.
//!
//! Invariant: `row` counts the recorded rows that were read or skipped.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::rows::{Chosen, add};
use crate::io::sexagesimal::unpack_degrees;
use crate::io::sigproc::{Header, telescope_name};
use crate::io::{
    Beam, FilterbankHeader, FilterbankSource, Polarizations, TSAMP_S, compressed, parallel,
};
use crate::sample::Encoding;
use crate::units::{Band, HZ_PER_MHZ, MAX_CHANNELS};

/// Bytes read ahead when rows must be converted or discarded.
const SCRATCH_BYTES: usize = 1 << 20;

enum Input {
    File(File),
    Pipe(Box<dyn Read + Send>),
}

/// SIGPROC filterbank opened for reading.
pub struct FilterbankReader {
    input: Input,
    fields: Header,
    header: FilterbankHeader,
    layout: Layout,
    chosen: Chosen,
    row: u64,
    scratch: Vec<u8>,
    cut: Option<String>,
}

impl std::fmt::Debug for FilterbankReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilterbankReader").field("header", &self.header).finish_non_exhaustive()
    }
}

/// Opens a file and validates its header and length.
///
/// The reader drops a last row truncated by the file's end; [`FilterbankSource::cut`] reports it.
///
/// # Errors
/// [`Error::Format`] for an invalid header, for no data, and for data that end within the first row;
/// [`Error::Parameter`] for an IF that the file does not have; [`Error::Io`].
pub fn open(path: &Path, polarizations: Polarizations) -> Result<FilterbankReader> {
    let io = |error| Error::io(path, error);
    let mut file = compressed::open(path)?;
    if !file.metadata().map_err(io)?.is_file() {
        // A named pipe has no length and cannot seek.
        return FilterbankReader::from_pipe(Box::new(file), path, polarizations);
    }
    let fields = Header::parse(BufReader::with_capacity(4096, &mut file), path)?;
    let bytes = file.metadata().map_err(io)?.len().saturating_sub(fields.bytes());
    let mut reader = FilterbankReader::new(Input::File(file), path, fields, polarizations)?;
    reader.header.times = Some(reader.count_rows(bytes)?);
    Ok(reader)
}

impl FilterbankReader {
    /// Reads from a pipe of unknown length; `path` names it in errors (`-` for standard input).
    ///
    /// # Errors
    /// As [`open`].
    pub fn from_pipe(
        mut pipe: Box<dyn Read + Send>,
        path: &Path,
        polarizations: Polarizations,
    ) -> Result<Self> {
        let fields = Header::parse(&mut pipe, path)?;
        Self::new(Input::Pipe(pipe), path, fields, polarizations)
    }

    fn new(
        input: Input,
        path: &Path,
        fields: Header,
        polarizations: Polarizations,
    ) -> Result<Self> {
        let layout = Layout::new(&fields, path)?;
        let chosen = Chosen::new(polarizations, layout.ifs)?;
        let header = layout.describe(&fields, path, chosen);
        Ok(Self { input, fields, header, layout, chosen, row: 0, scratch: Vec::new(), cut: None })
    }

    /// Returns the file's own header.
    pub fn fields(&self) -> &Header {
        &self.fields
    }

    /// Counts the complete rows in `bytes` bytes of data, and notes a truncated one.
    fn count_rows(&mut self, bytes: u64) -> Result<u64> {
        let row = self.layout.row_bytes() as u64;
        let (rows, rest) = (bytes / row, bytes % row);
        if bytes == 0 {
            return Err(self.broken(0, "the header is followed by no data".into()));
        }
        if rows == 0 {
            return Err(self.within_a_row(rows, rest));
        }
        if rest > 0 {
            self.note_cut(rows, rest);
        }
        Ok(rows)
    }

    fn note_cut(&mut self, rows: u64, rest: u64) {
        let (path, row) = (self.header.path.display(), self.layout.row_bytes());
        let why = format!(
            "{path}: the data end {rest} bytes into row {rows}, which has {row}; the {rows} rows before it are used"
        );
        self.cut = Some(why);
    }

    fn within_a_row(&self, rows: u64, rest: u64) -> Error {
        let row = self.layout.row_bytes();
        let why = format!(
            "the data end {rest} bytes into row {rows}, expected rows of {row} bytes ({} channels, \
             {} IFs, {} bit)",
            self.layout.band.channels(),
            self.layout.ifs,
            self.layout.encoding.bits(),
        );
        self.broken(rows * row as u64 + rest, why)
    }

    fn broken(&self, data_bytes: u64, why: String) -> Error {
        let path: &PathBuf = &self.header.path;
        Error::format(path, "data", self.layout.data_offset + data_bytes, why)
    }

    fn rows_left(&self) -> u64 {
        self.header.times.map_or(u64::MAX, |times| times - self.row)
    }

    /// Fills `buffer` with recorded rows; returns the number of complete rows.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let row_bytes = self.layout.row_bytes();
        let offset = self.layout.data_offset + self.row * row_bytes as u64;
        let filled = match &mut self.input {
            Input::File(file) => parallel::read_at(file, buffer, offset),
            Input::Pipe(pipe) => parallel::fill(buffer, |rest, _| pipe.read(rest)),
        };
        let filled = filled.map_err(|error| Error::io(&self.header.path, error))?;
        let rows = filled / row_bytes;
        self.row += rows as u64;
        let rest = (filled % row_bytes) as u64;
        let shrunk = self.header.times.is_some() && filled < buffer.len();
        if shrunk || (rest > 0 && self.row == 0) {
            return Err(self.within_a_row(self.row, rest));
        }
        if rest > 0 {
            self.note_cut(self.row, rest);
        }
        if self.row == 0 && filled == 0 && !buffer.is_empty() {
            return Err(self.broken(0, "the header is followed by no data".into()));
        }
        Ok(rows)
    }

    /// Returns the rows that fit the scratch buffer.
    fn scratch_rows(&self) -> usize {
        (SCRATCH_BYTES / self.layout.row_bytes()).max(1)
    }

    fn with_scratch(&mut self, rows: usize, mut take: impl FnMut(&Self, &[u8])) -> Result<usize> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(self.scratch_rows() * self.layout.row_bytes(), 0);
        let wanted = rows.min(self.scratch_rows()) * self.layout.row_bytes();
        let filled = self.fill(&mut scratch[..wanted]);
        if let Ok(rows) = filled {
            take(self, &scratch[..rows * self.layout.row_bytes()]);
        }
        self.scratch = scratch;
        filled
    }
}

impl FilterbankSource for FilterbankReader {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let asked = self.header.times_in(rows)?;
        let wanted = self.rows_left().min(asked as u64) as usize;
        if self.layout.ifs == 1 {
            return self.fill(&mut rows[..wanted * row_bytes]);
        }
        let mut done = 0;
        while done < wanted {
            let output = &mut rows[done * row_bytes..wanted * row_bytes];
            let read = self.with_scratch(wanted - done, |reader, recorded| {
                let times = recorded.len() / reader.layout.row_bytes();
                let output = &mut output[..times * row_bytes];
                convert(reader.chosen, &reader.layout, recorded, output);
            })?;
            done += read;
            if read == 0 {
                break;
            }
        }
        Ok(done)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let wanted = self.rows_left().min(times);
        if matches!(self.input, Input::File(_)) {
            self.row += wanted;
            return Ok(wanted);
        }
        let mut done = 0;
        while done < wanted {
            let read =
                self.with_scratch(usize::try_from(wanted - done).unwrap_or(usize::MAX), |_, _| {})?;
            done += read as u64;
            if read == 0 {
                break;
            }
        }
        Ok(done)
    }
    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }
}

/// Converts recorded rows to output rows.
fn convert(chosen: Chosen, layout: &Layout, recorded: &[u8], rows: &mut [u8]) {
    let if_bytes = layout.if_bytes();
    let output_bytes = layout.band.channels() * chosen.encoding(layout.encoding).bits() / 8;
    let recorded = recorded.chunks_exact(layout.row_bytes());
    for (row, output) in recorded.zip(rows.chunks_exact_mut(output_bytes)) {
        let first = &row[chosen.first * if_bytes..][..if_bytes];
        match chosen.second {
            None => output.copy_from_slice(first),
            Some(second) => {
                add(first, &row[second * if_bytes..][..if_bytes], layout.encoding, output);
            }
        }
    }
}

/// Maximum number of IFs in a file.
const MAX_IFS: i64 = 16;

/// Data layout of a filterbank file: axes time, IF, channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Channel centres in recorded order.
    pub band: Band,
    /// Encoding of the samples.
    pub encoding: Encoding,
    /// IFs per row.
    pub ifs: usize,
    /// Sampling time in seconds.
    pub tsamp_s: f64,
    /// Start of the first sample, MJD; 0 when unknown.
    pub tstart_mjd: f64,
    /// Byte offset of the data.
    pub data_offset: u64,
}

impl Layout {
    /// Validates the fields that a filterbank needs.
    ///
    /// # Errors
    /// [`Error::Format`] naming `path`, keyword, byte, found and expected values.
    pub fn new(header: &Header, path: &Path) -> Result<Self> {
        check_data_type(header, path)?;
        let layout = Self {
            band: band(header, path)?,
            encoding: encoding(header, path)?,
            ifs: count(header, path, "nifs", MAX_IFS, Some(1))?,
            tsamp_s: tsamp(header, path)?,
            tstart_mjd: tstart(header, path)?,
            data_offset: header.bytes(),
        };
        let (channels, bits) = (layout.band.channels(), layout.encoding.bits());
        if layout.encoding.row_bytes(channels).is_none() {
            let why = format!(
                "{channels} channels of {bits} bit end within a byte, expected rows of whole bytes"
            );
            return Err(header.error(path, "nchans", why));
        }
        Ok(layout)
    }

    /// Returns the bytes of one IF in a row.
    pub fn if_bytes(&self) -> usize {
        self.band.channels() * self.encoding.bits() / 8
    }

    /// Returns the bytes of a recorded row, all IFs.
    pub fn row_bytes(&self) -> usize {
        self.ifs * self.if_bytes()
    }

    /// Builds the header common to all formats.
    pub(super) fn describe(
        &self,
        header: &Header,
        path: &Path,
        chosen: Chosen,
    ) -> FilterbankHeader {
        let (ra_deg, dec_deg) = position(header);
        FilterbankHeader {
            path: path.to_path_buf(),
            format: "SIGPROC filterbank",
            source_name: header.text("source_name").to_string(),
            telescope: telescope(header),
            ra_deg,
            dec_deg,
            beam: Beam::new(header.integer("ibeam"), header.integer("nbeams")),
            tstart_mjd: self.tstart_mjd,
            tsamp_s: self.tsamp_s,
            band: self.band.clone(),
            encoding: chosen.encoding(self.encoding),
            recorded_bits: self.encoding.bits(),
            recorded_polarizations: self.ifs,
            times: None,
        }
    }
}

/// Returns right ascension and declination in degrees. (0, 0), a common default of writers, and invalid angles are
/// unknown.
pub(super) fn position(header: &Header) -> (Option<f64>, Option<f64>) {
    match (header.float("src_raj"), header.float("src_dej")) {
        (Some(0.0), Some(0.0)) => (None, None),
        (ra, dec) => {
            let hours = ra.and_then(unpack_degrees).filter(|hours| (0.0..24.0).contains(hours));
            let degrees = dec.and_then(unpack_degrees).filter(|degrees| degrees.abs() <= 90.0);
            (hours.map(|hours| hours * 15.0), degrees)
        }
    }
}

pub(super) fn telescope(header: &Header) -> String {
    let number = header.integer("telescope_id").and_then(|number| i32::try_from(number).ok());
    number.map(telescope_name).unwrap_or_default()
}

pub(super) fn tsamp(header: &Header, path: &Path) -> Result<f64> {
    let found = required(header, path, "tsamp")?;
    if !TSAMP_S.contains(&found) {
        let why = format!("found {found:?} s, expected 1e-9 to 86400 s");
        return Err(header.error(path, "tsamp", why));
    }
    Ok(found)
}

pub(super) fn tstart(header: &Header, path: &Path) -> Result<f64> {
    let found = header.float("tstart").unwrap_or(0.0);
    if !(0.0..1e6).contains(&found) {
        let why = format!("found MJD {found}, expected 0 (unknown) to 1000000");
        return Err(header.error(path, "tstart", why));
    }
    Ok(found)
}

pub(super) fn encoding(header: &Header, path: &Path) -> Result<Encoding> {
    let signed = header.integer("signed").is_some_and(|signed| signed != 0);
    let Some(bits) = header.integer("nbits") else {
        return Err(header.error(
            path,
            "nbits",
            "the header lacks it, expected 1, 2, 4, 8, 16 or 32",
        ));
    };
    match (bits, signed) {
        (1, false) => Ok(Encoding::U1),
        (2, false) => Ok(Encoding::U2),
        (4, false) => Ok(Encoding::U4),
        (8, false) => Ok(Encoding::U8),
        (8, true) => Ok(Encoding::I8),
        (16, false) => Ok(Encoding::U16),
        (16, true) => Ok(Encoding::I16),
        (32, _) => Ok(Encoding::F32),
        (1 | 2 | 4, true) => {
            let why = format!("found signed samples of {bits} bit, expected unsigned ones");
            Err(header.error(path, "signed", why))
        }
        _ => {
            let why = format!("found {bits}, expected 1, 2, 4, 8, 16 or 32");
            Err(header.error(path, "nbits", why))
        }
    }
}

fn check_data_type(header: &Header, path: &Path) -> Result<()> {
    // Many writers omit data_type, and PRESTO ignores it; 0 is SIGPROC's "raw data".
    match header.integer("data_type") {
        None | Some(0 | 1) => Ok(()),
        Some(2) => {
            let why = "found 2 (a time series), expected 1 (a filterbank)";
            Err(header.error(path, "data_type", why))
        }
        Some(other) => {
            let why = format!("found {other}, expected 1 (a filterbank)");
            Err(header.error(path, "data_type", why))
        }
    }
}

fn required(header: &Header, path: &Path, keyword: &'static str) -> Result<f64> {
    let lacking = || header.error(path, keyword, "the header lacks it");
    header.float(keyword).ok_or_else(lacking)
}

fn count(
    header: &Header,
    path: &Path,
    keyword: &'static str,
    most: i64,
    default: Option<usize>,
) -> Result<usize> {
    let Some(found) = header.integer(keyword) else {
        return default.ok_or_else(|| header.error(path, keyword, "the header lacks it"));
    };
    if !(1..=most).contains(&found) {
        // A count beyond 31 bits reads as a negative number: report the unsigned value.
        let found = if found < 0 { found + (1 << 32) } else { found };
        let why = format!("found {found}, expected 1 to {most}");
        return Err(header.error(path, keyword, why));
    }
    Ok(found as usize)
}

fn band(header: &Header, path: &Path) -> Result<Band> {
    let table = header.frequencies_mhz();
    if !table.is_empty() {
        return band_of_table(header, path, table);
    }
    let channels = count(header, path, "nchans", MAX_CHANNELS as i64, None)?;
    let first = required(header, path, "fch1")?;
    let step = required(header, path, "foff")?;
    Band::uniform(first, step, channels).map_err(|error| {
        let keyword = if first.is_finite() && first > 0.0 { "foff" } else { "fch1" };
        header.error(path, keyword, frequency_fault(&error, first, step))
    })
}

fn band_of_table(header: &Header, path: &Path, table: &[f64]) -> Result<Band> {
    let channels = count(header, path, "nchans", MAX_CHANNELS as i64, Some(table.len()))?;
    if channels != table.len() {
        let why = format!("found {} frequencies, expected nchans = {channels}", table.len());
        return Err(header.error(path, "FREQUENCY_START", why));
    }
    let mut steps: Vec<f64> = table.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    let given = header.float("foff").map(f64::abs).filter(|step| *step > 0.0);
    let step = crate::math::median(&mut steps).filter(|step| *step > 0.0);
    let width = step.or(given).unwrap_or(1.0);
    let centres = table.iter().map(|mhz| mhz * HZ_PER_MHZ).collect();
    Band::from_centres(centres, width * HZ_PER_MHZ)
        .map_err(|error| header.error(path, "FREQUENCY_START", error.to_string()))
}

fn frequency_fault(error: &Error, first: f64, step: f64) -> String {
    format!("found fch1 = {first} MHz and foff = {step} MHz: {error}")
}

#[cfg(test)]
mod tests {
    use super::super::Encoder;
    use super::*;

    fn layout(encoding: Encoding, ifs: usize) -> Layout {
        let band = Band::uniform(1500.0, -1.0, 8).unwrap();
        Layout { band, encoding, ifs, tsamp_s: 1e-3, tstart_mjd: 0.0, data_offset: 0 }
    }

    #[test]
    fn one_of_several_is_cut_out() {
        let layout = layout(Encoding::U4, 4);
        let recorded: Vec<u8> = (0..32).collect();
        let mut rows = [0; 8];
        convert(Chosen { first: 2, second: None }, &layout, &recorded, &mut rows);
        assert_eq!(rows, [8, 9, 10, 11, 24, 25, 26, 27]);
    }

    #[test]
    fn the_first_two_of_each_row_are_added() {
        let layout = layout(Encoding::U8, 2);
        let recorded: Vec<u8> = (0..32).map(|k| 8 * k).collect();
        let mut rows = [0; 32];
        convert(Chosen { first: 0, second: Some(1) }, &layout, &recorded, &mut rows);
        let sums: Vec<u16> =
            rows.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let expected: Vec<u16> = (0..16).map(|k| 16 * (k % 8) + 64 + 256 * (k / 8)).collect();
        assert_eq!(sums, expected);
    }

    /// Layout of a valid header with the fields that `change` inserts before it (the first of two equal keywords
    /// counts).
    fn layout_of(change: impl Fn(&mut Vec<(&'static str, f64)>)) -> Result<Layout> {
        let mut fields = vec![
            ("data_type", 1.0),
            ("nchans", 8.0),
            ("nbits", 8.0),
            ("nifs", 1.0),
            ("tsamp", 1e-3),
            ("tstart", 59000.0),
            ("fch1", 1500.0),
            ("foff", -1.0),
        ];
        change(&mut fields);
        let mut encoder = Encoder::new();
        for (keyword, value) in fields {
            match keyword {
                "tsamp" | "tstart" | "fch1" | "foff" => encoder.float(keyword, value),
                "signed" => encoder.byte(keyword, value as u8),
                _ => encoder.integer(keyword, value as i64 as i32),
            }
        }
        let header = Header::parse(encoder.finish().as_slice(), Path::new("x.fil")).unwrap();
        Layout::new(&header, Path::new("x.fil"))
    }

    fn with(keyword: &'static str, value: f64) -> Result<Layout> {
        layout_of(|fields| {
            fields.retain(|(known, _)| *known != keyword);
            fields.push((keyword, value));
        })
    }

    #[test]
    fn absurd_values_are_named() {
        let bad = [
            ("nchans", 0.0),
            ("nchans", -5.0),
            ("nchans", 2_147_483_648.0),
            ("nbits", 3.0),
            ("nbits", 64.0),
            ("nifs", 0.0),
            ("nifs", 17.0),
            ("tsamp", 0.0),
            ("tsamp", -1e-3),
            ("tsamp", f64::NAN),
            ("tsamp", f64::INFINITY),
            ("tstart", f64::NAN),
            ("tstart", -1.0),
            ("fch1", f64::NAN),
            ("fch1", -1500.0),
            ("foff", 0.0),
            ("foff", f64::NAN),
            ("foff", -1000.0),
            ("data_type", 2.0),
            ("data_type", 77.0),
        ];
        for (keyword, value) in bad {
            match with(keyword, value) {
                Err(Error::Format { field, why, .. }) => {
                    assert_eq!(field, keyword, "{value}");
                    assert!(
                        why.contains("found") && why.contains("expected") || why.contains("but")
                    );
                }
                other => panic!("{keyword} = {value}: {other:?}"),
            }
        }
        let error = with("nchans", 2_147_483_648.0).unwrap_err().to_string();
        assert!(error.contains("found 2147483648, expected 1 to 1048576"), "{error}");
    }

    #[test]
    fn lacking_keywords_are_named() {
        for keyword in ["nchans", "nbits", "tsamp", "fch1", "foff"] {
            let error =
                layout_of(|fields| fields.retain(|(known, _)| *known != keyword)).unwrap_err();
            assert!(error.to_string().contains(keyword), "{error}");
        }
        for keyword in ["nifs", "tstart", "data_type"] {
            assert!(layout_of(|fields| fields.retain(|(known, _)| *known != keyword)).is_ok());
        }
    }

    #[test]
    fn rows_must_end_on_a_byte() {
        assert!(with("nbits", 1.0).is_ok());
        let odd = layout_of(|fields| {
            fields.retain(|(known, _)| !["nchans", "nbits"].contains(known));
            fields.extend([("nchans", 9.0), ("nbits", 1.0)]);
        });
        assert!(odd.unwrap_err().to_string().contains("whole bytes"));
    }

    #[test]
    fn signed_bytes_are_signed() {
        assert_eq!(with("signed", 1.0).unwrap().encoding, Encoding::I8);
        assert_eq!(with("signed", 0.0).unwrap().encoding, Encoding::U8);
    }

    #[test]
    fn ascending_bands_stay_ascending() {
        let band = with("foff", 2.0).unwrap().band;
        assert_eq!(band.fch1_mhz(), 1500.0);
        assert_eq!(band.highest_hz(), 1514e6);
    }
}
