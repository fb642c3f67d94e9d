//! Interference in a stream of rows: found by the statistics of blocks, and taken away where it is.
//!
//! Invariant: blocks begin at multiples of their length, so that how rows are read changes nothing; what is decided of a
//! block depends on the blocks before it, on it and on the next one; rows without interference stay as they are.

mod broadband;
mod iqrm;
mod profile;
mod statistics;

use crate::backend::threads::Threads;
use crate::backend::{Backend, Host};
use crate::error::Result;
use crate::math::statistics::median_and_sigma;
use crate::sample::{Encoding, Samples, set_value, unpack_f32};
use broadband::{Decisions, Fate, Memory, Series, Wanted};
pub use iqrm::iqrm_mask;
use profile::{BANDS, Profile, Terms};
use statistics::{PARTS, Statistics};

/// Length of a block in seconds, about, and the fewest and most rows.
const BLOCK_S: f64 = 0.5;
const LEAST_ROWS: usize = 512;
const MOST_ROWS: usize = 1 << 14;

/// The most bytes of a block, unless that is fewer rows than 64.
const BLOCK_BYTES: usize = 8 << 20;

/// The fewest channels among which one can stand out, and in which a broadband signal can be told from a dispersed one.
const LEAST_CHANNELS: usize = 64;

/// The part of the band up to which channels are compared, in blocks, and the number of channels in parts of blocks.
const RADIUS: f64 = 0.1;
const NEAR_RADIUS: usize = 4;

/// Deviations beyond which a channel stands out.
const THRESHOLD: f64 = 6.0;

/// Deviations that some channel must be off for any two to differ by [`THRESHOLD`].
const FAR: f64 = 4.0;

/// The smallest change of a channel's deviation that counts, as a part of it.
const LEAST_CHANGE: f64 = 0.02;

/// The part of a spectrum's samples that may be the largest that its encoding has; with more, its broadband part can't be told.
const CLIPPED: f64 = 0.01;

/// Rows that a thread takes at once.
const ROWS: usize = 64;

/// Rows that are kept to stand in for lost ones.
const DONORS: usize = 512;

/// Treatment of signals over the whole band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bandpass {
    /// They stay.
    #[default]
    Off,
    /// They are taken away from the spectra in which they stand out.
    Outliers,
    /// They are taken away from every spectrum.
    Always,
}

/// Steps of mitigation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Channels that stand out in a block.
    pub iqrm: bool,
    /// Signals over the whole band.
    pub bandpass: Bandpass,
    /// Dropouts, and steps of the gain.
    pub time: bool,
}

/// Statistics of mitigation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mitigated {
    /// Steps that were applied.
    pub steps: Steps,
    /// Rows; their samples are counted in channels that are not left out throughout.
    pub rows: u64,
    /// Samples of those rows.
    pub cells: u64,
    /// Samples in channels that stood out.
    pub masked_cells: u64,
    /// Spectra whose broadband part was taken away.
    pub broadband_rows: u64,
    /// Runs of such spectra.
    pub broadband_runs: u64,
    /// Spectra of dropouts.
    pub lost_rows: u64,
    /// Runs of such spectra.
    pub lost_runs: u64,
    /// Spectra whose level was followed.
    pub followed_rows: u64,
    /// The largest change of the level that was followed, as a part of it.
    pub largest_change: f64,
}

/// Finds interference in a stream, block by block, and takes it away.
///
/// | buffer | axes          | type                   | unit   | access               |
/// |--------|---------------|------------------------|--------|----------------------|
/// | block  | time, channel | the recording's        | counts | read and overwritten |
///
/// - **IQRM**: channels whose deviation or mean stands out in a block ([`iqrm_mask`]) hold their level there and in the
///   blocks beside it.
/// - **Bandpass**: `x - m (a - A)`, `a = (x . m) / (m . m)`, m the channels' levels (running medians over 16 blocks), A the
///   level of `a`: from spectra in which `a` stands out and does so over the whole band. Where the noise's profile is not
///   alike, its part at right angles to m is fitted as well.
/// - **Time**: spectra of dropouts become spectra near them in random order, which have noise and no pulse; after a step of
///   the gain `m (L - A)` is taken away, L the running median of `a` over a block's length.
///
/// # Numerics
/// Sums in a fixed order on the host: the same bits for every backend, vector level and number of threads. Integers are
/// rounded with offsets that spread over the channels, so that no part of a count stays in all of them.
#[derive(Debug)]
pub struct Mitigator {
    channels: usize,
    encoding: Encoding,
    steps: Steps,
    block_rows: usize,
    masked: Vec<bool>,
    threads: Threads,
    origin: Vec<f32>,
    profile: Profile,
    /// Blocks that the profile was begun with: it takes none of them again.
    begun_with: usize,
    memory: Memory,
    before: Option<Looked>,
    now: Option<Looked>,
    blocks: u64,
    row: u64,
    donors: Vec<u8>,
    mitigated: Mitigated,
    /// Treatment of the last row.
    last: Fate,
    /// Fractions by which channels are rounded.
    offsets: Vec<f32>,
}

