//! The ways to run a bank's filters, all to the same bits, and which of them a device takes.

use super::bank::PIECE;
use super::kernels;
use super::pack::Packed;
use crate::backend::cuda::Device;
use crate::backend::cuda::tune::{self, Choice};

/// Most threads of a block, and of one whose threads hold several filters, which take more registers.
const MOST_THREADS: usize = 512;
const MOST_FULL_THREADS: usize = 256;

/// Samples of a launch such that what passes add to stays in a device's cache: 32 MiB for 4096 templates.
const CACHED_PIECE: usize = 1024;

/// How sums are stored, how many parts of a launch's tiles a block works on side by side, and how long launches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// Whether a template's sums go out by whole tiles, what they are added to having been asked for a tile before.
    pub(super) lines: bool,
    pub(super) parts: usize,
    /// Most samples of the full rate in one launch, at most [`PIECE`].
    pub(super) piece: usize,
}

impl Way {
    /// Every way, the one that was measured first.
    pub(super) const ALL: [Self; 5] = [
        Self { lines: false, parts: 1, piece: PIECE },
        Self { lines: true, parts: 1, piece: PIECE },
        Self { lines: true, parts: 2, piece: PIECE },
        Self { lines: true, parts: 4, piece: PIECE },
        Self { lines: true, parts: 1, piece: CACHED_PIECE },
    ];

    /// Whether threads of a block that has the parts side by side have registers enough.
    pub(super) fn has_registers(self, threads: usize, most_filters: usize) -> bool {
        let most = if most_filters > 1 { MOST_FULL_THREADS } else { MOST_THREADS };
        self.parts == 1 || threads * self.parts <= most
    }

    fn suits(self, packed: &Packed) -> bool {
        let most = packed.shapes.iter().map(|shape| shape.filters).max().unwrap_or(0);
        self.has_registers(packed.threads, most) && (self.piece == PIECE || packed.adds())
    }

    fn choice(self) -> Choice {
        let Self { lines, parts, piece } = self;
        let name = match (lines, parts) {
            (false, _) => "sums as they are there".to_owned(),
            (true, 1) if piece == PIECE => "sums by tiles".to_owned(),
            (true, 1) => format!("sums by tiles, launches of {piece} samples"),
            (true, _) => format!("sums by tiles, {parts} parts a block"),
        };
        Choice { name, values: vec![u32::from(lines), parts as u32, piece as u32] }
    }

    /// The way that was measured best for these tables on this device, else the first.
    pub(super) fn of(packed: &Packed, device: &Device) -> Self {
        let suits = |way: &Self| way.suits(packed);
        let candidates: Vec<Choice> =
            Self::ALL.into_iter().filter(suits).map(Self::choice).collect();
        let choice = tune::choice(device, &kernels::sources(), &packed.words(), &candidates);
        let way = Self::ALL.into_iter().find(|way| way.choice().values == choice.values);
        way.unwrap_or(Self::ALL[0])
    }
}
