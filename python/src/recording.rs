//! Filterbank recordings: headers, samples as arrays, and arrays as sources of a search.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use numpy::{Element, IntoPyArray, PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyTuple, PyType};
use sidereal::io::{self, FilterbankHeader, FilterbankSource, OpenOptions};
use sidereal::sample::Encoding;
use sidereal::units::{Band, HZ_PER_MHZ};

use crate::arguments::{count, kind};
use crate::arrays::{Readable, empty};
use crate::errors::{detached, raised, refused};
use crate::pickle::{Remade, not_pickled, remade};

/// Bytes of rows between two checks for signals.
const PIECE: usize = 1 << 24;

/// Header of a filterbank.
#[pyclass(frozen, module = "sidereal_dsp")]
#[derive(Clone, Debug)]
pub(crate) struct Header {
    /// Path of the data; the first of several files.
    #[pyo3(get)]
    path: PathBuf,
    /// Name of the format.
    #[pyo3(get)]
    format: String,
    /// Name of the source on the sky; empty if unknown.
    #[pyo3(get)]
    source_name: String,
    /// Name of the telescope; empty if unknown.
    #[pyo3(get)]
    telescope: String,
    /// Right ascension (J2000) in degrees, if known.
    #[pyo3(get)]
    ra_deg: Option<f64>,
    /// Declination (J2000) in degrees, if known.
    #[pyo3(get)]
    dec_deg: Option<f64>,
    /// Start of the first sample, MJD (UTC), if known.
    #[pyo3(get)]
    tstart: Option<f64>,
    /// Sampling time, s.
    #[pyo3(get)]
    tsamp: f64,
    band: Band,
    /// Bits of a recorded sample.
    #[pyo3(get)]
    nbits: usize,
    /// Number of samples of each channel, if known.
    #[pyo3(get)]
    nsamples: Option<u64>,
}

impl From<&FilterbankHeader> for Header {
    fn from(header: &FilterbankHeader) -> Self {
        Self {
            path: header.path.clone(),
            format: header.format.to_owned(),
            source_name: header.source_name.clone(),
            telescope: header.telescope.clone(),
            ra_deg: header.ra_deg,
            dec_deg: header.dec_deg,
            tstart: (header.tstart_mjd > 0.0).then_some(header.tstart_mjd),
            tsamp: header.tsamp_s,
            band: header.band.clone(),
            nbits: header.recorded_bits,
            nsamples: header.times,
        }
    }
}

#[pymethods]
impl Header {
    /// Centre of each channel in recorded order, MHz; a float64 array of shape (nchans,).
    #[getter]
    fn freqs<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        let centres = self.band.centres_hz().iter();
        centres.map(|centre| centre / HZ_PER_MHZ).collect::<Vec<_>>().into_pyarray(py)
    }

    /// Width of a channel, MHz.
    #[getter]
    fn channel_width(&self) -> f64 {
        self.band.channel_width_hz() / HZ_PER_MHZ
    }

    /// Centre of the first channel, MHz.
    #[getter]
    fn fch1(&self) -> f64 {
        self.band.fch1_mhz()
    }

    /// Mean distance from channel to channel, MHz; negative in a descending band.
    #[getter]
    fn foff(&self) -> f64 {
        self.band.foff_mhz()
    }

    /// Number of channels.
    #[getter]
    fn nchans(&self) -> usize {
        self.band.channels()
    }

    fn __repr__(&self) -> String {
        let Self { format, source_name, tsamp, band, .. } = self;
        let times = self.nsamples.map_or_else(|| "?".to_owned(), |times| times.to_string());
        format!(
            "<Header: {format} of {source_name}, {times} samples of {tsamp} s, {} channels from {} MHz>",
            band.channels(),
            band.fch1_mhz()
        )
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Remade<'py>> {
        let Self { path, format, source_name, telescope, ra_deg, dec_deg, .. } = self;
        let Self { tstart, tsamp, band, nbits, nsamples, .. } = self;
        let centres_hz = PyArray1::from_slice(py, band.centres_hz());
        let width_hz = band.channel_width_hz();
        let parts = (
            path,
            format,
            source_name,
            telescope,
            ra_deg,
            dec_deg,
            tstart,
            tsamp,
            centres_hz,
            width_hz,
            nbits,
            nsamples,
        );
        remade::<Self>(py, parts)
    }

    /// Makes a header from its attributes, the channels in Hz.
    #[classmethod]
    #[pyo3(name = "_of")]
    #[expect(clippy::too_many_arguments, reason = "attributes of a pickle")]
    fn of(
        _class: &Bound<'_, PyType>,
        path: PathBuf,
        format: String,
        source_name: String,
        telescope: String,
        ra_deg: Option<f64>,
        dec_deg: Option<f64>,
        tstart: Option<f64>,
        tsamp: f64,
        centres_hz: Vec<f64>,
        width_hz: f64,
        nbits: usize,
        nsamples: Option<u64>,
    ) -> PyResult<Self> {
        let band = Band::from_centres(centres_hz, width_hz).map_err(raised)?;
        Ok(Self {
            path,
            format,
            source_name,
            telescope,
            ra_deg,
            dec_deg,
            tstart,
            tsamp,
            band,
            nbits,
            nsamples,
        })
    }
}

