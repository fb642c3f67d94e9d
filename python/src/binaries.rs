//! Search for compact binaries in the strain of several detectors.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use sidereal::io::strain::{self as files, OpenOptions};
use sidereal::io::templates::Templates;
use sidereal::pipeline::cbc::{
    self, ChirpSearch, Input, PlaceOptions, Range, Recording, Report, SearchOptions, Source, Space,
    Spectrum, Whitening, harmonic_mean, place, waveforms,
};
use sidereal::spiir::Resampler;
use sidereal::spiir::bank::{Bank, Options, Rates, usual_autocorrelation_length};
use sidereal::spiir::coincidence::{self, Ranking, Sample, TimedTrigger};
use sidereal::spiir::whiten::{Average, GateOptions, Method, WelchOptions};
use sidereal::strain::Binary;
use sidereal::units::Gps;
use sidereal::waveform::InspiralOptions;
use sidereal::{Error, Result};

use crate::arguments::{Unit, backend, count};
use crate::errors::{Interruption, detached, refused};
use crate::pickle::{Remade, remade};
use crate::recording::paths;
use crate::strain::{Checked, Psd};

/// Strain of one detector.
///
/// Parameters
/// ----------
/// detector : str
///     Name of the detector: ``H1``, ``L1``, ``V1``, ``K1`` or ``G1``.
/// samples : array of float64
///     Axis: time; contiguous.
/// sample_rate : int or Quantity
///     Sampling rate, a whole number of Hz.
/// t0 : float, Quantity or Time
///     GPS time of the first sample, s.
/// valid : array of bool, optional
///     Samples that may be used; those that are not finite never are.
#[pyclass(frozen, module = "sidereal_dsp")]
pub(crate) struct Strain {
    /// Name of the detector.
    #[pyo3(get)]
    detector: String,
    start: Gps,
    /// Sampling rate, Hz.
    #[pyo3(get)]
    sample_rate: u32,
    /// Samples; a float64 array.
    #[pyo3(get)]
    samples: Py<PyArray1<f64>>,
    /// Whether each sample may be used; an array of bool.
    #[pyo3(get)]
    valid: Py<PyArray1<bool>>,
}

#[pymethods]
impl Strain {
    #[new]
    #[pyo3(signature = (detector, samples, sample_rate, t0, *, valid=None))]
    fn new(
        detector: String,
        samples: &Bound<'_, PyAny>,
        sample_rate: &Bound<'_, PyAny>,
        t0: &Bound<'_, PyAny>,
        valid: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = samples.py();
        let checked = Checked::new(samples, sample_rate, valid)?;
        let flags = checked.valid.clone().into_pyarray(py).unbind();
        checked.samples()?;
        let array = samples.cast::<PyArray1<f64>>()?.clone().unbind();
        let (start, sample_rate) = (gps("t0", t0)?, checked.rate_hz);
        Ok(Self { detector, start, sample_rate, samples: array, valid: flags })
    }

    /// GPS time of the first sample, s.
    #[getter]
    fn t0(&self) -> f64 {
        self.start.s()
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.samples.bind(py).len()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let seconds = self.samples.bind(py).len()? as f64 / f64::from(self.sample_rate);
        let Self { detector, sample_rate, .. } = self;
        let t0 = self.t0();
        Ok(format!("<Strain of {detector}: {seconds} s at {sample_rate} Hz from GPS {t0}>"))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Remade<'py>> {
        let Self { detector, start, sample_rate, samples, valid } = self;
        remade::<Self>(py, (detector.as_str(), samples, *sample_rate, start.ns, valid))
    }

    /// Makes strain from its attributes, the start in nanoseconds.
    #[classmethod]
    #[pyo3(name = "_of")]
    fn of(
        _class: &Bound<'_, PyType>,
        detector: String,
        samples: &Bound<'_, PyAny>,
        sample_rate: &Bound<'_, PyAny>,
        start_ns: i64,
        valid: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let start = Gps { ns: start_ns };
        let t0 = start.s().into_pyobject(samples.py())?;
        let made = Self::new(detector, samples, sample_rate, t0.as_any(), Some(valid))?;
        Ok(Self { start, ..made })
    }
}

