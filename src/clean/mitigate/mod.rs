//! Detection of interference by the statistics of blocks of rows, and its removal.
//!
//! Invariant: blocks begin at multiples of their length, so that how rows are read changes nothing; what is decided of a
//! block depends on the blocks before it, on it and on the next one; rows without interference stay as they are.

mod broadband;
mod iqrm;
mod profile;
mod record;
mod removal;
mod steps;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::backend::{Backend, Host};
use crate::error::Result;
use crate::sample::{Encoding, Samples, unpack_f32};
use crate::trace::{self, Work};
use broadband::{Adjacent, Decisions, Fate, Memory, Series, Wanted, Window};
use iqrm::Outliers;
pub use iqrm::iqrm_mask;
use profile::{
    Amplitudes, Levels, PARTS, Part, Profile, Statistics, Terms, has_signal, row_length,
};
pub use record::Removals;
use record::{Cells, Removed, Rows};
use removal::{Removal, Scratch};
pub use steps::{Bandpass, Mitigated, Rfi, Steps};

/// Fewest and most rows of a block.
const MIN_ROWS: usize = 512;
const MAX_ROWS: usize = 1 << 14;

/// Largest size of a block in bytes, but at least 64 rows.
const BLOCK_BYTES: usize = 8 << 20;

/// Largest number of bytes in a batch of blocks processed in parallel, and blocks per thread.
const BATCH_BYTES: usize = 64 << 20;
const BLOCKS_PER_THREAD: usize = 8;

/// Fewest channels for channel outliers and for telling a broadband signal from a dispersed one.
const MIN_CHANNELS: usize = 64;

/// Rows per thread task.
const ROWS: usize = 64;

/// Clean rows stored as replacements for lost ones.
const DONORS: usize = 512;

/// Finds interference in a stream block by block and removes it.
///
/// | buffer | axes          | type                   | unit   | access               |
/// |--------|---------------|------------------------|--------|----------------------|
/// | block  | time, channel | the recording's        | counts | read and overwritten |
///
/// - **IQRM**: channels whose deviation or mean is an outlier in a block ([`iqrm_mask`]) hold their level there and
///   in the adjacent blocks.
/// - **Bandpass**: `x - m (a - A)`, `a = (x . m) / (m . m)`, where m is the channels' levels (running medians over 16
///   blocks) and A the level of `a`; applied to spectra in which `a` is an outlier over the whole band at once. If
///   the noise's profile differs from m, its part orthogonal to m is fitted as well.
/// - **Time**: spectra of dropouts are replaced by nearby spectra in random order, which have noise and no pulse.
///   After a gain step `m (L - A)` is subtracted, where L is the running median of `a` over a block's length.
///
/// # Numerics
/// Sums run in a fixed order on the host: the same bits for every backend, vector level, number of threads and number
/// of blocks pushed together. Integers are rounded with offsets that spread over the channels, so that no fraction of
/// a count remains in all of them.
#[derive(Debug)]
pub struct Mitigator {
    channels: usize,
    encoding: Encoding,
    steps: Steps,
    block_rows: usize,
    masked: Vec<bool>,
    vectors: Level,
    threads: Threads,
    /// Scratch rows of each thread.
    scratch: Vec<Scratch>,
    origin: Vec<f32>,
    profile: Profile,
    /// Blocks that initialized the profile; they do not update it again.
    begun_with: usize,
    memory: Memory,
    before: Option<Block>,
    now: Option<Block>,
    blocks: u64,
    row: u64,
    donors: Vec<u8>,
    mitigated: Mitigated,
    /// Treatment of the last row.
    last: Fate,
    /// Rounding offset of each channel.
    offsets: Vec<f32>,
    removals: Option<Removals>,
}

/// Block and the interference found in it.
#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    rows: usize,
    /// Outlier channels of the block, and of each of its parts.
    marked: Vec<bool>,
    parts: Vec<Vec<bool>>,
    /// Levels without the block, and with it.
    past: Arc<Levels>,
    levels: Arc<Levels>,
    terms: Option<Terms>,
    series: Option<Series>,
}

