//! Cleaning on a GPU: one warp per row, one thread per channel's running median.
//!
//! Invariant: a row's result depends on that row, and on the running medians where cells are masked.
#![allow(unsafe_code)]

mod gaps;

use super::plan::{Plan, TimeMask};
use crate::backend::cuda::{
    self, Arguments, Buffer, Device, DownloadRing, Extent, Function, Source, Stream, UploadRing,
    Variant,
};
use crate::error::{Error, Result};
use crate::sample::{Encoding, Samples};
pub use gaps::GapFiller;

/// Bytes of a part of host rows, in or out.
const PART_BYTES: usize = 16 << 20;

/// Samples in the running median of a channel.
const SAMPLES: usize = 64;

/// 32-bit words of a channel's state.
const CHANNEL_WORDS: usize = 4;

/// Cells filled per batch of rows.
const CELLS: usize = 4 << 20;

/// Cleaning plan bound to a device.
#[derive(Debug)]
pub(super) struct Engine {
    device: Device,
    clean: Function,
    /// All ones for channels in the mean, 0 for the others.
    good: Buffer<u32>,
    medians: Option<Medians>,
    staging: Option<Staging>,
    stream: Stream,
    /// Completion of all work queued on any stream.
    done: cuda::Event,
    time: u64,
}

/// Transfers of host rows to the device and back.
#[derive(Debug)]
struct Staging {
    uploads: UploadRing,
    downloads: DownloadRing<u8>,
}

impl Staging {
    fn new(device: &Device, plan: &Plan) -> Result<Self> {
        let (input, output) = (plan.row_bytes(), plan.output_row_bytes());
        let rows = (PART_BYTES / input.max(output)).max(1);
        Ok(Self {
            uploads: UploadRing::new(device, rows * input, 2)?,
            downloads: DownloadRing::new(device, rows * output, 2)?,
        })
    }
}

/// Copies the oldest rows to the output; returns whether there were any.
fn deliver(downloads: &mut DownloadRing<u8>, output: &mut [u8]) -> Result<bool> {
    let Some((range, rows)) = downloads.receive()? else { return Ok(false) };
    output[range].copy_from_slice(rows);
    Ok(true)
}

/// State and buffers that fill masked cells.
#[derive(Debug)]
struct Medians {
    observe: Function,
    forget: Function,
    /// One bit per bad channel; axes interval, word.
    bad: Buffer<u32>,
    words: usize,
    mask: (u64, u32, u32),
    channels: Buffer<u32>,
    values: Buffer<f32>,
    fills: Buffer<f32>,
    rows: usize,
    is_fresh: bool,
}

impl Engine {
    pub(super) fn new(plan: &Plan, device: &Device) -> Result<Self> {
        let options = plan.options();
        let mask = options.time_mask.as_ref();
        let source = clean_source(plan.encoding(), options.zero_dm, mask.is_some());
        let module = device.module(&source)?;
        let good: Vec<u32> =
            options.masked.iter().map(|masked| u32::from(*masked).wrapping_sub(1)).collect();
        let (stream, done) = (device.stream()?, device.event()?);
        stream.record(&done)?;
        Ok(Self {
            device: device.clone(),
            clean: module.function("clean", 0)?,
            good: device.upload(&good)?,
            medians: mask.map(|mask| Medians::new(plan, mask, device)).transpose()?,
            staging: None,
            stream,
            done,
            time: 0,
        })
    }

    /// Cleans rows in host memory.
    pub(super) fn run(&mut self, plan: &Plan, input: Samples<'_>, output: &mut [u8]) -> Result<()> {
        let mut staging = match self.staging.take() {
            Some(staging) => staging,
            None => Staging::new(&self.device, plan)?,
        };
        self.run_staged(plan, &mut staging, input.bytes(), output)?;
        // On an error the staging buffers are dropped.
        self.staging = Some(staging);
        Ok(())
    }

