//! Arguments of one launch of products.

use super::super::plan::Precision;

/// Spectra in device memory, in natural order (channel, input, time), and the tiles of their sums.
///
/// | buffer    | axes                       | type                                  | access     |
/// |-----------|----------------------------|---------------------------------------|------------|
/// | `spectra` | channel, input, time       | complex 4 bit (1 byte), 8 bit, or f32 | read       |
/// | `sums`    | channel, tile, row, column | complex i32; f32 of f32 spectra       | write, add |
///
/// Addresses and strides of the spectra are multiples of 16 bytes. The address of f32 spectra for [`Precision::F32`]
/// is a multiple of 8 only, because a run may end within a block. Kernels may read a row up to the next multiple of
/// 16 bytes after its last sample; those bytes, and the rest up to the stride, may hold anything. Tiles begin at a
/// multiple of 1024 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Address of the first input of the first channel.
    pub spectra: u64,
    /// Bytes from one channel to the next.
    pub channel_stride: usize,
    /// Bytes from one input to the next.
    pub input_stride: usize,
    /// Channels of this launch; at most those of the shape.
    pub channels: usize,
    /// Times, at least 1; at most [`MAX_TIMES`] for integers and [`run`] for floats.
    pub times: usize,
    /// Address of the tiles of the first channel.
    pub sums: u64,
    /// Whether to add to the tiles instead of overwriting them.
    pub add: bool,
}

/// Most times of integers per launch: whole words of a mask, so that sums of products of 2^15 fit 32 bits.
pub(super) const MAX_TIMES: usize = 65_472;

/// Returns the most samples of floats summed in single precision: so few that the error is as on the CPU, or that the
/// rounding of samples dominates.
pub(super) fn run(precision: Precision) -> usize {
    match precision {
        Precision::F32 | Precision::Split => 256,
        Precision::Tf32 | Precision::F16 => 4096,
    }
}
