//! Robust statistics: medians and deviations that a few bright samples do not affect.
//!
//! Invariant: NaN or an empty slice causes neither a panic nor an endless loop.

/// Ratio of a Gaussian's standard deviation to its median absolute deviation.
///
/// # Source
/// 1 / Phi^-1(3/4) of the standard normal distribution.
pub const SIGMA_PER_MAD: f64 = 1.482_602_218_505_602;

/// Returns the median, reordering `values`; for an even number, the mean of the two middle values.
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

/// Returns the median and the robust standard deviation (scaled median absolute deviation), reordering `values`.
///
/// Returns `None` for no values; the deviation of a constant is 0.
pub fn median_and_sigma(values: &mut [f64]) -> Option<(f64, f64)> {
    let centre = median(values)?;
    values.iter_mut().for_each(|x| *x = (*x - centre).abs());
    Some((centre, SIGMA_PER_MAD * median(values)?))
}

/// Returns the variance of a unit Gaussian truncated at `+-k`.
///
/// `1 - 2 k phi(k) / (2 Phi(k) - 1) = 1 - 1 / sum_n k^2n / (2n + 1)!!`: the series needs no exponential, so the
/// result is bit-identical on all machines.
pub fn truncated_variance(k: f64) -> f64 {
    if k >= 9.0 {
        return 1.0;
    }
    let (mut term, mut sum, mut odd) = (1.0, 1.0, 1.0);
    while term > 1e-12 * sum {
        odd += 2.0;
        term *= k * k / odd;
        sum += term;
    }
    1.0 - 1.0 / sum
}

/// Returns the standard deviation of the Gaussian whose part within `+-edge` of its mean has this variance. The
/// result is at most `edge`.
pub fn untruncated_sigma(variance: f64, edge: f64) -> f64 {
    let mut sigma = variance.max(0.0).sqrt();
    if sigma == 0.0 || edge.is_infinite() {
        return sigma;
    }
    // Each step reduces the error to a ninth for truncation at 3 deviations.
    for _ in 0..4 {
        sigma = (variance / truncated_variance(edge / sigma)).sqrt().min(edge);
    }
    sigma
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_gaussian_keeps_less_variance() {
        assert!((truncated_variance(3.0) - 0.973_337).abs() < 1e-6);
        assert!((truncated_variance(1.0) - 0.291_125).abs() < 1e-6);
        assert_eq!(truncated_variance(20.0), 1.0);
        let sigma = untruncated_sigma(4.0 * truncated_variance(3.0), 6.0);
        assert!((sigma - 2.0).abs() < 1e-4, "{sigma}");
        assert_eq!(untruncated_sigma(0.0, 1.0), 0.0);
    }

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
