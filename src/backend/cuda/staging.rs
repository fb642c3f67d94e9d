//! Staging of host data: rings of paired page-locked and device buffers, so that copies in, kernels and copies out
//! overlap; and a reader of rows of device memory.
//!
//! An [`UploadRing`] copies samples to a device, a [`DownloadRing`] copies results to the host, each on a stream of
//! its own; kernels run on a stream of the caller. A stage that uses both:
//!
//! ```no_run
//! use sidereal::Result;
//! use sidereal::backend::cuda::{DownloadRing, Stream, UploadRing};
//! use sidereal::backend::threads::Threads;
//!
//! struct Staging {
//!     uploads: UploadRing<f32>,
//!     downloads: DownloadRing<f32>,
//!     work: Stream,
//!     threads: Threads,
//! }
//!
//! impl Staging {
//!     fn run(&mut self, input: &[f32], output: &mut [f32]) -> Result<()> {
//!         let mut start = 0;
//!         for piece in input.chunks(self.uploads.elements()) {
//!             // Copies the oldest results to the output before their buffer is overwritten.
//!             if self.downloads.is_full() {
//!                 self.deliver(output)?;
//!             }
//!             let fill = |host: &mut [f32]| self.threads.copy(piece, host);
//!             let samples = self.uploads.upload(piece.len(), &self.work, fill)?.address();
//!             let results = self.downloads.target(&self.work)?.address();
//!             launch(samples, results, piece.len(), &self.work)?;
//!             self.uploads.release(&self.work)?;
//!             let end = start + piece.len();
//!             self.downloads.send(start..end, piece.len(), &self.work)?;
//!             start = end;
//!         }
//!         while self.deliver(output)? {}
//!         Ok(())
//!     }
//!
//!     /// Copies the oldest results to the output; returns whether there were any.
//!     fn deliver(&mut self, output: &mut [f32]) -> Result<bool> {
//!         let Some((range, results)) = self.downloads.receive()? else { return Ok(false) };
//!         self.threads.copy(results, &mut output[range]);
//!         Ok(true)
//!     }
//! }
//! # fn launch(_: u64, _: u64, _: usize, _: &Stream) -> Result<()> { Ok(()) }
//! ```
//!
//! After an error, [`DownloadRing::discard`] ends the work in flight. Kernels of one stream run in order, so buffers
//! between two kernels need no ring.

use std::ops::Range;

use bytemuck::Pod;

use super::{Buffer, CopiedRows, Device, Event, Pinned, Stream};
use crate::error::{Error, Result};
use crate::view::check_length;

/// Ring of buffers that carry host data, bytes by default, to a device.
///
/// [`UploadRing::current`] returns the current slot for filling, [`UploadRing::acquire`] returns its device buffer
/// together with the other slots, which may be filled meanwhile, and [`UploadRing::release`] advances to the next slot.
/// Peers of the device may copy the same host memory ([`Uploaded::copy_to_peer`]); the ring refills it after all copies.
#[derive(Debug)]
pub struct UploadRing<T: Pod = u8> {
    device: Device,
    slots: Vec<Upload<T>>,
    count: usize,
    current: usize,
    /// Stream of the copies.
    stream: Stream,
}

/// Slot of an [`UploadRing`] that the host fills, from any thread.
#[derive(Debug)]
pub struct UploadSlot<'a, T: Pod = u8> {
    slot: &'a mut Upload<T>,
    stream: &'a Stream,
}

#[derive(Debug)]
struct Upload<T: Pod> {
    host: Pinned<T>,
    device: Buffer<T>,
    /// Elements sent since the host buffer became free.
    sent: usize,
    /// Recorded after the last copy.
    copied: Event,
    /// Recorded after the last copy to each peer of the device.
    copied_to_peers: Vec<Event>,
    /// Recorded after the last work on the copied data.
    worked: Event,
}

/// Data of a slot of an [`UploadRing`].
#[derive(Debug)]
pub struct Uploaded<'a, T: Pod = u8> {
    slot: &'a Upload<T>,
}

impl<T: Pod> Clone for Uploaded<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Pod> Copy for Uploaded<'_, T> {}

