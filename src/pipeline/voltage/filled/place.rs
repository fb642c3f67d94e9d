//! Position of the next row among the gaps.
//!
//! Invariant: depends on the gaps and the row's number alone.

use super::anchors::{Anchor, anchors};
use crate::io::Gap;

/// Gaps and the next row.
#[derive(Clone, Debug)]
pub(in crate::pipeline::voltage) struct Place {
    pub(super) gaps: Vec<Gap>,
    anchors: Vec<Anchor>,
    /// First gap that ends after the next row's number.
    pub(super) next: usize,
    /// Number of the next row.
    pub(super) row: u64,
}

/// Next segment of rows and its length.
pub(in crate::pipeline::voltage) enum Segment {
    Gap(usize),
    Data(usize),
}

/// Rows of data from which a later gap's level is computed.
pub(in crate::pipeline::voltage) struct Seen {
    /// Rows before them.
    pub(in crate::pipeline::voltage) unused: usize,
    /// Whether to discard the rows recorded before.
    pub(in crate::pipeline::voltage) is_apart: bool,
}

impl Place {
    /// Creates the position at row 0; each gap's level is computed from `reach` rows.
    pub(super) fn new(gaps: Vec<Gap>, reach: u64) -> Self {
        Self { anchors: anchors(&gaps, reach), gaps, next: 0, row: 0 }
    }

    /// Returns the number of gaps that end at or before row `target`.
    pub(super) fn gaps_before(&self, target: u64) -> usize {
        self.gaps.partition_point(|gap| gap.start_time + gap.times <= target)
    }

    /// Returns the first row that a gap's level needs.
    pub(super) fn needed_by(&self, gap: usize) -> u64 {
        self.anchors.get(gap).map_or(u64::MAX, |anchor| anchor.first)
    }

    /// Returns the next segment, at most `most` rows; data segments end where a level is due.
    pub(in crate::pipeline::voltage) fn segment(&self, most: u64) -> Segment {
        let times = |end: u64| usize::try_from(most.min(end - self.row)).unwrap_or(usize::MAX);
        let Some(gap) = self.gaps.get(self.next) else { return Segment::Data(times(u64::MAX)) };
        if self.row >= gap.start_time {
            return Segment::Gap(times(gap.start_time + gap.times));
        }
        let anchor = self.anchors[self.next].end;
        Segment::Data(times(if self.row < anchor { anchor } else { gap.start_time }))
    }

    /// Advances by `times` rows.
    pub(in crate::pipeline::voltage) fn advance(&mut self, times: u64) {
        self.row += times;
        while self.gaps.get(self.next).is_some_and(|gap| self.row >= gap.start_time + gap.times) {
            self.next += 1;
        }
    }

    /// Returns the end of the rows for the next gap's level if all of them were seen and `taken` is not that end.
    pub(in crate::pipeline::voltage) fn due(&self, taken: Option<u64>) -> Option<u64> {
        let end = self.anchors.get(self.next)?.end;
        (self.row >= end && taken != Some(end)).then_some(end)
    }

    /// Returns those of the next `times` rows, all data, that the next gap's level needs.
    pub(in crate::pipeline::voltage) fn seen(&self, times: usize) -> Option<Seen> {
        let anchor = self.anchors.get(self.next)?;
        let unused = anchor.first.saturating_sub(self.row);
        let is_apart = self.row <= anchor.first && anchor.is_apart;
        (unused < times as u64).then_some(Seen { unused: unused as usize, is_apart })
    }

    /// Whether the next gap is at the very start; its level comes from the rows after it.
    #[cfg(feature = "cuda")]
    pub(super) fn must_look_ahead(&self) -> bool {
        self.anchors.get(self.next).is_some_and(|anchor| anchor.end == 0)
    }
}
