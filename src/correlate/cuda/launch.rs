//! Kernel sizes for a plan, layout of the sums, and division of a block into launches of the product kernel.

use super::super::plan::{Plan, Precision};
use crate::voltage::VoltageEncoding;

/// Kernel sizes for a plan.
///
/// The sums of a channel are square tiles: tile (I, J), J <= I, has index I (I + 1) / 2 + J and holds the products of
/// rows `I edge ..` with columns `J edge ..`, row by row. Elements above the diagonal or beyond the inputs are
/// undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub channels: usize,
    /// Rows, and columns, of the whole matrix of products.
    pub inputs: usize,
    /// Rows, and columns, of a tile.
    pub edge: usize,
    pub encoding: VoltageEncoding,
    /// Rounding of floats.
    pub precision: Precision,
}

impl Shape {
    pub(super) fn new(plan: &Plan) -> Self {
        let edge = match plan.inputs() {
            0..=32 => 32,
            33..=64 => 64,
            _ => 128,
        };
        let (channels, inputs) = (plan.channels(), plan.inputs());
        let (encoding, precision) = (plan.encoding(), plan.precision());
        Self { channels, inputs, edge, encoding, precision }
    }

    /// Returns the number of tiles along one side.
    pub(super) fn tiles_side(&self) -> usize {
        self.inputs.div_ceil(self.edge)
    }

    /// Returns the number of tiles of a channel.
    pub(super) fn tiles(&self) -> usize {
        self.tiles_side() * (self.tiles_side() + 1) / 2
    }

    /// Returns the number of complex sums in a channel's tiles.
    pub(super) fn elements(&self) -> usize {
        self.tiles() * self.edge * self.edge
    }

    /// Returns the bytes of one input's samples.
    pub(super) fn row_bytes(&self, times: usize) -> usize {
        times * self.encoding.sample_bits() / 8
    }

    /// Returns whether sums are floats.
    pub(super) fn is_float(&self) -> bool {
        self.encoding == VoltageEncoding::ComplexF32
    }
}

/// State of a stream since the last reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Whether launches end where the narrow sums are full, counted from the last reset.
    whole_runs: bool,
    /// Maximum number of samples in the narrow sums.
    most: usize,
    /// Maximum number of times per launch.
    launch: usize,
    /// Samples in the narrow sums.
    pending: usize,
    /// Whether the wide sums hold samples.
    settled: bool,
}

/// Times of one launch, and its handling of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) times: usize,
    /// Whether the launch adds to the narrow sums instead of overwriting them.
    pub(super) add: bool,
    /// Whether the narrow sums are first added to the wide sums; `Some(true)` overwrites the wide sums.
    pub(super) fold: Option<bool>,
}

impl Clock {
    pub(super) fn new(encoding: VoltageEncoding, precision: Precision) -> Self {
        // A sample adds at most two products of 2^14, or of 2^6 for 4 bits.
        let (whole_runs, most, launch) = match encoding {
            VoltageEncoding::ComplexF32 => {
                (precision == Precision::F32, run(precision), run(precision))
            }
            VoltageEncoding::Complex4 => (false, (1 << 24) - 1, MAX_TIMES),
            _ => (false, (1 << 16) - 1, MAX_TIMES),
        };
        Self { whole_runs, most, launch, pending: 0, settled: false }
    }

    /// Returns the next launch, of at most `left` times. All but the last have an even number of times, except
    /// launches that complete a whole run.
    pub(super) fn take(&mut self, left: usize) -> Launch {
        let room = self.most - self.pending;
        let mut times = left.min(self.launch);
        if self.whole_runs && room > 0 {
            times = times.min(room);
        }
        let fold = (times > room).then_some(!self.settled);
        if fold.is_some() {
            (self.pending, self.settled) = (0, true);
        }
        let add = self.pending > 0;
        self.pending += times;
        Launch { times, add, fold }
    }

    /// Returns whether `times` more times need wide sums.
    pub(super) fn needs_wide(&self, times: usize) -> bool {
        self.settled || self.pending.saturating_add(times) > self.most
    }

    /// Returns whether the narrow sums hold samples.
    pub(super) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Returns whether the wide sums hold samples.
    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }
}

/// Spectra of some channels in device memory, in natural order (channel, input, time).
#[derive(Clone, Copy, Debug)]
pub(super) struct Spectra {
    /// Address of the first input of the first channel.
    pub(super) address: u64,
    /// Bytes from one channel to the next.
    pub(super) channel_stride: usize,
    /// Bytes from one input to the next.
    pub(super) input_stride: usize,
    pub(super) times: usize,
}

