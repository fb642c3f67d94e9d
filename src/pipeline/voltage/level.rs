//! Level of each channel over the latest rows.
//!
//! Invariant: depends on the rows alone, not on how they were handed over.

/// Rows per level.
const LEVEL_ROWS: usize = 1024;

/// Limit in bytes on those rows.
const MAX_BYTES: usize = 64 << 20;

/// Groups of rows whose means are compared.
const GROUPS: usize = 16;

/// Outlier limit for groups, in robust standard deviations from their median; noise stays within.
const LIMIT: f64 = 6.0;

/// Standard deviation of normal noise divided by its median absolute deviation.
const PER_MEDIAN_DISTANCE: f64 = 1.4826;

/// Holds the latest rows and computes their level.
///
/// The rows form 16 groups; the level is the mean of those group means that lie within 6 standard deviations of their
/// median. A gap filled with it is unbiased for detected powers, whose median lies below their mean, and for products
/// with zero mean, and a burst or interference in a few groups does not raise it.
#[derive(Clone, Debug)]
pub(in crate::pipeline) struct Level {
    elements: usize,
    samples: usize,
    /// Rows held.
    capacity: usize,
    /// Axes row (a ring), element.
    values: Vec<f32>,
    /// Rows since the start.
    seen: usize,
}

impl Level {
    /// Builds a level over the last [`Level::rows_of`] rows of `elements` numbers.
    pub(in crate::pipeline) fn new(elements: usize) -> Self {
        Self::with_slack(elements, 0)
    }

    /// Returns the rows per level: 1024, or as many as fit 64 MiB.
    pub(in crate::pipeline) fn rows_of(elements: usize) -> usize {
        LEVEL_ROWS.min(MAX_BYTES / (4 * elements.max(1))).max(1)
    }

    /// Like [`Level::new`], with `slack` more rows, so that a level can exclude the latest ones.
    pub(in crate::pipeline) fn with_slack(elements: usize, slack: usize) -> Self {
        let samples = Self::rows_of(elements);
        Self { elements, samples, capacity: samples + slack, values: Vec::new(), seen: 0 }
    }

    /// Returns the rows per level.
    pub(in crate::pipeline) fn samples(&self) -> usize {
        self.samples
    }

    /// Returns the rows held.
    pub(in crate::pipeline) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the latest rows, row `k` at index `k` modulo [`Level::capacity`], and the number of rows seen.
    pub(super) fn seen(&self) -> (&[f32], usize) {
        (&self.values, self.seen)
    }

    /// Records whole rows.
    pub(super) fn observe(&mut self, rows: &[f32]) {
        let times = rows.len() / self.elements;
        let passed = times.saturating_sub(self.capacity);
        self.pass(passed);
        for row in rows.chunks_exact(self.elements).skip(passed) {
            self.next().copy_from_slice(row);
        }
    }

    /// Records rows of four-byte numbers, each converted by `read`.
    pub(in crate::pipeline) fn observe_bytes<'a>(
        &mut self,
        rows: impl Iterator<Item = &'a [u8]>,
        read: impl Fn([u8; 4]) -> f32,
    ) {
        for row in rows {
            for (value, bytes) in self.next().iter_mut().zip(row.as_chunks::<4>().0) {
                *value = read(*bytes);
            }
        }
    }

    /// Skips rows that later ones will replace before a level is computed.
    pub(in crate::pipeline) fn pass(&mut self, times: usize) {
        self.seen += times;
    }

    /// Returns the slot of the next row.
    fn next(&mut self) -> &mut [f32] {
        self.values.resize(self.capacity * self.elements, 0.0);
        let place = self.seen % self.capacity * self.elements;
        self.seen += 1;
        &mut self.values[place..place + self.elements]
    }

    /// Returns each element's level over its finite numbers, without the latest `latest` rows; 0 without any.
    pub(super) fn row(&self, latest: usize) -> Vec<f32> {
        let mut row = vec![0.0; self.elements];
        self.update(latest, &mut row);
        row
    }

    /// Writes each element's level over its finite numbers to `row`, without the latest `latest` rows; elements
    /// without finite numbers stay unchanged.
    pub(in crate::pipeline) fn update(&self, latest: usize, row: &mut [f32]) {
        let end = self.seen - latest;
        let count = end.min(self.samples);
        let groups = GROUPS.min(count);
        let mut sums = vec![(0.0f64, 0u32); groups * self.elements];
        for index in 0..count {
            let place = (end - count + index) % self.capacity * self.elements;
            let row = &self.values[place..place + self.elements];
            let group = &mut sums[index * groups / count * self.elements..][..self.elements];
            for ((sum, finite), value) in group.iter_mut().zip(row) {
                if value.is_finite() {
                    *sum += f64::from(*value);
                    *finite += 1;
                }
            }
        }
        let mut means = Vec::with_capacity(groups);
        for (element, own) in row.iter_mut().enumerate() {
            means.clear();
            let groups = sums.iter().skip(element).step_by(self.elements);
            let finite = groups.filter(|(_, finite)| *finite > 0);
            means.extend(finite.map(|(sum, finite)| sum / f64::from(*finite)));
            if !means.is_empty() {
                *own = level(&means) as f32;
            }
        }
    }
}

