//! X-engine on a GPU: tiles of 32-bit sums, added to 64-bit sums before they can overflow.
//!
//! Invariant: sums have the same bits for any split of a stream, unless samples are rounded ([`super::Precision`]).
#![allow(unsafe_code)]

mod launch;
mod paths;
mod stages;
mod sums;
#[cfg(test)]
mod tests;
mod transfer;
mod wgmma;

use std::ops::Range;

use launch::{Clock, Job, Shape, Spectra};
use paths::Path;
use sums::{Masks, Sums};
use transfer::{Counted, Downloader, Reader, Uploader};

use super::block::{Block, Output};
use super::plan::Plan;
use crate::backend::cuda::{Buffer, Device, Event, Extent, Source, Stream, Variant};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::view::check_length;

/// Layout of spectra in natural order (channel, input, time) in a device buffer.
///
/// All offsets and strides are multiples of 16 bytes. Kernels may read the bytes from an input's last sample to the
/// next multiple of 16; their contents do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpectra {
    /// First byte of the first input of the first channel.
    pub first_byte: usize,
    /// Bytes from one channel to the next.
    pub channel_stride: usize,
    /// Bytes from one input to the next.
    pub input_stride: usize,
    /// Number of spectra.
    pub times: usize,
}

/// Plan bound to a GPU.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    shape: Shape,
    device: Device,
    threads: Threads,
    path: Path,
    sums: Sums,
    masks: Masks,
    clock: Clock,
    counted: Counted,
    /// Event recorded after the most recently queued work, on any stream.
    last: Event,
    /// None before the first block from the host.
    uploads: Option<Box<Uploader>>,
    /// None before the first read-out.
    downloads: Option<Box<Downloader>>,
}

/// Spectra of some channels on the device.
#[derive(Clone, Debug)]
struct Part {
    channels: Range<usize>,
    spectra: Spectra,
    /// Address of the mask.
    valid: Option<u64>,
    /// Whether to add to the counts instead of overwriting them.
    adds_counts: bool,
}

impl Engine {
    pub(super) fn new(plan: &Plan, device: &Device, threads: &Threads) -> Result<Self> {
        check_memory(plan, device)?;
        let shape = Shape::new(plan);
        let sources = sources(plan, device);
        let _kernels = device.prefetch(move || sources);
        Ok(Self {
            path: Path::new(&shape, device)?,
            sums: Sums::new(plan, &shape, device)?,
            masks: Masks::new(plan, &shape, device)?,
            clock: Clock::new(plan.encoding(), plan.precision()),
            counted: Counted::default(),
            last: device.event()?,
            uploads: None,
            downloads: None,
            plan: plan.clone(),
            shape,
            device: device.clone(),
            threads: threads.clone(),
        })
    }

    /// Adds all samples of a block in host memory. Returns once the block is copied and the work queued.
    pub(super) fn run(&mut self, block: Block<'_>) -> Result<()> {
        if block.times() == 0 {
            return Ok(());
        }
        self.prepare(block.times())?;
        let mut uploads = match self.uploads.take() {
            Some(uploads) => uploads,
            None => Box::new(Uploader::new(&self.plan, &self.shape, &self.device, &self.threads)?),
        };
        let done = self.run_pieces(&mut uploads, block);
        if done.is_err() {
            uploads.settle();
        }
        self.uploads = Some(uploads);
        self.pass(done?, block.times(), block.valid().is_some());
        Ok(())
    }

    /// Processes a block in pieces. Returns the clock after the block. It is the same for all channels, but may differ
    /// from the clock of unsplit launches, because launches end with pieces.
    fn run_pieces(&self, uploads: &mut Uploader, block: Block<'_>) -> Result<Clock> {
        uploads.grow(block.times())?;
        uploads.work.wait(&self.last)?;
        let mut clock = self.clock;
        for piece in uploads.pieces(block.times()) {
            if piece.times.start == 0 {
                clock = self.clock;
            }
            let (spectra, valid) = uploads.upload(block, &piece)?;
            let part = Part {
                spectra,
                valid,
                adds_counts: self.counted.some || piece.times.start > 0,
                channels: piece.channels,
            };
            self.work(&part, &mut clock, &uploads.work)?;
            uploads.release()?;
        }
        uploads.work.record(&self.last)?;
        Ok(clock)
    }

