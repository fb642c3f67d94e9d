//! FITS headers (blocks of 2880 bytes, cards of 80 characters) and binary tables, whose rows have a fixed length.
//!
//! Invariant: no number in a header determines the size of an allocation; memory grows only with the bytes read.
//!
//! # Source
//! FITS Standard 4.0 (2018), sections 3.3, 4.1, 4.2, 7.1 and 7.3.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Bytes per FITS block: headers and data are padded to whole blocks.
pub(super) const BLOCK_BYTES: u64 = 2880;
const CARD_BYTES: usize = 80;
/// Maximum length of a header, in blocks (73 728 cards).
const MAX_HEADER_BLOCKS: u64 = 2048;

/// Unquoted, trimmed value of a card, and the card's offset.
#[derive(Clone, Debug)]
struct Card {
    value: String,
    offset: u64,
}

/// Header of one FITS unit.
#[derive(Clone, Debug)]
pub(super) struct Header {
    path: PathBuf,
    cards: HashMap<String, Card>,
    start: u64,
    data_start: u64,
}

impl Header {
    /// Reads the header that starts at byte `start`.
    ///
    /// # Errors
    /// [`Error::Format`] if the file ends before the END card, or there is no END card within 2048 blocks;
    /// [`Error::Io`].
    pub(super) fn read<R: Read + Seek>(input: &mut R, path: &Path, start: u64) -> Result<Self> {
        input.seek(SeekFrom::Start(start)).map_err(|e| Error::io(path, e))?;
        let mut header =
            Self { path: path.to_path_buf(), cards: HashMap::new(), start, data_start: start };
        let mut block = [0u8; BLOCK_BYTES as usize];
        for _ in 0..MAX_HEADER_BLOCKS {
            let offset = header.data_start;
            read_block(input, path, offset, &mut block)?;
            header.data_start += BLOCK_BYTES;
            if header.take_block(&block, offset) {
                return Ok(header);
            }
        }
        let why = format!("no END card within {MAX_HEADER_BLOCKS} blocks of 2880 bytes");
        Err(Error::format(path, "END", start, why))
    }

    /// Stores a block's cards; returns true after the END card.
    fn take_block(&mut self, block: &[u8], offset: u64) -> bool {
        for (index, card) in block.chunks_exact(CARD_BYTES).enumerate() {
            let key = String::from_utf8_lossy(&card[..8]).trim_end().to_ascii_uppercase();
            if key == "END" {
                return true;
            }
            if &card[8..10] == b"= " {
                let offset = offset + (index * CARD_BYTES) as u64;
                let card =
                    Card { value: card_value(&String::from_utf8_lossy(&card[10..])), offset };
                self.cards.entry(key).or_insert(card);
            }
        }
        false
    }

    /// Returns the byte after the header's last block.
    pub(super) fn data_start(&self) -> u64 {
        self.data_start
    }

    /// Returns the byte after this unit's data and padding.
    ///
    /// # Errors
    /// [`Error::Format`] for axes that are missing, negative or invalid.
    pub(super) fn next_start(&self) -> Result<u64> {
        let padded = self.data_bytes()?.checked_next_multiple_of(BLOCK_BYTES);
        padded
            .and_then(|bytes| self.data_start.checked_add(bytes))
            .ok_or_else(|| self.fault("NAXIS", "the data would be longer than any file"))
    }

    /// Returns the bytes of data, heap and parameters included: |BITPIX| / 8 GCOUNT (PCOUNT + product of axes).
    fn data_bytes(&self) -> Result<u64> {
        let axes = self.count("NAXIS")?;
        if axes > 999 {
            return Err(self.fault("NAXIS", format!("{axes} axes, expected 0 to 999")));
        }
        if axes == 0 {
            return Ok(0);
        }
        let element = self.integer("BITPIX")?.unwrap_or(8).unsigned_abs() / 8;
        let groups = self.integer("GCOUNT")?.unwrap_or(1);
        let parameters = self.integer("PCOUNT")?.unwrap_or(0);
        let mut elements = Some(1u64);
        for axis in 1..=axes {
            let length = self.count(&format!("NAXIS{axis}"))?;
            elements = elements.and_then(|n| n.checked_mul(length));
        }
        let total = || {
            let elements = elements?.checked_add(u64::try_from(parameters).ok()?)?;
            elements.checked_mul(u64::try_from(groups).ok()?)?.checked_mul(element)
        };
        total().ok_or_else(|| self.fault("NAXIS", "the data would be longer than any file"))
    }

