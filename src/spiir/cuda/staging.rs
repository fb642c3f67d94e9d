//! Host-side staging: two sets of page-locked buffers, so that input copies, kernels and output copies overlap.

use num_complex::Complex;

use super::tuning::PIECE;
use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::backend::threads::Threads;
use crate::error::Result;

/// Bytes of the ratios of one piece.
const OUTPUT_BYTES: usize = 32 << 20;
/// Fewest samples of a piece.
const LEAST: usize = 64;

/// One set of buffers: samples to the device and ratios to the host.
#[derive(Debug)]
struct Slot {
    input: Pinned<f32>,
    samples: Buffer<f32>,
    ratios: Buffer<Complex<f32>>,
    output: Pinned<Complex<f32>>,
    /// Recorded when the samples are on the device.
    copied_in: Event,
    /// Recorded when the ratios are computed.
    made: Event,
    /// Recorded when the ratios are on the host.
    copied_out: Event,
}

/// Ratios not yet delivered to the caller: their slot, offset in each output row, and count.
#[derive(Clone, Copy, Debug)]
struct Pending {
    slot: usize,
    at: usize,
    ratios: usize,
}

/// Staging buffers and streams of an engine.
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
    /// Allocates buffers for pieces of at most `most` samples.
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

    /// Returns the host bytes per sample of a piece.
    pub(super) fn bytes(templates: usize) -> usize {
        2 * (size_of::<f32>() + templates * size_of::<Complex<f32>>())
    }

    /// Returns the most samples of a piece.
    pub(super) fn piece(&self) -> usize {
        self.piece
    }

    /// Queues the copy of samples to the device. Returns the addresses of the samples and of their ratios, valid on
    /// the compute stream.
    pub(super) fn copy_in(&mut self, samples: &[f32]) -> Result<(u64, u64)> {
        let slot = &mut self.slots[self.next];
        slot.copied_in.synchronize()?;
        // Also waits for the kernels that read this slot's previous samples.
        slot.made.synchronize()?;
        slot.input.as_mut_slice()[..samples.len()].copy_from_slice(samples);
        // SAFETY: the buffer is not touched before `copied_in` has passed.
        unsafe { self.inward.copy_in(&slot.input, 0..samples.len(), &mut slot.samples, 0)? };
        self.inward.record(&slot.copied_in)?;
        self.compute.wait(&slot.copied_in)?;
        self.compute.wait(&slot.copied_out)?;
        Ok((slot.samples.address(), slot.ratios.address()))
    }

    /// Queues the copy of each template's new ratios to the host, for offset `at` of its row, and meanwhile delivers
    /// the previous ratios to the caller.
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

    /// Discards pending ratios.
    pub(super) fn forget(&mut self) {
        self.pending = None;
    }

    /// Delivers the pending ratios to the caller.
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
