//! FBH5 files: filterbanks in HDF5, as blimpy and rawspec write them.
//!
//! The root has CLASS = FILTERBANK; the data set `data`, axes time, feed, channel, carries the SIGPROC header as
//! attributes. The reader ignores its `mask`, which blimpy writes empty.
//!
//! Invariant: a reader holds one band of times: those of a row of chunks, or 1 MiB of a file without chunks.
//!
//! # Source
//! blimpy 2.1 (`io/hdf_writer.py`, `io/hdf_reader.py`): attribute names, and src_raj in hours.

mod bitshuffle;

use std::collections::HashMap;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use hdf5_pure::{AttrValue, Chunk, DType, Dataset, Datatype, DatatypeByteOrder, Filter, Layout};

use crate::error::{Error, Result};
use crate::io::hdf5::FILTERS;
use crate::io::inflate::{most_bytes, most_streamed_bytes};
use crate::io::rows::{Chosen, add};
use crate::io::sigproc::telescope_name;
use crate::io::{Beam, FilterbankHeader, FilterbankSource, Polarizations, TSAMP_S};
use crate::sample::Encoding;
use crate::units::{Band, MAX_CHANNELS};
pub use bitshuffle::{decode_bare, decode_lz4};

/// Maximum plausible number of feeds.
const MAX_FEEDS: u64 = 16;

/// Opens an FBH5 file: contiguous, or in chunks with bitshuffle (bare or LZ4), deflate, shuffle or LZF.
///
/// Feeds are polarizations: [`Polarizations::Total`] is the only one, or the sum of the first two of 2 or 4. The file
/// does not identify them; for Stokes parameters select number 0.
///
/// # Errors
/// [`Error::Format`] naming the attribute or data set for a file that is not FBH5, is damaged or inconsistent, or
/// ends before its first spectrum does; [`Error::Unavailable`] for another filter; [`Error::Parameter`] for a
/// polarization that it lacks; [`Error::Io`].
pub fn open(path: &Path, polarizations: Polarizations) -> Result<Box<dyn FilterbankSource>> {
    let input = std::fs::File::open(path).map_err(|e| Error::io(path, e))?;
    let file =
        hdf5_pure::File::open_streaming(path).map_err(|e| library_fault(path, "HDF5", &e))?;
    open_file(&file, input, path, polarizations)
}

/// Opens a file held in memory like [`open`]; `path` names it in errors.
///
/// # Errors
/// As [`open`].
pub fn from_bytes(
    bytes: Vec<u8>,
    path: &Path,
    polarizations: Polarizations,
) -> Result<Box<dyn FilterbankSource>> {
    let file = hdf5_pure::File::from_bytes(bytes.clone());
    let file = file.map_err(|e| library_fault(path, "HDF5", &e))?;
    open_file(&file, Cursor::new(bytes), path, polarizations)
}

fn open_file<R: Read + Seek + Send + 'static>(
    file: &hdf5_pure::File,
    mut input: R,
    path: &Path,
    polarizations: Polarizations,
) -> Result<Box<dyn FilterbankSource>> {
    let root = file.root().attrs().map_err(|e| library_fault(path, "root attributes", &e))?;
    let class = root.get("CLASS").and_then(AttrValue::as_str).unwrap_or_default();
    if !class.eq_ignore_ascii_case("FILTERBANK") {
        let what = crate::io::foreign::hdf5(path);
        let what = what.map_or_else(String::new, |what| format!("; it is {what}"));
        let why = format!("{class:?} found, expected \"FILTERBANK\"{what}");
        return Err(Error::format(path, "CLASS", 0, why));
    }
    let dataset = file.dataset("data").map_err(|e| library_fault(path, "data", &e))?;
    let attributes = dataset.attrs().map_err(|e| library_fault(path, "data attributes", &e))?;
    let attributes = Attributes { path, values: attributes };
    let recorded = sample_encoding(path, &dataset)?;
    let axes = read_axes(path, &dataset)?;
    // nbits is not checked: blimpy copies it from a .fil file whose narrow samples it has converted to wider ones.
    attributes.check_equal("nchans", axes[2])?;
    let chosen = Chosen::new(polarizations, axes[1] as usize)?;
    let mut header = read_header(&attributes, axes, recorded, chosen)?;
    let file_bytes = input.seek(SeekFrom::End(0)).map_err(|e| Error::io(path, e))?;
    let element_bytes = recorded.bits() / 8;
    let place = DataLayout { path: path.to_path_buf(), file_bytes, axes, element_bytes, cut: None };
    let storage = Storage::new(input, place, dataset)?;
    header.times = Some(storage.times());
    let mut source = Source::new(storage, header, recorded, chosen);
    if !attributes.values.contains_key("tstart") {
        let path = path.display();
        source.warnings.push(format!(
            "{path}: its data have no attribute tstart, so that the time of its first spectrum is not known"
        ));
    }
    Ok(Box::new(source))
}

