//! Decides which spectra carry broadband interference and which fall into a dropout of the receiver.
//!
//! Invariant: what is decided of a block depends on it and on the blocks beside it alone, and on what the blocks before it
//! had for a level.

use std::collections::VecDeque;
use std::ops::Range;

use super::profile::{self, Amplitudes, BANDS, MIN_GAIN, Terms, median};
use crate::backend::simd::Level;
use crate::math::SIGMA_PER_MAD;

/// Amplitude of a boxcar, in deviations, at which a broadband signal counts as interference.
const OUTLIER: f32 = 6.0;

/// Fraction of its mean amplitude that half the channel groups must show; a dispersed pulse is in few groups at once.
const EVEN: f32 = 0.4;

/// Deviations down to which a spectrum next to an outlier belongs to it.
const WING: f32 = 2.0;

/// Increase of the squared S/N at which an outlier is a dispersed pulse, when the channel groups are shifted in
/// proportion to their position in the band.
const SWEPT: f64 = 25.0;

/// Deviations below the level at which a dropout is possible, and the fraction of the noise power below which it is
/// one.
const LOW: f32 = 8.0;
const QUIET: f32 = 0.35;

/// Spectra on either side for averaging that power, and by which a dropout grows while they are low as well.
const NEAR: usize = 4;

/// Change of the level, in deviations of a spectrum's amplitude, from which it is corrected.
const CHANGED: f32 = 0.25;

/// Like [`CHANGED`], in deviations of the median that measures it.
const CHANGED_MEDIAN: f32 = 8.0;

/// Values per group in running medians; the group's median represents them.
const GROUP: usize = profile::MAX_ROWS;

/// Standard error of a median relative to that of a mean.
const MEDIAN: f32 = 1.253;

/// Difference of two medians, in deviations, at which the level steps.
const STEP: f32 = 8.0;

/// Blocks whose level and noise are stored.
const REMEMBERED: usize = 16;

/// Amplitudes of a block's spectra.
#[derive(Debug)]
pub(super) struct Series {
    rows: Vec<Amplitudes>,
    /// Whether each channel group has an amplitude, and its level.
    has: [bool; BANDS],
    levels: [f32; BANDS],
    sigmas: [f32; BANDS],
    has_levels: bool,
    /// Deviation of a spectrum's first amplitude, from differences of consecutive ones.
    deviation: f32,
    /// Medians of both amplitudes, and of the scatter.
    medians: [f32; 2],
    scatter: f32,
}

impl Series {
    pub(super) fn new(terms: &Terms, rows: Vec<Amplitudes>) -> Self {
        let mut sizes: Vec<f32> =
            rows.windows(2).map(|pair| (pair[1].terms[0] - pair[0].terms[0]).abs()).collect();
        let deviation = median(&mut sizes) * SIGMA_PER_MAD as f32 * std::f32::consts::FRAC_1_SQRT_2;
        let middle = |of: &dyn Fn(&Amplitudes) -> f32| {
            median(&mut rows.iter().map(of).collect::<Vec<f32>>())
        };
        Self {
            has: terms.bands.map(|band| band.scale > 0.0),
            levels: terms.bands.map(|band| band.level),
            sigmas: terms.bands.map(|band| band.sigma),
            has_levels: terms.has_levels,
            deviation,
            medians: [middle(&|row| row.terms[0]), middle(&|row| row.terms[1])],
            scatter: middle(&|row| row.scatter),
            rows,
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Returns the amplitude of a channel group in a spectrum relative to the level's.
    fn change(&self, time: usize, band: usize, level: f32) -> f32 {
        self.rows[time].groups[band] - self.levels[band] * if self.has_levels { level } else { 1.0 }
    }
}

/// Series of a block and of the adjacent blocks.
#[derive(Clone, Copy)]
pub(super) struct Adjacent<'a> {
    pub(super) before: Option<&'a Series>,
    pub(super) now: &'a Series,
    pub(super) after: Option<&'a Series>,
}

impl<'a> Adjacent<'a> {
    fn all(self) -> impl Iterator<Item = &'a Series> {
        self.before.into_iter().chain([self.now]).chain(self.after)
    }

    /// Returns the index of the block's first spectrum among all.
    fn start(self) -> usize {
        self.before.map_or(0, Series::rows)
    }
}

