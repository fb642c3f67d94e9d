//! Series in the orbital velocity, with terms separated by powers of the spins.

/// Coefficients of a series, up to the eighth power (4PN).
const TERMS: usize = 9;

/// Powers of the spins stored separately: zero, one, two.
const SPINS: usize = 3;

/// Power of the logarithmic term.
const LOGARITHM: usize = 6;

/// `sum_k (c_k0 + c_k1 + c_k2) v^k + l v^6 ln v`; `c_kp` is of power p in the spins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Series {
    terms: [[f64; SPINS]; TERMS],
    logarithm: f64,
}

impl Series {
    /// Creates a series without a logarithm.
    pub(super) fn new(terms: [[f64; SPINS]; TERMS]) -> Self {
        Self { terms, logarithm: 0.0 }
    }

    pub(super) fn with_logarithm(self, logarithm: f64) -> Self {
        Self { logarithm, ..self }
    }

    /// Multiplies each term by a factor that depends on its power.
    pub(super) fn scaled(mut self, factor: impl Fn(usize) -> f64) -> Self {
        for (power, term) in self.terms.iter_mut().enumerate() {
            term.iter_mut().for_each(|part| *part *= factor(power));
        }
        self.logarithm *= factor(LOGARITHM);
        self
    }

    /// Returns the series of `self / other`; both have first term 1 and second term 0.
    pub(super) fn over(self, other: Self) -> Self {
        let mut terms = self.terms;
        for power in 1..TERMS {
            for k in 0..power {
                let (done, divisor) = (terms[k], other.terms[power - k]);
                for (p, a) in done.iter().enumerate() {
                    for (q, b) in divisor.iter().enumerate().take(SPINS - p) {
                        terms[power][p + q] -= a * b;
                    }
                }
            }
        }
        // The logarithm times any other term than the first has at least the eighth power, of which only the part
        // linear in the spins is kept.
        Self { terms, logarithm: self.logarithm - other.logarithm }
    }

    /// Returns the reciprocal of the series.
    pub(super) fn inverse(self) -> Self {
        let mut one = [[0.0; SPINS]; TERMS];
        one[0][0] = 1.0;
        Self::new(one).over(self)
    }

    /// Drops the terms for which `keep`, a function of the powers of velocity and spins, is false.
    pub(super) fn kept(mut self, keep: impl Fn(usize, usize) -> bool) -> Self {
        for (power, term) in self.terms.iter_mut().enumerate() {
            for (spins, part) in term.iter_mut().enumerate() {
                if !keep(power, spins) {
                    *part = 0.0;
                }
            }
        }
        self
    }

    /// Returns the antiderivative of the series times `v^-9`, relative to that of `v^-9`, for powers below the
    /// eighth.
    pub(super) fn antiderivative(self) -> Self {
        let logarithm = self.logarithm;
        let mut result =
            self.scaled(|power| if power < 8 { 8.0 / (8.0 - power as f64) } else { 0.0 });
        // The antiderivative of v^-3 ln v is -(ln v + 1/2) v^-2 / 2.
        result.terms[LOGARITHM][0] += 2.0 * logarithm;
        result
    }

    pub(super) fn at(&self, v: f64) -> f64 {
        let sum = self.terms.iter().rev().fold(0.0, |sum, [a, b, c]| sum * v + (a + b + c));
        sum + self.logarithm * v.powi(LOGARITHM as i32) * v.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_those_of_the_series() {
        let plain = |terms: [f64; TERMS]| Series::new(terms.map(|term| [term, 0.0, 0.0]));
        let a = plain([1.0, 0.0, 0.5, -2.0, 1.0, 3.0, -1.0, 2.0, 0.0]).with_logarithm(4.0);
        let b = plain([1.0, 0.0, -1.5, 1.0, 0.25, -2.0, 1.0, 1.0, 0.0]);
        let v = 1e-2;
        assert!((a.over(b).at(v) - a.at(v) / b.at(v)).abs() < 1e-13);
        assert!((a.inverse().at(v) - 1.0 / a.at(v)).abs() < 1e-13);
    }

    #[test]
    fn antiderivatives_have_the_series_as_their_slope() {
        let mut terms = [[0.0; SPINS]; TERMS];
        for (power, term) in terms.iter_mut().enumerate().take(8) {
            term[0] = 1.0 + power as f64;
        }
        let series = Series::new(terms).with_logarithm(3.0);
        let time = |v: f64| -series.antiderivative().at(v) / (8.0 * v.powi(8));
        let slope = (time(0.5 + 1e-5) - time(0.5 - 1e-5)) / 2e-5;
        let expected = series.at(0.5) / 0.5_f64.powi(9);
        assert!((slope / expected - 1.0).abs() < 1e-8, "{slope} {expected}");
    }

    #[test]
    fn powers_of_the_spins_are_kept_apart() {
        let mut terms = [[0.0; SPINS]; TERMS];
        terms[0][0] = 1.0;
        terms[2][1] = 3.0;
        let square = Series::new(terms).inverse().kept(|_, spins| spins == 2);
        assert!((square.at(0.1) - 9e-4).abs() < 1e-18);
    }
}
