//! Replacement of float samples that are not finite or too large: counted, and filled with their channel's level; and
//! the correction of events in windows with fill, which has no noise.
//!
//! Samples from 2^64 (1.8e19) on are too large. Below it, sums over 2^20 channels, bins of 2^12 times and boxcars of
//! 2^31 bins are less than 2^127, within the range of f32.
//!
//! Invariant: what fills a sample depends on the rows before it alone (of the first rows, on those that the mask sees),
//! never on how rows are read. Without gaps no event is touched.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::voltage::Level;
use crate::dedisperse;
use crate::io::{FilterbankHeader, Gap};
use crate::sample::Encoding;
use crate::single_pulse::{self, Event, PartialEvent};

/// Rows that share a level, computed from the rows before the first of them.
const ANCHOR_ROWS: u64 = 256;

/// Stride through a channel's finite samples; large and odd, so that consecutive picks are not correlated.
const STEP: usize = 7919;

/// Limit on the stored runs of lost rows.
const MAX_RUNS: usize = 1 << 14;

/// Bits of 2^64, the smallest magnitude that is flagged; infinities and NaN compare above it.
const TOO_LARGE: u32 = (64 + 127) << 23;

/// Mask of a float's bits without the sign.
const SIZE: u32 = 0x7fff_ffff;

/// Filler of samples that are not finite, in a stream of float rows.
pub(super) struct Flagged {
    channels: usize,
    /// Rows processed.
    row: u64,
    /// Samples filled.
    count: u64,
    /// Latest rows as recorded.
    latest: Level,
    /// Level of each channel, and the row before which it was computed.
    level: Vec<f32>,
    anchor: u64,
    lost: LostRows,
}

/// Latest runs of rows that are lost, or of which more than half was filled, counted from the first row processed.
#[derive(Clone, Debug, Default)]
pub(super) struct LostRows(Arc<Mutex<VecDeque<Range<u64>>>>);

impl LostRows {
    /// Returns the runs.
    pub(super) fn runs(&self) -> MutexGuard<'_, VecDeque<Range<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds rows after those of the last run.
    pub(super) fn add(&self, rows: Range<u64>) {
        let mut runs = self.runs();
        match runs.back_mut() {
            Some(run) if run.end == rows.start => run.end = rows.end,
            _ => runs.push_back(rows),
        }
        if runs.len() > MAX_RUNS {
            runs.pop_front();
        }
    }
}

impl Flagged {
    /// Builds a filler for float rows, which records lost ones; integer rows need none.
    pub(super) fn new(header: &FilterbankHeader, lost: LostRows) -> Option<Self> {
        let channels = header.channels();
        (header.encoding == Encoding::F32).then(|| Self {
            channels,
            row: 0,
            count: 0,
            latest: Level::with_slack(channels, ANCHOR_ROWS as usize),
            level: vec![0.0; channels],
            anchor: 0,
            lost,
        })
    }

    /// Returns the number of samples filled so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Computes the level for the first rows from the rows at the beginning of the stream.
    pub(super) fn begin(&mut self, rows: &[u8]) {
        let mut level = Level::new(self.channels);
        level.observe_bytes(rows.chunks_exact(4 * self.channels).take(level.samples()), unflagged);
        level.update(0, &mut self.level);
    }

