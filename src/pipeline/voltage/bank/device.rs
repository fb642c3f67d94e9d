//! Dedispersed voltages in a GPU's memory: samples are copied in, and rows out, part by part, while other parts are
//! computed.

use std::ops::Range;

use crate::backend::cuda::{Buffer, Device, DownloadRing, Stream, UploadRing};
use crate::backend::threads::Threads;
use crate::channelize::{Channelizer, DeviceVoltages, Joining, Plan, RowJoiner};
use crate::coherent::{self, Dedisperser};
use crate::error::Result;
use crate::view::{Progress, check_length};
use crate::voltage::{VoltageEncoding, Voltages};

/// Bytes of dedispersed voltages of a part: enough to fill the device while other parts are copied.
const SAMPLE_BYTES: usize = 128 << 20;

/// Most bytes of rows of a part.
const ROW_BYTES: usize = 32 << 20;

/// Parts in flight.
const SLOTS: usize = 3;

/// Bytes that a thread copies at a time.
const PIECE: usize = 1 << 18;

/// Memory and streams of a device.
pub(super) struct DeviceSamples {
    threads: Threads,
    work: Stream,
    samples: Samples,
    joiner: Option<Joiner>,
    /// Staging of samples and rows in host memory; `None` before the first rows for the host.
    host: Option<Host>,
}

/// Dedispersed samples of each stream.
struct Samples {
    sizes: Sizes,
    /// Rows of `sizes.stride` bytes.
    memory: Buffer<u8>,
    /// Samples that the filter bank has not consumed.
    held: Range<usize>,
}

/// Sizes of a part.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Recorded samples of each stream.
    times: usize,
    /// Dedispersed samples of each stream, and bytes from one stream to the next.
    room: usize,
    stride: usize,
    recorded: VoltageEncoding,
    dedispersed: VoltageEncoding,
    recorded_streams: usize,
    /// Rows of a part, and bytes of a row as computed and as copied out.
    rows: usize,
    computed_bytes: usize,
    row_bytes: usize,
}

/// Sum of antennas and interleaving of copies, with memory for a part's rows.
struct Joiner {
    joiner: RowJoiner,
    rows: Buffer<u8>,
}

struct Host {
    uploads: UploadRing,
    downloads: DownloadRing<u8>,
}

impl Sizes {
    /// Computes sizes for about `bytes` bytes of dedispersed voltages, at least a block.
    fn new(
        coherent: &coherent::Plan,
        bank: &Plan,
        joining: Option<&Joining>,
        bytes: usize,
    ) -> Self {
        let (recorded, dedispersed) = (coherent.options().encoding, coherent.output_encoding());
        let block = coherent.output_streams() * dedispersed.bytes(coherent.block());
        let times = (bytes / block).max(1) * coherent.block();
        let room = coherent.max_times(times);
        let computed_bytes = bank.row_elements() * bank.element_bytes();
        let parts = joining.map_or(1, |joining| joining.copies * joining.antennas);
        let rows = (ROW_BYTES.min(bytes) / computed_bytes).clamp(1, bank.max_rows(room).max(1));
        Self {
            times,
            room,
            stride: dedispersed.bytes(room).next_multiple_of(16),
            recorded,
            dedispersed,
            recorded_streams: coherent.options().streams(),
            rows,
            computed_bytes,
            row_bytes: computed_bytes / parts,
        }
    }

    /// Computes the largest sizes whose memory fits `free` bytes, staging included; at least a block.
    fn fitting(
        coherent: &coherent::Plan,
        bank: &Plan,
        joining: Option<&Joining>,
        free: usize,
    ) -> Self {
        let mut bytes = SAMPLE_BYTES;
        loop {
            let sizes = Self::new(coherent, bank, joining, bytes);
            let samples = coherent.output_streams().saturating_mul(sizes.stride);
            let joined = joining.map_or(0, |_| sizes.rows * sizes.computed_bytes);
            let staged = sizes.recorded_streams * sizes.recorded_stride();
            let staged = SLOTS * (staged + sizes.rows * sizes.row_bytes);
            let fits = samples.saturating_add(joined).saturating_add(staged) <= free;
            if fits || sizes.times == coherent.block() {
                return sizes;
            }
            bytes /= 2;
        }
    }

    /// Returns the bytes from one recorded stream to the next.
    fn recorded_stride(&self) -> usize {
        self.recorded.bytes(self.times).next_multiple_of(16)
    }
}

