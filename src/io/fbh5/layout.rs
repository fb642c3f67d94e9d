//! Storage layout of an FBH5 file's samples: axes, chunks and filters, validated against the file's size.
//!
//! Invariant: no buffer that follows from a [`DataLayout`] is larger than [`most_bytes`] allows for the file.

use std::path::PathBuf;

use hdf5_pure::{Chunk, Dataset, Filter, Layout};

use crate::error::{Error, Result};
use crate::io::inflate::{most_bytes, most_streamed_bytes};

/// HDF5 filter number of bitshuffle.
const BITSHUFFLE: u16 = 32008;
/// Filters supported by the HDF5 library: deflate, shuffle, Fletcher's checksum, LZF.
const LIBRARY_FILTERS: [u16; 4] = [1, 2, 3, 32000];
/// Bytes per band of a file without chunks.
const BAND_BYTES: u64 = 1 << 20;

/// Lengths of the axes time, feed, channel.
pub(super) type Axes = [u64; 3];

/// Shape of a data set, and its file.
#[derive(Clone, Debug)]
pub(super) struct DataLayout {
    pub(super) path: PathBuf,
    pub(super) file_bytes: u64,
    pub(super) axes: Axes,
    pub(super) element_bytes: usize,
    /// Description of its truncation by the file's end.
    pub(super) cut: Option<String>,
}

/// Storage of a data set.
pub(super) enum Kind {
    /// Readable by the HDF5 library.
    Library(Box<Dataset>),
    /// Bitshuffled chunks, in order of time.
    Chunks { chunks: Vec<Chunk>, axes: Axes, packing: Packing },
}

/// Compression of the shuffled chunks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packing {
    Lz4,
    Bare { block_elements: usize },
}

impl DataLayout {
    /// Determines the storage of a data set, and the number of times to read together; drops the times truncated by
    /// the file's end.
    pub(super) fn bind(&mut self, dataset: Dataset) -> Result<(Kind, u64)> {
        let layout = dataset.layout().map_err(|error| self.library_fault(&error))?;
        let row_bytes = self.axes[1] * self.axes[2] * self.element_bytes as u64;
        let chunk_axes = match layout {
            Layout::Chunked { chunk_shape, .. } => Some(self.chunk_axes(&chunk_shape)?),
            Layout::Contiguous { address, .. } => {
                if let Some(address) = address {
                    self.leave_out(self.file_bytes.saturating_sub(address) / row_bytes)?;
                }
                None
            }
            Layout::Compact { .. } => None,
            other => return Err(self.unavailable(format!("an HDF5 layout that is {other}"))),
        };
        let times = chunk_axes.map_or(BAND_BYTES / row_bytes, |axes| axes[0]);
        let times = times.clamp(1, self.axes[0]);
        self.check_size("a band of times", times.checked_mul(row_bytes))?;
        let all = self.axes[0].checked_mul(row_bytes);
        self.check_most("a data set", all, most_streamed_bytes(self.file_bytes))?;
        let filters = dataset.filter_pipeline();
        if let Some(axes) = chunk_axes {
            // The library trusts the sizes in the chunk index, so validate them for its reads, too.
            let chunks = self.find_chunks(&dataset, axes)?;
            if let [filter] = filters.as_slice()
                && filter.id == BITSHUFFLE
            {
                let packing = self.packing(filter)?;
                return Ok((Kind::Chunks { chunks, axes, packing }, times));
            }
        }
        if let Some(filter) = filters.iter().find(|filter| !LIBRARY_FILTERS.contains(&filter.id)) {
            let name = filter.name.as_deref().unwrap_or("no name");
            return Err(self.unavailable(format!("HDF5 filter {} ({name})", filter.id)));
        }
        Ok((Kind::Library(Box::new(dataset)), times))
    }

    /// Limits the data set to its first `there` times, if those are fewer than announced.
    fn leave_out(&mut self, there: u64) -> Result<()> {
        if there >= self.axes[0] {
            return Ok(());
        }
        let why = format!(
            "the file of {} bytes ends within its data: {there} of the {} spectra promised are there",
            self.file_bytes, self.axes[0]
        );
        if there == 0 {
            return Err(self.fault(self.file_bytes, why));
        }
        self.axes[0] = there;
        self.cut = Some(format!("{}: {why}", self.path.display()));
        Ok(())
    }

