//! Search for coincident events and their false-alarm rates.

use std::cmp::Ordering;
use std::ops::Range;

use super::segments::Segments;
use super::{
    Background, Detector, Event, FOREGROUND_FALSE_ALARMS, Found, MAX_DETECTORS, Options, Ranking,
    Sample, Single, TimedTrigger,
};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::units::Gps;

/// Nanoseconds per second.
const NS_PER_S: f64 = 1e9;

/// Finds coincident events of 2 to 4 detectors and their false-alarm rates.
///
/// A coincidence is a set of triggers of one template, at most one per detector and at least two in all, of which
/// every pair lies within its window. An event is a coincidence whose ranking, `sqrt(sum_j r_j^2)`, is the greatest
/// within the cluster window. In slide `i` the triggers and valid times of detector `j` are shifted by `i j`
/// intervals cyclically between the first and the last time with two valid detectors. The events of all slides,
/// formed and clustered by the same rules, are the background; its time is the time in which at least two shifted
/// detectors are valid. The rate of an event is that of background events at least as loud: [`Background::rate`].
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

/// Like [`search`], on several threads, with the same result.
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
    let table = Table::new(detectors, options.ranking, threads);
    let coincidences = best(table.coincidences(&windows_ns, threads), options.cluster_s);
    let livetime_s = common.duration_s();
    let (table, events) = (&table, &coincidences);
    let noise = Noise { detectors, table, options, windows_ns: &windows_ns, events, valid };
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

pub(super) fn nanoseconds(seconds: f64) -> i64 {
    (seconds * NS_PER_S).round() as i64
}

/// Checks that every trigger has a finite signal-to-noise ratio and xi-squared.
pub(super) fn check_triggers(detectors: &[Detector<'_>]) -> Result<()> {
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
        Some(Range { start, end }) => {
            format!("detector {detector} GPS {:.3} to {:.3}", start.s(), end.s())
        }
        None => format!("detector {detector} never"),
    };
    let spans: Vec<String> = valid.iter().enumerate().map(span).collect();
    format!("two must be valid together ({})", spans.join(", "))
}

/// Returns the zero-lag events, best first. The only detector's triggers need no partner.
pub(super) fn zero_lag(
    detectors: &[Detector<'_>],
    options: &Options,
    windows_ns: &[Vec<i64>],
    threads: &Threads,
) -> Vec<Coincidence> {
    let coincidences = match detectors {
        [only] => alone(only.triggers, options.ranking).collect(),
        _ => Table::new(detectors, options.ranking, threads).coincidences(windows_ns, threads),
    };
    best(coincidences, options.cluster_s)
}

/// Returns the coincidences that are the best of their cluster windows, best first.
fn best(mut coincidences: Vec<Coincidence>, cluster_s: f64) -> Vec<Coincidence> {
    let mut events = Vec::new();
    best_of_windows(&mut coincidences, nanoseconds(cluster_s), |event| events.push(*event));
    events.sort_unstable_by(rank_order);
    events
}

/// Returns the triggers of a single detector as coincidences without partners.
fn alone(triggers: &[TimedTrigger], ranking: Ranking) -> impl Iterator<Item = Coincidence> {
    triggers.iter().enumerate().map(move |(index, one)| Coincidence {
        square: ranking.square(one),
        ns: one.gps.ns,
        template: one.template,
        members: [index as u32, NONE, NONE, NONE],
    })
}

/// Inputs of the background.
struct Noise<'a> {
    detectors: &'a [Detector<'a>],
    /// Triggers of all detectors.
    table: &'a Table,
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
        let wanted =
            |detector: usize, gps: Gps| circle.contains(&gps) && !left_out[detector].contains(gps);
        let table = self.table.only(wanted, threads);
        let interval_ns = nanoseconds(options.slide_interval_s);
        let cluster_ns = nanoseconds(options.cluster_s);
        let windows_ns = self.windows_ns;
        let slides = Slides {
            table: &table,
            valid: &valid,
            circle: circle.clone(),
            windows_ns,
            interval_ns,
            cluster_ns,
        };
        let made = slides.run(options.slides.min(slides.max_slides()), threads);
        Background { left_out: count, ..made }
    }
}