    fn run_staged(
        &mut self,
        plan: &Plan,
        staging: &mut Staging,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<()> {
        let Staging { uploads, downloads } = staging;
        let mut end = 0;
        for part in input.chunks(uploads.elements()) {
            if downloads.is_full() {
                deliver(downloads, output)?;
            }
            let from =
                uploads.upload(part.len(), &self.stream, |host| host.copy_from_slice(part))?;
            let (from, to) = (from.address(), downloads.target(&self.stream)?.address());
            let times = part.len() / plan.row_bytes();
            self.clean(plan, from, to, times, None)?;
            uploads.release(&self.stream)?;
            let start = end;
            end += times * plan.output_row_bytes();
            downloads.send(start..end, end - start, &self.stream)?;
        }
        while deliver(downloads, output)? {}
        Ok(())
    }

    /// Cleans rows on the device, on the caller's stream.
    pub(super) fn enqueue(
        &mut self,
        plan: &Plan,
        input: &Buffer<u8>,
        output: &mut Buffer<u8>,
        times: usize,
        stream: &Stream,
    ) -> Result<()> {
        let lengths = [
            ("bytes of rows to clean", times.saturating_mul(plan.row_bytes()), input.len()),
            ("bytes of cleaned rows", times.saturating_mul(plan.output_row_bytes()), output.len()),
        ];
        for (what, expected, actual) in lengths {
            if actual < expected {
                return Err(Error::Shape { what, expected, actual });
            }
        }
        input.check_on(&self.device)?;
        output.check_on(&self.device)?;
        self.clean(plan, input.address(), output.address(), times, Some(stream))
    }

    pub(super) fn reset(&mut self) {
        self.time = 0;
        self.medians.iter_mut().for_each(|medians| medians.is_fresh = false);
    }

    fn clean(
        &mut self,
        plan: &Plan,
        input: u64,
        output: u64,
        times: usize,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let stream = stream.unwrap_or(&self.stream);
        let (bytes, output_bytes) = (plan.row_bytes(), plan.output_row_bytes());
        stream.wait(&self.done)?;
        if self.medians.is_none() && !plan.options().zero_dm {
            // SAFETY: the caller checked the lengths of both buffers.
            unsafe { stream.copy_within(input, output, times * bytes)? };
        } else {
            let most = self.medians.as_ref().map_or(1 << 30, |medians| medians.rows);
            for start in (0..times).step_by(most) {
                let rows = most.min(times - start);
                let time = self.time + start as u64;
                let from = input + (start * bytes) as u64;
                let to = output + (start * output_bytes) as u64;
                if let Some(medians) = &mut self.medians {
                    medians.observe(plan, from, rows, time, stream)?;
                }
                self.finish(plan, from, to, rows, time, stream)?;
            }
        }
        self.time += times as u64;
        stream.record(&self.done)
    }

    /// Cleans rows whose fill values are computed.
    fn finish(
        &self,
        plan: &Plan,
        input: u64,
        output: u64,
        rows: usize,
        time: u64,
        stream: &Stream,
    ) -> Result<()> {
        let arguments = Arguments::new()
            .with(input)
            .with(output)
            .with(plan.row_bytes() as u64)
            .with(plan.output_row_bytes() as u64)
            .with(self.good.address())
            .with(plan.channels() as u32)
            .with(rows as u32)
            .with(plan.good_channels() as u32)
            .with(plan.scale())
            .with(time);
        let arguments = match &self.medians {
            Some(medians) => medians.mask(arguments).with(medians.fills.address()),
            None => no_mask(arguments),
        };
        // SAFETY: the arguments are the kernel's, in its order; the caller checked the buffers' lengths.
        unsafe { stream.launch(&self.clean, [rows.div_ceil(8), 1, 1], [256, 1, 1], &arguments) }
    }
}

impl Medians {
    fn new(plan: &Plan, mask: &TimeMask, device: &Device) -> Result<Self> {
        let module = device.module(&medians_source(plan.encoding()))?;
        let channels = plan.channels();
        let words = channels.div_ceil(32);
        let mut bad = vec![0_u32; words * mask.intervals.len()];
        for (interval, list) in mask.intervals.iter().enumerate() {
            for channel in list {
                bad[interval * words + *channel as usize / 32] |= 1 << (channel % 32);
            }
        }
        let interval = u32::try_from(mask.interval_times).unwrap_or(u32::MAX);
        let rows = (CELLS / channels).max(1);
        Ok(Self {
            observe: module.function("medians", 0)?,
            forget: module.function("forget", 0)?,
            bad: device.upload(&bad)?,
            words,
            mask: (mask.first_time, interval, mask.intervals.len() as u32),
            channels: device.buffer(CHANNEL_WORDS * channels)?,
            values: device.buffer(SAMPLES * channels)?,
            fills: device.buffer(rows * channels)?,
            rows,
            is_fresh: false,
        })
    }

