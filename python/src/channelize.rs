//! Polyphase filter bank of NumPy arrays.

use std::sync::Mutex;
use std::time::Instant;

use numpy::{Complex32, Element, IntoPyArray, PyArray1};
use pyo3::prelude::*;
use sidereal::backend::Backend;
use sidereal::channelize::{
    Channelizer as Engine, Detection, Feed, Form, Input, Options, Output, Plan, Products,
};
use sidereal::math::Window;
use sidereal::view::check_memory;
use sidereal::voltage::{DeviceVoltages, VoltageEncoding, Voltages};

use crate::arguments::{Unit, backend, count, parsed};
use crate::arrays::{Readable, output, writable};
use crate::device::{Target, on_stream};
use crate::errors::{detached, raised, refused};
use crate::given::{Given, bound_to, device_word, gpu_of, host_of};
use crate::pickle::not_pickled;
use crate::voltages::{Samples, split_pairs};

/// Samples of all streams between two checks for signals.
const PIECE: usize = 1 << 24;

/// Lengths of the axes before time; axes that were not given do not exist.
#[derive(Clone, Copy, Debug, Default)]
struct Axes {
    antennas: Option<usize>,
    coarse_channels: Option<usize>,
    pols: Option<usize>,
}

impl Axes {
    /// Returns the given axes of an input, before time.
    fn leading(self) -> Vec<usize> {
        [self.antennas, self.coarse_channels, self.pols].into_iter().flatten().collect()
    }

    /// Names the axes of `shape` from the last one back: time, polarization, antenna; of four axes the second is the
    /// recorded channel.
    fn of(shape: &[usize]) -> PyResult<Self> {
        Ok(match *shape {
            [_] => Self::default(),
            [pols, _] => Self { pols: Some(pols), ..Self::default() },
            [antennas, pols, _] => {
                Self { antennas: Some(antennas), pols: Some(pols), ..Self::default() }
            }
            [antennas, coarse, pols, _] => {
                Self { antennas: Some(antennas), coarse_channels: Some(coarse), pols: Some(pols) }
            }
            _ => {
                let rule = "its axes must be time, or polarization and time, or antenna, polarization and time, or \
                            antenna, recorded channel, polarization and time";
                return Err(refused("x", format!("an array of {} axes", shape.len()), rule));
            }
        })
    }
}

/// Elements of the output.
trait Row: Element {
    /// Elements of a channel.
    const EACH: usize = 1;

    fn output(rows: &mut [Self]) -> Output<'_>;
}

impl Row for Complex32 {
    fn output(rows: &mut [Self]) -> Output<'_> {
        Output::Complex(rows)
    }
}

impl Row for f32 {
    fn output(rows: &mut [Self]) -> Output<'_> {
        Output::F32(rows)
    }
}

impl Row for i8 {
    /// Real and imaginary part.
    const EACH: usize = 2;

    fn output(rows: &mut [Self]) -> Output<'_> {
        Output::Bytes(bytemuck::cast_slice_mut(rows))
    }
}

impl Row for u8 {
    fn output(rows: &mut [Self]) -> Output<'_> {
        Output::Bytes(rows)
    }
}

/// Returns the output form of integers of 4 or 8 bits.
fn integers(bits: i64, gain: f64, detect: Option<&str>) -> PyResult<Form> {
    if detect.is_some() {
        return Err(refused("bits", bits, "detected spectra are float32; leave out `detect`"));
    }
    Ok(Form::Requantized { bits: count("bits", bits)?, gains: vec![gain as f32] })
}

/// Returns the output form: complex spectra, or detected products summed over `integrate` spectra.
fn form(detect: Option<&str>, feed: &str, integrate: i64) -> PyResult<Form> {
    let spectra = count("integrate", integrate)?;
    let feed = match feed {
        "linear" => Feed::Linear,
        "circular" => Feed::Circular,
        other => return Err(refused("feed", other, "there are linear and circular")),
    };
    let products = match detect {
        None if spectra == 1 => return Ok(Form::Spectra),
        None => {
            let rule = "only detected spectra are summed; name `detect`";
            return Err(refused("integrate", spectra, rule));
        }
        Some("power") => Products::Power,
        Some("I") => Products::I,
        Some("IQUV") => Products::Iquv,
        Some("AABBCRCI") => Products::Aabbcrci,
        Some(other) => {
            return Err(refused("detect", other, "there are power, I, IQUV and AABBCRCI"));
        }
    };
    let (channels, interpolate_dc) = (1, false);
    Ok(Form::Detected(Detection { products, feed, spectra, channels, interpolate_dc }))
}

