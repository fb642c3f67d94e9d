//! Clustering of events into one candidate per burst.
//!
//! Invariant: every event is a member of exactly one candidate, and neither the order in which events came nor when they were
//! settled matters. A clusterer put into a state goes on as the one that it was taken from, bit for bit.

mod burst;

use std::cmp::Ordering;
use std::collections::HashMap;

use super::partial::PartialEvent;
use super::rules::Event;
use crate::error::{Error, Result};
use crate::state::GREATEST;
use crate::units::dispersion_delay_s;
pub use burst::BandEdges;
use burst::{Group, Key, Point, Reach, Wings, drifts, group, merge, reach_end};

/// Fraction of the widest boxcar from which a pulse may be wider than any boxcar: the next narrower one is a fifth
/// narrower.
const WIDEST: f64 = 0.75;

/// Fraction of the longest reach in time after which groups are merged again: smaller fractions cost time, larger
/// ones memory.
const STEP: f64 = 0.125;

/// Trials of one range of a DM plan.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialRange {
    /// Dispersion measure of each trial, pc cm^-3.
    pub dms: Vec<f64>,
    /// Sampling time of its series, in seconds.
    pub tsamp_s: f64,
    /// Widest boxcar in samples.
    pub widest: usize,
}

/// Burst candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Dispersion measure of the best event, pc cm^-3.
    pub dm: f64,
    /// Centre of its boxcar at the highest frequency, in seconds from the start of the first sample.
    pub time_s: f64,
    /// Its signal-to-noise ratio.
    pub snr: f64,
    /// Width of its boxcar in seconds.
    pub width_s: f64,
    /// Events that belong to the burst.
    pub members: usize,
    /// Index of the range of the DM plan.
    pub range: usize,
    /// Index of the trial, counted over all ranges.
    pub trial: usize,
    /// Start of the best event's boxcar.
    pub peak_begin_s: f64,
    /// End of the best event's boxcar.
    pub peak_end_s: f64,
    /// Earliest start of any member's boxcar.
    pub begin_s: f64,
    /// Latest end of any member's boxcar.
    pub end_s: f64,
    /// Lowest dispersion measure of a member.
    pub dm_min: f64,
    /// Highest dispersion measure of a member.
    pub dm_max: f64,
    /// Fraction of the channels that the best event has: 1, unless the recording's start or end cuts off its sweep.
    pub band_fraction: f64,
}

impl Candidate {
    /// Shifts all times by `seconds`.
    pub fn shift(&mut self, seconds: f64) {
        self.time_s += seconds;
        self.peak_begin_s += seconds;
        self.peak_end_s += seconds;
        self.begin_s += seconds;
        self.end_s += seconds;
    }

    /// Orders candidates, best first: by significance, then time, then dispersion measure.
    pub fn order(&self, other: &Self) -> Ordering {
        let later = || self.peak_begin_s.total_cmp(&other.peak_begin_s);
        let higher = || self.dm.total_cmp(&other.dm).then(self.trial.cmp(&other.trial));
        let ends = || self.peak_end_s.total_cmp(&other.peak_end_s);
        other.snr.total_cmp(&self.snr).then_with(later).then_with(higher).then_with(ends)
    }
}

/// Event that belongs to a candidate and is not its best one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Absorbed {
    /// Trial of the candidate, counted over all ranges, and the start of its boxcar; the pair is unique.
    pub owner: (usize, f64),
    /// Index of the event's trial, counted over all ranges.
    pub trial: usize,
    /// Its dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Its signal-to-noise ratio.
    pub snr: f64,
    /// Start of its boxcar, in seconds from the start of the first sample.
    pub begin_s: f64,
    /// End of its boxcar.
    pub end_s: f64,
}

impl Absorbed {
    /// Shifts all times by `seconds`.
    pub fn shift(&mut self, seconds: f64) {
        self.owner.1 += seconds;
        self.begin_s += seconds;
        self.end_s += seconds;
    }
}

