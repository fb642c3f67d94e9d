//! Products on Hopper with the matrix instructions of warpgroups.

use super::launch::{Job, Shape};
use crate::backend::cuda::{
    Arguments, Boxes, Buffer, Device, Extent, Function, Source, Stream, Tensor, Variant,
};
use crate::error::Result;

/// Rows of a slot in shared memory: inputs of a tile, or of the small tiles of several channels.
const ROWS: usize = 128;

/// Bytes of a slot: complex 8-bit samples of `ROWS` inputs at `TIMES` times.
const SLOT: usize = ROWS * 2 * TIMES;

/// Times of a slot.
const TIMES: usize = 64;

/// Threads of a block: a producer warpgroup and two consumer warpgroups.
const THREADS: usize = 384;

/// Maximum number of edge columns that a diagonal tile can multiply in addition; more exceed the registers.
const EDGE_COLUMNS: usize = 16;

/// Minimum number of tiles per multiprocessor for which the dynamic scheduler is faster.
const LONG: usize = 16;

/// Jobs that the producer may publish ahead of the other warps; as in `wgmma.cuh`.
const QUEUE_DEPTH: usize = 4;

/// Shape bound to the kernel.
#[derive(Debug)]
pub(super) struct Wgmma {
    shape: Shape,
    form: Form,
    multiprocessors: usize,
    function: Function,
    /// Counters of the dynamic scheduler; each launch leaves zeros.
    claimed: Buffer<u32>,
}

/// Compile-time constants of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    /// Bits of a real or imaginary part: 4 or 8.
    bits: usize,
    /// Rows, and columns, of a tile.
    edge: usize,
    /// Inputs of the last block, rounded up to a multiple of 16.
    width: usize,
    /// Whether a channel has one tile, not counting the tiles of an edge block without jobs.
    is_single_tile: bool,
    /// Whether the tile scheduler is dynamic instead of static.
    is_dynamic: bool,
}

impl Form {
    fn new(shape: &Shape, multiprocessors: usize) -> Self {
        let form = Self::of(shape);
        let is_long = shape.tiles() * shape.channels >= LONG * multiprocessors;
        Self { is_dynamic: !form.is_single_tile && !form.has_edge_columns() && is_long, ..form }
    }

    fn of(shape: &Shape) -> Self {
        let (side, edge) = (shape.tiles_side(), shape.edge);
        let last = shape.inputs - (side - 1) * edge;
        let width = if edge < ROWS { ROWS } else { last.next_multiple_of(16) };
        let bits = shape.encoding.sample_bits() / 2;
        let is_single_tile = side == 1 || (side == 2 && width == EDGE_COLUMNS);
        let form = Self { bits, edge, width, is_single_tile, is_dynamic: false };
        Self { width: if form.spills() { ROWS } else { width }, ..form }
    }

    /// Returns whether diagonal tiles multiply the edge columns, so that the edge block has no jobs. For 4 bits only
    /// next to a single whole block: otherwise rows would be unpacked in shared memory too, which is slower than
    /// separate tiles for the edge block.
    fn has_edge_columns(&self) -> bool {
        self.width == EDGE_COLUMNS && (self.bits == 8 || self.is_single_tile)
    }

    /// Returns whether the kernel would exceed its registers: 4 bits, and an edge block of more than half a tile next
    /// to whole blocks.
    fn spills(&self) -> bool {
        self.bits == 4 && !self.is_single_tile && self.width > ROWS / 2 && self.width < ROWS
    }

    /// Returns whether some plan needs this form. A single tile of at most 64 inputs has a smaller edge instead.
    fn is_possible(&self) -> bool {
        let is_large = self.has_edge_columns() || self.width > 64;
        let may_be_dynamic = !self.is_single_tile && !self.has_edge_columns();
        let fits = if self.is_single_tile { is_large } else { !self.spills() };
        fits && (may_be_dynamic || !self.is_dynamic)
    }

    fn source(&self) -> Source {
        let (name, text) = match self.bits {
            4 if self.has_edge_columns() => {
                ("wgmma_4bit_edge_columns.cu", include_str!("wgmma_4bit_edge_columns.cu"))
            }
            4 => ("wgmma_4bit.cu", include_str!("wgmma_4bit.cu")),
            _ => ("wgmma.cu", include_str!("wgmma.cu")),
        };
        let numbers = [
            ("EDGE", self.edge),
            ("WIDTH", self.width),
            ("SINGLE_TILE", usize::from(self.is_single_tile)),
            ("DYNAMIC", usize::from(self.is_dynamic)),
        ];
        Source {
            name,
            text,
            includes: &[
                ("wgmma.cuh", include_str!("wgmma.cuh")),
                ("staged.cuh", include_str!("staged.cuh")),
            ],
            defines: numbers.into_iter().map(|(name, value)| (name, value.to_string())).collect(),
        }
    }

    /// Returns the bytes of shared memory of a block in the kernel's layout: slots, staging, column sums, barriers,
    /// job queue.
    fn shared_bytes(&self) -> usize {
        let staging = if self.is_single_tile { 8 * 8192 } else { 0 };
        let extra = if self.has_edge_columns() { EDGE_COLUMNS } else { 0 };
        let (slots, barriers) = match (self.bits, self.is_single_tile) {
            (4, true) if self.has_edge_columns() => (17 * (SLOT + extra * 2 * TIMES) / 2, 12),
            (_, true) if self.has_edge_columns() => (8 * (SLOT + extra * 2 * TIMES), 8),
            (4, true) => (5 * SLOT + 10 * SLOT / 2, 15),
            (4, false) => (7 * SLOT + 14 * SLOT / 2, 21),
            (_, true) => (10 * SLOT, 10),
            (_, false) => (14 * SLOT, 7),
        };
        slots + staging + 2 * 4 * (ROWS + extra) + 8 * (2 * barriers + 4) + QUEUE_DEPTH * 32
    }
}