/// Returns a window by its name, or from coefficients.
fn window(window: &Bound<'_, PyAny>) -> PyResult<Window> {
    match window.extract::<String>() {
        Ok(word) => parsed(&word),
        Err(_) => Unit::One.numbers("window", window).map(Window::Custom),
    }
}

/// Polyphase filter bank of a stream, which arrives in blocks of any length.
///
/// Parameters
/// ----------
/// channels : int
///     Channels per recorded channel, 2 to 1048576.
/// taps : int, default 8
///     Rows of samples under the window, 1 to 256.
/// encoding : str
///     Encoding of the samples: ``complex64``, ``float32``, ``int8``, ``int16`` (arrays of these types, real
///     integers), ``int8_pair`` and ``int16_pair`` (the last axis, of length 2, holds real and imaginary part),
///     ``complex4`` (uint8: real part in the high nibble) or ``uint8_offset`` (uint8: 128 is 0).
/// antennas, coarse_channels, pols : int, optional
///     Lengths of the axes before time, in this order. An axis that is not given does not exist.
/// window : str or array, default "hann"
///     ``hann``, ``hamming``, ``blackman``, ``kaiser:DB`` or ``rectangular``, or taps x points coefficients in an array
///     of one axis. A transform has `channels` points for complex samples, and twice as many for real ones.
/// oversampling : tuple of int, optional
///     P and Q: a spectrum every points x Q / P samples; by default P = Q = 1.
/// detect : str, optional
///     ``power`` (of each polarization), ``I``, ``IQUV`` (Stokes parameters) or ``AABBCRCI`` (both powers, and the real
///     and the imaginary part of the first polarization times the conjugate of the second); by default the spectra are
///     complex.
/// feed : str, default "linear"
///     Polarization basis, ``linear`` or ``circular``.
/// integrate : int, default 1
///     Detected spectra summed into one.
/// bits : int, optional
///     8 or 4: complex spectra are rounded to integers of as many bits, which `correlate` takes; by default they are
///     complex64.
/// gain : float, default 1
///     Factor of the spectra before they are rounded.
/// device : str, default "cpu"
///     Name of one of `devices`.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Notes
/// -----
/// The output has the axes time, antenna, product (or polarization) and channel, of which antenna and product exist if
/// `antennas` and `pols` were given; it is complex64, or float32 if detected. Of 8 bits it is int8 with a last axis of
/// length 2 (real and imaginary part), of 4 bits uint8 (real part in the high nibble). Channels ascend in frequency, from
/// -1/2 of the sampling rate (real samples: from 0). Any split of a stream into blocks gives the same bits on a CPU.
#[pyclass(module = "sidereal_dsp")]
pub(crate) struct Channelizer {
    engine: Mutex<Engine>,
    plan: Plan,
    samples: Samples,
    axes: Axes,
    /// Whether the latest samples were in a GPU's memory.
    is_on_gpu: bool,
}

/// Options of a filter bank from Python's arguments.
struct Arguments<'a, 'py> {
    channels: i64,
    taps: i64,
    window: Option<&'a Bound<'py, PyAny>>,
    oversampling: Option<(i64, i64)>,
    detect: Option<&'a str>,
    feed: &'a str,
    integrate: i64,
    bits: Option<i64>,
    gain: f64,
    device: &'a str,
    threads: i64,
}

