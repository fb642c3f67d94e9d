//! Document events.xml: the loudest events with the data that BAYESTAR needs to localize them.

use std::path::Path;

use serde_json::Value;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::io::ligolw::{
    DetectorRow, EventRow, EventsFile, PsdRow, SnrSeries, TemplateRow, write_events,
};
use sidereal::pipeline::cbc::{DetectorReport, Report, series};
use sidereal::spiir::coincidence::{Event, TimedTrigger};

use crate::json;
use crate::provenance::Made;

/// Seconds of ratios before and after a trigger.
const HALF_S: f64 = 0.1;

/// Writes at most `most` of the loudest events.
pub(super) fn write(
    path: &Path,
    report: &Report,
    (most, made): (usize, &Made),
    backend: &Backend,
) -> Result<()> {
    let events = report.found.events.iter().take(most);
    let events = events.map(|event| row(report, event, backend)).collect::<Result<Vec<_>>>()?;
    let ends = report.detectors.iter().map(|one| (one.start, one.start.plus_s(one.duration_s)));
    let psd = |one: &DetectorReport| PsdRow { ifo: one.name.clone(), psd: one.psd.clone() };
    let file = EventsFile {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        comment: format!("sidereal spiir search\nrun: {}", json::line(&made.run)?),
        parameters: parameters(report, most, made),
        span: ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))),
        psds: report.detectors.iter().map(psd).collect(),
        events,
    };
    write_events(path, &file)
}

/// Returns the options, with the approximant of the events' templates if they have one and no option gives it.
fn parameters(report: &Report, most: usize, made: &Made) -> Vec<(String, String)> {
    const APPROXIMANT: &str = "--approximant";
    let mut all: Vec<(String, String)> = made.provenance.options.iter().map(parameter).collect();
    let templates = report.detectors.first().map_or(&[][..], |one| &one.bank.templates);
    let events = report.found.events.iter().take(most);
    let mut names: Vec<&str> = events
        .filter_map(|event| templates.get(event.template as usize)?.approximant.as_deref())
        .collect();
    names.sort_unstable();
    names.dedup();
    if let [name] = names[..]
        && all.iter().all(|(option, _)| option != APPROXIMANT)
    {
        all.push((APPROXIMANT.to_owned(), name.to_owned()));
    }
    all
}

/// Formats an option as a row of process_params.
fn parameter((name, value): (&String, &Value)) -> (String, String) {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    (format!("--{name}"), text)
}

fn row(report: &Report, event: &Event, backend: &Backend) -> Result<EventRow> {
    let template = event.template as usize;
    let pairs = report.detectors.iter().zip(&event.detectors);
    let seen = pairs.filter_map(|(detector, trigger)| Some((detector, (*trigger)?)));
    let detectors = seen.map(|(detector, trigger)| part(detector, &trigger, backend));
    let about = report.detectors.first().map(|one| &one.bank.templates[template]);
    Ok(EventRow {
        gps: event.gps,
        network_snr: event.network_snr,
        far_hz: event.far_hz,
        template: about.map_or_else(TemplateRow::default, |about| TemplateRow {
            name: about.name.clone(),
            binary: about.binary,
            duration_s: Some(about.duration_s),
            f_final_hz: Some(about.f_final_hz),
        }),
        detectors: detectors.collect::<Result<_>>()?,
    })
}

fn part(
    detector: &DetectorReport,
    trigger: &TimedTrigger,
    backend: &Backend,
) -> Result<DetectorRow> {
    let template = trigger.template as usize;
    let sigma = detector.bank.templates[template].sigma_1mpc;
    let half = (HALF_S * f64::from(detector.rate_hz)).round() as usize;
    let ratios = series(detector, template, trigger.gps, half, backend)?;
    // A series truncated by the data's start or end is too short to be useful.
    let whole = ratios.z.len() == 2 * half + 1;
    let snr = f64::from(trigger.snr);
    Ok(DetectorRow {
        ifo: detector.name.clone(),
        gps: trigger.gps,
        snr,
        phase: trigger.phase.into(),
        xi2: Some(trigger.xi2.into()),
        effective_distance_mpc: Some(sigma / snr),
        sigmasq: Some(sigma * sigma),
        snr_series: whole.then_some(SnrSeries {
            start: ratios.start,
            rate_hz: ratios.rate_hz,
            samples: ratios.z,
        }),
    })
}
