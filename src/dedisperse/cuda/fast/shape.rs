//! Block shapes of the fast kernel, and their ranking for a plan.

use super::tile::{Extents, TRIALS};
use crate::backend::cuda::tune::Choice;
use crate::backend::cuda::{Source, Variant};

/// Extent and resources of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Consumer warpgroups; one more warpgroup stages.
    pub(super) teams: usize,
    /// Column blocks of products in flight in each warpgroup.
    pub(super) flight: usize,
    /// Output times of a block.
    pub(super) times: usize,
    /// Channels of a group.
    pub(super) group: usize,
    /// Staged groups in the ring.
    pub(super) ring: usize,
    /// Units of 32 channels in flight from global memory.
    pub(super) depth: usize,
    /// Sets of 8 window positions.
    pub(super) sets: usize,
}

/// Window positions of one set of bits.
pub(super) const POSITIONS: usize = 8;

/// Maximum of staged samples of a channel: 4 for each thread of a warpgroup.
const MOST_COLUMNS: usize = 512;

/// Few warps with many registers each, for narrow windows.
const NARROW: Shape =
    Shape { teams: 2, flight: 2, times: 384, group: 32, ring: 3, depth: 1, sets: 1 };

/// Many warps with few registers each.
pub(super) const MANY: Shape = Shape { teams: 4, flight: 1, ..NARROW };

/// Like [`MANY`], for windows of up to 16 positions.
const WIDE: Shape = Shape { ring: 2, sets: 2, ..MANY };

impl Shape {
    /// All shapes; on ties the model prefers the earlier one ([`Shape::ranked`]).
    pub(super) const ALL: [Self; 6] = [
        Self { times: 448, ..NARROW },
        NARROW,
        Self { times: 448, ..MANY },
        MANY,
        Self { times: 448, ..WIDE },
        WIDE,
    ];

    /// Lists the shapes that fit the most sampled tiles, the model's choice first: the first shape that is also fast
    /// for the tiles' mean window. The others are tuning candidates.
    pub(super) fn ranked(extents: &[Extents]) -> Vec<Self> {
        let unfit = |shape: &Self| {
            let groups: Vec<&Extents> = extents.iter().filter(|of| of.fits(shape)).collect();
            let mean = groups.iter().map(|of| of.mean_window(shape.group)).sum::<f64>();
            let is_slow = mean > shape.most_mean_window() * groups.len() as f64;
            (extents.len() - groups.len(), is_slow)
        };
        let mut ranked: Vec<(usize, bool, Self)> = Vec::new();
        for shape in Self::ALL {
            let (unfit, is_slow) = unfit(&shape);
            if unfit < extents.len() {
                ranked.push((unfit, is_slow, shape));
            }
        }
        // Drops shapes that fit fewer tiles than others do: the general kernel would sum the rest.
        let least = ranked.iter().map(|of| of.0).min();
        ranked.retain(|of| Some(of.0) == least);
        ranked.sort_by_key(|of| of.1);
        ranked.into_iter().map(|of| of.2).collect()
    }

    /// Returns the tuning candidate for this shape.
    pub(super) fn choice(&self) -> Choice {
        let Self { teams, flight, times, group, ring, depth, sets } = *self;
        let values = [teams, flight, times, group, ring, depth, sets].map(|value| value as u32);
        let name =
            format!("{teams} warpgroups, {times} times, {} positions", self.most_positions());
        Choice { name, values: values.to_vec() }
    }

    /// Returns the largest mean window for which the shape is fast.
    fn most_mean_window(&self) -> f64 {
        if self.teams == 2 { 5.5 } else { f64::INFINITY }
    }

    /// Returns whether a group fits whose frames differ by up to `spread` and whose window has `window` positions.
    pub(super) fn holds(&self, spread: usize, window: usize) -> bool {
        let columns = self.times + spread + window - 1;
        window <= self.most_positions() && columns <= self.most_columns()
    }

    /// Returns the kernel's source for this shape.
    pub(super) fn source(&self) -> Source {
        let numbers = [
            ("TEAMS", self.teams),
            ("FLIGHT", self.flight),
            ("TIMES", self.times),
            ("GROUP", self.group),
            ("RING", self.ring),
            ("DEPTH", self.depth),
            ("SETS", self.sets),
        ];
        Source {
            name: "wgmma.cu",
            text: include_str!("../wgmma.cu"),
            includes: &[],
            defines: numbers.into_iter().map(|(name, value)| (name, value.to_string())).collect(),
        }
    }

    /// Returns the threads of a block.
    pub(super) fn threads(&self) -> usize {
        128 * (self.teams + 1)
    }

    /// Returns the positions of the widest window.
    pub(super) fn most_positions(&self) -> usize {
        POSITIONS * self.sets
    }

    /// Returns the largest number of staged samples of a channel.
    pub(super) fn most_columns(&self) -> usize {
        MOST_COLUMNS.min(self.times + 128)
    }

    /// Returns the bytes between rows of sums: 16 more than a multiple of 128, to avoid bank conflicts.
    pub(super) fn row_bytes(&self) -> usize {
        2 * self.most_columns() + 16
    }

    /// Returns the sets of one-hot bits of a group; a set covers 32 channels and 8 positions.
    pub(super) fn hot_sets(&self) -> usize {
        self.sets * self.group / 32
    }

    /// Returns the size of the kernel's `Head` in bytes.
    pub(super) fn head_bytes(&self) -> usize {
        4 * (TRIALS + 4) + 2048 * self.hot_sets()
    }

    /// Returns the bytes of shared memory of a block, as the kernel lays it out.
    pub(super) fn shared_bytes(&self) -> usize {
        let staged = self.ring * self.group * (self.most_columns() + 8);
        let raw = 4 * (self.depth + 1) * (32 * 144 + 256);
        let sums = TRIALS * (self.row_bytes() + 2 * self.times);
        let heads = if self.ring == 2 { 4 } else { 8 };
        let barriers = 8 * (heads + 2 * self.ring + 8);
        staged + raw + sums + heads * self.head_bytes() + barriers
    }

    /// Returns how many groups of samples up to `most` fit 16 bits on top of a byte, rounded down to a power of two.
    pub(super) fn flush(&self, most: u64) -> usize {
        let groups = (0xffff - 0xff) / (most.max(1) * self.group as u64);
        1 << groups.ilog2()
    }
}

/// Lists every variant of the fast kernel.
pub(in super::super) fn variants() -> Vec<Variant> {
    Shape::ALL.iter().map(|shape| Variant::hopper(shape.source())).collect()
}
