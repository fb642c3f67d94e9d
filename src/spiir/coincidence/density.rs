//! Likelihood ratio of single triggers, signal over noise, from histograms of the triggers of one detector and mass bin.
//!
//! Invariant: the ratio never falls with the signal-to-noise ratio, and never rises with xi-squared above 1.

use super::TimedTrigger;
use crate::error::Result;
use crate::state::{Saved, Saving};

/// Bins of the signal-to-noise ratio: equal steps of its logarithm from the threshold on. The last one is open.
pub(super) const SNR_BINS: usize = 500;
const SNR_STEP: f64 = 0.01;

/// Rows of the distribution of xi-squared, each of this many bins of the signal-to-noise ratio. The last one is open.
const ROWS: usize = 12;
const ROW_BINS: usize = 10;

/// Bins of xi-squared: equal steps of its logarithm. The first and the last are open.
pub(super) const XI_BINS: usize = 92;
const XI_STEP: f64 = 0.1;
const XI_LEAST: f64 = 0.05;

/// Loudest triggers that give the slope of the tail, and triggers over which the distribution below it is smoothed.
const TAIL_TRIGGERS: f64 = 30.0;
const SMOOTHED_TRIGGERS: f64 = 30.0;
/// Widest smoothing, in bins to each side.
const SMOOTHED_BINS: usize = 10;

/// Steepest tail: exponent of the power of the signal-to-noise ratio.
const STEEPEST: f64 = 300.0;

/// Weight in triggers of the next lower row's distribution of xi-squared, and of a uniform one over its logarithm.
const ROW_WEIGHT: f64 = 10.0;
const UNIFORM_WEIGHT: f64 = 1.0;

/// Half-width in bins of the Gaussian kernel that smooths xi-squared, whose standard deviation is a bin.
const KERNEL_BINS: usize = 3;

/// Loss of power to template mismatch, as a fraction of the squared signal-to-noise ratio per degree of freedom: bounds of a
/// distribution that is uniform in its logarithm, and the points at which it is sampled.
const MISMATCHES: (f64, f64) = (1e-4, 1e-2);
const MISMATCH_POINTS: usize = 9;

/// Effective degrees of freedom of xi-squared: its standard deviation is 0.41 for 201 samples of autocorrelation.
const XI_FREEDOM: f64 = 12.0;

/// Bounds of the logarithm of the likelihood ratio.
const LOG_RATIOS: (f64, f64) = (-50.0, 300.0);

/// Step of the distributions of log likelihood ratios.
const RATIO_STEP: f64 = 0.2;

/// Cell of the plane of signal-to-noise ratio and xi-squared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    snr: usize,
    xi: usize,
}

/// Returns the lower edge of a bin of the signal-to-noise ratio, in units of the threshold.
fn snr_edge(bin: usize) -> f64 {
    (bin as f64 * SNR_STEP).exp()
}

fn xi_middle(bin: usize) -> f64 {
    XI_LEAST * ((bin as f64 + 0.5) * XI_STEP).exp()
}

fn row_of(snr_bin: usize) -> usize {
    (snr_bin / ROW_BINS).min(ROWS - 1)
}

/// Number of triggers by signal-to-noise ratio and xi-squared; old ones count less.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    threshold: f64,
    snr: Vec<f64>,
    /// Axes row, xi-squared.
    xi: Vec<f64>,
}

impl Histogram {
    pub(super) fn new(threshold: f32) -> Self {
        Self {
            threshold: threshold.into(),
            snr: vec![0.0; SNR_BINS],
            xi: vec![0.0; ROWS * XI_BINS],
        }
    }

    fn cell(&self, trigger: &TimedTrigger) -> Cell {
        let place = |value: f64, step: f64, bins: usize| {
            // An infinite value belongs to the last bin, 0 to the first.
            ((value.ln() / step).max(0.0) as usize).min(bins - 1)
        };
        Cell {
            snr: place(f64::from(trigger.snr) / self.threshold, SNR_STEP, SNR_BINS),
            xi: place(f64::from(trigger.xi2) / XI_LEAST, XI_STEP, XI_BINS),
        }
    }

    pub(super) fn add(&mut self, trigger: &TimedTrigger) {
        let cell = self.cell(trigger);
        self.snr[cell.snr] += 1.0;
        self.xi[row_of(cell.snr) * XI_BINS + cell.xi] += 1.0;
    }

    /// Multiplies all counts.
    pub(super) fn scale(&mut self, factor: f64) {
        self.snr.iter_mut().chain(&mut self.xi).for_each(|count| *count *= factor);
    }

    /// Returns the number of triggers.
    pub(super) fn total(&self) -> f64 {
        self.snr.iter().sum()
    }

    pub(super) fn save(&self, to: &mut Saving) {
        to.f64s(self.snr.iter());
        to.f64s(self.xi.iter());
    }

