//! Plots of the loudest events.

use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::pipeline::cbc::{DetectorReport, Report, Series, series};
use sidereal::spiir::coincidence::{Event, TimedTrigger};
use sidereal::units::Gps;

use super::document::yearly;
use crate::output::Folder;
use crate::plots::strain::{
    self, Background, Heading, Map, MapOf, Peak, Snr, SnrOf, Whitened, WhitenedOf,
};
use crate::plots::{Png, plural};
use crate::provenance::Made;

/// Seconds of ratios before and after an event.
const SNR_HALF_S: f64 = 0.25;
/// Intervals shown of whitened strain and of its time-frequency map, in seconds from the event.
const WHITENED_SPAN_S: (f64, f64) = (-0.25, 0.1);
const MAP_SPAN_S: (f64, f64) = (-0.5, 0.25);
/// Frequency range shown, in Hz.
const BAND_HZ: (f64, f64) = (30.0, 400.0);
/// Seconds of strain around an event used for the plots.
const AROUND_S: f64 = 2.0;

/// Draws at most `most` of the loudest events, and the background with triggers above the threshold.
pub(super) fn draw(
    folder: &Folder,
    made: &Made,
    report: &Report,
    most: usize,
    threshold: f64,
    backend: &Backend,
) -> Result<()> {
    let events = &report.found.events;
    for (index, event) in events.iter().take(most).enumerate() {
        let views = views(report, event, backend)?;
        let heading = || heading(report, event, index);
        let name =
            |what: &str| Png::new(folder.file(format!("event{}_{what}.png", index + 1)), made);
        let detectors = views.iter().map(|view| view.snr(event.gps)).collect();
        let about = Snr { heading: heading(), threshold, detectors };
        strain::snr(&name("snr").small(), &about)?;
        let detectors = views.iter().map(|view| view.whitened(event.gps)).collect();
        let band_hz = band(report);
        let span_s = WHITENED_SPAN_S;
        strain::whitened(
            &name("whitened").small(),
            &Whitened { heading: heading(), band_hz, span_s, detectors },
        )?;
        let detectors = views.iter().map(|view| view.map(event.gps)).collect();
        let about =
            Map { heading: heading(), band_hz, span_s: MAP_SPAN_S, quality: 8.0, detectors };
        strain::map(&name("map"), &about)?;
    }
    let found = &report.found;
    if found.background.rankings.is_empty() {
        return Ok(());
    }
    let rankings: Vec<f64> = events.iter().map(|event| event.ranking).collect();
    let about = Background {
        heading: Heading {
            title: format!(
                "{}, {}",
                plural(events.len(), "event"),
                plural(found.background.slides, "time slide")
            ),
            subtitle: "What chance makes of the same triggers".to_owned(),
        },
        slides: &found.background.rankings,
        slides_s: found.background.time_s,
        events: &rankings,
        livetime_s: found.livetime_s,
        ranking: "Ranking",
    };
    strain::background(&Png::new(folder.file("background.png"), made), &about)
}

/// Returns the band shown, limited by the sampling rate.
fn band(report: &Report) -> (f64, f64) {
    let nyquist = report.detectors.first().map_or(f64::MAX, |one| f64::from(one.rate_hz) / 2.0);
    (BAND_HZ.0.min(0.1 * nyquist), BAND_HZ.1.min(0.9 * nyquist))
}

/// Returns whether no background event is as loud: the rate is then an upper limit.
fn is_limit(event: &Event) -> bool {
    event.far_hz.is_some() && event.far_hz == event.far_sigma
}