impl<'a, T: Pod> Uploaded<'a, T> {
    /// Returns the buffer of the ring's device.
    pub fn buffer(&self) -> &'a Buffer<T> {
        &self.slot.device
    }

    /// Enqueues the copy of the first `count` elements from the host's memory to a buffer of peer `index` of the ring's device, on a
    /// stream of that peer. One thread calls it for a peer and a slot.
    ///
    /// # Errors
    /// [`Error::Shape`] if fewer elements were sent or fit; [`Error::Parameter`] without such a peer; [`Error::Device`] if the
    /// driver fails.
    pub fn copy_to_peer(
        &self,
        index: usize,
        count: usize,
        to: &mut Buffer<T>,
        stream: &Stream,
    ) -> Result<()> {
        let Upload { host, sent, copied_to_peers, .. } = self.slot;
        check_length("elements copied to a peer", count.min(*sent), count)?;
        let Some(copied) = copied_to_peers.get(index) else {
            let rule = format!("the device has {} peers", copied_to_peers.len());
            return Err(Error::parameter("peer of a CUDA device", index, rule));
        };
        to.check_on(stream.device())?;
        // SAFETY: the slot is handed out for filling again only after `copied`, and its memory is freed after all work of the peers.
        unsafe { stream.copy_in(host, 0..count, to, 0)? };
        stream.record(copied)
    }
}

impl<T: Pod> UploadRing<T> {
    /// Creates `count` slots, at least 2, of `elements` elements. Without elements no memory is allocated before
    /// [`UploadRing::resize`].
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) without memory; [`Error::Device`](crate::Error::Device) if
    /// the driver fails.
    pub fn new(device: &Device, elements: usize, count: usize) -> Result<Self> {
        Self::with_peers(&device.alone(), elements, count)
    }

    /// As [`UploadRing::new`], for data that the device's peers may copy as well.
    ///
    /// # Errors
    /// As [`UploadRing::new`].
    pub fn with_peers(device: &Device, elements: usize, count: usize) -> Result<Self> {
        let (device, stream) = (device.clone(), device.stream()?);
        let (slots, count) = (Vec::new(), count.max(2));
        let mut ring = Self { device, slots, count, current: 0, stream };
        ring.resize(elements)?;
        Ok(ring)
    }

    /// Replaces all slots by slots of `elements` elements, after waiting for their work. After an error the ring has
    /// no slots.
    ///
    /// # Errors
    /// Same as for [`UploadRing::new`].
    pub fn resize(&mut self, elements: usize) -> Result<()> {
        self.slots.clear();
        self.current = 0;
        if elements == 0 {
            return Ok(());
        }
        let device = &self.device;
        let slot = |_| {
            let (host, buffer) = (device.pinned(elements)?, device.buffer(elements)?);
            let (copied, worked) = (device.event()?, device.event()?);
            let peers = device.peers().iter();
            let copied_to_peers = peers.map(Device::event).collect::<Result<_>>()?;
            Ok(Upload { host, device: buffer, sent: 0, copied, copied_to_peers, worked })
        };
        self.slots = (0..self.count).map(slot).collect::<Result<_>>()?;
        Ok(())
    }

    /// Returns the number of elements of a slot.
    pub fn elements(&self) -> usize {
        self.slots.first().map_or(0, |slot| slot.host.len())
    }

    /// Returns the current slot for filling, for data needed before the next [`UploadRing::acquire`].
    pub fn current(&mut self) -> UploadSlot<'_, T> {
        UploadSlot { slot: &mut self.slots[self.current], stream: &self.stream }
    }

    /// Returns the current slot's device buffer and all other slots, the next one first, to be filled in that order.
    /// Work enqueued in `work` from now on waits for the current slot's copy.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the driver fails.
    pub fn acquire<'a>(
        &'a mut self,
        work: &Stream,
    ) -> Result<(&'a Buffer<T>, impl Iterator<Item = UploadSlot<'a, T>> + use<'a, T>)> {
        let (uploaded, others) = self.acquire_for_peers(work)?;
        Ok((uploaded.buffer(), others))
    }

    /// As [`UploadRing::acquire`], for data that peers of the device copy as well.
    ///
    /// # Errors
    /// As [`UploadRing::acquire`].
    pub fn acquire_for_peers<'a>(
        &'a mut self,
        work: &Stream,
    ) -> Result<(Uploaded<'a, T>, impl Iterator<Item = UploadSlot<'a, T>> + use<'a, T>)> {
        let (before, rest) = self.slots.split_at_mut(self.current);
        let [current, later @ ..] = rest else { unreachable!("the current slot is one of them") };
        work.wait(&current.copied)?;
        let stream = &self.stream;
        let others = later.iter_mut().chain(before);
        let uploaded = Uploaded { slot: &*current };
        Ok((uploaded, others.map(move |slot| UploadSlot { slot, stream })))
    }

    /// Lets `fill` write `count` elements, enqueues their copy and returns the device buffer. Work enqueued in `work`
    /// from now on waits for the copy.
    ///
    /// # Errors
    /// Those of [`UploadSlot::send`] and [`UploadRing::acquire`].
    pub fn upload(
        &mut self,
        count: usize,
        work: &Stream,
        fill: impl FnOnce(&mut [T]),
    ) -> Result<&Buffer<T>> {
        check_length("elements sent to a device", count.min(self.elements()), count)?;
        let mut slot = self.current();
        fill(&mut slot.host()?[..count]);
        slot.send(count)?;
        Ok(self.acquire(work)?.0)
    }

    /// Advances to the next slot. The current slot becomes free when all work enqueued in `work` so far has run.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the driver fails.
    pub fn release(&mut self, work: &Stream) -> Result<()> {
        work.record(&self.slots[self.current].worked)?;
        self.current = (self.current + 1) % self.slots.len();
        Ok(())
    }
}