    fn chunk_axes(&self, shape: &[u64]) -> Result<Axes> {
        let axes = Axes::try_from(shape).ok().filter(|axes| !axes.contains(&0));
        let Some(axes) = axes else {
            return Err(self.fault(0, format!("chunks of shape {shape:?}, expected three axes")));
        };
        let bytes = axes.iter().try_fold(self.element_bytes as u64, |n, axis| n.checked_mul(*axis));
        self.check_size("a chunk", bytes)?;
        Ok(axes)
    }

    /// Returns the chunks in order of time, each inside the file and on the chunk grid. Drops the times from the
    /// first chunk beyond the file's end on.
    fn find_chunks(&mut self, dataset: &Dataset, axes: Axes) -> Result<Vec<Chunk>> {
        let counts = [0, 1, 2].map(|axis| self.axes[axis].div_ceil(axes[axis]));
        self.check_size("the list of chunks", counts[0].checked_mul(counts[1] * counts[2]))?;
        let mut chunks = dataset.chunks().map_err(|error| self.library_fault(&error))?;
        // Validate also chunks outside the data set before dropping them, because the library may read them.
        let in_file = |chunk: &Chunk| {
            let end = chunk.address.checked_add(chunk.storage_size);
            end.is_some_and(|end| end <= self.file_bytes)
        };
        let on_grid = |chunk: &Chunk| {
            let mut places = chunk.offset.iter().zip(axes);
            chunk.offset.len() == 3 && places.all(|(offset, axis)| offset.is_multiple_of(axis))
        };
        if let Some(chunk) = chunks.iter().find(|chunk| !on_grid(chunk)) {
            let why = format!(
                "a chunk of {} bytes at {:?}, in a file of {} bytes with chunks of {axes:?}",
                chunk.storage_size, chunk.offset, self.file_bytes
            );
            return Err(self.fault(chunk.address, why));
        }
        let beyond = chunks.iter().filter(|chunk| !in_file(chunk)).map(|chunk| chunk.offset[0]);
        if let Some(there) = beyond.min() {
            self.leave_out(there)?;
        }
        chunks.retain(|chunk| (0..3).all(|axis| chunk.offset[axis] < self.axes[axis]));
        chunks.sort_by(|a, b| a.offset.cmp(&b.offset));
        Ok(chunks)
    }

    /// Reads the filter's fourth and fifth values: elements per block, and compression.
    fn packing(&self, filter: &Filter) -> Result<Packing> {
        let value = |index: usize| filter.client_data.get(index).copied().unwrap_or(0);
        match value(4) {
            0 => Ok(Packing::Bare { block_elements: value(3) as usize }),
            2 => Ok(Packing::Lz4),
            number => Err(self.unavailable(format!("bitshuffle with compression {number}"))),
        }
    }

    /// Fails for a buffer larger than the file could fill.
    fn check_size(&self, what: &str, bytes: Option<u64>) -> Result<()> {
        self.check_most(what, bytes, most_bytes(self.file_bytes))
    }

    fn check_most(&self, what: &str, bytes: Option<u64>, most: u64) -> Result<()> {
        match bytes {
            Some(bytes) if bytes <= most && usize::try_from(bytes).is_ok() => Ok(()),
            _ => {
                let found = bytes.map_or("more than 2^64".to_string(), |bytes| bytes.to_string());
                let why = format!("{what} of {found} bytes, in a file of {}", self.file_bytes);
                Err(self.fault(0, why))
            }
        }
    }

    /// Makes an [`Error::Format`] about the samples.
    pub(super) fn fault(&self, offset: u64, why: impl Into<String>) -> Error {
        Error::format(&self.path, "data", offset, why)
    }

    /// Converts an error of the HDF5 library.
    pub(super) fn library_fault(&self, error: &hdf5_pure::Error) -> Error {
        self.fault(0, error.to_string())
    }

    fn unavailable(&self, what: String) -> Error {
        let why = format!(
            "{} uses it; bitshuffle (bare or LZ4), deflate, shuffle and LZF are read",
            self.path.display()
        );
        Error::Unavailable { what, why }
    }
}
