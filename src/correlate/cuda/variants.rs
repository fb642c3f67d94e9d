//! Table of the X-engine's kernels, for compilation without a GPU.

use super::{masks, paths, sums, turn};
use crate::backend::cuda::{Extent, Variant};

/// Returns the kernels of this stage.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let rooms = [paths::variants, sums::variants, masks::variants, turn::variants];
    rooms.into_iter().flat_map(|variants| variants(extent)).collect()
}
