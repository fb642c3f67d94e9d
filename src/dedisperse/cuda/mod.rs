//! The same sums on a GPU: history by channel on the device, sums that trials share, copies beside kernels.
//!
//! Invariant: `load`, `emit` and what they queue allocate nothing.
#![allow(unsafe_code)]

mod fast;
mod general;
mod job;
mod loader;
mod record;
mod shape;
mod sharing;
mod staging;
mod table;
#[cfg(test)]
mod tests;
mod variants;

use super::plan::Plan;
use crate::backend::cuda::{Buffer, Device, Event, Plane, Stream};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::sample::Samples;
use crate::view::PlaneMut;
use fast::Fast;
use general::General;
use job::Job;
use loader::History;
use staging::Staging;
pub use variants::kernels;

/// A plan bound to a device.
#[derive(Debug)]
pub(super) struct Engine {
    device: Device,
    /// Both, where the fast kernel leaves trials to the general one.
    fast: Option<Fast>,
    general: Option<General>,
    history: History,
    /// The host's side; none before the first use of the host's memory.
    staging: Option<Box<Staging>>,
    sizes: Sizes,
    threads: Threads,
    /// What was queued last, on whatever stream.
    last: Event,
    /// Input rows so far.
    rows: u64,
    /// Output times so far.
    emitted: u64,
    downsample: u64,
    /// The longest delay, in output samples.
    longest: u64,
    bias: u32,
}

/// Sizes of blocks, in output times.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    dms: usize,
    row_bytes: usize,
    /// Of a block that goes to the host.
    host: usize,
    /// Of a block that stays on the device.
    device: usize,
}

/// Bytes of the plane of one block that goes to the host.
const PLANE_BYTES: usize = 64 << 20;

/// Bytes of the input of one block that stays on the device.
const BLOCK_BYTES: usize = 256 << 20;

/// Blocks are multiples of so many output times.
const STEP: usize = 512;

impl Sizes {
    fn new(plan: &Plan, lane_bytes: usize) -> Self {
        let dms = plan.dms().len();
        let host = (PLANE_BYTES / (4 * dms)).clamp(STEP, 1 << 15) / STEP * STEP;
        let row_bytes = plan.channels() * plan.encoding().bits() / 8;
        let held = plan.channels_used().len() * lane_bytes;
        let device = (BLOCK_BYTES / held).clamp(host, (1 << 17).max(host)) / STEP * STEP;
        Self { dms, row_bytes, host, device }
    }

    /// With blocks so small that the history leaves room for the rest of the work, unless the longest delay is most
    /// of it.
    fn within(mut self, free: usize, plan: &Plan) -> Self {
        let is_large = |sizes: &Self| {
            loader::bytes(plan, sizes.capacity(plan)).is_none_or(|bytes| bytes > free / 4)
        };
        while self.device > self.host && 2 * self.device > plan.max_shift() && is_large(&self) {
            self.device = (self.device / 2 / STEP * STEP).max(self.host);
        }
        // Blocks that go to the host get shorter last.
        while self.host > STEP && is_large(&self) && self.device == self.host {
            self.host = (self.host / 2 / STEP * STEP).max(STEP);
            self.device = self.host;
        }
        self
    }

    /// Output times that the history holds: the longest delay, a block, and a block to be moved seldom.
    fn capacity(&self, plan: &Plan) -> u64 {
        (plan.max_shift() + 2 * self.device + 2 * STEP) as u64
    }
}

impl Engine {
    pub(super) fn new(plan: &Plan, device: &Device, threads: &Threads) -> Result<Self> {
        let sizes = Sizes::new(plan, plan.lane(1).bytes()).within(device.free_bytes()?, plan);
        Self::sized(plan, device, threads, sizes)
    }

    fn sized(plan: &Plan, device: &Device, threads: &Threads, sizes: Sizes) -> Result<Self> {
        let capacity = sizes.capacity(plan);
        check_memory(plan, device, capacity)?;
        let history = History::new(plan, capacity, device)?;
        let fast = Fast::new(plan, device, (history.pitch(), threads))?;
        let all: Vec<usize> = (0..plan.dms().len()).collect();
        let left = fast.as_ref().map_or(&all[..], Fast::left);
        let general = |trials| General::new(plan, trials, device, threads);
        let general = (!left.is_empty()).then(|| general(left)).transpose()?;
        let samples = plan.channels_used().len() as i64 * plan.downsample() as i64;
        Ok(Self {
            device: device.clone(),
            fast,
            general,
            history,
            staging: None,
            sizes,
            threads: threads.clone(),
            last: device.event()?,
            rows: 0,
            emitted: 0,
            downsample: plan.downsample() as u64,
            longest: plan.max_shift() as u64,
            bias: (i64::from(plan.range().0) * samples) as u32,
        })
    }

    /// The most output times in one call of [`Engine::emit`].
    pub(super) fn block_times(&self) -> usize {
        self.sizes.host
    }

    /// The most output times in one call of [`Engine::emit_on_device`].
    pub(super) fn device_block_times(&self) -> usize {
        self.sizes.device
    }

    /// Forgets the stream.
    pub(super) fn reset(&mut self) {
        (self.rows, self.emitted) = (0, 0);
        self.history.reset();
        // Its memory is free for others until rows come from the host again.
        if let Some(staging) = self.staging.take() {
            // A fault shows in the next call.
            let _ = staging.compute.synchronize();
        }
    }

