//! SIGPROC: filterbanks (`.fil`, data type 1) and time series (`.tim`, data type 2).
//!
//! A header is a list of keywords, each with a value, between `HEADER_START` and `HEADER_END`. The data follow
//! immediately: axes time, IF, channel. Integers and floats are little endian. As in other readers, the header's
//! `nsamples` is ignored; the file's size determines the length.
//!
//! A file with 2 or 4 IFs does not identify them. Total intensity is the sum of the first two (AA + BB); for a file
//! of Stokes parameters, select IF 0.
//!
//! Invariant: an unknown keyword or an implausible value is an error that names it and its byte.
//!
//! # Source
//! D. Lorimer, SIGPROC v4.3 manual; telescope numbers as in PRESTO and blimpy.

mod reader;
mod series;
mod writer;

use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::sexagesimal::pack_degrees;
use crate::units::MAX_CHANNELS;

pub use reader::{FilterbankReader, Layout, open};
pub use series::{TimeSeries, TimeSeriesWriter, read_series};
pub use writer::FilterbankWriter;

/// Type of a keyword's value on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 32-bit integer.
    Integer,
    /// 64-bit integer.
    Long,
    /// 64-bit float.
    Float,
    /// A length and a string of that many bytes.
    Text,
    /// One byte.
    Byte,
}

/// A keyword's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`Kind::Integer`], [`Kind::Long`] or [`Kind::Byte`].
    Integer(i64),
    /// Of [`Kind::Float`].
    Float(f64),
    /// Of [`Kind::Text`].
    Text(String),
}

/// All known keywords.
const KEYWORDS: &[(&str, Kind)] = &[
    ("rawdatafile", Kind::Text),
    ("source_name", Kind::Text),
    ("telescope_id", Kind::Integer),
    ("machine_id", Kind::Integer),
    ("data_type", Kind::Integer),
    ("barycentric", Kind::Integer),
    ("pulsarcentric", Kind::Integer),
    ("src_raj", Kind::Float),
    ("src_dej", Kind::Float),
    ("az_start", Kind::Float),
    ("za_start", Kind::Float),
    ("tstart", Kind::Float),
    ("tsamp", Kind::Float),
    ("fch1", Kind::Float),
    ("foff", Kind::Float),
    ("refdm", Kind::Float),
    ("period", Kind::Float),
    ("nchans", Kind::Integer),
    ("nifs", Kind::Integer),
    ("nbits", Kind::Integer),
    ("nsamples", Kind::Integer),
    ("nbeams", Kind::Integer),
    ("ibeam", Kind::Integer),
    ("nbins", Kind::Integer),
    ("npuls", Kind::Long),
    ("headersize", Kind::Integer),
    ("signed", Kind::Byte),
];

/// Maximum length of a keyword, as in SIGPROC.
const MAX_KEYWORD: u32 = 80;
/// Maximum length of a text: SIGPROC writes at most 80 bytes, but other programs write whole paths.
const MAX_TEXT: u32 = 1024;
/// Maximum number of fields in a header.
const MAX_FIELDS: usize = 256;

/// A keyword and its value in a header.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The keyword.
    pub keyword: &'static str,
    /// Its value.
    pub value: Value,
    /// Byte offset of the value.
    pub offset: u64,
}

/// All fields of a header, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    fields: Vec<Field>,
    frequencies_mhz: Vec<f64>,
    bytes: u64,
}

impl Header {
    /// Parses a header and leaves `input` at the first byte of data.
    ///
    /// # Errors
    /// [`Error::Format`] if the header is truncated, has an unknown keyword or is invalid, naming `path`, keyword and
    /// byte; [`Error::Io`].
    pub fn parse(input: impl Read, path: &Path) -> Result<Self> {
        let mut cursor = Cursor { input, path, at: 0 };
        let mut header = Self::default();
        cursor.magic()?;
        for _ in 0..MAX_FIELDS {
            let at = cursor.at;
            let keyword = cursor.text("keyword", MAX_KEYWORD)?;
            match keyword.as_str() {
                "HEADER_END" => {
                    header.bytes = cursor.at;
                    return Ok(header);
                }
                "FREQUENCY_START" => header.read_frequencies(&mut cursor)?,
                _ => header.read_field(&mut cursor, &keyword, at)?,
            }
        }
        let why = format!("more than {MAX_FIELDS} keywords without HEADER_END");
        Err(cursor.error("header", cursor.at, why))
    }

