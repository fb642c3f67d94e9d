//! Groups to bursts: the bow tie of a strong burst takes in what it leaves at wrong DMs.
//!
//! Invariant: groups come in best first and leave best first.

use super::peaks::SLACK_S;
use super::{Group, Point, rank_starts};

/// A burst may be this much stronger than predicted: one that fills half the band smears half as
/// much, and keeps the square root of two more.
const MARGIN: f64 = 1.5;

/// What noise, searched over many boxcars, may add.
const NOISE: f64 = 2.0;

/// Groups merged to bursts.
pub(super) struct Merged {
    /// Bursts that are whole, best first.
    pub(super) decided: Vec<Group>,
    /// Groups whose fate hangs on groups to come, and bursts that may still take some of these.
    pub(super) undecided: Vec<Group>,
}

/// Takes each group that a stronger one explains into it; `is_open` tells which groups a group to come might explain,
/// or be explained by.
///
/// The best group that explains another takes it, unless it was taken itself. So a group is decided once every
/// stronger one that explains it is, and a burst is whole once every weaker group that it explains is decided.
pub(super) fn merge(
    mut groups: Vec<Group>,
    ranks: usize,
    delay_per_dm: f64,
    is_open: impl Fn(&Group) -> bool,
) -> Merged {
    let Some(weakest) = groups.last().map(|group| f64::from(group.best.snr)) else {
        return Merged { decided: groups, undecided: Vec::new() };
    };
    let mut place: Vec<usize> = (0..groups.len()).collect();
    let key = |i: &usize| (groups[*i].best.rank, groups[*i].best.begin);
    place.sort_by(|a, b| {
        let ((rank_a, begin_a), (rank_b, begin_b)) = (key(a), key(b));
        rank_a.cmp(&rank_b).then(begin_a.total_cmp(&begin_b))
    });
    let index = Index::new(&groups, place, ranks);
    let mut fates: Vec<Fate> =
        groups.iter().map(|group| if is_open(group) { Fate::Open } else { Fate::Free }).collect();
    for seed in 0..groups.len() {
        if fates[seed] == Fate::Taken {
            continue;
        }
        let is_free = fates[seed] == Fate::Free;
        let cone = Cone::new(&groups[seed].best, weakest, delay_per_dm);
        let mut whole = groups[seed];
        let mut waits = false;
        index.each_near(&cone, |other| {
            if other <= seed || fates[other] == Fate::Taken || !cone.explains(&groups[other].best) {
                return;
            }
            if is_free && fates[other] == Fate::Free {
                fates[other] = Fate::Taken;
                whole.absorb(&groups[other]);
            } else {
                fates[other] = Fate::Open;
                waits = true;
            }
        });
        groups[seed] = whole;
        if is_free && !waits {
            fates[seed] = Fate::Whole;
        }
    }
    let (mut decided, mut undecided) = (Vec::new(), Vec::new());
    for (group, fate) in groups.into_iter().zip(fates) {
        match fate {
            Fate::Taken => {}
            Fate::Whole => decided.push(group),
            Fate::Free | Fate::Open => undecided.push(group),
        }
    }
    Merged { decided, undecided }
}

/// What is known of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Nothing undecided that is stronger explains it.
    Free,
    /// Something undecided may explain it.
    Open,
    /// It belongs to a stronger one.
    Taken,
    /// A burst of which all members are known.
    Whole,
}

/// How far in time groups can be from each other of which one explains the other.
pub(super) struct Reach {
    lowest_dm: f64,
    delay_per_dm: f64,
    widest_s: f64,
}

impl Reach {
    /// Of trials from `lowest_dm` on, and boxcars up to `widest_s` seconds.
    pub(super) fn new(lowest_dm: f64, delay_per_dm: f64, widest_s: f64) -> Self {
        Self { lowest_dm, delay_per_dm, widest_s }
    }

    /// The moment from which on no group that begins can explain this one, or be explained by it: a cone reaches
    /// later times at lower dispersion measures only.
    pub(super) fn end(&self, best: &Point) -> f64 {
        let shift = (best.dm - self.lowest_dm) * self.delay_per_dm;
        best.end + shift + 0.5 * best.width().max(self.widest_s) + SLACK_S
    }

    /// The longest time from a group's end to there, up to a dispersion measure.
    pub(super) fn longest_s(&self, highest_dm: f64) -> f64 {
        (highest_dm - self.lowest_dm) * self.delay_per_dm + 0.5 * self.widest_s
    }
}