    /// Fills the next rows.
    pub(super) fn fill(&mut self, mut rows: &mut [u8]) {
        let row_bytes = 4 * self.channels;
        if is_clean(rows) {
            let times = rows.len() / row_bytes;
            // Later rows of the same call replace the others before a level is computed.
            let passed = times.saturating_sub(self.latest.capacity());
            self.latest.pass(passed);
            self.latest
                .observe_bytes(rows.chunks_exact(row_bytes).skip(passed), f32::from_le_bytes);
            self.row += times as u64;
            return;
        }
        while !rows.is_empty() {
            let left = (ANCHOR_ROWS - self.row % ANCHOR_ROWS) as usize;
            let (part, rest) = rows.split_at_mut((left * row_bytes).min(rows.len()));
            let is_needed = !is_clean(part);
            if is_needed {
                self.update_level(self.row);
            }
            self.latest.observe_bytes(part.chunks_exact(row_bytes), unflagged);
            for row in part.chunks_exact_mut(row_bytes) {
                if is_needed && !is_clean(row) {
                    let count = fill(row, &self.level);
                    self.count += count;
                    if 2 * count > self.channels as u64 {
                        self.lost.add(self.row..self.row + 1);
                    }
                }
                self.row += 1;
            }
            rows = rest;
        }
    }

    /// Updates the level to that of the rows before the anchor of row `row`.
    fn update_level(&mut self, row: u64) {
        let anchor = row - row % ANCHOR_ROWS;
        if anchor > self.anchor {
            self.latest.update((row - anchor) as usize, &mut self.level);
            self.anchor = anchor;
        }
    }
}

/// Returns which channels have more than the fraction `most` of their samples not finite.
pub(super) fn mostly_flagged(rows: &[u8], channels: usize, most: f64) -> Vec<bool> {
    let times = rows.len() / (4 * channels);
    let mut counts = vec![0u64; channels];
    for row in rows.chunks_exact(4 * channels).filter(|row| !is_clean(row)) {
        for (count, bytes) in counts.iter_mut().zip(row.as_chunks::<4>().0) {
            *count += u64::from(is_flagged(*bytes));
        }
    }
    counts.iter().map(|count| *count as f64 > most * times as f64).collect()
}

/// Returns the rows with samples that are not finite replaced by finite samples of the same channel, so that a
/// channel's statistics are those of its finite samples; `None` if all are finite.
pub(super) fn resampled(rows: &[u8], channels: usize) -> Option<Vec<u8>> {
    if is_clean(rows) {
        return None;
    }
    let mut rows = rows.to_vec();
    let times = rows.len() / (4 * channels);
    let mut good = Vec::with_capacity(times);
    for channel in 0..channels {
        let place = |time: usize| 4 * (time * channels + channel);
        let sample = |rows: &[u8], time: usize| -> [u8; 4] {
            let at = place(time);
            [rows[at], rows[at + 1], rows[at + 2], rows[at + 3]]
        };
        good.clear();
        good.extend((0..times).map(|time| sample(&rows, time)).filter(|bytes| !is_flagged(*bytes)));
        if good.is_empty() || good.len() == times {
            continue;
        }
        let mut next = 0;
        for time in 0..times {
            if is_flagged(sample(&rows, time)) {
                rows[place(time)..place(time) + 4].copy_from_slice(&good[next % good.len()]);
                next += STEP;
            }
        }
    }
    Some(rows)
}

/// Fills a row's samples that are not finite; returns their number.
fn fill(row: &mut [u8], level: &[f32]) -> u64 {
    let mut count = 0;
    for (bytes, level) in row.as_chunks_mut::<4>().0.iter_mut().zip(level) {
        if is_flagged(*bytes) {
            *bytes = level.to_le_bytes();
            count += 1;
        }
    }
    count
}

/// Returns whether a float is not finite or too large.
pub(super) fn is_flagged(bytes: [u8; 4]) -> bool {
    u32::from_le_bytes(bytes) & SIZE >= TOO_LARGE
}

/// Returns a float, or NaN if it is flagged.
fn unflagged(bytes: [u8; 4]) -> f32 {
    if is_flagged(bytes) { f32::NAN } else { f32::from_le_bytes(bytes) }
}

/// Returns whether no float is flagged.
fn is_clean(bytes: &[u8]) -> bool {
    // Whole blocks without branches, so that the compiler vectorizes the loop.
    bytes.chunks(1 << 12).all(|block| {
        let flagged = |any: bool, bytes: &[u8; 4]| any | is_flagged(*bytes);
        !block.as_chunks::<4>().0.iter().fold(false, flagged)
    })
}

