//! The way of a stream of bytes to a device: the host fills one buffer while others are copied and worked on.

use super::{Buffer, Device, Event, Pinned, Stream};
use crate::array::check_length;
use crate::error::Result;

/// Buffers of the host and of a device, in pairs that are used in turn.
///
/// A round is [`Inbox::fill`], [`Inbox::send`], work in a stream on what was sent, [`Inbox::release`].
#[derive(Debug)]
pub struct Inbox {
    slots: Vec<Slot>,
    /// The slot of the present round.
    present: usize,
    /// Where copies run.
    stream: Stream,
}

#[derive(Debug)]
struct Slot {
    host: Pinned<u8>,
    device: Buffer<u8>,
    /// After the last copy.
    copied: Event,
    /// After the last work on what was copied.
    worked: Event,
}

impl Inbox {
    /// `slots` pairs of buffers of `bytes` bytes; two let copies run beside work.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) without room; [`Error::Device`](crate::Error::Device)
    /// when the driver refuses.
    pub fn new(device: &Device, bytes: usize, slots: usize) -> Result<Self> {
        let slot = |_| {
            let (host, buffer) = (device.pinned(bytes)?, device.buffer(bytes)?);
            Ok(Slot { host, device: buffer, copied: device.event()?, worked: device.event()? })
        };
        let slots = (0..slots.max(1)).map(slot).collect::<Result<Vec<_>>>()?;
        Ok(Self { slots, present: 0, stream: device.stream()? })
    }

    /// Bytes of a buffer.
    pub fn capacity(&self) -> usize {
        self.slots[0].host.len()
    }

    /// The host's buffer of this round, once all work on what it last held has ended.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when work on the device failed.
    pub fn fill(&mut self) -> Result<&mut [u8]> {
        let slot = &mut self.slots[self.present];
        slot.worked.synchronize()?;
        Ok(slot.host.as_mut_slice())
    }

    /// Queues the copy of the first `bytes` bytes; what is queued in `work` from now on waits for it. Gives the
    /// device's buffer.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) for more bytes than there are;
    /// [`Error::Device`](crate::Error::Device) when the driver refuses.
    pub fn send(&mut self, bytes: usize, work: &Stream) -> Result<&Buffer<u8>> {
        let slot = &mut self.slots[self.present];
        check_length("bytes sent to a device", bytes.min(slot.host.len()), bytes)?;
        self.stream.wait(&slot.worked)?;
        // SAFETY: the slot keeps the host's buffer, and gives it out again only when that work has ended.
        unsafe { self.stream.copy_in(&slot.host, 0..bytes, &mut slot.device, 0)? };
        self.stream.record(&slot.copied)?;
        work.wait(&slot.copied)?;
        Ok(&slot.device)
    }

    /// Ends the round: the device's buffer is free once all that is queued in `work` has run.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when the driver refuses.
    pub fn release(&mut self, work: &Stream) -> Result<()> {
        work.record(&self.slots[self.present].worked)?;
        self.present = (self.present + 1) % self.slots.len();
        Ok(())
    }
}
