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
use crate::backend::cuda::{Buffer, Device, DownloadRing, Event, Stream, UploadRing};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use bank::{Bank, Job, PIECE};
pub use kernels::kernels;
pub(crate) use kernels::resample;

/// Bytes of the ratios of one piece of host memory.
const OUTPUT_BYTES: usize = 32 << 20;
/// Fewest samples of a piece.
const MIN_PIECE: usize = 64;
/// Pieces in flight.
const SLOTS: usize = 2;

/// Samples of whitened strain in device memory.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSamples<'a> {
    /// Memory that holds them.
    pub buffer: &'a Buffer<f32>,
    /// Element of the first sample.
    pub first: usize,
    /// Number of samples.
    pub times: usize,
}

/// Rows of signal-to-noise ratios in device memory, one per template.
#[derive(Debug)]
pub struct DeviceOutput<'a> {
    /// Memory that holds them.
    pub buffer: &'a mut Buffer<Complex<f32>>,
    /// Element of the first template's first ratio.
    pub first: usize,
    /// Elements between rows.
    pub stride: usize,
}

/// Filter plan bound to a device.
#[derive(Debug)]
pub(super) struct Engine {
    device: Device,
    threads: Threads,
    bank: Bank,
    /// Buffers for host memory; `None` until the first call with it.
    staging: Option<Box<Staging>>,
    /// Largest piece of host memory in samples.
    max_piece: usize,
    templates: usize,
    latency: u64,
    /// Samples of the stream so far.
    taken: u64,
    /// Whether the device holds the state of an earlier stream, or none.
    stale: bool,
    /// Last queued work, on any stream.
    last: Event,
}

/// Buffers that copy samples to the device and ratios back; a download holds a range of each output row.
#[derive(Debug)]
struct Staging {
    uploads: UploadRing<f32>,
    downloads: DownloadRing<Complex<f32>>,
    work: Stream,
    workers: Vec<()>,
}

impl Engine {
    pub(super) fn new(plan: &Plan, device: &Device, threads: &Threads) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            threads: threads.clone(),
            bank: Bank::new(plan, device, threads)?,
            staging: None,
            max_piece: usize::MAX,
            templates: plan.templates(),
            latency: plan.latency() as u64,
            taken: 0,
            stale: true,
            last: device.event()?,
        })
    }

    /// Returns the host bytes per sample of a piece.
    pub(super) fn staged_bytes(&self) -> usize {
        SLOTS * (size_of::<f32>() + self.templates * size_of::<Complex<f32>>())
    }

    /// Limits pieces of host memory to `samples` samples.
    pub(super) fn limit(&mut self, samples: usize) {
        self.max_piece = samples.max(1);
    }

    pub(super) fn reset(&mut self) {
        (self.taken, self.stale) = (0, true);
    }

    /// Saves the stream's state after all queued work has finished.
    pub(super) fn save(&self, to: &mut Saving) -> Result<()> {
        to.part("GPU");
        // Before the first samples the device may hold another stream's state.
        if self.taken == 0 { Ok(()) } else { self.bank.save(&self.device, self.taken, to) }
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
            None => Box::new(self.staging()?),
        };
        let produced = self.run_staged(&mut staging, input, output, stride);
        if produced.is_err() {
            staging.downloads.discard();
        }
        self.staging = Some(staging);
        produced
    }

    fn staging(&self) -> Result<Staging> {
        let (device, templates) = (&self.device, self.templates);
        let piece = (OUTPUT_BYTES / 8 / templates).clamp(MIN_PIECE, PIECE).min(self.max_piece);
        Ok(Staging {
            uploads: UploadRing::new(device, piece, SLOTS)?,
            downloads: DownloadRing::new(device, templates * piece, SLOTS)?,
            work: device.stream()?,
            workers: vec![(); self.threads.count()],
        })
    }

    fn run_staged(
        &mut self,
        staging: &mut Staging,
        input: &[f32],
        output: &mut [Complex<f32>],
        stride: usize,
    ) -> Result<usize> {
        staging.work.wait(&self.last)?;
        let mut produced = 0;
        for samples in input.chunks(staging.uploads.elements()) {
            if staging.downloads.is_full() {
                self.deliver(staging, output, stride)?;
            }
            let Staging { uploads, downloads, work, .. } = staging;
            let fill = |host: &mut [f32]| host.copy_from_slice(samples);
            let from = uploads.upload(samples.len(), work, fill)?.address();
            let to = downloads.target(work)?.address();
            let fresh = self.fresh(samples.len());
            // Rows of a download are contiguous.
            self.filter(from, samples.len(), to, fresh, work)?;
            uploads.release(work)?;
            downloads.send(produced..produced + fresh, self.templates * fresh, work)?;
            produced += fresh;
        }
        staging.work.record(&self.last)?;
        while self.deliver(staging, output, stride)? {}
        Ok(produced)
    }

    /// Copies the oldest ratios to the output rows; returns whether there were any.
    fn deliver(
        &self,
        staging: &mut Staging,
        output: &mut [Complex<f32>],
        stride: usize,
    ) -> Result<bool> {
        let Some((range, ratios)) = staging.downloads.receive()? else { return Ok(false) };
        if !range.is_empty() {
            self.threads.for_each_chunk(
                &mut staging.workers,
                output,
                stride,
                |(), template, row| {
                    row[range.clone()]
                        .copy_from_slice(&ratios[template * range.len()..][..range.len()]);
                },
            );
        }
        Ok(true)
    }

    /// Returns the sample number of the next ratio.
    fn known(&self) -> u64 {
        self.taken.max(self.latency)
    }

    /// Returns the number of ratios that the next `times` samples produce.
    fn fresh(&self, times: usize) -> usize {
        ((self.taken + times as u64).max(self.latency) - self.known()) as usize
    }

    /// Queues the filtering of `times` samples at device address `input` to rows at `output`.
    fn filter(
        &mut self,
        input: u64,
        times: usize,
        output: u64,
        stride: usize,
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
        input: DeviceSamples<'_>,
        output: DeviceOutput<'_>,
        stream: &Stream,
    ) -> Result<usize> {
        let DeviceSamples { buffer: samples, first, times } = input;
        let DeviceOutput { buffer: ratios, first: start, stride } = output;
        samples.check_on(&self.device)?;
        ratios.check_on(&self.device)?;
        let end = first.saturating_add(times);
        if end > samples.len() {
            let what = "input on the device (samples)";
            return Err(Error::Shape { what, expected: end, actual: samples.len() });
        }
        let produced = self.fresh(times);
        let rows = (self.templates - 1).saturating_mul(stride).saturating_add(produced);
        let end = start.saturating_add(rows);
        if produced > 0 && end > ratios.len() {
            let what = "output on the device (template, time)";
            return Err(Error::Shape { what, expected: end, actual: ratios.len() });
        }
        stream.wait(&self.last)?;
        let row = ratios.at(start.min(ratios.len()));
        self.filter(samples.at(first), times, row, stride, stream)?;
        stream.record(&self.last)?;
        Ok(produced)
    }
}