    /// Returns a card's text; `None` if it is missing, empty or `*` (PSRFITS for "undefined").
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        let value = self.cards.get(key)?.value.as_str();
        if value.is_empty() || value == "*" { None } else { Some(value) }
    }

    /// Returns a card's real number.
    ///
    /// # Errors
    /// [`Error::Format`] if it is set to anything but a finite number.
    pub(super) fn real(&self, key: &str) -> Result<Option<f64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let number = text.replace(['D', 'd'], "E").parse::<f64>().ok().filter(|x| x.is_finite());
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(self.fault(key, format!("{text:?} found, expected a finite number"))),
        }
    }

    /// Returns a card's integer; accepts `8.` and `8.0` as 8.
    ///
    /// # Errors
    /// [`Error::Format`] if it is set to anything but an integer.
    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        if let Ok(number) = text.parse() {
            return Ok(Some(number));
        }
        match self.real(key)? {
            Some(real) if real.fract() == 0.0 && real.abs() < 9e15 => Ok(Some(real as i64)),
            _ => Err(self.fault(key, format!("{text:?} found, expected a whole number"))),
        }
    }

    /// Returns a card that must be a non-negative integer.
    ///
    /// # Errors
    /// [`Error::Format`] if it is missing, or set to anything else.
    pub(super) fn count(&self, key: &str) -> Result<u64> {
        let Some(number) = self.integer(key)? else {
            return Err(self.fault(key, "the card is missing or has no value"));
        };
        u64::try_from(number)
            .map_err(|_| self.fault(key, format!("{number} found, expected 0 or more")))
    }

    /// Makes an [`Error::Format`] at a card, or at the header's start if the card is missing.
    pub(super) fn fault(&self, key: &str, why: impl Into<String>) -> Error {
        let offset = self.cards.get(key).map_or(self.start, |card| card.offset);
        Error::format(&self.path, key, offset, why)
    }
}

fn read_block(input: &mut impl Read, path: &Path, offset: u64, block: &mut [u8]) -> Result<()> {
    input.read_exact(block).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Error::format(path, "END", offset, "the file ends before the header's END card")
        }
        _ => Error::io(path, error),
    })
}

/// Returns the value of a card without its comment: a quoted string (`''` is a quote) or a word.
pub(crate) fn card_value(field: &str) -> String {
    let text = field.trim_start();
    let Some(quoted) = text.strip_prefix('\'') else {
        return text.split('/').next().unwrap_or_default().trim_end().to_string();
    };
    let mut value = String::new();
    let mut characters = quoted.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\'' && characters.next_if_eq(&'\'').is_none() {
            break;
        }
        value.push(character);
    }
    value.trim().to_string()
}

/// One column of a binary table.
#[derive(Clone, Debug)]
pub(super) struct Column {
    name: String,
    /// Type letter of TFORM.
    pub(super) letter: char,
    /// Elements per row.
    pub(super) elements: u64,
    /// Byte offset in a row.
    pub(super) offset: u64,
    /// Bytes per row.
    pub(super) bytes: u64,
    /// Number added to every stored value (TZERO).
    pub(super) zero: f64,
}

/// A binary table in a file: axes row, byte.
#[derive(Clone, Debug)]
pub(super) struct Table {
    path: PathBuf,
    /// Number of rows.
    pub(super) rows: u64,
    row_bytes: u64,
    start: u64,
    columns: Vec<Column>,
    /// Description of the truncation by the file's end.
    pub(super) cut: Option<String>,
}

