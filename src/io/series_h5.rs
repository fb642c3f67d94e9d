//! Signal-to-noise ratio series and whitened strain in HDF5, as gwpy and h5py read them.
//!
//! | path                  | contents                                                                     |
//! |-----------------------|------------------------------------------------------------------------------|
//! | `/` attributes        | `format`, `version`, `comment`, `complete` (0: the run was interrupted)       |
//! | `/H1` attributes      | `detector`, `start_gps_ns`, `rate_hz`, `latency_s`                           |
//! | `/H1/template`        | names of the templates                                                       |
//! | `/H1/peak_offset_s`   | event time less the time of the output sample, for each template             |
//! | `/H1/snr/0000` ...    | complex signal-to-noise ratio of a template, compounds (r, i)                |
//! | `/H1/whitened`        | whitened strain, each sample of unit variance                                |
//! | `/H1/valid`           | whether a sample of `whitened` came from valid data                          |
//! | `/H1/pycbc/0000` ...  | the samples of `snr/0000` and `whitened` for PyCBC, sharing their storage    |
//!
//! Series carry gwpy's attributes `x0`, `dx`, `xunit`, `unit`, `name` and `channel`. The data sets for PyCBC carry
//! `start_time` and `delta_t`, equal to `x0` and `dx`. The `x0` of a signal-to-noise ratio is the event time of its
//! first sample: the time of the first output sample plus the template's offset.
//!
//! Invariant: a file from [`Writer::create`] has its final name only when it is complete; memory does not grow with its
//! length.
//!
//! # Source
//! gwpy 4.1.0 (`types/io/hdf5.py`) and PyCBC 2 (`pycbc.types.load_timeseries`) for the attributes.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::path::{Path, PathBuf};

use hdf5_pure::{AttrValue, FileBuilder, GroupBuilder};
use num_complex::Complex;

use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::hdf5::{self, Built, Element, Input, add_single};
use crate::io::positioned::FileExt;
use crate::units::Gps;
use crate::view::check_length;

/// Contents of a file to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesFile {
    /// Origin of the series, one line.
    pub comment: String,
    /// Series of each detector.
    pub detectors: Vec<DetectorSeries>,
}

/// Series of one detector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DetectorSeries {
    /// `H1`, `L1`, `V1`, `K1`.
    pub detector: String,
    /// Time of the first sample of whitened strain and of the first output sample.
    pub start: Gps,
    /// Sampling rate.
    pub rate_hz: u32,
    /// Maximum number of samples.
    pub samples: u64,
    /// Data required after a sample to compute its signal-to-noise ratio, in seconds.
    pub latency_s: f64,
    /// Templates with a series.
    pub templates: Vec<TemplateSeries>,
    /// Whether to write whitened strain as well.
    pub whitened: bool,
}

/// A template with a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateSeries {
    /// Its name.
    pub name: String,
    /// Event time less the time of the output sample, in seconds.
    pub peak_offset_s: f64,
}

/// Value of the root attribute `format`.
const FORMAT: &str = "sidereal series";

/// Most bytes of the names of a detector's templates.
const MAX_TEXT: usize = 1 << 20;

/// Group of the data sets with PyCBC's attributes.
const PYCBC: &str = "pycbc";

/// A series of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Series {
    Snr { detector: usize, template: usize },
    Whitened { detector: usize },
    Valid { detector: usize },
}

impl Series {
    fn element(self) -> Element {
        match self {
            Self::Snr { .. } => Element::Complex,
            Self::Whitened { .. } => Element::F32,
            Self::Valid { .. } => Element::Bool,
        }
    }

    /// Returns the bytes per sample.
    fn width(self) -> u64 {
        self.element().bytes()
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
}

/// Returns the name of a template's data set.
fn leaf(template: usize) -> String {
    format!("{template:04}")
}

/// File layout.
struct Skeleton {
    reserved: u64,
    series: Vec<Series>,
    /// Address of each series, in the order of `series`.
    starts: Vec<u64>,
}

impl Skeleton {
    fn new(path: &Path, file: &SeriesFile) -> Result<Self> {
        let mut series = Vec::new();
        for (detector, own) in file.detectors.iter().enumerate() {
            series.extend(
                (0..own.templates.len()).map(|template| Series::Snr { detector, template }),
            );
            if own.whitened {
                series.extend([Series::Whitened { detector }, Series::Valid { detector }]);
            }
        }
        let reserved = hdf5::finish(path, fill(file, true, &series))?.len() as u64;
        let samples = |each: &Series| file.detectors[each.detector()].samples;
        let bytes = series.iter().map(|each| samples(each).checked_mul(each.width()));
        let starts = hdf5::addresses(reserved, bytes).map_err(|long| {
            Error::parameter("samples", samples(&series[long]), "it is more than a file can hold")
        })?;
        Ok(Self { reserved, series, starts })
    }

