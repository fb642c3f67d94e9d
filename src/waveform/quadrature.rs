//! Integrals over short steps.

/// Nodes and weights of the Gauss-Legendre rule of order 5 on -1 to 1.
const GAUSS: [(f64, f64); 5] = [
    (0.0, 0.568_888_888_888_888_9),
    (-0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
    (0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
    (-0.906_179_845_938_664, 0.236_926_885_056_189_1),
    (0.906_179_845_938_664, 0.236_926_885_056_189_1),
];

/// Integrates two functions from `from` to `to`, exactly for polynomials up to degree 9.
pub(super) fn integrals(from: f64, to: f64, functions: impl Fn(f64) -> [f64; 2]) -> [f64; 2] {
    let (half, middle) = (0.5 * (to - from), 0.5 * (to + from));
    let mut sums = [0.0; 2];
    for (node, weight) in GAUSS {
        let values = functions(middle + half * node);
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += weight * half * value;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninth_powers_are_exact() {
        let [tenth, minus] = integrals(1.0, 2.0, |x| [x.powi(9), -1.0]);
        assert!((tenth - 102.3).abs() < 1e-12 && (minus + 1.0).abs() < 1e-15);
    }
}