/// Number of channels sampled to estimate the filled fraction of a window.
const SAMPLED_CHANNELS: usize = 32;

/// Largest filled fraction of a window; beyond it the noise cannot be estimated.
const MAX_FILLED: f64 = 0.25;

/// Exponent of the clipped standard deviation as a function of the unfilled fraction.
const CLIPPED: f64 = 0.63;

/// Filled rows of a search.
#[derive(Clone, Debug, Default)]
pub(super) struct Filled {
    /// Rows of each gap, counted from the first row searched.
    gaps: Vec<Range<u64>>,
    /// Rows found to be mostly filled when they were read.
    lost: LostRows,
}

impl Filled {
    /// Collects the gaps that extend beyond row `first`, where the search begins, and the rows found lost later.
    pub(super) fn new(gaps: &[Gap], first: u64, lost: LostRows) -> Self {
        let rows = |gap: &Gap| {
            let start = gap.start_time.saturating_sub(first);
            start..(gap.start_time + gap.times).saturating_sub(first)
        };
        let gaps = gaps.iter().map(rows).filter(|rows| !rows.is_empty()).collect();
        Self { gaps, lost }
    }

    /// Lowers the S/N of events whose noise was measured in a window with fill; `samples(dm)` is the number of samples of a
    /// trial that the detector has. Drops events that fall below `least`, and all whose window has more than a quarter of fill.
    ///
    /// For noise of which the fraction `f` is constant, moments give `sqrt(1 - f)` of the standard deviation; with
    /// clipping at 3 standard deviations the result is `(1 - f)^0.63` within one per cent, up to `f` of a quarter.
    pub(super) fn weigh(
        &self,
        plan: &dedisperse::Plan,
        detector: &single_pulse::Plan,
        samples: impl Fn(usize) -> u64,
        least: f64,
        events: &mut Vec<Event>,
    ) {
        if events.is_empty() || (self.gaps.is_empty() && self.lost.runs().is_empty()) {
            return;
        }
        let window_times = detector.window_times() as u64;
        events.retain_mut(|event| {
            let (window, samples) = (event.time / window_times, samples(event.dm as usize));
            let first = single_pulse::noise_window(detector, window, samples) * window_times;
            let measured = first..(first + window_times).min(samples.max(first + 1));
            let filled = self.part(plan, event.dm as usize, measured);
            event.snr *= (1.0 - filled).max(0.0).powf(CLIPPED) as f32;
            filled <= MAX_FILLED && f64::from(event.snr) >= least
        });
    }

    /// Like [`Filled::weigh`], for events of an edge whose noise was measured in the samples of `window`.
    pub(super) fn weigh_partial(
        &self,
        plan: &dedisperse::Plan,
        window: Range<u64>,
        least: f64,
        events: &mut Vec<PartialEvent>,
    ) {
        if events.is_empty() || (self.gaps.is_empty() && self.lost.runs().is_empty()) {
            return;
        }
        events.retain_mut(|event| {
            let filled = self.part(plan, event.dm as usize, window.clone());
            event.snr *= (1.0 - filled).max(0.0).powf(CLIPPED) as f32;
            filled <= MAX_FILLED && f64::from(event.snr) >= least
        });
    }