/// Returns a coincidence as an event without a false-alarm rate.
pub(super) fn event(detectors: &[Detector<'_>], coincidence: &Coincidence) -> Event {
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

/// Marks a detector without a trigger.
const NONE: u32 = u32::MAX;

/// Set of triggers of two or more detectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Coincidence {
    /// Square of its ranking: the sum of its triggers' squares.
    square: f64,
    /// Time of its best trigger in GPS nanoseconds.
    pub(super) ns: i64,
    template: u32,
    /// Trigger index in each detector, or [`NONE`].
    members: [u32; MAX_DETECTORS],
}

/// Search for coincidences among one template's triggers.
struct Combiner<'a> {
    /// Longest time between triggers of each pair of detectors, in nanoseconds.
    windows_ns: &'a [Vec<i64>],
    template: u32,
    /// Triggers of each detector in order of time.
    rows: &'a [&'a [Hit]],
}

/// Partial set of triggers.
#[derive(Clone, Copy, Default)]
struct Chosen {
    detectors: usize,
    hits: [Option<Hit>; MAX_DETECTORS],
}

impl Combiner<'_> {
    /// Appends every set of triggers, one from each of two or more detectors, in which all pairs are within their
    /// windows.
    fn all(&self, found: &mut Vec<Coincidence>) {
        for first in 0..self.rows.len() {
            let mut cursors = [0; MAX_DETECTORS];
            for anchor in self.rows[first] {
                let mut has_partner = false;
                let later = self.rows.iter().zip(&self.windows_ns[first]).zip(&mut cursors);
                for ((row, window), cursor) in later.skip(first + 1) {
                    let early = anchor.ns - window;
                    *cursor += row[*cursor..].iter().take_while(|hit| hit.ns < early).count();
                    has_partner |= row.get(*cursor).is_some_and(|hit| hit.ns <= anchor.ns + window);
                }
                if !has_partner {
                    continue;
                }
                let mut chosen = Chosen { detectors: 1, ..Chosen::default() };
                chosen.hits[first] = Some(*anchor);
                self.extend(first, &chosen, first + 1, &cursors, found);
            }
        }
    }

    /// Extends a set that starts in detector `first` with triggers of the detectors from `next` on.
    fn extend(
        &self,
        first: usize,
        chosen: &Chosen,
        next: usize,
        cursors: &[usize; MAX_DETECTORS],
        found: &mut Vec<Coincidence>,
    ) {
        let Some(anchor) = chosen.hits[first] else { return };
        for detector in next..self.rows.len() {
            let late = anchor.ns + self.windows_ns[first][detector];
            let row = &self.rows[detector][cursors[detector]..];
            for hit in row.iter().take_while(|hit| hit.ns <= late) {
                if !self.fits(chosen, detector, hit) {
                    continue;
                }
                let mut more = *chosen;
                more.hits[detector] = Some(*hit);
                more.detectors += 1;
                found.push(self.coincidence(&more));
                if more.detectors < self.rows.len() {
                    self.extend(first, &more, detector + 1, cursors, found);
                }
            }
        }
    }

    /// Tells whether the trigger is within its window of all triggers in the set.
    fn fits(&self, chosen: &Chosen, detector: usize, hit: &Hit) -> bool {
        let windows = &self.windows_ns[detector];
        chosen
            .hits
            .iter()
            .zip(windows)
            .all(|(other, window)| other.is_none_or(|other| (other.ns - hit.ns).abs() <= *window))
    }

    fn coincidence(&self, chosen: &Chosen) -> Coincidence {
        let mut members = [NONE; MAX_DETECTORS];
        let (mut square, mut best) = (0.0, (f64::NEG_INFINITY, 0));
        for (member, hit) in members.iter_mut().zip(&chosen.hits) {
            if let Some(hit) = hit {
                *member = hit.index;
                square += hit.square;
                // Of equals the earlier wins, so that the order of detectors does not matter.
                if hit.square > best.0 || hit.square == best.0 && hit.ns < best.1 {
                    best = (hit.square, hit.ns);
                }
            }
        }
        Coincidence { square, ns: best.1, template: self.template, members }
    }
}

