//! Triggers on their way to the host.

use num_complex::Complex;

use super::super::found::Trigger;
use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::error::Result;

/// 32-bit words before the triggers, the first of them their number; and words of a trigger.
const HEADER: usize = 8;
const WORDS: usize = 6;

/// Triggers that are copied with their number, before the host knows it.
const USUAL: usize = 4096;

/// Where the triggers of one launch go.
#[derive(Debug)]
pub(super) struct Slot {
    found: Buffer<u32>,
    host: Pinned<u32>,
    room: usize,
    copied: Event,
    /// The sample that places count from, and the samples that are decided about; none when nothing is under way.
    under_way: Option<(u64, u64)>,
}

impl Slot {
    pub(super) fn new(device: &Device, room: usize) -> Result<Self> {
        let words = HEADER + WORDS * room;
        let (mut found, host) = (device.buffer(words)?, device.pinned(words)?);
        // More triggers are copied than are written: what they hold is never looked at, but is not left to chance.
        let stream = device.stream()?;
        stream.fill(&mut found, 0..words, 0)?;
        stream.synchronize()?;
        Ok(Self { found, host, room, copied: device.event()?, under_way: None })
    }

    /// Bytes of the device that a slot for so many triggers takes.
    pub(super) fn bytes(room: usize) -> usize {
        (HEADER + WORDS * room) * size_of::<u32>()
    }

    /// Bytes of the host that it takes.
    pub(super) fn held_bytes(&self) -> usize {
        Self::bytes(self.room)
    }

    /// Empties it on the device.
    pub(super) fn clear(&mut self, stream: &Stream) -> Result<()> {
        stream.fill(&mut self.found, 0..1, 0)
    }

    /// Where the number of triggers stands on the device, where they stand, and how many there is room for.
    pub(super) fn addresses(&self) -> (u64, u64, u32) {
        (self.found.address(), self.found.at(HEADER), self.room as u32)
    }

    /// Queues the copy of what a launch found.
    pub(super) fn send(&mut self, (first, until): (u64, u64), stream: &Stream) -> Result<()> {
        let words = HEADER + WORDS * self.room.min(USUAL);
        self.under_way = Some((first, until));
        // SAFETY: the host looks at its copy in `take` only, behind `copied`.
        unsafe { stream.copy_out(&self.found, 0..words, &mut self.host, 0)? };
        stream.record(&self.copied)
    }

    /// Waits for what is under way, and appends it by sample, then by template; gives the samples decided about.
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
            // SAFETY: waited for at once.
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

/// A trigger as the kernel wrote it.
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
