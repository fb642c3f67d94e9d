//! Position of the next row among the gaps, and the rows whose level fills each gap.
//!
//! Invariant: depends on the gaps and the row's number alone.

use crate::io::Gap;

/// Gaps that begin within the same block of this many rows share a level, so many small gaps cost little.
const SHARED_ROWS: usize = 256;

/// Gaps and the next row.
#[derive(Clone, Debug)]
pub(in crate::pipeline::voltage) struct GapCursor {
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

impl GapCursor {
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
    pub(super) fn must_look_ahead(&self) -> bool {
        self.anchors.get(self.next).is_some_and(|anchor| anchor.end == 0)
    }
}

/// Rows whose level fills a gap: those of data from `first` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Anchor {
    first: u64,
    end: u64,
    /// Whether no earlier gap lies after `first`.
    is_apart: bool,
}

/// Returns for each gap the last `reach` rows of data before the multiple of [`SHARED_ROWS`] at or before its start;
/// near the start of the data, the rows directly before the gap.
fn anchors(gaps: &[Gap], reach: u64) -> Vec<Anchor> {
    let block = SHARED_ROWS as u64;
    let anchor = |(index, gap): (usize, &Gap)| {
        let start = gap.start_time;
        let end = if start < 2 * block { start } else { start / block * block };
        let first = first(&gaps[..index], end, reach);
        let before = index.checked_sub(1).map(|before| gaps[before]);
        let is_apart = before.is_none_or(|before| before.start_time + before.times <= first);
        Anchor { first, end, is_apart }
    };
    gaps.iter().enumerate().map(anchor).collect()
}

/// Returns the first of the `reach` rows of data before `end`.
fn first(gaps: &[Gap], end: u64, reach: u64) -> u64 {
    let (mut missing, mut end) = (reach, end);
    for gap in gaps.iter().rev() {
        if gap.start_time >= end {
            continue;
        }
        let data = end.saturating_sub(gap.start_time + gap.times);
        if data >= missing {
            return end - missing;
        }
        missing -= data;
        end = gap.start_time;
    }
    end.saturating_sub(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_needs_the_data_before_it() {
        let gap = |start_time, times| Gap { start_time, times };
        let gaps = [gap(0, 5), gap(8, 2), gap(12, 10), gap(100, 1)];
        let firsts = |reach| anchors(&gaps, reach).iter().map(|a| a.first).collect::<Vec<_>>();
        assert_eq!(firsts(4), [0, 0, 6, 96]);
        assert_eq!(firsts(1000), [0, 0, 0, 0]);
        // 78 rows between the last two, 2 before those, 3 before those.
        assert_eq!(firsts(82)[3], 6);
    }

    #[test]
    fn near_gaps_share_their_rows() {
        let gap = |start_time, times| Gap { start_time, times };
        let gaps = [gap(1000, 1), gap(1020, 10), gap(1030, 600), gap(1700, 1)];
        let found = anchors(&gaps, 256);
        let anchor = |first, end, is_apart| Anchor { first, end, is_apart };
        assert_eq!(found[0], anchor(512, 768, true));
        assert_eq!(found[1], anchor(512, 768, false));
        // Row 1024 lies in the previous gap: 19 rows, and 237 before those.
        assert_eq!(found[2], anchor(763, 1024, false));
        // Row 1536 lies in the previous gap.
        assert_eq!(found[3], anchor(763, 1536, false));
    }
}
