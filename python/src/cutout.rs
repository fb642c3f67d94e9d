//! Data around a candidate, for its plot or a classifier, and lists of candidates in files.

use std::path::PathBuf;

use numpy::{IntoPyArray, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sidereal::dedisperse::dm_plan::MAX_DM;
use sidereal::io::candidates::{self, Record};
use sidereal::io::{self, FilterbankHeader, FilterbankSource, OpenOptions};
use sidereal::pipeline::cutout::{Options, Section, cutout as cut};
use sidereal::units::{DM_CONSTANT, dispersion_delay_s};
use sidereal::view::check_memory;

use crate::arguments::zapped;
use crate::errors::{detached, raised, refused};
use crate::recording::{Recording, paths};
use crate::search::Candidate;

/// Returns the options of a candidate's plot, or of the classifier FETCH.
///
/// # Errors
/// `ParameterError` for a candidate of other numbers than a search's, and `MemoryError` for data that do not fit.
fn options(
    header: &FilterbankHeader,
    candidate: &Candidate,
    fetch: bool,
    masked: Vec<bool>,
    zero_dm: bool,
) -> PyResult<Options> {
    let Candidate { dm, time, width, .. } = *candidate;
    for (name, value, range) in [
        ("dm of the candidate", dm, 0.0..=MAX_DM),
        ("time of the candidate", time, -1e7..=1e7),
        ("width of the candidate", width, 0.0..=1e4),
    ] {
        if !range.contains(&value) {
            let rule = format!("it must be {} to {}", range.start(), range.end());
            return Err(refused(name, value, rule));
        }
    }
    let (low, high) = (header.band.lowest_hz(), header.band.highest_hz());
    let options = match fetch {
        true => Options::fetch(dm, time, width),
        false => Options::plot(dm, time, width, dispersion_delay_s(1.0, low, high, DM_CONSTANT)),
    };
    let options = Options { masked, zero_dm, ..options };
    let bytes = Section::bytes(header, &options).map_err(raised)?;
    check_memory("the data around the candidate", Some(bytes)).map_err(raised)?;
    Ok(options)
}

/// Cuts out the data around a candidate.
///
/// Parameters
/// ----------
/// source : path, list of paths or Recording
///     Filterbank in which the candidate was found.
/// candidate : Candidate
///     Burst, from `search`.
/// zap_channels : sequence of int or of bool, optional
///     Channels to leave out: their numbers in recorded order, from 0, or a bool for each channel. `masked_channels` of
///     `Candidates` has those of a search.
/// zero_dm : bool, default False
///     Whether to subtract the mean of each spectrum.
/// fetch : bool, default False
///     Whether to make the arrays of the classifier FETCH: 256 x 256, 2 bins per width, trials from 0 to twice the
///     dispersion measure. By default those of the plot of ``sidereal search``.
///
/// Returns
/// -------
/// Cutout
#[pyfunction]
#[pyo3(signature = (source, candidate, *, zap_channels=None, zero_dm=false, fetch=false))]
pub(crate) fn cutout<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    candidate: PyRef<'py, Candidate>,
    zap_channels: Option<&Bound<'py, PyAny>>,
    zero_dm: bool,
    fetch: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let mut rows: Box<dyn FilterbankSource> = match source.extract::<PyRefMut<'_, Recording>>() {
        Ok(mut recording) => recording.again(py)?,
        Err(_) => {
            let files = paths(source)?;
            detached(py, || io::open(&files, &OpenOptions::default()))?
        }
    };
    let masked = zapped(zap_channels, rows.header().channels())?;
    let options = options(rows.header(), &candidate, fetch, masked, zero_dm)?;
    let made = detached(py, || cut(rows.as_mut(), &options))?;
    py.check_signals()?;
    let (channels, times, trials) = (made.channels, made.times, made.dms.len());
    let width = (made.highest_mhz - made.lowest_mhz) / channels.max(1) as f64;
    let freqs = (0..channels).map(|channel| made.highest_mhz - (channel as f64 + 0.5) * width);
    let bins = (0..times).map(|bin| made.start_s + (bin as f64 + 0.5) * made.bin_s);
    let parts = PyDict::new(py);
    parts.set_item("waterfall", made.waterfall.into_pyarray(py).reshape([channels, times])?)?;
    parts.set_item("plane", made.plane.into_pyarray(py).reshape([trials, times])?)?;
    parts.set_item("profile", made.profile.into_pyarray(py))?;
    parts.set_item("times", bins.collect::<Vec<f64>>().into_pyarray(py))?;
    parts.set_item("freqs", freqs.collect::<Vec<f64>>().into_pyarray(py))?;
    parts.set_item("dms", made.dms.into_pyarray(py))?;
    parts.set_item("snr", made.snr.into_pyarray(py))?;
    parts.set_item("candidate", candidate)?;
    py.import("sidereal_dsp._cutout")?.getattr("Cutout")?.call((), Some(&parts))
}

/// Writes candidates as Heimdall does, as ``sidereal search`` writes ``candidates.cand``.
///
/// Parameters
/// ----------
/// path : path
///     File to write; it is overwritten.
/// found : list of Candidate
///     Bursts.
/// tsamp : float
///     Sampling time of the recording, s.
#[pyfunction]
pub(crate) fn write_cand(
    py: Python<'_>,
    path: PathBuf,
    found: Vec<PyRef<'_, Candidate>>,
    tsamp: f64,
) -> PyResult<()> {
    if !(tsamp > 0.0 && tsamp.is_finite()) {
        return Err(refused("tsamp", tsamp, "it must be above 0"));
    }
    let record = |one: &PyRef<'_, Candidate>| Record {
        snr: one.snr,
        time_s: one.time,
        width_s: one.width,
        dm: one.dm,
        dm_trial: one.dm_trial,
        members: one.members,
        begin_s: one.begin,
        end_s: one.end,
        tsamp_s: tsamp,
        mjd: None,
        barycentric_mjd: None,
        band_fraction: one.band_fraction,
    };
    let records: Vec<Record> = found.iter().map(record).collect();
    detached(py, || candidates::write_heimdall(&path, &records))
}
