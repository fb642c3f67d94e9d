//! Products of single-precision samples: by multiply-adds, or with the matrix instructions of a warp.

use super::super::plan::Precision;
use super::job::Job;
use super::shape::Shape;
use super::stages::{Block, Stages};
use crate::backend::cuda::{Device, Extent, Properties, Source, Stream, Variant};
use crate::error::Result;

/// Method of multiplication. Errors hold for sums of at most 256 products, relative to the sum of their magnitudes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Multiply-adds in the order of time, as on the CPU: error at most 514.5 x 2^-24.
    Scalar,
    /// Matrix instructions on numbers split into two parts of 11 bits: same bound. Measured for 256 samples: some 110
    /// x 2^-24, against 20 for `Scalar`, because the instructions truncate sums toward 0.
    Split,
    /// Matrix instructions on numbers rounded to 11 bits, of any magnitude: error at most 2^-10.
    Tf32,
    /// Matrix instructions on numbers rounded to f16, for magnitudes of 6.2e-5 to 65504: error at most 2^-10.
    F16,
}

impl Way {
    pub(super) const ALL: [Self; 4] = [Self::Scalar, Self::Split, Self::Tf32, Self::F16];

    /// Value of `WAY` in the kernel.
    fn number(self) -> usize {
        match self {
            Self::Scalar => 0,
            Self::Split => 3,
            Self::Tf32 => 1,
            Self::F16 => 16,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Scalar => "multiply-adds",
            Self::Split => "matrices of warps, numbers in two parts",
            Self::Tf32 => "matrices of warps, tf32",
            Self::F16 => "matrices of warps, f16",
        }
    }

    /// Returns whether the device has the instructions and the method has the requested precision.
    pub(super) fn suits(self, shape: &Shape, properties: &Properties) -> bool {
        let precision = match self {
            Self::Scalar => Precision::F32,
            Self::Split => Precision::Split,
            Self::Tf32 => Precision::Tf32,
            Self::F16 => Precision::F16,
        };
        shape.is_float() && shape.precision == precision && properties.target.capability >= (8, 0)
    }

    fn source(self, block: &Block) -> Source {
        block.source("floats.cu", include_str!("floats.cu"), ("WAY", self.number()))
    }
}

/// Shape bound to one of the kernels on a device.
#[derive(Debug)]
pub(super) struct Floats(Stages);

impl Floats {
    pub(super) fn new(shape: &Shape, way: Way, device: &Device) -> Result<Self> {
        let block = Block::new(shape.edge, device.properties().shared_bytes);
        Ok(Self(Stages::new(shape, &block, &way.source(&block), device)?))
    }

    /// Queues the products of a launch.
    pub(super) fn enqueue(&self, job: &Job, stream: &Stream) -> Result<()> {
        self.0.enqueue(job, stream)
    }
}

/// Returns the kernels of this path for the kernel table.
pub(super) fn variants(extent: Extent) -> Vec<Variant> {
    let of = |way: Way, edge| (edge, way.source(&Block::new(edge, 163 << 10)));
    let sources = Way::ALL.into_iter().flat_map(|way| [128, 64, 32].map(|edge| of(way, edge)));
    let kept = sources.filter(|(edge, _)| extent == Extent::All || *edge == 128);
    kept.map(|(_, source)| Variant::plain(source, extent)).collect()
}
