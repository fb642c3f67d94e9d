//! Decision rules shared by all backends: noise from moments, thresholds, events from hits, and the state of a search at a
//! window boundary.
//!
//! Invariant: given equal moments and equal sums, every backend finds equal events; a detector put into a state finds in later
//! samples what the one that it was taken from finds.

use super::plan::Plan;
use crate::error::{Error, Result};
use crate::math::{median_and_sigma, untruncated_sigma};
use crate::state::GREATEST;

/// Largest number of samples for the first guess of a window's noise.
pub(super) const GUESS: usize = 512;

/// Fewest samples with statistics of their own.
pub(super) const FEWEST: usize = 32;

/// Clip of the moments, in deviations from the mean.
const CLIP: f64 = 3.0;

/// Largest number of clipping passes; clean noise takes two.
const PASSES: usize = 8;

/// Hits that start within this many samples after the best one's end belong to its event, even if it is narrow.
const MIN_GAP: u64 = 3;

/// S/N that noise, searched over many boxcars, can add to a hit within another.
const INNER_NOISE: f64 = 4.0;

/// Boxcar above the threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// Index of the trial.
    pub dm: u32,
    /// First sample of the boxcar, counted from the start of the stream.
    pub time: u64,
    /// Width of the boxcar in samples.
    pub width: u32,
    /// Signal-to-noise ratio.
    pub snr: f32,
}

/// Mean and standard deviation of the noise in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Noise {
    pub(super) mean: f64,
    pub(super) sigma: f64,
}

/// Clip of the samples: those within `limit` of `centre` count; both are integers for integer series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clip {
    pub(super) centre: f64,
    pub(super) limit: f64,
}

/// Count, sum and sum of squares, relative to the centre, of the samples within a clip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moments {
    pub(super) count: f64,
    pub(super) sum: f64,
    pub(super) squares: f64,
}

/// Source of the statistics of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statistics {
    Own,
    Preceding,
    None,
}

/// Chooses a window's statistics: at least half full, or the first one with 32 samples, it has its own.
pub(super) fn statistics(plan: &Plan, window: u64, samples: usize) -> Statistics {
    match (window, samples) {
        (0, FEWEST..) => Statistics::Own,
        (0, _) => Statistics::None,
        (_, n) if 2 * n >= plan.window_times() => Statistics::Own,
        _ => Statistics::Preceding,
    }
}

/// Returns the window in which the noise of a window's samples is measured, in a series of `samples` samples: their own or,
/// at the end of a series, the one before.
pub(crate) fn noise_window(plan: &Plan, window: u64, samples: u64) -> u64 {
    let length = plan.window_times() as u64;
    let own = samples.saturating_sub(window * length).min(length);
    match statistics(plan, window, own as usize) {
        Statistics::Preceding => window - 1,
        Statistics::Own | Statistics::None => window,
    }
}

/// Returns the indices of the samples for the first guess, spread over the window without a fixed period.
pub(super) fn guess_indices(samples: usize) -> impl Iterator<Item = usize> {
    let count = (samples / 32).clamp(GUESS / 8, GUESS).min(samples);
    let step = samples / count.max(1);
    (0..count).map(move |i| i * step + (i * 37) % step)
}

/// Estimates the noise by iteratively clipped moments, corrected for the clipping of a Gaussian.
///
/// `guess` holds some of the window's samples and is reordered; `moments` covers all of them.
pub(super) fn noise(
    guess: &mut [f64],
    integer: bool,
    mut moments: impl FnMut(Clip) -> Moments,
) -> Noise {
    let Some((mean, sigma)) = median_and_sigma(guess) else { return Noise::default() };
    let mut noise = Noise { mean, sigma };
    if sigma == 0.0 {
        let all = Clip { centre: mean.round(), limit: f64::INFINITY };
        noise = refine(all, f64::INFINITY, moments(all));
    }
    for pass in 0..PASSES {
        if noise.sigma == 0.0 {
            break;
        }
        let (clip, edge) = clip(noise, integer);
        let last = std::mem::replace(&mut noise, refine(clip, edge, moments(clip)));
        let moved = (noise.mean - last.mean).abs() > 0.02 * last.sigma;
        let changed = (noise.sigma - last.sigma).abs() > 0.01 * last.sigma;
        if pass > 0 && !moved && !changed {
            break;
        }
    }
    noise
}

/// Returns the clip around an estimate, and the edge at which it truncates the Gaussian: half a count beyond for
/// integers.
fn clip(noise: Noise, integer: bool) -> (Clip, f64) {
    let limit = CLIP * noise.sigma;
    if integer {
        let clip = Clip { centre: noise.mean.round(), limit: limit.round() };
        (clip, clip.limit + 0.5)
    } else {
        (Clip { centre: noise.mean, limit }, limit)
    }
}

fn refine(clip: Clip, edge: f64, moments: Moments) -> Noise {
    if moments.count == 0.0 {
        return Noise { mean: clip.centre, sigma: 0.0 };
    }
    let shift = moments.sum / moments.count;
    let square = moments.squares / moments.count;
    let variance = square - shift * shift;
    // The variance of equal samples is rounding error.
    let variance = if variance > 1e-9 * square { variance } else { 0.0 };
    Noise { mean: clip.centre + shift, sigma: untruncated_sigma(variance, edge) }
}

