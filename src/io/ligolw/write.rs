//! Writer of events with their triggers, signal-to-noise ratio series and power spectra.

use std::path::Path;

use super::columns::{
    COINC_DEFINER, COINC_EVENT, COINC_EVENT_MAP, COINC_INSPIRAL, PROCESS, PROCESS_PARAMS,
    SNGL_INSPIRAL, SNGL_INSPIRAL_EMPTY, TIME_SLIDE,
};
use super::events::{DetectorRow, EventRow, EventsFile};
use super::series;
use super::sink::{Field, Sink};
use crate::error::{Error, Result};
use crate::units::Gps;

const PROGRAM: &str = "sidereal";

/// Process id of the search.
const SEARCH_PROCESS: i64 = 0;

/// Process id that coincidences reference: from its program name, ligo.skymap infers the sign of phases.
const PHASE_PROCESS: i64 = 1;

/// Program name for our sign of phases: `z` is PyCBC's matched filter in amplitude and phase.
const PHASE_PROGRAM: &str = "pycbc";

/// Nanoseconds in a second.
const NS_PER_S: i64 = 1_000_000_000;

const HEAD: &str = "<?xml version='1.0' encoding='utf-8'?>\n<!DOCTYPE LIGO_LW SYSTEM \
    \"http://ldas-sw.ligo.caltech.edu/doc/ligolwAPI/html/ligolw_dtd.txt\">";

/// Writes events as LIGO_LW XML, compressed if the name ends in `.gz`.
///
/// Tables: process, process_params, time_slide, coinc_definer, coinc_event, coinc_event_map, coinc_inspiral,
/// sngl_inspiral, with `int_8s` ids. Each signal-to-noise ratio series is a COMPLEX8TimeSeries with its trigger's
/// `event_id`; power spectra are REAL8FrequencySeries in an element named `psd`. The option `--reference-psd` of the
/// search's process names the file itself, where BAYESTAR looks for the spectra.
///
/// Phases and series have PyCBC's sign. ligo.skymap infers the sign from the name of the program that made a
/// coincidence, and rejects unknown names. Coincidences therefore belong to a second process named `pycbc`, whose
/// comment explains this.
///
/// `chisq` is xi-squared with `chisq_dof` 1; `combined_far` is in Hz; `eff_distance` is in Mpc. An unknown value is
/// an empty cell, or 0 in integer columns, because gwpy does not accept empty integers.
///
/// # Errors
/// [`Error::Parameter`] for an event without detectors or with a repeated one, a series that BAYESTAR would reject
/// (see [`SnrSeries`](super::SnrSeries)), or times beyond 32 bits of seconds; [`Error::Io`].
/// # Source
/// ligo.skymap 2.5.4 (`io/events/ligolw.py`, `bayestar/__init__.py`) and lal 7.7.1 (`series.py`) as the readers.
pub fn write_events(path: &Path, file: &EventsFile) -> Result<()> {
    for event in &file.events {
        event.check()?;
        let moments = event.detectors.iter().map(|own| own.gps).chain([event.gps]);
        for moment in moments.chain(file.span.into_iter().flat_map(|(from, to)| [from, to])) {
            if i32::try_from(moment.ns.div_euclid(NS_PER_S)).is_err() {
                let rule = "GPS seconds have 32 bits in LIGO_LW";
                return Err(Error::parameter("time (GPS)", moment.s(), rule));
            }
        }
    }
    let mut sink = Sink::create(path)?;
    sink.line(HEAD)?;
    sink.element("LIGO_LW", &[], |sink| {
        processes(sink, path, file)?;
        coincidences(sink, file)?;
        triggers(sink, file)?;
        for (id, own) in detectors(file).enumerate() {
            if let Some(series) = &own.snr_series {
                series::snr(sink, series, id as i64)?;
            }
        }
        sink.element("LIGO_LW", &[("Name", "psd")], |sink| {
            file.psds.iter().try_for_each(|row| series::psd(sink, row))
        })
    })?;
    sink.finish()
}

/// Iterates over the triggers of all events; a trigger's index is its `event_id`.
fn detectors(file: &EventsFile) -> impl Iterator<Item = &DetectorRow> {
    file.events.iter().flat_map(|event| &event.detectors)
}

