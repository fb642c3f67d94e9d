//! Dedispersion kernels of the variant table that is compiled without a GPU.

use super::super::plan::Lane;
use super::shape::Shape;
use super::{fast, general, loader};
use crate::backend::cuda::{Extent, Variant};
use crate::sample::Encoding;

/// Sample types, and whether a word packs two sums of them.
const KINDS: [(Lane, bool); 5] = [
    (Lane::U8, true),
    (Lane::U16, true),
    (Lane::U16, false),
    (Lane::U32, false),
    (Lane::F32, false),
];

/// Encodings with the types that their sums over time can have.
const LOADS: [(Encoding, Lane); 9] = [
    (Encoding::U8, Lane::U8),
    (Encoding::I8, Lane::U16),
    (Encoding::U1, Lane::U8),
    (Encoding::U2, Lane::U16),
    (Encoding::U4, Lane::U8),
    (Encoding::U16, Lane::U16),
    (Encoding::I16, Lane::U32),
    (Encoding::U8, Lane::U32),
    (Encoding::F32, Lane::F32),
];

/// Lists the kernels of this stage.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let shapes = KINDS.iter().flat_map(|(lane, packed)| {
        let bound = |shape| Shape { lane: *lane, packed: *packed, ..shape };
        let all = Shape::all(*packed).map(bound);
        let most = if extent == Extent::All { all.len() } else { 1 };
        all.into_iter().take(most)
    });
    let sums = shapes.map(|shape| Variant::everywhere(general::source(&shape)));
    let most = if extent == Extent::All { LOADS.len() } else { 4 };
    let loads = LOADS.iter().rev().take(most);
    let loads = loads.map(|(encoding, lane)| Variant::everywhere(loader::source(*encoding, *lane)));
    fast::variants().into_iter().chain(sums).chain(loads).collect()
}
