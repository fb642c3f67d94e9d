//! Narrow sums in tiles, the wide sums to which they are added, the read-out of both, and validity masks, which set
//! invalid samples to zero and count the valid samples of each baseline.

use std::ops::Range;

use super::super::plan::Plan;
use super::launch::{Clock, Shape, Spectra};
use crate::backend::cuda::{
    Arguments, Buffer, Device, Extent, Function, Source, Stream, Variant, combinations,
};
use crate::error::Result;

/// Threads of a block.
const BLOCK: usize = 256;

/// Sums of all channels on a device.
#[derive(Debug)]
pub(super) struct Sums {
    shape: Shape,
    baselines: usize,
    polarizations: usize,
    /// Tiles of complex numbers of two 32-bit words.
    narrow: Buffer<u64>,
    /// Complex numbers of two 64-bit words; none until an integration is too long for narrow sums.
    wide: Option<Buffer<[u64; 2]>>,
    fold: Function,
    read_narrow: Function,
    read_wide: Function,
}

type Defines = Vec<(&'static str, String)>;

fn sums_source(defines: Defines) -> Source {
    let includes = &[("tiles.cuh", include_str!("tiles.cuh"))];
    Source { name: "sums.cu", text: include_str!("sums.cu"), includes, defines }
}

fn masks_source(defines: Defines) -> Source {
    let includes = &[("tiles.cuh", include_str!("tiles.cuh"))];
    Source { name: "masks.cu", text: include_str!("masks.cu"), includes, defines }
}

/// Returns the kernels of a shape: those of the sums, and those of the masks.
pub(super) fn sources(shape: &Shape) -> [Source; 2] {
    let floats = u32::from(shape.is_float());
    let sums = vec![("EDGE", shape.edge.to_string()), ("FLOATS", floats.to_string())];
    let masks = vec![("SAMPLE", shape.row_bytes(1).to_string())];
    [sums_source(sums), masks_source(masks)]
}

/// Returns the variants for the kernel table.
pub(super) fn variants(extent: Extent) -> Vec<Variant> {
    let axes: &[(&str, &[&str])] = &[("EDGE", &["128", "64", "32"]), ("FLOATS", &["0", "1"])];
    let sums = combinations(axes, extent).into_iter().map(sums_source);
    let masks = combinations(&[("SAMPLE", &["1", "2", "8"])], extent).into_iter().map(masks_source);
    sums.chain(masks).map(|source| Variant::plain(source, extent)).collect()
}

impl Sums {
    pub(super) fn new(plan: &Plan, shape: &Shape, device: &Device) -> Result<Self> {
        let [source, _] = sources(shape);
        let module = device.module(&source)?;
        let mut narrow = device.buffer(shape.channels * shape.elements())?;
        // The fold also reads elements that no kernel writes; their sums are never read out.
        let stream = device.stream()?;
        let all = 0..narrow.len();
        stream.fill(&mut narrow, all, 0)?;
        stream.synchronize()?;
        let mut sums = Self {
            shape: *shape,
            baselines: plan.baselines(),
            polarizations: plan.polarizations(),
            narrow,
            wide: None,
            fold: module.function("fold", 0)?,
            read_narrow: module.function("read_narrow", 0)?,
            read_wide: module.function("read_wide", 0)?,
        };
        if shape.is_float() {
            sums.widen()?;
        }
        Ok(sums)
    }

    /// Returns the bytes of narrow and wide sums, or none on overflow.
    pub(super) fn bytes(shape: &Shape) -> Option<usize> {
        shape.channels.checked_mul(shape.elements())?.checked_mul(8 + 16)
    }

    /// Like `bytes`, without wide sums that may never be needed.
    pub(super) fn least_bytes(shape: &Shape) -> Option<usize> {
        Self::bytes(shape).map(|bytes| if shape.is_float() { bytes } else { bytes / 3 })
    }

    /// Allocates the wide sums.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) when the device lacks memory.
    pub(super) fn widen(&mut self) -> Result<()> {
        if self.wide.is_none() {
            self.wide = Some(self.narrow.device().buffer(self.narrow.len())?);
        }
        Ok(())
    }

    /// Returns the address of a channel's tiles.
    pub(super) fn tiles(&self, channel: usize) -> u64 {
        self.narrow.at(channel * self.shape.elements())
    }

    /// Returns the address of a channel's wide sums, or 0 without any.
    fn wide(&self, channel: usize) -> u64 {
        self.wide.as_ref().map_or(0, |wide| wide.at(channel * self.shape.elements()))
    }

    /// Queues the addition of some channels' narrow sums to the wide sums, or with `replace` the overwriting of the
    /// wide sums.
    pub(super) fn fold(
        &self,
        channels: Range<usize>,
        replace: bool,
        stream: &Stream,
    ) -> Result<()> {
        let fours = channels.len() * self.shape.elements() / 2;
        let arguments = Arguments::new()
            .with(self.tiles(channels.start))
            .with(self.wide(channels.start))
            .with(fours as u64)
            .with(u32::from(replace));
        let blocks = fours.div_ceil(BLOCK).min(1 << 16);
        // SAFETY: the arguments match the kernel, and both buffers hold these channels.
        unsafe { stream.launch(&self.fold, [blocks, 1, 1], [BLOCK, 1, 1], &arguments) }
    }

    /// Returns the 64-bit words of a baseline in the read-out: two 32-bit or two 64-bit numbers per polarization
    /// pair.
    pub(super) fn words(&self, clock: Clock) -> usize {
        let pairs = self.polarizations * self.polarizations;
        if clock.is_settled() { 2 * pairs } else { pairs }
    }

    /// Queues the read-out of `baselines` to the device address `output`. Baselines are numbered from the first one of
    /// channel 0.
    pub(super) fn read(
        &self,
        clock: Clock,
        baselines: Range<usize>,
        output: u64,
        stream: &Stream,
    ) -> Result<()> {
        let channel = baselines.start / self.baselines;
        let (first, count) = (baselines.start % self.baselines, baselines.len());
        let (is_settled, is_pending) = (clock.is_settled(), clock.is_pending());
        let arguments = Arguments::new()
            .with(if is_pending { self.tiles(channel) } else { 0 })
            .with(if is_settled { self.wide(channel) } else { 0 })
            .with(self.shape.elements() as u64)
            .with(output)
            .with(first as u64)
            .with(count as u64)
            .with(self.baselines as u32)
            .with(self.polarizations as u32);
        let function = if is_settled { &self.read_wide } else { &self.read_narrow };
        // SAFETY: the arguments match the kernel; the output holds this many words, and the sums exist.
        unsafe { stream.launch(function, [count.div_ceil(BLOCK), 1, 1], [BLOCK, 1, 1], &arguments) }
    }
}

/// Antennas along a tile of counts.
const TILE: usize = 32;

/// Mask kernels, and the counts of all channels.
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

impl Masks {
    pub(super) fn new(plan: &Plan, shape: &Shape, device: &Device) -> Result<Self> {
        let [_, source] = sources(shape);
        let module = device.module(&source)?;
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

    /// Queues masking and counting for some channels. Overwrites the counts unless `add`. `valid` is the address of
    /// the mask; axes channel, antenna, word.
    pub(super) fn enqueue(
        &self,
        spectra: &Spectra,
        valid: u64,
        channels: Range<usize>,
        add: bool,
        stream: &Stream,
    ) -> Result<()> {
        let own = self.own.at(channels.start * self.antennas);
        let polarizations = self.shape.inputs / self.antennas;
        let apply = Arguments::new()
            .with(spectra.address)
            .with(spectra.channel_stride as i64)
            .with(spectra.input_stride as i64)
            .with(channels.len() as u32)
            .with(self.antennas as u32)
            .with(polarizations as u32)
            .with(spectra.times as i64)
            .with(valid)
            .with(own);
        let blocks = (channels.len() * self.antennas).div_ceil(BLOCK / 32);
        let side = self.antennas.div_ceil(TILE);
        let tiles = side * (side + 1) / 2;
        let count = Arguments::new()
            .with(valid)
            .with(own)
            .with(self.antennas as u32)
            .with(spectra.times as i64)
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
