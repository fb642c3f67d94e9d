//! Samples of an FBH5 data set: where they are, and bands of times that several threads read and decode.
//!
//! Invariant: memory holds the pieces of one or more bands (at most 32 MiB unless one band has more) and, for each
//! thread, the stored bytes of one chunk.

use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;

use hdf5_pure::{Chunk, Dataset, Filter, Layout};

use super::bitshuffle;
use crate::error::{Error, Result};
use crate::io::hdf5::FILTERS;
use crate::io::inflate::{most_bytes, most_streamed_bytes};
use crate::io::parallel::{self, Input};
use crate::io::rows::add;
use crate::sample::Encoding;

/// HDF5 filter number of bitshuffle.
const BITSHUFFLE: u16 = 32008;
/// Bytes per band (range of times) of a file without chunks.
const BAND_BYTES: u64 = 1 << 20;
/// Maximum decoded bytes of the bands that are read together, unless one band has more.
const BANDS_BYTES: u64 = 32 << 20;

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
enum Kind {
    /// One run of bytes.
    Contiguous { address: u64 },
    /// Readable by the HDF5 library.
    Library(Box<Dataset>),
    /// Bitshuffled chunks, in order of time.
    Chunks { chunks: Vec<Chunk>, axes: Axes, packing: Packing },
}

/// Compression of the shuffled chunks.
#[derive(Clone, Copy, Debug)]
enum Packing {
    Lz4,
    Bare { block_elements: usize },
}

impl DataLayout {
    /// Returns the bytes of a recorded row, all feeds.
    fn row_bytes(&self) -> u64 {
        self.axes[1] * self.axes[2] * self.element_bytes as u64
    }

    /// Returns the bytes of one feed of a row.
    fn line_bytes(&self) -> usize {
        self.axes[2] as usize * self.element_bytes
    }

