//! Timing of work on a device, and measured rates: memory reads, copies, the bus, and arithmetic.

use std::ops::Range;
use std::time::Instant;

use super::{Arguments, Buffer, CopiedRows, Device, Event, Extent, Source, Stream, Variant};
use crate::error::{Error, Result};

/// Number of timed batches, unless each takes long.
const BATCHES: usize = 20;

/// Minimum seconds per batch.
const BATCH_S: f64 = 1e-3;

/// Maximum seconds for all batches together, after [`MIN_BATCHES`] batches.
const TOTAL_S: f64 = 0.5;

/// Minimum number of batches, however long each takes.
const MIN_BATCHES: usize = 3;

/// Threads per block.
const THREADS: usize = 256;

/// Bytes per thread and load.
const WORD_BYTES: usize = 16;

/// Number of measurements of copies over the bus; the fastest counts.
const COPY_BATCHES: usize = 20;

/// Copies per measurement.
const COPIES: usize = 8;

/// Bytes of host memory that are copied.
const HOST_BYTES: usize = 64 << 20;

/// Most bytes of device memory that are copied.
const DEVICE_BYTES: usize = 4 << 30;

/// Bytes of device memory that are copied, as a multiple of the L2 cache: what stays in the cache at the end of a copy
/// must not count.
const L2_MULTIPLE: usize = 64;

/// Measurements of a copy within device memory, and copies per measurement.
const DEVICE_BATCHES: usize = 5;
const DEVICE_COPIES: usize = 4;

/// Kernels that copy, by the number of 16-byte loads that a thread has in flight.
const COPY_KERNELS: [&str; 3] = ["copy1", "copy4", "copy8"];

/// Copy rates in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Device memory, counting bytes read and written: the best of [`copies`].
    pub copy: f64,
    /// From page-locked host memory.
    pub to_device: f64,
    /// To page-locked host memory.
    pub from_device: f64,
}

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
    let batches = most.clamp(MIN_BATCHES, BATCHES);
    let mut seconds = (0..batches).map(|_| batch(0..calls)).collect::<Result<Vec<_>>>()?;
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

/// Measures the median rate, in bytes per second, of reading `bytes` bytes of device memory.
///
/// # Errors
/// [`Error::Unavailable`] without NVRTC or memory; [`Error::Device`] if the driver fails.
pub fn read_rate(device: &Device, bytes: usize) -> Result<f64> {
    let words = (bytes / 16).max(1);
    let (mut from, mut to) = (device.buffer::<u8>(16 * words)?, device.buffer::<u32>(1)?);
    let stream = device.stream()?;
    stream.fill(&mut from, 0..16 * words, 1)?;
    stream.fill(&mut to, 0..1, 0)?;
    let module = device.module(&source())?;
    let read = module.function("read", 0)?;
    let blocks = read.blocks_per_multiprocessor(THREADS)? * device.properties().multiprocessors;
    let arguments = Arguments::new().with(from.address()).with(to.address()).with(words as u64);
    let times = seconds(&stream, &mut |stream| {
        // SAFETY: the arguments match the kernel, and the buffers hold the words.
        unsafe { stream.launch(&read, [blocks, 1, 1], [THREADS, 1, 1], &arguments) }
    })?;
    Ok(16.0 * words as f64 / median(&times))
}

/// Measures copies of `bytes` bytes between page-locked memory and the device; returns the best of ten.
///
/// # Errors
/// [`Error::Unavailable`] without memory; [`Error::Device`] if the driver fails.
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

/// Rates of an exchange among GPUs, in bytes per second that each receives from all others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExchangeRates {
    /// One copy for each pair of GPUs.
    pub contiguous: f64,
    /// One copy of rows for each pair, which come to lie between those of the others, as in a corner turn.
    pub rows: f64,
}