/// Collects events of all ranges and groups them into candidates.
///
/// [`Clusterer::settle`] returns the candidates that no later event can change and frees their events, so that memory
/// holds only undecided ones.
///
/// 1. Each event links to the strongest adjacent event that explains it, within 3 trials and touching in time, and so
///    climbs to a local peak. The events that reach one peak form a group. (Linking all adjacent events instead would
///    join the pulses of a bright pulsar where their wings cross.)
/// 2. A group within the dispersion cone of a stronger one that explains it belongs to that one.
///
/// A pulse of width `W` and significance `S` explains an event in a boxcar of width `w` whose significance is at most
/// `S sqrt(W / w) min(2 f, 1.5) + 4`. `f` is the fraction of a flat-spectrum pulse that the boxcar holds at its own
/// dispersion measure and time. A narrower or stronger event is another pulse.
///
/// # Numerics
/// Deterministic: ties go to the earlier, then to the lower dispersion measure.
/// # Source
/// Loss of signal-to-noise with a wrong dispersion measure: Cordes & McLaughlin 2003, ApJ 596,
/// 1142, eq. 12 and 13 for a boxcar of the pulse's own width.
#[derive(Debug)]
pub struct Clusterer {
    ranges: Vec<TrialRange>,
    wings: Wings,
    /// Widest boxcar of any range, in seconds.
    widest_s: f64,
    /// First trial of each range, and the total number of trials.
    offsets: Vec<usize>,
    /// Rank of each trial in order of dispersion measure.
    ranks: Vec<u32>,
    /// Drift of a burst between each rank and its neighbours, in seconds.
    drifts: Vec<f64>,
    lowest_dm: f64,
    highest_dm: f64,
    /// Events whose group may still change.
    points: Vec<Point>,
    /// Complete groups that may still join a burst.
    groups: Vec<Group>,
    /// Members, if they are listed: of each complete group, and those returned but not yet fetched.
    members: Option<HashMap<Key, Vec<Point>>>,
    absorbed: Vec<Absorbed>,
    /// All events that start before this time were added.
    frontier_s: f64,
    /// Groups were merged up to this time; no later group starts before it.
    horizon: f64,
    /// Total number of events added.
    events: usize,
}

impl Clusterer {
    /// Creates a clusterer for the given trials.
    ///
    /// # Errors
    /// [`Error::Parameter`] for edges, dispersion measures or sampling times that are not finite
    /// and in order, and for 2^32 trials or more.
    pub fn new(ranges: Vec<TrialRange>, band: BandEdges) -> Result<Self> {
        let BandEdges { lowest_hz, highest_hz, dm_constant } = band;
        let delay_per_dm = dispersion_delay_s(1.0, lowest_hz, highest_hz, dm_constant);
        if !(delay_per_dm.is_finite() && delay_per_dm >= 0.0) {
            let rule = "the band's edges must be positive and in order";
            return Err(Error::parameter("delay across the band (s)", delay_per_dm, rule));
        }
        let mut offsets = vec![0];
        for range in &ranges {
            if !(range.tsamp_s.is_finite() && range.tsamp_s > 0.0) {
                let rule = "it must be positive and finite";
                return Err(Error::parameter("sampling time (s)", range.tsamp_s, rule));
            }
            offsets.push(offsets[offsets.len() - 1] + range.dms.len());
        }
        let widths = ranges.iter().map(|range| range.widest as f64 * range.tsamp_s);
        let widest_s = widths.fold(0.0, f64::max);
        let dms: Vec<f64> = ranges.iter().flat_map(|range| range.dms.iter().copied()).collect();
        let ranks = ranks(&dms)?;
        let mut sorted = dms;
        sorted.sort_by(f64::total_cmp);
        Ok(Self {
            ranges,
            wings: Wings::new(band, delay_per_dm),
            widest_s,
            offsets,
            ranks,
            drifts: drifts(&sorted, delay_per_dm),
            lowest_dm: sorted.first().copied().unwrap_or(0.0),
            highest_dm: sorted.last().copied().unwrap_or(0.0),
            points: Vec::new(),
            groups: Vec::new(),
            members: None,
            absorbed: Vec::new(),
            frontier_s: f64::NEG_INFINITY,
            horizon: f64::NEG_INFINITY,
            events: 0,
        })
    }

