//! Trial dispersion measures and dedispersion of NumPy arrays.

use std::sync::{Mutex, PoisonError};

use numpy::{Element, IntoPyArray, PyArray1};
use pyo3::prelude::*;
use sidereal::backend::cuda::{self, Buffer, Plane, PlaneKind};
use sidereal::dedisperse::dm_plan::{self, ToleranceOptions};
use sidereal::dedisperse::{Dedisperser as Engine, Options, Output, Plan};
use sidereal::sample::{Encoding, Samples};
use sidereal::units::DM_CONSTANT;
use sidereal::view::{PlaneMut, Progress, check_memory};

use crate::arguments::{Unit, Width, backend, band, count, device_of, zapped};
use crate::arrays::{Readable, encoding_of, output, plane_of};
use crate::device::{Target, on_stream, view};
use crate::errors::{detached, raised, refused};
use crate::given::{Given, device_word, gpu_of};
use crate::pickle::not_pickled;

/// Bytes of rows between two checks for signals.
const PIECE: usize = 1 << 24;

/// Default limits of trials, pc cm^-3.
const DM_MIN: f64 = 0.0;
const DM_MAX: f64 = 2000.0;

/// Range of trial dispersion measures of constant step and time binning.
///
/// Parameters
/// ----------
/// dm_min : float
///     First trial, pc cm^-3.
/// dm_end : float
///     End of the range, pc cm^-3.
/// dm_step : float
///     Distance between trials, pc cm^-3.
/// downsample : int, default 1
///     Samples summed into one before dedispersion.
#[pyclass(frozen, get_all, module = "sidereal_dsp")]
#[derive(Clone, Debug)]
pub(crate) struct DmRange {
    /// First trial, pc cm^-3.
    dm_min: f64,
    /// End of the range, pc cm^-3; not itself a trial unless it is `dm_min`.
    dm_end: f64,
    /// Distance between trials, pc cm^-3.
    dm_step: f64,
    /// Samples summed into one before dedispersion.
    downsample: usize,
    /// Number of trials.
    trials: usize,
}

impl From<&dm_plan::DmRange> for DmRange {
    fn from(range: &dm_plan::DmRange) -> Self {
        Self {
            dm_min: range.dm_min,
            dm_end: range.dm_max,
            dm_step: range.dm_step,
            downsample: range.downsample,
            trials: range.trials(),
        }
    }
}

impl From<&DmRange> for dm_plan::DmRange {
    fn from(range: &DmRange) -> Self {
        let DmRange { dm_min, dm_end, dm_step, downsample, .. } = *range;
        Self { dm_min, dm_max: dm_end, dm_step, downsample }
    }
}

#[pymethods]
impl DmRange {
    #[new]
    #[pyo3(signature = (dm_min, dm_end, dm_step, downsample=1))]
    fn new(dm_min: f64, dm_end: f64, dm_step: f64, downsample: i64) -> PyResult<Self> {
        let downsample = count("downsample", downsample)?;
        Ok(Self::from(&dm_plan::DmRange { dm_min, dm_max: dm_end, dm_step, downsample }))
    }

    fn __getnewargs__(&self) -> (f64, f64, f64, usize) {
        (self.dm_min, self.dm_end, self.dm_step, self.downsample)
    }

    fn __repr__(&self) -> String {
        format!(
            "<DmRange {} to {} by {}, {} samples summed>",
            self.dm_min, self.dm_end, self.dm_step, self.downsample
        )
    }
}

/// Plan of trial dispersion measures: that of `dm_plan`, or of given ranges.
///
/// Parameters
/// ----------
/// ranges : list of DmRange
///     Ranges, ascending.
#[pyclass(frozen, module = "sidereal_dsp")]
#[derive(Clone, Debug)]
pub(crate) struct DmPlan {
    pub(crate) plan: dm_plan::DmPlan,
}

#[pymethods]
impl DmPlan {
    #[new]
    fn new(ranges: Vec<PyRef<'_, DmRange>>) -> PyResult<Self> {
        let ranges = ranges.iter().map(|range| dm_plan::DmRange::from(&**range)).collect();
        Ok(Self { plan: dm_plan::DmPlan::from_ranges(ranges).map_err(raised)? })
    }

