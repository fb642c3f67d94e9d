//! Strain in HDF5: GWOSC's layout (`strain/Strain` with bit masks, versions 1 to 3), and gwpy's individual series.
//!
//! Invariant: a reader holds one chunk of the file.
//!
//! # Source
//! GWOSC's documentation of its HDF5 files; gwpy 4.1 (`gwpy/types/io/hdf5.py`): attributes x0 and dx in seconds.

use std::path::{Path, PathBuf};

use hdf5_pure::{AttrValue, Dataset, Layout};

use crate::error::{Error, Result};
use crate::io::hdf5::Input;
use crate::io::inflate::{most_bytes, most_streamed_bytes};
use crate::io::strain::{
    DEFAULT_BITS, FileMetadata, MAX_MASK, Mask, OpenOptions, StrainHeader, StrainSource,
    ask_for_channel, finish_header, mask_steps,
};
use crate::view::check_length;

pub(super) const STRAIN: &str = "strain/Strain";

/// Opens a file in either layout.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn StrainSource>> {
    let input = Input::open(path)?;
    let source =
        if input.has(STRAIN) { gwosc(&input, path, options) } else { gwpy(&input, path, options) };
    Ok(Box::new(source?))
}

/// Returns whether a file is HDF5 with strain in either layout, even if damaged.
pub(super) fn is_strain(path: &Path) -> bool {
    let Ok(input) = Input::open(path) else { return false };
    let has_series = || {
        input.root_names().is_ok_and(|names| names.iter().any(|name| input.is_gwpy_series(name)))
    };
    input.has(STRAIN) || has_series()
}

fn gwosc(input: &Input, path: &Path, options: &OpenOptions) -> Result<Source> {
    let series = input.series(STRAIN)?;
    let spacing_s = match series.number("Xspacing")? {
        Some(spacing_s) => spacing_s,
        None => return Err(input.fault("strain/Strain attribute Xspacing", "it is missing")),
    };
    let start_s = match series.number("Xstart")? {
        Some(start_s) => start_s,
        None => input.only_number("meta/GPSstart")?,
    };
    let detector =
        input.small_texts("meta/Detector").ok().and_then(|texts| texts.into_iter().next());
    let metadata = FileMetadata { format: "GWOSC HDF5", detector, spacing_s, start_s };
    let times = series.len();
    let header = finish_header(path, metadata, times, options)?;
    let masks = masks(input, &header, times, options)?;
    Ok(Source::new(header, series, masks))
}

/// A gwpy series with its attributes.
struct GwpySeries {
    /// Name for selection: its channel, or its data set if several share a channel.
    name: String,
    dataset: String,
    detector: Option<String>,
    series: Series,
    spacing_s: f64,
    start_s: f64,
}

/// Reads all gwpy series of a file, sorted by name.
fn gwpy_series(input: &Input) -> Result<Vec<GwpySeries>> {
    let mut found = Vec::new();
    for dataset in input.root_names()?.into_iter().filter(|name| input.is_gwpy_series(name)) {
        let series = input.series(&dataset)?;
        if let (Some(spacing_s), Some(start_s)) = (series.number("dx")?, series.number("x0")?) {
            let names = [series.text("channel"), series.text("name"), &dataset];
            let channel = names.into_iter().find(|name| name.contains(':'));
            let name = channel.unwrap_or(&dataset).to_owned();
            let detector = name.split_once(':').map(|(site, _)| site.to_owned());
            found.push(GwpySeries { name, dataset, detector, series, spacing_s, start_s });
        }
    }
    let names: Vec<String> = found.iter().map(|one| one.name.clone()).collect();
    for one in &mut found {
        if names.iter().filter(|name| **name == one.name).count() > 1 {
            one.name.clone_from(&one.dataset);
        }
    }
    Ok(found)
}

/// Returns the channels of a file's gwpy series; none for other files.
pub(super) fn channels(path: &Path) -> Result<Vec<String>> {
    let Ok(input) = Input::open(path) else { return Ok(Vec::new()) };
    if input.has(STRAIN) {
        return Ok(Vec::new());
    }
    Ok(gwpy_series(&input)?.into_iter().map(|one| one.name).collect())
}

/// Returns the name of the selected gwpy series if it is a channel; `None` for other files.
pub(super) fn channel_of(path: &Path, options: &OpenOptions) -> Result<Option<String>> {
    let Ok(input) = Input::open(path) else { return Ok(None) };
    if input.has(STRAIN) {
        return Ok(None);
    }
    Ok(Some(choose(&input, path, options)?.name).filter(|name| name.contains(':')))
}

