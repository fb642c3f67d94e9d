//! Merging of groups into bursts: a strong burst absorbs the groups in its cone of wrong dispersion measures.
//!
//! Invariant: groups come in best first and leave best first.

use super::peaks::SLACK_S;
use super::wing::Wings;
use super::{Group, Point, rank_starts};

/// Factor by which a pulse wider than the widest boxcar may exceed the estimate of a filter that widens with it (for
/// a burst that fills half the band), and the contribution of noise.
const WIDE_MARGIN: f64 = 1.5;
const WIDE_NOISE: f64 = 2.0;

/// Groups merged into bursts.
pub(super) struct Merged {
    /// Complete bursts, best first.
    pub(super) decided: Vec<Group>,
    /// Groups that later groups may still affect, and bursts that may still absorb some of these.
    pub(super) undecided: Vec<Group>,
}

/// Merges each group into a stronger one that explains it. `is_open` returns whether a later group might explain a
/// group or be explained by it. `took` is called for each group that a complete burst absorbs, after the burst's own
/// best.
///
/// The best group that explains another absorbs it, on behalf of the burst that absorbed it itself, if any. So a
/// group is decided once every stronger one that explains it is. A burst is complete once every weaker group is
/// decided that it, or a group that it absorbed, explains.
pub(super) fn merge(
    mut groups: Vec<Group>,
    ranks: usize,
    wings: Wings,
    is_open: impl Fn(&Group) -> bool,
    mut took: impl FnMut(&Point, &Point),
) -> Merged {
    let Some(weakest) = groups.last().map(|group| f64::from(group.best.snr)) else {
        return Merged { decided: groups, undecided: Vec::new() };
    };
    let least_band = groups.iter().map(|group| f64::from(group.best.band)).fold(1.0, f64::min);
    let mut place: Vec<usize> = (0..groups.len()).collect();
    let key = |i: &usize| (groups[*i].best.rank, groups[*i].best.begin);
    place.sort_by(|a, b| {
        let ((rank_a, begin_a), (rank_b, begin_b)) = (key(a), key(b));
        rank_a.cmp(&rank_b).then(begin_a.total_cmp(&begin_b))
    });
    let index = Index::new(&groups, place, ranks);
    let mut fates: Vec<Fate> =
        groups.iter().map(|group| if is_open(group) { Fate::Open } else { Fate::Free }).collect();
    // Burst of each group as far as known, and whether that burst waits for a group.
    let mut owners: Vec<usize> = (0..groups.len()).collect();
    let mut waits = vec![false; groups.len()];
    for seed in 0..groups.len() {
        let owner = owners[seed];
        let cone = Cone::new(&groups[seed].best, (weakest, least_band), wings, owner == seed);
        index.each_near(&cone, |other| {
            if other <= seed || fates[other] == Fate::Taken || !cone.explains(&groups[other].best) {
                return;
            }
            if fates[seed] != Fate::Open && fates[other] == Fate::Free {
                fates[other] = Fate::Taken;
                owners[other] = owner;
            } else {
                fates[other] = Fate::Open;
                waits[owner] = true;
            }
        });
    }
    // An absorbed group stays until its burst is complete, because it may still absorb others.
    let (mut decided, mut undecided) = (Vec::new(), Vec::new());
    for index in (0..groups.len()).filter(|index| !waits[owners[*index]]) {
        let (owner, own) = (owners[index], groups[index]);
        if fates[index] == Fate::Taken {
            took(&groups[owner].best, &own.best);
            groups[owner].absorb(&own);
        }
    }
    for (index, group) in groups.into_iter().enumerate() {
        match (fates[index], waits[owners[index]]) {
            (Fate::Taken, false) => {}
            (Fate::Free, false) => decided.push(group),
            _ => undecided.push(group),
        }
    }
    Merged { decided, undecided }
}

/// Decision about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// No undecided stronger group explains it.
    Free,
    /// An undecided group may explain it.
    Open,
    /// It belongs to a stronger one.
    Taken,
}

/// Largest distance in time between groups of which one explains the other.
pub(super) struct Reach {
    lowest_dm: f64,
    delay_per_dm: f64,
    widest_s: f64,
}

impl Reach {
    /// Covers trials from `lowest_dm` on and boxcars up to `widest_s` seconds.
    pub(super) fn new(lowest_dm: f64, delay_per_dm: f64, widest_s: f64) -> Self {
        Self { lowest_dm, delay_per_dm, widest_s }
    }

