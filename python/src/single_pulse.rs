//! Single-pulse search of dedispersed NumPy arrays.

use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sidereal::single_pulse::{Detector, Event, Input, Options, Plan};
use sidereal::view::{Plane, check_memory};

use crate::arguments::{Unit, backend, kind};
use crate::arrays::Readable;
use crate::errors::{detached, raised, refused};

/// Default of the widest boxcar, s.
const MAX_WIDTH_S: f64 = 0.1;

/// Default length over which mean and noise are estimated, s.
const BASELINE_S: f64 = 2.0;

/// Returns the number of valid samples of each trial, all of them unless `valid` says fewer.
///
/// # Errors
/// `ParameterError` unless it is an integer for each trial, between 0 and the length of the series.
fn valid_samples(
    valid: Option<&Bound<'_, PyAny>>,
    trials: usize,
    times: usize,
) -> PyResult<Vec<u64>> {
    const NAME: &str = "valid";
    let Some(valid) = valid else { return Ok(vec![times as u64; trials]) };
    let wrong =
        || refused(NAME, kind(valid), "it must be integers of one axis, one for each trial");
    let numpy = valid.py().import("numpy")?;
    let array = numpy.call_method1("atleast_1d", (valid,)).map_err(|_| wrong())?;
    let is_whole: bool = array.getattr("dtype")?.getattr("kind")?.extract().map(is_integer)?;
    let array = array.call_method1("astype", ("int64",)).ok().filter(|_| is_whole);
    let array: PyReadonlyArray1<'_, i64> =
        array.ok_or_else(wrong)?.extract().map_err(|_| wrong())?;
    let array = array.as_array();
    if array.len() != trials {
        let rule = format!("there are {trials} trials");
        return Err(refused("length of valid", array.len(), rule));
    }
    let checked = |samples: &i64| {
        let known = u64::try_from(*samples).ok().filter(|samples| *samples <= times as u64);
        known.ok_or_else(|| refused(NAME, samples, format!("series have {times} samples")))
    };
    array.iter().map(checked).collect()
}

/// Returns whether the kind of a NumPy type is that of integers.
fn is_integer(kind: char) -> bool {
    matches!(kind, 'i' | 'u')
}

/// Finds pulses in time series with boxcars of many widths.
///
/// Parameters
/// ----------
/// series : array of int32 or float32
///     Axes: time, or trial and time; contiguous.
/// tsamp : float or Quantity
///     Sampling time of the series, s: that of the data times their `downsample`.
/// snr : float, default 6
///     Least signal-to-noise ratio.
/// valid : array of int, optional
///     Number of samples of each trial to search, from the first; shape (trials,). By default all. The zeros with which
///     `dedisperse` fills series must not be searched: it returns these numbers with ``return_valid=True``.
/// max_width : float or Quantity, default 0.1
///     Widest boxcar, s.
/// baseline_length : float or Quantity, default 2
///     Length over which mean and noise are estimated, s.
/// device : str, default "cpu"
///     Name of one of `devices`.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Returns
/// -------
/// recarray
///     One element per pulse and trial; shape (pulses,). Fields: ``trial`` (uint32, index of the series), ``sample``
///     (uint64, first of the boxcar), ``width`` (uint32, samples) and ``snr`` (float32).
#[pyfunction]
#[pyo3(signature = (series, tsamp, *, snr=6.0, valid=None, max_width=None, baseline_length=None, device="cpu", threads=0))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub(crate) fn find_pulses<'py>(
    py: Python<'py>,
    series: &Bound<'py, PyAny>,
    tsamp: &Bound<'py, PyAny>,
    snr: f64,
    valid: Option<&Bound<'py, PyAny>>,
    max_width: Option<&Bound<'py, PyAny>>,
    baseline_length: Option<&Bound<'py, PyAny>>,
    device: &str,
    threads: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let array = Readable::new("series", series)?;
    let [trials, times] = match *array.shape() {
        [times] => [1, times],
        _ => array.plane("series", "time, or trial and time")?,
    };
    let valid = valid_samples(valid, trials, times)?;
    let input = match &array {
        Readable::I32(sums) => Input::I32(plane(sums.as_slice()?, trials, times)?),
        Readable::F32(sums) => Input::F32(plane(sums.as_slice()?, trials, times)?),
        _ => {
            let rule = "series are int32 or float32";
            return Err(refused("series", format!("an array of {}", array.kind()), rule));
        }
    };
    let bound = match &array {
        Readable::I32(sums) => {
            let sums = sums.as_slice()?;
            let ends = sums.iter().min().zip(sums.iter().max());
            Some(ends.map_or((0, 0), |(least, most)| (i64::from(*least), i64::from(*most))))
        }
        _ => None,
    };
    let seconds = |name, value: Option<&Bound<'_, PyAny>>, default: f64| {
        value.map_or(Ok(default), |value| Unit::Second.number(name, value))
    };
    let options = Options {
        // The search of one trial does not depend on the others' dispersion measures.
        dms: (0..trials).map(|trial| trial as f64).collect(),
        tsamp_s: Unit::Second.number("tsamp", tsamp)?,
        max_width_s: seconds("max_width", max_width, MAX_WIDTH_S)?,
        baseline_s: seconds("baseline_length", baseline_length, BASELINE_S)?,
        snr,
        bound,
    };
    let plan = Plan::new(options).map_err(raised)?;
    check_memory("the windows of all trials", Some(plan.state_bytes())).map_err(raised)?;
    let backend = backend(py, device, threads)?;
    let mut events: Vec<Event> = Vec::new();
    detached(py, || {
        let valid = |trial: usize| valid.get(trial).copied().unwrap_or(0);
        let mut detector = Detector::new(plan, &backend)?;
        detector.end_at(&valid);
        detector.run(input, &mut events)?;
        detector.flush(&valid, &mut events)
    })?;
    py.check_signals()?;
    pulses(py, &events)
}

/// Returns the rows of an array as the planes of trials.
fn plane<T>(series: &[T], trials: usize, times: usize) -> PyResult<Plane<'_, T>> {
    Plane::new(series, trials, times, times).map_err(raised)
}

/// Makes a record array of pulses.
///
/// # Errors
/// Any of Python's.
fn pulses<'py>(py: Python<'py>, events: &[Event]) -> PyResult<Bound<'py, PyAny>> {
    let trials: Vec<u32> = events.iter().map(|event| event.dm).collect();
    let samples: Vec<u64> = events.iter().map(|event| event.time).collect();
    let widths: Vec<u32> = events.iter().map(|event| event.width).collect();
    let snrs: Vec<f32> = events.iter().map(|event| event.snr).collect();
    let columns = (
        trials.into_pyarray(py),
        samples.into_pyarray(py),
        widths.into_pyarray(py),
        snrs.into_pyarray(py),
    );
    let names = PyDict::new(py);
    names.set_item("names", "trial,sample,width,snr")?;
    py.import("numpy")?.getattr("rec")?.call_method("fromarrays", (columns,), Some(&names))
}