impl Channelizer {
    fn bound(
        py: Python<'_>,
        arguments: &Arguments<'_, '_>,
        samples: Samples,
        axes: Axes,
    ) -> PyResult<Self> {
        let input = Input {
            antennas: axes.antennas.unwrap_or(1),
            coarse_channels: axes.coarse_channels.unwrap_or(1),
            polarizations: axes.pols.unwrap_or(1),
            ..Input::one(samples.encoding)
        };
        let (p, q) = arguments.oversampling.unwrap_or((1, 1));
        let channels = count("channels", arguments.channels)?;
        let taps = count("taps", arguments.taps)?;
        let plan = Plan::new(Options {
            window: arguments.window.map_or_else(|| Ok(Window::default()), window)?,
            oversampling: (count("oversampling", p)?, count("oversampling", q)?),
            input,
            form: match arguments.bits {
                Some(bits) if arguments.integrate == 1 => {
                    integers(bits, arguments.gain, arguments.detect)?
                }
                _ => form(arguments.detect, arguments.feed, arguments.integrate)?,
            },
            ..Options::new(channels, taps, samples.encoding)
        })
        .map_err(raised)?;
        // Samples under the window and a row, as complex numbers of single precision.
        let elements = (plan.span() + plan.hop()).checked_mul(plan.input().streams());
        let elements = elements.and_then(|samples| samples.checked_add(plan.row_elements()));
        let bytes = elements.and_then(|elements| elements.checked_mul(size_of::<Complex32>()));
        check_memory("the filter bank", bytes).map_err(raised)?;
        let backend = backend(py, arguments.device, arguments.threads)?;
        let engine = detached(py, || Engine::new(plan.clone(), &backend))?;
        Ok(Self { engine: Mutex::new(engine), plan, samples, axes, is_on_gpu: false })
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the shape of an output of some rows.
    fn shape(&self, rows: usize) -> Vec<usize> {
        let antennas = self.axes.antennas;
        let products = self.axes.pols.map(|_| self.plan.output_products());
        let coarse = self.plan.input().coarse_channels;
        let channels = Some(coarse * self.plan.output_channels());
        let pair = (self.kind() == "int8").then_some(2);
        [Some(rows), antennas, products, channels, pair].into_iter().flatten().collect()
    }

    /// Returns the type of an output's elements.
    fn kind(&self) -> &'static str {
        match self.plan.options().form {
            Form::Detected(_) => "float32",
            Form::Requantized { bits: 8, .. } => "int8",
            Form::Requantized { .. } => "uint8",
            Form::Spectra | Form::Filtered => "complex64",
        }
    }

    /// Returns the samples per stream of an array after a check of its shape.
    fn times(&self, given: &[usize]) -> PyResult<usize> {
        let mut expected = self.axes.leading();
        let times = given.get(expected.len()).copied().unwrap_or(0);
        expected.push(times);
        if self.samples.is_paired {
            expected.push(2);
        }
        if given == expected {
            return Ok(times);
        }
        let axes: Vec<String> = self.axes.leading().iter().map(usize::to_string).collect();
        let pair = if self.samples.is_paired { ", 2" } else { "" };
        let rule = format!(
            "the shape must be ({}{pair})",
            [axes, vec!["times".into()]].concat().join(", ")
        );
        Err(refused("x", format!("an array of shape {given:?}"), rule))
    }

    /// Returns the rows that the next samples complete.
    fn next_rows(&mut self, times: usize) -> usize {
        let before = self.engine().times();
        (self.plan.rows(before + times as u64) - self.plan.rows(before)) as usize
    }

