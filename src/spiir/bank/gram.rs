//! Inner products of all pairs of filters, including the resampler's response.

use num_complex::Complex64;

use super::assign::{Assigned, REACH};
use super::chain::{Chain, Kernel};
use super::solve::Hermitian;

/// Computes `G[l, k] = <u_l, u_k>` of the responses with unit weights at the strain's rate, averaged over its phases.
///
/// A filter is a recursion, so its response under a kernel `p` at a rate `2^j` times its own is one too:
/// `s[n] = a s[n - 2^j] + p[n - 2^j d]`. Beyond the kernel it is a geometric series, and its product with another
/// filter's is a sum in closed form.
pub(super) fn gram(filters: &[Assigned], chain: &Chain) -> Hermitian {
    let levels = filters.iter().map(|filter| filter.halvings).max().map_or(0, |last| last + 1);
    let mut matrix = Hermitian::zeros(filters.len());
    let mut series = Vec::new();
    for (k, lower) in filters.iter().enumerate() {
        for higher in 0..=lower.halvings.min(levels - 1) {
            let mut response = None;
            for (l, filter) in filters.iter().enumerate() {
                let is_counted = higher == lower.halvings && l > k;
                if filter.halvings != higher || is_counted {
                    continue;
                }
                let kernel = chain.kernel(higher, lower.halvings);
                let begin = ((lower.delay << (lower.halvings - higher)) as i64) + kernel.first;
                let alive = filter.delay + filter.reach();
                if begin >= alive as i64 {
                    continue;
                }
                let response = response
                    .get_or_insert_with(|| Response::new(lower, kernel, higher, &mut series));
                matrix.set(l, k, response.product(filter, &series));
            }
        }
    }
    matrix
}

/// Response of a filter at a rate above its own.
#[derive(Clone, Copy, Debug)]
struct Response {
    /// Index of the first sample, and of the first one beyond the kernel.
    begin: i64,
    beyond: i64,
    ratio: usize,
    pole: Complex64,
}

impl Response {
    fn new(filter: &Assigned, kernel: &Kernel, higher: u32, series: &mut Vec<Complex64>) -> Self {
        let ratio = 1_usize << (filter.halvings - higher);
        let begin = (filter.delay * ratio) as i64 + kernel.first;
        series.clear();
        for n in 0..kernel.taps.len() + ratio {
            let before = if n < ratio { Complex64::default() } else { series[n - ratio] };
            series.push(filter.pole * before + kernel.taps.get(n).copied().unwrap_or(0.0));
        }
        let beyond = begin + kernel.taps.len() as i64;
        Self { begin, beyond, ratio, pole: filter.pole }
    }

    /// Returns `sum over n >= d of conj(a)^(n - d) s[n]` for a filter at this rate.
    fn product(&self, filter: &Assigned, series: &[Complex64]) -> Complex64 {
        let delay = filter.delay as i64;
        let pole = filter.pole.conj();
        let from = self.begin.max(delay);
        let alive = delay + filter.reach() as i64;
        let (mut sum, until) = if alive > self.beyond {
            let start = self.beyond.max(delay);
            (self.tail(pole, start, series), start.min(self.beyond))
        } else {
            (Complex64::default(), alive)
        };
        for n in (from..until).rev() {
            sum = sum * pole + series[(n - self.begin) as usize];
        }
        sum * power(pole, (from - delay) as f64)
    }

    /// Returns the sum from `start` on, beyond the kernel, in closed form.
    fn tail(&self, pole: Complex64, start: i64, series: &[Complex64]) -> Complex64 {
        let last = &series[series.len() - self.ratio..];
        let skipped = (start - self.beyond) as usize;
        let mut sum = Complex64::default();
        for step in (0..self.ratio).rev() {
            let at = skipped + step;
            let value = last[at % self.ratio] * power(self.pole, (at / self.ratio) as f64);
            sum = sum * pole + value;
        }
        sum / (1.0 - power(pole, self.ratio as f64) * self.pole)
    }
}

/// Returns a power of a pole, or 0 if it is negligible.
fn power(pole: Complex64, exponent: f64) -> Complex64 {
    if exponent == 0.0 {
        return Complex64::new(1.0, 0.0);
    }
    let (size, angle) = (pole.norm().ln() * exponent, pole.arg() * exponent);
    if size < -2.0 * REACH {
        Complex64::default()
    } else {
        Complex64::from_polar(size.exp(), angle)
    }
}

#[cfg(test)]
mod tests {
    use super::super::target::Target;
    use super::super::transforms::Transforms;
    use super::*;
    use crate::spiir::plan::resample::Resampler;

    fn filter(halvings: u32, frequency: f64, memory: f64, delay: usize) -> Assigned {
        let pole = Complex64::from_polar((-1.0 / memory).exp(), std::f64::consts::TAU * frequency);
        Assigned { halvings, pole, weight: Complex64::new(0.7, -0.2), delay }
    }

    #[test]
    fn inner_products_are_those_of_the_responses() {
        let filters = [
            filter(0, 0.21, 6.0, 3),
            filter(0, 0.17, 9.0, 11),
            filter(1, 0.30, 15.0, 9),
            filter(1, 0.22, 2.0, 0),
            filter(2, 0.36, 20.0, 14),
            filter(2, 0.20, 40.0, 60),
        ];
        for resampler in [Resampler::low_latency(), Resampler::linear_phase(40, 16, 60.0)] {
            let chain = Chain::new(&resampler, 2);
            let wanted: Vec<Complex64> =
                (0..700).map(|n| Complex64::cis(2e-4 * f64::from(n * n))).collect();
            let transforms = Transforms::new();
            let target = Target::new(&wanted, (&chain.once, 2), 4000, &transforms);
            let matrix = gram(&filters, &chain);
            let products = target.products(&filters);
            // Zeroes all weights but two to check one pair at a time.
            for (l, k) in (0..6).flat_map(|l| (0..=l).map(move |k| (l, k))) {
                let mut pair = filters;
                let chosen = |at: usize| if at == l || at == k { 1.0 } else { 0.0 };
                pair.iter_mut().zip(0..).for_each(|(filter, at)| filter.weight *= chosen(at));
                let weights: Vec<Complex64> = pair.iter().map(|filter| filter.weight).collect();
                let response = target.response(&pair);
                let power = response.iter().map(Complex64::norm_sqr).sum::<f64>();
                let (found, expected) = (matrix.norm(&weights), power / response.len() as f64);
                assert!((found / expected - 1.0).abs() < 1e-8, "{l} {k}: {found} {expected}");
                let cross: Complex64 =
                    weights.iter().zip(&products).map(|(b, product)| b.conj() * product).sum();
                let fit = cross.norm() / (found * target.power).sqrt();
                assert!((fit - target.fit(&response)).abs() < 1e-8, "{l} {k}: {fit}");
            }
        }
    }
}
