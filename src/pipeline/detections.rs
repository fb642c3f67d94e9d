//! Detections of a search in cells of time and dispersion measure, before they are clustered, for those who watch it.
//!
//! Invariant: adding a detection is one atomic maximum: it allocates nothing, takes no lock and waits for nobody. Memory is fixed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Cells along time.
pub const COLUMNS: usize = 240;

/// Cells along dispersion measure.
pub const ROWS: usize = 64;

/// Best detection of each cell of the latest time.
#[derive(Debug)]
pub struct Detections {
    step_s: f64,
    highest_dm: f64,
    /// Axes: column modulo [`COLUMNS`], row. The upper half of a word is the column and the lower one the bits of the S/N, which for
    /// positive numbers are ordered as the numbers: the maximum of two words is the later column, or the better detection.
    cells: Vec<AtomicU64>,
    /// Bits of the seconds that were searched.
    end: AtomicU64,
}

/// Cell with a detection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Number of steps from the first row that was searched.
    pub column: u32,
    /// Place among [`ROWS`], from DM 0 on.
    pub row: usize,
    /// Best S/N.
    pub snr: f32,
}

impl Detections {
    /// Makes empty cells for the latest `span_s` seconds and dispersion measures from 0 to the highest.
    pub fn new(span_s: f64, highest_dm: f64) -> Self {
        Self {
            step_s: span_s / COLUMNS as f64,
            highest_dm: highest_dm.max(f64::MIN_POSITIVE),
            cells: (0..COLUMNS * ROWS).map(|_| AtomicU64::new(0)).collect(),
            end: AtomicU64::new(0),
        }
    }

    /// Returns the length of a column in seconds.
    pub fn step_s(&self) -> f64 {
        self.step_s
    }

    /// Returns the upper end of the last row, in pc cm^-3.
    pub fn highest_dm(&self) -> f64 {
        self.highest_dm
    }

    /// Returns the time in seconds from the first row up to which the most advanced range of DMs has been searched.
    pub fn end_s(&self) -> f64 {
        f64::from_bits(self.end.load(Ordering::Relaxed))
    }

    /// Returns the cells of the latest [`COLUMNS`] columns that have a detection; they are not in order of time.
    pub fn cells(&self) -> Vec<Cell> {
        let word = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let newest = self.cells.iter().map(|cell| column_of(word(cell))).max().unwrap_or(0);
        let newest = newest.max(self.column(self.end_s()));
        let cell = |(place, cell): (usize, &AtomicU64)| {
            let word = word(cell);
            let column = column_of(word);
            let is_recent = word > 0 && u64::from(newest.saturating_sub(column)) < COLUMNS as u64;
            is_recent.then(|| Cell { column, row: place % ROWS, snr: f32::from_bits(word as u32) })
        };
        self.cells.iter().enumerate().filter_map(cell).collect()
    }

    /// Adds a detection at a time in seconds from the first row.
    pub(super) fn add(&self, time_s: f64, dm: f64, snr: f32) {
        let column = self.column(time_s);
        let row = ((dm / self.highest_dm * ROWS as f64) as usize).min(ROWS - 1);
        let word = u64::from(column) << 32 | u64::from(snr.max(0.0).to_bits());
        self.cells[column as usize % COLUMNS * ROWS + row].fetch_max(word, Ordering::Relaxed);
    }

    /// Takes the time until which data were searched.
    pub(super) fn searched(&self, end_s: f64) {
        // Bits of positive numbers are ordered as the numbers.
        self.end.fetch_max(end_s.max(0.0).to_bits(), Ordering::Relaxed);
    }

    fn column(&self, time_s: f64) -> u32 {
        (time_s / self.step_s) as u32
    }
}

fn column_of(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_detection_of_the_latest_columns_counts() {
        let detections = Detections::new(600.0, 640.0);
        assert_eq!((detections.cells(), detections.step_s()), (Vec::new(), 2.5));
        for (time_s, dm, snr) in
            [(1.0, 5.0, 7.0), (1.5, 9.0, 8.0), (2.0, 5.0, 6.5), (3.0, 700.0, 9.0)]
        {
            detections.add(time_s, dm, snr);
        }
        let cell = |column, row, snr| Cell { column, row, snr };
        assert_eq!(detections.cells(), [cell(0, 0, 8.0), cell(1, 63, 9.0)]);
        // A column later by all of them takes the place of the first, and an older detection does not come back.
        detections.add(600.5, 5.0, 6.0);
        detections.add(1.0, 5.0, 20.0);
        assert_eq!(detections.cells(), [cell(240, 0, 6.0), cell(1, 63, 9.0)]);
        detections.searched(605.0);
        detections.searched(604.0);
        assert_eq!(detections.end_s(), 605.0);
        assert_eq!(detections.cells(), [cell(240, 0, 6.0)]);
        detections.add(-1.0, f64::NAN, f32::NAN);
        assert_eq!(detections.cells(), [cell(240, 0, 6.0)]);
    }

    #[test]
    fn threads_add_without_loss() {
        let detections = Detections::new(600.0, 64.0);
        std::thread::scope(|scope| {
            for thread in 0..4_u16 {
                let detections = &detections;
                scope.spawn(move || {
                    for k in 0..1000_u16 {
                        let time_s = f64::from(k % 200) * 2.5;
                        detections.add(time_s, f64::from(k % 64), f32::from(6 + thread * 1000 + k));
                    }
                });
            }
        });
        let cells = detections.cells();
        assert!(cells.iter().all(|cell| cell.snr >= 3006.0), "{}", cells.len());
        // 200 and 64 repeat together after 1600.
        assert_eq!(cells.len(), 1000);
    }
}
