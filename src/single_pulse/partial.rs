//! Boxcars over samples that lack some channels, because the stream's start or end cuts them off.
//!
//! Invariant: every boxcar found holds a sample that lacks channels; those that hold none are [`super::Detector`]'s.

use std::ops::Range;

use super::plan::{Input, Plan};
use super::rules::{FEWEST, Hit, Sweep, window_noise};
use crate::backend::simd::{Level, leveled};
use crate::backend::threads::Threads;
use crate::backend::{Backend, Host};
use crate::error::Result;
use crate::view::check_length;

/// Added to times while hits are grouped, so that those before the stream's first sample are not negative.
const OFFSET: i64 = 1 << 40;

/// Smallest share of a boxcar's variance that its channels must have; with less, the boxcar holds only the level of
/// channels that do not vary.
const MIN_SHARE: f64 = 0.01;

/// Consecutive boxcars compared with the threshold together.
const LANES: usize = 16;

/// Largest stride at which all consecutive boxcars are compared, those between the strides in vain.
const DENSE: usize = 4;

/// Boxcar above the threshold in which some samples lack channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartialEvent {
    /// Index of the trial.
    pub dm: u32,
    /// First sample of the boxcar, counted from the start of the stream: negative before it.
    pub time: i64,
    /// Width of the boxcar in samples.
    pub width: u32,
    /// Signal-to-noise ratio in the channels present.
    pub snr: f32,
    /// Fraction of the channels present.
    pub band: f32,
}

/// Expected contribution of noise to one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// Sum over the channels present.
    pub sum: f64,
    /// Share of the channels present in the variance of all channels.
    pub share: f64,
}

/// Samples of one trial, counted from the start of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Samples that have enough channels.
    pub searched: Range<i64>,
    /// Samples that have all channels.
    pub whole: Range<i64>,
}

/// Channel coverage of the samples of each trial.
pub trait Coverage: Sync {
    /// Returns the searched samples of a trial, and those with all channels.
    fn span(&self, dm: usize) -> Span;

    /// Computes the expected noise of a trial's samples from `first` on.
    fn expect(&self, dm: usize, first: i64, expected: &mut [Expected]);

    /// Returns the fraction of the channels that a trial's sample has.
    fn band(&self, dm: usize, time: i64) -> f64;
}

/// Finds boxcar pulses where the stream's start or end removes some of the channels.
///
/// `snr[d, t, w] = sum_{i < w} (y[d, t + i] - e[d, t + i]) / (sigma sqrt(sum_{i < w} s[d, t + i]))`, where `e` is the
/// expected noise sum of the channels present, `s` their share of the variance ([`Coverage`]), and `sigma` the
/// deviation of samples with all channels. This is the optimal ratio for a pulse whose strength relative to the noise
/// is equal in all channels. Boxcars at or above the threshold are grouped as in [`super::Detector`].
///
/// The search runs on the host for every backend, because such samples are few.
///
/// # Numerics
/// Sums in f64; equal input in equal blocks gives equal events.
#[derive(Debug)]
pub struct PartialDetector {
    plan: Plan,
    threads: Threads,
    /// Vector level; none for the plain loops of the reference backend.
    level: Option<Level>,
    trials: Vec<Trial>,
    scratch: Vec<Scratch>,
}

#[derive(Clone, Debug, Default)]
struct Trial {
    /// Deviation of a sample with all channels, if it is known and not 0.
    sigma: Option<f64>,
    sweep: Sweep,
}

/// Block of one trial: range of boxcar starts, and the end of the samples.
#[derive(Clone, Copy, Debug)]
struct Block<'a> {
    plan: &'a Plan,
    span: &'a Span,
    starts: &'a Range<i64>,
    end: i64,
    sigma: f64,
}

/// Buffers of one thread.
#[derive(Debug, Default)]
struct Scratch {
    /// Samples of the block that a boxcar may hold, from time `first` on, and their expectation.
    first: i64,
    series: Vec<f64>,
    expected: Vec<Expected>,
    /// Prefix sums of the excess over the expectation, and of the variance shares.
    above: Vec<f64>,
    shares: Vec<f64>,
    /// Boxcars at or above the threshold, by width, then by start.
    hits: Vec<Hit>,
    /// Strongest hit of each start.
    best: Vec<Option<Hit>>,
    events: Vec<PartialEvent>,
}

