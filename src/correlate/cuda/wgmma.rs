//! Products on Hopper, by the matrix instructions of warpgroups.

use super::job::Job;
use super::shape::Shape;
use crate::backend::cuda::{
    Arguments, Boxes, Device, Extent, Function, Source, Stream, Tensor, Variant,
};
use crate::error::Result;
use crate::voltage::VoltageEncoding;

/// Rows of a slot in shared memory: inputs of a tile, or of the small tiles of a few channels.
const ROWS: usize = 128;

/// Bytes of a slot: complex bytes of 64 times of so many inputs.
const SLOT: usize = ROWS * 2 * TIMES;

/// Times of a slot.
const TIMES: usize = 64;

/// Threads of a block: a warpgroup brings, two multiply.
const THREADS: usize = 384;

/// The most inputs of a last block that is multiplied beside others: for more, registers do not suffice.
const BESIDE: usize = 16;

/// How products are arranged. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Four real products a complex one; the last block of inputs, where it is not whole, has a row of tiles of its own.
    Turned,
    /// The same, the last block beside the tiles on the diagonal, whose rows it shares.
    Beside,
    /// Three real products a complex one, where the sum of a sample's parts, 8 times, fits a byte.
    Three,
}

/// A shape bound to the kernel.
#[derive(Debug)]
pub(super) struct Wgmma {
    shape: Shape,
    form: Form,
    multiprocessors: usize,
    function: Function,
}

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    /// Bits of a sample's parts: 4 or 8.
    bits: usize,
    /// Real products of a complex one: 4, or 3 of 4 bits.
    products: usize,
    /// Rows, and columns, of a tile.
    edge: usize,
    /// Columns of the last tiles that count, in whole steps of the instruction.
    width: usize,
    /// Whether there is one tile, or one besides the last block's.
    is_lone: bool,
    /// Whether the last block is multiplied beside others.
    is_beside: bool,
}

impl Form {
    fn new(shape: &Shape, manner: Manner) -> Self {
        let is_beside = manner == Manner::Beside;
        let form = Self {
            bits: shape.encoding.sample_bits() / 2,
            products: if manner == Manner::Three { 3 } else { 4 },
            edge: shape.edge,
            width: last_inputs(shape).next_multiple_of(16),
            is_lone: shape.tiles_side() == if is_beside { 2 } else { 1 },
            is_beside,
        };
        let is_whole = shape.edge < ROWS || !form.is_possible();
        Self { width: if is_whole { ROWS } else { form.width }, ..form }
    }

    /// Whether a plan takes it, of those that fit their edge: of 4 bits, four products of more than half a tile spill.
    fn is_possible(&self) -> bool {
        let is_free = self.bits == 8 || self.products == 3;
        is_free || self.is_lone || self.width <= ROWS / 2 || self.width == ROWS
    }

    fn source(&self) -> Source {
        let (name, text) = match (self.bits, self.products) {
            (_, 3) => ("wgmma_three.cu", include_str!("wgmma_three.cu")),
            (4, _) => ("wgmma_4bit.cu", include_str!("wgmma_4bit.cu")),
            _ => ("wgmma.cu", include_str!("wgmma.cu")),
        };
        let numbers = [
            ("EDGE", self.edge),
            ("WIDTH", self.width),
            ("LONE", usize::from(self.is_lone)),
            ("BESIDE", usize::from(self.is_beside)),
        ];
        Source {
            name,
            text,
            includes: &[
                ("wgmma.cuh", include_str!("wgmma.cuh")),
                ("corner.cuh", include_str!("corner.cuh")),
            ],
            defines: numbers.into_iter().map(|(name, value)| (name, value.to_string())).collect(),
        }
    }

    /// Bytes of shared memory of a block, as the kernel lays it out: slots, staging, columns' sums, barriers.
    fn shared_bytes(&self) -> usize {
        let staging = if self.is_lone { 8 * 8192 } else { 0 };
        if self.products == 3 {
            return (if self.is_lone { 10 } else { 14 }) * SLOT + staging + 8 * 24;
        }
        let extra = if self.is_beside { BESIDE } else { 0 };
        let (slots, barriers) = match (self.bits, self.is_lone) {
            (_, true) if self.is_beside => (8 * (SLOT + extra * 2 * TIMES), 8),
            (4, true) => (5 * SLOT + 10 * SLOT / 2, 15),
            (4, false) => (7 * SLOT + 14 * SLOT / 2, 21),
            (_, true) => (10 * SLOT, 10),
            (_, false) => (14 * SLOT, 7),
        };
        slots + staging + 2 * 4 * (ROWS + extra) + 8 * (2 * barriers + 4)
    }
}