impl<'a, T: Pod> UploadSlot<'a, T> {
    /// Returns the data sent, before the slot is the current one. Work enqueued in `work` from now on waits for their copy.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the driver fails.
    pub fn sent(self, work: &Stream) -> Result<Uploaded<'a, T>> {
        work.wait(&self.slot.copied)?;
        Ok(Uploaded { slot: self.slot })
    }

    /// Returns the host buffer, after waiting for the copies of its previous contents.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if work on the device failed.
    pub fn host(&mut self) -> Result<&mut [T]> {
        self.slot.copied.synchronize()?;
        self.slot.copied_to_peers.iter().try_for_each(Event::synchronize)?;
        self.slot.sent = 0;
        Ok(self.slot.host.as_mut_slice())
    }

    /// Returns the part of the host buffer after the elements already sent.
    pub fn rest(&mut self) -> &mut [T] {
        &mut self.slot.host.as_mut_slice()[self.slot.sent..]
    }

    /// Enqueues the copy of the next `count` elements to the device, after all work on the slot's previous contents;
    /// the caller may fill the rest meanwhile.
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

/// Ring of buffers that carry results to the host.
///
/// [`DownloadRing::target`] returns the device buffer of the next slot for kernels to write, [`DownloadRing::send`]
/// enqueues its copy, and [`DownloadRing::receive`] waits for the oldest copy. `P` describes the part of the output
/// that a slot holds.
#[derive(Debug)]
pub struct DownloadRing<T: Pod, P = Range<usize>> {
    device: Device,
    slots: Vec<Download<T, P>>,
    count: usize,
    next: usize,
    /// Stream of the copies.
    stream: Stream,
}

#[derive(Debug)]
struct Download<T: Pod, P> {
    device: Buffer<T>,
    host: Pinned<T>,
    /// Recorded after the work that writes the device buffer.
    computed: Event,
    /// Recorded after the copy.
    copied: Event,
    /// Part and number of elements sent and not yet received.
    pending: Option<(P, usize)>,
}

/// Part, number of elements and slot of results that have been copied to the host.
type Oldest<'a, T, P> = (P, usize, &'a mut Download<T, P>);

