//! Block shapes of the general kernel.

use super::super::plan::{Lane, Plan};
use crate::backend::cuda::Properties;
use crate::backend::cuda::tune::Choice;

/// Returns the CUDA type name of a history sample.
pub(super) fn element(lane: Lane) -> &'static str {
    match lane {
        Lane::U8 => "u8",
        Lane::U16 => "u16",
        Lane::U32 => "u32",
        Lane::F32 => "float",
    }
}

/// Channels of an interval.
pub(super) const CHANNELS: usize = 16;

/// Extent and shared-memory layout of a block; words have 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) threads: usize,
    /// Trials of a tile.
    pub(super) tile_dms: usize,
    /// Words of a row that one trial reads.
    pub(super) words: usize,
    /// Largest number of words of a row of samples.
    pub(super) most_words: usize,
    /// Largest number of words of all rows of sums of an interval.
    pub(super) most_sums: usize,
    /// Largest number of words of a record.
    pub(super) most_record: usize,
    /// Resident blocks per multiprocessor.
    pub(super) blocks: usize,
    pub(super) lane: Lane,
    /// Whether a word holds two sums of 16 bits.
    pub(super) packed: bool,
    /// Number of intervals whose packed sums fit 16 bits.
    pub(super) flush: usize,
}

/// Shape of 512 threads: one block fills a multiprocessor with 227 KiB of shared memory.
const LARGE: Shape = Shape {
    threads: 512,
    tile_dms: 64,
    words: 256,
    most_words: 640,
    most_sums: 14336,
    most_record: 2048,
    blocks: 1,
    lane: Lane::U8,
    packed: false,
    flush: 0,
};

/// Like [`LARGE`], for unpacked words: the registers hold twice the trials, which share more sums.
const TALL: Shape = Shape { tile_dms: 128, most_sums: 12288, most_record: 3072, ..LARGE };

/// Shape of 256 threads: two blocks fit a multiprocessor.
const MIDDLE: Shape = Shape {
    threads: 256,
    words: 128,
    most_words: 384,
    most_sums: 5120,
    most_record: 1536,
    blocks: 2,
    ..LARGE
};

/// Like [`MIDDLE`], for devices with less than 100 KiB of shared memory per block.
const SMALL: Shape = Shape { most_words: 256, most_sums: 3584, blocks: 1, ..MIDDLE };

impl Shape {
    /// Lists the shapes for packed or unpacked words, the largest first.
    pub(super) const fn all(packed: bool) -> [Self; 3] {
        [if packed { LARGE } else { TALL }, MIDDLE, SMALL]
    }

    /// Lists the shapes that fit the device, the cost model's choice first. Floats get that one alone, because
    /// another shape adds in another order.
    pub(super) fn fitting(plan: &Plan, device: &Properties) -> Vec<Self> {
        let lane = plan.lane(1);
        let most = plan.largest().unwrap_or(u64::MAX).max(1);
        // After a split the low bytes remain in the registers, and the part above them must fit 16 bits too.
        let flush = (0xffff - 0xff) / most.saturating_mul(CHANNELS as u64);
        let total = most.saturating_mul(plan.channels_used().len() as u64);
        let packed = flush > 0 && total < 1 << 24;
        let fits = |shape: &Self| shape.shared_bytes() <= device.shared_bytes;
        let mut shapes: Vec<Self> = Self::all(packed).into_iter().filter(fits).collect();
        if shapes.is_empty() {
            shapes.push(SMALL);
        }
        if lane == Lane::F32 {
            shapes.truncate(1);
        }
        let of_plan = |shape| Self { lane, packed, flush: flush.min(1 << 30) as usize, ..shape };
        shapes.into_iter().map(of_plan).collect()
    }

    /// Returns the tuning candidate for this shape.
    pub(super) fn choice(&self) -> Choice {
        let Self { threads, tile_dms, words, most_words, .. } = *self;
        let values = [threads, tile_dms, words, most_words].map(|value| value as u32);
        let name = format!("{threads} threads, {tile_dms} trials, {most_words} words a row");
        Choice { name, values: values.to_vec() }
    }

    /// Returns the output times of a tile.
    pub(super) fn tile_times(&self) -> usize {
        if self.packed { 2 * self.words } else { self.words }
    }

    /// Returns the warps of a block.
    pub(super) fn warps(&self) -> usize {
        self.threads / 32
    }

    /// Returns the largest growth of a channel's shift within a tile. The margin covers the rounding of rows to whole
    /// segments and of starts to multiples of 4.
    pub(super) fn most_spread(&self) -> usize {
        self.most_words - self.words - 80
    }

    /// Returns the bytes of shared memory of a block: two buffers of samples and of sums, and four records.
    pub(super) fn shared_bytes(&self) -> usize {
        4 * (2 * CHANNELS * self.most_words + 2 * self.most_sums + 4 * self.most_record)
    }

    /// Lists the preprocessor constants of the kernel.
    pub(super) fn defines(&self) -> Vec<(&'static str, String)> {
        let numbers = [
            ("THREADS", self.threads),
            ("TILE_DMS", self.tile_dms),
            ("WORDS", self.words),
            ("MOST_WORDS", self.most_words),
            ("MOST_SUMS", self.most_sums),
            ("MOST_RECORD", self.most_record),
            ("CHANNELS", CHANNELS),
            ("BLOCKS", self.blocks),
            ("PACKED", usize::from(self.packed)),
            ("FLOATS", usize::from(self.lane == Lane::F32)),
        ];
        let mut defines: Vec<_> =
            numbers.into_iter().map(|(name, value)| (name, value.to_string())).collect();
        defines.push(("ELEMENT", element(self.lane).to_owned()));
        defines
    }
}