/// Groups by trial and time.
struct Index {
    /// Beginning and number of each group.
    place: Vec<(f64, u32)>,
    starts: Vec<usize>,
    /// Ranks that have a group, with the dispersion measure and the widest group of each.
    ranks: Vec<(usize, f64, f64)>,
}

impl Index {
    fn new(groups: &[Group], place: Vec<usize>, ranks: usize) -> Self {
        let starts = rank_starts(place.iter().map(|i| groups[*i].best.rank), ranks);
        let filled = (0..ranks).filter(|rank| starts[*rank] < starts[rank + 1]);
        let ranks = filled.map(|rank| {
            let own = &place[starts[rank]..starts[rank + 1]];
            let widest = own.iter().map(|i| groups[*i].best.width()).fold(0.0, f64::max);
            (rank, groups[own[0]].best.dm, widest)
        });
        let ranks = ranks.collect();
        let place = place.iter().map(|i| (groups[*i].best.begin, *i as u32)).collect();
        Self { place, starts, ranks }
    }

    /// Calls `visit` for each group that the cone might explain.
    fn each_near(&self, cone: &Cone<'_>, mut visit: impl FnMut(usize)) {
        let low = self.ranks.partition_point(|(_, dm, _)| *dm < cone.best.dm - cone.dm_reach);
        for &(rank, dm, widest) in &self.ranks[low..] {
            if dm > cone.best.dm + cone.dm_reach {
                break;
            }
            let own = &self.place[self.starts[rank]..self.starts[rank + 1]];
            let (early, late) = cone.times(dm, widest);
            let first = own.partition_point(|(begin, _)| *begin < early - widest - SLACK_S);
            let near = own[first..].iter().take_while(|(begin, _)| *begin <= late);
            near.for_each(|(_, group)| visit(*group as usize));
        }
    }
}

/// Where a burst is seen at wrong dispersion measures, and how strong.
pub(super) struct Cone<'a> {
    best: &'a Point,
    delay_per_dm: f64,
    /// Beyond this difference nothing as strong as the weakest group is left of the burst.
    dm_reach: f64,
}

impl<'a> Cone<'a> {
    pub(super) fn new(best: &'a Point, weakest: f64, delay_per_dm: f64) -> Self {
        let least = (weakest - NOISE) / MARGIN;
        let ratio = f64::from(best.snr) / least;
        let dm_reach = if least > 0.0 && delay_per_dm > 0.0 {
            best.width() * (ratio.powi(4) - 1.0).max(0.0).sqrt() / delay_per_dm
        } else {
            f64::INFINITY
        };
        // A little more, so that the exact test decides.
        Self { best, delay_per_dm, dm_reach: 1.001 * dm_reach + 1e-9 }
    }

    /// Earliest and latest moment of the burst at a trial, for boxcars up to `width`.
    ///
    /// A trial above the burst's dispersion measure moves low frequencies too early, one below it
    /// leaves them too late.
    fn times(&self, dm: f64, width: f64) -> (f64, f64) {
        let shift = (self.best.dm - dm) * self.delay_per_dm;
        let slack = 0.5 * self.best.width().max(width);
        (self.best.begin + shift.min(0.0) - slack, self.best.end + shift.max(0.0) + slack)
    }

    /// `snr <= margin S sqrt(W / sqrt(W^2 + smear^2)) + noise`, within the cone.
    pub(super) fn explains(&self, other: &Point) -> bool {
        let (early, late) = self.times(other.dm, other.width());
        if other.end < early || other.begin > late {
            return false;
        }
        let width = self.best.width();
        let smear = (self.best.dm - other.dm).abs() * self.delay_per_dm;
        let left = (width / width.hypot(smear)).sqrt();
        f64::from(other.snr) <= MARGIN * f64::from(self.best.snr) * left + NOISE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(dm: f64, begin: f64, snr: f32) -> Point {
        Point { begin, end: begin + 0.002, snr, rank: dm as u32, dm, trial: dm as u32 }
    }

    #[test]
    fn the_cone_opens_early_above_and_late_below() {
        let best = point(100.0, 10.0, 50.0);
        let cone = Cone::new(&best, 6.0, 1e-3);
        assert!(cone.explains(&point(150.0, 9.96, 9.0)));
        assert!(!cone.explains(&point(150.0, 10.04, 9.0)));
        assert!(cone.explains(&point(50.0, 10.04, 9.0)));
        assert!(!cone.explains(&point(50.0, 9.96, 9.0)));
        assert!(!cone.explains(&point(150.0, 9.96, 30.0)));
    }
}
