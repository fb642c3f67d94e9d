//! The way of a stream to a device: the host fills one buffer while others are copied and worked on.

use bytemuck::Pod;

use super::{Buffer, Device, Event, Pinned, Stream};
use crate::error::Result;
use crate::view::check_length;

/// Buffers of the host and of a device, in pairs that are used in turn: of bytes, unless it is said.
///
/// What is to be worked on now is the present pair: [`Inbox::present`] fills it, [`Inbox::turn`] gives it with
/// the next pair, which may be filled meanwhile, and [`Inbox::release`] ends the turn.
#[derive(Debug)]
pub struct Inbox<T: Pod = u8> {
    slots: Vec<Slot<T>>,
    /// The slot of the present turn.
    present: usize,
    /// Where copies run.
    stream: Stream,
}

/// A pair that the host fills, on any thread.
#[derive(Debug)]
pub struct Filling<'a, T: Pod = u8> {
    slot: &'a mut Slot<T>,
    stream: &'a Stream,
}

#[derive(Debug)]
struct Slot<T: Pod> {
    host: Pinned<T>,
    device: Buffer<T>,
    /// Elements that were sent since the host's buffer was free.
    sent: usize,
    /// After the last copy.
    copied: Event,
    /// After the last work on what was copied.
    worked: Event,
}

impl<T: Pod> Inbox<T> {
    /// `slots` pairs of buffers of `elements` elements, at least two.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) without room; [`Error::Device`](crate::Error::Device)
    /// when the driver refuses.
    pub fn new(device: &Device, elements: usize, slots: usize) -> Result<Self> {
        let slot = |_| {
            let (host, buffer) = (device.pinned(elements)?, device.buffer(elements)?);
            let (copied, worked) = (device.event()?, device.event()?);
            Ok(Slot { host, device: buffer, sent: 0, copied, worked })
        };
        let slots = (0..slots.max(2)).map(slot).collect::<Result<Vec<_>>>()?;
        Ok(Self { slots, present: 0, stream: device.stream()? })
    }

    /// The present pair, to be filled: what is there before the first turn.
    pub fn present(&mut self) -> Filling<'_, T> {
        Filling { slot: &mut self.slots[self.present], stream: &self.stream }
    }

    /// The present pair's buffer on the device, and the next pair, to be filled; what is queued in `work` from now
    /// on waits for the present copy.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when the driver refuses.
    pub fn turn(&mut self, work: &Stream) -> Result<(&Buffer<T>, Filling<'_, T>)> {
        let (present, mut others) = self.turn_with_all(work)?;
        let next = others.next().expect("there are two pairs at least");
        Ok((present, next))
    }

    /// The present pair's buffer on the device, and all other pairs, the next one first, to be filled in that order; what
    /// is queued in `work` from now on waits for the present copy.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when the driver refuses.
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

    /// Ends the turn: the present pair is free once all that is queued in `work` has run, and the next becomes
    /// the present one.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when the driver refuses.
    pub fn release(&mut self, work: &Stream) -> Result<()> {
        work.record(&self.slots[self.present].worked)?;
        self.present = (self.present + 1) % self.slots.len();
        Ok(())
    }
}

impl Filling<'_, u8> {
    /// The host's buffer, once all work on what it last held has ended.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when work on the device failed.
    pub fn bytes(&mut self) -> Result<&mut [u8]> {
        self.whole()
    }
}

impl<T: Pod> Filling<'_, T> {
    /// The host's buffer, once all work on what it last held has ended.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when work on the device failed.
    pub fn whole(&mut self) -> Result<&mut [T]> {
        self.slot.worked.synchronize()?;
        self.slot.copied.synchronize()?;
        self.slot.sent = 0;
        Ok(self.slot.host.as_mut_slice())
    }

    /// What is left of the host's buffer, behind all that was sent.
    pub fn rest(&mut self) -> &mut [T] {
        &mut self.slot.host.as_mut_slice()[self.slot.sent..]
    }

    /// Queues the copy of the next `count` elements to the device; it runs while the caller fills the rest.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) for more elements than are left;
    /// [`Error::Device`](crate::Error::Device) when the driver refuses.
    pub fn send(&mut self, count: usize) -> Result<()> {
        let sent = self.slot.sent;
        let left = self.slot.host.len() - sent;
        check_length("elements sent to a device", count.min(left), count)?;
        self.stream.wait(&self.slot.worked)?;
        let range = sent..sent + count;
        // SAFETY: what was sent is given out again only when its copy has ended.
        unsafe { self.stream.copy_in(&self.slot.host, range, &mut self.slot.device, sent)? };
        self.slot.sent += count;
        self.stream.record(&self.slot.copied)
    }
}
