//! Record of what was removed from each block, from which any rows are cleaned again.
//!
//! Invariant: a recorded row that is cleaned again has the bits of the row that the mitigator returned.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::broadband::Decisions;
use super::profile::{Levels, row_length};
use super::removal::{Removal, Scratch, set_level};
use crate::sample::Encoding;

/// Interference removed from a stream by a [`Mitigator`](super::Mitigator), block by block.
pub struct Removals {
    pub(super) encoding: Encoding,
    pub(super) block_rows: usize,
    /// Channels excluded throughout.
    pub(super) masked: Vec<bool>,
    /// Rounding offset of each channel.
    pub(super) offsets: Vec<f32>,
    /// Blocks in order; `None` where no row changed.
    blocks: Vec<Option<Removed>>,
    bytes: usize,
    most_bytes: usize,
}

/// Interference removed from a block.
pub(super) enum Removed {
    /// Channels that hold their level.
    Cells(Cells),
    /// Whole spectra, and channels that hold their level.
    Rows(Box<Rows>),
}

/// Channels that hold their level in each part of a block.
pub(super) struct Cells {
    part_rows: usize,
    parts: Vec<Vec<Held>>,
    /// Gain of each row; empty if it is 1.
    gains: Vec<f32>,
}

struct Held {
    channel: u32,
    level: f32,
}

/// Treatment of the rows of a block; see [`Removal`].
pub(super) struct Rows {
    pub(super) levels: Arc<Levels>,
    pub(super) marked: Vec<bool>,
    pub(super) decisions: Decisions,
    pub(super) cells: Vec<Vec<bool>>,
    pub(super) part_rows: usize,
    /// Replacements of lost rows; empty if none was used.
    pub(super) donors: Vec<u8>,
}

impl fmt::Debug for Removals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (blocks, bytes) = (self.blocks.len(), self.bytes);
        f.debug_struct("Removals").field("blocks", &blocks).field("bytes", &bytes).finish()
    }
}

impl Cells {
    /// Makes the record of a block of which no whole spectrum changed.
    pub(super) fn new(
        levels: &Levels,
        cells: &[Vec<bool>],
        part_rows: usize,
        decisions: Option<&Decisions>,
    ) -> Self {
        let held = |part: &Vec<bool>| {
            let bad = (0..part.len()).filter(|channel| part[*channel]);
            bad.map(|channel| Held { channel: channel as u32, level: levels.held[channel] })
                .collect()
        };
        let gains = decisions.filter(|_| levels.has_levels);
        Self {
            part_rows,
            parts: cells.iter().map(held).collect(),
            gains: gains.map_or_else(Vec::new, |own| own.levels.iter().map(|own| own[0]).collect()),
        }
    }
}

impl Removed {
    fn bytes(&self) -> usize {
        match self {
            Self::Cells(Cells { parts, gains, .. }) => {
                let cells: usize = parts.iter().map(Vec::len).sum();
                size_of::<Held>() * cells + 24 * parts.len() + 4 * gains.len()
            }
            Self::Rows(rows) => {
                let channels = rows.marked.len();
                // Three numbers of each channel are in the levels.
                let cells = (13 + rows.cells.len()) * channels;
                cells + 9 * rows.decisions.fates.len() + rows.donors.len()
            }
        }
    }
}

impl Removals {
    /// Makes an empty record of at most `most_bytes`.
    pub(super) fn new(
        encoding: Encoding,
        block_rows: usize,
        masked: &[bool],
        offsets: &[f32],
        most_bytes: usize,
    ) -> Self {
        let (masked, offsets) = (masked.to_vec(), offsets.to_vec());
        Self { encoding, block_rows, masked, offsets, blocks: Vec::new(), bytes: 0, most_bytes }
    }

    /// Records the next block; beyond the limit the record is emptied and stays so.
    pub(super) fn push(&mut self, removed: Option<Removed>) {
        if !self.is_whole() {
            return;
        }
        self.bytes += size_of::<Option<Removed>>() + removed.as_ref().map_or(0, Removed::bytes);
        self.blocks.push(removed);
        if !self.is_whole() {
            self.blocks = Vec::new();
        }
    }

    /// Returns the limit in bytes.
    pub(super) fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// Returns whether the record holds all blocks.
    pub fn is_whole(&self) -> bool {
        self.bytes <= self.most_bytes
    }

    /// Cleans recorded rows, of which the first is row `first` of the stream. Rows beyond the record stay as they are.
    pub fn clean(&self, first: u64, rows: &mut [u8]) {
        let channels = self.masked.len();
        let row_bytes = channels * self.encoding.bits() / 8;
        let mut scratch =
            Scratch { row: vec![0.0; row_length(channels)], residual: vec![0.0; channels] };
        let (mut row, mut rest) = (first, rows);
        while !rest.is_empty() {
            let block = row / self.block_rows as u64;
            let begin = (row - block * self.block_rows as u64) as usize;
            let count = (self.block_rows - begin).min(rest.len() / row_bytes);
            let (own, after) = rest.split_at_mut(count * row_bytes);
            let removed = usize::try_from(block).ok().and_then(|block| self.blocks.get(block));
            match removed.and_then(Option::as_ref) {
                None => {}
                Some(Removed::Cells(cells)) => self.fill(cells, begin, own),
                Some(Removed::Rows(rows)) => self.treat(rows, begin, row, own, &mut scratch),
            }
            (row, rest) = (row + count as u64, after);
        }
    }

    /// Sets channels to their level, in rows from row `begin` of a block on.
    fn fill(&self, cells: &Cells, begin: usize, rows: &mut [u8]) {
        let row_bytes = self.masked.len() * self.encoding.bits() / 8;
        for (time, row) in (begin..).zip(rows.chunks_exact_mut(row_bytes)) {
            let gain = cells.gains.get(time).copied().unwrap_or(1.0);
            let part = cells.parts.get(time / cells.part_rows).or(cells.parts.last());
            for Held { channel, level } in part.into_iter().flatten() {
                let channel = *channel as usize;
                set_level(row, self.encoding, channel, gain * level, self.offsets[channel]);
            }
        }
    }

    /// Treats rows from row `begin` of a block on, which is row `first` of the stream.
    fn treat(
        &self,
        removed: &Rows,
        begin: usize,
        first: u64,
        rows: &mut [u8],
        scratch: &mut Scratch,
    ) {
        let row_bytes = self.masked.len() * self.encoding.bits() / 8;
        let removal = Removal {
            terms: removed.levels.terms(&removed.marked),
            level: &removed.levels.held,
            encoding: self.encoding,
            offsets: &self.offsets,
            decisions: Some(&removed.decisions),
            cells: &removed.cells,
            part_rows: removed.part_rows,
            masked: &self.masked,
            donors: &removed.donors,
            has_replaced: &AtomicBool::new(false),
            first_row: first - begin as u64,
        };
        for (time, row) in (begin..).zip(rows.chunks_exact_mut(row_bytes)) {
            removal.row(time, row, scratch);
        }
    }
}
