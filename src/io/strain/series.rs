//! One-dimensional data sets of an HDF5 file, read in bounded pieces.
//!
//! Invariant: no read takes more memory than [`most_bytes`] allows for a file of its size.

use std::path::{Path, PathBuf};

use hdf5_pure::{AttrValue, DType, Dataset, File, Layout, VlenStringReadOptions};

use crate::error::{Error, Result};
use crate::io::inflate::{most_bytes, most_streamed_bytes};

/// Filters supported by the HDF5 library: deflate, shuffle, Fletcher's checksum, LZF.
const FILTERS: [u16; 4] = [1, 2, 3, 32000];
/// Bytes per read of a data set without chunks.
const PIECE_BYTES: u64 = 1 << 20;
/// Maximum bytes of all texts of a data set.
const MAX_TEXT: u64 = 1 << 16;

/// Open HDF5 file and its size.
pub(super) struct Input {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Input {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let found = std::fs::metadata(path).map_err(|error| Error::io(path, error))?;
        let file = File::open_streaming(path)
            .map_err(|error| Error::format(path, "HDF5", 0, error.to_string()))?;
        Ok(Self { path: path.to_path_buf(), file, bytes: found.len() })
    }

    pub(super) fn fault(&self, field: &str, why: impl Into<String>) -> Error {
        Error::format(&self.path, field, 0, why)
    }

    /// Returns whether a data set of this name exists.
    pub(super) fn has(&self, name: &str) -> bool {
        self.file.dataset(name).is_ok()
    }

    /// Returns whether a data set has both attributes of a gwpy series.
    pub(super) fn is_series(&self, name: &str) -> bool {
        let attributes = self.file.dataset(name).and_then(|dataset| dataset.attrs());
        attributes.is_ok_and(|all| all.contains_key("x0") && all.contains_key("dx"))
    }

    /// Returns the names of the data sets in the root group, sorted.
    pub(super) fn root_names(&self) -> Result<Vec<String>> {
        let names = self.file.root().datasets();
        let mut names = names.map_err(|error| self.fault("root group", error.to_string()))?;
        names.sort();
        Ok(names)
    }

    pub(super) fn series(&self, name: &str) -> Result<Series> {
        let dataset = self.file.dataset(name);
        let dataset = dataset.map_err(|error| self.fault(name, error.to_string()))?;
        Series::new(self, name, dataset)
    }

    /// Reads all texts of a small data set.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>> {
        let dataset = self.file.dataset(name);
        let dataset = dataset.map_err(|error| self.fault(name, error.to_string()))?;
        let library = |error: hdf5_pure::Error| self.fault(name, error.to_string());
        let shape = dataset.shape().map_err(library)?;
        let width = dataset.element_size().map_err(library)?;
        let bytes = shape.iter().try_fold(width, |product, axis| product.checked_mul(*axis));
        if bytes.is_none_or(|bytes| bytes > MAX_TEXT.min(self.bytes)) {
            let why =
                format!("{shape:?} texts of {width} bytes, expected {MAX_TEXT} bytes at most");
            return Err(self.fault(name, why));
        }
        self.check_one_piece(name, &dataset)?;
        let texts = match dataset.dtype().map_err(library)? {
            DType::String => dataset.read_string(),
            DType::VariableLengthString => {
                let bounds = VlenStringReadOptions::new().with_max_payload_bytes(MAX_TEXT as usize);
                dataset.read_vlen_strings(bounds)
            }
            other => return Err(self.fault(name, format!("type {other} found, expected text"))),
        };
        let texts = texts.map_err(library)?;
        Ok(texts.iter().map(|text| text.trim_end_matches('\0').trim().to_string()).collect())
    }

    /// Reads the only number of a data set.
    pub(super) fn number(&self, name: &str) -> Result<f64> {
        let dataset = self.file.dataset(name);
        let dataset = dataset.map_err(|error| self.fault(name, error.to_string()))?;
        let library = |error: hdf5_pure::Error| self.fault(name, error.to_string());
        let shape = dataset.shape().map_err(library)?;
        if shape.iter().any(|axis| *axis != 1) {
            return Err(self.fault(name, format!("axes {shape:?} found, expected one number")));
        }
        self.check_one_piece(name, &dataset)?;
        self.check_numbers(name, &dataset)?;
        match dataset.read_f64().map_err(library)?[..] {
            [number] if number.is_finite() => Ok(number),
            ref found => Err(self.fault(name, format!("{found:?}, expected a finite number"))),
        }
    }

    fn check_one_piece(&self, name: &str, dataset: &Dataset) -> Result<()> {
        match dataset.layout().map_err(|error| self.fault(name, error.to_string()))? {
            Layout::Compact { .. } | Layout::Contiguous { address: Some(_), .. } => Ok(()),
            other => Err(self.fault(name, format!("layout {other}, expected one piece"))),
        }
    }

    fn check_numbers(&self, name: &str, dataset: &Dataset) -> Result<()> {
        use DType::{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
        match dataset.dtype().map_err(|error| self.fault(name, error.to_string()))? {
            F32 | F64 | I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64 => Ok(()),
            other => Err(self.fault(name, format!("type {other} found, expected numbers"))),
        }
    }
}