    /// Returns the file offset of a sample of a series.
    fn offset(&self, which: Series, sample: u64) -> Option<u64> {
        let place = self.series.iter().position(|each| *each == which)?;
        Some(self.starts[place] + sample * which.width())
    }

    /// Returns the index of a detector's first signal-to-noise ratio series; those of the other templates follow it.
    fn first_snr(&self, detector: usize) -> usize {
        let first = Series::Snr { detector, template: 0 };
        self.series.iter().position(|each| *each == first).unwrap_or(0)
    }

    /// Returns the file offset of a sample of the series with index `place`.
    fn offset_at(&self, place: usize, sample: u64) -> u64 {
        self.starts[place] + sample * self.series[place].width()
    }

    /// Returns the end of the last sample, given the written samples of each series.
    fn end(&self, length: &dyn Fn(Series) -> u64) -> u64 {
        let ends = self.series.iter().zip(&self.starts).filter(|(each, _)| length(**each) > 0);
        ends.map(|(each, start)| start + length(*each) * each.width()).max().unwrap_or(0)
    }

    /// Builds the file's start with the written samples of each series and whether they are complete.
    fn finish(
        &self,
        path: &Path,
        file: &SeriesFile,
        is_complete: bool,
        length: impl Fn(Series) -> u64,
    ) -> Result<Vec<u8>> {
        let place = |(each, start): (&Series, &u64)| hdf5::Rows {
            paths: [Some(each.path(file)), each.pycbc_path(file)].into_iter().flatten().collect(),
            axes: vec![length(*each)],
            start: *start,
            bytes: length(*each) * each.width(),
        };
        let rows: Vec<_> = self.series.iter().zip(&self.starts).map(place).collect();
        let small = hdf5::finish(path, fill(file, is_complete, &self.series))?;
        hdf5::append_rows(path, small, self.reserved, &rows)
    }
}

fn text(words: impl Into<String>) -> AttrValue {
    AttrValue::VarLenString(words.into())
}

fn fill(file: &SeriesFile, is_complete: bool, series: &[Series]) -> Built<FileBuilder> {
    let mut builder = FileBuilder::new();
    builder.set_attr("format", text(FORMAT));
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
    add_single(group, leaf, series.element(), 1)?
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
    add_single(group, leaf, series.element(), 1)?
        .set_attr("start_time", AttrValue::F64(own.start.plus_s(offset_s).s()))
        .set_attr("delta_t", AttrValue::F64(1.0 / f64::from(own.rate_hz)));
    Ok(())
}

/// Samples encoded per write.
const BATCH: usize = 1 << 16;

/// Unfinished file of series. Dropping it before [`finish`](Self::finish) removes a file made by
/// [`create`](Self::create).
pub struct Writer {
    header: SeriesFile,
    file: Target,
    skeleton: Skeleton,
    /// Samples written per detector: signal-to-noise ratios and whitened strain.
    written: Vec<[u64; 2]>,
}

/// Output file.
enum Target {
    /// A file renamed to its final name when complete.
    Atomic(AtomicFile),
    /// A file with its final name from the start.
    Named(PathBuf, File),
}

impl Target {
    fn path(&self) -> &Path {
        match self {
            Self::Atomic(file) => file.path(),
            Self::Named(path, _) => path,
        }
    }

    fn put_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Atomic(file) => file.put_at(offset, bytes),
            Self::Named(path, file) => {
                file.write_all_at(bytes, offset).map_err(|error| Error::io(&*path, error))
            }
        }
    }
}