/// Spectra in device memory, and the tiles of their sums.
///
/// | buffer    | axes                       | type                                  | access     |
/// |-----------|----------------------------|---------------------------------------|------------|
/// | `spectra` | channel, input, time       | complex 4 bit (1 byte), 8 bit, or f32 | read       |
/// | `sums`    | channel, tile, row, column | complex i32; f32 of f32 spectra       | write, add |
///
/// Addresses and strides of the spectra are multiples of 16 bytes. The address of f32 spectra for [`Precision::F32`]
/// is a multiple of 8 only, because a run may end within a block. Kernels may read a row up to the next multiple of
/// 16 bytes after its last sample; those bytes, and the rest up to the stride, are undefined. Tiles begin at a
/// multiple of 1024 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Spectra of 1 to [`MAX_TIMES`] times for integers, and to [`run`] for floats.
    pub spectra: Spectra,
    /// Channels of this launch; at most those of the shape.
    pub channels: usize,
    /// Address of the tiles of the first channel.
    pub sums: u64,
    /// Whether to add to the tiles instead of overwriting them.
    pub add: bool,
}

/// Maximum number of times per launch of integers: whole mask words, and sums of terms of 2^15 fit 32 bits.
pub(super) const MAX_TIMES: usize = 65_472;

/// Returns the maximum number of float samples summed in single precision. The error is then that of the CPU (256
/// samples), or less than that of the samples' rounding (4096).
pub(super) fn run(precision: Precision) -> usize {
    match precision {
        Precision::F32 | Precision::Split => 256,
        Precision::Tf32 | Precision::F16 => 4096,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::plan::Options;
    use super::*;

    #[test]
    fn tiles_cover_all_products() {
        for (antennas, polarizations) in [(1, 1), (16, 2), (33, 1), (64, 1), (65, 1), (514, 2)] {
            let encoding = VoltageEncoding::Complex8;
            let options = Options { antennas, polarizations, channels: 3, encoding };
            let shape = Shape::new(&Plan::new(options).unwrap());
            assert!(shape.tiles_side() * shape.edge >= shape.inputs);
            assert!((shape.tiles_side() - 1) * shape.edge < shape.inputs);
            assert_eq!(shape.elements() % (shape.edge * shape.edge), 0);
            assert_eq!(shape.row_bytes(7), 14);
        }
    }

    fn launches(clock: &mut Clock, mut times: usize) -> Vec<Launch> {
        let mut found = Vec::new();
        while times > 0 {
            found.push(clock.take(times));
            times -= found[found.len() - 1].times;
        }
        found
    }

    #[test]
    fn integers_are_folded_before_they_overflow() {
        for encoding in [VoltageEncoding::Complex8, VoltageEncoding::Complex4] {
            let mut clock = Clock::new(encoding, Precision::F32);
            let mut narrow = 0;
            for times in [1, 65_535, 65_536, 3, 1 << 20, 1 << 25, 7] {
                assert_eq!(clock.needs_wide(times), clock.settled || narrow + times > clock.most);
                for launch in launches(&mut clock, times) {
                    assert!(launch.fold.is_none() || !launch.add);
                    narrow = launch.times + if launch.add { narrow } else { 0 };
                    assert!(narrow <= clock.most && launch.times <= MAX_TIMES);
                }
            }
            assert!(clock.is_settled() && clock.is_pending());
        }
        let first = launches(&mut Clock::new(VoltageEncoding::Complex8, Precision::F32), 65_535);
        assert_eq!(first.len(), 2);
        assert!(first.iter().all(|launch| launch.fold.is_none()));
    }

    #[test]
    fn floats_are_folded_after_whole_runs() {
        let mut clock = Clock::new(VoltageEncoding::ComplexF32, Precision::F32);
        let times = |launches: Vec<Launch>| launches.iter().map(|l| l.times).collect::<Vec<_>>();
        assert_eq!(times(launches(&mut clock, 300)), [256, 44]);
        assert_eq!(times(launches(&mut clock, 1000)), [212, 256, 256, 256, 20]);
        let mut other = Clock::new(VoltageEncoding::ComplexF32, Precision::F32);
        launches(&mut other, 1300);
        assert_eq!(other.pending, clock.pending);
        let fold = clock.take(500);
        assert_eq!((fold.add, fold.fold), (true, None));
        assert_eq!(clock.take(1).fold, Some(false));
    }
}