/// Orders coincidences best first; of equals the earlier, then the lower template.
fn rank_order(a: &Coincidence, b: &Coincidence) -> Ordering {
    let same = || a.ns.cmp(&b.ns).then(a.template.cmp(&b.template)).then(a.members.cmp(&b.members));
    b.square.total_cmp(&a.square).then_with(same)
}

/// Calls `keep` in order of time for each coincidence that is the best within `window_ns` before and after it.
fn best_of_windows(
    coincidences: &mut [Coincidence],
    window_ns: i64,
    mut keep: impl FnMut(&Coincidence),
) {
    coincidences.sort_unstable_by(|a, b| a.ns.cmp(&b.ns).then_with(|| rank_order(a, b)));
    for (place, own) in coincidences.iter().enumerate() {
        let near = |other: &&Coincidence| (other.ns - own.ns).abs() <= window_ns;
        let worse = |other: &Coincidence| rank_order(own, other) == Ordering::Less;
        let before = coincidences[..place].iter().rev().take_while(near).all(worse);
        if before && coincidences[place + 1..].iter().take_while(near).all(worse) {
            keep(own);
        }
    }
}

/// Trigger data that the coincidence search needs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Hit {
    /// Time in GPS nanoseconds.
    ns: i64,
    /// Square of its ranking.
    square: f64,
    /// Index in its detector's list.
    index: u32,
}

/// Most parts of a table for each thread: several, so that a thread that finishes early can take another part.
const PARTS_PER_THREAD: usize = 4;

/// Triggers of a part on average, and of a chunk of a list, at least: fewer are not worth a thread.
const LEAST: usize = 4096;

/// Triggers of all detectors in parts, each with some of the templates.
#[derive(Debug)]
struct Table {
    parts: Vec<Part>,
}

/// Triggers of some templates, by template and time for each detector.
#[derive(Debug)]
struct Part {
    /// Templates with triggers in at least two detectors.
    templates: Vec<u32>,
    hits: Vec<Vec<Hit>>,
    /// Range of each of `templates` in each detector's hits.
    ranges: Vec<Vec<Range<usize>>>,
}

/// Chunk of a detector's list of triggers.
struct Chunk<'a> {
    detector: usize,
    /// Index of its first trigger.
    first: usize,
    triggers: &'a [TimedTrigger],
}

impl Table {
    /// Collects all triggers. Threads first divide chunks of the lists among the parts, and then sort the parts.
    fn new(detectors: &[Detector<'_>], ranking: Ranking, threads: &Threads) -> Self {
        let count: usize = detectors.iter().map(|of| of.triggers.len()).sum();
        let parts = (count / LEAST).clamp(1, PARTS_PER_THREAD * threads.count());
        let mut chunks = Vec::new();
        for (detector, of) in detectors.iter().enumerate() {
            let length = of.triggers.len().div_ceil(threads.count()).max(LEAST);
            for (index, triggers) in of.triggers.chunks(length).enumerate() {
                chunks.push(Chunk { detector, first: index * length, triggers });
            }
        }
        let divided = threads.map(chunks, |chunk| (chunk.detector, chunk.divided(parts, ranking)));
        let mut lists = vec![vec![Vec::new(); detectors.len()]; parts];
        for (detector, divided) in divided {
            for (lists, own) in lists.iter_mut().zip(divided) {
                lists[detector].push(own);
            }
        }
        Self { parts: threads.map(lists, Part::new) }
    }

    /// Returns a copy with the triggers for which `wanted(detector, time)` holds.
    fn only(&self, wanted: impl Fn(usize, Gps) -> bool + Sync, threads: &Threads) -> Self {
        Self { parts: threads.map(self.parts.iter().collect(), |part| part.only(&wanted)) }
    }

    /// Returns the coincidences of all templates.
    fn coincidences(&self, windows_ns: &[Vec<i64>], threads: &Threads) -> Vec<Coincidence> {
        threads.map(self.parts.iter().collect(), |part| part.coincidences(windows_ns)).concat()
    }
}

impl Chunk<'_> {
    /// Divides the triggers, with their templates, among `parts` parts by template.
    fn divided(&self, parts: usize, ranking: Ranking) -> Vec<Vec<(u32, Hit)>> {
        let most = self.triggers.len() / parts + 1;
        let mut divided: Vec<_> = (0..parts).map(|_| Vec::with_capacity(most)).collect();
        for (index, trigger) in self.triggers.iter().enumerate() {
            let (ns, square) = (trigger.gps.ns, ranking.square(trigger));
            let hit = Hit { ns, square, index: (self.first + index) as u32 };
            divided[part_of(trigger.template, parts)].push((trigger.template, hit));
        }
        divided
    }
}

