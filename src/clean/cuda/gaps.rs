//! Fills gaps in rows on a device with each element's level over the preceding rows.

use std::ops::Range;

use crate::backend::cuda::{Arguments, Buffer, Device, Function, Source, Stream};
use crate::error::{Error, Result};
use crate::view::check_length;

/// Threads per block along a row.
const BLOCK: usize = 256;

/// Largest number of blocks along the rows.
const MAX_GRID_ROWS: usize = 1 << 14;

/// Elements and threads of a block that computes levels.
const LEVEL_ELEMENTS: usize = 32;
const LEVEL_BLOCK: usize = 512;

/// Returns the source of the kernels that fill gaps of rows.
pub(super) fn source() -> Source {
    Source { name: "gaps.cu", text: include_str!("gaps.cu"), includes: &[], defines: Vec::new() }
}

/// Fills gaps in rows of floats on a device with a robust mean of the rows observed last.
///
/// | buffer | axes          | type                       | access             |
/// |--------|---------------|----------------------------|--------------------|
/// | rows   | time, element | f32 (as bytes)             | read, or filled    |
///
/// The latest rows of an element form 16 groups. Its level is the average of the groups' means of finite values,
/// without those more than 6 deviations (1.4826 times the median absolute deviation) from their median. The level is
/// 0 if no value is finite.
///
/// # Numerics
/// Sums are in double precision and in row order: the same bits as on the host, for any split of the rows.
/// # Real time
/// Allocates only in [`GapFiller::begin`].
#[derive(Debug)]
pub struct GapFiller {
    device: Device,
    observe: Function,
    fill: Function,
    take: Function,
    /// Latest rows: axes ring index, element.
    ring: Buffer<f32>,
    level: Buffer<f32>,
    elements: usize,
    /// Rows of a level.
    samples: usize,
    /// Rows held.
    capacity: usize,
    /// Rows observed since the start.
    seen: usize,
}

impl GapFiller {
    /// Lists the kernels of every filler.
    pub(crate) fn sources() -> Vec<Source> {
        vec![source()]
    }

    /// Creates a filler for rows of `elements` values with levels over `samples` rows, which may exclude the latest
    /// `slack` ones.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more than 2^30 samples; [`Error::Unavailable`] without memory or NVRTC;
    /// [`Error::Device`] when the driver refuses.
    pub fn new(device: &Device, elements: usize, samples: usize, slack: usize) -> Result<Self> {
        if !(1..=1 << 30).contains(&samples) {
            return Err(Error::parameter("samples of a level", samples, "they must be 1 to 2^30"));
        }
        let module = device.module(&source())?;
        let capacity = samples.saturating_add(slack);
        Ok(Self {
            device: device.clone(),
            observe: module.function("observe_rows", 0)?,
            fill: module.function("fill_rows", 0)?,
            take: module.function("take_level", 0)?,
            ring: device.buffer(capacity.saturating_mul(elements))?,
            level: device.buffer(elements)?,
            elements,
            samples,
            capacity,
            seen: 0,
        })
    }

    /// Continues from the host's state: `seen` rows were observed, and `ring` holds the latest of them, row `k` at
    /// index `k` modulo the number of rows held. `level` is the current fill value, if there is one.
    ///
    /// # Errors
    /// [`Error::Shape`] for other lengths; as [`GapFiller::new`].
    pub fn begin(&mut self, ring: &[f32], seen: usize, level: Option<&[f32]>) -> Result<()> {
        if seen > 0 {
            check_length("rows of a level (numbers)", self.ring.len(), ring.len())?;
            self.ring = self.device.upload(ring)?;
        }
        if let Some(level) = level {
            check_length("level (numbers)", self.elements, level.len())?;
            self.level = self.device.upload(level)?;
        }
        self.seen = seen;
        Ok(())
    }

    /// Queues the observation of a range of rows.
    ///
    /// # Errors
    /// [`Error::Shape`] when they do not lie in `rows`; [`Error::Device`] when the driver refuses.
    pub fn observe(
        &mut self,
        rows: &Buffer<u8>,
        range: Range<usize>,
        stream: &Stream,
    ) -> Result<()> {
        self.check(rows, range.end)?;
        let passed = range.len().saturating_sub(self.capacity);
        let count = range.len() - passed;
        let next = (self.seen + passed) % self.capacity;
        let arguments = Arguments::new()
            .with(self.at(rows, range.start + passed))
            .with(self.elements as u32)
            .with(count as u32)
            .with(next as u32)
            .with(self.capacity as u32)
            .with(self.ring.address());
        self.seen += range.len();
        // SAFETY: the arguments are the kernel's; the rows lie in the buffer, and no more than the ring holds.
        unsafe { self.launch(&self.observe, count, stream, &arguments) }
    }

    /// Queues the computation of the level that later gaps are filled with, without the latest `latest` rows, at most
    /// the slack.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver refuses.
    pub fn take_level(&mut self, latest: usize, stream: &Stream) -> Result<()> {
        let end = self.seen.saturating_sub(latest.min(self.capacity - self.samples));
        let count = end.min(self.samples);
        let arguments = Arguments::new()
            .with(self.ring.address())
            .with(self.elements as u32)
            .with(self.capacity as u32)
            .with(((end - count) % self.capacity) as u32)
            .with(count as u32)
            .with(self.level.address());
        let grid = [self.elements.div_ceil(LEVEL_ELEMENTS), 1, 1];
        // SAFETY: the arguments are the kernel's; the ring holds `capacity` rows, of which `count` were observed.
        unsafe { stream.launch(&self.take, grid, [LEVEL_BLOCK, 1, 1], &arguments) }
    }

    /// Queues the filling of a range of rows.
    ///
    /// # Errors
    /// As [`GapFiller::observe`].
    pub fn fill(&self, rows: &mut Buffer<u8>, range: Range<usize>, stream: &Stream) -> Result<()> {
        self.check(rows, range.end)?;
        let arguments = Arguments::new()
            .with(self.at(rows, range.start))
            .with(self.elements as u32)
            .with(range.len() as u32)
            .with(self.level.address());
        // SAFETY: the arguments are the kernel's; the rows lie in the buffer.
        unsafe { self.launch(&self.fill, range.len(), stream, &arguments) }
    }

    fn check(&self, rows: &Buffer<u8>, end: usize) -> Result<()> {
        let (expected, actual) = (end.saturating_mul(4 * self.elements), rows.len());
        if actual < expected {
            return Err(Error::Shape { what: "rows with gaps (bytes)", expected, actual });
        }
        Ok(())
    }

    fn at(&self, rows: &Buffer<u8>, row: usize) -> u64 {
        rows.at(4 * row * self.elements)
    }

    /// # Safety
    /// The arguments are the kernel's.
    unsafe fn launch(
        &self,
        function: &Function,
        rows: usize,
        stream: &Stream,
        arguments: &Arguments,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let grid = [self.elements.div_ceil(BLOCK), rows.min(MAX_GRID_ROWS), 1];
        // SAFETY: guaranteed by the caller.
        unsafe { stream.launch(function, grid, [BLOCK, 1, 1], arguments) }
    }
}
