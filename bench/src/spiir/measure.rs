//! Times roof, baseline and filter bank alternately.

use std::time::Instant;

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::spiir::Filter;
use sidereal::spiir::{Plan, Spiir, Template};

use super::bank;
use super::bank::Random;
use super::cases::{Baseline, Case};
use crate::table::{Row, best_and_median};

/// Least number of rounds.
const ROUNDS: usize = 5;

/// Approximate duration of a round's blocks in seconds.
const ROUND_S: f64 = 2e-3;

/// Operations per filter and sample.
const OPERATIONS: f64 = 12.0;

/// Templates that are compared with the reference.
const CHECKED: usize = 3;

/// Largest allowed error relative to the root mean square.
pub(crate) const ERROR: f64 = 1e-5;

/// Filter bank on an endless stream.
struct Ours {
    spiir: Spiir,
    input: Vec<f32>,
    output: Vec<Complex<f32>>,
    block: usize,
}

impl Ours {
    fn new(plan: Plan, level: Level, threads: &Threads, block: usize) -> Result<Self> {
        let mut random = Random(99);
        let blocks = 65536_usize.div_ceil(block);
        Ok(Self {
            input: (0..blocks * block).map(|_| random.normal()).collect(),
            output: vec![Complex::default(); plan.templates() * block],
            spiir: Spiir::new(plan, &Backend::Cpu(level, threads.clone()))?,
            block,
        })
    }

    /// Returns the template samples per second over enough blocks for a stable time.
    fn rate(&mut self) -> Result<f64> {
        let (began, mut blocks) = (Instant::now(), 0);
        for block in self.input.chunks_exact(self.block).cycle() {
            self.spiir.run(block, &mut self.output, self.block)?;
            blocks += 1;
            if began.elapsed().as_secs_f64() > ROUND_S {
                break;
            }
        }
        let samples = blocks * self.block * self.spiir.plan().templates();
        Ok(samples as f64 / began.elapsed().as_secs_f64())
    }

    /// Lets noise decay to states that would be denormal if denormals were not flushed.
    fn quieten(&mut self) -> Result<()> {
        self.rate()?;
        self.input.fill(0.0);
        for block in self.input.chunks_exact(self.block) {
            self.spiir.run(block, &mut self.output, self.block)?;
        }
        Ok(())
    }
}

/// Reference that a rate is compared with.
enum Other {
    Plain { plain: Plain, input: Vec<f32>, longest: usize, output: Vec<Complex<f32>> },
    Ours(Box<Ours>),
}

impl Other {
    fn new(case: &Case, plan: &Plan) -> Result<Self> {
        let ours = |plan, threads: usize| -> Result<Self> {
            let ours = Ours::new(plan, case.level, &Threads::new(threads), case.block)?;
            Ok(Self::Ours(Box::new(ours)))
        };
        match case.baseline {
            Baseline::OneThread => ours(plan.clone(), 1),
            Baseline::OneRate => ours(bank::plan(case.templates, case.filters, 1)?, case.threads),
            Baseline::Noise => ours(plan.clone(), case.threads),
            Baseline::Plain => {
                let longest = plan.history(0);
                let filters = &plan.options().templates[0].branches[0].filters;
                let mut random = Random(5);
                let output = vec![Complex::default(); 4096.max(65536 / filters.len())];
                let input = (0..longest + output.len()).map(|_| random.normal()).collect();
                Ok(Self::Plain { plain: Plain::new(filters), input, longest, output })
            }
        }
    }

    /// Returns the template samples per second.
    fn rate(&mut self) -> Result<f64> {
        match self {
            Self::Ours(ours) => ours.rate(),
            Self::Plain { plain, input, longest, output } => {
                let began = Instant::now();
                plain.run(input, *longest, output);
                Ok(output.len() as f64 / began.elapsed().as_secs_f64())
            }
        }
    }
}

