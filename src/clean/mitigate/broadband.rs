//! Spectra that interference over the whole band has lifted, and those in which the receiver dropped out.
//!
//! Invariant: what is decided of a block depends on it and on the blocks beside it alone, and on what the blocks before it
//! had for a level.

use std::collections::VecDeque;

use super::profile::{BANDS, LEAST_GAIN, Terms};
use super::statistics::median;
use crate::math::statistics::SIGMA_PER_MAD;

/// Deviations of a boxcar's amplitude at which a signal over the whole band counts as interference.
const OUTLIER: f32 = 6.0;

/// The part of its mean amplitude that half the groups of channels must show at least: a dispersed pulse is in few at once.
const EVEN: f32 = 0.4;

/// Around an outlier, deviations down to which a spectrum belongs to it.
const WING: f32 = 2.0;

/// Deviations below the level at which a receiver may have dropped out, and the part of the noise's power below which it has.
const LOW: f32 = 8.0;
const QUIET: f32 = 0.35;

/// Spectra to either side over which that power is averaged, and by which a dropout is widened where they are low as well.
const NEAR: usize = 4;

/// The change of the level, in deviations of a spectrum's amplitude, from which on the level is followed.
const CHANGED: f32 = 0.25;

/// The same in deviations of the median that tells it.
const CHANGED_MEDIAN: f32 = 8.0;

/// Values whose median stands for them in running medians.
const GROUP: usize = 16;

/// The deviation of a median over that of a mean.
const MEDIAN: f32 = 1.253;

/// Deviations of the difference of two medians at which the level steps.
const STEP: f32 = 8.0;

/// Blocks whose level and noise are remembered.
const REMEMBERED: usize = 16;

/// The amplitudes of a block's spectra.
#[derive(Debug)]
pub(super) struct Series {
    /// Amplitudes of both terms: axes time, term.
    amplitudes: Vec<[f32; 2]>,
    /// The scatter of the groups' amplitudes over that of noise, as power.
    scatter: Vec<f32>,
    /// Each group's amplitude of the first term, without the level's, and whether there is one.
    groups: Vec<[f32; BANDS]>,
    has: [bool; BANDS],
    levels: [f32; BANDS],
    has_levels: bool,
}

impl Series {
    pub(super) fn new(terms: &Terms) -> Self {
        Self {
            amplitudes: Vec::new(),
            scatter: Vec::new(),
            groups: Vec::new(),
            has: terms.bands.map(|band| band.scale > 0.0),
            levels: terms.bands.map(|band| band.level),
            has_levels: terms.has_levels,
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.amplitudes.len()
    }

    /// Adds spectra in their order: amplitudes of both terms, and of the groups.
    pub(super) fn extend(&mut self, terms: &Terms, rows: &[([f32; 2], [f32; BANDS])]) {
        for (amplitudes, groups) in rows {
            self.amplitudes.push(*amplitudes);
            self.groups.push(*groups);
            self.scatter.push(scatter(terms, groups));
        }
    }
}

/// The scatter of groups about their weighted mean change, over that of noise, as power.
fn scatter(terms: &Terms, groups: &[f32; BANDS]) -> f32 {
    let good = || terms.bands.iter().zip(groups).filter(|(band, _)| band.sigma > 0.0);
    let (mut weights, mut mean, mut count) = (0.0, 0.0, 0.0);
    for (band, amplitude) in good() {
        let weight = 1.0 / (band.sigma * band.sigma);
        weights += weight;
        mean += weight * (amplitude - band.level);
        count += 1.0;
    }
    if count < 2.0 {
        return 1.0;
    }
    mean /= weights;
    let square =
        |(band, x): (&super::profile::Band, &f32)| ((x - band.level - mean) / band.sigma).powi(2);
    good().map(square).sum::<f32>() / (count - 1.0)
}

/// Treatment of a spectrum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays.
    Kept,
    /// Its broadband part is taken away.
    Fitted,
    /// It holds no signal.
    Lost,
}

/// Decisions on a block.
#[derive(Debug)]
pub(super) struct Decisions {
    pub(super) fates: Vec<Fate>,
    /// The level of each spectrum, of both terms.
    pub(super) levels: Vec<[f32; 2]>,
    /// The level that spectra are brought to, and the first of the block from which on; none while it is not followed.
    pub(super) reference: Option<([f32; 2], usize)>,
    /// True if the noise follows the level, so that it is scaled with it.
    pub(super) is_scaled: bool,
}