    fn pushed<'py>(
        &mut self,
        x: &Bound<'py, PyAny>,
        given: Option<Given<'py>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(given) = given {
            return self.run_on_gpu(x.py(), &given, out);
        }
        let array = Readable::new("x", &split_pairs(x)?)?;
        self.samples.check(&array.kind())?;
        let times = self.times(array.shape())?;
        match self.kind() {
            "float32" => self.run::<f32>(x.py(), &array, times, out),
            "int8" => self.run::<i8>(x.py(), &array, times, out),
            "uint8" => self.run::<u8>(x.py(), &array, times, out),
            _ => self.run::<Complex32>(x.py(), &array, times, out),
        }
    }

    fn run<'py, T: Row + Send>(
        &mut self,
        py: Python<'py>,
        array: &Readable<'py>,
        times: usize,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rows = self.next_rows(times);
        let mut rows = output::<T>(py, out, &self.shape(rows))?;
        let (streams, encoding) = (self.plan.input().streams(), self.samples.encoding);
        let bytes = array.bytes()?;
        let stride = encoding.bytes(times);
        let input = Voltages::new(bytes, encoding, streams, stride, times).map_err(raised)?;
        let elements = self.plan.row_elements() * T::EACH;
        let mut free = rows.as_slice_mut()?;
        let (mut start, step) = (0, (PIECE / streams).max(1));
        while start < times {
            let part = input.slice(start, step.min(times - start)).map_err(raised)?;
            let engine = self.engine();
            let progress = detached(py, || engine.run(part, T::output(free)))?;
            free = &mut free[progress.produced * elements..];
            start += part.times();
            py.check_signals()?;
        }
        self.is_on_gpu = false;
        Ok(rows.as_any().clone())
    }

    /// Channelizes an array in a GPU's memory, and leaves the result there.
    fn run_on_gpu<'py>(
        &mut self,
        py: Python<'py>,
        x: &Given<'py>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let device = bound_to(x, self.engine().device())?.clone();
        self.samples.check(x.elements.name)?;
        let times = self.times(&x.shape)?;
        x.check_contiguous()?;
        let kind = self.kind();
        let rows = self.next_rows(times);
        let mut target = Target::new(Some(x), out, &self.shape(rows), kind, &device)?;
        x.wait(py, &device)?;
        let input = x.buffer(&device)?;
        let stride = self.samples.encoding.bytes(times);
        let layout = DeviceVoltages { first_byte: 0, stride, times };
        let (engine, memory) = (self.engine(), target.memory());
        on_stream(py, &device, |stream| engine.enqueue(&input, layout, memory, stream))?;
        self.is_on_gpu = true;
        target.finish(py)
    }
}

#[pymethods]
impl Channelizer {
    #[new]
    #[pyo3(signature = (channels, taps=8, *, encoding, antennas=None, coarse_channels=None, pols=None, window=None,
                        oversampling=None, detect=None, feed="linear", integrate=1, bits=None, gain=1.0, device="cpu", threads=0))]
    #[expect(clippy::too_many_arguments, reason = "Python's keywords")]
    fn new(
        py: Python<'_>,
        channels: i64,
        taps: i64,
        encoding: &str,
        antennas: Option<i64>,
        coarse_channels: Option<i64>,
        pols: Option<i64>,
        window: Option<&Bound<'_, PyAny>>,
        oversampling: Option<(i64, i64)>,
        detect: Option<&str>,
        feed: &str,
        integrate: i64,
        bits: Option<i64>,
        gain: f64,
        device: &str,
        threads: i64,
    ) -> PyResult<Self> {
        let length = |name, value: Option<i64>| value.map(|value| count(name, value)).transpose();
        let axes = Axes {
            antennas: length("antennas", antennas)?,
            coarse_channels: length("coarse_channels", coarse_channels)?,
            pols: length("pols", pols)?,
        };
        let arguments = Arguments {
            channels,
            taps,
            window,
            oversampling,
            detect,
            feed,
            integrate,
            bits,
            gain,
            device,
            threads,
        };
        Self::bound(py, &arguments, Samples::named(encoding)?, axes)
    }

    /// Channelizes the next samples.
    ///
    /// Parameters
    /// ----------
    /// x : array
    ///     Axes: those that were given, then time; contiguous. The result of an array on a GPU stays there.
    /// out : array, optional
    ///     Array of the result's shape and type, to be overwritten.
    ///
    /// Returns
    /// -------
    /// array
    ///     Rows that the samples complete, possibly none; `out` if it was given. After an exception that is not about
    ///     the arguments, `reset` begins a new stream.
    #[pyo3(signature = (x, *, out=None))]
    fn push<'py>(
        &mut self,
        x: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let given = Given::of("x", x)?;
        self.pushed(&host_of(x, given.as_ref())?, given, out)
    }

    /// Ends the stream and begins another one.
    ///
    /// Returns
    /// -------
    /// array or DeviceArray
    ///     No rows, because incomplete windows and sums give none. Where the latest samples were.
    fn flush<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (shape, kind) = (self.shape(0), self.kind());
        let rest = match self.is_on_gpu {
            true => {
                let device = gpu_of(None, self.engine().device())?;
                Target::new(None, None, &shape, kind, &device)?.finish(py)?
            }
            false => py.import("numpy")?.call_method1("empty", (shape, kind))?,
        };
        self.reset();
        Ok(rest)
    }

    /// Begins a new stream.
    fn reset(&mut self) {
        self.is_on_gpu = false;
        self.engine().reset();
    }

    /// Returns the frequencies of the channels of one recorded channel.
    ///
    /// Parameters
    /// ----------
    /// centre, bandwidth : float or Quantity
    ///     Centre and width of that recorded channel, MHz.
    ///
    /// Returns
    /// -------
    /// array of float64
    ///     Centre of each of its channels, MHz; shape (channels,).
    fn frequencies<'py>(
        &self,
        centre: &Bound<'py, PyAny>,
        bandwidth: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let py = centre.py();
        let centre = Unit::Megahertz.number("centre", centre)?;
        let bandwidth = Unit::Megahertz.number("bandwidth", bandwidth)?;
        let channels = self.plan.channels();
        let first = match self.samples.encoding.is_complex() {
            true => centre - bandwidth * (channels / 2) as f64 / channels as f64,
            false => centre - bandwidth / 2.0,
        };
        let width = bandwidth / channels as f64;
        let centres = (0..channels).map(|channel| first + channel as f64 * width);
        Ok(centres.collect::<Vec<_>>().into_pyarray(py))
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(not_pickled::<Self>(py, "make one in each process, where its stream is"))
    }

    /// Samples from the first sample to the start of the first row, so that a row's time is the centre of its windows.
    #[getter]
    fn delay_samples(&self) -> f64 {
        self.plan.delay_samples()
    }

    /// Samples from one row to the next.
    #[getter]
    fn samples_per_row(&self) -> usize {
        self.plan.samples_per_row()
    }
}