    fn __getnewargs__(&self) -> (Vec<DmRange>,) {
        (self.ranges(),)
    }

    /// Trial dispersion measures, pc cm^-3, ascending; a float64 array of shape (trials,).
    #[getter]
    fn dms<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.plan.dms().into_pyarray(py)
    }

    /// Ranges of constant step, ascending.
    #[getter]
    fn ranges(&self) -> Vec<DmRange> {
        self.plan.ranges.iter().map(DmRange::from).collect()
    }

    fn __len__(&self) -> usize {
        self.plan.trials()
    }

    fn __repr__(&self) -> String {
        format!("<DmPlan: {} trials in {} ranges>", self.plan.trials(), self.plan.ranges.len())
    }
}

/// Options of a plan from Python's arguments.
pub(crate) struct PlanArguments<'a, 'py> {
    pub(crate) dm_min: Option<&'a Bound<'py, PyAny>>,
    pub(crate) dm_max: Option<&'a Bound<'py, PyAny>>,
    pub(crate) dm_step: Option<&'a Bound<'py, PyAny>>,
    pub(crate) tolerance: Option<f64>,
    /// Dispersion measure that was removed within channels.
    pub(crate) coherent_dm: Option<f64>,
}

impl PlanArguments<'_, '_> {
    /// Makes the plan for a band: equal steps, or steps by tolerance.
    ///
    /// # Errors
    /// `ParameterError` naming the argument.
    pub(crate) fn plan(
        &self,
        band: &sidereal::units::Band,
        tsamp_s: f64,
    ) -> PyResult<dm_plan::DmPlan> {
        let limit = |name, value: Option<&Bound<'_, PyAny>>, default| {
            value.map_or(Ok(default), |value| Unit::Dispersion.number(name, value))
        };
        let low = limit("dm_min", self.dm_min, DM_MIN)?;
        let high = limit("dm_max", self.dm_max, DM_MAX)?;
        if let Some(step) = self.dm_step {
            if self.tolerance.is_some() {
                return Err(refused("tolerance", "given", "`dm_step` excludes it"));
            }
            let step = Unit::Dispersion.number("dm_step", step)?;
            return dm_plan::DmPlan::steps(low, high, step).map_err(raised);
        }
        let mut options = ToleranceOptions::default();
        options.tolerance = self.tolerance.unwrap_or(options.tolerance);
        options.coherent_dm = self.coherent_dm;
        dm_plan::DmPlan::tolerance(band, tsamp_s, low, high, &options).map_err(raised)
    }
}

/// Plans trial dispersion measures.
///
/// Parameters
/// ----------
/// freqs : array of float or Quantity
///     Centre of each channel, MHz; shape (channels,).
/// tsamp : float or Quantity
///     Sampling time, s.
/// dm_max : float or Quantity
///     Highest dispersion measure, itself a trial, pc cm^-3.
/// dm_min : float or Quantity, default 0
///     Lowest dispersion measure, pc cm^-3.
/// dm_step : float or Quantity, optional
///     Constant step, pc cm^-3; by default steps grow with the dispersion measure.
/// tolerance : float, optional
///     Factor by which a step may broaden a pulse, by default 1.25.
/// channel_width : float or Quantity, optional
///     Width of a channel, MHz; by default the mean distance of the channels.
///
/// Returns
/// -------
/// DmPlan
#[pyfunction]
#[pyo3(name = "dm_plan", signature = (freqs, tsamp, dm_max, *, dm_min=None, dm_step=None, tolerance=None,
                                      channel_width=None))]
pub(crate) fn plan_dms(
    freqs: &Bound<'_, PyAny>,
    tsamp: &Bound<'_, PyAny>,
    dm_max: &Bound<'_, PyAny>,
    dm_min: Option<&Bound<'_, PyAny>>,
    dm_step: Option<&Bound<'_, PyAny>>,
    tolerance: Option<f64>,
    channel_width: Option<&Bound<'_, PyAny>>,
) -> PyResult<DmPlan> {
    let arguments =
        PlanArguments { dm_min, dm_max: Some(dm_max), dm_step, tolerance, coherent_dm: None };
    let band = band(freqs, channel_width.map_or(Width::Mean, Width::Given))?;
    Ok(DmPlan { plan: arguments.plan(&band, Unit::Second.number("tsamp", tsamp)?)? })
}

