//! F-engine and X-engine of a rank on its GPU, and the corner turn among ranks between them.
//!
//! Invariant: the X-engine has the bits that one GPU computes for all antennas; errors name the GPU.

use std::ops::Range;
use std::sync::Arc;

use super::antenna::AntennaInput;
use super::device::{DeviceConfig, DeviceFEngine, HostSamples, SLOTS};
use super::device_blocks::{DeviceBlocks, input};
use super::division::{ALIGNED, MessageForm};
use super::peers::DeviceSupply;
use super::recordings::Delays;
use super::window::Window;
use crate::backend::cuda::{Buffer, CopiedRows, Device, Event, Stream, UploadRing};
use crate::backend::threads::Threads;
use crate::correlate::{DeviceSpectra, Plan};
use crate::error::{Error, Result};

/// F-engine of a rank's antennas on its GPU.
pub(super) struct DeviceSender {
    f_engine: DeviceFEngine,
    /// Threads that gather the voltages.
    threads: Threads,
    /// Recorded after the copies of the spectra sent last.
    copied: Event,
}

impl DeviceSender {
    /// Builds the F-engine; `config` describes all antennas.
    ///
    /// # Errors
    /// As [`DeviceFEngine::new`].
    pub(super) fn new(
        device: &Device,
        config: &DeviceConfig<'_>,
        form: &MessageForm,
        threads: &Threads,
    ) -> Result<Self> {
        Ok(Self {
            f_engine: DeviceFEngine::new(device, config, form.division().antennas())?,
            threads: threads.clone(),
            copied: device.event()?,
        })
    }

    /// Returns the saturated complex samples of each antenna; zeros for a device that has failed.
    pub(super) fn saturated(&self) -> Vec<u64> {
        self.f_engine.saturated()
    }

    /// As [`super::peers::OnDevice::make`].
    ///
    /// # Errors
    /// Errors of the filter banks and of the delay correction.
    pub(super) fn make(
        &mut self,
        antennas: &[AntennaInput],
        windows: &[Window],
        delays: &Delays,
        spectra: Range<u64>,
    ) -> Result<()> {
        let samples = HostSamples { antennas, windows, delays };
        let made = self.f_engine.make(samples, spectra, &self.threads);
        made.map_err(|error| self.named(error))
    }

    /// Enqueues the delay correction of `times` spectra from number `first` on, and their copies into messages.
    ///
    /// # Errors
    /// Errors of the delay correction and of the copies.
    pub(super) fn send(
        &mut self,
        first: u64,
        times: usize,
        blocks: &mut DeviceBlocks,
    ) -> Result<()> {
        self.enqueue(first, times, blocks).map_err(|error| self.named(error))
    }

    fn enqueue(&mut self, first: u64, times: usize, blocks: &mut DeviceBlocks) -> Result<()> {
        let Self { f_engine, copied, .. } = self;
        f_engine.work.wait(copied)?;
        f_engine.correct(first, times, blocks.stride())?;
        f_engine.work.record(&f_engine.corrected)?;
        blocks.take(&f_engine.natural, &f_engine.corrected, copied)
    }

    fn named(&self, error: Error) -> Error {
        error.on_device(self.f_engine.device().ordinal())
    }
}

/// Input of a rank's X-engine on its GPU.
pub(super) struct DeviceReceiver {
    /// Stream of the X-engine.
    work: Stream,
    masks: UploadRing<u64>,
    /// Whether `masks` holds the mask of the most recently supplied spectra.
    is_masked: bool,
    /// Spectra that do not begin at a multiple of 16 bytes, moved to the start of their rows.
    aligned: Buffer<u8>,
    form: Arc<MessageForm>,
}

impl DeviceReceiver {
    /// Allocates memory for `capacity` spectra.
    ///
    /// # Errors
    /// As [`DeviceBlocks::new`].
    pub(super) fn new(device: &Device, form: &Arc<MessageForm>, capacity: usize) -> Result<Self> {
        let plan = form.plan();
        let words = plan.channels() * plan.antennas() * Plan::mask_words(capacity);
        Ok(Self {
            work: device.stream()?,
            masks: UploadRing::new(device, words, SLOTS)?,
            is_masked: false,
            aligned: input(device, form, capacity)?,
            form: Arc::clone(form),
        })
    }

    /// Returns the GPU.
    pub(super) fn device(&self) -> &Device {
        self.work.device()
    }

    /// Enqueues the copy of the mask of the next `times` spectra to supply, which `fill` writes with the axes channel, antenna, word;
    /// `None` if all are valid.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver or earlier work failed.
    pub(super) fn set_mask(
        &mut self,
        times: usize,
        fill: Option<impl FnOnce(&mut [u64])>,
    ) -> Result<()> {
        if std::mem::take(&mut self.is_masked) {
            self.masks.release(&self.work)?;
        }
        let Some(fill) = fill else { return Ok(()) };
        let plan = self.form.plan();
        let count = plan.channels() * plan.antennas() * Plan::mask_words(times);
        let mut slot = self.masks.current();
        fill(&mut slot.host()?[..count]);
        slot.send(count)?;
        self.is_masked = true;
        Ok(())
    }

    /// Returns `times` spectra of messages that were exchanged, from time `first` on.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver failed.
    pub(super) fn supply<'a>(
        &'a mut self,
        blocks: &'a mut DeviceBlocks,
        first: usize,
        times: usize,
    ) -> Result<DeviceSupply<'a>> {
        let Self { work, masks, is_masked, aligned, form } = self;
        let (plan, stride) = (form.plan(), blocks.stride());
        let received = blocks.input(work)?;
        let encoding = plan.encoding();
        let at = encoding.bytes(first);
        let layout = |first_byte, input_stride| {
            let channel_stride = plan.inputs() * input_stride;
            DeviceSpectra { first_byte, channel_stride, input_stride, times }
        };
        let valid = if *is_masked { Some(masks.acquire(work)?.0) } else { None };
        if at.is_multiple_of(ALIGNED) {
            let (spectra, layout) = (received, layout(at, stride));
            return Ok(DeviceSupply { spectra, layout, valid, stream: work });
        }
        let rows = CopiedRows {
            bytes: encoding.bytes(times),
            rows: plan.channels() * plan.inputs(),
            from_stride: stride,
            to_stride: form.stride(times),
        };
        work.copy_rows_from(received, at, aligned, 0, &rows)?;
        let layout = layout(0, rows.to_stride);
        Ok(DeviceSupply { spectra: aligned, layout, valid, stream: work })
    }

    /// Lets new spectra overwrite those of some messages once the X-engine has read them.
    pub(super) fn release(&self, blocks: &DeviceBlocks) {
        blocks.release(&self.work);
    }
}
