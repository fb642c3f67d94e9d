//! HDF5 files: bounded reads of data sets, and rows appended to small files.
//!
//! hdf5-pure builds a file in memory. A writer of long data sets builds a small file with a single element in each,
//! then patches in their lengths and addresses, and writes the rows after the small file. Only version 2 object headers
//! and superblocks of version 2 or 3 are changed, and only if their checksums confirm the parsed structure.
//!
//! Invariant: no read of a data set asks for more memory than its file's size allows.
//!
//! # Source
//! HDF5 File Format Specification, version 3.0: II.A (superblock), IV.A.1.b (object headers), IV.A.2.b (dataspace),
//! IV.A.2.i (data layout).

use std::ops::Range;
use std::path::{Path, PathBuf};

use hdf5_pure::{
    CompoundTypeBuilder, DType, Dataset, DatasetBuilder, Datatype, EnumTypeBuilder, File,
    FileBuilder, FormatError, GroupBuilder, Layout, ReadSeekSource, VlenStringReadOptions,
    make_f32_type, make_f64_type, make_i8_type, make_i32_type,
};

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::io::compressed;

/// Filters supported by the HDF5 library: deflate, shuffle, Fletcher's checksum, LZF.
pub(super) const FILTERS: [u16; 4] = [1, 2, 3, 32000];

/// Opens an HDF5 file, compressed or not.
///
/// # Errors
/// As [`compressed::open`]; [`Error::Format`] for a file that is not HDF5.
pub(super) fn open(path: &Path) -> Result<File> {
    let opened = if compressed::is_compressed(path) {
        let source = ReadSeekSource::new(compressed::open(path)?);
        source.map_err(hdf5_pure::Error::Format).and_then(File::from_source)
    } else {
        File::open_streaming(path)
    };
    opened.map_err(|error| library_fault(path, "HDF5", &error))
}

/// Returns whether a file is HDF5, compressed or not.
pub(super) fn is_hdf5(path: &Path) -> bool {
    match compressed::is_compressed(path) {
        true => compressed::head(path, 8).is_ok_and(|head| head == *b"\x89HDF\r\n\x1a\n"),
        false => hdf5_pure::is_hdf5(path).unwrap_or(false),
    }
}

/// Open HDF5 file and its size.
pub(super) struct Input {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) bytes: u64,
}

impl Input {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let opened = compressed::open(path)?;
        let bytes = opened.metadata().map_err(|error| Error::io(path, error))?.len();
        Ok(Self { path: path.to_path_buf(), file: open(path)?, bytes })
    }

    pub(super) fn fault(&self, field: &str, why: impl Into<String>) -> Error {
        Error::format(&self.path, field, 0, why)
    }

    /// Returns the converter of the library's errors at a field.
    pub(super) fn library(&self, field: &str) -> impl Fn(hdf5_pure::Error) -> Error + Copy {
        move |error| library_fault(&self.path, field, &error)
    }

    /// Returns whether a data set of this name exists.
    pub(super) fn has(&self, name: &str) -> bool {
        self.file.dataset(name).is_ok()
    }

    pub(super) fn dataset(&self, name: &str) -> Result<Dataset> {
        self.file.dataset(name).map_err(self.library(name))
    }

    pub(super) fn shape(&self, name: &str) -> Result<Vec<u64>> {
        self.dataset(name)?.shape().map_err(self.library(name))
    }

    pub(super) fn check_one_piece(&self, name: &str, dataset: &Dataset) -> Result<()> {
        match dataset.layout().map_err(self.library(name))? {
            Layout::Compact { .. } | Layout::Contiguous { address: Some(_), .. } => Ok(()),
            other => Err(self.fault(name, format!("layout {other}, expected one piece"))),
        }
    }

    pub(super) fn check_numbers(&self, name: &str, dataset: &Dataset) -> Result<()> {
        match dataset.dtype().map_err(self.library(name))? {
            kind if is_real(&kind) => Ok(()),
            other => Err(self.fault(name, format!("type {other} found, expected numbers"))),
        }
    }

    pub(super) fn check_filters(&self, name: &str, dataset: &Dataset) -> Result<()> {
        let filters = dataset.filter_pipeline();
        let Some(filter) = filters.iter().find(|filter| !FILTERS.contains(&filter.id)) else {
            return Ok(());
        };
        let what = format!("HDF5 filter {} of {name}", filter.id);
        let why = format!("{}: deflate, shuffle and LZF are read", self.path.display());
        Err(Error::Unavailable { what, why })
    }

    /// Reads all strings of a checked data set without padding; those of variable length have at most `most` bytes.
    pub(super) fn strings(
        &self,
        name: &str,
        dataset: &Dataset,
        most: usize,
    ) -> Result<Vec<String>> {
        let texts = match dataset.dtype().map_err(self.library(name))? {
            DType::String => dataset.read_string(),
            DType::VariableLengthString => {
                let bounds = VlenStringReadOptions::new().with_max_payload_bytes(most);
                dataset.read_vlen_strings(bounds)
            }
            other => return Err(self.fault(name, format!("type {other} found, expected text"))),
        };
        let texts = texts.map_err(self.library(name))?;
        Ok(texts.iter().map(|text| text.trim_end_matches('\0').trim().to_string()).collect())
    }
}

