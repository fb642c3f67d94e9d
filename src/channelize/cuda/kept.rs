//! Samples that the next windows need, on the device.

use crate::backend::cuda::{Buffer, Device, Stream};
use crate::error::Result;
use crate::voltage::VoltageEncoding;

/// The longest distance of rows that the driver's copy of rows takes.
const MOST_PITCH: usize = 1 << 30;

/// Samples of every stream in the device's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// Address of the first stream's first byte.
    pub(super) address: u64,
    /// Bytes from stream to stream.
    pub(super) stride: usize,
    /// The first sample, counted from the stream's start: it begins a byte.
    pub(super) start: u64,
    /// One past the last sample.
    pub(super) end: u64,
}

/// The last samples of every stream.
#[derive(Debug)]
pub(super) struct Kept {
    /// The first holds them; the second is where they move to.
    buffers: [Buffer<u8>; 2],
    encoding: VoltageEncoding,
    streams: usize,
    /// Samples of each stream that there is room for.
    capacity: usize,
    stride: usize,
    start: u64,
    end: u64,
}

impl Kept {
    /// Room for `capacity` samples of each stream.
    pub(super) fn new(
        device: &Device,
        encoding: VoltageEncoding,
        streams: usize,
        capacity: usize,
    ) -> Result<Self> {
        let capacity = capacity.next_multiple_of(encoding.samples_per_byte());
        let stride = encoding.bytes(capacity).next_multiple_of(16);
        let bytes = stride.saturating_mul(streams);
        let buffers = [device.buffer(bytes)?, device.buffer(bytes)?];
        Ok(Self { buffers, encoding, streams, capacity, stride, start: 0, end: 0 })
    }

    /// Forgets all, at a stream's start.
    pub(super) fn reset(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// What is held.
    pub(super) fn rows(&self) -> Rows {
        let Self { stride, start, end, .. } = *self;
        Rows { address: self.buffers[0].address(), stride, start, end }
    }

    /// One past the last sample.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Samples that there is still room for.
    pub(super) fn room(&self) -> usize {
        self.capacity - (self.end - self.start) as usize
    }

    /// Queues the copy of the samples from the last one held to `end`, which fill whole bytes.
    ///
    /// # Safety
    /// The rows lie in the device's memory.
    pub(super) unsafe fn append(&mut self, stream: &Stream, rows: &Rows, end: u64) -> Result<()> {
        let at = self.encoding.bytes((self.end - self.start) as usize) as u64;
        let to = self.buffers[0].address() + at;
        // SAFETY: the caller vouches for the rows; `room` is the caller's to heed.
        unsafe { self.copy(stream, rows, (self.end, end), to)? };
        self.end = end;
        Ok(())
    }

    /// Queues the copy of all samples from `start`, which begins a byte, in the place of those held.
    ///
    /// # Safety
    /// As for [`Kept::append`].
    pub(super) unsafe fn replace(
        &mut self,
        stream: &Stream,
        rows: &Rows,
        start: u64,
    ) -> Result<()> {
        let to = self.buffers[0].address();
        // SAFETY: the caller's promise is handed on.
        unsafe { self.copy(stream, rows, (start, rows.end), to)? };
        (self.start, self.end) = (start, rows.end);
        Ok(())
    }

    /// Lets go of the samples before `start`, which begins a byte.
    pub(super) fn discard(&mut self, stream: &Stream, start: u64) -> Result<()> {
        if start == self.start {
            return Ok(());
        }
        let to = self.buffers[1].address();
        // SAFETY: both buffers have room for all samples, and they do not overlap.
        unsafe { self.copy(stream, &self.rows(), (start, self.end), to)? };
        self.buffers.swap(0, 1);
        self.start = start;
        Ok(())
    }

    /// Queues the copy of the samples `start .. end` of every stream.
    unsafe fn copy(
        &self,
        stream: &Stream,
        rows: &Rows,
        (start, end): (u64, u64),
        to: u64,
    ) -> Result<()> {
        let from = rows.address + self.encoding.bytes((start - rows.start) as usize) as u64;
        let bytes = self.encoding.bytes((end - start) as usize);
        if bytes == 0 {
            return Ok(());
        }
        if self.streams > 1 && rows.stride.max(self.stride) <= MOST_PITCH {
            let strides = (rows.stride, self.stride);
            // SAFETY: the caller vouches for the rows.
            return unsafe { stream.copy_rows(from, to, (bytes, self.streams), strides) };
        }
        for row in 0..self.streams {
            let (from, to) = (from + (row * rows.stride) as u64, to + (row * self.stride) as u64);
            // SAFETY: as above.
            unsafe { stream.copy_within(from, to, bytes)? };
        }
        Ok(())
    }
}