/// Files of a recording, which are read in order.
struct Files {
    paths: Vec<PathBuf>,
    options: OpenOptions,
    source: Box<dyn FilterbankSource>,
    /// Next row that the source returns.
    next: u64,
}

impl Files {
    fn open(paths: Vec<PathBuf>, options: OpenOptions) -> sidereal::Result<Self> {
        let source = io::open(&paths, &options)?;
        Ok(Self { paths, options, source, next: 0 })
    }

    /// Moves to a row; returns false if the recording ends before it.
    fn seek(&mut self, row: u64) -> sidereal::Result<bool> {
        if row < self.next {
            *self = Self::open(self.paths.clone(), self.options)?;
        }
        let skip = row - self.next;
        self.next += if skip > 0 { self.source.skip(skip)? } else { 0 };
        Ok(self.next == row)
    }

    /// Reads rows of bytes; fewer than requested only at the end.
    fn read(&mut self, rows: &mut [u8]) -> sidereal::Result<usize> {
        let times = self.source.read(rows)?;
        self.next += times as u64;
        Ok(times)
    }

    /// Reads at most `times` rows into a new array; axes: time and channel.
    fn array<'py>(&mut self, py: Python<'py>, times: usize) -> PyResult<Bound<'py, PyAny>> {
        match self.source.header().encoding {
            Encoding::U1 | Encoding::U2 | Encoding::U4 => self.filled::<u8>(py, times),
            Encoding::U8 => self.filled::<u8>(py, times),
            Encoding::I8 => self.filled::<i8>(py, times),
            Encoding::U16 => self.filled::<u16>(py, times),
            Encoding::I16 => self.filled::<i16>(py, times),
            Encoding::F32 => self.filled::<f32>(py, times),
        }
    }

    fn filled<'py, T: Element + bytemuck::Pod + Send>(
        &mut self,
        py: Python<'py>,
        times: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (encoding, channels) = {
            let header = self.source.header();
            (header.encoding, header.channels())
        };
        let array = empty::<T>(py, &[times, channels])?;
        let mut done = 0;
        {
            let mut elements = array.try_readwrite().map_err(PyErr::from)?;
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(elements.as_slice_mut()?);
            let row_bytes = channels * size_of::<T>();
            let step = (PIECE / row_bytes).max(1);
            while done < times {
                let rows = step.min(times - done);
                let piece = &mut bytes[done * row_bytes..][..rows * row_bytes];
                let read = detached(py, || self.unpacked(encoding, piece))?;
                done += read;
                py.check_signals()?;
                if read < rows {
                    break;
                }
            }
        }
        array.as_any().get_item(PySlice::new(py, 0, done as isize, 1))
    }

    /// Reads rows with whole bytes for each sample.
    fn unpacked(&mut self, encoding: Encoding, rows: &mut [u8]) -> sidereal::Result<usize> {
        let bits = encoding.bits();
        if bits >= 8 {
            return self.read(rows);
        }
        let mut packed = vec![0; rows.len() * bits / 8];
        let times = self.read(&mut packed)?;
        let mask = (1u8 << bits) - 1;
        for (samples, byte) in rows.chunks_exact_mut(8 / bits).zip(packed) {
            for (at, sample) in samples.iter_mut().enumerate() {
                *sample = byte >> (at * bits) & mask;
            }
        }
        Ok(times)
    }
}

