//! History on the device: channel-major samples, as many as the longest delay and a block need, loaded from input rows.

use super::super::plan::{Lane, Plan};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Source, Stream};
use crate::error::{Error, Result};
use crate::sample::Encoding;

/// Launch that sums `times` output times of every trial of the kernel.
///
/// | buffer   | axes          | type | unit   | access |
/// |----------|---------------|------|--------|--------|
/// | `input`  | channel, time | u8   | counts | read   |
/// | `output` | dm, time      | i32  | counts | write  |
///
/// Row `k` of the input is the k-th summed channel. Its element 0 is the sample at the first output time, so output
/// time `i` reads element `i + shift`. Kernels may read [`SLACK`] bytes beyond a row's samples on both sides; those
/// bytes never reach a sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Address of element 0 of the first row; any alignment.
    pub(super) input: u64,
    /// Bytes between rows: a multiple of 16.
    pub(super) pitch: u64,
    /// Output times.
    pub(super) times: usize,
    /// Address of the first trial's sum at the first output time; a multiple of 4.
    pub(super) output: u64,
    /// Elements between the rows of consecutive trials.
    pub(super) output_stride: usize,
    /// Constant added to every sum: channels x the value that a zero byte represents.
    pub(super) offset: i32,
}

/// Bytes beyond both ends of a row's samples that a kernel may read.
pub(super) const SLACK: usize = 2048;

/// Returns the CUDA type name of a history sample.
pub(super) fn element(lane: Lane) -> &'static str {
    match lane {
        Lane::U8 => "u8",
        Lane::U16 => "u16",
        Lane::U32 => "u32",
        Lane::F32 => "float",
    }
}

/// Threads per block of every kernel here.
const THREADS: usize = 256;

/// Channels per block of the corner turn.
const CHANNELS: usize = 128;

/// Moves of samples are aligned to this many samples.
const STEP: u64 = 16;

/// Channel-major samples on the device: one row per used channel, starting at output time `base`.
#[derive(Debug)]
pub(super) struct History {
    data: Buffer<u8>,
    lane: Lane,
    /// Output time of a row's first sample.
    base: u64,
    /// Samples per row, including the incomplete one.
    capacity: u64,
    /// Bytes between rows.
    pitch: usize,
    channels: Buffer<u32>,
    /// Largest shift of each trial.
    shifts: Buffer<u32>,
    downsample: u64,
    range: (i32, i32),
    row_bytes: usize,
    /// Input alignment in bytes that wide loads need.
    alignment: u64,
    turn: Function,
    move_rows: Function,
    clear_past: Function,
}

/// Returns the source of the kernels that fill and move the history.
pub(super) fn source(encoding: Encoding, lane: Lane) -> Source {
    let signed = encoding.range().is_some_and(|range| range.0 < 0);
    let defines = vec![
        ("BITS", encoding.bits().to_string()),
        ("SIGNED", u8::from(signed).to_string()),
        ("FLOATS", u8::from(lane == Lane::F32).to_string()),
        ("ELEMENT", element(lane).to_owned()),
    ];
    Source { name: "load.cu", text: include_str!("load.cu"), includes: &[], defines }
}

/// Returns the bytes of a history row: slack, samples, slack.
fn pitch(lane: Lane, capacity: u64) -> Option<usize> {
    let bytes = usize::try_from(capacity).ok()?.checked_mul(lane.bytes())?;
    bytes.checked_add(2 * slack(lane))?.checked_next_multiple_of(128)
}

/// Returns the bytes beyond each end of a row's samples that kernels may read.
fn slack(lane: Lane) -> usize {
    SLACK * lane.bytes()
}

/// Returns the bytes of a history of `capacity` samples. At the end of a stream kernels read past the loaded samples
/// by at most the longest delay. Such reads reach the next row; after the last row they reach padding added here.
pub(super) fn bytes(plan: &Plan, capacity: u64) -> Option<usize> {
    let lane = plan.lane(1);
    let rows = pitch(lane, capacity)?.checked_mul(plan.channels_used().len())?;
    rows.checked_add(plan.max_shift().checked_mul(lane.bytes())?)
}

