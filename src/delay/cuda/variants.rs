//! Sources of the kernels, and the table of those that are compiled without a GPU.

use crate::backend::cuda::{Extent, Source, Variant, combinations};
use crate::voltage::VoltageEncoding;

const INCLUDES: &[(&str, &str)] = &[("sample.cuh", include_str!("sample.cuh"))];

/// Compile-time parameters of the output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bits of a real number in the output.
    pub(super) bits: usize,
    pub(super) polarizations: usize,
    /// Whether there are delays.
    pub(super) turns: bool,
}

impl Shape {
    fn defines(self) -> Vec<(&'static str, String)> {
        vec![
            ("BITS", self.bits.to_string()),
            ("POLARIZATIONS", self.polarizations.to_string()),
            ("TURNS", u8::from(self.turns).to_string()),
        ]
    }
}

/// Returns the source of the kernel for a filter bank's spectra.
pub(super) fn spectra(shape: Shape) -> Source {
    let text = include_str!("spectra.cu");
    Source { name: "spectra.cu", text, includes: INCLUDES, defines: shape.defines() }
}

/// Returns the source of the kernel for voltages of a complex encoding.
pub(super) fn streams(shape: Shape, encoding: VoltageEncoding) -> Source {
    let place = VoltageEncoding::ALL.iter().position(|other| *other == encoding).unwrap_or(0);
    let mut defines = shape.defines();
    defines.push(("ENCODING", place.to_string()));
    Source { name: "streams.cu", text: include_str!("streams.cu"), includes: INCLUDES, defines }
}

/// Returns the source of the kernel for voltages without delays and gains.
pub(super) fn copies() -> Source {
    Source {
        name: "copies.cu",
        text: include_str!("copies.cu"),
        includes: &[],
        defines: Vec::new(),
    }
}

/// Returns the kernels of this stage.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let axes: &[(&'static str, &[&str])] = &[
        ("BITS", &["8", "4", "32"]),
        ("POLARIZATIONS", &["2", "1"]),
        ("TURNS", &["1", "0"]),
        ("ENCODING", &["1", "0", "2", "3", "4"]),
    ];
    let shape = |set: &[(&'static str, String)]| {
        let number = |at: usize| set[at].1.parse().unwrap_or(0);
        Shape { bits: number(0), polarizations: number(1), turns: number(2) == 1 }
    };
    let spectra = combinations(&axes[..3], extent);
    let spectra = spectra.iter().map(|set| Variant::everywhere(self::spectra(shape(set))));
    let streams = combinations(axes, extent);
    let streams = streams.iter().map(|set| {
        let place: usize = set[3].1.parse().unwrap_or(0);
        Variant::plain(self::streams(shape(set), VoltageEncoding::ALL[place]), extent)
    });
    spectra.chain(streams).chain([Variant::plain(copies(), extent)]).collect()
}