/// Returns a GPS time from seconds, a quantity, or a time of astropy.
///
/// # Errors
/// `ParameterError` for another object, and a time that is not from 0 to 4e9 s.
pub(crate) fn gps(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Gps> {
    // An astropy Time has its GPS seconds in `gps`.
    let seconds = if value.hasattr("gps")? { value.getattr("gps")? } else { value.clone() };
    let seconds = Unit::Second.number(name, &seconds)?;
    if !(0.0..=4e9).contains(&seconds) {
        return Err(refused(name, seconds, "it must be GPS seconds, 0 to 4e9"));
    }
    Ok(Gps::from_s(seconds))
}

impl Strain {
    /// Copies the strain for a search, with zeros in place of invalid samples.
    fn recording(&self, py: Python<'_>) -> PyResult<Recording> {
        let (samples, valid) = (self.samples.bind(py), self.valid.bind(py));
        let samples = samples.try_readonly().map_err(PyErr::from)?;
        let valid = valid.try_readonly().map_err(PyErr::from)?;
        let (samples, flags) = (samples.as_array(), valid.as_array());
        if samples.len() != flags.len() {
            let rule = format!("there are {} samples", samples.len());
            return Err(refused("length of valid", flags.len(), rule));
        }
        // Both arrays may have been changed since they were checked.
        let valid = samples.iter().zip(flags).map(|(sample, flag)| *flag && sample.is_finite());
        let valid: Vec<bool> = valid.collect();
        let samples = samples.iter().zip(&valid);
        Ok(Recording {
            detector: self.detector.clone(),
            path: PathBuf::from(&self.detector),
            start: self.start,
            rate_hz: self.sample_rate,
            samples: samples.map(|(sample, valid)| if *valid { *sample } else { 0.0 }).collect(),
            valid,
        })
    }
}

/// Reads strain: HDF5 of GWOSC or gwpy, frame files (GWF) or NumPy files.
///
/// Parameters
/// ----------
/// paths : path or list of paths
///     The files of one detector, in any order.
/// detector : str, optional
///     Name of the detector, for files without it.
/// channel : str, optional
///     Name of the channel, for files with several.
///
/// Returns
/// -------
/// Strain
#[pyfunction]
#[pyo3(signature = (paths, *, detector=None, channel=None))]
pub(crate) fn read_strain(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    detector: Option<String>,
    channel: Option<String>,
) -> PyResult<Strain> {
    let paths = self::paths(paths)?;
    let options = OpenOptions { detector, channel, ..OpenOptions::default() };
    let recording = detached(py, || Recording::read(files::open_all(&paths, &options)?.as_mut()))?;
    py.check_signals()?;
    let Recording { detector, start, rate_hz, samples, valid, .. } = recording;
    let (samples, valid) = (samples.into_pyarray(py).unbind(), valid.into_pyarray(py).unbind());
    Ok(Strain { detector, start, sample_rate: rate_hz, samples, valid })
}

/// Trigger of one detector. It is made from its attributes in their order.
#[pyclass(frozen, get_all, eq, new = "from_fields", module = "sidereal_dsp")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trigger {
    /// GPS time, s.
    gps: f64,
    /// Signal-to-noise ratio.
    snr: f64,
    /// Phase, radians.
    phase: f64,
    /// Xi-squared: 1 on average in Gaussian noise and for a signal equal to the template.
    xi2: f64,
}

#[pymethods]
impl Trigger {
    fn __getnewargs__(&self) -> (f64, f64, f64, f64) {
        (self.gps, self.snr, self.phase, self.xi2)
    }
}

