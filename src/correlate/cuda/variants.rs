//! The kernels of the X-engine in the table that is compiled without a GPU.

use super::{masks, paths, sums, turn};
use crate::backend::cuda::{Extent, Variant};

/// The kernels of this stage.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let rooms = [paths::variants, sums::variants, masks::variants, turn::variants];
    rooms.into_iter().flat_map(|variants| variants(extent)).collect()
}
