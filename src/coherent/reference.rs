//! Reference: the equation in double precision, one block of one stream at a time.

use std::f64::consts::TAU;

use num_complex::Complex;

use super::plan::{Plan, Step};
use crate::voltage::{VoltageBlock, Voltages};

type Complex64 = Complex<f64>;

#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    /// Carried samples of each stream, the zeros before the recording included.
    carried: Vec<Vec<Complex64>>,
}

impl Engine {
    pub(super) fn new(plan: &Plan) -> Self {
        let carried = vec![Vec::new(); plan.options().streams()];
        Self { plan: plan.clone(), carried }
    }

    pub(super) fn run(&mut self, step: Step, input: Voltages<'_>, output: &mut VoltageBlock<'_>) {
        let Self { plan, carried } = self;
        let (points, block, overlap) = (plan.points(), plan.block(), plan.overlap());
        for (stream, samples) in carried.iter_mut().enumerate() {
            // A stream begins with zeros.
            samples.resize(step.held, Complex::ZERO);
            samples.extend((0..step.fresh).map(|time| input.value(stream, time)));
            let coarse = stream / plan.options().polarizations % plan.options().coarse_channels();
            for number in 0..step.blocks {
                let sample = |n: usize| samples.get(number * block + n).copied();
                let window = (0..points).map(|n| sample(n).unwrap_or_default()).collect();
                let spectrum = transform(window, -1.0);
                for copy in 0..2 {
                    let bins = spectrum.iter().enumerate();
                    let product = bins.map(|(bin, x)| x * plan.response(coarse, copy, bin));
                    let filtered = transform(product.collect(), 1.0);
                    let row = output.row_mut(copy * plan.options().streams() + stream);
                    for (n, value) in filtered[overlap..][..block].iter().enumerate() {
                        write(row, number * block + n, *value, plan);
                    }
                }
            }
            samples.drain(..samples.len().min(step.blocks * block));
        }
    }

    pub(super) fn reset(&mut self) {
        self.carried.iter_mut().for_each(Vec::clear);
    }
}

fn write(row: &mut [u8], at: usize, value: Complex64, plan: &Plan) {
    let (re, im) = ((value.re as f32).to_le_bytes(), (value.im as f32).to_le_bytes());
    if plan.options().encoding.is_complex() {
        row[8 * at..][..4].copy_from_slice(&re);
        row[8 * at + 4..][..4].copy_from_slice(&im);
    } else {
        row[4 * at..][..4].copy_from_slice(&re);
    }
}

/// Returns `Y[m] = sum_n x[n] exp(sign 2 pi i n m / N)` for N a power of two, by halves: even and odd samples.
fn transform(samples: Vec<Complex64>, sign: f64) -> Vec<Complex64> {
    let points = samples.len();
    if points == 1 {
        return samples;
    }
    let half =
        |first: usize| transform(samples[first..].iter().step_by(2).copied().collect(), sign);
    let (even, odd) = (half(0), half(1));
    let turned = |m: usize| odd[m] * Complex::cis(sign * TAU * m as f64 / points as f64);
    let sums = (0..points / 2).map(|m| even[m] + turned(m));
    let differences = (0..points / 2).map(|m| even[m] - turned(m));
    sums.chain(differences).collect()
}
