//! The shapes of a block of the fast kernel, and which of them a plan takes.

use super::tile::TRIALS;
use crate::backend::cuda::{Extent, Source, Variant};

/// What a block covers and holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Output times of a block.
    pub(super) times: usize,
    /// Channels of a group.
    pub(super) group: usize,
    /// Groups in flight.
    pub(super) ring: usize,
    /// Windows have up to 8 positions for each set.
    pub(super) sets: usize,
}

/// Threads of a block.
pub(super) const THREADS: usize = 512;

/// Positions of a window that one set of bits holds.
pub(super) const POSITIONS: usize = 8;

/// Shared memory of a block: all that a multiprocessor of Hopper gives.
pub(super) const SHARED_BYTES: usize = 232_448;

impl Shape {
    /// All shapes, the narrowest windows first.
    pub(super) const ALL: [Self; 3] = [
        Self { times: 320, group: 64, ring: 2, sets: 1 },
        Self { times: 384, group: 32, ring: 3, sets: 1 },
        Self { times: 384, group: 32, ring: 3, sets: 2 },
    ];

    /// The kernel's source.
    pub(super) fn source(&self) -> Source {
        let numbers = [
            ("TIMES", self.times),
            ("GROUP", self.group),
            ("RING", self.ring),
            ("SETS", self.sets),
            ("STAGE_FIRST", 0),
        ];
        Source {
            name: "wgmma.cu",
            text: include_str!("../wgmma.cu"),
            includes: &[],
            defines: numbers.into_iter().map(|(name, value)| (name, value.to_string())).collect(),
        }
    }

    /// Positions of the widest window.
    pub(super) fn most_positions(&self) -> usize {
        POSITIONS * self.sets
    }

    /// The most samples of a channel that are staged.
    pub(super) fn most_columns(&self) -> usize {
        self.times + 128
    }

    /// The most columns of a row of sums.
    pub(super) fn row_columns(&self) -> usize {
        self.times + 64
    }

    /// Words from one trial's row of sums to the next: 4 more than a multiple of 32, for the banks.
    pub(super) fn row_words(&self) -> usize {
        self.row_columns() / 2 + 4
    }

    /// Words of a group's head, as the kernel declares it.
    pub(super) fn head_words(&self) -> usize {
        TRIALS + 3 * self.group + 8
    }

    /// Sets of one-hot bits of a group, of 32 channels and 8 positions each.
    pub(super) fn hot_sets(&self) -> usize {
        self.sets * self.group / 32
    }

    /// Groups whose sums fit 16 bits on top of a byte, at most `most` a sample; a power of two.
    pub(super) fn flush(&self, most: u64) -> usize {
        let groups = (0xffff - 0xff) / (most.max(1) * self.group as u64);
        1 << groups.ilog2()
    }
}

/// Every variant of the fast kernel.
pub(in super::super) fn variants(_extent: Extent) -> Vec<Variant> {
    Shape::ALL.iter().map(|shape| Variant::hopper(shape.source())).collect()
}
