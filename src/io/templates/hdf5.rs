//! Data sets and attributes of an HDF5 file, with bounded reads.
//!
//! Invariant: no read takes more memory than [`most_bytes`] allows for a file of its size.

use hdf5_pure::{
    AttrValue, CompoundMember, DType, Dataset, Datatype, DatatypeByteOrder, Group, Layout,
};
use num_complex::Complex64;

use crate::error::Result;
use crate::io::hdf5::{Input, is_real};
use crate::io::inflate::most_bytes;

/// Maximum numbers in a data set.
const MAX_NUMBERS: u64 = 1 << 27;
/// Maximum number of groups searched.
const MAX_GROUPS: usize = 1 << 16;

impl Input {
    /// Returns the names of the root group (empty) and of its child groups.
    pub(super) fn groups(&self) -> Result<Vec<String>> {
        let groups = self.file.root().groups();
        let mut groups = groups.map_err(|error| self.fault("root group", error.to_string()))?;
        if groups.len() > MAX_GROUPS {
            let why = format!("{} groups, expected {MAX_GROUPS} at most", groups.len());
            return Err(self.fault("root group", why));
        }
        groups.sort();
        groups.insert(0, String::new());
        Ok(groups)
    }

    /// Returns the names of a group's data sets, sorted.
    pub(super) fn datasets(&self, group: &str) -> Result<Vec<String>> {
        let names = self.group(group).and_then(|group| group.datasets());
        let mut names = names.map_err(|error| self.fault(group, error.to_string()))?;
        names.sort();
        Ok(names)
    }

    fn group(&self, name: &str) -> std::result::Result<Group, hdf5_pure::Error> {
        if name.is_empty() { Ok(self.file.root()) } else { self.file.group(name) }
    }

    /// Returns a numeric attribute of a data set or group, or a single-number data set in a group, if present.
    pub(super) fn attribute(&self, object: &str, attribute: &str) -> Option<f64> {
        let attributes = match self.file.dataset(object) {
            Ok(dataset) if !object.is_empty() => dataset.attrs(),
            _ => self.group(object).and_then(|group| group.attrs()),
        };
        let found = attributes.ok().and_then(|attributes| {
            let value: &AttrValue = attributes.get(attribute)?;
            value.as_f64().or_else(|| value.as_i64().map(|whole| whole as f64))
        });
        found.or_else(|| {
            let name = if object.is_empty() {
                attribute.to_string()
            } else {
                format!("{object}/{attribute}")
            };
            self.single(&name)
        })
    }

    /// Returns the only number of a data set of one element.
    fn single(&self, name: &str) -> Option<f64> {
        let dataset = self.file.dataset(name).ok()?;
        let is_single = dataset.shape().ok()?.iter().all(|axis| *axis == 1);
        let is_whole =
            matches!(dataset.layout().ok()?, Layout::Compact { .. } | Layout::Contiguous { .. });
        if !is_single || !is_whole || !is_real(&dataset.dtype().ok()?) {
            return None;
        }
        match dataset.read_f64().ok()?[..] {
            [number] => Some(number),
            _ => None,
        }
    }

    /// Describes a data set for an error: its name, type and axes.
    pub(super) fn describe(&self, name: &str) -> String {
        let Ok(dataset) = self.file.dataset(name) else { return name.to_string() };
        let kind = dataset.dtype().map_or_else(|_| "?".to_string(), |kind| kind.to_string());
        let shape = dataset.shape().unwrap_or_default();
        format!("{name} ({kind} {shape:?})")
    }

    /// Returns whether a data set may be a series: real or complex floats, one or two axes.
    pub(super) fn is_series(&self, name: &str) -> bool {
        self.file.dataset(name).is_ok_and(|dataset| {
            let is_float =
                dataset.dtype().is_ok_and(|kind| matches!(kind, DType::F32 | DType::F64))
                    || complex_layout(&dataset).is_some();
            is_float && dataset.shape().is_ok_and(|shape| matches!(shape.len(), 1 | 2))
        })
    }

    /// Returns whether a data set is complex.
    pub(super) fn is_complex(&self, name: &str) -> bool {
        self.file.dataset(name).is_ok_and(|dataset| complex_layout(&dataset).is_some())
    }

