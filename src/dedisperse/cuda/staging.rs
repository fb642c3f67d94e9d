//! Transfers between host and device: double page-locked buffers, so that copies in, kernels and copies out overlap.

use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::view::PlaneMut;

/// Size of an input buffer in bytes, limited to the fraction 1 / `INPUT_PART` of the free memory.
const INPUT_BYTES: usize = 8 << 20;
const INPUT_PART: usize = 8;

/// Bytes that one thread copies per task.
const PIECE: usize = 1 << 18;

/// Buffer of input rows for the device.
#[derive(Debug)]
struct Incoming {
    host: Pinned<u8>,
    pub(super) device: Buffer<u8>,
    /// Passes once the rows are on the device.
    pub(super) copied: Event,
    /// Passes once the kernels have read the rows.
    pub(super) taken: Event,
}

/// Buffer of sums for the host.
#[derive(Debug)]
struct Outgoing {
    pub(super) device: Buffer<u32>,
    host: Pinned<u32>,
    /// Passes once the device's buffer holds the sums.
    made: Event,
    /// Passes once the sums are on the host.
    pub(super) copied: Event,
}

/// Sums not yet copied to the caller's plane.
#[derive(Clone, Copy, Debug)]
struct Pending {
    slot: usize,
    column: usize,
    times: usize,
}

/// Streams and buffers for all transfers.
#[derive(Debug)]
pub(super) struct Staging {
    incoming: [Incoming; 2],
    outgoing: [Outgoing; 2],
    inward: Stream,
    pub(super) compute: Stream,
    outward: Stream,
    threads: Threads,
    workers: Vec<()>,
    next_in: usize,
    next_out: usize,
    pending: Option<Pending>,
    row_bytes: usize,
}

impl Staging {
    pub(super) fn new(
        device: &Device,
        row_bytes: usize,
        (dms, block): (usize, usize),
        threads: &Threads,
    ) -> Result<Self> {
        let bytes = INPUT_BYTES.min(device.free_bytes()? / INPUT_PART).max(row_bytes);
        let incoming = || {
            Ok(Incoming {
                host: device.pinned(bytes)?,
                device: device.buffer(bytes)?,
                copied: device.event()?,
                taken: device.event()?,
            })
        };
        let outgoing = || {
            Ok(Outgoing {
                device: device.buffer(dms * block)?,
                host: device.pinned(dms * block)?,
                made: device.event()?,
                copied: device.event()?,
            })
        };
        Ok(Self {
            incoming: [incoming()?, incoming()?],
            outgoing: [outgoing()?, outgoing()?],
            inward: device.stream()?,
            compute: device.stream()?,
            outward: device.stream()?,
            threads: threads.clone(),
            workers: vec![(); threads.count()],
            next_in: 0,
            next_out: 0,
            pending: None,
            row_bytes,
        })
    }

    /// Returns the input rows of one buffer.
    pub(super) fn rows(&self) -> usize {
        self.incoming[0].host.len() / self.row_bytes
    }

    /// Queues the copy of input rows to the device and makes the compute stream wait for it. Returns the rows' device
    /// address.
    pub(super) fn copy_in(&mut self, bytes: &[u8]) -> Result<u64> {
        let slot = &mut self.incoming[self.next_in];
        // A previous copy may still read the host buffer.
        slot.copied.synchronize()?;
        let target = &mut slot.host.as_mut_slice()[..bytes.len()];
        self.threads.for_each_chunk(&mut self.workers, target, PIECE, |(), index, piece| {
            piece.copy_from_slice(&bytes[index * PIECE..][..piece.len()]);
        });
        self.inward.wait(&slot.taken)?;
        // SAFETY: the buffer is not touched before `copied` has passed.
        unsafe { self.inward.copy_in(&slot.host, 0..bytes.len(), &mut slot.device, 0)? };
        self.inward.record(&slot.copied)?;
        self.compute.wait(&slot.copied)?;
        Ok(slot.device.address())
    }

    /// Marks the last input buffer as read once the compute stream reaches this point.
    pub(super) fn taken(&mut self) -> Result<()> {
        self.compute.record(&self.incoming[self.next_in].taken)?;
        self.next_in = 1 - self.next_in;
        Ok(())
    }

    /// Returns the device buffer for the next sums; the compute stream waits until it may be overwritten.
    pub(super) fn target(&mut self) -> Result<u64> {
        let slot = &self.outgoing[self.next_out];
        self.compute.wait(&slot.copied)?;
        Ok(slot.device.address())
    }

    /// Queues the copy of the latest `times` sums of each trial to the host, and copies the previous sums to the
    /// caller's plane meanwhile.
    pub(super) fn copy_out<T: bytemuck::Pod + Send + Sync>(
        &mut self,
        times: usize,
        output: &mut PlaneMut<'_, T>,
        column: usize,
    ) -> Result<()> {
        let words = times * output.dms();
        let slot = &mut self.outgoing[self.next_out];
        self.compute.record(&slot.made)?;
        self.outward.wait(&slot.made)?;
        // SAFETY: the buffer is not touched before `copied` has passed.
        unsafe { self.outward.copy_out(&slot.device, 0..words, &mut slot.host, 0)? };
        self.outward.record(&slot.copied)?;
        let now = Pending { slot: self.next_out, column, times };
        self.next_out = 1 - self.next_out;
        self.hand_over(output)?;
        self.pending = Some(now);
        Ok(())
    }

    /// Copies the pending sums to the caller's plane.
    pub(super) fn hand_over<T: bytemuck::Pod + Send + Sync>(
        &mut self,
        output: &mut PlaneMut<'_, T>,
    ) -> Result<()> {
        let Some(Pending { slot, column, times }) = self.pending.take() else { return Ok(()) };
        let slot = &self.outgoing[slot];
        slot.copied.synchronize()?;
        let sums: &[T] = bytemuck::cast_slice(slot.host.as_slice());
        let stride = output.stride();
        let rows = output.data_mut();
        self.threads.for_each_chunk(&mut self.workers, rows, stride, |(), dm, row| {
            row[column..column + times].copy_from_slice(&sums[dm * times..][..times]);
        });
        Ok(())
    }
}
