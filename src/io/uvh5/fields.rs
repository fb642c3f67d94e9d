//! Bounded reads of the small data sets of an HDF5 file.
//!
//! Invariant: nothing larger than the file, or than the reader asked for, is read.

use std::path::Path;

use hdf5_pure::{DType, Dataset, File, Layout, VlenStringReadOptions};

use crate::error::{Error, Result};

/// Maximum total bytes of the variable-length strings of a data set.
const MAX_TEXT: usize = 1 << 20;

/// Open HDF5 file. Names refer to the group `Header`, unless they begin with `Data/`.
pub(super) struct Fields<'a> {
    path: &'a Path,
    file: File,
    bytes: u64,
}

impl<'a> Fields<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self> {
        crate::io::check_seekable(path)?;
        let found = std::fs::metadata(path).map_err(|error| Error::io(path, error))?;
        let file = File::open_streaming(path)
            .map_err(|error| Error::format(path, "HDF5", 0, error.to_string()))?;
        Ok(Self { path, file, bytes: found.len() })
    }

    pub(super) fn fault(&self, field: &str, why: impl Into<String>) -> Error {
        Error::format(self.path, field, 0, why)
    }

    fn dataset(&self, name: &str) -> Result<(String, Dataset)> {
        let path =
            if name.starts_with("Data/") { name.to_string() } else { format!("Header/{name}") };
        match self.file.dataset(&path) {
            Ok(dataset) => Ok((path, dataset)),
            Err(error) => Err(self.fault(&path, error.to_string())),
        }
    }

    pub(super) fn shape(&self, name: &str) -> Result<Vec<u64>> {
        let (path, dataset) = self.dataset(name)?;
        dataset.shape().map_err(|error| self.fault(&path, error.to_string()))
    }

    /// Fails if part of a data set lies beyond the file's end; accepts a missing data set.
    ///
    /// # Errors
    /// [`Error::Format`] naming it.
    pub(super) fn check_inside(&self, name: &str) -> Result<()> {
        let Ok((path, dataset)) = self.dataset(name) else { return Ok(()) };
        let library = |error: hdf5_pure::Error| self.fault(&path, error.to_string());
        let beyond = |from: u64, bytes: u64| {
            let why = format!(
                "truncated or damaged: {bytes} bytes of it lie at byte {from} of a file of {} bytes",
                self.bytes
            );
            Err(self.fault(&path, why))
        };
        let is_inside =
            |from: u64, bytes: u64| from.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        match dataset.layout().map_err(library)? {
            Layout::Contiguous { address: Some(address), .. } => {
                let width = dataset.element_size().map_err(library)?;
                let shape = dataset.shape().map_err(library)?;
                let bytes = shape.iter().try_fold(width, |bytes, axis| bytes.checked_mul(*axis));
                let bytes = bytes.unwrap_or(u64::MAX);
                if is_inside(address, bytes) { Ok(()) } else { beyond(address, bytes) }
            }
            Layout::Chunked { .. } => {
                let chunks = dataset.chunks().map_err(library)?;
                let found = chunks.iter().find(|one| !is_inside(one.address, one.storage_size));
                found.map_or(Ok(()), |one| beyond(one.address, one.storage_size))
            }
            _ => Ok(()),
        }
    }

    /// Returns a data set that is contiguous, inside the file and has at most `most` elements, with its path and its
    /// number of elements.
    fn small(&self, name: &str, most: u64) -> Result<(String, Dataset, u64)> {
        let (path, dataset) = self.dataset(name)?;
        let library = |error: hdf5_pure::Error| self.fault(&path, error.to_string());
        let shape = dataset.shape().map_err(library)?;
        let elements = shape.iter().try_fold(1_u64, |product, axis| product.checked_mul(*axis));
        let Some(elements) = elements.filter(|elements| *elements <= most) else {
            return Err(
                self.fault(&path, format!("axes {shape:?}, expected {most} elements at most"))
            );
        };
        let width = dataset.element_size().map_err(library)?;
        let bytes = elements.checked_mul(width);
        if bytes.is_none_or(|bytes| bytes > self.bytes) {
            let why = format!("{elements} elements of {width} bytes in a file of {}", self.bytes);
            return Err(self.fault(&path, why));
        }
        match dataset.layout().map_err(library)? {
            Layout::Compact { .. } | Layout::Contiguous { address: Some(_), .. } => {
                Ok((path, dataset, elements))
            }
            other => Err(self.fault(&path, format!("layout {other}, expected one piece"))),
        }
    }

    /// Reads all numbers of a small data set.
    pub(super) fn numbers(&self, name: &str, most: u64) -> Result<Vec<f64>> {
        let (path, dataset, elements) = self.small(name, most)?;
        self.check_numbers(&path, &dataset)?;
        let numbers = dataset.read_f64().map_err(|error| self.fault(&path, error.to_string()))?;
        match numbers.iter().find(|number| !number.is_finite()) {
            None if numbers.len() as u64 == elements => Ok(numbers),
            None => Err(self.fault(&path, format!("{} of {elements} elements", numbers.len()))),
            Some(bad) => Err(self.fault(&path, format!("{bad} found, expected a finite number"))),
        }
    }

    /// Reads the element of one row, or the only element.
    pub(super) fn row(&self, name: &str, row: u64) -> Result<f64> {
        let (path, dataset, elements) = self.small(name, u64::MAX)?;
        self.check_numbers(&path, &dataset)?;
        let library = |error: hdf5_pure::Error| self.fault(&path, error.to_string());
        let shape = dataset.shape().map_err(library)?;
        let found = match shape.len() {
            0 => dataset.read_f64().map_err(library)?,
            1 if row < elements => dataset.read_f64_rows(row, 1).map_err(library)?,
            _ => Vec::new(),
        };
        match found[..] {
            [number] if number.is_finite() => Ok(number),
            _ => {
                Err(self.fault(&path, format!("{found:?} in row {row}, expected a finite number")))
            }
        }
    }

    fn check_numbers(&self, path: &str, dataset: &Dataset) -> Result<()> {
        use DType::{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
        let found = dataset.dtype().map_err(|error| self.fault(path, error.to_string()))?;
        match found {
            F32 | F64 | I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64 => Ok(()),
            other => Err(self.fault(path, format!("type {other} found, expected numbers"))),
        }
    }

    /// Reads a single number.
    pub(super) fn number(&self, name: &str) -> Result<f64> {
        self.row(name, 0)
    }

    /// Reads a count.
    pub(super) fn count(&self, name: &str) -> Result<u64> {
        let number = self.number(name)?;
        if number.fract() != 0.0 || !(0.0..9e15).contains(&number) {
            let why = format!("{number} found, expected a whole number");
            return Err(self.fault(&format!("Header/{name}"), why));
        }
        Ok(number as u64)
    }

    /// Reads all strings of a small data set.
    pub(super) fn texts(&self, name: &str, most: u64) -> Result<Vec<String>> {
        let (path, dataset, _) = self.small(name, most)?;
        let library = |error: hdf5_pure::Error| self.fault(&path, error.to_string());
        let texts = match dataset.dtype().map_err(library)? {
            DType::String => dataset.read_string(),
            DType::VariableLengthString => {
                let bounds = VlenStringReadOptions::new().with_max_payload_bytes(MAX_TEXT);
                dataset.read_vlen_strings(bounds)
            }
            other => return Err(self.fault(&path, format!("type {other} found, expected text"))),
        };
        let texts = texts.map_err(library)?;
        Ok(texts.iter().map(|text| text.trim_end_matches('\0').trim().to_string()).collect())
    }

    /// Reads a single string; empty if it is missing or not a string.
    pub(super) fn text_or_empty(&self, name: &str) -> String {
        self.texts(name, 1).ok().and_then(|texts| texts.into_iter().next()).unwrap_or_default()
    }

    /// Returns the first child group of a group, by name.
    pub(super) fn first_group(&self, name: &str) -> Option<String> {
        let mut names = self.file.group(&format!("Header/{name}")).ok()?.groups().ok()?;
        names.sort();
        names.first().map(|first| format!("{name}/{first}"))
    }
}
