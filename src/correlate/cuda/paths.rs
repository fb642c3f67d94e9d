//! Product kernels, and the selection of one for a device and a plan.

use super::floats::{self, Floats, Way};
use super::job::Job;
use super::mma::{self, Mma};
use super::plain::{self, Plain};
use super::shape::Shape;
use super::stages;
use super::wgmma::{self, Wgmma};
use crate::backend::cuda::tune::{self, Choice};
use crate::backend::cuda::{Device, Extent, Source, Stream, Variant};
use crate::error::Result;

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
    Floats(Way),
    Plain,
}

/// All kinds, in order of preference: the first suitable one is used unless tuning measured a faster one.
const KINDS: [Kind; 7] = [
    Kind::Wgmma,
    Kind::Mma,
    Kind::Floats(Way::Scalar),
    Kind::Floats(Way::Split),
    Kind::Floats(Way::Tf32),
    Kind::Floats(Way::F16),
    Kind::Plain,
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Wgmma => "matrices of warpgroups",
            Self::Mma => "matrices of warps",
            Self::Floats(way) => way.name(),
            Self::Plain => "dot products",
        }
    }

    /// Returns whether the device has the instructions and the kernel fits the shape.
    fn suits(self, shape: &Shape, device: &Device) -> bool {
        match self {
            Self::Wgmma => Wgmma::suits(shape, device),
            Self::Mma => Mma::suits(shape, device.properties()),
            Self::Floats(way) => way.suits(shape, device.properties()),
            // Its bits differ from those of the matrix instructions, so tuning must not choose between them.
            Self::Plain => {
                let suits = |way: &Way| way.suits(shape, device.properties());
                !Way::ALL.iter().any(suits) || suits(&Way::Scalar)
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
            include_str!("wgmma_4bit_beside.cu"),
            include_str!("corner.cuh"),
            include_str!("staged.cuh"),
            include_str!("widen.cuh"),
        ),
        includes: &[],
        defines: Vec::new(),
    }
}

/// Returns the variants of all kinds for the kernel table.
pub(super) fn variants(extent: Extent) -> Vec<Variant> {
    let all = [wgmma::variants, mma::variants, floats::variants, plain::variants];
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
            Kind::Floats(Way::Scalar) => {
                let floats = Floats::new(shape, Way::Scalar, device)?;
                Kernel::Scalar(floats, Plain::new(shape, device)?)
            }
            Kind::Floats(way) => Kernel::Floats(Floats::new(shape, way, device)?),
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
