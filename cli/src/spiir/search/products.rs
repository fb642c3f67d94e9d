//! Products of a search beside its document: events.xml with the data that BAYESTAR needs to localize events, snr.h5
//! with signal-to-noise ratios and whitened strain, and the banks that it made.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use num_complex::Complex;
use serde_json::Value;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::io::ligolw::{
    DetectorRow, EventRow, EventsFile, PsdRow, SnrSeries, TemplateRow, write_events,
};
use sidereal::io::series_h5::{DetectorSeries, SeriesFile, TemplateSeries, Writer};
use sidereal::pipeline::cbc::{DetectorReport, Report, Series, series, write_bank};
use sidereal::spiir::bank::{Bank, BankTemplate};
use sidereal::spiir::coincidence::{Event, TimedTrigger};
use sidereal::spiir::{Options, Plan, Spiir};
use sidereal::trace::{self, Work};

use crate::output::Folder;
use crate::provenance::{Made, Provenance};
use crate::{interrupt, json};

/// Seconds of ratios before and after a trigger.
pub(in crate::spiir) const HALF_S: f64 = 0.1;

/// Writes at most `most` of the loudest events.
pub(super) fn write_events_xml(
    path: &Path,
    report: &Report,
    most: usize,
    made: &Made,
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
    let mut all = options(&made.provenance);
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

/// Returns the options as words.
pub(in crate::spiir) fn options(provenance: &Provenance) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let options = provenance.options.iter();
    options.map(|(name, value)| (format!("--{name}"), word(value))).collect()
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
        template: about.map_or_else(TemplateRow::default, template_row),
        detectors: detectors.collect::<Result<_>>()?,
    })
}

fn part(
    detector: &DetectorReport,
    trigger: &TimedTrigger,
    backend: &Backend,
) -> Result<DetectorRow> {
    let template = trigger.template as usize;
    let half = (HALF_S * f64::from(detector.rate_hz)).round() as usize;
    let ratios = series(detector, template, trigger.gps, half, backend)?;
    // A series truncated by the data's start or end is too short to be useful.
    let whole = ratios.z.len() == 2 * half + 1;
    let about = &detector.bank.templates[template];
    Ok(detector_row(&detector.name, about, trigger, whole.then_some(ratios)))
}

/// Returns the row of a trigger of a template, with the ratios around it.
pub(in crate::spiir) fn detector_row(
    detector: &str,
    template: &BankTemplate,
    trigger: &TimedTrigger,
    ratios: Option<Series>,
) -> DetectorRow {
    let (snr, sigma) = (f64::from(trigger.snr), template.sigma_1mpc);
    DetectorRow {
        ifo: detector.to_owned(),
        gps: trigger.gps,
        snr,
        phase: trigger.phase.into(),
        xi2: Some(trigger.xi2.into()),
        effective_distance_mpc: Some(sigma / snr),
        sigmasq: Some(sigma * sigma),
        snr_series: ratios.map(|ratios| SnrSeries {
            start: ratios.start,
            rate_hz: ratios.rate_hz,
            samples: ratios.z,
        }),
    }
}

/// Returns the row of a template.
pub(in crate::spiir) fn template_row(template: &BankTemplate) -> TemplateRow {
    TemplateRow {
        name: template.name.clone(),
        binary: template.binary,
        duration_s: Some(template.duration_s),
        f_final_hz: Some(template.f_final_hz),
    }
}

/// Largest number of templates with a series.
const TEMPLATES: usize = 4;
/// Samples filtered per step.
const BLOCK: usize = 1 << 14;

