//! Exact products with the matrix instructions of a warp, on every device from Ampere on.

use super::job::Job;
use super::shape::Shape;
use super::stages::{Block, Stages};
use crate::backend::cuda::{Device, Extent, Properties, Source, Stream, Variant};
use crate::error::Result;
use crate::voltage::VoltageEncoding;

/// Shape bound to the kernel on a device.
#[derive(Debug)]
pub(super) struct Mma(Stages);

fn source(block: &Block, encoding: VoltageEncoding) -> Source {
    block.source("mma.cu", include_str!("mma.cu"), ("BITS", encoding.bits()))
}

impl Mma {
    /// Returns whether the device has the instructions for spectra of this encoding.
    pub(super) fn suits(shape: &Shape, properties: &Properties) -> bool {
        properties.target.capability >= (8, 0) && !shape.is_float()
    }

    pub(super) fn new(shape: &Shape, device: &Device) -> Result<Self> {
        let block = Block::new(shape.edge, device.properties().shared_bytes);
        Ok(Self(Stages::new(shape, &block, &source(&block, shape.encoding), device)?))
    }

    /// Queues the products of a launch.
    pub(super) fn enqueue(&self, job: &Job, stream: &Stream) -> Result<()> {
        self.0.enqueue(job, stream)
    }
}

/// Returns the kernels of this path for the kernel table.
pub(super) fn variants(extent: Extent) -> Vec<Variant> {
    use VoltageEncoding::{Complex4, Complex8};
    let of = |shared_bytes: usize| {
        [128, 64, 32].into_iter().flat_map(move |edge| {
            let block = Block::new(edge, shared_bytes);
            [Complex8, Complex4].map(|encoding| (edge, source(&block, encoding)))
        })
    };
    let large = of(163 << 10).map(|(edge, source)| match edge {
        128 => Variant::everywhere(source),
        _ => Variant::plain(source, extent),
    });
    // Ada and similar devices have less shared memory.
    let small = of(99 << 10).filter(|(edge, _)| extent == Extent::All && *edge == 128);
    large.chain(small.map(|(_, source)| Variant::everywhere(source))).collect()
}
