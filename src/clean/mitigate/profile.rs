//! Level and noise of each channel over the latest blocks, and what is taken from a spectrum along them.
//!
//! Invariant: a profile depends on the blocks' statistics alone; a change of the gain changes no profile.

use super::statistics::{Statistics, median};
use std::collections::VecDeque;

/// Blocks whose median is taken.
const BLOCKS: usize = 16;

/// Blocks that a marked channel keeps its level for; what lasts longer is its level.
const KEPT: u16 = 256;

/// The part of its noise by which a marked channel's held level changes in a block at most: a step would be a signal.
const PACE: f32 = 0.02;

/// The lowest gain at which a block tells of the profile.
pub(super) const LEAST_GAIN: f64 = 0.3;

/// The part of the noise's profile that may differ from the level's and is not worth a second term: its power.
const ALIKE: f64 = 0.0025;

/// Groups of channels in which a broadband signal must be seen.
pub(super) const BANDS: usize = 16;

/// Sums run side by side in so many lanes, the same for every vector level.
const LANES: usize = 16;

/// The running profile of the band.
#[derive(Debug)]
pub(super) struct Profile {
    /// Channels that are left out throughout.
    masked: Vec<bool>,
    /// Means and deviations of the latest blocks, at a gain of 1.
    means: VecDeque<Vec<f32>>,
    deviations: VecDeque<Vec<f32>>,
    /// Each channel's level and noise at a gain of 1.
    pub(super) level: Vec<f32>,
    pub(super) noise: Vec<f32>,
    /// The level that a channel holds while it is marked: it follows `level` slowly.
    pub(super) held: Vec<f32>,
    /// Blocks in a row in which a channel was marked.
    passed: Vec<u16>,
}

impl Profile {
    pub(super) fn new(masked: Vec<bool>) -> Self {
        let zero = vec![0.0; masked.len()];
        let passed = vec![0; masked.len()];
        let (means, deviations) = (VecDeque::new(), VecDeque::new());
        let [level, noise, held] = [zero.clone(), zero.clone(), zero];
        Self { masked, means, deviations, level, noise, held, passed }
    }

    /// Returns whether levels stand out of the noise: of series about 0 they do not, and have no gain.
    fn has_levels(&self) -> bool {
        let power = |values: &[f32]| {
            let good = values.iter().zip(&self.masked).filter(|(_, masked)| !**masked);
            good.map(|(x, _)| f64::from(*x) * f64::from(*x)).sum::<f64>()
        };
        power(&self.level) > power(&self.noise)
    }

    /// The gain of a block against the profile: the median over channels of their means' ratio.
    pub(super) fn gain(&self, mean: &[f32]) -> f64 {
        if self.means.is_empty() || !self.has_levels() {
            return 1.0;
        }
        let good = (0..mean.len()).filter(|c| !self.masked[*c] && self.level[*c] > self.noise[*c]);
        let mut ratios: Vec<f32> = good.map(|c| mean[c] / self.level[c]).collect();
        if ratios.is_empty() { 1.0 } else { f64::from(median(&mut ratios)) }
    }

    /// Returns whether a block holds enough signal to tell of channels: a dropout does not.
    pub(super) fn is_told_by(&self, mean: &[f32]) -> bool {
        self.gain(mean) >= LEAST_GAIN
    }

    /// Takes in a block, of which some channels are marked.
    pub(super) fn push(&mut self, block: &Statistics, marked: &[bool]) {
        let gain = self.gain(&block.mean);
        if !self.is_told_by(&block.mean) {
            return;
        }
        let scale = (1.0 / gain) as f32;
        let is_first = self.means.is_empty();
        for (passed, marked) in self.passed.iter_mut().zip(marked) {
            *passed = if *marked { (*passed + 1).min(KEPT) } else { 0 };
        }
        let taken = |own: &[f32], kept: &[f32]| -> Vec<f32> {
            let is_kept = |c: usize| marked[c] && !is_first && self.passed[c] < KEPT;
            (0..own.len()).map(|c| if is_kept(c) { kept[c] } else { own[c] * scale }).collect()
        };
        let mean = taken(&block.mean, &self.level);
        let deviation = taken(&block.deviation, &self.noise);
        for (ring, values) in [(&mut self.means, mean), (&mut self.deviations, deviation)] {
            if ring.len() == BLOCKS {
                ring.pop_front();
            }
            ring.push_back(values);
        }
        let middle = |ring: &VecDeque<Vec<f32>>, channel: usize| {
            let mut values = [0.0; BLOCKS];
            let values = &mut values[..ring.len()];
            values.iter_mut().zip(ring).for_each(|(x, block)| *x = block[channel]);
            median(values)
        };
        for (channel, marked) in marked.iter().enumerate() {
            self.level[channel] = middle(&self.means, channel);
            self.noise[channel] = middle(&self.deviations, channel);
            let change = self.level[channel] - self.held[channel];
            let most = if *marked { PACE * self.noise[channel] } else { f32::INFINITY };
            self.held[channel] += change.clamp(-most, most);
        }
    }

