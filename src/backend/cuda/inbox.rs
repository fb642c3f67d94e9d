//! Upload of a stream of blocks: the host fills one buffer while others are copied and processed.

use bytemuck::Pod;

use super::{Buffer, Device, Event, Pinned, Stream};
use crate::error::Result;
use crate::view::check_length;

/// Ring of paired host and device buffers, of bytes by default.
///
/// The current pair holds the data to process. [`Inbox::present`] fills it, [`Inbox::turn`] returns its device buffer
/// together with the next pair, which may be filled meanwhile, and [`Inbox::release`] advances to the next pair.
#[derive(Debug)]
pub struct Inbox<T: Pod = u8> {
    slots: Vec<Slot<T>>,
    /// Index of the current pair.
    present: usize,
    /// Stream of the copies.
    stream: Stream,
}

/// Pair being filled by the host, from any thread.
#[derive(Debug)]
pub struct Filling<'a, T: Pod = u8> {
    slot: &'a mut Slot<T>,
    stream: &'a Stream,
}

#[derive(Debug)]
struct Slot<T: Pod> {
    host: Pinned<T>,
    device: Buffer<T>,
    /// Elements sent since the host buffer became free.
    sent: usize,
    /// Recorded after the last copy.
    copied: Event,
    /// Recorded after the last work on the copied data.
    worked: Event,
}

impl<T: Pod> Inbox<T> {
    /// Creates `slots` pairs of buffers of `elements` elements; at least two pairs.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) without memory; [`Error::Device`](crate::Error::Device) if
    /// the driver fails.
    pub fn new(device: &Device, elements: usize, slots: usize) -> Result<Self> {
        let slot = |_| {
            let (host, buffer) = (device.pinned(elements)?, device.buffer(elements)?);
            let (copied, worked) = (device.event()?, device.event()?);
            Ok(Slot { host, device: buffer, sent: 0, copied, worked })
        };
        let slots = (0..slots.max(2)).map(slot).collect::<Result<Vec<_>>>()?;
        Ok(Self { slots, present: 0, stream: device.stream()? })
    }

    /// Returns the current pair for filling, for data needed before the first call of [`Inbox::turn`].
    pub fn present(&mut self) -> Filling<'_, T> {
        Filling { slot: &mut self.slots[self.present], stream: &self.stream }
    }

    /// Returns the current pair's device buffer and the next pair for filling. Work enqueued in `work` from now on
    /// waits for the current pair's copy.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the driver fails.
    pub fn turn(&mut self, work: &Stream) -> Result<(&Buffer<T>, Filling<'_, T>)> {
        let (present, mut others) = self.turn_with_all(work)?;
        let next = others.next().expect("there are two pairs at least");
        Ok((present, next))
    }

    /// Returns the current pair's device buffer and all other pairs, the next one first, to be filled in that order.
    /// Work enqueued in `work` from now on waits for the current pair's copy.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the driver fails.
    pub fn turn_with_all<'a>(
        &'a mut self,
        work: &Stream,
    ) -> Result<(&'a Buffer<T>, impl Iterator<Item = Filling<'a, T>> + use<'a, T>)> {
        let (before, behind) = self.slots.split_at_mut(self.present);
        let [present, later @ ..] = behind else { unreachable!("the present slot is one of them") };
        work.wait(&present.copied)?;
        let stream = &self.stream;
        let others = later.iter_mut().chain(before);
        Ok((&present.device, others.map(move |slot| Filling { slot, stream })))
    }

    /// Advances to the next pair. The current pair becomes free when all work enqueued in `work` so far has run.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the driver fails.
    pub fn release(&mut self, work: &Stream) -> Result<()> {
        work.record(&self.slots[self.present].worked)?;
        self.present = (self.present + 1) % self.slots.len();
        Ok(())
    }
}

impl Filling<'_, u8> {
    /// Returns the host buffer, after waiting for all work on its previous contents.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if work on the device failed.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        self.whole()
    }
}

impl<T: Pod> Filling<'_, T> {
    /// Returns the host buffer, after waiting for all work on its previous contents.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if work on the device failed.
    pub fn whole(&mut self) -> Result<&mut [T]> {
        self.slot.worked.synchronize()?;
        self.slot.copied.synchronize()?;
        self.slot.sent = 0;
        Ok(self.slot.host.as_mut_slice())
    }

    /// Returns the part of the host buffer after the elements already sent.
    pub fn rest(&mut self) -> &mut [T] {
        &mut self.slot.host.as_mut_slice()[self.slot.sent..]
    }

    /// Enqueues the copy of the next `count` elements to the device; the caller may fill the rest meanwhile.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if fewer elements are left; [`Error::Device`](crate::Error::Device) if
    /// the driver fails.
    pub fn send(&mut self, count: usize) -> Result<()> {
        let sent = self.slot.sent;
        let left = self.slot.host.len() - sent;
        check_length("elements sent to a device", count.min(left), count)?;
        self.stream.wait(&self.slot.worked)?;
        let range = sent..sent + count;
        // SAFETY: elements already sent are handed out again only after their copy has ended.
        unsafe { self.stream.copy_in(&self.slot.host, range, &mut self.slot.device, sent)? };
        self.slot.sent += count;
        self.stream.record(&self.slot.copied)
    }
}