/// Selects the requested gwpy series, or the only one.
fn choose(input: &Input, path: &Path, options: &OpenOptions) -> Result<GwpySeries> {
    let mut found = gwpy_series(input)?;
    let names: Vec<String> = found.iter().map(|one| one.name.clone()).collect();
    if found.is_empty() {
        let why = "it is missing, and so are gwpy's series (attributes x0 and dx)";
        return Err(input.fault(STRAIN, why));
    }
    if let Some(asked) = &options.channel {
        found.retain(|one| one.name == *asked || one.dataset == *asked);
        if found.is_empty() {
            let why = format!("no such channel; there are {}", names.join(", "));
            return Err(input.fault(asked, why));
        }
    } else if found.len() > 1 {
        let of_detector = |one: &GwpySeries| {
            options.detector.is_none() || one.detector.is_none() || one.detector == options.detector
        };
        found.retain(of_detector);
        if found.len() > 1 {
            found.retain(|one| one.name.ends_with("STRAIN"));
        }
    }
    if found.len() != 1 {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(ask_for_channel(path, &names));
    }
    Ok(found.remove(0))
}

fn gwpy(input: &Input, path: &Path, options: &OpenOptions) -> Result<Source> {
    let GwpySeries { detector, series, spacing_s, start_s, .. } = choose(input, path, options)?;
    if let Some(bits) =
        options.required_quality.iter().flatten().chain(&options.required_injections).next()
    {
        return Err(input
            .fault("quality", format!("{bits} is asked for, but a gwpy file has no such bits")));
    }
    let metadata = FileMetadata { format: "gwpy HDF5", detector, spacing_s, start_s };
    let header = finish_header(path, metadata, series.len(), options)?;
    Ok(Source::new(header, series, Vec::new()))
}

/// Source of one file's samples.
struct Source {
    header: StrainHeader,
    series: Series,
    masks: Vec<Mask>,
    next: u64,
    /// Buffered samples.
    piece: Vec<f64>,
    /// Index of the first buffered sample.
    piece_start: u64,
    cut: Option<String>,
}

impl Source {
    fn new(header: StrainHeader, series: Series, masks: Vec<Mask>) -> Self {
        let cut = series.cut();
        Self { header, series, masks, next: 0, piece: Vec::new(), piece_start: 0, cut }
    }

    fn fill_piece(&mut self) -> Result<()> {
        let start = self.next / self.series.piece() * self.series.piece();
        self.piece = self.series.read(start, self.series.piece().min(self.series.len() - start))?;
        self.piece_start = start;
        Ok(())
    }
}

impl StrainSource for Source {
    fn header(&self) -> &StrainHeader {
        &self.header
    }

    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize> {
        check_length("flags of valid samples", samples.len(), valid.len())?;
        let mut done = 0;
        while done < samples.len() && self.next < self.series.len() {
            let end = self.piece_start + self.piece.len() as u64;
            if !(self.piece_start..end).contains(&self.next) {
                self.fill_piece()?;
            }
            let from = (self.next - self.piece_start) as usize;
            let count = (self.piece.len() - from).min(samples.len() - done);
            for place in 0..count {
                let sample = self.piece[from + place];
                let time = self.next + place as u64;
                let is_valid =
                    sample.is_finite() && self.masks.iter().all(|mask| mask.is_good(time));
                samples[done + place] = if is_valid { sample } else { 0.0 };
                valid[done + place] = is_valid;
            }
            done += count;
            self.next += count as u64;
        }
        Ok(done)
    }

    fn skip(&mut self, samples: u64) -> Result<u64> {
        let count = samples.min(self.series.len() - self.next);
        self.next += count;
        Ok(count)
    }

    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }
}

/// Reads a file's masks for strain of `times` samples.
pub(super) fn masks(
    input: &Input,
    header: &StrainHeader,
    times: u64,
    options: &OpenOptions,
) -> Result<Vec<Mask>> {
    let mut masks = Vec::new();
    let simple = ["quality/simple/DQmask", "quality/simple/DQShortnames"];
    match &options.required_quality {
        Some(names) if names.is_empty() => {}
        Some(names) => masks.push(read(input, header, times, simple, Bits::All(names))?),
        None if input.has(simple[0]) => {
            masks.push(read(input, header, times, simple, Bits::Known(&DEFAULT_BITS))?);
        }
        None => {}
    }
    if !options.required_injections.is_empty() {
        let injections = ["quality/injections/Injmask", "quality/injections/InjShortnames"];
        let bits = Bits::All(&options.required_injections);
        masks.push(read(input, header, times, injections, bits)?);
    }
    Ok(masks)
}

