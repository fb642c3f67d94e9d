//! A filter in the form that a GPU steps it in: six multiply-adds a sample, and none of them for the input's weight.
//!
//! With `(u, v) = (Re y / Re b, Im y / Im b)` a step is `u' = re(a) u + c1 v + x`, `v' = c2 u + re(a) v + x`, and the
//! sums grow by `re(b) u'` and `im(b) v'`, where `c1 = -im(a) t`, `c2 = im(a) / t`, `t = im(b) / re(b)`. Rounding is that of
//! the coupled form, since scaling changes no relative error. What rounding c1 and c2 alone would do to the pole is
//! avoided: of the floats around c1 that one is taken whose product with its c2 is nearest to `-im(a)^2`.

use num_complex::Complex64;

use super::super::plan::Filter;

/// Samples of memory from which on a state's rounding, once a sample, would show.
const LONG_MEMORY: f64 = 5000.0;
/// The same, in radians that the pole turns meanwhile.
const LONG_TURN: f64 = 400.0;
/// A weight's smaller part is at least this much of the weight: its other part is the scale of a state.
const LEAST_PART: f64 = 1e-9;
/// A pole that turns by less than this a sample is taken as real: the response changes by this times the memory of the
/// weight at most, which is 2e-11 for the longest memory that single precision has. So c1 and c2 are from 1e-27 to 1e9.
const LEAST_TURN: f64 = 1e-18;
/// Floats on either side of c1 that are tried.
const TRIED: u32 = 32;

/// Samples after which a long memory's state is rounded.
pub(super) const TILE: usize = 16;

/// Values of a filter: `re(a), c1, c2, re(b), im(b)`, and of long memories three elements of the matrix that turns the
/// state by a tile, each as a float and what is left of it.
pub(super) const SHORT_VALUES: usize = 5;
/// As [`SHORT_VALUES`].
pub(super) const LONG_VALUES: usize = 11;

/// A filter's coefficients, scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scaled {
    pub(super) a: f32,
    pub(super) c1: f32,
    pub(super) c2: f32,
    pub(super) re: f32,
    pub(super) im: f32,
    /// Scale of the second state over the first's.
    ratio: f64,
}

/// Whether a filter's state is to be rounded seldom.
pub(super) fn has_long_memory(filter: &Filter) -> bool {
    let memory = memory(filter);
    memory > LONG_MEMORY || memory * filter.pole().im.abs() > LONG_TURN
}

/// Samples in which a filter forgets.
fn memory(filter: &Filter) -> f64 {
    -1.0 / filter.pole().norm().ln()
}

impl Scaled {
    pub(super) fn new(filter: &Filter) -> Self {
        let (a, b) = (filter.pole(), filter.weight());
        let a_re = filter.a.re;
        if b.norm() == 0.0 {
            return Self { a: a_re, c1: 0.0, c2: 0.0, re: 0.0, im: 0.0, ratio: 1.0 };
        }
        let part = |part: f64| part.abs().max(LEAST_PART * b.norm()).copysign(part);
        let (re, im) = (part(b.re), part(b.im));
        let ratio = im / re;
        if a.im.abs() < LEAST_TURN {
            return Self { a: a_re, c1: 0.0, c2: 0.0, re: re as f32, im: im as f32, ratio };
        }
        let memory = memory(filter);
        let mut best = (f64::INFINITY, Self { a: a_re, c1: 0.0, c2: 0.0, re: 0.0, im: 0.0, ratio });
        let middle = (-a.im * ratio) as f32;
        for offset in 0..=2 * TRIED {
            let c1 = f32::from_bits(middle.to_bits() + offset - TRIED);
            let c2 = (-a.im * a.im / f64::from(c1)) as f32;
            let turn = (f64::from(c1) * f64::from(c2) / (-a.im * a.im) - 1.0) * a.im / 2.0;
            let scale = (-f64::from(c1) / f64::from(c2)).sqrt().copysign(ratio);
            let phase = (scale - ratio) / (1.0 + ratio * ratio);
            let error = phase.powi(2) + (memory * turn).powi(2);
            if error < best.0 {
                // The larger part stays, so that the weight's size does.
                let (re, im) = if ratio.abs() > 1.0 { (im / scale, im) } else { (re, scale * re) };
                let (re, im) = (re as f32, im as f32);
                best = (error, Self { a: a_re, c1, c2, re, im, ratio: scale });
            }
        }
        best.1
    }