impl PartialDetector {
    /// Binds a plan to the host of a backend.
    pub fn new(plan: Plan, backend: &Backend) -> Self {
        let (threads, level) = match backend.host() {
            Host::Reference => (Threads::new(1), None),
            Host::Cpu(level, threads) => (threads, Some(level)),
        };
        let trials = vec![Trial::default(); plan.dms()];
        let scratch = (0..threads.count()).map(|_| Scratch::default()).collect();
        Self { plan, threads, level, trials, scratch }
    }

    /// Estimates the noise of each trial from samples with all channels: the first `valid(dm)` of its row. Trials
    /// with fewer than 32 such samples are not searched.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the input has the plan's trials.
    pub fn learn(&mut self, input: Input<'_>, valid: impl Fn(usize) -> usize + Sync) -> Result<()> {
        check_length("trials of the pulse search", self.plan.dms(), input.dms())?;
        let Self { plan, threads, trials, scratch, .. } = self;
        threads.for_each_chunk(scratch, trials, 1, |scratch, dm, trial| {
            scratch.series.clear();
            input.append(dm, 0..valid(dm).min(input.times()), &mut scratch.series);
            let known = Some(&scratch.series).filter(|series| series.len() >= FEWEST);
            let sigma = known.map(|series| window_noise(plan, series).sigma);
            trial[0].sigma = sigma.filter(|sigma| *sigma != 0.0);
        });
        Ok(())
    }

    /// Searches boxcars that start in `starts`, the first of which is the first sample; later calls have later starts.
    ///
    /// # Errors
    /// As [`PartialDetector::learn`].
    pub fn run(
        &mut self,
        input: Input<'_>,
        starts: Range<i64>,
        coverage: &dyn Coverage,
        events: &mut Vec<PartialEvent>,
    ) -> Result<()> {
        check_length("trials of the pulse search", self.plan.dms(), input.dms())?;
        let level = self.level;
        let Self { plan, threads, trials, scratch, .. } = self;
        let end = starts.start + input.times() as i64;
        threads.for_each_chunk(scratch, trials, 1, |scratch, dm, trial| {
            let (trial, span) = (&mut trial[0], coverage.span(dm));
            let Some(sigma) = trial.sigma else { return };
            let block = Block { plan, span: &span, starts: &starts, end, sigma };
            let needed = block.needed();
            if needed.is_empty() {
                return;
            }
            let within = |time: i64| (time - starts.start) as usize;
            scratch.first = needed.start;
            scratch.series.clear();
            input.append(dm, within(needed.start)..within(needed.end), &mut scratch.series);
            scratch.expected.clear();
            scratch.expected.resize(scratch.series.len(), Expected::default());
            coverage.expect(dm, needed.start, &mut scratch.expected);
            match level {
                Some(level) => scratch.search(&block, level),
                None => scratch.search_plainly(&block),
            }
            scratch.rank();
            for hit in scratch.best.iter().flatten() {
                let ended = trial.sweep.offer(*hit);
                scratch.events.extend(ended.map(|hit| event(hit, dm, coverage)));
            }
        });
        self.collect(events);
        Ok(())
    }

    /// Ends the stream: appends the last event of each trial.
    pub fn flush(&mut self, coverage: &dyn Coverage, events: &mut Vec<PartialEvent>) {
        for (dm, trial) in self.trials.iter_mut().enumerate() {
            events.extend(trial.sweep.end().map(|hit| event(hit, dm, coverage)));
        }
    }

    /// Appends the events that the threads found, ordered by trial and time.
    fn collect(&mut self, events: &mut Vec<PartialEvent>) {
        let old = events.len();
        self.scratch.iter_mut().for_each(|scratch| events.append(&mut scratch.events));
        events[old..].sort_unstable_by_key(|event| (event.dm, event.time));
    }
}