/// Returns the part of a template; a hash, so that templates with a common factor are in different parts.
fn part_of(template: u32, parts: usize) -> usize {
    let hash = template.wrapping_mul(0x9e37_79b9);
    ((u64::from(hash) * parts as u64) >> 32) as usize
}

impl Part {
    /// Collects the triggers of each detector's lists.
    fn new(lists: Vec<Vec<Vec<(u32, Hit)>>>) -> Self {
        let sorted = |lists: Vec<Vec<(u32, Hit)>>| {
            let mut list = lists.concat();
            list.sort_unstable_by_key(|(template, hit)| (*template, hit.ns, hit.index));
            list
        };
        let lists: Vec<Vec<(u32, Hit)>> = lists.into_iter().map(sorted).collect();
        let mut templates: Vec<u32> = lists.iter().flat_map(|list| own_templates(list)).collect();
        templates.sort_unstable();
        // A template occurs once for each detector that has it.
        let twice = templates.windows(2).filter(|pair| pair[0] == pair[1]);
        let mut templates: Vec<u32> = twice.map(|pair| pair[0]).collect();
        templates.dedup();
        let range = |list: &[(u32, Hit)], template: u32| {
            let first = list.partition_point(|(own, _)| *own < template);
            first..first + list[first..].partition_point(|(own, _)| *own == template)
        };
        let ranges =
            |list: &Vec<_>| templates.iter().map(|template| range(list, *template)).collect();
        let ranges = lists.iter().map(ranges).collect();
        let hits = |list: Vec<(u32, Hit)>| list.into_iter().map(|(_, hit)| hit).collect();
        Self { ranges, hits: lists.into_iter().map(hits).collect(), templates }
    }

    /// Returns one detector's triggers of the template at index `place`, in order of time.
    fn row(&self, detector: usize, place: usize) -> &[Hit] {
        &self.hits[detector][self.ranges[detector][place].clone()]
    }

    /// See [`Table::only`].
    fn only(&self, wanted: impl Fn(usize, Gps) -> bool) -> Self {
        let detectors = self.hits.len();
        let mut part = Self {
            templates: Vec::with_capacity(self.templates.len()),
            hits: self.hits.iter().map(|hits| Vec::with_capacity(hits.len())).collect(),
            ranges: vec![Vec::new(); detectors],
        };
        for (place, template) in self.templates.iter().enumerate() {
            let firsts: Vec<usize> = part.hits.iter().map(Vec::len).collect();
            for (detector, hits) in part.hits.iter_mut().enumerate() {
                let own = self.row(detector, place).iter();
                hits.extend(own.filter(|hit| wanted(detector, Gps { ns: hit.ns })));
            }
            let ranges = part.hits.iter().zip(&firsts).map(|(hits, first)| *first..hits.len());
            let ranges: Vec<Range<usize>> = ranges.collect();
            if ranges.iter().filter(|range| !range.is_empty()).count() < 2 {
                part.hits.iter_mut().zip(firsts).for_each(|(hits, first)| hits.truncate(first));
                continue;
            }
            part.ranges.iter_mut().zip(ranges).for_each(|(all, range)| all.push(range));
            part.templates.push(*template);
        }
        part
    }

