//! Detection of interference by the statistics of blocks of rows, and its removal.
//!
//! Invariant: blocks begin at multiples of their length, so that how rows are read changes nothing; what is decided of a
//! block depends on the blocks before it, on it and on the next one; rows without interference stay as they are.

mod broadband;
mod iqrm;
mod profile;
mod rows;
mod statistics;

use std::sync::Arc;

use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::backend::{Backend, Host};
use crate::error::Result;
use crate::math::median_and_sigma;
use crate::sample::{Encoding, Samples, set_value, unpack_f32};
use broadband::{Adjacent, Decisions, Fate, Memory, Series, Wanted, Window};
pub use iqrm::iqrm_mask;
use iqrm::{Votes, lags, marked};
use profile::{Levels, Profile, Terms, is_told};
use rows::Amplitudes;
use statistics::{PARTS, Part, Statistics};

/// Approximate length of a block in seconds, and its fewest and most rows.
const BLOCK_S: f64 = 0.5;
const LEAST_ROWS: usize = 512;
const MOST_ROWS: usize = 1 << 14;

/// Largest size of a block in bytes, but at least 64 rows.
const BLOCK_BYTES: usize = 8 << 20;

/// Largest number of bytes in a batch of blocks processed in parallel, and blocks per thread.
const BATCH_BYTES: usize = 32 << 20;
const BLOCKS_PER_THREAD: usize = 8;

/// Fewest channels for channel outliers and for telling a broadband signal from a dispersed one.
const LEAST_CHANNELS: usize = 64;

/// Comparison radius of channels in blocks, as a fraction of the band, and in parts of blocks, in channels.
const RADIUS: f64 = 0.1;
const NEAR_RADIUS: usize = 4;

/// Outlier limit in deviations.
const THRESHOLD: f64 = 6.0;

/// Deviations from the median that some channel needs for any two to differ by [`THRESHOLD`].
const FAR: f64 = 4.0;

/// Smallest relative change of a channel's deviation that counts.
const LEAST_CHANGE: f64 = 0.02;

/// Largest fraction of a spectrum's samples at the encoding's maximum; with more, its broadband part is unknown.
const CLIPPED: f64 = 0.01;

/// Fewest channels for which threads process lags in parallel.
const MANY_CHANNELS: usize = 1024;

/// Rows per thread task.
const ROWS: usize = 64;

/// Clean rows stored as replacements for lost ones.
const DONORS: usize = 512;

/// Treatment of broadband signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bandpass {
    /// Keeps them.
    #[default]
    Off,
    /// Subtracts them from spectra that are outliers.
    Outliers,
    /// Subtracts them from every spectrum.
    Always,
}

/// Steps of mitigation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Masks channels that are outliers in a block.
    pub iqrm: bool,
    /// Subtracts broadband signals.
    pub bandpass: Bandpass,
    /// Replaces dropouts and corrects gain steps.
    pub time: bool,
}

