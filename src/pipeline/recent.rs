//! Latest rows of a search in memory, from which candidates are cut out while the search goes on.
//!
//! Invariant: a section holds rows as they were searched, blank where they are no longer, or not yet, in memory. Adding rows
//! allocates nothing; a section copies 1 MiB at a time, and lets rows be added between two pieces.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::cutout::{Options, Section, section};
use crate::error::Result;
use crate::io::{FilterbankHeader, FilterbankSource};
use crate::view::check_memory;

/// Bytes that are copied from the ring at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Ring of the latest rows of a search, before channels are masked and each row's mean is subtracted.
#[derive(Debug)]
pub struct RecentRows {
    header: FilterbankHeader,
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    /// Whole rows: row `n` lies at `n` modulo their number.
    bytes: Vec<u8>,
    /// Rows added so far.
    end: u64,
    /// Masked channels, in recorded order; empty until they are known.
    masked: Vec<bool>,
    /// Whether a GPU keeps the rows, so that none is added.
    are_on_device: bool,
}

impl RecentRows {
    /// Allocates a ring of as many whole rows as `bytes` hold, at least one.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`] when memory does not suffice.
    pub fn new(header: &FilterbankHeader, bytes: usize) -> Result<Self> {
        let row_bytes = header.row_bytes().max(1);
        let bytes = (bytes / row_bytes).max(1) * row_bytes;
        check_memory("the latest rows", Some(bytes))?;
        let header = FilterbankHeader { times: None, ..header.clone() };
        let (bytes, masked) = (vec![0; bytes], Vec::new());
        let ring = Ring { bytes, end: 0, masked, are_on_device: false };
        Ok(Self { header, ring: Mutex::new(ring) })
    }

    /// Returns the header of the rows, whose number is unknown.
    pub fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    /// Returns the number of rows that were added so far.
    pub fn end(&self) -> u64 {
        self.ring().end
    }

    /// Copies whole rows from row `first` on, as many as `rows` holds, at most 1 MiB, and those in memory; returns their number: 0 if
    /// that row is not in memory.
    pub fn copy(&self, first: u64, rows: &mut [u8]) -> usize {
        let row_bytes = self.header.row_bytes();
        let ring = self.ring();
        let held = (ring.bytes.len() / row_bytes) as u64;
        if first >= ring.end || first < ring.end.saturating_sub(held) {
            return 0;
        }
        let place = first % held;
        let most = (rows.len().min(PIECE_BYTES.max(row_bytes)) / row_bytes) as u64;
        let count = most.min(ring.end - first).min(held - place) as usize;
        let bytes = &ring.bytes[place as usize * row_bytes..][..count * row_bytes];
        rows[..bytes.len()].copy_from_slice(bytes);
        count
    }

    /// Returns the bytes of the ring and of a section of all of its rows.
    pub(super) fn held_bytes(&self) -> usize {
        2 * self.ring().bytes.len()
    }

    /// Returns the masked channels, in recorded order; empty until the search knows them.
    pub fn masked(&self) -> Vec<bool> {
        self.ring().masked.clone()
    }

    /// Returns whether a GPU makes the rows from voltages and keeps them, so that there are none here.
    pub fn are_on_device(&self) -> bool {
        self.ring().are_on_device
    }

    /// Returns whether all rows around a candidate have come; its time counts from the first row searched.
    ///
    /// # Errors
    /// Those of [`section`].
    pub fn has(&self, options: &Options) -> Result<bool> {
        let end = Section::rows(&self.header, options)?.end;
        Ok(self.ring().end as i64 >= end)
    }

    /// Bins the rows around a candidate; its time counts from the first row searched.
    ///
    /// # Errors
    /// Those of [`section`].
    pub fn section(&self, options: &Options) -> Result<Section> {
        let wanted = Section::rows(&self.header, options)?;
        let (mut first, end) = (wanted.start.max(0) as u64, wanted.end.max(0) as u64);
        let row_bytes = self.header.row_bytes();
        let step = (PIECE_BYTES / row_bytes).max(1) as u64;
        let most = (end.saturating_sub(first) as usize).saturating_mul(row_bytes);
        let mut rows = Vec::with_capacity(most.min(self.held_bytes() / 2));
        let mut next = first;
        while next < end {
            let ring = self.ring();
            let held = (ring.bytes.len() / row_bytes) as u64;
            let oldest = ring.end.saturating_sub(held);
            if next < oldest {
                // Rows that were copied already are not adjacent to those in memory.
                rows.clear();
                (first, next) = (oldest, oldest);
            }
            let place = next % held;
            let count = step.min(end.min(ring.end).saturating_sub(next)).min(held - place);
            if count == 0 {
                break;
            }
            let bytes = place as usize * row_bytes..(place + count) as usize * row_bytes;
            rows.extend_from_slice(&ring.bytes[bytes]);
            next += count;
            drop(ring);
            thread::yield_now();
        }
        let time_s = options.time_s - first as f64 * self.header.tsamp_s;
        let mut rows = Rows { header: &self.header, rows, next: 0 };
        section(&mut rows, &Options { time_s, ..options.clone() })
    }

