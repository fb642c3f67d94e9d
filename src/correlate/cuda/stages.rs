//! Host side of `stages.cuh`: kernels whose thread blocks process work units (an item of a channel) one by one.

use super::launch::{Job, Shape};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Source, Stream};
use crate::error::{Error, Result};

/// Bytes of a group's rows in a stage of shared memory.
const GROUP_BYTES: usize = GROUP * 128;

/// Compile-time sizes of a thread block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    edge: usize,
    warps: usize,
    /// Slots for groups of inputs.
    groups: usize,
    stages: usize,
    /// Thread blocks per multiprocessor for which the compiler limits the registers of a thread.
    together: usize,
}

impl Block {
    /// Returns the sizes for tiles of `edge` inputs a side and `shared_bytes` of shared memory.
    pub(super) fn new(edge: usize, shared_bytes: usize) -> Self {
        let (warps, groups, together) = match edge {
            32 => (1, 1, 12),
            64 => (3, 2, 4),
            _ => (8, 8, 1),
        };
        let stages = match edge {
            128 if shared_bytes < 5 * groups * GROUP_BYTES => 3,
            128 => 5,
            _ => 4,
        };
        Self { edge, warps, groups, stages, together }
    }

    /// Returns the source of a kernel with these sizes and one more constant.
    pub(super) fn source(
        &self,
        name: &'static str,
        text: &'static str,
        constant: (&'static str, usize),
    ) -> Source {
        let constants = [
            constant,
            ("EDGE", self.edge),
            ("WARPS", self.warps),
            ("GROUPS", self.groups),
            ("STAGES", self.stages),
            ("BLOCKS", self.together),
        ];
        Source {
            name,
            text,
            includes: &[("stages.cuh", include_str!("stages.cuh"))],
            defines: constants.map(|(name, value)| (name, value.to_string())).into(),
        }
    }
}

/// Converts an input stride in bytes to the 32-bit argument of the kernels.
///
/// # Errors
/// [`Error::Parameter`] for 4 GiB or more.
pub(super) fn stride(bytes: usize) -> Result<u32> {
    let rule = "rows must be less than 4 GiB apart on this device";
    u32::try_from(bytes).map_err(|_| Error::parameter("input stride", bytes, rule))
}

/// Kernel bound to a shape on a device.
#[derive(Debug)]
pub(super) struct Stages {
    kernel: Function,
    /// Items in the layout that the kernel reads.
    items: Buffer<[u8; 32]>,
    shape: Shape,
    threads: usize,
    /// Blocks that the device runs at once.
    blocks: usize,
}

/// Returns the largest number of blocks up to `most` that is coprime to the number of items. Otherwise each block
/// would get only some kinds of items, which differ in cost.
fn mixed(most: usize, items: usize) -> usize {
    let common = |blocks: usize| {
        let (mut a, mut b) = (blocks, items);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (1..=most).rev().find(|blocks| common(*blocks) == 1).unwrap_or(1)
}

impl Stages {
    /// Compiles the kernel with the sizes of the block.
    pub(super) fn new(
        shape: &Shape,
        block: &Block,
        source: &Source,
        device: &Device,
    ) -> Result<Self> {
        // After the stages, shared memory holds one number per thread.
        let shared_bytes = block.stages * block.groups * GROUP_BYTES + block.warps * 128;
        let kernel = device.module(source)?.function("multiply_inputs", shared_bytes)?;
        let threads = 32 * block.warps;
        let together = kernel.blocks_per_multiprocessor(threads)?.max(1);
        let items = items(shape.inputs, shape.edge);
        let blocks = mixed(device.properties().multiprocessors * together, items.len());
        Ok(Self {
            items: device.upload(&items.iter().map(|item| item.bytes()).collect::<Vec<_>>())?,
            shape: *shape,
            threads,
            blocks,
            kernel,
        })
    }

    /// Queues the products of a launch.
    pub(super) fn enqueue(&self, job: &Job, stream: &Stream) -> Result<()> {
        let works = job.channels * self.items.len();
        let stride = stride(job.spectra.input_stride)?;
        let arguments = Arguments::new()
            .with(job.spectra.address)
            .with(job.spectra.channel_stride as u64)
            .with(stride)
            .with(self.shape.inputs as u32)
            .with(self.shape.row_bytes(job.spectra.times) as u32)
            .with(self.items.address())
            .with(self.items.len() as u32)
            .with(works as u32)
            .with(self.shape.tiles() as u32)
            .with(job.sums)
            .with(u32::from(job.add));
        let grid = [works.min(self.blocks), 1, 1];
        // SAFETY: the arguments match the kernel; the items belong to it; the job guarantees that its spectra cover
        // the strides and its tiles the products of all its channels.
        unsafe { stream.launch(&self.kernel, grid, [self.threads, 1, 1], &arguments) }
    }
}

/// Inputs of a group.
pub(super) const GROUP: usize = 32;

/// Groups along the side of a tile of 128 inputs.
const SIDE: usize = 4;

/// Marks a slot without a group.
const NO_GROUP: u16 = 0xffff;

/// Piece of a tile for one warp: slot of the rows' group, slot of the first columns' group, and number of column
/// groups, 1 or 2.
type Piece = (usize, usize, usize);

/// Item of `stages.cuh`: the groups in the 8 slots, then the pieces of the warps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    groups: Vec<u16>,
    pieces: Vec<Piece>,
}

impl Item {
    fn new(groups: impl IntoIterator<Item = usize>, pieces: Vec<Piece>) -> Self {
        Self { groups: groups.into_iter().map(|group| group as u16).collect(), pieces }
    }

