//! The shape of the sums: which groups of channels share rows, and how long rows are.

use super::super::plan::{Lane, Plan};

/// Rows of one level: sums of `channels` adjacent channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rows {
    pub(super) channels: usize,
    pub(super) lane: Lane,
}

/// How a plan's sums are shared.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    /// Elements of the history.
    pub(super) input: Lane,
    /// Narrowest groups first; a level's channels are a multiple of the one's before.
    pub(super) levels: Vec<Rows>,
    /// Rows of the last level that 16-bit accumulators hold; 0 if these are not used.
    pub(super) segment: usize,
    /// Output times in a tile.
    pub(super) tile_times: usize,
    /// Groups of the last level that are summed in one pass over a tile.
    pub(super) pass_groups: usize,
}

/// Most rows that one build adds: more streams than these are read slowly.
pub(super) const FAN_IN: usize = 4;

impl Shape {
    /// A shape with these groups.
    pub(super) fn new(plan: &Plan, sizes: &[usize], tile_times: usize, pass: usize) -> Self {
        let rows = |&channels: &usize| Rows { channels, lane: plan.lane(channels) };
        let levels: Vec<Rows> = sizes.iter().map(rows).collect();
        let last = sizes.last().copied().unwrap_or(1) as u64;
        let bound = plan.largest().unwrap_or(0).max(1) * last;
        let segment = (0xffff / bound) as usize;
        Self { input: plan.lane(1), levels, segment, tile_times, pass_groups: pass }
    }

    /// Channels in a group of the last level.
    pub(super) fn group(&self) -> usize {
        self.levels.last().map_or(1, |rows| rows.channels)
    }

    /// Lane of a level's sources.
    pub(super) fn source(&self, level: usize) -> Lane {
        if level == 0 { self.input } else { self.levels[level - 1].lane }
    }
}

/// Most trials in a tile.
const TILE_DMS: usize = 256;

/// Trials in a tile: few tiles share more, many balance the threads.
pub(super) fn tile_dms(dms: usize, threads: usize) -> usize {
    let tiles = dms.div_ceil(TILE_DMS).next_multiple_of(threads);
    dms.div_ceil(tiles)
}

impl Shape {
    /// Output times that are made in one go: whole tiles, few against a long history.
    pub(super) fn block_times(&self, plan: &Plan) -> usize {
        let wanted = if plan.channels_used().len() > 4096 { 2048 } else { 4096 };
        wanted.max(self.tile_times)
    }

    /// Whether 16-bit rows are summed as 32-bit halves, because few fit into 16 bits.
    pub(super) fn wide(&self) -> bool {
        self.segment < 4
    }
}