    /// Reads all numbers of a data set of one or two axes.
    pub(super) fn numbers(&self, name: &str) -> Result<Array> {
        let (dataset, shape) = self.checked(name)?;
        let library = self.library(name);
        let kind = dataset.dtype().map_err(library)?;
        let numbers = match complex_layout(&dataset) {
            Some(layout) => Numbers::Complex(layout.numbers(&dataset.read_raw().map_err(library)?)),
            None if is_real(&kind) => Numbers::Real(dataset.read_f64().map_err(library)?),
            None => {
                return Err(self.fault(name, format!("type {kind} found, expected numbers")));
            }
        };
        let found = match &numbers {
            Numbers::Real(numbers) => numbers.len(),
            Numbers::Complex(numbers) => numbers.len(),
        };
        let expected: usize = shape.iter().product();
        if found != expected {
            return Err(self.fault(name, format!("{found} numbers read, expected {expected}")));
        }
        Ok(Array { shape, numbers })
    }

    /// Reads the integers of a data set as texts; `None` if it has another type.
    pub(super) fn whole_texts(&self, name: &str, expected: usize) -> Result<Option<Vec<String>>> {
        let (dataset, shape) = self.checked(name)?;
        let library = self.library(name);
        if shape != [expected] {
            return Err(self.fault(name, format!("axes {shape:?}, expected {expected} rows")));
        }
        match dataset.dtype().map_err(library)? {
            DType::I64 | DType::I32 | DType::U32 | DType::U64 => {
                let numbers = dataset.read_i64().map_err(library)?;
                Ok(Some(numbers.iter().map(i64::to_string).collect()))
            }
            _ => Ok(None),
        }
    }

    /// Opens a data set of one or two axes after validating its storage, which the library trusts.
    fn checked(&self, name: &str) -> Result<(Dataset, Vec<usize>)> {
        let library = self.library(name);
        let dataset = self.file.dataset(name).map_err(library)?;
        let shape = dataset.shape().map_err(library)?;
        let count = shape.iter().try_fold(1_u64, |product, axis| product.checked_mul(*axis));
        let count = count.filter(|count| (1..=MAX_NUMBERS).contains(count));
        let (Some(count), 1 | 2) = (count, shape.len()) else {
            let why = format!(
                "axes {shape:?} found, expected one or two with 1 to {MAX_NUMBERS} numbers"
            );
            return Err(self.fault(name, why));
        };
        let width = dataset.element_size().map_err(library)?.max(1);
        match dataset.layout().map_err(library)? {
            Layout::Compact { .. } | Layout::Contiguous { address: Some(_), .. } => {
                if count.checked_mul(width).is_none_or(|bytes| bytes > self.bytes) {
                    let why = format!(
                        "{count} numbers of {width} bytes, in a file of {} bytes",
                        self.bytes
                    );
                    return Err(self.fault(name, why));
                }
            }
            Layout::Chunked { chunk_shape, .. } => {
                self.check_chunks(name, &dataset, &shape, &chunk_shape)?;
            }
            other => {
                let why = format!("layout {other}, expected chunks or one piece");
                return Err(self.fault(name, why));
            }
        }
        self.check_filters(name, &dataset)?;
        Ok((dataset, shape.iter().map(|axis| *axis as usize).collect()))
    }

    fn check_chunks(
        &self,
        name: &str,
        dataset: &Dataset,
        shape: &[u64],
        chunk: &[u64],
    ) -> Result<()> {
        let library = self.library(name);
        // Narrower numbers are also read as f64.
        let width = dataset.element_size().map_err(library)?.max(8);
        let most = most_bytes(self.bytes);
        let is_possible = |axes: &[u64]| {
            let bytes = axes.iter().try_fold(width, |product, axis| product.checked_mul(*axis));
            bytes.is_some_and(|bytes| bytes <= most)
        };
        let is_whole = chunk.len() == shape.len() && !chunk.contains(&0);
        if !is_whole || !is_possible(chunk) || !is_possible(shape) {
            let why =
                format!("axes {shape:?} in chunks of {chunk:?}, in a file of {} bytes", self.bytes);
            return Err(self.fault(name, why));
        }
        let chunks = dataset.chunks().map_err(library)?;
        let expected: u64 =
            shape.iter().zip(chunk).map(|(axis, step)| axis.div_ceil(*step)).product();
        let mut seen = std::collections::HashSet::new();
        for found in &chunks {
            let end = found.address.checked_add(found.storage_size);
            let mut places = found.offset.iter().zip(chunk);
            let on_grid = found.offset.len() == chunk.len()
                && places.all(|(offset, step)| offset.is_multiple_of(*step));
            if end.is_none_or(|end| end > self.bytes) || !on_grid {
                let why = format!(
                    "truncated or damaged: a chunk of {} bytes at {:?}, in a file of {} bytes",
                    found.storage_size, found.offset, self.bytes
                );
                return Err(self.fault(name, why));
            }
            if found.offset.iter().zip(shape).all(|(offset, axis)| offset < axis) {
                seen.insert(&found.offset);
            }
        }
        if seen.len() as u64 != expected {
            let why = format!("{} chunks found, expected {expected}", seen.len());
            return Err(self.fault(name, why));
        }
        Ok(())
    }
}