/// Sums of a dedispersed series.
trait Sum: Element + Copy + Default {
    fn output(plane: PlaneMut<'_, Self>) -> Output<'_>;
}

impl Sum for i32 {
    fn output(plane: PlaneMut<'_, Self>) -> Output<'_> {
        Output::I32(plane)
    }
}

impl Sum for f32 {
    fn output(plane: PlaneMut<'_, Self>) -> Output<'_> {
        Output::F32(plane)
    }
}

/// Dedispersion of a stream, which arrives in blocks of any length.
///
/// Parameters
/// ----------
/// freqs : array of float or Quantity
///     Centre of each channel, MHz; shape (channels,).
/// tsamp : float or Quantity
///     Sampling time, s.
/// dms : array of float or Quantity
///     Trial dispersion measures, pc cm^-3; shape (trials,).
/// dtype : dtype
///     Type of the samples: uint8, int8, uint16, int16 or float32.
/// downsample : int, default 1
///     Samples summed into one before dedispersion.
/// zap_channels : sequence of int or of bool, optional
///     Channels to leave out: their numbers in the order of `freqs`, from 0, or a bool for each channel.
/// device : str, default "cpu"
///     Name of one of `devices`.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Notes
/// -----
/// A sample of a series is the sum of all channels, each later by its delay relative to the highest frequency, in
/// whole samples. Sums of integers are exact. Any split of a stream into blocks gives the same bits.
#[pyclass(module = "sidereal_dsp")]
pub(crate) struct Dedisperser {
    engine: Mutex<Engine>,
    plan: Plan,
    gpu: Option<cuda::Device>,
    rows: u64,
    emitted: u64,
    /// Whether the latest rows were in a GPU's memory, so that the last sums are.
    is_on_gpu: bool,
}

/// Options of a dedispersion from Python's arguments.
struct Arguments<'a, 'py> {
    freqs: &'a Bound<'py, PyAny>,
    tsamp: &'a Bound<'py, PyAny>,
    dms: &'a Bound<'py, PyAny>,
    encoding: Encoding,
    downsample: i64,
    zap_channels: Option<&'a Bound<'py, PyAny>>,
    device: &'a str,
    threads: i64,
}

impl Dedisperser {
    fn bound(py: Python<'_>, arguments: Arguments<'_, '_>) -> PyResult<Self> {
        let band = band(arguments.freqs, Width::Any)?;
        let masked = zapped(arguments.zap_channels, band.channels())?;
        let plan = Plan::new(Options {
            band,
            tsamp_s: Unit::Second.number("tsamp", arguments.tsamp)?,
            dms: Unit::Dispersion.numbers("dms", arguments.dms)?,
            downsample: count("downsample", arguments.downsample)?,
            encoding: arguments.encoding,
            range: None,
            masked,
            dm_constant: DM_CONSTANT,
        })
        .map_err(raised)?;
        // Rows of the longest delay, of the widest samples.
        let rows = plan.max_shift().checked_mul(plan.channels());
        let bytes = rows.and_then(|samples| samples.checked_mul(size_of::<f32>()));
        check_memory("the rows of the longest delay", bytes).map_err(raised)?;
        let backend = backend(py, arguments.device, arguments.threads)?;
        let engine = detached(py, || Engine::new(plan.clone(), &backend))?;
        let (engine, gpu) = (Mutex::new(engine), device_of(&backend));
        Ok(Self { engine, plan, gpu, rows: 0, emitted: 0, is_on_gpu: false })
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of rows of a block after a check of its type and shape.
    fn times(&self, kind: &str, shape: &[usize]) -> PyResult<usize> {
        if encoding_of("x", kind)? != self.plan.encoding() {
            let rule = format!("the stream has {:?} samples", self.plan.encoding());
            return Err(refused("x", format!("an array of {kind}"), rule));
        }
        let [times, channels] = plane_of("x", shape, "time and channel")?;
        if channels != self.plan.channels() {
            let rule = format!("there are {} frequencies", self.plan.channels());
            return Err(refused("channels of x", channels, rule));
        }
        Ok(times)
    }

    /// Returns the rows of a block after a check of its type and shape.
    fn samples<'a>(&self, x: &'a Readable<'_>) -> PyResult<Samples<'a>> {
        let times = self.times(&x.kind(), x.shape())?;
        let (encoding, channels) = (self.plan.encoding(), self.plan.channels());
        Samples::new(x.bytes()?, encoding, times, channels).map_err(raised)
    }

    /// Returns the times that `rows` more rows add to the series, and the rest of the stream if it ends there.
    fn next_times(&self, rows: usize, ends: bool) -> usize {
        let bins = (self.rows + rows as u64) / self.plan.downsample() as u64;
        let longest = if ends { self.plan.min_trial_shift() } else { self.plan.max_shift() };
        (bins.saturating_sub(longest as u64).max(self.emitted) - self.emitted) as usize
    }

    /// Dedisperses a block and, on request, the rest of the stream into one array.
    fn run<'py, T: Sum + Send>(
        &mut self,
        py: Python<'py>,
        samples: Option<Samples<'_>>,
        ends: bool,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rows = samples.map_or(0, |samples| samples.times());
        let (trials, times) = (self.plan.dms().len(), self.next_times(rows, ends));
        let mut series = output::<T>(py, out, &[trials, times])?;
        let plane = series.as_slice_mut()?;
        let mut done = 0;
        if let Some(samples) = samples {
            let step = (PIECE / samples.row_bytes()).max(1);
            // Output of a piece: the library writes it from the start of each row of a plane.
            let mut part: Vec<T> = Vec::new();
            let mut start = 0;
            while start < rows {
                let piece = samples.slice(start, step.min(rows - start));
                let whole = piece.times() == rows && !ends;
                let stride = if whole { times } else { self.plan.max_output(piece.times()) };
                part.resize(if whole { 0 } else { trials * stride }, T::default());
                let target = if whole { &mut *plane } else { &mut part[..] };
                let engine = self.engine();
                let Progress { produced, .. } = detached(py, || {
                    engine.run(piece, T::output(PlaneMut::new(target, trials, stride)?))
                })?;
                if !whole {
                    place(&part, stride, produced, plane, times, done);
                }
                done += produced;
                start += piece.times();
                self.rows += piece.times() as u64;
                self.emitted += produced as u64;
                py.check_signals()?;
            }
        }
        if ends && done < times {
            let stride = times - done;
            let mut part = vec![T::default(); trials * stride];
            let engine = self.engine();
            detached(py, || engine.flush(T::output(PlaneMut::new(&mut part, trials, stride)?)))?;
            place(&part, stride, stride, plane, times, done);
        }
        Ok(series.as_any().clone())
    }