/// Returns the variants for the kernel table.
pub(super) fn variants(extent: Extent) -> Vec<Variant> {
    let widths: Vec<usize> = match extent {
        Extent::Representative => vec![EDGE_COLUMNS, 32, 80, ROWS],
        Extent::All => (1..=ROWS / 16).map(|steps| 16 * steps).collect(),
    };
    let small = [(32, ROWS, true), (64, ROWS, true)];
    let large = widths.into_iter().flat_map(|width| [(ROWS, width, true), (ROWS, width, false)]);
    let sizes = small.into_iter().chain(large);
    let forms = sizes.flat_map(|(edge, width, is_single_tile)| {
        let form = move |(bits, is_dynamic)| Form { bits, edge, width, is_single_tile, is_dynamic };
        [(8, false), (8, true), (4, false), (4, true)].map(form)
    });
    forms.filter(Form::is_possible).map(|form| Variant::hopper(form.source())).collect()
}

/// Returns the kernel of a shape on a device.
pub(super) fn source(shape: &Shape, device: &Device) -> Source {
    Form::new(shape, device.properties().multiprocessors).source()
}

impl Wgmma {
    pub(super) fn new(shape: &Shape, device: &Device) -> Result<Self> {
        let multiprocessors = device.properties().multiprocessors;
        let form = Form::new(shape, multiprocessors);
        let module = device.module(&form.source())?;
        Ok(Self {
            shape: *shape,
            form,
            multiprocessors,
            function: module.function("correlate_wgmma", form.shared_bytes())?,
            claimed: device.upload(&[0; 2])?,
        })
    }

    pub(super) fn enqueue(&self, job: &Job, stream: &Stream) -> Result<()> {
        let Shape { inputs, edge, .. } = self.shape;
        let channels_each = ROWS / edge;
        let boxes = Boxes {
            address: job.spectra.address,
            extents: [self.shape.row_bytes(job.spectra.times), inputs, job.channels],
            strides: [job.spectra.input_stride, job.spectra.channel_stride],
            size: [self.shape.row_bytes(TIMES), edge, channels_each],
        };
        let last =
            Boxes { size: [boxes.size[0], edge.min(self.form.width), channels_each], ..boxes };
        let tiles = self.shape.tiles();
        let without = if self.form.has_edge_columns() { self.shape.tiles_side() } else { 0 };
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
            .with(job.spectra.times.div_ceil(TIMES / 2) as u32)
            .with(u32::from(job.add))
            .with(self.claimed.address());
        let grid = [self.multiprocessors.min(jobs), 1, 1];
        // SAFETY: the arguments match the kernel; the job describes its spectra and tiles correctly. The correlator
        // serializes launches over all streams, so one launch at a time uses the counters.
        unsafe { stream.launch(&self.function, grid, [THREADS, 1, 1], &arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::plan::{Options, Plan};
    use super::*;
    use crate::voltage::VoltageEncoding;

    fn form(inputs: usize, encoding: VoltageEncoding) -> Form {
        form_of(inputs, 1, encoding)
    }

    fn form_of(inputs: usize, channels: usize, encoding: VoltageEncoding) -> Form {
        let options = Options { antennas: inputs, polarizations: 1, channels, encoding };
        Form::new(&Shape::new(&Plan::new(options).unwrap()), 132)
    }

    #[test]
    fn only_few_inputs_stand_beside_others() {
        use VoltageEncoding::{Complex4, Complex8};
        for inputs in [1, 16, 33, 64, 65, 128, 145, 160, 256, 273, 384] {
            for form in [form(inputs, Complex8), form(inputs, Complex4)] {
                assert!(
                    !form.has_edge_columns() && form.is_single_tile == (inputs <= 128),
                    "{inputs}: {form:?}"
                );
            }
        }
        for (inputs, is_single_tile) in
            [(129, true), (144, true), (257, false), (272, false), (514, false), (2049, false)]
        {
            let (of_8, of_4) = (form(inputs, Complex8), form(inputs, Complex4));
            assert!(
                of_8.has_edge_columns() && of_8.is_single_tile == is_single_tile,
                "{inputs}: {of_8:?}"
            );
            assert!(
                of_4.has_edge_columns() == is_single_tile && of_4.is_single_tile == is_single_tile,
                "{inputs}: {of_4:?}"
            );
        }
    }

    #[test]
    fn blocks_draw_jobs_where_each_has_many() {
        let is_dynamic =
            |inputs, channels| form_of(inputs, channels, VoltageEncoding::Complex8).is_dynamic;
        // Three tiles a channel, and ten; one tile, with any number of channels; an edge block next to others.
        assert!(!is_dynamic(256, 703) && is_dynamic(256, 704) && is_dynamic(512, 256));
        assert!(!is_dynamic(128, 10_000) && !is_dynamic(140, 10_000) && !is_dynamic(514, 1000));
    }

    #[test]
    fn the_table_has_the_forms_of_plans_and_no_others() {
        let table = variants(Extent::All);
        let encodings = [VoltageEncoding::Complex8, VoltageEncoding::Complex4];
        let form = |(inputs, channels)| {
            encodings.map(|encoding| form_of(inputs, channels, encoding).source())
        };
        let asked: Vec<Source> =
            (1..400).flat_map(|inputs| [(inputs, 1), (inputs, 1000)]).flat_map(form).collect();
        for source in &asked {
            assert!(table.iter().any(|variant| variant.source == *source), "{:?}", source.defines);
        }
        for variant in &table {
            assert!(asked.contains(&variant.source), "{:?}", variant.source.defines);
        }
    }
}