/// Summary of the amplitudes of adjacent blocks, computed without knowledge of earlier ones: the levels if no
/// spectrum is lost and no level steps, and the largest signals relative to those levels.
#[derive(Debug)]
pub(super) struct Window {
    amplitudes: Vec<[f32; 2]>,
    /// Spectra of the block and its margins.
    range: Range<usize>,
    /// Largest difference of medians, which bounds a step; 0 in short windows.
    contrast: f32,
    levels: [Vec<f32>; 2],
    /// Largest absolute sum of boxcars of 1, 2, 4 and so on spectra.
    peaks: Vec<f32>,
}

impl Window {
    pub(super) fn new(adjacent: Adjacent<'_>, vectors: Level) -> Self {
        let all = adjacent.all();
        let amplitudes: Vec<[f32; 2]> =
            all.flat_map(|series| series.rows.iter().map(|row| row.terms)).collect();
        let rows = adjacent.now.rows();
        let (start, margin) = (adjacent.start(), rows.div_ceil(8));
        let range = start.saturating_sub(margin)..amplitudes.len().min(start + rows + margin);
        let values: [Vec<f32>; 2] =
            std::array::from_fn(|term| amplitudes.iter().map(|both| both[term]).collect());
        let contrasts = contrasts(&values[0], reach(rows), vectors);
        let levels: [Vec<f32>; 2] = std::array::from_fn(|term| {
            level_between(&values[term], &[], range.clone(), rows / 2, vectors)
        });
        let off = values[0][range.clone()].iter().zip(&levels[0]).map(|(x, level)| x - level);
        Self {
            range,
            contrast: contrasts.into_iter().fold(0.0, f32::max),
            peaks: peaks(&off.collect::<Vec<f32>>(), rows.div_ceil(16)),
            amplitudes,
            levels,
        }
    }
}

/// Treatment of a spectrum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Unchanged.
    Kept,
    /// Broadband part subtracted.
    Fitted,
    /// Replaced: no signal.
    Lost,
}

/// Decisions on a block.
#[derive(Debug)]
pub(super) struct Decisions {
    pub(super) fates: Vec<Fate>,
    /// Level of each spectrum, of both terms.
    pub(super) levels: Vec<[f32; 2]>,
    /// Level that spectra are set to, and the block's first spectrum for which this applies; `None` without level
    /// correction.
    pub(super) reference: Option<([f32; 2], usize)>,
    /// Whether the noise scales with the level and must be scaled back.
    pub(super) is_scaled: bool,
}

impl Decisions {
    /// Returns whether every spectrum stays unchanged.
    pub(super) fn are_kept(&self) -> bool {
        self.reference.is_none() && self.fates.iter().all(|fate| *fate == Fate::Kept)
    }
}

/// Kinds of signals to search for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) outliers: bool,
    /// Subtract the broadband part of all spectra.
    pub(super) always: bool,
    /// Find dropouts and steps.
    pub(super) time: bool,
}

/// Levels and noise of the latest blocks.
#[derive(Debug)]
pub(super) struct Memory {
    vectors: Level,
    levels: VecDeque<[f32; 2]>,
    sigmas: VecDeque<f32>,
    scatters: VecDeque<f32>,
    reference: Option<[f32; 2]>,
    /// Consecutive blocks that were at least half lost.
    lost: usize,
}

impl Memory {
    pub(super) fn new(vectors: Level) -> Self {
        let (levels, sigmas, scatters) = Default::default();
        Self { vectors, levels, sigmas, scatters, reference: None, lost: 0 }
    }

