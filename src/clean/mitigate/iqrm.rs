//! Outlier channels of blocks: channels whose statistic deviates from that of nearby channels, found by differences at several
//! lags.
//!
//! Invariant: a statistic that changes slowly over the band marks no channel.

use super::profile::{Levels, Part, Statistics};
use crate::backend::threads::Threads;
use crate::math::median_and_sigma;

/// Comparison radius of channels in blocks, as a fraction of the band, and in parts of blocks, in channels.
const RADIUS: f64 = 0.1;
const NEAR_RADIUS: usize = 4;

/// Outlier limit in deviations.
const THRESHOLD: f64 = 6.0;

/// Deviations from the median that some channel needs for any two to differ by [`THRESHOLD`].
const FAR: f64 = 4.0;

/// Smallest relative change of a channel's deviation that counts.
const MIN_CHANGE: f64 = 0.02;

/// Fewest channels for which threads process lags in parallel.
const MANY_CHANNELS: usize = 1024;

/// Ratio of successive lags.
const LAG_FACTOR: f64 = 1.5;

/// Interquartile range of a normal distribution in standard deviations.
const QUARTILES_PER_SIGMA: f64 = 1.349;

/// Largest number of differences whose quartiles are computed; larger sets are subsampled.
const MAX_DIFFERENCES: usize = 2048;

/// Marks channels whose statistic is high relative to channels up to `radius` away.
///
/// At each lag, the differences `x[i] - x[i - lag]` that exceed their median by `threshold` deviations are votes of
/// `i - lag` on `i`. The deviation is the interquartile range over 1.349, at least `least`; of more than 2048
/// channels it is that of 2048. A channel is marked if one of its voters cast fewer votes than the channel received.
/// Channels with a non-finite statistic neither vote nor receive votes.
///
/// # Source
/// IQRM: Morello, Rajwade & Stappers 2022, MNRAS 510, 1393, section 2.
pub fn iqrm_mask(statistic: &[f64], radius: usize, threshold: f64, least: f64) -> Vec<bool> {
    let votes = |lag| Votes::at(statistic, lag, threshold, least);
    let votes: Vec<Votes> = lags(radius).map(votes).collect();
    marked(statistic.len(), votes.iter().map(|own| own.high.as_slice()))
}

/// Votes at one lag: pairs of a channel and its voter.
#[derive(Clone, Debug, Default)]
struct Votes {
    /// Votes on channels far above their voter, and on channels far below it.
    high: Vec<(u32, u32)>,
    low: Vec<(u32, u32)>,
}

impl Votes {
    fn at(statistic: &[f64], lag: isize, threshold: f64, least: f64) -> Self {
        let channels = statistic.len();
        let from = |i: usize| (i as isize - lag).clamp(0, channels as isize - 1) as usize;
        let difference = |i: usize| statistic[i] - statistic[from(i)];
        let some = (0..channels).step_by(channels.div_ceil(MAX_DIFFERENCES).max(1));
        let mut sorted: Vec<f64> = some.map(difference).filter(|x| x.is_finite()).collect();
        let mut votes = Self::default();
        let Some((low, middle, high)) = quartiles(&mut sorted) else { return votes };
        let limit = threshold * ((high - low) / QUARTILES_PER_SIGMA).max(least);
        for i in 0..channels {
            let off = difference(i) - middle;
            if off > limit {
                votes.high.push((i as u32, from(i) as u32));
            } else if off < -limit {
                votes.low.push((i as u32, from(i) as u32));
            }
        }
        votes
    }
}

/// Marks the channels that received more votes than one of their voters cast.
fn marked<'a>(channels: usize, votes: impl Iterator<Item = &'a [(u32, u32)]>) -> Vec<bool> {
    let mut received: Vec<Vec<u32>> = vec![Vec::new(); channels];
    let mut cast = vec![0usize; channels];
    for (channel, voter) in votes.flatten() {
        // Beyond the band's edges the outermost channels stand in; each votes once.
        let received = &mut received[*channel as usize];
        if !received.contains(voter) {
            received.push(*voter);
            cast[*voter as usize] += 1;
        }
    }
    let marked = |votes: &Vec<u32>| votes.iter().any(|voter| cast[*voter as usize] < votes.len());
    received.iter().map(marked).collect()
}

/// Iterates over lags in both directions: 1, 2, 3, 4, 6, 9 and so on, up to the radius.
fn lags(radius: usize) -> impl Iterator<Item = isize> {
    let next = |lag: &usize| Some(((LAG_FACTOR * *lag as f64) as usize).max(lag + 1));
    std::iter::successors(Some(1), next)
        .take_while(move |lag| *lag <= radius)
        .flat_map(|lag| [lag as isize, -(lag as isize)])
}

/// Computes the quartiles; reorders the values.
fn quartiles(values: &mut [f64]) -> Option<(f64, f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let last = values.len() - 1;
    let (quarter, half) = (last / 4, last / 2);
    let middle = *values.select_nth_unstable_by(half, f64::total_cmp).1;
    let low = *values[..=half].select_nth_unstable_by(quarter, f64::total_cmp).1;
    let high = *values[half..].select_nth_unstable_by(last - quarter - half, f64::total_cmp).1;
    Some((low, middle, high))
}