    /// Returns sixteen bytes of groups and sixteen of pieces: slot of rows, slot of columns << 3, groups of columns
    /// << 6.
    pub(super) fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let groups = self.groups.iter().copied().chain(std::iter::repeat(NO_GROUP));
        for (to, group) in bytes[..16].chunks_exact_mut(2).zip(groups) {
            to.copy_from_slice(&group.to_le_bytes());
        }
        for (to, (rows, columns, width)) in bytes[16..].iter_mut().zip(&self.pieces) {
            *to = (rows | columns << 3 | width << 6) as u8;
        }
        bytes
    }
}

/// Returns the items of a channel, for tiles of `edge` inputs a side. Wide pieces come first to spread them over the
/// four schedulers of a multiprocessor: warps w and w + 4 share one.
pub(super) fn items(inputs: usize, edge: usize) -> Vec<Item> {
    let groups = inputs.div_ceil(GROUP);
    if edge < SIDE * GROUP {
        return vec![Item::new(0..groups, triangle(groups))];
    }
    let (last, rest) = ((groups - 1) / SIDE, (groups - 1) % SIDE + 1);
    // If the last block of rows is a single group, its pieces join the items of diagonal tiles, which leave warps idle.
    let lone = rest == 1 && last > 0;
    let mut items = Vec::new();
    for i in 0..=last {
        let first = i * SIDE;
        let rows = first..groups.min(first + SIDE);
        let below = if lone && i == last { 0 } else { i };
        items.extend((0..below).map(|j| square(rows.clone(), j * SIDE)));
        let mut diagonal = Item::new(rows.clone(), triangle(rows.len()));
        if lone && i < last {
            diagonal.groups.push((groups - 1) as u16);
            diagonal.pieces.splice(SIDE..SIDE, [(SIDE, 0, 2), (SIDE, 2, 2)]);
        }
        items.push(diagonal);
    }
    items
}

/// Returns the pieces of a triangle of groups: the diagonal and below.
fn triangle(groups: usize) -> Vec<Piece> {
    match groups {
        4 => vec![(1, 0, 2), (2, 0, 2), (3, 0, 2), (3, 2, 2), (0, 0, 1), (2, 2, 1)],
        3 => vec![(1, 0, 2), (2, 0, 2), (0, 0, 1), (2, 2, 1)],
        2 => vec![(0, 0, 1), (1, 0, 1), (1, 1, 1)],
        _ => vec![(0, 0, 1)],
    }
}

/// Returns the item of an off-diagonal tile: the groups `rows` by the [`SIDE`] groups from `column` on.
fn square(rows: std::ops::Range<usize>, column: usize) -> Item {
    let wide = |row| [(row, SIDE, 2), (row, SIDE + 2, 2)];
    let pieces = match rows.len() {
        3 => {
            let narrow = (SIDE..2 * SIDE).map(|column| (2, column, 1));
            [0, 1].into_iter().flat_map(wide).chain(narrow).collect()
        }
        rows => (0..rows).flat_map(wide).collect(),
    };
    let no_group = std::iter::repeat_n(NO_GROUP as usize, SIDE - rows.len());
    Item::new(rows.chain(no_group).chain(column..column + SIDE), pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_get_items_of_every_kind() {
        assert_eq!([1, 3, 10, 136].map(|items| mixed(132, items)), [132, 131, 131, 131]);
        assert_eq!([mixed(1, 6), mixed(0, 6), mixed(4, 6)], [1, 1, 1]);
        assert_eq!(mixed(6, 4), 5);
    }

    /// Counts for each pair of groups the pieces that cover it.
    fn covered(items: &[Item], groups: usize) -> Vec<usize> {
        let mut counts = vec![0; groups * groups];
        for item in items {
            assert!(item.pieces.len() <= 8 && item.groups.len() <= 8);
            for (row, column, width) in &item.pieces {
                for column in *column..column + width {
                    let (row, column) =
                        (usize::from(item.groups[*row]), usize::from(item.groups[column]));
                    counts[row * groups + column] += 1;
                }
                // Both groups of a wide piece lie in one tile.
                assert!(*width == 1 || item.groups[*column] % 2 == 0);
            }
        }
        counts
    }

    #[test]
    fn every_product_is_made_once() {
        for inputs in 1..=700_usize {
            let edge = match inputs {
                ..=32 => 32,
                33..=64 => 64,
                _ => 128,
            };
            let groups = inputs.div_ceil(GROUP);
            let counts = covered(&items(inputs, edge), groups);
            for (row, column) in (0..groups).flat_map(|i| (0..groups).map(move |j| (i, j))) {
                let count = counts[row * groups + column];
                let expected = usize::from(column <= row);
                assert_eq!(count, expected, "{inputs} inputs: {row}, {column}");
            }
        }
    }

    #[test]
    fn bytes_are_groups_and_pieces() {
        let bytes = items(130, 128)[0].bytes();
        assert_eq!(bytes[..12], [0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 255, 255]);
        assert_eq!(bytes[16..24], [0x81, 0x82, 0x83, 0x93, 0x84, 0x94, 0x40, 0x52]);
    }
}