/// Writes the series of every detector.
pub(super) fn write_series(
    path: &Path,
    report: &Report,
    comment: String,
    backend: &Backend,
) -> Result<()> {
    let mut templates: Vec<usize> = Vec::new();
    for event in report.found.events.iter().take(TEMPLATES) {
        if !templates.contains(&(event.template as usize)) {
            templates.push(event.template as usize);
        }
    }
    let header = SeriesFile {
        comment,
        detectors: report.detectors.iter().map(|one| header(one, &templates)).collect(),
    };
    let writer = Mutex::new(Writer::create(path, header)?);
    let detectors: Vec<_> = report.detectors.iter().enumerate().collect();
    let host = part_of(backend, detectors.len());
    let written: Vec<_> = thread::scope(|scope| {
        let (writer, templates, host) = (&writer, &templates[..], &host);
        let begin = |(index, one)| {
            scope.spawn(move || write_detector(writer, index, one, templates, &host()))
        };
        let running: Vec<_> = detectors.into_iter().map(begin).collect();
        running.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    for one in written {
        one.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    let writer = writer.into_inner().unwrap_or_else(PoisonError::into_inner);
    writer.finish_as(report.ending.is_complete())
}

/// Returns a maker of backends, each with its share of a backend's threads on the host.
fn part_of(backend: &Backend, parts: usize) -> impl Fn() -> Backend + Sync {
    let host = backend.on_host();
    move || match &host {
        Backend::Cpu(level, threads) => {
            Backend::Cpu(*level, Threads::new((threads.count() / parts.max(1)).max(1)))
        }
        other => other.clone(),
    }
}

/// Writes the whitened strain of a detector and its ratios for some of its templates, block by block.
fn write_detector(
    writer: &Mutex<Writer>,
    index: usize,
    one: &DetectorReport,
    templates: &[usize],
    backend: &Backend,
) -> Result<()> {
    let _span = trace::span(Work::Write, "series");
    let writer = || writer.lock().unwrap_or_else(PoisonError::into_inner);
    let filters = |template: &usize| one.bank.templates[*template].filters.clone();
    let options = Options {
        rate_hz: one.rate_hz,
        templates: templates.iter().map(filters).collect(),
        resampler: one.bank.resampler.clone(),
    };
    let mut spiir = match templates {
        [] => None,
        _ => Some(Spiir::new(Plan::new(options)?, backend)?),
    };
    let mut z = vec![Complex::default(); templates.len() * BLOCK];
    for first in (0..one.whitened.times()).step_by(BLOCK) {
        interrupt::check()?;
        let (samples, valid) = one.whitened.read(first..first + BLOCK as u64)?;
        writer().whitened(index, &samples, &valid)?;
        if let Some(spiir) = &mut spiir {
            let produced = spiir.run(&samples, &mut z, BLOCK)?.produced;
            writer().snr(index, &z, BLOCK, produced)?;
        }
    }
    while let Some(spiir) = &mut spiir {
        match spiir.flush(&mut z, BLOCK)? {
            0 => break,
            produced => writer().snr(index, &z, BLOCK, produced)?,
        }
    }
    Ok(())
}

fn header(one: &DetectorReport, templates: &[usize]) -> DetectorSeries {
    let template = |index: &usize| {
        let template = &one.bank.templates[*index];
        TemplateSeries { name: template.name.clone(), peak_offset_s: template.peak_offset_s }
    };
    DetectorSeries {
        detector: one.name.clone(),
        start: one.start,
        rate_hz: one.rate_hz,
        samples: one.whitened.times(),
        latency_s: one.latency.whitening_s + one.latency.resampling_s,
        templates: templates.iter().map(template).collect(),
        whitened: true,
    }
}

/// Writes the banks that a search made, all at the same time.
pub(super) fn write_banks(
    folder: &Folder,
    banks: &[(String, Arc<Bank>)],
    comment: &str,
) -> Result<()> {
    let write = |(name, bank): &(String, Arc<Bank>)| {
        write_bank(&folder.file(format!("bank_{name}.h5")), bank, name, comment)
    };
    let written: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = banks.iter().map(|one| scope.spawn(move || write(one))).collect();
        running.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let mut written = written.into_iter();
    written.try_for_each(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
