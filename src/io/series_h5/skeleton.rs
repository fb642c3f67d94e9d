//! File without its samples: each series has one placeholder element, whose data set then gets its length and
//! address.

use std::path::Path;

use hdf5_pure::{
    AttrValue, CompoundTypeBuilder, Datatype, EnumTypeBuilder, FileBuilder, FormatError,
    GroupBuilder, Layout, make_f32_type, make_i8_type,
};

use super::{DetectorSeries, SeriesFile};
use crate::error::{Error, Result};
use crate::io::hdf5_patch::{DatasetPatch, patch};

type Built<T = ()> = std::result::Result<T, FormatError>;

/// Group of the data sets with PyCBC's attributes.
const PYCBC: &str = "pycbc";

/// Alignment of each series, in bytes.
const ALIGNMENT: u64 = 4096;

/// A series of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Series {
    Snr { detector: usize, template: usize },
    Whitened { detector: usize },
    Valid { detector: usize },
}

impl Series {
    /// Returns the bytes per sample.
    pub(super) fn width(self) -> u64 {
        match self {
            Self::Snr { .. } => 8,
            Self::Whitened { .. } => 4,
            Self::Valid { .. } => 1,
        }
    }

    fn detector(self) -> usize {
        match self {
            Self::Snr { detector, .. } | Self::Whitened { detector } | Self::Valid { detector } => {
                detector
            }
        }
    }

    fn path(self, file: &SeriesFile) -> String {
        let name = &file.detectors[self.detector()].detector;
        match self {
            Self::Snr { template, .. } => format!("{name}/snr/{}", leaf(template)),
            Self::Whitened { .. } => format!("{name}/whitened"),
            Self::Valid { .. } => format!("{name}/valid"),
        }
    }

    /// Returns the path of the data set with the same samples for PyCBC. It is separate because gwpy rejects unknown
    /// attributes, so one data set cannot carry both programs' attributes.
    fn pycbc_path(self, file: &SeriesFile) -> Option<String> {
        let name = &file.detectors[self.detector()].detector;
        match self {
            Self::Snr { template, .. } => Some(format!("{name}/{PYCBC}/{}", leaf(template))),
            Self::Whitened { .. } => Some(format!("{name}/{PYCBC}/whitened")),
            Self::Valid { .. } => None,
        }
    }

    fn datatype(self) -> Built<Datatype> {
        Ok(match self {
            Self::Snr { .. } => CompoundTypeBuilder::new().f32_field("r").f32_field("i").build()?,
            Self::Whitened { .. } => make_f32_type(),
            Self::Valid { .. } => {
                let byte = EnumTypeBuilder::with_base(make_i8_type());
                byte.value("FALSE", 0).value("TRUE", 1).build()?
            }
        })
    }
}

/// Returns the name of a template's data set.
fn leaf(template: usize) -> String {
    format!("{template:04}")
}

/// File layout.
pub(super) struct Skeleton {
    reserved: u64,
    series: Vec<Series>,
    /// Address of each series, in the order of `series`.
    starts: Vec<u64>,
}

impl Skeleton {
    pub(super) fn new(path: &Path, file: &SeriesFile) -> Result<Self> {
        let mut series = Vec::new();
        for (detector, own) in file.detectors.iter().enumerate() {
            series.extend(
                (0..own.templates.len()).map(|template| Series::Snr { detector, template }),
            );
            if own.whitened {
                series.extend([Series::Whitened { detector }, Series::Valid { detector }]);
            }
        }
        let reserved = build(path, (file, true), &series)?.len() as u64;
        let (mut end, mut starts) = (reserved, Vec::new());
        for each in &series {
            let start = end.next_multiple_of(ALIGNMENT);
            let samples = file.detectors[each.detector()].samples;
            let bytes =
                samples.checked_mul(each.width()).and_then(|bytes| bytes.checked_add(start));
            end = bytes.filter(|end| *end < i64::MAX as u64 - ALIGNMENT).ok_or_else(|| {
                Error::parameter("samples", samples, "it is more than a file can hold")
            })?;
            starts.push(start);
        }
        Ok(Self { reserved, series, starts })
    }

