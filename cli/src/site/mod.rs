//! Files that describe a site in TOML: reading of tables with errors that name file, key and what is expected.
//!
//! Invariant: every key is known and every value checked before anything is opened.

mod chain;
mod clock;
mod input;
mod presets;

use std::cell::RefCell;
use std::path::Path;

use sidereal::{Error, Result};
use toml::{Table, Value};

use crate::numbers;

pub(crate) use chain::{addresses, command_line};
pub(crate) use input::{Input, read, read_table, table};

/// Table of a file, which remembers the keys that were asked for.
pub(crate) struct Section<'a> {
    path: &'a Path,
    /// Name with those of the tables around it, such as `input.time`; empty for the whole file.
    name: String,
    table: &'a Table,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    fn new(path: &'a Path, name: String, table: &'a Table) -> Self {
        Self { path, name, table, known: RefCell::default() }
    }

    /// Makes the error of a key.
    pub(crate) fn fault(&self, key: &str, why: impl Into<String>) -> Error {
        let dot = if self.name.is_empty() || key.is_empty() { "" } else { "." };
        Error::format(self.path, format!("{}{dot}{key}", self.name), 0, why)
    }

    /// Makes the error of a value of another kind.
    fn found(&self, key: &str, found: &Value, expected: &str) -> Error {
        self.fault(key, format!("found {found}, expected {expected}"))
    }

    /// Names this table in an error of the library about values that were read from it.
    pub(crate) fn locate(&self, error: Error) -> Error {
        match error {
            Error::Parameter { name, value, rule } => {
                self.fault("", format!("{name} is {value}, but {}", rule.replace('`', "")))
            }
            other => other,
        }
    }

    fn value(&self, key: &'static str) -> Option<&'a Value> {
        self.known.borrow_mut().push(key);
        self.table.get(key)
    }

    /// Returns a value that must be there.
    pub(crate) fn needed<T>(&self, key: &str, value: Option<T>, expected: &str) -> Result<T> {
        value.ok_or_else(|| self.fault(key, format!("it is missing, expected {expected}")))
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<Option<&'a str>> {
        let read = |value: &'a Value| {
            value.as_str().ok_or_else(|| self.found(key, value, "a text in quotes"))
        };
        self.value(key).map(read).transpose()
    }

    /// Returns a text or a list of texts.
    pub(crate) fn texts(&self, key: &'static str) -> Result<Option<Vec<&'a str>>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let fault = || self.found(key, value, "a text in quotes, or a list of them");
        let texts = match value {
            Value::Array(list) => list.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
            other => other.as_str().map(|text| vec![text]),
        };
        texts.filter(|texts| !texts.is_empty()).map(Some).ok_or_else(fault)
    }

    /// Returns one of several words.
    pub(crate) fn word<T: Copy>(&self, key: &'static str, words: &[Word<T>]) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let found = words.iter().find(|word| value.as_str() == Some(word.text));
        let names: Vec<_> = words.iter().map(|word| format!("{:?}", word.text)).collect();
        let fault = || self.found(key, value, &format!("one of {}", names.join(", ")));
        found.map(|word| Some(word.value)).ok_or_else(fault)
    }

    /// Returns a number in a unit.
    pub(crate) fn number(&self, key: &'static str, unit: &str) -> Result<Option<f64>> {
        self.value(key).map(|value| self.as_number(key, value, unit)).transpose()
    }

    fn as_number(&self, key: &'static str, value: &Value, unit: &str) -> Result<f64> {
        let number = match value {
            Value::Float(number) => *number,
            Value::Integer(number) => *number as f64,
            other => return Err(self.found(key, other, &format!("a number ({unit})"))),
        };
        numbers::sane(number).map_err(|why| self.fault(key, why))
    }

    /// Returns a list of numbers.
    pub(crate) fn numbers(&self, key: &'static str, unit: &str) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let list = value.as_array().filter(|list| !list.is_empty());
        let list =
            list.ok_or_else(|| self.found(key, value, &format!("a list of numbers ({unit})")))?;
        list.iter().map(|value| self.as_number(key, value, unit)).collect::<Result<_>>().map(Some)
    }

    /// Returns a whole number in a range.
    pub(crate) fn count(
        &self,
        key: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let found = value.as_integer().and_then(|number| u64::try_from(number).ok());
        let fault = || {
            let (least, most) = (range.start(), range.end());
            self.found(key, value, &format!("a whole number, {least} to {most}"))
        };
        found.filter(|number| range.contains(number)).map(Some).ok_or_else(fault)
    }

    /// Returns a list of whole numbers in a range.
    pub(crate) fn counts(
        &self,
        key: &'static str,
        range: std::ops::RangeInclusive<u64>,
        meaning: &str,
    ) -> Result<Option<Vec<u64>>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = |value: &Value| {
            let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
            number.filter(|number| range.contains(number))
        };
        let list = value.as_array().filter(|list| !list.is_empty());
        let numbers = list.and_then(|list| list.iter().map(number).collect::<Option<_>>());
        let expected = format!("a list of whole numbers: {meaning}");
        numbers.map(Some).ok_or_else(|| self.found(key, value, &expected))
    }

    /// Returns a number of things, at least one.
    pub(crate) fn size(&self, key: &'static str) -> Result<Option<usize>> {
        Ok(self.count(key, 1..=1 << 24)?.map(|count| count as usize))
    }

    /// Returns whether a key is true; false if it is missing.
    pub(crate) fn flag(&self, key: &'static str) -> Result<bool> {
        let Some(value) = self.value(key) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.found(key, value, "true or false"))
    }

    /// Returns a date, time or number as it is written.
    pub(crate) fn moment(&self, key: &'static str) -> Result<Option<Moment>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value {
            Value::Datetime(time) => Ok(Some(Moment::Text(time.to_string()))),
            Value::String(text) => Ok(Some(Moment::Text(text.clone()))),
            Value::Float(_) | Value::Integer(_) => {
                self.as_number(key, value, "Unix seconds").map(|s| Some(Moment::Unix(s)))
            }
            other => Err(self.found(key, other, "a time (ISO 8601) or Unix seconds")),
        }
    }

    /// Returns a table within this one.
    pub(crate) fn section(&self, key: &'static str) -> Result<Option<Section<'a>>> {
        let read = |value: &'a Value| match value {
            Value::Table(table) => Ok(Section::new(self.path, self.inner(key), table)),
            other => Err(self.found(key, other, "a table")),
        };
        self.value(key).map(read).transpose()
    }

    /// Returns the tables of a list; none if it is missing.
    pub(crate) fn sections(&self, key: &'static str) -> Result<Vec<Section<'a>>> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let fault = || self.found(key, value, "a list of tables");
        let list = value.as_array().ok_or_else(fault)?.iter().enumerate();
        let read = |(index, value): (usize, &'a Value)| {
            let name = format!("{} {}", self.inner(key), index + 1);
            let table = value.as_table().ok_or_else(fault)?;
            Ok(Section::new(self.path, name, table))
        };
        list.map(read).collect()
    }

    fn inner(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// Refuses keys that were not asked for.
    pub(crate) fn finish(&self) -> Result<()> {
        let known = self.known.borrow();
        let Some(unknown) = self.table.keys().find(|key| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        let mut names: Vec<&str> = known.clone();
        names.sort_unstable();
        names.dedup();
        let place = if self.name.is_empty() { "the file" } else { "this table" };
        Err(self.fault(unknown, format!("{place} has no such key, only {}", names.join(", "))))
    }
}

/// A time as it is written.
pub(crate) enum Moment {
    Text(String),
    Unix(f64),
}

/// Word of a file and its meaning.
pub(crate) struct Word<T> {
    pub(crate) text: &'static str,
    pub(crate) value: T,
}

impl<T> Word<T> {
    pub(crate) const fn new(text: &'static str, value: T) -> Self {
        Self { text, value }
    }
}
