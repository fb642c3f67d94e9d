//! Gulps of rows on the host: the next one is read, converted and mitigated while the last one is processed.
//!
//! Invariant: gulps, their order and the error that ends them are those of reads in turn; two gulps are held.

use std::time::{Duration, Instant};

use super::cleaning::{Reader, SLOW};
use super::run::Pair;
use crate::error::Result;
use crate::io::FilterbankSource;

/// Rows that are processed, and those that follow.
pub(super) struct Gulps {
    present: Vec<u8>,
    next: Vec<u8>,
    row_bytes: usize,
    /// Rows of `next`, once they are read.
    ahead: Option<Result<usize>>,
    /// Times that the last gulp took, of those whose rows the reader did not hold before.
    reading: Duration,
    processing: Duration,
    /// Samples that the source had replaced after its last read, and after that of the present gulp.
    flagged_ahead: u64,
    flagged: u64,
    /// Threads that read and process.
    pair: Pair,
}

impl Gulps {
    /// Bytes held for each byte of a gulp.
    pub(super) const BUFFERS: usize = 2;

    /// Allocates gulps of `times` rows.
    pub(super) fn new(times: usize, row_bytes: usize) -> Self {
        Self {
            present: vec![0; times * row_bytes],
            next: Vec::new(),
            row_bytes,
            ahead: None,
            reading: Duration::MAX,
            processing: Duration::ZERO,
            flagged_ahead: 0,
            flagged: 0,
            pair: Pair::new(),
        }
    }

    /// Returns the samples that the source had replaced when it had returned the present gulp.
    pub(super) fn flagged_samples(&self) -> u64 {
        self.flagged
    }

    /// Moves to the next gulp, which is read unless it was read ahead; returns its number of rows, 0 at the end.
    ///
    /// # Errors
    /// Errors of the source.
    pub(super) fn advance(
        &mut self,
        reader: &mut Reader,
        source: &mut dyn FilterbankSource,
    ) -> Result<usize> {
        let read = match self.ahead.take() {
            Some(read) => {
                std::mem::swap(&mut self.present, &mut self.next);
                read
            }
            None => {
                let (was_held, begin) = (reader.has_rows(), Instant::now());
                let read = reader.read(source, &mut self.present);
                if !was_held {
                    self.reading = begin.elapsed();
                }
                self.flagged_ahead = source.flagged_samples();
                read
            }
        };
        self.flagged = self.flagged_ahead;
        read
    }

    /// Calls `process` with the present gulp of `times` rows, and reads the next one meanwhile.
    ///
    /// A pipe may wait for a telescope, and results must not wait for its next rows: it is read ahead only if reading
    /// takes less than 0.1 s or less than processing. A live source is read ahead only if processing takes longer than reading, and the reader holds no rows.
    pub(super) fn process<T>(
        &mut self,
        times: usize,
        reader: &mut Reader,
        source: &mut dyn FilterbankSource,
        process: impl FnOnce(&[u8]) -> T,
    ) -> T {
        let rows = &self.present[..times * self.row_bytes];
        let is_file = source.header().times.is_some();
        let (least, has_rows) = match source.is_live() {
            true => (Duration::ZERO, reader.has_rows()),
            false => (SLOW, reader.holds_rows()),
        };
        let is_fast = || !has_rows && self.reading < least.max(self.processing);
        let begin = Instant::now();
        if !is_file && !is_fast() {
            let made = process(rows);
            self.processing = begin.elapsed();
            return made;
        }
        if self.next.is_empty() {
            // New memory is zeros that the system does not provide before they are written: short data need little.
            self.next = vec![0; self.present.len()];
        }
        let (next, was_held) = (&mut self.next, reader.has_rows());
        let read_next = || {
            let begin = Instant::now();
            let read = reader.read(source, next);
            (read, begin.elapsed(), source.flagged_samples())
        };
        let ((read, reading, flagged), (made, processing)) =
            self.pair.run(read_next, || (process(rows), begin.elapsed()));
        self.ahead = Some(read);
        (self.processing, self.flagged_ahead) = (processing, flagged);
        if !was_held {
            self.reading = reading;
        }
        made
    }
}
