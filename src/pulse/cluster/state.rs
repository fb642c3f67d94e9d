//! What a clusterer has not decided, so that another can go on with it.
//!
//! Invariant: a clusterer that is put into a state goes on as the one that it was taken from, bit for bit.

use super::{Candidate, Clusterer, Group, Point};
use crate::error::{Error, Result};
use crate::state::GREATEST;

/// Words of a point, and of a group.
const POINT: usize = 4;
const GROUP: usize = POINT + 5;

/// Words of a candidate.
const CANDIDATE: usize = 13;

/// The events and groups of a [`Clusterer`] that are undecided.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    words: Vec<u64>,
}

impl State {
    /// Everything, as numbers of 64 bits.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The state of which these are the numbers; they are checked by [`Clusterer::restore`].
    pub fn from_words(words: Vec<u64>) -> Self {
        Self { words }
    }
}

impl Clusterer {
    /// What is undecided.
    pub fn state(&self) -> State {
        let counts = [self.events as u64, self.points.len() as u64];
        let mut words = vec![self.frontier_s.to_bits(), self.horizon.to_bits()];
        words.extend(counts);
        self.points.iter().for_each(|point| words.extend(point_words(point)));
        for group in &self.groups {
            words.extend(point_words(&group.best));
            words.push(group.members as u64);
            words.extend([group.begin, group.end, group.dm_min, group.dm_max].map(f64::to_bits));
        }
        State { words }
    }

    /// Goes on from a state of a clusterer with the same trials.
    ///
    /// # Errors
    /// [`Error::Parameter`] if it is not one.
    pub fn restore(&mut self, state: &State) -> Result<()> {
        let bad = || Error::parameter("state of the clusterer", "damaged", "it is of other trials");
        let [frontier_s, horizon, events, points, rest @ ..] = state.words.as_slice() else {
            return Err(bad());
        };
        let points = usize::try_from(*points).ok().and_then(|points| points.checked_mul(POINT));
        let (points, groups) =
            points.and_then(|words| rest.split_at_checked(words)).ok_or_else(bad)?;
        if !groups.len().is_multiple_of(GROUP) {
            return Err(bad());
        }
        let point = |words: &[u64]| self.point(words).ok_or_else(bad);
        let group = |words: &[u64]| {
            let [members, begin, end, dm_min, dm_max] = words[POINT..] else { return Err(bad()) };
            let [begin, end, dm_min, dm_max] = [begin, end, dm_min, dm_max].map(f64::from_bits);
            let members = members as usize;
            Ok(Group { best: point(words)?, members, begin, end, dm_min, dm_max })
        };
        let points = points.chunks_exact(POINT).map(point).collect::<Result<Vec<_>>>()?;
        let groups = groups.chunks_exact(GROUP).map(group).collect::<Result<Vec<Group>>>()?;
        // Each event is a point or a member of one group, here or among those handed out.
        let members = groups.iter().map(|group| group.members as u64);
        let undecided = members.fold(points.len() as u64, u64::saturating_add);
        if undecided > *events || *events >= GREATEST {
            return Err(bad());
        }
        (self.points, self.groups) = (points, groups);
        (self.frontier_s, self.horizon) = (f64::from_bits(*frontier_s), f64::from_bits(*horizon));
        self.events = *events as usize;
        Ok(())
    }

    fn point(&self, words: &[u64]) -> Option<Point> {
        let trial = usize::try_from(words[3]).ok().filter(|trial| *trial < self.ranks.len())?;
        let range = self.offsets.partition_point(|offset| *offset <= trial) - 1;
        Some(Point {
            begin: f64::from_bits(words[0]),
            end: f64::from_bits(words[1]),
            snr: f32::from_bits(words[2] as u32),
            rank: self.ranks[trial],
            dm: self.ranges[range].dms[trial - self.offsets[range]],
            trial: trial as u32,
        })
    }
}

impl Candidate {
    /// Everything, as numbers of 64 bits.
    pub fn words(&self) -> [u64; CANDIDATE] {
        let Self { dm, time_s, snr, width_s, members, range, trial, .. } = *self;
        let [dm, time_s, snr, width_s] = [dm, time_s, snr, width_s].map(f64::to_bits);
        let [peak_begin, peak_end] = [self.peak_begin_s, self.peak_end_s].map(f64::to_bits);
        let [begin, end] = [self.begin_s, self.end_s].map(f64::to_bits);
        let [dm_min, dm_max] = [self.dm_min, self.dm_max].map(f64::to_bits);
        let [members, range, trial] = [members, range, trial].map(|count| count as u64);
        [
            dm, time_s, snr, width_s, members, range, trial, peak_begin, peak_end, begin, end,
            dm_min, dm_max,
        ]
    }

    /// The candidate of which these are the numbers; none for another count of them.
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
        })
    }
}

fn point_words(point: &Point) -> [u64; POINT] {
    let Point { begin, end, snr, trial, .. } = *point;
    [begin.to_bits(), end.to_bits(), u64::from(snr.to_bits()), u64::from(trial)]
}
