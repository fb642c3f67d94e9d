//! Scheduling of launches. Windows that begin in samples of earlier calls are computed from cached samples with the
//! first new samples appended; all other windows read the new samples in place.
//!
//! Invariant: the sizes of the calls determine the launches, but a spectrum's bits depend only on its samples.

use super::fused::{self, Fused};
use super::general::{self, General};
use super::job::{DeviceVoltages, Job, Rows, SampleCache};
use crate::backend::cuda::{Buffer, Device, Event, Source, Stream};
use crate::channelize::plan::{Form, Plan};
use crate::error::Result;

/// Maximum bytes of samples per output row for which the fused kernel, which computes whole rows, is used.
const MAX_ROW_BYTES: usize = 1 << 30;

/// Maximum number of spectra per launch; kernels count spectra in 32 bits.
const MAX_SPECTRA: u64 = 1 << 30;

/// Minimum capacity of the sample cache in bytes, which keeps launches from the cache efficient.
const WORTH: usize = 1 << 18;

#[derive(Debug)]
enum Path {
    Fused(Box<Fused>),
    General(Box<General>),
}

/// Kernels of a plan on a GPU, and the state of the stream.
#[derive(Debug)]
pub(super) struct Launcher {
    plan: Plan,
    path: Path,
    /// Launch granularity in spectra: whole rows for the fused kernel, 1 for the general path.
    quantum: u64,
    /// Next spectrum to compute.
    next: u64,
    cache: SampleCache,
    saturated: Option<Buffer<u64>>,
    /// Whether the counts of saturated values must be zeroed first.
    is_new: bool,
    /// End of the last enqueued work, on whichever stream it ran.
    queued: Event,
}

/// Returns whether a row's samples fit the fused kernel.
fn may_be_fused(plan: &Plan) -> bool {
    let samples = plan.input().encoding.bytes(plan.hop());
    let spectrum = plan.whole_streams().saturating_mul(samples);
    spectrum.saturating_mul(plan.spectra_per_row()) <= MAX_ROW_BYTES
}

/// Lists the kernels of a plan on a device.
pub(crate) fn sources(plan: &Plan, device: &Device) -> Vec<Source> {
    let fused = if may_be_fused(plan) { fused::sources(plan, device) } else { Vec::new() };
    if fused.is_empty() { general::sources(plan, device) } else { fused }
}

