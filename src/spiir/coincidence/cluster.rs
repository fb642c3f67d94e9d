//! Clustering of coincidences in time: keeps the best of each window.

use std::cmp::Ordering;

use super::combine::Coincidence;

/// Orders coincidences best first; of equals the earlier, then the lower template.
pub(super) fn order(a: &Coincidence, b: &Coincidence) -> Ordering {
    let same = || a.ns.cmp(&b.ns).then(a.template.cmp(&b.template)).then(a.members.cmp(&b.members));
    b.square.total_cmp(&a.square).then_with(same)
}

/// Calls `keep` in order of time for each coincidence that is the best within `window_ns` before and after it.
pub(super) fn best(
    coincidences: &mut [Coincidence],
    window_ns: i64,
    mut keep: impl FnMut(&Coincidence),
) {
    coincidences.sort_unstable_by(|a, b| a.ns.cmp(&b.ns).then_with(|| order(a, b)));
    for (place, own) in coincidences.iter().enumerate() {
        let near = |other: &&Coincidence| (other.ns - own.ns).abs() <= window_ns;
        let worse = |other: &Coincidence| order(own, other) == Ordering::Less;
        let before = coincidences[..place].iter().rev().take_while(near).all(worse);
        if before && coincidences[place + 1..].iter().take_while(near).all(worse) {
            keep(own);
        }
    }
}
