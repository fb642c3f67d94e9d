//! Transfer of sums to host memory: the device produces and copies the next parts while the host handles one.

use std::ops::Range;

use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::backend::threads::Threads;
use crate::error::Result;

/// Parts in flight.
const SLOTS: usize = 3;

/// Most 64-bit words of a part.
const WORDS: usize = 1 << 20;

/// Memory of a part on the host and on the device.
#[derive(Debug)]
struct Slot {
    device: Buffer<u64>,
    host: Pinned<u64>,
    made: Event,
    copied: Event,
    /// Elements in flight.
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

/// Produces elements at a device address.
pub(super) type Make<'a> = &'a mut dyn FnMut(Range<usize>, u64, &Stream) -> Result<()>;

/// Consumes the words of elements on the host.
pub(super) type Take<'a> = &'a mut dyn FnMut(Range<usize>, &[u64], (&Threads, &mut [()]));

impl Outbox {
    /// Allocates parts of `words` words, limited to 16 to 2^20.
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

    /// Transfers elements of `words` words each. A part holds at least one element.
    pub(super) fn bring(
        &mut self,
        elements: Range<usize>,
        words: usize,
        make: Make<'_>,
        take: Take<'_>,
    ) -> Result<()> {
        self.parts(elements, words, make, take).inspect_err(|_| {
            // Work in flight must end before its memory is reused.
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
            // SAFETY: the host memory is not accessed before `copied` has passed.
            unsafe { self.copies.copy_out(&slot.device, all, &mut slot.host, 0)? };
            self.copies.record(&slot.copied)?;
            slot.range = Some(range);
        }
        let next = elements.len().div_ceil(most);
        (next..next + SLOTS).try_for_each(|index| self.hand_out(index % SLOTS, words, take))
    }

    /// Waits for the transfer of a slot, if there is one, and passes its elements to `take`.
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
