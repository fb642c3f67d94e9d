//! Statistics of blocks of rows, the running level and noise of each channel, and the terms that interference is fitted with,
//! with vectorized kernels over rows of channels.
//!
//! Invariant: a profile depends on the blocks' statistics alone; a change of the gain changes no profile. Sums run in the rows'
//! order and have the same lanes at each vector level, so that threads and levels give the same bits.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::backend::simd::{Level, leveled};
use crate::sample::{Samples, unpack_f32_inline};

/// Parts of a block: a signal in less than half of them does not move their median.
pub(super) const PARTS: usize = 8;

/// One part of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Rows used for the statistics.
    pub(super) counted: usize,
    /// Mean of each channel.
    pub(super) mean: Vec<f32>,
    pub(super) deviation: Vec<f32>,
}

/// Parts of a block, and the median over them of each channel's mean and deviation.
#[derive(Clone, Debug)]
pub(super) struct Statistics {
    pub(super) parts: Vec<Part>,
    pub(super) mean: Vec<f32>,
    pub(super) deviation: Vec<f32>,
    /// Rows used for the statistics.
    pub(super) counted: usize,
}

impl Statistics {
    /// Computes the medians over a block's parts.
    pub(super) fn new(parts: Vec<Part>, level: Level) -> Self {
        let mut own = Self { parts, mean: Vec::new(), deviation: Vec::new(), counted: 0 };
        own.take_parts(level, |_| true);
        own
    }

    /// Computes the block's statistics from the selected parts.
    pub(super) fn take_parts(&mut self, level: Level, is_taken: impl Fn(usize) -> bool) {
        let all = self.parts.iter().enumerate();
        let parts: Vec<&Part> =
            all.filter(|(index, _)| is_taken(*index)).map(|(_, part)| part).collect();
        let middle = |of: fn(&Part) -> &Vec<f32>| {
            let rows: Vec<&[f32]> = parts.iter().map(|part| of(part).as_slice()).collect();
            let mut middle = vec![0.0; rows.first().map_or(0, |row| row.len())];
            medians(level, &rows, &mut middle);
            middle
        };
        (self.mean, self.deviation) = (middle(|part| &part.mean), middle(|part| &part.deviation));
        self.counted = parts.iter().map(|part| part.counted).sum();
    }

    /// Returns the standard error of the logarithm of a channel's deviation in white noise.
    pub(super) fn white(&self) -> f64 {
        (1.0 / (2.0 * self.counted as f64)).sqrt()
    }

    /// Returns the rows of each part of a block; the last part may have fewer.
    pub(super) fn part_rows(rows: usize) -> usize {
        rows.div_ceil(PARTS).max(1)
    }
}

impl Part {
    /// Computes the statistics of rows about each channel's `origin`; `row` is scratch.
    pub(super) fn of(samples: Samples<'_>, origin: &[f32], level: Level, row: &mut [f32]) -> Self {
        let channels = samples.channels();
        let (mut mean, mut deviation) = (vec![0.0f32; channels], vec![0.0f32; channels]);
        add_rows(level, samples, origin, row, &mut mean, &mut deviation);
        let counted = samples.times().div_ceil(SPACING).max(1);
        let count = counted as f32;
        for ((mean, deviation), origin) in mean.iter_mut().zip(&mut deviation).zip(origin) {
            let offset = *mean / count;
            *deviation = (*deviation / count - offset * offset).max(0.0).sqrt();
            *mean = offset + origin;
        }
        Self { counted, mean, deviation }
    }
}

/// Returns the median and reorders the values: the mean of the middle two if even, 0 for none.
pub(super) fn median(values: &mut [f32]) -> f32 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    let (_, upper, _) = values.select_nth_unstable_by(middle, f32::total_cmp);
    let upper = *upper;
    if values.len() % 2 == 1 {
        return upper;
    }
    let lower = values[..middle].iter().copied().max_by(f32::total_cmp).unwrap_or(upper);
    0.5 * (lower + upper)
}

/// Blocks in the running median.
const BLOCKS: usize = 16;

/// Blocks for which a marked channel holds its level; a longer change becomes its level.
const HELD_BLOCKS: u16 = 256;

/// Largest change per block of a marked channel's held level, as a fraction of its noise: a step would look like a
/// signal.
const PACE: f32 = 0.02;