impl<T: Pod, P> DownloadRing<T, P> {
    /// Creates `count` slots, at least 2, of `elements` elements. Without elements no memory is allocated before
    /// [`DownloadRing::resize`].
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) without memory; [`Error::Device`](crate::Error::Device) if
    /// the driver fails.
    pub fn new(device: &Device, elements: usize, count: usize) -> Result<Self> {
        let (device, stream) = (device.clone(), device.stream()?);
        let mut ring = Self { device, slots: Vec::new(), count: count.max(2), next: 0, stream };
        ring.resize(elements)?;
        Ok(ring)
    }

    /// Replaces all slots by slots of `elements` elements, after waiting for their work; pending results are lost.
    /// After an error the ring has no slots.
    ///
    /// # Errors
    /// Same as for [`DownloadRing::new`].
    pub fn resize(&mut self, elements: usize) -> Result<()> {
        self.slots.clear();
        self.next = 0;
        if elements == 0 {
            return Ok(());
        }
        let device = &self.device;
        let slot = |_| {
            let (buffer, host) = (device.buffer(elements)?, device.pinned(elements)?);
            let (computed, copied) = (device.event()?, device.event()?);
            Ok(Download { device: buffer, host, computed, copied, pending: None })
        };
        self.slots = (0..self.count).map(slot).collect::<Result<_>>()?;
        Ok(())
    }

    /// Returns the number of elements of a slot.
    pub fn elements(&self) -> usize {
        self.slots.first().map_or(0, |slot| slot.host.len())
    }

    /// Returns whether [`DownloadRing::receive`] must be called before the next [`DownloadRing::send`].
    pub fn is_full(&self) -> bool {
        self.slots.get(self.next).is_some_and(|slot| slot.pending.is_some())
    }

    /// Returns the next slot's device buffer. Work enqueued in `work` from now on waits for the copy of its previous
    /// contents.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the driver fails.
    pub fn target(&mut self, work: &Stream) -> Result<&mut Buffer<T>> {
        let slot = &mut self.slots[self.next];
        work.wait(&slot.copied)?;
        Ok(&mut slot.device)
    }

    /// Enqueues the copy of the next slot's first `count` elements after all work enqueued in `work`, and advances.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the slot has fewer elements; [`Error::Device`](crate::Error::Device)
    /// if the driver fails.
    ///
    /// # Panics
    /// If the ring [is full](DownloadRing::is_full).
    pub fn send(&mut self, part: P, count: usize, work: &Stream) -> Result<()> {
        assert!(!self.is_full(), "results were not received before their buffer was sent again");
        let slot = &mut self.slots[self.next];
        work.record(&slot.computed)?;
        self.stream.wait(&slot.computed)?;
        if count > 0 {
            // SAFETY: the host buffer is read only in `receive`, after `copied`.
            unsafe { self.stream.copy_out(&slot.device, 0..count, &mut slot.host, 0)? };
        }
        self.stream.record(&slot.copied)?;
        slot.pending = Some((part, count));
        self.next = (self.next + 1) % self.slots.len();
        Ok(())
    }

    /// Waits for the oldest copy and returns its part and elements; `None` if all have been received.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if work on the device failed.
    pub fn receive(&mut self) -> Result<Option<(P, &[T])>> {
        let Some((part, count, slot)) = self.oldest()? else { return Ok(None) };
        Ok(Some((part, &slot.host.as_slice()[..count])))
    }

    /// Like [`DownloadRing::receive`], for results that contain their own count: `total` reads it from the elements
    /// already sent, and stream `rest` copies the remaining elements.
    ///
    /// # Errors
    /// Same as for [`DownloadRing::receive`].
    pub fn receive_all(
        &mut self,
        rest: &Stream,
        total: impl FnOnce(&[T]) -> usize,
    ) -> Result<Option<(P, &[T])>> {
        let Some((part, count, slot)) = self.oldest()? else { return Ok(None) };
        let total = total(&slot.host.as_slice()[..count]).clamp(count, slot.host.len());
        if total > count {
            // SAFETY: the host buffer is read after the stream has been synchronized.
            let copied =
                unsafe { rest.copy_out(&slot.device, count..total, &mut slot.host, count) };
            copied.and(rest.synchronize())?;
        }
        Ok(Some((part, &slot.host.as_slice()[..total])))
    }

    /// Waits for the oldest pending copy; returns its part, its number of elements and its slot.
    fn oldest(&mut self) -> Result<Option<Oldest<'_, T, P>>> {
        let (newer, older) = self.slots.split_at_mut(self.next);
        let mut slots = older.iter_mut().chain(newer);
        let Some(slot) = slots.find(|slot| slot.pending.is_some()) else { return Ok(None) };
        let Some((part, count)) = slot.pending.take() else { return Ok(None) };
        slot.copied.synchronize()?;
        Ok(Some((part, count, slot)))
    }

    /// Waits for all work on the device and drops pending results. Errors of that work are ignored, for use after an
    /// error.
    pub fn discard(&mut self) {
        let _ = self.device.synchronize();
        self.slots.iter_mut().for_each(|slot| slot.pending = None);
    }
}

/// 32-bit words that a [`RowReader`] copies at a time, unless a row has more.
const READ_WORDS: usize = 2 << 20;

