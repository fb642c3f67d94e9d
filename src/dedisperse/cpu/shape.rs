//! Shape of the sums: the groups of channels that share rows, and the lengths of rows.

use super::super::plan::{Lane, Plan};

/// Rows of one level: sums of `channels` adjacent channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rows {
    pub(super) channels: usize,
    pub(super) lane: Lane,
}

/// Sharing scheme of a plan's sums.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    /// Element type of the history.
    pub(super) input: Lane,
    /// Levels, narrowest groups first; each level's channels are a multiple of the previous one's.
    pub(super) levels: Vec<Rows>,
    /// Rows of the last level that fit 16-bit accumulators; 0 if these are not used.
    pub(super) segment: usize,
    /// Output times in a tile.
    pub(super) tile_times: usize,
    /// Groups of the last level summed in one pass over a tile.
    pub(super) pass_groups: usize,
}

/// Largest number of rows that one build adds; more concurrent streams are read slowly.
pub(super) const FAN_IN: usize = 4;

impl Shape {
    /// Creates a shape with the given group sizes.
    pub(super) fn new(plan: &Plan, sizes: &[usize], tile_times: usize, pass: usize) -> Self {
        let rows = |&channels: &usize| Rows { channels, lane: plan.lane(channels) };
        let levels: Vec<Rows> = sizes.iter().map(rows).collect();
        let last = sizes.last().copied().unwrap_or(1) as u64;
        let bound = plan.largest().unwrap_or(0).max(1) * last;
        let segment = (0xffff / bound) as usize;
        Self { input: plan.lane(1), levels, segment, tile_times, pass_groups: pass }
    }

    /// Returns the channels in a group of the last level.
    pub(super) fn group(&self) -> usize {
        self.levels.last().map_or(1, |rows| rows.channels)
    }

    /// Returns the element type of a level's sources.
    pub(super) fn source(&self, level: usize) -> Lane {
        if level == 0 { self.input } else { self.levels[level - 1].lane }
    }
}

/// Largest number of trials in a tile.
const TILE_DMS: usize = 256;

/// Returns the trials in a tile: few tiles share more, many balance the threads.
pub(super) fn tile_dms(dms: usize, threads: usize) -> usize {
    let tiles = dms.div_ceil(TILE_DMS).next_multiple_of(threads);
    dms.div_ceil(tiles)
}

impl Shape {
    /// Returns the output times of a block: whole tiles, few compared with a long history.
    pub(super) fn block_times(&self, plan: &Plan) -> usize {
        let wanted = if plan.channels_used().len() > 4096 { 2048 } else { 4096 };
        wanted.max(self.tile_times)
    }

    /// Returns whether 16-bit rows are summed as 32-bit halves, because few fit into 16 bits.
    pub(super) fn wide(&self) -> bool {
        self.segment < 4
    }
}