    /// Returns the file offset of a sample of a series.
    pub(super) fn offset(&self, which: Series, sample: u64) -> Option<u64> {
        let place = self.series.iter().position(|each| *each == which)?;
        Some(self.starts[place] + sample * which.width())
    }

    /// Returns the index of a detector's first signal-to-noise ratio series; those of the other templates follow it.
    pub(super) fn first_snr(&self, detector: usize) -> usize {
        let first = Series::Snr { detector, template: 0 };
        self.series.iter().position(|each| *each == first).unwrap_or(0)
    }

    /// Returns the file offset of a sample of the series with index `place`.
    pub(super) fn offset_at(&self, place: usize, sample: u64) -> u64 {
        self.starts[place] + sample * self.series[place].width()
    }

    /// Returns the end of the last sample, given the written samples of each series.
    pub(super) fn end(&self, length: &dyn Fn(Series) -> u64) -> u64 {
        let ends = self.series.iter().zip(&self.starts).filter(|(each, _)| length(**each) > 0);
        ends.map(|(each, start)| start + length(*each) * each.width()).max().unwrap_or(0)
    }

    /// Builds the file's start with the written samples of each series and whether they are complete.
    pub(super) fn finish(
        &self,
        path: &Path,
        (file, is_complete): (&SeriesFile, bool),
        length: impl Fn(Series) -> u64,
    ) -> Result<Vec<u8>> {
        let mut bytes = build(path, (file, is_complete), &self.series)?;
        let placeholders = self.placeholders(file, &bytes).map_err(|error| fault(path, &error))?;
        let place = |((each, start), placeholders): ((&Series, &u64), Vec<u64>)| {
            let (samples, bytes, start) = (length(*each), length(*each) * each.width(), *start);
            placeholders.into_iter().map(move |placeholder| DatasetPatch {
                placeholder,
                axes: vec![samples],
                start,
                bytes,
            })
        };
        let places: Vec<DatasetPatch> =
            self.series.iter().zip(&self.starts).zip(placeholders).flat_map(place).collect();
        let last = places.iter().map(|place| place.start + place.bytes).max().unwrap_or(0);
        let is_whole = bytes.len() as u64 == self.reserved && patch(&mut bytes, &places, last);
        if !is_whole {
            let why = "the HDF5 library laid the file out in an unknown way".to_string();
            return Err(Error::Unavailable { what: path.display().to_string(), why });
        }
        Ok(bytes)
    }

    /// Finds the addresses of the placeholder elements that hdf5-pure wrote for each series.
    fn placeholders(
        &self,
        file: &SeriesFile,
        bytes: &[u8],
    ) -> std::result::Result<Vec<Vec<u64>>, hdf5_pure::Error> {
        let small = hdf5_pure::File::from_bytes(bytes.to_vec())?;
        let find = |path: String| {
            let layout = small.dataset(&path)?.layout()?;
            // Address 0 is the superblock's, so it marks a data set without a contiguous address.
            let Layout::Contiguous { address, .. } = layout else { return Ok(0) };
            Ok(address.unwrap_or(0))
        };
        let paths = |each: &Series| [Some(each.path(file)), each.pycbc_path(file)];
        let each = |each: &Series| paths(each).into_iter().flatten().map(find).collect();
        self.series.iter().map(each).collect()
    }
}

fn fault(path: &Path, error: &hdf5_pure::Error) -> Error {
    Error::format(path, "HDF5", 0, error.to_string())
}

fn build(path: &Path, file: (&SeriesFile, bool), series: &[Series]) -> Result<Vec<u8>> {
    let built = fill(file, series).map_err(hdf5_pure::Error::Format);
    built.and_then(FileBuilder::finish).map_err(|error| fault(path, &error))
}

fn text(words: impl Into<String>) -> AttrValue {
    AttrValue::VarLenString(words.into())
}

