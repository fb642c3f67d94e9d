//! Mean and deviation of each channel in a block of rows, by parts of it.
//!
//! Invariant: sums run in the rows' order, so that threads and vector levels give the same bits.

use crate::backend::threads::Threads;
use crate::sample::{Samples, unpack_f32};

/// Every which row counts.
const SPACING: usize = 4;

/// Parts of a block: what lasts for less than half of them does not move their median.
pub(super) const PARTS: usize = 8;

/// One part of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) rows: usize,
    /// Rows that count.
    pub(super) counted: usize,
    /// Mean of each channel.
    pub(super) mean: Vec<f32>,
    pub(super) deviation: Vec<f32>,
}

/// A block's parts, and over them the median of each channel's mean and deviation.
#[derive(Clone, Debug)]
pub(super) struct Statistics {
    pub(super) parts: Vec<Part>,
    pub(super) mean: Vec<f32>,
    pub(super) deviation: Vec<f32>,
    /// Rows that count.
    pub(super) counted: usize,
}

impl Statistics {
    /// Computes the statistics of a block of rows about each channel's `origin`.
    pub(super) fn of(samples: Samples<'_>, origin: &[f32], threads: &Threads) -> Self {
        let length = samples.times().div_ceil(PARTS).max(1);
        let count = samples.times().div_ceil(length);
        let mut parts = vec![Part::default(); count];
        let mut scratch = vec![vec![0.0; samples.channels()]; threads.count()];
        threads.for_each_chunk(&mut scratch, &mut parts, 1, |row, index, part| {
            let start = index * length;
            let rows = samples.slice(start, length.min(samples.times() - start));
            part[0] = Part::of(rows, origin, row);
        });
        let (mean, deviation) = (vec![0.0; samples.channels()], vec![0.0; samples.channels()]);
        let mut own = Self { parts, mean, deviation, counted: 0 };
        own.take_parts(|_| true);
        own
    }

    /// Computes the block's statistics from some of its parts.
    pub(super) fn take_parts(&mut self, is_taken: impl Fn(&Part) -> bool) {
        let parts: Vec<&Part> = self.parts.iter().filter(|part| is_taken(part)).collect();
        let channels = self.mean.len();
        let middle = |of: fn(&Part) -> &Vec<f32>| {
            let median = |channel: usize| {
                let mut values = [0.0; PARTS];
                let values = &mut values[..parts.len()];
                values.iter_mut().zip(&parts).for_each(|(x, part)| *x = of(part)[channel]);
                median(values)
            };
            (0..channels).map(median).collect()
        };
        (self.mean, self.deviation) = (middle(|part| &part.mean), middle(|part| &part.deviation));
        self.counted = parts.iter().map(|part| part.counted).sum();
    }
}

impl Part {
    fn of(samples: Samples<'_>, origin: &[f32], row: &mut [f32]) -> Self {
        let (rows, channels) = (samples.times(), samples.channels());
        let (mut mean, mut deviation) = (vec![0.0f32; channels], vec![0.0f32; channels]);
        for time in (0..rows).step_by(SPACING) {
            unpack_f32(samples.row(time), samples.encoding(), row);
            let sums = mean.iter_mut().zip(&mut deviation);
            for ((x, origin), (sum, squares)) in row.iter().zip(origin).zip(sums) {
                let x = x - origin;
                *sum += x;
                *squares += x * x;
            }
        }
        let counted = rows.div_ceil(SPACING).max(1);
        let count = counted as f32;
        for ((mean, deviation), origin) in mean.iter_mut().zip(&mut deviation).zip(origin) {
            let offset = *mean / count;
            *deviation = (*deviation / count - offset * offset).max(0.0).sqrt();
            *mean = offset + origin;
        }
        Self { rows, counted, mean, deviation }
    }
}

/// The median, which reorders the values; of an even number, the mean of the middle two; 0 of none.
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