/// Measures an exchange among GPUs: each sends an equal part of `bytes` bytes to each other one, in rows of `row_bytes`. The rates are
/// the best of ten.
///
/// # Errors
/// [`Error::Unavailable`] without memory; [`Error::Device`] if the driver fails or a copy is wrong.
pub fn exchange(devices: &[Device], bytes: usize, row_bytes: usize) -> Result<ExchangeRates> {
    let count = devices.len();
    let rows = (bytes / (count * row_bytes).max(1)).max(1);
    let pair = rows * row_bytes;
    let (mut sent, mut received, mut streams) = (Vec::new(), Vec::new(), Vec::new());
    for (index, device) in devices.iter().enumerate() {
        let others = devices.iter().filter(|other| *other != device).map(Device::alone);
        let device = device.alone().with_peers(others.collect())?;
        let (mut buffer, stream) = (device.buffer::<u8>(count * pair)?, device.stream()?);
        stream.fill(&mut buffer, 0..count * pair, index as u8 + 1)?;
        stream.synchronize()?;
        sent.push(buffer);
        received.push(device.buffer::<u8>(count * pair)?);
        streams.push(stream);
    }
    let mut best = |is_turned: bool| -> Result<f64> {
        let mut rate = 0.0_f64;
        for _ in 0..10 {
            let began = Instant::now();
            for (index, stream) in streams.iter().enumerate() {
                // No two GPUs take from the same one at a time.
                for source in (1..count).map(|step| (index + step) % count) {
                    let (to, copied) = match is_turned {
                        true => (source * row_bytes, interleaved(rows, row_bytes, count)),
                        false => (source * pair, interleaved(1, pair, 1)),
                    };
                    let from = index * pair;
                    stream.copy_rows_from(
                        &sent[source],
                        from,
                        &mut received[index],
                        to,
                        &copied,
                    )?;
                }
            }
            streams.iter().try_for_each(Stream::synchronize)?;
            rate = rate.max(((count - 1) * pair) as f64 / began.elapsed().as_secs_f64());
        }
        Ok(rate)
    };
    let rates = ExchangeRates { contiguous: best(false)?, rows: best(true)? };
    for (index, buffer) in received.iter().enumerate() {
        for source in (0..count).filter(|source| *source != index) {
            let mut row = vec![0; row_bytes];
            buffer.download(((rows - 1) * count + source) * row_bytes, &mut row)?;
            if row.iter().any(|byte| *byte != source as u8 + 1) {
                let text = format!("the rows of GPU {source} are wrong on GPU {index}");
                return Err(Error::Device { call: "copy", code: 0, text });
            }
        }
    }
    Ok(rates)
}

/// Returns rows that come to lie between those of `count` sources.
fn interleaved(rows: usize, bytes: usize, count: usize) -> CopiedRows {
    CopiedRows { bytes, rows, from_stride: bytes, to_stride: count * bytes }
}

/// Returns the median of sorted values.
pub fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY)
}

pub(super) fn source() -> Source {
    let text = include_str!("roof.cu");
    Source { name: "roof.cu", text, includes: &[], defines: Vec::new() }
}

impl Device {
    /// Measures the copy rates.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without NVRTC or memory; [`Error::Device`] if the driver fails or a copy is wrong.
    pub fn rates(&self) -> Result<Rates> {
        let stream = self.stream()?;
        let [to_device, from_device] = host_rates(self, &stream)?;
        let copies = copies(self)?;
        let copy = copies.iter().map(|copy| copy.rate).fold(0.0, f64::max);
        Ok(Rates { copy, to_device, from_device })
    }
}

/// Measures both directions between page-locked host memory and the device.
fn host_rates(device: &Device, stream: &Stream) -> Result<[f64; 2]> {
    let bytes = HOST_BYTES.min(device.free_bytes()? / 4);
    let mut pinned = device.pinned::<u8>(bytes)?;
    let mut buffer = device.buffer::<u8>(bytes)?;
    let to_device = fastest(stream, bytes, HOST_TIMES, |stream| {
        // SAFETY: `fastest` waits for its copies.
        unsafe { stream.copy_in(&pinned, 0..bytes, &mut buffer, 0) }
    })?;
    let from_device = fastest(stream, bytes, HOST_TIMES, |stream| {
        // SAFETY: as above.
        unsafe { stream.copy_out(&buffer, 0..bytes, &mut pinned, 0) }
    })?;
    Ok([to_device, from_device])
}

/// Rate of one implementation of a copy within device memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyRate {
    /// `driver` or the name of a kernel.
    pub name: &'static str,
    /// Bytes read and written per second.
    pub rate: f64,
}

/// Measures copies within device memory by the driver and by each kernel.
///
/// # Errors
/// [`Error::Unavailable`] without NVRTC or memory; [`Error::Device`] if the driver fails or a copy is wrong.
pub fn copies(device: &Device) -> Result<Vec<CopyRate>> {
    let stream = device.stream()?;
    let most = device.properties().l2_bytes.saturating_mul(L2_MULTIPLE);
    let most = most.clamp(HOST_BYTES, DEVICE_BYTES);
    let bytes = most.min(device.free_bytes()? / 4) / WORD_BYTES * WORD_BYTES;
    let (mut from, mut to) = (device.buffer::<u8>(bytes)?, device.buffer::<u8>(bytes)?);
    stream.fill(&mut from, 0..bytes, 0xa5)?;
    stream.fill(&mut to, 0..bytes, 0)?;
    let rate = fastest(&stream, 2 * bytes, DEVICE_TIMES, |stream| {
        stream.copy(&from, 0..bytes, &mut to, 0)
    })?;
    copied(&to)?;
    let mut rates = vec![CopyRate { name: "driver", rate }];
    let module = device.module(&source())?;
    for name in COPY_KERNELS {
        stream.fill(&mut to, 0..bytes, 0)?;
        let copy = module.function(name, 0)?;
        let blocks = copy.blocks_per_multiprocessor(THREADS)? * device.properties().multiprocessors;
        let words = (bytes / WORD_BYTES) as u64;
        let arguments = Arguments::new().with(from.address()).with(to.address()).with(words);
        let rate = fastest(&stream, 2 * bytes, DEVICE_TIMES, |stream| {
            // SAFETY: the arguments match the kernel, and both buffers hold `bytes` bytes.
            unsafe { stream.launch(&copy, [blocks, 1, 1], [THREADS, 1, 1], &arguments) }
        })?;
        copied(&to)?;
        rates.push(CopyRate { name, rate });
    }
    Ok(rates)
}

