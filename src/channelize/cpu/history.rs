//! Recorded samples of every stream that later windows need.
//!
//! Invariant: moves are amortized: a byte is moved about as often as it is appended.

use crate::voltage::{VoltageEncoding, Voltages};

/// Last samples of each stream.
#[derive(Clone, Debug)]
pub(super) struct History {
    encoding: VoltageEncoding,
    bytes: Vec<u8>,
    /// Bytes per stream.
    stride: usize,
    /// Offset of the stored bytes in each stream's segment.
    begin: usize,
    /// First stored sample.
    start: u64,
    /// One past the last stored sample.
    end: u64,
}

impl History {
    /// Allocates space for windows of `span` samples.
    pub(super) fn new(encoding: VoltageEncoding, streams: usize, span: usize) -> Self {
        let stride = encoding.bytes(2 * (span + 8).next_multiple_of(4));
        Self { encoding, bytes: vec![0; streams * stride], stride, begin: 0, start: 0, end: 0 }
    }

    pub(super) fn reset(&mut self) {
        (self.begin, self.start, self.end) = (0, 0, 0);
    }

    /// Returns the first stored sample.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Returns one past the last stored sample.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns one stream's stored bytes.
    pub(super) fn row(&self, stream: usize) -> &[u8] {
        &self.bytes[stream * self.stride + self.begin..][..self.length()]
    }

    fn length(&self) -> usize {
        self.encoding.bytes((self.end - self.start) as usize)
    }

    /// Appends all of `fresh`, at most one window.
    pub(super) fn append(&mut self, fresh: Voltages<'_>) {
        let length = self.length();
        let added = self.encoding.bytes(fresh.times());
        let moves = self.begin + length + added > self.stride;
        for (stream, row) in self.bytes.chunks_exact_mut(self.stride).enumerate() {
            if moves {
                row.copy_within(self.begin..self.begin + length, 0);
            }
            let to = if moves { length } else { self.begin + length };
            row[to..to + added].copy_from_slice(fresh.row(stream));
        }
        if moves {
            self.begin = 0;
        }
        self.end += fresh.times() as u64;
    }

    /// Appends `fresh` and discards the samples before `keep`, which no later window needs.
    pub(super) fn advance(&mut self, fresh: Voltages<'_>, keep: u64) {
        // Rounds down to whole bytes and whole pairs.
        let keep = keep / 4 * 4;
        if keep >= self.end {
            let skipped = self.encoding.bytes((keep - self.end) as usize);
            let end = self.end + fresh.times() as u64;
            (self.begin, self.start, self.end) = (0, keep, end);
            let length = self.length();
            for (stream, row) in self.bytes.chunks_exact_mut(self.stride).enumerate() {
                row[..length].copy_from_slice(&fresh.row(stream)[skipped..]);
            }
        } else {
            self.begin += self.encoding.bytes((keep.max(self.start) - self.start) as usize);
            self.start = self.start.max(keep);
            self.append(fresh);
        }
    }
}