impl Writer {
    /// Opens a file that has its final name from the start and is kept on a drop, so that a later run can continue
    /// it. `written` is the last result of [`Self::written`], or empty for a new file.
    ///
    /// # Errors
    /// As [`Self::create`]; [`Error::Format`] if the file is too short for the samples written.
    pub fn resume(path: &Path, header: SeriesFile, written: &[[u64; 2]]) -> Result<Self> {
        check(&header)?;
        let skeleton = Skeleton::new(path, &header)?;
        let io = |error| Error::io(path, error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(written.is_empty());
        let file = options.open(path).map_err(io)?;
        let mut so_far = vec![[0; 2]; header.detectors.len()];
        if !written.is_empty() {
            let fault = |why: String| Error::format(path, "series", 0, why);
            if written.len() != so_far.len() {
                return Err(fault(format!(
                    "found {} detectors, expected {}",
                    written.len(),
                    so_far.len()
                )));
            }
            so_far.copy_from_slice(written);
            let announced = header.detectors.iter().zip(written);
            if let Some((own, found)) =
                announced.into_iter().find(|(own, found)| found.iter().any(|n| *n > own.samples))
            {
                return Err(fault(format!("{found:?} samples found of {}", own.samples)));
            }
            let needed = skeleton.end(&|series| length(&so_far, series));
            let found = file.metadata().map_err(io)?.len();
            if found < needed {
                return Err(fault(format!("{found} bytes found, expected {needed}")));
            }
        }
        let file = Target::Named(path.to_path_buf(), file);
        Ok(Self { header, file, skeleton, written: so_far })
    }

    /// Returns the samples written per detector: signal-to-noise ratios and whitened strain.
    pub fn written(&self) -> &[[u64; 2]] {
        &self.written
    }

    /// Creates a file; `finish` replaces an existing one.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no detector, a repeated one, one whose name cannot be a group's, one without anything
    /// to write, a rate of 0, or more samples than a file can hold; as [`AtomicFile::create`].
    pub fn create(path: &Path, header: SeriesFile) -> Result<Self> {
        check(&header)?;
        let skeleton = Skeleton::new(path, &header)?;
        let file = Target::Atomic(AtomicFile::create(path)?);
        let written = vec![[0; 2]; header.detectors.len()];
        Ok(Self { header, file, skeleton, written })
    }

    /// Appends signal-to-noise ratios of a detector: `times` samples of each template, from rows of `stride`
    /// elements.
    ///
    /// | buffer | axes           | type        | unit | access |
    /// |--------|----------------|-------------|------|--------|
    /// | `z`    | template, time | complex f32 | 1    | read   |
    ///
    /// # Errors
    /// [`Error::Shape`] unless `z.len() == templates * stride` and `times <= stride`; [`Error::Parameter`] for more
    /// samples than were announced or an unknown detector; [`Error::Io`].
    pub fn snr(
        &mut self,
        detector: usize,
        z: &[Complex<f32>],
        stride: usize,
        times: usize,
    ) -> Result<()> {
        let start = self.advance(detector, 0, times)?;
        let templates = self.header.detectors[detector].templates.len();
        check_length("z (template, time)", templates * stride, z.len())?;
        if times > stride {
            return Err(Error::Shape { what: "rows of z", expected: times, actual: stride });
        }
        let first = self.skeleton.first_snr(detector);
        let mut bytes = Vec::new();
        for template in 0..templates {
            let row = &z[template * stride..][..times];
            for (batch, values) in row.chunks(BATCH).enumerate() {
                bytes.clear();
                hdf5::append_complex(&mut bytes, values);
                let sample = start + (batch * BATCH) as u64;
                self.file.put_at(self.skeleton.offset_at(first + template, sample), &bytes)?;
            }
        }
        self.written[detector][0] += times as u64;
        Ok(())
    }

    /// Appends whitened strain of a detector, and the validity of its samples.
    ///
    /// # Errors
    /// [`Error::Shape`] if the slices differ in length; [`Error::Parameter`] for more samples than were announced, or
    /// a detector that is unknown or has no whitened strain; [`Error::Io`].
    pub fn whitened(&mut self, detector: usize, samples: &[f32], valid: &[bool]) -> Result<()> {
        check_length("valid (time)", samples.len(), valid.len())?;
        let start = self.advance(detector, 1, samples.len())?;
        let place = |series| {
            self.skeleton.offset(series, start).ok_or_else(|| {
                let rule = "it has no declared series of whitened strain";
                Error::parameter("detector", &self.header.detectors[detector].detector, rule)
            })
        };
        let (strain, mask) =
            (place(Series::Whitened { detector })?, place(Series::Valid { detector })?);
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        self.file.put_at(strain, &bytes)?;
        let bytes: Vec<u8> = valid.iter().map(|good| u8::from(*good)).collect();
        self.file.put_at(mask, &bytes)?;
        self.written[detector][1] += samples.len() as u64;
        Ok(())
    }

    /// Writes the counts and renames the file to its final name.
    ///
    /// # Errors
    /// [`Error::Parameter`] if an announced series has no samples; [`Error::Io`].
    pub fn finish(self) -> Result<()> {
        self.finish_as(true)
    }

    /// Finishes the file like [`Self::finish`], and records whether it covers all of the strain.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_as(mut self, is_complete: bool) -> Result<()> {
        for (own, [ratios, strain]) in self.header.detectors.iter().zip(&self.written) {
            if (!own.templates.is_empty() && *ratios == 0) || (own.whitened && *strain == 0) {
                let rule =
                    format!("the declared series of {} must have at least one", own.detector);
                return Err(Error::parameter("samples", 0, rule));
            }
        }
        let length = |series| length(&self.written, series);
        let start = self.skeleton.finish(self.file.path(), &self.header, is_complete, length)?;
        self.file.put_at(0, &start)?;
        match self.file {
            Target::Atomic(file) => file.commit(),
            Target::Named(..) => Ok(()),
        }
    }