    /// Enables the listing of each candidate's members; call it before events are added.
    pub fn listing(self) -> Self {
        Self { members: Some(HashMap::new()), ..self }
    }

    /// Returns the members of the candidates returned since the last call, by owner, then by trial and time.
    pub fn take_absorbed(&mut self) -> Vec<Absorbed> {
        std::mem::take(&mut self.absorbed)
    }

    /// Adds events of one range.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no such range or trial.
    pub fn push(&mut self, range: usize, events: &[Event]) -> Result<()> {
        self.take(range, events.iter().map(|event| (event.time as f64, *event, 1.0)))
    }

    /// Adds events of one range that lack some channels.
    ///
    /// # Errors
    /// As [`Clusterer::push`].
    pub fn push_partial(&mut self, range: usize, events: &[PartialEvent]) -> Result<()> {
        let event = |event: &PartialEvent| {
            let PartialEvent { dm, time, width, snr, band } = *event;
            (time as f64, Event { dm, time: 0, width, snr }, band)
        };
        self.take(range, events.iter().map(event))
    }

    /// Adds events of one range: first sample, event, and fraction of the channels of each.
    fn take(
        &mut self,
        range: usize,
        events: impl ExactSizeIterator<Item = (f64, Event, f32)>,
    ) -> Result<()> {
        let Some(trials) = self.ranges.get(range) else {
            let rule = format!("there are {}", self.ranges.len());
            return Err(Error::parameter("range of the DM plan", range, rule));
        };
        self.points.reserve(events.len());
        self.events += events.len();
        for (time, event, band) in events {
            let Some(&dm) = trials.dms.get(event.dm as usize) else {
                let rule = format!("the range has {}", trials.dms.len());
                return Err(Error::parameter("trial", event.dm, rule));
            };
            let trial = self.offsets[range] + event.dm as usize;
            let begin = time * trials.tsamp_s;
            let end = (time + f64::from(event.width)) * trials.tsamp_s;
            let is_widest = f64::from(event.width) >= WIDEST * trials.widest as f64;
            let (rank, trial, snr) = (self.ranks[trial], trial as u32, event.snr);
            self.points.push(Point { begin, end, snr, rank, dm, trial, is_widest, band });
        }
        Ok(())
    }

    /// Returns the number of events added.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Returns the final candidates, best first: no event that starts at `frontier_s` or later, in seconds, can join,
    /// absorb or be absorbed by them.
    ///
    /// All events that start before the frontier must have been added.
    pub fn settle(&mut self, frontier_s: f64) -> Vec<Candidate> {
        if frontier_s <= self.frontier_s && frontier_s.is_finite() {
            return Vec::new();
        }
        self.frontier_s = frontier_s;
        let horizon = self.gather(frontier_s);
        let reach = Reach::new(self.lowest_dm, self.wings.delay_per_dm, self.widest_s);
        // Merging again pays only if it decides enough groups.
        let least = STEP * reach.longest_s(self.highest_dm);
        if horizon < self.horizon + least {
            return Vec::new();
        }
        self.horizon = horizon;
        if self.groups.is_empty() {
            return Vec::new();
        }
        let groups = std::mem::take(&mut self.groups);
        let is_open = |group: &Group| reach.end(&group.best) >= horizon;
        let mut members = self.members.take();
        let absorbed = |burst: &Point, group: &Point| {
            if let Some(members) = &mut members {
                let mut own = members.remove(&group.key()).unwrap_or_default();
                own.push(*group);
                members.entry(burst.key()).or_default().append(&mut own);
            }
        };
        let merged = merge(groups, self.ranks.len(), self.wings, is_open, absorbed);
        self.members = members;
        self.groups = merged.undecided;
        merged.decided.iter().for_each(|group| self.list(&group.best));
        merged.decided.iter().map(|group| self.candidate(group)).collect()
    }