/// Lowest gain at which a block updates the profile.
pub(super) const MIN_GAIN: f64 = 0.3;

/// Fraction (as power) of the noise profile orthogonal to the level below which a second term is not worth fitting.
const ALIKE: f64 = 0.0025;

/// Channel groups over which a broadband signal must be visible.
pub(super) const BANDS: usize = 16;

/// Running profile of the band.
#[derive(Debug)]
pub(super) struct Profile {
    vectors: Level,
    levels: Arc<Levels>,
    /// Means and deviations of the latest blocks, normalized to a gain of 1.
    means: VecDeque<Vec<f32>>,
    deviations: VecDeque<Vec<f32>>,
    /// Consecutive blocks in which a channel was marked.
    passed: Vec<u16>,
}

/// Level and noise of each channel between two blocks, normalized to a gain of 1.
#[derive(Debug)]
pub(super) struct Levels {
    /// Channels excluded throughout.
    masked: Arc<[bool]>,
    pub(super) level: Vec<f32>,
    pub(super) noise: Vec<f32>,
    /// Level that a channel holds while it is marked; follows `level` slowly.
    pub(super) held: Vec<f32>,
    /// Whether levels exceed the noise; those of series about 0 do not, and have no gain.
    pub(super) has_levels: bool,
}

impl Profile {
    pub(super) fn new(masked: &[bool], vectors: Level) -> Self {
        let zero = vec![0.0; masked.len()];
        let levels = Levels::new(masked.into(), [zero.clone(), zero.clone(), zero]);
        Self {
            vectors,
            levels: Arc::new(levels),
            means: VecDeque::new(),
            deviations: VecDeque::new(),
            passed: vec![0; masked.len()],
        }
    }

    /// Returns the level and noise of the blocks so far.
    pub(super) fn levels(&self) -> Arc<Levels> {
        Arc::clone(&self.levels)
    }

    /// Adds a block of a known gain, in which some channels are marked.
    pub(super) fn push(&mut self, block: &Statistics, gain: f64, marked: &[bool]) {
        if !has_signal(gain) {
            return;
        }
        let scale = (1.0 / gain) as f32;
        let is_first = self.means.is_empty();
        for (passed, marked) in self.passed.iter_mut().zip(marked) {
            *passed = if *marked { (*passed + 1).min(HELD_BLOCKS) } else { 0 };
        }
        let taken = |own: &[f32], kept: &[f32], ring: &mut VecDeque<Vec<f32>>| {
            let is_kept = |c: usize| marked[c] && !is_first && self.passed[c] < HELD_BLOCKS;
            let mut values = if ring.len() == BLOCKS {
                ring.pop_front().unwrap_or_default()
            } else {
                Vec::new()
            };
            values.clear();
            values
                .extend((0..own.len()).map(|c| if is_kept(c) { kept[c] } else { own[c] * scale }));
            ring.push_back(values);
        };
        taken(&block.mean, &self.levels.level, &mut self.means);
        taken(&block.deviation, &self.levels.noise, &mut self.deviations);
        let middle = |ring: &VecDeque<Vec<f32>>| {
            let mut middle = vec![0.0; marked.len()];
            let blocks: Vec<&[f32]> = ring.iter().map(Vec::as_slice).collect();
            medians(self.vectors, &blocks, &mut middle);
            middle
        };
        let (level, noise) = (middle(&self.means), middle(&self.deviations));
        let mut held = self.levels.held.clone();
        for (channel, (held, marked)) in held.iter_mut().zip(marked).enumerate() {
            let most = if *marked { PACE * noise[channel] } else { f32::INFINITY };
            *held += (level[channel] - *held).clamp(-most, most);
        }
        let masked = Arc::clone(&self.levels.masked);
        self.levels = Arc::new(Levels::new(masked, [level, noise, held]));
    }
}

/// Returns whether a block of this gain has enough signal to update the profile; a dropout has not.
pub(super) fn has_signal(gain: f64) -> bool {
    gain >= MIN_GAIN
}

impl Levels {
    fn new(masked: Arc<[bool]>, [level, noise, held]: [Vec<f32>; 3]) -> Self {
        let power = |values: &[f32]| {
            let good = values.iter().zip(&*masked).filter(|(_, masked)| !**masked);
            good.map(|(x, _)| f64::from(*x) * f64::from(*x)).sum::<f64>()
        };
        let has_levels = power(&level) > power(&noise);
        Self { masked, level, noise, held, has_levels }
    }