/// Converts an error of hdf5-pure at a field.
pub(super) fn library_fault(path: &Path, field: &str, error: &hdf5_pure::Error) -> Error {
    Error::format(path, field, 0, error.to_string())
}

pub(super) fn is_real(kind: &DType) -> bool {
    use DType::{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    matches!(kind, F32 | F64 | I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
}

/// Result of hdf5-pure's builders.
pub(super) type Built<T = ()> = std::result::Result<T, FormatError>;

/// Finishes a file in memory.
pub(super) fn finish(path: &Path, built: Built<FileBuilder>) -> Result<Vec<u8>> {
    let bytes = built.map_err(hdf5_pure::Error::Format).and_then(FileBuilder::finish);
    bytes.map_err(|error| library_fault(path, "HDF5", &error))
}

/// Appends complex numbers as the bytes of compounds (r, i).
pub(super) fn append_complex(bytes: &mut Vec<u8>, values: &[Complex<f32>]) {
    let start = bytes.len();
    bytes.resize(start + size_of_val(values), 0);
    let (compounds, _) = bytes[start..].as_chunks_mut::<8>();
    for ([a, b, c, d, e, f, g, h], z) in compounds.iter_mut().zip(values) {
        [*a, *b, *c, *d] = z.re.to_le_bytes();
        [*e, *f, *g, *h] = z.im.to_le_bytes();
    }
}

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    I32,
    F32,
    F64,
    /// Two f32, `r` and `i`.
    Complex,
    /// A boolean enum, as h5py writes it.
    Bool,
}

impl Element {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Bool => 1,
            Self::I32 | Self::F32 => 4,
            Self::F64 | Self::Complex => 8,
        }
    }

    pub(super) fn datatype(self) -> Built<Datatype> {
        Ok(match self {
            Self::I32 => make_i32_type(),
            Self::F32 => make_f32_type(),
            Self::F64 => make_f64_type(),
            Self::Complex => CompoundTypeBuilder::new().f32_field("r").f32_field("i").build()?,
            Self::Bool => {
                let byte = EnumTypeBuilder::with_base(make_i8_type());
                byte.value("FALSE", 0).value("TRUE", 1).build()?
            }
        })
    }
}

/// Adds a data set with a single element, for [`append_rows`].
pub(super) fn add_single<'a>(
    group: &'a mut GroupBuilder,
    name: &str,
    element: Element,
    rank: usize,
) -> Built<&'a mut DatasetBuilder> {
    let zeros = vec![0; element.bytes() as usize];
    let dataset = group.create_dataset(name).with_raw_data(element.datatype()?, zeros, 1);
    Ok(dataset.with_shape(&vec![1; rank]))
}

/// Alignment of the rows of each data set, in bytes.
pub(super) const ALIGNMENT: u64 = 4096;

/// Returns the address of each of consecutive data sets, given their bytes, after `reserved` bytes. The error is the
/// index of the first data set that exceeds the largest file.
pub(super) fn addresses(
    reserved: u64,
    bytes: impl Iterator<Item = Option<u64>>,
) -> std::result::Result<Vec<u64>, usize> {
    let mut end = reserved;
    let place = |(index, bytes): (usize, Option<u64>)| {
        let start = end.next_multiple_of(ALIGNMENT);
        let next = bytes.and_then(|bytes| bytes.checked_add(start));
        end = next.filter(|end| *end < i64::MAX as u64 - ALIGNMENT).ok_or(index)?;
        Ok(start)
    };
    bytes.enumerate().map(place).collect()
}