/// Kinds of signals that are searched for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) outliers: bool,
    /// The broadband part of all spectra is taken away.
    pub(super) always: bool,
    /// Dropouts and steps.
    pub(super) time: bool,
}

/// Levels and noise of the latest blocks.
#[derive(Debug, Default)]
pub(super) struct Memory {
    levels: VecDeque<[f32; 2]>,
    sigmas: VecDeque<f32>,
    scatters: VecDeque<f32>,
    reference: Option<[f32; 2]>,
    /// Blocks in a row that were lost by half.
    lost: usize,
}

impl Memory {
    /// Decides on the middle one of three blocks; the first and the last have none beside them.
    pub(super) fn decide(
        &mut self,
        (before, now, after): (Option<&Series>, &Series, Option<&Series>),
        wanted: Wanted,
    ) -> Decisions {
        let all: Vec<&Series> = before.into_iter().chain([now]).chain(after).collect();
        let start = before.map_or(0, Series::rows);
        let rows = now.rows();
        let amplitudes: Vec<[f32; 2]> =
            all.iter().flat_map(|s| s.amplitudes.iter().copied()).collect();
        let sigma = self.sigma(now);
        let level = self.level(&amplitudes);
        let lost = if wanted.time {
            dropouts(&all, &amplitudes, (level[0], LOW * sigma))
        } else {
            vec![false; amplitudes.len()]
        };
        // Dropouts have no part in the level, and what lies on their two sides is taken as adjacent.
        let kept: Vec<usize> = (0..lost.len()).filter(|t| !lost[*t]).collect();
        let margin = rows.div_ceil(8);
        let begin = kept.partition_point(|t| *t < start.saturating_sub(margin));
        let end = kept.partition_point(|t| *t < start + rows + margin);
        let first: Vec<f32> = kept.iter().map(|t| amplitudes[*t][0]).collect();
        let steps = if wanted.time { steps(&first, sigma, rows / 8) } else { Vec::new() };
        let levels: [Vec<f32>; 2] = std::array::from_fn(|term| {
            let values: Vec<f32> = kept.iter().map(|t| amplitudes[*t][term]).collect();
            level_between(&values, &steps, (begin, end), rows / 2)
        });
        let own = || (begin..end).filter(|k| (start..start + rows).contains(&kept[*k]));
        let mut decisions = Decisions {
            fates: vec![Fate::Kept; rows],
            levels: vec![level; rows],
            reference: None,
            is_scaled: false,
        };
        for (fate, lost) in decisions.fates.iter_mut().zip(&lost[start..]) {
            *fate = if *lost {
                Fate::Lost
            } else if wanted.always {
                Fate::Fitted
            } else {
                Fate::Kept
            };
        }
        for k in own() {
            decisions.levels[kept[k] - start] = [levels[0][k - begin], levels[1][k - begin]];
        }
        if wanted.outliers && !wanted.always && sigma > 0.0 {
            let off = |k: usize| amplitudes[kept[k]][0] - levels[0][k - begin];
            let off: Vec<f32> = (begin..end).map(off).collect();
            let places = &kept[begin..end];
            let is_even =
                |from: usize, to: usize| is_even(&all, &places[from..to], &levels[0][from..to]);
            for index in outliers(off, sigma, rows.div_ceil(16), &is_even) {
                if (start..start + rows).contains(&places[index]) {
                    decisions.fates[places[index] - start] = Fate::Fitted;
                }
            }
        }
        if wanted.time {
            decisions.reference = self.follow(&decisions, (level, sigma), rows);
            decisions.is_scaled = now.has_levels && self.is_scaled(&decisions, now);
        }
        self.remember(&decisions, now, own().map(|k| amplitudes[kept[k]]).collect(), level);
        decisions
    }

    /// The level to which spectra are brought, once it has changed.
    fn follow(
        &mut self,
        decisions: &Decisions,
        (level, sigma): ([f32; 2], f32),
        rows: usize,
    ) -> Option<([f32; 2], usize)> {
        if let Some(reference) = self.reference {
            return Some((reference, 0));
        }
        let limit = sigma * CHANGED.max(CHANGED_MEDIAN * MEDIAN * MEDIAN / (rows as f32).sqrt());
        let is_changed = |own: &[f32; 2]| sigma > 0.0 && (own[0] - level[0]).abs() > limit;
        let first = decisions.levels.iter().position(is_changed)?;
        self.reference = Some(level);
        Some((level, first))
    }

