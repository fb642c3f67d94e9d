//! Rows of a source with their interference taken away, handed out as they are asked for.
//!
//! Invariant: what ends the source comes after all rows that were read.

use crate::clean::{Mitigated, Mitigator};
use crate::error::{Error, Result};

/// Blocks on their way through a mitigator.
pub(super) struct Mitigation {
    mitigator: Mitigator,
    row_bytes: usize,
    /// The latest block that is whole, and the bytes of it that were handed out.
    ready: Vec<u8>,
    used: usize,
    is_over: bool,
    failed: Option<Error>,
}

impl Mitigation {
    pub(super) fn new(mitigator: Mitigator, row_bytes: usize) -> Self {
        let (ready, used) = (Vec::new(), 0);
        Self { mitigator, row_bytes, ready, used, is_over: false, failed: None }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.mitigator.held_bytes()
    }

    pub(super) fn mitigated(&self) -> Mitigated {
        self.mitigator.mitigated()
    }

    /// Gives the next rows, which `source` gives as they were recorded; 0 at the end.
    pub(super) fn read(
        &mut self,
        rows: &mut [u8],
        source: &mut dyn FnMut(&mut [u8]) -> Result<usize>,
    ) -> Result<usize> {
        while self.used == self.ready.len() {
            if self.is_over {
                return self.failed.take().map_or(Ok(0), Err);
            }
            let block = self.block(source);
            let pushed = if block.is_empty() { None } else { self.mitigator.push(block)? };
            self.used = 0;
            self.ready = match pushed {
                Some(ready) => ready,
                None if self.is_over => self.mitigator.flush()?.unwrap_or_default(),
                None => Vec::new(),
            };
        }
        let bytes =
            (self.ready.len() - self.used).min(rows.len()) / self.row_bytes * self.row_bytes;
        rows[..bytes].copy_from_slice(&self.ready[self.used..][..bytes]);
        self.used += bytes;
        Ok(bytes / self.row_bytes)
    }

    /// Reads a block, or what is left.
    fn block(&mut self, source: &mut dyn FnMut(&mut [u8]) -> Result<usize>) -> Vec<u8> {
        // The block that was handed out last makes room for the next one.
        let mut block = std::mem::take(&mut self.ready);
        block.resize(self.mitigator.block_rows() * self.row_bytes, 0);
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
