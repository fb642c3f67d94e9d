//! Rows with their gaps filled: by each channel's median over the rows before.
//!
//! Invariant: what fills a gap depends on the rows around it alone, never on how rows are read or
//! passed over (for data without numbers that are not finite).

use super::rows::Rows;
use crate::error::Result;
use crate::io::Gap;
use crate::math::running_median::RunningMedian;
use crate::sample::Encoding;

/// Rows after a gap at the very start that fill it, for it has none before.
const FIRST_ROWS: u64 = 256;

/// Bytes of rows that are looked at at once while others are passed over.
const SCRATCH_BYTES: usize = 1 << 20;

/// A source of rows and its gaps.
pub(super) struct Filled {
    rows: Rows,
    elements: usize,
    gaps: Vec<Gap>,
    /// The first row that the median of each gap needs; rising.
    needed: Vec<u64>,
    /// The first gap that does not lie before the next row.
    next: usize,
    /// The next row's number.
    row: u64,
    median: Option<RunningMedian>,
    /// What fills the present gap.
    filling: Option<Vec<u8>>,
    /// Rows after a gap at the very start, read ahead.
    ahead: Vec<f32>,
}

impl Filled {
    pub(super) fn new(rows: Rows, gaps: Vec<Gap>) -> Self {
        let elements = rows.elements();
        let median = (!gaps.is_empty()).then(|| RunningMedian::dense(Encoding::F32, elements));
        let reach = median.as_ref().map_or(0, |median| median.samples() as u64);
        let needed = needed(&gaps, reach);
        Self {
            rows,
            elements,
            gaps,
            needed,
            next: 0,
            row: 0,
            median,
            filling: None,
            ahead: Vec::new(),
        }
    }

