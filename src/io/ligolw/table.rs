//! Table of named columns of equal length.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Cells of a column; `None` for an empty cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Text (`lstring`, `ilwd:char`, ...).
    Text(Vec<Option<String>>),
    /// Integers (`int_4s`, `int_8s`, ...).
    Whole(Vec<Option<i64>>),
    /// Real numbers (`real_4`, `real_8`); empty cells are NaN.
    Real(Vec<f64>),
}

impl Values {
    /// Makes an empty column of a LIGO_LW type.
    pub(super) fn of_type(name: &str) -> Option<Self> {
        match name {
            "lstring" | "string" | "char_s" | "char_v" | "ilwd:char" | "ilwd:char_u" | "blob" => {
                Some(Self::Text(Vec::new()))
            }
            "int_2s" | "int_2u" | "int_4s" | "int_4u" | "int_8s" | "int_8u" | "int" => {
                Some(Self::Whole(Vec::new()))
            }
            "real_4" | "real_8" | "float" | "double" => Some(Self::Real(Vec::new())),
            _ => None,
        }
    }

    /// Appends a cell; fails with the expected type.
    pub(super) fn push(&mut self, cell: Option<String>) -> std::result::Result<(), String> {
        let expected = |text: &str, what| format!("{text:?} found, expected {what}");
        match self {
            Self::Text(values) => values.push(cell),
            Self::Whole(values) => {
                let parse = |text: String| {
                    text.parse().map_err(|_| expected(&text, "a whole number of 64 bits"))
                };
                values.push(cell.map(parse).transpose()?);
            }
            Self::Real(values) => {
                let parse = |text: String| text.parse().map_err(|_| expected(&text, "a number"));
                values.push(cell.map_or(Ok(f64::NAN), parse)?);
            }
        }
        Ok(())
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name without the table's: `mass1`.
    pub name: String,
    /// Its cells.
    pub values: Values,
}

/// A table of a LIGO_LW file.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Path of the file.
    pub path: PathBuf,
    /// Name of the table: `sngl_inspiral`.
    pub name: String,
    /// Columns, in file order.
    pub columns: Vec<Column>,
    /// Number of rows: the cells of every column.
    pub rows: usize,
    /// Byte offset of the table in the decompressed file.
    pub offset: u64,
}

impl Table {
    /// Returns a column's cells, if present.
    pub fn column(&self, name: &str) -> Option<&Values> {
        self.columns.iter().find(|column| column.name == name).map(|column| &column.values)
    }

    /// Returns a column's numbers, integers included; `None` if the column is absent.
    ///
    /// # Errors
    /// [`Error::Format`] if it has text, an empty cell, or a non-finite number.
    pub fn optional_reals(&self, name: &str) -> Result<Option<Vec<f64>>> {
        let numbers = match self.column(name) {
            None => return Ok(None),
            Some(Values::Real(numbers)) => numbers.clone(),
            Some(Values::Whole(numbers)) => {
                numbers.iter().map(|number| number.map_or(f64::NAN, |whole| whole as f64)).collect()
            }
            Some(Values::Text(_)) => {
                return Err(self.fault(name, "a column of text found, expected numbers"));
            }
        };
        match numbers.iter().position(|number| !number.is_finite()) {
            Some(row) => {
                let why = format!("row {row} is empty or not finite, expected a number");
                Err(self.fault(name, &why))
            }
            None => Ok(Some(numbers)),
        }
    }

    /// Returns a column's numbers, integers included.
    ///
    /// # Errors
    /// As [`Self::optional_reals`], and if the column is absent.
    pub fn reals(&self, name: &str) -> Result<Vec<f64>> {
        self.optional_reals(name)?.ok_or_else(|| {
            let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
            self.fault(name, &format!("no such column; there are {}", names.join(", ")))
        })
    }

    /// Returns a column's texts, empty for empty cells; `None` if there is no such column of text.
    pub fn texts(&self, name: &str) -> Option<Vec<&str>> {
        match self.column(name)? {
            Values::Text(texts) => {
                Some(texts.iter().map(|text| text.as_deref().unwrap_or_default()).collect())
            }
            _ => None,
        }
    }

    fn fault(&self, column: &str, why: &str) -> Error {
        let path: &Path = &self.path;
        Error::format(path, format!("{}:{column}", self.name), self.offset, why)
    }
}
