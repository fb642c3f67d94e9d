//! Streams voltages from host memory and rows back in chunks. Copies of the next chunk in and of the last chunk out
//! overlap the computation of the current chunk.

use std::ops::Range;

use super::job::DeviceVoltages;
use super::launcher::Launcher;
use crate::backend::cuda::{Buffer, Device, Event, Pinned, Stream};
use crate::backend::threads::Threads;
use crate::channelize::plan::Plan;
use crate::error::{Error, Result};
use crate::voltage::Voltages;

/// Chunks in flight.
const SLOTS: usize = 3;

/// Bytes of a chunk's input and output together.
const CHUNK_BYTES: usize = 1 << 25;

/// Bytes that a thread copies at a time.
const PIECE: usize = 1 << 18;

/// Padding before a chunk's samples, so that windows can begin at a multiple of 16 bytes.
const FRONT: usize = 16;

/// Host and device memory of a chunk.
#[derive(Debug)]
struct Slot {
    input: Pinned<u8>,
    device_input: Buffer<u8>,
    device_output: Buffer<u8>,
    output: Pinned<u8>,
    copied_in: Event,
    computed: Event,
    copied_out: Event,
    /// Byte range of the call's output that the chunk produces.
    rows: Range<usize>,
    /// Whether a chunk is in flight.
    is_busy: bool,
}

/// Streams and staging memory.
#[derive(Debug)]
pub(super) struct Host {
    device: Device,
    threads: Threads,
    scratch: Vec<()>,
    copy_in: Stream,
    kernels: Stream,
    copy_out: Stream,
    /// Sized for the largest call so far, at most one full chunk.
    slots: Vec<Slot>,
    /// Samples per stream of a slot.
    times: usize,
    /// Maximum samples per chunk.
    most: usize,
}

impl Host {
    pub(super) fn new(plan: &Plan, device: &Device, threads: &Threads) -> Result<Self> {
        let unit = plan.input().encoding.samples_per_byte();
        let row_bytes = plan.row_elements() * plan.element_bytes();
        let hop_bytes =
            plan.input().streams() * plan.input().encoding.bytes(plan.samples_per_row());
        let rows = CHUNK_BYTES as f64 / (row_bytes + hop_bytes) as f64;
        let most = (rows * plan.samples_per_row() as f64) as usize / unit * unit;
        Ok(Self {
            device: device.clone(),
            scratch: vec![(); threads.count()],
            threads: threads.clone(),
            copy_in: device.stream()?,
            kernels: device.stream()?,
            copy_out: device.stream()?,
            slots: Vec::new(),
            times: 0,
            most: most.max(unit),
        })
    }

    /// Consumes all samples and writes the rows they complete; `output` has space for them.
    pub(super) fn run(
        &mut self,
        launcher: &mut Launcher,
        input: Voltages<'_>,
        output: &mut [u8],
    ) -> Result<()> {
        self.grow(launcher.plan(), input.times())?;
        let mut whole = 0;
        self.chunks(launcher, input, output, &mut whole).map_err(|error| {
            // Work in flight must end before its memory is reused.
            let _ = self.device.synchronize();
            self.slots.iter_mut().for_each(|slot| slot.is_busy = false);
            with_valid_bytes(error, whole)
        })
    }

    fn chunks(
        &mut self,
        launcher: &mut Launcher,
        input: Voltages<'_>,
        output: &mut [u8],
        whole: &mut usize,
    ) -> Result<()> {
        let (mut index, mut taken, mut used) = (0, 0, 0);
        while taken < input.times() {
            let slot = index % SLOTS;
            self.collect(slot, output, whole)?;
            let times = self.times.min(input.times() - taken);
            let part = input.slice(taken, times)?;
            let rows = launcher.row_bytes_after(times);
            self.queue(launcher, part, slot, used..used + rows)?;
            (taken, used, index) = (taken + times, used + rows, index + 1);
        }
        for slot in index..index + SLOTS {
            self.collect(slot % SLOTS, output, whole)?;
        }
        Ok(())
    }