    fn coincidences(&self, windows_ns: &[Vec<i64>]) -> Vec<Coincidence> {
        let mut found = Vec::new();
        for (place, template) in self.templates.iter().enumerate() {
            let rows: Vec<&[Hit]> =
                (0..self.hits.len()).map(|detector| self.row(detector, place)).collect();
            Combiner { windows_ns, template: *template, rows: &rows }.all(&mut found);
        }
        found
    }
}

/// Returns the distinct templates of a list.
fn own_templates(list: &[(u32, Hit)]) -> Vec<u32> {
    let mut own: Vec<u32> = list.iter().map(|(template, _)| *template).collect();
    own.dedup();
    own
}

/// Inputs of the time slides.
struct Slides<'a> {
    table: &'a Table,
    /// Valid time of each detector.
    valid: &'a [Segments],
    /// Cyclic interval: from the first to the last time with two valid detectors.
    circle: Range<Gps>,
    windows_ns: &'a [Vec<i64>],
    interval_ns: i64,
    cluster_ns: i64,
}

/// Rankings of time slides of a short time.
#[derive(Debug, Default)]
pub(super) struct Slid {
    /// Of all coincidences, in any order.
    pub(super) coincidences: Vec<f64>,
    /// Of the events, the best coincidences of their cluster windows.
    pub(super) events: Vec<f64>,
}

impl Slid {
    /// Slides triggers, all within `circle`, in `slides` slides of equal steps; those of a single detector need no partner and
    /// are not shifted.
    pub(super) fn new(
        detectors: &[Detector<'_>],
        options: &Options,
        windows_ns: &[Vec<i64>],
        circle: Range<Gps>,
        slides: usize,
        threads: &Threads,
    ) -> Self {
        let mut slid = Self::default();
        let cluster_ns = nanoseconds(options.cluster_s);
        if let [only] = detectors {
            let mut found: Vec<Coincidence> = alone(only.triggers, options.ranking).collect();
            slid.take(&mut found, cluster_ns);
            return slid;
        }
        let interval_ns = (circle.end.ns - circle.start.ns) / (slides as i64 + 1);
        let is_in = |one: &TimedTrigger| circle.contains(&one.gps);
        debug_assert!(detectors.iter().flat_map(|detector| detector.triggers).all(is_in));
        let table = Table::new(detectors, options.ranking, threads);
        let (table, valid) = (&table, &[]);
        let slides_of = Slides { table, valid, circle, windows_ns, interval_ns, cluster_ns };
        let mut scratch = Scratch::of_all(threads, detectors.len());
        let mut all: Vec<Self> = (0..slides).map(|_| Self::default()).collect();
        threads.for_each_chunk(&mut scratch, &mut all, 1, |scratch, index, own| {
            let found = slides_of.slide(index + 1, scratch);
            own.iter_mut().for_each(|own| own.take(found, cluster_ns));
        });
        for own in all {
            slid.coincidences.extend(own.coincidences);
            slid.events.extend(own.events);
        }
        slid
    }

    fn take(&mut self, found: &mut [Coincidence], cluster_ns: i64) {
        self.coincidences.extend(found.iter().map(|one| one.square.sqrt()));
        best_of_windows(found, cluster_ns, |event| self.events.push(event.square.sqrt()));
    }
}

/// Result of a slide.
struct Made {
    slide: usize,
    rankings: Vec<f64>,
    time_s: f64,
}

impl Made {
    fn new(slide: usize) -> Self {
        Self { slide, rankings: Vec::new(), time_s: 0.0 }
    }
}

/// Scratch memory of a thread.
struct Scratch {
    moved: Vec<Vec<Hit>>,
    found: Vec<Coincidence>,
}

impl Scratch {
    /// Returns the scratch memory of all threads.
    fn of_all(threads: &Threads, detectors: usize) -> Vec<Self> {
        let one = || Self { moved: vec![Vec::new(); detectors], found: Vec::new() };
        (0..threads.count()).map(|_| one()).collect()
    }
}

impl Slides<'_> {
    /// Returns the most slides of the interval: no two give a pair of detectors the same offset, and none comes
    /// within a step of the full interval.
    fn max_slides(&self) -> usize {
        let steps = (self.circle.end.ns - self.circle.start.ns) / self.interval_ns - 1;
        steps.max(0) as usize / (self.valid.len() - 1)
    }

