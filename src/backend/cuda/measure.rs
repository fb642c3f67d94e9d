//! How work on a device is timed, and further roofs: reading its memory, and the bus.

use std::ops::Range;
use std::time::Instant;

use super::{Arguments, Device, Stream, roof};
use crate::error::Result;

/// Batches of a measurement, unless each takes long.
const BATCHES: usize = 20;

/// Least seconds of a batch.
const BATCH_S: f64 = 1e-3;

/// Seconds that all batches together may take, once there are [`FEWEST`].
const TOTAL_S: f64 = 0.5;

/// Fewest batches, however long each takes.
const FEWEST: usize = 3;

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

/// Seconds that one call of `work` takes on the device, smallest first: one figure for each batch of calls,
/// between two marks in the stream.
///
/// A batch has as many calls as take 1 ms; there are 20, fewer of work that takes long, after one call to
/// warm up and one to choose the calls.
///
/// # Errors
/// Those of `work`, and of the driver.
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

/// Bytes a second of reading `bytes` bytes of the device's memory: the median.
///
/// # Errors
/// [`Error::Unavailable`](crate::Error::Unavailable) without NVRTC or memory;
/// [`Error::Device`](crate::Error::Device) when the driver refuses.
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
        // SAFETY: the arguments are the kernel's, and the buffers hold so many words.
        unsafe { stream.launch(&read, [blocks, 1, 1], [roof::THREADS, 1, 1], &arguments) }
    })?;
    Ok(16.0 * words as f64 / median(&times))
}

/// Measures copies of `bytes` bytes between page-locked memory and the device: the best of ten.
///
/// # Errors
/// [`Error::Unavailable`](crate::Error::Unavailable) without room;
/// [`Error::Device`](crate::Error::Device) when the driver refuses.
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