    /// Returns whether the noise's power in a block is nearer to what it was when it is scaled with the level.
    fn is_scaled(&self, decisions: &Decisions, now: &Series) -> bool {
        let Some((reference, _)) = decisions.reference else { return false };
        let usual = median(&mut self.scatters.iter().copied().collect::<Vec<f32>>());
        let kept = (0..now.rows()).filter(|t| decisions.fates[*t] == Fate::Kept);
        let power = |t: usize| (decisions.levels[t][0] / reference[0]).powi(2);
        let (mut own, mut scaled): (Vec<f32>, Vec<f32>) =
            kept.map(|t| (now.scatter[t], now.scatter[t] / power(t))).unzip();
        let distance = |values: &mut Vec<f32>| (median(values) / usual).ln().abs();
        distance(&mut scaled) <= distance(&mut own)
    }

    /// The level of the blocks before; of the first block, of the amplitudes themselves.
    fn level(&self, amplitudes: &[[f32; 2]]) -> [f32; 2] {
        std::array::from_fn(|term| {
            let mut values: Vec<f32> = if self.levels.is_empty() {
                amplitudes.iter().map(|both| both[term]).collect()
            } else {
                self.levels.iter().map(|both| both[term]).collect()
            };
            median(&mut values)
        })
    }

    /// The deviation of a spectrum's amplitude, by the differences of successive ones.
    fn sigma(&self, now: &Series) -> f32 {
        let mut sigmas: Vec<f32> = self.sigmas.iter().copied().chain([deviation(now)]).collect();
        median(&mut sigmas)
    }

    fn remember(
        &mut self,
        decisions: &Decisions,
        now: &Series,
        kept: Vec<[f32; 2]>,
        level: [f32; 2],
    ) {
        // A block that is half lost tells nothing.
        if 2 * kept.len() <= decisions.fates.len() {
            self.lost += 1;
            let mut own: Vec<f32> = now.amplitudes.iter().map(|both| both[0]).collect();
            // What lasts longer than the memory, and has some signal left, is a step of the gain.
            if self.lost > REMEMBERED && median(&mut own) >= LEAST_GAIN as f32 * level[0] {
                self.reference.get_or_insert(level);
                self.levels.clear();
                self.sigmas.clear();
            }
            return;
        }
        self.lost = 0;
        let level = std::array::from_fn(|term| {
            median(&mut kept.iter().map(|both| both[term]).collect::<Vec<f32>>())
        });
        self.levels.push_back(level);
        self.sigmas.push_back(deviation(now));
        if self.reference.is_none() || self.scatters.is_empty() {
            self.scatters.push_back(median(&mut now.scatter.clone()));
        }
        if self.levels.len() > REMEMBERED {
            self.levels.pop_front();
            self.sigmas.pop_front();
        }
        if self.scatters.len() > REMEMBERED {
            self.scatters.pop_front();
        }
    }
}

fn deviation(series: &Series) -> f32 {
    let pairs = series.amplitudes.windows(2);
    let mut sizes: Vec<f32> = pairs.map(|pair| (pair[1][0] - pair[0][0]).abs()).collect();
    median(&mut sizes) * SIGMA_PER_MAD as f32 * std::f32::consts::FRAC_1_SQRT_2
}