    pub(super) fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Fills `rows` with the next rows; fewer only at the end of the data.
    pub(super) fn read(&mut self, rows: &mut [f32]) -> Result<usize> {
        let asked = rows.len() / self.elements;
        let mut done = 0;
        while done < asked {
            let rest = &mut rows[done * self.elements..asked * self.elements];
            let wanted = (asked - done) as u64;
            let times = match self.segment(wanted) {
                Segment::Gap(times) => self.fill(&mut rest[..times * self.elements])?,
                Segment::Data(times) => self.take(&mut rest[..times * self.elements])?,
            };
            self.advance(times as u64);
            done += times;
            if times == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Passes over rows; fewer only at the end of the data.
    pub(super) fn skip(&mut self, times: u64) -> Result<u64> {
        let before = self.row;
        let target = before.saturating_add(times);
        let ahead = self.gaps.iter().position(|gap| gap.start_time + gap.times > target);
        let needed = ahead.map_or(u64::MAX, |gap| self.needed[gap]);
        let mut scratch = Vec::new();
        while self.row < target {
            let passed = match self.segment(target - self.row) {
                Segment::Gap(times) => self.pass_gap(times as u64)?,
                Segment::Data(times) if self.row < needed => {
                    let passed = (times as u64).min(needed - self.row);
                    self.pass_data(passed)?
                }
                Segment::Data(times) => {
                    let room = (SCRATCH_BYTES / (4 * self.elements)).max(1);
                    scratch.resize(times.min(room) * self.elements, 0.0);
                    self.take(&mut scratch)? as u64
                }
            };
            self.advance(passed);
            if passed == 0 {
                break;
            }
        }
        Ok(self.row - before)
    }

    /// What comes next, and how many rows of it, `most` of them.
    fn segment(&self, most: u64) -> Segment {
        let times = |end: u64| usize::try_from(most.min(end - self.row)).unwrap_or(usize::MAX);
        match self.gaps.get(self.next) {
            Some(gap) if self.row >= gap.start_time => {
                Segment::Gap(times(gap.start_time + gap.times))
            }
            Some(gap) => Segment::Data(times(gap.start_time)),
            None => Segment::Data(times(u64::MAX)),
        }
    }

    fn advance(&mut self, times: u64) {
        self.row += times;
        while self.gaps.get(self.next).is_some_and(|gap| self.row >= gap.start_time + gap.times) {
            self.next += 1;
            self.filling = None;
        }
    }

    /// Fills rows of the present gap.
    fn fill(&mut self, rows: &mut [f32]) -> Result<usize> {
        if self.filling.is_none() {
            self.filling = Some(self.make_filling()?);
        }
        let passed = self.pass_gap((rows.len() / self.elements) as u64)? as usize;
        if let Some(filling) = &self.filling {
            for row in rows.chunks_exact_mut(self.elements).take(passed) {
                let values = filling.chunks_exact(4).zip(row);
                values.for_each(|(bytes, value)| {
                    *value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                });
            }
        }
        Ok(passed)
    }

    fn make_filling(&mut self) -> Result<Vec<u8>> {
        let elements = self.elements;
        if self.gaps[self.next].start_time == 0 {
            self.look_ahead()?;
            let mut median = RunningMedian::dense(Encoding::F32, elements);
            median.observe_rows(0, bytemuck::cast_slice(&self.ahead));
            return Ok(median.row());
        }
        Ok(self.median.as_mut().map_or_else(Vec::new, RunningMedian::row))
    }

    /// Reads rows after a gap at the very start.
    fn look_ahead(&mut self) -> Result<()> {
        let first = self.gaps[0];
        let end = self.gaps.get(1).map_or(u64::MAX, |gap| gap.start_time);
        let wanted = FIRST_ROWS.min(end - first.times) as usize;
        let passed = self.rows.row();
        self.rows.skip(first.times - passed)?;
        self.ahead.resize(wanted * self.elements, 0.0);
        let read = self.rows.read(&mut self.ahead)?;
        self.ahead.truncate(read * self.elements);
        Ok(())
    }

    /// Gives rows of data, and remembers those that fill a later gap.
    fn take(&mut self, rows: &mut [f32]) -> Result<usize> {
        let times = self.take_raw(rows)?;
        let Some(needed) = self.needed.get(self.next).copied() else { return Ok(times) };
        let (Some(median), true) = (&mut self.median, self.row + times as u64 > needed) else {
            return Ok(times);
        };
        let unused = needed.saturating_sub(self.row) as usize;
        let is_apart = self.next == 0 || {
            let before = self.gaps[self.next - 1];
            before.start_time + before.times <= needed
        };
        if is_apart && self.row <= needed {
            median.reset();
        }
        let seen = &rows[unused * self.elements..times * self.elements];
        median.observe_rows(self.row + unused as u64, bytemuck::cast_slice(seen));
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

    /// Rows read ahead that were given already; `None` when none are left.
    fn used_ahead(&self) -> Option<usize> {
        let held = self.ahead.len() / self.elements;
        let begin = self.rows.row() - held as u64;
        (held > 0).then(|| self.row.saturating_sub(begin) as usize)
    }

    /// Frees what was read ahead once the next `times` rows have used it up.
    fn drop_used_ahead(&mut self, times: usize) {
        if self.row + times as u64 >= self.rows.row() {
            self.ahead = Vec::new();
        }
    }

    /// Passes over rows of a gap; fewer only at the end of the data.
    fn pass_gap(&mut self, times: u64) -> Result<u64> {
        let end = self.row + times;
        // Rows behind a gap at the very start may have been read already.
        self.rows.skip(end.saturating_sub(self.rows.row()))?;
        Ok(times.min(self.rows.row() - self.row))
    }

    /// Passes over rows of data that no gap needs.
    fn pass_data(&mut self, times: u64) -> Result<u64> {
        if self.used_ahead().is_some() {
            let held = (self.rows.row() - self.row).min(times);
            self.drop_used_ahead(held as usize);
            return Ok(held);
        }
        self.rows.skip(times)
    }
}

enum Segment {
    Gap(usize),
    Data(usize),
}

/// The first row that each gap's median needs, to have `reach` rows of data before the gap.
fn needed(gaps: &[Gap], reach: u64) -> Vec<u64> {
    let mut needed = Vec::with_capacity(gaps.len());
    for (index, gap) in gaps.iter().enumerate() {
        let (mut from, mut missing, mut end) = (0, reach, gap.start_time);
        for before in gaps[..index].iter().rev() {
            let data = end - (before.start_time + before.times);
            if data >= missing {
                from = end - missing;
                missing = 0;
                break;
            }
            missing -= data;
            end = before.start_time;
        }
        if missing > 0 {
            from = end.saturating_sub(missing);
        }
        needed.push(from);
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_needs_the_data_before_it() {
        let gap = |start_time, times| Gap { start_time, times };
        let gaps = [gap(0, 5), gap(8, 2), gap(12, 10), gap(100, 1)];
        assert_eq!(needed(&gaps, 4), [0, 0, 6, 96]);
        assert_eq!(needed(&gaps, 1000), [0, 0, 0, 0]);
        // 78 rows between the last two, 2 before those, 3 before those.
        assert_eq!(needed(&gaps, 82)[3], 6);
    }
}