fn read_axes(path: &Path, dataset: &Dataset) -> Result<Axes> {
    let shape = dataset.shape().map_err(|e| library_fault(path, "data", &e))?;
    let axes = Axes::try_from(shape.as_slice()).ok().filter(|[times, feeds, channels]| {
        (1..1 << 48).contains(times)
            && (1..=MAX_FEEDS).contains(feeds)
            && (1..=MAX_CHANNELS as u64).contains(channels)
    });
    axes.ok_or_else(|| {
        let why = format!(
            "shape {shape:?} found, expected time, feed (1 to {MAX_FEEDS}) and channel (1 to {MAX_CHANNELS})"
        );
        Error::format(path, "data", 0, why)
    })
}

fn read_header(
    attributes: &Attributes<'_>,
    axes: Axes,
    recorded: Encoding,
    chosen: Chosen,
) -> Result<FilterbankHeader> {
    let tsamp_s = attributes.required("tsamp")?;
    if !TSAMP_S.contains(&tsamp_s) {
        let why = format!("{tsamp_s:?} s found, expected 1e-9 to 86400 s");
        return Err(attributes.fault("tsamp", why));
    }
    let (fch1, foff) = (attributes.required("fch1")?, attributes.required("foff")?);
    let band = Band::uniform(fch1, foff, axes[2] as usize)
        .map_err(|error| attributes.fault("fch1, foff", error.to_string()))?;
    let telescope = attributes.number("telescope_id")?.map(|id| telescope_name(id as i32));
    Ok(FilterbankHeader {
        path: attributes.path.to_path_buf(),
        format: "FBH5",
        source_name: attributes.text("source_name"),
        telescope: telescope.unwrap_or_default(),
        ra_deg: attributes.number("src_raj")?.map(|hours| hours * 15.0),
        dec_deg: attributes.number("src_dej")?,
        beam: beam(attributes)?,
        tstart_mjd: attributes.number("tstart")?.unwrap_or(0.0),
        tsamp_s,
        band,
        encoding: chosen.encoding(recorded),
        recorded_bits: recorded.bits(),
        recorded_polarizations: axes[1] as usize,
        times: Some(axes[0]),
    })
}

/// Reads the beam from attributes with SIGPROC's names.
fn beam(attributes: &Attributes<'_>) -> Result<Option<Beam>> {
    let whole = |number: Option<f64>| number.map(|number| number as i64);
    Ok(Beam::new(whole(attributes.number("ibeam")?), whole(attributes.number("nbeams")?)))
}

fn sample_encoding(path: &Path, dataset: &Dataset) -> Result<Encoding> {
    let kind = dataset.dtype().map_err(|e| library_fault(path, "data", &e))?;
    let full = dataset.datatype().map_err(|e| library_fault(path, "data", &e))?;
    let order = match full {
        Datatype::FixedPoint { size, byte_order, .. }
        | Datatype::FloatingPoint { size, byte_order, .. } => (size > 1).then_some(byte_order),
        _ => None,
    };
    let is_little = order.is_none_or(|order| order == DatatypeByteOrder::LittleEndian);
    match kind {
        DType::U8 => Ok(Encoding::U8),
        DType::I8 => Ok(Encoding::I8),
        DType::U16 if is_little => Ok(Encoding::U16),
        DType::I16 if is_little => Ok(Encoding::I16),
        DType::F32 if is_little => Ok(Encoding::F32),
        other => {
            let why = format!(
                "samples of type {other} found, expected u8, i8, u16, i16 or f32, little endian"
            );
            Err(Error::format(path, "data", 0, why))
        }
    }
}

fn library_fault(path: &Path, field: &str, error: &hdf5_pure::Error) -> Error {
    Error::format(path, field, 0, error.to_string())
}

/// Attributes of `data`.
struct Attributes<'a> {
    path: &'a Path,
    values: HashMap<String, AttrValue>,
}