    /// Returns the events of `slides` slides, distributed over the threads.
    fn run(&self, slides: usize, threads: &Threads) -> Background {
        let mut made: Vec<Made> = (1..=slides).map(Made::new).collect();
        let mut scratch = Scratch::of_all(threads, self.valid.len());
        threads.for_each_chunk(&mut scratch, &mut made, 1, |scratch, _, made| {
            made.iter_mut().for_each(|made| self.make(made, scratch));
        });
        let mut background = Background { slides, ..Background::default() };
        for made in made {
            background.rankings.extend(made.rankings);
            background.time_s += made.time_s;
        }
        background.rankings.sort_unstable_by(|a, b| b.total_cmp(a));
        background
    }

    /// Computes the events and the time of one slide.
    fn make(&self, made: &mut Made, scratch: &mut Scratch) {
        let found = self.slide(made.slide, scratch);
        best_of_windows(found, self.cluster_ns, |event| made.rankings.push(event.square.sqrt()));
        made.time_s = self.time_s(made.slide);
    }

    fn offset_ns(&self, slide: usize, detector: usize) -> i64 {
        (slide * detector) as i64 * self.interval_ns
    }

    /// Finds the coincidences of one slide.
    fn slide<'a>(&self, slide: usize, scratch: &'a mut Scratch) -> &'a mut [Coincidence] {
        let Scratch { moved, found } = scratch;
        found.clear();
        let detectors = moved.len();
        for part in &self.table.parts {
            for (place, template) in part.templates.iter().enumerate() {
                let mut rows: [&[Hit]; MAX_DETECTORS] = [&[]; MAX_DETECTORS];
                for ((detector, moved), row) in moved.iter_mut().enumerate().zip(&mut rows) {
                    let (own, offset) =
                        (part.row(detector, place), self.offset_ns(slide, detector));
                    *row = match offset {
                        // The first detector stays.
                        0 => own,
                        _ => {
                            turn(own, &self.circle, offset, moved);
                            moved
                        }
                    };
                }
                let (windows_ns, rows) = (self.windows_ns, &rows[..detectors]);
                Combiner { windows_ns, template: *template, rows }.all(found);
            }
        }
        found
    }

    /// Returns the time of one slide in which at least two detectors are valid.
    fn time_s(&self, slide: usize) -> f64 {
        let turned = |(detector, valid): (usize, &Segments)| {
            valid.turned(&self.circle, self.offset_ns(slide, detector))
        };
        let turned: Vec<Segments> = self.valid.iter().enumerate().map(turned).collect();
        Segments::at_least(2, &turned.iter().collect::<Vec<_>>()).duration_s()
    }
}

/// Shifts time-ordered triggers cyclically within the interval; keeps them ordered.
fn turn(row: &[Hit], circle: &Range<Gps>, offset_ns: i64, moved: &mut Vec<Hit>) {
    let length = circle.end.ns - circle.start.ns;
    let offset = offset_ns.rem_euclid(length);
    let stay = row.partition_point(|hit| hit.ns + offset < circle.end.ns);
    moved.clear();
    let later = |hit: &Hit, by: i64| Hit { ns: hit.ns + by, ..*hit };
    moved.extend(row[stay..].iter().map(|hit| later(hit, offset - length)));
    moved.extend(row[..stay].iter().map(|hit| later(hit, offset)));
}
