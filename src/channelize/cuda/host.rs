//! Streams voltages from host memory and rows back in chunks. Copies of the next chunk in and of the last chunk out
//! overlap the computation of the current chunk.

use super::job::DeviceVoltages;
use super::launcher::Launcher;
use crate::backend::cuda::{Device, DownloadRing, Stream, UploadRing};
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

/// Streams and staging memory, sized for the largest call so far and at most one full chunk.
#[derive(Debug)]
pub(super) struct Host {
    threads: Threads,
    uploads: UploadRing,
    kernels: Stream,
    downloads: DownloadRing<u8>,
    /// Samples per stream of a chunk.
    times: usize,
    /// Maximum samples per chunk.
    max_times: usize,
}

impl Host {
    pub(super) fn new(plan: &Plan, device: &Device, threads: &Threads) -> Result<Self> {
        let unit = plan.input().encoding.samples_per_byte();
        let row_bytes = plan.row_elements() * plan.element_bytes();
        let hop_bytes =
            plan.input().streams() * plan.input().encoding.bytes(plan.samples_per_row());
        let rows = CHUNK_BYTES as f64 / (row_bytes + hop_bytes) as f64;
        let max_times = (rows * plan.samples_per_row() as f64) as usize / unit * unit;
        Ok(Self {
            threads: threads.clone(),
            uploads: UploadRing::new(device, 0, SLOTS)?,
            kernels: device.stream()?,
            downloads: DownloadRing::new(device, 0, SLOTS)?,
            times: 0,
            max_times: max_times.max(unit),
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
            self.downloads.discard();
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
        let (mut taken, mut used) = (0, 0);
        while taken < input.times() {
            if self.downloads.is_full() {
                self.receive(output, whole)?;
            }
            let times = self.times.min(input.times() - taken);
            let part = input.slice(taken, times)?;
            let bytes = launcher.row_bytes_after(times);
            self.enqueue(launcher, part)?;
            self.downloads.send(used..used + bytes, bytes, &self.kernels)?;
            (taken, used) = (taken + times, used + bytes);
        }
        while self.receive(output, whole)? {}
        Ok(())
    }

    /// Enqueues the copy of a chunk and its computation.
    fn enqueue(&mut self, launcher: &mut Launcher, part: Voltages<'_>) -> Result<()> {
        let pad = launcher.pad();
        let stride = (pad + part.encoding().bytes(part.times())).next_multiple_of(FRONT);
        let layout = DeviceVoltages { first_byte: pad, stride, times: part.times() };
        let fill = |host: &mut [u8]| {
            self.threads.for_each(host, PIECE, |index, piece| {
                copy_rows(part, pad, stride, index * PIECE, piece);
            });
        };
        let input = self.uploads.upload(stride * part.streams(), &self.kernels, fill)?.address();
        let output = self.downloads.target(&self.kernels)?.address();
        // SAFETY: the device buffers have space for a chunk's samples and rows.
        unsafe { launcher.enqueue(input, layout, output, &self.kernels)? };
        self.uploads.release(&self.kernels)
    }

    /// Copies the oldest chunk's rows to the output; returns whether there was one.
    fn receive(&mut self, output: &mut [u8], whole: &mut usize) -> Result<bool> {
        let Some((range, rows)) = self.downloads.receive()? else { return Ok(false) };
        *whole = range.end;
        self.threads.copy(rows, &mut output[range]);
        Ok(true)
    }

    /// Allocates staging memory for `times` samples or for full chunks; halves the chunk if memory is short.
    fn grow(&mut self, plan: &Plan, times: usize) -> Result<()> {
        let unit = plan.input().encoding.samples_per_byte();
        let wanted = times.next_power_of_two().next_multiple_of(unit).min(self.max_times);
        if wanted <= self.times {
            return Ok(());
        }
        self.times = 0;
        let mut times = wanted;
        loop {
            match self.resize(plan, times) {
                Ok(()) => {
                    self.times = times;
                    return Ok(());
                }
                Err(error) if times == unit => return Err(error),
                Err(_) => times = (times / 2 / unit * unit).max(unit),
            }
        }
    }

    fn resize(&mut self, plan: &Plan, times: usize) -> Result<()> {
        let input = plan.input();
        let stride = (FRONT + input.encoding.bytes(times)).next_multiple_of(FRONT);
        let row = plan.row_elements() * plan.element_bytes();
        // The memory of both rings is free before either allocates.
        self.downloads.resize(0)?;
        self.uploads.resize(stride.saturating_mul(input.streams()))?;
        self.downloads.resize(row.saturating_mul(plan.max_rows(times)))
    }
}

/// Fills `piece`, the bytes from `start` of a staging buffer whose rows are `stride` bytes apart and begin with `pad`
/// bytes of padding.
fn copy_rows(part: Voltages<'_>, pad: usize, stride: usize, start: usize, piece: &mut [u8]) {
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
