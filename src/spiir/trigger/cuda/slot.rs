//! Buffers for the triggers of a launch on their way to the host.

use num_complex::Complex;

use super::super::triggers::Trigger;
use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::error::Result;

/// Header length in 32-bit words, the first of which is the number of triggers; and words of a trigger.
const HEADER: usize = 8;
const WORDS: usize = 6;

/// Triggers copied together with their number, before the host knows the number.
const USUAL: usize = 4096;

/// Device and host buffers for the triggers of one launch.
#[derive(Debug)]
pub(super) struct Slot {
    found: Buffer<u32>,
    host: Pinned<u32>,
    room: usize,
    copied: Event,
    /// First sample that positions count from, and end of the decided samples; `None` when no launch is in flight.
    under_way: Option<(u64, u64)>,
}

impl Slot {
    pub(super) fn new(device: &Device, room: usize) -> Result<Self> {
        let words = HEADER + WORDS * room;
        let (mut found, host) = (device.buffer(words)?, device.pinned(words)?);
        // The copy may include triggers that were not written; they are never read, but the memory must be
        // initialized.
        let stream = device.stream()?;
        stream.fill(&mut found, 0..words, 0)?;
        stream.synchronize()?;
        Ok(Self { found, host, room, copied: device.event()?, under_way: None })
    }

    /// Returns the device bytes of a slot for `room` triggers.
    pub(super) fn bytes(room: usize) -> usize {
        (HEADER + WORDS * room) * size_of::<u32>()
    }

    /// Returns its host bytes.
    pub(super) fn held_bytes(&self) -> usize {
        Self::bytes(self.room)
    }

    /// Queues a reset of the trigger count.
    pub(super) fn clear(&mut self, stream: &Stream) -> Result<()> {
        stream.fill(&mut self.found, 0..1, 0)
    }

    /// Returns the device addresses of the trigger count and of the triggers, and the capacity.
    pub(super) fn addresses(&self) -> (u64, u64, u32) {
        (self.found.address(), self.found.at(HEADER), self.room as u32)
    }

    /// Queues the copy of a launch's triggers to the host.
    pub(super) fn send(&mut self, first: u64, until: u64, stream: &Stream) -> Result<()> {
        let words = HEADER + WORDS * self.room.min(USUAL);
        self.under_way = Some((first, until));
        // SAFETY: the host reads its copy only in `take`, after `copied`.
        unsafe { stream.copy_out(&self.found, 0..words, &mut self.host, 0)? };
        stream.record(&self.copied)
    }

    /// Waits for the launch in flight and appends its triggers ordered by sample, then template. Returns the end of
    /// the decided samples.
    pub(super) fn take(
        &mut self,
        copies: &Stream,
        triggers: &mut Vec<Trigger>,
    ) -> Result<Option<u64>> {
        let Some((first, until)) = self.under_way.take() else { return Ok(None) };
        self.copied.synchronize()?;
        let count = (self.host.as_slice()[0] as usize).min(self.room);
        if count > USUAL {
            let rest = HEADER + WORDS * USUAL..HEADER + WORDS * count;
            // SAFETY: synchronized on the next line.
            unsafe { copies.copy_out(&self.found, rest.clone(), &mut self.host, rest.start)? };
            copies.synchronize()?;
        }
        let begin = triggers.len();
        let words = &self.host.as_slice()[HEADER..HEADER + WORDS * count];
        triggers.extend(words.chunks_exact(WORDS).map(|words| trigger(first, words)));
        triggers[begin..].sort_unstable_by_key(|trigger| (trigger.sample, trigger.template));
        Ok(Some(until))
    }
}

/// Parses a trigger as the kernel wrote it.
fn trigger(first: u64, words: &[u32]) -> Trigger {
    let float = |at: usize| f32::from_bits(words[at]);
    Trigger {
        template: words[0],
        sample: first + u64::from(words[1]),
        offset: float(2),
        z: Complex::new(float(3), float(4)),
        xi2: float(5),
    }
}