impl Launcher {
    pub(super) fn new(plan: &Plan, device: &Device) -> Result<Self> {
        let sources = sources(plan, device);
        let _kernels = device.prefetch(move || sources);
        let (input, row) = (plan.input(), plan.spectra_per_row());
        let fused = if may_be_fused(plan) { Fused::new(plan, device)? } else { None };
        let (path, quantum) = match fused {
            Some(fused) => (Path::Fused(Box::new(fused)), row),
            None => (Path::General(Box::new(General::new(plan, device)?)), 1),
        };
        // Earlier samples (at most a span and a launch), and as many new samples, which complete their windows.
        let least = 2 * (plan.span() + quantum * plan.hop()) + 16;
        let worth = WORTH * 8 / input.encoding.sample_bits() / input.streams();
        let is_counted = matches!(plan.options().form, Form::Requantized { .. });
        Ok(Self {
            cache: SampleCache::new(device, input.encoding, input.streams(), least.max(worth))?,
            saturated: is_counted.then(|| device.buffer(plan.row_elements())).transpose()?,
            queued: device.event()?,
            plan: plan.clone(),
            path,
            quantum: quantum as u64,
            next: 0,
            is_new: true,
        })
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the counts of saturated values, or zeros if the device has failed, which `run` reports.
    pub(super) fn saturated(&self) -> Vec<u64> {
        let mut counts = vec![0; self.plan.row_elements()];
        if let (Some(buffer), false) = (&self.saturated, self.is_new)
            && buffer.download(0, &mut counts).is_err()
        {
            counts.fill(0);
        }
        counts
    }

    pub(super) fn reset(&mut self) {
        self.restart();
        self.is_new = true;
    }

    /// Like [`Launcher::reset`], but saturated values are counted on.
    pub(super) fn restart(&mut self) {
        self.cache.reset();
        self.next = 0;
    }

    /// Consumes all samples and enqueues the rows that they complete.
    ///
    /// # Safety
    /// The samples must lie after `input` as `layout` says, and `output` must have space for the rows they complete.
    pub(super) unsafe fn enqueue(
        &mut self,
        input: u64,
        layout: DeviceVoltages,
        output: u64,
        stream: &Stream,
    ) -> Result<()> {
        let start = self.cache.end();
        let rows = Rows {
            address: input + layout.first_byte as u64,
            stride: layout.stride,
            start,
            end: start + layout.times as u64,
        };
        if self.is_new {
            if let Some(counts) = &mut self.saturated {
                let all = 0..counts.len();
                stream.wait(&self.queued)?;
                stream.fill(counts, all, 0)?;
            }
            self.is_new = false;
        } else {
            stream.wait(&self.queued)?;
        }
        let row = self.next / self.plan.spectra_per_row() as u64;
        let target = Target { output, row };
        // SAFETY: forwards the caller's guarantee.
        let outcome = unsafe { self.advance(stream, &rows, &target) };
        stream.record(&self.queued)?;
        outcome
    }

    /// Consumes all samples; windows that lie entirely in the new samples read them in place.
    unsafe fn advance(&mut self, stream: &Stream, fresh: &Rows, target: &Target) -> Result<()> {
        let last = self.launchable(fresh.end);
        let direct = self.next_direct(fresh.start);
        if last <= direct || !self.is_aligned(fresh, direct) {
            // SAFETY: forwards the caller's guarantee.
            return unsafe { self.advance_by_copies(stream, fresh, target) };
        }
        let unit = self.plan.input().encoding.group_samples() as u64;
        // SAFETY: the caller guarantees the new samples and the output; `self` owns the cached samples.
        unsafe {
            if direct > self.next {
                let end = (direct - 1) * self.plan.hop() as u64 + self.plan.span() as u64;
                let end = end.next_multiple_of(unit).max(fresh.start);
                self.cache.append(stream, fresh, end)?;
                let cached = self.cache.rows();
                self.launch(stream, &cached, direct, target)?;
            }
            self.launch(stream, fresh, last, target)?;
            self.cache.replace(stream, fresh, last * self.plan.hop() as u64 / unit * unit)
        }
    }

    /// Consumes all samples through the cache.
    unsafe fn advance_by_copies(
        &mut self,
        stream: &Stream,
        fresh: &Rows,
        target: &Target,
    ) -> Result<()> {
        let unit = self.plan.input().encoding.group_samples() as u64;
        while self.cache.end() < fresh.end {
            let end = (self.cache.end() + self.cache.room() as u64).min(fresh.end);
            // SAFETY: the caller guarantees the new samples and the output; `self` owns the cached samples.
            unsafe {
                self.cache.append(stream, fresh, end)?;
                let last = self.launchable(end);
                if last > self.next {
                    let cached = self.cache.rows();
                    self.launch(stream, &cached, last, target)?;
                    let start = last * self.plan.hop() as u64 / unit * unit;
                    self.cache.discard(stream, start)?;
                }
            }
        }
        Ok(())
    }

    /// Returns one past the last spectrum that can be launched once `times` samples have arrived.
    fn launchable(&self, times: u64) -> u64 {
        self.plan.spectra(times) / self.quantum * self.quantum
    }

    /// Returns the first spectrum, from `next` on, whose window begins at or after sample `start`.
    fn next_direct(&self, start: u64) -> u64 {
        let first = start.div_ceil(self.plan.hop() as u64).max(self.next);
        first.next_multiple_of(self.quantum)
    }

    /// Returns whether kernels can read these rows from the start of `spectrum`.
    fn is_aligned(&self, rows: &Rows, spectrum: u64) -> bool {
        let unit = match &self.path {
            Path::Fused(_) => 16,
            Path::General(general) => general.alignment() as u64,
        };
        let (address, _) = self.first_byte(rows, spectrum);
        address.is_multiple_of(unit) && (rows.stride as u64).is_multiple_of(unit)
    }

    /// Returns the address of the byte with a spectrum's first sample, and the number of samples before it in that
    /// byte.
    fn first_byte(&self, rows: &Rows, spectrum: u64) -> (u64, usize) {
        let encoding = self.plan.input().encoding;
        let unit = encoding.group_samples();
        let samples = (spectrum * self.plan.hop() as u64 - rows.start) as usize;
        let skipped = samples % unit;
        (rows.address + encoding.bytes(samples - skipped) as u64, skipped)
    }

    /// Returns the offset from a multiple of 16 bytes at which the next block's samples should begin.
    pub(super) fn pad(&self) -> usize {
        let rows = Rows { address: 0, stride: 0, start: self.cache.end(), end: self.cache.end() };
        let (address, _) = self.first_byte(&rows, self.next_direct(rows.start));
        (address as usize).wrapping_neg() % 16
    }

    /// Returns the bytes of the rows that the next `times` samples complete.
    pub(super) fn row_bytes_after(&self, times: usize) -> usize {
        let end = self.cache.end();
        let rows = self.plan.rows(end + times as u64) - self.plan.rows(end);
        rows as usize * self.plan.row_elements() * self.plan.element_bytes()
    }

    /// Enqueues the spectra from the next one up to `last`, whose samples lie in `rows`.
    unsafe fn launch(
        &mut self,
        stream: &Stream,
        rows: &Rows,
        last: u64,
        target: &Target,
    ) -> Result<()> {
        let most = MAX_SPECTRA.next_multiple_of(self.quantum);
        while self.next < last {
            let end = last.min(self.next + most);
            // SAFETY: forwards the caller's guarantee.
            unsafe { self.launch_some(stream, rows, end, target)? };
        }
        Ok(())
    }

    unsafe fn launch_some(
        &mut self,
        stream: &Stream,
        rows: &Rows,
        last: u64,
        target: &Target,
    ) -> Result<()> {
        let (input, skipped) = self.first_byte(rows, self.next);
        let row_bytes = (self.plan.row_elements() * self.plan.element_bytes()) as u64;
        let row = self.next / self.plan.spectra_per_row() as u64;
        let job = Job {
            input,
            stride: rows.stride as u64,
            first_spectrum: self.next,
            spectra: (last - self.next) as usize,
            output: target.output + (row - target.row) * row_bytes,
            saturated: self.saturated.as_ref().map_or(0, Buffer::address),
        };
        // SAFETY: the caller guarantees the rows and the output.
        unsafe {
            match &mut self.path {
                Path::Fused(fused) => fused.enqueue(stream, &job)?,
                Path::General(general) => general.enqueue(stream, &job, skipped)?,
            }
        }
        self.next = last;
        Ok(())
    }
}

/// Output location of rows.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// Address of the first row.
    output: u64,
    /// Index of the first row.
    row: u64,
}