/// Returns the distinct names of all detectors, sorted.
fn ifos(file: &EventsFile) -> Vec<&str> {
    let psds = file.psds.iter().map(|row| row.ifo.as_str());
    let mut names: Vec<&str> = detectors(file).map(|own| own.ifo.as_str()).chain(psds).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns whole GPS seconds and the remaining nanoseconds.
fn split(moment: Gps) -> [Field; 2] {
    [moment.ns.div_euclid(NS_PER_S).into(), moment.ns.rem_euclid(NS_PER_S).into()]
}

fn processes(sink: &mut Sink, path: &Path, file: &EventsFile) -> Result<()> {
    let process = |id: i64, program: &str, comment: &str| {
        let span = file.span.map_or([Field::Empty, Field::Empty], |(from, to)| {
            [from, to].map(|end| end.ns.div_euclid(NS_PER_S).into())
        });
        let [start, end] = span;
        let mut row = vec![
            id.into(),
            program.into(),
            file.version.as_str().into(),
            comment.into(),
            ifos(file).join(",").into(),
            start,
            end,
        ];
        row.resize(PROCESS.len(), Field::Empty);
        row
    };
    let why = "no program of its own: complex SNR and phases of sidereal have the sign of pycbc's";
    let rows = [
        process(SEARCH_PROCESS, PROGRAM, &file.comment),
        process(PHASE_PROCESS, PHASE_PROGRAM, why),
    ];
    sink.table("process", PROCESS, rows)?;
    // Readers also look for a bare name next to the file.
    let own = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let own = ("--reference-psd".to_owned(), own);
    let parameters = file.parameters.iter().filter(|(name, _)| *name != own.0);
    let rows = parameters.chain([&own]).map(|(name, value)| {
        let text = [PROGRAM, name.as_str(), "lstring", value.as_str()];
        [Field::from(SEARCH_PROCESS)].into_iter().chain(text.map(Field::from)).collect()
    });
    sink.table("process_params", PROCESS_PARAMS, rows)
}

fn coincidences(sink: &mut Sink, file: &EventsFile) -> Result<()> {
    let slide = |ifo: &str| vec![SEARCH_PROCESS.into(), 0.into(), ifo.into(), 0.0.into()];
    sink.table("time_slide", TIME_SLIDE, ifos(file).into_iter().map(slide))?;
    let definer = vec![
        0.into(),
        "inspiral".into(),
        0.into(),
        "sngl_inspiral<-->sngl_inspiral coincidences".into(),
    ];
    sink.table("coinc_definer", COINC_DEFINER, [definer])?;
    let numbered = || file.events.iter().enumerate().map(|(id, event)| (id as i64, event));
    let rows = numbered().map(|(id, event)| {
        vec![
            PHASE_PROCESS.into(),
            id.into(),
            0.into(),
            0.into(),
            event.ifos().into(),
            (event.detectors.len() as i64).into(),
            Field::Empty,
        ]
    });
    sink.table("coinc_event", COINC_EVENT, rows)?;
    let members = numbered().flat_map(|(id, event)| event.detectors.iter().map(move |_| id));
    let rows = members
        .zip(0_i64..)
        .map(|(coincidence, event)| vec![coincidence.into(), "sngl_inspiral".into(), event.into()]);
    sink.table("coinc_event_map", COINC_EVENT_MAP, rows)?;
    sink.table("coinc_inspiral", COINC_INSPIRAL, numbered().map(|(id, event)| inspiral(id, event)))
}

fn inspiral(id: i64, event: &EventRow) -> Vec<Field> {
    let [seconds, ns] = split(event.gps);
    let binary = event.template.binary;
    vec![
        id.into(),
        event.ifos().into(),
        seconds,
        ns,
        event.network_snr.into(),
        event.far_hz.into(),
        Field::Empty,
        binary.map(|own| own.total_mass_msun()).into(),
        binary.map(|own| own.chirp_mass_msun()).into(),
        event.template.duration_s.into(),
    ]
}

fn triggers(sink: &mut Sink, file: &EventsFile) -> Result<()> {
    let pairs =
        file.events.iter().flat_map(|event| event.detectors.iter().map(move |d| (event, d)));
    let rows = pairs.zip(0_i64..).map(|((event, own), id)| trigger(id, event, own));
    sink.table("sngl_inspiral", &[SNGL_INSPIRAL, SNGL_INSPIRAL_EMPTY].concat(), rows)
}

fn trigger(id: i64, event: &EventRow, own: &DetectorRow) -> Vec<Field> {
    let template = &event.template;
    let of_binary = |number: fn(&crate::strain::Binary) -> f64| -> Field {
        template.binary.as_ref().map(number).into()
    };
    let [seconds, ns] = split(own.gps);
    let mut row = vec![
        SEARCH_PROCESS.into(),
        id.into(),
        own.ifo.as_str().into(),
        "spiir".into(),
        seconds,
        ns,
        own.snr.into(),
        own.phase.into(),
        own.xi2.into(),
        own.xi2.map(|_| 1).into(),
        own.effective_distance_mpc.into(),
        own.sigmasq.into(),
        template.duration_s.into(),
        template.f_final_hz.into(),
        of_binary(|binary| binary.mass1_msun),
        of_binary(|binary| binary.mass2_msun),
        of_binary(|binary| binary.chirp_mass_msun()),
        of_binary(|binary| binary.total_mass_msun()),
        of_binary(|binary| {
            binary.mass1_msun * binary.mass2_msun / binary.total_mass_msun().powi(2)
        }),
        of_binary(|_| 0.0),
        of_binary(|_| 0.0),
        of_binary(|binary| binary.spin1z),
        of_binary(|_| 0.0),
        of_binary(|_| 0.0),
        of_binary(|binary| binary.spin2z),
    ];
    row.resize(SNGL_INSPIRAL.len() + SNGL_INSPIRAL_EMPTY.len(), Field::Empty);
    row
}

#[cfg(test)]
mod tests;
