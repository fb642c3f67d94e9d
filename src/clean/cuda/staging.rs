//! Rows of the host on their way to a device and back: two parts, each copied in, cleaned and copied out while the
//! other is at another of these steps.

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
    /// The rows that are on their way.
    rows: Range<usize>,
}

/// Two parts, and the streams that copy them.
#[derive(Debug)]
pub(super) struct Staging {
    parts: [Part; 2],
    inward: Stream,
    outward: Stream,
    bytes: (usize, usize),
    pub(super) rows: usize,
}

impl Staging {
    /// For rows of so many bytes in and out.
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

    /// Sends rows of the input, of which part `index % 2` is free; the stream waits for them.
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
        // SAFETY: the host's side is written again only after the part's rows have come back.
        unsafe { self.inward.copy_in(&part.pinned, 0..from.len(), &mut part.input, 0)? };
        self.inward.record(&part.copied)?;
        stream.wait(&part.copied)?;
        part.rows = rows;
        Ok(part)
    }

    /// Begins to copy a part's rows back once the stream has come here.
    pub(super) fn fetch(&mut self, index: usize, stream: &Stream) -> Result<()> {
        let part = &mut self.parts[index % 2];
        stream.record(&part.cleaned)?;
        self.outward.wait(&part.cleaned)?;
        let bytes = part.rows.len() * self.bytes.1;
        // SAFETY: the host's side is read only after `returned`.
        unsafe { self.outward.copy_out(&part.output, 0..bytes, &mut part.result, 0)? };
        self.outward.record(&part.returned)
    }

    /// Waits for a part's rows, if there are any, and hands them over.
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
