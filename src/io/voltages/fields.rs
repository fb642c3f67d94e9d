//! A header as keys and values, each with its place in the file: what readers take numbers from.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// One key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) value: String,
    /// The byte of the file at which it stands.
    pub(super) offset: u64,
}

/// A file's own header: keys and values as they stand there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    path: PathBuf,
    offset: u64,
    bytes: u64,
    list: Vec<Field>,
}

impl Fields {
    /// A header of so many bytes at a byte of a file.
    pub(super) fn new(path: &Path, offset: u64, bytes: u64, list: Vec<Field>) -> Self {
        Self { path: path.to_path_buf(), offset, bytes, list }
    }

    /// The byte of the file at which the header begins.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the header.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Every key and value, text without its quotes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().map(|field| (field.key.as_str(), field.value.as_str()))
    }

    fn field(&self, key: &str) -> Option<&Field> {
        self.list.iter().find(|field| field.key == key)
    }

    /// The text behind a key, when it is there and not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.field(key).map(|field| field.value.as_str()).filter(|value| !value.is_empty())
    }

    /// The number behind a key; writers put numbers into quotes too.
    ///
    /// # Errors
    /// [`Error::Format`] for what is no finite number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let number = text.replace(['D', 'd'], "E").parse::<f64>().ok();
        let number = number.filter(|number| number.is_finite());
        let why = || format!("found {text:?}, expected a number");
        number.map(Some).ok_or_else(|| self.fault(key, why()))
    }

    /// The count behind a key.
    ///
    /// # Errors
    /// [`Error::Format`] for what is no whole number from 0 on.
    pub fn count(&self, key: &str) -> Result<Option<u64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        if let Ok(count) = text.parse::<u64>() {
            return Ok(Some(count));
        }
        // Some writers put counts down as 16384.0.
        let whole = |number: &f64| (0.0..2f64.powi(53)).contains(number) && number.fract() == 0.0;
        match self.number(key).ok().flatten().filter(whole) {
            Some(number) => Ok(Some(number as u64)),
            None => Err(self.fault(key, format!("found {text:?}, expected a count from 0 on"))),
        }
    }

    /// A count that has to be there and not be 0.
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

    /// What is wrong with a key's value, or with the lack of it.
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