    /// Queues the addition of all samples in device memory. Sets invalid samples to zero there.
    pub(super) fn enqueue(
        &mut self,
        spectra: &mut Buffer<u8>,
        layout: DeviceSpectra,
        valid: Option<&Buffer<u64>>,
        stream: &Stream,
    ) -> Result<()> {
        self.check(spectra, layout, valid)?;
        if layout.times == 0 {
            return Ok(());
        }
        self.prepare(layout.times)?;
        let (channel_stride, input_stride) = self.strides(layout);
        let part = Part {
            channels: 0..self.plan.channels(),
            spectra: Spectra {
                address: spectra.at(layout.first_byte),
                channel_stride,
                input_stride,
                times: layout.times,
            },
            valid: valid.map(Buffer::address),
            adds_counts: self.counted.some,
        };
        stream.wait(&self.last)?;
        let mut clock = self.clock;
        let done = self.work(&part, &mut clock, stream);
        // Work queued before a failure continues to run.
        stream.record(&self.last)?;
        done?;
        self.pass(clock, layout.times, valid.is_some());
        Ok(())
    }

    /// Returns the channel and input strides. Replaces the caller's value where an axis has one element and the
    /// stride is unused.
    fn strides(&self, layout: DeviceSpectra) -> (usize, usize) {
        let row = self.shape.row_bytes(layout.times).next_multiple_of(16);
        let input = if self.shape.inputs == 1 { row } else { layout.input_stride };
        let channel = if self.plan.channels() == 1 {
            self.shape.inputs * input
        } else {
            layout.channel_stride
        };
        (channel, input)
    }

    /// Allocates memory for an integration of `spectra` spectra, and for its read-out.
    pub(super) fn reserve(&mut self, spectra: u64) -> Result<()> {
        self.prepare(usize::try_from(spectra).unwrap_or(usize::MAX))?;
        self.prepare_downloads()
    }

    /// Allocates the memory of the read-out.
    fn prepare_downloads(&mut self) -> Result<()> {
        if self.downloads.is_none() {
            let words = 2 * self.plan.channels() * self.plan.row_elements();
            self.downloads = Some(Box::new(Downloader::new(&self.device, words, &self.threads)?));
        }
        Ok(())
    }

    /// Allocates wide sums before the first samples that need them.
    fn prepare(&mut self, times: usize) -> Result<()> {
        if self.clock.needs_wide(times) { self.sums.widen() } else { Ok(()) }
    }

    /// Queues all work on a part.
    fn work(&self, part: &Part, clock: &mut Clock, stream: &Stream) -> Result<()> {
        let (spectra, times) = (part.spectra, part.spectra.times);
        if let Some(valid) = part.valid {
            let channels = part.channels.clone();
            self.masks.enqueue(&spectra, valid, channels, part.adds_counts, stream)?;
        }
        let mut first = 0;
        while first < times {
            let launch = clock.take(times - first);
            if let Some(replace) = launch.fold {
                self.sums.fold(part.channels.clone(), replace, stream)?;
            }
            let job = Job {
                spectra: Spectra {
                    address: spectra.address + self.shape.row_bytes(first) as u64,
                    times: launch.times,
                    ..spectra
                },
                channels: part.channels.len(),
                sums: self.sums.tiles(part.channels.start),
                add: launch.add,
            };
            self.path.enqueue(&job, stream)?;
            first += launch.times;
        }
        Ok(())
    }

    /// Sets the clock and updates the counts after `times` times were queued for all channels.
    fn pass(&mut self, clock: Clock, times: usize, masked: bool) {
        self.clock = clock;
        if masked {
            self.counted.some = true;
        } else {
            self.counted.all += times as u64;
        }
    }

