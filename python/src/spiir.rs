//! Template waveforms, filter banks, and their filtering of whitened strain.

use std::sync::{Arc, Mutex, PoisonError};

use numpy::{Complex32, Complex64, IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};
use sidereal::backend::cuda::{self, Buffer};
use sidereal::pipeline::cbc::{self, Source};
use sidereal::spiir::bank;
use sidereal::spiir::coincidence::TimedTrigger;
use sidereal::spiir::trigger::{Finder, Ratios, Trigger, TriggerOptions};
use sidereal::spiir::{DeviceOutput, DeviceSamples, Spiir as Engine};
use sidereal::strain::{self, Binary};
use sidereal::units::Gps;
use sidereal::waveform::{self, Approximant, InspiralOptions};

use crate::arguments::{Unit, backend, device_of, kind};
use crate::arrays::{Readable, output};
use crate::binaries::{bank_options, gps};
use crate::device::{Target, on_stream, view};
use crate::errors::{detached, raised, refused};
use crate::given::{Given, gpu_of};
use crate::pickle::{Remade, not_pickled, remade, with_temporary};
use crate::strain::{Psd, whole_rate};

/// Samples of all templates between two checks for signals.
const PIECE: usize = 1 << 22;

/// Gravitational wave of a template, face-on at 1 Mpc unless another distance is given.
///
/// Parameters
/// ----------
/// name : str
///     Name of the template.
/// samples : array of complex128
///     ``h_plus - 1j * h_cross``; axis: time.
/// sample_rate : int or Quantity
///     Sampling rate, a whole number of Hz.
/// distance : float, default 1
///     Distance of the source, Mpc.
#[pyclass(frozen, module = "sidereal_dsp")]
#[derive(Clone, Debug)]
pub(crate) struct Waveform {
    wave: strain::Waveform,
}

#[pymethods]
impl Waveform {
    #[new]
    #[pyo3(signature = (name, samples, sample_rate, *, distance=1.0))]
    fn new(
        name: String,
        samples: &Bound<'_, PyAny>,
        sample_rate: &Bound<'_, PyAny>,
        distance: f64,
    ) -> PyResult<Self> {
        let rule = "it must be an array of complex128 with one axis";
        let wrong = || refused("samples", kind(samples), rule);
        let array = samples.cast::<PyArray1<Complex64>>().map_err(|_| wrong())?;
        let numpy = samples.py().import("numpy")?;
        let array = numpy.call_method1("require", (array, "complex128", ["C", "A"]))?;
        let array: PyReadonlyArray1<'_, Complex64> = array.extract().map_err(|_| wrong())?;
        let samples = array.as_array().to_vec();
        let rate_hz = whole_rate(sample_rate)?;
        let wave = strain::Waveform::new(name, None, rate_hz, samples, distance);
        Ok(Self { wave: wave.map_err(raised)? })
    }

    /// Name of the template.
    #[getter]
    fn name(&self) -> &str {
        &self.wave.name
    }

    /// ``h_plus - 1j * h_cross``; a complex128 array of shape (samples,).
    #[getter]
    fn samples<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<Complex64>> {
        PyArray1::from_slice(py, &self.wave.samples)
    }

    /// Sampling rate, Hz.
    #[getter]
    fn sample_rate(&self) -> u32 {
        self.wave.rate_hz
    }

    /// Index of the sample of the greatest amplitude: the event's time.
    #[getter]
    fn peak(&self) -> usize {
        self.wave.peak
    }

    fn __len__(&self) -> usize {
        self.wave.samples.len()
    }

    fn __repr__(&self) -> String {
        let strain::Waveform { name, rate_hz, .. } = &self.wave;
        format!("<Waveform {name}: {} s at {rate_hz} Hz>", self.wave.duration_s())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Remade<'py>> {
        let strain::Waveform { name, approximant, rate_hz, peak, distance_mpc, .. } = &self.wave;
        let binary = self
            .wave
            .binary
            .map(|binary| [binary.mass1_msun, binary.mass2_msun, binary.spin1z, binary.spin2z]);
        let (approximant, samples) = (approximant.as_deref(), self.samples(py));
        let parts = (name, samples, *rate_hz, *distance_mpc, binary, approximant, *peak);
        remade::<Self>(py, parts)
    }

