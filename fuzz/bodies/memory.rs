//! Rows and voltages from memory, and the numbers at the front of an input that select the options.

use sidereal::Result;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::io::{FilterbankHeader, FilterbankSource};
use sidereal::voltage::VoltageBlock;

/// Limit of the data that pipelines read, in bytes.
pub(super) const LARGEST: usize = 1 << 13;

/// Numbers taken from the front of an input; zeros once it is used up.
pub(super) struct Numbers<'a>(&'a [u8]);

impl<'a> Numbers<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the next byte.
    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns a number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// Returns one of the choices.
    pub(super) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns the remaining bytes.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Returns the remaining bytes up to that limit.
    pub(super) fn data(self) -> &'a [u8] {
        &self.0[..self.0.len().min(LARGEST)]
    }
}

/// Filterbank rows in memory.
pub(super) struct Rows<'a> {
    pub(super) header: FilterbankHeader,
    pub(super) bytes: &'a [u8],
    pub(super) next: usize,
}

impl FilterbankSource for Rows<'_> {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row = self.header.row_bytes();
        let times = self.skip((rows.len() / row) as u64)? as usize;
        let first = (self.next - times) * row;
        rows[..times * row].copy_from_slice(&self.bytes[first..first + times * row]);
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let left = self.bytes.len() / self.header.row_bytes() - self.next;
        let passed = left.min(usize::try_from(times).unwrap_or(usize::MAX));
        self.next += passed;
        Ok(passed as u64)
    }
}

/// Voltages in memory: one row of bytes per stream.
#[derive(Clone)]
pub(super) struct Recording {
    header: VoltageHeader,
    streams: Vec<Vec<u8>>,
    flags: Vec<Flag>,
    next: usize,
}

impl Recording {
    /// Splits bytes into the streams of a header, one segment per stream; a second byte in 16 flags some samples.
    pub(super) fn new(header: VoltageHeader, bytes: &[u8]) -> Option<Self> {
        let encoding = header.encoding;
        let unit = encoding.bytes(encoding.group_samples());
        let row = bytes.len() / header.streams() / unit * unit;
        if row == 0 {
            return None;
        }
        let streams: Vec<_> =
            bytes.chunks_exact(row).take(header.streams()).map(<[u8]>::to_vec).collect();
        let times = (row / unit * encoding.group_samples()) as u64;
        let flag = |start: u64| Flag { streams: 0..1, start, times: 3.min(times - start) };
        let flags = match bytes[0] % 16 {
            1 => vec![flag(times / 3)],
            2 => vec![flag(times / 3), flag(times / 3 * 2)],
            _ => Vec::new(),
        };
        let header = VoltageHeader { times: Some(times), ..header };
        Some(Self { header, streams, flags, next: 0 })
    }

    fn left(&self) -> usize {
        self.header.times.unwrap_or(0) as usize - self.next
    }
}

impl VoltageSource for Recording {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = self.left().min(block.capacity());
        let encoding = self.header.encoding;
        let (start, length) = (encoding.bytes(self.next), encoding.bytes(times));
        for (row, stream) in block.rows_mut().zip(&self.streams) {
            row[..length].copy_from_slice(&stream[start..start + length]);
        }
        block.set_times(times)?;
        self.next += times;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let passed = self.left().min(usize::try_from(times).unwrap_or(usize::MAX));
        self.next += passed;
        Ok(passed as u64)
    }

    fn flags(&self) -> &[Flag] {
        &self.flags
    }
}