    /// Returns whether a channel's held level is still far from its level.
    pub(super) fn is_moving(&self, channel: usize) -> bool {
        (self.level[channel] - self.held[channel]).abs() > PACE * self.noise[channel]
    }

    /// Returns whether a block or part with this mean can update the profile; see [`has_signal`].
    pub(super) fn has_signal_in(&self, mean: &[f32]) -> bool {
        if !self.has_levels {
            return true;
        }
        let least = MIN_GAIN as f32;
        let (mut all, mut high) = (0u32, 0u32);
        for (channel, mean) in mean.iter().enumerate() {
            let (level, noise) = (self.level[channel], self.noise[channel]);
            let is_good = !self.masked[channel] && level > noise;
            all += u32::from(is_good);
            high += u32::from(is_good && mean / level >= least);
        }
        // With half of the values on either side, the median must be computed.
        match (2 * high).cmp(&all) {
            _ if all == 0 => true,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => has_signal(self.gain(mean)),
        }
    }

    /// Returns the gain of a block relative to the profile: the median over channels of the ratio of means.
    pub(super) fn gain(&self, mean: &[f32]) -> f64 {
        if !self.has_levels {
            return 1.0;
        }
        let good = (0..mean.len()).filter(|c| !self.masked[*c] && self.level[*c] > self.noise[*c]);
        let mut ratios: Vec<f32> = good.map(|c| mean[c] / self.level[c]).collect();
        if ratios.is_empty() { 1.0 } else { f64::from(median(&mut ratios)) }
    }

    /// Computes the terms that broadband interference is fitted with, over the unmarked channels.
    pub(super) fn terms(&self, marked: &[bool]) -> Terms {
        let good: Vec<bool> = self.masked.iter().zip(marked).map(|(a, b)| !a & !b).collect();
        let only = |values: &[f32]| -> Vec<f32> {
            values.iter().zip(&good).map(|(x, good)| if *good { *x } else { 0.0 }).collect()
        };
        let (level, noise) = (only(&self.level), only(&self.noise));
        let has_levels = self.has_levels;
        let first = if has_levels { level } else { noise.clone() };
        let mut second = Vec::new();
        if has_levels {
            let part = (dot(&noise, &first) / dot(&first, &first)) as f32;
            second = noise.iter().zip(&first).map(|(x, first)| x - part * first).collect();
            if dot(&second, &second) < ALIKE * dot(&noise, &noise) {
                second.clear();
            }
        }
        let mut terms = Terms {
            powers: [dot(&first, &first), dot(&second, &second)],
            bands: [Band::default(); BANDS],
            weights: [0.0; BANDS],
            lanes: Vec::new(),
            has_levels,
            first,
            second,
        };
        let width = good.len().div_ceil(BANDS);
        for (index, band) in terms.bands.iter_mut().enumerate() {
            let end = good.len().min((index + 1) * width);
            band.range = (end.min(index * width), end);
            let (mut power, mut level, mut noise_power) = (0.0f64, 0.0f64, 0.0f64);
            let own = band.range.0..end;
            let channels = terms.first[own.clone()].iter().zip(&self.level[own.clone()]);
            for ((weight, own_level), noise) in channels.zip(&noise[own]) {
                let weight = f64::from(*weight);
                power += weight * weight;
                level += weight * f64::from(*own_level);
                noise_power += (weight * f64::from(*noise)).powi(2);
            }
            let channels = (band.range.0..end).filter(|c| good[*c]).count();
            // A group with few remaining channels is not used.
            if power > 0.0 && 4 * channels >= width {
                band.scale = (1.0 / power) as f32;
                band.level = (level / power) as f32;
                band.sigma = (noise_power.sqrt() / power) as f32;
            }
            if band.sigma > 0.0 {
                terms.weights[index] = 1.0 / (band.sigma * band.sigma);
            }
            let mut lanes = terms.first[band.range.0..end].chunks(LANES);
            terms.lanes.extend((0..width.div_ceil(LANES)).map(|_| {
                let mut padded = [0.0; LANES];
                let own = lanes.next().unwrap_or_default();
                padded[..own.len()].copy_from_slice(own);
                padded
            }));
        }
        terms
    }
}

