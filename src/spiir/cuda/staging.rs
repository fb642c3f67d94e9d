//! The host's side: page-locked buffers, two of each, so that copies in, kernels and copies out overlap.

use num_complex::Complex;

use super::bank::PIECE;
use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::backend::threads::Threads;
use crate::error::Result;

/// Bytes of the ratios of one piece.
const OUTPUT_BYTES: usize = 32 << 20;
/// Fewest samples of a piece.
const LEAST: usize = 64;

/// Samples on their way in, ratios on their way out.
#[derive(Debug)]
struct Slot {
    input: Pinned<f32>,
    samples: Buffer<f32>,
    ratios: Buffer<Complex<f32>>,
    output: Pinned<Complex<f32>>,
    /// The samples stand on the device.
    copied_in: Event,
    /// The ratios stand on the device.
    made: Event,
    /// They have been copied to the host.
    copied_out: Event,
}

/// Ratios that the caller has not got yet: their slot, place in each row, and number.
#[derive(Clone, Copy, Debug)]
struct Pending {
    slot: usize,
    at: usize,
    ratios: usize,
}

/// All of the host's side.
#[derive(Debug)]
pub(super) struct Staging {
    slots: [Slot; 2],
    inward: Stream,
    pub(super) compute: Stream,
    outward: Stream,
    threads: Threads,
    workers: Vec<()>,
    templates: usize,
    piece: usize,
    next: usize,
    pending: Option<Pending>,
}

impl Staging {
    /// For pieces of at most `most` samples.
    pub(super) fn new(
        device: &Device,
        (templates, most): (usize, usize),
        threads: &Threads,
    ) -> Result<Self> {
        let piece = (OUTPUT_BYTES / 8 / templates).clamp(LEAST, PIECE).min(most);
        let slot = || {
            Ok(Slot {
                input: device.pinned(piece)?,
                samples: device.buffer(piece)?,
                ratios: device.buffer(templates * piece)?,
                output: device.pinned(templates * piece)?,
                copied_in: device.event()?,
                made: device.event()?,
                copied_out: device.event()?,
            })
        };
        Ok(Self {
            slots: [slot()?, slot()?],
            inward: device.stream()?,
            compute: device.stream()?,
            outward: device.stream()?,
            threads: threads.clone(),
            workers: vec![(); threads.count()],
            templates,
            piece,
            next: 0,
            pending: None,
        })
    }

    /// Bytes of the host for each sample of a piece.
    pub(super) fn bytes(templates: usize) -> usize {
        2 * (size_of::<f32>() + templates * size_of::<Complex<f32>>())
    }

    /// Most samples of a piece.
    pub(super) fn piece(&self) -> usize {
        self.piece
    }

    /// Queues the copy of samples to the device. Returns where they will stand for the compute stream, and where
    /// their ratios go.
    pub(super) fn copy_in(&mut self, samples: &[f32]) -> Result<(u64, u64)> {
        let slot = &mut self.slots[self.next];
        slot.copied_in.synchronize()?;
        // Kernels that read the last samples of this slot have run, too.
        slot.made.synchronize()?;
        slot.input.as_mut_slice()[..samples.len()].copy_from_slice(samples);
        // SAFETY: the buffer is not touched before `copied_in` has passed.
        unsafe { self.inward.copy_in(&slot.input, 0..samples.len(), &mut slot.samples, 0)? };
        self.inward.record(&slot.copied_in)?;
        self.compute.wait(&slot.copied_in)?;
        self.compute.wait(&slot.copied_out)?;
        Ok((slot.samples.address(), slot.ratios.address()))
    }

    /// Queues the copy of each template's new ratios to the host, for place `at` of its row; the ratios before these
    /// are handed to the caller meanwhile.
    pub(super) fn copy_out(
        &mut self,
        (at, ratios): (usize, usize),
        output: &mut [Complex<f32>],
        stride: usize,
    ) -> Result<()> {
        let slot = &mut self.slots[self.next];
        self.compute.record(&slot.made)?;
        self.outward.wait(&slot.made)?;
        let all = self.templates * ratios;
        if all > 0 {
            // SAFETY: the buffer is not touched before `copied_out` has passed.
            unsafe { self.outward.copy_out(&slot.ratios, 0..all, &mut slot.output, 0)? };
        }
        self.outward.record(&slot.copied_out)?;
        let now = Pending { slot: self.next, at, ratios };
        self.next = 1 - self.next;
        self.hand_over(output, stride)?;
        self.pending = Some(now);
        Ok(())
    }

    /// Forgets ratios that nobody waits for any more.
    pub(super) fn forget(&mut self) {
        self.pending = None;
    }

    /// Hands the ratios that wait to the caller.
    pub(super) fn hand_over(&mut self, output: &mut [Complex<f32>], stride: usize) -> Result<()> {
        let Some(Pending { slot, at, ratios }) = self.pending.take() else { return Ok(()) };
        let slot = &self.slots[slot];
        slot.copied_out.synchronize()?;
        if ratios == 0 {
            return Ok(());
        }
        let made = slot.output.as_slice();
        self.threads.for_each_chunk(&mut self.workers, output, stride, |(), template, row| {
            row[at..at + ratios].copy_from_slice(&made[template * ratios..][..ratios]);
        });
        Ok(())
    }
}
