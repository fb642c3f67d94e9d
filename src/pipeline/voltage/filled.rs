//! Gap filling: rows with flagged samples are gaps, and each channel's level over earlier rows replaces them.
//!
//! Invariant: what fills a gap depends on the rows around it alone, never on how rows are read or passed over.

use std::ops::Range;

use super::level::Level;
use super::rows::Rows;
use super::spectra::{Bank, Unread};
use crate::channelize::Plan;
use crate::error::Result;
use crate::io::Gap;
use crate::io::voltages::Flag;

/// Bytes of rows read per step while skipping.
const SCRATCH_BYTES: usize = 1 << 20;

/// Source of rows, with its gaps filled.
pub(super) struct Filled {
    rows: Rows,
    elements: usize,
    cursor: GapCursor,
    level: Option<Level>,
    /// Level that fills the current gap, and the end of the rows it was computed from.
    filling: Option<(u64, Vec<f32>)>,
    /// Rows after a gap at the very start, read ahead.
    ahead: Vec<f32>,
}

impl Filled {
    pub(super) fn new(rows: Rows, gaps: Vec<Gap>) -> Self {
        let elements = rows.elements();
        let level = (!gaps.is_empty()).then(|| Level::new(elements));
        let reach = level.as_ref().map_or(0, |level| level.samples() as u64);
        let cursor = GapCursor::new(gaps, reach);
        Self { rows, elements, cursor, level, filling: None, ahead: Vec::new() }
    }

    pub(super) fn gaps(&self) -> &[Gap] {
        &self.cursor.gaps
    }

    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    pub(super) fn rows_mut(&mut self) -> &mut Rows {
        &mut self.rows
    }