/// Makes the prototype filter of a filter bank.
///
/// Parameters
/// ----------
/// channels : int
///     Channels per recorded channel.
/// taps : int, default 8
///     Rows of samples under the window.
/// window : str, default "hann"
///     ``hann``, ``hamming``, ``blackman``, ``kaiser:DB`` or ``rectangular``, times a sinc.
/// real : bool, default False
///     Whether the samples are real: a transform has twice as many points then.
///
/// Returns
/// -------
/// array of float64
///     Coefficients of sum 1, which `window` of `channelize` takes; shape (taps x points,).
#[pyfunction]
#[pyo3(signature = (channels, taps=8, window="hann", *, real=false))]
pub(crate) fn prototype<'py>(
    py: Python<'py>,
    channels: i64,
    taps: i64,
    window: &str,
    real: bool,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let encoding = match real {
        true => VoltageEncoding::RealF32,
        false => VoltageEncoding::ComplexF32,
    };
    let (channels, taps) = (count("channels", channels)?, count("taps", taps)?);
    let window = parsed(window)?;
    let options = Options { window, ..Options::new(channels, taps, encoding) };
    let plan = Plan::new(options).map_err(raised)?;
    Ok(PyArray1::from_slice(py, plan.coefficients()))
}

/// Divides voltages into channels with a polyphase filter bank.
///
/// Parameters
/// ----------
/// x : array
///     Voltages; axes time, or polarization and time, or antenna, polarization and time, or antenna, recorded channel,
///     polarization and time. complex64, float32, int8 or int16, or a structured type of two int8 or int16 (real and
///     imaginary part). Contiguous.
/// channels : int
///     Channels per recorded channel, 2 to 1048576.
/// taps : int, default 8
///     Rows of samples under the window, 1 to 256.
/// window : str or array, default "hann"
///     ``hann``, ``hamming``, ``blackman``, ``kaiser:DB`` or ``rectangular``, or taps x points coefficients in an array
///     of one axis. A transform has `channels` points for complex samples, and twice as many for real ones.
/// oversampling : tuple of int, optional
///     P and Q: a spectrum every points x Q / P samples; by default P = Q = 1.
/// detect : str, optional
///     ``power`` (of each polarization), ``I``, ``IQUV`` (Stokes parameters) or ``AABBCRCI`` (both powers, and the real
///     and the imaginary part of the first polarization times the conjugate of the second); by default the spectra are
///     complex.
/// feed : str, default "linear"
///     Polarization basis, ``linear`` or ``circular``.
/// integrate : int, default 1
///     Detected spectra summed into one.
/// bits : int, optional
///     8 or 4: complex spectra are rounded to integers of as many bits, which `correlate` takes; by default they are
///     complex64.
/// gain : float, default 1
///     Factor of the spectra before they are rounded.
/// encoding : str, optional
///     Encoding of the samples where the type does not decide it; see `Channelizer`.
/// out : array, optional
///     Array of the result's shape and type, to be overwritten.
/// device : str, optional
///     Name of one of `devices`; by default that of the array.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Returns
/// -------
/// array or DeviceArray
///     Where the array is. Axes time, antenna, product (or polarization) and channel, without antenna and product if `x` has no such
///     axis. complex64, or float32 if detected; with `bits` as in `Channelizer`. Channels ascend in frequency, from -1/2 of the sampling rate (real
///     samples: from 0).
#[pyfunction]
#[pyo3(signature = (x, channels, *, taps=8, window=None, oversampling=None, detect=None, feed="linear", integrate=1, bits=None, gain=1.0,
                    encoding=None, out=None, device=None, threads=0))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub(crate) fn channelize<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    channels: i64,
    taps: i64,
    window: Option<&Bound<'py, PyAny>>,
    oversampling: Option<(i64, i64)>,
    detect: Option<&str>,
    feed: &str,
    integrate: i64,
    bits: Option<i64>,
    gain: f64,
    encoding: Option<&str>,
    out: Option<&Bound<'py, PyAny>>,
    device: Option<&str>,
    threads: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let given = Given::of("x", x)?;
    let x = &host_of(x, given.as_ref())?;
    let (kind, shape) = match &given {
        Some(given) => (given.elements.name.to_owned(), given.shape.clone()),
        None => {
            let array = Readable::new("x", &split_pairs(x)?)?;
            (array.kind(), array.shape().to_vec())
        }
    };
    let samples = Samples::of(encoding, x, &kind)?;
    let leading = shape.len() - usize::from(samples.is_paired).min(shape.len());
    let axes = Axes::of(&shape[..leading])?;
    let device = device_word(device, given.as_ref());
    let arguments = Arguments {
        channels,
        taps,
        window,
        oversampling,
        detect,
        feed,
        integrate,
        bits,
        gain,
        device: &device,
        threads,
    };
    Channelizer::bound(py, &arguments, samples, axes)?.pushed(x, given, out)
}