/// Filterbank recording, opened by `open_filterbank`. A pickle holds the absolute paths of its files: it opens them again
/// where it is loaded, and so does a copy.
#[pyclass(module = "sidereal_dsp")]
pub(crate) struct Recording {
    files: Mutex<Files>,
    header: FilterbankHeader,
}

impl Recording {
    /// Opens the recording again, at its first row.
    ///
    /// # Errors
    /// As `open_filterbank`.
    pub(crate) fn again(&mut self, py: Python<'_>) -> PyResult<Box<dyn FilterbankSource>> {
        let files = self.files();
        let (paths, options) = (files.paths.clone(), files.options);
        detached(py, || io::open(&paths, &options))
    }

    fn files(&mut self) -> &mut Files {
        self.files.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Recording {
    /// Header of the recording.
    #[getter]
    fn header(&self) -> Header {
        Header::from(&self.header)
    }

    /// Reads samples.
    ///
    /// Parameters
    /// ----------
    /// start : int, default 0
    ///     First sample in time.
    /// nsamps : int, optional
    ///     Number of samples in time; by default all to the end.
    ///
    /// Returns
    /// -------
    /// array
    ///     Axes: time and channel, shape (nsamps, nchans). uint8, int8, uint16, int16 or float32 as recorded (uint8 for
    ///     fewer bits); fewer than `nsamps` samples at the end of the recording.
    #[pyo3(signature = (start=0, nsamps=None))]
    fn read<'py>(
        &mut self,
        py: Python<'py>,
        start: i64,
        nsamps: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let start = count("start", start)? as u64;
        let n = nsamps.map(|n| count("nsamps", n)).transpose()?;
        let left = self.header.times.map(|times| times.saturating_sub(start) as usize);
        let times = match (n, left) {
            (Some(n), Some(left)) => n.min(left),
            (Some(n), None) => n,
            (None, Some(left)) => left,
            (None, None) => {
                let rule = "the length of the recording is not known; name a number";
                return Err(refused("nsamps", "None", rule));
            }
        };
        let files = self.files();
        let is_within = times == 0 || detached(py, || files.seek(start))?;
        files.array(py, if is_within { times } else { 0 })
    }

    /// Iterates over the recording.
    ///
    /// Parameters
    /// ----------
    /// nsamps : int
    ///     Samples in time of each array; the last one may have fewer.
    /// overlap : int, default 0
    ///     Samples at the start of each array that are also the end of the one before.
    ///
    /// Returns
    /// -------
    /// iterator of array
    ///     As `read` returns them. It reads the files independently of the recording.
    #[pyo3(signature = (nsamps, overlap=0))]
    fn gulps(&mut self, py: Python<'_>, nsamps: i64, overlap: i64) -> PyResult<Gulps> {
        let (n, overlap) = (count("nsamps", nsamps)?, count("overlap", overlap)?);
        if overlap >= n {
            return Err(refused("overlap", overlap, format!("it must be below `nsamps`, {n}")));
        }
        let files = self.files();
        let (paths, options) = (files.paths.clone(), files.options);
        let files = detached(py, || Files::open(paths, options))?;
        Ok(Gulps { files: Mutex::new(files), n, overlap, before: None })
    }

    fn __repr__(&self) -> String {
        format!("<Recording {}: {}>", self.header.path.display(), self.header().__repr__())
    }

    fn __reduce__<'py>(
        &mut self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Vec<PathBuf>,))> {
        let Files { paths, options, .. } = self.files();
        let paths = paths.iter().map(std::path::absolute).collect::<Result<_, _>>()?;
        let keywords = PyDict::new(py);
        keywords.set_item("allow_gaps", options.allow_gaps)?;
        let open = py.import("sidereal_dsp")?.getattr("open_filterbank")?;
        let partial = py.import("functools")?.getattr("partial")?;
        Ok((partial.call((open,), Some(&keywords))?, (paths,)))
    }
}

/// Iterator over a recording.
#[pyclass(module = "sidereal_dsp")]
pub(crate) struct Gulps {
    files: Mutex<Files>,
    n: usize,
    overlap: usize,
    /// End of the array before.
    before: Option<Py<PyAny>>,
}

