//! Polyphase filter bank of NumPy arrays.

use std::sync::Mutex;

use numpy::{Complex32, Element, IntoPyArray, PyArray1};
use pyo3::prelude::*;
use sidereal::channelize::{
    Channelizer as Engine, Detection, Feed, Form, Input, Options, Output, Plan, Products,
};
use sidereal::math::Window;
use sidereal::view::check_memory;
use sidereal::voltage::Voltages;

use crate::arguments::{Unit, backend, count, parsed};
use crate::arrays::{Readable, output};
use crate::errors::{detached, raised, refused};
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
/// device : str, default "cpu"
///     Name of one of `devices`.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Notes
/// -----
/// The output has the axes time, antenna, product (or polarization) and channel, of which antenna and product exist if
/// `antennas` and `pols` were given; it is complex64, or float32 if detected. Channels ascend in frequency, from
/// -1/2 of the sampling rate (real samples: from 0). Any split of a stream into blocks gives the same bits on a CPU.
#[pyclass(module = "sidereal_dsp")]
pub(crate) struct Channelizer {
    engine: Mutex<Engine>,
    plan: Plan,
    samples: Samples,
    axes: Axes,
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
            form: form(arguments.detect, arguments.feed, arguments.integrate)?,
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
        Ok(Self { engine: Mutex::new(engine), plan, samples, axes })
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
        [Some(rows), antennas, products, channels].into_iter().flatten().collect()
    }

    /// Returns the samples per stream of an array after a check of its shape.
    fn times(&self, array: &Readable<'_>) -> PyResult<usize> {
        let mut expected = self.axes.leading();
        let given = array.shape();
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

    fn pushed<'py>(
        &mut self,
        x: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = Readable::new("x", &split_pairs(x)?)?;
        self.samples.check(&array)?;
        let times = self.times(&array)?;
        match self.plan.options().form {
            Form::Detected(_) => self.run::<f32>(x.py(), &array, times, out),
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
        let before = self.engine().times();
        let rows = self.plan.rows(before + times as u64) - self.plan.rows(before);
        let mut rows = output::<T>(py, out, &self.shape(rows as usize))?;
        let (streams, encoding) = (self.plan.input().streams(), self.samples.encoding);
        let bytes = array.bytes()?;
        let stride = encoding.bytes(times);
        let input = Voltages::new(bytes, encoding, streams, stride, times).map_err(raised)?;
        let elements = self.plan.row_elements();
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
        Ok(rows.as_any().clone())
    }
}

#[pymethods]
impl Channelizer {
    #[new]
    #[pyo3(signature = (channels, taps=8, *, encoding, antennas=None, coarse_channels=None, pols=None, window=None,
                        oversampling=None, detect=None, feed="linear", integrate=1, device="cpu", threads=0))]
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
    ///     Axes: those that were given, then time; contiguous.
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
        self.pushed(x, out)
    }

    /// Ends the stream and begins another one.
    ///
    /// Returns
    /// -------
    /// array
    ///     No rows, because incomplete windows and sums give none.
    fn flush<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.reset();
        let shape = self.shape(0);
        Ok(match self.plan.options().form {
            Form::Detected(_) => output::<f32>(py, None, &shape)?.as_any().clone(),
            _ => output::<Complex32>(py, None, &shape)?.as_any().clone(),
        })
    }

    /// Begins a new stream.
    fn reset(&mut self) {
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
/// encoding : str, optional
///     Encoding of the samples where the type does not decide it; see `Channelizer`.
/// out : array, optional
///     Array of the result's shape and type, to be overwritten.
/// device : str, default "cpu"
///     Name of one of `devices`.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Returns
/// -------
/// array
///     Axes time, antenna, product (or polarization) and channel, without antenna and product if `x` has no such
///     axis. complex64, or float32 if detected. Channels ascend in frequency, from -1/2 of the sampling rate (real
///     samples: from 0).
#[pyfunction]
#[pyo3(signature = (x, channels, *, taps=8, window=None, oversampling=None, detect=None, feed="linear", integrate=1,
                    encoding=None, out=None, device="cpu", threads=0))]
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
    encoding: Option<&str>,
    out: Option<&Bound<'py, PyAny>>,
    device: &str,
    threads: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let (samples, axes) = {
        let array = Readable::new("x", &split_pairs(x)?)?;
        let samples = Samples::of(encoding, x, &array)?;
        let shape = array.shape();
        let leading = shape.len() - usize::from(samples.is_paired).min(shape.len());
        (samples, Axes::of(&shape[..leading])?)
    };
    let arguments = Arguments {
        channels,
        taps,
        window,
        oversampling,
        detect,
        feed,
        integrate,
        device,
        threads,
    };
    Channelizer::bound(py, &arguments, samples, axes)?.pushed(x, out)
}
