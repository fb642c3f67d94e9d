//! Validity masks on the device: sets invalid samples to zero and counts the valid ones of each baseline.

use std::ops::Range;

use super::super::plan::Plan;
use super::shape::Shape;
use crate::backend::cuda::{
    Arguments, Buffer, Device, Extent, Function, Source, Stream, Variant, combinations,
};
use crate::error::Result;

/// Threads of a block. Each warp processes the mask of one antenna.
const BLOCK: usize = 256;

/// Antennas along a tile of counts.
const TILE: usize = 32;

/// Kernels and the counts of all channels.
#[derive(Debug)]
pub(super) struct Masks {
    shape: Shape,
    antennas: usize,
    baselines: usize,
    apply: Function,
    count: Function,
    /// Valid samples of each antenna in the current block; axes channel, antenna.
    own: Buffer<u64>,
    /// Valid samples of each baseline since the last reset; axes channel, baseline.
    counts: Buffer<u64>,
}

/// Spectra of some channels in natural order, with their mask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Masked {
    pub(super) spectra: u64,
    pub(super) channel_stride: usize,
    pub(super) input_stride: usize,
    pub(super) times: usize,
    /// Address of the mask; axes channel, antenna, word.
    pub(super) valid: u64,
}

fn source(defines: Vec<(&'static str, String)>) -> Source {
    let includes = &[("tiles.cuh", include_str!("tiles.cuh"))];
    Source { name: "masks.cu", text: include_str!("masks.cu"), includes, defines }
}

/// Returns the variants of these kernels for the kernel table.
pub(super) fn variants(extent: Extent) -> Vec<Variant> {
    let variant = |defines| Variant::plain(source(defines), extent);
    combinations(&[("SAMPLE", &["1", "2", "8"])], extent).into_iter().map(variant).collect()
}

impl Masks {
    pub(super) fn new(plan: &Plan, shape: &Shape, device: &Device) -> Result<Self> {
        let module = device.module(&source(vec![("SAMPLE", shape.row_bytes(1).to_string())]))?;
        Ok(Self {
            shape: *shape,
            antennas: plan.antennas(),
            baselines: plan.baselines(),
            apply: module.function("apply_mask", 0)?,
            count: module.function("count_baselines", 0)?,
            own: device.buffer(plan.channels() * plan.antennas())?,
            counts: device.buffer(plan.channels() * plan.baselines())?,
        })
    }

    /// Returns the bytes of the counts.
    pub(super) fn bytes(plan: &Plan) -> usize {
        plan.channels() * (plan.baselines() + plan.antennas()) * size_of::<u64>()
    }

    /// Returns the address of a count; `baseline` counts from the first baseline of channel 0.
    pub(super) fn at(&self, baseline: usize) -> u64 {
        self.counts.at(baseline)
    }

    /// Queues masking and counting for some channels. Overwrites the counts unless `add`.
    pub(super) fn enqueue(
        &self,
        part: &Masked,
        channels: Range<usize>,
        add: bool,
        stream: &Stream,
    ) -> Result<()> {
        let own = self.own.at(channels.start * self.antennas);
        let polarizations = self.shape.inputs / self.antennas;
        let apply = Arguments::new()
            .with(part.spectra)
            .with(part.channel_stride as i64)
            .with(part.input_stride as i64)
            .with(channels.len() as u32)
            .with(self.antennas as u32)
            .with(polarizations as u32)
            .with(part.times as i64)
            .with(part.valid)
            .with(own);
        let blocks = (channels.len() * self.antennas).div_ceil(BLOCK / 32);
        let side = self.antennas.div_ceil(TILE);
        let tiles = side * (side + 1) / 2;
        let count = Arguments::new()
            .with(part.valid)
            .with(own)
            .with(self.antennas as u32)
            .with(part.times as i64)
            .with(tiles as u32)
            .with(self.counts.at(channels.start * self.baselines))
            .with(u32::from(add));
        // SAFETY: the arguments match the kernels; the mask has a word per antenna and 64 times of these channels.
        unsafe {
            stream.launch(&self.apply, [blocks, 1, 1], [BLOCK, 1, 1], &apply)?;
            stream.launch(&self.count, [channels.len() * tiles, 1, 1], [BLOCK, 1, 1], &count)
        }
    }
}