    /// Takes input rows from the host's memory: the device loads them while the caller goes on.
    pub(super) fn load(&mut self, input: Samples<'_>) -> Result<()> {
        let mut staging = self.take_staging()?;
        let done = self.load_staged(&mut staging, input);
        self.staging = Some(staging);
        done
    }

    fn load_staged(&mut self, staging: &mut Staging, input: Samples<'_>) -> Result<()> {
        for start in (0..input.times()).step_by(staging.rows()) {
            let rows = staging.rows().min(input.times() - start);
            let address = staging.copy_in(input.slice(start, rows).bytes())?;
            self.load_rows((address, rows), &staging.compute)?;
            staging.taken()?;
        }
        Ok(())
    }

    /// Makes the host's side at the first use; work that other streams were given comes first.
    fn take_staging(&mut self) -> Result<Box<Staging>> {
        let staging = match self.staging.take() {
            Some(staging) => staging,
            None => {
                let Sizes { dms, row_bytes, host, .. } = self.sizes;
                Box::new(Staging::new(&self.device, row_bytes, (dms, host), &self.threads)?)
            }
        };
        staging.compute.wait(&self.last)?;
        Ok(staging)
    }

    fn load_rows(&mut self, (address, rows): (u64, usize), stream: &Stream) -> Result<()> {
        self.history.load((address, rows), (self.rows, self.emitted), stream)?;
        self.rows += rows as u64;
        Ok(())
    }

    /// Makes the next `times` output times of every trial, for `column` of the caller's plane: they stand
    /// there after [`Engine::finish`].
    pub(super) fn emit<T: bytemuck::Pod + Send + Sync>(
        &mut self,
        times: usize,
        output: &mut PlaneMut<'_, T>,
        column: usize,
    ) -> Result<()> {
        let mut staging = self.take_staging()?;
        let done = staging.target().and_then(|target| {
            self.sum((target, times), times, &staging.compute)?;
            staging.copy_out(times, output, column)
        });
        self.staging = Some(staging);
        done
    }

    /// Hands all that was made to the caller.
    pub(super) fn finish<T: bytemuck::Pod + Send + Sync>(
        &mut self,
        output: &mut PlaneMut<'_, T>,
    ) -> Result<()> {
        let Some(staging) = &mut self.staging else { return Ok(()) };
        staging.compute.record(&self.last)?;
        staging.hand_over(output)
    }

    /// Queues the load of input rows that lie on the device.
    pub(super) fn load_on_device(
        &mut self,
        (input, first_byte): (&Buffer<u8>, usize),
        rows: usize,
        stream: &Stream,
    ) -> Result<()> {
        input.check_on(&self.device)?;
        let end = first_byte.saturating_add(rows.saturating_mul(self.sizes.row_bytes));
        if end > input.len() {
            let what = "input on the device (bytes)";
            return Err(Error::Shape { what, expected: end, actual: input.len() });
        }
        stream.wait(&self.last)?;
        self.load_rows((input.at(first_byte), rows), stream)?;
        stream.record(&self.last)
    }

    /// Queues the next `times` output times of every trial, at `column` of a plane on the device.
    pub(super) fn emit_on_device(
        &mut self,
        times: usize,
        (output, column): (&mut Plane, usize),
        stream: &Stream,
    ) -> Result<()> {
        output.words.check_on(&self.device)?;
        stream.wait(&self.last)?;
        self.sum((output.words.at(column), output.stride), times, stream)?;
        stream.record(&self.last)
    }

    /// Queues the sums of the next `times` output times, `stride` words from trial to trial.
    fn sum(&mut self, output: (u64, usize), times: usize, stream: &Stream) -> Result<()> {
        let job = Job {
            input: self.history.at(self.emitted),
            pitch: self.history.pitch(),
            times,
            output: output.0,
            output_stride: output.1,
            offset: self.bias as i32,
        };
        let available = self.rows / self.downsample - self.emitted;
        if let Some(fast) = &self.fast {
            fast.launch(&job, stream)?;
            if available < times as u64 + self.longest {
                self.history.clear_past(output, (available, times), stream)?;
            }
        }
        if let Some(general) = &self.general {
            general.launch(&job, available, stream)?;
        }
        self.emitted += times as u64;
        Ok(())
    }
}

/// Refuses a plan whose history the device has no room for, with what is needed and what is free.
fn check_memory(plan: &Plan, device: &Device, capacity: u64) -> Result<()> {
    let free = device.free_bytes()?;
    let bytes = loader::bytes(plan, capacity);
    if bytes.is_some_and(|bytes| bytes <= free) {
        return Ok(());
    }
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    let needed =
        bytes.map_or("more than can be counted".to_owned(), |bytes| mib(bytes).to_string());
    Err(Error::Unavailable {
        what: format!("{needed} MiB of memory on CUDA device {}", device.ordinal()),
        why: format!(
            "the longest delay of {} samples and a block of {} channels need so much, and {} MiB are free: \
             sum more samples to one, or end the trials at a lower dispersion measure",
            plan.max_shift(),
            plan.channels_used().len(),
            mib(free)
        ),
    })
}
