//! Rows that flagged samples affect.

use std::ops::Range;

use crate::channelize::Plan;
use crate::io::Gap;
use crate::io::voltages::Flag;

/// Returns the rows with a flagged sample under one of their windows, in any stream: ascending, disjoint, and within
/// the data if their length is known.
pub(super) fn gaps(flags: &[Flag], plan: &Plan, rows: Option<u64>) -> Vec<Gap> {
    let mut touched: Vec<Range<u64>> = flags.iter().map(|flag| rows_of(flag, plan)).collect();
    touched.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in touched {
        let range = range.start..range.end.min(rows.unwrap_or(u64::MAX));
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ if range.start < range.end => merged.push(range),
            _ => {}
        }
    }
    let gap = |range: Range<u64>| Gap { start_time: range.start, times: range.end - range.start };
    merged.into_iter().map(gap).collect()
}

/// Returns the rows that one flag affects.
pub(super) fn rows_of(flag: &Flag, plan: &Plan) -> Range<u64> {
    let row = plan.samples_per_row() as u64;
    // A row's last window ends `span - hop` samples after the row's own samples.
    let overlap = (plan.span() - plan.hop()) as u64;
    let start = flag.start.saturating_sub(overlap) / row;
    let end = flag.start.saturating_add(flag.times).div_ceil(row);
    if flag.times == 0 { start..start } else { start..end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channelize::{Detection, Feed, Form, Options, Products};
    use crate::voltage::VoltageEncoding;

    #[test]
    fn a_row_is_touched_when_one_of_its_windows_is() {
        for (taps, spectra, oversampling) in [(1, 1, (1, 1)), (4, 1, (1, 1)), (3, 5, (4, 3))] {
            let detection = Detection {
                products: Products::I,
                feed: Feed::Linear,
                spectra,
                channels: 1,
                interpolate_dc: false,
            };
            let plan = Plan::new(Options {
                form: Form::Detected(detection),
                oversampling,
                ..Options::new(8, taps, VoltageEncoding::Complex8)
            })
            .unwrap();
            for start in 0..200 {
                for times in [1, 7, 30] {
                    let flag = Flag { streams: 0..1, start, times };
                    let touched = |row: u64| {
                        (0..spectra as u64).any(|s| {
                            let first = (row * spectra as u64 + s) * plan.hop() as u64;
                            first < start + times && first + plan.span() as u64 > start
                        })
                    };
                    let expected: Vec<u64> = (0..100).filter(|row| touched(*row)).collect();
                    assert_eq!(rows_of(&flag, &plan).collect::<Vec<_>>(), expected);
                }
            }
        }
    }

    #[test]
    fn gaps_are_apart_and_within_the_data() {
        let plan = Plan::new(Options::new(8, 1, VoltageEncoding::Complex8)).unwrap();
        let flag = |start, times| Flag { streams: 0..1, start, times };
        let flags =
            [flag(80, 8), flag(0, 9), flag(16, 8), flag(40, 4), flag(90, 1000), flag(900, 3)];
        let found = gaps(&flags, &plan, Some(20));
        let ends: Vec<_> = found.iter().map(|gap| (gap.start_time, gap.times)).collect();
        assert_eq!(ends, [(0, 3), (5, 1), (10, 10)]);
    }
}