    /// Returns whether the level that a channel holds is still far from its own.
    pub(super) fn is_moving(&self, channel: usize) -> bool {
        (self.level[channel] - self.held[channel]).abs() > PACE * self.noise[channel]
    }

    /// The terms that broadband interference is fitted with, over the channels that are not marked.
    pub(super) fn terms(&self, marked: &[bool]) -> Terms {
        let good: Vec<bool> = self.masked.iter().zip(marked).map(|(a, b)| !a & !b).collect();
        let only = |values: &[f32]| -> Vec<f32> {
            values.iter().zip(&good).map(|(x, good)| if *good { *x } else { 0.0 }).collect()
        };
        let (level, noise) = (only(&self.level), only(&self.noise));
        let has_levels = self.has_levels();
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
            // A group of which little is left says nothing.
            if power > 0.0 && 4 * channels >= width {
                band.scale = (1.0 / power) as f32;
                band.level = (level / power) as f32;
                band.sigma = (noise_power.sqrt() / power) as f32;
            }
        }
        terms
    }
}

/// A group of channels.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Band {
    range: (usize, usize),
    /// One over the first term's power; 0 where the group has too few channels.
    pub(super) scale: f32,
    /// The amplitude of the level, and the deviation of that of noise.
    pub(super) level: f32,
    pub(super) sigma: f32,
}

/// The profiles along which interference is taken away: the level (of series about 0 the noise), and what of the noise is
/// unlike it.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) first: Vec<f32>,
    /// At right angles to the first; empty where noise and level are alike.
    pub(super) second: Vec<f32>,
    powers: [f64; 2],
    pub(super) bands: [Band; BANDS],
    /// True if the first term is the level.
    pub(super) has_levels: bool,
}

impl Terms {
    pub(super) fn is_empty(&self) -> bool {
        self.powers[0] <= 0.0
    }

    /// The amplitudes of both terms in a spectrum, by least squares.
    pub(super) fn fit(&self, row: &[f32]) -> [f32; 2] {
        let of = |term: &[f32], power: f64| {
            if power > 0.0 { (dot(row, term) / power) as f32 } else { 0.0 }
        };
        [of(&self.first, self.powers[0]), of(&self.second, self.powers[1])]
    }

    /// Fits both terms as [`Terms::fit`] does, faster and rounded, and the first term in each group of channels.
    pub(super) fn amplitudes(&self, row: &[f32]) -> ([f32; 2], [f32; BANDS]) {
        let mut groups = [0.0; BANDS];
        let mut total = 0.0f64;
        for (amplitude, band) in groups.iter_mut().zip(&self.bands) {
            let (from, end) = band.range;
            let sum = short_dot(&row[from..end], &self.first[from..end]);
            total += f64::from(sum);
            *amplitude = sum * band.scale;
        }
        let second =
            if self.second.is_empty() { 0.0 } else { dot(row, &self.second) / self.powers[1] };
        ([(total / self.powers[0]) as f32, second as f32], groups)
    }
}

/// A sum of products in double precision, in a fixed order.
fn dot(row: &[f32], weights: &[f32]) -> f64 {
    let mut sums = [0.0f64; LANES];
    for (row, weights) in row.chunks(LANES).zip(weights.chunks(LANES)) {
        for ((sum, x), weight) in sums.iter_mut().zip(row).zip(weights) {
            *sum += f64::from(*x) * f64::from(*weight);
        }
    }
    sums.iter().sum()
}

/// The same in single precision.
fn short_dot(row: &[f32], weights: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    for (row, weights) in row.chunks(LANES).zip(weights.chunks(LANES)) {
        for ((sum, x), weight) in sums.iter_mut().zip(row).zip(weights) {
            *sum += x * weight;
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut profile = Profile::new(vec![false; channels]);
        (0..BLOCKS).for_each(|_| profile.push(&block(110.0), &is_marked(false)));
        assert_eq!((profile.level[3], profile.held[3]), (110.0, 110.0));
        let mut marked = 0;
        loop {
            let before = profile.held.clone();
            profile.push(&block(80.0), &is_marked(true));
            marked += 1;
            let change = (profile.held[3] - before[3]).abs();
            assert!(change <= 1.001 * PACE * 10.0, "{change} in block {marked}");
            if profile.level[3] == 80.0 && !profile.is_moving(3) {
                break;
            }
        }
        // 30 counts in steps of a fiftieth of the noise.
        let least = usize::from(KEPT) + (30.0 / (PACE * 10.0)) as usize;
        assert!((least - 2..least + 2 * BLOCKS).contains(&marked), "{marked}");
        assert!(!profile.is_moving(0) && profile.held[0] == 80.0);
    }
}
