//! Buffer of voltages for a source to fill.

use std::ops::Range;

use super::{VoltageEncoding, Voltages};
use crate::error::{Error, Result};
use crate::view::check_length;

/// Owned or borrowed buffer of voltages that a source fills: axes stream, time.
#[derive(Debug)]
pub struct VoltageBlock<'a> {
    bytes: Bytes<'a>,
    encoding: VoltageEncoding,
    streams: usize,
    stride: usize,
    /// Bytes of each row before the stream's first sample.
    offset: usize,
    capacity: usize,
    times: usize,
    flags: Vec<Flag>,
}

/// Samples that are missing or invalid; they read as zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The affected streams.
    pub streams: Range<usize>,
    /// First sample, counted from the recording's start; of a flag in a block, from the block's start.
    pub start: u64,
    /// Samples per stream.
    pub times: u64,
}

/// Memory of a block.
#[derive(Debug)]
enum Bytes<'a> {
    Own(Vec<u8>),
    Lent(&'a mut [u8]),
}

impl Bytes<'_> {
    fn get(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(bytes) => bytes,
        }
    }

    fn get_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(bytes) => bytes,
        }
    }
}

/// A clone owns its memory.
impl Clone for VoltageBlock<'_> {
    fn clone(&self) -> Self {
        let Self { encoding, streams, stride, offset, capacity, times, .. } = *self;
        let bytes = Bytes::Own(self.bytes.get().to_vec());
        let flags = self.flags.clone();
        Self { bytes, encoding, streams, stride, offset, capacity, times, flags }
    }
}

impl VoltageBlock<'static> {
    /// Allocates a block of `capacity` samples, rounded up to whole bytes, for each of `streams` streams.
    pub fn new(encoding: VoltageEncoding, streams: usize, capacity: usize) -> Self {
        let capacity = capacity.next_multiple_of(encoding.group_samples());
        let stride = encoding.bytes(capacity);
        let bytes = Bytes::Own(vec![0; streams * stride]);
        let flags = Vec::new();
        Self { bytes, encoding, streams, stride, offset: 0, capacity, times: 0, flags }
    }
}

impl<'a> VoltageBlock<'a> {
    /// Makes a block as [`VoltageBlock::new`], at the start of borrowed `bytes`.
    ///
    /// # Errors
    /// [`Error::Shape`] if `bytes` is too short.
    pub fn lent(
        bytes: &'a mut [u8],
        encoding: VoltageEncoding,
        streams: usize,
        capacity: usize,
    ) -> Result<Self> {
        let capacity = capacity.next_multiple_of(encoding.group_samples());
        let stride = encoding.bytes(capacity);
        let (expected, actual) = (streams.saturating_mul(stride), bytes.len());
        if actual < expected {
            return Err(Error::Shape { what: "memory of a block (bytes)", expected, actual });
        }
        let bytes = Bytes::Lent(&mut bytes[..expected]);
        let flags = Vec::new();
        Ok(Self { bytes, encoding, streams, stride, offset: 0, capacity, times: 0, flags })
    }

    /// Makes a block of the samples `times` within longer rows of `stride` bytes, one row per stream; the bytes
    /// outside `times` keep their values.
    ///
    /// # Errors
    /// [`Error::Shape`] if `times` begins or ends within a byte or exceeds a row, or if the rows exceed `bytes`.
    pub fn within(
        bytes: &'a mut [u8],
        encoding: VoltageEncoding,
        streams: usize,
        stride: usize,
        times: Range<usize>,
    ) -> Result<Self> {
        for edge in [times.start, times.end] {
            let whole = edge.next_multiple_of(encoding.group_samples());
            check_length("samples of a block, in whole bytes", whole, edge)?;
        }
        let (offset, end) = (encoding.bytes(times.start), encoding.bytes(times.end));
        if end.max(offset) > stride {
            let (expected, actual) = (end.max(offset), stride);
            return Err(Error::Shape { what: "row of a block (bytes)", expected, actual });
        }
        let (expected, actual) = (streams.saturating_mul(stride), bytes.len());
        if actual < expected {
            return Err(Error::Shape { what: "memory of a block (bytes)", expected, actual });
        }
        let bytes = Bytes::Lent(&mut bytes[..expected]);
        let (capacity, flags) = (times.len(), Vec::new());
        Ok(Self { bytes, encoding, streams, stride, offset, capacity, times: 0, flags })
    }

    /// Returns the encoding.
    pub fn encoding(&self) -> VoltageEncoding {
        self.encoding
    }

    /// Returns the number of streams.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// Returns the capacity in samples per stream.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the bytes between the starts of consecutive streams.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Returns the valid samples per stream.
    pub fn times(&self) -> usize {
        self.times
    }

    /// Sets the valid samples per stream.
    ///
    /// # Errors
    /// [`Error::Shape`] for more than its capacity, or for a partly filled last byte.
    pub fn set_times(&mut self, times: usize) -> Result<()> {
        if times > self.capacity {
            let (expected, actual) = (self.capacity, times);
            return Err(Error::Shape { what: "times in a block", expected, actual });
        }
        let whole = times.next_multiple_of(self.encoding.group_samples());
        check_length("times in a block, in whole bytes", whole, times)?;
        self.times = times;
        Ok(())
    }

