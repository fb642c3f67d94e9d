//! Treatment of analyzed blocks: decides on their spectra and removes the interference.
//!
//! Invariant: what is decided of a block depends on the blocks before it, on it and on the next one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::block::{Block, ROWS, Settings};
use super::broadband::{Adjacent, Decisions, Fate, Memory, Wanted, Window};
use super::profile::{Levels, PARTS, Statistics, row_length};
use super::record::{Cells, Removals, Removed, Rows};
use super::removal::{Removal, Scratch};
use super::steps::{Bandpass, Mitigated};
use crate::error::Result;
use crate::trace::{self, Work};

/// Clean rows stored as replacements for lost ones.
pub(super) const DONORS: usize = 512;

/// Blocks that were not treated yet, and what later ones need of those that were.
#[derive(Debug)]
pub(super) struct Treatment {
    settings: Arc<Settings>,
    /// Scratch rows of each thread.
    scratch: Vec<Scratch>,
    memory: Memory,
    before: Option<Block>,
    now: Option<Block>,
    row: u64,
    donors: Vec<u8>,
    pub(super) mitigated: Mitigated,
    /// Treatment of the last row.
    last: Fate,
    /// Rounding offset of each channel.
    offsets: Vec<f32>,
    pub(super) removals: Option<Removals>,
}

impl Treatment {
    pub(super) fn new(settings: &Arc<Settings>) -> Self {
        let channels = settings.channels;
        let scratch =
            |_| Scratch { row: vec![0.0; row_length(channels)], residual: vec![0.0; channels] };
        Self {
            settings: Arc::clone(settings),
            scratch: (0..settings.threads.count()).map(scratch).collect(),
            memory: Memory::new(settings.vectors),
            before: None,
            now: None,
            row: 0,
            donors: Vec::new(),
            mitigated: Mitigated::default(),
            last: Fate::Kept,
            offsets: (0..channels)
                .map(|c| (c as f64 * 0.618_033_988_749_895).fract() as f32)
                .collect(),
            removals: None,
        }
    }

    /// Records what is removed from now on, before the first block, in at most `most_bytes`.
    pub(super) fn record(&mut self, most_bytes: usize) {
        let Settings { encoding, block_rows, masked, .. } = &*self.settings;
        let own = Removals::new(*encoding, *block_rows, masked, &self.offsets, most_bytes);
        self.removals = Some(own);
    }

    /// Treats the block stored by the previous call and analyzed ones, except the last, which is stored.
    pub(super) fn push(&mut self, analyzed: Vec<Block>) -> Result<Vec<Vec<u8>>> {
        let mut pending: Vec<Block> = self.now.take().into_iter().collect();
        pending.extend(analyzed);
        self.now = pending.pop();
        self.finish(pending)
    }

    /// Treats the last block.
    pub(super) fn flush(&mut self) -> Result<Vec<Vec<u8>>> {
        let last = self.now.take().into_iter().collect();
        self.finish(last)
    }

    /// Decides on blocks and cleans them; `self.now` is the block after them.
    fn finish(&mut self, mut blocks: Vec<Block>) -> Result<Vec<Vec<u8>>> {
        let span = trace::span(Work::Compute, "outlying spectra");
        let count = blocks.len();
        blocks.extend(self.now.take());
        let mut windows: Vec<Option<Window>> = (0..count).map(|_| None).collect();
        let (own, all) = (&*self, blocks.as_slice());
        own.settings.threads.for_each(&mut windows, 1, |index, window| {
            let before = index.checked_sub(1).map_or(own.before.as_ref(), |index| all.get(index));
            window[0] = adjacent(before, &all[index], all.get(index + 1))
                .map(|series| Window::new(series, own.settings.vectors));
        });
        let wanted = Wanted {
            outliers: self.settings.steps.bandpass == Bandpass::Outliers,
            always: self.settings.steps.bandpass == Bandpass::Always,
            time: self.settings.steps.time,
        };
        let mut decisions = Vec::with_capacity(count);
        for (index, window) in windows.into_iter().enumerate() {
            let before =
                index.checked_sub(1).map_or(self.before.as_ref(), |index| blocks.get(index));
            let series = adjacent(before, &blocks[index], blocks.get(index + 1));
            let both = series.zip(window);
            decisions.push(both.map(|(series, window)| self.memory.decide(series, window, wanted)));
        }
        drop(span);
        let _span = trace::span(Work::Compute, "removal");
        let mut done = Vec::with_capacity(count);
        for index in 0..count {
            let mut bytes = std::mem::take(&mut blocks[index].bytes);
            let before =
                index.checked_sub(1).map_or(self.before.as_ref(), |index| blocks.get(index));
            let (now, after) = (&blocks[index], blocks.get(index + 1));
            let mut marked = now.marked.clone();
            for beside in before.into_iter().chain(after) {
                marked.iter_mut().zip(&beside.marked).for_each(|(all, own)| *all |= own);
            }
            let levels = Arc::clone(after.map_or(&now.levels, |after| &after.levels));
            let cells = self.cells(&marked, now);
            let has_replaced =
                self.clean(&mut bytes, &levels, &marked, &cells, decisions[index].as_ref());
            let used_donors = has_replaced && self.removals.is_some();
            let donors = if used_donors { self.donors.clone() } else { Vec::new() };
            self.count(&cells, decisions[index].as_ref(), now.rows);
            let part_rows = Statistics::part_rows(now.rows);
            self.row += now.rows as u64;
            // The decisions of the next call are unknown yet.
            let is_next_clean = decisions
                .get(index + 1)
                .is_some_and(|next| next.as_ref().is_none_or(|next| next.are_kept()));
            if self.settings.steps.time && !is_next_clean {
                self.keep_donors(&bytes, decisions[index].as_ref());
            }
            if let Some(removals) = &mut self.removals {
                removals.push(match decisions[index].take() {
                    Some(decisions) if !decisions.are_kept() => {
                        let rows = Rows { levels, marked, decisions, cells, part_rows, donors };
                        Some(Removed::Rows(Box::new(rows)))
                    }
                    kept => (!cells.is_empty()).then(|| {
                        Removed::Cells(Cells::new(&levels, &cells, part_rows, kept.as_ref()))
                    }),
                });
            }
            done.push(bytes);
        }
        self.now = if blocks.len() > count { blocks.pop() } else { None };
        self.before = blocks.pop().or(self.before.take());
        Ok(done)
    }

