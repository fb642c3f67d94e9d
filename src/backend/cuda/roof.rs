//! Measures copy rates: within device memory, and between host and device.

use super::{Arguments, Buffer, Device, Event, Extent, Source, Stream, Variant};
use crate::error::{Error, Result};

/// Copy rates in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Device memory, counting bytes read and written.
    pub copy: f64,
    /// From page-locked host memory.
    pub to_device: f64,
    /// To page-locked host memory.
    pub from_device: f64,
}

/// Threads per block.
pub(super) const THREADS: usize = 256;
/// Bytes per thread and load.
const BYTES: usize = 16;
/// Number of measurements; the fastest counts.
const BATCHES: usize = 20;
/// Copies per measurement.
const COPIES: usize = 8;
/// Bytes of host memory that are copied.
const HOST_BYTES: usize = 64 << 20;

/// Returns the kernels of the roof measurements.
pub fn kernels(_: Extent) -> Vec<Variant> {
    vec![Variant::everywhere(source()), Variant::everywhere(super::peak::source())]
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
        Ok(Rates { copy: copy_rate(self, &stream)?, to_device, from_device })
    }
}

/// Measures both directions between page-locked host memory and the device.
fn host_rates(device: &Device, stream: &Stream) -> Result<[f64; 2]> {
    let bytes = HOST_BYTES.min(device.free_bytes()? / 4);
    let mut pinned = device.pinned::<u8>(bytes)?;
    let mut buffer = device.buffer::<u8>(bytes)?;
    let to_device = fastest(stream, bytes, |stream| {
        // SAFETY: `fastest` waits for its copies.
        unsafe { stream.copy_in(&pinned, 0..bytes, &mut buffer, 0) }
    })?;
    let from_device = fastest(stream, bytes, |stream| {
        // SAFETY: as above.
        unsafe { stream.copy_out(&buffer, 0..bytes, &mut pinned, 0) }
    })?;
    Ok([to_device, from_device])
}

/// Measures copies within device memory, counting bytes read and written.
fn copy_rate(device: &Device, stream: &Stream) -> Result<f64> {
    // Much more than the caches hold.
    let most = (8 * device.properties().l2_bytes).max(HOST_BYTES);
    let bytes = most.min(device.free_bytes()? / 4) / BYTES * BYTES;
    let mut from = device.buffer::<u8>(bytes)?;
    let mut to = device.buffer::<u8>(bytes)?;
    stream.fill(&mut from, 0..bytes, 0xa5)?;
    stream.fill(&mut to, 0..bytes, 0)?;
    let module = device.module(&source())?;
    let copy = module.function("copy", 0)?;
    let blocks = copy.blocks_per_multiprocessor(THREADS)? * device.properties().multiprocessors;
    let arguments =
        Arguments::new().with(from.address()).with(to.address()).with((bytes / BYTES) as u64);
    let rate = fastest(stream, 2 * bytes, |stream| {
        // SAFETY: the arguments match the kernel, and both buffers hold `bytes` bytes.
        unsafe { stream.launch(&copy, [blocks, 1, 1], [THREADS, 1, 1], &arguments) }
    })?;
    copied(&to)?;
    Ok(rate)
}

/// Checks the first and the last bytes of a copy.
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

/// Returns the highest rate, in bytes per second, of the enqueued work.
fn fastest(
    stream: &Stream,
    bytes: usize,
    mut queue: impl FnMut(&Stream) -> Result<()>,
) -> Result<f64> {
    let device = stream.device();
    let [begin, end]: [Event; 2] = [device.event()?, device.event()?];
    let mut best = f64::INFINITY;
    for _ in 0..BATCHES {
        stream.record(&begin)?;
        for _ in 0..COPIES {
            queue(stream)?;
        }
        stream.record(&end)?;
        stream.synchronize()?;
        best = best.min(end.seconds_since(&begin)?);
    }
    Ok((bytes * COPIES) as f64 / best)
}