    pub(super) fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        for (what, counts) in [("S/N", &mut self.snr), ("xi-squared", &mut self.xi)] {
            from.fill_f64(counts)?;
            if let Some(bad) = counts.iter().find(|count| !(count.is_finite() && **count >= 0.0)) {
                let why = format!("{bad} found, expected 0 or more");
                return Err(from.fault(&format!("count of triggers by {what}"), why));
            }
        }
        Ok(())
    }

    /// Returns the probability of each bin of the signal-to-noise ratio. Below the loudest [`TAIL_TRIGGERS`] it is smoothed over
    /// neighbouring bins with [`SMOOTHED_TRIGGERS`]; above it falls as a power, of greatest likelihood for them.
    ///
    /// # Source
    /// Hill 1975, Ann. Statist. 3, 1163, for the power.
    fn snr_probabilities(&self) -> Vec<f64> {
        let (mut tail, mut first) = (0.0, SNR_BINS);
        while first > 0 && tail < TAIL_TRIGGERS {
            first -= 1;
            tail += self.snr[first];
        }
        let excess = |bin: usize| (bin as f64 + 0.5 - first as f64) * SNR_STEP;
        let sum: f64 = (first..SNR_BINS).map(|bin| self.snr[bin] * excess(bin)).sum();
        let power = (tail / sum).min(STEEPEST);
        let above = |bin: usize| (-power * (bin - first) as f64 * SNR_STEP).exp();
        let weight = |bin: usize| match bin {
            bin if bin < first => self.smoothed(bin),
            bin if bin + 1 == SNR_BINS => tail * above(bin),
            bin => tail * (above(bin) - above(bin + 1)),
        };
        let mut probabilities: Vec<f64> = (0..SNR_BINS).map(weight).collect();
        normalize(&mut probabilities);
        probabilities
    }

    /// Returns the mean count of the fewest bins around one that have enough triggers.
    fn smoothed(&self, bin: usize) -> f64 {
        let (mut begin, mut end, mut sum) = (bin, bin + 1, self.snr[bin]);
        for _ in 0..SMOOTHED_BINS.min(bin).min(SNR_BINS - 1 - bin) {
            if sum >= SMOOTHED_TRIGGERS {
                break;
            }
            (begin, end) = (begin - 1, end + 1);
            sum += self.snr[begin] + self.snr[end - 1];
        }
        sum.max(f64::MIN_POSITIVE) / (end - begin) as f64
    }

    /// Returns the probability of each bin of xi-squared in each row.
    fn xi_probabilities(&self) -> Vec<f64> {
        let kernel = |distance: usize| (-0.5 * (distance as f64).powi(2)).exp();
        let whole = kernel(0) + 2.0 * (1..=KERNEL_BINS).map(kernel).sum::<f64>();
        let mut rows = vec![0.0; ROWS * XI_BINS];
        for row in 0..ROWS {
            let counts = &self.xi[row * XI_BINS..(row + 1) * XI_BINS];
            let mut own = vec![UNIFORM_WEIGHT / XI_BINS as f64; XI_BINS];
            for (bin, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
                let near = bin.saturating_sub(KERNEL_BINS)..=(bin + KERNEL_BINS).min(XI_BINS - 1);
                for other in near {
                    own[other] += count * kernel(bin.abs_diff(other)) / whole;
                }
            }
            if row > 0 {
                let below = &rows[(row - 1) * XI_BINS..row * XI_BINS];
                own.iter_mut().zip(below).for_each(|(own, below)| *own += ROW_WEIGHT * below);
            }
            normalize(&mut own);
            rows[row * XI_BINS..(row + 1) * XI_BINS].copy_from_slice(&own);
        }
        rows
    }
}

fn normalize(weights: &mut [f64]) {
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
}

/// Distribution of the triggers of signals: `3 threshold^3 / snr^4`, and xi-squared as in Gaussian noise plus the squared
/// signal-to-noise ratio times a mismatch.
///
/// Axes signal-to-noise ratio, xi-squared; each is the probability of a cell.
#[derive(Clone, Debug)]
pub(super) struct Signal(Vec<f64>);

