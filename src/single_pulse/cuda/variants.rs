//! Single-pulse kernels of the variant table that is compiled without a GPU.

use super::kernels::{File, Types, source};
use super::sizes::Sums;
use crate::backend::cuda::{Extent, Variant};

/// Lists the kernels of the single-pulse search.
pub fn kernels(_: Extent) -> Vec<Variant> {
    let types = |sums, wide_squares| Types { sums, wide_squares };
    let (narrow, wide) = (types(Sums::I32, false), types(Sums::I64, true));
    let floats = types(Sums::F64, false);
    let mut sources = Vec::new();
    sources.push(source(File::Estimate, narrow));
    for file in [File::Noise, File::Moments, File::Sums, File::Screen, File::Events] {
        for types in [narrow, wide, floats] {
            let source = source(file, types);
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
    }
    sources.into_iter().map(Variant::everywhere).collect()
}
