//! Products on any device: dot products of four bytes, or single-precision multiply-adds.

use super::job::Job;
use super::shape::Shape;
use crate::backend::cuda::{Arguments, Device, Extent, Function, Source, Stream, Variant};
use crate::error::Result;
use crate::voltage::VoltageEncoding;

/// Most rows, and columns, of a block's sums.
const SUB: usize = 64;

/// Shape bound to the kernel.
#[derive(Debug)]
pub(super) struct Plain {
    shape: Shape,
    function: Function,
}

/// Returns the source of the kernel.
fn source(edge: usize, bits: usize) -> Source {
    Source {
        name: "plain.cu",
        text: include_str!("plain.cu"),
        includes: &[("tiles.cuh", include_str!("tiles.cuh"))],
        defines: vec![("EDGE", edge.to_string()), ("BITS", bits.to_string())],
    }
}

/// Returns the variants for the kernel table.
pub(super) fn variants(extent: Extent) -> Vec<Variant> {
    let few = [(128, 8), (64, 4), (32, 32)];
    let all = [32, 64, 128].into_iter().flat_map(|edge| [4, 8, 32].map(|bits| (edge, bits)));
    let wanted = if extent == Extent::All { all.collect() } else { few.to_vec() };
    let variant = |(edge, bits)| Variant::everywhere(source(edge, bits));
    wanted.into_iter().map(variant).collect()
}

impl Plain {
    pub(super) fn new(shape: &Shape, device: &Device) -> Result<Self> {
        let bits = match shape.encoding {
            VoltageEncoding::Complex4 => 4,
            VoltageEncoding::ComplexF32 => 32,
            _ => 8,
        };
        let module = device.module(&source(shape.edge, bits))?;
        Ok(Self { shape: *shape, function: module.function("multiply_plain", 0)? })
    }

    pub(super) fn enqueue(&self, job: &Job, stream: &Stream) -> Result<()> {
        let Shape { inputs, edge, .. } = self.shape;
        let tiles = self.shape.tiles();
        let sub = edge.min(SUB);
        let arguments = Arguments::new()
            .with(job.spectra)
            .with(job.channel_stride as i64)
            .with(job.input_stride as i64)
            .with(inputs as u32)
            .with(self.shape.row_bytes(job.times) as i64)
            .with(tiles as u32)
            .with(job.sums)
            .with(u32::from(job.add));
        let grid = [job.channels * tiles * (edge / sub).pow(2), 1, 1];
        // SAFETY: the arguments match the kernel; the job describes its spectra and tiles correctly.
        unsafe { stream.launch(&self.function, grid, [(sub / 4).pow(2), 1, 1], &arguments) }
    }
}
