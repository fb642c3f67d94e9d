//! Units of work of the channelizer kernels: voltages on a device, one launch, its passes and where they write.

use crate::channelize::plan::Plan;

/// Threads per block of every kernel of the general path.
pub(super) const BLOCK: usize = 256;

/// Layout of the voltages in a device buffer: stream `s` begins at byte `first_byte + s * stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceVoltages {
    /// First byte of the first stream.
    pub first_byte: usize,
    /// Bytes from stream to stream.
    pub stride: usize,
    /// Samples of each stream.
    pub times: usize,
}

/// Spectra of every stream, with samples and rows in device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Address of the first sample under the first window of stream 0; a multiple of 16.
    pub input: u64,
    /// Bytes from stream to stream; a multiple of 16.
    pub stride: u64,
    /// First spectrum, counted from the stream's start, which is the phase reference.
    pub first_spectrum: u64,
    /// Spectra per stream; a whole number of rows.
    pub spectra: usize,
    /// Address of the first row.
    pub output: u64,
    /// Address of the 64-bit counts of saturated values, one per row element, or 0.
    pub saturated: u64,
}

/// Part of a job: a range of spectra, counted from the job's first one, and a range of units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub(super) first_spectrum: u64,
    pub(super) spectra: usize,
    pub(super) first_unit: usize,
    pub(super) units: usize,
    /// Address of the output row that contains the first spectrum.
    pub(super) output: u64,
}

/// Output location: the address of antenna 0 in the pass's first row, whether or not the pass contains antenna 0, and
/// the strides in floats of row, antenna, recorded channel and polarization.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) address: u64,
    pub(super) strides: [usize; 4],
}

impl Target {
    /// Returns the rows of a pass in the complex output.
    pub(super) fn output(plan: &Plan, pass: &Pass) -> Self {
        let (coarse, points) = (plan.input().coarse_channels, plan.points());
        let polarization = 2 * coarse * points;
        let antenna = plan.input().polarizations * polarization;
        let strides = [2 * plan.row_elements(), antenna, 2 * points, polarization];
        Self { address: pass.output, strides }
    }

    /// Returns the work buffer with axes spectrum, stream of the pass, `pitch` floats.
    pub(super) fn work(plan: &Plan, pass: &Pass, address: u64, pitch: usize) -> Self {
        let unit = plan.input().polarizations * pitch;
        let strides = [pass.units * unit, plan.input().coarse_channels * unit, unit, pitch];
        let before = 4 * (pass.first_unit * unit) as u64;
        Self { address: address.wrapping_sub(before), strides }
    }
}
