//! Mean and deviation of each channel in the parts of a block of rows.
//!
//! Invariant: sums run in the rows' order, so that threads and vector levels give the same bits.

use super::rows::{self, SPACING};
use crate::backend::simd::Level;
use crate::sample::Samples;

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
            rows::medians(level, &rows, &mut middle);
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
        rows::add_rows(level, samples, origin, row, &mut mean, &mut deviation);
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
