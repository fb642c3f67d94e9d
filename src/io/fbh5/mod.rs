//! FBH5 files: filterbanks in HDF5, as blimpy and rawspec write them.
//!
//! The root has CLASS = FILTERBANK; the data set `data`, axes time, feed, channel, carries the SIGPROC header as
//! attributes. The reader ignores its `mask`, which blimpy writes empty.
//!
//! Invariant: a read that fails does not move the source; memory is that of [`storage`].
//!
//! # Source
//! blimpy 2.1 (`io/hdf_writer.py`, `io/hdf_reader.py`): attribute names, and src_raj in hours.

mod bitshuffle;
mod storage;

use std::collections::HashMap;
use std::path::Path;

use hdf5_pure::{AttrValue, DType, Dataset, Datatype, DatatypeByteOrder};

use crate::error::{Error, Result};
use crate::io::parallel::Input;
use crate::io::rows::Chosen;
use crate::io::sigproc::telescope_name;
use crate::io::{Beam, FilterbankHeader, FilterbankSource, Polarizations, TSAMP_S};
use crate::sample::Encoding;
use crate::units::{Band, MAX_CHANNELS};
pub use bitshuffle::{decode_bare, decode_lz4};
use storage::{Axes, DataLayout, Storage};

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
    let input = crate::io::compressed::open(path)?;
    let file = crate::io::hdf5::open(path)?;
    open_file(&file, Input::File(input), path, polarizations)
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
    open_file(&file, Input::Bytes(bytes), path, polarizations)
}

fn open_file(
    file: &hdf5_pure::File,
    input: Input,
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
    let file_bytes = input.len().map_err(|e| Error::io(path, e))?;
    let element_bytes = recorded.bits() / 8;
    let place = DataLayout { path: path.to_path_buf(), file_bytes, axes, element_bytes, cut: None };
    let feeds = [chosen.first].into_iter().chain(chosen.second).collect();
    let storage = Storage::new(input, place, dataset, feeds)?;
    header.times = Some(storage.times());
    let mut source = Source { storage, header, recorded, time: 0, warnings: Vec::new() };
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
struct Source {
    storage: Storage,
    header: FilterbankHeader,
    recorded: Encoding,
    time: u64,
    warnings: Vec<String>,
}

impl Source {
    fn left(&self) -> u64 {
        self.header.times.unwrap_or(0) - self.time
    }
}

impl FilterbankSource for Source {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let wanted = self.left().min(self.header.times_in(rows)? as u64) as usize;
        let mut done = 0;
        while done < wanted {
            let rest = &mut rows[done * row_bytes..wanted * row_bytes];
            let time = self.time + done as u64;
            done += self.storage.read(time, rest, row_bytes, self.recorded)?;
        }
        self.time += done as u64;
        Ok(done)
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
