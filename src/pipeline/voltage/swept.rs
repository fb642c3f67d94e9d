//! Rows of a dump: cells outside of a channel's window hold no samples, and other rows of the channel replace them.
//!
//! Invariant: the result does not depend on how rows are read. All rows of a dump are in memory.

use std::ops::Range;

use super::filled::rows_of;
use crate::channelize::Plan;
use crate::error::Result;
use crate::io::voltages::{Flag, VoltageHeader};
use crate::view::check_memory;

/// Rows that are read at once.
const READ_ROWS: usize = 256;

/// Rows of a dump.
#[derive(Debug)]
pub(super) struct Swept {
    /// Rows of each element of a row that come from samples in its window alone.
    windows: Vec<Range<u64>>,
    /// All rows, once they are read.
    rows: Option<Vec<f32>>,
    /// Next row, and the row before which reading ends.
    next: u64,
    end: u64,
}

impl Swept {
    /// Computes the windows of the rows' elements, whose channels have these centres; samples within `reach` of a sample outside
    /// of the window are affected by it. `None` for a recording that is no dump.
    pub(super) fn new(
        recorded: &VoltageHeader,
        plan: &Plan,
        centres_hz: &[f64],
        products: usize,
        reach: u64,
    ) -> Option<Self> {
        let times = recorded.times?;
        let samples = recorded.sweep?.windows(recorded, times)?;
        let rows = plan.rows(times);
        let window = |centre: &f64| {
            let near = |at: &usize| (recorded.centres_hz[*at] - centre).abs();
            let channels = 0..recorded.coarse_channels();
            let channel = channels.min_by(|a, b| near(a).total_cmp(&near(b)))?;
            let Range { start, end } = samples[channel].clone();
            let before = Flag { streams: 0..1, start: 0, times: (start + reach).min(times) };
            let first = if start == 0 { 0 } else { rows_of(&before, plan).end };
            let after = end.saturating_sub(reach);
            let left = Flag { streams: 0..1, start: after, times: times - after };
            let end = if end == times { rows } else { rows_of(&left, plan).start };
            Some(first.min(rows)..end.clamp(first.min(rows), rows))
        };
        let channels: Option<Vec<_>> = centres_hz.iter().map(window).collect();
        let channels = channels?;
        let windows = std::iter::repeat_n(channels, products).flatten().collect();
        Some(Self { windows, rows: None, next: 0, end: u64::MAX })
    }

    /// Returns the number of the next row.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Ends reading before row `end`, until another end is set.
    pub(super) fn end_at(&mut self, end: u64) {
        self.end = end;
    }

    /// Skips rows; fewer only at the end.
    pub(super) fn skip(
        &mut self,
        times: u64,
        read: &mut dyn FnMut(&mut [f32]) -> Result<usize>,
    ) -> Result<u64> {
        self.load(read)?;
        let passed = times.min(self.left());
        self.next += passed;
        Ok(passed)
    }

    /// Copies the next rows, and reads all of them with `read` before.
    pub(super) fn read(
        &mut self,
        rows: &mut [f32],
        read: &mut dyn FnMut(&mut [f32]) -> Result<usize>,
    ) -> Result<usize> {
        self.load(read)?;
        let elements = self.windows.len();
        let times = ((rows.len() / elements) as u64).min(self.left()) as usize;
        let first = self.next as usize * elements;
        let all = self.rows.as_deref().unwrap_or_default();
        rows[..times * elements].copy_from_slice(&all[first..first + times * elements]);
        self.next += times as u64;
        Ok(times)
    }

    /// Returns the rows before the end.
    fn left(&self) -> u64 {
        let all = self.rows.as_ref().map_or(0, Vec::len) / self.windows.len();
        self.end.min(all as u64).saturating_sub(self.next)
    }

    fn load(&mut self, read: &mut dyn FnMut(&mut [f32]) -> Result<usize>) -> Result<()> {
        if self.rows.is_some() {
            return Ok(());
        }
        let elements = self.windows.len();
        let most = self.windows.iter().map(|window| window.end).max().unwrap_or(0) as usize;
        check_memory("the rows of a dump", most.checked_mul(4 * elements))?;
        let mut all = Vec::new();
        let mut block = vec![0.0; READ_ROWS * elements];
        loop {
            match read(&mut block)? {
                0 => break,
                times => all.extend_from_slice(&block[..times * elements]),
            }
        }
        self.fill(&mut all);
        self.rows = Some(all);
        Ok(())
    }

    /// Replaces each cell outside of its window by a pseudorandom one of the same channel within the window.
    fn fill(&self, rows: &mut [f32]) {
        let elements = self.windows.len();
        let times = rows.len() / elements;
        for row in 0..times {
            for (element, window) in self.windows.iter().enumerate() {
                let end = window.end.min(times as u64);
                if window.contains(&(row as u64)) || window.start >= end {
                    continue;
                }
                let mixed = mix(((row as u64) << 32) ^ element as u64);
                let donor = window.start + mixed % (end - window.start);
                rows[row * elements + element] = rows[donor as usize * elements + element];
            }
        }
    }
}

/// Mixes the bits of a number (the finalizer of splitmix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_outside_of_a_window_are_rows_of_the_same_channel() {
        let windows = vec![0..4, 2..6, 0..0];
        let mut swept = Swept { windows, rows: None, next: 0, end: u64::MAX };
        let mut given = 0;
        let mut read = |rows: &mut [f32]| {
            let times = (8 - given).min(rows.len() / 3).min(3);
            for row in 0..times {
                for element in 0..3 {
                    rows[row * 3 + element] = (100 * element + given + row) as f32;
                }
            }
            given += times;
            Ok(times)
        };
        let mut rows = [0.0; 15];
        assert_eq!(swept.read(&mut rows, &mut read).unwrap(), 5);
        let mut rest = [0.0; 15];
        assert_eq!(swept.skip(1, &mut read).unwrap(), 1);
        assert_eq!(swept.read(&mut rest, &mut read).unwrap(), 2);
        assert_eq!((swept.next(), rows[0], rows[3 * 3], rows[3 * 2 + 1]), (8, 0.0, 3.0, 102.0));
        assert!((0.0..4.0).contains(&rows[3 * 4]) && (102.0..106.0).contains(&rows[1]));
        assert!((102.0..106.0).contains(&rest[1]) && (0.0..4.0).contains(&rest[3]));
        // A channel without a window stays as it is.
        assert_eq!(rows[2], 200.0);
    }
}
