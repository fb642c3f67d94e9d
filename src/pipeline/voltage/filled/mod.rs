//! Gap filling: rows in gaps are replaced by each channel's level over earlier rows.
//!
//! Invariant: what fills a gap depends on the rows around it alone, never on how rows are read or
//! passed over.

mod cursor;
mod level;
mod split;

pub(super) use cursor::{GapCursor, Segment};
pub(in crate::pipeline) use level::Level;
pub(in crate::pipeline) use split::Making;

use super::rows::Rows;
use crate::error::Result;
use crate::io::Gap;

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