    /// Returns the number of samples so far; fails if `more` would exceed the announced number.
    fn advance(&self, detector: usize, kind: usize, more: usize) -> Result<u64> {
        let Some(own) = self.header.detectors.get(detector) else {
            let rule = format!("there are {}", self.header.detectors.len());
            return Err(Error::parameter("detector", detector, rule));
        };
        let so_far = self.written[detector][kind];
        if so_far + more as u64 > own.samples {
            let rule = format!("{} has {}", own.samples, own.detector);
            return Err(Error::parameter("samples", so_far + more as u64, rule));
        }
        Ok(so_far)
    }
}

/// Open file of series, of which parts are read.
///
/// Invariant: a read needs memory for its own samples only.
pub struct Reader {
    input: Input,
    header: SeriesFile,
}

impl Reader {
    /// Opens a file; `samples` of a detector is the number of its samples of whitened strain, or of its ratios.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a file that is no such file.
    pub fn open(path: &Path) -> Result<Self> {
        crate::io::check_seekable(path)?;
        let input = Input::open(path)?;
        let root = input.file.root();
        let attributes = root.attrs().map_err(input.library("HDF5"))?;
        let text = |name: &str| attributes.get(name).and_then(AttrValue::as_str);
        if text("format") != Some(FORMAT) {
            let why =
                format!("{:?} found, expected {FORMAT:?}", text("format").unwrap_or_default());
            return Err(input.fault("format", why));
        }
        let comment = text("comment").unwrap_or_default().to_owned();
        let mut names = root.groups().map_err(input.library("HDF5"))?;
        names.sort();
        let detectors = names.iter().map(|name| detector(&input, name)).collect::<Result<_>>()?;
        Ok(Self { input, header: SeriesFile { comment, detectors } })
    }

    /// Returns what the file has.
    pub fn header(&self) -> &SeriesFile {
        &self.header
    }

    /// Reads signal-to-noise ratios of a detector's template; samples beyond the end are left out.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an unknown detector; [`Error::Format`] for a series that is missing or of another type.
    pub fn snr(
        &self,
        detector: usize,
        template: usize,
        samples: Range<u64>,
    ) -> Result<Vec<Complex<f32>>> {
        let bytes = self.bytes(Series::Snr { detector, template }, samples)?;
        let number = |part: &[u8; 8]| {
            let [a, b, c, d, e, f, g, h] = *part;
            Complex::new(f32::from_le_bytes([a, b, c, d]), f32::from_le_bytes([e, f, g, h]))
        };
        Ok(bytes.as_chunks::<8>().0.iter().map(number).collect())
    }

    /// Reads whitened strain of a detector; samples beyond the end are left out.
    ///
    /// # Errors
    /// As [`Self::snr`].
    pub fn whitened(&self, detector: usize, samples: Range<u64>) -> Result<Vec<f32>> {
        let bytes = self.bytes(Series::Whitened { detector }, samples)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|part| f32::from_le_bytes(*part)).collect())
    }

    fn bytes(&self, series: Series, samples: Range<u64>) -> Result<Vec<u8>> {
        if series.detector() >= self.header.detectors.len() {
            let rule = format!("there are {}", self.header.detectors.len());
            return Err(Error::parameter("detector", series.detector(), rule));
        }
        let path = series.path(&self.header);
        let library = self.input.library(&path);
        let dataset = self.input.dataset(&path)?;
        self.input.check_one_piece(&path, &dataset)?;
        let expected = series.element().datatype();
        let expected = expected.map_err(hdf5_pure::Error::Format).map_err(library)?;
        if dataset.datatype().map_err(library)? != expected {
            return Err(self.input.fault(&path, "another type than single precision"));
        }
        let count = samples.end.saturating_sub(samples.start);
        if count.saturating_mul(series.width()) > self.input.bytes {
            let why = format!("{count} samples asked of a file of {} bytes", self.input.bytes);
            return Err(self.input.fault(&path, why));
        }
        dataset.read_raw_rows(samples.start, count).map_err(library)
    }
}

