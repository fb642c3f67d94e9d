//! Robust statistics: medians and deviations that a few bright samples do not move.

/// Ratio of a Gaussian's standard deviation to its median absolute deviation.
///
/// # Source
/// 1 / Phi^-1(3/4) of the standard normal distribution.
pub const SIGMA_PER_MAD: f64 = 1.482_602_218_505_602;

/// The median, which reorders `values`; of an even number, the mean of the middle two.
///
/// Returns `None` for no values. NaN sorts above every number.
pub fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    let (_, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = values[..middle].iter().copied().max_by(f64::total_cmp)?;
    Some(0.5 * (lower + upper))
}

/// Median and robust standard deviation (scaled median absolute deviation), reordering `values`.
///
/// Returns `None` for no values; the deviation of a constant is 0.
pub fn median_and_sigma(values: &mut [f64]) -> Option<(f64, f64)> {
    let centre = median(values)?;
    values.iter_mut().for_each(|x| *x = (*x - centre).abs());
    Some((centre, SIGMA_PER_MAD * median(values)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_lengths() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn one_bright_sample_moves_nothing() {
        let (centre, sigma) = median_and_sigma(&mut [1.0, 2.0, 3.0, 4.0, 1e9]).unwrap();
        assert_eq!(centre, 3.0);
        assert!((sigma - SIGMA_PER_MAD).abs() < 1e-12);
    }
}
