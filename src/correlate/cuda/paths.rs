//! Product kernels other than `wgmma`, and the selection of one for a device and a plan.

use super::super::plan::Precision;
use super::launch::{Job, Shape};
use super::stages::{Block, Stages};
use super::wgmma::Wgmma;
use super::{stages, wgmma};
use crate::backend::cuda::tune::Candidate;
use crate::backend::cuda::{Arguments, Device, Extent, Function, Source, Stream, Variant, tune};
use crate::error::Result;
use crate::voltage::VoltageEncoding;

/// Shape bound to its product kernel.
#[derive(Debug)]
pub(super) struct Path {
    kind: Kind,
    kernel: Kernel,
}

#[derive(Debug)]
enum Kernel {
    Wgmma(Wgmma),
    Stages(Stages),
    /// Two kernels that give the same bits; the first requires spectra at a multiple of 16 bytes.
    Scalar(Stages, Plain),
    Plain(Plain),
}

/// Kind of product kernel.
///
/// Errors of floats hold for sums of at most 256 products, relative to the sum of their magnitudes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Matrix instructions of warpgroups, for integers.
    Wgmma,
    /// Matrix instructions of warps, for integers.
    Mma,
    /// Floats:
    /// - [`Precision::F32`]: multiply-adds in the order of time, as on the CPU: error at most 514.5 x 2^-24.
    /// - [`Precision::Split`]: matrix instructions on numbers split into two parts of 11 bits: same bound. Measured for
    ///   256 samples: some 110 x 2^-24, against 20 for `F32`, because the instructions truncate sums toward 0.
    /// - [`Precision::Tf32`]: matrix instructions on numbers rounded to 11 bits, of any magnitude: error at most 2^-10.
    /// - [`Precision::F16`]: matrix instructions on numbers rounded to f16, for magnitudes of 6.2e-5 to 65504: error at
    ///   most 2^-10.
    Floats(Precision),
    /// Dot products and multiply-adds, for all devices.
    Plain,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Wgmma => "matrices of warpgroups",
            Self::Mma => "matrices of warps",
            Self::Floats(Precision::F32) => "multiply-adds",
            Self::Floats(Precision::Split) => "matrices of warps, numbers in two parts",
            Self::Floats(Precision::Tf32) => "matrices of warps, tf32",
            Self::Floats(Precision::F16) => "matrices of warps, f16",
            Self::Plain => "dot products",
        }
    }

    /// Returns the kinds that the device has the instructions for and that fit the shape, in order of preference: the
    /// first is used unless tuning measured a faster one.
    fn suitable(shape: &Shape, device: &Device) -> Vec<Self> {
        match shape.is_float() {
            false if device.is_hopper() => vec![Self::Wgmma, Self::Mma, Self::Plain],
            _ if device.properties().target.capability < (8, 0) => vec![Self::Plain],
            false => vec![Self::Mma, Self::Plain],
            true if shape.precision == Precision::F32 => {
                vec![Self::Floats(Precision::F32), Self::Plain]
            }
            // The plain kernel gives other bits than the matrix instructions, so tuning must not choose between them.
            true => vec![Self::Floats(shape.precision)],
        }
    }

    /// Returns the tuned choice, or the first suitable kind.
    fn chosen(shape: &Shape, device: &Device) -> Self {
        let kinds = Self::suitable(shape, device);
        let candidates: Vec<Candidate> = kinds.iter().map(|kind| kind.candidate()).collect();
        let words = format!(
            "inputs={} channels={} encoding={:?} precision={:?}",
            shape.inputs, shape.channels, shape.encoding, shape.precision
        );
        let choice = tune::select(device, &tuned_source(), &words, &candidates);
        let kind = kinds.into_iter().find(|kind| kind.candidate().values == choice.values);
        kind.unwrap_or(Self::Plain)
    }

    /// Returns the tuning candidate. Tuned choices store its number, so numbers must not change.
    fn candidate(self) -> Candidate {
        let number = match self {
            Self::Wgmma => 0,
            Self::Mma => 1,
            Self::Floats(Precision::F32) => 2,
            Self::Floats(Precision::Split) => 3,
            Self::Floats(Precision::Tf32) => 4,
            Self::Floats(Precision::F16) => 5,
            Self::Plain => 6,
        };
        Candidate { name: self.name().to_owned(), values: vec![number] }
    }
}