/// One-dimensional data set of numbers.
pub(super) struct Series {
    path: PathBuf,
    name: String,
    dataset: Dataset,
    attributes: std::collections::HashMap<String, AttrValue>,
    length: u64,
    /// Numbers per efficient read.
    piece: u64,
    /// Announced numbers; more than `length` if the file's end truncates them.
    promised: u64,
}

impl Series {
    fn new(input: &Input, name: &str, dataset: Dataset) -> Result<Self> {
        let library = |error: hdf5_pure::Error| input.fault(name, error.to_string());
        input.check_numbers(name, &dataset)?;
        let shape = dataset.shape().map_err(library)?;
        let &[promised] = shape.as_slice() else {
            return Err(input.fault(name, format!("axes {shape:?} found, expected one axis")));
        };
        if promised == 0 {
            return Err(input.fault(name, "no numbers found"));
        }
        let mut length = promised;
        let width = dataset.element_size().map_err(library)?.max(1);
        let piece = match dataset.layout().map_err(library)? {
            Layout::Contiguous { address: Some(address), .. } => {
                length = length.min(input.bytes.saturating_sub(address) / width);
                if length == 0 {
                    let found = input.bytes;
                    let why = format!(
                        "{found} bytes in the file, expected {promised} numbers of {width}"
                    );
                    return Err(input.fault(name, why));
                }
                PIECE_BYTES / width
            }
            Layout::Compact { .. } => PIECE_BYTES / width,
            Layout::Chunked { chunk_shape, .. } => {
                let (piece, there) =
                    check_chunks(input, name, &dataset, &chunk_shape, [length, width])?;
                length = there;
                piece
            }
            other => {
                return Err(
                    input.fault(name, format!("layout {other}, expected chunks or one piece"))
                );
            }
        };
        let filters = dataset.filter_pipeline();
        if let Some(filter) = filters.iter().find(|filter| !FILTERS.contains(&filter.id)) {
            let what = format!("HDF5 filter {} of {name}", filter.id);
            let why = format!("{}: deflate, shuffle and LZF are read", input.path.display());
            return Err(Error::Unavailable { what, why });
        }
        let attributes = dataset.attrs().map_err(library)?;
        let (path, name) = (input.path.clone(), name.to_string());
        Ok(Self {
            path,
            name,
            dataset,
            attributes,
            length,
            piece: piece.clamp(1, length),
            promised,
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.length
    }

    /// Describes what the file's end truncates.
    pub(super) fn cut(&self) -> Option<String> {
        (self.length < self.promised).then(|| {
            let Self { length, promised, name, .. } = self;
            let path = self.path.display();
            format!(
                "{path}: it ends within {name}: {length} of the {promised} samples promised are there"
            )
        })
    }

    pub(super) fn piece(&self) -> u64 {
        self.piece
    }

    /// Returns a numeric attribute, if present.
    pub(super) fn number(&self, attribute: &str) -> Result<Option<f64>> {
        let Some(value) = self.attributes.get(attribute) else { return Ok(None) };
        let number = value.as_f64().or_else(|| value.as_i64().map(|whole| whole as f64));
        match number.filter(|number| number.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => {
                let field = format!("{} attribute {attribute}", self.name);
                let why = format!("{value:?} found, expected a finite number");
                Err(Error::format(&self.path, field, 0, why))
            }
        }
    }

    /// Returns a text attribute; empty if absent.
    pub(super) fn text(&self, attribute: &str) -> &str {
        self.attributes.get(attribute).and_then(AttrValue::as_str).unwrap_or_default().trim()
    }

    /// Reads `count` numbers from `start` on.
    pub(super) fn read(&self, start: u64, count: u64) -> Result<Vec<f64>> {
        let numbers = self.dataset.read_f64_rows(start, count);
        let numbers = numbers.map_err(|error| self.fault(error.to_string()))?;
        if numbers.len() as u64 != count {
            return Err(self.fault(format!("{} numbers read, expected {count}", numbers.len())));
        }
        Ok(numbers)
    }

    /// Reads all numbers, of which there may be at most `most`.
    pub(super) fn read_all(&self, most: u64) -> Result<Vec<f64>> {
        if self.length > most {
            return Err(self.fault(format!("{} numbers, expected {most} at most", self.length)));
        }
        self.read(0, self.length)
    }

    pub(super) fn fault(&self, why: impl Into<String>) -> Error {
        Error::format(&self.path, self.name.as_str(), 0, why)
    }
}

/// Validates the chunk index, which the library trusts. Returns the numbers per chunk, and the count of numbers in
/// chunks before the first one beyond the file's end.
fn check_chunks(
    input: &Input,
    name: &str,
    dataset: &Dataset,
    shape: &[u64],
    [length, width]: [u64; 2],
) -> Result<(u64, u64)> {
    let &[chunk] = shape else {
        return Err(input.fault(name, format!("chunks of shape {shape:?}, expected one axis")));
    };
    let is_possible = |numbers: u64, most: u64| {
        // Narrower numbers are also read as f64.
        numbers.checked_mul(width.max(8)).is_some_and(|bytes| bytes <= most)
    };
    if chunk == 0
        || !is_possible(chunk, most_bytes(input.bytes))
        || !is_possible(length, most_streamed_bytes(input.bytes))
    {
        let bytes = input.bytes;
        let why = format!("{length} numbers in chunks of {chunk}, in a file of {bytes} bytes");
        return Err(input.fault(name, why));
    }
    let chunks = dataset.chunks().map_err(|error| input.fault(name, error.to_string()))?;
    let mut is_there = vec![false; length.div_ceil(chunk) as usize];
    let mut there = length;
    for found in &chunks {
        let end = found.address.checked_add(found.storage_size);
        let [offset] = found.offset[..] else {
            return Err(input.fault(name, format!("a chunk at {:?}", found.offset)));
        };
        let is_inside = end.is_some_and(|end| end <= input.bytes);
        // The library allocates a chunk's stored size, so limit it to about twice the size of its numbers.
        let most = chunk.saturating_mul(width).saturating_mul(2).saturating_add(1024);
        if found.storage_size > most {
            let why = format!(
                "{} bytes in the chunk from {offset} on, expected {most} at most",
                found.storage_size
            );
            return Err(input.fault(name, why));
        }
        if !is_inside && offset.is_multiple_of(chunk) && offset > 0 {
            there = there.min(offset);
            continue;
        }
        if !is_inside || !offset.is_multiple_of(chunk) {
            let why = format!(
                "truncated or damaged: {} bytes of numbers from {offset} on at byte {}, in a file of {} bytes",
                found.storage_size, found.address, input.bytes
            );
            return Err(input.fault(name, why));
        }
        if let Some(place) = is_there.get_mut((offset / chunk) as usize) {
            *place = true;
        }
    }
    // A chunk that was never written would read as zeros.
    is_there.truncate(there.div_ceil(chunk) as usize);
    match is_there.iter().position(|is_there| !is_there) {
        Some(missing) => {
            let why = format!("chunk {missing} of {} is missing", is_there.len());
            Err(input.fault(name, why))
        }
        None => Ok((chunk, there)),
    }
}
