//! Clustering of events into one candidate per burst.
//!
//! Invariant: every event is a member of exactly one candidate, and neither the order in which events came
//! nor when they were settled matters.

mod cone;
mod peaks;
mod state;
#[cfg(test)]
mod tests;
mod wing;

pub use state::State;

use std::cmp::Ordering;
use std::collections::HashMap;

use super::partial::PartialEvent;
use super::rules::Event;
use crate::error::{Error, Result};
use crate::units::dispersion_delay_s;

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

/// Edges of the band; they define the cone of wrong dispersion measures at which a burst is visible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BandEdges {
    /// Lowest channel centre.
    pub lowest_hz: f64,
    /// Highest channel centre: the reference of all times.
    pub highest_hz: f64,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
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
    wings: wing::Wings,
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

/// Trial of an event, and the bits of its start.
type Key = (u32, u64);

/// Event in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    begin: f64,
    end: f64,
    snr: f32,
    rank: u32,
    dm: f64,
    trial: u32,
    /// Whether its boxcar is close to the widest.
    is_widest: bool,
    /// Fraction of the channels that it has; the significance is that of these channels.
    band: f32,
}

impl Point {
    fn key(&self) -> Key {
        (self.trial, self.begin.to_bits())
    }

    fn centre(&self) -> f64 {
        0.5 * (self.begin + self.end)
    }

    fn width(&self) -> f64 {
        self.end - self.begin
    }

    /// Orders events, best first: by significance, then time, then dispersion measure.
    fn order(&self, other: &Self) -> Ordering {
        let later = || self.begin.total_cmp(&other.begin).then(self.rank.cmp(&other.rank));
        other.snr.total_cmp(&self.snr).then_with(later).then(self.end.total_cmp(&other.end))
    }
}

/// Peak with its members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    best: Point,
    members: usize,
    begin: f64,
    end: f64,
    dm_min: f64,
    dm_max: f64,
}

impl Group {
    fn of(point: &Point) -> Self {
        let Point { begin, end, dm, .. } = *point;
        Self { best: *point, members: 1, begin, end, dm_min: dm, dm_max: dm }
    }

    fn absorb(&mut self, other: &Self) {
        self.members += other.members;
        self.begin = self.begin.min(other.begin);
        self.end = self.end.max(other.end);
        self.dm_min = self.dm_min.min(other.dm_min);
        self.dm_max = self.dm_max.max(other.dm_max);
    }
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
            wings: wing::Wings::new(band, delay_per_dm),
            widest_s,
            offsets,
            ranks,
            drifts: peaks::drifts(&sorted, delay_per_dm),
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
        let reach = cone::Reach::new(self.lowest_dm, self.wings.delay_per_dm, self.widest_s);
        // Merging again pays only if it decides enough groups.
        let least = STEP * reach.longest_s(self.highest_dm);
        if horizon < self.horizon + least {
            return Vec::new();
        }
        self.horizon = horizon;
        let groups = std::mem::take(&mut self.groups);
        let is_open = |group: &Group| reach.end(&group.best) >= horizon;
        let mut members = self.members.take();
        let took = |burst: &Point, group: &Point| {
            if let Some(members) = &mut members {
                let mut own = members.remove(&group.key()).unwrap_or_default();
                own.push(*group);
                members.entry(burst.key()).or_default().append(&mut own);
            }
        };
        let merged = cone::merge(groups, self.ranks.len(), self.wings, is_open, took);
        self.members = members;
        self.groups = merged.undecided;
        merged.decided.iter().for_each(|group| self.list(&group.best));
        merged.decided.iter().map(|group| self.candidate(group)).collect()
    }

    /// Groups the events that no later one changes. Returns the time before which no other group starts.
    fn gather(&mut self, frontier_s: f64) -> f64 {
        let (groups, group_of) = peaks::group(&mut self.points, self.ranks.len(), self.wings);
        let mut is_open = vec![false; groups.len()];
        for (point, group) in self.points.iter().zip(&group_of) {
            is_open[*group as usize] |=
                peaks::reach_end(point, self.drifts[point.rank as usize]) >= frontier_s;
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

/// Returns the index of the first point of each rank in a list sorted by rank; one entry more than ranks.
fn rank_starts(points: impl Iterator<Item = u32>, ranks: usize) -> Vec<usize> {
    let mut starts = vec![0; ranks + 1];
    points.for_each(|rank| starts[rank as usize + 1] += 1);
    for rank in 0..ranks {
        starts[rank + 1] += starts[rank];
    }
    starts
}
