//! The ways to run a bank's filters, all to the same bits, and which of them a device takes.

use super::bank::PIECE;
use super::kernels;
use super::pack::Packed;
use crate::backend::cuda::Device;
use crate::backend::cuda::tune::{self, Choice};

/// Samples of a launch such that what passes add to stays in a device's cache: 32 MiB for 4096 templates.
const CACHED_PIECE: usize = 1024;

/// Passes of a unit from which on what they add to costs more than windows that are filled more often.
const MANY_PASSES: u32 = 16;

/// Most filters of a thread whose sums go out by whole tiles: with more, registers are short, and tiles long.
const FEW: usize = 4;

/// How sums are stored, and how long launches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// Most filters of a thread, below 16, for which a template's sums go out by whole tiles, what they are added to having been
    /// asked for a tile before.
    pub(super) lines: usize,
    /// Most samples of the full rate in one launch, at most [`PIECE`].
    pub(super) piece: usize,
}

impl Way {
    /// Every way of long launches: what kernels are compiled for.
    pub(super) const COMPILED: [Self; 2] =
        [Self { lines: FEW, piece: PIECE }, Self { lines: 2 * FEW, piece: PIECE }];

    /// The ways that suit these tables, the one first that a model takes.
    fn suitable(packed: &Packed) -> Vec<Self> {
        let most = packed.shapes.iter().map(|shape| shape.filters).max().unwrap_or(0);
        let lines = if most > FEW { &[FEW, 2 * FEW][..] } else { &[FEW] };
        let passes = packed.units.iter().map(|unit| unit[3]).max().unwrap_or(0);
        let pieces = match passes {
            0..=1 => &[PIECE][..],
            MANY_PASSES.. => &[CACHED_PIECE, PIECE],
            _ => &[PIECE, CACHED_PIECE],
        };
        let with = |piece: &usize| lines.iter().map(|lines| (*lines, *piece)).collect::<Vec<_>>();
        pieces.iter().flat_map(with).map(|(lines, piece)| Self { lines, piece }).collect()
    }

    fn choice(self) -> Choice {
        let Self { lines, piece } = self;
        let name = format!("sums of {lines} filters by tiles, launches of {piece} samples");
        Choice { name, values: vec![lines as u32, piece as u32] }
    }

    /// The way that was measured best for these tables on this device, else the first.
    pub(super) fn of(packed: &Packed, device: &Device) -> Self {
        let ways = Self::suitable(packed);
        let candidates: Vec<Choice> = ways.iter().map(|way| way.choice()).collect();
        let choice = tune::choice(device, &kernels::sources(), &packed.words(), &candidates);
        let way = ways.iter().find(|way| way.choice().values == choice.values);
        *way.unwrap_or(&ways[0])
    }
}
