//! Buffer of a stream's latest rows, as input of the first stage.

use crate::backend::cuda::{Buffer, Device, Stream};
use crate::error::Result;
use crate::view::check_memory;

/// Ring buffer of the latest rows.
#[derive(Debug)]
pub(super) struct Tail {
    /// At most `most` bytes; fewer until the ring is full.
    bytes: Vec<u8>,
    most: usize,
    /// Next write position once the ring is full.
    at: usize,
}

impl Tail {
    /// Allocates a ring of `most` bytes.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`] when memory does not suffice.
    pub(super) fn new(most: usize) -> Result<Self> {
        check_memory("the last rows", Some(most))?;
        Ok(Self { bytes: Vec::with_capacity(most), most, at: 0 })
    }

    /// Returns the capacity in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.most
    }

    /// Appends rows.
    pub(super) fn push(&mut self, rows: &[u8]) {
        let rows = &rows[rows.len().saturating_sub(self.most)..];
        let (new, rest) = rows.split_at((self.most - self.bytes.len()).min(rows.len()));
        self.bytes.extend_from_slice(new);
        let (later, first) = rest.split_at(rest.len().min(self.most - self.at));
        self.bytes[self.at..][..later.len()].copy_from_slice(later);
        self.bytes[..first.len()].copy_from_slice(first);
        if !rest.is_empty() {
            self.at = (self.at + rest.len()) % self.most;
        }
    }

    /// Returns all rows, the earliest first, and empties the ring.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.bytes.rotate_left(std::mem::take(&mut self.at));
        std::mem::take(&mut self.bytes)
    }
}

/// Ring buffer of the latest rows on a device.
#[derive(Debug)]
pub(super) struct DeviceTail {
    bytes: Buffer<u8>,
    filled: usize,
    at: usize,
}

impl DeviceTail {
    /// Allocates a ring of `most` bytes.
    pub(super) fn new(device: &Device, most: usize) -> Result<Self> {
        Ok(Self { bytes: device.buffer(most)?, filled: 0, at: 0 })
    }

    /// Enqueues a copy of the first `bytes` bytes of a buffer, the next rows.
    pub(super) fn push(&mut self, rows: &Buffer<u8>, bytes: usize, stream: &Stream) -> Result<()> {
        let most = self.bytes.len();
        let mut from = bytes.saturating_sub(most);
        while from < bytes {
            let count = (bytes - from).min(most - self.at);
            stream.copy(rows, from..from + count, &mut self.bytes, self.at)?;
            (from, self.at) = (from + count, (self.at + count) % most);
            self.filled = (self.filled + count).min(most);
        }
        Ok(())
    }

    /// Copies all rows to the host, the earliest first, after the enqueued work has finished.
    pub(super) fn take(&mut self) -> Result<Vec<u8>> {
        let mut rows = vec![0; std::mem::take(&mut self.filled)];
        self.bytes.download(0, &mut rows)?;
        let at = std::mem::take(&mut self.at);
        if rows.len() == self.bytes.len() {
            rows.rotate_left(at);
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_stay_in_order_whatever_their_pieces() {
        let all: Vec<u8> = (0..200).collect();
        for most in [1, 7, 64, 300] {
            for piece in [1, 3, 7, 50, 200] {
                let mut tail = Tail::new(most).unwrap();
                all.chunks(piece).for_each(|rows| tail.push(rows));
                assert_eq!(tail.take(), all[all.len().saturating_sub(most)..], "{most} {piece}");
            }
        }
        let mut none = Tail::new(0).unwrap();
        none.push(&all);
        assert!(none.take().is_empty());
    }
}
