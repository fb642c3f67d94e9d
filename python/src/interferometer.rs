//! Arrays of antennas: delays of a direction, and correlation of their recordings.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use numpy::{Complex64, IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyType};
use sidereal::backend::Backend;
use sidereal::geometry::{self, Direction, Dut1, Sky};
use sidereal::io::antennas;
use sidereal::io::voltages::{self, VoltageOptions};
use sidereal::pipeline::correlator::{
    ArrayCorrelator, ArrayHeader, ArrayInput, CorrelateOptions, Integration, Labels, PhaseCentre,
    history, write_uvh5,
};
use sidereal::pipeline::{self, Ending};
use sidereal::units::{Epoch, HZ_PER_MHZ};

use crate::arguments::{Unit, backend, count, kind, parsed};
use crate::errors::{Interruption, UnavailableError, detached, raised, refused};
use crate::pickle::{Remade, not_pickled, remade, with_temporary};
use crate::recording::paths;

/// Antennas of an array, made by `from_csv`.
#[pyclass(frozen, module = "sidereal_dsp")]
#[derive(Clone, Debug)]
pub(crate) struct Array {
    array: geometry::Array,
    /// Delay of each antenna's cable, s.
    cable_delays_s: Vec<f64>,
}

#[pymethods]
impl Array {
    /// Reads a table of antennas.
    ///
    /// Parameters
    /// ----------
    /// path : path
    ///     CSV file with the columns ``name`` and ``x``, ``y``, ``z`` (ITRF) or ``east``, ``north``, ``up``, m, as
    ///     ``sidereal correlate --antennas`` reads it.
    ///
    /// Returns
    /// -------
    /// Array
    #[staticmethod]
    fn from_csv(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        detached(py, || {
            let table = antennas::read(&path)?;
            let cable_delays_s = table.rows.iter().map(|row| row.delay_s).collect();
            Ok(Self { array: pipeline::array(&table, None)?, cable_delays_s })
        })
    }

    /// Name of the array.
    #[getter]
    fn name(&self) -> &str {
        &self.array.name
    }

    /// Names of the antennas.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.array.antennas.iter().map(|antenna| antenna.name.clone()).collect()
    }

    /// Positions in the ITRF, m; a float64 array of shape (antennas, 3).
    #[getter]
    fn positions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let rows: Vec<f64> =
            self.array.antennas.iter().flat_map(|antenna| antenna.itrf_m).collect();
        rows.into_pyarray(py).reshape([self.array.antennas.len(), 3])
    }

    fn __len__(&self) -> usize {
        self.array.antennas.len()
    }

    fn __repr__(&self) -> String {
        format!("<Array {}: {} antennas>", self.array.name, self.array.antennas.len())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Remade<'py>> {
        let geometry::Array { name, antennas, reference_itrf_m } = &self.array;
        let numbers: Vec<i64> = antennas.iter().map(|antenna| antenna.number).collect();
        let diameters: Vec<_> = antennas.iter().map(|antenna| antenna.diameter_m).collect();
        let (names, positions) = (self.names(), self.positions(py)?.call_method0("tolist")?);
        let delays = &self.cable_delays_s;
        let parts = (name, names, numbers, positions, diameters, reference_itrf_m, delays);
        remade::<Self>(py, parts)
    }

    /// Makes an array from the attributes of its antennas, its reference and the delays of the cables.
    #[classmethod]
    #[pyo3(name = "_of")]
    fn of(
        _class: &Bound<'_, PyType>,
        name: &str,
        names: Vec<String>,
        numbers: Vec<i64>,
        positions: Vec<[f64; 3]>,
        diameters: Vec<Option<f64>>,
        reference: [f64; 3],
        cable_delays_s: Vec<f64>,
    ) -> PyResult<Self> {
        let all = names.len();
        if [numbers.len(), positions.len(), diameters.len(), cable_delays_s.len()] != [all; 4] {
            return Err(refused("antennas", all, "their attributes must be as many"));
        }
        if let Some(delay) = cable_delays_s.iter().find(|delay| !delay.is_finite()) {
            return Err(refused("delay of a cable (s)", delay, "it must be finite"));
        }
        let antenna = |(((name, number), itrf_m), diameter_m)| geometry::Antenna {
            name,
            number,
            itrf_m,
            diameter_m,
        };
        let rows = names.into_iter().zip(numbers).zip(positions).zip(diameters);
        let antennas = rows.map(antenna).collect();
        let array = geometry::Array::from_itrf(name, antennas, Some(reference)).map_err(raised)?;
        Ok(Self { array, cable_delays_s })
    }
}