    /// Determines the storage of a data set, and the number of times to read together; drops the times truncated by
    /// the file's end.
    fn bind(&mut self, dataset: Dataset) -> Result<(Kind, u64)> {
        let layout = dataset.layout().map_err(|error| self.library_fault(&error))?;
        let row_bytes = self.row_bytes();
        let mut run = None;
        let chunk_axes = match layout {
            Layout::Chunked { chunk_shape, .. } => Some(self.chunk_axes(&chunk_shape)?),
            Layout::Contiguous { address, size } => {
                if let Some(address) = address {
                    let is_whole = self.axes[0].checked_mul(row_bytes) == Some(size);
                    self.leave_out(self.file_bytes.saturating_sub(address) / row_bytes)?;
                    // The library judges a run of another length.
                    run = is_whole.then_some(address);
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
        if let Some(address) = run {
            return Ok((Kind::Contiguous { address }, times));
        }
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
        if let Some(filter) = filters.iter().find(|filter| !FILTERS.contains(&filter.id)) {
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
    fn fault(&self, offset: u64, why: impl Into<String>) -> Error {
        Error::format(&self.path, "data", offset, why)
    }

    /// Converts an error of the HDF5 library.
    fn library_fault(&self, error: &hdf5_pure::Error) -> Error {
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

/// Decoded samples: axes time, feed, channel, from `offset` of the data set on.
#[derive(Debug, Default)]
struct Piece {
    offset: Axes,
    axes: Axes,
    bytes: Vec<u8>,
}

/// Samples of a file, read in bands of times: this module reads contiguous data and decodes bitshuffled chunks, the
/// HDF5 library reads every other layout.
pub(super) struct Storage {
    input: Input,
    place: DataLayout,
    kind: Kind,
    band_times: u64,
    feeds: Vec<usize>,
    /// Decoded bands, in order of time, feed and channel, and their times.
    pieces: Vec<Piece>,
    held: Range<u64>,
    /// Whether the pieces have every sample of their bands.
    is_dense: bool,
    /// Stored bytes, a buffer for each thread that has been used.
    packed: Vec<Vec<u8>>,
}

impl Storage {
    /// Opens the samples of a data set, of which `feeds` (one, or two to be summed) are read; `input` is the same file.
    pub(super) fn new(
        input: Input,
        mut place: DataLayout,
        dataset: Dataset,
        feeds: Vec<usize>,
    ) -> Result<Self> {
        let (kind, band_times) = place.bind(dataset)?;
        let (pieces, packed) = (Vec::new(), Vec::new());
        let (held, is_dense) = (0..0, false);
        Ok(Self { input, place, kind, band_times, feeds, pieces, held, is_dense, packed })
    }

    /// Returns the number of times in the file.
    pub(super) fn times(&self) -> u64 {
        self.place.axes[0]
    }

    /// Describes what the file's end truncates, if anything.
    pub(super) fn cut(&self) -> Option<&str> {
        self.place.cut.as_deref()
    }

    /// Reads rows of `row_bytes` from time `time` on, before the end of the data; returns their number, at least one.
    ///
    /// # Errors
    /// The error of the earliest samples that cannot be read or decoded.
    pub(super) fn read(
        &mut self,
        time: u64,
        rows: &mut [u8],
        row_bytes: usize,
        recorded: Encoding,
    ) -> Result<usize> {
        let wanted = ((rows.len() / row_bytes) as u64).min(self.times() - time);
        if let Kind::Contiguous { address } = self.kind
            && self.place.axes[1] == 1
        {
            let rows = &mut rows[..wanted as usize * row_bytes];
            let offset = address + time * self.place.row_bytes();
            let read = self.input.read_exact_at(rows, offset);
            read.map_err(|error| Error::io(&self.place.path, error))?;
            return Ok(wanted as usize);
        }
        if !self.held.contains(&time) {
            self.hold(time, wanted)?;
        }
        let times = wanted.min(self.held.end - time) as usize;
        self.copy(time, &mut rows[..times * row_bytes], row_bytes, recorded);
        Ok(times)
    }

    /// Reads and decodes the bands with times `time` to `time + wanted`, or as many of the first as may be held.
    fn hold(&mut self, time: u64, wanted: u64) -> Result<()> {
        let start = time - time % self.band_times;
        let band_bytes = self.band_times * self.place.line_bytes() as u64 * self.feeds.len() as u64;
        let bands = (time - start + wanted).div_ceil(self.band_times);
        let most = (BANDS_BYTES / band_bytes.max(1)).max(1);
        let end = (start + bands.min(most) * self.band_times).min(self.times());
        self.held = 0..0;
        match &self.kind {
            Kind::Contiguous { .. } | Kind::Library(_) => self.hold_bands(start, end)?,
            Kind::Chunks { .. } => self.hold_chunks(start, end)?,
        }
        self.held = start..end;
        Ok(())
    }

    /// Reads the bands from `start` to `end`, each as one piece.
    fn hold_bands(&mut self, start: u64, end: u64) -> Result<()> {
        let Self { input, place, kind, band_times, pieces, .. } = self;
        let (row_bytes, [_, feeds, channels]) = (place.row_bytes(), place.axes);
        pieces.resize_with((end - start).div_ceil(*band_times) as usize, Piece::default);
        for (piece, from) in pieces.iter_mut().zip((start..end).step_by(*band_times as usize)) {
            piece.offset = [from, 0, 0];
            piece.axes = [(*band_times).min(end - from), feeds, channels];
        }
        let bytes = ((end - start) * row_bytes) as usize;
        let mut results: Vec<_> = pieces.iter().map(|_| Ok(())).collect();
        parallel::for_each(bytes, pieces.iter_mut().zip(&mut results), |(piece, result)| {
            *result = read_band(input, place, kind, piece);
        });
        self.is_dense = true;
        results.into_iter().collect()
    }

    /// Reads and decodes the chunks with selected feeds from `start` to `end`.
    fn hold_chunks(&mut self, start: u64, end: u64) -> Result<()> {
        let Self { input, place, kind, feeds, pieces, packed, .. } = self;
        let Kind::Chunks { chunks, axes, packing } = kind else { return Ok(()) };
        let first = chunks.partition_point(|chunk| chunk.offset[0] < start);
        let here = chunks[first..].iter().take_while(|chunk| chunk.offset[0] < end);
        let here: Vec<_> = here.filter(|chunk| wants(feeds, chunk, axes)).collect();
        self.is_dense = is_dense(place, feeds, &here, axes, start..end);
        pieces.resize_with(here.len(), Piece::default);
        let piece_bytes = axes.iter().product::<u64>() as usize * place.element_bytes;
        let count = parallel::threads(here.len() * piece_bytes).min(here.len()).max(1);
        if packed.len() < count {
            packed.resize_with(count, Vec::new);
        }
        let mut results: Vec<_> = here.iter().map(|_| Ok(())).collect();
        let jobs = here.into_iter().zip(pieces).zip(&mut results);
        parallel::for_each_with(&mut packed[..count], jobs, |packed, ((chunk, piece), result)| {
            piece.offset = [chunk.offset[0], chunk.offset[1], chunk.offset[2]];
            piece.axes = *axes;
            piece.bytes.resize(piece_bytes, 0);
            *result = read_chunk(input, place, chunk, *packing, packed, &mut piece.bytes);
        });
        results.into_iter().collect()
    }

    /// Copies rows from the pieces, or sums two feeds; times of no piece are zeros.
    fn copy(&self, time: u64, rows: &mut [u8], row_bytes: usize, recorded: Encoding) {
        let line = self.place.line_bytes();
        let part_times = (PART_BYTES / row_bytes).max(1);
        let bytes = rows.len();
        let parts = rows.chunks_mut(part_times * row_bytes).enumerate();
        parallel::for_each(bytes, parts, |(index, rows)| {
            let mut lines = vec![0; if self.feeds.len() > 1 { 2 * line } else { 0 }];
            for (number, row) in rows.chunks_exact_mut(row_bytes).enumerate() {
                let time = time + (index * part_times + number) as u64;
                let pieces = self.pieces_at(time);
                if self.feeds.len() == 1 {
                    self.copy_line(pieces, time, self.feeds[0], row);
                    continue;
                }
                let (first, second) = lines.split_at_mut(line);
                self.copy_line(pieces, time, self.feeds[0], first);
                self.copy_line(pieces, time, self.feeds[1], second);
                add(first, second, recorded, row);
            }
        });
    }

    /// Returns the pieces of the band with time `time`.
    fn pieces_at(&self, time: u64) -> &[Piece] {
        let start = time - time % self.band_times;
        let from = self.pieces.partition_point(|piece| piece.offset[0] < start);
        let to = self.pieces.partition_point(|piece| piece.offset[0] <= start);
        &self.pieces[from..to]
    }

    /// Copies one feed's samples of a time.
    fn copy_line(&self, pieces: &[Piece], time: u64, feed: usize, line: &mut [u8]) {
        let element = self.place.element_bytes;
        if !self.is_dense {
            line.fill(0);
        }
        for piece in pieces {
            let Some(feed) = feed_in(feed, piece.offset[1], piece.axes[1]) else { continue };
            let [_, feeds, channels] = piece.axes.map(|length| length as usize);
            let row = (time - piece.offset[0]) as usize;
            let from = (row * feeds + feed) * channels * element;
            let to = piece.offset[2] as usize * element;
            let bytes = (channels * element).min(line.len() - to);
            line[to..to + bytes].copy_from_slice(&piece.bytes[from..from + bytes]);
        }
    }
}

/// Bytes of rows that a thread copies at a time.
const PART_BYTES: usize = 1 << 19;

/// Returns whether chunks in order cover the selected feeds of all times, each sample once.
fn is_dense(
    place: &DataLayout,
    feeds: &[usize],
    chunks: &[&Chunk],
    axes: &Axes,
    times: Range<u64>,
) -> bool {
    let mut blocks: Vec<_> = feeds.iter().map(|feed| *feed as u64 / axes[1]).collect();
    blocks.dedup();
    let bands = (times.end - times.start).div_ceil(axes[0]);
    let expected = bands * place.axes[2].div_ceil(axes[2]) * blocks.len() as u64;
    chunks.len() as u64 == expected && chunks.windows(2).all(|pair| pair[0].offset < pair[1].offset)
}

/// Reads all feeds of a piece's times.
fn read_band(input: &Input, place: &DataLayout, kind: &Kind, piece: &mut Piece) -> Result<()> {
    let (start, bytes) = (piece.offset[0], (piece.axes[0] * place.row_bytes()) as usize);
    match kind {
        Kind::Contiguous { address } => {
            piece.bytes.resize(bytes, 0);
            let offset = address + start * place.row_bytes();
            let read = input.cursor_at(offset).read_exact(&mut piece.bytes);
            read.map_err(|error| Error::io(&place.path, error))
        }
        Kind::Library(dataset) => {
            let rows = dataset.read_raw_rows(start, piece.axes[0]);
            piece.bytes = rows.map_err(|error| place.library_fault(&error))?;
            if piece.bytes.len() != bytes {
                let why = format!("{} bytes read, expected {bytes}", piece.bytes.len());
                return Err(place.fault(0, why));
            }
            Ok(())
        }
        Kind::Chunks { .. } => Ok(()),
    }
}

/// Reads a chunk into `packed` and decodes it into `output`.
fn read_chunk(
    input: &Input,
    place: &DataLayout,
    chunk: &Chunk,
    packing: Packing,
    packed: &mut Vec<u8>,
    output: &mut [u8],
) -> Result<()> {
    packed.resize(chunk.storage_size as usize, 0);
    let read = input.cursor_at(chunk.address).read_exact(packed);
    read.map_err(|error| Error::io(&place.path, error))?;
    let is_plain = chunk.filter_mask & 1 == 1;
    let packing = (!is_plain).then_some(packing);
    decode(packed, packing, place.element_bytes, output)
        .map_err(|why| place.fault(chunk.address, why))
}

fn decode(
    packed: &[u8],
    packing: Option<Packing>,
    element_bytes: usize,
    output: &mut [u8],
) -> std::result::Result<(), String> {
    match packing {
        Some(Packing::Lz4) => bitshuffle::decode_lz4(packed, element_bytes, output),
        Some(Packing::Bare { block_elements }) => {
            bitshuffle::decode_bare(packed, element_bytes, block_elements, output)
        }
        None if packed.len() == output.len() => {
            output.copy_from_slice(packed);
            Ok(())
        }
        None => Err(format!("{} bytes found, expected {}", packed.len(), output.len())),
    }
}

/// Returns whether a chunk holds any selected feed.
fn wants(feeds: &[usize], chunk: &Chunk, axes: &Axes) -> bool {
    feeds.iter().any(|feed| feed_in(*feed, chunk.offset[1], axes[1]).is_some())
}

/// Returns the index of a feed within `count` feeds from `first` on, if it is among them.
fn feed_in(feed: usize, first: u64, count: u64) -> Option<usize> {
    let place = (feed as u64).checked_sub(first)?;
    (place < count).then_some(place as usize)
}
