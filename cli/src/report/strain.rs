//! Plots of the loudest events of a search of strain, from its series, filter banks and distribution of rankings.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use num_complex::Complex;
use serde_json::Value;
use sidereal::Result;
use sidereal::io::bank_h5;
use sidereal::io::series_h5::{DetectorSeries, Reader};
use sidereal::strain::BankTemplate;
use sidereal::units::Gps;

use super::folder::{Document, Object};
use super::plot::{Axis, Drawing, Image, Plot, Series, What};
use crate::plots::short;
use crate::plots::strain::{band, constant_q, overlay};

/// Most events that are drawn.
const MOST: usize = 10;

/// Largest bank in bytes from which templates are read.
const MOST_BANK: u64 = 256 << 20;

/// Seconds of ratios on either side of an event, and intervals of whitened strain and of its map.
const SNR_HALF_S: f64 = 0.25;
const WHITENED_S: [f64; 2] = [-0.25, 0.1];
const MAP_S: [f64; 2] = [-0.5, 0.25];

/// Seconds of strain on either side from which these are made.
const AROUND_S: f64 = 2.0;

/// Frequencies that are drawn, in Hz, and the quality factor of the tiles of a map.
const BAND_HZ: [f64; 2] = [30.0, 400.0];
const QUALITY: f64 = 8.0;

/// Points of a line, and cells of a map.
const POINTS: usize = 700;
const COLUMNS: usize = 250;
const ROWS: usize = 100;

/// Colours of strain, of a template or an event, and of a threshold.
const STRAIN: usize = 0;
const TEMPLATE: usize = 1;
const THRESHOLD: usize = 7;

/// Draws the events of a document.
///
/// # Errors
/// Those of reading the series and the banks.
pub(super) fn drawing(document: &Document) -> Result<Drawing> {
    let mut made = Drawing::default();
    let events = document.object.get("events").and_then(Value::as_array);
    let events: Vec<&Object> = events.into_iter().flatten().filter_map(Value::as_object).collect();
    let path = document.path.with_file_name("snr.h5");
    if path.is_file() {
        of_events(document, &events, &path, &mut made)?;
    }
    if let Some(plot) = background(&document.object, &events) {
        made.plots.push(plot);
        made.replaced.push("background.png".to_owned());
    }
    Ok(made)
}

/// Draws the loudest events.
fn of_events(
    document: &Document,
    events: &[&Object],
    path: &Path,
    made: &mut Drawing,
) -> Result<()> {
    let reader = Reader::open(path)?;
    let mut banks = Banks { folder: path.with_file_name(""), read: HashMap::new() };
    for (number, event) in (1..).zip(events).take(MOST) {
        let (Some(gps), Some(template)) = (
            event.get("gps").and_then(Value::as_f64),
            event.get("template").and_then(Value::as_str),
        ) else {
            continue;
        };
        let mut has_templates = true;
        let mut of_event = Vec::new();
        for (index, detector) in reader.header().detectors.iter().enumerate() {
            let view = View {
                reader: &reader,
                index,
                detector,
                gps,
                trigger: trigger(event, detector),
                number,
            };
            let Some(snr) = view.snr(template, document)? else {
                has_templates = false;
                continue;
            };
            of_event.push(snr);
            if detector.whitened {
                let template = banks.template(detector, template)?;
                has_templates &= template.is_some() || view.trigger.is_none();
                of_event.extend(view.whitened(template)?);
            }
        }
        if of_event.is_empty() {
            continue;
        }
        // The pictures of an event have a template, if there are banks.
        made.replaced.extend(["snr", "map"].map(|what| format!("event{number}_{what}.png")));
        if has_templates {
            made.replaced.push(format!("event{number}_whitened.png"));
        }
        made.plots.extend(of_event);
    }
    Ok(())
}

/// Draws the events of time slides by their ranking, and the events found; `None` without a distribution.
fn background(document: &Object, events: &[&Object]) -> Option<Plot> {
    let histogram = document.get("histogram")?.as_object()?;
    let numbers = |key: &str| -> Option<Vec<f64>> {
        histogram.get(key)?.as_array()?.iter().map(Value::as_f64).collect()
    };
    let (edges, background) = (numbers("edges")?, numbers("background")?);
    let ([first, .., last], false) = (&edges[..], background.len() + 1 != edges.len()) else {
        return None;
    };
    let width = (last - first) / background.len() as f64;
    let mut louder = 1.0 + background.iter().sum::<f64>();
    let most = louder;
    let mut steps = Vec::new();
    for (bin, count) in background.iter().enumerate() {
        let from = first + bin as f64 * width;
        steps.extend([(from, Some(louder)), (from + width, Some(louder))]);
        louder -= count;
    }
    let rankings = events.iter().filter_map(|event| event.get("ranking").and_then(Value::as_f64));
    let found: Vec<(f64, Option<f64>)> = rankings
        .map(|ranking| {
            let bin = ((ranking - first) / width).max(0.0) as usize;
            (
                ranking,
                Some(background.get(bin.min(background.len() - 1)).map_or(1.0, |x| x.max(1.0))),
            )
        })
        .collect();
    let seconds = document.get("background_s").and_then(Value::as_f64).unwrap_or(0.0);
    let series = vec![
        Series::line("1 + events of time slides at least as loud", 7, steps),
        Series { dots: true, ..Series::line("events found", TEMPLATE, found) },
    ];
    Some(Plot {
        title: format!("Events of {} s of time slides by ranking (bars)", short(seconds, 4)),
        x: Axis::new("ranking", first - 0.02 * (last - first), last + 0.04 * (last - first)),
        y: Axis::log("events", 0.5, 2.0 * most),
        what: What::Bars {
            first: *first,
            width,
            counts: background.iter().map(|count| *count as u64).collect(),
            series,
        },
    })
}

