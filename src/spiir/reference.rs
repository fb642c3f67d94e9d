//! Reference implementation of the filter bank: plain loops in double precision that the other backends are tested
//! against.

use num_complex::{Complex, Complex64};

use super::plan::{Filter, Plan};

/// Filters in double precision with the rounded coefficients.
#[derive(Debug)]
pub struct Engine {
    plan: Plan,
    /// Input of each level since the stream's start.
    inputs: Vec<Vec<f64>>,
    /// States of the filters, and the sum since the stream's start, for each template and level.
    states: Vec<Vec<(Vec<Complex64>, Vec<Complex64>)>>,
    /// Samples written.
    written: usize,
}

impl Engine {
    /// Starts a stream.
    pub fn new(plan: &Plan) -> Self {
        let levels = plan.levels();
        let states = vec![vec![(Vec::new(), Vec::new()); levels]; plan.templates()];
        Self { plan: plan.clone(), inputs: vec![Vec::new(); levels], states, written: 0 }
    }

    /// Filters samples of whitened strain and writes the ratios known so far to `output` (template, time).
    pub fn run(&mut self, input: &[f32], output: &mut [Complex<f32>], stride: usize) -> usize {
        let Self { plan, inputs, states, written } = self;
        let finite = |x: &f32| if x.is_finite() { f64::from(*x) } else { 0.0 };
        inputs[0].extend(input.iter().map(finite));
        let down = &plan.options().resampler.down;
        for level in 1..inputs.len() {
            let (higher, lower) = inputs.split_at_mut(level);
            let higher = &higher[level - 1];
            for k in lower[0].len()..higher.len().div_ceil(2) {
                let taps = down.iter().enumerate().take_while(|(j, _)| *j <= 2 * k);
                lower[0].push(taps.map(|(j, tap)| f64::from(*tap) * higher[2 * k - j]).sum());
            }
        }
        for (template, levels) in states.iter_mut().enumerate() {
            for level in (0..inputs.len()).rev() {
                extend(plan, template, level, &inputs[level], levels);
            }
        }
        let latency = plan.latency();
        let known = inputs[0].len().saturating_sub(latency);
        let produced = known - *written;
        for (template, levels) in states.iter().enumerate() {
            let row = &mut output[template * stride..][..produced];
            for (z, sum) in row.iter_mut().zip(levels[0].1.iter().skip(*written + latency)) {
                *z = Complex::new(sum.re as f32, sum.im as f32);
            }
        }
        *written = known;
        produced
    }
}

/// Extends one template's sum at one level to the end of its input: its own filters plus the upsampled lower level.
fn extend(
    plan: &Plan,
    template: usize,
    level: usize,
    x: &[f64],
    levels: &mut [(Vec<Complex64>, Vec<Complex64>)],
) {
    let branches = &plan.options().templates[template].branches;
    let branch = branches.iter().find(|branch| branch.halvings as usize == level);
    let filters: &[Filter] = branch.map_or(&[], |branch| &branch.filters);
    let (own, lower) = levels[level..].split_at_mut(1);
    let (states, sums) = &mut own[0];
    states.resize(filters.len(), Complex64::default());
    for k in sums.len()..x.len() {
        let mut sum =
            lower.first().map_or(Complex64::default(), |lower| doubled(plan, &lower.1, k));
        for (y, filter) in states.iter_mut().zip(filters) {
            let at = k.checked_sub(filter.delay as usize + plan.alignment(level));
            *y = filter.pole() * *y + filter.weight() * at.map_or(0.0, |at| x[at]);
            sum += *y;
        }
        sums.push(sum);
    }
}

/// Returns sample `n` of a lower level's sum at twice its rate.
fn doubled(plan: &Plan, lower: &[Complex64], n: usize) -> Complex64 {
    let up = plan.options().resampler.up.iter().enumerate();
    let taps = up.filter(|(j, _)| *j <= n && (n - j).is_multiple_of(2));
    taps.map(|(j, tap)| lower[(n - j) / 2] * f64::from(*tap)).sum()
}