#[pymethods]
impl Gulps {
    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(not_pickled::<Self>(py, "pickle the Recording, and call its `gulps` in each process"))
    }

    fn __iter__(own: PyRef<'_, Self>) -> PyRef<'_, Self> {
        own
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let before = self.before.as_ref().map(|before| before.bind(py).clone());
        let overlapping = before.as_ref().map_or(Ok(0), |before| before.len())?;
        let files = self.files.get_mut().unwrap_or_else(PoisonError::into_inner);
        let read = files.array(py, self.n - overlapping)?;
        if read.len()? == 0 {
            return Ok(None);
        }
        let gulp = match before {
            Some(before) if overlapping > 0 => {
                py.import("numpy")?.call_method1("concatenate", ((before, read),))?
            }
            _ => read,
        };
        let times = gulp.len()?;
        let first = times.saturating_sub(self.overlap) as isize;
        let end = gulp.get_item(PySlice::new(py, first, times as isize, 1))?;
        self.before = Some(end.call_method0("copy")?.unbind());
        Ok(Some(gulp))
    }
}

/// Returns the files that an argument names: a path, or a sequence of paths.
///
/// # Errors
/// `ParameterError` for anything else.
pub(crate) fn paths(value: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    if let Ok(path) = value.extract::<PathBuf>() {
        return Ok(vec![path]);
    }
    let is_sequence = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    let all = is_sequence.then(|| value.extract::<Vec<PathBuf>>().ok()).flatten();
    all.ok_or_else(|| refused("paths", kind(value), "it must be a path or a list of paths"))
}

/// Opens a filterbank: SIGPROC, PSRFITS or FBH5.
///
/// Parameters
/// ----------
/// paths : path or list of paths
///     The files of one observation, in any order.
/// allow_gaps : bool, default False
///     Whether to fill gaps between the files with the level of each channel.
///
/// Returns
/// -------
/// Recording
#[pyfunction]
#[pyo3(signature = (paths, *, allow_gaps=false))]
pub(crate) fn open_filterbank(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    allow_gaps: bool,
) -> PyResult<Recording> {
    let paths = self::paths(paths)?;
    let options = OpenOptions { allow_gaps, ..OpenOptions::default() };
    let files = detached(py, || Files::open(paths, options))?;
    let header = files.source.header().clone();
    Ok(Recording { files: Mutex::new(files), header })
}

/// Rows of an array as a source.
pub(crate) struct ArrayRows<'a> {
    header: FilterbankHeader,
    rows: &'a [u8],
}

impl<'a> ArrayRows<'a> {
    /// Makes a source of an array with the axes time and channel.
    ///
    /// # Errors
    /// `ParameterError` for other axes, a type that is not that of samples, or another number of channels than the
    /// band's.
    pub(crate) fn new(array: &'a Readable<'_>, band: Band, tsamp_s: f64) -> PyResult<Self> {
        let encoding = array.encoding("source")?;
        let [times, channels] = array.plane("source", "time and channel")?;
        if channels != band.channels() {
            let rule = format!("there are {} frequencies", band.channels());
            return Err(refused("channels of source", channels, rule));
        }
        if !(tsamp_s > 0.0 && tsamp_s.is_finite()) {
            return Err(refused("tsamp", tsamp_s, "it must be above 0"));
        }
        let header = FilterbankHeader {
            path: PathBuf::from("array"),
            format: "array",
            source_name: String::new(),
            telescope: String::new(),
            ra_deg: None,
            dec_deg: None,
            beam: None,
            tstart_mjd: 0.0,
            tsamp_s,
            band,
            encoding,
            recorded_bits: encoding.bits(),
            recorded_polarizations: 1,
            times: Some(times as u64),
        };
        Ok(Self { header, rows: array.bytes()? })
    }
}

impl FilterbankSource for ArrayRows<'_> {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> sidereal::Result<usize> {
        let (read, rest) = self.rows.split_at(rows.len().min(self.rows.len()));
        rows[..read.len()].copy_from_slice(read);
        self.rows = rest;
        Ok(read.len() / self.header.row_bytes())
    }

    fn skip(&mut self, times: u64) -> sidereal::Result<u64> {
        let left = self.rows.len() / self.header.row_bytes();
        let skipped = usize::try_from(times).unwrap_or(left).min(left);
        self.rows = &self.rows[skipped * self.header.row_bytes()..];
        Ok(skipped as u64)
    }
}
