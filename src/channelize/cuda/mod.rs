//! Polyphase filter bank on a GPU: a fused kernel where the plan has one, the general path otherwise.
//!
//! Invariant: the same bits for any split of a stream.
#![allow(unsafe_code)]

mod candidates;
mod forms;
mod fused;
mod general;
mod host;
mod job;
mod launcher;
mod rows;
mod sample_cache;
mod shape;
mod split;
mod sums;
mod variants;

use super::plan::{Output, Plan};
use crate::backend::cuda::{Buffer, Device, Stream};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::voltage::Voltages;
use host::Host;
pub use job::DeviceVoltages;
use launcher::Launcher;
pub use rows::{Joining, RowJoiner};
pub use variants::kernels;

/// A plan bound to a GPU.
#[derive(Debug)]
pub(super) struct Engine {
    launcher: Launcher,
    host: Host,
    device: Device,
}

impl Engine {
    pub(super) fn new(plan: &Plan, device: &Device, threads: &Threads) -> Result<Self> {
        Ok(Self {
            launcher: Launcher::new(plan, device)?,
            host: Host::new(plan, device, threads)?,
            device: device.clone(),
        })
    }

    /// Returns the device.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the counts of saturated values, or zeros if the device has failed, which `run` reports.
    pub(super) fn saturated(&self) -> Vec<u64> {
        self.launcher.saturated()
    }

    pub(super) fn reset(&mut self) {
        self.launcher.reset();
    }

    /// Consumes all samples and writes the rows they complete to the front of the output.
    pub(super) fn run(&mut self, input: Voltages<'_>, output: Output<'_>) -> Result<()> {
        let output: &mut [u8] = match output {
            Output::Complex(values) => bytemuck::cast_slice_mut(values),
            Output::F32(values) => bytemuck::cast_slice_mut(values),
            Output::Bytes(bytes) => bytes,
        };
        self.host.run(&mut self.launcher, input, output)
    }

    /// Checks that the buffers are on this device and hold the plan's streams as `layout` says.
    pub(super) fn check(
        &self,
        input: &Buffer<u8>,
        layout: DeviceVoltages,
        output: &Buffer<u8>,
    ) -> Result<()> {
        if input.device() != &self.device || output.device() != &self.device {
            let rule = format!("the plan is bound to device {}", self.device.ordinal());
            return Err(Error::parameter("buffer", "on another CUDA device", rule));
        }
        let plan = self.launcher.plan().input();
        let (encoding, streams) = (plan.encoding, plan.streams());
        let whole = layout.times.next_multiple_of(encoding.samples_per_byte());
        crate::view::check_length("times, rounded up to whole bytes", whole, layout.times)?;
        let row = encoding.bytes(layout.times);
        if row > layout.stride && streams > 1 {
            let (expected, actual) = (row, layout.stride);
            return Err(Error::Shape { what: "stride (bytes)", expected, actual });
        }
        let rows = (streams - 1).saturating_mul(layout.stride);
        let expected = layout.first_byte.saturating_add(rows).saturating_add(row);
        if expected > input.len() {
            let actual = input.len();
            return Err(Error::Shape { what: "voltages (bytes)", expected, actual });
        }
        Ok(())
    }

    /// Like [`Engine::run`] for samples in device memory that passed [`Engine::check`]. `output` is an address with
    /// space for the completed rows.
    pub(super) fn enqueue(
        &mut self,
        input: &Buffer<u8>,
        layout: DeviceVoltages,
        output: u64,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: `check` has found the samples inside the input buffer, and the output has space for their rows.
        unsafe { self.launcher.enqueue(input.address(), layout, output, stream) }
    }
}
