//! Encodings of voltages in arrays, pairs of integers among them.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use sidereal::voltage::VoltageEncoding;

use crate::errors::refused;

/// Encoding of an array's samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Samples {
    pub(crate) encoding: VoltageEncoding,
    /// Whether the last axis holds the real and the imaginary part.
    pub(crate) is_paired: bool,
}

/// Words for encodings, and the type of their arrays.
const ENCODINGS: [(&str, VoltageEncoding, bool, &str); 8] = [
    ("complex64", VoltageEncoding::ComplexF32, false, "complex64"),
    ("float32", VoltageEncoding::RealF32, false, "float32"),
    ("int8", VoltageEncoding::Real8, false, "int8"),
    ("int16", VoltageEncoding::Real16, false, "int16"),
    ("int8_pair", VoltageEncoding::Complex8, true, "int8"),
    ("int16_pair", VoltageEncoding::Complex16, true, "int16"),
    ("complex4", VoltageEncoding::Complex4, false, "uint8"),
    ("uint8_offset", VoltageEncoding::RealOffset8, false, "uint8"),
];

impl Samples {
    /// Returns the encoding with this name.
    ///
    /// # Errors
    /// `ParameterError` for an unknown word.
    pub(crate) fn named(word: &str) -> PyResult<Self> {
        let found = ENCODINGS.iter().find(|known| known.0 == word);
        let (_, encoding, is_paired, _) = *found.ok_or_else(|| {
            let words = ENCODINGS.map(|known| known.0).join(", ");
            refused("encoding", word, format!("there are {words}"))
        })?;
        Ok(Self { encoding, is_paired })
    }

    /// Returns the encoding of an array: the named one, or that which its type decides; `x` is the array as given, and
    /// `kind` the type of its elements, or of the fields of pairs.
    ///
    /// # Errors
    /// `ParameterError` for an unknown word, and for a type that needs one.
    pub(crate) fn of(encoding: Option<&str>, x: &Bound<'_, PyAny>, kind: &str) -> PyResult<Self> {
        if let Some(word) = encoding {
            return Self::named(word);
        }
        if pair_fields(x)?.is_some() {
            return Self::named(&format!("{kind}_pair"));
        }
        match kind {
            "complex64" | "float32" | "int8" | "int16" => Self::named(kind),
            _ => {
                let rule = "its type does not decide the encoding of voltages; name `encoding`";
                Err(refused("x", format!("an array of {kind}"), rule))
            }
        }
    }

    /// Checks the type of an array.
    ///
    /// # Errors
    /// `ParameterError` for another type than the encoding's.
    pub(crate) fn check(self, kind: &str) -> PyResult<()> {
        let known = ENCODINGS.iter().find(|known| known.1 == self.encoding);
        let expected = known.map_or("", |known| known.3);
        if kind == expected {
            return Ok(());
        }
        let rule = format!("the encoding needs {expected}");
        Err(refused("x", format!("an array of {kind}"), rule))
    }
}

/// Returns an array of a structured type of two equal integers as integers with a last axis of length 2; other
/// objects stay as they are.
///
/// # Errors
/// Any of Python's.
pub(crate) fn split_pairs<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let Some(fields) = pair_fields(x)? else { return Ok(x.clone()) };
    let shape: Vec<usize> = x.getattr("shape")?.extract()?;
    let shape = PyTuple::new(x.py(), [shape, vec![2]].concat())?;
    x.call_method1("view", (fields,))?.call_method1("reshape", (shape,))
}

/// Returns the type of the two fields of a structured array, if it is one of pairs without padding.
fn pair_fields<'py>(x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(dtype) = x.getattr("dtype") else { return Ok(None) };
    let Ok(Some(names)) = dtype.getattr("names").and_then(|names| names.extract()) else {
        return Ok(None);
    };
    let names: Vec<String> = names;
    let [first, second] = names.as_slice() else { return Ok(None) };
    let (first, second) = (dtype.get_item(first)?, dtype.get_item(second)?);
    let size: usize = dtype.getattr("itemsize")?.extract()?;
    let half: usize = first.getattr("itemsize")?.extract()?;
    let is_plain = size == 2 * half && first.eq(&second)? && first.getattr("names")?.is_none();
    let axes: usize = x.getattr("ndim")?.extract()?;
    let is_contiguous: bool = x.getattr("flags")?.getattr("c_contiguous")?.extract()?;
    Ok((is_plain && is_contiguous && axes > 0).then_some(first))
}
