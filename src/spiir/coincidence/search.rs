//! Search for coincident events and their false-alarm rates.

use super::background::Background;
use super::combine::{Coincidence, Combiner, NONE, best_of_windows, rank_order};
use super::found::{Event, Found, Single};
use super::segments::Segments;
use super::slides::Slides;
use super::table::{Hit, Table};
use super::{Detector, FOREGROUND_FALSE_ALARMS, Options, Sample, TimedTrigger};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};

/// Nanoseconds per second.
const NS_PER_S: f64 = 1e9;

/// Finds coincident events of 2 to 4 detectors and their false-alarm rates.
///
/// A coincidence is a set of triggers of one template, at most one per detector and at least two in all, of which
/// every pair lies within its window. An event is a coincidence whose ranking, `sqrt(sum_j r_j^2)`, is the greatest
/// within the cluster window. In slide `i` the triggers and valid times of detector `j` are shifted by `i j`
/// intervals cyclically between the first and the last time with two valid detectors. The events of all slides,
/// formed and clustered by the same rules, are the background; its time is that with at least two valid shifted
/// detectors. The rate of an event is that of background events at least as loud: [`Background::rate`].
///
/// # Errors
/// [`Error::Parameter`] for fewer than 2 or more than 4 detectors, for unusable windows, intervals or triggers, and
/// for detectors without common valid time.
/// # Numerics
/// Deterministic, and independent of the order of the triggers. The zero-lag events do not depend on the order of the
/// detectors either.
/// # Source
/// Babak et al. 2013, Phys. Rev. D 87, 024033; Usman et al. 2016, Class. Quantum Grav. 33, 215004.
pub fn search(detectors: &[Detector<'_>], options: &Options) -> Result<Found> {
    search_on(&Threads::new(1), detectors, options)
}

/// Like [`search`], with the time slides distributed over threads.
///
/// # Errors
/// As [`search`].
pub fn search_on(
    threads: &Threads,
    detectors: &[Detector<'_>],
    options: &Options,
) -> Result<Found> {
    options.check(detectors.len())?;
    check_triggers(detectors)?;
    let valid: Vec<Segments> = detectors.iter().map(|detector| detector.valid.clone()).collect();
    let common = Segments::at_least(2, &valid.iter().collect::<Vec<_>>());
    if common.is_empty() {
        let name = "common valid time of the detectors (s)";
        return Err(Error::parameter(name, 0, not_together(&valid)));
    }
    let rows = options.windows_s.iter();
    let windows_ns: Vec<Vec<i64>> =
        rows.map(|row| row.iter().map(|window| nanoseconds(*window)).collect()).collect();
    let coincidences = zero_lag(detectors, options, &windows_ns);
    let livetime_s = common.duration_s();
    let noise = Noise { detectors, options, windows_ns: &windows_ns, events: &coincidences, valid };
    let background = noise.background(threads, livetime_s);
    let event = |coincidence: &Coincidence| {
        let event = event(detectors, coincidence);
        with_rate(event, &background, livetime_s)
    };
    let events = coincidences.iter().map(event).collect();
    let singles =
        if options.singles { singles(detectors, options, &coincidences) } else { Vec::new() };
    Ok(Found { events, singles, background, livetime_s })
}

fn nanoseconds(seconds: f64) -> i64 {
    (seconds * NS_PER_S).round() as i64
}

/// Checks that every trigger has a finite signal-to-noise ratio and xi-squared.
fn check_triggers(detectors: &[Detector<'_>]) -> Result<()> {
    for (detector, of) in detectors.iter().enumerate() {
        if u32::try_from(of.triggers.len() + 1).is_err() {
            let rule = format!("there must be fewer than 2^32 - 1 (detector {detector})");
            return Err(Error::parameter("triggers", of.triggers.len(), rule));
        }
        let usable = |trigger: &&TimedTrigger| {
            trigger.snr.is_finite() && trigger.snr >= 0.0 && trigger.xi2 >= 0.0
        };
        if let Some(bad) = of.triggers.iter().find(|trigger| !usable(trigger)) {
            let value = format!("snr {}, xi2 {}", bad.snr, bad.xi2);
            let rule = format!("both must be numbers, 0 at least (detector {detector})");
            return Err(Error::parameter("trigger", value, rule));
        }
    }
    Ok(())
}

/// Describes the valid time of each detector for an error message.
fn not_together(valid: &[Segments]) -> String {
    let span = |(detector, segments): (usize, &Segments)| match segments.extent() {
        Some((begin, end)) => format!("detector {detector} GPS {:.3} to {:.3}", begin.s(), end.s()),
        None => format!("detector {detector} never"),
    };
    let spans: Vec<String> = valid.iter().enumerate().map(span).collect();
    format!("two must be valid together ({})", spans.join(", "))
}

/// Returns the zero-lag events, best first.
fn zero_lag(
    detectors: &[Detector<'_>],
    options: &Options,
    windows_ns: &[Vec<i64>],
) -> Vec<Coincidence> {
    let table = Table::new(detectors, options.ranking, |_, _| true);
    let mut coincidences = Vec::new();
    for (place, template) in table.templates.iter().enumerate() {
        let rows: Vec<&[Hit]> =
            (0..detectors.len()).map(|detector| table.row(detector, place)).collect();
        Combiner { windows_ns, template: *template, rows: &rows }.all(&mut coincidences);
    }
    let mut events = Vec::new();
    let window = nanoseconds(options.cluster_s);
    best_of_windows(&mut coincidences, window, |event| events.push(*event));
    events.sort_unstable_by(rank_order);
    events
}

/// Inputs of the background.
struct Noise<'a> {
    detectors: &'a [Detector<'a>],
    options: &'a Options,
    windows_ns: &'a [Vec<i64>],
    /// Zero-lag events, best first.
    events: &'a [Coincidence],
    /// Valid time of each detector.
    valid: Vec<Segments>,
}

impl Noise<'_> {
    /// Runs the time slides without the triggers that the options exclude.
    fn background(&self, threads: &Threads, livetime_s: f64) -> Background {
        match self.options.background {
            Sample::Inclusive => self.without(0, threads),
            Sample::Below(bound) => {
                let louder = |event: &Coincidence| event.square >= bound * bound;
                self.without(self.events.partition_point(louder), threads)
            }
            Sample::ExcludeForeground => self.without_foreground(threads, livetime_s),
        }
    }

    /// Runs the time slides without the foreground.
    ///
    /// Tries batches of events from the loudest on, each twice as large as the previous one while all of a batch are
    /// foreground. So the slides run about `2 log2(foreground)` times.
    fn without_foreground(&self, threads: &Threads, livetime_s: f64) -> Background {
        let (mut foreground, mut batch) = (0, 1);
        let mut known = self.without(0, threads);
        while foreground < self.events.len() {
            let tried = (foreground + batch).min(self.events.len());
            let background = self.without(tried, threads);
            let is_foreground = |event: &&Coincidence| {
                let rate = background.rate(event.square.sqrt());
                rate.is_some_and(|rate| rate.hz * livetime_s < FOREGROUND_FALSE_ALARMS)
            };
            let found = self.events[foreground..tried].iter().take_while(is_foreground).count();
            foreground += found;
            if foreground == tried {
                (known, batch) = (background, 2 * batch);
            } else if batch == 1 {
                break;
            } else {
                known = self.without(foreground, threads);
                batch = 1;
            }
        }
        known
    }

    /// Runs the time slides without the triggers of the loudest `count` events.
    fn without(&self, count: usize, threads: &Threads) -> Background {
        let (options, detectors) = (self.options, self.detectors);
        let mut valid = self.valid.clone();
        let mut left_out = vec![Segments::default(); detectors.len()];
        for (detector, left_out) in left_out.iter_mut().enumerate() {
            let own = self.events[..count].iter().filter(|event| event.members[detector] != NONE);
            let times = own.map(|event| {
                let gps = detectors[detector].triggers[event.members[detector] as usize].gps;
                (gps.plus_s(-options.cluster_s), gps.plus_s(options.cluster_s))
            });
            *left_out = Segments::new(times.collect()).unwrap_or_default();
            valid[detector] = valid[detector].without(left_out);
        }
        let common = Segments::at_least(2, &valid.iter().collect::<Vec<_>>());
        let none = Background { left_out: count, ..Background::default() };
        let Some(circle) = common.extent().filter(|_| options.slides > 0) else { return none };
        let table = Table::new(detectors, options.ranking, |detector, trigger| {
            (circle.0..circle.1).contains(&trigger.gps) && !left_out[detector].contains(trigger.gps)
        });
        let interval_ns = nanoseconds(options.slide_interval_s);
        let cluster_ns = nanoseconds(options.cluster_s);
        let windows_ns = self.windows_ns;
        let slides =
            Slides { table: &table, valid: &valid, circle, windows_ns, interval_ns, cluster_ns };
        let made = slides.run(options.slides.min(slides.room()), threads);
        Background { left_out: count, ..made }
    }
}

fn event(detectors: &[Detector<'_>], coincidence: &Coincidence) -> Event {
    let member = |(detector, index): (&Detector<'_>, &u32)| {
        detector.triggers.get(*index as usize).filter(|_| *index != NONE).copied()
    };
    let members: Vec<Option<TimedTrigger>> =
        detectors.iter().zip(&coincidence.members).map(member).collect();
    let squares = members.iter().flatten().map(|trigger| f64::from(trigger.snr).powi(2));
    Event {
        template: coincidence.template,
        gps: crate::units::Gps { ns: coincidence.ns },
        network_snr: squares.sum::<f64>().sqrt(),
        ranking: coincidence.square.sqrt(),
        detectors: members,
        louder: 0,
        far_hz: None,
        far_sigma: None,
        false_alarm_probability: None,
    }
}

fn with_rate(event: Event, background: &Background, livetime_s: f64) -> Event {
    let rate = background.rate(event.ranking);
    Event {
        louder: background.louder(event.ranking),
        far_hz: rate.map(|rate| rate.hz),
        far_sigma: rate.map(|rate| rate.sigma_hz),
        false_alarm_probability: rate.map(|rate| -(-rate.hz * livetime_s).exp_m1()),
        ..event
    }
}

/// Returns each detector's best triggers outside all events' cluster windows, best first.
fn singles(detectors: &[Detector<'_>], options: &Options, events: &[Coincidence]) -> Vec<Single> {
    let window = nanoseconds(options.cluster_s);
    let around = |event: &Coincidence| {
        let gps = |ns| crate::units::Gps { ns };
        // Segments exclude their end, while an event's window includes both ends.
        (gps(event.ns - window), gps(event.ns + window + 1))
    };
    let taken = Segments::new(events.iter().map(around).collect()).unwrap_or_default();
    let mut singles = Vec::new();
    for (detector, of) in detectors.iter().enumerate() {
        let alone = of.triggers.iter().enumerate().filter(|(_, one)| !taken.contains(one.gps));
        let mut alone: Vec<Coincidence> = alone
            .map(|(index, one)| Coincidence {
                square: options.ranking.square(one),
                ns: one.gps.ns,
                template: one.template,
                members: [index as u32, NONE, NONE, NONE],
            })
            .collect();
        best_of_windows(&mut alone, window, |best| {
            let trigger = of.triggers[best.members[0] as usize];
            singles.push((best.square, Single { detector, trigger }));
        });
    }
    singles.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    singles.into_iter().map(|(_, single)| single).collect()
}
