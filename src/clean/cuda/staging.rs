//! Transfers of host rows to a device and back: double buffers, so that copy in, cleaning and copy out overlap.

use std::ops::Range;

use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::error::Result;

/// Bytes of a part, in or out.
const PART_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct Part {
    pinned: Pinned<u8>,
    pub(super) input: Buffer<u8>,
    pub(super) output: Buffer<u8>,
    result: Pinned<u8>,
    copied: Event,
    cleaned: Event,
    returned: Event,
    /// Rows in this part.
    rows: Range<usize>,
}

/// Double buffer and its copy streams.
#[derive(Debug)]
pub(super) struct Staging {
    parts: [Part; 2],
    inward: Stream,
    outward: Stream,
    bytes: (usize, usize),
    pub(super) rows: usize,
}

impl Staging {
    /// Creates buffers for rows of `bytes` bytes in and out.
    pub(super) fn new(device: &Device, bytes: (usize, usize)) -> Result<Self> {
        let rows = (PART_BYTES / bytes.0.max(bytes.1)).max(1);
        let part = || {
            Ok(Part {
                pinned: device.pinned(rows * bytes.0)?,
                input: device.buffer(rows * bytes.0)?,
                output: device.buffer(rows * bytes.1)?,
                result: device.pinned(rows * bytes.1)?,
                copied: device.event()?,
                cleaned: device.event()?,
                returned: device.event()?,
                rows: 0..0,
            })
        };
        let parts = [part()?, part()?];
        Ok(Self { parts, inward: device.stream()?, outward: device.stream()?, bytes, rows })
    }

    /// Copies rows of the input to the device with part `index % 2`, which must be free; the stream waits for the
    /// copy.
    pub(super) fn send(
        &mut self,
        index: usize,
        rows: Range<usize>,
        input: &[u8],
        stream: &Stream,
    ) -> Result<&mut Part> {
        let part = &mut self.parts[index % 2];
        let from = &input[rows.start * self.bytes.0..rows.end * self.bytes.0];
        part.pinned.as_mut_slice()[..from.len()].copy_from_slice(from);
        // SAFETY: the host buffer is written again only after the part's rows have returned.
        unsafe { self.inward.copy_in(&part.pinned, 0..from.len(), &mut part.input, 0)? };
        self.inward.record(&part.copied)?;
        stream.wait(&part.copied)?;
        part.rows = rows;
        Ok(part)
    }

    /// Queues the copy of a part's rows to the host after the stream's current work.
    pub(super) fn fetch(&mut self, index: usize, stream: &Stream) -> Result<()> {
        let part = &mut self.parts[index % 2];
        stream.record(&part.cleaned)?;
        self.outward.wait(&part.cleaned)?;
        let bytes = part.rows.len() * self.bytes.1;
        // SAFETY: the host buffer is read only after `returned`.
        unsafe { self.outward.copy_out(&part.output, 0..bytes, &mut part.result, 0)? };
        self.outward.record(&part.returned)
    }

    /// Waits for a part's rows, if it has any, and copies them to the output.
    pub(super) fn receive(&mut self, index: usize, output: &mut [u8]) -> Result<()> {
        let part = &mut self.parts[index % 2];
        if part.rows.is_empty() {
            return Ok(());
        }
        part.returned.synchronize()?;
        let rows = std::mem::take(&mut part.rows);
        let to = &mut output[rows.start * self.bytes.1..rows.end * self.bytes.1];
        to.copy_from_slice(&part.result.as_slice()[..to.len()]);
        Ok(())
    }
}