/// Reads what a file has of a detector.
fn detector(input: &Input, name: &str) -> Result<DetectorSeries> {
    let library = input.library(name);
    let attributes = input.file.group(name).and_then(|group| group.attrs()).map_err(library)?;
    let whole = |key: &str| {
        let found = attributes.get(key).and_then(AttrValue::as_i64);
        found.ok_or_else(|| input.fault(&format!("{name}/{key}"), "expected a whole number"))
    };
    let rate_hz = whole("rate_hz")?;
    let Some(rate_hz) = u32::try_from(rate_hz).ok().filter(|rate| *rate > 0) else {
        let why = format!("{rate_hz} found, expected 1 to {}", u32::MAX);
        return Err(input.fault(&format!("{name}/rate_hz"), why));
    };
    let latency_s = match attributes.get("latency_s") {
        Some(AttrValue::F64(number)) => *number,
        _ => return Err(input.fault(&format!("{name}/latency_s"), "expected a number")),
    };
    let path = format!("{name}/template");
    let templates = match input.has(&path) {
        false => Vec::new(),
        true => {
            let names = input.strings(&path, &input.dataset(&path)?, MAX_TEXT)?;
            let path = format!("{name}/peak_offset_s");
            let offsets = input.dataset(&path)?.read_f64().map_err(input.library(&path))?;
            if offsets.len() != names.len() {
                let why = format!("{} numbers of {} templates", offsets.len(), names.len());
                return Err(input.fault(&path, why));
            }
            let one = |(name, peak_offset_s)| TemplateSeries { name, peak_offset_s };
            names.into_iter().zip(offsets).map(one).collect()
        }
    };
    let strain = format!("{name}/whitened");
    let whitened = input.has(&strain);
    let longest = if whitened { strain } else { format!("{name}/snr/{}", leaf(0)) };
    let samples = input.shape(&longest)?.first().copied().unwrap_or(0);
    Ok(DetectorSeries {
        detector: name.to_owned(),
        start: Gps { ns: whole("start_gps_ns")? },
        rate_hz,
        samples,
        latency_s,
        templates,
        whitened,
    })
}

/// Returns the number of samples of a series so far.
fn length(written: &[[u64; 2]], series: Series) -> u64 {
    match series {
        Series::Snr { detector, .. } => written[detector][0],
        Series::Whitened { detector } | Series::Valid { detector } => written[detector][1],
    }
}

