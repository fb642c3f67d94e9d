//! Document events.json, and terminal output.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::backend::Backend;
use sidereal::pipeline::cbc::{DetectorReport, Latency, Report};
use sidereal::spiir::bank::Bank;
use sidereal::spiir::coincidence::{Event, Found, Histogram, TimedTrigger};
use sidereal::units::SECONDS_PER_YEAR;

use crate::flags;
use crate::plots::{plural, short};
use crate::progress::multiple;
use crate::spiir::bank::Missed;

/// Most events listed on the terminal.
const LISTED: usize = 10;

/// Bins of the distribution of rankings.
const BINS: usize = 60;

/// Contents of events.json.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// Whether all strain was searched; otherwise `reason` states why not.
    complete: bool,
    reason: Option<String>,
    /// Events, loudest first.
    pub(crate) events: Vec<EventRow>,
    /// Total number of events.
    found: usize,
    detectors: Vec<DetectorRow>,
    /// Largest latency of a trigger after its sample.
    latency_s: LatencyRow,
    livetime_s: f64,
    slides: usize,
    background_s: f64,
    /// Number of loudest events whose triggers were excluded from the background.
    left_out_of_background: usize,
    /// Distribution of the rankings; absent without background.
    #[serde(skip_serializing_if = "Option::is_none")]
    histogram: Option<HistogramRow>,
    #[serde(skip)]
    realtime_factor: f64,
    /// GPU that searched, if any.
    #[serde(skip)]
    device: Option<String>,
}

/// Events and events of the time slides by ranking.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct HistogramRow {
    /// Edges of the bins, one more than there are bins.
    edges: Vec<f64>,
    events: Vec<u64>,
    /// Events of all time slides, in `background_s`.
    background: Vec<u64>,
}

impl HistogramRow {
    /// Counts events; `None` without background.
    fn new(found: &Found) -> Option<Self> {
        if found.background.rankings.is_empty() {
            return None;
        }
        let Histogram { edges, events, expected, .. } = found.histogram(BINS);
        let scale = found.background.time_s / found.livetime_s;
        let background = expected.iter().map(|mean| (mean * scale).round() as u64).collect();
        Some(Self { edges, events, background })
    }
}

/// One event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct EventRow {
    pub(crate) gps: f64,
    pub(crate) network_snr: f64,
    pub(crate) far_hz: Option<f64>,
    pub(crate) far_sigma: Option<f64>,
    /// The same rate per Julian year.
    far_per_year: Option<f64>,
    /// Name of the template.
    pub(crate) template: String,
    /// Binary of the template; null if the waveform's masses are unknown.
    pub(crate) binary: Option<BinaryRow>,
    /// Approximant of the template's waveform, if known.
    approximant: Option<String>,
    pub(crate) ranking: f64,
    pub(crate) detectors: BTreeMap<String, TriggerRow>,
}

/// Detector-frame masses (in solar masses) and aligned spins of a template.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct BinaryRow {
    mass1: f64,
    mass2: f64,
    spin1z: f64,
    spin2z: f64,
    chirp_mass: f64,
}