impl From<&TimedTrigger> for Trigger {
    fn from(trigger: &TimedTrigger) -> Self {
        Self {
            gps: trigger.gps.s(),
            snr: trigger.snr.into(),
            phase: trigger.phase.into(),
            xi2: trigger.xi2.into(),
        }
    }
}

/// Coincident event of several detectors. It is made from its attributes in their order.
#[pyclass(frozen, get_all, new = "from_fields", module = "sidereal_dsp")]
#[derive(Debug)]
pub(crate) struct Event {
    /// GPS time of the trigger of the highest ranking, s.
    gps: f64,
    /// Root of the sum of squares of the signal-to-noise ratios.
    network_snr: f64,
    /// Ranking statistic.
    ranking: f64,
    /// False-alarm rate, Hz: (1 + louder accidental events) / background time, an upper limit if there are none. None
    /// without background.
    far_hz: Option<f64>,
    /// Name of the template, or its index if the bank is not known.
    template: String,
    /// Detector-frame masses of the template, solar masses, the heavier first.
    masses: Option<(f64, f64)>,
    /// Spins of the template along the orbit's angular momentum.
    spins: Option<(f64, f64)>,
    /// Trigger of each detector that has one, by its name.
    triggers: Py<PyDict>,
}

#[pymethods]
impl Event {
    fn __repr__(&self) -> String {
        let Self { gps, network_snr, template, .. } = self;
        format!("<Event: network S/N {network_snr:.2} at GPS {gps:.6}, template {template}>")
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Self { gps, network_snr, ranking, far_hz, template, masses, spins, triggers } = self;
        let template = template.as_str();
        (*gps, *network_snr, *ranking, *far_hz, template, *masses, *spins, triggers)
            .into_pyobject(py)
    }
}

impl Event {
    /// Makes an event of Python from one of the library; `names` are the detectors', and `bank` has the templates.
    pub(crate) fn new(
        py: Python<'_>,
        event: &coincidence::Event,
        names: &[&str],
        bank: Option<&Bank>,
    ) -> PyResult<Self> {
        let triggers = PyDict::new(py);
        for (name, trigger) in names.iter().zip(&event.detectors) {
            if let Some(trigger) = trigger {
                triggers.set_item(name, Trigger::from(trigger).into_pyobject(py)?)?;
            }
        }
        let template = bank.and_then(|bank| bank.templates.get(event.template as usize));
        let binary = template.and_then(|template| template.binary);
        Ok(Self {
            gps: event.gps.s(),
            network_snr: event.network_snr,
            ranking: event.ranking,
            far_hz: event.far_hz,
            template: template.map_or_else(|| event.template.to_string(), |one| one.name.clone()),
            masses: binary.map(|binary| (binary.mass1_msun, binary.mass2_msun)),
            spins: binary.map(|binary| (binary.spin1z, binary.spin2z)),
            triggers: triggers.unbind(),
        })
    }
}

/// Templates of a search.
enum Wanted {
    /// Given binaries.
    Binaries(Vec<Binary>),
    /// Placed for all binaries of these component masses.
    Masses(Range),
}

impl Wanted {
    fn new(masses: Option<Vec<f64>>, templates: Option<Vec<Vec<f64>>>) -> PyResult<Self> {
        match (masses, templates) {
            (Some(range), None) => match *range.as_slice() {
                [low, high] => Ok(Self::Masses(Range::new(low, high))),
                _ => Err(refused(
                    "masses",
                    format!("{range:?}"),
                    "it must be a lowest and a highest",
                )),
            },
            (None, Some(rows)) => {
                let binary = |row: &Vec<f64>| match *row.as_slice() {
                    [mass1_msun, mass2_msun] => Ok(Binary::of_masses(mass1_msun, mass2_msun)),
                    [mass1_msun, mass2_msun, spin1z, spin2z] => {
                        Ok(Binary { mass1_msun, mass2_msun, spin1z, spin2z })
                    }
                    _ => {
                        let rule = "each has two masses, or two masses and two spins";
                        Err(refused("templates", format!("{row:?}"), rule))
                    }
                };
                rows.iter().map(binary).collect::<PyResult<_>>().map(Self::Binaries)
            }
            _ => {
                let rule = "one of `masses` and `templates` is needed";
                Err(refused("masses and templates", "not one of them", rule))
            }
        }
    }