/// Times the library's own filter bank on arrays, without Python's part of `channelize`; for `python/benches`.
///
/// Parameters
/// ----------
/// x : array of complex64
///     Axes: polarization and time; contiguous.
/// channels : int
///     Number of channels.
/// out : array of complex64
///     Axes: time, polarization and channel; overwritten.
/// threads : int
///     Threads of the processor; 0 is one per core.
///
/// Returns
/// -------
/// float
///     Seconds for the plan, the filter bank and its run.
#[pyfunction(name = "_time_channelize")]
pub(crate) fn time_channelize(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    channels: i64,
    out: &Bound<'_, PyAny>,
    threads: i64,
) -> PyResult<f64> {
    let array = Readable::new("x", x)?;
    let [pols, times] = array.plane("x", "polarization and time")?;
    let (bytes, encoding) = (array.bytes()?, VoltageEncoding::ComplexF32);
    let input = Voltages::new(bytes, encoding, pols, encoding.bytes(times), times);
    let input = input.map_err(raised)?;
    let (channels, threads) = (count("channels", channels)?, count("threads", threads)?);
    let one = Input { polarizations: pols, ..Input::one(encoding) };
    let options = Options { input: one, ..Options::new(channels, 8, encoding) };
    let rows = Plan::new(options.clone()).map_err(raised)?.rows(times as u64) as usize;
    let mut spectra = writable::<Complex32>("out", out, &[rows, pols, channels])?;
    let spectra = spectra.as_slice_mut()?;
    detached(py, || {
        let begin = Instant::now();
        let mut bank = Engine::new(Plan::new(options)?, &Backend::best(threads))?;
        bank.run(input, Output::Complex(spectra))?;
        // `channelize` frees the filter bank's memory and ends its threads, too.
        drop(bank);
        Ok(begin.elapsed().as_secs_f64())
    })
}