    /// Returns the missing and invalid samples that a live source has found in the block, by ascending start; a
    /// recording's are known when it is opened.
    pub fn flags(&self) -> &[Flag] {
        &self.flags
    }

    /// Returns the flags, counted from `start` samples before the block's first one.
    pub fn flags_after(&self, start: u64) -> impl Iterator<Item = Flag> {
        self.flags.iter().map(move |flag| Flag { start: start + flag.start, ..flag.clone() })
    }

    /// Returns the flags for a live source to fill.
    pub fn flags_mut(&mut self) -> &mut Vec<Flag> {
        &mut self.flags
    }

    /// Returns all bytes of one stream, to its capacity.
    pub fn row_mut(&mut self, stream: usize) -> &mut [u8] {
        let own = self.own();
        &mut self.bytes.get_mut()[stream * self.stride..][own]
    }

    /// Returns the rows of all streams, of equal length.
    pub fn rows_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        let (own, stride) = (self.own(), self.stride.max(1));
        self.bytes.get_mut().chunks_exact_mut(stride).map(move |row| &mut row[own.clone()])
    }

    /// Splits the rows of all streams at the samples `starts`, which rise from 0 and lie on whole bytes; each part holds
    /// the rows of all streams, from its start to the next one's.
    pub(crate) fn columns_mut(&mut self, starts: &[usize]) -> Vec<Vec<&mut [u8]>> {
        let encoding = self.encoding;
        let mut parts: Vec<_> = starts.iter().map(|_| Vec::with_capacity(self.streams)).collect();
        for mut row in self.rows_mut() {
            for (part, from) in parts.iter_mut().zip(starts.windows(2)) {
                let (head, rest) = row.split_at_mut(encoding.bytes(from[1] - from[0]));
                part.push(head);
                row = rest;
            }
            if let Some(last) = parts.last_mut() {
                last.push(row);
            }
        }
        parts
    }

    /// Returns the memory of all streams, rows of [`VoltageBlock::stride`] bytes, and the byte range of the block within
    /// a row.
    pub(crate) fn memory_mut(&mut self) -> (&mut [u8], Range<usize>) {
        let (own, bytes) = (self.own(), self.streams * self.stride);
        (&mut self.bytes.get_mut()[..bytes], own)
    }

    /// Returns the byte range of the block within a row.
    fn own(&self) -> Range<usize> {
        self.offset..self.offset + self.encoding.bytes(self.capacity)
    }

    /// Returns a view of the valid samples.
    pub fn voltages(&self) -> Voltages<'_> {
        let Self { encoding, streams, stride, times, .. } = *self;
        let bytes = self.bytes.get();
        Voltages { bytes: &bytes[self.offset.min(bytes.len())..], encoding, streams, stride, times }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_may_lie_in_lent_memory() {
        let mut memory = [7; 10];
        let mut block =
            VoltageBlock::lent(&mut memory, VoltageEncoding::Real4, 2, 7).expect("it fits");
        assert_eq!((block.capacity(), block.stride()), (8, 4));
        block.row_mut(1).copy_from_slice(&[1, 2, 3, 4]);
        block.set_times(6).unwrap();
        assert_eq!(block.voltages().row(1), [1, 2, 3]);
        assert_eq!(block.clone().voltages().row(0), [7, 7, 7]);
        assert_eq!(memory, [7, 7, 7, 7, 1, 2, 3, 4, 7, 7]);
        let error = VoltageBlock::lent(&mut memory, VoltageEncoding::Real4, 3, 7).unwrap_err();
        assert!(error.to_string().contains("12") && error.to_string().contains("10"), "{error}");
    }

    #[test]
    fn a_block_may_be_a_part_of_longer_rows() {
        let mut memory = [7; 8];
        let encoding = VoltageEncoding::Real4;
        let mut block = VoltageBlock::within(&mut memory, encoding, 2, 4, 2..6).expect("it fits");
        assert_eq!((block.capacity(), block.stride(), block.rows_mut().len()), (4, 4, 2));
        block.row_mut(0).copy_from_slice(&[1, 2]);
        block.rows_mut().nth(1).expect("the second").copy_from_slice(&[3, 4]);
        block.set_times(4).unwrap();
        assert_eq!([block.voltages().row(0), block.voltages().row(1)], [[1, 2], [3, 4]]);
        assert_eq!(block.clone().voltages().row(1), [3, 4]);
        assert!(block.set_times(6).is_err());
        let columns = block.columns_mut(&[0, 2]);
        assert_eq!(columns, [[&mut [1][..], &mut [3][..]], [&mut [2][..], &mut [4][..]]]);
        assert_eq!(memory, [7, 1, 2, 7, 7, 3, 4, 7]);
        for ((streams, stride), times) in
            [((2, 4), 1..4), ((2, 4), 2..5), ((2, 4), 4..10), ((3, 4), 0..2)]
        {
            assert!(VoltageBlock::within(&mut memory, encoding, streams, stride, times).is_err());
        }
    }
}
