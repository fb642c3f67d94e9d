//! Read-out of sums and counts to the host, in the order of baselines.

use std::ops::Add;

use bytemuck::Pod;
use num_complex::Complex;

use super::clock::Clock;
use super::masks::Masks;
use super::outbox::Outbox;
use super::sums::Sums;
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