/// Trigger of a detector.
#[derive(Clone, Copy)]
struct Trigger {
    gps: f64,
    snr: f64,
    phase: f64,
    xi2: f64,
}

fn trigger(event: &Object, detector: &DetectorSeries) -> Option<Trigger> {
    let own = event.get("detectors")?.get(&detector.detector)?;
    let number = |key: &str| own.get(key).and_then(Value::as_f64);
    Some(Trigger {
        gps: number("gps")?,
        snr: number("snr")?,
        phase: number("phase")?,
        xi2: number("xi2")?,
    })
}

/// Banks beside the series, each read once.
struct Banks {
    folder: PathBuf,
    read: HashMap<String, Vec<BankTemplate>>,
}

impl Banks {
    /// Returns a detector's template of this name; `None` without a bank, or one that is too long to read.
    fn template(&mut self, detector: &DetectorSeries, name: &str) -> Result<Option<&BankTemplate>> {
        let own = &detector.detector;
        if !self.read.contains_key(own) {
            let path = self.folder.join(format!("bank_{own}.h5"));
            self.read.insert(own.clone(), templates(&path)?);
        }
        let templates = self.read.get(own).map(Vec::as_slice).unwrap_or_default();
        Ok(templates.iter().find(|template| template.name == name))
    }
}

fn templates(path: &Path) -> Result<Vec<BankTemplate>> {
    let Ok(found) = path.metadata() else { return Ok(Vec::new()) };
    if found.len() > MOST_BANK {
        return Ok(Vec::new());
    }
    Ok(bank_h5::read(path)?.templates.into_owned())
}

/// A detector's series around an event.
struct View<'a> {
    reader: &'a Reader,
    index: usize,
    detector: &'a DetectorSeries,
    /// Time of the event.
    gps: f64,
    trigger: Option<Trigger>,
    /// Place of the event in its list, from 1.
    number: usize,
}