    /// Appends the mask of bad cells to the arguments.
    fn mask(&self, arguments: Arguments) -> Arguments {
        let (first_time, interval, intervals) = self.mask;
        arguments
            .with(self.bad.address())
            .with(first_time)
            .with(interval)
            .with(intervals)
            .with(self.words as u32)
    }

    /// Updates the running medians with rows and computes the fill values of their bad cells.
    fn observe(
        &mut self,
        plan: &Plan,
        input: u64,
        rows: usize,
        time: u64,
        stream: &Stream,
    ) -> Result<()> {
        let channels = plan.channels();
        let grid = [channels.div_ceil(64), 1, 1];
        if !self.is_fresh {
            let arguments = Arguments::new().with(self.channels.address()).with(channels as u32);
            // SAFETY: the arguments are the kernel's; the buffer has a state for each channel.
            unsafe { stream.launch(&self.forget, grid, [64, 1, 1], &arguments)? };
            self.is_fresh = true;
        }
        let arguments = Arguments::new()
            .with(input)
            .with(plan.row_bytes() as u64)
            .with(channels as u32)
            .with(rows as u32)
            .with(time);
        let arguments = self
            .mask(arguments)
            .with(self.channels.address())
            .with(self.values.address())
            .with(self.fills.address());
        // SAFETY: the arguments are the kernel's; the buffer holds the fill values of these rows.
        unsafe { stream.launch(&self.observe, grid, [64, 1, 1], &arguments) }
    }
}

/// Appends the arguments of an empty mask.
fn no_mask(arguments: Arguments) -> Arguments {
    arguments.with(0_u64).with(0_u64).with(1_u32).with(0_u32).with(0_u32).with(0_u64)
}

/// Headers that the kernels include.
const INCLUDES: &[(&str, &str)] = &[("samples.cuh", include_str!("samples.cuh"))];

/// Returns the source of the kernel that cleans rows.
fn clean_source(encoding: Encoding, zero_dm: bool, times: bool) -> Source {
    let mut defines = sample_defines(encoding);
    defines.push(("ZERO_DM", u8::from(zero_dm).to_string()));
    defines.push(("TIMES", u8::from(times).to_string()));
    Source { name: "clean.cu", text: include_str!("clean.cu"), includes: INCLUDES, defines }
}

/// Lists the kernels of a plan.
pub(crate) fn sources(plan: &Plan) -> Vec<Source> {
    let (options, encoding) = (plan.options(), plan.encoding());
    let has_mask = options.time_mask.is_some();
    let medians = has_mask.then(|| medians_source(encoding));
    medians.into_iter().chain([clean_source(encoding, options.zero_dm, has_mask)]).collect()
}

/// Returns the source of the kernels that compute each channel's running median.
fn medians_source(encoding: Encoding) -> Source {
    let text = include_str!("medians.cu");
    Source { name: "medians.cu", text, includes: INCLUDES, defines: sample_defines(encoding) }
}

/// Lists the preprocessor constants of the sample encoding.
fn sample_defines(encoding: Encoding) -> Vec<(&'static str, String)> {
    let signed = matches!(encoding, Encoding::I8 | Encoding::I16);
    let float = encoding == Encoding::F32;
    vec![
        ("BITS", encoding.bits().to_string()),
        ("SIGNED", u8::from(signed).to_string()),
        ("FLOAT", u8::from(float).to_string()),
    ]
}

/// Lists the cleaning kernels.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let all = extent == Extent::All;
    let few = [Encoding::U4, Encoding::U8, Encoding::F32];
    let encodings = if all { &Encoding::ALL[..] } else { &few[..] };
    let mut sources = Vec::new();
    for (index, encoding) in encodings.iter().enumerate() {
        if all || index > 0 {
            sources.push(medians_source(*encoding));
        }
        for which in 0..4 {
            let (zero_dm, times) = (which % 2 == 0, which / 2 == index % 2);
            if all && zero_dm | times || which == index % 4 {
                sources.push(clean_source(*encoding, zero_dm, times));
            }
        }
    }
    let gaps = Variant::plain(gaps::source(), extent);
    sources.into_iter().map(Variant::everywhere).chain([gaps]).collect()
}
