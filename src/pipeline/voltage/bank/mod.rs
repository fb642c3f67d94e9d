//! Filter bank, behind coherent dedispersion where it is requested, on the host, a GPU or several GPUs.
//!
//! Invariant: rows do not depend on the sizes of calls; on GPUs, within the tolerance of the stages.

mod device;
mod divided;
mod single;

use divided::Divided;
use single::Single;
pub(super) use single::{Element, Plans, row_elements};

use crate::backend::Backend;
use crate::backend::cuda::{Buffer, Device, Stream};
use crate::channelize::{Channelizer, DeviceVoltages};
use crate::error::{Error, Result};
use crate::trace::{self, Work};
use crate::view::Progress;
use crate::voltage::Voltages;

/// Filter bank of recorded voltages.
pub(super) struct FilterBank {
    bank: Bank,
    warning: Option<String>,
}

/// Filter bank on the host or a GPU, or on several GPUs.
enum Bank {
    One(Box<Single>),
    Several(Box<Divided>),
}

impl FilterBank {
    /// Binds a plan, and the dedispersion of its input, to a backend. A GPU that dedisperses also joins the rows if the plans say
    /// so, see [`FilterBank::joins`]. A GPU that cannot dedisperse, for want of cuFFT or memory, leaves that to the host. A GPU and
    /// its peers divide rows for the host; if one of them cannot dedisperse, the first GPU makes all.
    ///
    /// # Errors
    /// As [`Single::new`].
    pub(super) fn new(plans: Plans, backend: &Backend) -> Result<Self> {
        let is_coherent = plans.coherent.is_some();
        let mut warning = None;
        if backend.shares().len() > 1 {
            match Divided::new(&plans, backend) {
                Ok(divided) => {
                    return Ok(Self { bank: Bank::Several(Box::new(divided)), warning });
                }
                Err(error @ Error::Unavailable { .. }) if is_coherent => {
                    warning = Some(format!("one GPU makes all spectra, not several: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        let backend = &backend.alone();
        let single = match Single::new(plans.clone(), backend) {
            Err(error @ Error::Unavailable { .. }) if is_coherent && backend.is_gpu() => {
                let why = format!("the processor dedisperses coherently, not the GPU: {error}");
                warning = Some(why);
                Single::dedispersed_on_host(plans, backend)?
            }
            made => made?,
        };
        Ok(Self { bank: Bank::One(Box::new(single)), warning })
    }

    /// Returns the filter bank on the first device.
    fn first(&self) -> &Single {
        match &self.bank {
            Bank::One(single) => single,
            Bank::Several(divided) => divided.first(),
        }
    }

    /// Returns the filter bank itself; of several GPUs that of the first.
    pub(super) fn channelizer(&self) -> &Channelizer {
        self.first().channelizer()
    }

    /// As [`Channelizer::saturated`].
    pub(super) fn saturated(&self) -> Vec<u64> {
        match &self.bank {
            Bank::One(single) => single.channelizer().saturated(),
            Bank::Several(divided) => divided.saturated(),
        }
    }

    /// Returns why fewer devices than the backend's, or the host, do a GPU's work, if they do.
    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns the GPU that computes rows from recorded voltages in its memory, if one does by itself.
    pub(super) fn device(&self) -> Option<&Device> {
        match &self.bank {
            Bank::One(single) => single.device(),
            Bank::Several(_) => None,
        }
    }

    /// Returns the number of GPUs that compute rows.
    pub(super) fn gpus(&self) -> usize {
        match &self.bank {
            Bank::One(single) => usize::from(single.device().is_some()),
            Bank::Several(divided) => divided.gpus(),
        }
    }

    /// Returns whether rows in host memory are joined.
    pub(super) fn joins(&self) -> bool {
        self.first().joins()
    }

    /// Returns the recorded samples, after those of a row, that the row may depend on.
    pub(super) fn delay(&self) -> usize {
        self.first().coherent().map_or(0, |plan| plan.points())
    }

    /// Returns the most samples at hand on a GPU whose rows are not computed.
    pub(super) fn backlog(&self) -> usize {
        self.first().room() + self.delay()
    }

    /// Returns the samples of each stream that a call should have at least, so that every GPU has its part; 0 without a limit.
    pub(super) fn least_times(&self) -> usize {
        match &self.bank {
            Bank::One(_) => 0,
            Bank::Several(divided) => divided.least_times(),
        }
    }

    /// Returns the first recorded sample to supply for rows that begin at `sample`.
    pub(super) fn start(&self, sample: u64) -> u64 {
        self.first().coherent().map_or(sample, |plan| plan.start(sample).input)
    }

    /// Starts again with the row whose first window begins at `sample`, from recorded sample [`FilterBank::start`] on.
    pub(super) fn restart(&mut self, sample: u64) {
        match &mut self.bank {
            Bank::One(single) => single.reset(sample),
            Bank::Several(divided) => divided.reset(sample),
        }
    }

    /// Returns whether samples before the first row are still awaited.
    pub(super) fn is_dropping(&self) -> bool {
        match &self.bank {
            Bank::One(single) => single.is_dropping(),
            Bank::Several(divided) => divided.is_dropping(),
        }
    }

    /// Consumes samples and writes the rows they complete; consumes all unless the rows have too little space.
    pub(super) fn run<T: Element>(
        &mut self,
        voltages: Voltages<'_>,
        rows: &mut [T],
    ) -> Result<Progress> {
        match &mut self.bank {
            Bank::One(single) => single.run(Some(voltages), rows),
            Bank::Several(divided) => {
                let _span = trace::span(Work::Compute, "channelize on several GPUs");
                divided.run(voltages, rows)
            }
        }
    }

    /// Writes the next rows after the end of the recording; returns their number, 0 once all are written.
    pub(super) fn flush<T: Element>(&mut self, rows: &mut [T]) -> Result<usize> {
        match &mut self.bank {
            Bank::One(single) => Ok(single.run(None, rows)?.produced),
            Bank::Several(divided) => divided.flush(rows),
        }
    }

    /// Enqueues the computation of rows from all `pieces` of recorded voltages on the device, and, with `is_last`, from
    /// the samples after them, which are zeros; returns the number of rows, which are not joined.
    pub(super) fn enqueue(
        &mut self,
        voltages: &Buffer<u8>,
        pieces: &[DeviceVoltages],
        is_last: bool,
        rows: &mut Buffer<u8>,
        stream: &Stream,
    ) -> Result<usize> {
        match &mut self.bank {
            Bank::One(single) => single.enqueue(voltages, pieces, is_last, rows, stream),
            Bank::Several(_) => Err(Error::Unavailable {
                what: "rows from voltages on a GPU".to_owned(),
                why: "several GPUs divide the rows for the host".to_owned(),
            }),
        }
    }
}
