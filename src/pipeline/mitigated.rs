//! Interference mitigation of a source's rows, in blocks, with output on request.
//!
//! Invariant: what ends the source comes after all rows that were read.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::clean::{Mitigated, Mitigator};
use crate::error::{Error, Result};

/// Bytes per copy task of a thread.
const COPIED_BYTES: usize = 256 << 10;

/// Time after which a source counts as slow: blocks in hand are then processed before more are read, and not
/// concurrently with reading.
const SLOW: Duration = Duration::from_millis(100);

/// Mitigator with its input and output blocks.
pub(super) struct Mitigation {
    mitigator: Mitigator,
    row_bytes: usize,
    /// Blocks per batch.
    batch: usize,
    /// Next blocks, if the source is fast enough to be read ahead.
    next: Vec<Vec<u8>>,
    is_fast: bool,
    /// Mitigated blocks, and the number of bytes of the first one already returned.
    ready: VecDeque<Vec<u8>>,
    used: usize,
    /// Returned blocks, reused for reading.
    spent: Vec<Vec<u8>>,
    is_over: bool,
    failed: Option<Error>,
}

impl Mitigation {
    /// Builds a mitigation that processes batches of blocks, at most `most_bytes` unless one block is larger.
    pub(super) fn new(mitigator: Mitigator, row_bytes: usize, most_bytes: usize) -> Self {
        Self {
            batch: mitigator.batch_blocks(most_bytes),
            mitigator,
            row_bytes,
            next: Vec::new(),
            is_fast: false,
            ready: VecDeque::new(),
            used: 0,
            spent: Vec::new(),
            is_over: false,
            failed: None,
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.mitigator.held_bytes(3 * self.batch)
    }

    pub(super) fn mitigated(&self) -> Mitigated {
        self.mitigator.mitigated()
    }

    /// Reads the next mitigated rows; `source` supplies recorded rows. Returns 0 at the end.
    pub(super) fn read(
        &mut self,
        rows: &mut [u8],
        source: &mut (dyn FnMut(&mut [u8]) -> Result<usize> + Send),
    ) -> Result<usize> {
        while self.ready.is_empty() {
            if self.is_over && self.next.is_empty() {
                return self.failed.take().map_or(Ok(0), Err);
            }
            self.work(source)?;
        }
        let threads = self.mitigator.threads();
        let (mut given, mut none) = (0, vec![(); threads.count()]);
        while let Some(block) = self.ready.front() {
            let free = (rows.len() - given) / self.row_bytes * self.row_bytes;
            let bytes = (block.len() - self.used).min(free);
            let (from, to) = (&block[self.used..][..bytes], &mut rows[given..given + bytes]);
            threads.for_each_chunk(&mut none, to, COPIED_BYTES, |(), index, to| {
                to.copy_from_slice(&from[index * COPIED_BYTES..][..to.len()]);
            });
            (given, self.used) = (given + bytes, self.used + bytes);
            if self.used < block.len() {
                break;
            }
            self.used = 0;
            self.spent.extend(self.ready.pop_front());
        }
        Ok(given / self.row_bytes)
    }

    /// Mitigates the next blocks while the following ones are read.
    fn work(&mut self, source: &mut (dyn FnMut(&mut [u8]) -> Result<usize> + Send)) -> Result<()> {
        let length = self.mitigator.block_rows() * self.row_bytes;
        let mut reader = Blocks {
            length,
            row_bytes: self.row_bytes,
            count: self.batch,
            spent: std::mem::take(&mut self.spent),
            is_over: self.is_over,
            is_fast: self.is_fast,
            failed: None,
        };
        let mut blocks = std::mem::take(&mut self.next);
        if blocks.is_empty() {
            blocks = reader.read(source);
        }
        let done = if reader.is_fast && !reader.is_over {
            let mitigator = &mut self.mitigator;
            let (done, next) = std::thread::scope(|scope| {
                let reading = scope.spawn(|| reader.read(source));
                (mitigator.push(blocks), reading.join())
            });
            self.next = next.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done
        } else {
            self.mitigator.push(blocks)
        };
        (self.is_over, self.is_fast) = (reader.is_over, reader.is_fast);
        self.spent = reader.spent;
        self.failed = self.failed.take().or(reader.failed);
        self.ready.extend(done?);
        if self.is_over && self.next.is_empty() {
            self.ready.extend(self.mitigator.flush()?);
        }
        Ok(())
    }
}

/// Reader of blocks of rows.
struct Blocks {
    /// Bytes of a block and of a row, and the blocks per batch.
    length: usize,
    row_bytes: usize,
    count: usize,
    spent: Vec<Vec<u8>>,
    is_over: bool,
    /// Whether the last blocks were read without a wait.
    is_fast: bool,
    failed: Option<Error>,
}

impl Blocks {
    /// Reads the next blocks; the last of a stream may have fewer rows. A slow block ends the batch.
    fn read(
        &mut self,
        source: &mut (dyn FnMut(&mut [u8]) -> Result<usize> + Send),
    ) -> Vec<Vec<u8>> {
        let (mut blocks, begun) = (Vec::with_capacity(self.count), Instant::now());
        self.is_fast = true;
        while blocks.len() < self.count && !self.is_over && self.is_fast {
            let block = self.block(source);
            if !block.is_empty() {
                blocks.push(block);
            }
            self.is_fast = begun.elapsed() < SLOW;
        }
        blocks
    }

    /// Reads one block, or the remainder.
    fn block(&mut self, source: &mut (dyn FnMut(&mut [u8]) -> Result<usize> + Send)) -> Vec<u8> {
        let mut block = self.spent.pop().unwrap_or_default();
        block.resize(self.length, 0);
        let mut bytes = 0;
        while bytes < block.len() && !self.is_over {
            match source(&mut block[bytes..]) {
                Ok(0) => self.is_over = true,
                Ok(times) => bytes += times * self.row_bytes,
                Err(error) => (self.is_over, self.failed) = (true, Some(error)),
            }
        }
        block.truncate(bytes);
        block
    }
}
