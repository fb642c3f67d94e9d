//! X-engine for NumPy arrays of spectra.

use std::sync::{Mutex, PoisonError};

use numpy::{Complex64, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{self, Buffer, Stream};
use sidereal::correlate::{
    BlockBuffer, CornerTurn, Correlator as Engine, DeviceSpectra, Options, Output, Plan, Precision,
    Rows, Spectra,
};
use sidereal::delay::{self, DelayCorrector, DeviceSamples, Natural};
use sidereal::num_complex::Complex;
use sidereal::view::check_memory;
use sidereal::voltage::VoltageEncoding;

use crate::arguments::{backend, count, device_of};
use crate::arrays::{Readable, empty};
use crate::device::on_stream;
use crate::errors::{detached, raised, refused};
use crate::given::{Given, bound_to, device_word, host_of};
use crate::pickle::not_pickled;
use crate::voltages::{Samples, split_pairs};

/// Packed bytes of a block, between two checks for signals.
const PIECE: usize = 1 << 24;

/// Bytes of spectra that are transposed at a time on a GPU.
const GPU_PIECE: usize = 1 << 28;

/// Alignment of spectra in a GPU's memory, bytes.
const ALIGNED: usize = 16;

/// Correlation of the spectra of all antennas of an array, summed until they are read.
///
/// Parameters
/// ----------
/// antennas : int
///     Number of antennas, 1 to 4096.
/// channels : int
///     Number of frequency channels.
/// pols : int, default 2
///     Polarizations of each antenna, 1 or 2.
/// encoding : str, default "complex64"
///     Encoding of the spectra: ``complex64``, ``int8_pair`` (int8 with a last axis of length 2: real and imaginary
///     part) or ``complex4`` (uint8: real part in the high nibble).
/// precision : str, default "f32"
///     Rounding that a GPU may apply to floats: ``f32`` (none), ``split``, ``tf32`` or ``f16``.
/// device : str, default "cpu"
///     Name of one of `devices`.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Notes
/// -----
/// The visibility of antennas i >= j and polarizations p and q is the sum of ``x[i, p] * conj(x[j, q])``. Sums of
/// integers are exact.
#[pyclass(module = "sidereal_dsp")]
pub(crate) struct Correlator {
    engine: Mutex<State>,
    plan: Plan,
    samples: Samples,
    backend: Backend,
    gpu: Option<cuda::Device>,
}

/// X-engine, and the transposition of spectra into its order.
struct State {
    engine: Engine,
    turn: CornerTurn,
    /// Packed spectra of the latest block; it grows to the longest one.
    buffer: Option<BlockBuffer>,
    /// Transposition of spectra in a GPU's memory; none before the first of them.
    natural: Option<NaturalOrder>,
}

/// Spectra of all inputs in a GPU's memory; axes: channel, input, time.
struct NaturalOrder {
    corrector: DelayCorrector,
    memory: Buffer<u8>,
    /// Spectra that have room.
    times: usize,
}

impl NaturalOrder {
    /// Returns the spectra of a piece of `wanted` spectra, or fewer if they are long.
    fn room(plan: &Plan, wanted: usize) -> usize {
        let row = plan.channels() * plan.inputs() * size_of::<Complex<f32>>();
        wanted.min((GPU_PIECE / row).max(1)).next_multiple_of(2)
    }

    /// Allocates memory for pieces of `times` spectra.
    fn new(
        plan: &Plan,
        backend: &Backend,
        device: &cuda::Device,
        times: usize,
    ) -> sidereal::Result<Self> {
        let row = plan.channels() * plan.inputs();
        let options = delay::Options {
            inputs: (0..plan.antennas()).map(|antenna| antenna * plan.polarizations()).collect(),
            ..delay::Options::one_antenna(plan.polarizations(), 1, plan.channels(), plan.encoding())
        };
        let corrector = DelayCorrector::new(delay::Plan::new(options)?, backend)?;
        let memory = device.buffer(row * times * size_of::<Complex<f32>>())?;
        Ok(Self { corrector, memory, times })
    }

    /// Transposes the spectra `first..first + times` of single-precision spectra with the axes time, antenna,
    /// polarization and channel.
    fn turn(
        &mut self,
        plan: &Plan,
        spectra: &Buffer<u8>,
        first: usize,
        times: usize,
        stream: &Stream,
    ) -> sidereal::Result<DeviceSpectra> {
        let stride = plan.inputs() * plan.channels() * size_of::<Complex<f32>>();
        let input_stride = (times * size_of::<Complex<f32>>()).next_multiple_of(ALIGNED);
        let channel_stride = plan.inputs() * input_stride;
        let from = DeviceSamples { first_byte: first * stride, stride, times };
        let to = Natural { first_byte: 0, channel_stride, input_stride };
        self.corrector.enqueue(spectra, from, None, &mut self.memory, to, stream)?;
        Ok(DeviceSpectra { first_byte: 0, channel_stride, input_stride, times })
    }
}

impl State {
    /// Adds the spectra `first..first + times` of rows with the axes antenna, polarization, time and channel.
    fn add(&mut self, rows: Rows<'_>, times: usize) -> sidereal::Result<()> {
        let plan = self.turn.plan();
        let buffer = match self.buffer.take().filter(|buffer| buffer.capacity() >= times) {
            Some(buffer) => buffer,
            None => {
                check_memory("packed spectra", Some(plan.packed_bytes(times)))?;
                BlockBuffer::new(plan, times)
            }
        };
        let buffer = self.buffer.insert(buffer);
        buffer.set_times(times)?;
        self.turn.run(Spectra::Rows(rows), buffer)?;
        self.engine.run(buffer.block())
    }
}

/// Sizes and options of a correlator from Python's arguments.
struct Arguments<'a> {
    options: Options,
    precision: &'a str,
    device: &'a str,
    threads: i64,
}