    /// Makes a waveform from its attributes, the binary's masses and spins among them.
    #[classmethod]
    #[pyo3(name = "_of")]
    fn of(
        _class: &Bound<'_, PyType>,
        name: String,
        samples: &Bound<'_, PyAny>,
        sample_rate: &Bound<'_, PyAny>,
        distance: f64,
        binary: Option<[f64; 4]>,
        approximant: Option<String>,
        peak: usize,
    ) -> PyResult<Self> {
        let Self { wave } = Self::new(name, samples, sample_rate, distance)?;
        if peak >= wave.samples.len() {
            let rule = format!("there are {} samples", wave.samples.len());
            return Err(refused("peak", peak, rule));
        }
        let binary = binary.map(|[mass1_msun, mass2_msun, spin1z, spin2z]| Binary {
            mass1_msun,
            mass2_msun,
            spin1z,
            spin2z,
        });
        Ok(Self { wave: strain::Waveform { binary, approximant, peak, ..wave } })
    }
}

/// Makes the waveform of a compact binary.
///
/// Parameters
/// ----------
/// mass1, mass2 : float
///     Detector-frame masses, solar masses.
/// spin1z, spin2z : float, default 0
///     Spins along the orbit's angular momentum, -1 to 1.
/// sample_rate : int or Quantity, default 4096
///     Sampling rate, a whole number of Hz.
/// f_low : float or Quantity, default 15
///     Frequency at which the wave begins, Hz.
/// approximant : str, optional
///     ``TaylorT4``, ``TaylorT2`` or ``IMRPhenomD``; by default the latter above 4 solar masses in total, the first below.
///
/// Returns
/// -------
/// Waveform
///     Face-on at 1 Mpc.
#[pyfunction]
#[pyo3(signature = (mass1, mass2, *, spin1z=0.0, spin2z=0.0, sample_rate=None, f_low=None, approximant=None))]
pub(crate) fn inspiral(
    py: Python<'_>,
    mass1: f64,
    mass2: f64,
    spin1z: f64,
    spin2z: f64,
    sample_rate: Option<&Bound<'_, PyAny>>,
    f_low: Option<&Bound<'_, PyAny>>,
    approximant: Option<&str>,
) -> PyResult<Waveform> {
    let binary = Binary { mass1_msun: mass1, mass2_msun: mass2, spin1z, spin2z };
    let known = [Approximant::TaylorT4, Approximant::TaylorT2, Approximant::IMRPhenomD];
    let approximant = match approximant {
        None => Approximant::usual(&binary),
        Some(word) => known.into_iter().find(|known| known.name() == word).ok_or_else(|| {
            refused("approximant", word, "there are TaylorT4, TaylorT2 and IMRPhenomD")
        })?,
    };
    let mut options = InspiralOptions { approximant, ..InspiralOptions::default() };
    if let Some(rate) = sample_rate {
        options.rate_hz = whole_rate(rate)?;
    }
    if let Some(f_low) = f_low {
        options.f_low_hz = Unit::Hertz.number("f_low", f_low)?;
    }
    Ok(Waveform { wave: detached(py, || waveform::inspiral(&binary, &options))? })
}

/// Filter bank of several templates for one power spectrum, made by `design`.
#[pyclass(frozen, module = "sidereal_dsp")]
#[derive(Clone, Debug)]
pub(crate) struct Bank {
    pub(crate) bank: Arc<bank::Bank>,
}