/// Measures one case.
///
/// # Errors
/// Those of the filter bank.
pub(super) fn measure(case: &Case, seconds: f64) -> Result<Row> {
    let plan = bank::plan(case.templates, case.filters, case.rates)?;
    let threads = Threads::new(case.threads);
    let backend = Backend::Cpu(case.level, threads.clone());
    let checked = is_right(&plan, &backend)?;
    let mut ours = Ours::new(plan.clone(), case.level, &threads, case.block)?;
    if case.baseline == Baseline::Noise {
        ours.quieten()?;
    }
    let mut other = Other::new(case, &plan)?;
    let (mut roofs, mut baselines, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let start = Instant::now();
    while rates.len() < ROUNDS || start.elapsed().as_secs_f64() < seconds {
        roofs.push(2.0 * roof::multiply_adds(case.level, &threads, 2e-3) * OPERATIONS / 16.0);
        baselines.push(other.rate()?);
        rates.push(ours.rate()?);
    }
    // Operations, or template samples.
    let effective: f64 = plan.options().templates.iter().map(Template::effective_filters).sum();
    let operations = OPERATIONS * effective / plan.templates() as f64;
    let (scale, unit) = match case.baseline {
        Baseline::OneRate => (1e-6, "M template samples/s"),
        _ => (1e-9 * operations, "GFLOP/s"),
    };
    let (rate, median) = best_and_median(&mut rates);
    let roof = best_and_median(&mut roofs).0 / operations * scale;
    let baseline = best_and_median(&mut baselines).0 * scale;
    Ok(Row {
        bench: "spiir",
        case: case.name.clone(),
        device: backend.name(),
        rate: rate * scale,
        unit,
        roof,
        roof_unit: unit,
        fraction_of_roof: rate * scale / roof,
        baseline,
        ratio_to_baseline: rate * scale / baseline,
        checked,
        median: median * scale,
    })
}

/// Returns whether the first templates' outputs agree with the reference.
fn is_right(plan: &Plan, backend: &Backend) -> Result<bool> {
    let few = bank::first(plan, CHECKED)?;
    let samples = plan.latency() + 3000;
    let mut random = Random(17);
    let input: Vec<f32> = (0..samples).map(|_| random.normal()).collect();
    let mut output = vec![Complex::default(); plan.templates() * samples];
    Spiir::new(plan.clone(), backend)?.run(&input, &mut output, samples)?;
    let mut expected = vec![Complex::default(); few.templates() * samples];
    let known = Spiir::new(few, &Backend::Reference)?.run(&input, &mut expected, samples)?.produced;
    let rows = output.chunks_exact(samples).zip(expected.chunks_exact(samples));
    Ok(rows.map(|(x, y)| error(&x[..known], &y[..known])).all(|error| error < ERROR))
}

/// Returns the largest error relative to the root mean square.
pub(crate) fn error(found: &[Complex<f32>], expected: &[Complex<f32>]) -> f64 {
    let power: f64 = expected.iter().map(|z| f64::from(z.norm_sqr())).sum();
    let worst = found.iter().zip(expected).map(|(x, y)| f64::from((x - y).norm_sqr()));
    (worst.fold(0.0, greater) / power * expected.len() as f64).sqrt()
}

/// Returns the greater of two; NaN persists, so that every bound fails.
pub(super) fn greater(worst: f64, x: f64) -> f64 {
    if x > worst || x.is_nan() { x } else { worst }
}

/// A template's filters in plain loops, with persistent states.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) filters: Vec<Filter>,
    pub(super) states: Vec<Complex<f32>>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_within_no_bound() {
        let row = |z: f32| [Complex::new(z, 0.0), Complex::new(1.0, 1.0)];
        assert!(error(&row(2.0), &row(2.0)) < ERROR);
        let bad = error(&row(f32::NAN), &row(2.0));
        assert!(bad.is_nan() && greater(bad, 1.0).is_nan() && greater(1.0, bad).is_nan());
    }
}
