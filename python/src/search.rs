//! Search for bursts in files and arrays.

use numpy::{IntoPyArray, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use sidereal::Error;
use sidereal::clean::Rfi;
use sidereal::io::voltages::{self, VoltageOptions};
use sidereal::io::{self, FilterbankHeader, FilterbankSource, OpenOptions};
use sidereal::pipeline::burst::{self, Checkpoint, Observer, SearchOptions, Source, Status};
use sidereal::pipeline::voltage::{ChannelizeOptions, VoltageFilterbank};
use sidereal::single_pulse;
use sidereal::units::SECONDS_PER_DAY;

use crate::arguments::{Unit, Width, backend, band, count, zapped};
use crate::arrays::Readable;
use crate::dedisperse::{DmPlan, PlanArguments};
use crate::errors::{Interruption, detached, refused};
use crate::recording::{ArrayRows, Recording, paths};

/// Burst that a search has found. It is made from its attributes in their order.
#[pyclass(frozen, get_all, eq, module = "sidereal_dsp")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    /// Dispersion measure, pc cm^-3.
    pub(crate) dm: f64,
    /// Centre of the boxcar at the highest frequency, s from the start of the first sample.
    pub(crate) time: f64,
    /// Signal-to-noise ratio.
    pub(crate) snr: f64,
    /// Width of the boxcar, s.
    pub(crate) width: f64,
    /// Number of detections that belong to the burst.
    pub(crate) members: usize,
    /// Index of the trial dispersion measure.
    pub(crate) dm_trial: usize,
    /// Lowest dispersion measure of a member, pc cm^-3.
    dm_min: f64,
    /// Highest dispersion measure of a member, pc cm^-3.
    dm_max: f64,
    /// Earliest start of a member, s.
    pub(crate) begin: f64,
    /// Latest end of a member, s.
    pub(crate) end: f64,
    /// Fraction of the channels that the burst has: below 1 if the start or end of the data cuts off its sweep.
    pub(crate) band_fraction: f64,
}

impl From<&single_pulse::Candidate> for Candidate {
    fn from(found: &single_pulse::Candidate) -> Self {
        Self {
            dm: found.dm,
            time: found.time_s,
            snr: found.snr,
            width: found.width_s,
            members: found.members,
            dm_trial: found.trial,
            dm_min: found.dm_min,
            dm_max: found.dm_max,
            begin: found.begin_s,
            end: found.end_s,
            band_fraction: found.band_fraction,
        }
    }
}

#[pymethods]
impl Candidate {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "attributes of a candidate")]
    fn new(
        dm: f64,
        time: f64,
        snr: f64,
        width: f64,
        members: usize,
        dm_trial: usize,
        dm_min: f64,
        dm_max: f64,
        begin: f64,
        end: f64,
        band_fraction: f64,
    ) -> Self {
        Self { dm, time, snr, width, members, dm_trial, dm_min, dm_max, begin, end, band_fraction }
    }

    fn __repr__(&self) -> String {
        let Self { dm, time, snr, width, .. } = self;
        format!("<Candidate: S/N {snr:.2} at {time:.6} s, DM {dm:.3}, width {width:.6} s>")
    }

    fn __getnewargs__(&self) -> (f64, f64, f64, f64, usize, usize, f64, f64, f64, f64, f64) {
        (
            self.dm,
            self.time,
            self.snr,
            self.width,
            self.members,
            self.dm_trial,
            self.dm_min,
            self.dm_max,
            self.begin,
            self.end,
            self.band_fraction,
        )
    }
}

/// Observer of a search that calls Python.
struct Listener<'a> {
    interruption: &'a mut Interruption,
    on_candidate: Option<&'a Py<PyAny>>,
    found: Vec<single_pulse::Candidate>,
    /// Times, DMs and S/N of the candidates with which Python was called.
    heard: Vec<[f64; 3]>,
    /// Seconds from the recording's first sample to the first row's start.
    delay_s: f64,
}

impl Listener<'_> {
    /// Calls Python with each candidate that it has not heard of; returns false if it raised an exception.
    fn call(&mut self, candidates: &[single_pulse::Candidate]) -> bool {
        let Some(call) = self.on_candidate else { return true };
        let key = |one: &single_pulse::Candidate| [one.time_s, one.dm, one.snr];
        let is_new = |one: &&single_pulse::Candidate| !self.heard.contains(&key(one));
        let new: Vec<single_pulse::Candidate> = candidates.iter().filter(is_new).copied().collect();
        self.heard.extend(new.iter().map(key));
        new.is_empty()
            || self.interruption.goes_on(|py| {
                new.iter().try_for_each(|found| {
                    let mut found = *found;
                    found.shift(self.delay_s);
                    call.call1(py, (Candidate::from(&found),)).map(drop)
                })
            })
    }
}

