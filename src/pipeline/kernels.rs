//! Table of all GPU kernels; `./check` compiles it on machines without a GPU.

use crate::backend::cuda::{Extent, Variant, kernels};

/// Returns every kernel file with the name of its module.
pub fn table(extent: Extent) -> Vec<(&'static str, Variant)> {
    let modules = [
        ("align", crate::delay::kernels(extent)),
        ("backend", kernels(extent)),
        ("channelize", crate::channelize::kernels(extent)),
        ("clean", crate::clean::kernels(extent)),
        ("correlate", crate::correlate::kernels(extent)),
        ("dedisperse", crate::dedisperse::kernels(extent)),
        ("pulse", crate::single_pulse::kernels(extent)),
        ("spiir", crate::spiir::kernels(extent)),
        ("triggers", crate::spiir::trigger::kernels(extent)),
    ];
    let named = |(module, variants): (&'static str, Vec<Variant>)| {
        variants.into_iter().map(move |variant| (module, variant))
    };
    modules.into_iter().flat_map(named).collect()
}