/// Returns a direction from right ascension and declination in degrees, or from coordinates of astropy.
///
/// # Errors
/// `ParameterError` for another object, and angles out of range.
fn direction(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Direction> {
    let (ra, dec) = if value.hasattr("icrs")? {
        let icrs = value.getattr("icrs")?;
        let degrees = |name: &str| icrs.getattr(name)?.getattr("deg")?.extract::<f64>();
        (degrees("ra")?, degrees("dec")?)
    } else {
        let rule = "it must be right ascension and declination in degrees, or a SkyCoord";
        value.extract().map_err(|_| refused(name, kind(value), rule))?
    };
    Direction::new(ra, dec).map_err(raised)
}

/// Computes the arrival times of a source's waves at the antennas of an array.
///
/// Parameters
/// ----------
/// array : Array
///     Antennas.
/// direction : tuple of float, or SkyCoord
///     Right ascension and declination (ICRS), degrees.
/// times : array of float, or Time
///     Modified Julian dates (UTC).
///
/// Returns
/// -------
/// array of float64
///     Arrival time at each antenna less that at the array's reference point, s; axes: time and antenna.
#[pyfunction]
#[pyo3(signature = (array, direction, times))]
pub(crate) fn delays<'py>(
    py: Python<'py>,
    array: PyRef<'py, Array>,
    direction: &Bound<'py, PyAny>,
    times: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let direction = self::direction("direction", direction)?;
    let times = match times.hasattr("utc")? {
        true => times.getattr("utc")?.getattr("mjd")?,
        false => times.clone(),
    };
    let times = py.import("numpy")?.call_method1("atleast_1d", (times,))?;
    let times = Unit::One.numbers("times", &times)?;
    let (array, rows) = (&array.array, times.len());
    let all = detached(py, || {
        let sky = Sky::new(array, Dut1::Table)?;
        let of_time = |time: &f64| sky.delays_s(direction, Epoch::from_mjd(*time));
        times.iter().map(of_time).collect::<sidereal::Result<Vec<_>>>()
    })?;
    all.concat().into_pyarray(py).reshape([rows, array.antennas.len()])
}

/// Recording of one or several antennas.
#[derive(Clone, Debug)]
struct Recorded {
    antennas: Vec<String>,
    files: Vec<PathBuf>,
}

/// Returns the recordings that an argument names.
///
/// # Errors
/// `ParameterError` for anything but a dict by the antennas' names, or paths in their order.
fn recorded(sources: &Bound<'_, PyAny>, array: &geometry::Array) -> PyResult<Vec<Recorded>> {
    let names = || array.antennas.iter().map(|antenna| antenna.name.clone());
    if let Ok(by_name) = sources.cast::<PyMapping>() {
        let recorded = |item: Bound<'_, PyAny>| {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            let antennas = match key.extract::<String>() {
                Ok(name) => vec![name],
                Err(_) => key.extract().map_err(|_| {
                    refused("sources", kind(&key), "its keys must be names of antennas")
                })?,
            };
            Ok(Recorded { antennas, files: paths(&value)? })
        };
        return by_name.items()?.iter().map(recorded).collect();
    }
    let files = paths(sources)?;
    match files.len() {
        1 => Ok(vec![Recorded { antennas: names().collect(), files }]),
        given if given == array.antennas.len() => {
            let one = |(name, file)| Recorded { antennas: vec![name], files: vec![file] };
            Ok(names().zip(files).map(one).collect())
        }
        given => {
            let rule = format!("there are {} antennas", array.antennas.len());
            Err(refused("number of sources", given, rule))
        }
    }
}

/// Correlation of an array's recordings, which each use reads from the start; made by `correlate_files`.
///
/// Iteration returns `Visibilities`, one integration after another.
#[pyclass(frozen, module = "sidereal_dsp")]
pub(crate) struct Correlation {
    array: geometry::Array,
    recorded: Vec<Recorded>,
    options: CorrelateOptions,
    allow_gaps: bool,
    backend: Backend,
    header: ArrayHeader,
}

/// Opens recordings and binds them to a correlator.
fn open(
    array: &geometry::Array,
    recorded: &[Recorded],
    options: &CorrelateOptions,
    allow_gaps: bool,
    backend: &Backend,
) -> sidereal::Result<ArrayCorrelator> {
    let voltage = VoltageOptions { allow_gaps, ..VoltageOptions::default() };
    let input = |one: &Recorded| {
        let source = voltages::open(&one.files, &voltage)?;
        Ok(ArrayInput { antennas: one.antennas.clone(), source })
    };
    let inputs = recorded.iter().map(input).collect::<sidereal::Result<Vec<_>>>()?;
    ArrayCorrelator::new(array, inputs, options, backend)
}

/// Interruption of a correlation that runs without Python's lock.
type Shared = Arc<Mutex<Interruption>>;

