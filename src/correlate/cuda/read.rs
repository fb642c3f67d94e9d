//! Read-out of sums and counts to the host, in the order of baselines.

use std::ops::{Add, Range};

use bytemuck::Pod;
use num_complex::Complex;

use super::clock::Clock;
use super::masks::Masks;
use super::sums::Sums;
use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::backend::threads::Threads;
use crate::correlate::plan::Plan;
use crate::error::Result;

/// Elements that a thread writes at once.
const READ: usize = 1 << 14;

/// Counts of samples since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Samples counted for all baselines alike, in blocks without a mask.
    pub(super) all: u64,
    /// Whether the device holds further counts, of blocks with a mask.
    pub(super) some: bool,
}

/// State needed to read sums and counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) plan: &'a Plan,
    pub(super) sums: &'a Sums,
    pub(super) masks: &'a Masks,
    pub(super) clock: Clock,
    pub(super) counted: Counted,
}

impl Reader<'_> {
    /// Reads the sums of whole channels from `first` on. 32-bit sums are widened on the host, because their transfer
    /// takes half the time.
    pub(super) fn sums<N, T>(
        &self,
        outbox: &mut Outbox,
        first: usize,
        output: &mut [Complex<T>],
    ) -> Result<()>
    where
        N: Pod + Sync + Into<T>,
        T: Pod + Send + Sync + Add<Output = T>,
    {
        let (clock, pairs) = (self.clock, self.plan.pairs());
        if !clock.is_pending() && !clock.is_settled() {
            output.fill(Complex { re: T::zeroed(), im: T::zeroed() });
            return Ok(());
        }
        let start = first * self.plan.baselines();
        let elements = start..start + output.len() / pairs;
        outbox.bring(
            elements,
            self.sums.words(clock),
            &mut |range, to, stream| self.sums.read(clock, (range.start, range.len()), to, stream),
            &mut |range, words, (threads, workers)| {
                let to = &mut output[(range.start - start) * pairs..][..range.len() * pairs];
                if clock.is_settled() {
                    let from: &[Complex<T>] = bytemuck::cast_slice(words);
                    threads.for_each_chunk(workers, to, READ, |(), index, to| {
                        to.copy_from_slice(&from[index * READ..][..to.len()]);
                    });
                } else {
                    let from: &[Complex<N>] = bytemuck::cast_slice(words);
                    threads.for_each_chunk(workers, to, READ, |(), index, to| {
                        // Turns -0.0 into 0.0, so that the bits do not depend on the split of the stream.
                        let wide = |sum: N| T::zeroed() + sum.into();
                        for (to, from) in to.iter_mut().zip(&from[index * READ..]) {
                            *to = Complex { re: wide(from.re), im: wide(from.im) };
                        }
                    });
                }
            },
        )
    }

    /// Reads the counts of whole channels from `first` on.
    pub(super) fn counts(
        &self,
        outbox: &mut Outbox,
        first: usize,
        counts: &mut [u64],
    ) -> Result<()> {
        let all = self.counted.all;
        if !self.counted.some {
            counts.fill(all);
            return Ok(());
        }
        let start = first * self.plan.baselines();
        outbox.bring(
            start..start + counts.len(),
            1,
            &mut |range, to, stream| {
                let bytes = range.len() * size_of::<u64>();
                // SAFETY: source and destination hold this many counts.
                unsafe { stream.copy_within(self.masks.at(range.start), to, bytes) }
            },
            &mut |range, words, (threads, workers)| {
                let to = &mut counts[range.start - start..][..range.len()];
                threads.for_each_chunk(workers, to, READ, |(), index, to| {
                    for (to, count) in to.iter_mut().zip(&words[index * READ..]) {
                        *to = all + count;
                    }
                });
            },
        )
    }
}

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
