//! Text header: keys and values, each with its offset in the file.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// One key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) value: String,
    /// Byte offset in the file.
    pub(super) offset: u64,
}

/// Header of a file: keys and values as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    path: PathBuf,
    offset: u64,
    bytes: u64,
    list: Vec<Field>,
}

impl Fields {
    /// Makes a header of `bytes` bytes at byte `offset` of a file.
    pub(super) fn new(path: &Path, offset: u64, bytes: u64, list: Vec<Field>) -> Self {
        Self { path: path.to_path_buf(), offset, bytes, list }
    }

    /// Returns the byte offset of the header in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the length of the header in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Iterates over keys and values; strings have no quotes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().map(|field| (field.key.as_str(), field.value.as_str()))
    }

    fn field(&self, key: &str) -> Option<&Field> {
        self.list.iter().find(|field| field.key == key)
    }

    /// Returns a key's text, if it is present and not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.field(key).map(|field| field.value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns a key's number. Quoted numbers are accepted, because some writers quote them.
    ///
    /// # Errors
    /// [`Error::Format`] unless the value is a finite number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let number = text.replace(['D', 'd'], "E").parse::<f64>().ok();
        let number = number.filter(|number| number.is_finite());
        let why = || format!("found {text:?}, expected a number");
        number.map(Some).ok_or_else(|| self.fault(key, why()))
    }

    /// Returns a key's count.
    ///
    /// # Errors
    /// [`Error::Format`] unless the value is a non-negative integer.
    pub fn count(&self, key: &str) -> Result<Option<u64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        if let Ok(count) = text.parse::<u64>() {
            return Ok(Some(count));
        }
        // Some writers format counts as 16384.0.
        let whole = |number: &f64| (0.0..2f64.powi(53)).contains(number) && number.fract() == 0.0;
        match self.number(key).ok().flatten().filter(whole) {
            Some(number) => Ok(Some(number as u64)),
            None => Err(self.fault(key, format!("found {text:?}, expected a count from 0 on"))),
        }
    }

    /// Returns a count that must be present and not 0.
    ///
    /// # Errors
    /// As [`Fields::count`].
    pub(super) fn needed(&self, key: &str) -> Result<u64> {
        match self.count(key)? {
            Some(0) => Err(self.fault(key, "found 0, expected 1 at least")),
            Some(count) => Ok(count),
            None => Err(self.fault(key, "it is missing from the header")),
        }
    }

    /// Makes an error about a key's value or its absence.
    pub(super) fn fault(&self, key: &str, why: impl Into<String>) -> Error {
        let offset = self.field(key).map_or(self.offset, |field| field.offset);
        Error::format(&self.path, key, offset, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_as_they_are_written() {
        let texts = ["A 7", "B -100.0", "C 1.5D-3", "D x", "E 16384.0", "F -1", "G 1e400", "Z 0"];
        let list = texts.map(|text| Field {
            key: text[..1].into(),
            value: text[2..].into(),
            offset: 100 + u64::from(text.as_bytes()[0]),
        });
        let header = Fields::new(Path::new("x.raw"), 99, 0, list.to_vec());
        assert_eq!(header.count("A").unwrap(), Some(7));
        assert_eq!(header.number("B").unwrap(), Some(-100.0));
        assert_eq!(header.number("C").unwrap(), Some(1.5e-3));
        assert_eq!(header.count("E").unwrap(), Some(16384));
        assert_eq!(header.count("H").unwrap(), None);
        assert!(header.number("D").is_err() && header.count("F").is_err());
        assert!(header.number("G").is_err() && header.needed("Z").is_err());
        let place = |error: Error| match error {
            Error::Format { field, offset, .. } => (field, offset),
            other => panic!("{other}"),
        };
        assert_eq!(place(header.count("D").unwrap_err()), ("D".into(), 168));
        assert_eq!(place(header.needed("H").unwrap_err()), ("H".into(), 99));
    }
}