    pub(super) fn set_masked(&self, masked: &[bool]) {
        self.ring().masked = masked.to_vec();
    }

    pub(super) fn stay_on_device(&self) {
        self.ring().are_on_device = true;
    }

    /// Adds the next rows.
    pub(super) fn push(&self, rows: &[u8]) {
        let row_bytes = self.header.row_bytes();
        let Ring { bytes, end, .. } = &mut *self.ring();
        let most = bytes.len();
        let skipped = rows.len().saturating_sub(most);
        *end += (skipped / row_bytes) as u64;
        let rows = &rows[skipped..];
        let place = (*end % (most / row_bytes) as u64) as usize * row_bytes;
        let (now, again) = rows.split_at(rows.len().min(most - place));
        bytes[place..][..now.len()].copy_from_slice(now);
        bytes[..again.len()].copy_from_slice(again);
        *end += (rows.len() / row_bytes) as u64;
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows in memory as a source.
struct Rows<'a> {
    header: &'a FilterbankHeader,
    rows: Vec<u8>,
    next: usize,
}

impl FilterbankSource for Rows<'_> {
    fn header(&self) -> &FilterbankHeader {
        self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let count = rows.len().min(self.rows.len() - self.next);
        rows[..count].copy_from_slice(&self.rows[self.next..][..count]);
        self.next += count;
        Ok(count / self.header.row_bytes())
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let row_bytes = self.header.row_bytes() as u64;
        let count = times.min((self.rows.len() - self.next) as u64 / row_bytes);
        self.next += (count * row_bytes) as usize;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::burst::{Burst, Options as Simulation, Simulator};
    use crate::units::Band;

    /// Simulation of a burst, all of its rows, and the options of its cutout.
    fn simulated() -> (Simulator, Vec<u8>, Options) {
        let band = Band::uniform(1500.0, -4.0, 32).unwrap();
        let mut options = Simulation::new(band, 1e-3, 6000);
        options.bursts = vec![Burst::new(60.0, 3.0, 4e-3, 30.0)];
        let open = || Simulator::new(options.clone()).unwrap();
        let mut rows = vec![0; 6000 * open().header().row_bytes()];
        assert_eq!(open().read(&mut rows).unwrap(), 6000);
        let wanted = Options { channels: 32, times: 64, ..Options::plot(60.0, 3.0, 4e-3, 4e-3) };
        (open(), rows, wanted)
    }

    #[test]
    fn a_cutout_of_recent_rows_is_that_of_the_recording() {
        let (mut source, rows, wanted) = simulated();
        let header = source.header().clone();
        let expected = section(&mut source, &wanted).unwrap().cutout();
        let needed = Section::rows(&header, &wanted).unwrap();
        assert!(needed.start > 0 && needed.end < 6000, "{needed:?}");
        for (seconds, piece) in [(9.0, 700), (4.5, 333), (4.5, 4999), (2.9, 1)] {
            let bytes = (seconds * 1e3) as usize * header.row_bytes();
            let recent = RecentRows::new(&header, bytes).unwrap();
            let mut pushed = 0;
            for part in
                rows[..needed.end as usize * header.row_bytes()].chunks(piece * header.row_bytes())
            {
                assert!(!recent.has(&wanted).unwrap(), "{pushed}");
                recent.push(part);
                pushed += part.len() / header.row_bytes();
            }
            assert!(recent.has(&wanted).unwrap());
            let found = recent.section(&wanted).unwrap().cutout();
            let (has_all, times) =
                (seconds * 1e3 >= (needed.end - needed.start) as f64, wanted.times);
            assert_eq!(found.waterfall == expected.waterfall, has_all, "{seconds}");
            assert_eq!(found.times, times);
        }
    }

    #[test]
    fn rows_that_are_gone_or_to_come_are_blank() {
        let (source, rows, wanted) = simulated();
        let header = source.header().clone();
        let recent = RecentRows::new(&header, 1000 * header.row_bytes()).unwrap();
        let blank = |recent: &RecentRows| {
            let cutout = recent.section(&wanted).unwrap().cutout();
            cutout.waterfall.iter().filter(|x| x.is_nan()).count()
        };
        let all = blank(&recent);
        recent.push(&rows[..3010 * header.row_bytes()]);
        let some = blank(&recent);
        assert!(some > 0 && some < all, "{some} {all}");
        recent.push(&rows[3010 * header.row_bytes()..]);
        assert_eq!(blank(&recent), all);
        let row_bytes = header.row_bytes();
        let mut copied = vec![0; 700 * row_bytes];
        assert_eq!((recent.end(), recent.copy(4999, &mut copied)), (6000, 0));
        // The ring wraps at row 6000, and 1 MiB is more than all of it.
        assert_eq!(recent.copy(5000, &mut copied), 700);
        assert_eq!(copied, rows[5000 * row_bytes..5700 * row_bytes]);
        assert_eq!((recent.copy(5900, &mut copied), recent.copy(6000, &mut copied)), (100, 0));
        assert!(recent.masked().is_empty());
        recent.set_masked(&[true; 32]);
        assert_eq!(recent.masked(), [true; 32]);
    }
}