    /// Decides on the middle one of three blocks; a stream's first block has no previous one, its last no next one.
    pub(super) fn decide(
        &mut self,
        adjacent: Adjacent<'_>,
        window: Window,
        wanted: Wanted,
    ) -> Decisions {
        let all: Vec<&Series> = adjacent.all().collect();
        let (now, start) = (adjacent.now, adjacent.start());
        let rows = now.rows();
        let amplitudes = &window.amplitudes;
        let sigma = self.sigma(now);
        let level = self.level(amplitudes);
        let lost = if wanted.time {
            dropouts(&all, amplitudes, level[0], LOW * sigma)
        } else {
            vec![false; amplitudes.len()]
        };
        // Dropouts do not count for the level; the spectra before and after one are treated as adjacent.
        let kept: Vec<usize> = (0..lost.len()).filter(|t| !lost[*t]).collect();
        let is_whole = kept.len() == lost.len();
        let may_step = wanted.time && window.contrast > step_limit(sigma, reach(rows));
        let is_calm = is_whole && !may_step;
        let begin = kept.partition_point(|t| *t < window.range.start);
        let end = kept.partition_point(|t| *t < window.range.end);
        let levels: [Vec<f32>; 2] = if is_calm {
            window.levels
        } else {
            let first: Vec<f32> = kept.iter().map(|t| amplitudes[*t][0]).collect();
            let steps = if wanted.time {
                steps(&first, sigma, reach(rows), self.vectors)
            } else {
                Vec::new()
            };
            std::array::from_fn(|term| {
                let values: Vec<f32> = kept.iter().map(|t| amplitudes[*t][term]).collect();
                level_between(&values, &steps, begin..end, rows / 2, self.vectors)
            })
        };
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
        let widths = (0..window.peaks.len()).map(|power| 1 << power);
        let has_peaks = || {
            let mut both = widths.zip(&window.peaks);
            both.any(|(width, peak)| *peak > outlier_limit(sigma, width))
        };
        if wanted.outliers && !wanted.always && sigma > 0.0 && (!is_calm || has_peaks()) {
            let off = |k: usize| amplitudes[kept[k]][0] - levels[0][k - begin];
            let off: Vec<f32> = (begin..end).map(off).collect();
            let places = &kept[begin..end];
            let is_even = |own: Range<usize>| is_even(&all, &places[own.clone()], &levels[0][own]);
            let is_swept = |own: Range<usize>| is_swept(&all, places, &levels[0], own);
            for index in outliers(off, sigma, rows.div_ceil(16), &is_even, &is_swept) {
                if (start..start + rows).contains(&places[index]) {
                    decisions.fates[places[index] - start] = Fate::Fitted;
                }
            }
        }
        if wanted.time {
            decisions.reference = self.follow(&decisions, level, sigma);
            decisions.is_scaled = now.has_levels && self.is_scaled(&decisions, now);
        }
        let medians = if is_whole {
            Some(now.medians)
        } else {
            let own: Vec<[f32; 2]> = own().map(|k| amplitudes[kept[k]]).collect();
            // A block that is half lost gives no level.
            (2 * own.len() > rows).then(|| {
                std::array::from_fn(|term| {
                    median(&mut own.iter().map(|both| both[term]).collect::<Vec<f32>>())
                })
            })
        };
        match medians {
            Some(medians) => self.remember(now, medians),
            None => self.pass_over(now, level),
        }
        decisions
    }

    /// Returns the level to which spectra are set once it has changed.
    fn follow(
        &mut self,
        decisions: &Decisions,
        level: [f32; 2],
        sigma: f32,
    ) -> Option<([f32; 2], usize)> {
        if let Some(reference) = self.reference {
            return Some((reference, 0));
        }
        let limit = sigma
            * CHANGED.max(CHANGED_MEDIAN * MEDIAN * MEDIAN / (decisions.fates.len() as f32).sqrt());
        let is_changed = |own: &[f32; 2]| sigma > 0.0 && (own[0] - level[0]).abs() > limit;
        let first = decisions.levels.iter().position(is_changed)?;
        self.reference = Some(level);
        Some((level, first))
    }

    /// Returns whether scaling with the level brings the block's noise power closer to its earlier value.
    fn is_scaled(&self, decisions: &Decisions, now: &Series) -> bool {
        let Some((reference, _)) = decisions.reference else { return false };
        let usual = median(&mut self.scatters.iter().copied().collect::<Vec<f32>>());
        let kept = (0..now.rows()).filter(|t| decisions.fates[*t] == Fate::Kept);
        let power = |t: usize| (decisions.levels[t][0] / reference[0]).powi(2);
        let (mut own, mut scaled): (Vec<f32>, Vec<f32>) =
            kept.map(|t| (now.rows[t].scatter, now.rows[t].scatter / power(t))).unzip();
        let distance = |values: &mut Vec<f32>| (median(values) / usual).ln().abs();
        distance(&mut scaled) <= distance(&mut own)
    }

    /// Returns the level of the preceding blocks, or for the first block that of its amplitudes.
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

    /// Returns the deviation of a spectrum's amplitude, from differences of consecutive ones.
    fn sigma(&self, now: &Series) -> f32 {
        let mut sigmas: Vec<f32> = self.sigmas.iter().copied().chain([now.deviation]).collect();
        median(&mut sigmas)
    }

    /// Skips a block that is at least half lost.
    fn pass_over(&mut self, now: &Series, level: [f32; 2]) {
        self.lost += 1;
        // A loss longer than the memory that retains some signal is a gain step.
        if self.lost > REMEMBERED && now.medians[0] >= MIN_GAIN as f32 * level[0] {
            self.reference.get_or_insert(level);
            self.levels.clear();
            self.sigmas.clear();
        }
    }