impl Correlator {
    fn bound(py: Python<'_>, arguments: Arguments<'_>, samples: Samples) -> PyResult<Self> {
        let known = [Precision::F32, Precision::Split, Precision::Tf32, Precision::F16];
        let word = arguments.precision;
        let precision = known.into_iter().find(|known| known.to_string() == word);
        let rule = "there are f32, split, tf32 and f16";
        let precision = precision.ok_or_else(|| refused("precision", word, rule))?;
        let plan = Plan::new(arguments.options).map_err(raised)?.with_precision(precision);
        let backend = backend(py, arguments.device, arguments.threads)?;
        let engine = detached(py, || Engine::new(plan.clone(), &backend))?;
        let turn = CornerTurn::new(plan.clone(), &backend);
        let engine = Mutex::new(State { engine, turn, buffer: None, natural: None });
        let gpu = device_of(&backend);
        Ok(Self { engine, plan, samples, backend, gpu })
    }

    fn state(&mut self) -> &mut State {
        self.engine.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lengths of the axes of `times` spectra: time, antenna, polarization and channel, and the parts of
    /// pairs.
    fn shape(&self, times: usize) -> Vec<usize> {
        let plan = &self.plan;
        let mut shape = vec![times, plan.antennas(), plan.polarizations(), plan.channels()];
        shape.extend(self.samples.is_paired.then_some(2));
        shape
    }

    /// Returns the exception for an array of another shape; `shape` is its text.
    fn wrong_shape(&self, shape: &str) -> PyErr {
        let plan = &self.plan;
        let rule = format!(
            "its axes must be time, {} antennas, {} polarizations and {} channels",
            plan.antennas(),
            plan.polarizations(),
            plan.channels()
        );
        refused("x", format!("an array of shape {shape}"), rule)
    }

    /// Adds spectra in a GPU's memory to the sums.
    fn push_on_gpu(&mut self, py: Python<'_>, x: &Given<'_>) -> PyResult<()> {
        let device = bound_to(x, self.gpu.as_ref())?.clone();
        self.samples.check(x.elements.name)?;
        let (mut shape, mut strides) = (x.shape.clone(), x.strides.clone());
        let axes = 3 + usize::from(self.samples.is_paired);
        if shape.len() == axes && self.plan.polarizations() == 1 {
            shape.insert(2, 1);
            strides.insert(2, strides[1]);
        }
        let times = shape.first().copied().unwrap_or(0);
        if shape != self.shape(times) {
            return Err(self.wrong_shape(&format!("{:?}", x.shape)));
        }
        if times == 0 {
            return Ok(());
        }
        let pols = self.plan.polarizations();
        let sample = self.plan.encoding().sample_bits() / 8;
        // Of one polarization, the next input is the next antenna.
        let input_stride = if pols == 1 { strides[1] } else { strides[2] };
        let is_natural = strides[0] == sample
            && (!self.samples.is_paired || strides[4] * 2 == sample)
            && (pols == 1 || self.plan.antennas() == 1 || strides[1] == pols * strides[2])
            && (self.plan.inputs() == 1 || input_stride.is_multiple_of(ALIGNED))
            && (self.plan.channels() == 1 || strides[3].is_multiple_of(ALIGNED));
        let is_turned = x.is_contiguous() && self.plan.encoding() == VoltageEncoding::ComplexF32;
        if !is_natural && !is_turned {
            let rule = "on a GPU its memory must have the order channel, antenna, polarization and time, with rows at \
                        multiples of 16 bytes, or be contiguous complex64";
            return Err(refused("x", format!("an array of strides {:?}", x.strides), rule));
        }
        x.wait(py, &device)?;
        let mut spectra: Buffer<u8> = x.buffer(&device)?;
        let (plan, backend) = (self.plan.clone(), self.backend.clone());
        let state = self.state();
        on_stream(py, &device, |stream| {
            if is_natural {
                let row = (times * sample).next_multiple_of(ALIGNED);
                let input_stride = if plan.inputs() == 1 { row } else { input_stride };
                let channel_stride = match plan.channels() {
                    1 => input_stride * plan.inputs(),
                    _ => strides[3],
                };
                let layout = DeviceSpectra { first_byte: 0, channel_stride, input_stride, times };
                return state.engine.enqueue(&mut spectra, layout, None, stream);
            }
            let room = NaturalOrder::room(&plan, times);
            let natural = match state.natural.take().filter(|natural| natural.times >= room) {
                Some(natural) => natural,
                None => NaturalOrder::new(&plan, &backend, &device, room)?,
            };
            let natural = state.natural.insert(natural);
            for first in (0..times).step_by(natural.times) {
                let piece = natural.times.min(times - first);
                let layout = natural.turn(&plan, &spectra, first, piece, stream)?;
                state.engine.enqueue(&mut natural.memory, layout, None, stream)?;
            }
            Ok(())
        })
    }

    /// Reads all sums, converted to double precision.
    fn sums(&mut self, py: Python<'_>, sums: &mut [Complex64], counts: &mut [u64]) -> PyResult<()> {
        let (channels, is_float) =
            (self.plan.channels(), self.plan.encoding() == VoltageEncoding::ComplexF32);
        let (row, baselines) = (self.plan.row_elements(), self.plan.baselines());
        let engine = &mut self.state().engine;
        detached(py, || {
            if is_float {
                return engine.read(0..channels, Output::Float(sums), counts);
            }
            let mut exact = vec![Complex::<i64>::default(); row];
            for channel in 0..channels {
                let counts = &mut counts[channel * baselines..][..baselines];
                engine.read(channel..channel + 1, Output::Integer(&mut exact), counts)?;
                let sums = sums[channel * row..][..row].iter_mut();
                let double = |sum: &Complex<i64>| Complex64::new(sum.re as f64, sum.im as f64);
                sums.zip(&exact).for_each(|(to, from)| *to = double(from));
            }
            Ok(())
        })
    }
}

#[pymethods]
impl Correlator {
    #[new]
    #[pyo3(signature = (antennas, channels, *, pols=2, encoding="complex64", precision="f32", device="cpu", threads=0))]
    fn new(
        py: Python<'_>,
        antennas: i64,
        channels: i64,
        pols: i64,
        encoding: &str,
        precision: &str,
        device: &str,
        threads: i64,
    ) -> PyResult<Self> {
        let samples = Samples::named(encoding)?;
        let options = Options {
            antennas: count("antennas", antennas)?,
            polarizations: count("pols", pols)?,
            channels: count("channels", channels)?,
            encoding: samples.encoding,
        };
        Self::bound(py, Arguments { options, precision, device, threads }, samples)
    }