    fn read_field(
        &mut self,
        cursor: &mut Cursor<'_, impl Read>,
        found: &str,
        at: u64,
    ) -> Result<()> {
        let Some((keyword, kind)) = KEYWORDS.iter().find(|(known, _)| *known == found) else {
            let why = "unknown keyword: SIGPROC does not say how long its value is";
            return Err(cursor.error(&printable(found), at, why));
        };
        let offset = cursor.at;
        let value = cursor.value(keyword, *kind)?;
        match self.field(keyword) {
            Some(first) if first.value != value => {
                let why =
                    format!("found {value:?} after {:?} at byte {}", first.value, first.offset);
                Err(cursor.error(keyword, offset, why))
            }
            Some(_) => Ok(()),
            None => {
                self.fields.push(Field { keyword, value, offset });
                Ok(())
            }
        }
    }

    fn read_frequencies(&mut self, cursor: &mut Cursor<'_, impl Read>) -> Result<()> {
        let at = cursor.at;
        if !self.frequencies_mhz.is_empty() {
            return Err(cursor.error("FREQUENCY_START", at, "found a second table"));
        }
        loop {
            let at = cursor.at;
            let keyword = cursor.text("fchannel", MAX_KEYWORD)?;
            match keyword.as_str() {
                "FREQUENCY_END" => return Ok(()),
                "fchannel" if self.frequencies_mhz.len() < MAX_CHANNELS => {
                    let bytes = cursor.take::<8>("fchannel")?;
                    self.frequencies_mhz.push(f64::from_le_bytes(bytes));
                }
                "fchannel" => {
                    let why = format!("found more than {MAX_CHANNELS} channels");
                    return Err(cursor.error("fchannel", at, why));
                }
                other => {
                    let why = format!("found {}, expected FREQUENCY_END", printable(other));
                    return Err(cursor.error("fchannel", at, why));
                }
            }
        }
    }

    /// Returns all fields, in file order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the table between `FREQUENCY_START` and `FREQUENCY_END`, in MHz; empty if absent.
    pub fn frequencies_mhz(&self) -> &[f64] {
        &self.frequencies_mhz
    }

    /// Returns the length of the header in bytes: the offset of the data.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a field.
    pub fn field(&self, keyword: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.keyword == keyword)
    }

    /// Returns an integer field.
    pub fn integer(&self, keyword: &str) -> Option<i64> {
        match self.field(keyword)?.value {
            Value::Integer(value) => Some(value),
            _ => None,
        }
    }

    /// Returns a float field.
    pub fn float(&self, keyword: &str) -> Option<f64> {
        match self.field(keyword)?.value {
            Value::Float(value) => Some(value),
            _ => None,
        }
    }

    /// Returns a text field without leading and trailing spaces and NULs; empty if absent.
    pub fn text(&self, keyword: &str) -> &str {
        match self.field(keyword).map(|field| &field.value) {
            Some(Value::Text(text)) => text.trim_matches(['\0', ' ']),
            _ => "",
        }
    }

    /// Makes an error about one field; a missing field has the offset of the header's end.
    fn error(&self, path: &Path, keyword: &str, why: impl Into<String>) -> Error {
        let offset = self.field(keyword).map_or(self.bytes, |field| field.offset);
        Error::format(path, keyword, offset, why)
    }
}

/// Input with its byte position.
struct Cursor<'a, R> {
    input: R,
    path: &'a Path,
    at: u64,
}