/// Returns the text of all kernels as the key of tuned choices: a change of any kernel invalidates them. The result is
/// never compiled.
fn tuned_source() -> Source {
    Source {
        name: "correlate",
        text: concat!(
            include_str!("plain.cu"),
            include_str!("tiles.cuh"),
            include_str!("mma.cu"),
            include_str!("floats.cu"),
            include_str!("stages.cuh"),
            include_str!("wgmma.cu"),
            include_str!("wgmma_4bit.cu"),
            include_str!("wgmma.cuh"),
            include_str!("wgmma_4bit_edge_columns.cu"),
            include_str!("staged.cuh"),
        ),
        includes: &[],
        defines: Vec::new(),
    }
}

/// Returns the variants of all kinds for the kernel table.
pub(super) fn variants(extent: Extent) -> Vec<Variant> {
    let all = [wgmma::variants, mma_variants, float_variants, plain_variants];
    all.into_iter().flat_map(|variants| variants(extent)).collect()
}

/// Lists the product kernels of a shape on a device.
pub(super) fn sources(shape: &Shape, device: &Device) -> Vec<Source> {
    let block = Block::new(shape.edge, device.properties().shared_bytes);
    match Kind::chosen(shape, device) {
        Kind::Wgmma => vec![wgmma::source(shape, device)],
        Kind::Mma => vec![mma_source(&block, shape.encoding)],
        Kind::Floats(Precision::F32) => {
            vec![floats_source(&block, Precision::F32), plain_source(shape)]
        }
        Kind::Floats(precision) => vec![floats_source(&block, precision)],
        Kind::Plain => vec![plain_source(shape)],
    }
}

impl Path {
    /// Binds the tuned choice, or the first suitable kernel.
    pub(super) fn new(shape: &Shape, device: &Device) -> Result<Self> {
        let kind = Kind::chosen(shape, device);
        let kernel = match kind {
            Kind::Wgmma => Kernel::Wgmma(Wgmma::new(shape, device)?),
            Kind::Mma => Kernel::Stages(mma(shape, device)?),
            Kind::Floats(Precision::F32) => {
                let stages = floats(shape, Precision::F32, device)?;
                Kernel::Scalar(stages, Plain::new(shape, device)?)
            }
            Kind::Floats(precision) => Kernel::Stages(floats(shape, precision, device)?),
            Kind::Plain => Kernel::Plain(Plain::new(shape, device)?),
        };
        Ok(Self { kind, kernel })
    }

    /// Returns the name of the kernel.
    pub(super) fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Checks that the kernel supports this input stride. Called before anything is queued.
    pub(super) fn check(&self, input_stride: usize) -> Result<()> {
        match &self.kernel {
            Kernel::Stages(_) | Kernel::Scalar(..) => stages::stride(input_stride).map(|_| ()),
            Kernel::Wgmma(_) | Kernel::Plain(_) => Ok(()),
        }
    }

    /// Queues the products of a job.
    pub(super) fn enqueue(&self, job: &Job, stream: &Stream) -> Result<()> {
        match &self.kernel {
            Kernel::Wgmma(kernel) => kernel.enqueue(job, stream),
            Kernel::Stages(kernel) => kernel.enqueue(job, stream),
            Kernel::Scalar(kernel, _) if job.spectra.address.is_multiple_of(16) => {
                kernel.enqueue(job, stream)
            }
            Kernel::Scalar(_, other) => other.enqueue(job, stream),
            Kernel::Plain(kernel) => kernel.enqueue(job, stream),
        }
    }
}

/// Maximum number of rows, and of columns, of the sums of a plain kernel's thread block.
const SUB: usize = 64;

/// Shape bound to the plain kernel.
#[derive(Debug)]
struct Plain {
    shape: Shape,
    function: Function,
}

/// Returns the plain kernel of a shape.
fn plain_source(shape: &Shape) -> Source {
    let bits = match shape.encoding {
        VoltageEncoding::Complex4 => 4,
        VoltageEncoding::ComplexF32 => 32,
        _ => 8,
    };
    plain_source_of(shape.edge, bits)
}