    /// Returns the time from which no later group can explain this one or be explained by it: a cone reaches later
    /// times at lower dispersion measures only.
    pub(super) fn end(&self, best: &Point) -> f64 {
        let shift = (best.dm - self.lowest_dm) * self.delay_per_dm;
        best.end + shift + 0.5 * best.width().max(self.widest_s) + SLACK_S
    }

    /// Returns the largest time from a group's end to [`Reach::end`], for dispersion measures up to `highest_dm`.
    pub(super) fn longest_s(&self, highest_dm: f64) -> f64 {
        (highest_dm - self.lowest_dm) * self.delay_per_dm + 0.5 * self.widest_s
    }
}

/// Groups by trial and time.
struct Index {
    /// Start and index of each group.
    place: Vec<(f64, u32)>,
    starts: Vec<usize>,
    /// Ranks with groups, and the dispersion measure and widest group of each.
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

/// Region of wrong dispersion measures and times in which a burst is visible, and its strength there.
pub(super) struct Cone<'a> {
    best: &'a Point,
    wings: Wings,
    /// Whether the pulse may be wider than any boxcar, so that its wing is unknown.
    is_wide: bool,
    /// Difference in dispersion measure beyond which the burst is weaker than the weakest group.
    dm_reach: f64,
}

impl<'a> Cone<'a> {
    /// Returns the cone of a group. `is_burst` is true for a burst's best group. `least` is the least significance
    /// and the least band fraction of any group.
    pub(super) fn new(best: &'a Point, least: (f64, f64), wings: Wings, is_burst: bool) -> Self {
        let is_wide = is_burst && best.is_widest;
        let dm_reach = if is_wide { f64::INFINITY } else { wings.dm_reach(best, least) };
        // The margin leaves the decision to the exact test.
        Self { best, wings, is_wide, dm_reach: 1.001 * dm_reach + 1e-9 }
    }

    /// Returns the earliest and latest time of the burst at a trial, for boxcars up to `width`.
    ///
    /// A trial above the burst's dispersion measure shifts low frequencies too early; one below it leaves them too
    /// late.
    fn times(&self, dm: f64, width: f64) -> (f64, f64) {
        let shift = (self.best.dm - dm) * self.wings.delay_per_dm;
        let slack = 0.5 * self.best.width().max(width);
        (self.best.begin + shift.min(0.0) - slack, self.best.end + shift.max(0.0) + slack)
    }

    /// Returns whether the other group lies within the cone and is no stronger than the burst's wing there.
    pub(super) fn explains(&self, other: &Point) -> bool {
        let (early, late) = self.times(other.dm, other.width());
        if other.end < early || other.begin > late {
            return false;
        }
        self.wings.explains(self.best, other) || self.is_wide && self.explains_widely(other)
    }

    /// `snr <= margin S sqrt(W / sqrt(W^2 + smear^2)) + noise`.
    fn explains_widely(&self, other: &Point) -> bool {
        let width = self.best.width();
        let smear = (self.best.dm - other.dm).abs() * self.wings.delay_per_dm;
        let left = (width / width.hypot(smear)).sqrt();
        // The noise is that of the other's channels, some of which may be absent.
        let noise = (f64::from(self.best.band) / f64::from(other.band)).sqrt();
        f64::from(other.snr) <= WIDE_MARGIN * f64::from(self.best.snr) * noise * left + WIDE_NOISE
    }
}

#[cfg(test)]
mod tests {
    use super::super::BandEdges;
    use super::*;

    fn point(dm: f64, begin: f64, snr: f32) -> Point {
        let (rank, trial, is_widest) = (dm as u32, dm as u32, false);
        Point { begin, end: begin + 0.02, snr, rank, dm, trial, is_widest, band: 1.0 }
    }

    #[test]
    fn the_cone_opens_early_above_and_late_below() {
        let best = point(100.0, 10.0, 50.0);
        let band = BandEdges { lowest_hz: 1.2e9, highest_hz: 1.5e9, dm_constant: 4148.808 };
        let cone = Cone::new(&best, (6.0, 1.0), Wings::new(band, 1e-3), true);
        assert!(cone.explains(&point(150.0, 9.96, 20.0)));
        assert!(!cone.explains(&point(150.0, 10.04, 9.0)));
        assert!(cone.explains(&point(50.0, 10.04, 20.0)));
        assert!(!cone.explains(&point(50.0, 9.96, 9.0)));
        assert!(!cone.explains(&point(150.0, 9.96, 60.0)));
    }
}