impl<R: Read> Cursor<'_, R> {
    fn error(&self, field: &str, offset: u64, why: impl Into<String>) -> Error {
        Error::format(self.path, field, offset, why)
    }

    fn fill(&mut self, field: &str, buffer: &mut [u8]) -> Result<()> {
        match self.input.read_exact(buffer) {
            Ok(()) => {
                self.at += buffer.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                let bytes = buffer.len();
                let why = format!("the header breaks off: expected {bytes} more bytes");
                Err(self.error(field, self.at, why))
            }
            Err(error) => Err(Error::io(self.path, error)),
        }
    }

    fn take<const BYTES: usize>(&mut self, field: &str) -> Result<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        self.fill(field, &mut bytes)?;
        Ok(bytes)
    }

    fn magic(&mut self) -> Result<()> {
        let found = self.take::<16>("HEADER_START")?;
        if found == *b"\x0c\0\0\0HEADER_START" {
            return Ok(());
        }
        let why = if found == *b"\0\0\0\x0cHEADER_START" {
            "found a big-endian header, expected a little-endian one".to_string()
        } else {
            format!("found the bytes {}, expected a SIGPROC header", found.escape_ascii())
        };
        Err(self.error("HEADER_START", 0, why))
    }

    fn text(&mut self, field: &str, longest: u32) -> Result<String> {
        let at = self.at;
        let length = u32::from_le_bytes(self.take::<4>(field)?);
        if length > longest || (length == 0 && longest == MAX_KEYWORD) {
            let why = format!("found a text of {length} bytes, expected 1 to {longest}");
            return Err(self.error(field, at, why));
        }
        let mut bytes = vec![0; length as usize];
        self.fill(field, &mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn value(&mut self, keyword: &str, kind: Kind) -> Result<Value> {
        Ok(match kind {
            Kind::Integer => Value::Integer(i32::from_le_bytes(self.take(keyword)?).into()),
            Kind::Long => Value::Integer(i64::from_le_bytes(self.take(keyword)?)),
            Kind::Byte => Value::Integer(self.take::<1>(keyword)?[0].into()),
            Kind::Float => Value::Float(f64::from_le_bytes(self.take(keyword)?)),
            Kind::Text => Value::Text(self.text(keyword, MAX_TEXT)?),
        })
    }
}

fn printable(text: &str) -> String {
    text.escape_debug().to_string()
}

/// Builds a header field by field.
#[derive(Debug)]
struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// Begins with `HEADER_START`.
    fn new() -> Self {
        let mut encoder = Self { bytes: Vec::new() };
        encoder.word("HEADER_START");
        encoder
    }

    fn word(&mut self, text: &str) {
        self.bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn integer(&mut self, keyword: &str, value: i32) {
        self.word(keyword);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn float(&mut self, keyword: &str, value: f64) {
        self.word(keyword);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn byte(&mut self, keyword: &str, value: u8) {
        self.word(keyword);
        self.bytes.push(value);
    }

    /// Appends a text, cut to 79 bytes, which every reader accepts.
    fn text(&mut self, keyword: &str, value: &str) {
        let mut end = value.len().min(79);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        self.word(keyword);
        self.word(if end == 0 { "unknown" } else { &value[..end] });
    }

    /// Appends the observation's fields, common to filterbanks and time series.
    fn observation(&mut self, path: &Path, source: &str, telescope: &str) {
        self.text("rawdatafile", &path.file_name().unwrap_or_default().to_string_lossy());
        self.text("source_name", source);
        self.integer("machine_id", 0);
        self.integer("telescope_id", telescope_number(telescope));
    }

    /// Appends the sky position; 0 where unknown.
    fn position(&mut self, ra_deg: Option<f64>, dec_deg: Option<f64>) {
        self.float("src_raj", pack_degrees(ra_deg.unwrap_or(0.0) / 15.0));
        self.float("src_dej", pack_degrees(dec_deg.unwrap_or(0.0)));
        self.float("az_start", 0.0);
        self.float("za_start", 0.0);
    }

    fn frequencies(&mut self, centres_mhz: impl Iterator<Item = f64>) {
        self.word("FREQUENCY_START");
        for centre in centres_mhz {
            self.float("fchannel", centre);
        }
        self.word("FREQUENCY_END");
    }

    /// Appends `HEADER_END` and returns all bytes.
    fn finish(mut self) -> Vec<u8> {
        self.word("HEADER_END");
        self.bytes
    }
}

/// Number and name. Of several names with one number, a reader returns the first, and a writer accepts all.
const TELESCOPES: &[(i32, &str)] = &[
    (0, "Fake"),
    (1, "Arecibo"),
    (2, "Ooty"),
    (3, "Nancay"),
    (4, "Parkes"),
    (4, "Murriyang"),
    (5, "Jodrell"),
    (5, "Lovell"),
    (6, "GBT"),
    (7, "GMRT"),
    (7, "uGMRT"),
    (8, "Effelsberg"),
    (9, "ATA"),
    (10, "SRT"),
    (11, "LOFAR"),
    (12, "VLA"),
    (20, "CHIME"),
    (21, "FAST"),
    (64, "MeerKAT"),
    (65, "KAT-7"),
    (82, "eMerlin"),
];

/// Returns a telescope's name; an unknown number stays a number: `telescope 77`.
pub(crate) fn telescope_name(number: i32) -> String {
    let known = TELESCOPES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("telescope {number}"), |(_, name)| (*name).to_string())
}

/// Returns a telescope's number, ignoring case; 0 if SIGPROC has none.
fn telescope_number(name: &str) -> i32 {
    let known = TELESCOPES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name.trim()));
    let written = || name.trim().strip_prefix("telescope ").and_then(|text| text.parse().ok());
    known.map(|(number, _)| *number).or_else(written).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Header> {
        Header::parse(bytes, Path::new("x.fil"))
    }

    fn example() -> Encoder {
        let mut encoder = Encoder::new();
        encoder.text("source_name", "B0531+21");
        encoder.integer("nchans", 4);
        encoder.float("tsamp", 1e-3);
        encoder.byte("signed", 1);
        encoder
    }

    #[test]
    fn fields_come_back_with_their_places() {
        let bytes = example().finish();
        let header = parse(&bytes).unwrap();
        assert_eq!(header.text("source_name"), "B0531+21");
        assert_eq!(header.integer("nchans"), Some(4));
        assert_eq!(header.float("tsamp"), Some(1e-3));
        assert_eq!(header.integer("signed"), Some(1));
        assert_eq!(header.integer("nbits"), None);
        assert_eq!(header.bytes(), bytes.len() as u64);
        let at = header.field("nchans").unwrap().offset as usize;
        assert_eq!(bytes[at..at + 4], 4i32.to_le_bytes());
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = example().finish();
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn an_unknown_keyword_is_named_with_its_byte() {
        let mut encoder = Encoder::new();
        encoder.integer("nchans", 4);
        encoder.integer("colour", 7);
        let Err(Error::Format { field, offset, .. }) = parse(&encoder.finish()) else { panic!() };
        assert_eq!((field.as_str(), offset), ("colour", 16 + 4 + 6 + 4));
    }

    #[test]
    fn wrong_magic_lengths_and_repeats_are_errors() {
        assert!(parse(b"").is_err());
        assert!(
            parse(b"SIMPLE  =                    T").unwrap_err().to_string().contains("SIMPLE")
        );
        assert!(parse(b"\0\0\0\x0cHEADER_START").unwrap_err().to_string().contains("big-endian"));
        let mut long = b"\x0c\0\0\0HEADER_START".to_vec();
        long.extend_from_slice(&u32::MAX.to_le_bytes());
        assert!(parse(&long).unwrap_err().to_string().contains("4294967295"));
        let mut twice = example();
        twice.integer("nchans", 4);
        twice.integer("nchans", 5);
        assert!(parse(&twice.finish()).unwrap_err().to_string().contains("nchans"));
        let mut endless = Encoder::new();
        (0..10_000).for_each(|_| endless.integer("nchans", 4));
        assert!(parse(&endless.finish()).unwrap_err().to_string().contains("HEADER_END"));
    }

    #[test]
    fn frequency_tables_are_read() {
        let mut encoder = example();
        encoder.frequencies([1500.0, 1498.0, 1497.0].into_iter());
        assert_eq!(parse(&encoder.finish()).unwrap().frequencies_mhz(), [1500.0, 1498.0, 1497.0]);
        let mut bad = Encoder::new();
        bad.word("FREQUENCY_START");
        bad.integer("nchans", 3);
        assert!(parse(&bad.finish()).is_err());
    }

    #[test]
    fn numbers_and_names_go_round() {
        for id in [-1, 0, 4, 6, 21, 64, 77, 1916] {
            assert_eq!(telescope_number(&telescope_name(id)), id);
        }
        assert_eq!(telescope_number("meerkat"), 64);
        assert_eq!(telescope_number("a garden dish"), 0);
    }
}
