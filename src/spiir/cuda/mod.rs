//! SPIIR filter bank on a GPU: states in registers, inputs of all rates in ring buffers, one filter launch for all
//! rates.
//!
//! Invariant: the same bits for any split of a stream; `enqueue` allocates nothing.
#![allow(unsafe_code)]

mod assign;
mod bank;
mod kernels;
mod pack;
mod passes;

use num_complex::Complex;

use super::plan::Plan;
use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use bank::{Bank, Job, PIECE};
pub use kernels::kernels;

/// Filter plan bound to a device.
#[derive(Debug)]
pub(super) struct Engine {
    device: Device,
    threads: Threads,
    bank: Bank,
    /// Host-side staging buffers; `None` until the first call with host memory.
    staging: Option<Box<Staging>>,
    /// Largest piece of host memory in samples.
    most: usize,
    templates: usize,
    latency: u64,
    /// Samples of the stream so far.
    taken: u64,
    /// Whether the device holds the state of an earlier stream, or none.
    stale: bool,
    /// Last queued work, on any stream.
    last: Event,
}

impl Engine {
    pub(super) fn new(plan: &Plan, device: &Device, threads: &Threads) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            threads: threads.clone(),
            bank: Bank::new(plan, device, threads)?,
            staging: None,
            most: usize::MAX,
            templates: plan.templates(),
            latency: plan.latency() as u64,
            taken: 0,
            stale: true,
            last: device.event()?,
        })
    }

    /// Returns the host bytes per sample of a piece.
    pub(super) fn staged_bytes(&self) -> usize {
        Staging::bytes(self.templates)
    }

    /// Limits pieces of host memory to `samples` samples.
    pub(super) fn limit(&mut self, samples: usize) {
        self.most = samples.max(1);
    }

    pub(super) fn reset(&mut self) {
        (self.taken, self.stale) = (0, true);
    }

    /// Saves the stream's state after all queued work has finished.
    pub(super) fn save(&self, to: &mut Saving) -> Result<()> {
        to.part("GPU");
        // Before the first samples the device may hold another stream's state.
        if self.taken == 0 { Ok(()) } else { self.bank.save(self.taken, to) }
    }

    /// Loads the state of a stream of which `taken` samples were filtered.
    pub(super) fn load(&mut self, from: &mut Saved<'_>, taken: u64) -> Result<()> {
        from.part("GPU")?;
        self.reset();
        if taken > 0 {
            self.bank.load(from, taken)?;
            (self.taken, self.stale) = (taken, false);
        }
        Ok(())
    }

    /// Filters samples of whitened strain and writes the ratios known so far to `output` (template, time).
    pub(super) fn run(
        &mut self,
        input: &[f32],
        output: &mut [Complex<f32>],
        stride: usize,
    ) -> Result<usize> {
        let mut staging = match self.staging.take() {
            Some(staging) => staging,
            None => {
                Box::new(Staging::new(&self.device, (self.templates, self.most), &self.threads)?)
            }
        };
        let done = self.run_staged(&mut staging, input, (output, stride));
        staging.forget();
        self.staging = Some(staging);
        done
    }

    fn run_staged(
        &mut self,
        staging: &mut Staging,
        input: &[f32],
        (output, stride): (&mut [Complex<f32>], usize),
    ) -> Result<usize> {
        staging.compute.wait(&self.last)?;
        let mut produced = 0;
        for samples in input.chunks(staging.piece()) {
            let (input, ratios) = staging.copy_in(samples)?;
            let known = self.known();
            let end = (self.taken + samples.len() as u64).max(self.latency);
            let new = (end - known) as usize;
            // Rows in the staging buffer are contiguous.
            self.filter((input, samples.len()), (ratios, new), &staging.compute)?;
            staging.copy_out((produced, new), output, stride)?;
            produced += new;
        }
        staging.compute.record(&self.last)?;
        staging.hand_over(output, stride)?;
        Ok(produced)
    }

    /// Returns the sample number of the next ratio.
    fn known(&self) -> u64 {
        self.taken.max(self.latency)
    }

    /// Queues the filtering of samples in device memory.
    fn filter(
        &mut self,
        (input, times): (u64, usize),
        (output, stride): (u64, usize),
        stream: &Stream,
    ) -> Result<()> {
        if self.stale {
            self.bank.clear(stream)?;
            self.stale = false;
        }
        let known = self.known();
        let most = self.bank.piece();
        for first in (0..times).step_by(most) {
            let piece = most.min(times - first);
            let job = Job {
                input: input + 4 * first as u64,
                begin: self.taken,
                times: piece,
                known: self.known(),
                output: output + 8 * (self.known() - known),
                stride,
            };
            self.bank.launch(&job, stream)?;
            self.taken += piece as u64;
        }
        Ok(())
    }

    /// Like `run`, for samples in device memory.
    pub(super) fn enqueue(
        &mut self,
        (input, first): (&Buffer<f32>, usize),
        times: usize,
        (output, at, stride): (&mut Buffer<Complex<f32>>, usize, usize),
        stream: &Stream,
    ) -> Result<usize> {
        input.check_on(&self.device)?;
        output.check_on(&self.device)?;
        let end = first.saturating_add(times);
        if end > input.len() {
            let what = "input on the device (samples)";
            return Err(Error::Shape { what, expected: end, actual: input.len() });
        }
        let known = self.known();
        let produced = ((self.taken + times as u64).max(self.latency) - known) as usize;
        let rows = (self.templates - 1).saturating_mul(stride).saturating_add(produced);
        let end = at.saturating_add(rows);
        if produced > 0 && end > output.len() {
            let what = "output on the device (template, time)";
            return Err(Error::Shape { what, expected: end, actual: output.len() });
        }
        stream.wait(&self.last)?;
        let row = output.at(at.min(output.len()));
        self.filter((input.at(first), times), (row, stride), stream)?;
        stream.record(&self.last)?;
        Ok(produced)
    }
}

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
struct Staging {
    slots: [Slot; 2],
    inward: Stream,
    compute: Stream,
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
    fn new(device: &Device, (templates, most): (usize, usize), threads: &Threads) -> Result<Self> {
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
    fn bytes(templates: usize) -> usize {
        2 * (size_of::<f32>() + templates * size_of::<Complex<f32>>())
    }

    /// Returns the most samples of a piece.
    fn piece(&self) -> usize {
        self.piece
    }

    /// Queues the copy of samples to the device. Returns the addresses of the samples and of their ratios, valid on
    /// the compute stream.
    fn copy_in(&mut self, samples: &[f32]) -> Result<(u64, u64)> {
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
    fn copy_out(
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
    fn forget(&mut self) {
        self.pending = None;
    }

    /// Delivers the pending ratios to the caller.
    fn hand_over(&mut self, output: &mut [Complex<f32>], stride: usize) -> Result<()> {
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
