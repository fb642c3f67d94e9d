//! Messages of a rank whose GPU computes and multiplies the spectra: page-locked blocks of the host, and the input of the
//! X-engine.
//!
//! Spectra leave the GPU in the order of the X-engine's input (channel, input, time), in which the channels of another rank are
//! contiguous. Those that arrive are copied into the rows of their antennas.
//!
//! Invariant: no copy overwrites bytes that other work still reads.

use std::ops::Range;
use std::sync::Arc;

use super::division::MessageForm;
use crate::backend::cuda::{Buffer, CopiedRows, Device, Event, LockedBlock, Stream};
use crate::error::Result;

/// Messages of a gulp, and the input of the X-engine for it.
#[derive(Debug)]
pub(super) struct DeviceBlocks {
    form: Arc<MessageForm>,
    /// Spectra that the messages have space for.
    times: usize,
    /// Messages to other ranks in ascending order; axes channel, input, time.
    send: LockedBlock,
    /// Messages of other ranks.
    receive: LockedBlock,
    /// Spectra of all inputs in this rank's channels; axes channel, input, time.
    input: Buffer<u8>,
    /// Whether the messages received last have been copied to `input`.
    is_uploaded: bool,
    /// Recorded after the copy of this rank's own spectra to `input`.
    kept: Event,
    /// Recorded after the X-engine's work on `input`.
    read: Event,
}

impl DeviceBlocks {
    /// Allocates blocks for `capacity` spectra.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) without memory on the GPU or page-locked memory of the host.
    pub(super) fn new(device: &Device, form: &Arc<MessageForm>, capacity: usize) -> Result<Self> {
        let sizes = form.sizes(capacity);
        Ok(Self {
            send: LockedBlock::new(device, sizes.send.iter().sum())?,
            receive: LockedBlock::new(device, sizes.receive.iter().sum())?,
            input: input(device, form, capacity)?,
            kept: device.event()?,
            read: device.event()?,
            form: Arc::clone(form),
            times: 0,
            is_uploaded: false,
        })
    }

    /// Returns the bytes from one input to the next.
    pub(super) fn stride(&self) -> usize {
        self.form.stride(self.times)
    }

    /// Sets the number of spectra that the messages have space for, at most the capacity.
    pub(super) fn set_times(&mut self, times: usize) {
        self.times = times;
        self.is_uploaded = false;
    }

    /// Waits for all copies between the messages and the GPU.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if work on the GPU failed.
    pub(super) fn ready(&mut self) -> Result<()> {
        let ordinal = self.send.stream().device().ordinal();
        self.host().map(drop).map_err(|error| error.on_device(ordinal))
    }

    /// Returns the messages to send and to receive. After [`DeviceBlocks::ready`] it does not fail, so that no rank waits for the
    /// messages of one whose GPU fails.
    ///
    /// # Errors
    /// As [`DeviceBlocks::ready`].
    pub(super) fn host(&mut self) -> Result<(&[u8], &mut [u8])> {
        let sizes = self.form.sizes(self.times);
        let (send, receive) = (self.send.host()?, self.receive.host()?);
        let (sent, received) = (sizes.send.iter().sum(), sizes.receive.iter().sum());
        Ok((&send[..sent], &mut receive[..received]))
    }

    /// Returns the bytes of the rows of some inputs in one channel, and from one channel to the next in `input`.
    fn strides(&self, inputs: &Range<usize>) -> (usize, usize) {
        let stride = self.stride();
        (inputs.len() * stride, self.form.plan().inputs() * stride)
    }

    /// Enqueues the copies of this rank's spectra (axes channel, input, time), after event `made`: into the messages, and those in its
    /// own channels to the X-engine's input. Event `copied` is recorded after them.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the driver failed.
    pub(super) fn take(
        &mut self,
        spectra: &Buffer<u8>,
        made: &Event,
        copied: &Event,
    ) -> Result<()> {
        self.send.stream().wait(made)?;
        let form = Arc::clone(&self.form);
        let division = form.division();
        let inputs = form.inputs(division.own);
        let (bytes, to_stride) = self.strides(&inputs);
        let mut at = 0;
        for (rank, runs) in division.channels.iter().enumerate() {
            for run in runs.iter().filter(|_| rank != division.own) {
                let range = run.start * bytes..run.end * bytes;
                let next = at + range.len();
                self.send.copy_out(spectra, range, at)?;
                at = next;
            }
        }
        // The messages are not delayed by an X-engine that still reads the input.
        let stream = self.send.stream();
        stream.wait(&self.read)?;
        let mut to = inputs.start * self.stride();
        for run in &division.channels[division.own] {
            let rows = CopiedRows { bytes, rows: run.len(), from_stride: bytes, to_stride };
            stream.copy_rows_from(spectra, run.start * bytes, &mut self.input, to, &rows)?;
            to += run.len() * to_stride;
        }
        stream.record(&self.kept)?;
        stream.record(copied)
    }

    /// Returns the X-engine's input, to which the copies of the messages received are enqueued once after each exchange. Work that is
    /// enqueued in `work` from now on waits for them.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the driver failed.
    pub(super) fn input(&mut self, work: &Stream) -> Result<&mut Buffer<u8>> {
        if !std::mem::replace(&mut self.is_uploaded, true) {
            self.upload()?;
        }
        self.receive.awaited_by(work)?;
        work.wait(&self.kept)?;
        Ok(&mut self.input)
    }

    /// Lets new spectra overwrite the X-engine's input after the work enqueued in `work` so far.
    pub(super) fn release(&self, work: &Stream) {
        // A device that has failed reports that with its next work.
        let _ = work.record(&self.read);
    }

    /// Enqueues the copies of the messages received to the X-engine's input.
    fn upload(&mut self) -> Result<()> {
        self.receive.stream().wait(&self.read)?;
        let form = Arc::clone(&self.form);
        let (channels, stride) = (form.plan().channels(), self.stride());
        let mut from = 0;
        for rank in (0..form.division().antennas.len()).filter(|rank| *rank != form.division().own)
        {
            let inputs = form.inputs(rank);
            let (bytes, to_stride) = self.strides(&inputs);
            let rows = CopiedRows { bytes, rows: channels, from_stride: bytes, to_stride };
            self.receive.copy_rows_in(from, &mut self.input, inputs.start * stride, &rows)?;
            from += channels * bytes;
        }
        Ok(())
    }
}

/// Allocates an X-engine's input for `capacity` spectra.
///
/// # Errors
/// As [`Device::buffer`].
pub(super) fn input(device: &Device, form: &MessageForm, capacity: usize) -> Result<Buffer<u8>> {
    let plan = form.plan();
    let bytes = plan.channels().saturating_mul(plan.inputs()).saturating_mul(form.stride(capacity));
    let mut buffer = device.buffer(bytes)?;
    // Initialized because the X-engine reads past the last time, although it does not use the values.
    let work = device.stream()?;
    work.fill(&mut buffer, 0..bytes, 0)?;
    work.synchronize()?;
    Ok(buffer)
}