impl Table {
    /// Makes the table that a header describes, in a file of `file_bytes`.
    ///
    /// # Errors
    /// [`Error::Format`] for columns that do not fill the row, or a file that ends within the first row.
    pub(super) fn new(header: &Header, path: &Path, file_bytes: u64) -> Result<Self> {
        let promised = header.count("NAXIS2")?;
        let row_bytes = header.count("NAXIS1")?;
        let start = header.data_start();
        let there = file_bytes.saturating_sub(start);
        let whole = there.checked_div(row_bytes).unwrap_or(promised);
        if whole == 0 && promised > 0 {
            let why = format!(
                "{promised} rows of {row_bytes} bytes expected, but the file of {file_bytes} bytes holds {whole}"
            );
            return Err(header.fault("NAXIS2", why));
        }
        let rows = promised.min(whole);
        let cut = (rows < promised).then(|| {
            let (path, rest) = (path.display(), there - rows * row_bytes);
            format!(
                "{path}: the file ends {rest} bytes into row {rows} of its table, which has {row_bytes}; {rows} of the \
                 {promised} rows promised (NAXIS2) are used"
            )
        });
        let columns = read_columns(header)?;
        let sum: u64 = columns.iter().map(|column| column.bytes).sum();
        if sum != row_bytes {
            let why = format!("{row_bytes} bytes a row found, but the columns hold {sum}");
            return Err(header.fault("NAXIS1", why));
        }
        Ok(Self { path: path.to_path_buf(), rows, row_bytes, start, columns, cut })
    }

    /// Returns the file's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the column of this name, if it has elements.
    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name && column.elements > 0)
    }

    /// Returns the byte offset of a cell.
    pub(super) fn cell(&self, column: &Column, row: u64) -> u64 {
        self.start + row * self.row_bytes + column.offset
    }

    /// Reads bytes of a cell, starting at its byte `skip`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn read_bytes<R: Read + Seek>(
        &self,
        input: &mut R,
        column: &Column,
        row: u64,
        skip: u64,
        bytes: &mut [u8],
    ) -> Result<()> {
        input
            .seek(SeekFrom::Start(self.cell(column, row) + skip))
            .and_then(|_| input.read_exact(bytes))
            .map_err(|e| Error::io(&self.path, e))
    }

    /// Reads a cell of floats (E or D) as f64 into `values`, with `scratch` as the buffer.
    ///
    /// # Errors
    /// [`Error::Format`] for a column of another type or a value that is not finite; [`Error::Io`].
    pub(super) fn read_reals<R: Read + Seek>(
        &self,
        input: &mut R,
        column: &Column,
        row: u64,
        scratch: &mut Vec<u8>,
        values: &mut Vec<f64>,
    ) -> Result<()> {
        scratch.resize(column.bytes as usize, 0);
        self.read_bytes(input, column, row, 0, scratch)?;
        values.clear();
        match column.letter {
            'E' => values.extend(scratch.chunks_exact(4).map(|b| f64::from(big_endian_f32(b)))),
            'D' => values.extend(scratch.chunks_exact(8).map(big_endian_f64)),
            letter => {
                let why = format!("TFORM letter {letter} found, expected E or D");
                return Err(self.fault(column, row, why));
            }
        }
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(index) => {
                let why = format!("row {row}, element {index} is {}", values[index]);
                Err(self.fault(column, row, why))
            }
        }
    }

    /// Makes an [`Error::Format`] at a cell.
    pub(super) fn fault(&self, column: &Column, row: u64, why: impl Into<String>) -> Error {
        Error::format(&self.path, column.name.clone(), self.cell(column, row), why)
    }
}

fn big_endian_f32(b: &[u8]) -> f32 {
    f32::from_be_bytes([b[0], b[1], b[2], b[3]])
}

fn big_endian_f64(b: &[u8]) -> f64 {
    f64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])
}

fn read_columns(header: &Header) -> Result<Vec<Column>> {
    let fields = header.count("TFIELDS")?;
    if fields > 999 {
        return Err(header.fault("TFIELDS", format!("{fields} columns, expected 1 to 999")));
    }
    let mut offset = 0u64;
    let mut columns = Vec::new();
    for field in 1..=fields {
        let key = format!("TFORM{field}");
        let form = header.text(&key).unwrap_or_default();
        let parsed = parse_form(form).and_then(|form| Some((form, offset.checked_add(form.2)?)));
        let Some(((letter, elements, bytes), next)) = parsed else {
            return Err(
                header.fault(&key, format!("{form:?} found, expected a count and a letter"))
            );
        };
        let name = header.text(&format!("TTYPE{field}")).unwrap_or_default().to_ascii_uppercase();
        let zero = header.real(&format!("TZERO{field}"))?.unwrap_or(0.0);
        let scale = header.real(&format!("TSCAL{field}"))?.unwrap_or(1.0);
        if scale != 1.0 {
            return Err(
                header.fault(&format!("TSCAL{field}"), format!("{scale} found, expected 1"))
            );
        }
        columns.push(Column { name, letter, elements, offset, bytes, zero });
        offset = next;
    }
    Ok(columns)
}

