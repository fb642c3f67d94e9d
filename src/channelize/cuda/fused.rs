//! Launches the kernel that filters, transforms and forms the output in one pass.
//!
//! Invariant: a spectrum's value depends on the samples under its window and on nothing else.

use super::job::Job;
use crate::backend::cuda::{Device, Stream};
use crate::channelize::plan::Plan;
use crate::error::Result;

/// The fused kernel of a plan, and its tables on the device.
#[derive(Debug)]
pub(super) struct Fused {
    device: Device,
}

impl Fused {
    /// None when this plan or device has no fused kernel.
    pub(super) fn new(plan: &Plan, device: &Device) -> Result<Option<Self>> {
        let _ = (plan, device);
        Ok(None)
    }

    /// Queues `job.spectra` spectra of every stream.
    ///
    /// # Safety
    /// The job's addresses have room for all that its sizes say.
    pub(super) unsafe fn enqueue(&self, stream: &Stream, job: &Job) -> Result<()> {
        let _ = (stream, job, &self.device);
        Ok(())
    }
}
