//! From events to one candidate a burst.
//!
//! Invariant: every event is a member of exactly one candidate, and the order in which events came
//! does not matter.

mod cone;
mod peaks;

use super::rules::Event;
use crate::error::{Error, Result};
use crate::units::dispersion_delay_s;

/// The trials of one range of a DM plan.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialRange {
    /// Dispersion measure of each trial, pc cm^-3.
    pub dms: Vec<f64>,
    /// Sampling time of its series, in seconds.
    pub tsamp_s: f64,
}

/// The band's edges: they open the cone in which a burst is seen at wrong dispersion measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BandEdges {
    /// Lowest channel centre.
    pub lowest_hz: f64,
    /// Highest channel centre: the reference of all times.
    pub highest_hz: f64,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
}

/// A burst, or what looks like one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Dispersion measure of the best event, pc cm^-3.
    pub dm: f64,
    /// Centre of its boxcar at the highest frequency, in seconds from the first sample's start.
    pub time_s: f64,
    /// Its signal-to-noise ratio.
    pub snr: f64,
    /// Width of its boxcar in seconds.
    pub width_s: f64,
    /// Events that belong to the burst.
    pub members: usize,
    /// Which range of the DM plan.
    pub range: usize,
    /// Index of the trial, counted over all ranges.
    pub trial: usize,
    /// First moment of any member's boxcar.
    pub begin_s: f64,
    /// Last moment of any member's boxcar.
    pub end_s: f64,
    /// Lowest dispersion measure of a member.
    pub dm_min: f64,
    /// Highest dispersion measure of a member.
    pub dm_max: f64,
}

/// Gathers events of all ranges and groups them.
///
/// 1. Each event follows its strongest neighbour, within 3 trials and touching in time, uphill to a
///    local peak; the events that end at one peak are a group. (Linking all neighbours instead
///    would join the pulses of a bright pulsar where their wings cross.)
/// 2. A group within the dispersion cone of a stronger one, and no stronger than that one would
///    appear at the wrong dispersion measure, belongs to it.
///
/// # Numerics
/// Deterministic: ties go to the earlier, then to the lower dispersion measure.
/// # Source
/// Loss of signal-to-noise with a wrong dispersion measure: Cordes & McLaughlin 2003, ApJ 596,
/// 1142, eq. 12 and 13 for a filter of fixed width; here the filter widens with the pulse.
#[derive(Debug)]
pub struct Clusterer {
    ranges: Vec<TrialRange>,
    /// Delay across the band of one unit of dispersion measure, in seconds.
    delay_per_dm: f64,
    /// First trial of each range, and of all of them.
    offsets: Vec<usize>,
    /// Place of each trial in order of dispersion measure.
    ranks: Vec<u32>,
    points: Vec<Point>,
}

/// One event in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    begin: f64,
    end: f64,
    snr: f32,
    rank: u32,
    dm: f64,
    trial: u32,
}

impl Point {
    fn centre(&self) -> f64 {
        0.5 * (self.begin + self.end)
    }

    fn width(&self) -> f64 {
        self.end - self.begin
    }

    /// Best first: by significance, then time, then dispersion measure.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let later = || self.begin.total_cmp(&other.begin).then(self.rank.cmp(&other.rank));
        other.snr.total_cmp(&self.snr).then_with(later).then(self.end.total_cmp(&other.end))
    }
}

/// A peak with what belongs to it.
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
    /// A clusterer for these trials.
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
        let dms: Vec<f64> = ranges.iter().flat_map(|range| range.dms.iter().copied()).collect();
        let ranks = ranks(&dms)?;
        Ok(Self { ranges, delay_per_dm, offsets, ranks, points: Vec::new() })
    }

    /// Takes events of one range.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no such range or trial.
    pub fn push(&mut self, range: usize, events: &[Event]) -> Result<()> {
        let Some(trials) = self.ranges.get(range) else {
            let rule = format!("there are {}", self.ranges.len());
            return Err(Error::parameter("range of the DM plan", range, rule));
        };
        self.points.reserve(events.len());
        for event in events {
            let Some(&dm) = trials.dms.get(event.dm as usize) else {
                let rule = format!("the range has {}", trials.dms.len());
                return Err(Error::parameter("trial", event.dm, rule));
            };
            let trial = self.offsets[range] + event.dm as usize;
            let begin = event.time as f64 * trials.tsamp_s;
            let end = (event.time + u64::from(event.width)) as f64 * trials.tsamp_s;
            let (rank, trial) = (self.ranks[trial], trial as u32);
            self.points.push(Point { begin, end, snr: event.snr, rank, dm, trial });
        }
        Ok(())
    }

    /// Number of events taken.
    pub fn events(&self) -> usize {
        self.points.len()
    }

    /// The candidates, best first.
    pub fn finish(mut self) -> Vec<Candidate> {
        let peaks = peaks::group(&mut self.points, self.ranks.len(), self.delay_per_dm);
        let groups = cone::merge(peaks, self.ranks.len(), self.delay_per_dm);
        groups.iter().map(|group| self.candidate(group)).collect()
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
            range: self.offsets.partition_point(|offset| *offset <= trial) - 1,
            trial,
            begin_s: group.begin,
            end_s: group.end,
            dm_min: group.dm_min,
            dm_max: group.dm_max,
        }
    }
}

/// The place of each trial in order of dispersion measure.
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

/// Where the points of each rank begin, in a list sorted by rank; one entry more than ranks.
fn rank_starts(points: impl Iterator<Item = u32>, ranks: usize) -> Vec<usize> {
    let mut starts = vec![0; ranks + 1];
    points.for_each(|rank| starts[rank as usize + 1] += 1);
    for rank in 0..ranks {
        starts[rank + 1] += starts[rank];
    }
    starts
}