    /// Dedisperses an array in a GPU's memory and, on request, the rest of the stream, and leaves the result there.
    fn run_on_gpu<'py>(
        &mut self,
        py: Python<'py>,
        x: Option<&Given<'py>>,
        ends: bool,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let device = gpu_of(x, self.gpu.as_ref())?;
        let rows = match x {
            Some(x) => {
                x.check_contiguous()?;
                self.times(x.elements.name, &x.shape)?
            }
            None => 0,
        };
        let (trials, times) = (self.plan.dms().len(), self.next_times(rows, ends));
        let (name, kind) = match self.plan.output_is_integer() {
            true => ("int32", PlaneKind::I32),
            false => ("float32", PlaneKind::F32),
        };
        let mut target = Target::new(x, out, &[trials, times], name, &device)?;
        let input: Buffer<u8> = match x {
            Some(x) => {
                x.wait(py, &device)?;
                x.buffer(&device)?
            }
            None => device.buffer(0).map_err(raised)?,
        };
        let valid: Vec<usize> = (0..trials)
            .map(|trial| {
                let valid = self.plan.valid_times(self.rows + rows as u64, trial);
                valid.saturating_sub(self.emitted).min(times as u64) as usize
            })
            .collect();
        let (engine, memory) = (self.engine(), target.memory());
        let parts = on_stream(py, &device, |stream| {
            let mut series = Plane { words: view(memory)?, stride: times, dms: trials, kind };
            let mut done = 0;
            if rows > 0 {
                done = engine.enqueue(&input, 0, rows, &mut series, stream)?.produced;
            }
            if !ends {
                return Ok((series, None));
            }
            // The library writes the rest from the start of each row of a plane.
            let mut rest = Plane::new(&device, kind, trials, times - done)?;
            if done < times {
                engine.enqueue_flush(&mut rest, stream)?;
            }
            for (trial, valid) in valid.into_iter().enumerate() {
                let (row, end) = (trial * times, (trial + 1) * times);
                let from = trial * rest.stride..(trial + 1) * rest.stride;
                stream.copy(&rest.words, from, &mut series.words, row + done)?;
                stream.fill(&mut series.words, row + valid..end, 0)?;
            }
            Ok((series, Some(rest)))
        })?;
        drop(parts);
        self.rows += rows as u64;
        self.emitted += times as u64;
        self.is_on_gpu = true;
        target.finish(py)
    }