#[pymethods]
impl Bank {
    /// Names of the templates, in the order of the filters' rows.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.bank.templates.iter().map(|template| template.name.clone()).collect()
    }

    /// Match between the filters and each whitened template, 0 to 1; a float64 array of shape (templates,).
    #[getter]
    fn fits<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.column(py, |template| template.fit)
    }

    /// Distance at which an optimally oriented source has a signal-to-noise ratio of 8, Mpc; a float64 array of shape
    /// (templates,).
    #[getter]
    fn horizons<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.column(py, |template| template.horizon_mpc)
    }

    /// Time of an event after that of the sample at which its ratio peaks, s; a float64 array of shape (templates,).
    #[getter]
    fn peak_offsets<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.column(py, |template| template.peak_offset_s)
    }

    /// Templates without filters: their names and the reasons.
    #[getter]
    fn left_out(&self) -> Vec<(String, String)> {
        let left_out = self.bank.left_out.iter();
        left_out.map(|one| (one.name.clone(), one.reason.clone())).collect()
    }

    /// Sampling rate, Hz.
    #[getter]
    fn sample_rate(&self) -> u32 {
        self.bank.rate_hz
    }

    fn __len__(&self) -> usize {
        self.bank.templates.len()
    }

    fn __repr__(&self) -> String {
        let filters = self.bank.templates.iter().map(|template| template.filters.filters());
        let filters: usize = filters.sum();
        format!("<Bank: {} templates of {filters} filters>", self.bank.templates.len())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Remade<'py>> {
        let contents = with_temporary(py, "bank.h5", |path| {
            detached(py, || cbc::write_bank(path, &self.bank, "", ""))?;
            Ok(std::fs::read(path)?)
        })?;
        remade::<Self>(py, (PyBytes::new(py, &contents),))
    }

    /// Makes a bank from the contents of its file.
    #[classmethod]
    #[pyo3(name = "_of")]
    fn of(class: &Bound<'_, PyType>, contents: &[u8]) -> PyResult<Self> {
        let py = class.py();
        with_temporary(py, "bank.h5", |path| {
            std::fs::write(path, contents)?;
            let (bank, _) = detached(py, || cbc::read_bank(path))?;
            Ok(Self { bank: Arc::new(bank) })
        })
    }
}

impl Bank {
    fn column<'py>(
        &self,
        py: Python<'py>,
        of: impl Fn(&strain::BankTemplate) -> f64,
    ) -> Bound<'py, PyArray1<f64>> {
        self.bank.templates.iter().map(of).collect::<Vec<_>>().into_pyarray(py)
    }
}

/// Designs the filters of templates for noise of a power spectrum, as ``sidereal spiir search`` does.
///
/// Parameters
/// ----------
/// waveforms : list of Waveform
///     Templates, all of one sampling rate.
/// psd : Psd
///     Spectrum of the strain, up to half the rate or beyond.
/// f_low : float or Quantity, default 20
///     Lowest frequency used, Hz.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Returns
/// -------
/// Bank
///     For strain that `whiten` has whitened with zero phase.
#[pyfunction]
#[pyo3(signature = (waveforms, psd, *, f_low=None, threads=0))]
pub(crate) fn design(
    py: Python<'_>,
    waveforms: Vec<PyRef<'_, Waveform>>,
    psd: PyRef<'_, Psd>,
    f_low: Option<&Bound<'_, PyAny>>,
    threads: i64,
) -> PyResult<Bank> {
    let f_low_hz = f_low.map_or(Ok(20.0), |f_low| Unit::Hertz.number("f_low", f_low))?;
    let Some(first) = waveforms.first() else {
        return Err(refused("waveforms", "an empty list", "a bank has one template at least"));
    };
    let rate_hz = first.wave.rate_hz;
    if let Some(other) = waveforms.iter().find(|other| other.wave.rate_hz != rate_hz) {
        let rule = format!("{} has {rate_hz} Hz, and a bank one rate", first.wave.name);
        return Err(refused("sample_rate", other.wave.rate_hz, rule));
    }
    let waveforms: Vec<_> = waveforms.iter().map(|one| one.wave.clone()).collect();
    let source = Source { waveforms, options: bank_options(f_low_hz, rate_hz) };
    let pool = backend(py, "cpu", threads)?.host().threads();
    let spectrum = &psd.spectrum;
    let bank = detached(py, || cbc::design(&source, spectrum, &pool))?;
    py.check_signals()?;
    Ok(Bank { bank: Arc::new(bank) })
}