/// Checks the first and last 4096 bytes of a copy.
fn copied(to: &Buffer<u8>) -> Result<()> {
    let mut bytes = [0; 4096];
    let length = bytes.len().min(to.len());
    for start in [0, to.len() - length] {
        to.download(start, &mut bytes[..length])?;
        if bytes[..length].iter().any(|byte| *byte != 0xa5) {
            let text = format!("the copy is wrong near byte {start}");
            return Err(Error::Device { call: "copy", code: 0, text });
        }
    }
    Ok(())
}

/// Number of measurements, and calls in each.
#[derive(Clone, Copy, Debug)]
struct Times {
    batches: usize,
    calls: usize,
}

const HOST_TIMES: Times = Times { batches: COPY_BATCHES, calls: COPIES };
const DEVICE_TIMES: Times = Times { batches: DEVICE_BATCHES, calls: DEVICE_COPIES };

/// Returns the highest rate, in bytes per second, of the enqueued work.
fn fastest(
    stream: &Stream,
    bytes: usize,
    times: Times,
    mut queue: impl FnMut(&Stream) -> Result<()>,
) -> Result<f64> {
    let device = stream.device();
    let [begin, end]: [Event; 2] = [device.event()?, device.event()?];
    let mut best = f64::INFINITY;
    for _ in 0..times.batches {
        stream.record(&begin)?;
        for _ in 0..times.calls {
            queue(stream)?;
        }
        stream.record(&end)?;
        stream.synchronize()?;
        best = best.min(end.seconds_since(&begin)?);
    }
    Ok((bytes * times.calls) as f64 / best)
}

/// Threads per block.
const BLOCK: usize = 256;

/// Shared memory per block: the operands, and space to align them.
const SHARED: usize = 17 << 10;

/// Rounds per launch, which then takes milliseconds.
pub const ROUNDS: usize = 4096;

/// Returns the kernels of the roof measurements.
pub fn kernels(_: Extent) -> Vec<Variant> {
    vec![Variant::everywhere(source()), Variant::everywhere(peak_source())]
}

fn peak_source() -> Source {
    let text = include_str!("peak.cu");
    Source { name: "peak.cu", text, includes: &[], defines: Vec::new() }
}

/// Operand type of tensor-core products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// 8-bit integers: by `wgmma` on Hopper, by `mma` elsewhere.
    Integers,
    /// tf32 (the upper 19 bits of a float), by `mma`.
    Tf32,
    /// 16-bit floats, by `mma`.
    Halves,
}

/// Measures the operations per second of the tensor cores, counting a multiply-add as two; `None` without tensor
/// cores.
///
/// # Errors
/// [`Error::Unavailable`] without NVRTC;
/// [`Error::Device`] if the driver fails.
pub fn products(device: &Device, products: Products, rounds: usize) -> Result<Option<f64>> {
    if device.properties().target.capability < (8, 0) {
        return Ok(None);
    }
    // Multiply-adds per block and round: 16 products of each of 2 warpgroups, or of each of 8 warps.
    let (name, shared, multiply_adds) = match products {
        Products::Integers if device.is_hopper() => ("integers", SHARED, 2 * 16 * 64 * 128 * 32),
        Products::Integers => ("integers", SHARED, 8 * 16 * 16 * 8 * 32),
        Products::Tf32 => ("tf32", 0, 8 * 16 * 16 * 8 * 8),
        Products::Halves => ("halves", 0, 8 * 16 * 16 * 8 * 16),
    };
    rate(device, name, rounds, shared, 2.0 * f64::from(multiply_adds)).map(Some)
}

/// Measures single-precision operations per second, counting a fused multiply-add as two.
///
/// # Errors
/// Same as for [`products`].
pub fn floats(device: &Device, rounds: usize) -> Result<f64> {
    rate(device, "floats", rounds, 0, 2.0 * 64.0 * BLOCK as f64)
}

/// Measures the operations per second of a kernel with `operations` operations per block and round.
fn rate(device: &Device, name: &str, rounds: usize, shared: usize, operations: f64) -> Result<f64> {
    let kernel = device.module(&peak_source())?.function(name, shared)?;
    let blocks = kernel.blocks_per_multiprocessor(BLOCK)? * device.properties().multiprocessors;
    let out = device.buffer::<u32>(blocks * BLOCK)?;
    let arguments = Arguments::new().with(out.address()).with(rounds as u32);
    let stream = device.stream()?;
    let seconds = seconds(&stream, &mut |stream| {
        // SAFETY: the arguments match the kernel, and the buffer has one word per thread.
        unsafe { stream.launch(&kernel, [blocks, 1, 1], [BLOCK, 1, 1], &arguments) }
    })?;
    let best = seconds.first().copied().unwrap_or(f64::INFINITY);
    Ok(operations * (blocks * rounds) as f64 / best)
}