    /// The values that a kernel reads.
    pub(super) fn values(&self, filter: &Filter) -> [f32; LONG_VALUES] {
        let Self { a, c1, c2, re, im, ratio } = *self;
        let turned: Complex64 = filter.pole().powu(TILE as u32);
        let split = |x: f64| [x as f32, (x - f64::from(x as f32)) as f32];
        let [m, m_rest] = split(turned.re);
        let [down, down_rest] = split(-turned.im * ratio);
        let [up, up_rest] = split(turned.im / ratio);
        [a, c1, c2, re, im, m, down, up, m_rest, down_rest, up_rest]
    }
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use super::*;

    /// The response of a filter in double precision, with its scaled coefficients.
    fn response(scaled: &Scaled, samples: usize) -> Vec<Complex64> {
        let [a, c1, c2, re, im] =
            [scaled.a, scaled.c1, scaled.c2, scaled.re, scaled.im].map(f64::from);
        let (mut u, mut v, mut x) = (0.0, 0.0, 1.0);
        let step = |_| {
            (u, v) = (a * u + (c1 * v + x), a * v + (c2 * u + x));
            x = 0.0;
            Complex64::new(re * u, im * v)
        };
        (0..samples).map(step).collect()
    }

    #[test]
    fn scaling_keeps_the_response() {
        let weights = [(0.1, 0.2), (-0.3, 1e-4), (2.0, 0.0), (0.0, -1.0), (1e-3, -5.0)];
        for memory in [3.0, 100.0, 4900.0] {
            for angle in [0.0, 0.05, -0.2, 1.5_f64] {
                for (re, im) in weights {
                    let a = Complex64::from_polar((-1.0_f64 / memory).exp(), angle);
                    let a = Complex::new(a.re as f32, a.im as f32);
                    let filter = Filter { a, b: Complex::new(re, im), delay: 0 };
                    let samples = 3 * memory as usize;
                    let found = response(&Scaled::new(&filter), samples);
                    let worst = found.iter().enumerate().map(|(n, y)| {
                        let expected = filter.weight() * filter.pole().powu(n as u32);
                        (y - expected).norm() / filter.weight().norm()
                    });
                    let worst = worst.fold(0.0, f64::max);
                    assert!(worst < 4e-6, "{filter:?}: {worst:.1e}");
                    if has_long_memory(&filter) {
                        continue;
                    }
                    assert!(worst < 2e-6, "{filter:?}: {worst:.1e}");
                }
            }
        }
    }

    #[test]
    fn poles_that_hardly_turn_are_real() {
        let turns = [0.0, 1e-45, 1e-38, -1e-38, 1e-37, 1e-20, 2e-18, -1e-15, 1e-12];
        for (re, im) in turns.iter().flat_map(|im| [(0.9, *im), (0.5, -*im), (0.0, *im)]) {
            for (b_re, b_im) in [(0.0, 1.0), (1.0, 0.0), (-0.7, 0.7)] {
                let (a, b) = (Complex::new(re, im), Complex::new(b_re, b_im));
                let filter = Filter { a, b, delay: 0 };
                for (n, found) in response(&Scaled::new(&filter), 60).iter().enumerate() {
                    let expected = filter.weight() * filter.pole().powu(n as u32);
                    assert!((found - expected).norm() < 2e-6, "{filter:?}: {found} at {n}");
                }
                let values = Scaled::new(&filter).values(&filter);
                assert!(values.iter().all(|value| value.is_finite()), "{filter:?}: {values:?}");
            }
        }
    }

    #[test]
    fn a_weight_of_nothing_gives_nothing() {
        let a = Complex::new(0.5, 0.5);
        let scaled = Scaled::new(&Filter { a, b: Complex::new(0.0, 0.0), delay: 0 });
        assert!(response(&scaled, 40).iter().all(|y| y.norm() == 0.0));
    }
}
