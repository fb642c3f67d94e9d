//! A block of voltages that a source fills.

use super::{VoltageEncoding, Voltages};
use crate::array::check_length;
use crate::error::{Error, Result};

/// A buffer of voltages that a source fills, its own or lent: axes stream, time.
#[derive(Debug)]
pub struct VoltageBlock<'a> {
    bytes: Bytes<'a>,
    encoding: VoltageEncoding,
    streams: usize,
    stride: usize,
    capacity: usize,
    times: usize,
}

/// The memory of a block.
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

/// A copy has memory of its own.
impl Clone for VoltageBlock<'_> {
    fn clone(&self) -> Self {
        let Self { encoding, streams, stride, capacity, times, .. } = *self;
        let bytes = Bytes::Own(self.bytes.get().to_vec());
        Self { bytes, encoding, streams, stride, capacity, times }
    }
}

impl VoltageBlock<'static> {
    /// Room for `capacity` samples, rounded up to whole bytes, of each of `streams` streams.
    pub fn new(encoding: VoltageEncoding, streams: usize, capacity: usize) -> Self {
        let capacity = capacity.next_multiple_of(encoding.samples_per_byte());
        let stride = encoding.bytes(capacity);
        let bytes = Bytes::Own(vec![0; streams * stride]);
        Self { bytes, encoding, streams, stride, capacity, times: 0 }
    }
}

impl<'a> VoltageBlock<'a> {
    /// As [`VoltageBlock::new`], at the front of `bytes`.
    ///
    /// # Errors
    /// [`Error::Shape`] when they are too few.
    pub fn lent(
        bytes: &'a mut [u8],
        encoding: VoltageEncoding,
        streams: usize,
        capacity: usize,
    ) -> Result<Self> {
        let capacity = capacity.next_multiple_of(encoding.samples_per_byte());
        let stride = encoding.bytes(capacity);
        let (expected, actual) = (streams.saturating_mul(stride), bytes.len());
        if actual < expected {
            return Err(Error::Shape { what: "memory of a block (bytes)", expected, actual });
        }
        let bytes = Bytes::Lent(&mut bytes[..expected]);
        Ok(Self { bytes, encoding, streams, stride, capacity, times: 0 })
    }

    /// How each sample is stored.
    pub fn encoding(&self) -> VoltageEncoding {
        self.encoding
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// The most samples of each stream that it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes from stream to stream.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Samples of each stream that it holds.
    pub fn times(&self) -> usize {
        self.times
    }

    /// Says how many samples of each stream it holds.
    ///
    /// # Errors
    /// [`Error::Shape`] for more than its capacity, or for a last byte filled in part.
    pub fn set_times(&mut self, times: usize) -> Result<()> {
        if times > self.capacity {
            let (expected, actual) = (self.capacity, times);
            return Err(Error::Shape { what: "times in a block", expected, actual });
        }
        let whole = times.next_multiple_of(self.encoding.samples_per_byte());
        check_length("times in a block, in whole bytes", whole, times)?;
        self.times = times;
        Ok(())
    }

    /// All bytes of one stream, to its capacity.
    pub fn row_mut(&mut self, stream: usize) -> &mut [u8] {
        &mut self.bytes.get_mut()[stream * self.stride..][..self.stride]
    }

    /// All streams' rows, one behind another, each of the same number of bytes.
    pub fn rows_mut(&mut self) -> std::slice::ChunksExactMut<'_, u8> {
        self.bytes.get_mut().chunks_exact_mut(self.stride.max(1))
    }

    /// What it holds.
    pub fn voltages(&self) -> Voltages<'_> {
        let Self { encoding, streams, stride, times, .. } = *self;
        Voltages { bytes: self.bytes.get(), encoding, streams, stride, times }
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
}