impl Correlation {
    /// Opens the recordings; signals stop the work.
    fn open(&self, py: Python<'_>) -> PyResult<(ArrayCorrelator, Shared)> {
        let Self { array, recorded, options, allow_gaps, backend, .. } = self;
        let mut correlator = detached(py, || open(array, recorded, options, *allow_gaps, backend))?;
        let interruption = Shared::default();
        let watched = Arc::clone(&interruption);
        correlator.watched_by(Box::new(move |_| {
            watched.lock().unwrap_or_else(PoisonError::into_inner).no_signal()
        }));
        Ok((correlator, interruption))
    }
}

/// Returns the result of work, or the exception that interrupted it.
fn interrupted<T>(interruption: &Shared, result: sidereal::Result<T>) -> PyResult<T> {
    let mut interruption = interruption.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *interruption).result(result)
}

#[pymethods]
impl Correlation {
    /// Antennas i >= j of each baseline, of which the first is not conjugated; an array of shape (baselines, 2).
    #[getter]
    fn baselines<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<i64>>> {
        let all = self.header.baselines.iter().flat_map(|(i, j)| [*i as i64, *j as i64]);
        all.collect::<Vec<_>>().into_pyarray(py).reshape([self.header.baselines.len(), 2])
    }

    /// Centre of each channel, MHz, ascending; a float64 array of shape (channels,).
    #[getter]
    fn freqs<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        let centres = self.header.frequencies_hz.iter().map(|centre| centre / HZ_PER_MHZ);
        centres.collect::<Vec<_>>().into_pyarray(py)
    }

    /// Length of an integration, s.
    #[getter]
    fn integration(&self) -> f64 {
        self.header.integration_s()
    }

    /// Array.
    #[getter]
    fn array(&self) -> Array {
        let (array, cable_delays_s) = (self.array.clone(), self.options.cable_delays_s.clone());
        Array { array, cable_delays_s }
    }

    fn __len__(&self) -> usize {
        self.header.integrations as usize
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Integrations> {
        let (correlator, interruption) = self.open(py)?;
        let correlator = Mutex::new(correlator);
        let freqs = self.freqs(py).unbind();
        Ok(Integrations { correlator, interruption, header: self.header.clone(), freqs })
    }

    /// Writes all integrations to a UVH5 file, as ``sidereal correlate`` does.
    ///
    /// Parameters
    /// ----------
    /// path : path
    ///     File to write; it is overwritten.
    fn write_uvh5(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let (mut correlator, interruption) = self.open(py)?;
        let labels =
            Labels { history: history(correlator.header(), &self.options), ..Labels::default() };
        let written = py.detach(|| write_uvh5(&mut correlator, &path, &labels, &mut |_, _| true));
        match interrupted(&interruption, written)?.ending {
            Ending::Failed(error) => Err(Arc::try_unwrap(error)
                .map_or_else(|shared| UnavailableError::new_err(shared.to_string()), raised)),
            // A stop is a signal, whose exception was raised before.
            _ => Ok(()),
        }
    }

    /// Returns all integrations as a UVData of pyuvdata, which must be installed; they pass through a temporary UVH5
    /// file.
    fn to_uvdata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let class = py.import("pyuvdata")?.getattr("UVData")?;
        with_temporary(py, "all.uvh5", |path| {
            self.write_uvh5(py, path.to_owned())?;
            class.call_method1("from_file", (path,))
        })
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(not_pickled::<Self>(py, "call `correlate_files` in each process"))
    }

    fn __repr__(&self) -> String {
        format!(
            "<Correlation: {} integrations of {} baselines and {} channels>",
            self.header.integrations,
            self.header.baselines.len(),
            self.header.frequencies_hz.len()
        )
    }
}

/// Iterator over the integrations of a correlation.
#[pyclass(module = "sidereal_dsp")]
pub(crate) struct Integrations {
    correlator: Mutex<ArrayCorrelator>,
    interruption: Shared,
    header: ArrayHeader,
    freqs: Py<PyArray1<f64>>,
}

