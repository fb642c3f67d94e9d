//! The ways to run a bank's filters, all to the same bits, and which of them a device takes.

use super::kernels;
use super::pack::Packed;
use crate::backend::cuda::Device;
use crate::backend::cuda::tune::{self, Choice};

/// Most threads of a block, and of one whose threads hold several filters, which take more registers.
const MOST_THREADS: usize = 512;
const MOST_FULL_THREADS: usize = 256;

/// How sums are stored, and how many parts of a launch's tiles a block works on side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// Whether a template's sums go out by whole tiles, what they are added to having been asked for a tile before.
    pub(super) lines: bool,
    pub(super) parts: usize,
}

impl Way {
    /// Every way, the one that was measured first.
    pub(super) const ALL: [Self; 4] = [
        Self { lines: false, parts: 1 },
        Self { lines: true, parts: 1 },
        Self { lines: true, parts: 2 },
        Self { lines: true, parts: 4 },
    ];

    /// Whether threads of a block that has the parts side by side have registers enough.
    pub(super) fn suits(self, threads: usize, most_filters: usize) -> bool {
        let most = if most_filters > 1 { MOST_FULL_THREADS } else { MOST_THREADS };
        self.parts == 1 || threads * self.parts <= most
    }

    fn choice(self) -> Choice {
        let name = match self {
            Self { lines: false, .. } => "sums as they are there".to_owned(),
            Self { parts: 1, .. } => "sums by tiles".to_owned(),
            Self { parts, .. } => format!("sums by tiles, {parts} parts a block"),
        };
        Choice { name, values: vec![u32::from(self.lines), self.parts as u32] }
    }

    /// The way that was measured best for these tables on this device, else the first.
    pub(super) fn of(packed: &Packed, device: &Device) -> Self {
        let most = packed.shapes.iter().map(|shape| shape.filters).max().unwrap_or(0);
        let suits = |way: &Self| way.suits(packed.threads, most);
        let candidates: Vec<Choice> =
            Self::ALL.into_iter().filter(suits).map(Self::choice).collect();
        let choice = tune::choice(device, &kernels::sources(), &packed.words(), &candidates);
        let way = Self::ALL.into_iter().find(|way| way.choice().values == choice.values);
        way.unwrap_or(Self::ALL[0])
    }
}