fn fill((file, is_complete): (&SeriesFile, bool), series: &[Series]) -> Built<FileBuilder> {
    let mut builder = FileBuilder::new();
    builder.set_attr("format", text("sidereal series"));
    builder.set_attr("version", AttrValue::I64(1));
    builder.set_attr("complete", AttrValue::I64(is_complete.into()));
    builder.set_attr("comment", text(file.comment.as_str()));
    for (index, own) in file.detectors.iter().enumerate() {
        let mut group = builder.create_group(&own.detector);
        group.set_attr("detector", text(own.detector.as_str()));
        group.set_attr("start_gps_ns", AttrValue::I64(own.start.ns));
        group.set_attr("rate_hz", AttrValue::I64(own.rate_hz.into()));
        group.set_attr("latency_s", AttrValue::F64(own.latency_s));
        if !own.templates.is_empty() {
            let names: Vec<&str> = own.templates.iter().map(|each| each.name.as_str()).collect();
            let offsets: Vec<f64> = own.templates.iter().map(|each| each.peak_offset_s).collect();
            group.create_dataset("template").with_vlen_strings(&names);
            group.create_dataset("peak_offset_s").with_f64_data(&offsets);
        }
        let mut ratios = group.create_group("snr");
        let mut pycbc = group.create_group(PYCBC);
        for each in series.iter().filter(|each| each.detector() == index) {
            match *each {
                Series::Snr { template, .. } => {
                    let of = &own.templates[template];
                    let name = format!("SNR of {}", of.name);
                    let place = Axis { offset_s: of.peak_offset_s, name: &name, unit: "" };
                    add(&mut ratios, &leaf(template), *each, own, place)?;
                    add_for_pycbc(&mut pycbc, &leaf(template), *each, own, of.peak_offset_s)?;
                }
                Series::Whitened { .. } => {
                    let place = Axis { offset_s: 0.0, name: "whitened strain", unit: "" };
                    add(&mut group, "whitened", *each, own, place)?;
                    add_for_pycbc(&mut pycbc, "whitened", *each, own, 0.0)?;
                }
                Series::Valid { .. } => {
                    let place = Axis { offset_s: 0.0, name: "good data", unit: "" };
                    add(&mut group, "valid", *each, own, place)?;
                }
            }
        }
        group.add_group(ratios.finish());
        group.add_group(pycbc.finish());
        builder.add_group(group.finish());
    }
    Ok(builder)
}

/// gwpy's attributes of a series.
struct Axis<'a> {
    /// Time of the first sample less the detector's start, in seconds.
    offset_s: f64,
    name: &'a str,
    unit: &'a str,
}

fn add(
    group: &mut GroupBuilder,
    leaf: &str,
    series: Series,
    own: &DetectorSeries,
    axis: Axis<'_>,
) -> Built {
    let zeros = vec![0; series.width() as usize];
    group
        .create_dataset(leaf)
        .with_raw_data(series.datatype()?, zeros, 1)
        .with_shape(&[1])
        .set_attr("x0", AttrValue::F64(own.start.plus_s(axis.offset_s).s()))
        .set_attr("dx", AttrValue::F64(1.0 / f64::from(own.rate_hz)))
        .set_attr("xunit", text("s"))
        .set_attr("unit", text(axis.unit))
        .set_attr("name", text(axis.name))
        .set_attr("channel", text(format!("{}:SIDEREAL", own.detector)));
    Ok(())
}

/// Adds a data set with PyCBC's attributes that shares the series' storage.
fn add_for_pycbc(
    group: &mut GroupBuilder,
    leaf: &str,
    series: Series,
    own: &DetectorSeries,
    offset_s: f64,
) -> Built {
    let zeros = vec![0; series.width() as usize];
    group
        .create_dataset(leaf)
        .with_raw_data(series.datatype()?, zeros, 1)
        .with_shape(&[1])
        .set_attr("start_time", AttrValue::F64(own.start.plus_s(offset_s).s()))
        .set_attr("delta_t", AttrValue::F64(1.0 / f64::from(own.rate_hz)));
    Ok(())
}