/// Parses a TFORM such as `336E`, `1PB(2)` or `D` into letter, elements and bytes.
fn parse_form(form: &str) -> Option<(char, u64, u64)> {
    let digits = form.find(|c: char| !c.is_ascii_digit())?;
    let elements: u64 = if digits == 0 { 1 } else { form[..digits].parse().ok()? };
    let letter = form[digits..].chars().next()?;
    let bytes = match letter {
        'X' => elements.div_ceil(8),
        'L' | 'B' | 'A' => elements,
        'I' => elements.checked_mul(2)?,
        'J' | 'E' => elements.checked_mul(4)?,
        'K' | 'D' | 'C' | 'P' => elements.checked_mul(8)?,
        'M' | 'Q' => elements.checked_mul(16)?,
        _ => return None,
    };
    Some((letter, elements, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn header_of(cards: &[&str]) -> Result<Header> {
        let mut bytes: Vec<u8> =
            cards.iter().flat_map(|c| format!("{c:<80}").into_bytes()).collect();
        bytes.resize(bytes.len().next_multiple_of(2880), b' ');
        Header::read(&mut Cursor::new(bytes), Path::new("x.fits"), 0)
    }

    #[test]
    fn cards_of_every_kind_are_read() {
        let header = header_of(&[
            "SIMPLE  =                    T / conforms",
            "COMMENT = 'not a value'",
            "SRC_NAME= 'O''Neill '          / a quote",
            "CONTINUE  'more text'",
            "TBIN    =             1.28D-04",
            "NBITS   =                   8.",
            "NSTOT   = '*       '",
            "NCHAN   = '96      '",
            "HIERARCH a long key = 3",
            "END",
        ])
        .unwrap();
        assert_eq!(header.text("SRC_NAME"), Some("O'Neill"));
        assert_eq!(header.real("TBIN").unwrap(), Some(1.28e-4));
        assert_eq!(header.count("NBITS").unwrap(), 8);
        assert_eq!(header.integer("NSTOT").unwrap(), None);
        assert_eq!(header.count("NCHAN").unwrap(), 96);
        assert!(header.count("NPOL").is_err());
        assert_eq!(header.data_start(), 2880);
    }

    #[test]
    fn absurd_headers_are_refused() {
        assert!(header_of(&["SIMPLE  = T"]).is_err());
        let huge = ["NAXIS   = 2", "NAXIS1  = 9000000000000000000", "NAXIS2  = 16", "END"];
        assert!(header_of(&huge).unwrap().next_start().is_err());
        assert!(header_of(&["NAXIS   = 100000", "END"]).unwrap().next_start().is_err());
        assert!(header_of(&["NAXIS   = -1", "END"]).unwrap().next_start().is_err());
        assert!(header_of(&["TBIN    = nan", "END"]).unwrap().real("TBIN").is_err());
    }

    #[test]
    fn forms_give_their_bytes() {
        assert_eq!(parse_form("336E"), Some(('E', 336, 1344)));
        assert_eq!(parse_form("D"), Some(('D', 1, 8)));
        assert_eq!(parse_form("12X"), Some(('X', 12, 2)));
        assert_eq!(parse_form("1PB(20)"), Some(('P', 1, 8)));
        assert_eq!(parse_form("0A"), Some(('A', 0, 0)));
        assert_eq!(parse_form("99999999999999999999E"), None);
        assert_eq!(parse_form("9999999999999999999D"), None);
        assert_eq!(parse_form("17"), None);
        assert_eq!(parse_form(""), None);
        assert_eq!(parse_form("3Z"), None);
    }
}