/// Group of channels.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Band {
    range: (usize, usize),
    /// Reciprocal power of the first term; 0 if the group has too few channels.
    pub(super) scale: f32,
    /// Amplitude of the level, and deviation of the noise's amplitude.
    pub(super) level: f32,
    pub(super) sigma: f32,
}

/// Profiles along which interference is subtracted: the level (for series about 0 the noise), and the part of the
/// noise profile orthogonal to it.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) first: Vec<f32>,
    /// Orthogonal to the first; empty if noise and level are alike.
    pub(super) second: Vec<f32>,
    powers: [f64; 2],
    pub(super) bands: [Band; BANDS],
    /// Reciprocal variance of each group's amplitude; 0 if unknown.
    weights: [f32; BANDS],
    /// First term in each group, padded with 0 to whole lanes.
    lanes: Vec<[f32; LANES]>,
    /// Whether the first term is the level.
    pub(super) has_levels: bool,
}

impl Terms {
    pub(super) fn is_empty(&self) -> bool {
        self.powers[0] <= 0.0
    }

    /// Computes the least-squares amplitudes of both terms in a spectrum.
    pub(super) fn fit(&self, row: &[f32]) -> [f32; 2] {
        let of = |term: &[f32], power: f64| {
            if power > 0.0 { (dot(row, term) / power) as f32 } else { 0.0 }
        };
        [of(&self.first, self.powers[0]), of(&self.second, self.powers[1])]
    }

    /// Fits both terms like [`Terms::fit`], but faster and less exactly, and the first term in each group of
    /// channels. The row has [`row_length`] values.
    #[inline(always)]
    pub(super) fn amplitudes(&self, row: &[f32]) -> Amplitudes {
        let mut groups = [0.0; BANDS];
        let mut total = 0.0f64;
        let lanes = self.lanes.chunks_exact(self.lanes.len() / BANDS);
        for ((amplitude, band), weights) in groups.iter_mut().zip(&self.bands).zip(lanes) {
            let sum = short_dot(row, band.range.0, weights);
            total += f64::from(sum);
            *amplitude = sum * band.scale;
        }
        let second =
            if self.second.is_empty() { 0.0 } else { dot(row, &self.second) / self.powers[1] };
        let terms = [(total / self.powers[0]) as f32, second as f32];
        Amplitudes { terms, groups, scatter: self.scatter(&groups) }
    }

    /// Computes the scatter of the groups about their weighted mean change relative to noise, as power.
    #[inline(always)]
    fn scatter(&self, groups: &[f32; BANDS]) -> f32 {
        let (mut changes, mut weighted, mut known) = ([0.0; BANDS], [0.0; BANDS], [0.0; BANDS]);
        for (index, band) in self.bands.iter().enumerate() {
            changes[index] = groups[index] - band.level;
            weighted[index] = self.weights[index] * changes[index];
            known[index] = if self.weights[index] > 0.0 { 1.0 } else { 0.0 };
        }
        let count = lanes_sum(known);
        if count < 2.0 {
            return 1.0;
        }
        let mean = lanes_sum(weighted) / lanes_sum(self.weights);
        let mut squares = [0.0; BANDS];
        for (index, square) in squares.iter_mut().enumerate() {
            let distance = changes[index] - mean;
            *square = self.weights[index] * distance * distance;
        }
        lanes_sum(squares) / (count - 1.0)
    }
}

/// Lanes of a sum.
const LANES: usize = 16;

/// Row spacing in sums: every fourth row counts.
const SPACING: usize = 4;

/// Largest number of rows of [`medians`].
pub(super) const MAX_ROWS: usize = 16;

/// Amplitudes of a spectrum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amplitudes {
    /// Least-squares amplitudes of both terms.
    pub(super) terms: [f32; 2],
    /// Amplitude of the first term in each group of channels.
    pub(super) groups: [f32; BANDS],
    /// Scatter of the groups' amplitudes relative to noise, as power.
    pub(super) scatter: f32,
}

/// Returns the length of a row including the padding that group sums read beyond its end.
pub(super) fn row_length(channels: usize) -> usize {
    channels + channels.div_ceil(BANDS) + LANES
}

