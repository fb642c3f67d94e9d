//! The way of sums to the host's memory: the next ones are made and copied while some are handed out.

use std::ops::Range;

use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::backend::threads::Threads;
use crate::error::Result;

/// Parts under way.
const SLOTS: usize = 3;

/// 64-bit words of a part, at most.
const WORDS: usize = 1 << 20;

/// A part's memory on both sides.
#[derive(Debug)]
struct Slot {
    device: Buffer<u64>,
    host: Pinned<u64>,
    made: Event,
    copied: Event,
    /// The elements that are under way.
    range: Option<Range<usize>>,
}

/// Streams and staging memory.
#[derive(Debug)]
pub(super) struct Outbox {
    device: Device,
    slots: Vec<Slot>,
    pub(super) work: Stream,
    copies: Stream,
    pub(super) threads: Threads,
    pub(super) workers: Vec<()>,
}

/// What makes elements at an address.
pub(super) type Make<'a> = &'a mut dyn FnMut(Range<usize>, u64, &Stream) -> Result<()>;

/// What takes the words of elements.
pub(super) type Take<'a> = &'a mut dyn FnMut(Range<usize>, &[u64], (&Threads, &mut [()]));

impl Outbox {
    /// Parts of at most `words` words, if that is few.
    pub(super) fn new(device: &Device, words: usize, threads: &Threads) -> Result<Self> {
        let words = words.clamp(16, WORDS);
        let slot = |_| {
            Ok(Slot {
                device: device.buffer(words)?,
                host: device.pinned(words)?,
                made: device.event()?,
                copied: device.event()?,
                range: None,
            })
        };
        Ok(Self {
            device: device.clone(),
            slots: (0..SLOTS).map(slot).collect::<Result<_>>()?,
            work: device.stream()?,
            copies: device.stream()?,
            threads: threads.clone(),
            workers: vec![(); threads.count()],
        })
    }

    /// Brings elements of `words` words each, of which a part holds one at least.
    pub(super) fn bring(
        &mut self,
        elements: Range<usize>,
        words: usize,
        make: Make<'_>,
        take: Take<'_>,
    ) -> Result<()> {
        self.parts(elements, words, make, take).inspect_err(|_| {
            // What is under way must end before its memory is used again.
            let _ = self.device.synchronize();
            self.slots.iter_mut().for_each(|slot| slot.range = None);
        })
    }

    fn parts(
        &mut self,
        elements: Range<usize>,
        words: usize,
        make: Make<'_>,
        take: Take<'_>,
    ) -> Result<()> {
        let most = self.slots[0].device.len() / words;
        for (index, start) in elements.clone().step_by(most).enumerate() {
            let slot = index % SLOTS;
            self.hand_out(slot, words, take)?;
            let range = start..elements.end.min(start + most);
            let slot = &mut self.slots[slot];
            make(range.clone(), slot.device.address(), &self.work)?;
            self.work.record(&slot.made)?;
            self.copies.wait(&slot.made)?;
            let all = 0..range.len() * words;
            // SAFETY: the host's side is not touched before `copied` has passed.
            unsafe { self.copies.copy_out(&slot.device, all, &mut slot.host, 0)? };
            self.copies.record(&slot.copied)?;
            slot.range = Some(range);
        }
        let next = elements.len().div_ceil(most);
        (next..next + SLOTS).try_for_each(|index| self.hand_out(index % SLOTS, words, take))
    }

    /// Waits for what is under way in a slot, if there is anything, and hands it out.
    fn hand_out(&mut self, slot: usize, words: usize, take: Take<'_>) -> Result<()> {
        let slot = &mut self.slots[slot];
        if let Some(range) = slot.range.take() {
            slot.copied.synchronize()?;
            let words = &slot.host.as_slice()[..range.len() * words];
            take(range, words, (&self.threads, &mut self.workers));
        }
        Ok(())
    }
}
