//! The X-engine on the CPU: plain loops over packed spectra.
//!
//! Invariant: the same bits for any split of a stream and any number of threads.

use std::ops::Range;

use num_complex::Complex;

use super::block::Block;
use super::output::Output;
use super::plan::Plan;
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::voltage::VoltageEncoding;

/// A plan bound to threads.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    threads: Threads,
    scratch: Vec<()>,
    rows: Vec<Row>,
    times: u64,
}

/// Samples that are summed in single precision.
const RUN: u64 = 256;

/// One channel's sums.
#[derive(Debug)]
struct Row {
    integers: Vec<Complex<i64>>,
    parts: Vec<Complex<f32>>,
    floats: Vec<Complex<f64>>,
    counts: Vec<u64>,
}

impl Engine {
    pub(super) fn new(plan: &Plan, _level: Level, threads: &Threads) -> Result<Self> {
        let float = plan.encoding() == VoltageEncoding::ComplexF32;
        let (integers, floats) =
            if float { (0, plan.row_elements()) } else { (plan.row_elements(), 0) };
        let row = || Row {
            integers: vec![Complex::new(0, 0); integers],
            parts: vec![Complex::new(0.0, 0.0); floats],
            floats: vec![Complex::new(0.0, 0.0); floats],
            counts: vec![0; plan.baselines()],
        };
        Ok(Self {
            rows: (0..plan.channels()).map(|_| row()).collect(),
            scratch: vec![(); threads.count()],
            threads: threads.clone(),
            plan: plan.clone(),
            times: 0,
        })
    }

    pub(super) fn run(&mut self, block: Block<'_>) {
        let (plan, first) = (&self.plan, self.times);
        self.threads.for_each_chunk(&mut self.scratch, &mut self.rows, 1, |(), channel, row| {
            for time in 0..block.times() {
                row[0].add(plan, block, channel, time);
                if (first + time as u64 + 1).is_multiple_of(RUN) {
                    row[0].settle();
                }
            }
        });
        self.times += block.times() as u64;
    }

    pub(super) fn read(&mut self, channels: Range<usize>, output: Output<'_>, counts: &mut [u64]) {
        let (elements, baselines) = (self.plan.row_elements(), self.plan.baselines());
        let rows = &self.rows[channels];
        match output {
            Output::Integer(sums) => {
                let sums = sums.chunks_exact_mut(elements).zip(rows);
                sums.for_each(|(sums, row)| sums.copy_from_slice(&row.integers));
            }
            Output::Float(sums) => {
                for (sums, row) in sums.chunks_exact_mut(elements).zip(rows) {
                    let parts = row.floats.iter().zip(&row.parts);
                    sums.iter_mut().zip(parts).for_each(|(sum, (whole, part))| {
                        *sum = whole + Complex::new(f64::from(part.re), f64::from(part.im));
                    });
                }
            }
        }
        let counts = counts.chunks_exact_mut(baselines).zip(rows);
        counts.for_each(|(counts, row)| counts.copy_from_slice(&row.counts));
    }

    pub(super) fn reset(&mut self) {
        for row in &mut self.rows {
            row.integers.fill(Complex::new(0, 0));
            row.parts.fill(Complex::new(0.0, 0.0));
            row.floats.fill(Complex::new(0.0, 0.0));
            row.counts.fill(0);
        }
        self.times = 0;
    }
}

impl Row {
    fn add(&mut self, plan: &Plan, block: Block<'_>, channel: usize, time: usize) {
        let polarizations = plan.polarizations();
        for i in (0..plan.antennas()).filter(|i| block.is_valid(plan, channel, *i, time)) {
            for j in (0..=i).filter(|j| block.is_valid(plan, channel, *j, time)) {
                let baseline = Plan::baseline(i, j);
                self.counts[baseline] += 1;
                for pair in 0..plan.pairs() {
                    let input = |antenna: usize, polarization: usize| {
                        block.value(plan, channel, antenna * polarizations + polarization, time)
                    };
                    let (x, y) = (input(i, pair / polarizations), input(j, pair % polarizations));
                    let product = x * y.conj();
                    let at = baseline * plan.pairs() + pair;
                    match self.integers.get_mut(at) {
                        Some(sum) => *sum += Complex::new(product.re as i64, product.im as i64),
                        None => {
                            self.parts[at] += Complex::new(product.re as f32, product.im as f32)
                        }
                    }
                }
            }
        }
    }

    /// Adds single-precision sums to those in double precision.
    fn settle(&mut self) {
        for (whole, part) in self.floats.iter_mut().zip(&mut self.parts) {
            *whole += Complex::new(f64::from(part.re), f64::from(part.im));
            *part = Complex::new(0.0, 0.0);
        }
    }
}
