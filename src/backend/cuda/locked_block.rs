//! Page-locked block of host memory whose parts a device writes and reads, such as the messages of a corner turn among
//! processes.
//!
//! Invariant: the host sees the bytes of a block only after all copies that were enqueued for it.

use std::ops::Range;

use super::{Buffer, CopiedRows, Device, Event, Pinned, Stream};
use crate::error::Result;

/// Page-locked host memory, with a stream for its copies to and from a device.
#[derive(Debug)]
pub struct LockedBlock {
    host: Pinned<u8>,
    stream: Stream,
    /// Recorded after the last copy.
    copied: Event,
    /// Whether all copies are known to have ended.
    is_idle: bool,
}

impl LockedBlock {
    /// Allocates a zeroed block of `bytes` bytes.
    ///
    /// # Errors
    /// As [`Device::pinned`].
    pub fn new(device: &Device, bytes: usize) -> Result<Self> {
        let (host, stream, copied) = (device.pinned(bytes)?, device.stream()?, device.event()?);
        Ok(Self { host, stream, copied, is_idle: true })
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.host.len()
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.host.is_empty()
    }

    /// Returns the stream of the copies, for events that they wait for.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Enqueues the copy of a range of a buffer to the block, from byte `at` on.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) past an end; [`Error::Device`](crate::Error::Device) if the driver fails.
    pub fn copy_out(&mut self, from: &Buffer<u8>, range: Range<usize>, at: usize) -> Result<()> {
        self.is_idle = false;
        // SAFETY: the bytes are handed out only after `copied`, and freed after all work of the device.
        let enqueued = unsafe { self.stream.copy_out(from, range, &mut self.host, at) };
        self.stream.record(&self.copied)?;
        enqueued
    }

    /// Enqueues the copy of rows of the block, from byte `first` on, to a buffer, from byte `to_first` on.
    ///
    /// # Errors
    /// As [`Stream::copy_rows_in`].
    pub fn copy_rows_in(
        &mut self,
        first: usize,
        to: &mut Buffer<u8>,
        to_first: usize,
        rows: &CopiedRows,
    ) -> Result<()> {
        self.is_idle = false;
        // SAFETY: as above.
        let enqueued = unsafe { self.stream.copy_rows_in(&self.host, first, to, to_first, rows) };
        self.stream.record(&self.copied)?;
        enqueued
    }

    /// Lets the work that is enqueued in a stream from now on wait for all copies enqueued so far.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the driver fails.
    pub fn awaited_by(&self, stream: &Stream) -> Result<()> {
        stream.wait(&self.copied)
    }

    /// Returns the bytes, after waiting for all copies. The next call does not fail, unless copies were enqueued between.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if work on the device failed.
    pub fn host(&mut self) -> Result<&mut [u8]> {
        if !self.is_idle {
            self.copied.synchronize()?;
            self.is_idle = true;
        }
        Ok(self.host.as_mut_slice())
    }
}