/// Spectra whose level is far below, and whose noise is gone.
fn dropouts(all: &[&Series], amplitudes: &[[f32; 2]], (level, far): (f32, f32)) -> Vec<bool> {
    let limit = level - far;
    if amplitudes.iter().all(|both| both[0] >= limit) {
        return vec![false; amplitudes.len()];
    }
    let scatter: Vec<f32> = all.iter().flat_map(|series| series.scatter.iter().copied()).collect();
    let count = amplitudes.len();
    let is_low: Vec<bool> = amplitudes.iter().map(|both| both[0] < limit).collect();
    let near = |t: usize| t.saturating_sub(NEAR)..count.min(t + NEAR + 1);
    let is_quiet = |t: usize| {
        // Only low spectra count: those beside a dropout have their noise.
        let values = near(t).filter(|t| is_low[*t]).map(|t| scatter[t]);
        let (sum, number) = values.fold((0.0, 0.0), |(sum, number), x| (sum + x, number + 1.0));
        sum < QUIET * number
    };
    let quiet: Vec<bool> = (0..count).map(|t| is_low[t] && is_quiet(t)).collect();
    let mut lost: Vec<bool> =
        (0..count).map(|t| is_low[t] && quiet[near(t)].contains(&true)).collect();
    // The rest of a dropout has as little level as noise; a step of the gain does not, however low it is.
    let is_off = |t: usize| is_low[t] && amplitudes[t][0] < QUIET.sqrt() * level;
    for t in 1..count {
        lost[t] |= lost[t - 1] && is_off(t);
    }
    for t in (1..count).rev() {
        lost[t - 1] |= lost[t] && is_off(t - 1);
    }
    lost
}

/// The medians of successive groups of values.
fn grouped(values: &[f32]) -> Vec<f32> {
    values
        .chunks(GROUP)
        .map(|group| {
            let mut own = [0.0; GROUP];
            let own = &mut own[..group.len()];
            own.copy_from_slice(group);
            median(own)
        })
        .collect()
}

/// Places at which the level steps, rising: the medians of about `2 reach` values on either side differ there by far.
fn steps(values: &[f32], sigma: f32, reach: usize) -> Vec<usize> {
    let groups = grouped(values);
    let reach = (reach / GROUP).max(4);
    if groups.len() < 4 * reach || sigma <= 0.0 {
        return Vec::new();
    }
    let medians = running_median(&groups, (0, groups.len()), reach);
    let limit = STEP * MEDIAN * MEDIAN * sigma / ((reach * GROUP) as f32).sqrt();
    let (first, last) = (reach, groups.len() - reach);
    let mut contrast: Vec<f32> =
        (first..last).map(|t| (medians[t + reach] - medians[t - reach]).abs()).collect();
    let mut found = Vec::new();
    loop {
        let largest = contrast.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let Some((place, _)) = largest.filter(|(_, contrast)| **contrast > limit) else { break };
        let middle = first + place;
        let levels = (medians[middle - reach], medians[middle + reach]);
        let near = ((middle - reach) * GROUP, values.len().min((middle + reach) * GROUP));
        found.push(near.0 + step_within(&values[near.0..near.1], levels));
        contrast[place.saturating_sub(2 * reach)..(last - first).min(place + 2 * reach)].fill(0.0);
    }
    found.sort_unstable();
    found
}

/// Finds the index at which a step from one level to another fits values best.
fn step_within(values: &[f32], (low, high): (f32, f32)) -> usize {
    let (mut sum, mut least, mut best) = (0.0f64, 0.0f64, 0);
    let size = f64::from((high - low).abs());
    for (index, x) in values.iter().enumerate() {
        // The change of the squared distance when the value belongs to the first level; an outlier counts no more than
        // one that lies on it.
        let change = f64::from(x - low).powi(2) - f64::from(x - high).powi(2);
        sum += change.clamp(-size * size, size * size);
        if sum < least {
            (least, best) = (sum, index + 1);
        }
    }
    best
}

/// The running median of values between steps, from `begin` to before `end`.
fn level_between(
    values: &[f32],
    steps: &[usize],
    (begin, end): (usize, usize),
    reach: usize,
) -> Vec<f32> {
    let mut levels = Vec::with_capacity(end.saturating_sub(begin));
    let mut from = 0;
    for to in steps.iter().copied().chain([values.len()]) {
        let (own_begin, own_end) = (begin.max(from), end.min(to));
        if own_begin < own_end {
            let groups = grouped(&values[from..to]);
            let (first, last) = ((own_begin - from) / GROUP, (own_end - from).div_ceil(GROUP));
            let medians = running_median(&groups, (first, last), reach.div_ceil(GROUP));
            levels.extend((own_begin..own_end).map(|t| medians[(t - from) / GROUP - first]));
        }
        from = to;
    }
    levels
}

