//! Bounds on what a compressed file may become in memory.
//!
//! Invariant: a small file never asks for much memory, whatever sizes it declares.

use std::io::{self, Read};

/// Bytes that any file may make out of what it holds.
const FREE_BYTES: u64 = 32 << 20;

/// Bytes that HDF5 data may make out of one: twenty times what recordings reach, a thirtieth of what deflate allows.
const HDF5_RATIO: u64 = 32;

/// Bytes that text may make out of one: tables whose columns are mostly alike reach 30.
const TEXT_RATIO: u64 = 100;

/// Returns the most bytes of one buffer that a compressed HDF5 file of this size may fill.
pub(super) fn most_bytes(file_bytes: u64) -> u64 {
    file_bytes.saturating_mul(HDF5_RATIO).saturating_add(FREE_BYTES)
}

/// Bytes that any file, and one byte of it, may stand for in data that are read piece by piece: time is bounded, too.
const STREAMED: (u64, u64) = (512 << 20, 100);

/// Returns the most bytes that a compressed HDF5 file of this size may stand for in all, read piece by piece.
pub(super) fn most_streamed_bytes(file_bytes: u64) -> u64 {
    file_bytes.saturating_mul(STREAMED.1).saturating_add(STREAMED.0)
}

/// Reads decompressed text, and fails where it is too long for the compressed file.
#[derive(Debug)]
pub(super) struct Bounded<R> {
    input: R,
    file_bytes: u64,
    left: u64,
}

impl<R> Bounded<R> {
    /// Bounds the text that a compressed file of this size may become.
    pub(super) fn new(input: R, file_bytes: u64) -> Self {
        let left = file_bytes.saturating_mul(TEXT_RATIO).saturating_add(FREE_BYTES);
        Self { input, file_bytes, left }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)? as u64;
        let Some(left) = self.left.checked_sub(read) else {
            let bytes = self.file_bytes;
            return Err(io::Error::other(format!(
                "{bytes} compressed bytes become more than {TEXT_RATIO} times as many and {FREE_BYTES}, which no table does"
            )));
        };
        self.left = left;
        Ok(read as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_in_an_error_at_its_bound() {
        let read = |bytes: u64| {
            let mut text = Bounded::new(io::repeat(b' ').take(bytes), 10);
            io::copy(&mut text, &mut io::sink())
        };
        assert_eq!(read(FREE_BYTES + 1000).unwrap(), FREE_BYTES + 1000);
        assert!(
            read(FREE_BYTES + 1001).unwrap_err().to_string().starts_with("10 compressed bytes")
        );
    }
}