impl View<'_> {
    fn rate(&self) -> f64 {
        f64::from(self.detector.rate_hz)
    }

    /// Returns the place in a series of a time in seconds from the event; the series begins `offset_s` after the detector's start.
    fn place(&self, seconds: f64, offset_s: f64) -> f64 {
        let since = Gps::from_s(self.gps).seconds_since(self.detector.start);
        (since + seconds - offset_s) * self.rate()
    }

    /// Returns samples within the series.
    fn range(&self, ends: [f64; 2], offset_s: f64) -> std::ops::Range<u64> {
        let [first, last] = ends.map(|seconds| self.place(seconds, offset_s).max(0.0) as u64);
        first.min(self.detector.samples)..(last + 1).min(self.detector.samples)
    }

    fn title(&self, what: &str) -> String {
        let facts = self.trigger.map_or_else(
            || "no trigger".to_owned(),
            |one| {
                format!(
                    "S/N {:.2}, ξ² {:.2}, {:+.2} ms",
                    one.snr,
                    one.xi2,
                    1e3 * (one.gps - self.gps)
                )
            },
        );
        format!("Event {}, {}: {what} ({facts})", self.number, self.detector.detector)
    }

    /// Draws the signal-to-noise ratio of the event's template; `None` if the file has no series of it.
    fn snr(&self, template: &str, document: &Document) -> Result<Option<Plot>> {
        let known = self.detector.templates.iter().position(|one| one.name == template);
        let Some(known) = known else { return Ok(None) };
        let offset_s = self.detector.templates[known].peak_offset_s;
        let range = self.range([-SNR_HALF_S, SNR_HALF_S], offset_s);
        let start_s = (range.start as f64 - self.place(0.0, offset_s)) / self.rate();
        let z = self.reader.snr(self.index, known, range)?;
        let group = z.len().div_ceil(POINTS).max(1);
        let point = |(cell, values): (usize, &[Complex<f32>])| {
            let most = values.iter().map(|z| z.norm()).filter(|x| x.is_finite()).reduce(f32::max);
            (start_s + (cell * group) as f64 / self.rate(), most.map(f64::from))
        };
        let points: Vec<_> = z.chunks(group).enumerate().map(point).collect();
        let mut high = points.iter().filter_map(|point| point.1).fold(0.0, f64::max);
        let mut series = vec![Series::line("", STRAIN, points)];
        if let Some(threshold) = threshold(document) {
            let ends = [-SNR_HALF_S, SNR_HALF_S].map(|x| (x, Some(threshold)));
            series.push(Series {
                dashed: true,
                ..Series::line("threshold", THRESHOLD, ends.to_vec())
            });
            high = high.max(1.25 * threshold);
        }
        if let Some(one) = self.trigger {
            let place = one.gps - self.gps;
            let line = vec![(place, Some(0.0)), (place, Some(one.snr))];
            series.push(Series::line("trigger", TEMPLATE, line));
            high = high.max(one.snr);
        }
        Ok(Some(Plot {
            title: self.title("S/N"),
            x: Axis::new("s from the event", -SNR_HALF_S, SNR_HALF_S),
            y: Axis::new("S/N", 0.0, 1.08 * high),
            what: What::Lines { series },
        }))
    }

    /// Draws whitened strain, with the template if it is known, and its energy by time and frequency.
    fn whitened(&self, template: Option<&BankTemplate>) -> Result<[Plot; 2]> {
        let range = self.range([-AROUND_S, AROUND_S], 0.0);
        let first = range.start as f64;
        let strain = self.reader.whitened(self.index, range)?;
        let nyquist = 0.5 * self.rate();
        let [low, high] = [BAND_HZ[0].min(0.1 * nyquist), BAND_HZ[1].min(0.9 * nyquist)];
        // Two samples of the highest frequency, and some, are a smooth line.
        let step = (self.rate() / (6.0 * high)).max(1.0) as usize;
        let seconds = |index: usize| (first + index as f64 - self.place(0.0, 0.0)) / self.rate();
        let line = |series: &[f32]| -> Vec<(f64, Option<f64>)> {
            let values = band(series, self.rate(), low, high);
            let all = values.iter().enumerate().step_by(step);
            all.map(|(index, value)| (seconds(index), Some(f64::from(*value))))
                .filter(|(x, _)| (WHITENED_S[0]..=WHITENED_S[1]).contains(x))
                .collect()
        };
        let mut series = vec![Series::line("whitened strain", STRAIN, line(&strain))];
        if let Some((template, one)) = template.zip(self.trigger) {
            let z = Complex::from_polar(one.snr as f32, one.phase as f32);
            let answer = one.gps - self.gps - template.peak_offset_s;
            let last = self.place(answer, 0.0) - first;
            let expected = overlay(&template.whitened, z, last, strain.len());
            series.push(Series::line("template", TEMPLATE, line(&expected)));
        }
        let values = series.iter().flat_map(|one| one.points.iter().filter_map(|point| point.1));
        let most = 1.1 * values.fold(1.0, |most: f64, x| most.max(x.abs()));
        let words = format!("{} to {} Hz", short(low, 4), short(high, 4));
        let whitened = Plot {
            title: self.title(&format!("whitened strain, {words}")),
            x: Axis::new("s from the event", WHITENED_S[0], WHITENED_S[1]),
            y: Axis::new("σ", -most, most),
            what: What::Lines { series },
        };
        let rows = (0..ROWS).map(|row| low * (high / low).powf((row as f64 + 0.5) / ROWS as f64));
        let column = |index: usize| {
            let part = (index as f64 + 0.5) / COLUMNS as f64;
            self.place(MAP_S[0] + part * (MAP_S[1] - MAP_S[0]), 0.0) - first
        };
        let places: Vec<f64> = (0..COLUMNS).map(column).collect();
        let plane = constant_q(&strain, self.rate(), QUALITY, rows, &places);
        let loudest = plane.iter().copied().filter(|x| x.is_finite()).fold(8.0, f32::max);
        let columns: Vec<Vec<f32>> = (0..COLUMNS)
            .map(|column| plane.iter().skip(column).step_by(COLUMNS).copied().collect())
            .collect();
        let image = Image::new(
            columns.iter().map(Vec::as_slice),
            [0.0, loudest.into()],
            "energy (noise: 1)",
        );
        let map = Plot {
            title: self.title("energy of whitened strain"),
            x: Axis::new("s from the event", MAP_S[0], MAP_S[1]),
            y: Axis::log("Hz", low, high),
            what: What::Image(image),
        };
        Ok([whitened, map])
    }
}

/// Returns the threshold of triggers, an option of the search.
fn threshold(document: &Document) -> Option<f64> {
    document.object.get("provenance")?.get("options")?.get("threshold")?.as_f64()
}