/// Filtering of a stream of whitened strain with the templates of a bank.
///
/// Parameters
/// ----------
/// bank : Bank
///     Filters, from `design`.
/// device : str, default "cpu"
///     Name of one of `devices`.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Notes
/// -----
/// Any split of a stream into blocks gives the same bits.
#[pyclass(module = "sidereal_dsp")]
pub(crate) struct Spiir {
    engine: Mutex<Engine>,
    gpu: Option<cuda::Device>,
    templates: usize,
    latency: usize,
    consumed: u64,
    /// Whether the latest samples were in a GPU's memory.
    is_on_gpu: bool,
}

impl Spiir {
    fn engine(&mut self) -> &mut Engine {
        self.engine.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the ratios that `times` more samples give to each template.
    fn produced(&self, times: usize) -> usize {
        let latency = self.latency as u64;
        let before = self.consumed.saturating_sub(latency);
        ((self.consumed + times as u64).saturating_sub(latency) - before) as usize
    }

    /// Filters samples of the host.
    fn run<'py>(
        &mut self,
        py: Python<'py>,
        samples: &[f32],
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (templates, times) = (self.templates, self.produced(samples.len()));
        let mut ratios = output::<Complex32>(py, out, &[templates, times])?;
        let all = ratios.as_slice_mut()?;
        let step = (PIECE / templates.max(1)).max(1);
        let mut part: Vec<Complex32> = Vec::new();
        let mut done = 0;
        for piece in samples.chunks(step) {
            // The library writes from the start of rows that have an element for each sample.
            part.resize(templates * piece.len(), Complex32::default());
            let engine = self.engine();
            let produced = detached(py, || engine.run(piece, &mut part, piece.len()))?.produced;
            self.consumed += piece.len() as u64;
            if produced > 0 {
                let rows = part.chunks_exact(piece.len()).zip(all.chunks_exact_mut(times));
                rows.for_each(|(from, to)| {
                    to[done..done + produced].copy_from_slice(&from[..produced]);
                });
            }
            done += produced;
            py.check_signals()?;
        }
        self.is_on_gpu = false;
        Ok(ratios.as_any().clone())
    }

    /// Filters samples in a GPU's memory, or as many zeros, and leaves the result there.
    fn run_on_gpu<'py>(
        &mut self,
        py: Python<'py>,
        x: Option<&Given<'py>>,
        samples: usize,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let device = gpu_of(x, self.gpu.as_ref())?;
        let (templates, times) = (self.templates, self.produced(samples));
        let mut target = Target::new(x, out, &[templates, times], "complex64", &device)?;
        let input: Buffer<f32> = match x {
            Some(x) => {
                x.wait(py, &device)?;
                x.buffer(&device)?
            }
            None => {
                let zeros = vec![0.0_f32; samples];
                detached(py, || device.upload(&zeros))?
            }
        };
        let (engine, memory) = (self.engine(), target.memory());
        let part = on_stream(py, &device, |stream| {
            let input = DeviceSamples { buffer: &input, first: 0, times: samples };
            if times == samples {
                let mut ratios = view::<Complex32>(memory)?;
                let output = DeviceOutput { buffer: &mut ratios, first: 0, stride: times };
                engine.enqueue(input, output, stream)?;
                return Ok((Some(ratios), None));
            }
            // The library needs rows that have an element for each sample.
            let mut part = device.buffer::<Complex32>(templates * samples)?;
            let output = DeviceOutput { buffer: &mut part, first: 0, stride: samples };
            engine.enqueue(input, output, stream)?;
            let mut ratios = view::<Complex32>(memory)?;
            for template in 0..if times > 0 { templates } else { 0 } {
                let first = template * samples;
                stream.copy(&part, first..first + times, &mut ratios, template * times)?;
            }
            Ok((Some(ratios), Some(part)))
        })?;
        drop(part);
        self.consumed += samples as u64;
        self.is_on_gpu = true;
        target.finish(py)
    }
}

#[pymethods]
impl Spiir {
    #[new]
    #[pyo3(signature = (bank, *, device="cpu", threads=0))]
    fn new(py: Python<'_>, bank: PyRef<'_, Bank>, device: &str, threads: i64) -> PyResult<Self> {
        let plan = bank.bank.plan().map_err(raised)?;
        let backend = backend(py, device, threads)?;
        let (templates, latency) = (plan.templates(), plan.latency());
        let engine = Mutex::new(detached(py, || Engine::new(plan, &backend))?);
        let gpu = device_of(&backend);
        Ok(Self { engine, gpu, templates, latency, consumed: 0, is_on_gpu: false })
    }