impl Scratch {
    /// Finds the boxcars at or above the threshold from prefix sums.
    fn search(&mut self, block: &Block<'_>, level: Level) {
        let above = self.series.iter().zip(&self.expected).map(|(y, expected)| y - expected.sum);
        accumulate(above, &mut self.above);
        accumulate(self.expected.iter().map(|expected| expected.share), &mut self.shares);
        self.hits.clear();
        let least = (block.plan.options().snr * block.sigma).powi(2);
        for &width in block.plan.widths() {
            let stride = block.plan.stride(width);
            for range in block.ranges(width) {
                let start = range.start + (-range.start).rem_euclid(stride as i64);
                if start >= range.end {
                    continue;
                }
                let from = (start - self.first) as usize;
                let sums = Sums {
                    above: &self.above[from..],
                    shares: &self.shares[from..],
                    width,
                    stride,
                    starts: (range.end - start) as usize,
                    least,
                };
                find(level, &sums, &mut |index, above, share| {
                    let snr = above / (block.sigma * share.sqrt());
                    self.hits.push(hit(start + index as i64, width, snr));
                });
            }
        }
    }

    /// Finds the boxcars at or above the threshold with plain loops: the reference of [`Scratch::search`].
    fn search_plainly(&mut self, block: &Block<'_>) {
        let Block { plan, span, starts, .. } = *block;
        self.hits.clear();
        for &width in plan.widths() {
            for time in starts.clone() {
                let boxcar = time..time + width as i64;
                let is_within =
                    |range: &Range<i64>| range.start <= boxcar.start && boxcar.end <= range.end;
                let is_searched = is_within(&span.searched) && boxcar.end <= block.end;
                if !is_searched || is_within(&span.whole) || time % plan.stride(width) as i64 != 0 {
                    continue;
                }
                let samples =
                    (boxcar.start - self.first) as usize..(boxcar.end - self.first) as usize;
                let noise = &self.expected[samples.clone()];
                let share: f64 = noise.iter().map(|noise| noise.share).sum();
                let pairs = self.series[samples].iter().zip(noise);
                let above: f64 = pairs.map(|(y, noise)| y - noise.sum).sum();
                let snr = above / (block.sigma * share.sqrt());
                if has_variance(share, width) && snr >= plan.options().snr {
                    self.hits.push(hit(time, width, snr));
                }
            }
        }
    }

    /// Finds the strongest hit of each start; of equal ones the narrowest.
    fn rank(&mut self) {
        self.best.clear();
        if !self.hits.is_empty() {
            self.best.resize(self.series.len(), None);
        }
        for hit in &self.hits {
            let best = &mut self.best[(hit.time as i64 - OFFSET - self.first) as usize];
            if best.is_none_or(|best| hit.snr > best.snr) {
                *best = Some(*hit);
            }
        }
    }
}

/// Prefix sums from the first boxcar's start on.
pub(super) struct Sums<'a> {
    above: &'a [f64],
    shares: &'a [f64],
    width: usize,
    stride: usize,
    /// Consecutive starts, of which each multiple of the stride counts.
    starts: usize,
    /// Square of the threshold of a boxcar whose share is 1.
    least: f64,
}

impl Sums<'_> {
    /// Returns the excess and the share of the boxcar of a start if it is at or above the threshold.
    #[inline(always)]
    fn reached(&self, start: usize) -> Option<(f64, f64)> {
        let above = self.above[start + self.width] - self.above[start];
        let share = self.shares[start + self.width] - self.shares[start];
        let is_hit =
            above > 0.0 && above * above >= self.least * share && has_variance(share, self.width);
        is_hit.then_some((above, share))
    }

    /// Returns whether any of the boxcars of consecutive starts may be at or above the threshold.
    #[inline(always)]
    fn any_reached(&self, start: usize) -> bool {
        let lanes = |sums: &[f64], at: usize| -> [f64; LANES] {
            std::array::from_fn(|lane| sums[at..at + LANES][lane])
        };
        let (low, high) = (lanes(self.above, start), lanes(self.above, start + self.width));
        let (from, to) = (lanes(self.shares, start), lanes(self.shares, start + self.width));
        let mut any = false;
        for lane in 0..LANES {
            let above = high[lane] - low[lane];
            any |= (above > 0.0) & (above * above >= self.least * (to[lane] - from[lane]));
        }
        any
    }
}