    /// Returns the binaries, placed for the noise of all detectors if they were not given.
    fn binaries(
        self,
        f_low_hz: f64,
        recordings: &[cbc::Strain],
        whitening: &Whitening,
        threads: &sidereal::backend::threads::Threads,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Binary>> {
        let range = match self {
            Self::Binaries(binaries) => return Ok(binaries),
            Self::Masses(range) => range,
        };
        let spectra: Vec<_> = whitening.spectra(recordings).into_iter().collect::<Result<_>>()?;
        let psd = harmonic_mean(&spectra)?;
        let rate_hz = recordings.first().map_or(1, |recording| recording.rate_hz);
        let f_high_hz = f64::from(rate_hz) / 2.0;
        let options =
            PlaceOptions { f_low_hz, f_high_hz, ..PlaceOptions::new(Space::of_masses(range)) };
        let mut progress = |_| if goes_on() { Ok(()) } else { Err(Error::stopped("placement")) };
        Ok(place(&options, &psd, threads, &mut progress)?.binaries)
    }
}

/// Returns the options of filters, as those of `sidereal spiir search`.
pub(crate) fn bank_options(f_low_hz: f64, rate_hz: u32) -> Options {
    Options {
        f_low_hz,
        rates: Rates::Multi { lowest_hz: 128.0_f64.min(rate_hz.into()) },
        resampler: Resampler::linear_phase(384, 32, 100.0),
        autocorrelation_length: usual_autocorrelation_length(rate_hz),
        ..Options::default()
    }
}

/// Searches the strain of several detectors for compact binaries.
///
/// Parameters
/// ----------
/// strain : list of Strain
///     Strain of each detector, all of one rate; it is copied.
/// masses : tuple of float, optional
///     Lowest and highest mass of both bodies in the detector frame, solar masses; templates are placed between them.
/// templates : list of tuples, optional
///     Templates in place of `masses`: two detector-frame masses each, or two masses and two spins.
/// f_low : float or Quantity, default 20
///     Lowest frequency used, Hz.
/// segment : float or Quantity, default 4
///     Length of the segments of the power spectra, s.
/// threshold : float, default 4
///     Lowest signal-to-noise ratio of a trigger.
/// slides : int, default 100
///     Number of time slides for the background; 0 makes none.
/// device : str, default "cpu"
///     Name of one of `devices`.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Returns
/// -------
/// Events
///     By descending ranking: those that ``sidereal spiir search`` finds with the same options.
#[pyfunction]
#[pyo3(signature = (strain, *, masses=None, templates=None, f_low=None, segment=None, threshold=4.0, slides=100,
                    device="cpu", threads=0))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub(crate) fn search_strain<'py>(
    py: Python<'py>,
    strain: Vec<PyRef<'py, Strain>>,
    masses: Option<Vec<f64>>,
    templates: Option<Vec<Vec<f64>>>,
    f_low: Option<&Bound<'py, PyAny>>,
    segment: Option<&Bound<'py, PyAny>>,
    threshold: f64,
    slides: i64,
    device: &str,
    threads: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let wanted = Wanted::new(masses, templates)?;
    let f_low_hz = f_low.map_or(Ok(20.0), |f_low| Unit::Hertz.number("f_low", f_low))?;
    let segment_s = segment.map_or(Ok(4.0), |length| Unit::Second.number("segment", length))?;
    let Some(first) = strain.first() else {
        return Err(refused("strain", "an empty list", "it must have one detector at least"));
    };
    let rate_hz = first.sample_rate;
    let nyquist = f64::from(rate_hz) / 2.0;
    if !(0.1..=nyquist).contains(&f_low_hz) {
        return Err(refused("f_low", f_low_hz, format!("it must be 0.1 to {nyquist}")));
    }
    if !(0.25..=1024.0).contains(&segment_s) {
        return Err(refused("segment", segment_s, "it must be 0.25 to 1024 s"));
    }
    if !(1.0..=1e3).contains(&threshold) {
        return Err(refused("threshold", threshold, "it must be 1 to 1000"));
    }
    if let Some(other) = strain.iter().find(|other| other.sample_rate != rate_hz) {
        let rule = format!("{} has {rate_hz} Hz, and all need one rate", first.detector);
        return Err(refused("sample_rate", other.sample_rate, rule));
    }
    let recordings = strain.iter().map(|strain| strain.recording(py));
    let recordings: Vec<cbc::Strain> =
        recordings.map(|made| made.map(cbc::Strain::from)).collect::<PyResult<_>>()?;
    let length_s = recordings.first().map_or(0.0, cbc::Strain::duration_s);
    let average = Average::usual(length_s, segment_s);
    let whitening = Whitening {
        spectrum: Spectrum::Welch(WelchOptions { segment_s, average, ..WelchOptions::default() }),
        method: Method::Overlap { fft_s: 2.0 * segment_s },
        gate: Some(GateOptions::default()),
    };
    let options = SearchOptions {
        whitening,
        threshold: threshold as f32,
        window_s: 0.1,
        gate_pad_s: 0.25,
        window_pad_s: 0.002,
        slides: count("slides", slides)?,
        slide_interval_s: 0.1,
        cluster_s: 0.5,
        ranking: Ranking::Reweighted,
        background: Sample::Inclusive,
        block: 0,
        memory: None,
    };
    let backend = backend(py, device, threads)?;
    let pool = backend.host().threads();
    let mut interruption = Interruption::default();
    let report = py.detach(|| {
        let mut goes_on = || interruption.no_signal();
        let whitening = &options.whitening;
        let binaries = wanted.binaries(f_low_hz, &recordings, whitening, &pool, &mut goes_on)?;
        let named = binaries.into_iter().map(|binary| (String::new(), binary)).collect();
        let inspirals = InspiralOptions { f_low_hz, rate_hz, ..InspiralOptions::default() };
        let waveforms = waveforms(Templates::Binaries(named), &inspirals, None, &pool)?;
        if !goes_on() {
            return Err(Error::stopped("waveforms"));
        }
        let source = Arc::new(Source { waveforms, options: bank_options(f_low_hz, rate_hz) });
        let with = |recording| (recording, Input::Templates(Arc::clone(&source)));
        let inputs: Vec<_> = recordings.into_iter().map(with).collect();
        ChirpSearch::new(inputs, &options, &backend)?.run(&mut |_| goes_on())
    });
    events(py, &interruption.result(report)?)
}

/// Makes Python's list of events from a report.
fn events<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyAny>> {
    let names: Vec<&str> = report.detectors.iter().map(|one| one.name.as_str()).collect();
    let bank = report.detectors.first().map(|detector| detector.bank.as_ref());
    let found = report.found.events.iter().map(|event| Event::new(py, event, &names, bank));
    let found: Vec<Event> = found.collect::<PyResult<_>>()?;
    let about = PyDict::new(py);
    about.set_item("livetime", report.found.livetime_s)?;
    about.set_item("background_time", report.found.background.time_s)?;
    about.set_item("incomplete", report.ending.reason())?;
    let psds = PyDict::new(py);
    for detector in &report.detectors {
        psds.set_item(&detector.name, Psd::from(detector.psd.clone()).into_pyobject(py)?)?;
    }
    about.set_item("psds", psds)?;
    about.set_item("detectors", names)?;
    let class = py.import("sidereal_dsp._events")?.getattr("Events")?;
    class.call((found,), Some(&about))
}
