//! Coincidences of triggers that were found in several detectors.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};
use sidereal::backend::threads::Threads;
use sidereal::geometry::Interferometer;
use sidereal::spiir::coincidence::{Detector, Options, Segments, TimedTrigger, search_on};
use sidereal::units::Gps;

use crate::arguments::{Unit, count, kind};
use crate::binaries::Event;
use crate::errors::{detached, raised, refused};
use crate::spiir::{Bank, triggers_of};

/// Returns the value of a detector, and its spans of valid time.
fn spans(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Segments> {
    let rule = "it must have the start and end of each valid time, GPS s; axes: span and these two";
    let wrong = || refused("valid", format!("{} of {name}", kind(value)), rule);
    let rows: Vec<Vec<f64>> = value
        .py()
        .import("numpy")?
        .call_method1("atleast_2d", (value,))
        .and_then(|array| array.call_method0("tolist"))
        .and_then(|rows| rows.extract())
        .map_err(|_| wrong())?;
    let span = |row: &Vec<f64>| match *row.as_slice() {
        [start, end] if (0.0..=4e9).contains(&start) && (start..=4e9).contains(&end) => {
            Ok((Gps::from_s(start), Gps::from_s(end)))
        }
        _ => Err(wrong()),
    };
    Segments::new(rows.iter().map(span).collect::<PyResult<_>>()?).map_err(raised)
}

/// Finds coincident events among the triggers of two to four detectors, and their false-alarm rates from time slides.
///
/// Parameters
/// ----------
/// triggers : dict of recarray
///     Triggers by the detector's name (``H1``, ``L1``, ``V1``, ``K1``, ``G1``), from `find_triggers` with banks of the
///     same templates.
/// valid : dict of array
///     Start and end of each time in which triggers were possible, GPS s, by the detector's name; shape (spans, 2).
/// bank : Bank, optional
///     Bank of one detector, for the names and masses of the templates.
/// slides : int, default 100
///     Number of time slides for the background; 0 makes none.
/// window_pad : float or Quantity, default 0.002
///     Time added to the light travel time between detectors, s.
/// cluster : float or Quantity, default 0.5
///     Time within which only the best event is kept, s.
/// threads : int, default 0
///     Threads of the processor; 0 is one per core.
///
/// Returns
/// -------
/// Events
///     By descending ranking.
#[pyfunction]
#[pyo3(signature = (triggers, valid, *, bank=None, slides=100, window_pad=None, cluster=None, threads=0))]
pub(crate) fn coincide<'py>(
    py: Python<'py>,
    triggers: &Bound<'py, PyAny>,
    valid: &Bound<'py, PyAny>,
    bank: Option<PyRef<'py, Bank>>,
    slides: i64,
    window_pad: Option<&Bound<'py, PyAny>>,
    cluster: Option<&Bound<'py, PyAny>>,
    threads: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let rule = "it must be a dict by the detectors' names";
    let given =
        triggers.cast::<PyMapping>().map_err(|_| refused("triggers", kind(triggers), rule))?;
    let valid = valid.cast::<PyMapping>().map_err(|_| refused("valid", kind(valid), rule))?;
    let mut names: Vec<String> = Vec::new();
    let mut found: Vec<(Vec<TimedTrigger>, Segments)> = Vec::new();
    let mut places: Vec<&Interferometer> = Vec::new();
    for item in given.items()?.iter() {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        let name: String =
            key.extract().map_err(|_| refused("detector", kind(&key), "it must be a str"))?;
        let place = Interferometer::by_name(&name);
        places.push(
            place.ok_or_else(|| refused("detector", &name, "there are H1, L1, V1, K1 and G1"))?,
        );
        let own = valid.get_item(&name).map_err(|_| {
            refused("valid", "without a detector", format!("it must have the times of {name}"))
        })?;
        found.push((triggers_of(&value)?, spans(&name, &own)?));
        names.push(name);
    }
    if let Some(bank) = &bank {
        let templates = bank.bank.templates.len();
        let all = found.iter().flat_map(|(triggers, _)| triggers);
        if let Some(other) = all.clone().find(|one| one.template as usize >= templates) {
            let rule = format!("the bank has templates 0 to {}", templates.saturating_sub(1));
            return Err(refused("template of a trigger", other.template, rule));
        }
    }
    let seconds = |name, value: Option<&Bound<'_, PyAny>>, default: f64| {
        value.map_or(Ok(default), |value| Unit::Second.number(name, value))
    };
    let pad_s = seconds("window_pad", window_pad, 0.002)?;
    if !(0.0..=0.1).contains(&pad_s) {
        return Err(refused("window_pad", pad_s, "it must be 0 to 0.1 s"));
    }
    let row = |own: &&Interferometer| {
        places.iter().map(|other| own.light_travel_s(other) + pad_s).collect()
    };
    let mut options = Options::new(places.iter().map(row).collect());
    options.slides = count("slides", slides)?;
    options.cluster_s = seconds("cluster", cluster, options.cluster_s)?;
    let pool = Threads::new(count("threads", threads)?.min(4096));
    let detectors: Vec<Detector<'_>> =
        found.iter().map(|(triggers, valid)| Detector { triggers, valid }).collect();
    let report = detached(py, || search_on(&pool, &detectors, &options))?;
    py.check_signals()?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bank = bank.as_ref().map(|bank| bank.bank.as_ref());
    let events = report.events.iter().map(|event| Event::new(py, event, &names, bank));
    let events: Vec<Event> = events.collect::<PyResult<_>>()?;
    let about = PyDict::new(py);
    about.set_item("livetime", report.livetime_s)?;
    about.set_item("background_time", report.background.time_s)?;
    about.set_item("detectors", names)?;
    let class = py.import("sidereal_dsp._events")?.getattr("Events")?;
    class.call((events,), Some(&about))
}
