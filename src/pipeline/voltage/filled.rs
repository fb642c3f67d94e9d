//! Gap filling: rows with flagged samples are gaps, and each channel's level over earlier rows replaces them.
//!
//! Invariant: what fills a gap depends on the rows around it alone, never on how rows are read or skipped, nor on
//! whether the gaps are known beforehand or come with the samples of a live source.

use std::ops::Range;

use super::level::Level;
use super::rows::Rows;
use super::spectra::{Bank, Unread};
use crate::channelize::Plan;
use crate::error::{Error, Result};
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
    /// Level that fills the current gap, and the gap's first row.
    filling: Option<(u64, Vec<f32>)>,
    /// Rows read ahead: those after a gap at the very start.
    ahead: Vec<f32>,
    /// Extends the flags of a live source, whose gaps come with its samples; `None` if all gaps are known.
    arriving: Option<Arriving>,
    /// Row at which reading ends, even if there are more.
    end: u64,
}

/// Flags of a live source.
struct Arriving {
    /// Samples before and after a flagged one that it affects in the filter bank's input.
    reach: u64,
    /// Most rows of a gap at the very start.
    most: u64,
    flags: Vec<Flag>,
}

impl Filled {
    /// Fills gaps that are known beforehand.
    pub(super) fn new(rows: Rows, gaps: Vec<Gap>) -> Self {
        let is_filled = !gaps.is_empty();
        Self::with(rows, gaps, is_filled, None)
    }

    /// Fills the gaps of a live source; a missing sample affects those within `reach` of it. A gap at the very start has at
    /// most `most` rows.
    pub(super) fn arriving(rows: Rows, reach: u64, most: u64) -> Self {
        Self::with(rows, Vec::new(), true, Some(Arriving { reach, most, flags: Vec::new() }))
    }

    fn with(rows: Rows, gaps: Vec<Gap>, is_filled: bool, arriving: Option<Arriving>) -> Self {
        let elements = rows.elements();
        let samples = Level::rows_of(elements);
        let level = is_filled.then(|| Level::with_slack(elements, shared_rows(samples)));
        let cursor = GapCursor::new(gaps, samples, arriving.is_some());
        let (filling, ahead, end) = (None, Vec::new(), u64::MAX);
        Self { rows, elements, cursor, level, filling, ahead, arriving, end }
    }

    /// Returns the gaps; those of a live source up to the next row.
    pub(super) fn gaps(&self) -> &[Gap] {
        self.cursor.gaps()
    }

    /// Returns the length of a gap at the very start; 0 if there is none. A live source is read until it is known.
    pub(super) fn gap_at_start(&mut self) -> Result<u64> {
        if self.cursor.row > 0 {
            return Ok(0);
        }
        if self.arriving.is_some() {
            self.await_start()?;
        }
        Ok(self.cursor.gap_at_start())
    }

    /// Returns the number of the next row.
    pub(super) fn row(&self) -> u64 {
        self.cursor.row
    }

    /// Ends reading before row `end`, until another end is set.
    pub(super) fn end_at(&mut self, end: u64) {
        self.end = end;
    }

    /// Returns the rows before the end, at most `rows`.
    fn before_end(&self, rows: u64) -> u64 {
        rows.min(self.end.saturating_sub(self.cursor.row))
    }

    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    pub(super) fn rows_mut(&mut self) -> &mut Rows {
        &mut self.rows
    }

