//! Kernels of the search, compiled for a plan's types.

use super::sizes::{Sizes, Sums};
use crate::backend::cuda::{Device, Function, Source};
use crate::error::Result;

/// Headers that the kernels include.
const INCLUDES: &[(&str, &str)] = &[
    ("series.cuh", include_str!("series.cuh")),
    ("widths.cuh", include_str!("widths.cuh")),
    ("noise.cuh", include_str!("noise.cuh")),
    ("guess.cuh", include_str!("guess.cuh")),
    ("totals.cuh", include_str!("totals.cuh")),
];

/// Source file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    Noise,
    Moments,
    Estimate,
    Sums,
    Screen,
    Events,
}

/// Compile-time types of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types {
    pub(super) sums: Sums,
    pub(super) wide_squares: bool,
}

/// Returns the source of a kernel file.
pub(super) fn source(file: File, types: Types) -> Source {
    let floats = types.sums == Sums::F64;
    let flag = |on: bool| u8::from(on).to_string();
    let mut defines = vec![("FLOATS", flag(floats))];
    let (name, text) = match file {
        File::Noise => ("noise.cu", include_str!("noise.cu")),
        File::Moments => {
            defines.push(("WIDE", flag(types.wide_squares)));
            ("moments.cu", include_str!("moments.cu"))
        }
        File::Estimate => {
            defines.push(("WIDE", flag(types.wide_squares)));
            ("estimate.cu", include_str!("estimate.cu"))
        }
        File::Sums => ("sums.cu", include_str!("sums.cu")),
        File::Screen => {
            let bits = if types.sums == Sums::I64 { 64 } else { 32 };
            defines.push(("SUM_BITS", bits.to_string()));
            ("screen.cu", include_str!("screen.cu"))
        }
        File::Events => ("events.cu", include_str!("events.cu")),
    };
    Source { name, text, includes: INCLUDES, defines }
}

/// Loaded kernels of a plan.
#[derive(Debug)]
pub(super) struct Kernels {
    pub(super) noise: Noise,
    pub(super) carry: Function,
    pub(super) sums: Function,
    pub(super) wide: Function,
    pub(super) screen: Function,
    pub(super) count: Function,
    pub(super) scan: Function,
    pub(super) list_blocks: Function,
    pub(super) evaluate: Function,
    pub(super) sweep: Function,
}

/// Kernels that estimate the noise of windows.
#[derive(Debug)]
pub(super) enum Noise {
    /// One warp per window, in one launch.
    Short { estimate: Function },
    /// Passes over lists of windows.
    Long { guess: Function, moments: Function, refine: Function, settle: Function },
}

impl Kernels {
    pub(super) fn new(device: &Device, sizes: &Sizes) -> Result<Self> {
        let types = Types { sums: sizes.sums, wide_squares: sizes.wide_squares };
        let module = |file| device.module(&source(file, types));
        let shared = module(File::Noise)?;
        let own = module(if sizes.is_short() { File::Estimate } else { File::Moments })?;
        let sums = module(File::Sums)?;
        let screen = module(File::Screen)?;
        let events = module(File::Events)?;
        let noise = if sizes.is_short() {
            Noise::Short { estimate: own.function("estimate", 0)? }
        } else {
            Noise::Long {
                guess: shared.function("guess", 0)?,
                moments: own.function("moments", 0)?,
                refine: shared.function("refine", 0)?,
                settle: shared.function("settle", 0)?,
            }
        };
        Ok(Self {
            noise,
            carry: shared.function("carry", 0)?,
            sums: sums.function("sums", 0)?,
            wide: sums.function("wide", 0)?,
            screen: screen.function("screen", sizes.shared_bytes())?,
            count: events.function("count", 0)?,
            scan: events.function("scan", 0)?,
            list_blocks: events.function("list_blocks", 0)?,
            evaluate: events.function("evaluate", 0)?,
            sweep: events.function("sweep", 0)?,
        })
    }
}