/// Finder of outlier channels in blocks.
pub(super) struct Outliers<'a> {
    /// Channels excluded throughout.
    pub(super) masked: &'a [bool],
    pub(super) threads: &'a Threads,
}

impl Outliers<'_> {
    /// Finds channels whose deviation is an outlier in most of a block; processes all lags of all blocks in parallel.
    pub(super) fn loud(&self, blocks: &[Statistics]) -> Vec<Vec<bool>> {
        let lags: Vec<isize> = lags(self.radius()).collect();
        let loud = |block: &Statistics| self.each(|c| f64::from(block.deviation[c]).ln());
        let loud: Vec<Vec<f64>> = blocks.iter().map(loud).collect();
        let mut votes = vec![Votes::default(); blocks.len() * lags.len()];
        self.threads.for_each(&mut votes, 1, |index, votes| {
            let (block, lag) = (index / lags.len(), lags[index % lags.len()]);
            let least = MIN_CHANGE.max(blocks[block].white());
            votes[0] = Votes::at(&loud[block], lag, THRESHOLD, least);
        });
        let of_block = |votes: &[Votes]| {
            marked(self.masked.len(), votes.iter().map(|own| own.high.as_slice()))
        };
        votes.chunks(lags.len().max(1)).map(of_block).collect()
    }

    /// Marks the channels that are outliers in most of a block by their deviation (`loud`) or by the change of their
    /// mean.
    pub(super) fn of_block(
        &self,
        block: &Statistics,
        levels: &Levels,
        gain: f64,
        mut loud: Vec<bool>,
    ) -> Vec<bool> {
        let excess = self.excess(&block.mean, levels, gain);
        let off = both_sides(&excess, self.radius(), block.white(), Some(self.threads));
        loud.iter_mut().zip(off).for_each(|(marked, is_off)| *marked |= is_off);
        loud
    }

    fn radius(&self) -> usize {
        (RADIUS * self.masked.len() as f64) as usize
    }

    /// Marks the channels whose mean differs from adjacent channels in a part of a block.
    pub(super) fn of_part(&self, part: &Part, levels: &Levels) -> Vec<bool> {
        if !levels.has_signal_in(&part.mean) {
            return vec![false; self.masked.len()];
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
        (0..self.masked.len()).map(|c| if self.masked[c] { f64::NAN } else { of(c) }).collect()
    }
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
    let lowest = finite.iter().copied().fold(0.0, f64::min);
    let highest = finite.iter().copied().fold(0.0, f64::max);
    if let Some((middle, sigma)) = median_and_sigma(&mut finite)
        && (highest - middle).max(middle - lowest) < FAR * sigma.max(least)
    {
        return vec![false; statistic.len()];
    }
    let lags: Vec<isize> = lags(radius).collect();
    let mut votes = vec![Votes::default(); lags.len()];
    let vote = |index: usize, votes: &mut Votes| {
        *votes = Votes::at(statistic, lags[index], THRESHOLD, least);
    };
    match threads {
        Some(threads) if statistic.len() >= MANY_CHANNELS => {
            threads.for_each(&mut votes, 1, |index, votes| vote(index, &mut votes[0]));
        }
        _ => votes.iter_mut().enumerate().for_each(|(index, votes)| vote(index, votes)),
    }
    let high = marked(statistic.len(), votes.iter().map(|own| own.high.as_slice()));
    let low = marked(statistic.len(), votes.iter().map(|own| own.low.as_slice()));
    high.into_iter().zip(low).map(|(a, b)| a || b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_channels_and_blocks_stand_out_of_a_sloped_band() {
        let ripple = |i: usize| 0.01 * ((i * i * 7919 % 101) as f64 / 50.0 - 1.0);
        let mut band: Vec<f64> = (0..256).map(|i| 5.0 - 0.01 * i as f64 + ripple(i)).collect();
        assert!(iqrm_mask(&band, 25, 6.0, 0.01).iter().all(|bad| !bad));
        band[0] += 0.5;
        band[40] += 0.5;
        band[100..112].iter_mut().for_each(|x| *x += 0.5);
        band[200] = f64::NAN;
        let marked: Vec<usize> = iqrm_mask(&band, 25, 6.0, 0.01)
            .iter()
            .enumerate()
            .filter_map(|(channel, bad)| bad.then_some(channel))
            .collect();
        let truth: Vec<usize> = [0, 40].into_iter().chain(100..112).collect();
        assert_eq!(marked, truth);
    }

    #[test]
    fn nothing_is_marked_in_what_has_no_numbers() {
        assert_eq!(iqrm_mask(&[f64::NAN; 5], 2, 3.0, 0.0), [false; 5]);
        assert!(iqrm_mask(&[], 2, 3.0, 0.0).is_empty());
    }
}