/// Estimates the noise of a window with plain loops. Sums of integers below 2^53 are exact; their squares are summed in
/// 128 bits.
pub(super) fn window_noise(plan: &Plan, window: &[f64]) -> Noise {
    let mut guess: Vec<f64> =
        guess_indices(window.len()).map(|i| window[i]).filter(|y| y.is_finite()).collect();
    let integer = plan.input_is_integer();
    let moments = if integer { exact_moments } else { float_moments };
    noise(&mut guess, integer, |clip| moments(window, clip))
}

fn exact_moments(window: &[f64], clip: Clip) -> Moments {
    let (mut count, mut sum, mut squares) = (0u64, 0i128, 0i128);
    for difference in window.iter().map(|y| y - clip.centre).filter(|d| d.abs() <= clip.limit) {
        count += 1;
        sum += difference as i128;
        squares += (difference as i128) * (difference as i128);
    }
    Moments { count: count as f64, sum: sum as f64, squares: squares as f64 }
}

fn float_moments(window: &[f64], clip: Clip) -> Moments {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    let within = |d: &f64| d.is_finite() && d.abs() <= clip.limit;
    for difference in window.iter().map(|y| y - clip.centre).filter(within) {
        count += 1.0;
        sum += difference;
        squares += difference * difference;
    }
    Moments { count, sum, squares }
}

/// Threshold of a boxcar's sum in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Threshold {
    /// Expected sum of the noise.
    expected: f64,
    /// Standard deviation of the sum.
    deviation: f64,
    /// Least sum of a hit, rounded up for integers.
    pub(super) least: f64,
}

impl Threshold {
    pub(super) fn new(plan: &Plan, noise: Noise, width: usize) -> Self {
        let expected = width as f64 * noise.mean;
        let deviation = noise.sigma * (width as f64).sqrt();
        let least = expected + plan.options().snr * deviation;
        let least = if plan.input_is_integer() { least.ceil() } else { least };
        Self { expected, deviation, least }
    }

    pub(super) fn snr(&self, sum: f64) -> f64 {
        (sum - self.expected) / self.deviation
    }
}

/// Boxcar at or above its threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hit {
    pub(super) time: u64,
    pub(super) width: u64,
    pub(super) snr: f64,
}

/// Groups the best hit of each start, in time order, into events.
///
/// A hit belongs to an event if it starts within the best hit's boxcar or at most its width (at least 3 samples)
/// after it. Boxcars that start after a pulse do not contain it, so this separates two pulses even if wide boxcars
/// hold both. A narrower hit that is stronger than the best boxcar explains is an event of its own: a pulse within
/// the wide wing of another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sweep {
    pub(super) best: Option<Hit>,
    /// Strongest hit of the event that the best one does not explain.
    pub(super) inner: Option<Hit>,
}

impl Sweep {
    /// Adds the best hit of a start; returns the events that it ends.
    pub(super) fn offer(&mut self, hit: Hit) -> impl Iterator<Item = Hit> + use<> {
        let mut ended = Self::default();
        match &mut self.best {
            Some(best) if hit.time <= best.reach() => {
                let other = if hit.snr > best.snr { std::mem::replace(best, hit) } else { hit };
                let known = self.inner.filter(|inner| !best.explains(inner));
                let other = Some(other).filter(|other| !best.explains(other));
                self.inner = match (known, other) {
                    (Some(known), Some(other)) if known.snr >= other.snr => Some(known),
                    (known, other) => other.or(known),
                };
            }
            _ => ended = std::mem::replace(self, Self { best: Some(hit), inner: None }),
        }
        ended.end()
    }

    /// Returns the events that end because every later hit starts at `next` or after.
    pub(super) fn settle(&mut self, next: u64) -> impl Iterator<Item = Hit> + use<> {
        let is_ended = self.best.is_some_and(|best| best.reach() < next);
        let mut ended = if is_ended { std::mem::take(self) } else { Self::default() };
        ended.end()
    }

    /// Returns the earliest start that an event can still have if later hits start at `next` or after.
    pub(super) fn frontier(&self, next: u64) -> u64 {
        self.best.iter().chain(&self.inner).map(|hit| hit.time).fold(next, u64::min)
    }

    /// Returns the events that end with the stream.
    pub(super) fn end(&mut self) -> impl Iterator<Item = Hit> + use<> {
        let Self { best, inner } = std::mem::take(self);
        best.into_iter().chain(inner)
    }
}

impl Hit {
    /// Returns whether a hit within this one is no stronger than `sqrt(3 w / W) S + 4`: the peak of an exponential
    /// pulse, and noise. Compares products only, so that every backend decides alike.
    fn explains(&self, inner: &Self) -> bool {
        let above = (inner.snr - INNER_NOISE).max(0.0);
        above * above * self.width as f64 <= 3.0 * self.snr * self.snr * inner.width as f64
    }