/// The median over `reach` values to either side, of the values from `begin` to before `end`.
fn running_median(values: &[f32], (begin, end): (usize, usize), reach: usize) -> Vec<f32> {
    let mut sorted: Vec<f32> = Vec::with_capacity(2 * reach + 2);
    let (mut from, mut to) = (begin.saturating_sub(reach), begin.saturating_sub(reach));
    let mut medians = Vec::with_capacity(end.saturating_sub(begin));
    let place = |sorted: &[f32], x: f32| sorted.partition_point(|y| y.total_cmp(&x).is_lt());
    for middle in begin..end {
        while to < values.len().min(middle + reach + 1) {
            sorted.insert(place(&sorted, values[to]), values[to]);
            to += 1;
        }
        while from + reach < middle {
            sorted.remove(place(&sorted, values[from]));
            from += 1;
        }
        medians.push(sorted[sorted.len() / 2]);
    }
    medians
}

/// Returns whether an outlier over some spectra is in most groups of channels alike.
fn is_even(all: &[&Series], places: &[usize], levels: &[f32]) -> bool {
    let mut groups = [0.0f32; BANDS];
    let mut has = [true; BANDS];
    for (place, level) in places.iter().zip(levels) {
        let (mut place, mut index) = (*place, 0);
        while place >= all[index].rows() {
            place -= all[index].rows();
            index += 1;
        }
        let series = all[index];
        for band in 0..BANDS {
            has[band] &= series.has[band];
            groups[band] += series.groups[place][band]
                - series.levels[band] * if series.has_levels { *level } else { 1.0 };
        }
    }
    let mut values: Vec<f32> =
        (0..BANDS).filter(|band| has[*band]).map(|band| groups[band]).collect();
    let mean = values.iter().sum::<f32>() / values.len().max(1) as f32;
    // Few groups can't tell a dispersed pulse from a broadband one.
    values.len() >= BANDS / 2 && median(&mut values) / mean >= EVEN
}

/// Places at which boxcars of 1 to `widest` values stand out; `off` are the values' distances from their level.
fn outliers(
    mut off: Vec<f32>,
    sigma: f32,
    widest: usize,
    is_even: &dyn Fn(usize, usize) -> bool,
) -> Vec<usize> {
    let mut found = Vec::new();
    let original = off.clone();
    let mut width = 1;
    while width <= widest.min(off.len()) {
        let limit = OUTLIER * sigma * (width as f32).sqrt();
        let mut index = 0;
        let mut sum: f64 = off[..width].iter().map(|x| f64::from(*x)).sum();
        while index + width <= off.len() {
            if sum.abs() as f32 > limit && is_even(index, index + width) {
                let sign = if sum < 0.0 { -1.0 } else { 1.0 };
                let (from, to) = grown(&original, (index, index + width), sign / sigma, is_even);
                found.extend(from..to);
                off[from..to].fill(0.0);
                sum = off[index..index + width].iter().map(|x| f64::from(*x)).sum();
            }
            if index + width < off.len() {
                sum += f64::from(off[index + width]) - f64::from(off[index]);
            }
            index += 1;
        }
        width *= 2;
    }
    found
}

/// Widens an outlier to either side by boxcars, no longer than itself, that stand out like it.
///
/// Without this the weaker values of a long signal would stay between and beside the strong ones.
fn grown(
    off: &[f32],
    (mut from, mut to): (usize, usize),
    scale: f32,
    is_even: &dyn Fn(usize, usize) -> bool,
) -> (usize, usize) {
    let ratio = |begin: usize, end: usize| {
        let sum: f64 = off[begin..end].iter().map(|x| f64::from(*x)).sum();
        scale * sum as f32 / ((end - begin) as f32).sqrt()
    };
    // The boxcar of highest S/N beside the outlier, of those up to its length.
    let best = |length: usize, place: &dyn Fn(usize) -> (usize, usize)| {
        let widths = std::iter::successors(Some(1), |width| Some(2 * width));
        let all = widths.take_while(|width| *width <= length).map(|width| {
            let (begin, end) = place(width);
            (ratio(begin, end), width)
        });
        let (ratio, width) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let (begin, end) = place(width);
        (ratio > WING && is_even(begin, end)).then_some(width)
    };
    loop {
        let length = to - from;
        let left = best(length.min(from), &|width| (from - width, from));
        let right = best(length.min(off.len() - to), &|width| (to, to + width));
        if left.is_none() && right.is_none() {
            return (from, to);
        }
        (from, to) = (from - left.unwrap_or(0), to + right.unwrap_or(0));
    }
}
