//! Roofs of a device's arithmetic, measured: what it gives when it does nothing else.

use super::{Arguments, Device, Source, measure};
use crate::error::Result;

/// Threads of a block.
const BLOCK: usize = 256;

/// Shared memory of a block: rows of both sides, and what aligns them.
const SHARED: usize = 17 << 10;

/// Rounds of a launch that takes milliseconds.
pub const ROUNDS: usize = 4096;

pub(super) fn source() -> Source {
    let text = include_str!("peak.cu");
    Source { name: "peak.cu", text, includes: &[], defines: Vec::new() }
}

/// What tensor cores multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// 8-bit integers: by Hopper's own instructions there, by those of warps elsewhere.
    Integers,
    /// Floats of which the upper 19 bits count, by the instructions of warps.
    Tf32,
    /// 16-bit floats, by the instructions of warps.
    Halves,
}

/// Multiplications and additions a second by tensor cores, two a multiply-add; `None` where there are none.
///
/// # Errors
/// [`Error::Unavailable`](crate::Error::Unavailable) without NVRTC;
/// [`Error::Device`](crate::Error::Device) when the driver refuses.
pub fn products(device: &Device, products: Products, rounds: usize) -> Result<Option<f64>> {
    if device.properties().target.capability < (8, 0) {
        return Ok(None);
    }
    // Of a block in a round: 16 products of each of 2 warpgroups, or of each of 8 warps.
    let (name, shared, multiply_adds) = match products {
        Products::Integers if device.is_hopper() => ("integers", SHARED, 2 * 16 * 64 * 128 * 32),
        Products::Integers => ("integers", SHARED, 8 * 16 * 16 * 8 * 32),
        Products::Tf32 => ("tf32", 0, 8 * 16 * 16 * 8 * 8),
        Products::Halves => ("halves", 0, 8 * 16 * 16 * 8 * 16),
    };
    rate(device, name, (rounds, shared), 2.0 * f64::from(multiply_adds)).map(Some)
}

/// Multiplications and additions of single precision a second, two a fused multiply-add.
///
/// # Errors
/// As [`products`].
pub fn floats(device: &Device, rounds: usize) -> Result<f64> {
    rate(device, "floats", (rounds, 0), 2.0 * 64.0 * BLOCK as f64)
}

/// Operations a second of a kernel whose blocks do so many in a round.
fn rate(
    device: &Device,
    name: &str,
    (rounds, shared): (usize, usize),
    operations: f64,
) -> Result<f64> {
    let kernel = device.module(&source())?.function(name, shared)?;
    let blocks = kernel.blocks_per_multiprocessor(BLOCK)? * device.properties().multiprocessors;
    let out = device.buffer::<u32>(blocks * BLOCK)?;
    let arguments = Arguments::new().with(out.address()).with(rounds as u32);
    let stream = device.stream()?;
    let seconds = measure::seconds(&stream, &mut |stream| {
        // SAFETY: the arguments are the kernel's, and the buffer has a word for each thread.
        unsafe { stream.launch(&kernel, [blocks, 1, 1], [BLOCK, 1, 1], &arguments) }
    })?;
    let best = seconds.first().copied().unwrap_or(f64::INFINITY);
    Ok(operations * (blocks * rounds) as f64 / best)
}