    /// Checks that `spectra` and `valid` are on this device and have the plan's sizes in this layout.
    fn check(
        &self,
        spectra: &Buffer<u8>,
        layout: DeviceSpectra,
        valid: Option<&Buffer<u64>>,
    ) -> Result<()> {
        spectra.check_on(&self.device)?;
        let DeviceSpectra { first_byte, channel_stride, input_stride, times } = layout;
        let names = ["first byte", "channel stride", "input stride"];
        for (name, bytes) in names.into_iter().zip([first_byte, channel_stride, input_stride]) {
            if bytes % 16 != 0 {
                let rule = "it must be a multiple of 16 bytes";
                return Err(Error::parameter(name, bytes, rule));
            }
        }
        let row = times.saturating_mul(self.shape.row_bytes(1));
        let counts = [(self.plan.channels(), channel_stride), (self.shape.inputs, input_stride)];
        let narrow = counts.into_iter().find(|(count, stride)| *count > 1 && row > *stride);
        if let Some((_, actual)) = narrow {
            let what = "stride of spectra on a device (bytes)";
            return Err(Error::Shape { what, expected: row, actual });
        }
        let ends = counts.map(|(count, stride)| (count - 1).saturating_mul(stride));
        let parts = [first_byte, ends[0], ends[1], row.div_ceil(16).saturating_mul(16)];
        let expected = parts.into_iter().fold(0, usize::saturating_add);
        if expected > spectra.len() {
            let what = "spectra on a device (bytes)";
            return Err(Error::Shape { what, expected, actual: spectra.len() });
        }
        self.path.check(self.strides(layout).1)?;
        let Some(valid) = valid else { return Ok(()) };
        valid.check_on(&self.device)?;
        let words = self.plan.channels() * self.plan.antennas() * Plan::mask_words(times);
        check_length("mask (channel, antenna, word)", words, words.min(valid.len()))
    }

    /// Copies the sums and counts of some channels to the host, once all queued work is done.
    pub(super) fn read(
        &mut self,
        channels: Range<usize>,
        output: Output<'_>,
        counts: &mut [u64],
    ) -> Result<()> {
        self.prepare_downloads()?;
        let Self { plan, sums, masks, clock, counted, last, downloads, .. } = self;
        let Some(downloads) = downloads else { return Ok(()) };
        downloads.work.wait(last)?;
        let reader = Reader { plan, sums, masks, clock: *clock, counted: *counted };
        match output {
            Output::Integer(to) => reader.sums::<i32, _>(downloads, channels.start, to)?,
            Output::Float(to) => reader.sums::<f32, _>(downloads, channels.start, to)?,
        }
        reader.counts(downloads, channels.start, counts)
    }

    /// Returns the name of the product kernel.
    pub(super) fn path(&self) -> &'static str {
        self.path.name()
    }

    /// Resets all sums and counts.
    pub(super) fn reset(&mut self) {
        self.clock = Clock::new(self.plan.encoding(), self.plan.precision());
        self.counted = Counted::default();
    }
}

/// Returns the bytes of all sums and counts on a device for long integrations, or none on overflow.
pub(super) fn bytes(plan: &Plan) -> Option<usize> {
    Sums::bytes(&Shape::new(plan))?.checked_add(Masks::bytes(plan))
}

/// Refuses a plan whose sums exceed the free device memory. The error reports needed and free bytes.
fn check_memory(plan: &Plan, device: &Device) -> Result<()> {
    let free = device.free_bytes()?;
    let least =
        Sums::least_bytes(&Shape::new(plan)).and_then(|sums| sums.checked_add(Masks::bytes(plan)));
    if least.is_some_and(|bytes| bytes <= free) {
        return Ok(());
    }
    let count = |bytes: Option<usize>| {
        bytes.map_or("more than can be counted".to_owned(), |bytes| bytes.to_string())
    };
    let (least, long) = (count(least), count(bytes(plan)));
    Err(Error::Unavailable {
        what: format!("memory for the sums of all channels on CUDA device {}", device.ordinal()),
        why: format!(
            "they need {least} bytes, {long} in long integrations, and {free} are free: correlate fewer \
             channels at a time"
        ),
    })
}

/// Lists the kernels of a plan on a device, those that take longest to compile first.
pub(crate) fn sources(plan: &Plan, device: &Device) -> Vec<Source> {
    let shape = Shape::new(plan);
    let mut sources = paths::sources(&shape, device);
    sources.extend(sums::sources(&shape));
    sources
}

/// Returns the kernels of this stage.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let tables = [paths::variants, sums::variants, transfer::variants];
    tables.into_iter().flat_map(|variants| variants(extent)).collect()
}