impl Mitigator {
    /// Creates a mitigator for rows of an encoding with `masked` channels excluded throughout. `first` holds the
    /// stream's first rows, which give the initial levels.
    ///
    /// # Errors
    /// Errors of [`Samples::new`] for rows that are not whole.
    pub fn new(
        first: &[u8],
        encoding: Encoding,
        tsamp_s: f64,
        masked: &[bool],
        steps: Steps,
        block_s: f64,
        backend: &Backend,
    ) -> Result<Self> {
        let channels = masked.len();
        let row_bytes = channels * encoding.bits() / 8;
        let (vectors, threads) = match backend.host() {
            Host::Cpu(vectors, threads) => (vectors, threads),
            Host::Reference => (Level::Portable, Threads::new(1)),
        };
        // Samples of 1 and 2 bits cannot represent corrections below their noise.
        let is_coarse = matches!(encoding, Encoding::U1 | Encoding::U2);
        let is_narrow = channels < MIN_CHANNELS;
        let block_rows = Self::rows_of_block(block_s / tsamp_s, row_bytes);
        let mut own = Self {
            channels,
            encoding,
            steps: Steps {
                iqrm: steps.iqrm && !is_narrow,
                bandpass: if is_coarse || is_narrow { Bandpass::Off } else { steps.bandpass },
                time: steps.time && !is_coarse && !is_narrow,
            },
            block_rows,
            masked: masked.to_vec(),
            vectors,
            scratch: (0..threads.count())
                .map(|_| Scratch {
                    row: vec![0.0; row_length(channels)],
                    residual: vec![0.0; channels],
                })
                .collect(),
            threads,
            origin: vec![0.0; channels],
            profile: Profile::new(masked, vectors),
            begun_with: 0,
            memory: Memory::new(vectors),
            before: None,
            now: None,
            blocks: 0,
            row: 0,
            donors: Vec::new(),
            mitigated: Mitigated::default(),
            last: Fate::Kept,
            offsets: (0..channels)
                .map(|c| (c as f64 * 0.618_033_988_749_895).fract() as f32)
                .collect(),
            removals: None,
        };
        if first.len() >= row_bytes {
            unpack_f32(&first[..row_bytes], encoding, &mut own.origin);
        }
        let length = block_rows * row_bytes;
        let chunks = first.chunks(length);
        let whole = chunks.filter(|block| block.len() == length || first.len() < length);
        let begun: Vec<&[u8]> = whole.collect();
        for statistics in own.statistics(&begun)? {
            let gain = own.profile.levels().gain(&statistics.mean);
            own.profile.push(&statistics, gain, &vec![false; channels]);
        }
        own.begun_with = begun.len();
        Ok(own)
    }

    fn rows_of_block(wanted: f64, row_bytes: usize) -> usize {
        let wanted = wanted.clamp(1.0, 1e9) as usize;
        let rows = wanted.next_power_of_two().clamp(MIN_ROWS, MAX_ROWS);
        let most = 1 << (BLOCK_BYTES / row_bytes.max(1)).max(1).ilog2();
        rows.min(most).max(MIN_ROWS / 8)
    }

    /// Records what is removed from now on, before the first block, in at most `most_bytes`.
    pub fn record(&mut self, most_bytes: usize) {
        let (masked, offsets) = (&self.masked, &self.offsets);
        let own = Removals::new(self.encoding, self.block_rows, masked, offsets, most_bytes);
        self.removals = Some(own);
    }

    /// Takes the record of the blocks returned so far; `None` if there is none or its limit did not suffice.
    pub fn take_removals(&mut self) -> Option<Removals> {
        self.removals.take().filter(Removals::is_whole)
    }

    /// Returns whether no step is active, as for few channels. Samples of 1 and 2 bits allow IQRM only.
    pub fn is_idle(&self) -> bool {
        !self.steps.iqrm && !self.steps.time && self.steps.bandpass == Bandpass::Off
    }