/// Rows that follow the small file.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// Paths of the data sets that show these rows.
    pub(super) paths: Vec<String>,
    /// Axes of the data sets; the rank is that of their single elements.
    pub(super) axes: Vec<u64>,
    /// Address of the first row.
    pub(super) start: u64,
    /// Bytes of all rows.
    pub(super) bytes: u64,
}

/// Replaces the single elements of a small file of `reserved` bytes by rows that follow it.
///
/// # Errors
/// [`Error::Unavailable`] if the library laid the small file out in an unknown way.
pub(super) fn append_rows(
    path: &Path,
    mut file: Vec<u8>,
    reserved: u64,
    rows: &[Rows],
) -> Result<Vec<u8>> {
    let mut patches = Vec::new();
    let mut read = || {
        let small = File::from_bytes(file.clone())?;
        for rows in rows {
            for path in &rows.paths {
                // Address 0 is the superblock's, so it marks a data set without a contiguous address.
                let address = match small.dataset(path)?.layout()? {
                    Layout::Contiguous { address, .. } => address.unwrap_or(0),
                    _ => 0,
                };
                patches.push(Patch { address, rows });
            }
        }
        Ok(())
    };
    read().map_err(|error| library_fault(path, "HDF5", &error))?;
    let end = rows.iter().map(|rows| rows.start + rows.bytes).max().unwrap_or(0);
    if file.len() as u64 != reserved || !patch(&mut file, &patches, end) {
        let why = "the HDF5 library laid the file out in an unknown way".to_string();
        return Err(Error::Unavailable { what: path.display().to_string(), why });
    }
    Ok(file)
}

/// A data set to be patched.
struct Patch<'a> {
    /// Address of its single element in the small file, which is unique.
    address: u64,
    rows: &'a Rows,
}

const SUPERBLOCK_BYTES: usize = 48;
const DATASPACE: u8 = 1;
const DATA_LAYOUT: u8 = 8;