impl Observer for Listener<'_> {
    fn observe(&mut self, _: &Status) -> bool {
        self.interruption.no_signal()
    }

    fn found(&mut self, candidates: &[single_pulse::Candidate]) -> sidereal::Result<()> {
        self.found.extend_from_slice(candidates);
        if self.call(candidates) { Ok(()) } else { Err(Error::stopped("on_candidate")) }
    }

    fn taken(&mut self) -> sidereal::Result<Vec<single_pulse::Candidate>> {
        Ok(std::mem::take(&mut self.found))
    }

    fn wants_checkpoint(&mut self, _: bool) -> bool {
        false
    }

    fn checkpoint(&mut self, _: &Checkpoint) -> sidereal::Result<()> {
        Ok(())
    }
}

/// Arguments of a search.
struct Arguments<'a, 'py> {
    plan: Option<&'a DmPlan>,
    trials: PlanArguments<'a, 'py>,
    snr: f64,
    max_width: Option<&'a Bound<'py, PyAny>>,
    baseline_length: Option<&'a Bound<'py, PyAny>>,
    rfi: &'a str,
    zap_channels: Option<&'a Bound<'py, PyAny>>,
    zero_dm: bool,
    max_per_minute: i64,
    time_range: Option<Vec<Bound<'py, PyAny>>>,
}

impl Arguments<'_, '_> {
    /// Makes the options for a source.
    fn options(&self, header: &FilterbankHeader) -> PyResult<SearchOptions> {
        let plan = match self.plan {
            Some(plan) => plan.plan.clone(),
            None => self.trials.plan(&header.band, header.tsamp_s)?,
        };
        let rfi = Rfi::parse(self.rfi).map_err(|why| refused("rfi", self.rfi, why))?;
        let mut options = SearchOptions::new(plan);
        options.snr = self.snr;
        if !(0.1..=1e6).contains(&self.snr) {
            return Err(refused("snr", self.snr, "it must be 0.1 to 1e6"));
        }
        if let Some(width) = self.max_width {
            options.max_width_s = Unit::Second.number("max_width", width)?;
        }
        if let Some(length) = self.baseline_length {
            options.baseline_s = Unit::Second.number("baseline_length", length)?;
        }
        let zapped = zapped(self.zap_channels, header.channels())?;
        options.zapped = (0..header.channels()).filter(|channel| zapped[*channel]).collect();
        options.zero_dm = self.zero_dm;
        options.auto_mask = rfi.has_mask();
        options.mitigation = rfi.steps();
        let most = count("max_per_minute", self.max_per_minute)?;
        options.max_per_minute = Some(most).filter(|most| *most > 0);
        if let Some(range) = &self.time_range {
            let [from, to] = range.as_slice() else {
                return Err(refused(
                    "length of time_range",
                    range.len(),
                    "it has a start and an end",
                ));
            };
            let seconds = |value| Unit::Second.number("time_range", value);
            options.time_range = Some((seconds(from)?, seconds(to)?));
        }
        Ok(options)
    }
}

/// Searches a filterbank for dispersed bursts.
///
/// Parameters
/// ----------
/// source : path, list of paths, Recording or array
///     The files of one observation, filterbanks or voltages, or samples of uint8, int8, uint16, int16 or float32 with
///     the axes time and channel, contiguous.
/// freqs : array of float or Quantity, optional
///     Centre of each channel of an array, MHz; shape (channels,).
/// tsamp : float or Quantity, optional
///     Sampling time of an array, s.
/// dm_max : float or Quantity, default 2000
///     Highest dispersion measure, itself a trial, pc cm^-3.
/// dm_min : float or Quantity, default 0
///     Lowest dispersion measure, pc cm^-3.
/// dm_step : float or Quantity, optional
///     Constant step, pc cm^-3; by default steps grow with the dispersion measure.
/// tolerance : float, optional
///     Factor by which a step may broaden a pulse, by default 1.25.
/// plan : DmPlan, optional
///     Trials, in place of the four arguments before.
/// snr : float, default 6
///     Least signal-to-noise ratio.
/// max_width : float or Quantity, default 0.1
///     Widest boxcar, s.
/// baseline_length : float or Quantity, default 2
///     Length over which mean and noise are estimated, s.
/// rfi : str, default "auto"
///     Treatment of interference: ``auto``, ``none`` or names of steps, as ``sidereal search --rfi`` takes them.
/// zap_channels : sequence of int or of bool, optional
///     Channels to leave out: their numbers in recorded order, from 0, or a bool for each channel.
/// zero_dm : bool, default False
///     Whether to subtract the mean of each spectrum.
/// max_per_minute : int, default 1000
///     Most candidates per minute; the strongest are kept. 0 sets no limit.
/// time_range : tuple of float or Quantity, optional
///     Start and end of the time to search, s from the first sample.
/// channels : int, optional
///     Channels per recorded channel of voltages, which need it.
/// taps : int, optional
///     Taps of the filter bank of voltages, by default 8.
/// integrate : int, optional
///     Spectra of voltages summed into one, by default 1.
/// coherent_dm : float or Quantity, optional
///     Dispersion measure whose dispersion within the channels of voltages is removed, pc cm^-3.
/// on_candidate : callable, optional
///     Called with each Candidate when later data can no longer change it. An exception in it ends the search.
/// device : str, default "cpu"
///     Name of one of `devices`.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Returns
/// -------
/// Candidates
///     By descending signal-to-noise ratio: those that ``sidereal search`` finds with the same options.
#[pyfunction]
#[pyo3(signature = (source, *, freqs=None, tsamp=None, dm_max=None, dm_min=None, dm_step=None, tolerance=None,
                    plan=None, snr=6.0, max_width=None, baseline_length=None, rfi="auto", zap_channels=None, zero_dm=false,
                    max_per_minute=1000, time_range=None, channels=None, taps=None, integrate=None, coherent_dm=None,
                    on_candidate=None, device="cpu", threads=0))]