fn check(header: &SeriesFile) -> Result<()> {
    if header.detectors.is_empty() {
        return Err(Error::parameter("detectors", 0, "there is at least 1"));
    }
    for (index, own) in header.detectors.iter().enumerate() {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        let fits = !own.detector.is_empty() && own.detector.chars().all(is_name);
        if !fits || header.detectors[..index].iter().any(|other| other.detector == own.detector) {
            let rule = "each has a name of its own, of letters and digits";
            return Err(Error::parameter("detector", &own.detector, rule));
        }
        if own.rate_hz == 0 {
            return Err(Error::parameter("rate (Hz)", 0, "it must be above 0"));
        }
        if own.templates.is_empty() && !own.whitened {
            let rule = "it has neither templates nor whitened strain to write";
            return Err(Error::parameter("detector", &own.detector, rule));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use super::*;

    fn header() -> SeriesFile {
        let template =
            |name: &str, peak_offset_s| TemplateSeries { name: name.to_owned(), peak_offset_s };
        let own = |detector: &str, whitened| DetectorSeries {
            detector: detector.to_owned(),
            start: Gps::from_s(1_126_259_446.0),
            rate_hz: 4096,
            samples: 1000,
            latency_s: 1.5,
            templates: vec![template("30+30", -0.25), template("1.4+1.4", 0.0)],
            whitened,
        };
        SeriesFile {
            comment: "a test".to_owned(),
            detectors: vec![own("H1", true), own("L1", false)],
        }
    }

    /// Test value of a template's signal-to-noise ratio at a time.
    fn z(template: usize, time: usize) -> Complex<f32> {
        Complex::new(template as f32 * 1e3 + time as f32, -(time as f32))
    }

    #[test]
    fn blocks_of_any_length_read_back_as_one_series() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("series.h5");
        let mut writer = Writer::create(&path, header()).expect("a file");
        let mut start = 0;
        for (stride, times) in [(100, 70), (400, 400), (1, 1), (5, 0)] {
            let row = |template: usize| (0..stride).map(move |k| z(template, start + k));
            let block: Vec<_> = row(0).chain(row(1)).collect();
            writer.snr(0, &block, stride, times).expect("samples");
            writer.snr(1, &block, stride, times).expect("samples");
            let strain: Vec<f32> = (start..start + times).map(|k| k as f32 * 0.5).collect();
            let valid: Vec<bool> = (start..start + times).map(|k| !k.is_multiple_of(3)).collect();
            writer.whitened(0, &strain, &valid).expect("samples");
            start += times;
        }
        assert!(std::fs::metadata(&path).is_err());
        writer.finish().expect("a whole file");
        let file = hdf5_pure::File::open(&path).expect("HDF5");
        for (template, leaf) in ["0000", "0001"].iter().enumerate() {
            let dataset = file.dataset(&format!("L1/snr/{leaf}")).expect("a data set");
            assert_eq!(dataset.shape().expect("a shape"), [471]);
            let both =
                |k| [z(template, k).re.to_le_bytes(), z(template, k).im.to_le_bytes()].concat();
            let expected: Vec<u8> = (0..471).flat_map(both).collect();
            assert_eq!(dataset.read_raw().expect("bytes"), expected);
        }
        let strain = file.dataset("H1/whitened").expect("a data set").read_f32().expect("floats");
        assert_eq!((strain.len(), strain[470]), (471, 235.0));
        let first = file.dataset("H1/snr/0000").expect("a data set").attrs().expect("attributes");
        assert!(matches!(first["x0"], hdf5_pure::AttrValue::F64(x0) if x0 == 1_126_259_445.75));
        assert!(file.dataset("L1/whitened").is_err());
        drop(file);

        let reader = Reader::open(&path).expect("series");
        let mut written = header();
        written.detectors.iter_mut().for_each(|own| own.samples = 471);
        assert_eq!(*reader.header(), written);
        let expected: Vec<_> = (100..103).map(|time| z(1, time)).collect();
        assert_eq!(reader.snr(1, 1, 100..103).expect("ratios"), expected);
        assert_eq!(reader.whitened(0, 469..480).expect("strain"), [234.5, 235.0]);
        assert!(matches!(reader.snr(2, 0, 0..1), Err(Error::Parameter { .. })));
        assert!(matches!(reader.snr(0, 2, 0..1), Err(Error::Format { .. })));
        assert!(matches!(reader.whitened(1, 0..1), Err(Error::Format { .. })));
        assert!(matches!(reader.whitened(0, 0..u64::MAX), Err(Error::Format { .. })));
        std::fs::write(&path, "text").expect("a file");
        assert!(matches!(Reader::open(&path), Err(Error::Format { .. })));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("series.h5");
        let mut writer = Writer::create(&path, header()).expect("a file");
        let block = vec![Complex::default(); 2000];
        assert!(matches!(writer.snr(0, &block, 999, 10), Err(Error::Shape { .. })));
        assert!(matches!(writer.snr(0, &block, 1000, 1001), Err(Error::Parameter { .. })));
        assert!(matches!(writer.snr(2, &block, 1000, 10), Err(Error::Parameter { .. })));
        assert!(
            writer.whitened(1, &[0.0], &[true]).is_err()
                && writer.whitened(0, &[0.0], &[]).is_err()
        );
        assert!(matches!(writer.finish(), Err(Error::Parameter { .. })));
        assert_eq!(std::fs::read_dir(folder.path()).expect("a list").count(), 0);
        let refused = |change: fn(&mut SeriesFile)| {
            let mut header = header();
            change(&mut header);
            Writer::create(&path, header).is_err()
        };
        assert!(refused(|header| header.detectors.clear()));
        assert!(refused(|header| header.detectors[1].detector = "H1".to_owned()));
        assert!(refused(|header| header.detectors[0].detector = "H/1".to_owned()));
        assert!(refused(|header| header.detectors[1].templates.clear()));
        assert!(refused(|header| header.detectors[1].rate_hz = 0));
        assert!(refused(|header| header.detectors[1].samples = u64::MAX));
    }
}