leveled! {
    /// Calls `found` with the index, the excess and the share of each boxcar at or above the threshold, by start.
    find, find_body, (sums: &Sums<'_>, found: &mut dyn FnMut(usize, f64, f64))
}

#[inline(always)]
fn find_body(sums: &Sums<'_>, found: &mut dyn FnMut(usize, f64, f64)) {
    let mut check = |start: usize| {
        if let Some((above, share)) = sums.reached(start) {
            found(start, above, share);
        }
    };
    if sums.stride > DENSE {
        (0..sums.starts).step_by(sums.stride).for_each(check);
        return;
    }
    let mut start = 0;
    while start + LANES <= sums.starts {
        if sums.any_reached(start) {
            (start..start + LANES).step_by(sums.stride).for_each(&mut check);
        }
        start += LANES;
    }
    (start..sums.starts).step_by(sums.stride).for_each(check);
}

impl Block<'_> {
    /// Returns the starts of boxcars of a width that lie within the searched samples and hold one that lacks channels:
    /// before the complete samples, and after them.
    fn ranges(&self, width: usize) -> [Range<i64>; 2] {
        let (span, width) = (self.span, width as i64);
        let low = self.starts.start.max(span.searched.start);
        let high = self.starts.end.min(span.searched.end.min(self.end) - width + 1);
        let before = low..high.min(span.whole.start);
        let after = low.max(span.whole.end - width + 1).max(span.whole.start)..high;
        [before, after]
    }

    /// Returns the samples of the boxcars that lie within the searched samples and hold one that lacks channels; an
    /// empty range if there are none.
    fn needed(&self) -> Range<i64> {
        let (span, widest) = (self.span, self.plan.max_width() as i64);
        if span.whole.is_empty() {
            return 0..0;
        }
        let low = self.starts.start.max(span.searched.start);
        let high = span.searched.end.min(self.end).min(self.starts.end + widest - 1);
        let before = low..high.min(span.whole.start + widest - 1);
        let after = low.max(span.whole.end - widest + 1)..high;
        match (low < span.whole.start, high > span.whole.end) {
            (true, true) => low..high,
            (true, false) => before,
            (false, true) => after,
            (false, false) => 0..0,
        }
    }
}

/// Returns whether a boxcar has enough variance to detect a pulse.
fn has_variance(share: f64, width: usize) -> bool {
    share >= MIN_SHARE * width as f64
}

fn hit(time: i64, width: usize, snr: f64) -> Hit {
    Hit { time: (time + OFFSET) as u64, width: width as u64, snr }
}

fn event(hit: Hit, dm: usize, coverage: &dyn Coverage) -> PartialEvent {
    let time = hit.time as i64 - OFFSET;
    let band = coverage.band(dm, time + hit.width as i64 / 2) as f32;
    PartialEvent { dm: dm as u32, time, width: hit.width as u32, snr: hit.snr as f32, band }
}

fn accumulate(values: impl Iterator<Item = f64>, sums: &mut Vec<f64>) {
    let mut sum = 0.0;
    sums.clear();
    sums.push(0.0);
    sums.extend(values.map(|value| {
        sum += value;
        sum
    }));
}

#[cfg(test)]
mod tests {
    use super::super::plan::Options;
    use super::*;
    use crate::backend::Backend;
    use crate::view::Plane;

    const CHANNELS: i64 = 16;
    const TIMES: i64 = 900;

    /// Coverage that gains channels from the start on and loses them towards the end.
    struct Ramps {
        reach: i64,
    }

    impl Ramps {
        fn channels(&self, time: i64) -> i64 {
            let after = TIMES - 1 - time;
            let lacking = |before: i64| {
                if before < 0 { (-before * CHANNELS + self.reach - 1) / self.reach } else { 0 }
            };
            (CHANNELS - lacking(time) - lacking(after)).max(0)
        }
    }

    impl Coverage for Ramps {
        fn span(&self, _: usize) -> Span {
            let enough = 3 * self.reach / 4;
            Span { searched: -enough..TIMES + enough, whole: 0..TIMES }
        }

        fn expect(&self, _: usize, first: i64, expected: &mut [Expected]) {
            for (index, expected) in expected.iter_mut().enumerate() {
                let channels = self.channels(first + index as i64) as f64;
                *expected =
                    Expected { sum: 20.0 * channels, share: channels / f64::from(CHANNELS as i32) };
            }
        }

