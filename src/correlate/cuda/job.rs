//! What one launch of products is given.

use super::super::plan::Precision;

/// Spectra in a device's memory, in natural order: channel, input, time; and the tiles that their products go to.
///
/// | buffer    | axes                       | type                                  | access     |
/// |-----------|----------------------------|---------------------------------------|------------|
/// | `spectra` | channel, input, time       | complex 4 bit (1 byte), 8 bit, or f32 | read       |
/// | `sums`    | channel, tile, row, column | complex i32; f32 of f32 spectra       | write, add |
///
/// Addresses and strides of the spectra are multiples of 16, but for the address of f32 spectra that are not rounded, which
/// is one of 8: a run may end within a block. A row may be read up to the next multiple of 16 bytes
/// behind its last sample, where it may hold anything, and so may everything up to its stride. Tiles begin at a
/// multiple of 1024 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Address of the first channel's first input.
    pub spectra: u64,
    /// Bytes from a channel to the next.
    pub channel_stride: usize,
    /// Bytes from an input to the next.
    pub input_stride: usize,
    /// Channels of this launch: at most as many as the shape has.
    pub channels: usize,
    /// Times, at least 1; of integers at most [`MAX_TIMES`], of floats at most as [`run`] says.
    pub times: usize,
    /// Address of the first channel's tiles.
    pub sums: u64,
    /// Whether to add to what the tiles hold; they are overwritten otherwise.
    pub add: bool,
}

/// The most times of integers in a launch: whole words of a mask, whose products of 2^15 fit 32 bits.
pub(super) const MAX_TIMES: usize = 65_472;

/// The most samples of floats that are summed in single precision: so few that they err as on the CPU, or that rounding
/// the samples counts for more.
pub(super) fn run(precision: Precision) -> usize {
    match precision {
        Precision::F32 | Precision::Split => 256,
        Precision::Tf32 | Precision::F16 => 4096,
    }
}