/// Statistics of mitigation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mitigated {
    /// Steps applied.
    pub steps: Steps,
    /// Rows; `cells` excludes channels that are masked throughout.
    pub rows: u64,
    /// Samples of those rows.
    pub cells: u64,
    /// Samples in outlier channels.
    pub masked_cells: u64,
    /// Spectra whose broadband part was subtracted.
    pub broadband_rows: u64,
    /// Runs of such spectra.
    pub broadband_runs: u64,
    /// Spectra lost to dropouts.
    pub lost_rows: u64,
    /// Runs of such spectra.
    pub lost_runs: u64,
    /// Spectra corrected for a level change.
    pub followed_rows: u64,
    /// Largest relative change of the level that was corrected.
    pub largest_change: f64,
}

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
    /// Two scratch rows per thread.
    scratch: Vec<(Vec<f32>, Vec<f32>)>,
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
        (first, encoding, tsamp_s): (&[u8], Encoding, f64),
        masked: &[bool],
        steps: Steps,
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
        let is_narrow = channels < LEAST_CHANNELS;
        let block_rows = Self::rows_of_block(tsamp_s, row_bytes);
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
            scratch: vec![
                (vec![0.0; rows::row_length(channels)], vec![0.0; channels]);
                threads.count()
            ],
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

    fn rows_of_block(tsamp_s: f64, row_bytes: usize) -> usize {
        let wanted = (BLOCK_S / tsamp_s).clamp(1.0, 1e9) as usize;
        let rows = wanted.next_power_of_two().clamp(LEAST_ROWS, MOST_ROWS);
        let most = 1 << (BLOCK_BYTES / row_bytes.max(1)).max(1).ilog2();
        rows.min(most).max(LEAST_ROWS / 8)
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

    /// Returns the memory in use while `blocks` blocks are pushed together, including the reader's rows.
    pub fn held_bytes(&self, blocks: usize) -> usize {
        let spectra = self.block_rows * (size_of::<Amplitudes>() + 32);
        let block = self.block_rows * self.row_bytes() + spectra + 100 * self.channels;
        (blocks + 3) * block + DONORS * self.row_bytes() + 300 * self.channels
    }

    /// Returns the statistics of the blocks returned so far.
    pub fn mitigated(&self) -> Mitigated {
        Mitigated { steps: self.steps, ..self.mitigated }
    }

    /// Processes the next blocks, all complete except the stream's last. Returns the finished blocks, including the
    /// one held by the previous call and excluding the last of this one.
    ///
    /// # Errors
    /// Errors of [`Samples::new`] for rows that are not whole.
    pub fn push(&mut self, blocks: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let looked = self.look(blocks)?;
        let mut pending: Vec<Block> = self.now.take().into_iter().collect();
        pending.extend(looked);
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
        self.threads.for_each_chunk(&mut self.scratch, &mut parts, 1, |(row, _), _, own| {
            let (rows, part) = &mut own[0];
            *part = Part::of(*rows, origin, vectors, row);
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
    fn look(&mut self, blocks: Vec<Vec<u8>>) -> Result<Vec<Block>> {
        let bytes: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        let mut statistics = self.statistics(&bytes)?;
        let mut loud = self.mark_loud(&statistics).into_iter();
        let mut looked: Vec<Block> = Vec::with_capacity(blocks.len());
        for (bytes, statistics) in blocks.into_iter().zip(&mut statistics) {
            let past = self.profile.levels();
            let told: Vec<bool> =
                statistics.parts.iter().map(|part| past.is_told_by(&part.mean)).collect();
            let told_parts = told.iter().filter(|told| **told).count();
            let mut loud = loud.next();
            if (1..told.len()).contains(&told_parts) {
                statistics.take_parts(self.vectors, |part| told[part]);
                loud = self.mark_loud(std::slice::from_ref(statistics)).pop();
            }
            let gain = past.gain(&statistics.mean);
            let mut marked = vec![false; self.channels];
            if let Some(loud) = loud {
                if is_told(gain) {
                    marked = self.mark(statistics, (&past, gain), loud);
                }
                // A block that is mostly lost also keeps the marks of the previous one.
                let before = looked.last().or(self.now.as_ref());
                if let Some(before) = before.filter(|_| 2 * told_parts < told.len()) {
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
            looked.push(Block {
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
        self.mark_parts(&mut looked, &statistics);
        self.measure(&mut looked)?;
        Ok(looked)
    }

    /// Finds outlier channels in parts of blocks, and the terms of blocks.
    fn mark_parts(&mut self, looked: &mut [Block], statistics: &[Statistics]) {
        let steps = self.steps;
        let is_fitted = steps.time || steps.bandpass != Bandpass::Off;
        let own = &*self;
        let mut none = vec![(); own.threads.count()];
        if steps.iqrm {
            for (block, statistics) in looked.iter_mut().zip(statistics) {
                block.parts = vec![Vec::new(); statistics.parts.len()];
            }
            let mut tasks = Vec::new();
            for (block, statistics) in looked.iter_mut().zip(statistics) {
                let Block { past, parts, .. } = block;
                let both = parts.iter_mut().zip(&statistics.parts);
                tasks.extend(both.map(|(marked, part)| (&*past, part, marked)));
            }
            own.threads.for_each_chunk(&mut none, &mut tasks, 1, |(), _, task| {
                let (past, part, marked) = &mut task[0];
                **marked = own.mark_part(part, past);
            });
        }
        if is_fitted {
            own.threads.for_each_chunk(&mut none, looked, 1, |(), _, block| {
                let block = &mut block[0];
                block.terms = Some(block.levels.terms(&block.marked)).filter(|own| !own.is_empty());
            });
        }
    }

    /// Computes the amplitudes of blocks' spectra.
    fn measure(&mut self, looked: &mut [Block]) -> Result<()> {
        let mut series: Vec<Vec<Amplitudes>> = Vec::with_capacity(looked.len());
        for block in &*looked {
            let rows = if block.terms.is_some() { block.rows } else { 0 };
            series.push(vec![Amplitudes::default(); rows]);
        }
        let mut tasks = Vec::new();
        for (block, rows) in looked.iter().zip(&mut series) {
            let samples = self.samples(&block.bytes)?;
            let Some(terms) = &block.terms else { continue };
            for (index, rows) in rows.chunks_mut(ROWS).enumerate() {
                tasks.push((samples, terms, index * ROWS, rows));
            }
        }
        let vectors = self.vectors;
        self.threads.for_each_chunk(&mut self.scratch, &mut tasks, 1, |(row, _), _, task| {
            let (samples, terms, start, rows) = &mut task[0];
            rows::amplitudes(vectors, *samples, *start, terms, row, rows);
        });
        drop(tasks);
        let mut both: Vec<_> = looked.iter_mut().zip(series).collect();
        let mut none = vec![(); self.threads.count()];
        self.threads.for_each_chunk(&mut none, &mut both, 1, |(), _, own| {
            let (block, rows) = &mut own[0];
            if let Some(terms) = &block.terms {
                block.series = Some(Series::new(terms, std::mem::take(rows)));
            }
        });
        Ok(())
    }

    /// Finds channels whose deviation is an outlier in most of a block; processes all lags of all blocks in parallel.
    fn mark_loud(&self, blocks: &[Statistics]) -> Vec<Vec<bool>> {
        if !self.steps.iqrm {
            return Vec::new();
        }
        let lags: Vec<isize> = lags(self.radius()).collect();
        let loud = |block: &Statistics| self.each(|c| f64::from(block.deviation[c]).ln());
        let loud: Vec<Vec<f64>> = blocks.iter().map(loud).collect();
        let mut votes = vec![Votes::default(); blocks.len() * lags.len()];
        let mut none = vec![(); self.threads.count()];
        self.threads.for_each_chunk(&mut none, &mut votes, 1, |(), index, votes| {
            let (block, lag) = (index / lags.len(), lags[index % lags.len()]);
            let least = LEAST_CHANGE.max(blocks[block].white());
            votes[0] = Votes::at(&loud[block], lag, THRESHOLD, least);
        });
        let of_block =
            |votes: &[Votes]| marked(self.channels, votes.iter().map(|own| own.high.as_slice()));
        votes.chunks(lags.len().max(1)).map(of_block).collect()
    }

    /// Marks the channels that are outliers in most of a block by their deviation (`loud`) or by the change of their
    /// mean.
    fn mark(
        &self,
        block: &Statistics,
        (levels, gain): (&Levels, f64),
        mut loud: Vec<bool>,
    ) -> Vec<bool> {
        let excess = self.excess(&block.mean, levels, gain);
        let off = both_sides(&excess, self.radius(), block.white(), Some(&self.threads));
        loud.iter_mut().zip(off).for_each(|(marked, is_off)| *marked |= is_off);
        loud
    }

    fn radius(&self) -> usize {
        (RADIUS * self.channels as f64) as usize
    }

    /// Marks the channels whose mean differs from adjacent channels in a part of a block.
    fn mark_part(&self, part: &Part, levels: &Levels) -> Vec<bool> {
        if !levels.is_told_by(&part.mean) {
            return vec![false; self.channels];
        }
        let gain = levels.gain(&part.mean);
        let white = (1.0 / part.counted as f64).sqrt();
        both_sides(&self.excess(&part.mean, levels, gain), NEAR_RADIUS, white, None)
    }

    /// Returns the difference of channel means from their levels at the block's gain, in units of their noise.
    fn excess(&self, mean: &[f32], levels: &Levels, gain: f64) -> Vec<f64> {
        let gain = gain as f32;
        let (level, noise) = (&levels.level, &levels.noise);
        self.each(|c| f64::from((mean[c] - gain * level[c]) / noise[c]))
    }

    /// Returns a value for each channel; NaN for masked ones.
    fn each(&self, of: impl Fn(usize) -> f64) -> Vec<f64> {
        (0..self.channels).map(|c| if self.masked[c] { f64::NAN } else { of(c) }).collect()
    }

    /// Decides on blocks and cleans them; `self.now` is the block after them.
    fn finish(&mut self, mut blocks: Vec<Block>) -> Result<Vec<Vec<u8>>> {
        let count = blocks.len();
        blocks.extend(self.now.take());
        let mut windows: Vec<Option<Window>> = (0..count).map(|_| None).collect();
        let (own, all) = (&*self, blocks.as_slice());
        let mut none = vec![(); own.threads.count()];
        own.threads.for_each_chunk(&mut none, &mut windows, 1, |(), index, window| {
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
            let levels = after.map_or(&now.levels, |after| &after.levels);
            let cells = self.cells(&marked, now);
            self.clean(&mut bytes, (levels, &marked), &cells, decisions[index].as_ref());
            self.count(&cells, decisions[index].as_ref(), now.rows);
            self.row += now.rows as u64;
            // The decisions of the next call are unknown yet.
            let is_next_clean = decisions
                .get(index + 1)
                .is_some_and(|next| next.as_ref().is_none_or(|next| next.are_kept()));
            if self.steps.time && !is_next_clean {
                self.keep_donors(&bytes, decisions[index].as_ref());
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

    /// Removes interference from a block's rows, with the levels and the marked channels.
    fn clean(
        &mut self,
        bytes: &mut [u8],
        (levels, marked): (&Levels, &[bool]),
        cells: &[Vec<bool>],
        decisions: Option<&Decisions>,
    ) {
        if cells.is_empty() && decisions.is_none_or(Decisions::are_kept) {
            return;
        }
        let row_bytes = self.row_bytes();
        let cleaning = Cleaning {
            terms: levels.terms(marked),
            level: &levels.held,
            encoding: self.encoding,
            offsets: &self.offsets,
            decisions,
            cells,
            part_rows: Statistics::part_rows(bytes.len() / row_bytes),
            masked: &self.masked,
            donors: &self.donors,
            first_row: self.row,
        };
        self.threads.for_each_chunk(
            &mut self.scratch,
            bytes,
            ROWS * row_bytes,
            |scratch, index, rows| {
                for (time, row) in rows.chunks_exact_mut(row_bytes).enumerate() {
                    cleaning.row(index * ROWS + time, row, scratch);
                }
            },
        );
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
    now.series.as_ref().map(|series| (of(before), series, of(after)))
}

/// Marks channels whose statistic is far too high or far too low; `threads` process lags in parallel.
fn both_sides(
    statistic: &[f64],
    radius: usize,
    least: f64,
    threads: Option<&Threads>,
) -> Vec<bool> {
    // Values near the median have no outlying difference.
    let mut finite: Vec<f64> = statistic.iter().copied().filter(|x| x.is_finite()).collect();
    let largest =
        finite.iter().copied().fold((0.0f64, 0.0f64), |(low, high), x| (low.min(x), high.max(x)));
    match median_and_sigma(&mut finite) {
        Some((middle, sigma))
            if (largest.1 - middle).max(middle - largest.0) < FAR * sigma.max(least) =>
        {
            return vec![false; statistic.len()];
        }
        _ => {}
    }
    let mut votes: Vec<(isize, Votes)> = lags(radius).map(|lag| (lag, Votes::default())).collect();
    let vote = |(lag, votes): &mut (isize, Votes)| {
        *votes = Votes::at(statistic, *lag, THRESHOLD, least);
    };
    match threads {
        Some(threads) if statistic.len() >= MANY_CHANNELS => {
            let mut none = vec![(); threads.count()];
            threads.for_each_chunk(&mut none, &mut votes, 1, |(), _, own| vote(&mut own[0]));
        }
        _ => votes.iter_mut().for_each(vote),
    }
    let high = marked(statistic.len(), votes.iter().map(|(_, own)| own.high.as_slice()));
    let low = marked(statistic.len(), votes.iter().map(|(_, own)| own.low.as_slice()));
    high.into_iter().zip(low).map(|(a, b)| a || b).collect()
}

/// Treatment of the rows of a block.
struct Cleaning<'a> {
    terms: Terms,
    level: &'a [f32],
    encoding: Encoding,
    offsets: &'a [f32],
    decisions: Option<&'a Decisions>,
    cells: &'a [Vec<bool>],
    part_rows: usize,
    masked: &'a [bool],
    donors: &'a [u8],
    first_row: u64,
}

impl Cleaning<'_> {
    fn row(&self, time: usize, row: &mut [u8], (values, taken): &mut (Vec<f32>, Vec<f32>)) {
        let absolute = self.first_row + time as u64;
        let cells = self.cells.get(time / self.part_rows).or(self.cells.last());
        let fate = self.decisions.map_or(Fate::Kept, |decisions| decisions.fates[time]);
        let reference =
            self.decisions.and_then(|own| own.reference).filter(|(_, from)| time >= *from);
        let level = self.decisions.map(|decisions| decisions.levels[time]);
        // Amplitudes of a spectrum without interference.
        let target = reference.map(|(reference, _)| reference).or(level).unwrap_or([1.0, 0.0]);
        if fate == Fate::Lost && !self.donors.is_empty() {
            self.replace(row, absolute);
        } else if fate == Fate::Lost {
            self.fill(row, |c| !self.masked[c], target);
        } else if fate == Fate::Fitted || reference.is_some() {
            let values = &mut values[..self.level.len()];
            unpack_f32(row, self.encoding, values);
            if fate == Fate::Fitted && self.is_clipped(values) && !self.donors.is_empty() {
                self.replace(row, absolute);
            } else {
                let level = level.unwrap_or(target);
                let own = if fate == Fate::Fitted { self.terms.fit(values) } else { level };
                let is_scaled = self.decisions.is_some_and(|decisions| decisions.is_scaled);
                let scale = if is_scaled { target[0] / level[0] } else { 1.0 };
                self.bring(row, (values, taken), (own, target, scale), absolute);
            }
        }
        if let Some(cells) = cells.filter(|cells| cells.iter().any(|bad| *bad)) {
            self.fill(row, |c| cells[c], target);
        }
    }

    /// Replaces a row without signal by another row.
    fn replace(&self, row: &mut [u8], absolute: u64) {
        let count = self.donors.len() / row.len();
        let donor = (scattered(absolute) % count as u64) as usize;
        row.copy_from_slice(&self.donors[donor * row.len()..][..row.len()]);
    }

    /// Returns whether interference has clipped a spectrum.
    fn is_clipped(&self, values: &[f32]) -> bool {
        let Some((_, high)) = self.encoding.range() else { return false };
        let clipped = values.iter().filter(|x| **x >= high as f32).count();
        clipped as f64 > CLIPPED * values.len() as f64
    }

    /// Sets the amplitudes of both terms to a target and scales the remainder. Integers are rounded with offsets that
    /// spread over the channels.
    fn bring(
        &self,
        row: &mut [u8],
        (values, residual): (&mut [f32], &mut [f32]),
        (own, target, scale): ([f32; 2], [f32; 2], f32),
        absolute: u64,
    ) {
        residual.copy_from_slice(values);
        for (term, (own, target)) in
            [&self.terms.first, &self.terms.second].into_iter().zip(own.into_iter().zip(target))
        {
            for ((x, rest), term) in values.iter_mut().zip(&mut *residual).zip(term) {
                *rest -= own * term;
                *x -= (own - target) * term;
            }
        }
        let shift = (absolute as f64 * 0.754_877_666_246_693).fract() as f32;
        for ((x, rest), offset) in values.iter_mut().zip(residual).zip(self.offsets) {
            *x += (scale - 1.0) * *rest;
            if self.encoding.range().is_some() {
                *x = (*x + (offset + shift).fract()).floor();
            }
        }
        for (channel, x) in values.iter().enumerate() {
            if self.terms.first[channel] != 0.0 {
                set_value(row, self.encoding, channel, f64::from(*x));
            }
        }
    }

    /// Sets channels to their level.
    fn fill(&self, row: &mut [u8], is_filled: impl Fn(usize) -> bool, target: [f32; 2]) {
        let scale = if self.terms.has_levels { target[0] } else { 1.0 };
        let range = self.encoding.range();
        for channel in 0..self.level.len() {
            if is_filled(channel) {
                let level = scale * self.level[channel];
                let whole = |(low, high): (i32, i32)| {
                    (level + self.offsets[channel]).floor().clamp(low as f32, high as f32)
                };
                set_value(row, self.encoding, channel, f64::from(range.map_or(level, whole)));
            }
        }
    }
}

/// Returns a pseudorandom number for a row (splitmix64).
fn scattered(row: u64) -> u64 {
    let mut x = row.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
