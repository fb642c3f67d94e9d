//! Products of single-precision samples: by multiply-adds, or on the matrix instructions of a warp.

use super::super::plan::Precision;
use super::job::Job;
use super::shape::Shape;
use super::stages::{Block, Stages};
use crate::backend::cuda::{Device, Extent, Properties, Source, Stream, Variant};
use crate::error::Result;

/// How samples are multiplied. Errors are of a sum of at most 256 products, relative to that of their magnitudes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By multiply-adds in the order of time, as on the CPU: 514.5 x 2^-24 at most.
    Scalar,
    /// By matrix instructions, each number split in two of 11 bits: the same bound (of 256 samples some 110 x 2^-24, the
    /// former 20; the instructions cut sums off toward 0).
    Split,
    /// By matrix instructions, numbers rounded to 11 bits, of any size: 2^-10 at most.
    Tf32,
    /// By matrix instructions, numbers rounded to 16 bits, of magnitudes 6.2e-5 to 65504: 2^-10 at most.
    F16,
}

impl Way {
    pub(super) const ALL: [Self; 4] = [Self::Scalar, Self::Split, Self::Tf32, Self::F16];

    /// As the kernel calls it.
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

    /// Whether a device has the instructions, and this is as precise as was asked.
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

/// A shape bound to one of the kernels on a device.
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

/// The kernels of this path.
pub(super) fn variants(extent: Extent) -> Vec<Variant> {
    let of = |way: Way, edge| (edge, way.source(&Block::new(edge, 163 << 10)));
    let sources = Way::ALL.into_iter().flat_map(|way| [128, 64, 32].map(|edge| of(way, edge)));
    let kept = sources.filter(|(edge, _)| extent == Extent::All || *edge == 128);
    kept.map(|(_, source)| Variant::plain(source, extent)).collect()
}
