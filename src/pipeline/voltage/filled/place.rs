//! Where the next row stands among the gaps, and what is due there.
//!
//! Invariant: depends on the gaps and the row's number alone.

use super::anchors::{Anchor, anchors};
use crate::io::Gap;

/// The gaps, and the next row.
#[derive(Clone, Debug)]
pub(in crate::pipeline::voltage) struct Place {
    pub(super) gaps: Vec<Gap>,
    anchors: Vec<Anchor>,
    /// The first gap that does not lie before the next row.
    pub(super) next: usize,
    /// The next row's number.
    pub(super) row: u64,
}

/// What comes next, and how many rows of it.
pub(in crate::pipeline::voltage) enum Segment {
    Gap(usize),
    Data(usize),
}

/// The rows of data that a later gap's level is taken over.
pub(in crate::pipeline::voltage) struct Seen {
    /// Rows before them.
    pub(in crate::pipeline::voltage) unused: usize,
    /// Whether what was seen before is to be forgotten.
    pub(in crate::pipeline::voltage) is_apart: bool,
}

impl Place {
    /// The first row, of gaps whose level is taken over so many rows.
    pub(super) fn new(gaps: Vec<Gap>, reach: u64) -> Self {
        Self { anchors: anchors(&gaps, reach), gaps, next: 0, row: 0 }
    }

    /// Gaps that end at row `target` or before it.
    pub(super) fn gaps_before(&self, target: u64) -> usize {
        self.gaps.partition_point(|gap| gap.start_time + gap.times <= target)
    }

    /// The first row that a gap's level needs.
    pub(super) fn needed_by(&self, gap: usize) -> u64 {
        self.anchors.get(gap).map_or(u64::MAX, |anchor| anchor.first)
    }

    /// What comes next, `most` rows of it; data end where a level is due.
    pub(in crate::pipeline::voltage) fn segment(&self, most: u64) -> Segment {
        let times = |end: u64| usize::try_from(most.min(end - self.row)).unwrap_or(usize::MAX);
        let Some(gap) = self.gaps.get(self.next) else { return Segment::Data(times(u64::MAX)) };
        if self.row >= gap.start_time {
            return Segment::Gap(times(gap.start_time + gap.times));
        }
        let anchor = self.anchors[self.next].end;
        Segment::Data(times(if self.row < anchor { anchor } else { gap.start_time }))
    }

    /// Goes on behind so many rows.
    pub(in crate::pipeline::voltage) fn advance(&mut self, times: u64) {
        self.row += times;
        while self.gaps.get(self.next).is_some_and(|gap| self.row >= gap.start_time + gap.times) {
            self.next += 1;
        }
    }

    /// The end of the rows whose level fills the next gap, where all of them are seen and `taken` is not theirs.
    pub(in crate::pipeline::voltage) fn due(&self, taken: Option<u64>) -> Option<u64> {
        let end = self.anchors.get(self.next)?.end;
        (self.row >= end && taken != Some(end)).then_some(end)
    }

    /// Those of the next `times` rows, which are data, that the next gap's level is taken over.
    pub(in crate::pipeline::voltage) fn seen(&self, times: usize) -> Option<Seen> {
        let anchor = self.anchors.get(self.next)?;
        let unused = anchor.first.saturating_sub(self.row);
        let is_apart = self.row <= anchor.first && anchor.is_apart;
        (unused < times as u64).then_some(Seen { unused: unused as usize, is_apart })
    }

    /// Whether the next gap lies at the very start: what fills it comes behind it.
    #[cfg(feature = "cuda")]
    pub(super) fn must_look_ahead(&self) -> bool {
        self.anchors.get(self.next).is_some_and(|anchor| anchor.end == 0)
    }
}