fn plain_source_of(edge: usize, bits: usize) -> Source {
    Source {
        name: "plain.cu",
        text: include_str!("plain.cu"),
        includes: &[("tiles.cuh", include_str!("tiles.cuh"))],
        defines: vec![("EDGE", edge.to_string()), ("BITS", bits.to_string())],
    }
}

fn plain_variants(extent: Extent) -> Vec<Variant> {
    let few = [(128, 8), (64, 4), (32, 32)];
    let all = [32, 64, 128].into_iter().flat_map(|edge| [4, 8, 32].map(|bits| (edge, bits)));
    let wanted = if extent == Extent::All { all.collect() } else { few.to_vec() };
    let variant = |(edge, bits)| Variant::everywhere(plain_source_of(edge, bits));
    wanted.into_iter().map(variant).collect()
}

impl Plain {
    fn new(shape: &Shape, device: &Device) -> Result<Self> {
        let module = device.module(&plain_source(shape))?;
        Ok(Self { shape: *shape, function: module.function("multiply_plain", 0)? })
    }

    fn enqueue(&self, job: &Job, stream: &Stream) -> Result<()> {
        let Shape { inputs, edge, .. } = self.shape;
        let tiles = self.shape.tiles();
        let sub = edge.min(SUB);
        let arguments = Arguments::new()
            .with(job.spectra.address)
            .with(job.spectra.channel_stride as i64)
            .with(job.spectra.input_stride as i64)
            .with(inputs as u32)
            .with(self.shape.row_bytes(job.spectra.times) as i64)
            .with(tiles as u32)
            .with(job.sums)
            .with(u32::from(job.add));
        let grid = [job.channels * tiles * (edge / sub).pow(2), 1, 1];
        // SAFETY: the arguments match the kernel; the job describes its spectra and tiles correctly.
        unsafe { stream.launch(&self.function, grid, [(sub / 4).pow(2), 1, 1], &arguments) }
    }
}

fn mma_source(block: &Block, encoding: VoltageEncoding) -> Source {
    block.source("mma.cu", include_str!("mma.cu"), ("BITS", encoding.bits()))
}

/// Binds a shape of integers to the matrix instructions of warps.
pub(super) fn mma(shape: &Shape, device: &Device) -> Result<Stages> {
    let block = Block::new(shape.edge, device.properties().shared_bytes);
    Stages::new(shape, &block, &mma_source(&block, shape.encoding), device)
}

fn mma_variants(extent: Extent) -> Vec<Variant> {
    use VoltageEncoding::{Complex4, Complex8};
    let of = |shared_bytes: usize| {
        [128, 64, 32].into_iter().flat_map(move |edge| {
            let block = Block::new(edge, shared_bytes);
            [Complex8, Complex4].map(|encoding| (edge, mma_source(&block, encoding)))
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

pub(super) const PRECISIONS: [Precision; 4] =
    [Precision::F32, Precision::Split, Precision::Tf32, Precision::F16];

fn floats_source(block: &Block, precision: Precision) -> Source {
    let method = match precision {
        Precision::F32 => 0,
        Precision::Split => 3,
        Precision::Tf32 => 1,
        Precision::F16 => 16,
    };
    block.source("floats.cu", include_str!("floats.cu"), ("METHOD", method))
}

/// Binds a shape of floats to the kernel of a precision.
pub(super) fn floats(shape: &Shape, precision: Precision, device: &Device) -> Result<Stages> {
    let block = Block::new(shape.edge, device.properties().shared_bytes);
    Stages::new(shape, &block, &floats_source(&block, precision), device)
}

fn float_variants(extent: Extent) -> Vec<Variant> {
    let edges = [128, 64, 32].into_iter().filter(|edge| extent == Extent::All || *edge == 128);
    let blocks: Vec<Block> = edges.map(|edge| Block::new(edge, 163 << 10)).collect();
    let sources = PRECISIONS
        .into_iter()
        .flat_map(|precision| blocks.iter().map(move |block| floats_source(block, precision)));
    sources.map(|source| Variant::plain(source, extent)).collect()
}