impl Attributes<'_> {
    /// Returns an attribute as a number, from any numeric type or text.
    fn number(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.values.get(name) else { return Ok(None) };
        let number = value.as_f64().or_else(|| value.as_i64().map(|whole| whole as f64));
        let number = number.or_else(|| value.as_str()?.trim().parse().ok());
        match number.filter(|number| number.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.fault(name, format!("{value:?} found, expected a finite number"))),
        }
    }

    fn required(&self, name: &str) -> Result<f64> {
        self.number(name)?.ok_or_else(|| self.fault(name, "the attribute is missing"))
    }

    fn text(&self, name: &str) -> String {
        self.values.get(name).and_then(AttrValue::as_str).unwrap_or_default().trim().to_string()
    }

    /// Fails if an attribute is present and contradicts the data set.
    fn check_equal(&self, name: &str, expected: u64) -> Result<()> {
        match self.number(name)? {
            Some(number) if number != expected as f64 => {
                Err(self.fault(name, format!("{number} found, but data has {expected}")))
            }
            _ => Ok(()),
        }
    }

    fn fault(&self, name: &str, why: impl Into<String>) -> Error {
        Error::format(self.path, format!("data attribute {name}"), 0, why)
    }
}

/// Row stream of an FBH5 file.
struct Source<R> {
    storage: Storage<R>,
    header: FilterbankHeader,
    recorded: Encoding,
    feeds: Vec<usize>,
    time: u64,
    band_start: Option<u64>,
    band: Vec<u8>,
    warnings: Vec<String>,
}