    fn remember(&mut self, now: &Series, medians: [f32; 2]) {
        self.lost = 0;
        self.levels.push_back(medians);
        self.sigmas.push_back(now.deviation);
        if self.reference.is_none() || self.scatters.is_empty() {
            self.scatters.push_back(now.scatter);
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

/// Finds spectra far below the level and without noise.
fn dropouts(all: &[&Series], amplitudes: &[[f32; 2]], level: f32, far: f32) -> Vec<bool> {
    let limit = level - far;
    if amplitudes.iter().all(|both| both[0] >= limit) {
        return vec![false; amplitudes.len()];
    }
    let scatter: Vec<f32> =
        all.iter().flat_map(|series| series.rows.iter().map(|row| row.scatter)).collect();
    let count = amplitudes.len();
    let is_low: Vec<bool> = amplitudes.iter().map(|both| both[0] < limit).collect();
    let near = |t: usize| t.saturating_sub(NEAR)..count.min(t + NEAR + 1);
    let is_quiet = |t: usize| {
        // Averages low spectra only: those next to a dropout have their noise.
        let values = near(t).filter(|t| is_low[*t]).map(|t| scatter[t]);
        let (sum, number) = values.fold((0.0, 0.0), |(sum, number), x| (sum + x, number + 1.0));
        sum < QUIET * number
    };
    let quiet: Vec<bool> = (0..count).map(|t| is_low[t] && is_quiet(t)).collect();
    let mut lost: Vec<bool> =
        (0..count).map(|t| is_low[t] && quiet[near(t)].contains(&true)).collect();
    // The rest of a dropout has as little level as noise; a gain step does not, however low it is.
    let is_off = |t: usize| is_low[t] && amplitudes[t][0] < QUIET.sqrt() * level;
    for t in 1..count {
        lost[t] |= lost[t - 1] && is_off(t);
    }
    for t in (1..count).rev() {
        lost[t - 1] |= lost[t] && is_off(t - 1);
    }
    lost
}

/// Returns the medians of consecutive groups of values.
fn grouped(values: &[f32], vectors: Level) -> Vec<f32> {
    let mut medians = vec![0.0; values.len().div_ceil(GROUP)];
    profile::grouped_medians(vectors, values, &mut medians);
    medians
}

/// Returns the groups on either side of a step whose median is used, for blocks of `rows` rows.
fn reach(rows: usize) -> usize {
    (rows / 8 / GROUP).max(4)
}

/// Returns the smallest difference of two medians over `reach` groups at which the level steps.
fn step_limit(sigma: f32, reach: usize) -> f32 {
    STEP * MEDIAN * MEDIAN * sigma / ((reach * GROUP) as f32).sqrt()
}

/// Returns the smallest outlying sum of a boxcar of `width` values.
fn outlier_limit(sigma: f32, width: usize) -> f32 {
    OUTLIER * sigma * (width as f32).sqrt()
}

/// Returns the difference of the medians over `reach` groups after and before each group with as many on either side.
fn contrasts(values: &[f32], reach: usize, vectors: Level) -> Vec<f32> {
    let groups = grouped(values, vectors);
    if groups.len() < 4 * reach {
        return Vec::new();
    }
    let medians = running_median(&groups, 0..groups.len(), reach);
    let difference = |t: usize| (medians[t + reach] - medians[t - reach]).abs();
    (reach..groups.len() - reach).map(difference).collect()
}

/// Returns the largest absolute sum of boxcars of 1, 2, 4 and so on up to `widest` values.
fn peaks(off: &[f32], widest: usize) -> Vec<f32> {
    let widths = std::iter::successors(Some(1), |width| Some(2 * width));
    let widths = widths.take_while(|width| *width <= widest.min(off.len()));
    widths
        .map(|width| {
            let mut sum: f64 = off[..width].iter().map(|x| f64::from(*x)).sum();
            let mut largest = sum.abs();
            for index in width..off.len() {
                sum += f64::from(off[index]) - f64::from(off[index - width]);
                largest = largest.max(sum.abs());
            }
            largest as f32
        })
        .collect()
}

/// Returns the indices at which the level steps, ascending: the medians of about `2 reach` groups on either side
/// differ.
fn steps(values: &[f32], sigma: f32, reach: usize, vectors: Level) -> Vec<usize> {
    let mut contrast = contrasts(values, reach, vectors);
    if contrast.is_empty() || sigma <= 0.0 {
        return Vec::new();
    }
    let medians = running_median(&grouped(values, vectors), 0..values.len().div_ceil(GROUP), reach);
    let limit = step_limit(sigma, reach);
    let (first, last) = (reach, reach + contrast.len());
    let mut found = Vec::new();
    loop {
        let largest = contrast.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let Some((place, _)) = largest.filter(|(_, contrast)| **contrast > limit) else { break };
        let middle = first + place;
        let (low, high) = (medians[middle - reach], medians[middle + reach]);
        let near = (middle - reach) * GROUP..values.len().min((middle + reach) * GROUP);
        found.push(near.start + step_within(&values[near], low, high));
        contrast[place.saturating_sub(2 * reach)..(last - first).min(place + 2 * reach)].fill(0.0);
    }
    found.sort_unstable();
    found
}

/// Finds the index at which a step from one level to another fits values best.
fn step_within(values: &[f32], low: f32, high: f32) -> usize {
    let (mut sum, mut least, mut best) = (0.0f64, 0.0f64, 0);
    let size = f64::from((high - low).abs());
    for (index, x) in values.iter().enumerate() {
        // Change of the squared distance if the value belongs to the first level. Clamping limits an outlier's weight
        // to that of a value on the level.
        let change = f64::from(x - low).powi(2) - f64::from(x - high).powi(2);
        sum += change.clamp(-size * size, size * size);
        if sum < least {
            (least, best) = (sum, index + 1);
        }
    }
    best
}

/// Returns the running median of values between steps, over a range of values.
fn level_between(
    values: &[f32],
    steps: &[usize],
    range: Range<usize>,
    reach: usize,
    vectors: Level,
) -> Vec<f32> {
    let mut levels = Vec::with_capacity(range.len());
    let mut from = 0;
    for to in steps.iter().copied().chain([values.len()]) {
        let own = range.start.max(from)..range.end.min(to);
        if !own.is_empty() {
            let groups = grouped(&values[from..to], vectors);
            let first = (own.start - from) / GROUP;
            let last = (own.end - from).div_ceil(GROUP);
            let medians = running_median(&groups, first..last, reach.div_ceil(GROUP));
            levels.extend(own.map(|t| medians[(t - from) / GROUP - first]));
        }
        from = to;
    }
    levels
}

/// Returns the median over `reach` values on either side of each value of a range.
fn running_median(values: &[f32], range: Range<usize>, reach: usize) -> Vec<f32> {
    let mut sorted: Vec<f32> = Vec::with_capacity(2 * reach + 2);
    let mut from = range.start.saturating_sub(reach);
    let mut to = from;
    let mut medians = Vec::with_capacity(range.len());
    let place = |sorted: &[f32], x: f32| sorted.partition_point(|y| y.total_cmp(&x).is_lt());
    for middle in range {
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

/// Returns the series, and the spectrum in it, of an index over all series.
fn located<'a>(all: &[&'a Series], mut place: usize) -> (&'a Series, usize) {
    let mut index = 0;
    while place >= all[index].rows() {
        place -= all[index].rows();
        index += 1;
    }
    (all[index], place)
}

/// Returns whether an outlier over some spectra is similar in most channel groups.
fn is_even(all: &[&Series], places: &[usize], levels: &[f32]) -> bool {
    let mut groups = [0.0f32; BANDS];
    let mut has = [true; BANDS];
    for (place, level) in places.iter().zip(levels) {
        let (series, time) = located(all, *place);
        for band in 0..BANDS {
            has[band] &= series.has[band];
            groups[band] += series.change(time, band, *level);
        }
    }
    let mut values: Vec<f32> =
        (0..BANDS).filter(|band| has[*band]).map(|band| groups[band]).collect();
    let mean = values.iter().sum::<f32>() / values.len().max(1) as f32;
    // Few groups cannot separate a dispersed pulse from a broadband one.
    values.len() >= BANDS / 2 && median(&mut values) / mean >= EVEN
}

/// Returns whether an outlier sweeps the band: its S/N rises when groups are shifted in proportion to their position.
fn is_swept(all: &[&Series], places: &[usize], levels: &[f32], own: Range<usize>) -> bool {
    let Range { start: from, end: to } = own;
    let length = to - from;
    let (begin, end) = (from.saturating_sub(2 * length), places.len().min(to + 2 * length));
    // Amplitudes weighted by their noise, and the sum of the weights.
    let rows: Vec<[f64; BANDS]> = (begin..end)
        .map(|k| {
            let (series, time) = located(all, places[k]);
            std::array::from_fn(|band| {
                let weight = f64::from(series.sigmas[band]).powi(2);
                let change = f64::from(series.change(time, band, levels[k]));
                if series.has[band] && weight > 0.0 { change / weight } else { 0.0 }
            })
        })
        .collect();
    let series = located(all, places[from]).0;
    let good = (0..BANDS).filter(|band| series.has[*band] && series.sigmas[*band] > 0.0);
    let power: f64 = good.map(|band| f64::from(series.sigmas[band]).powi(-2)).sum();
    let squared = |sweep: isize| {
        let mut sums = vec![0.0f64];
        for t in 0..rows.len() as isize {
            let of = |band: isize| {
                let at = t + sweep * (2 * band - BANDS as isize + 1) / (2 * BANDS as isize - 2);
                usize::try_from(at)
                    .ok()
                    .and_then(|at| rows.get(at))
                    .map_or(0.0, |row| row[band as usize])
            };
            sums.push(sums[t as usize] + (0..BANDS as isize).map(of).sum::<f64>());
        }
        let mut most = 0.0f64;
        // Fine steps in width, so that shifted groups do not fit into a boxcar that is too wide.
        let widths = std::iter::successors(Some(1usize), |width| Some(width + width.div_ceil(16)));
        for width in widths.take_while(|width| *width <= 2 * length) {
            // Boxcars that overlap the outlier.
            let first = (from - begin).saturating_sub(width - 1);
            for start in first..(to - begin).min((rows.len() + 1).saturating_sub(width)) {
                most = most.max((sums[start + width] - sums[start]).powi(2) / width as f64);
            }
        }
        most / power
    };
    let still = squared(0);
    let sweeps = std::iter::successors(Some(4isize), |sweep| Some(sweep + sweep / 2))
        .take_while(|sweep| *sweep <= 4 * length as isize);
    power > 0.0
        && sweeps.flat_map(|sweep| [sweep, -sweep]).any(|sweep| squared(sweep) > still + SWEPT)
}

/// Test of the values in a range.
type Test<'a> = &'a dyn Fn(Range<usize>) -> bool;

/// Returns the indices covered by outlying boxcars of 1 to `widest` values; `off` holds the differences from the
/// level.
fn outliers(
    mut off: Vec<f32>,
    sigma: f32,
    widest: usize,
    is_even: Test<'_>,
    is_swept: Test<'_>,
) -> Vec<usize> {
    let mut found = Vec::new();
    let original = off.clone();
    let mut width = 1;
    while width <= widest.min(off.len()) {
        let limit = outlier_limit(sigma, width);
        let mut index = 0;
        let mut sum: f64 = off[..width].iter().map(|x| f64::from(*x)).sum();
        while index + width <= off.len() {
            if sum.abs() as f32 > limit && is_even(index..index + width) {
                let sign = if sum < 0.0 { -1.0 } else { 1.0 };
                let own = grown(&original, index..index + width, sign / sigma, is_even);
                // A pulse of little dispersion is everywhere at once in its middle.
                if !is_swept(own.clone()) {
                    found.extend(own.clone());
                }
                off[own].fill(0.0);
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

/// Extends an outlier on either side by boxcars of the same sign beyond [`WING`] deviations, no longer than itself.
///
/// Without this the weaker values of a long signal would remain between and beside the strong ones.
fn grown(off: &[f32], mut own: Range<usize>, scale: f32, is_even: Test<'_>) -> Range<usize> {
    let ratio = |of: Range<usize>| {
        let width = of.len();
        let sum: f64 = off[of].iter().map(|x| f64::from(*x)).sum();
        scale * sum as f32 / (width as f32).sqrt()
    };
    // The boxcar of highest S/N next to the outlier, up to its length.
    let best = |length: usize, place: &dyn Fn(usize) -> Range<usize>| {
        let widths = std::iter::successors(Some(1), |width| Some(2 * width));
        let widths = widths.take_while(|width| *width <= length);
        let all = widths.map(|width| (ratio(place(width)), width));
        let (ratio, width) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
        (ratio > WING && is_even(place(width))).then_some(width)
    };
    loop {
        let Range { start, end } = own;
        let left = best(own.len().min(start), &|width| start - width..start);
        let right = best(own.len().min(off.len() - end), &|width| end..end + width);
        if left.is_none() && right.is_none() {
            return own;
        }
        own = start - left.unwrap_or(0)..end + right.unwrap_or(0);
    }
}