#[expect(clippy::too_many_arguments, reason = "Python's keywords")]
pub(crate) fn search<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    freqs: Option<&Bound<'py, PyAny>>,
    tsamp: Option<&Bound<'py, PyAny>>,
    dm_max: Option<&Bound<'py, PyAny>>,
    dm_min: Option<&Bound<'py, PyAny>>,
    dm_step: Option<&Bound<'py, PyAny>>,
    tolerance: Option<f64>,
    plan: Option<PyRef<'py, DmPlan>>,
    snr: f64,
    max_width: Option<&Bound<'py, PyAny>>,
    baseline_length: Option<&Bound<'py, PyAny>>,
    rfi: &str,
    zap_channels: Option<&Bound<'py, PyAny>>,
    zero_dm: bool,
    max_per_minute: i64,
    time_range: Option<Vec<Bound<'py, PyAny>>>,
    channels: Option<i64>,
    taps: Option<i64>,
    integrate: Option<i64>,
    coherent_dm: Option<&Bound<'py, PyAny>>,
    on_candidate: Option<Py<PyAny>>,
    device: &str,
    threads: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let other = dm_max.or(dm_min).or(dm_step).is_some() || tolerance.is_some();
    if plan.is_some() && other {
        let rule = "dm_max, dm_min, dm_step and tolerance are part of it";
        return Err(refused("plan", "given", rule));
    }
    let coherent = |dm: &Bound<'_, PyAny>| Unit::Dispersion.number("coherent_dm", dm);
    let coherent_dm = coherent_dm.map(coherent).transpose()?;
    let trials = PlanArguments { dm_min, dm_max, dm_step, tolerance, coherent_dm };
    let plan = plan.as_deref();
    let arguments = Arguments {
        plan,
        trials,
        snr,
        max_width,
        baseline_length,
        rfi,
        zap_channels,
        zero_dm,
        max_per_minute,
        time_range,
    };
    let backend = backend(py, device, threads)?;
    let run = |source: Source<'_>| {
        let (header, delay_s) = match &source {
            Source::Rows(rows) => (rows.header().clone(), 0.0),
            Source::Voltages(filterbank) => {
                let geometry = filterbank.geometry();
                let delay_s = geometry.delay_samples * geometry.recorded_tsamp_s;
                (filterbank.header().clone(), delay_s)
            }
        };
        let options = arguments.options(&header)?;
        let mut interruption = Interruption::default();
        let on_candidate = on_candidate.as_ref();
        let report = py.detach(|| {
            let interruption = &mut interruption;
            let (found, heard) = (Vec::new(), Vec::new());
            let mut listener = Listener { interruption, on_candidate, found, heard, delay_s };
            let mut report = burst::search_from(source, &options, &backend, None, &mut listener)?;
            // Those that the end of the data made final.
            let goes_on = listener.call(&report.candidates);
            // Times count from the recording's first sample, as those of the command line.
            report.candidates.iter_mut().for_each(|candidate| candidate.shift(delay_s));
            if goes_on { Ok(report) } else { Err(Error::stopped("on_candidate")) }
        });
        let tstart_mjd = match header.tstart_mjd {
            start if start > 0.0 => start - delay_s / SECONDS_PER_DAY,
            unknown => unknown,
        };
        candidates(py, &interruption.result(report)?, tstart_mjd, header.tsamp_s)
    };
    let bank = VoltageArguments { channels, taps, integrate, coherent_dm };
    if let Ok(mut recording) = source.extract::<PyRefMut<'_, Recording>>() {
        bank.check_none()?;
        return match freqs.or(tsamp) {
            None => run(Source::Rows(recording.again(py)?.as_mut())),
            Some(_) => Err(refused("freqs or tsamp", "given", "a recording has its own")),
        };
    }
    if source.hasattr("dtype")? {
        let array = Readable::new("source", source)?;
        let (Some(freqs), Some(tsamp)) = (freqs, tsamp) else {
            return Err(refused("source", "an array", "it needs `freqs` and `tsamp`"));
        };
        bank.check_none()?;
        let tsamp_s = Unit::Second.number("tsamp", tsamp)?;
        let mut rows = ArrayRows::new(&array, band(freqs, Width::Mean)?, tsamp_s)?;
        return run(Source::Rows(&mut rows));
    }
    if freqs.or(tsamp).is_some() {
        return Err(refused("freqs or tsamp", "given", "files have their own"));
    }
    let files = paths(source)?;
    let is_voltages = match files.first() {
        Some(first) => detached(py, || voltages::is_voltages(first))?,
        None => false,
    };
    if is_voltages {
        let options = bank.options()?;
        let mut filterbank = detached(py, || {
            let recorded = voltages::open(&files, &VoltageOptions::default())?;
            VoltageFilterbank::new(recorded, &options, &backend)
        })?;
        return run(Source::Voltages(&mut filterbank));
    }
    bank.check_none()?;
    let mut rows = detached(py, || io::open(&files, &OpenOptions::default()))?;
    run(Source::Rows(rows.as_mut()))
}