#[pymethods]
impl Integrations {
    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(not_pickled::<Self>(py, "the Visibilities that it returns can be"))
    }

    fn __iter__(own: PyRef<'_, Self>) -> PyRef<'_, Self> {
        own
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let correlator = self.correlator.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut integration = Integration::new();
        let is_there = py.detach(|| correlator.next_integration(&mut integration));
        let is_there = interrupted(&self.interruption, is_there)?;
        py.check_signals()?;
        if !is_there {
            return Err(PyStopIteration::new_err(()));
        }
        let header = &self.header;
        let (baselines, channels) = (header.baselines.len(), header.frequencies_hz.len());
        let Integration { spectra, centre, sums, counts, .. } = integration;
        let sums: Vec<Complex64> = sums;
        // Of the library's axes, the channel comes after the baseline.
        let sums = sums.into_pyarray(py).reshape([baselines, channels, header.pairs()])?;
        let sums = sums.call_method1("swapaxes", (0, 1))?;
        let counts = counts.into_pyarray(py).reshape([baselines, channels])?;
        let counts = counts.call_method1("swapaxes", (0, 1))?;
        let about = PyDict::new(py);
        about.set_item("antennas", header.array.antennas.len())?;
        about.set_item("pols", header.polarizations)?;
        about.set_item("spectra", spectra)?;
        about.set_item("freqs", &self.freqs)?;
        about.set_item("mjd", (centre.day > 0).then(|| centre.mjd()))?;
        let class = py.import("sidereal_dsp._visibilities")?.getattr("Visibilities")?;
        class.call((sums, counts), Some(&about))
    }
}

/// Correlates the recorded voltages of an array.
///
/// Parameters
/// ----------
/// sources : dict of path, or list of paths
///     Recordings (GUPPI raw, PSRDADA, VDIF or Mark 5B) by the antenna's name, or by a tuple of names for a recording of
///     several antennas; a list of paths in place of a path has the files of one recording. A list has the recording of
///     each antenna in the order of the array, or one recording of all antennas.
/// array : Array
///     Antennas.
/// channels : int
///     Channels per recorded channel.
/// phase_centre : tuple of float, or SkyCoord, optional
///     Right ascension and declination (ICRS) of the direction whose delays are removed, degrees; by default only the
///     delays of the cables are removed.
/// integration : float or Quantity, default 1
///     Length of an integration, s, rounded to whole spectra.
/// bits : int, default 8
///     Bits of each real component of the spectra that are multiplied: 4, 8 or 32 (single precision).
/// taps : int, default 8
///     Taps of the filter bank per channel.
/// window : str, default "hann"
///     Window, as in `channelize`.
/// average_channels : int, default 1
///     Adjacent channels averaged into one.
/// time_range : tuple of float or Quantity, optional
///     Start and end of the time to correlate, s from the first sample that all antennas have.
/// allow_gaps : bool, default False
///     Whether to accept long gaps in the recordings.
/// device : str, default "cpu"
///     Name of one of `devices`.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Returns
/// -------
/// Correlation
///     Nothing is computed before it is used.
#[pyfunction]
#[pyo3(signature = (sources, array, channels, *, phase_centre=None, integration=None, bits=8, taps=8, window="hann",
                    average_channels=1, time_range=None, allow_gaps=false, device="cpu", threads=0))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub(crate) fn correlate_files(
    py: Python<'_>,
    sources: &Bound<'_, PyAny>,
    array: PyRef<'_, Array>,
    channels: i64,
    phase_centre: Option<&Bound<'_, PyAny>>,
    integration: Option<&Bound<'_, PyAny>>,
    bits: i64,
    taps: i64,
    window: &str,
    average_channels: i64,
    time_range: Option<Vec<Bound<'_, PyAny>>>,
    allow_gaps: bool,
    device: &str,
    threads: i64,
) -> PyResult<Correlation> {
    let recorded = recorded(sources, &array.array)?;
    let mut options = CorrelateOptions::new(count("channels", channels)?);
    options.nbits = count("bits", bits)?;
    options.taps = count("taps", taps)?;
    options.window = parsed(window)?;
    options.average_channels = count("average_channels", average_channels)?;
    options.cable_delays_s = array.cable_delays_s.clone();
    let seconds = |name, value: &Bound<'_, PyAny>| Unit::Second.number(name, value);
    if let Some(length) = integration {
        options.integration_s = seconds("integration", length)?;
    }
    if let Some(centre) = phase_centre {
        let Direction { ra_deg, dec_deg } = direction("phase_centre", centre)?;
        let name = "target".to_owned();
        options.phase_centre = PhaseCentre::Sidereal { ra_deg, dec_deg, name };
    }
    if let Some(range) = time_range {
        let [from, to] = range.as_slice() else {
            let rule = "it has a start and an end";
            return Err(refused("length of time_range", range.len(), rule));
        };
        options.time_range = Some((seconds("time_range", from)?, seconds("time_range", to)?));
    }
    let backend = backend(py, device, threads)?;
    let array = array.array.clone();
    // Errors of the recordings appear here, before the first use.
    let header = detached(py, || {
        let correlator = open(&array, &recorded, &options, allow_gaps, &backend)?;
        Ok(correlator.header().clone())
    })?;
    if let PhaseCentre::Sidereal { name, .. } = &mut options.phase_centre
        && !header.source_name.is_empty()
    {
        name.clone_from(&header.source_name);
    }
    Ok(Correlation { array, recorded, options, allow_gaps, backend, header })
}