    /// Filters the next samples.
    ///
    /// Parameters
    /// ----------
    /// x : array of float32
    ///     Whitened strain; axis: time; contiguous. The result of an array on a GPU stays there.
    /// out : array, optional
    ///     Array of the result's shape and type, to be overwritten.
    ///
    /// Returns
    /// -------
    /// array of complex64
    ///     Signal-to-noise ratios; axes: template and time. Each quadrature of noise has unit variance. They begin
    ///     `latency` samples late: the first ratio of a stream is that of its first sample. After an exception that is
    ///     not about the arguments, `reset` begins a new stream.
    #[pyo3(signature = (x, *, out=None))]
    fn push<'py>(
        &mut self,
        x: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rule = "it must be of float32, with one axis";
        if let Some(given) = Given::of("x", x)? {
            let ([times], "float32") = (given.shape.as_slice(), given.elements.name) else {
                let found =
                    format!("an array of {} with {} axes", given.elements.name, given.shape.len());
                return Err(refused("x", found, rule));
            };
            given.check_contiguous()?;
            return self.run_on_gpu(x.py(), Some(&given), *times, out);
        }
        match Readable::new("x", x)? {
            Readable::F32(samples) if samples.as_array().ndim() == 1 => {
                self.run(x.py(), samples.as_slice()?, out)
            }
            other => {
                let found =
                    format!("an array of {} with {} axes", other.kind(), other.shape().len());
                Err(refused("x", found, rule))
            }
        }
    }

    /// Ends the stream and begins another one.
    ///
    /// Returns
    /// -------
    /// array or DeviceArray of complex64
    ///     Where the latest samples were. Their ratios, as if zeros followed; axes: template and time.
    fn flush<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rest = match self.is_on_gpu {
            true => self.run_on_gpu(py, None, self.latency, None)?,
            false => {
                let zeros = vec![0.0; self.latency];
                self.run(py, &zeros, None)?
            }
        };
        self.reset();
        Ok(rest)
    }

    /// Begins a new stream.
    fn reset(&mut self) {
        (self.consumed, self.is_on_gpu) = (0, false);
        self.engine().reset();
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(not_pickled::<Self>(py, "make one in each process, where its stream is"))
    }

    /// Samples that must follow one before its ratios are known.
    #[getter]
    fn latency(&self) -> usize {
        self.latency
    }
}

