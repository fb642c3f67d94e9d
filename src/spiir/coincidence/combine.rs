//! Sets of triggers of one template that are consistent with light travel times.

use std::cmp::Ordering;

use super::MAX_DETECTORS;
use super::table::Hit;

/// Marks a detector without a trigger.
pub(super) const NONE: u32 = u32::MAX;

/// Set of triggers of two or more detectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Coincidence {
    /// Square of its ranking: the sum of its triggers' squares.
    pub(super) square: f64,
    /// Time of its best trigger in GPS nanoseconds.
    pub(super) ns: i64,
    pub(super) template: u32,
    /// Trigger index in each detector, or [`NONE`].
    pub(super) members: [u32; MAX_DETECTORS],
}

/// Search for coincidences among one template's triggers.
pub(super) struct Combiner<'a> {
    /// Longest time between triggers of each pair of detectors, in nanoseconds.
    pub(super) windows_ns: &'a [Vec<i64>],
    pub(super) template: u32,
    /// Triggers of each detector in order of time.
    pub(super) rows: &'a [&'a [Hit]],
}

/// Partial set of triggers.
#[derive(Clone, Copy, Default)]
struct Chosen {
    detectors: usize,
    hits: [Option<Hit>; MAX_DETECTORS],
}

impl Combiner<'_> {
    /// Appends every set of triggers, one from each of two or more detectors, in which all pairs are within their
    /// windows.
    pub(super) fn all(&self, found: &mut Vec<Coincidence>) {
        for first in 0..self.rows.len() {
            let mut cursors = [0; MAX_DETECTORS];
            for anchor in self.rows[first] {
                for (later, cursor) in cursors.iter_mut().enumerate().skip(first + 1) {
                    let early = anchor.ns - self.windows_ns[first].get(later).unwrap_or(&0);
                    let row = self.rows.get(later).copied().unwrap_or(&[]);
                    *cursor += row[*cursor..].iter().take_while(|hit| hit.ns < early).count();
                }
                let mut chosen = Chosen { detectors: 1, ..Chosen::default() };
                chosen.hits[first] = Some(*anchor);
                self.extend(first, &chosen, first + 1, &cursors, found);
            }
        }
    }

    /// Extends a set that starts in detector `first` with triggers of the detectors from `next` on.
    fn extend(
        &self,
        first: usize,
        chosen: &Chosen,
        next: usize,
        cursors: &[usize; MAX_DETECTORS],
        found: &mut Vec<Coincidence>,
    ) {
        let Some(anchor) = chosen.hits[first] else { return };
        for detector in next..self.rows.len() {
            let late = anchor.ns + self.windows_ns[first][detector];
            let row = &self.rows[detector][cursors[detector]..];
            for hit in row.iter().take_while(|hit| hit.ns <= late) {
                if !self.fits(chosen, detector, hit) {
                    continue;
                }
                let mut more = *chosen;
                more.hits[detector] = Some(*hit);
                more.detectors += 1;
                found.push(self.coincidence(&more));
                if more.detectors < self.rows.len() {
                    self.extend(first, &more, detector + 1, cursors, found);
                }
            }
        }
    }

    /// Tells whether the trigger is within its window of all triggers in the set.
    fn fits(&self, chosen: &Chosen, detector: usize, hit: &Hit) -> bool {
        let windows = &self.windows_ns[detector];
        chosen
            .hits
            .iter()
            .zip(windows)
            .all(|(other, window)| other.is_none_or(|other| (other.ns - hit.ns).abs() <= *window))
    }

    fn coincidence(&self, chosen: &Chosen) -> Coincidence {
        let mut members = [NONE; MAX_DETECTORS];
        let (mut square, mut best) = (0.0, (f64::NEG_INFINITY, 0));
        for (member, hit) in members.iter_mut().zip(&chosen.hits) {
            if let Some(hit) = hit {
                *member = hit.index;
                square += hit.square;
                // Of equals the earlier wins, so that the order of detectors does not matter.
                if hit.square > best.0 || hit.square == best.0 && hit.ns < best.1 {
                    best = (hit.square, hit.ns);
                }
            }
        }
        Coincidence { square, ns: best.1, template: self.template, members }
    }
}

/// Orders coincidences best first; of equals the earlier, then the lower template.
pub(super) fn rank_order(a: &Coincidence, b: &Coincidence) -> Ordering {
    let same = || a.ns.cmp(&b.ns).then(a.template.cmp(&b.template)).then(a.members.cmp(&b.members));
    b.square.total_cmp(&a.square).then_with(same)
}

/// Calls `keep` in order of time for each coincidence that is the best within `window_ns` before and after it.
pub(super) fn best_of_windows(
    coincidences: &mut [Coincidence],
    window_ns: i64,
    mut keep: impl FnMut(&Coincidence),
) {
    coincidences.sort_unstable_by(|a, b| a.ns.cmp(&b.ns).then_with(|| rank_order(a, b)));
    for (place, own) in coincidences.iter().enumerate() {
        let near = |other: &&Coincidence| (other.ns - own.ns).abs() <= window_ns;
        let worse = |other: &Coincidence| rank_order(own, other) == Ordering::Less;
        let before = coincidences[..place].iter().rev().take_while(near).all(worse);
        if before && coincidences[place + 1..].iter().take_while(near).all(worse) {
            keep(own);
        }
    }
}