    /// Groups the events that no later one changes. Returns the time before which no other group starts.
    fn gather(&mut self, frontier_s: f64) -> f64 {
        if self.points.is_empty() {
            return frontier_s;
        }
        let (groups, group_of) = group(&mut self.points, self.ranks.len(), self.wings);
        let mut is_open = vec![false; groups.len()];
        for (point, group) in self.points.iter().zip(&group_of) {
            is_open[*group as usize] |=
                reach_end(point, self.drifts[point.rank as usize]) >= frontier_s;
        }
        if let Some(members) = &mut self.members {
            for (point, group) in self.points.iter().zip(&group_of) {
                let best = &groups[*group as usize].best;
                if !is_open[*group as usize] && point.key() != best.key() {
                    members.entry(best.key()).or_default().push(*point);
                }
            }
        }
        let mut kept = group_of.iter().map(|group| is_open[*group as usize]);
        self.points.retain(|_| kept.next().unwrap_or(true));
        let whole = groups.iter().zip(&is_open).filter(|(_, is_open)| !**is_open);
        self.groups.extend(whole.map(|(group, _)| group));
        self.groups.sort_unstable_by(|a, b| a.best.order(&b.best));
        self.points.iter().map(|point| point.begin).fold(frontier_s, f64::min)
    }

    /// Returns the candidates that would be final if the events that `add` adds were the last ones, without the candidates
    /// already returned; best first. Later events may change, absorb or join them. The events that `add` adds are removed
    /// again.
    ///
    /// # Errors
    /// Those of `add`.
    pub fn undecided(
        &mut self,
        add: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Vec<Candidate>> {
        let (points, events) = (self.points.len(), self.events);
        let candidates = add(self).map(|()| self.all_open());
        self.points.truncate(points);
        self.events = events;
        candidates
    }

    fn all_open(&self) -> Vec<Candidate> {
        if self.points.is_empty() && self.groups.is_empty() {
            return Vec::new();
        }
        let mut points = self.points.clone();
        let (mut groups, _) = group(&mut points, self.ranks.len(), self.wings);
        groups.extend(self.groups.iter().copied());
        groups.sort_unstable_by(|a, b| a.best.order(&b.best));
        let merged = merge(groups, self.ranks.len(), self.wings, |_| false, |_, _| {});
        merged.decided.iter().map(|group| self.candidate(group)).collect()
    }

    /// Returns the remaining candidates, best first.
    pub fn finish(&mut self) -> Vec<Candidate> {
        self.settle(f64::INFINITY)
    }

    /// Lists the members of a candidate, if enabled.
    fn list(&mut self, best: &Point) {
        let Some(mut own) = self.members.as_mut().and_then(|all| all.remove(&best.key())) else {
            return;
        };
        own.sort_unstable_by(|p, q| p.trial.cmp(&q.trial).then(p.begin.total_cmp(&q.begin)));
        self.absorbed.extend(own.iter().map(|point| Absorbed {
            owner: (best.trial as usize, best.begin),
            trial: point.trial as usize,
            dm: point.dm,
            snr: f64::from(point.snr),
            begin_s: point.begin,
            end_s: point.end,
        }));
    }

    fn candidate(&self, group: &Group) -> Candidate {
        let best = &group.best;
        let trial = best.trial as usize;
        Candidate {
            dm: best.dm,
            time_s: best.centre(),
            snr: f64::from(best.snr),
            width_s: best.width(),
            members: group.members,
            peak_begin_s: best.begin,
            peak_end_s: best.end,
            range: self.offsets.partition_point(|offset| *offset <= trial) - 1,
            trial,
            begin_s: group.begin,
            end_s: group.end,
            dm_min: group.dm_min,
            dm_max: group.dm_max,
            band_fraction: f64::from(best.band),
        }
    }
}

/// Returns the rank of each trial in order of dispersion measure.
fn ranks(dms: &[f64]) -> Result<Vec<u32>> {
    if u32::try_from(dms.len()).is_err() {
        return Err(Error::parameter("trials", dms.len(), "there may be 2^32 - 1"));
    }
    if let Some(bad) = dms.iter().find(|dm| !dm.is_finite()) {
        return Err(Error::parameter("DM", bad, "it must be finite"));
    }
    let mut order: Vec<usize> = (0..dms.len()).collect();
    order.sort_by(|a, b| dms[*a].total_cmp(&dms[*b]));
    let mut ranks = vec![0; dms.len()];
    order.iter().enumerate().for_each(|(rank, trial)| ranks[*trial] = rank as u32);
    Ok(ranks)
}

/// 64-bit words of a point, and of a group.
const POINT: usize = 5;
const GROUP: usize = POINT + 5;

/// 64-bit words of a candidate.
const CANDIDATE: usize = 14;

/// Undecided events and groups of a [`Clusterer`], from which another one can continue.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterState {
    words: Vec<u64>,
}