/// Returns the mean of the values within [`LIMIT`] deviations of the median.
fn level(means: &[f64]) -> f64 {
    let middle = median(means.to_vec());
    let distance = median(means.iter().map(|mean| (mean - middle).abs()).collect());
    let limit = LIMIT * PER_MEDIAN_DISTANCE * distance;
    let near = means.iter().filter(|mean| (*mean - middle).abs() <= limit);
    let (sum, count) = near.fold((0.0, 0u32), |(sum, count), mean| (sum + mean, count + 1));
    // For finite means `count` is never 0: at least half of them lie within the limit.
    if count == 0 { middle } else { sum / f64::from(count) }
}

/// Returns the median of the values; for an even number, the mean of the middle two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) {
        0.5 * (values[half - 1] + values[half])
    } else {
        values[half]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Powers of normal noise with mean 1: an exponential distribution.
    fn powers(count: usize) -> Vec<f32> {
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        (0..count).map(|_| -uniform().ln() as f32).collect()
    }

    #[test]
    fn of_powers_it_is_the_mean() {
        let channels = 256;
        let rows = powers(LEVEL_ROWS * channels);
        let mut level = Level::new(channels);
        level.observe(&rows);
        let sum: f64 = level.row(0).iter().map(|x| f64::from(*x)).sum();
        let bias = sum / channels as f64 - 1.0;
        // The standard deviation of the mean of all numbers is 0.002; the median lies 0.31 below the mean.
        assert!(bias.abs() < 0.006, "{bias}");
    }

    #[test]
    fn a_burst_does_not_lift_it() {
        let mut rows = powers(LEVEL_ROWS);
        rows[100..150].iter_mut().for_each(|x| *x += 1000.0);
        rows[300] = f32::NAN;
        let mut level = Level::new(1);
        level.observe(&rows);
        assert!((level.row(0)[0] - 1.0).abs() < 0.15, "{:?}", level.row(0));
    }

    #[test]
    fn the_last_rows_count_however_they_come() {
        let rows = powers(3000 * 4);
        let mut whole = Level::new(4);
        whole.observe(&rows);
        let mut parts = Level::new(4);
        rows.chunks(4 * 7).for_each(|part| parts.observe(part));
        assert_eq!(parts.row(0), whole.row(0));
        let mut last = Level::new(4);
        last.observe(&rows[4 * (3000 - LEVEL_ROWS)..]);
        assert_eq!(last.row(0), whole.row(0));
        let mut one = Level::with_slack(4, 3);
        assert_eq!(one.row(0), [0.0; 4]);
        one.observe(&[5.0, 5.0, -1.0, f32::NAN]);
        assert_eq!(one.row(0), [5.0, 5.0, -1.0, 0.0]);
        one.observe(&rows[..12]);
        assert_eq!(one.row(3), [5.0, 5.0, -1.0, 0.0]);
    }
}
