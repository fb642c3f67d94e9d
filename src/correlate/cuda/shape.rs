//! Properties of a plan that kernels depend on, and the layout of the sums.

use super::super::plan::{Plan, Precision};
use crate::voltage::VoltageEncoding;

/// Sizes of the kernels of a plan.
///
/// The sums of a channel are square tiles: tile (I, J), J <= I, has index I (I + 1) / 2 + J and holds the products of
/// rows `I edge ..` with columns `J edge ..`, row by row. Elements above the diagonal or beyond the inputs may be
/// anything.
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
}