    /// Adds spectra to the sums.
    ///
    /// Parameters
    /// ----------
    /// x : array
    ///     Axes: time, antenna, polarization and channel, as `channelize` returns them. The axis of the polarization
    ///     may be missing if there is one. It need not be contiguous; it is copied unless its memory has the order
    ///     antenna, polarization, time and channel. On a GPU it must be contiguous complex64, which is transposed
    ///     there, or its memory have the order channel, antenna, polarization and time with rows at multiples of 16
    ///     bytes. After an exception that is not about the arguments, `reset` begins a new integration.
    fn push(&mut self, x: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = x.py();
        let given = Given::of("x", x)?;
        if let Some(given) = given {
            return self.push_on_gpu(py, &given);
        }
        let x = &host_of(x, None)?;
        let ordered = ordered(&split_pairs(x)?, self.samples.is_paired, self.plan.polarizations())?;
        let array = Readable::new("x", &ordered)?;
        self.samples.check(&array.kind())?;
        let times = array.shape().get(2).copied().unwrap_or(0);
        let mut expected = self.shape(times);
        expected[..3].rotate_left(1);
        if array.shape() != expected {
            return Err(self.wrong_shape(&x.getattr("shape")?.repr()?.to_string()));
        }
        let step = (PIECE / self.plan.packed_bytes(1)).max(1).next_multiple_of(2);
        let bytes = array.bytes()?;
        for first in (0..times).step_by(step) {
            let state = self.state();
            let rows = Rows { bytes, times, first };
            detached(py, || state.add(rows, step.min(times - first)))?;
            py.check_signals()?;
        }
        Ok(())
    }

