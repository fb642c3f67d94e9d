//! Series in the orbital velocity up to its seventh power (3.5PN), with a logarithm at the sixth.

/// Coefficients of a series.
const TERMS: usize = 8;

/// The power at which the logarithm stands.
const LOGARITHM: usize = 6;

/// `sum_k c_k v^k + l v^6 ln v`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Series {
    terms: [f64; TERMS],
    logarithm: f64,
}

impl Series {
    /// A series without a logarithm.
    pub(super) fn new(terms: [f64; TERMS]) -> Self {
        Self { terms, logarithm: 0.0 }
    }

    pub(super) fn with_logarithm(self, logarithm: f64) -> Self {
        Self { logarithm, ..self }
    }

    /// Each term times a number that goes by its power.
    pub(super) fn scaled(self, factor: impl Fn(f64) -> f64) -> Self {
        let mut terms = self.terms;
        for (power, term) in terms.iter_mut().enumerate() {
            *term *= factor(power as f64);
        }
        Self { terms, logarithm: self.logarithm * factor(LOGARITHM as f64) }
    }

    /// The series of `self / other`, cut off behind the seventh power; both begin with 1.
    pub(super) fn over(self, other: Self) -> Self {
        let mut terms = self.terms;
        for power in 1..TERMS {
            let known: f64 = (0..power).map(|k| terms[k] * other.terms[power - k]).sum();
            terms[power] -= known;
        }
        // The logarithm times any other term but the first lies beyond the seventh power, since no series has a first.
        Self { terms, logarithm: self.logarithm - other.logarithm }
    }

    /// One over the series, cut off likewise.
    pub(super) fn inverse(self) -> Self {
        let mut one = [0.0; TERMS];
        one[0] = 1.0;
        Self::new(one).over(self)
    }

    pub(super) fn at(&self, v: f64) -> f64 {
        let sum = self.terms.iter().rev().fold(0.0, |sum, term| sum * v + term);
        sum + self.logarithm * v.powi(LOGARITHM as i32) * v.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_those_of_the_series() {
        let a = Series::new([1.0, 0.0, 0.5, -2.0, 1.0, 3.0, -1.0, 2.0]).with_logarithm(4.0);
        let b = Series::new([1.0, 0.0, -1.5, 1.0, 0.25, -2.0, 1.0, 1.0]);
        let v = 1e-2;
        assert!((a.over(b).at(v) - a.at(v) / b.at(v)).abs() < 1e-13);
        assert!((a.inverse().at(v) - 1.0 / a.at(v)).abs() < 1e-13);
    }
}