/// Required bits.
enum Bits<'a> {
    /// All of these.
    All(&'a [String]),
    /// Those of these that the file has.
    Known(&'a [&'a str]),
}

fn read(
    input: &Input,
    header: &StrainHeader,
    times: u64,
    [mask_name, names_name]: [&str; 2],
    bits: Bits<'_>,
) -> Result<Mask> {
    let names = input.small_texts(names_name)?;
    let bit = |name: &str| names.iter().position(|known| known == name).filter(|bit| *bit < 32);
    let wanted = match bits {
        Bits::Known(wanted) => wanted.iter().filter_map(|name| bit(name)).collect(),
        Bits::All(wanted) => {
            let bits = wanted.iter().map(|name| {
                let why = || format!("{name} was requested, but the file has {}", names.join(", "));
                bit(name).ok_or_else(|| input.fault(names_name, why()))
            });
            bits.collect::<Result<Vec<usize>>>()?
        }
    };
    let wanted = wanted.into_iter().fold(0_u32, |mask, bit| mask | 1 << bit);
    let series = input.series(mask_name)?;
    let spacing_s = series.number("Xspacing")?.unwrap_or(1.0);
    let start_s = header.start.s();
    let late_s = start_s - series.number("Xstart")?.unwrap_or(start_s);
    let [samples, offset] =
        mask_steps(spacing_s, late_s, header.rate_hz).map_err(|why| series.fault(why))?;
    let needed = (times + offset).div_ceil(samples);
    if series.len() < needed {
        let why = format!("{} steps, expected {needed} for {times} samples", series.len());
        return Err(series.fault(why));
    }
    Ok(Mask::new([samples, offset], &series.read_all(MAX_MASK)?, wanted))
}

/// Bytes per read of a data set without chunks.
const PIECE_BYTES: u64 = 1 << 20;
/// Maximum bytes of all texts of a data set.
const MAX_TEXT: u64 = 1 << 16;

impl Input {
    /// Returns whether a data set has both attributes of a gwpy series.
    fn is_gwpy_series(&self, name: &str) -> bool {
        let attributes = self.file.dataset(name).and_then(|dataset| dataset.attrs());
        attributes.is_ok_and(|all| all.contains_key("x0") && all.contains_key("dx"))
    }

    /// Returns the names of the data sets in the root group, sorted.
    fn root_names(&self) -> Result<Vec<String>> {
        let names = self.file.root().datasets();
        let mut names = names.map_err(|error| self.fault("root group", error.to_string()))?;
        names.sort();
        Ok(names)
    }

    pub(super) fn series(&self, name: &str) -> Result<Series> {
        Series::new(self, name, self.dataset(name)?)
    }

    /// Reads all texts of a small data set.
    pub(super) fn small_texts(&self, name: &str) -> Result<Vec<String>> {
        let dataset = self.dataset(name)?;
        let shape = dataset.shape().map_err(self.library(name))?;
        let width = dataset.element_size().map_err(self.library(name))?;
        let bytes = shape.iter().try_fold(width, |product, axis| product.checked_mul(*axis));
        if bytes.is_none_or(|bytes| bytes > MAX_TEXT.min(self.bytes)) {
            let why =
                format!("{shape:?} texts of {width} bytes, expected {MAX_TEXT} bytes at most");
            return Err(self.fault(name, why));
        }
        self.check_one_piece(name, &dataset)?;
        self.strings(name, &dataset, MAX_TEXT as usize)
    }

    /// Reads the only number of a data set.
    pub(super) fn only_number(&self, name: &str) -> Result<f64> {
        let dataset = self.dataset(name)?;
        let shape = dataset.shape().map_err(self.library(name))?;
        if shape.iter().any(|axis| *axis != 1) {
            return Err(self.fault(name, format!("axes {shape:?} found, expected one number")));
        }
        self.check_one_piece(name, &dataset)?;
        self.check_numbers(name, &dataset)?;
        match dataset.read_f64().map_err(self.library(name))?[..] {
            [number] if number.is_finite() => Ok(number),
            ref found => Err(self.fault(name, format!("{found:?}, expected a finite number"))),
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
        let library = input.library(name);
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
        input.check_filters(name, &dataset)?;
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