    /// Returns the active steps.
    pub fn steps(&self) -> Steps {
        self.steps
    }

    /// Returns the threads that process blocks.
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Returns the rows of a block; the last of a stream may have fewer.
    pub fn block_rows(&self) -> usize {
        self.block_rows
    }

    /// Returns the best number of blocks to push together, of at most `most` bytes if there are several.
    pub fn batch_blocks(&self, most: usize) -> usize {
        if self.threads.count() == 1 {
            return 1;
        }
        let block = self.block_rows * self.row_bytes();
        let fitting = most.min(BATCH_BYTES) / block.max(1);
        fitting.clamp(1, BLOCKS_PER_THREAD * self.threads.count())
    }

    /// Returns the memory in use while `blocks` blocks are pushed together, including the reader's rows and the limit of
    /// the record.
    pub fn held_bytes(&self, blocks: usize) -> usize {
        let spectra = self.block_rows * (size_of::<Amplitudes>() + 32);
        let block = self.block_rows * self.row_bytes() + spectra + 100 * self.channels;
        let record = self.removals.as_ref().map_or(0, Removals::most_bytes);
        (blocks + 3) * block + DONORS * self.row_bytes() + 300 * self.channels + record
    }

    /// Returns the statistics of the blocks returned so far.
    pub fn mitigated(&self) -> Mitigated {
        Mitigated { steps: self.steps, block_rows: self.block_rows, ..self.mitigated }
    }

    /// Processes the next blocks, all complete except the stream's last. Returns the finished blocks, including the
    /// one held by the previous call and excluding the last of this one.
    ///
    /// # Errors
    /// Errors of [`Samples::new`] for rows that are not whole.
    pub fn push(&mut self, blocks: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let analyzed = self.analyze(blocks)?;
        let mut pending: Vec<Block> = self.now.take().into_iter().collect();
        pending.extend(analyzed);
        self.now = pending.pop();
        self.finish(pending)
    }

    /// Returns the last block.
    ///
    /// # Errors
    /// As [`Mitigator::push`].
    pub fn flush(&mut self) -> Result<Vec<Vec<u8>>> {
        let last = self.now.take().into_iter().collect();
        self.finish(last)
    }

    fn row_bytes(&self) -> usize {
        self.channels * self.encoding.bits() / 8
    }

