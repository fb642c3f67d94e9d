//! What a device can do at best, measured: its memory, and the way between it and the host's.

use std::ops::Range;
use std::time::Instant;

use super::{Arguments, Buffer, Device, Function, Module, Source, Stream};
use crate::error::{Error, Result};

/// Batches of a measurement, unless each takes long.
const BATCHES: usize = 20;

/// Least seconds of a batch.
const BATCH_S: f64 = 1e-3;

/// Seconds that all batches together may take, once there are [`FEWEST`].
const TOTAL_S: f64 = 0.5;

/// Fewest batches, however long each takes.
const FEWEST: usize = 3;

/// Threads of a block of these kernels.
const THREADS: usize = 512;

/// Bytes a second between page-locked memory of the host and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transfers {
    /// To the device.
    pub to_device: f64,
    /// From the device.
    pub from_device: f64,
    /// Each way, while both ways are in use.
    pub both: f64,
}

/// The kernels that measure a device's memory, compiled and with their buffers.
#[derive(Debug)]
pub struct Memory {
    copy: Function,
    read: Function,
    _module: Module,
    from: Buffer<u8>,
    to: Buffer<u8>,
    blocks: usize,
    stream: Stream,
}

/// The source of these kernels.
pub fn source() -> Source {
    let (name, text) = ("measure.cu", include_str!("measure.cu"));
    Source { name, text, includes: &[], defines: Vec::new() }
}

/// Seconds that one call of `work` takes on the device, smallest first: one figure for each batch of calls,
/// between two marks in the stream.
///
/// A batch has as many calls as take 1 ms; there are 20, fewer of work that takes long, after one call to
/// warm up and one to choose the calls.
///
/// # Errors
/// Those of `work`, and of the driver.
pub fn seconds(
    stream: &Stream,
    work: &mut dyn FnMut(&Stream) -> Result<()>,
) -> Result<Vec<f64>> {
    let device = stream.device();
    let (begin, end) = (device.event()?, device.event()?);
    let mut batch = |calls: Range<usize>| -> Result<f64> {
        let count = calls.len().max(1) as f64;
        stream.record(&begin)?;
        calls.into_iter().try_for_each(|_| work(stream))?;
        stream.record(&end)?;
        end.synchronize()?;
        Ok(end.seconds_since(&begin)? / count)
    };
    batch(0..1)?;
    let one = batch(0..1)?.max(1e-7);
    let calls = (BATCH_S / one).ceil().max(1.0) as usize;
    let most = (TOTAL_S / (one * calls as f64)) as usize;
    let batches = most.clamp(FEWEST, BATCHES);
    let mut seconds = (0..batches).map(|_| batch(0..calls)).collect::<Result<Vec<_>>>()?;
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

impl Memory {
    /// Compiles the kernels, and takes two buffers of `bytes` bytes, rounded down to 16.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without NVRTC or room; [`Error::Device`] when the driver refuses.
    pub fn new(device: &Device, bytes: usize) -> Result<Self> {
        let bytes = (bytes / 16).max(1) * 16;
        let module = device.module(&source())?;
        let stream = device.stream()?;
        let (mut from, to) = (device.buffer::<u8>(bytes)?, device.buffer::<u8>(bytes)?);
        stream.fill(&mut from, 0..bytes, 1)?;
        let (copy, read) = (module.function("copy", 0)?, module.function("read", 0)?);
        let each = copy.blocks_per_multiprocessor(THREADS)?.max(1);
        let blocks = each * device.properties().multiprocessors;
        Ok(Self { copy, read, _module: module, from, to, blocks, stream })
    }

    /// Bytes a second of a copy in the device's memory, read and written ones together: the median.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver refuses; [`Error::Unavailable`] when the copy is not what was copied.
    pub fn copy(&mut self) -> Result<f64> {
        let times = self.run(&self.copy)?;
        let mut last = [0];
        self.to.download(self.to.len() - 1, &mut last)?;
        if last != [1] {
            let (what, why) = ("the rate of a copy".to_owned(), "its output is wrong".to_owned());
            return Err(Error::Unavailable { what, why });
        }
        Ok(2.0 * self.from.len() as f64 / median(&times))
    }

    /// Bytes a second of reading the device's memory: the median.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver refuses.
    pub fn read(&mut self) -> Result<f64> {
        let times = self.run(&self.read)?;
        Ok(self.from.len() as f64 / median(&times))
    }

    fn run(&self, function: &Function) -> Result<Vec<f64>> {
        let words = (self.from.len() / 16) as u64;
        let arguments =
            Arguments::new().with(self.to.address()).with(self.from.address()).with(words);
        let (grid, block) = ([self.blocks, 1, 1], [THREADS, 1, 1]);
        seconds(&self.stream, &mut |stream| {
            // SAFETY: both kernels take two addresses and the words of each, and stay within them.
            unsafe { stream.launch(function, grid, block, &arguments) }
        })
    }
}

/// Measures copies of `bytes` bytes between page-locked memory and the device: the best of ten.
///
/// # Errors
/// [`Error::Unavailable`] without room; [`Error::Device`] when the driver refuses.
pub fn transfers(device: &Device, bytes: usize) -> Result<Transfers> {
    let (source, mut sink) = (device.pinned::<u8>(bytes)?, device.pinned::<u8>(bytes)?);
    let (mut to, from) = (device.buffer::<u8>(bytes)?, device.buffer::<u8>(bytes)?);
    let (inward, outward) = (device.stream()?, device.stream()?);
    let mut best = Transfers::default();
    for _ in 0..10 {
        for (way, rate) in
            [(1, &mut best.to_device), (2, &mut best.from_device), (3, &mut best.both)]
        {
            let began = Instant::now();
            if way & 1 != 0 {
                // SAFETY: the memory outlives the copy, which is waited for below.
                unsafe { inward.copy_in(&source, 0..bytes, &mut to, 0)? };
            }
            if way & 2 != 0 {
                // SAFETY: as above, and nothing looks at the sink meanwhile.
                unsafe { outward.copy_out(&from, 0..bytes, &mut sink, 0)? };
            }
            device.synchronize()?;
            *rate = rate.max(bytes as f64 / began.elapsed().as_secs_f64());
        }
    }
    Ok(best)
}

/// The middle of figures in order.
pub fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY)
}