impl ClusterState {
    /// Returns the state as 64-bit words.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Creates a state from its words; [`Clusterer::restore`] checks them.
    pub fn from_words(words: Vec<u64>) -> Self {
        Self { words }
    }
}

impl Clusterer {
    /// Returns the undecided state.
    pub fn state(&self) -> ClusterState {
        let lengths = [self.points.len(), self.groups.len()].map(|length| length as u64);
        let mut words = vec![self.frontier_s.to_bits(), self.horizon.to_bits()];
        words.push(self.events as u64);
        words.extend(lengths);
        self.points.iter().for_each(|point| words.extend(point_words(point)));
        for group in &self.groups {
            words.extend(point_words(&group.best));
            words.push(group.members as u64);
            words.extend([group.begin, group.end, group.dm_min, group.dm_max].map(f64::to_bits));
        }
        if let Some(members) = &self.members {
            for group in &self.groups {
                let own = members.get(&group.best.key()).map_or(&[][..], Vec::as_slice);
                words.push(own.len() as u64);
                own.iter().for_each(|point| words.extend(point_words(point)));
            }
        }
        ClusterState { words }
    }

    /// Continues from the state of a clusterer with the same trials.
    ///
    /// # Errors
    /// [`Error::Parameter`] for any other state.
    pub fn restore(&mut self, state: &ClusterState) -> Result<()> {
        let bad = || Error::parameter("state of the clusterer", "damaged", "it is of other trials");
        let [frontier_s, horizon, events, points, groups, rest @ ..] = state.words.as_slice()
        else {
            return Err(bad());
        };
        let (points, rest) = split(rest, *points, POINT).ok_or_else(bad)?;
        let (groups, mut rest) = split(rest, *groups, GROUP).ok_or_else(bad)?;
        let point = |words: &[u64]| self.point(words).ok_or_else(bad);
        let group = |words: &[u64]| {
            let [members, begin, end, dm_min, dm_max] = words[POINT..] else { return Err(bad()) };
            let [begin, end, dm_min, dm_max] = [begin, end, dm_min, dm_max].map(f64::from_bits);
            let members = members as usize;
            Ok(Group { best: point(words)?, members, begin, end, dm_min, dm_max })
        };
        let points = points.chunks_exact(POINT).map(point).collect::<Result<Vec<_>>>()?;
        let groups = groups.chunks_exact(GROUP).map(group).collect::<Result<Vec<Group>>>()?;
        let mut members = HashMap::new();
        for group in groups.iter().filter(|_| self.members.is_some()) {
            let (count, after) = rest.split_first().ok_or_else(bad)?;
            let (own, after) = split(after, *count, POINT).ok_or_else(bad)?;
            let own = own.chunks_exact(POINT).map(point).collect::<Result<Vec<_>>>()?;
            if !own.is_empty() {
                members.insert(group.best.key(), own);
            }
            rest = after;
        }
        // Each event is a point or a member of one group, either here or among those returned.
        let counts = groups.iter().map(|group| group.members as u64);
        let undecided = counts.fold(points.len() as u64, u64::saturating_add);
        if !rest.is_empty() || undecided > *events || *events >= GREATEST {
            return Err(bad());
        }
        (self.points, self.groups) = (points, groups);
        self.members = self.members.is_some().then_some(members);
        (self.frontier_s, self.horizon) = (f64::from_bits(*frontier_s), f64::from_bits(*horizon));
        self.events = *events as usize;
        Ok(())
    }

