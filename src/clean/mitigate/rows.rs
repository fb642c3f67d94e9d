//! Vectorized kernels over rows of channels: sums, amplitudes and medians.
//!
//! Invariant: each vector level gives the same bits, since sums have the same lanes at each.

use super::profile::{BANDS, Terms};
use crate::backend::simd::{Level, leveled};
use crate::sample::{Samples, unpack_f32_inline};

/// Lanes of a sum.
pub(super) const LANES: usize = 16;

/// Row spacing in sums: every fourth row counts.
pub(super) const SPACING: usize = 4;

/// Largest number of rows of [`medians`].
pub(super) const MOST_ROWS: usize = 16;

/// Amplitudes of a spectrum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amplitudes {
    /// Least-squares amplitudes of both terms.
    pub(super) terms: [f32; 2],
    /// Amplitude of the first term in each group of channels.
    pub(super) groups: [f32; BANDS],
    /// Scatter of the groups' amplitudes relative to noise, as power.
    pub(super) scatter: f32,
}

/// Returns the length of a row including the padding that group sums read beyond its end.
pub(super) fn row_length(channels: usize) -> usize {
    channels + channels.div_ceil(BANDS) + LANES
}

leveled!(
    /// Adds every fourth row to the sums and sums of squares of each channel's difference from its origin.
    add_rows,
    add_rows_inline,
    (samples: Samples<'_>, origin: &[f32], row: &mut [f32], sums: &mut [f32], squares: &mut [f32])
);

leveled!(
    /// Computes the amplitudes of the rows from `start` on; `row` has [`row_length`] values.
    amplitudes,
    amplitudes_inline,
    (samples: Samples<'_>, start: usize, terms: &Terms, row: &mut [f32], output: &mut [Amplitudes])
);

leveled!(
    /// Computes the median of each column of up to [`MOST_ROWS`] rows; the mean of the middle two if even.
    medians,
    medians_inline,
    (rows: &[&[f32]], output: &mut [f32])
);

leveled!(
    /// Computes the medians of consecutive groups of 16 values; the last group may have fewer.
    grouped_medians,
    grouped_medians_inline,
    (values: &[f32], output: &mut [f32])
);

#[inline(always)]
fn add_rows_inline(
    samples: Samples<'_>,
    origin: &[f32],
    row: &mut [f32],
    sums: &mut [f32],
    squares: &mut [f32],
) {
    for time in (0..samples.times()).step_by(SPACING) {
        let row = &mut row[..samples.channels()];
        unpack_f32_inline(samples.row(time), samples.encoding(), row);
        let both = sums.iter_mut().zip(&mut *squares);
        for ((x, origin), (sum, square)) in row.iter().zip(origin).zip(both) {
            let x = x - origin;
            *sum += x;
            *square += x * x;
        }
    }
}

#[inline(always)]
fn amplitudes_inline(
    samples: Samples<'_>,
    start: usize,
    terms: &Terms,
    row: &mut [f32],
    output: &mut [Amplitudes],
) {
    for (time, output) in output.iter_mut().enumerate() {
        let channels = samples.channels();
        unpack_f32_inline(samples.row(start + time), samples.encoding(), &mut row[..channels]);
        *output = terms.amplitudes(row);
    }
}

#[inline(always)]
fn medians_inline(rows: &[&[f32]], output: &mut [f32]) {
    for (index, output) in output.chunks_mut(LANES).enumerate() {
        let start = index * LANES;
        let mut columns = [[0.0; LANES]; MOST_ROWS];
        for (values, row) in columns.iter_mut().zip(rows) {
            values[..output.len()].copy_from_slice(&row[start..start + output.len()]);
        }
        let middle = middle(&mut columns[..rows.len().min(MOST_ROWS)]);
        output.copy_from_slice(&middle[..output.len()]);
    }
}

#[inline(always)]
fn grouped_medians_inline(values: &[f32], output: &mut [f32]) {
    for (values, output) in values.chunks(MOST_ROWS * LANES).zip(output.chunks_mut(LANES)) {
        let whole = values.len() / MOST_ROWS;
        let mut columns = [[0.0; LANES]; MOST_ROWS];
        for (lane, group) in values.chunks_exact(MOST_ROWS).enumerate() {
            columns.iter_mut().zip(group).for_each(|(values, x)| values[lane] = *x);
        }
        let rest = values.len() - whole * MOST_ROWS;
        output[..whole].copy_from_slice(&middle(&mut columns)[..whole]);
        if rest > 0 {
            let mut column = [[0.0; 1]; MOST_ROWS];
            column.iter_mut().zip(&values[whole * MOST_ROWS..]).for_each(|(to, x)| *to = [*x]);
            output[whole] = middle(&mut column[..rest])[0];
        }
    }
}

/// Sorts each lane and returns the median.
#[inline(always)]
fn middle<const N: usize>(columns: &mut [[f32; N]]) -> [f32; N] {
    let count = columns.len();
    for last in 1..count {
        for place in (0..last).rev() {
            let (low, high) = (columns[place], columns[place + 1]);
            for lane in 0..N {
                let swap = high[lane] < low[lane];
                columns[place][lane] = if swap { high[lane] } else { low[lane] };
                columns[place + 1][lane] = if swap { low[lane] } else { high[lane] };
            }
        }
    }
    if count == 0 {
        return [0.0; N];
    }
    let (lower, upper) = (columns[(count - 1) / 2], columns[count / 2]);
    if count % 2 == 1 {
        return upper;
    }
    std::array::from_fn(|lane| 0.5 * (lower[lane] + upper[lane]))
}

/// Computes a dot product in double precision.
#[inline(always)]
pub(super) fn dot(row: &[f32], weights: &[f32]) -> f64 {
    let mut sums = [0.0f64; LANES];
    let (rows, row_rest) = row.as_chunks::<LANES>();
    let (whole, weights_rest) = weights.as_chunks::<LANES>();
    for (row, weights) in rows.iter().zip(whole) {
        sums = std::array::from_fn(|lane| {
            sums[lane] + f64::from(row[lane]) * f64::from(weights[lane])
        });
    }
    let rest = row_rest.iter().zip(weights_rest);
    let rest: f64 = rest.map(|(x, weight)| f64::from(*x) * f64::from(*weight)).sum();
    let eight: [f64; 8] = std::array::from_fn(|lane| sums[lane] + sums[lane + 8]);
    let four: [f64; 4] = std::array::from_fn(|lane| eight[lane] + eight[lane + 4]);
    (four[0] + four[2]) + (four[1] + four[3]) + rest
}

/// Computes a dot product in single precision from the row's `start` on; the weights fill whole lanes.
#[inline(always)]
pub(super) fn short_dot(row: &[f32], start: usize, weights: &[[f32; LANES]]) -> f32 {
    let (row, _) = row[start..].as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for (row, weights) in row.iter().zip(weights) {
        sums = std::array::from_fn(|lane| sums[lane] + row[lane] * weights[lane]);
    }
    lanes_sum(sums)
}

/// Sums the lanes pairwise.
#[inline(always)]
pub(super) fn lanes_sum(lanes: [f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|lane| lanes[lane] + lanes[lane + 8]);
    let four: [f32; 4] = std::array::from_fn(|lane| eight[lane] + eight[lane + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

#[cfg(test)]
mod tests {
    use super::super::statistics::median;
    use super::*;

    fn values(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919 + 13) % 1009) as f32 - 500.0).collect()
    }

    #[test]
    fn medians_of_columns_are_those_of_sorted_columns() {
        let values = values(MOST_ROWS * 37);
        let all: Vec<&[f32]> = values.chunks(37).collect();
        for level in Level::available() {
            for count in 1..=MOST_ROWS {
                let mut output = [0.0; 37];
                medians(level, &all[..count], &mut output);
                for (channel, output) in output.iter().enumerate() {
                    let mut column: Vec<f32> =
                        all[..count].iter().map(|row| row[channel]).collect();
                    assert_eq!(*output, median(&mut column), "{count} {channel}");
                }
            }
        }
    }

    #[test]
    fn medians_of_groups_are_those_of_sorted_groups() {
        for level in Level::available() {
            for count in [0, 1, 15, 16, 17, 256, 300, 513] {
                let values = values(count);
                let mut output = vec![0.0; count.div_ceil(MOST_ROWS)];
                grouped_medians(level, &values, &mut output);
                let truth: Vec<f32> =
                    values.chunks(MOST_ROWS).map(|group| median(&mut group.to_vec())).collect();
                assert_eq!(output, truth, "{count}");
            }
        }
    }
}