        fn band(&self, _: usize, time: i64) -> f64 {
            self.channels(time) as f64 / f64::from(CHANNELS as i32)
        }
    }

    fn noise(index: i64) -> i32 {
        let mut word = (index as u64).wrapping_add(77).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bytes = (word ^ (word >> 29)).to_le_bytes();
        bytes.iter().map(|byte| i32::from(*byte & 7)).sum::<i32>() - 28
    }

    fn found(backend: &Backend, snr: f64, block: usize) -> Vec<PartialEvent> {
        let coverage = Ramps { reach: 160 };
        let first = -160;
        let series: Vec<i32> = (first..TIMES + 160)
            .map(|time| {
                let channels = coverage.channels(time);
                let scale = (channels as f64 / CHANNELS as f64).sqrt();
                let pulse = |begin: i64, width: i64, height: f64| {
                    if (begin..begin + width).contains(&time) { height } else { 0.0 }
                };
                let pulses =
                    pulse(-116, 40, 12.0) + pulse(-20, 12, 20.0) + pulse(TIMES + 60, 12, 20.0);
                let above = (f64::from(noise(time)) + pulses) * scale;
                20 * channels as i32 + above.round() as i32
            })
            .collect();
        let plan = Plan::new(Options {
            dms: vec![10.0],
            tsamp_s: 1e-3,
            max_width_s: 0.05,
            baseline_s: 1.0,
            snr,
            bound: Some((-1000, 1000)),
        })
        .unwrap();
        let (reach, length) = (plan.max_width(), series.len());
        let mut detector = PartialDetector::new(plan, backend);
        let view = |range: Range<usize>| {
            let data = &series[range.clone()];
            Input::I32(Plane::new(data, 1, data.len(), data.len()).unwrap())
        };
        detector.learn(view(160..160 + TIMES as usize), |_| TIMES as usize).unwrap();
        let mut events = Vec::new();
        let mut start = 0;
        while start < length {
            let stop = (start + block).min(length);
            let end = if stop == length { length } else { (stop + reach).min(length) };
            let starts = first + start as i64..first + stop as i64;
            let input = view(start..end);
            detector.run(input, starts, &coverage, &mut events).unwrap();
            start = stop;
        }
        detector.flush(&coverage, &mut events);
        events
    }

    #[test]
    fn pulses_before_the_start_and_after_the_end_have_the_ratio_of_their_channels() {
        let events = found(&Backend::best(1), 7.0, 5000);
        let expected = [(-116, 40, 12.0, 0.375), (-20, 12, 20.0, 0.875), (960, 12, 20.0, 0.5625)];
        assert_eq!(events.len(), expected.len(), "{events:?}");
        for (event, (time, width, height, band)) in events.iter().zip(expected) {
            let near = (event.time - time).abs() <= 4 && event.width.abs_diff(width) <= width / 4;
            assert!(near && (event.band - band).abs() < 0.1, "{event:?}");
            // The noise has a deviation of 6.5; pulse and noise lack the same channels.
            let expected = height * f64::from(width).sqrt() / 6.5;
            assert!((f64::from(event.snr) / expected - 1.0).abs() < 0.2, "{event:?} {expected}");
        }
    }

    #[test]
    fn the_fast_way_is_the_reference_and_blocks_do_not_matter() {
        let expected = found(&Backend::Reference, 2.0, 5000);
        assert!(
            expected.len() > 2 && expected.iter().any(|event| event.width > 31),
            "{expected:?}"
        );
        for (threads, block) in [(1, 5000), (2, 100), (3, 333)] {
            let backend = match Backend::best(threads) {
                Backend::Cpu(level, threads) => Backend::Cpu(level, threads),
                other => other.on_host(),
            };
            let events = found(&backend, 2.0, block);
            assert_eq!(events.len(), expected.len());
            for (event, expected) in events.iter().zip(&expected) {
                let place = |event: &PartialEvent| (event.time, event.width, event.band);
                assert_eq!(place(event), place(expected));
                assert!((event.snr / expected.snr - 1.0).abs() < 1e-5);
            }
        }
    }
}