impl DeviceSamples {
    /// Allocates memory: at most half of the device's free memory, if that is enough for a block.
    pub(super) fn new(
        device: &Device,
        threads: &Threads,
        coherent: &coherent::Plan,
        bank: &Plan,
        joining: Option<Joining>,
    ) -> Result<Self> {
        let sizes = Sizes::fitting(coherent, bank, joining.as_ref(), device.free_bytes()? / 2);
        let memory = device.buffer(coherent.output_streams().saturating_mul(sizes.stride))?;
        let joiner = match joining {
            Some(joining) => Some(Joiner {
                joiner: RowJoiner::new(device, joining)?,
                rows: device.buffer(sizes.rows * sizes.computed_bytes)?,
            }),
            None => None,
        };
        let (threads, work) = (threads.clone(), device.stream()?);
        let samples = Samples { sizes, memory, held: 0..0 };
        Ok(Self { threads, work, samples, joiner, host: None })
    }

    /// Returns whether rows in host memory are joined.
    pub(super) fn joins(&self) -> bool {
        self.joiner.is_some()
    }

    /// Returns the most dedispersed samples of a part.
    pub(super) fn room(&self) -> usize {
        self.samples.sizes.room
    }

    /// Drops all samples at hand.
    pub(super) fn clear(&mut self) {
        self.samples.held = 0..0;
    }

    /// Dedisperses samples of the host, or those after the recording's end, and copies the rows that they complete to
    /// the host.
    pub(super) fn run(
        &mut self,
        stages: Stages<'_>,
        voltages: Option<Voltages<'_>>,
        rows: &mut [u8],
    ) -> Result<Progress> {
        if self.host.is_none() {
            self.host = Some(Host::new(self.work.device(), &self.samples.sizes)?);
        }
        let done = self.parts(stages, voltages, rows);
        if let (Err(_), Some(host)) = (&done, &mut self.host) {
            host.downloads.discard();
        }
        done
    }

    fn parts(
        &mut self,
        mut stages: Stages<'_>,
        voltages: Option<Voltages<'_>>,
        rows: &mut [u8],
    ) -> Result<Progress> {
        let Self { threads, work, samples, joiner, host } = self;
        let Some(host) = host else { return Ok(Progress { consumed: 0, produced: 0 }) };
        let Sizes { rows: most, row_bytes, times, .. } = samples.sizes;
        let asked = rows.len() / row_bytes;
        let mut done = Progress { consumed: 0, produced: 0 };
        loop {
            while !samples.held.is_empty() {
                if host.downloads.is_full() {
                    host.receive(threads, rows)?;
                }
                let room = most.min(asked - done.produced);
                let target = host.downloads.target(work)?;
                let made = match joiner {
                    Some(Joiner { joiner, rows: all }) => {
                        let made = samples.channelize(&mut stages, all, 0..room, work)?;
                        joiner.enqueue(all, made, target, work)?;
                        made
                    }
                    None => samples.channelize(&mut stages, target, 0..room, work)?,
                };
                if made > 0 {
                    let bytes = done.produced * row_bytes..(done.produced + made) * row_bytes;
                    host.downloads.send(bytes, made * row_bytes, work)?;
                }
                done.produced += made;
                // The next row has no space.
                if !samples.held.is_empty() && done.produced == asked {
                    while host.receive(threads, rows)? {}
                    return Ok(done);
                }
            }
            let left = voltages.map_or(0, |voltages| voltages.times() - done.consumed);
            if let (Some(voltages), 1..) = (voltages, left) {
                let part = voltages.slice(done.consumed, left.min(times))?;
                let sizes = &samples.sizes;
                let stride = sizes.recorded_stride();
                let input = host.uploads.upload(sizes.recorded_streams * stride, work, |to| {
                    threads.for_each(to, PIECE, |index, piece| {
                        copy_rows(part, stride, index * PIECE, piece);
                    });
                })?;
                let layout = DeviceVoltages { first_byte: 0, stride, times: part.times() };
                done.consumed += samples.dedisperse(&mut stages, input, layout, work)?;
                host.uploads.release(work)?;
            } else if voltages.is_some() || !samples.flush(&mut stages, work)? {
                while host.receive(threads, rows)? {}
                return Ok(done);
            }
        }
    }

    /// Enqueues the computation of rows, which are not joined, from `pieces` of recorded voltages in the device's
    /// memory, and, with `is_last`, from the zeros that follow them; returns the number of rows.
    pub(super) fn enqueue(
        &mut self,
        mut stages: Stages<'_>,
        voltages: &Buffer<u8>,
        pieces: &[DeviceVoltages],
        is_last: bool,
        rows: &mut Buffer<u8>,
        stream: &Stream,
    ) -> Result<usize> {
        // Rows for the host were computed in another stream.
        self.work.synchronize()?;
        let samples = &mut self.samples;
        let mut made = 0;
        let all = rows.len() / samples.sizes.computed_bytes;
        made += samples.channelize_all(&mut stages, rows, made..all, stream)?;
        for piece in pieces {
            let mut used = 0;
            while used < piece.times {
                let first_byte = piece.first_byte + samples.sizes.recorded.bytes(used);
                let times = (piece.times - used).min(samples.sizes.times);
                let part = DeviceVoltages { first_byte, times, ..*piece };
                used += samples.dedisperse(&mut stages, voltages, part, stream)?;
                made += samples.channelize_all(&mut stages, rows, made..all, stream)?;
            }
        }
        while is_last && samples.flush(&mut stages, stream)? {
            made += samples.channelize_all(&mut stages, rows, made..all, stream)?;
        }
        Ok(made)
    }
}