    /// Reads the sums.
    ///
    /// Parameters
    /// ----------
    /// reset : bool, default True
    ///     Whether the next spectra begin another integration.
    ///
    /// Returns
    /// -------
    /// Visibilities
    #[pyo3(signature = (reset=true))]
    fn read<'py>(&mut self, py: Python<'py>, reset: bool) -> PyResult<Bound<'py, PyAny>> {
        let plan = &self.plan;
        let (channels, baselines, pairs) = (plan.channels(), plan.baselines(), plan.pairs());
        let sums = empty::<Complex64>(py, &[channels, baselines, pairs])?;
        let counts = empty::<u64>(py, &[channels, baselines])?;
        {
            let mut sums = sums.try_readwrite().map_err(PyErr::from)?;
            let mut counts = counts.try_readwrite().map_err(PyErr::from)?;
            self.sums(py, sums.as_slice_mut()?, counts.as_slice_mut()?)?;
        }
        let spectra = self.state().engine.times();
        if reset {
            self.reset();
        }
        let about = PyDict::new(py);
        about.set_item("antennas", self.plan.antennas())?;
        about.set_item("pols", self.plan.polarizations())?;
        about.set_item("spectra", spectra)?;
        let class = py.import("sidereal_dsp._visibilities")?.getattr("Visibilities")?;
        class.call((sums, counts), Some(&about))
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(not_pickled::<Self>(
            py,
            "make one in each process, and add the sums that `read` returns",
        ))
    }

    /// Begins another integration.
    fn reset(&mut self) {
        self.state().engine.reset();
    }
}

/// Returns spectra with the axes antenna, polarization, time and channel in contiguous memory.
fn ordered<'py>(
    x: &Bound<'py, PyAny>,
    is_paired: bool,
    pols: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let axes: usize = x.getattr("ndim").and_then(|axes| axes.extract()).unwrap_or(0);
    let numpy = x.py().import("numpy")?;
    let pair = usize::from(is_paired);
    let x = match axes {
        _ if axes == 3 + pair && pols == 1 => numpy.call_method1("expand_dims", (x, 2))?,
        _ if axes == 4 + pair => x.clone(),
        _ => {
            let rule = "it must have the axes time, antenna, polarization and channel";
            return Err(refused("x", format!("an array of {axes} axes"), rule));
        }
    };
    let order: Vec<usize> = [vec![1, 2, 0, 3], vec![4; pair]].concat();
    let x = x.call_method1("transpose", (order,))?;
    numpy.call_method1("ascontiguousarray", (x,))
}

/// Correlates the spectra of all antennas of an array.
///
/// Parameters
/// ----------
/// x : array
///     Axes: time, antenna, polarization and channel, as `channelize` returns them; without the axis of the
///     polarization if there is one.
/// encoding : str, optional
///     Encoding of the spectra where the type does not decide it; see `Correlator`.
/// device : str, optional
///     Name of one of `devices`; by default that of the array.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Returns
/// -------
/// Visibilities
///     Sums over all times.
#[pyfunction]
#[pyo3(signature = (x, *, encoding=None, device=None, threads=0))]
pub(crate) fn correlate<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    encoding: Option<&str>,
    device: Option<&str>,
    threads: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let given = Given::of("x", x)?;
    let device = &device_word(device, given.as_ref());
    let x = &host_of(x, given.as_ref())?;
    let (kind, shape) = match &given {
        Some(given) => (given.elements.name.to_owned(), given.shape.clone()),
        None => {
            let split = split_pairs(x)?;
            let numpy = py.import("numpy")?;
            let array = Readable::new("x", &numpy.call_method1("ascontiguousarray", (&split,))?)?;
            (array.kind(), split.getattr("shape")?.extract()?)
        }
    };
    let samples = Samples::of(encoding, x, &kind)?;
    let axes = shape.len() - usize::from(samples.is_paired).min(shape.len());
    let (antennas, polarizations, channels) = match shape[..axes] {
        [_, antennas, channels] => (antennas, 1, channels),
        [_, antennas, pols, channels] => (antennas, pols, channels),
        _ => {
            let rule = "it must have the axes time, antenna, polarization and channel";
            return Err(refused("x", format!("an array of {axes} axes"), rule));
        }
    };
    let options = Options { antennas, polarizations, channels, encoding: samples.encoding };
    let arguments = Arguments { options, precision: "f32", device, threads };
    let mut correlator = Correlator::bound(py, arguments, samples)?;
    correlator.push(x)?;
    correlator.read(py, false)
}