    /// Returns the rows, of `times` rows from row `first` on, in which no burst of the first trial can be found: windows whose
    /// noise comes from a window that is more than a quarter filled. `gaps`, all of the source, and the result count rows of
    /// the source from its start.
    pub(super) fn unsearched(
        &self,
        gaps: &[Gap],
        first: u64,
        times: u64,
        plan: &dedisperse::Plan,
        detector: &single_pulse::Plan,
    ) -> Vec<Gap> {
        let (bin, window_times) = (plan.downsample() as u64, detector.window_times() as u64);
        let (samples, delay) = (plan.valid_times(times, 0), plan.trial_shift(0) as u64);
        let mut runs = Self::new(gaps, first, LostRows::default()).gaps;
        runs.extend(self.lost.runs().iter().cloned());
        let runs = united(runs);
        let mut windows = BTreeSet::new();
        for run in &runs {
            // The window after the last one that a run reaches may take its noise.
            let begin = (run.start / bin).saturating_sub(delay) / window_times;
            windows.extend(begin..=run.end.min(times) / bin / window_times + 1);
        }
        let is_lost = |index: &u64| {
            let start = single_pulse::noise_window(detector, *index, samples) * window_times;
            let measured = start..(start + window_times).min(samples.max(start + 1));
            let reached = runs.partition_point(|run| run.end <= measured.start * bin);
            let beyond = runs.partition_point(|run| run.start < (measured.end + delay) * bin);
            filled_part(&runs[reached..beyond.max(reached)], plan, 0, measured) > MAX_FILLED
        };
        let mut unsearched: Vec<Gap> = Vec::new();
        let inside = windows.into_iter().filter(|index| index * window_times < samples);
        for index in inside.filter(is_lost) {
            let start_time = first + index * window_times * bin;
            let rows = (samples - index * window_times).min(window_times) * bin;
            match unsearched.last_mut() {
                Some(last) if last.start_time + last.times == start_time => last.times += rows,
                _ => unsearched.push(Gap { start_time, times: rows }),
            }
        }
        unsearched
    }

    /// Returns the filled fraction of a trial's window in output samples.
    fn part(&self, plan: &dedisperse::Plan, dm: usize, window: Range<u64>) -> f64 {
        let lost = self.lost.runs();
        filled_part(self.gaps.iter().chain(lost.iter()), plan, dm, window)
    }
}

/// Returns the fraction of a trial's window, in output samples, that runs of rows fill; no row is in two of them.
fn filled_part<'a>(
    runs: impl IntoIterator<Item = &'a Range<u64>, IntoIter: Clone>,
    plan: &dedisperse::Plan,
    dm: usize,
    window: Range<u64>,
) -> f64 {
    let runs = runs.into_iter();
    let channels = plan.channels_used();
    let step = channels.len().div_ceil(SAMPLED_CHANNELS);
    let bin = plan.downsample() as u64;
    let filled = |channel: usize| {
        let start = (window.start + plan.shift(dm, channel) as u64) * bin;
        let end = start + (window.end - window.start) * bin;
        let overlap = |run: &Range<u64>| run.end.min(end).saturating_sub(run.start.max(start));
        runs.clone().map(overlap).sum::<u64>()
    };
    let looked = channels.iter().step_by(step);
    let count = looked.len() as u64 * (window.end - window.start) * bin;
    looked.map(|channel| filled(*channel)).sum::<u64>() as f64 / count as f64
}