/// A block that was looked at.
#[derive(Debug)]
struct Looked {
    bytes: Vec<u8>,
    /// Channels that stand out in the block, and in each of its parts.
    marked: Vec<bool>,
    parts: Vec<Vec<bool>>,
    part_rows: usize,
    series: Option<Series>,
}

impl Mitigator {
    /// For rows of some encoding, `masked` channels of which are left out throughout; `first` are the rows that the stream
    /// begins with, from which the first levels are taken.
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
        let threads = match backend.host() {
            Host::Cpu(_, threads) => threads,
            Host::Reference => Threads::new(1),
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
            threads,
            origin: vec![0.0; channels],
            profile: Profile::new(masked.to_vec()),
            begun_with: 0,
            memory: Memory::default(),
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
        for block in first.chunks(block_rows * row_bytes) {
            if block.len() == block_rows * row_bytes || own.begun_with == 0 {
                let statistics = own.statistics(block)?;
                own.profile.push(&statistics, &vec![false; channels]);
                own.begun_with += 1;
            }
        }
        Ok(own)
    }

    fn rows_of_block(tsamp_s: f64, row_bytes: usize) -> usize {
        let wanted = (BLOCK_S / tsamp_s).clamp(1.0, 1e9) as usize;
        let rows = wanted.next_power_of_two().clamp(LEAST_ROWS, MOST_ROWS);
        let most = (BLOCK_BYTES / row_bytes.max(1)).max(1).next_power_of_two() / 2;
        rows.min(most).max(LEAST_ROWS / 8)
    }

    /// Returns whether anything is looked for: in few channels, or samples of 1 and 2 bits, little or nothing is.
    pub fn is_idle(&self) -> bool {
        !self.steps.iqrm && !self.steps.time && self.steps.bandpass == Bandpass::Off
    }

    /// The steps that are taken.
    pub fn steps(&self) -> Steps {
        self.steps
    }

    /// Rows of a block; the last of a stream may have fewer.
    pub fn block_rows(&self) -> usize {
        self.block_rows
    }

    /// Bytes that are held, with those of the rows' reader.
    pub fn held_bytes(&self) -> usize {
        let row = self.channels * self.encoding.bits() / 8;
        4 * self.block_rows * row + 3 * self.block_rows * 4 * (BANDS + 8) + 300 * self.channels
    }

    /// Returns the statistics of the blocks returned so far.
    pub fn mitigated(&self) -> Mitigated {
        Mitigated { steps: self.steps, ..self.mitigated }
    }

    /// Takes the next block, and hands back the one before it.
    ///
    /// # Errors
    /// Errors of [`Samples::new`] for rows that are not whole.
    pub fn push(&mut self, bytes: Vec<u8>) -> Result<Option<Vec<u8>>> {
        let next = self.look(bytes)?;
        let done = self.finish_one(Some(&next))?;
        self.now = Some(next);
        Ok(done)
    }

    /// Hands back the last block.
    ///
    /// # Errors
    /// As [`Mitigator::push`].
    pub fn flush(&mut self) -> Result<Option<Vec<u8>>> {
        self.finish_one(None)
    }