    /// Enqueues a chunk.
    fn queue(
        &mut self,
        launcher: &mut Launcher,
        part: Voltages<'_>,
        slot: usize,
        rows: Range<usize>,
    ) -> Result<()> {
        let slot = &mut self.slots[slot];
        let pad = launcher.pad();
        let stride = (pad + part.encoding().bytes(part.times())).next_multiple_of(FRONT);
        let bytes = stride * part.streams();
        let pinned = &mut slot.input.as_mut_slice()[..bytes];
        self.threads.for_each_chunk(&mut self.scratch, pinned, PIECE, |(), index, piece| {
            copy_rows(part, (pad, stride), index * PIECE, piece);
        });
        let layout = DeviceVoltages { first_byte: pad, stride, times: part.times() };
        // SAFETY: the slot's memory is not touched until `copied_out` has completed; the device buffers have space
        // for a chunk's samples and rows.
        unsafe {
            self.copy_in.copy_in(&slot.input, 0..bytes, &mut slot.device_input, 0)?;
            self.copy_in.record(&slot.copied_in)?;
            self.kernels.wait(&slot.copied_in)?;
            let input = (slot.device_input.address(), layout);
            launcher.enqueue(input, slot.device_output.address(), &self.kernels)?;
            self.kernels.record(&slot.computed)?;
            self.copy_out.wait(&slot.computed)?;
            self.copy_out.copy_out(&slot.device_output, 0..rows.len(), &mut slot.output, 0)?;
            self.copy_out.record(&slot.copied_out)?;
        }
        slot.rows = rows;
        slot.is_busy = true;
        Ok(())
    }

    /// Waits for the slot's chunk, if any, and copies its rows to the output.
    fn collect(&mut self, slot: usize, output: &mut [u8], whole: &mut usize) -> Result<()> {
        let slot = &mut self.slots[slot];
        if !slot.is_busy {
            return Ok(());
        }
        slot.copied_out.synchronize()?;
        slot.is_busy = false;
        let from = &slot.output.as_slice()[..slot.rows.len()];
        let to = &mut output[slot.rows.clone()];
        self.threads.for_each_chunk(&mut self.scratch, to, PIECE, |(), index, piece| {
            piece.copy_from_slice(&from[index * PIECE..][..piece.len()]);
        });
        *whole = slot.rows.end;
        Ok(())
    }

    /// Allocates staging memory for `times` samples or for full chunks; halves the chunk if memory is short.
    fn grow(&mut self, plan: &Plan, times: usize) -> Result<()> {
        let unit = plan.input().encoding.samples_per_byte();
        let wanted = times.next_power_of_two().next_multiple_of(unit).min(self.most);
        if wanted <= self.times {
            return Ok(());
        }
        self.slots.clear();
        self.times = 0;
        let mut times = wanted;
        loop {
            match (0..SLOTS).map(|_| Slot::new(plan, &self.device, times)).collect() {
                Ok(slots) => {
                    (self.slots, self.times) = (slots, times);
                    return Ok(());
                }
                Err(error) if times == unit => return Err(error),
                Err(_) => times = (times / 2 / unit * unit).max(unit),
            }
        }
    }
}

impl Slot {
    fn new(plan: &Plan, device: &Device, times: usize) -> Result<Self> {
        let input = plan.input();
        let stride = (FRONT + input.encoding.bytes(times)).next_multiple_of(FRONT);
        let bytes = stride.saturating_mul(input.streams());
        let row = plan.row_elements() * plan.element_bytes();
        let output = row.saturating_mul(plan.max_rows(times));
        Ok(Self {
            device_input: device.buffer(bytes)?,
            device_output: device.buffer(output)?,
            input: device.pinned(bytes)?,
            output: device.pinned(output)?,
            copied_in: device.event()?,
            computed: device.event()?,
            copied_out: device.event()?,
            rows: 0..0,
            is_busy: false,
        })
    }
}

/// Fills `piece`, the bytes from `start` of a staging buffer whose rows are `stride` bytes apart and begin with `pad`
/// bytes of padding.
fn copy_rows(part: Voltages<'_>, (pad, stride): (usize, usize), start: usize, piece: &mut [u8]) {
    let end = start + piece.len();
    for stream in start / stride..end.div_ceil(stride) {
        let row = part.row(stream);
        let first = stream * stride + pad;
        let (from, to) = (first.max(start), (first + row.len()).min(end));
        if from < to {
            piece[from - start..to - start].copy_from_slice(&row[from - first..to - first]);
        }
    }
}

/// Adds to a device error that the call's output is valid up to byte `whole`.
fn with_valid_bytes(error: Error, whole: usize) -> Error {
    match error {
        Error::Device { call, code, text } => {
            let text = format!("{text}; of this call's output {whole} bytes were whole");
            Error::Device { call, code, text }
        }
        other => other,
    }
}
