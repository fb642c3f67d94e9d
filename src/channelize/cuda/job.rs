//! Units of work in device memory: voltages, launches and their passes, and the cache of each stream's last samples.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::backend::cuda::{Buffer, CopiedRows, Device, MAX_PITCH, Stream};
use crate::channelize::plan::Plan;
use crate::error::Result;
pub use crate::voltage::DeviceVoltages;
use crate::voltage::VoltageEncoding;

/// Threads per block of every kernel of the general path.
pub(super) const BLOCK: usize = 256;

/// Spectra of every stream, with samples and rows in device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Address of the first sample under the first window of stream 0; a multiple of 16.
    pub input: u64,
    /// Bytes from stream to stream; a multiple of 16.
    pub stride: u64,
    /// First spectrum, counted from the stream's start, which is the phase reference.
    pub first_spectrum: u64,
    /// Spectra per stream; a whole number of rows.
    pub spectra: usize,
    /// Address of the first row.
    pub output: u64,
    /// Address of the 64-bit counts of saturated values, one per row element, or 0.
    pub saturated: u64,
}

/// Maximum numbers of spectra and of units per pass; a unit is one antenna's recorded channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct PassSize {
    pub(super) spectra: usize,
    pub(super) units: usize,
}

/// Part of a job: a range of spectra, counted from the job's first one, and a range of units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub(super) first_spectrum: u64,
    pub(super) spectra: usize,
    pub(super) first_unit: usize,
    pub(super) units: usize,
    /// Address of the output row that contains the first spectrum.
    pub(super) output: u64,
}

/// Output location: the address of antenna 0 in the pass's first row, whether or not the pass contains antenna 0, and
/// the strides in floats of row, antenna, recorded channel and polarization.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) address: u64,
    pub(super) strides: [usize; 4],
}

impl Target {
    /// Returns the location of a pass's rows in the complex output.
    pub(super) fn output(plan: &Plan, pass: &Pass) -> Self {
        let (coarse, points) = (plan.input().coarse_channels, plan.points());
        let polarization = 2 * coarse * points;
        let antenna = plan.input().polarizations * polarization;
        let strides = [2 * plan.row_elements(), antenna, 2 * points, polarization];
        Self { address: pass.output, strides }
    }

    /// Returns the location of a pass in the work buffer; axes: spectrum, stream of the pass, `pitch` floats.
    pub(super) fn work(plan: &Plan, pass: &Pass, address: u64, pitch: usize) -> Self {
        let unit = plan.input().polarizations * pitch;
        let strides = [pass.units * unit, plan.input().coarse_channels * unit, unit, pitch];
        let before = 4 * (pass.first_unit * unit) as u64;
        Self { address: address.wrapping_sub(before), strides }
    }
}

/// Samples of every stream in device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// Address of the first stream's first byte.
    pub(super) address: u64,
    /// Bytes from stream to stream.
    pub(super) stride: usize,
    /// First sample, counted from the stream's start; it begins a byte.
    pub(super) start: u64,
    /// One past the last sample.
    pub(super) end: u64,
}

/// Cache of every stream's last samples.
#[derive(Debug)]
pub(super) struct SampleCache {
    /// The first buffer holds the samples; `discard` moves them to the second and swaps the two.
    buffers: [Buffer<u8>; 2],
    encoding: VoltageEncoding,
    streams: usize,
    /// Capacity in samples per stream.
    capacity: usize,
    stride: usize,
    start: u64,
    end: u64,
}

impl SampleCache {
    /// Allocates a cache of `capacity` samples per stream.
    pub(super) fn new(
        device: &Device,
        encoding: VoltageEncoding,
        streams: usize,
        capacity: usize,
    ) -> Result<Self> {
        let capacity = capacity.next_multiple_of(encoding.group_samples());
        let stride = encoding.bytes(capacity).next_multiple_of(16);
        let bytes = stride.saturating_mul(streams);
        let buffers = [device.buffer(bytes)?, device.buffer(bytes)?];
        Ok(Self { buffers, encoding, streams, capacity, stride, start: 0, end: 0 })
    }

    /// Discards all samples; the next sample is the first of a stream.
    pub(super) fn reset(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Returns the layout of the cached samples.
    pub(super) fn rows(&self) -> Rows {
        let Self { stride, start, end, .. } = *self;
        Rows { address: self.buffers[0].address(), stride, start, end }
    }

    /// Returns one past the last sample.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the free capacity in samples.
    pub(super) fn room(&self) -> usize {
        self.capacity - (self.end - self.start) as usize
    }

    /// Enqueues a copy of the samples from the cache's end to `end`, which must be a byte boundary.
    ///
    /// # Safety
    /// The rows must lie in device memory.
    pub(super) unsafe fn append(&mut self, stream: &Stream, rows: &Rows, end: u64) -> Result<()> {
        let at = self.encoding.bytes((self.end - self.start) as usize) as u64;
        let to = self.buffers[0].address() + at;
        // SAFETY: the caller guarantees the rows and keeps `end` within the free capacity.
        unsafe { self.copy(stream, rows, self.end..end, to)? };
        self.end = end;
        Ok(())
    }

    /// Enqueues a copy of all samples from `start`, a byte boundary, which replaces the cached samples.
    ///
    /// # Safety
    /// Same requirements as for [`SampleCache::append`].
    pub(super) unsafe fn replace(
        &mut self,
        stream: &Stream,
        rows: &Rows,
        start: u64,
    ) -> Result<()> {
        let to = self.buffers[0].address();
        // SAFETY: forwards the caller's guarantee.
        unsafe { self.copy(stream, rows, start..rows.end, to)? };
        (self.start, self.end) = (start, rows.end);
        Ok(())
    }

    /// Discards the samples before `start`, which must be a byte boundary.
    pub(super) fn discard(&mut self, stream: &Stream, start: u64) -> Result<()> {
        if start == self.start {
            return Ok(());
        }
        let to = self.buffers[1].address();
        // SAFETY: both buffers have space for all samples, and they do not overlap.
        unsafe { self.copy(stream, &self.rows(), start..self.end, to)? };
        self.buffers.swap(0, 1);
        self.start = start;
        Ok(())
    }

    /// Enqueues a copy of some samples of every stream.
    unsafe fn copy(
        &self,
        stream: &Stream,
        rows: &Rows,
        samples: Range<u64>,
        to: u64,
    ) -> Result<()> {
        let Range { start, end } = samples;
        let from = rows.address + self.encoding.bytes((start - rows.start) as usize) as u64;
        let bytes = self.encoding.bytes((end - start) as usize);
        if bytes == 0 {
            return Ok(());
        }
        if self.streams > 1 && rows.stride.max(self.stride) <= MAX_PITCH {
            let copied = CopiedRows {
                bytes,
                rows: self.streams,
                from_stride: rows.stride,
                to_stride: self.stride,
            };
            // SAFETY: the caller guarantees the rows.
            return unsafe { stream.copy_rows(from, to, &copied) };
        }
        for row in 0..self.streams {
            let (from, to) = (from + (row * rows.stride) as u64, to + (row * self.stride) as u64);
            // SAFETY: as above.
            unsafe { stream.copy_within(from, to, bytes)? };
        }
        Ok(())
    }
}