/// Inputs of the last block.
fn last_inputs(shape: &Shape) -> usize {
    shape.inputs - (shape.tiles_side() - 1) * shape.edge
}

/// Variants in the table.
pub(super) fn variants(extent: Extent) -> Vec<Variant> {
    let small = [(32, ROWS, true), (64, ROWS, true), (ROWS, 80, true), (ROWS, ROWS, true)];
    let few = [(ROWS, 16, false), (ROWS, 80, false), (ROWS, ROWS, false)];
    let wide = (1..=8).flat_map(|steps| [(ROWS, 16 * steps, true), (ROWS, 16 * steps, false)]);
    let wanted: Vec<(usize, usize, bool)> = match extent {
        Extent::Representative => small.into_iter().chain(few).collect(),
        // One tile of 64 inputs or fewer has a smaller edge.
        Extent::All => {
            let possible = wide.filter(|(_, width, is_lone)| !is_lone || *width > 64);
            small.into_iter().take(2).chain(possible).collect()
        }
    };
    let three = match extent {
        Extent::Representative => vec![(ROWS, 16, false), (ROWS, 80, true), (ROWS, ROWS, false)],
        Extent::All => wanted.clone(),
    };
    let form = |bits, products| {
        move |(edge, width, is_lone)| {
            let is_beside = false;
            Form { bits, products, edge, width, is_lone, is_beside }
        }
    };
    let four = wanted.into_iter().flat_map(|of| [form(8, 4)(of), form(4, 4)(of)]);
    let beside = [true, false]
        .map(|is_lone| Form { is_beside: true, ..form(8, 4)((ROWS, BESIDE, is_lone)) });
    let all = four.chain(three.into_iter().map(form(4, 3))).filter(Form::is_possible);
    all.chain(beside).map(|form| Variant::hopper(form.source())).collect()
}

impl Wgmma {
    /// Whether a device has what it takes, for a shape of bytes or of halves of them.
    pub(super) fn suits(shape: &Shape, manner: Manner, device: &Device) -> bool {
        let suits = match (shape.encoding, manner) {
            (VoltageEncoding::Complex8 | VoltageEncoding::Complex4, Manner::Turned)
            | (VoltageEncoding::Complex4, Manner::Three) => true,
            // Of 4 bits, widening takes the registers that the sums would need.
            (VoltageEncoding::Complex8, Manner::Beside) => {
                shape.tiles_side() > 1 && last_inputs(shape) <= BESIDE
            }
            _ => false,
        };
        device.is_hopper() && suits
    }

    pub(super) fn new(shape: &Shape, manner: Manner, device: &Device) -> Result<Self> {
        let form = Form::new(shape, manner);
        let module = device.module(&form.source())?;
        Ok(Self {
            shape: *shape,
            form,
            multiprocessors: device.properties().multiprocessors,
            function: module.function("correlate_wgmma", form.shared_bytes())?,
        })
    }

    pub(super) fn enqueue(&self, job: &Job, stream: &Stream) -> Result<()> {
        let Shape { inputs, edge, .. } = self.shape;
        let channels_each = ROWS / edge;
        let boxes = Boxes {
            address: job.spectra,
            extents: [self.shape.row_bytes(job.times), inputs, job.channels],
            strides: [job.input_stride, job.channel_stride],
            size: [self.shape.row_bytes(TIMES), edge, channels_each],
        };
        let last =
            Boxes { size: [boxes.size[0], edge.min(self.form.width), channels_each], ..boxes };
        let tiles = self.shape.tiles();
        let without = if self.form.is_beside { self.shape.tiles_side() } else { 0 };
        let jobs = job.channels.div_ceil(channels_each) * (tiles - without);
        let arguments = Arguments::new()
            .with_tensor(Tensor::new(&boxes)?)
            .with_tensor(Tensor::new(&last)?)
            .with(job.sums)
            .with(job.channels as u32)
            .with(inputs as u32)
            .with(self.shape.tiles_side() as u32)
            .with(tiles as u32)
            .with(jobs as u32)
            .with(job.times.div_ceil(TIMES / 2) as u32)
            .with(u32::from(job.add));
        let grid = [self.multiprocessors.min(jobs), 1, 1];
        // SAFETY: the arguments are the kernel's; the job's spectra and tiles are as it says.
        unsafe { stream.launch(&self.function, grid, [THREADS, 1, 1], &arguments) }
    }
}