/// Returns the complex layout of a data set, if it is complex.
fn complex_layout(dataset: &Dataset) -> Option<ComplexLayout> {
    ComplexLayout::of(&dataset.datatype().ok()?)
}

/// Numbers of a data set, the last axis fastest.
pub(super) enum Numbers {
    /// Real numbers.
    Real(Vec<f64>),
    /// Complex numbers.
    Complex(Vec<Complex64>),
}

/// A data set of one or two axes.
pub(super) struct Array {
    pub(super) shape: Vec<usize>,
    pub(super) numbers: Numbers,
}

impl Array {
    /// Returns the real numbers of a one-dimensional array.
    pub(super) fn column(self, file: &Input, name: &str) -> Result<Vec<f64>> {
        match self.numbers {
            Numbers::Real(numbers) if self.shape.len() == 1 => Ok(numbers),
            Numbers::Real(_) => {
                let why = format!("axes {:?} found, expected one axis", self.shape);
                Err(file.fault(name, why))
            }
            Numbers::Complex(_) => Err(file.fault(name, "complex numbers, expected real ones")),
        }
    }

    /// Returns the numbers of rows and columns; a one-dimensional array is one row.
    pub(super) fn rows(&self) -> (usize, usize) {
        match self.shape[..] {
            [rows, columns] => (rows, columns),
            [columns] => (1, columns),
            _ => (0, 0),
        }
    }
}

/// Accepted names of the two parts.
const PARTS: [[&str; 2]; 3] = [["r", "i"], ["re", "im"], ["real", "imag"]];

/// Layout of the two parts in an element.
struct ComplexLayout {
    bytes: usize,
    parts: [Part; 2],
}

/// A float within an element.
#[derive(Clone, Copy)]
struct Part {
    offset: usize,
    is_double: bool,
    is_big_endian: bool,
}

impl ComplexLayout {
    /// Returns the layout of a complex type; `None` for another type.
    fn of(kind: &Datatype) -> Option<Self> {
        let Datatype::Compound { size, members } = kind else { return None };
        let [first, second] = members.as_slice() else { return None };
        let names = [first.name.as_str(), second.name.as_str()];
        let bytes = *size as usize;
        let parts = [Part::of(first, bytes)?, Part::of(second, bytes)?];
        PARTS.contains(&names).then_some(Self { bytes, parts })
    }

    /// Decodes whole elements.
    fn numbers(&self, bytes: &[u8]) -> Vec<Complex64> {
        let [re, im] = self.parts;
        let elements = bytes.chunks_exact(self.bytes.max(1));
        elements.map(|element| Complex64::new(re.number(element), im.number(element))).collect()
    }
}

impl Part {
    /// Returns a member's layout if it is a float within an element of `bytes`.
    fn of(member: &CompoundMember, bytes: usize) -> Option<Self> {
        let Datatype::FloatingPoint { size, byte_order, .. } = &member.datatype else {
            return None;
        };
        let is_big_endian = match byte_order {
            DatatypeByteOrder::LittleEndian => false,
            DatatypeByteOrder::BigEndian => true,
            DatatypeByteOrder::Vax => return None,
        };
        let offset = usize::try_from(member.byte_offset).ok()?;
        let end = offset.checked_add(*size as usize)?;
        let is_known = matches!(size, 4 | 8) && end <= bytes;
        is_known.then_some(Self { offset, is_double: *size == 8, is_big_endian })
    }

    fn number(self, element: &[u8]) -> f64 {
        let width = if self.is_double { 8 } else { 4 };
        let mut little = [0; 8];
        for (place, byte) in element[self.offset..self.offset + width].iter().enumerate() {
            little[if self.is_big_endian { width - 1 - place } else { place }] = *byte;
        }
        let [a, b, c, d, ..] = little;
        match self.is_double {
            true => f64::from_le_bytes(little),
            false => f32::from_le_bytes([a, b, c, d]).into(),
        }
    }
}