/// Stages bound to the device, and the dedispersed samples that are still to be dropped.
pub(super) struct Stages<'a> {
    pub(super) channelizer: &'a mut Channelizer,
    pub(super) dedisperser: &'a mut Dedisperser,
    pub(super) dropped: &'a mut u64,
}

impl Samples {
    /// Enqueues the dedispersion of samples, after the filter bank has consumed all earlier ones; returns the samples
    /// consumed.
    fn dedisperse(
        &mut self,
        stages: &mut Stages<'_>,
        input: &Buffer<u8>,
        layout: DeviceVoltages,
        stream: &Stream,
    ) -> Result<usize> {
        let (memory, stride) = (&mut self.memory, self.sizes.stride);
        let progress = stages.dedisperser.enqueue(input, layout, memory, stride, stream)?;
        self.held = drop_first(stages.dropped, progress.produced)..progress.produced;
        Ok(progress.consumed)
    }

    /// Enqueues the dedispersion of the last samples; returns whether there were any.
    fn flush(&mut self, stages: &mut Stages<'_>, stream: &Stream) -> Result<bool> {
        let (memory, stride) = (&mut self.memory, self.sizes.stride);
        let made = stages.dedisperser.enqueue_flush(memory, stride, stream)?;
        self.held = drop_first(stages.dropped, made)..made;
        Ok(made > 0)
    }

    /// Enqueues the filter bank for the samples held, as far as the rows have space; returns the number of rows.
    fn channelize(
        &mut self,
        stages: &mut Stages<'_>,
        output: &mut Buffer<u8>,
        rows: Range<usize>,
        stream: &Stream,
    ) -> Result<usize> {
        let first_byte = self.sizes.dedispersed.bytes(self.held.start);
        let layout =
            DeviceVoltages { first_byte, stride: self.sizes.stride, times: self.held.len() };
        let bank = &mut stages.channelizer;
        let progress = bank.enqueue_rows(&self.memory, layout, output, rows, stream)?;
        self.held.start += progress.consumed;
        Ok(progress.produced)
    }

    /// Like [`Samples::channelize`], for all samples held.
    fn channelize_all(
        &mut self,
        stages: &mut Stages<'_>,
        output: &mut Buffer<u8>,
        rows: Range<usize>,
        stream: &Stream,
    ) -> Result<usize> {
        if self.held.is_empty() {
            return Ok(0);
        }
        let made = self.channelize(stages, output, rows, stream)?;
        check_length("samples that are channelized", 0, self.held.len())?;
        Ok(made)
    }
}

impl Host {
    fn new(device: &Device, sizes: &Sizes) -> Result<Self> {
        let bytes = sizes.recorded_streams * sizes.recorded_stride();
        Ok(Self {
            uploads: UploadRing::new(device, bytes, SLOTS)?,
            downloads: DownloadRing::new(device, sizes.rows * sizes.row_bytes, SLOTS)?,
        })
    }

    /// Copies the oldest rows to the output; returns whether there were any.
    fn receive(&mut self, threads: &Threads, rows: &mut [u8]) -> Result<bool> {
        let Some((bytes, made)) = self.downloads.receive()? else { return Ok(false) };
        threads.copy(made, &mut rows[bytes]);
        Ok(true)
    }
}

/// Fills `piece`, the bytes from `start` of memory whose rows are `stride` bytes apart.
fn copy_rows(part: Voltages<'_>, stride: usize, start: usize, piece: &mut [u8]) {
    let end = start + piece.len();
    for stream in start / stride..end.div_ceil(stride) {
        let row = part.row(stream);
        let first = stream * stride;
        let (from, to) = (first.max(start), (first + row.len()).min(end));
        if from < to {
            piece[from - start..to - start].copy_from_slice(&row[from - first..to - first]);
        }
    }
}

/// Returns how many of `made` samples are dropped.
pub(super) fn drop_first(dropped: &mut u64, made: usize) -> usize {
    let now = (*dropped).min(made as u64);
    *dropped -= now;
    now as usize
}