    /// Fills `rows` with the next rows; returns fewer only at the end of the data.
    pub(super) fn read(&mut self, rows: &mut [f32]) -> Result<usize> {
        let asked = self.before_end((rows.len() / self.elements) as u64) as usize;
        let mut done = 0;
        while done < asked {
            let rest = &mut rows[done * self.elements..asked * self.elements];
            let times = match self.arriving {
                Some(_) => self.next_arriving(rest)?,
                None => self.next_known(rest)?,
            };
            done += times;
            if times == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Reads the next rows, which are all of a gap or all data.
    fn next_known(&mut self, rows: &mut [f32]) -> Result<usize> {
        self.prepare()?;
        let times = match self.cursor.segment((rows.len() / self.elements) as u64) {
            Segment::Gap(times) => {
                let times = self.pass_gap(times as u64)? as usize;
                self.fill(&mut rows[..times * self.elements]);
                times
            }
            Segment::Data(times) => self.take(&mut rows[..times * self.elements])?,
        };
        self.cursor.advance(times as u64);
        Ok(times)
    }

    /// Reads the next rows of a live source, and then fills those that turn out to be gaps.
    fn next_arriving(&mut self, rows: &mut [f32]) -> Result<usize> {
        self.await_start()?;
        self.prepare()?;
        if self.cursor.must_look_ahead() {
            // `await_start` has discarded the gap's own rows, of which the last may not exist.
            let left = self.rows.row().saturating_sub(self.cursor.row);
            let most = left.min((rows.len() / self.elements) as u64);
            let Segment::Gap(times) = self.cursor.segment(most) else { return Ok(0) };
            self.fill(&mut rows[..times * self.elements]);
            self.cursor.advance(times as u64);
            return Ok(times);
        }
        let times = self.take_raw(rows)?;
        self.note_gaps();
        let mut done = 0;
        while done < times {
            self.prepare()?;
            let rest = &mut rows[done * self.elements..times * self.elements];
            let passed = match self.cursor.segment((times - done) as u64) {
                Segment::Gap(gap) => {
                    self.fill(&mut rest[..gap * self.elements]);
                    gap
                }
                Segment::Data(data) => {
                    self.observe(&rest[..data * self.elements]);
                    data
                }
            };
            self.cursor.advance(passed as u64);
            done += passed;
        }
        Ok(times)
    }

    /// Reads ahead at the start of a live source until it is known whether the first row is data and, if it is not, the
    /// rows whose level fills the gap.
    fn await_start(&mut self) -> Result<()> {
        if self.cursor.row > 0 || self.filling.is_some() {
            return Ok(());
        }
        let block = (SCRATCH_BYTES / (4 * self.elements)).max(1);
        let mut scratch = vec![0.0; block.min(Level::rows_of(self.elements)) * self.elements];
        loop {
            let end = self.cursor.gap_at_start();
            let held = (self.ahead.len() / self.elements) as u64;
            if self.arriving.as_ref().is_some_and(|arriving| end > arriving.most) {
                let why =
                    format!("samples of some stream are missing in each of the first {end} rows");
                return Err(Error::Unavailable { what: "data at the start".to_owned(), why });
            }
            let is_known = end == 0 && held > 0;
            if is_known || end > 0 && held >= self.cursor.look_ahead_rows() {
                return Ok(());
            }
            let first = self.rows.row();
            let times = self.rows.read(&mut scratch)?;
            if times == 0 {
                return Ok(());
            }
            self.note_gaps();
            let passed = self.cursor.gap_at_start().saturating_sub(first).min(times as u64);
            let kept = passed as usize * self.elements..times * self.elements;
            self.ahead.extend_from_slice(&scratch[kept]);
        }
    }

    /// Adds the gaps that came with the rows read.
    fn note_gaps(&mut self) {
        let Some(Arriving { reach, flags, .. }) = &mut self.arriving else { return };
        self.rows.take_flags(flags);
        if flags.is_empty() {
            return;
        }
        let plan = self.rows.plan();
        let ranges = flags.drain(..).map(|flag| rows_of(&extended(&flag, *reach), plan));
        self.cursor.add(ranges);
    }

    /// Skips rows; skips fewer only at the end of the data.
    pub(super) fn skip(&mut self, times: u64) -> Result<u64> {
        let before = self.cursor.row;
        let target = before.saturating_add(self.before_end(times));
        let needed = match self.arriving {
            Some(_) => 0,
            None => self.cursor.needed_by(self.cursor.gaps_before(target)),
        };
        let block = (SCRATCH_BYTES / (4 * self.elements)).max(1);
        let mut scratch = Vec::new();
        while self.cursor.row < target {
            let row = self.cursor.row;
            let left = target - row;
            let passed = if row < needed {
                let passed = match self.cursor.segment(left.min(needed - row)) {
                    Segment::Gap(times) => self.pass_gap(times as u64)?,
                    Segment::Data(times) => self.pass_data(times as u64)?,
                };
                self.cursor.pass(passed);
                passed
            } else {
                scratch.resize(left.min(block as u64) as usize * self.elements, 0.0);
                self.read(&mut scratch)? as u64
            };
            if passed == 0 {
                break;
            }
        }
        Ok(self.cursor.row - before)
    }

    /// Computes the level of a gap that begins with the next row.
    fn prepare(&mut self) -> Result<()> {
        let filling = self.filling.as_ref().map(|(start, _)| *start);
        let Some(Due { start, latest }) = self.cursor.due(filling) else { return Ok(()) };
        let row = if start == 0 {
            if self.arriving.is_none() {
                self.look_ahead()?;
            }
            let most = (self.cursor.look_ahead_rows() as usize).saturating_mul(self.elements);
            let mut level = Level::new(self.elements);
            level.observe(&self.ahead[..most.min(self.ahead.len())]);
            level.row(0)
        } else {
            self.level.as_ref().map_or_else(Vec::new, |level| level.row(latest))
        };
        self.filling = Some((start, row));
        Ok(())
    }

    /// Fills rows of the current gap.
    fn fill(&mut self, rows: &mut [f32]) {
        if let Some((_, filling)) = &self.filling {
            rows.chunks_exact_mut(self.elements).for_each(|row| row.copy_from_slice(filling));
        }
    }

    /// Reads the rows after a gap at the very start, which has no earlier rows.
    fn look_ahead(&mut self) -> Result<()> {
        self.rows.skip(self.cursor.gap_at_start() - self.rows.row())?;
        self.ahead.resize(self.cursor.look_ahead_rows() as usize * self.elements, 0.0);
        let read = self.rows.read(&mut self.ahead)?;
        self.ahead.truncate(read * self.elements);
        Ok(())
    }

    /// Copies rows of data, and records those that a later gap's level needs.
    fn take(&mut self, rows: &mut [f32]) -> Result<usize> {
        let times = self.take_raw(rows)?;
        self.observe(&rows[..times * self.elements]);
        Ok(times)
    }

    /// Records those of the next rows, which are data, that a later gap's level needs.
    fn observe(&mut self, rows: &[f32]) {
        let unused = self.cursor.unneeded((rows.len() / self.elements) as u64) as usize;
        if let Some(level) = &mut self.level {
            level.observe(&rows[unused * self.elements..]);
        }
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

/// Extends a flag by the reach of a filter.
pub(super) fn extended(flag: &Flag, reach: u64) -> Flag {
    let start = flag.start.saturating_sub(reach);
    let end = flag.start.saturating_add(flag.times).saturating_add(reach);
    Flag { streams: flag.streams.clone(), start, times: end - start }
}

/// Returns the rows with a flagged sample under one of their windows, in any stream: ascending, disjoint, and within
/// the data if their length is known.
pub(super) fn gaps(flags: &[Flag], plan: &Plan, rows: Option<u64>) -> Vec<Gap> {
    let touched = flags.iter().map(|flag| rows_of(flag, plan));
    let within = |range: Range<u64>| range.start..range.end.min(rows.unwrap_or(u64::MAX));
    merged(touched.map(within).collect())
}

/// Returns the ranges as ascending gaps that do not touch each other.
pub(in super::super) fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Gap> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| range.start);
    let mut gaps: Vec<Gap> = Vec::new();
    for Range { start, end } in ranges {
        match gaps.last_mut() {
            Some(last) if start <= last.start_time + last.times => {
                last.times = last.times.max(end - last.start_time);
            }
            _ => gaps.push(Gap { start_time: start, times: end - start }),
        }
    }
    gaps
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

/// Returns the rows of a block: gaps that begin within the same block share a level, which limits the cost of small
/// gaps. `samples` is the number of rows of a level.
fn shared_rows(samples: usize) -> usize {
    (samples / 4).max(1)
}

/// Gaps and the next row.
///
/// A gap's level comes from the last rows of data before the block in which it begins; in the first two blocks, from
/// those directly before the gap.
#[derive(Clone, Debug)]
pub(super) struct GapCursor {
    /// All gaps; if gaps may come, those of which the next row or later ones are part.
    gaps: Vec<Gap>,
    /// Gaps before the next row, if gaps may come.
    passed: Vec<Gap>,
    /// First gap that ends after the next row's number.
    next: usize,
    /// Number of the next row.
    row: u64,
    /// Rows of a level.
    reach: u64,
    /// Rows of a block.
    shared: u64,
    /// First row that the next gap's level needs; 0 if gaps may come, so that every row may be needed.
    needed: u64,
    is_growing: bool,
    /// Rows of data from row `needed` on.
    seen: u64,
    /// Those of them before the block of the next row.
    seen_before_block: u64,
}

/// Next segment of rows and its length.
pub(super) enum Segment {
    Gap(usize),
    Data(usize),
}

/// Gap that begins with the next row, whose level is not yet computed.
pub(super) struct Due {
    /// First row of the gap.
    pub(super) start: u64,
    /// Latest observed rows that its level excludes.
    pub(super) latest: usize,
}

impl GapCursor {
    /// Creates the position at row 0; each gap's level is computed from `samples` rows.
    fn new(gaps: Vec<Gap>, samples: usize, is_growing: bool) -> Self {
        let (reach, shared) = (samples as u64, shared_rows(samples) as u64);
        let mut cursor = Self {
            gaps,
            passed: Vec::new(),
            next: 0,
            row: 0,
            reach,
            shared,
            needed: 0,
            is_growing,
            seen: 0,
            seen_before_block: 0,
        };
        cursor.update_needed();
        cursor
    }

    /// Returns the gaps; if gaps may come, those before the next row.
    fn gaps(&self) -> &[Gap] {
        if self.is_growing { &self.passed } else { &self.gaps }
    }

    /// Adds gaps of rows that were not advanced over.
    fn add(&mut self, ranges: impl Iterator<Item = Range<u64>>) {
        let mut ranges: Vec<Range<u64>> = ranges.collect();
        let Some(first) = ranges.iter().map(|range| range.start).min() else { return };
        while let Some(last) = self.gaps.pop_if(|gap| gap.start_time + gap.times >= first) {
            ranges.push(last.start_time..last.start_time + last.times);
        }
        self.gaps.extend(merged(ranges));
        self.gaps.drain(..self.gaps_before(self.row));
        self.next = 0;
    }

    /// Returns the number of gaps that end at or before row `target`.
    fn gaps_before(&self, target: u64) -> usize {
        self.gaps.partition_point(|gap| gap.start_time + gap.times <= target)
    }

    /// Returns the first row that a gap's level needs: the first of the `reach` rows of data before its block.
    fn needed_by(&self, gap: usize) -> u64 {
        let Some(Gap { start_time, .. }) = self.gaps.get(gap) else { return u64::MAX };
        first(&self.gaps[..gap], self.level_end(*start_time), self.reach)
    }

    /// Returns the end of the rows for the level of a gap that begins at row `start`.
    fn level_end(&self, start: u64) -> u64 {
        if start < 2 * self.shared { start } else { start / self.shared * self.shared }
    }

    /// Returns the next segment, at most `most` rows.
    pub(super) fn segment(&self, most: u64) -> Segment {
        let times = |end: u64| usize::try_from(most.min(end - self.row)).unwrap_or(usize::MAX);
        match self.gaps.get(self.next) {
            None => Segment::Data(times(u64::MAX)),
            Some(gap) if self.row < gap.start_time => Segment::Data(times(gap.start_time)),
            Some(gap) => Segment::Gap(times(gap.start_time + gap.times)),
        }
    }

    /// Advances by `times` rows, all of a gap or all of data, of which the needed ones were observed.
    pub(super) fn advance(&mut self, times: u64) {
        let is_data = matches!(self.segment(1), Segment::Data(_));
        let end = self.row + times;
        let observed = |until: u64| match is_data {
            true => until.saturating_sub(self.row.max(self.needed)),
            false => 0,
        };
        let block = end / self.shared * self.shared;
        if block > self.row {
            self.seen_before_block = self.seen + observed(block);
        }
        self.seen += observed(end);
        if self.is_growing && !is_data {
            match self.passed.last_mut() {
                Some(last) if last.start_time + last.times == self.row => last.times += times,
                _ => self.passed.push(Gap { start_time: self.row, times }),
            }
        }
        self.pass(times);
    }

    /// Advances by `times` rows that were not observed.
    fn pass(&mut self, times: u64) {
        self.row += times;
        let before = self.next;
        while self.gaps.get(self.next).is_some_and(|gap| self.row >= gap.start_time + gap.times) {
            self.next += 1;
        }
        if self.next > before {
            self.update_needed();
        }
    }

    fn update_needed(&mut self) {
        self.needed = if self.is_growing { 0 } else { self.needed_by(self.next) };
    }

    /// Returns the next gap if it begins with the next row or before, and `filled`, the first row of the gap whose level
    /// is computed, is not its own.
    pub(super) fn due(&self, filled: Option<u64>) -> Option<Due> {
        let start = self.gaps.get(self.next)?.start_time;
        let latest = if start < 2 * self.shared { 0 } else { self.seen - self.seen_before_block };
        (self.row >= start && filled != Some(start))
            .then_some(Due { start, latest: latest as usize })
    }

    /// Returns the number of those of the next `times` rows, all data, that no level needs: the first ones.
    pub(super) fn unneeded(&self, times: u64) -> u64 {
        self.needed.saturating_sub(self.row).min(times)
    }

    /// Returns whether the next gap is at the very start; its level comes from the rows after it.
    fn must_look_ahead(&self) -> bool {
        self.gaps.get(self.next).is_some_and(|gap| gap.start_time == 0)
    }

    /// Returns the end of a gap at the very start; 0 if there is none.
    fn gap_at_start(&self) -> u64 {
        self.gaps.first().filter(|gap| gap.start_time == 0).map_or(0, |gap| gap.times)
    }

    /// Returns the rows whose level fills a gap at the very start: those up to the next gap, as far as it is known.
    fn look_ahead_rows(&self) -> u64 {
        let next = self.gaps.get(1).map_or(u64::MAX, |gap| gap.start_time);
        self.reach.min(next - self.gap_at_start())
    }
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

impl Making<'_> {
    /// As [`Filled::gaps`].
    pub(in crate::pipeline) fn gaps(&self) -> &[Gap] {
        self.cursor.gaps()
    }
}

/// Rows for the next gap's level, recorded by the host.
pub(super) struct HostLevel<'a> {
    /// Latest rows, row `k` at index `k` modulo their number.
    pub(super) ring: &'a [f32],
    /// Rows recorded.
    pub(super) rows: usize,
    /// Current fill level, and the first row of its gap.
    pub(super) filling: Option<(u64, &'a [f32])>,
}

impl Filled {
    /// Whether a device can continue from here: not before or within a gap at the very start, whose level comes from
    /// the rows after it. A live source tells with its first rows whether it has one.
    pub(super) fn can_split(&self) -> bool {
        let is_begun = self.arriving.is_none() || self.cursor.row > 0;
        is_begun && self.ahead.is_empty() && !self.cursor.must_look_ahead()
    }

    /// Splits the rows into the unread voltages and the state that computes rows.
    pub(super) fn split(&mut self) -> (Unread<'_>, Making<'_>) {
        self.note_gaps();
        let Self { rows, cursor, level, filling, .. } = self;
        let (unread, bank) = Rows::split(rows);
        let filling = filling.as_ref().map(|(end, values)| (*end, values.as_slice()));
        let seen = level.as_ref().map(|level| {
            let (ring, rows) = level.seen();
            HostLevel { ring, rows, filling }
        });
        (unread, Making { bank, cursor, seen })
    }

    /// Returns the memory of rows for levels, if there may be gaps.
    pub(super) fn level(&self) -> Option<&Level> {
        self.level.as_ref()
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
        let gaps = vec![gap(0, 5), gap(8, 2), gap(12, 10), gap(100, 1)];
        let firsts = |reach| {
            let mut cursor = GapCursor::new(gaps.clone(), 1024, false);
            cursor.reach = reach;
            (0..4).map(|gap| cursor.needed_by(gap)).collect::<Vec<_>>()
        };
        assert_eq!(firsts(4), [0, 0, 6, 96]);
        assert_eq!(firsts(1000), [0, 0, 0, 0]);
        // 78 rows between the last two, 2 before those, 3 before those.
        assert_eq!(firsts(82)[3], 6);
    }

    #[test]
    fn near_gaps_share_their_rows() {
        let gap = |start_time, times| Gap { start_time, times };
        let gaps = vec![gap(1000, 1), gap(1020, 10), gap(1031, 599), gap(1700, 1)];
        let mut cursor = GapCursor::new(gaps.clone(), 1024, false);
        cursor.reach = 256;
        // Row 1024 lies in a gap: 19 rows, and 237 before those. Row 1536 lies in a gap as well: 1, 19, and 236 rows.
        let needed: Vec<u64> = (0..4).map(|gap| cursor.needed_by(gap)).collect();
        assert_eq!(needed, [512, 512, 763, 764]);
        for step in [1, 7, 300, 5000] {
            for is_growing in [false, true] {
                let known = if is_growing { Vec::new() } else { gaps.clone() };
                let mut cursor = GapCursor::new(known, 1024, is_growing);
                if is_growing {
                    cursor.add(gaps.iter().map(|gap| gap.start_time..gap.start_time + gap.times));
                }
                let mut latest = Vec::new();
                while cursor.row < 2000 {
                    let last = latest.last().map(|(start, _): &(u64, usize)| *start);
                    latest.extend(cursor.due(last).map(|due| (due.start, due.latest)));
                    match cursor.segment(step) {
                        Segment::Gap(times) | Segment::Data(times) => cursor.advance(times as u64),
                    }
                }
                // Rows of data since rows 768, 768, 1024 and 1536.
                assert_eq!(latest, [(1000, 232), (1020, 251), (1031, 1), (1700, 70)]);
            }
        }
    }

    #[test]
    fn gaps_that_come_in_parts_are_those_known_beforehand() {
        // Each part is a list of starts and ends.
        let cursor = |parts: &[&[(u64, u64)]]| {
            let mut cursor = GapCursor::new(Vec::new(), 1024, true);
            for part in parts {
                cursor.add(part.iter().map(|(start, end)| *start..*end));
            }
            cursor.gaps.iter().map(|gap| (gap.start_time, gap.times)).collect::<Vec<_>>()
        };
        assert_eq!(cursor(&[&[(3, 5)], &[(5, 9), (4, 6)], &[(12, 13)]]), [(3, 6), (12, 1)]);
        assert_eq!(
            cursor(&[&[(3, 5), (20, 30)], &[(5, 5)], &[(25, 40), (18, 19)]]),
            [(3, 2), (18, 1), (20, 20)]
        );
    }
}
