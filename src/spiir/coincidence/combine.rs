//! Sets of triggers, one template's, that light's travel time allows.

use super::MAX_DETECTORS;
use super::table::Hit;

/// No trigger of this detector.
pub(super) const NONE: u32 = u32::MAX;

/// Triggers of two detectors or more that belong together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Coincidence {
    /// Square of its ranking: the sum of its triggers'.
    pub(super) square: f64,
    /// Time of its best trigger, GPS nanoseconds.
    pub(super) ns: i64,
    pub(super) template: u32,
    /// Each detector's trigger, or [`NONE`].
    pub(super) members: [u32; MAX_DETECTORS],
}

/// The search for coincidences in one template's triggers.
pub(super) struct Combiner<'a> {
    /// Longest time between triggers of two detectors, nanoseconds.
    pub(super) windows_ns: &'a [Vec<i64>],
    pub(super) template: u32,
    /// Each detector's triggers by time.
    pub(super) rows: &'a [&'a [Hit]],
}

/// Triggers chosen so far.
#[derive(Clone, Copy, Default)]
struct Chosen {
    detectors: usize,
    hits: [Option<Hit>; MAX_DETECTORS],
}

impl Combiner<'_> {
    /// Appends every set of triggers, one of each of two detectors or more, of which all pairs are within their
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

    /// Adds triggers of the detectors from `next` on to those of the earlier ones, `first` being the first chosen.
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

    /// Is the trigger within its window of all that are chosen?
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
                // Of equals the earlier, so that the order of detectors does not matter.
                if hit.square > best.0 || hit.square == best.0 && hit.ns < best.1 {
                    best = (hit.square, hit.ns);
                }
            }
        }
        Coincidence { square, ns: best.1, template: self.template, members }
    }
}
