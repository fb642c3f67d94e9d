//! The kernels of the search, compiled for a plan's types.

use super::sizes::{Sizes, Sums};
use crate::backend::cuda::{Device, Function, Source};
use crate::error::Result;

/// What the kernels include.
const INCLUDES: &[(&str, &str)] = &[
    ("series.cuh", include_str!("series.cuh")),
    ("widths.cuh", include_str!("widths.cuh")),
    ("noise.cuh", include_str!("noise.cuh")),
];

/// A file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    Noise,
    Moments,
    Sums,
    Screen,
    Events,
}

/// What the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types {
    pub(super) sums: Sums,
    pub(super) wide_squares: bool,
}

/// The kernels of a file.
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
        File::Sums => ("sums.cu", include_str!("sums.cu")),
        File::Screen if floats => ("screen_floats.cu", include_str!("screen_floats.cu")),
        File::Screen => {
            let bits = if types.sums == Sums::I32 { 32 } else { 64 };
            defines.push(("SUM_BITS", bits.to_string()));
            ("screen.cu", include_str!("screen.cu"))
        }
        File::Events => ("events.cu", include_str!("events.cu")),
    };
    Source { name, text, includes: INCLUDES, defines }
}

/// The kernels of a plan, loaded.
#[derive(Debug)]
pub(super) struct Kernels {
    pub(super) guess: Function,
    pub(super) refine: Function,
    pub(super) settle: Function,
    pub(super) carry: Function,
    pub(super) moments: Function,
    pub(super) sums: Function,
    pub(super) wide: Function,
    pub(super) screen: Function,
    pub(super) count: Function,
    pub(super) scan: Function,
    pub(super) list_blocks: Function,
    pub(super) evaluate: Function,
    pub(super) sweep: Function,
}

impl Kernels {
    pub(super) fn new(device: &Device, sizes: &Sizes) -> Result<Self> {
        let types = Types { sums: sizes.sums, wide_squares: sizes.wide_squares };
        let module = |file| device.module(&source(file, types));
        let noise = module(File::Noise)?;
        let moments = module(File::Moments)?;
        let sums = module(File::Sums)?;
        let screen = module(File::Screen)?;
        let events = module(File::Events)?;
        Ok(Self {
            guess: noise.function("guess", 0)?,
            refine: noise.function("refine", 0)?,
            settle: noise.function("settle", 0)?,
            carry: noise.function("carry", 0)?,
            moments: moments.function("moments", 0)?,
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