impl Signal {
    pub(super) fn new(threshold: f32) -> Self {
        let mut all = Vec::with_capacity(SNR_BINS * XI_BINS);
        let (least, most) = MISMATCHES;
        for bin in 0..SNR_BINS {
            let snr = f64::from(threshold) * (snr_edge(bin) * snr_edge(bin + 1)).sqrt();
            let above = |bin: usize| if bin < SNR_BINS { snr_edge(bin).powi(-3) } else { 0.0 };
            let probability = above(bin) - above(bin + 1);
            let mut row = vec![0.0; XI_BINS];
            for point in 0..MISMATCH_POINTS {
                let part = point as f64 / (MISMATCH_POINTS - 1) as f64;
                let excess = snr * snr * least * (most / least).powf(part);
                // The mean and variance of a non-central chi-squared per degree of freedom, as a gamma distribution.
                let (mean, variance) = (1.0 + excess, 2.0 * (1.0 + 2.0 * excess) / XI_FREEDOM);
                let log = |xi: usize| {
                    let ratio = xi_middle(xi) / mean;
                    mean * mean / variance * (ratio.ln() - ratio + 1.0)
                };
                let mut own: Vec<f64> = (0..XI_BINS).map(|xi| log(xi).exp()).collect();
                normalize(&mut own);
                row.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
            }
            let scale = probability / MISMATCH_POINTS as f64;
            all.extend(row.into_iter().map(|own| own * scale));
        }
        Self(all)
    }
}

/// Log likelihood ratio of the triggers of one detector and mass bin, and its distribution in noise.
#[derive(Clone, Debug)]
pub(super) struct Likelihood {
    /// Axes signal-to-noise ratio, xi-squared.
    ratios: Vec<f32>,
    pub(super) noise: Distribution,
}

impl Likelihood {
    /// Compares a histogram of noise with signals.
    pub(super) fn new(histogram: &Histogram, signal: &Signal) -> Self {
        let (snr, xi) = (histogram.snr_probabilities(), histogram.xi_probabilities());
        let noise = |cell: usize| {
            let (bin, own) = (cell / XI_BINS, cell % XI_BINS);
            snr[bin] * xi[row_of(bin) * XI_BINS + own]
        };
        let log = |cell: usize| {
            let ratio = signal.0[cell].ln() - noise(cell).max(f64::MIN_POSITIVE).ln();
            ratio.clamp(LOG_RATIOS.0, LOG_RATIOS.1)
        };
        let mut ratios: Vec<f64> = (0..SNR_BINS * XI_BINS).map(log).collect();
        for bin in 0..SNR_BINS {
            for xi in 1..XI_BINS {
                let (cell, before) = (bin * XI_BINS + xi, bin * XI_BINS + xi - 1);
                if xi_middle(xi) > 1.0 {
                    ratios[cell] = ratios[cell].min(ratios[before]);
                }
            }
        }
        for cell in XI_BINS..ratios.len() {
            ratios[cell] = ratios[cell].max(ratios[cell - XI_BINS]);
        }
        let cells = ratios.iter().enumerate().map(|(cell, ratio)| (*ratio, noise(cell)));
        let noise = Distribution::new(cells);
        Self { ratios: ratios.into_iter().map(|ratio| ratio as f32).collect(), noise }
    }

    /// Returns the log likelihood ratio of a trigger of this histogram's threshold.
    pub(super) fn log_ratio(&self, histogram: &Histogram, trigger: &TimedTrigger) -> f64 {
        let Cell { snr, xi } = histogram.cell(trigger);
        self.ratios[snr * XI_BINS + xi].into()
    }
}

/// Distribution of a log likelihood ratio on a grid.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Distribution {
    /// Number of the first point of the grid; point 0 is at a ratio of 0.
    first: i64,
    probabilities: Vec<f64>,
}

impl Distribution {
    /// Collects values with their probabilities; each is divided between two points so that the mean is kept.
    fn new(values: impl Iterator<Item = (f64, f64)>) -> Self {
        let first = (LOG_RATIOS.0 / RATIO_STEP).floor() as i64;
        let last = (LOG_RATIOS.1 / RATIO_STEP).ceil() as i64 + 1;
        let mut probabilities = vec![0.0; (last - first + 1) as usize];
        for (value, probability) in values {
            let place = value / RATIO_STEP - first as f64;
            let (point, part) = (place.floor() as usize, place.fract());
            probabilities[point] += (1.0 - part) * probability;
            probabilities[point + 1] += part * probability;
        }
        Self { first, probabilities }.trimmed()
    }

    /// Drops points of probability 0 at both ends.
    fn trimmed(mut self) -> Self {
        let is_there = |probability: &f64| *probability > 0.0;
        let before = self.probabilities.iter().position(is_there).unwrap_or(0);
        let end = self.probabilities.iter().rposition(is_there).map_or(before, |last| last + 1);
        self.probabilities.truncate(end);
        self.probabilities.drain(..before);
        self.first += before as i64;
        self
    }

    /// Returns the distribution of the sum of two independent ratios.
    pub(super) fn sum(&self, other: &Self) -> Self {
        let length = (self.probabilities.len() + other.probabilities.len()).saturating_sub(1);
        let mut probabilities = vec![0.0; length];
        for (place, own) in self.probabilities.iter().enumerate().filter(|(_, own)| **own > 0.0) {
            for (sum, its) in probabilities[place..].iter_mut().zip(&other.probabilities) {
                *sum += own * its;
            }
        }
        Self { first: self.first + other.first, probabilities }.trimmed()
    }