    fn of_kind<'py>(
        &mut self,
        py: Python<'py>,
        samples: Option<Samples<'_>>,
        ends: bool,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.plan.output_is_integer() {
            true => self.run::<i32>(py, samples, ends, out),
            false => self.run::<f32>(py, samples, ends, out),
        }
    }
}

/// Copies the first `times` elements of each row to column `first` of rows of `width` elements.
fn place<T: Copy>(
    from: &[T],
    stride: usize,
    times: usize,
    to: &mut [T],
    width: usize,
    first: usize,
) {
    if times == 0 {
        return;
    }
    for (from, to) in from.chunks_exact(stride).zip(to.chunks_exact_mut(width)) {
        to[first..first + times].copy_from_slice(&from[..times]);
    }
}

#[pymethods]
impl Dedisperser {
    #[new]
    #[pyo3(signature = (freqs, tsamp, dms, dtype, *, downsample=1, zap_channels=None, device="cpu", threads=0))]
    #[expect(clippy::too_many_arguments, reason = "Python's keywords")]
    fn new(
        py: Python<'_>,
        freqs: &Bound<'_, PyAny>,
        tsamp: &Bound<'_, PyAny>,
        dms: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
        downsample: i64,
        zap_channels: Option<&Bound<'_, PyAny>>,
        device: &str,
        threads: i64,
    ) -> PyResult<Self> {
        // An array of this type, because arrays are what has an encoding.
        let array = py.import("numpy")?.call_method1("empty", (0, dtype))?;
        let encoding = encoding_of("dtype", &Readable::new("dtype", &array)?.kind())?;
        let arguments =
            Arguments { freqs, tsamp, dms, encoding, downsample, zap_channels, device, threads };
        Self::bound(py, arguments)
    }

    /// Dedisperses the next rows.
    ///
    /// Parameters
    /// ----------
    /// x : array
    ///     Axes: time and channel; contiguous. The result of an array on a GPU stays there.
    /// out : array, optional
    ///     Array of the result's shape and type, to be overwritten.
    ///
    /// Returns
    /// -------
    /// array
    ///     Axes: trial and time. int32 sums of integers, float32 sums of floats. As many times as all trials have the
    ///     rows for, possibly none. After an exception that is not about the arguments, `reset` begins a new stream.
    #[pyo3(signature = (x, *, out=None))]
    fn push<'py>(
        &mut self,
        x: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(given) = Given::of("x", x)? {
            return self.run_on_gpu(x.py(), Some(&given), false, out);
        }
        let array = Readable::new("x", x)?;
        let samples = self.samples(&array)?;
        self.is_on_gpu = false;
        self.of_kind(x.py(), Some(samples), false, out)
    }