    /// Returns the channels that hold their level in each part of a block; empty if there are none.
    fn cells(&self, marked: &[bool], now: &Block) -> Vec<Vec<bool>> {
        let any = |marked: &[bool]| marked.iter().any(|bad| *bad);
        if !any(marked) && !now.parts.iter().any(|part| any(part)) {
            return Vec::new();
        }
        let count = now.rows.div_ceil(Statistics::part_rows(now.rows)).min(PARTS);
        let part = |index: usize| {
            let own = now.parts.get(index);
            let is_bad =
                |c: usize| !self.settings.masked[c] && (marked[c] || own.is_some_and(|own| own[c]));
            (0..self.settings.channels).map(is_bad).collect()
        };
        (0..count).map(part).collect()
    }

    /// Removes interference from a block's rows, with the levels and the marked channels; returns whether rows of earlier
    /// blocks replaced some.
    fn clean(
        &mut self,
        bytes: &mut [u8],
        levels: &Levels,
        marked: &[bool],
        cells: &[Vec<bool>],
        decisions: Option<&Decisions>,
    ) -> bool {
        if cells.is_empty() && decisions.is_none_or(Decisions::are_kept) {
            return false;
        }
        let row_bytes = self.settings.row_bytes();
        let has_replaced = AtomicBool::new(false);
        let removal = Removal {
            terms: levels.terms(marked),
            level: &levels.held,
            encoding: self.settings.encoding,
            offsets: &self.offsets,
            decisions,
            cells,
            part_rows: Statistics::part_rows(bytes.len() / row_bytes),
            masked: &self.settings.masked,
            donors: &self.donors,
            has_replaced: &has_replaced,
            first_row: self.row,
        };
        self.settings.threads.for_each_chunk(
            &mut self.scratch,
            bytes,
            ROWS * row_bytes,
            |scratch, index, rows| {
                for (time, row) in rows.chunks_exact_mut(row_bytes).enumerate() {
                    removal.row(index * ROWS + time, row, scratch);
                }
            },
        );
        has_replaced.into_inner()
    }

    /// Stores rows of a cleaned block as replacements for lost rows of later blocks.
    fn keep_donors(&mut self, bytes: &[u8], decisions: Option<&Decisions>) {
        let Some(decisions) = decisions else { return };
        let always = self.settings.steps.bandpass == Bandpass::Always;
        let is_good = |fate: &Fate| *fate == Fate::Kept || always && *fate == Fate::Fitted;
        let good: Vec<usize> =
            (0..decisions.fates.len()).filter(|t| is_good(&decisions.fates[*t])).collect();
        if good.len() < decisions.fates.len() / 2 {
            return;
        }
        let row_bytes = self.settings.row_bytes();
        self.donors.clear();
        for time in good.iter().step_by(good.len().div_ceil(DONORS)) {
            self.donors.extend_from_slice(&bytes[time * row_bytes..][..row_bytes]);
        }
    }

    fn count(&mut self, cells: &[Vec<bool>], decisions: Option<&Decisions>, rows: usize) {
        let own = &mut self.mitigated;
        let channels = self.settings.masked.iter().filter(|masked| !**masked).count();
        let part_rows = Statistics::part_rows(rows);
        own.rows += rows as u64;
        own.cells += (rows * channels) as u64;
        for (index, part) in cells.iter().enumerate() {
            let times = part_rows.min(rows - index * part_rows);
            own.masked_cells += (times * part.iter().filter(|bad| **bad).count()) as u64;
        }
        let Some(decisions) = decisions else { return };
        let last = &mut self.last;
        for (time, fate) in decisions.fates.iter().enumerate() {
            let is_first = u64::from(fate != last);
            match fate {
                Fate::Fitted => {
                    own.broadband_rows += 1;
                    own.broadband_runs += is_first;
                }
                Fate::Lost => {
                    own.lost_rows += 1;
                    own.lost_runs += is_first;
                }
                Fate::Kept => {}
            }
            if let Some((reference, _)) = decisions.reference.filter(|(_, from)| time >= *from) {
                own.followed_rows += 1;
                let change = f64::from(decisions.levels[time][0] / reference[0] - 1.0).abs();
                if change.is_finite() {
                    own.largest_change = own.largest_change.max(change);
                }
            }
            *last = *fate;
        }
    }
}

/// Returns the series of a block and of the adjacent blocks; `None` for a block without one.
fn adjacent<'a>(
    before: Option<&'a Block>,
    now: &'a Block,
    after: Option<&'a Block>,
) -> Option<Adjacent<'a>> {
    let of = |block: Option<&'a Block>| block.and_then(|block| block.series.as_ref());
    let (before, after) = (of(before), of(after));
    now.series.as_ref().map(|now| Adjacent { before, now, after })
}
