//! Serializable state of a clusterer, from which another one can continue.
//!
//! Invariant: a clusterer that is put into a state goes on as the one that it was taken from, bit for bit.

use std::collections::HashMap;

use super::{Candidate, Clusterer, Group, Point, TrialRange, WIDEST};
use crate::error::{Error, Result};
use crate::state::GREATEST;

/// 64-bit words of a point, and of a group.
const POINT: usize = 5;
const GROUP: usize = POINT + 5;

/// 64-bit words of a candidate.
const CANDIDATE: usize = 14;

/// Undecided events and groups of a [`Clusterer`].
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    words: Vec<u64>,
}

impl State {
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
    pub fn state(&self) -> State {
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
        State { words }
    }

    /// Continues from the state of a clusterer with the same trials.
    ///
    /// # Errors
    /// [`Error::Parameter`] for any other state.
    pub fn restore(&mut self, state: &State) -> Result<()> {
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
            let (count, behind) = rest.split_first().ok_or_else(bad)?;
            let (own, behind) = split(behind, *count, POINT).ok_or_else(bad)?;
            let own = own.chunks_exact(POINT).map(point).collect::<Result<Vec<_>>>()?;
            if !own.is_empty() {
                members.insert(group.best.key(), own);
            }
            rest = behind;
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
        let Self { dm, time_s, snr, width_s, members, range, trial, .. } = *self;
        let [dm, time_s, snr, width_s] = [dm, time_s, snr, width_s].map(f64::to_bits);
        let [peak_begin, peak_end] = [self.peak_begin_s, self.peak_end_s].map(f64::to_bits);
        let [begin, end] = [self.begin_s, self.end_s].map(f64::to_bits);
        let [dm_min, dm_max] = [self.dm_min, self.dm_max].map(f64::to_bits);
        let [members, range, trial] = [members, range, trial].map(|count| count as u64);
        [
            dm,
            time_s,
            snr,
            width_s,
            members,
            range,
            trial,
            peak_begin,
            peak_end,
            begin,
            end,
            dm_min,
            dm_max,
            self.band_fraction.to_bits(),
        ]
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
