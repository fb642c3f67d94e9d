//! The sources of the general path's kernels.

use crate::backend::cuda::{Extent, Source, Variant};
use crate::voltage::VoltageEncoding;

/// Windowed sums of an encoding's samples.
pub(super) fn fir(encoding: VoltageEncoding) -> Source {
    let place = VoltageEncoding::ALL.iter().position(|other| *other == encoding).unwrap_or(0);
    Source {
        name: "fir.cu",
        text: include_str!("fir.cu"),
        includes: &[],
        defines: vec![("ENCODING", place.to_string())],
    }
}

/// What becomes of spectra.
pub(super) fn forms() -> Source {
    Source { name: "forms.cu", text: include_str!("forms.cu"), includes: &[], defines: Vec::new() }
}

/// The kernels of this stage.
pub fn kernels(_: Extent) -> Vec<Variant> {
    let sums = VoltageEncoding::ALL.iter().map(|encoding| fir(*encoding));
    sums.chain([forms()]).map(Variant::everywhere).collect()
}
