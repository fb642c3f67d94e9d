//! Groups to bursts: the bow tie of a strong burst takes in what it leaves at wrong DMs.
//!
//! Invariant: groups come in best first and leave best first.

use super::{Group, Point, rank_starts};

/// A burst may be this much stronger than predicted: one that fills half the band smears half as
/// much, and keeps the square root of two more.
const MARGIN: f64 = 1.5;

/// What noise, searched over many boxcars, may add.
const NOISE: f64 = 2.0;

/// Takes each group that a stronger one explains into it.
pub(super) fn merge(mut groups: Vec<Group>, ranks: usize, delay_per_dm: f64) -> Vec<Group> {
    let Some(weakest) = groups.last().map(|group| f64::from(group.best.snr)) else {
        return groups;
    };
    let mut place: Vec<usize> = (0..groups.len()).collect();
    let key = |i: &usize| (groups[*i].best.rank, groups[*i].best.begin);
    place.sort_by(|a, b| {
        let ((rank_a, begin_a), (rank_b, begin_b)) = (key(a), key(b));
        rank_a.cmp(&rank_b).then(begin_a.total_cmp(&begin_b))
    });
    let index = Index::new(&groups, place, ranks);
    let mut taken = vec![false; groups.len()];
    for seed in 0..groups.len() {
        if taken[seed] {
            continue;
        }
        let cone = Cone::new(&groups[seed].best, weakest, delay_per_dm);
        let mut whole = groups[seed];
        index.each_near(&cone, |other| {
            if other > seed && !taken[other] && cone.explains(&groups[other].best) {
                taken[other] = true;
                whole.absorb(&groups[other]);
            }
        });
        groups[seed] = whole;
    }
    let mut kept = taken.iter().map(|taken| !taken);
    groups.retain(|_| kept.next().unwrap_or(false));
    groups
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
            let first = own.partition_point(|(begin, _)| *begin < early - widest);
            let near = own[first..].iter().take_while(|(begin, _)| *begin <= late);
            near.for_each(|(_, group)| visit(*group as usize));
        }
    }
}

/// Where a burst is seen at wrong dispersion measures, and how strong.
struct Cone<'a> {
    best: &'a Point,
    delay_per_dm: f64,
    /// Beyond this difference nothing as strong as the weakest group is left of the burst.
    dm_reach: f64,
}

impl<'a> Cone<'a> {
    fn new(best: &'a Point, weakest: f64, delay_per_dm: f64) -> Self {
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
    fn explains(&self, other: &Point) -> bool {
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
