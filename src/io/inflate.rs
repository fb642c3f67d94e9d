//! Bounds on the decompressed size of files.
//!
//! Invariant: a small file never asks for much memory, whatever sizes it declares.

use std::io::{self, Read};

/// Decompressed bytes allowed for any file.
const FREE_BYTES: u64 = 32 << 20;

/// Decompressed bytes allowed per byte of an HDF5 file: twenty times the ratio of recordings, a thirtieth of the
/// deflate limit.
const HDF5_RATIO: u64 = 32;

/// Decompressed bytes allowed per byte of text: tables with nearly constant columns reach 30.
const TEXT_RATIO: u64 = 100;

/// Returns the maximum bytes of one buffer for a compressed HDF5 file of this size.
pub(super) fn most_bytes(file_bytes: u64) -> u64 {
    file_bytes.saturating_mul(HDF5_RATIO).saturating_add(FREE_BYTES)
}

/// Decompressed bytes allowed for any file, and per byte of it, in streamed data; this bounds the time as well.
const STREAMED: (u64, u64) = (512 << 20, 100);

/// Returns the maximum total bytes of streamed data from a compressed HDF5 file of this size.
pub(super) fn most_streamed_bytes(file_bytes: u64) -> u64 {
    file_bytes.saturating_mul(STREAMED.1).saturating_add(STREAMED.0)
}

/// Reader of decompressed text that fails beyond a bound.
#[derive(Debug)]
pub(super) struct Bounded<R> {
    input: R,
    file_bytes: u64,
    left: u64,
}

impl<R> Bounded<R> {
    /// Bounds the text from a compressed file of this size.
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