    /// Returns the last sample at which a hit of the same event can start.
    fn reach(&self) -> u64 {
        self.time + self.width + self.width.max(MIN_GAP)
    }

    pub(super) fn event(self, dm: usize) -> Event {
        Event { dm: dm as u32, time: self.time, width: self.width as u32, snr: self.snr as f32 }
    }
}

/// 64-bit words of a trial in [`Carried`].
const TRIAL: usize = 8;

/// State of a [`super::Detector`] at the start of its current window, with all earlier windows searched.
#[derive(Clone, Debug, PartialEq)]
pub struct Carried {
    /// Index of the window.
    pub window: u64,
    pub(super) trials: Vec<CarriedTrial>,
}

/// State of one trial at a window boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CarriedTrial {
    /// Noise of the last window that had its own.
    pub(super) noise: Noise,
    /// Open event, which later hits may still join.
    pub(super) sweep: Sweep,
}

impl Carried {
    /// Returns the empty state at the start of a stream.
    pub(super) fn nothing(dms: usize) -> Self {
        Self { window: 0, trials: vec![CarriedTrial::default(); dms] }
    }

    /// Returns the state as 64-bit words.
    pub fn words(&self) -> Vec<u64> {
        let trial = |trial: &CarriedTrial| {
            let Noise { mean, sigma } = trial.noise;
            let hit = |hit: Option<Hit>| {
                let hit = hit.unwrap_or(Hit { time: 0, width: 0, snr: 0.0 });
                [hit.time, hit.width, hit.snr.to_bits()]
            };
            let (best, inner) = (hit(trial.sweep.best), hit(trial.sweep.inner));
            [[mean.to_bits(), sigma.to_bits()].as_slice(), &best, &inner].concat()
        };
        std::iter::once(self.window).chain(self.trials.iter().flat_map(trial)).collect()
    }

    /// Creates a state from its words.
    ///
    /// # Errors
    /// [`Error::Parameter`] for another number of trials.
    pub fn from_words(words: &[u64], dms: usize) -> Result<Self> {
        let (Some(window), true) = (words.first(), words.len() == 1 + TRIAL * dms) else {
            let rule = format!("{dms} trials take {}", 1 + TRIAL * dms);
            return Err(Error::parameter("words of the search's state", words.len(), rule));
        };
        let trial = |words: &[u64]| {
            let hit = |words: &[u64]| {
                let hit = Hit { time: words[0], width: words[1], snr: f64::from_bits(words[2]) };
                (hit.width > 0).then_some(hit)
            };
            let sweep = Sweep { best: hit(&words[2..5]), inner: hit(&words[5..8]) };
            let [mean, sigma] = [words[0], words[1]].map(f64::from_bits);
            CarriedTrial { noise: Noise { mean, sigma }, sweep }
        };
        Ok(Self { window: *window, trials: words[1..].chunks_exact(TRIAL).map(trial).collect() })
    }

    /// Returns an error for values that no search of this plan produces, so that none overflows.
    pub(super) fn check(&self, plan: &Plan) -> Result<()> {
        let start = self.window.checked_mul(plan.window_times() as u64);
        let Some(start) = start.filter(|start| *start < GREATEST) else {
            let rule = "it is damaged: no recording has that many";
            return Err(Error::parameter("window of the search's state", self.window, rule));
        };
        for hit in self.trials.iter().filter_map(|trial| trial.sweep.best) {
            if hit.time >= start {
                let rule = format!("samples before {start} alone were searched");
                return Err(Error::parameter("event in the search's state", hit.time, rule));
            }
            if hit.width > plan.max_width() as u64 {
                let rule = format!("the widest boxcar has {} samples", plan.max_width());
                return Err(Error::parameter("width in the search's state", hit.width, rule));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_pulse_within_a_wide_wing_is_an_event_of_its_own() {
        let hits = |narrow: f64| {
            let wide = |time: u64, snr: f64| Hit { time, width: 256, snr };
            vec![
                wide(96, 27.0),
                wide(112, 27.5),
                Hit { time: 200, width: 28, snr: narrow },
                wide(208, 20.0),
            ]
        };
        let events = |hits: Vec<Hit>| {
            let mut sweep = Sweep::default();
            let mut events: Vec<Hit> = hits.into_iter().flat_map(|hit| sweep.offer(hit)).collect();
            assert_eq!(sweep.frontier(1000), 112);
            events.extend(sweep.end());
            events.iter().map(|hit| (hit.time, hit.width)).collect::<Vec<_>>()
        };
        assert_eq!(events(hits(25.0)), [(112, 256), (200, 28)]);
        // sqrt(3 * 28 / 256) 27.5 + 4 is 19.8.
        assert_eq!(events(hits(19.5)), [(112, 256)]);
        // In either order.
        let mut faint_first = hits(0.0);
        faint_first.insert(0, Hit { time: 70, width: 28, snr: 25.0 });
        let mut sweep = Sweep::default();
        faint_first.into_iter().for_each(|hit| assert_eq!(sweep.offer(hit).count(), 0));
        assert_eq!((sweep.frontier(1000), sweep.settle(1000).count()), (70, 2));
    }
}
