//! The median of each channel over the rows that came last.
//!
//! Invariant: depends on the last rows only, not on how they were handed over.

use crate::sample::{Encoding, set_value, value};

/// Rows that a median is taken over.
const ROWS: usize = 1024;
/// Memory that these rows may take.
const MAX_BYTES: usize = 64 << 20;

/// Keeps the last rows of a filterbank (axes time, channel), to fill what is missing after them.
#[derive(Clone, Debug)]
pub struct RunningMedian {
    encoding: Encoding,
    channels: usize,
    row_bytes: usize,
    capacity: usize,
    rows: Vec<u8>,
    next: usize,
}

impl RunningMedian {
    /// Over the last 1024 rows, or as many as fit 64 MiB; rows must be whole bytes.
    pub fn new(encoding: Encoding, channels: usize) -> Self {
        let row_bytes = (channels * encoding.bits()).div_ceil(8).max(1);
        let capacity = (MAX_BYTES / row_bytes).clamp(1, ROWS);
        Self { encoding, channels, row_bytes, capacity, rows: Vec::new(), next: 0 }
    }

    /// Takes whole rows.
    pub fn push(&mut self, rows: &[u8]) {
        let keep = rows.len().min(self.capacity * self.row_bytes);
        for row in rows[rows.len() - keep..].chunks_exact(self.row_bytes) {
            if self.rows.len() < self.capacity * self.row_bytes {
                self.rows.extend_from_slice(row);
            } else {
                self.rows[self.next * self.row_bytes..][..self.row_bytes].copy_from_slice(row);
            }
            self.next = (self.next + 1) % self.capacity;
        }
    }

    /// One row of each channel's median: the lower middle value where their number is even, so
    /// that it always is one that was recorded. Zeros before the first row.
    pub fn row(&self) -> Vec<u8> {
        let mut median = vec![0; self.row_bytes];
        let mut column = Vec::with_capacity(self.capacity);
        for channel in 0..self.channels {
            column.clear();
            let rows = self.rows.chunks_exact(self.row_bytes);
            column.extend(rows.map(|row| value(row, self.encoding, channel)));
            if column.is_empty() {
                break;
            }
            let middle = (column.len() - 1) / 2;
            let (_, lower, _) = column.select_nth_unstable_by(middle, f64::total_cmp);
            set_value(&mut median, self.encoding, channel, *lower);
        }
        median
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rows_count_however_they_come() {
        for encoding in Encoding::ALL {
            let mut bytes: Vec<u8> =
                (0..8 * 3000u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 17) as u8).collect();
            if encoding == Encoding::F32 {
                bytes.iter_mut().skip(3).step_by(4).for_each(|byte| *byte &= 0x3f);
            }
            let channels = 64 / encoding.bits();
            let mut whole = RunningMedian::new(encoding, channels);
            whole.push(&bytes);
            let mut split = RunningMedian::new(encoding, channels);
            for part in [0..8, 8..8000, 8000..8016, 8016..24000] {
                split.push(&bytes[part]);
            }
            assert_eq!(whole.row(), split.row());
            let last = &bytes[8 * (3000 - ROWS)..];
            for channel in 0..channels {
                let mut column: Vec<f64> =
                    last.chunks(8).map(|row| value(row, encoding, channel)).collect();
                column.sort_by(f64::total_cmp);
                let found = value(&whole.row(), encoding, channel);
                assert_eq!(found.to_bits(), column[ROWS / 2 - 1].to_bits(), "{encoding:?}");
            }
        }
    }

    #[test]
    fn few_rows_and_none() {
        let mut median = RunningMedian::new(Encoding::U8, 2);
        assert_eq!(median.row(), [0, 0]);
        median.push(&[5, 9, 7, 1, 6, 200]);
        assert_eq!(median.row(), [6, 9]);
    }
}