impl<R: Read + Seek> Source<R> {
    fn new(
        storage: Storage<R>,
        header: FilterbankHeader,
        recorded: Encoding,
        chosen: Chosen,
    ) -> Self {
        let feeds = [chosen.first].into_iter().chain(chosen.second).collect();
        Self {
            storage,
            header,
            recorded,
            feeds,
            time: 0,
            band_start: None,
            band: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Copies or sums the next times in the buffered band; returns their number.
    fn read_some(&mut self, rows: &mut [u8]) -> Result<usize> {
        let start = self.time - self.time % self.storage.band_times();
        if self.band_start != Some(start) {
            self.band_start = None;
            self.storage.read_band(start, &self.feeds, &mut self.band)?;
            self.band_start = Some(start);
        }
        let row_bytes = self.header.row_bytes();
        let line = self.header.channels() * self.recorded.bits() / 8;
        let planes: Vec<&[u8]> =
            self.band.chunks_exact(self.band.len() / self.feeds.len()).collect();
        let lines = planes[0].chunks_exact(line).skip((self.time - start) as usize);
        let mut times = 0;
        for (index, (row, first)) in rows.chunks_exact_mut(row_bytes).zip(lines).enumerate() {
            times = index + 1;
            let Some(second) = planes.get(1) else {
                row.copy_from_slice(first);
                continue;
            };
            let second = &second[(self.time - start) as usize * line + index * line..][..line];
            add(first, second, self.recorded, row);
        }
        self.time += times as u64;
        Ok(times)
    }

    fn left(&self) -> u64 {
        self.header.times.unwrap_or(0) - self.time
    }
}

impl<R: Read + Seek + Send> FilterbankSource for Source<R> {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        self.header.times_in(rows)?;
        let mut done = 0;
        while done < rows.len() && self.left() > 0 {
            done += self.read_some(&mut rows[done..])? * row_bytes;
        }
        Ok(done / row_bytes)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let times = times.min(self.left());
        self.time += times;
        Ok(times)
    }
    fn cut(&self) -> Option<&str> {
        self.storage.cut()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// HDF5 filter number of bitshuffle.
const BITSHUFFLE: u16 = 32008;
/// Bytes per band (range of times) of a file without chunks.
const BAND_BYTES: u64 = 1 << 20;

/// Lengths of the axes time, feed, channel.
type Axes = [u64; 3];

/// Shape of a data set, and its file.
#[derive(Clone, Debug)]
struct DataLayout {
    path: PathBuf,
    file_bytes: u64,
    axes: Axes,
    element_bytes: usize,
    /// Description of its truncation by the file's end.
    cut: Option<String>,
}

/// Storage of a data set.
enum Kind {
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
    /// Determines the storage of a data set, and the number of times to read together; drops the times truncated by
    /// the file's end.
    fn bind(&mut self, dataset: Dataset) -> Result<(Kind, u64)> {
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

/// Samples of a file, read band by band: this module decodes bitshuffled chunks, the HDF5 library reads every other
/// layout. Memory holds one band and one chunk.
struct Storage<R> {
    input: R,
    place: DataLayout,
    kind: Kind,
    band_times: u64,
    packed: Vec<u8>,
    decoded: Vec<u8>,
}

/// Selected feeds of a band, axes feed, time, channel, and its start time.
struct FileBand<'a> {
    start: u64,
    times: usize,
    feeds: &'a [usize],
    bytes: &'a mut [u8],
}

impl<R: Read + Seek> Storage<R> {
    /// Opens the samples of a data set; `input` is the same file.
    fn new(input: R, mut place: DataLayout, dataset: Dataset) -> Result<Self> {
        let (kind, band_times) = place.bind(dataset)?;
        Ok(Self { input, place, kind, band_times, packed: Vec::new(), decoded: Vec::new() })
    }

    /// Returns the number of times in the file.
    fn times(&self) -> u64 {
        self.place.axes[0]
    }

    /// Describes what the file's end truncates, if anything.
    fn cut(&self) -> Option<&str> {
        self.place.cut.as_deref()
    }

    /// Returns the times per band; the last band may be shorter.
    fn band_times(&self) -> u64 {
        self.band_times
    }

    /// Reads the band that starts at time `start`, a multiple of [`Storage::band_times`], into `bytes`: axes feed (of
    /// `feeds`), time, channel.
    fn read_band(&mut self, start: u64, feeds: &[usize], bytes: &mut Vec<u8>) -> Result<()> {
        let [all_times, _, channels] = self.place.axes;
        let times = self.band_times.min(all_times - start) as usize;
        bytes.clear();
        bytes.resize(feeds.len() * times * channels as usize * self.place.element_bytes, 0);
        let mut band = FileBand { start, times, feeds, bytes };
        match &self.kind {
            Kind::Library(dataset) => read_rows(&self.place, dataset, &mut band),
            Kind::Chunks { chunks, axes, packing } => {
                let first = chunks.partition_point(|chunk| chunk.offset[0] < start);
                let here = chunks[first..].iter().take_while(|chunk| chunk.offset[0] == start);
                for chunk in here.filter(|chunk| wants(feeds, chunk, axes)) {
                    self.packed.resize(chunk.storage_size as usize, 0);
                    self.input
                        .seek(SeekFrom::Start(chunk.address))
                        .and_then(|_| self.input.read_exact(&mut self.packed))
                        .map_err(|e| Error::io(&self.place.path, e))?;
                    let bytes = axes.iter().product::<u64>() as usize * self.place.element_bytes;
                    self.decoded.resize(bytes, 0);
                    let is_plain = chunk.filter_mask & 1 == 1;
                    let packing = (!is_plain).then_some(*packing);
                    decode(&self.packed, packing, self.place.element_bytes, &mut self.decoded)
                        .map_err(|why| self.place.fault(chunk.address, why))?;
                    band.take(&self.place, chunk, axes, &self.decoded);
                }
                Ok(())
            }
        }
    }
}

/// Reads a band through the HDF5 library.
fn read_rows(place: &DataLayout, dataset: &Dataset, band: &mut FileBand<'_>) -> Result<()> {
    let rows = dataset.read_raw_rows(band.start, band.times as u64);
    let rows = rows.map_err(|error| place.library_fault(&error))?;
    let line = place.axes[2] as usize * place.element_bytes;
    let row = line * place.axes[1] as usize;
    if rows.len() != band.times * row {
        let why = format!("{} bytes read, expected {}", rows.len(), band.times * row);
        return Err(place.fault(0, why));
    }
    let planes = band.bytes.chunks_exact_mut(band.times * line);
    for (plane, feed) in planes.zip(band.feeds) {
        for (output, row) in plane.chunks_exact_mut(line).zip(rows.chunks_exact(row)) {
            output.copy_from_slice(&row[feed * line..][..line]);
        }
    }
    Ok(())
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

impl FileBand<'_> {
    /// Copies a decoded chunk's samples into the band.
    fn take(&mut self, place: &DataLayout, chunk: &Chunk, axes: &Axes, decoded: &[u8]) {
        let element = place.element_bytes;
        let [_, chunk_feeds, chunk_channels] = axes.map(|length| length as usize);
        let first = chunk.offset[2] as usize;
        let channels = place.axes[2] as usize;
        let bytes = chunk_channels.min(channels - first) * element;
        for (index, feed) in self.feeds.iter().enumerate() {
            let Some(feed) = feed_in_chunk(*feed, chunk, axes) else { continue };
            for time in 0..self.times {
                let from = (time * chunk_feeds + feed) * chunk_channels * element;
                let to = ((index * self.times + time) * channels + first) * element;
                self.bytes[to..to + bytes].copy_from_slice(&decoded[from..from + bytes]);
            }
        }
    }
}

/// Returns whether a chunk holds any selected feed.
fn wants(feeds: &[usize], chunk: &Chunk, axes: &Axes) -> bool {
    feeds.iter().any(|feed| feed_in_chunk(*feed, chunk, axes).is_some())
}

/// Returns the index of a feed within a chunk, if present.
fn feed_in_chunk(feed: usize, chunk: &Chunk, axes: &Axes) -> Option<usize> {
    let place = (feed as u64).checked_sub(chunk.offset[1])?;
    (place < axes[1]).then_some(place as usize)
}