    fn samples<'a>(&self, bytes: &'a [u8]) -> Result<Samples<'a>> {
        let row_bytes = self.channels * self.encoding.bits() / 8;
        Samples::new(bytes, self.encoding, bytes.len() / row_bytes.max(1), self.channels)
    }

    fn statistics(&self, bytes: &[u8]) -> Result<Statistics> {
        Ok(Statistics::of(self.samples(bytes)?, &self.origin, &self.threads))
    }

    /// Statistics and amplitudes of a block.
    fn look(&mut self, bytes: Vec<u8>) -> Result<Looked> {
        let mut statistics = self.statistics(&bytes)?;
        let is_told = |part: &statistics::Part| self.profile.is_told_by(&part.mean);
        let told = statistics.parts.iter().filter(|part| is_told(part)).count();
        if told > 0 {
            statistics.take_parts(is_told);
        }
        let (mut marked, mut parts) = (vec![false; self.channels], Vec::new());
        if self.steps.iqrm {
            marked = self.mark(&statistics);
            // A block that is mostly lost tells little of its channels.
            if let Some(before) = self.now.as_ref().filter(|_| 2 * told < statistics.parts.len()) {
                marked.iter_mut().zip(&before.marked).for_each(|(all, own)| *all |= own);
            }
            for (channel, marked) in marked.iter_mut().enumerate() {
                *marked |= self.profile.is_moving(channel);
            }
            parts = statistics.parts.iter().map(|part| self.mark_part(part)).collect();
        }
        self.blocks += 1;
        if self.blocks > self.begun_with as u64 {
            self.profile.push(&statistics, &marked);
        }
        let part_rows = statistics.parts.first().map_or(1, |part| part.rows);
        let terms = self.profile.terms(&marked);
        let is_needed = self.steps.time || self.steps.bandpass != Bandpass::Off;
        let series = (is_needed && !terms.is_empty()).then(|| self.series(&terms, &bytes));
        Ok(Looked { bytes, marked, parts, part_rows, series: series.transpose()? })
    }

    fn series(&self, terms: &Terms, bytes: &[u8]) -> Result<Series> {
        let samples = self.samples(bytes)?;
        let mut rows = vec![([0.0; 2], [0.0; BANDS]); samples.times()];
        let mut scratch = vec![vec![0.0; self.channels]; self.threads.count()];
        self.threads.for_each_chunk(&mut scratch, &mut rows, ROWS, |row, index, rows| {
            for (time, amplitudes) in rows.iter_mut().enumerate() {
                unpack_f32(samples.row(index * ROWS + time), samples.encoding(), row);
                *amplitudes = terms.amplitudes(row);
            }
        });
        let mut series = Series::new(terms);
        series.extend(terms, &rows);
        Ok(series)
    }

    /// Channels that stand out in most of a block: by their deviation, or by the change of their mean.
    fn mark(&self, block: &Statistics) -> Vec<bool> {
        if !self.profile.is_told_by(&block.mean) {
            return vec![false; self.channels];
        }
        let radius = (RADIUS * self.channels as f64) as usize;
        let white = (1.0 / (2.0 * block.counted as f64)).sqrt();
        let loud: Vec<f64> = self.each(|c| f64::from(block.deviation[c]).ln());
        let mut marked = iqrm_mask(&loud, radius, THRESHOLD, LEAST_CHANGE.max(white));
        let excess = self.excess(&block.mean);
        for (marked, stands_out) in marked.iter_mut().zip(both_sides(&excess, radius, white)) {
            *marked |= stands_out;
        }
        marked
    }

    /// Channels whose mean stands out from those beside them in a part of a block.
    fn mark_part(&self, part: &statistics::Part) -> Vec<bool> {
        if !self.profile.is_told_by(&part.mean) {
            return vec![false; self.channels];
        }
        let white = (1.0 / part.counted as f64).sqrt();
        both_sides(&self.excess(&part.mean), NEAR_RADIUS, white)
    }

    /// The distance of channels' means from their levels at the block's gain, in units of their noise.
    fn excess(&self, mean: &[f32]) -> Vec<f64> {
        let gain = self.profile.gain(mean) as f32;
        let (level, noise) = (&self.profile.level, &self.profile.noise);
        self.each(|c| f64::from((mean[c] - gain * level[c]) / noise[c]))
    }

    /// A number of each channel; none of those that are left out.
    fn each(&self, of: impl Fn(usize) -> f64) -> Vec<f64> {
        (0..self.channels).map(|c| if self.masked[c] { f64::NAN } else { of(c) }).collect()
    }

    /// Decides on the block before `next`, and cleans it.
    fn finish_one(&mut self, next: Option<&Looked>) -> Result<Option<Vec<u8>>> {
        let Some(mut now) = self.now.take() else { return Ok(None) };
        let rows = self.samples(&now.bytes)?.times();
        let mut marked = now.marked.clone();
        for beside in self.before.iter().chain(next) {
            marked.iter_mut().zip(&beside.marked).for_each(|(all, own)| *all |= own);
        }
        let decisions = now.series.as_ref().map(|series| {
            let of = |looked: &'_ Looked| looked.series.is_some();
            let before =
                self.before.as_ref().filter(|own| of(own)).and_then(|own| own.series.as_ref());
            let after = next.filter(|own| of(own)).and_then(|own| own.series.as_ref());
            let wanted = Wanted {
                outliers: self.steps.bandpass == Bandpass::Outliers,
                always: self.steps.bandpass == Bandpass::Always,
                time: self.steps.time,
            };
            self.memory.decide((before, series, after), wanted)
        });
        let cells = self.cells(&marked, &now, rows);
        let mut bytes = std::mem::take(&mut now.bytes);
        self.clean(&mut bytes, &marked, &cells, decisions.as_ref());
        self.count(&cells, decisions.as_ref(), (rows, now.part_rows));
        self.row += rows as u64;
        self.before = Some(now);
        Ok(Some(bytes))
    }

    /// The channels that hold their level in each part of a block.
    fn cells(&self, marked: &[bool], now: &Looked, rows: usize) -> Vec<Vec<bool>> {
        let count = rows.div_ceil(now.part_rows).min(PARTS.max(1));
        let part = |index: usize| {
            let own = now.parts.get(index);
            let is_bad = |c: usize| !self.masked[c] && (marked[c] || own.is_some_and(|own| own[c]));
            (0..self.channels).map(is_bad).collect()
        };
        (0..count).map(part).collect()
    }

    /// Takes from a block's rows what is not theirs.
    fn clean(
        &mut self,
        bytes: &mut [u8],
        marked: &[bool],
        cells: &[Vec<bool>],
        decisions: Option<&Decisions>,
    ) {
        let row_bytes = self.channels * self.encoding.bits() / 8;
        let rows = bytes.len() / row_bytes;
        let part_rows = rows.div_ceil(PARTS).max(1);
        let has_cells = cells.iter().any(|part| part.iter().any(|bad| *bad));
        let is_changed = decisions.is_some_and(|decisions| {
            decisions.reference.is_some() || decisions.fates.iter().any(|fate| *fate != Fate::Kept)
        });
        if has_cells || is_changed {
            let cleaning = Cleaning {
                terms: self.profile.terms(marked),
                level: &self.profile.held,
                encoding: self.encoding,
                offsets: &self.offsets,
                decisions,
                cells,
                part_rows,
                masked: &self.masked,
                donors: &self.donors,
                first_row: self.row,
            };
            let mut scratch =
                vec![(vec![0.0; self.channels], vec![0.0; self.channels]); self.threads.count()];
            self.threads.for_each_chunk(
                &mut scratch,
                bytes,
                ROWS * row_bytes,
                |scratch, index, rows| {
                    for (time, row) in rows.chunks_exact_mut(row_bytes).enumerate() {
                        cleaning.row(index * ROWS + time, row, scratch);
                    }
                },
            );
        }
        if self.steps.time {
            self.keep_donors(bytes, row_bytes, decisions);
        }
    }

    /// Keeps rows that may stand in for lost ones of the next block.
    fn keep_donors(&mut self, bytes: &[u8], row_bytes: usize, decisions: Option<&Decisions>) {
        let Some(decisions) = decisions else { return };
        let always = self.steps.bandpass == Bandpass::Always;
        let is_good = |fate: &Fate| *fate == Fate::Kept || always && *fate == Fate::Fitted;
        let good: Vec<usize> =
            (0..decisions.fates.len()).filter(|t| is_good(&decisions.fates[*t])).collect();
        if good.len() < decisions.fates.len() / 2 {
            return;
        }
        self.donors.clear();
        for time in good.iter().step_by(good.len().div_ceil(DONORS)) {
            self.donors.extend_from_slice(&bytes[time * row_bytes..][..row_bytes]);
        }
    }

    fn count(
        &mut self,
        cells: &[Vec<bool>],
        decisions: Option<&Decisions>,
        (rows, part_rows): (usize, usize),
    ) {
        let own = &mut self.mitigated;
        let channels = self.masked.iter().filter(|masked| !**masked).count();
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

/// Channels of which a statistic is far too high or far too low.
fn both_sides(statistic: &[f64], radius: usize, least: f64) -> Vec<bool> {
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
    let low: Vec<f64> = statistic.iter().map(|x| -x).collect();
    let high = iqrm_mask(statistic, radius, THRESHOLD, least);
    high.into_iter().zip(iqrm_mask(&low, radius, THRESHOLD, least)).map(|(a, b)| a || b).collect()
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
        let cells = &self.cells[(time / self.part_rows).min(self.cells.len() - 1)];
        let has_cells = cells.iter().any(|bad| *bad);
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
        if has_cells {
            self.fill(row, |c| cells[c], target);
        }
    }

    /// Puts another row in the place of one that holds nothing.
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

    /// Brings the amplitudes of both terms to a target, and what is beside them to a scale; integers are rounded at
    /// fractions that spread over the channels.
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

    /// Gives channels their level.
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

/// A number without order, of a row's.
fn scattered(row: u64) -> u64 {
    let mut x = row.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
