//! Measures the peak arithmetic rates of a device.

use super::{Arguments, Device, Extent, Source, Variant, measure};
use crate::error::Result;

/// Threads per block.
const BLOCK: usize = 256;

/// Shared memory per block: the operands, and space to align them.
const SHARED: usize = 17 << 10;

/// Rounds per launch, which then takes milliseconds.
pub const ROUNDS: usize = 4096;

/// Returns the kernels of the roof measurements.
pub fn kernels(_: Extent) -> Vec<Variant> {
    vec![Variant::everywhere(measure::source()), Variant::everywhere(source())]
}

fn source() -> Source {
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
/// [`Error::Unavailable`](crate::Error::Unavailable) without NVRTC;
/// [`Error::Device`](crate::Error::Device) if the driver fails.
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
    rate(device, name, (rounds, shared), 2.0 * f64::from(multiply_adds)).map(Some)
}

/// Measures single-precision operations per second, counting a fused multiply-add as two.
///
/// # Errors
/// Same as for [`products`].
pub fn floats(device: &Device, rounds: usize) -> Result<f64> {
    rate(device, "floats", (rounds, 0), 2.0 * 64.0 * BLOCK as f64)
}

/// Measures the operations per second of a kernel with `operations` operations per block and round.
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
        // SAFETY: the arguments match the kernel, and the buffer has one word per thread.
        unsafe { stream.launch(&kernel, [blocks, 1, 1], [BLOCK, 1, 1], &arguments) }
    })?;
    let best = seconds.first().copied().unwrap_or(f64::INFINITY);
    Ok(operations * (blocks * rounds) as f64 / best)
}