/// Trigger of one detector.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct TriggerRow {
    pub(crate) gps: f64,
    pub(crate) snr: f64,
    pub(crate) phase: f64,
    pub(crate) xi2: f64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct DetectorRow {
    name: String,
    start_gps: f64,
    rate_hz: u32,
    duration_s: f64,
    livetime_s: f64,
    templates: usize,
    /// Number of templates per approximant that generated waveforms from masses.
    approximants: BTreeMap<String, usize>,
    filters: usize,
    lowest_match: f64,
    #[serde(flatten)]
    missed: Missed,
    triggers: usize,
    latency_s: LatencyRow,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct LatencyRow {
    whitening: f64,
    resampling: f64,
    triggers: f64,
    total: f64,
}

impl From<Latency> for LatencyRow {
    fn from(latency: Latency) -> Self {
        Self {
            whitening: latency.whitening_s,
            resampling: latency.resampling_s,
            triggers: latency.triggers_s,
            total: latency.total_s(),
        }
    }
}

impl Document {
    /// Makes the document with at most `most` of the loudest events.
    pub(super) fn new(report: &Report, most: usize, backend: &Backend) -> Self {
        let events = report.found.events.iter().take(most);
        Self {
            complete: report.ending.is_complete(),
            reason: flags::reason(&report.ending),
            events: events.map(|one| event(report, one)).collect(),
            found: report.found.events.len(),
            detectors: report.detectors.iter().map(detector).collect(),
            latency_s: report.latency().into(),
            livetime_s: report.found.livetime_s,
            slides: report.found.background.slides,
            background_s: report.found.background.time_s,
            left_out_of_background: report.found.background.left_out,
            histogram: HistogramRow::new(&report.found),
            realtime_factor: report.realtime_factor(),
            device: backend.is_gpu().then(|| backend.name()),
        }
    }

    /// Formats the terminal output.
    pub(super) fn text(&self, place: &Path) -> String {
        let mut text = String::new();
        for one in &self.detectors {
            let _ = writeln!(
                text,
                "{}: {} s from GPS {:.3}, {} s of them good; {}{} with {}, match {} at least; {}",
                one.name,
                short(one.duration_s, 4),
                one.start_gps,
                short(one.livetime_s, 4),
                plural(one.templates, "template"),
                made(&one.approximants),
                plural(one.filters, "filter"),
                short(one.lowest_match, 4),
                plural(one.triggers, "trigger"),
            );
        }
        for one in &self.detectors {
            for line in one.missed.lines() {
                let _ = writeln!(text, "{}: {line}", one.name);
            }
        }
        for one in self.detectors.iter().filter(|one| one.livetime_s < 0.5 * one.duration_s) {
            let _ = writeln!(
                text,
                "{}: the rest is bad or missing data, gates, the ends where filters start, or what a running spectrum \
                 learned from.",
                one.name
            );
        }
        if let Some(reason) = &self.reason {
            let _ = writeln!(text, "Not complete: {reason}.");
        }
        let latency = &self.latency_s;
        let _ = writeln!(
            text,
            "Triggers are known {} s after their sample: whitening {}, resampling {}, the search for peaks {}.",
            short(latency.total, 3),
            short(latency.whitening, 3),
            short(latency.resampling, 3),
            short(latency.triggers, 3),
        );
        let background = match self.slides {
            0 => "no background, so no rate of false alarms".to_owned(),
            slides => format!(
                "background of {} s from {}{}",
                short(self.background_s, 4),
                plural(slides, "time slide"),
                match self.left_out_of_background {
                    0 => String::new(),
                    count => format!(", without {}", plural(count, "event")),
                }
            ),
        };
        let _ = writeln!(
            text,
            "{} in {} s; {background}; {} times real time{}.\n",
            plural(self.found, "event"),
            short(self.livetime_s, 4),
            multiple(self.realtime_factor),
            self.device.as_ref().map_or_else(String::new, |device| format!(" on {device}")),
        );
        if !self.events.is_empty() {
            text += "     network SNR   false alarms a year  GPS                 template\n";
        }
        for (index, event) in self.events.iter().take(LISTED).enumerate() {
            let rate = match event.far_hz.zip(event.far_sigma) {
                // No background event is as loud.
                Some((rate, _)) if event.far_hz == event.far_sigma => {
                    format!("below {}", yearly(rate, 2))
                }
                Some((rate, sigma)) => format!("{} ± {}", yearly(rate, 3), yearly(sigma, 1)),
                None => "-".to_owned(),
            };
            let _ = writeln!(
                text,
                "{:>3}  {:>11.2}   {rate:<19}  {:.4}  {}",
                index + 1,
                event.network_snr,
                event.gps,
                event.template
            );
            for (name, trigger) in &event.detectors {
                let _ = writeln!(
                    text,
                    "       {name}  SNR {:6.2}  GPS {:.4}  phase {:+.2}  xi-squared {:.2}",
                    trigger.snr, trigger.gps, trigger.phase, trigger.xi2
                );
            }
        }
        text + &format!("\nwritten: {}", place.display())
    }
}

/// Formats a rate in Hz as a number of events per Julian year.
pub(super) fn yearly(rate_hz: f64, digits: i32) -> String {
    let rate = rate_hz * SECONDS_PER_YEAR;
    if (1e-3..1e5).contains(&rate) {
        short(rate, digits)
    } else {
        format!("{rate:.*e}", digits as usize - 1)
    }
}

fn event(report: &Report, event: &Event) -> EventRow {
    let names = report.detectors.iter().map(|detector| detector.name.as_str());
    event_row(event, names, report.detectors.first().map(|one| &*one.bank))
}

/// Returns the row of an event of these detectors, the first of which has this bank.
pub(crate) fn event_row<'a>(
    event: &Event,
    names: impl Iterator<Item = &'a str>,
    bank: Option<&Bank>,
) -> EventRow {
    let pairs = names.zip(&event.detectors);
    let seen = pairs.filter_map(|(name, one)| Some((name.to_owned(), row(&(*one)?))));
    let template = bank.map(|bank| &bank.templates[event.template as usize]);
    EventRow {
        gps: event.gps.s(),
        network_snr: event.network_snr,
        far_hz: event.far_hz,
        far_sigma: event.far_sigma,
        far_per_year: event.far_hz.map(|rate| rate * SECONDS_PER_YEAR),
        template: template.map_or_else(String::new, |template| template.name.clone()),
        binary: template.and_then(|template| template.binary).map(|binary| BinaryRow {
            mass1: binary.mass1_msun,
            mass2: binary.mass2_msun,
            spin1z: binary.spin1z,
            spin2z: binary.spin2z,
            chirp_mass: binary.chirp_mass_msun(),
        }),
        approximant: template.and_then(|template| template.approximant.clone()),
        ranking: event.ranking,
        detectors: seen.collect(),
    }
}

/// Describes the approximants of templates generated from masses, to follow their number.
fn made(approximants: &BTreeMap<String, usize>) -> String {
    match approximants.len() {
        0 => String::new(),
        1 => approximants.keys().map(|name| format!(" ({name})")).collect(),
        _ => {
            let each: Vec<String> =
                approximants.iter().map(|(name, count)| format!("{count} {name}")).collect();
            format!(" ({})", each.join(", "))
        }
    }
}

fn row(trigger: &TimedTrigger) -> TriggerRow {
    TriggerRow {
        gps: trigger.gps.s(),
        snr: trigger.snr.into(),
        phase: trigger.phase.into(),
        xi2: trigger.xi2.into(),
    }
}

fn detector(one: &DetectorReport) -> DetectorRow {
    let fits = one.bank.templates.iter().map(|template| template.fit);
    let mut approximants = BTreeMap::new();
    for name in one.bank.templates.iter().filter_map(|template| template.approximant.as_ref()) {
        *approximants.entry(name.clone()).or_insert(0) += 1;
    }
    DetectorRow {
        name: one.name.clone(),
        start_gps: one.start.s(),
        rate_hz: one.rate_hz,
        duration_s: one.duration_s,
        livetime_s: one.livetime_s,
        templates: one.bank.templates.len(),
        approximants,
        filters: one.bank.templates.iter().map(|template| template.filters.filters()).sum(),
        lowest_match: fits.fold(1.0, f64::min),
        missed: Missed::new(&one.bank),
        triggers: one.triggers.len(),
        latency_s: one.latency.into(),
    }
}
