//! Reference implementation of the X-engine's equation as loops: slow; all other variants are tested against it.

use std::ops::Range;

use num_complex::Complex;

use super::block::{Block, Output};
use super::plan::Plan;
use crate::voltage::VoltageEncoding;

/// Direct evaluation of the equation; integer sums have 64 bits, float sums double precision.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    integers: Vec<Complex<i64>>,
    floats: Vec<Complex<f64>>,
    counts: Vec<u64>,
}

impl Engine {
    /// Creates zero sums.
    pub(super) fn new(plan: &Plan) -> Self {
        let elements = plan.channels() * plan.row_elements();
        let float = plan.encoding() == VoltageEncoding::ComplexF32;
        let (integers, floats) = if float { (0, elements) } else { (elements, 0) };
        Self {
            integers: vec![Complex::new(0, 0); integers],
            floats: vec![Complex::new(0.0, 0.0); floats],
            counts: vec![0; plan.channels() * plan.baselines()],
            plan: plan.clone(),
        }
    }

    /// Adds the products of all pairs of inputs at each time.
    pub(super) fn run(&mut self, block: Block<'_>) {
        let plan = self.plan.clone();
        for channel in 0..plan.channels() {
            for i in 0..plan.antennas() {
                for j in 0..=i {
                    let both = |t: &usize| {
                        block.is_valid(&plan, channel, i, *t)
                            && block.is_valid(&plan, channel, j, *t)
                    };
                    for time in (0..block.times()).filter(both) {
                        self.add(block, channel, i, j, time);
                    }
                }
            }
        }
    }

    fn add(&mut self, block: Block<'_>, channel: usize, i: usize, j: usize, time: usize) {
        let plan = &self.plan;
        let baseline = channel * plan.baselines() + Plan::baseline(i, j);
        self.counts[baseline] += 1;
        for pair in 0..plan.pairs() {
            let (p, q) = (pair / plan.polarizations(), pair % plan.polarizations());
            let x = block.value(plan, channel, i * plan.polarizations() + p, time);
            let y = block.value(plan, channel, j * plan.polarizations() + q, time);
            let product = x * y.conj();
            let at = baseline * plan.pairs() + pair;
            match self.integers.get_mut(at) {
                Some(sum) => *sum += Complex::new(product.re as i64, product.im as i64),
                None => self.floats[at] += product,
            }
        }
    }

    /// Writes the sums of some channels, and the number of valid samples of each baseline.
    pub(super) fn read(&self, channels: Range<usize>, output: Output<'_>, counts: &mut [u64]) {
        let row = self.plan.row_elements();
        let elements = channels.start * row..channels.end * row;
        match output {
            Output::Integer(sums) => sums.copy_from_slice(&self.integers[elements]),
            Output::Float(sums) => sums.copy_from_slice(&self.floats[elements]),
        }
        let baselines = self.plan.baselines();
        counts.copy_from_slice(&self.counts[channels.start * baselines..channels.end * baselines]);
    }

    /// Resets all sums and counts.
    pub(super) fn reset(&mut self) {
        self.integers.fill(Complex::new(0, 0));
        self.floats.fill(Complex::new(0.0, 0.0));
        self.counts.fill(0);
    }
}