    fn point(&self, words: &[u64]) -> Option<Point> {
        let trial = usize::try_from(words[3]).ok().filter(|trial| *trial < self.ranks.len())?;
        let range = self.offsets.partition_point(|offset| *offset <= trial) - 1;
        let [begin, end] = [words[0], words[1]].map(f64::from_bits);
        let band = f32::from_bits(u32::try_from(words[4]).ok()?);
        if !(band > 0.0 && band <= 1.0) {
            return None;
        }
        let TrialRange { tsamp_s, widest, .. } = self.ranges[range];
        Some(Point {
            begin,
            end,
            is_widest: ((end - begin) / tsamp_s).round() >= WIDEST * widest as f64,
            snr: f32::from_bits(words[2] as u32),
            rank: self.ranks[trial],
            dm: self.ranges[range].dms[trial - self.offsets[range]],
            trial: trial as u32,
            band,
        })
    }
}

impl Candidate {
    /// Returns the candidate as 64-bit words.
    pub fn words(&self) -> [u64; CANDIDATE] {
        let [members, range, trial] =
            [self.members, self.range, self.trial].map(|count| count as u64);
        let [dm, time, snr, width] =
            [self.dm, self.time_s, self.snr, self.width_s].map(f64::to_bits);
        let [peak_begin, peak_end, begin, end] =
            [self.peak_begin_s, self.peak_end_s, self.begin_s, self.end_s].map(f64::to_bits);
        let [dm_min, dm_max, band] =
            [self.dm_min, self.dm_max, self.band_fraction].map(f64::to_bits);
        #[rustfmt::skip]
        let words = [
            dm, time, snr, width, members, range, trial,
            peak_begin, peak_end, begin, end, dm_min, dm_max, band,
        ];
        words
    }

    /// Creates a candidate from its words; `None` for another number of words.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let words: &[u64; CANDIDATE] = words.try_into().ok()?;
        let number = |index: usize| f64::from_bits(words[index]);
        let count = |index: usize| usize::try_from(words[index]).ok();
        Some(Self {
            dm: number(0),
            time_s: number(1),
            snr: number(2),
            width_s: number(3),
            members: count(4)?,
            range: count(5)?,
            trial: count(6)?,
            peak_begin_s: number(7),
            peak_end_s: number(8),
            begin_s: number(9),
            end_s: number(10),
            dm_min: number(11),
            dm_max: number(12),
            band_fraction: number(13),
        })
    }
}

/// Splits off `count` items of `each` words.
fn split(words: &[u64], count: u64, each: usize) -> Option<(&[u64], &[u64])> {
    words.split_at_checked(usize::try_from(count).ok()?.checked_mul(each)?)
}

fn point_words(point: &Point) -> [u64; POINT] {
    let Point { begin, end, snr, trial, band, .. } = *point;
    let [snr, band] = [snr, band].map(|number| u64::from(number.to_bits()));
    [begin.to_bits(), end.to_bits(), snr, u64::from(trial), band]
}

#[cfg(test)]
mod tests {
    use super::burst::{Cone, Least};
    use super::*;

    const BAND: BandEdges =
        BandEdges { lowest_hz: 1.2e9, highest_hz: 1.5e9, dm_constant: 4148.808 };
    const WIDEST_BOXCAR: u32 = 32;

