//! Linking of events to local peaks: each event links to the strongest adjacent event that explains it.
//!
//! Invariant: a step uphill is strict in the order of points, so no chain closes on itself.

use std::cmp::Ordering;

use super::wing::Wings;
use super::{Group, Point, rank_starts};

/// Trials on either side in which an event has neighbours.
const STEPS: usize = 3;

/// Slack in seconds added to reaches in time, so that rounding excludes no adjacent event; the exact test decides.
pub(super) const SLACK_S: f64 = 1e-6;

/// Returns the largest drift of a burst between each trial and its neighbours, in seconds; trials in order.
pub(super) fn drifts(dms: &[f64], delay_per_dm: f64) -> Vec<f64> {
    let drift = |rank: usize| {
        let (low, high) = (rank.saturating_sub(STEPS), (rank + STEPS).min(dms.len() - 1));
        (dms[rank] - dms[low]).max(dms[high] - dms[rank]) * delay_per_dm
    };
    (0..dms.len()).map(drift).collect()
}

/// Returns the time from which no later event can be adjacent; `drift` is the largest to any adjacent trial.
pub(super) fn reach_end(point: &Point, drift: f64) -> f64 {
    point.end + drift + 0.5 * point.width() + SLACK_S
}

/// Groups the points that climb to the same peak, best first, and returns the group of each point. Reorders the
/// points.
pub(super) fn group(points: &mut [Point], ranks: usize, wings: Wings) -> (Vec<Group>, Vec<u32>) {
    let place = |p: &Point, q: &Point| p.rank.cmp(&q.rank).then(p.begin.total_cmp(&q.begin));
    points.sort_unstable_by(|p, q| place(p, q).then_with(|| p.order(q)));
    let starts = rank_starts(points.iter().map(|p| p.rank), ranks);
    let mut uphill: Vec<u32> = (0..points.len() as u32).collect();
    for low in 0..ranks {
        if starts[low] == starts[low + 1] {
            continue;
        }
        for high in low..ranks.min(low + STEPS + 1) {
            let (here, there) = (starts[low]..starts[low + 1], starts[high]..starts[high + 1]);
            link(points, here, there, wings, &mut uphill);
        }
    }
    collect(points, &uphill)
}

/// Compares the touching events of two trials, both sorted by time.
fn link(
    points: &[Point],
    here: std::ops::Range<usize>,
    there: std::ops::Range<usize>,
    wings: Wings,
    uphill: &mut [u32],
) {
    let (Some(first), Some(other)) = (points[here.clone()].first(), points[there.clone()].first())
    else {
        return;
    };
    let drift = (other.dm - first.dm).abs() * wings.delay_per_dm;
    let widest = points[there.clone()].iter().map(Point::width).fold(0.0, f64::max);
    let mut from = there.start;
    for p in here {
        let here = points[p];
        // Two boxcars touch if their gap is at most half the narrower one.
        let reach = drift + 0.5 * here.width();
        while from < there.end && points[from].begin + 1.5 * widest + drift + SLACK_S < here.begin {
            from += 1;
        }
        for q in from..there.end {
            let there = &points[q];
            if there.begin > here.end + reach {
                break;
            }
            let near = drift + 0.5 * here.width().min(there.width());
            let touch = there.begin <= here.end + near && there.end >= here.begin - near;
            if p != q && touch {
                let (low, high) =
                    if points[p].order(&points[q]) == Ordering::Less { (q, p) } else { (p, q) };
                raise(points, uphill, (low, high), wings);
            }
        }
    }
}

/// Links `from` uphill to the better point `to` if that explains it and is the best so far.
fn raise(points: &[Point], uphill: &mut [u32], (from, to): (usize, usize), wings: Wings) {
    let best = uphill[from] as usize;
    if points[to].order(&points[best]) == Ordering::Less
        && wings.explains(&points[to], &points[from])
    {
        uphill[from] = to as u32;
    }
}

fn collect(points: &[Point], uphill: &[u32]) -> (Vec<Group>, Vec<u32>) {
    let mut order: Vec<u32> = (0..points.len() as u32).collect();
    order.sort_unstable_by(|p, q| points[*p as usize].order(&points[*q as usize]));
    let mut groups: Vec<Group> = Vec::new();
    let mut group_of = vec![u32::MAX; points.len()];
    // Best first, so the point uphill already has its group.
    for index in order.iter().map(|p| *p as usize) {
        let target = uphill[index] as usize;
        let own = Group::of(&points[index]);
        if target == index {
            group_of[index] = groups.len() as u32;
            groups.push(own);
        } else {
            group_of[index] = group_of[target];
            groups[group_of[target] as usize].absorb(&own);
        }
    }
    (groups, group_of)
}
