//! Host side of `stages.cuh`: kernels whose blocks multiply the items of channels one after another.

use super::items::{GROUP, items};
use super::job::Job;
use super::shape::Shape;
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Source, Stream};
use crate::error::{Error, Result};

/// Bytes of a group's rows in a stage of shared memory.
const GROUP_BYTES: usize = GROUP * 128;

/// Sizes of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    edge: usize,
    warps: usize,
    /// Slots for groups of inputs.
    groups: usize,
    stages: usize,
    /// Blocks per multiprocessor that registers must suffice for.
    together: usize,
}

impl Block {
    /// Returns the sizes for tiles of `edge` inputs a side and this much shared memory.
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

/// Converts the bytes from one input to the next to the type that the kernels take.
///
/// # Errors
/// [`Error::Parameter`] from 4 GiB on.
pub(super) fn stride(bytes: usize) -> Result<u32> {
    let rule = "rows lie less than 4 GiB apart on this device";
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
        let stride = stride(job.input_stride)?;
        let arguments = Arguments::new()
            .with(job.spectra)
            .with(job.channel_stride as u64)
            .with(stride)
            .with(self.shape.inputs as u32)
            .with(self.shape.row_bytes(job.times) as u32)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_get_items_of_every_kind() {
        assert_eq!([1, 3, 10, 136].map(|items| mixed(132, items)), [132, 131, 131, 131]);
        assert_eq!([mixed(1, 6), mixed(0, 6), mixed(4, 6)], [1, 1, 1]);
        assert_eq!(mixed(6, 4), 5);
    }
}