    /// Generator of numbers below a bound.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }
    }

    fn ranges() -> Vec<TrialRange> {
        let dms = |first: usize, step: f64| (0..12).map(|i| (first + i) as f64 * step).collect();
        vec![
            TrialRange { dms: dms(0, 2.0), tsamp_s: 1e-3, widest: WIDEST_BOXCAR as usize },
            TrialRange { dms: dms(6, 4.0), tsamp_s: 2e-3, widest: WIDEST_BOXCAR as usize },
        ]
    }

    /// Returns events of both ranges over `length_s`, ordered by time: noise that links, and some strong ones.
    fn events(random: &mut Random, count: usize, length_s: f64) -> Vec<(f64, usize, Event)> {
        let mut events: Vec<_> = (0..count)
            .map(|_| {
                let (range, dm) = (random.below(2) as usize, random.below(12) as u32);
                let tsamp_s = ranges()[range].tsamp_s;
                let time = random.below((length_s / tsamp_s) as u64);
                let width = 1 + random.below(u64::from(WIDEST_BOXCAR)) as u32;
                let strong = if random.below(20) == 0 { random.below(600) } else { 0 };
                // Few distinct values, so that some are equal.
                let snr = 5.0 + 0.1 * (random.below(20) + strong) as f32;
                (time as f64 * tsamp_s, range, Event { dm, time, width, snr })
            })
            .collect();
        events.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2.dm).cmp(&(b.1, b.2.dm))));
        events.dedup_by_key(|(_, range, event)| (*range, event.dm, event.time));
        events
    }

    fn sorted(mut absorbed: Vec<Absorbed>) -> Vec<Absorbed> {
        absorbed.sort_by(|p, q| p.trial.cmp(&q.trial).then(p.begin_s.total_cmp(&q.begin_s)));
        absorbed
    }

    fn clusterer() -> Clusterer {
        Clusterer::new(ranges(), BAND).unwrap()
    }

    /// Applies the two documented rules pair by pair.
    fn plainly(events: &[(f64, usize, Event)]) -> Vec<(f64, f32, usize)> {
        let mut clusterer = clusterer();
        events.iter().for_each(|(_, range, event)| clusterer.push(*range, &[*event]).unwrap());
        let (mut points, wings) = (clusterer.points.clone(), clusterer.wings);
        let k = wings.delay_per_dm;
        points.sort_by(Point::order);
        let touch = |p: &Point, q: &Point| {
            let near = (p.dm - q.dm).abs() * k + 0.5 * p.width().min(q.width());
            p.rank.abs_diff(q.rank) <= 3 && p.begin <= q.end + near && p.end >= q.begin - near
        };
        let mut group_of: Vec<usize> = Vec::new();
        let mut groups: Vec<(Point, usize)> = Vec::new();
        for (index, point) in points.iter().enumerate() {
            let stronger = (0..index).find(|other| {
                touch(&points[*other], point) && wings.explains(&points[*other], point)
            });
            let group = stronger.map_or(groups.len(), |other| group_of[other]);
            if stronger.is_none() {
                groups.push((*point, 0));
            }
            groups[group].1 += 1;
            group_of.push(group);
        }
        let mut bursts: Vec<(Point, usize)> = Vec::new();
        let mut burst_of: Vec<usize> = Vec::new();
        for (index, (best, members)) in groups.iter().enumerate() {
            let explains = |seed: &usize| {
                let is_burst = bursts[burst_of[*seed]].0.key() == groups[*seed].0.key();
                Cone::new(&groups[*seed].0, Least { snr: 0.0, band: 1.0 }, wings, is_burst)
                    .explains(best)
            };
            let owner = (0..index).find(explains).map(|seed| burst_of[seed]);
            burst_of.push(owner.unwrap_or(bursts.len()));
            match owner {
                Some(burst) => bursts[burst].1 += members,
                None => bursts.push((*best, *members)),
            }
        }
        bursts.iter().map(|(best, members)| (best.begin, best.snr, *members)).collect()
    }

    #[test]
    fn candidates_are_those_of_the_plain_rules() {
        let mut random = Random(7);
        for case in 0..40 {
            let length_s = [1.0, 4.0, 20.0][case % 3];
            let events = events(&mut random, 600, length_s);
            let mut clusterer = clusterer();
            events.iter().for_each(|(_, range, event)| clusterer.push(*range, &[*event]).unwrap());
            let found = clusterer.finish();
            let found: Vec<_> =
                found.iter().map(|c| (c.peak_begin_s, c.snr as f32, c.members)).collect();
            assert_eq!(found, plainly(&events), "case {case}");
        }
    }

    #[test]
    fn settling_in_steps_changes_nothing_and_forgets_what_is_decided() {
        let mut random = Random(1);
        for case in 0..60 {
            let (count, length_s) = [(3000, 30.0), (400, 30.0), (3000, 300.0)][case % 3];
            let events = events(&mut random, count, length_s);
            let mut whole = clusterer().listing();
            events.iter().for_each(|(_, range, event)| whole.push(*range, &[*event]).unwrap());
            let mut stepwise = clusterer().listing();
            let mut absorbed = Vec::new();
            let (mut found, mut most, mut next, mut frontier_s) = (Vec::new(), 0, 0, 0.0);
            while next < events.len() {
                frontier_s += 0.01 * random.below(if case % 2 == 0 { 100 } else { 400 }) as f64;
                // Some later events are present already, and those before the frontier come in any order.
                let end = events.partition_point(|(time, ..)| *time < frontier_s);
                let end = end.max(next) + random.below(4) as usize;
                let fresh = &events[next..end.min(events.len())];
                fresh
                    .iter()
                    .rev()
                    .for_each(|(_, range, event)| stepwise.push(*range, &[*event]).unwrap());
                next = end.min(events.len());
                found.extend(stepwise.settle(frontier_s));
                absorbed.extend(stepwise.take_absorbed());
                most = most.max(stepwise.points.len() + stepwise.groups.len());
                if random.below(3) == 0 {
                    let state = ClusterState::from_words(stepwise.state().words().to_vec());
                    stepwise = clusterer().listing();
                    stepwise.restore(&state).unwrap();
                }
            }
            let early = found.len();
            assert_eq!(stepwise.events(), events.len());
            let before = stepwise.state();
            let more = |clusterer: &mut Clusterer| {
                events[..20]
                    .iter()
                    .try_for_each(|(_, range, event)| clusterer.push(*range, &[*event]))
            };
            let others = stepwise.undecided(more).unwrap();
            assert!(!others.is_empty() && stepwise.state() == before, "case {case}");
            let open = stepwise.undecided(|_| Ok(())).unwrap();
            let last = stepwise.finish();
            assert_eq!(open, last, "case {case}");
            found.extend(last);
            found.sort_by(Candidate::order);
            assert_eq!(found, whole.finish(), "case {case}");
            absorbed.extend(stepwise.take_absorbed());
            assert_eq!(absorbed.len(), events.len() - found.len());
            assert_eq!(sorted(absorbed), sorted(whole.take_absorbed()), "case {case}");
            if case % 3 == 2 {
                assert!(
                    early > 0 && most < events.len() / 4,
                    "case {case}: {early} early, {most} kept"
                );
            }
        }
    }

    #[test]
    fn a_candidate_survives_as_words() {
        let mut one = clusterer();
        one.push(1, &[Event { dm: 3, time: 9, width: 2, snr: 7.1 }]).unwrap();
        let candidate = one.finish()[0];
        assert_eq!(Candidate::from_words(&candidate.words()), Some(candidate));
        assert_eq!(Candidate::from_words(&candidate.words()[1..]), None);
    }

    #[test]
    fn a_damaged_state_is_refused() {
        let mut one = clusterer();
        one.push(0, &[Event { dm: 3, time: 9, width: 2, snr: 7.0 }]).unwrap();
        let words = one.state().words().to_vec();
        let refused =
            |words: Vec<u64>| clusterer().restore(&ClusterState::from_words(words)).is_err();
        assert!(refused(Vec::new()) && refused(words[..words.len() - 1].to_vec()));
        let last = words.len() - 1;
        assert!(refused([&words[..last], &[1 << 40]].concat()));
        assert!(refused([&words[..3], &[u64::MAX], &words[4..]].concat()));
    }
}