/// Options of the filter bank that makes spectra of voltages.
struct VoltageArguments {
    channels: Option<i64>,
    taps: Option<i64>,
    integrate: Option<i64>,
    coherent_dm: Option<f64>,
}

impl VoltageArguments {
    /// Checks that no option is given.
    ///
    /// # Errors
    /// `ParameterError` naming one that is.
    fn check_none(&self) -> PyResult<()> {
        let given = [
            ("channels", self.channels.is_some()),
            ("taps", self.taps.is_some()),
            ("integrate", self.integrate.is_some()),
            ("coherent_dm", self.coherent_dm.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => {
                Err(refused(name, "given", "it is for voltages, and these are none"))
            }
            None => Ok(()),
        }
    }

    /// Returns the options.
    ///
    /// # Errors
    /// `ParameterError` without channels, and for other arguments out of range.
    fn options(&self) -> PyResult<ChannelizeOptions> {
        let Some(channels) = self.channels else {
            let rule = "voltages need the number of channels per recorded channel";
            return Err(refused("channels", "missing", rule));
        };
        let mut options = ChannelizeOptions::new(count("channels", channels)?);
        if let Some(taps) = self.taps {
            options.taps = count("taps", taps)?;
        }
        if let Some(integrate) = self.integrate {
            options.integrate = count("integrate", integrate)?;
        }
        options.coherent_dm = self.coherent_dm;
        Ok(options)
    }
}

/// Makes Python's list of candidates from a report.
///
/// # Errors
/// The exception of the error that ended the search.
fn candidates<'py>(
    py: Python<'py>,
    report: &burst::Report,
    tstart_mjd: f64,
    tsamp_s: f64,
) -> PyResult<Bound<'py, PyAny>> {
    let found: Vec<Candidate> = report.candidates.iter().map(Candidate::from).collect();
    let about = PyDict::new(py);
    about.set_item("dms", numpy::PyArray1::from_slice(py, &report.dms))?;
    about.set_item("n_dms_skipped", report.skipped_dms)?;
    about.set_item("masked_channels", &report.masked_channels)?;
    about.set_item("n_dropped", report.left_out)?;
    let bounds =
        report.unsearched.iter().flat_map(|gap| [gap.start_time, gap.start_time + gap.times]);
    let bounds: Vec<f64> = bounds.map(|row| row as f64 * tsamp_s).collect();
    about.set_item("unsearched", bounds.into_pyarray(py).reshape([report.unsearched.len(), 2])?)?;
    about.set_item("duration", report.data_s)?;
    about.set_item("incomplete", report.ending.reason())?;
    about.set_item("tsamp", tsamp_s)?;
    about.set_item("tstart", (tstart_mjd > 0.0).then_some(tstart_mjd))?;
    let class = py.import("sidereal_dsp._candidates")?.getattr("Candidates")?;
    class.call((PyList::new(py, found)?,), Some(&about))
}