    /// Ends the stream and begins another one.
    ///
    /// Returns
    /// -------
    /// array or DeviceArray
    ///     Where the latest rows were. Axes: trial and time. The rest of the stream; sums are 0 where a trial lacks rows, which is where its
    ///     `valid_samples` end.
    fn flush<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rest = match self.is_on_gpu {
            true => self.run_on_gpu(py, None, true, None)?,
            false => self.of_kind(py, None, true, None)?,
        };
        self.reset();
        Ok(rest)
    }

    /// Begins a new stream.
    fn reset(&mut self) {
        (self.rows, self.emitted, self.is_on_gpu) = (0, 0, false);
        self.engine().reset();
    }

    /// Returns the valid samples of each trial in a stream of `rows` rows.
    ///
    /// Parameters
    /// ----------
    /// rows : int
    ///     Samples in time of all blocks of the stream.
    ///
    /// Returns
    /// -------
    /// array of int64
    ///     Length of each trial's series before the zeros of `flush`; shape (trials,). It is the argument `valid` of
    ///     `find_pulses`.
    fn valid_samples<'py>(
        &self,
        py: Python<'py>,
        rows: i64,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let rows = count("rows", rows)? as u64;
        let of_trial = |trial| self.plan.valid_times(rows, trial) as i64;
        let valid: Vec<i64> = (0..self.plan.dms().len()).map(of_trial).collect();
        Ok(valid.into_pyarray(py))
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(not_pickled::<Self>(py, "make one in each process, where its stream is"))
    }

    /// Returns the delay of each channel at a trial, in samples after `downsample`; a list of length channels.
    fn shifts(&self, trial: i64) -> PyResult<Vec<usize>> {
        let trial = count("trial", trial)?;
        if trial >= self.plan.dms().len() {
            return Err(refused("trial", trial, format!("there are {}", self.plan.dms().len())));
        }
        Ok((0..self.plan.channels()).map(|channel| self.plan.shift(trial, channel)).collect())
    }
}

/// Sums the channels of a filterbank along trial dispersion measures.
///
/// Parameters
/// ----------
/// x : array
///     Samples of uint8, int8, uint16, int16 or float32; axes: time and channel; contiguous.
/// freqs : array of float or Quantity
///     Centre of each channel, MHz; shape (channels,).
/// tsamp : float or Quantity
///     Sampling time, s.
/// dms : array of float or Quantity
///     Trial dispersion measures, pc cm^-3; shape (trials,).
/// downsample : int, default 1
///     Samples summed into one before dedispersion.
/// zap_channels : sequence of int or of bool, optional
///     Channels to leave out: their numbers in the order of `freqs`, from 0, or a bool for each channel.
/// out : array, optional
///     Array of the result's shape and type, to be overwritten.
/// return_valid : bool, default False
///     Whether to return the number of valid samples of each trial, too.
/// device : str, optional
///     Name of one of `devices`; by default that of the array.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Returns
/// -------
/// series : array or DeviceArray
///     Where the samples are. Axes: trial and time. int32 sums of integers, float32 sums of floats, at the time of the highest frequency. The
///     length is that of the trial of the shortest delay; sums are 0 where a trial lacks rows.
/// valid : array of int64
///     Length of each trial's series before these zeros, shape (trials,); only with `return_valid`. without it,
///     `find_pulses` finds pulses at the step to 0.
#[pyfunction]
#[pyo3(signature = (x, freqs, tsamp, dms, *, downsample=1, zap_channels=None, out=None,
                    return_valid=false, device=None, threads=0))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub(crate) fn dedisperse<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    freqs: &Bound<'py, PyAny>,
    tsamp: &Bound<'py, PyAny>,
    dms: &Bound<'py, PyAny>,
    downsample: i64,
    zap_channels: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    return_valid: bool,
    device: Option<&str>,
    threads: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let given = Given::of("x", x)?;
    let device = &device_word(device, given.as_ref());
    let array = match &given {
        Some(_) => None,
        None => Some(Readable::new("x", x)?),
    };
    let kind = match (&given, &array) {
        (Some(given), _) => given.elements.name.to_owned(),
        (None, array) => array.as_ref().map_or_else(String::new, Readable::kind),
    };
    let encoding = encoding_of("x", &kind)?;
    let arguments =
        Arguments { freqs, tsamp, dms, encoding, downsample, zap_channels, device, threads };
    let mut dedisperser = Dedisperser::bound(py, arguments)?;
    let series = match (&given, &array) {
        (None, Some(array)) => {
            let samples = dedisperser.samples(array)?;
            dedisperser.of_kind(py, Some(samples), true, out)?
        }
        (given, _) => dedisperser.run_on_gpu(py, given.as_ref(), true, out)?,
    };
    if !return_valid {
        return Ok(series);
    }
    let valid = dedisperser.valid_samples(py, dedisperser.rows as i64)?;
    Ok((series, valid).into_pyobject(py)?.into_any())
}
