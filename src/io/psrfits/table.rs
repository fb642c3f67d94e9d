//! FITS binary tables: rows of fixed length with columns in any order.
//!
//! Invariant: every row of a [`Table`] lies inside the file, and every column inside its row; rows that the file's end cuts
//! off are left out.
//!
//! # Source
//! FITS Standard 4.0 (2018), section 7.3.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::fits::Header;
use crate::error::{Error, Result};

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
        at: (&Column, u64),
        skip: u64,
        bytes: &mut [u8],
    ) -> Result<()> {
        let (column, row) = at;
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
        at: (&Column, u64),
        scratch: &mut Vec<u8>,
        values: &mut Vec<f64>,
    ) -> Result<()> {
        let (column, row) = at;
        scratch.resize(column.bytes as usize, 0);
        self.read_bytes(input, at, 0, scratch)?;
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