/// Finds the triggers of templates: peaks of their signal-to-noise ratios.
///
/// Parameters
/// ----------
/// z : array of complex64
///     Signal-to-noise ratios of a whole stream, from `Spiir`; axes: template and time; contiguous.
/// bank : Bank
///     Its filters.
/// t0 : float, Quantity or Time
///     GPS time of the first sample, s.
/// valid : array of bool, optional
///     Samples that may be used, as `whiten` returns them.
/// threshold : float, default 4
///     Lowest signal-to-noise ratio of a trigger.
/// window : float or Quantity, default 0.1
///     Time on either side within which a trigger is the greatest of its template, s.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Returns
/// -------
/// recarray
///     Shape (triggers,). Fields: ``template`` (uint32, row of `z`), ``gps`` (float64, time of the event, s), ``snr``,
///     ``phase`` (float32, radians) and ``xi2`` (float32: 1 on average in noise and for a signal equal to the template).
#[pyfunction]
#[pyo3(signature = (z, bank, t0, *, valid=None, threshold=4.0, window=None, threads=0))]
pub(crate) fn find_triggers<'py>(
    py: Python<'py>,
    z: &Bound<'py, PyAny>,
    bank: PyRef<'py, Bank>,
    t0: &Bound<'py, PyAny>,
    valid: Option<&Bound<'py, PyAny>>,
    threshold: f64,
    window: Option<&Bound<'py, PyAny>>,
    threads: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let bank = &bank.bank;
    let array = Readable::new("z", z)?;
    let [templates, times] = array.plane("z", "template and time")?;
    let Readable::Complex(ratios) = &array else {
        return Err(refused("z", format!("an array of {}", array.kind()), "it must be complex64"));
    };
    if templates != bank.templates.len() {
        let rule = format!("the bank has {} templates", bank.templates.len());
        return Err(refused("rows of z", templates, rule));
    }
    let flags = match valid {
        None => vec![true; times],
        Some(valid) => {
            let rule = format!("it must be an array of {times} bools");
            let flags: PyReadonlyArray1<'_, bool> =
                valid.extract().map_err(|_| refused("valid", kind(valid), &*rule))?;
            if flags.as_array().len() != times {
                return Err(refused("length of valid", flags.as_array().len(), rule));
            }
            flags.as_array().to_vec()
        }
    };
    let mut options = TriggerOptions::new(bank.rate_hz);
    options.threshold = threshold as f32;
    if let Some(window) = window {
        options.window_s = Unit::Second.number("window", window)?;
    }
    let start = gps("t0", t0)?;
    let plan = bank.trigger_plan(options).map_err(raised)?;
    let backend = backend(py, "cpu", threads)?;
    let z = Ratios { z: ratios.as_slice()?, stride: times, times };
    let mut found: Vec<Trigger> = Vec::new();
    detached(py, || {
        let mut finder = Finder::new(plan, &backend)?;
        finder.run(z, &flags, &mut found)?;
        finder.flush(&mut found)
    })?;
    py.check_signals()?;
    let timed = found.iter().map(|trigger| {
        let offset_s = bank.templates[trigger.template as usize].peak_offset_s;
        TimedTrigger::new(trigger, start, bank.rate_hz, offset_s)
    });
    triggers(py, &timed.collect::<Vec<_>>())
}

/// Makes a record array of triggers.
///
/// # Errors
/// Any of Python's.
fn triggers<'py>(py: Python<'py>, triggers: &[TimedTrigger]) -> PyResult<Bound<'py, PyAny>> {
    fn column<T: numpy::Element>(
        triggers: &[TimedTrigger],
        py: Python<'_>,
        of: impl Fn(&TimedTrigger) -> T,
    ) -> Py<PyAny> {
        triggers.iter().map(of).collect::<Vec<T>>().into_pyarray(py).into_any().unbind()
    }
    let columns = (
        column(triggers, py, |one| one.template),
        column(triggers, py, |one| one.gps.s()),
        column(triggers, py, |one| one.snr),
        column(triggers, py, |one| one.phase),
        column(triggers, py, |one| one.xi2),
    );
    let names = PyDict::new(py);
    names.set_item("names", "template,gps,snr,phase,xi2")?;
    py.import("numpy")?.getattr("rec")?.call_method("fromarrays", (columns,), Some(&names))
}

/// Returns triggers from a record array, as [`find_triggers`] makes it.
///
/// # Errors
/// `ParameterError` for another object.
pub(crate) fn triggers_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<TimedTrigger>> {
    let wrong = || refused("triggers", kind(value), "they must be what `find_triggers` returns");
    let column = |name: &str| value.get_item(name).map_err(|_| wrong());
    let numbers = |name: &str| Unit::One.numbers("triggers", &column(name)?);
    let (templates, times) = (numbers("template")?, numbers("gps")?);
    let (snr, phase, xi2) = (numbers("snr")?, numbers("phase")?, numbers("xi2")?);
    let lengths = [times.len(), snr.len(), phase.len(), xi2.len()];
    if lengths != [templates.len(); 4] {
        return Err(wrong());
    }
    let trigger = |at: usize| {
        if !(0.0..=4e9).contains(&times[at]) || !(0.0..4e9).contains(&templates[at]) {
            return Err(wrong());
        }
        Ok(TimedTrigger {
            template: templates[at] as u32,
            gps: Gps::from_s(times[at]),
            snr: snr[at] as f32,
            phase: phase[at] as f32,
            xi2: xi2[at] as f32,
        })
    };
    (0..templates.len()).map(trigger).collect()
}
