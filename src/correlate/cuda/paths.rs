//! Product kernels other than `wgmma`, and the selection of one for a device and a plan.

use super::super::plan::Precision;
use super::clock::Job;
use super::shape::Shape;
use super::stages::{self, Block, Stages};
use super::wgmma::{self, Wgmma};
use crate::backend::cuda::tune::{self, Choice};
use crate::backend::cuda::{
    Arguments, Device, Extent, Function, Properties, Source, Stream, Variant,
};
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
    Mma(Mma),
    Floats(Floats),
    /// Two kernels with the same bits: the first needs addresses at multiples of 16 bytes.
    Scalar(Floats, Plain),
    Plain(Plain),
}

/// Kind of product kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Wgmma,
    Mma,
    Floats(Method),
    Plain,
}

/// All kinds, in order of preference: the first suitable one is used unless tuning measured a faster one.
const KINDS: [Kind; 7] = [
    Kind::Wgmma,
    Kind::Mma,
    Kind::Floats(Method::Scalar),
    Kind::Floats(Method::Split),
    Kind::Floats(Method::Tf32),
    Kind::Floats(Method::F16),
    Kind::Plain,
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Wgmma => "matrices of warpgroups",
            Self::Mma => "matrices of warps",
            Self::Floats(method) => method.name(),
            Self::Plain => "dot products",
        }
    }

    /// Returns whether the device has the instructions and the kernel fits the shape.
    fn suits(self, shape: &Shape, device: &Device) -> bool {
        match self {
            Self::Wgmma => Wgmma::suits(shape, device),
            Self::Mma => Mma::suits(shape, device.properties()),
            Self::Floats(method) => method.suits(shape, device.properties()),
            // Its bits differ from those of the matrix instructions, so tuning must not choose between them.
            Self::Plain => {
                let suits = |method: &Method| method.suits(shape, device.properties());
                !Method::ALL.iter().any(suits) || suits(&Method::Scalar)
            }
        }
    }

    fn choice(self) -> Choice {
        let place = KINDS.iter().position(|kind| *kind == self).unwrap_or(0);
        Choice { name: self.name().to_owned(), values: vec![place as u32] }
    }
}

