//! Selection of the rows whose level fills each gap.

use super::SHARED_ROWS;
use crate::io::Gap;

/// Rows whose level fills a gap: those of data from `first` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) first: u64,
    pub(super) end: u64,
    /// Whether no earlier gap lies after `first`.
    pub(super) is_apart: bool,
}

/// Returns for each gap the last `reach` rows of data before the multiple of [`SHARED_ROWS`] at or before its start;
/// near the start of the data, the rows directly before the gap.
pub(super) fn anchors(gaps: &[Gap], reach: u64) -> Vec<Anchor> {
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
