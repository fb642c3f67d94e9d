//! Timing of work on a device, and measured rates of memory reads and of the bus.

use std::ops::Range;
use std::time::Instant;

use super::{Arguments, Device, Stream, roof};
use crate::error::Result;

/// Number of timed batches, unless each takes long.
const BATCHES: usize = 20;

/// Minimum seconds per batch.
const BATCH_S: f64 = 1e-3;

/// Maximum seconds for all batches together, after [`FEWEST`] batches.
const TOTAL_S: f64 = 0.5;

/// Minimum number of batches, however long each takes.
const FEWEST: usize = 3;

/// Transfer rates in bytes per second between page-locked host memory and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transfers {
    /// To the device.
    pub to_device: f64,
    /// From the device.
    pub from_device: f64,
    /// Per direction, with both directions in use.
    pub both: f64,
}

/// Returns the device time in seconds per call of `work`, in ascending order: one value per batch of calls, measured
/// between two events.
///
/// A batch has enough calls to take 1 ms. There are 20 batches, or fewer if the work takes long, after one call to
/// warm up and one to determine the batch size.
///
/// # Errors
/// Errors of `work` and of the driver.
pub fn seconds(stream: &Stream, work: &mut dyn FnMut(&Stream) -> Result<()>) -> Result<Vec<f64>> {
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

/// Measures the median rate, in bytes per second, of reading `bytes` bytes of device memory.
///
/// # Errors
/// [`Error::Unavailable`](crate::Error::Unavailable) without NVRTC or memory;
/// [`Error::Device`](crate::Error::Device) if the driver fails.
pub fn read_rate(device: &Device, bytes: usize) -> Result<f64> {
    let words = (bytes / 16).max(1);
    let (mut from, mut to) = (device.buffer::<u8>(16 * words)?, device.buffer::<u32>(1)?);
    let stream = device.stream()?;
    stream.fill(&mut from, 0..16 * words, 1)?;
    stream.fill(&mut to, 0..1, 0)?;
    let module = device.module(&roof::source())?;
    let read = module.function("read", 0)?;
    let blocks =
        read.blocks_per_multiprocessor(roof::THREADS)? * device.properties().multiprocessors;
    let arguments = Arguments::new().with(from.address()).with(to.address()).with(words as u64);
    let times = seconds(&stream, &mut |stream| {
        // SAFETY: the arguments match the kernel, and the buffers hold the words.
        unsafe { stream.launch(&read, [blocks, 1, 1], [roof::THREADS, 1, 1], &arguments) }
    })?;
    Ok(16.0 * words as f64 / median(&times))
}

/// Measures copies of `bytes` bytes between page-locked memory and the device; returns the best of ten.
///
/// # Errors
/// [`Error::Unavailable`](crate::Error::Unavailable) without memory; [`Error::Device`](crate::Error::Device) if the
/// driver fails.
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
                // SAFETY: the memory outlives the copy, which `synchronize` waits for below.
                unsafe { inward.copy_in(&source, 0..bytes, &mut to, 0)? };
            }
            if way & 2 != 0 {
                // SAFETY: as above, and the sink is not accessed meanwhile.
                unsafe { outward.copy_out(&from, 0..bytes, &mut sink, 0)? };
            }
            device.synchronize()?;
            *rate = rate.max(bytes as f64 / began.elapsed().as_secs_f64());
        }
    }
    Ok(best)
}

/// Returns the median of sorted values.
pub fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY)
}
