//! Normal distribution: density, cumulative probability and quantile; scaled complementary error function `erfcx`.
//!
//! Invariant: the lower tail keeps its relative precision however small it is.

use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};
use std::sync::OnceLock;

/// Terms of the Chebyshev series of [`erfcx`].
const TERMS: usize = 28;

/// `x` at which the variable of the series is 0, chosen to need few terms.
const MIDDLE: f64 = 3.75;

/// Returns the density of the standard normal distribution.
pub fn density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * PI).sqrt()
}

/// Returns the probability that a standard normal variable is at most `z`; relative error below 1e-13 for `z <= 0`.
pub fn cumulative(z: f64) -> f64 {
    if z > 0.0 { 1.0 - upper_tail(z) } else { upper_tail(-z) }
}

/// Returns the `z` with [`cumulative`] `p`, for `0 < p < 1`, by Newton's method on the logarithm of the tail.
pub fn quantile(p: f64) -> f64 {
    if p > 0.5 {
        return -quantile(1.0 - p);
    }
    let target = p.ln();
    let mut z = (-2.0 * (2.0 * p).ln()).max(0.0).sqrt();
    for _ in 0..12 {
        let ratio = (PI / 2.0).sqrt() * erfcx(z * FRAC_1_SQRT_2);
        let step = (upper_tail(z).ln() - target) * ratio;
        z += step;
        if step.abs() < 1e-13 {
            break;
        }
    }
    -z
}

/// Returns `exp(x^2) erfc(x)`, which neither overflows nor underflows for large `x`.
///
/// # Numerics
/// Relative error below 1e-13 for `x >= 0`.
/// # Source
/// Shepherd & Laframboise 1981, Math. Comp. 36, 249: the variable `(x - 3.75) / (x + 3.75)` and the
/// factor `1 + 2 x`. The coefficients are computed here, on first use.
pub fn erfcx(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 * (x * x).exp() - erfcx(-x);
    }
    static COEFFICIENTS: OnceLock<[f64; TERMS]> = OnceLock::new();
    let coefficients = COEFFICIENTS.get_or_init(fit);
    let y = if x.is_finite() { (x - MIDDLE) / (x + MIDDLE) } else { 1.0 };
    let (mut next, mut after) = (0.0, 0.0);
    for coefficient in coefficients[1..].iter().rev() {
        (next, after) = (2.0 * y * next - after + coefficient, next);
    }
    (y * next - after + coefficients[0]) / (1.0 + 2.0 * x)
}

fn upper_tail(z: f64) -> f64 {
    0.5 * (-0.5 * z * z).exp() * erfcx(z / SQRT_2)
}

/// Returns the Chebyshev coefficients of `(1 + 2 x) erfcx(x)` from its values at the zeros of a Chebyshev polynomial of
/// high order.
fn fit() -> [f64; TERMS] {
    const ORDER: usize = 64;
    let mut coefficients = [0.0; TERMS];
    for node in 0..ORDER {
        let angle = PI * (node as f64 + 0.5) / ORDER as f64;
        let y = angle.cos();
        let x = MIDDLE * (1.0 + y) / (1.0 - y);
        let value = (1.0 + 2.0 * x) * slow_erfcx(x);
        for (k, coefficient) in coefficients.iter_mut().enumerate() {
            *coefficient += 2.0 / ORDER as f64 * value * (k as f64 * angle).cos();
        }
    }
    coefficients[0] *= 0.5;
    coefficients
}

/// Computes erfcx without the Chebyshev series: from the power series of erf below 2, and from Laplace's continued
/// fraction above.
fn slow_erfcx(x: f64) -> f64 {
    if x < 2.0 {
        let (mut term, mut sum) = (x, x);
        for k in 1..80 {
            term *= 2.0 * x * x / f64::from(2 * k + 1);
            sum += term;
        }
        return (x * x).exp() - 2.0 / PI.sqrt() * sum;
    }
    let tail = (1..=200).rev().fold(x, |below, k| x + 0.5 * f64::from(k) / below);
    1.0 / (PI.sqrt() * tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // Abramowitz & Stegun, tables 26.1 and 7.1.
        assert!((cumulative(1.0) - 0.841_344_746_068_543).abs() < 1e-14);
        assert!((cumulative(-3.0) / 1.349_898_031_630_09e-3 - 1.0).abs() < 1e-12);
        assert!((cumulative(-6.0) / 9.865_876_450_376_98e-10 - 1.0).abs() < 1e-12);
        assert!((erfcx(1.0) - 0.427_583_576_155_807).abs() < 1e-13);
        assert!((cumulative(0.0) - 0.5).abs() < 1e-14);
    }

    #[test]
    fn quantile_undoes_cumulative() {
        for i in 1..200 {
            let z = -8.0 + 0.06 * f64::from(i);
            assert!((quantile(cumulative(z)) - z).abs() < 1e-8 * (1.0 + z.abs()), "{z}");
        }
        for exponent in [-3, -8, -14] {
            let p = 10f64.powi(exponent);
            assert!((cumulative(quantile(p)) / p - 1.0).abs() < 1e-10);
        }
    }

    #[test]
    fn the_series_meets_the_slow_forms() {
        for i in 0..400 {
            let x = 0.05 * f64::from(i);
            assert!((erfcx(x) / slow_erfcx(x) - 1.0).abs() < 1e-12, "{x}");
        }
    }
}
