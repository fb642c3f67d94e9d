//! Cleaning kernels, compiled for a plan.

use crate::backend::cuda::{Extent, Source, Variant};
use crate::clean::plan::Plan;
use crate::sample::Encoding;

/// Headers that the kernels include.
const INCLUDES: &[(&str, &str)] = &[("samples.cuh", include_str!("samples.cuh"))];

/// Returns the source of the kernel that cleans rows.
pub(super) fn clean(encoding: Encoding, zero_dm: bool, times: bool) -> Source {
    let mut defines = samples(encoding);
    defines.push(("ZERO_DM", u8::from(zero_dm).to_string()));
    defines.push(("TIMES", u8::from(times).to_string()));
    Source { name: "clean.cu", text: include_str!("clean.cu"), includes: INCLUDES, defines }
}

/// Returns the source of the kernels that compute each channel's running median.
pub(super) fn medians(plan: &Plan) -> Source {
    medians_of(plan.encoding())
}

fn medians_of(encoding: Encoding) -> Source {
    let text = include_str!("medians.cu");
    Source { name: "medians.cu", text, includes: INCLUDES, defines: samples(encoding) }
}

/// Returns the source of the kernels that fill gaps of rows.
pub(super) fn gaps() -> Source {
    Source { name: "gaps.cu", text: include_str!("gaps.cu"), includes: &[], defines: Vec::new() }
}

/// Lists the preprocessor constants of the sample encoding.
fn samples(encoding: Encoding) -> Vec<(&'static str, String)> {
    let signed = matches!(encoding, Encoding::I8 | Encoding::I16);
    let float = encoding == Encoding::F32;
    vec![
        ("BITS", encoding.bits().to_string()),
        ("SIGNED", u8::from(signed).to_string()),
        ("FLOAT", u8::from(float).to_string()),
    ]
}

/// Lists the cleaning kernels.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let all = extent == Extent::All;
    let few = [Encoding::U4, Encoding::U8, Encoding::F32];
    let encodings = if all { &Encoding::ALL[..] } else { &few[..] };
    let mut sources = Vec::new();
    for (index, encoding) in encodings.iter().enumerate() {
        if all || index > 0 {
            sources.push(medians_of(*encoding));
        }
        for which in 0..4 {
            let (zero_dm, times) = (which % 2 == 0, which / 2 == index % 2);
            if all && zero_dm | times || which == index % 4 {
                sources.push(clean(*encoding, zero_dm, times));
            }
        }
    }
    let gaps = Variant::plain(gaps(), extent);
    sources.into_iter().map(Variant::everywhere).chain([gaps]).collect()
}
