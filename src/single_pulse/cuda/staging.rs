//! Host series on their way to a device: two parts, one copied while the other is searched.

use std::ops::Range;

use super::sizes::Sizes;
use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::single_pulse::plan::Input;
use crate::view::Plane;

/// Bytes of a part.
const PART_BYTES: usize = 32 << 20;

/// Fewest samples of a trial in a part, so that each row is one long copy.
const FEWEST: usize = 256;

#[derive(Debug)]
struct Part {
    pinned: Pinned<u32>,
    buffer: Buffer<u32>,
    /// Completion of the part's copy, and of its search.
    copied: Event,
    free: Event,
}

/// Double buffer and its copy stream.
#[derive(Debug)]
pub(super) struct Staging {
    parts: [Part; 2],
    copies: Stream,
    threads: Threads,
    scratch: Vec<()>,
    times: usize,
    /// Index of the part to fill next, and of the part to search next.
    filled: usize,
    taken: usize,
}

impl Staging {
    pub(super) fn new(device: &Device, sizes: &Sizes, threads: &Threads) -> Result<Self> {
        let times = (PART_BYTES / size_of::<u32>() / sizes.dms).max(FEWEST);
        let copies = device.stream()?;
        let part = || {
            let (copied, free) = (device.event()?, device.event()?);
            copies.record(&copied)?;
            copies.record(&free)?;
            let words = times * sizes.dms;
            Ok(Part { pinned: device.pinned(words)?, buffer: device.buffer(words)?, copied, free })
        };
        let parts = [part()?, part()?];
        let scratch = vec![(); threads.count()];
        let threads = threads.clone();
        Ok(Self { parts, copies, threads, scratch, times, filled: 0, taken: 0 })
    }

    /// Returns the samples of a trial in a part.
    pub(super) fn times(&self) -> usize {
        self.times
    }

    /// Starts the copy of an input range once the part's previous copy and search are complete.
    pub(super) fn stage(&mut self, input: Input<'_>, range: Range<usize>) -> Result<()> {
        self.parts[self.filled].copied.synchronize()?;
        match input {
            Input::I32(plane) => self.fill(plane, range),
            Input::F32(plane) => self.fill(plane, range),
        }
        let part = &mut self.parts[self.filled];
        self.copies.wait(&part.free)?;
        let words = 0..part.pinned.len();
        // SAFETY: the part is refilled only after `copied`.
        unsafe { self.copies.copy_in(&part.pinned, words, &mut part.buffer, 0)? };
        self.copies.record(&part.copied)?;
        self.filled = 1 - self.filled;
        Ok(())
    }

    fn fill<T: bytemuck::Pod + Sync>(&mut self, plane: Plane<'_, T>, range: Range<usize>) {
        let words = self.parts[self.filled].pinned.as_mut_slice();
        self.threads.for_each_chunk(&mut self.scratch, words, self.times, |(), dm, row| {
            let samples: &[u32] = bytemuck::cast_slice(&plane.row(dm)[range.clone()]);
            row[..samples.len()].copy_from_slice(samples);
        });
    }

    /// Returns the address of the next part; the stream waits for its copy.
    pub(super) fn take(&mut self, stream: &Stream) -> Result<u64> {
        let part = &self.parts[self.taken];
        stream.wait(&part.copied)?;
        Ok(part.buffer.address())
    }

    /// Releases the part once the stream reaches this point.
    pub(super) fn release(&mut self, stream: &Stream) -> Result<()> {
        stream.record(&self.parts[self.taken].free)?;
        self.taken = 1 - self.taken;
        Ok(())
    }
}