fn heading(report: &Report, event: &Event, index: usize) -> Heading {
    let count = report.found.events.len();
    let template = report.detectors.first().map(|one| &one.bank.templates[event.template as usize]);
    let name = template.map_or("", |template| template.name.as_str());
    let rate = match event.far_hz {
        Some(rate) if is_limit(event) => {
            format!(" · less than {} false alarms a year", yearly(rate, 2))
        }
        Some(rate) => format!(" · {} false alarms a year", yearly(rate, 2)),
        None => String::new(),
    };
    Heading {
        title: format!("Event {} of {count} · network SNR {:.1}", index + 1, event.network_snr),
        subtitle: format!("GPS {:.3} · template {name}{rate}", event.gps.s()),
    }
}

/// One detector's view of an event.
struct View<'a> {
    detector: &'a DetectorReport,
    trigger: Option<TimedTrigger>,
    ratios: Series,
    moduli: Vec<f32>,
    /// Time of the first sample of `strain`.
    start: Gps,
    /// Whitened strain around the event.
    strain: Vec<f32>,
    template: Vec<f32>,
}

fn views<'a>(report: &'a Report, event: &Event, backend: &Backend) -> Result<Vec<View<'a>>> {
    let pairs = report.detectors.iter().zip(&event.detectors);
    let view = |(detector, trigger): (&'a DetectorReport, &Option<TimedTrigger>)| {
        let rate = f64::from(detector.rate_hz);
        let half = (SNR_HALF_S * rate).round() as usize;
        let ratios = series(detector, event.template as usize, event.gps, half, backend)?;
        let place = |seconds: f64| {
            let sample = (event.gps.seconds_since(detector.start) + seconds) * rate;
            (sample.max(0.0) as u64).min(detector.whitened.times())
        };
        let (first, last) = (place(-AROUND_S), place(AROUND_S));
        let strain = detector.whitened.samples(first..last)?;
        let first = first as usize;
        Ok(View {
            template: trigger
                .map_or_else(Vec::new, |one| overlay(detector, &one, first, strain.len())),
            detector,
            trigger: *trigger,
            moduli: ratios.z.iter().map(|z| z.norm()).collect(),
            ratios,
            start: detector.start.plus_samples(first as i64, detector.rate_hz),
            strain,
        })
    };
    pairs.map(view).collect()
}

/// Returns the template with the trigger's amplitude and phase, over whitened strain from sample `first`.
fn overlay(
    detector: &DetectorReport,
    trigger: &TimedTrigger,
    first: usize,
    samples: usize,
) -> Vec<f32> {
    let template = &detector.bank.templates[trigger.template as usize];
    let z = num_complex::Complex::from_polar(trigger.snr, trigger.phase);
    let answer_s = trigger.gps.seconds_since(detector.start) - template.peak_offset_s;
    let last = answer_s * f64::from(detector.rate_hz) - first as f64;
    strain::overlay(&template.whitened, z, last, samples)
}

impl View<'_> {
    fn facts(&self) -> String {
        self.trigger.map_or_else(|| "no trigger".to_owned(), |one| format!("SNR {:.1}", one.snr))
    }

    fn snr(&self, event: Gps) -> SnrOf<'_> {
        let peak = |one: TimedTrigger| Peak {
            time_s: one.gps.seconds_since(event),
            snr: one.snr.into(),
            xi2: one.xi2.into(),
        };
        SnrOf {
            name: &self.detector.name,
            start_s: self.ratios.start.seconds_since(event),
            rate_hz: self.detector.rate_hz.into(),
            snr: &self.moduli,
            peak: self.trigger.map(peak),
        }
    }

    fn whitened(&self, event: Gps) -> WhitenedOf<'_> {
        WhitenedOf {
            name: &self.detector.name,
            start_s: self.start.seconds_since(event),
            rate_hz: self.detector.rate_hz.into(),
            strain: &self.strain,
            template: &self.template,
            facts: self.facts(),
        }
    }

    fn map(&self, event: Gps) -> MapOf<'_> {
        MapOf {
            name: &self.detector.name,
            start_s: self.start.seconds_since(event),
            rate_hz: self.detector.rate_hz.into(),
            strain: &self.strain,
            facts: self.facts(),
        }
    }
}
