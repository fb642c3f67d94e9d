//! A recording that comes through a pipe, read in small pieces, so that Ctrl-C is heard while a gulp fills slowly.

use sidereal::Result;
use sidereal::io::{FilterbankHeader, FilterbankSource, Gap};

use crate::interrupt;

/// Bytes that are read before Ctrl-C is looked for again.
const PIECE_BYTES: usize = 1 << 16;

/// A source that fails when the user asks to stop.
pub(crate) struct Pipe(Box<dyn FilterbankSource>);

impl Pipe {
    pub(crate) fn new(source: Box<dyn FilterbankSource>) -> Self {
        Self(source)
    }
}

impl FilterbankSource for Pipe {
    fn header(&self) -> &FilterbankHeader {
        self.0.header()
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.0.header().row_bytes();
        let mut times = 0;
        for piece in rows.chunks_mut((PIECE_BYTES / row_bytes).max(1) * row_bytes) {
            interrupt::check()?;
            let read = self.0.read(piece)?;
            times += read;
            if read * row_bytes < piece.len() {
                break;
            }
        }
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        self.0.skip(times)
    }

    fn gaps(&self) -> &[Gap] {
        self.0.gaps()
    }
}
