//! Scaling of powers to 8-bit counts, each channel of each product by its own mean and standard deviation.

use crate::math::median_and_sigma;

/// Count of a channel's mean.
const MEAN: f32 = 64.0;

/// Counts per standard deviation.
const DEVIATION: f64 = 16.0;

/// Outlier limit in robust standard deviations from the median.
const OUTLYING: f64 = 10.0;

/// Scaling of numbers to counts: `count = 64 + gain (x - mean)`, rounded and clipped to 0 to 255, so that `x = mean +
/// (count - 64) / gain`.
///
/// A standard deviation is 16 counts. Rounding adds 1/3072 of the variance; the range is 4 standard deviations below
/// the mean and 12 above. Mean and standard deviation come from the first rows that are not filled, without numbers
/// beyond 10 robust standard deviations.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// Rows from which mean and standard deviation were computed.
    pub rows: usize,
    /// Mean, scaled to count 64; axes product, channel.
    pub means: Vec<f32>,
    /// Counts per unit; axes product, channel.
    pub gains: Vec<f32>,
    /// Numbers that were clipped.
    pub clipped: u64,
}

impl Scaling {
    /// Computes the scaling from rows of `elements` numbers.
    pub(super) fn new(rows: &[f32], elements: usize) -> Self {
        let mut column = Vec::new();
        let (mut means, mut gains) = (Vec::new(), Vec::new());
        for element in 0..elements {
            let all = rows[element..].iter().step_by(elements).map(|x| f64::from(*x));
            let finite = all.filter(|x| x.is_finite());
            column.clear();
            column.extend(finite);
            let (mean, deviation) = mean_and_deviation(&mut column);
            means.push(mean as f32);
            // A constant channel gets the count of its mean.
            let gain = if deviation > 0.0 { DEVIATION / deviation } else { 1.0 };
            gains.push(gain as f32);
        }
        Self { rows: rows.len() / elements, means, gains, clipped: 0 }
    }

    /// Converts whole rows to counts; NaN becomes the mean.
    pub(super) fn scale(&mut self, rows: &[f32], counts: &mut [u8]) {
        let elements = self.means.len();
        let pairs = rows.chunks_exact(elements).zip(counts.chunks_exact_mut(elements));
        for (row, counts) in pairs {
            let own = self.means.iter().zip(&self.gains);
            let mut clipped = 0;
            for ((count, x), (mean, gain)) in counts.iter_mut().zip(row).zip(own) {
                let exact = (MEAN + (x - mean) * gain).round_ties_even();
                clipped += u64::from(!(0.0..=255.0).contains(&exact));
                *count = if exact.is_nan() { MEAN as u8 } else { exact.clamp(0.0, 255.0) as u8 };
            }
            self.clipped += clipped;
        }
    }
}

/// Returns mean and standard deviation without outliers; reorders the values.
fn mean_and_deviation(values: &mut Vec<f64>) -> (f64, f64) {
    let mut scratch = values.clone();
    let Some((median, sigma)) = median_and_sigma(&mut scratch) else { return (0.0, 0.0) };
    // With more than half of the values equal, the robust deviation is 0 and no value is an outlier.
    let edge = if sigma > 0.0 { OUTLYING * sigma } else { f64::INFINITY };
    values.retain(|x| (x - median).abs() <= edge);
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_mean_and_deviation_and_can_be_undone() {
        // Two channels: ramps with a spike, and a constant.
        let value = |time: usize| if time == 50 { 1e9 } else { 1000.0 + (time % 100) as f32 };
        let rows: Vec<f32> = (0..1000).flat_map(|time| [value(time), 7.0]).collect();
        let mut scaling = Scaling::new(&rows, 2);
        let mut counts = vec![0; rows.len()];
        scaling.scale(&rows, &mut counts);
        assert_eq!(scaling.clipped, 1);
        assert_eq!(counts[100], 255);
        assert!(counts.iter().skip(1).step_by(2).all(|count| *count == 64));
        let ramps = counts.iter().step_by(2).filter(|count| **count < 255);
        let ramps: Vec<f64> = ramps.map(|count| f64::from(*count)).collect();
        let mean = ramps.iter().sum::<f64>() / 999.0;
        assert!((mean - 64.0).abs() < 0.1, "{mean}");
        let variance = ramps.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 999.0;
        assert!((variance.sqrt() - 16.0).abs() < 0.1, "{variance}");
        for (count, x) in counts.iter().zip(&rows).step_by(2).filter(|(count, _)| **count < 255) {
            let back = scaling.means[0] + (f32::from(*count) - 64.0) / scaling.gains[0];
            assert!((back - x).abs() <= 0.501 / scaling.gains[0]);
        }
    }

    #[test]
    fn numbers_that_are_not_finite_do_no_harm() {
        let rows = [f32::NAN, 1.0, f32::INFINITY, 3.0, f32::NEG_INFINITY, 2.0, f32::NAN, 2.0];
        let mut scaling = Scaling::new(&rows, 2);
        let mut counts = [0; 8];
        scaling.scale(&rows, &mut counts);
        assert_eq!([counts[0], counts[2], counts[4]], [64, 255, 0]);
        assert!(scaling.gains.iter().chain(&scaling.means).all(|x| x.is_finite()));
    }
}