    /// Fills `rows` with the next rows; returns fewer only at the end of the data.
    pub(super) fn read(&mut self, rows: &mut [f32]) -> Result<usize> {
        let asked = rows.len() / self.elements;
        let mut done = 0;
        while done < asked {
            self.prepare()?;
            let rest = &mut rows[done * self.elements..asked * self.elements];
            let times = match self.cursor.segment((asked - done) as u64) {
                Segment::Gap(times) => self.fill(&mut rest[..times * self.elements])?,
                Segment::Data(times) => self.take(&mut rest[..times * self.elements])?,
            };
            self.cursor.advance(times as u64);
            done += times;
            if times == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Skips rows; skips fewer only at the end of the data.
    pub(super) fn skip(&mut self, times: u64) -> Result<u64> {
        let before = self.cursor.row;
        let target = before.saturating_add(times);
        let ahead = self.cursor.gaps_before(target);
        let needed = self.cursor.needed_by(ahead);
        let mut scratch = Vec::new();
        while self.cursor.row < target {
            if self.cursor.next >= ahead {
                self.prepare()?;
            }
            let row = self.cursor.row;
            let passed = match self.cursor.segment(target - row) {
                Segment::Gap(times) => self.pass_gap(times as u64)?,
                Segment::Data(times) if row < needed => {
                    self.pass_data((times as u64).min(needed - row))?
                }
                Segment::Data(times) => {
                    let block = (SCRATCH_BYTES / (4 * self.elements)).max(1);
                    scratch.resize(times.min(block) * self.elements, 0.0);
                    self.take(&mut scratch)? as u64
                }
            };
            self.cursor.advance(passed);
            if passed == 0 {
                break;
            }
        }
        Ok(self.cursor.row - before)
    }

    /// Computes the level for the next gap once all of its rows have been seen.
    fn prepare(&mut self) -> Result<()> {
        let Some(end) = self.cursor.due(self.filling.as_ref().map(|(end, _)| *end)) else {
            return Ok(());
        };
        let row = if end == 0 {
            self.look_ahead()?;
            let mut level = Level::new(self.elements);
            level.observe(&self.ahead);
            level.row()
        } else {
            self.level.as_ref().map_or_else(Vec::new, Level::row)
        };
        self.filling = Some((end, row));
        Ok(())
    }

    /// Fills rows of the current gap.
    fn fill(&mut self, rows: &mut [f32]) -> Result<usize> {
        let passed = self.pass_gap((rows.len() / self.elements) as u64)? as usize;
        if let Some((_, filling)) = &self.filling {
            let rows = rows.chunks_exact_mut(self.elements).take(passed);
            rows.for_each(|row| row.copy_from_slice(filling));
        }
        Ok(passed)
    }

    /// Reads the rows after a gap at the very start, which has no earlier rows.
    fn look_ahead(&mut self) -> Result<()> {
        let first = self.cursor.gaps[0];
        let end = self.cursor.gaps.get(1).map_or(u64::MAX, |gap| gap.start_time);
        let most = self.level.as_ref().map_or(0, Level::samples) as u64;
        let wanted = most.min(end - first.times) as usize;
        self.rows.skip(first.times - self.rows.row())?;
        self.ahead.resize(wanted * self.elements, 0.0);
        let read = self.rows.read(&mut self.ahead)?;
        self.ahead.truncate(read * self.elements);
        Ok(())
    }

    /// Copies rows of data, and records those that a later gap's level needs.
    fn take(&mut self, rows: &mut [f32]) -> Result<usize> {
        let times = self.take_raw(rows)?;
        if let (Some(seen), Some(level)) = (self.cursor.seen(times), &mut self.level) {
            if seen.is_apart {
                level.reset();
            }
            level.observe(&rows[seen.unused * self.elements..times * self.elements]);
        }
        Ok(times)
    }

    fn take_raw(&mut self, rows: &mut [f32]) -> Result<usize> {
        let Some(used) = self.used_ahead() else { return self.rows.read(rows) };
        let held = &self.ahead[used * self.elements..];
        let length = held.len().min(rows.len());
        rows[..length].copy_from_slice(&held[..length]);
        self.drop_used_ahead(length / self.elements);
        Ok(length / self.elements)
    }

    /// Returns the number of read-ahead rows already returned; `None` without read-ahead rows.
    fn used_ahead(&self) -> Option<usize> {
        let held = self.ahead.len() / self.elements;
        let begin = self.rows.row() - held as u64;
        (held > 0).then(|| self.cursor.row.saturating_sub(begin) as usize)
    }

    /// Frees the read-ahead rows once the next `times` rows use them up.
    fn drop_used_ahead(&mut self, times: usize) {
        if self.cursor.row + times as u64 >= self.rows.row() {
            self.ahead = Vec::new();
        }
    }

    /// Skips rows of a gap; skips fewer only at the end of the data.
    fn pass_gap(&mut self, times: u64) -> Result<u64> {
        let end = self.cursor.row + times;
        // Rows after a gap at the very start may have been read already.
        self.rows.skip(end.saturating_sub(self.rows.row()))?;
        Ok(times.min(self.rows.row() - self.cursor.row))
    }

    /// Skips rows of data that no gap needs.
    fn pass_data(&mut self, times: u64) -> Result<u64> {
        if self.used_ahead().is_some() {
            let held = (self.rows.row() - self.cursor.row).min(times);
            self.drop_used_ahead(held as usize);
            return Ok(held);
        }
        self.rows.skip(times)
    }
}

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

/// Gaps that begin within the same block of this many rows share a level, which limits the cost of small gaps.
const SHARED_ROWS: usize = 256;

/// Gaps and the next row.
#[derive(Clone, Debug)]
pub(super) struct GapCursor {
    pub(super) gaps: Vec<Gap>,
    anchors: Vec<Anchor>,
    /// First gap that ends after the next row's number.
    pub(super) next: usize,
    /// Number of the next row.
    pub(super) row: u64,
}

/// Next segment of rows and its length.
pub(super) enum Segment {
    Gap(usize),
    Data(usize),
}

/// Rows of data from which a later gap's level is computed.
pub(super) struct Seen {
    /// Rows before them.
    pub(super) unused: usize,
    /// Whether to discard the rows recorded before.
    pub(super) is_apart: bool,
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
    pub(super) fn segment(&self, most: u64) -> Segment {
        let times = |end: u64| usize::try_from(most.min(end - self.row)).unwrap_or(usize::MAX);
        let Some(gap) = self.gaps.get(self.next) else { return Segment::Data(times(u64::MAX)) };
        if self.row >= gap.start_time {
            return Segment::Gap(times(gap.start_time + gap.times));
        }
        let anchor = self.anchors[self.next].end;
        Segment::Data(times(if self.row < anchor { anchor } else { gap.start_time }))
    }

    /// Advances by `times` rows.
    pub(super) fn advance(&mut self, times: u64) {
        self.row += times;
        while self.gaps.get(self.next).is_some_and(|gap| self.row >= gap.start_time + gap.times) {
            self.next += 1;
        }
    }

    /// Returns the end of the rows for the next gap's level if all of them were seen and `taken` is not that end.
    pub(super) fn due(&self, taken: Option<u64>) -> Option<u64> {
        let end = self.anchors.get(self.next)?.end;
        (self.row >= end && taken != Some(end)).then_some(end)
    }

    /// Returns those of the next `times` rows, all data, that the next gap's level needs.
    pub(super) fn seen(&self, times: usize) -> Option<Seen> {
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

/// State that computes rows from voltages, with its position in the recording.
pub(in crate::pipeline) struct Making<'a> {
    pub(super) bank: Bank<'a>,
    pub(super) cursor: &'a mut GapCursor,
    /// Rows that the host has recorded for levels.
    pub(super) seen: Option<HostLevel<'a>>,
}

/// Rows for the next gap's level, recorded by the host.
pub(super) struct HostLevel<'a> {
    /// Latest rows, row `k` at index `k` modulo their number.
    pub(super) ring: &'a [f32],
    /// Rows recorded.
    pub(super) rows: usize,
    /// Current fill level, and the end of the rows it was computed from.
    pub(super) filling: Option<(u64, &'a [f32])>,
}

impl Filled {
    /// Whether a device can continue from here: not before or within a gap at the very start, whose level comes from
    /// the rows after it.
    pub(super) fn can_split(&self) -> bool {
        self.ahead.is_empty() && !self.cursor.must_look_ahead()
    }

    /// Splits the rows into the unread voltages and the state that computes rows.
    pub(super) fn split(&mut self) -> (Unread<'_>, Making<'_>) {
        let Self { rows, cursor, level, filling, .. } = self;
        let (unread, bank) = Rows::split(rows);
        let filling = filling.as_ref().map(|(end, values)| (*end, values.as_slice()));
        let seen = level.as_ref().map(|level| {
            let (ring, rows) = level.seen();
            HostLevel { ring, rows, filling }
        });
        (unread, Making { bank, cursor, seen })
    }

    /// Returns the rows per level, if there are gaps.
    pub(super) fn level_rows(&self) -> Option<usize> {
        self.level.as_ref().map(Level::samples)
    }
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