impl History {
    /// Allocates rows of `capacity` output times.
    pub(super) fn new(plan: &Plan, capacity: u64, device: &Device) -> Result<Self> {
        let lane = plan.lane(1);
        let module = device.module(&source(plan.encoding(), lane))?;
        let missing = || Error::parameter("dm", "too high", "its history can't be addressed");
        let bytes = bytes(plan, capacity).ok_or_else(missing)?;
        let mut data = device.buffer(bytes)?;
        let stream = device.stream()?;
        stream.fill(&mut data, 0..bytes, 0)?;
        stream.synchronize()?;
        let channels: Vec<u32> = plan.channels_used().iter().map(|c| *c as u32).collect();
        let shifts: Vec<u32> =
            (0..plan.dms().len()).map(|dm| plan.trial_shift(dm) as u32).collect();
        Ok(Self {
            data,
            lane,
            base: 0,
            capacity,
            pitch: pitch(lane, capacity).ok_or_else(missing)?,
            channels: device.upload(&channels)?,
            shifts: device.upload(&shifts)?,
            downsample: plan.downsample() as u64,
            range: plan.range(),
            row_bytes: plan.row_bytes(),
            alignment: (plan.encoding().bits() as u64 / 2).max(1),
            turn: module.function("turn", 0)?,
            move_rows: module.function("move_rows", 0)?,
            clear_past: module.function("clear_past", 0)?,
        })
    }

    /// Resets the history for a new stream.
    pub(super) fn reset(&mut self) {
        self.base = 0;
    }

    /// Returns the bytes between rows.
    pub(super) fn pitch(&self) -> u64 {
        self.pitch as u64
    }

    /// Returns the address of the first channel's sample at an output time.
    pub(super) fn at(&self, time: u64) -> u64 {
        let bytes = slack(self.lane) as u64 + (time - self.base) * self.lane.bytes() as u64;
        self.data.address() + bytes
    }

    /// Queues the load of `rows` input rows at a device address. `before` rows came earlier; output times before
    /// `needed` are no longer needed.
    pub(super) fn load(
        &mut self,
        input: u64,
        rows: usize,
        before: u64,
        needed: u64,
        stream: &Stream,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let end = (before + rows as u64).div_ceil(self.downsample);
        if end - self.base > self.capacity {
            self.compact(before.div_ceil(self.downsample), needed, stream)?;
        }
        let first = before / self.downsample;
        let open = before % self.downsample;
        let sums = (end - first) as usize;
        let times = 128 / self.lane.bytes();
        let at = (first - self.base) as usize;
        let aligned = input.is_multiple_of(self.alignment)
            && (self.row_bytes as u64).is_multiple_of(self.alignment);
        let history = self.data.address() + slack(self.lane) as u64;
        let arguments = Arguments::new()
            .with(input)
            .with(self.row_bytes as i64)
            .with(rows as i64)
            .with(history)
            .with((self.pitch / self.lane.bytes()) as i64)
            .with(at as i64)
            .with(self.channels.address())
            .with(self.channels.len() as i32)
            .with(self.downsample as i32)
            .with(open as i32)
            .with(self.range.0)
            .with(self.range.1)
            .with(i32::from(aligned));
        let grid = [(sums + at % 4).div_ceil(times), self.channels.len().div_ceil(CHANNELS), 1];
        // SAFETY: the arguments are the kernel's; the caller's rows lie on this device, and the history
        // holds the sums.
        unsafe { stream.launch(&self.turn, grid, [THREADS, 1, 1], &arguments) }
    }

    /// Moves the samples from `needed` to `end` to the start of the rows.
    fn compact(&mut self, end: u64, needed: u64, stream: &Stream) -> Result<()> {
        let base = needed & !(STEP - 1);
        let by = (base - self.base) * self.lane.bytes() as u64;
        let bytes = (end.saturating_sub(base) * self.lane.bytes() as u64).next_multiple_of(16);
        self.base = base;
        if by == 0 || bytes == 0 {
            return Ok(());
        }
        let arguments = Arguments::new()
            .with(self.data.address() + slack(self.lane) as u64)
            .with(self.pitch as i64)
            .with(by as i64)
            .with(bytes as i64);
        let grid = [self.channels.len(), 1, 1];
        // SAFETY: the arguments are the kernel's; both ends lie in the rows.
        unsafe { stream.launch(&self.move_rows, grid, [THREADS, 1, 1], &arguments) }
    }

    /// Queues zeros for all sums that need a sample at or past `available`, counted from the first of `times` output
    /// times.
    pub(super) fn clear_past(
        &self,
        output: u64,
        stride: usize,
        available: u64,
        times: usize,
        stream: &Stream,
    ) -> Result<()> {
        let arguments = Arguments::new()
            .with(output)
            .with(stride as i64)
            .with(self.shifts.address())
            .with(available.min(1 << 62) as i64)
            .with(times as i64);
        let grid = [self.shifts.len(), times.div_ceil(8 * THREADS).min(64), 1];
        // SAFETY: the arguments are the kernel's; the caller's plane has a row for each trial.
        unsafe { stream.launch(&self.clear_past, grid, [THREADS, 1, 1], &arguments) }
    }
}