/// Sorts runs and joins those that overlap or follow each other.
fn united(mut runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    runs.sort_by_key(|run| run.start);
    let mut united: Vec<Range<u64>> = Vec::new();
    for run in runs {
        match united.last_mut() {
            Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
            _ => united.push(run),
        }
    }
    united
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Band, DM_CONSTANT};

    const CHANNELS: usize = 3;

    fn flagged() -> Flagged {
        let band = Band::uniform(1500e6, -1e6, CHANNELS).expect("a band");
        let header = FilterbankHeader {
            path: "x".into(),
            format: "test",
            source_name: String::new(),
            telescope: String::new(),
            ra_deg: None,
            dec_deg: None,
            beam: None,
            tstart_mjd: 0.0,
            tsamp_s: 1e-3,
            band,
            encoding: Encoding::F32,
            recorded_bits: 32,
            recorded_polarizations: 1,
            times: None,
        };
        Flagged::new(&header, LostRows::default()).expect("floats")
    }

    /// Rows about 10, 20 and 30, with 1 of 50 samples not finite, and the last channel lost from row 3000 on.
    fn rows(times: usize) -> Vec<f32> {
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        let sample = |place: usize| {
            let channel = place % CHANNELS;
            let row = place / CHANNELS;
            let is_lost = (channel == 2 && row >= 3000) || (4000..4300).contains(&row);
            match random() {
                x if x < 0.01 || is_lost => f32::NAN,
                x if x < 0.02 => f32::INFINITY,
                x => 10.0 * (channel + 1) as f32 + x - 0.5,
            }
        };
        (0..times * CHANNELS).map(sample).collect()
    }

    fn filled_rows(rows: &[f32], gulp: usize) -> (Vec<f32>, u64) {
        let mut bytes: Vec<u8> = rows.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut flagged = flagged();
        flagged.begin(&bytes[..4 * CHANNELS * 2000]);
        bytes.chunks_mut(4 * CHANNELS * gulp).for_each(|rows| flagged.fill(rows));
        let floats = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let holds = |run: &Range<u64>| run.start <= 4000 && run.end >= 4300;
        assert!(flagged.lost.runs().iter().any(holds));
        (floats.collect(), flagged.count())
    }

    #[test]
    fn flagged_samples_take_their_channels_level_for_any_gulp() {
        let rows = rows(9000);
        let (whole, count) = filled_rows(&rows, 9000);
        assert_eq!(count, rows.iter().filter(|x| !x.is_finite()).count() as u64);
        for (place, (own, was)) in whole.iter().zip(&rows).enumerate() {
            let level = 10.0 * (place % CHANNELS + 1) as f32;
            let near = if was.is_finite() { own == was } else { (own - level).abs() < 0.1 };
            assert!(near, "{own} for {was} at {place}");
        }
        for gulp in [1, 100, 256, 1000, 3001] {
            assert_eq!(filled_rows(&rows, gulp), (whole.clone(), count), "gulps of {gulp}");
        }
    }

    #[test]
    fn channels_are_judged_by_their_finite_samples() {
        let mut rows = rows(1000);
        rows.iter_mut().skip(1).step_by(CHANNELS).take(600).for_each(|x| *x = f32::NAN);
        let bytes: Vec<u8> = rows.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(mostly_flagged(&bytes, CHANNELS, 0.5), [false, true, false]);
        assert_eq!(mostly_flagged(&bytes, CHANNELS, 0.9), [false; 3]);
        let noisy = resampled(&bytes, CHANNELS).expect("some are not finite");
        assert!(is_clean(&noisy));
        let second = noisy.as_chunks::<4>().0.iter().skip(1).step_by(CHANNELS);
        let values: Vec<f32> = second.map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let mean = values.iter().sum::<f32>() / 1000.0;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 1000.0;
        assert!((variance - 1.0 / 12.0).abs() < 0.01, "{variance}");
    }

    fn detector() -> single_pulse::Plan {
        single_pulse::Plan::new(single_pulse::Options {
            dms: vec![0.0],
            tsamp_s: 1e-3,
            max_width_s: 2e-3,
            baseline_s: 1.024,
            snr: 6.0,
            bound: None,
        })
        .unwrap()
    }

    fn one_trial(dm: f64, downsample: usize) -> dedisperse::Plan {
        dedisperse::Plan::new(dedisperse::Options {
            band: Band::uniform(1500.0, -1.0, 8).unwrap(),
            tsamp_s: 1e-3,
            dms: vec![dm],
            downsample,
            encoding: Encoding::U8,
            range: None,
            masked: Vec::new(),
            dm_constant: DM_CONSTANT,
        })
        .unwrap()
    }

    #[test]
    fn windows_whose_noise_is_measured_in_fill_are_not_searched() {
        let gap = |start_time, times| Gap { start_time, times };
        // Windows of 2048 rows from row 50 on; the last has 800 rows and takes the noise of the one before.
        let (plan, detector) = (one_trial(0.0, 2), detector());
        assert_eq!(detector.window_times(), 1024);
        let times = 4 * 2048 + 800;
        let none = Filled::default();
        let unsearched = |gaps: &[Gap]| none.unsearched(gaps, 50, times, &plan, &detector);
        assert_eq!(unsearched(&[]), []);
        assert_eq!(unsearched(&[gap(0, 50 + 512), gap(50 + 4 * 2048, 800)]), []);
        assert_eq!(unsearched(&[gap(0, 50 + 513)]), [gap(50, 2048)]);
        assert_eq!(unsearched(&[gap(60, 500), gap(2000, 800)]), [gap(50, 2 * 2048)]);
        assert_eq!(unsearched(&[gap(6400, 1600)]), [gap(50 + 3 * 2048, 2048 + 800)]);
        // Rows that are both in a gap and found lost count once.
        let lost = LostRows::default();
        lost.add(0..400);
        let filled = Filled::new(&[], 50, lost);
        assert_eq!(filled.unsearched(&[gap(50, 400)], 50, times, &plan, &detector), []);
        assert_eq!(
            filled.unsearched(&[gap(650, 200)], 50, times, &plan, &detector),
            [gap(50, 2048)]
        );
        // A trial of long delay reads a gap of late rows early.
        let late = one_trial(2e6, 2);
        let delay = late.trial_shift(0) as u64 * 2;
        assert!((34_000..36_000).contains(&delay), "{delay}");
        let rows = none.unsearched(&[gap(3 * 2048, 36_000)], 0, delay + 8192, &late, &detector);
        assert_eq!(rows, [gap(0, 8192)]);
    }

    #[test]
    fn events_take_the_fill_of_the_window_in_which_their_noise_is_measured() {
        let plan = one_trial(0.0, 1);
        // Half of the first window is filled; the second one is short at first.
        let filled = Filled::new(&[Gap { start_time: 0, times: 512 }], 0, LostRows::default());
        let left = |time: u64, samples: u64| {
            let mut events = vec![Event { dm: 0, time, width: 1, snr: 20.0 }];
            filled.weigh(&plan, &detector(), |_| samples, 6.0, &mut events);
            events.len()
        };
        assert_eq!((left(800, 1024), left(1100, 1024 + 511), left(1100, 1024 + 512)), (0, 0, 1));
        // A gap of 160 samples is a quarter of the first 640, and less of more.
        let filled = Filled::new(&[Gap { start_time: 0, times: 160 }], 0, LostRows::default());
        let left = |samples: u64| {
            let mut events = vec![Event { dm: 0, time: 100, width: 1, snr: 20.0 }];
            filled.weigh(&plan, &detector(), |_| samples, 6.0, &mut events);
            events.len()
        };
        assert_eq!((left(639), left(640), left(1024)), (0, 1, 1));
    }

    #[test]
    fn the_part_follows_the_gap_through_the_band() {
        let plan = dedisperse::Plan::new(dedisperse::Options {
            band: Band::uniform(1500.0, -1.0, 8).unwrap(),
            tsamp_s: 1e-3,
            dms: vec![0.0, 5000.0],
            downsample: 2,
            encoding: Encoding::U8,
            range: None,
            masked: Vec::new(),
            dm_constant: DM_CONSTANT,
        })
        .unwrap();
        let filled = Filled::new(&[Gap { start_time: 150, times: 100 }], 50, LostRows::default());
        // Rows 100 to 200 are output samples 50 to 100.
        assert_eq!(filled.part(&plan, 0, 0..100), 0.5);
        assert_eq!(filled.part(&plan, 0, 100..200), 0.0);
        let delayed = filled.part(&plan, 1, 0..100);
        assert!(delayed > 0.5 - 0.5 * 50.0 / 100.0 && delayed < 0.5 + 0.5, "{delayed}");
        assert_eq!(
            Filled::new(&[Gap { start_time: 0, times: 40 }], 50, LostRows::default()).gaps,
            []
        );
    }
}
