//! The filter bank on a GPU: one fused kernel where there is one for the plan, three steps for all others.
//!
//! Invariant: the same bits for any split of a stream.
#![allow(unsafe_code)]

mod candidates;
mod detected;
mod forms;
mod fused;
mod general;
mod host;
mod job;
mod kept;
mod launcher;
mod rows;
mod shape;
mod split;
mod sums;
mod variants;

use super::output::Output;
use super::plan::Plan;
use crate::backend::cuda::{Buffer, Device, Stream};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::voltage::Voltages;
use host::Host;
use launcher::Launcher;
pub use rows::{Joining, RowJoiner};
pub use variants::kernels;

/// Where the voltages of every stream lie in a device's buffer: stream `s` has its samples from byte
/// `first_byte + s * stride` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceVoltages {
    /// The first stream's first byte.
    pub first_byte: usize,
    /// Bytes from stream to stream.
    pub stride: usize,
    /// Samples of each stream.
    pub times: usize,
}

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

    /// Where it runs.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Counts of limited samples; of a device that has failed, as `run` says, none.
    pub(super) fn saturated(&self) -> Vec<u64> {
        self.launcher.saturated()
    }

    pub(super) fn reset(&mut self) {
        self.launcher.reset();
    }

    /// Takes all samples and writes the rows that they finish to the front of the output.
    pub(super) fn run(&mut self, input: Voltages<'_>, output: Output<'_>) -> Result<()> {
        let output: &mut [u8] = match output {
            Output::Complex(values) => bytemuck::cast_slice_mut(values),
            Output::F32(values) => bytemuck::cast_slice_mut(values),
            Output::Bytes(bytes) => bytes,
        };
        self.host.run(&mut self.launcher, input, output)
    }

    /// Whether these are samples of the plan's streams in this device's memory, as many as `layout` says.
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

    /// Queues what [`Engine::run`] does for samples in the device's memory, which [`Engine::check`] has seen; there
    /// is room for their rows from the address `output` on.
    pub(super) fn enqueue(
        &mut self,
        input: &Buffer<u8>,
        layout: DeviceVoltages,
        output: u64,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the samples lie in the input, as `check` found, and the output has room for their rows.
        unsafe { self.launcher.enqueue((input.address(), layout), output, stream) }
    }
}