/// Rows of a buffer of which the same ranges are read.
#[derive(Clone, Debug)]
pub struct ReadRows {
    /// Element of the buffer at which the first row begins.
    pub first: usize,
    /// Elements from row to row.
    pub stride: usize,
    /// Number of rows.
    pub rows: usize,
    /// Ranges of a row, which are joined in this order.
    pub ranges: [Range<usize>; 2],
}

/// Reader of device memory for saved states: it copies only the ranges asked for, through page-locked memory.
#[derive(Debug)]
pub struct RowReader {
    ring: DownloadRing<f32, ()>,
    work: Stream,
}

impl RowReader {
    /// Creates a reader.
    ///
    /// # Errors
    /// Same as for [`DownloadRing::new`].
    pub fn new(device: &Device) -> Result<Self> {
        Ok(Self { ring: DownloadRing::new(device, READ_WORDS, 2)?, work: device.stream()? })
    }

    /// Passes the elements of a buffer of 32-bit words to `take`, part by part, after waiting for all work on the device.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver or earlier work failed.
    pub fn read<T: Pod>(&mut self, from: &Buffer<T>, mut take: impl FnMut(&[f32])) -> Result<()> {
        let words = const { words_of::<T>() };
        // A part is a row; the last one may be shorter.
        let stride = READ_WORDS / words;
        let (rows, rest) = (from.len() / stride, from.len() % stride);
        let whole = ReadRows { first: 0, stride, rows, ranges: [0..stride, 0..0] };
        let last = ReadRows { first: rows * stride, stride, rows: 1, ranges: [0..rest, 0..0] };
        self.read_rows(from, &whole, &mut take)?;
        if rest > 0 { self.read_rows(from, &last, take) } else { Ok(()) }
    }

    /// Passes each row's ranges to `take`, as 32-bit words, after waiting for all work on the device.
    ///
    /// # Errors
    /// [`Error::Shape`] past the end of the buffer; [`Error::Device`] if the driver or earlier work failed.
    pub fn read_rows<T: Pod>(
        &mut self,
        from: &Buffer<T>,
        rows: &ReadRows,
        mut take: impl FnMut(&[f32]),
    ) -> Result<()> {
        let bytes = size_of::<T>();
        let elements: usize = rows.ranges.iter().map(Range::len).sum();
        let words = const { words_of::<T>() } * elements;
        let reach = rows.ranges.iter().map(|range| range.end).max().unwrap_or(0);
        if rows.rows == 0 {
            return Ok(());
        }
        let last = (rows.rows - 1).saturating_mul(rows.stride);
        let (expected, actual) =
            (from.len(), rows.first.saturating_add(last).saturating_add(reach));
        if actual > expected {
            return Err(Error::Shape { what: "elements of a device's buffer", expected, actual });
        }
        if words == 0 {
            (0..rows.rows).for_each(|_| take(&[]));
            return Ok(());
        }
        self.work.device().synchronize()?;
        if words > self.ring.elements() {
            self.ring.resize(words)?;
        }
        let most = self.ring.elements() / words;
        let mut receive = |ring: &mut DownloadRing<f32, ()>| -> Result<bool> {
            let Some(((), part)) = ring.receive()? else { return Ok(false) };
            part.chunks_exact(words).for_each(&mut take);
            Ok(true)
        };
        for start in (0..rows.rows).step_by(most) {
            let count = most.min(rows.rows - start);
            if self.ring.is_full() {
                receive(&mut self.ring)?;
            }
            let target = self.ring.target(&self.work)?;
            let mut to = target.address();
            for range in rows.ranges.iter().filter(|range| !range.is_empty()) {
                let begin = from.at(rows.first + start * rows.stride + range.start);
                let copied = CopiedRows {
                    bytes: range.len() * bytes,
                    rows: count,
                    from_stride: rows.stride * bytes,
                    to_stride: words * size_of::<f32>(),
                };
                // SAFETY: the rows lie in the buffer, as checked above, and in the slot, which has `most` rows.
                unsafe { self.work.copy_rows(begin, to, &copied)? };
                to += copied.bytes as u64;
            }
            self.ring.send((), count * words, &self.work)?;
        }
        while receive(&mut self.ring)? {}
        Ok(())
    }
}

/// Returns the number of 32-bit words of an element, which must be a whole one.
const fn words_of<T>() -> usize {
    let bytes = size_of::<T>();
    assert!(bytes > 0 && bytes.is_multiple_of(size_of::<f32>()), "elements are whole 32-bit words");
    bytes / size_of::<f32>()
}