/// Patches `file`, whose rows will end at byte `end`. Returns false, with the bytes modified, unless each data set
/// was found exactly once.
fn patch(file: &mut [u8], places: &[Patch<'_>], end: u64) -> bool {
    let mut found = vec![0; places.len()];
    let mut at = 0;
    while let Some(step) = find(&file[at..], b"OHDR") {
        at += step;
        if let Some(header) = ObjectHeader::parse(&file[at..]) {
            for (place, found) in places.iter().zip(&mut found) {
                *found += usize::from(header.give(&mut file[at..], place));
            }
        }
        at += 4;
    }
    found.iter().all(|times| *times == 1) && patch_end(file, end)
}

/// Patches the superblock's end-of-file address.
fn patch_end(file: &mut [u8], end: u64) -> bool {
    let Some(block) = file.first_chunk_mut::<SUPERBLOCK_BYTES>() else { return false };
    let is_known = block.starts_with(b"\x89HDF\r\n\x1a\n") && matches!(block[8], 2 | 3);
    if !is_known || block[9..11] != [8, 8] || !is_sealed(block) {
        return false;
    }
    block[28..36].copy_from_slice(&end.to_le_bytes());
    seal(block);
    true
}

/// Message offsets in a version 2 object header without continuation blocks.
struct ObjectHeader {
    bytes: usize,
    /// Bodies of the dataspace and data layout messages.
    dataspace: Range<usize>,
    layout: Range<usize>,
}

impl ObjectHeader {
    /// Parses a header; `None` if it is not such a header or has no data.
    fn parse(bytes: &[u8]) -> Option<Self> {
        if *bytes.get(4)? != 2 {
            return None;
        }
        let flags = *bytes.get(5)?;
        let mut at =
            6 + if flags & 0x20 != 0 { 16 } else { 0 } + if flags & 0x10 != 0 { 4 } else { 0 };
        let width = 1 << (flags & 3);
        let mut messages = 0_usize;
        for (place, byte) in bytes.get(at..at + width)?.iter().enumerate().take(8) {
            messages |= usize::from(*byte).checked_shl(8 * place as u32)?;
        }
        at += width;
        let end = at.checked_add(messages)?;
        let whole = bytes.get(..end.checked_add(4)?)?;
        if !is_sealed(whole) {
            return None;
        }
        let head = if flags & 4 != 0 { 6 } else { 4 };
        let (mut dataspace, mut layout) = (None, None);
        while at + head <= end {
            let length = usize::from(u16::from_le_bytes([bytes[at + 1], bytes[at + 2]]));
            let body = at + head..at + head + length;
            match bytes[at] {
                DATASPACE => dataspace = Some(body),
                DATA_LAYOUT => layout = Some(body),
                _ => {}
            }
            at += head + length;
        }
        let parsed = Self { bytes: end + 4, dataspace: dataspace?, layout: layout? };
        (at <= end).then_some(parsed)
    }

    /// Patches the header if it belongs to the data set.
    fn give(&self, bytes: &mut [u8], place: &Patch<'_>) -> bool {
        let layout = &mut bytes[self.layout.clone()];
        // Version 3 or 4, contiguous: an address and a size.
        let is_contiguous = layout.len() == 18 && matches!(layout[0], 3 | 4) && layout[1] == 1;
        if !is_contiguous || layout[2..10] != place.address.to_le_bytes() {
            return false;
        }
        layout[2..10].copy_from_slice(&place.rows.start.to_le_bytes());
        layout[10..18].copy_from_slice(&place.rows.bytes.to_le_bytes());
        let space = &mut bytes[self.dataspace.clone()];
        let axes: Vec<u8> =
            place.rows.axes.iter().flat_map(|length| length.to_le_bytes()).collect();
        // Version 2, the rank, no maximum lengths, a simple shape.
        let is_simple = space.first_chunk() == Some(&[2, place.rows.axes.len() as u8, 0, 1]);
        if !is_simple || space.len() != 4 + axes.len() {
            return false;
        }
        space[4..].copy_from_slice(&axes);
        seal(&mut bytes[..self.bytes]);
        true
    }
}

fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|window| window == word)
}

/// Returns whether a block ends with the checksum of its other bytes.
fn is_sealed(block: &[u8]) -> bool {
    block.split_last_chunk::<4>().is_some_and(|(body, sum)| lookup3(body).to_le_bytes() == *sum)
}

fn seal(block: &mut [u8]) {
    if let Some((body, sum)) = block.split_last_chunk_mut::<4>() {
        *sum = lookup3(body).to_le_bytes();
    }
}

/// Computes Bob Jenkins's lookup3 hash (`hashlittle` with the initial value 0), HDF5's metadata checksum.
fn lookup3(bytes: &[u8]) -> u32 {
    let mut state = [0xdead_beef_u32.wrapping_add(bytes.len() as u32); 3];
    // The final mix takes the last block, even if it has all 12 bytes.
    let mixed = bytes.len().saturating_sub(1) / 12 * 12;
    let (blocks, tail) = bytes.split_at(mixed);
    for block in blocks.chunks_exact(12) {
        add(&mut state, block);
        mix(&mut state);
    }
    if !tail.is_empty() {
        add(&mut state, tail);
        finish_hash(&mut state);
    }
    state[2]
}

/// Adds up to 12 bytes, as little-endian words.
fn add(state: &mut [u32; 3], bytes: &[u8]) {
    for (place, byte) in bytes.iter().enumerate() {
        let word = &mut state[place / 4];
        *word = word.wrapping_add(u32::from(*byte) << (8 * (place % 4)));
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: &mut u32, z: &mut u32, turn: u32| {
        *x = x.wrapping_sub(*z) ^ z.rotate_left(turn);
        *z = z.wrapping_add(*y);
    };
    step(a, b, c, 4);
    step(b, c, a, 6);
    step(c, a, b, 8);
    step(a, b, c, 16);
    step(b, c, a, 19);
    step(c, a, b, 4);
}

fn finish_hash([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: &u32, turn: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(turn));
    step(c, b, 14);
    step(a, c, 11);
    step(b, a, 25);
    step(c, b, 16);
    step(a, c, 4);
    step(b, a, 14);
    step(c, b, 24);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_lookup3() {
        // Values from lookup3.c's own self test.
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }
}