    /// Turns into the probability of at least each ratio.
    pub(super) fn tail(mut self) -> Tail {
        let mut sum = 0.0;
        for probability in self.probabilities.iter_mut().rev() {
            sum += *probability;
            *probability = sum;
        }
        Tail(self)
    }
}

/// Probability of at least a log likelihood ratio, on a grid.
#[derive(Clone, Debug)]
pub(super) struct Tail(Distribution);

impl Tail {
    /// Returns the probability of at least this ratio, interpolated in its logarithm.
    pub(super) fn at_least(&self, ratio: f64) -> f64 {
        let Distribution { first, probabilities } = &self.0;
        let place = ratio / RATIO_STEP - *first as f64;
        let Some(last) = probabilities.len().checked_sub(1) else { return 0.0 };
        if place <= 0.0 {
            return probabilities[0];
        }
        let (point, part) = (place.floor() as usize, place.fract());
        if point >= last {
            return if place <= last as f64 { probabilities[last] } else { 0.0 };
        }
        probabilities[point].powf(1.0 - part) * probabilities[point + 1].powf(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Gps;

    fn trigger(snr: f64, xi2: f64) -> TimedTrigger {
        let gps = Gps::from_s(1e9);
        TimedTrigger { template: 0, gps, snr: snr as f32, phase: 0.0, xi2: xi2 as f32 }
    }

    /// Histogram of a Rayleigh distribution above 4, with xi-squared about 1.
    fn histogram(count: usize) -> Histogram {
        let mut histogram = Histogram::new(4.0);
        for index in 0..count {
            let uniform = (index as f64 + 0.5) / count as f64;
            let snr = (16.0 - 2.0 * uniform.ln()).sqrt();
            histogram.add(&trigger(snr, 0.5 + (0.618 * index as f64).fract()));
        }
        histogram
    }

    #[test]
    fn probabilities_follow_the_histogram_and_its_tail() {
        let snr = histogram(100_000).snr_probabilities();
        assert!((snr.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let above = |bin: usize| snr[bin..].iter().sum::<f64>();
        for level in [4.5, 5.0, 5.5] {
            let bin = ((level / 4.0_f64).ln() / SNR_STEP).ceil() as usize;
            let edge = 4.0 * snr_edge(bin);
            let expected = (8.0 - 0.5 * edge * edge).exp();
            assert!((above(bin) / expected - 1.0).abs() < 0.03, "{level}: {}", above(bin));
        }
        // The power is above the Rayleigh distribution further out.
        let bin = ((8.0 / 4.0_f64).ln() / SNR_STEP) as usize;
        let expected = (8.0 - 32.0_f64).exp();
        assert!(above(bin) > expected && above(bin) < 1e4 * expected, "{}", above(bin));
    }

    #[test]
    fn ratios_rise_with_loudness_and_fall_with_a_bad_shape() {
        let histogram = histogram(20_000);
        let likelihood = Likelihood::new(&histogram, &Signal::new(4.0));
        let ratio = |snr, xi2| likelihood.log_ratio(&histogram, &trigger(snr, xi2));
        let mut before = f64::NEG_INFINITY;
        for step in 0..200 {
            let own = ratio(4.0 + 0.1 * f64::from(step), 1.0);
            assert!(own >= before);
            before = own;
        }
        assert!(ratio(6.0, 1.0) > ratio(4.1, 1.0) + 3.0);
        for snr in [4.2, 6.0, 9.0] {
            assert!(ratio(snr, 1.1) > ratio(snr, 8.0), "{snr}");
            assert!(ratio(snr, f64::INFINITY) <= ratio(snr, 100.0));
        }
        // A loud signal has a large xi-squared because of mismatch.
        assert!(ratio(30.0, 3.0) > ratio(8.0, 1.0));
        assert!((likelihood.noise.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn sums_of_ratios_are_those_of_all_pairs() {
        let values = |seed: u64| {
            let value = move |index: u64| 0.01 * ((index * seed) % 700) as f64 - 2.0;
            (0..500).map(move |index| (value(index), 1.0 / 500.0))
        };
        let one = Distribution::new(values(37));
        let tail = one.sum(&Distribution::new(values(91))).tail();
        for level in [-1.0, 0.37, 3.0, 6.1, 8.5] {
            let pairs = values(37).flat_map(|one| values(91).map(move |other| one.0 + other.0));
            let expected = pairs.filter(|sum| *sum >= level).count() as f64 / 250_000.0;
            let found = tail.at_least(level);
            assert!(
                (found - expected).abs() < 0.02 * expected + 0.01,
                "{level}: {found} {expected}"
            );
        }
        assert_eq!((tail.at_least(1e3), (tail.at_least(-1e3) * 1e6).round()), (0.0, 1e6));
    }
}