leveled!(
    /// Adds every fourth row to the sums and sums of squares of each channel's difference from its origin.
    add_rows,
    add_rows_inline,
    (samples: Samples<'_>, origin: &[f32], row: &mut [f32], sums: &mut [f32], squares: &mut [f32])
);

leveled!(
    /// Computes the amplitudes of the rows from `start` on; `row` has [`row_length`] values.
    amplitudes,
    amplitudes_inline,
    (samples: Samples<'_>, start: usize, terms: &Terms, row: &mut [f32], output: &mut [Amplitudes])
);

leveled!(
    /// Computes the median of each column of up to [`MAX_ROWS`] rows; the mean of the middle two if even.
    medians,
    medians_inline,
    (rows: &[&[f32]], output: &mut [f32])
);

leveled!(
    /// Computes the medians of consecutive groups of 16 values; the last group may have fewer.
    grouped_medians,
    grouped_medians_inline,
    (values: &[f32], output: &mut [f32])
);

#[inline(always)]
fn add_rows_inline(
    samples: Samples<'_>,
    origin: &[f32],
    row: &mut [f32],
    sums: &mut [f32],
    squares: &mut [f32],
) {
    for time in (0..samples.times()).step_by(SPACING) {
        let row = &mut row[..samples.channels()];
        unpack_f32_inline(samples.row(time), samples.encoding(), row);
        let both = sums.iter_mut().zip(&mut *squares);
        for ((x, origin), (sum, square)) in row.iter().zip(origin).zip(both) {
            let x = x - origin;
            *sum += x;
            *square += x * x;
        }
    }
}

#[inline(always)]
fn amplitudes_inline(
    samples: Samples<'_>,
    start: usize,
    terms: &Terms,
    row: &mut [f32],
    output: &mut [Amplitudes],
) {
    for (time, output) in output.iter_mut().enumerate() {
        let channels = samples.channels();
        unpack_f32_inline(samples.row(start + time), samples.encoding(), &mut row[..channels]);
        *output = terms.amplitudes(row);
    }
}

#[inline(always)]
fn medians_inline(rows: &[&[f32]], output: &mut [f32]) {
    for (index, output) in output.chunks_mut(LANES).enumerate() {
        let start = index * LANES;
        let mut columns = [[0.0; LANES]; MAX_ROWS];
        for (values, row) in columns.iter_mut().zip(rows) {
            values[..output.len()].copy_from_slice(&row[start..start + output.len()]);
        }
        let middle = middle(&mut columns[..rows.len().min(MAX_ROWS)]);
        output.copy_from_slice(&middle[..output.len()]);
    }
}

#[inline(always)]
fn grouped_medians_inline(values: &[f32], output: &mut [f32]) {
    for (values, output) in values.chunks(MAX_ROWS * LANES).zip(output.chunks_mut(LANES)) {
        let whole = values.len() / MAX_ROWS;
        let mut columns = [[0.0; LANES]; MAX_ROWS];
        for (lane, group) in values.chunks_exact(MAX_ROWS).enumerate() {
            columns.iter_mut().zip(group).for_each(|(values, x)| values[lane] = *x);
        }
        let rest = values.len() - whole * MAX_ROWS;
        output[..whole].copy_from_slice(&middle(&mut columns)[..whole]);
        if rest > 0 {
            let mut column = [[0.0; 1]; MAX_ROWS];
            column.iter_mut().zip(&values[whole * MAX_ROWS..]).for_each(|(to, x)| *to = [*x]);
            output[whole] = middle(&mut column[..rest])[0];
        }
    }
}

/// Sorts each lane and returns the median.
#[inline(always)]
fn middle<const N: usize>(columns: &mut [[f32; N]]) -> [f32; N] {
    let count = columns.len();
    for last in 1..count {
        for place in (0..last).rev() {
            let (low, high) = (columns[place], columns[place + 1]);
            for lane in 0..N {
                let swap = high[lane] < low[lane];
                columns[place][lane] = if swap { high[lane] } else { low[lane] };
                columns[place + 1][lane] = if swap { low[lane] } else { high[lane] };
            }
        }
    }
    if count == 0 {
        return [0.0; N];
    }
    let (lower, upper) = (columns[(count - 1) / 2], columns[count / 2]);
    if count % 2 == 1 {
        return upper;
    }
    std::array::from_fn(|lane| 0.5 * (lower[lane] + upper[lane]))
}

/// Computes a dot product in double precision.
#[inline(always)]
fn dot(row: &[f32], weights: &[f32]) -> f64 {
    let mut sums = [0.0f64; LANES];
    let (rows, row_rest) = row.as_chunks::<LANES>();
    let (whole, weights_rest) = weights.as_chunks::<LANES>();
    for (row, weights) in rows.iter().zip(whole) {
        sums = std::array::from_fn(|lane| {
            sums[lane] + f64::from(row[lane]) * f64::from(weights[lane])
        });
    }
    let rest = row_rest.iter().zip(weights_rest);
    let rest: f64 = rest.map(|(x, weight)| f64::from(*x) * f64::from(*weight)).sum();
    let eight: [f64; 8] = std::array::from_fn(|lane| sums[lane] + sums[lane + 8]);
    let four: [f64; 4] = std::array::from_fn(|lane| eight[lane] + eight[lane + 4]);
    (four[0] + four[2]) + (four[1] + four[3]) + rest
}

/// Computes a dot product in single precision from the row's `start` on; the weights fill whole lanes.
#[inline(always)]
fn short_dot(row: &[f32], start: usize, weights: &[[f32; LANES]]) -> f32 {
    let (row, _) = row[start..].as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for (row, weights) in row.iter().zip(weights) {
        sums = std::array::from_fn(|lane| sums[lane] + row[lane] * weights[lane]);
    }
    lanes_sum(sums)
}

/// Sums the lanes pairwise.
#[inline(always)]
fn lanes_sum(lanes: [f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|lane| lanes[lane] + lanes[lane + 8]);
    let four: [f32; 4] = std::array::from_fn(|lane| eight[lane] + eight[lane + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::simd::Level;

    #[test]
    fn a_level_that_was_wrong_is_left_slowly() {
        let channels = 8;
        let block = |mean: f32| Statistics {
            parts: Vec::new(),
            mean: (0..channels).map(|c| if c == 3 { mean } else { 80.0 }).collect(),
            deviation: vec![10.0; channels],
            counted: 512,
        };
        let is_marked = |bad: bool| (0..channels).map(|c| c == 3 && bad).collect::<Vec<bool>>();
        let mut profile = Profile::new(&vec![false; channels], Level::best());
        (0..BLOCKS).for_each(|_| profile.push(&block(110.0), 1.0, &is_marked(false)));
        assert_eq!((profile.levels().level[3], profile.levels().held[3]), (110.0, 110.0));
        let mut marked = 0;
        loop {
            let before = profile.levels();
            profile.push(&block(80.0), 1.0, &is_marked(true));
            let levels = profile.levels();
            marked += 1;
            let change = (levels.held[3] - before.held[3]).abs();
            assert!(change <= 1.001 * PACE * 10.0, "{change} in block {marked}");
            if levels.level[3] == 80.0 && !levels.is_moving(3) {
                break;
            }
        }
        // 30 counts in steps of a fiftieth of the noise.
        let least = usize::from(HELD_BLOCKS) + (30.0 / (PACE * 10.0)) as usize;
        assert!((least - 2..least + 2 * BLOCKS).contains(&marked), "{marked}");
        assert!(!profile.levels().is_moving(0) && profile.levels().held[0] == 80.0);
    }

    fn values(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919 + 13) % 1009) as f32 - 500.0).collect()
    }

    #[test]
    fn medians_of_columns_are_those_of_sorted_columns() {
        let values = values(MAX_ROWS * 37);
        let all: Vec<&[f32]> = values.chunks(37).collect();
        for level in Level::available() {
            for count in 1..=MAX_ROWS {
                let mut output = [0.0; 37];
                medians(level, &all[..count], &mut output);
                for (channel, output) in output.iter().enumerate() {
                    let mut column: Vec<f32> =
                        all[..count].iter().map(|row| row[channel]).collect();
                    assert_eq!(*output, median(&mut column), "{count} {channel}");
                }
            }
        }
    }

    #[test]
    fn medians_of_groups_are_those_of_sorted_groups() {
        for level in Level::available() {
            for count in [0, 1, 15, 16, 17, 256, 300, 513] {
                let values = values(count);
                let mut output = vec![0.0; count.div_ceil(MAX_ROWS)];
                grouped_medians(level, &values, &mut output);
                let truth: Vec<f32> =
                    values.chunks(MAX_ROWS).map(|group| median(&mut group.to_vec())).collect();
                assert_eq!(output, truth, "{count}");
            }
        }
    }
}
