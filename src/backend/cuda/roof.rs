//! Roofs of a device, measured: how fast its memory is copied, and how fast the host's is copied to and from it.

use super::{Arguments, Buffer, Device, Event, Extent, Source, Stream, Variant};
use crate::error::{Error, Result};

/// Bytes a second of copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Of the device's memory, bytes read and written.
    pub copy: f64,
    /// From page-locked memory of the host.
    pub to_device: f64,
    /// To page-locked memory of the host.
    pub from_device: f64,
}

/// Threads of a block.
pub(super) const THREADS: usize = 256;
/// Bytes that a thread copies at a time.
const BYTES: usize = 16;
/// Measurements, of which the fastest counts.
const BATCHES: usize = 20;
/// Copies in each.
const COPIES: usize = 8;
/// Bytes of the host's memory that are copied.
const HOST_BYTES: usize = 64 << 20;

/// The kernels of this room.
pub fn kernels(_: Extent) -> Vec<Variant> {
    vec![Variant::everywhere(source()), Variant::everywhere(super::peak::source())]
}

pub(super) fn source() -> Source {
    let text = include_str!("roof.cu");
    Source { name: "roof.cu", text, includes: &[], defines: Vec::new() }
}

impl Device {
    /// Measures how fast memory is copied.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without NVRTC or memory; [`Error::Device`] when the driver refuses, or when a
    /// copy is not what was copied.
    pub fn rates(&self) -> Result<Rates> {
        let stream = self.stream()?;
        let [to_device, from_device] = host_rates(self, &stream)?;
        Ok(Rates { copy: copy_rate(self, &stream)?, to_device, from_device })
    }
}

/// Both ways between page-locked memory of the host and the device.
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

/// The device's own memory, read and written.
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
        // SAFETY: the arguments are the kernel's, and both buffers hold so many bytes.
        unsafe { stream.launch(&copy, [blocks, 1, 1], [THREADS, 1, 1], &arguments) }
    })?;
    copied(&to)?;
    Ok(rate)
}

/// Looks at the first and the last bytes of a copy.
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

/// The highest rate, in bytes a second, of what is queued.
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
