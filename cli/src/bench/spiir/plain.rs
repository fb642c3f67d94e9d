//! Baseline: one filter after another, one sample after another.

use num_complex::Complex;
use sidereal::spiir::Filter;

/// A template's filters in plain loops, with persistent states.
#[derive(Debug)]
pub(super) struct Plain {
    filters: Vec<Filter>,
    states: Vec<Complex<f32>>,
}

impl Plain {
    pub(super) fn new(filters: &[Filter]) -> Self {
        Self { filters: filters.to_vec(), states: vec![Complex::default(); filters.len()] }
    }

    /// Writes the sum of all filters to `output`; its first sample corresponds to `x[begin]`.
    pub(super) fn run(&mut self, x: &[f32], begin: usize, output: &mut [Complex<f32>]) {
        output.fill(Complex::default());
        for (filter, state) in self.filters.iter().zip(&mut self.states) {
            let x = &x[begin - filter.delay as usize..][..output.len()];
            let (a, b, mut y) = (filter.a, filter.b, *state);
            for (z, x) in output.iter_mut().zip(x) {
                y = Complex::new(
                    a.re * y.re - a.im * y.im + b.re * x,
                    a.re * y.im + a.im * y.re + b.im * x,
                );
                *z += y;
            }
            *state = y;
        }
    }
}