    fn samples<'a>(&self, bytes: &'a [u8]) -> Result<Samples<'a>> {
        let times = bytes.len() / self.row_bytes().max(1);
        Samples::new(bytes, self.encoding, times, self.channels)
    }

    /// Computes the statistics of blocks, all their parts in parallel.
    fn statistics(&mut self, blocks: &[&[u8]]) -> Result<Vec<Statistics>> {
        let _span = trace::span(Work::Compute, "statistics of channels");
        let mut parts = Vec::new();
        for block in blocks {
            let samples = self.samples(block)?;
            let length = Statistics::part_rows(samples.times());
            for start in (0..samples.times()).step_by(length) {
                let rows = samples.slice(start, length.min(samples.times() - start));
                parts.push((rows, Part::default()));
            }
        }
        let (origin, vectors) = (&self.origin, self.vectors);
        self.threads.for_each_chunk(&mut self.scratch, &mut parts, 1, |scratch, _, own| {
            let (rows, part) = &mut own[0];
            *part = Part::of(*rows, origin, vectors, &mut scratch.row);
        });
        let mut parts = parts.into_iter().map(|(_, part)| part);
        let mut all = Vec::with_capacity(blocks.len());
        for block in blocks {
            let times = block.len() / self.row_bytes().max(1);
            let count = times.div_ceil(Statistics::part_rows(times));
            all.push(Statistics::new(parts.by_ref().take(count).collect(), vectors));
        }
        Ok(all)
    }

    /// Finds outlier channels of blocks and the amplitudes of their spectra.
    fn analyze(&mut self, blocks: Vec<Vec<u8>>) -> Result<Vec<Block>> {
        let bytes: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        let mut statistics = self.statistics(&bytes)?;
        let span = trace::span(Work::Compute, "outliers of channels");
        let mut loud = self.loud(&statistics).into_iter();
        let mut analyzed: Vec<Block> = Vec::with_capacity(blocks.len());
        for (bytes, statistics) in blocks.into_iter().zip(&mut statistics) {
            let past = self.profile.levels();
            let signal: Vec<bool> =
                statistics.parts.iter().map(|part| past.has_signal_in(&part.mean)).collect();
            let signal_parts = signal.iter().filter(|has_signal| **has_signal).count();
            let mut loud = loud.next();
            if (1..signal.len()).contains(&signal_parts) {
                statistics.take_parts(self.vectors, |part| signal[part]);
                loud = self.loud(std::slice::from_ref(statistics)).pop();
            }
            let gain = past.gain(&statistics.mean);
            let mut marked = vec![false; self.channels];
            if let Some(loud) = loud {
                if has_signal(gain) {
                    marked = self.outliers().of_block(statistics, &past, gain, loud);
                }
                // A block that is mostly lost also keeps the marks of the previous one.
                let before = analyzed.last().or(self.now.as_ref());
                if let Some(before) = before.filter(|_| 2 * signal_parts < signal.len()) {
                    marked.iter_mut().zip(&before.marked).for_each(|(all, own)| *all |= own);
                }
                for (channel, marked) in marked.iter_mut().enumerate() {
                    *marked |= past.is_moving(channel);
                }
            }
            self.blocks += 1;
            if self.blocks > self.begun_with as u64 {
                self.profile.push(statistics, gain, &marked);
            }
            let rows = self.samples(&bytes)?.times();
            let (parts, levels) = (Vec::new(), self.profile.levels());
            analyzed.push(Block {
                bytes,
                rows,
                marked,
                parts,
                past,
                levels,
                terms: None,
                series: None,
            });
        }
        self.mark_parts(&mut analyzed, &statistics);
        drop(span);
        self.measure(&mut analyzed)?;
        Ok(analyzed)
    }

    fn outliers(&self) -> Outliers<'_> {
        Outliers { masked: &self.masked, threads: &self.threads }
    }

    /// Finds channels whose deviation is an outlier in most of a block; none without IQRM.
    fn loud(&self, blocks: &[Statistics]) -> Vec<Vec<bool>> {
        if self.steps.iqrm { self.outliers().loud(blocks) } else { Vec::new() }
    }

    /// Finds outlier channels in parts of blocks, and the terms of blocks.
    fn mark_parts(&self, analyzed: &mut [Block], statistics: &[Statistics]) {
        let steps = self.steps;
        let is_fitted = steps.time || steps.bandpass != Bandpass::Off;
        let (threads, outliers) = (&self.threads, self.outliers());
        if steps.iqrm {
            for (block, statistics) in analyzed.iter_mut().zip(statistics) {
                block.parts = vec![Vec::new(); statistics.parts.len()];
            }
            let mut tasks = Vec::new();
            for (block, statistics) in analyzed.iter_mut().zip(statistics) {
                let Block { past, parts, .. } = block;
                let both = parts.iter_mut().zip(&statistics.parts);
                tasks.extend(both.map(|(marked, part)| (&*past, part, marked)));
            }
            threads.for_each(&mut tasks, 1, |_, task| {
                let (past, part, marked) = &mut task[0];
                **marked = outliers.of_part(part, past);
            });
        }
        if is_fitted {
            threads.for_each(analyzed, 1, |_, block| {
                let block = &mut block[0];
                block.terms = Some(block.levels.terms(&block.marked)).filter(|own| !own.is_empty());
            });
        }
    }

    /// Computes the amplitudes of blocks' spectra.
    fn measure(&mut self, analyzed: &mut [Block]) -> Result<()> {
        let _span = trace::span(Work::Compute, "amplitudes of spectra");
        let mut series: Vec<Vec<Amplitudes>> = Vec::with_capacity(analyzed.len());
        for block in &*analyzed {
            let rows = if block.terms.is_some() { block.rows } else { 0 };
            series.push(vec![Amplitudes::default(); rows]);
        }
        let mut tasks = Vec::new();
        for (block, rows) in analyzed.iter().zip(&mut series) {
            let samples = self.samples(&block.bytes)?;
            let Some(terms) = &block.terms else { continue };
            for (index, rows) in rows.chunks_mut(ROWS).enumerate() {
                tasks.push((samples, terms, index * ROWS, rows));
            }
        }
        let vectors = self.vectors;
        self.threads.for_each_chunk(&mut self.scratch, &mut tasks, 1, |scratch, _, task| {
            let (samples, terms, start, rows) = &mut task[0];
            profile::amplitudes(vectors, *samples, *start, terms, &mut scratch.row, rows);
        });
        drop(tasks);
        let mut both: Vec<_> = analyzed.iter_mut().zip(series).collect();
        self.threads.for_each(&mut both, 1, |_, own| {
            let (block, rows) = &mut own[0];
            if let Some(terms) = &block.terms {
                block.series = Some(Series::new(terms, std::mem::take(rows)));
            }
        });
        Ok(())
    }

    /// Decides on blocks and cleans them; `self.now` is the block after them.
    fn finish(&mut self, mut blocks: Vec<Block>) -> Result<Vec<Vec<u8>>> {
        let span = trace::span(Work::Compute, "outlying spectra");
        let count = blocks.len();
        blocks.extend(self.now.take());
        let mut windows: Vec<Option<Window>> = (0..count).map(|_| None).collect();
        let (own, all) = (&*self, blocks.as_slice());
        own.threads.for_each(&mut windows, 1, |index, window| {
            let before = index.checked_sub(1).map_or(own.before.as_ref(), |index| all.get(index));
            window[0] = adjacent(before, &all[index], all.get(index + 1))
                .map(|series| Window::new(series, own.vectors));
        });
        let wanted = Wanted {
            outliers: self.steps.bandpass == Bandpass::Outliers,
            always: self.steps.bandpass == Bandpass::Always,
            time: self.steps.time,
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
            if self.steps.time && !is_next_clean {
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
            let is_bad = |c: usize| !self.masked[c] && (marked[c] || own.is_some_and(|own| own[c]));
            (0..self.channels).map(is_bad).collect()
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
        let row_bytes = self.row_bytes();
        let has_replaced = AtomicBool::new(false);
        let removal = Removal {
            terms: levels.terms(marked),
            level: &levels.held,
            encoding: self.encoding,
            offsets: &self.offsets,
            decisions,
            cells,
            part_rows: Statistics::part_rows(bytes.len() / row_bytes),
            masked: &self.masked,
            donors: &self.donors,
            has_replaced: &has_replaced,
            first_row: self.row,
        };
        self.threads.for_each_chunk(
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
        let always = self.steps.bandpass == Bandpass::Always;
        let is_good = |fate: &Fate| *fate == Fate::Kept || always && *fate == Fate::Fitted;
        let good: Vec<usize> =
            (0..decisions.fates.len()).filter(|t| is_good(&decisions.fates[*t])).collect();
        if good.len() < decisions.fates.len() / 2 {
            return;
        }
        let row_bytes = self.row_bytes();
        self.donors.clear();
        for time in good.iter().step_by(good.len().div_ceil(DONORS)) {
            self.donors.extend_from_slice(&bytes[time * row_bytes..][..row_bytes]);
        }
    }

    fn count(&mut self, cells: &[Vec<bool>], decisions: Option<&Decisions>, rows: usize) {
        let own = &mut self.mitigated;
        let channels = self.masked.iter().filter(|masked| !**masked).count();
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