/// Returns the sources of all kernels, as a key of stored tuned choices: a change of any invalidates them. Never
/// compiled.
fn sources() -> Source {
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
            include_str!("corner.cuh"),
            include_str!("staged.cuh"),
            include_str!("unpack.cuh"),
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

impl Path {
    /// Binds the tuned choice, or the first suitable kernel.
    pub(super) fn new(shape: &Shape, device: &Device) -> Result<Self> {
        let kinds = KINDS.into_iter().filter(|kind| kind.suits(shape, device));
        let candidates: Vec<Choice> = kinds.map(Kind::choice).collect();
        let words = format!(
            "inputs={} channels={} encoding={:?} precision={:?}",
            shape.inputs, shape.channels, shape.encoding, shape.precision
        );
        let choice = tune::choice(device, &sources(), &words, &candidates);
        let kind = KINDS.into_iter().find(|kind| kind.choice().values == choice.values);
        let kind = kind.unwrap_or(Kind::Plain);
        let kernel = match kind {
            Kind::Wgmma => Kernel::Wgmma(Wgmma::new(shape, device)?),
            Kind::Mma => Kernel::Mma(Mma::new(shape, device)?),
            Kind::Floats(Method::Scalar) => {
                let floats = Floats::new(shape, Method::Scalar, device)?;
                Kernel::Scalar(floats, Plain::new(shape, device)?)
            }
            Kind::Floats(method) => Kernel::Floats(Floats::new(shape, method, device)?),
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
            Kernel::Mma(_) | Kernel::Floats(_) | Kernel::Scalar(..) => {
                stages::stride(input_stride).map(|_| ())
            }
            Kernel::Wgmma(_) | Kernel::Plain(_) => Ok(()),
        }
    }

    /// Queues the products of a job.
    pub(super) fn enqueue(&self, job: &Job, stream: &Stream) -> Result<()> {
        match &self.kernel {
            Kernel::Wgmma(kernel) => kernel.enqueue(job, stream),
            Kernel::Mma(kernel) => kernel.enqueue(job, stream),
            Kernel::Floats(kernel) => kernel.enqueue(job, stream),
            Kernel::Scalar(kernel, _) if job.spectra.is_multiple_of(16) => {
                kernel.enqueue(job, stream)
            }
            Kernel::Scalar(_, other) => other.enqueue(job, stream),
            Kernel::Plain(kernel) => kernel.enqueue(job, stream),
        }
    }
}

/// Most rows, and columns, of a block's sums.
const SUB: usize = 64;

/// Shape bound to the kernel.
#[derive(Debug)]
pub(super) struct Plain {
    shape: Shape,
    function: Function,
}

/// Returns the source of the kernel.
fn plain_source(edge: usize, bits: usize) -> Source {
    Source {
        name: "plain.cu",
        text: include_str!("plain.cu"),
        includes: &[("tiles.cuh", include_str!("tiles.cuh"))],
        defines: vec![("EDGE", edge.to_string()), ("BITS", bits.to_string())],
    }
}

/// Returns the variants for the kernel table.
pub(super) fn plain_variants(extent: Extent) -> Vec<Variant> {
    let few = [(128, 8), (64, 4), (32, 32)];
    let all = [32, 64, 128].into_iter().flat_map(|edge| [4, 8, 32].map(|bits| (edge, bits)));
    let wanted = if extent == Extent::All { all.collect() } else { few.to_vec() };
    let variant = |(edge, bits)| Variant::everywhere(plain_source(edge, bits));
    wanted.into_iter().map(variant).collect()
}

impl Plain {
    pub(super) fn new(shape: &Shape, device: &Device) -> Result<Self> {
        let bits = match shape.encoding {
            VoltageEncoding::Complex4 => 4,
            VoltageEncoding::ComplexF32 => 32,
            _ => 8,
        };
        let module = device.module(&plain_source(shape.edge, bits))?;
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

/// Shape bound to the kernel on a device.
#[derive(Debug)]
pub(super) struct Mma(Stages);

fn mma_source(block: &Block, encoding: VoltageEncoding) -> Source {
    block.source("mma.cu", include_str!("mma.cu"), ("BITS", encoding.bits()))
}

impl Mma {
    /// Returns whether the device has the instructions for spectra of this encoding.
    pub(super) fn suits(shape: &Shape, properties: &Properties) -> bool {
        properties.target.capability >= (8, 0) && !shape.is_float()
    }

    pub(super) fn new(shape: &Shape, device: &Device) -> Result<Self> {
        let block = Block::new(shape.edge, device.properties().shared_bytes);
        Ok(Self(Stages::new(shape, &block, &mma_source(&block, shape.encoding), device)?))
    }

    /// Queues the products of a launch.
    pub(super) fn enqueue(&self, job: &Job, stream: &Stream) -> Result<()> {
        self.0.enqueue(job, stream)
    }
}

/// Returns the kernels of this path for the kernel table.
pub(super) fn mma_variants(extent: Extent) -> Vec<Variant> {
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

/// Method of multiplication. Errors hold for sums of at most 256 products, relative to the sum of their magnitudes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
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

impl Method {
    pub(super) const ALL: [Self; 4] = [Self::Scalar, Self::Split, Self::Tf32, Self::F16];

    /// Value of `METHOD` in the kernel.
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
        block.source("floats.cu", include_str!("floats.cu"), ("METHOD", self.number()))
    }
}

/// Shape bound to one of the kernels on a device.
#[derive(Debug)]
pub(super) struct Floats(Stages);

impl Floats {
    pub(super) fn new(shape: &Shape, method: Method, device: &Device) -> Result<Self> {
        let block = Block::new(shape.edge, device.properties().shared_bytes);
        Ok(Self(Stages::new(shape, &block, &method.source(&block), device)?))
    }

    /// Queues the products of a launch.
    pub(super) fn enqueue(&self, job: &Job, stream: &Stream) -> Result<()> {
        self.0.enqueue(job, stream)
    }
}

/// Returns the kernels of this path for the kernel table.
pub(super) fn float_variants(extent: Extent) -> Vec<Variant> {
    let of = |method: Method, edge| (edge, method.source(&Block::new(edge, 163 << 10)));
    let sources =
        Method::ALL.into_iter().flat_map(|method| [128, 64, 32].map(|edge| of(method, edge)));
    let kept = sources.filter(|(edge, _)| extent == Extent::All || *edge == 128);
    kept.map(|(_, source)| Variant::plain(source, extent)).collect()
}
