//! Scaled form of a filter for GPUs: six multiply-adds per sample, with input weight 1.
//!
//! With `(u, v) = (Re y / Re b, Im y / Im b)` a step is `u' = re(a) u + c1 v + x`, `v' = c2 u + re(a) v + x`, and the
//! sums grow by `re(b) u'` and `im(b) v'`, where `c1 = -im(a) t`, `c2 = im(a) / t`, `t = im(b) / re(b)`. The rounding
//! error is that of the coupled form, because scaling changes no relative error. Rounding c1 and c2 independently
//! would move the pole, so of the floats around c1 the one is chosen whose product with its c2 is nearest to
//! `-im(a)^2`.

use num_complex::Complex64;

use super::super::plan::Filter;

/// Memory in samples above which rounding the state once per sample would show.
const LONG_MEMORY: f64 = 5000.0;
/// The same limit as the phase in radians through which the pole rotates within its memory.
const LONG_TURN: f64 = 400.0;
/// Least magnitude of either part of a weight, relative to the weight; the ratio of the parts scales the states.
const LEAST_PART: f64 = 1e-9;
/// A pole that rotates by less than this per sample is taken as real. The response changes by at most this times the
/// memory, relative to the weight: 2e-11 for the longest memory that single precision has. So c1 and c2 are from
/// 1e-27 to 1e9.
const LEAST_TURN: f64 = 1e-18;
/// Floats tried on either side of c1.
const TRIED: u32 = 32;

/// Samples of a tile, after which a long memory's state is rounded.
pub(super) const TILE: usize = 16;

/// Values of a filter: `re(a), c1, c2, re(b), im(b)`. With long memories three elements of the matrix that advances
/// the state by a tile follow, each as a float and its rounding residual.
pub(super) const SHORT_VALUES: usize = 5;
/// As [`SHORT_VALUES`].
pub(super) const LONG_VALUES: usize = 11;

/// Scaled coefficients of a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scaled {
    pub(super) a: f32,
    pub(super) c1: f32,
    pub(super) c2: f32,
    pub(super) re: f32,
    pub(super) im: f32,
    /// Scale of the second state component relative to the first.
    ratio: f64,
}

/// Tells whether a filter's state is to be rounded once per tile.
pub(super) fn has_long_memory(filter: &Filter) -> bool {
    let memory = memory(filter);
    memory > LONG_MEMORY || memory * filter.pole().im.abs() > LONG_TURN
}

/// Returns the filter's decay time in samples.
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
                // Keeps the larger part, so that the weight's magnitude is kept.
                let (re, im) = if ratio.abs() > 1.0 { (im / scale, im) } else { (re, scale * re) };
                let (re, im) = (re as f32, im as f32);
                best = (error, Self { a: a_re, c1, c2, re, im, ratio: scale });
            }
        }
        best.1
    }

    /// Returns the values that the kernel reads.
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

    /// Returns the impulse response in double precision with the scaled coefficients.
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
