//! Checks an X-engine's sums: compares some of them with sums of single products.

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::correlate::{Block, Correlator, Output, Plan};
use sidereal::voltage::VoltageEncoding;

/// Number of antennas whose baselines are compared: the first, the last and some between.
const ANTENNAS: usize = 6;

/// Correlates one block into empty sums and compares the sums of its first and last channel.
///
/// # Errors
/// Those of the X-engine.
pub(super) fn is_right(plan: &Plan, backend: &Backend, block: Block<'_>) -> Result<bool> {
    let mut correlator = Correlator::new(plan.clone(), backend)?;
    correlator.run(block)?;
    let mut right = true;
    for channel in [0, plan.channels() - 1] {
        let sums = read(plan, &mut correlator, channel)?;
        for (i, j) in baselines(plan) {
            for pair in 0..plan.pairs() {
                let found = sums[Plan::baseline(i, j) * plan.pairs() + pair];
                right &= product(plan, block, channel, (i, j, pair)).agrees(found);
            }
        }
    }
    Ok(right)
}

/// Reads a channel's sums as floats; integer sums here are far below 2^53.
fn read(plan: &Plan, correlator: &mut Correlator, channel: usize) -> Result<Vec<Complex<f64>>> {
    let mut counts = vec![0; plan.baselines()];
    let mut floats = vec![Complex::ZERO; plan.row_elements()];
    let channels = channel..channel + 1;
    if plan.encoding() == VoltageEncoding::ComplexF32 {
        correlator.read(channels, Output::Float(&mut floats), &mut counts)?;
    } else {
        let mut integers = vec![Complex::new(0i64, 0); plan.row_elements()];
        correlator.read(channels, Output::Integer(&mut integers), &mut counts)?;
        let sums = integers.iter().map(|z| Complex::new(z.re as f64, z.im as f64));
        floats = sums.collect();
    }
    Ok(floats)
}

fn baselines(plan: &Plan) -> Vec<(usize, usize)> {
    let last = plan.antennas() - 1;
    let antennas = (0..ANTENNAS).map(|k| k * last / (ANTENNAS - 1));
    let antennas: Vec<usize> = antennas.collect();
    let pairs = antennas.iter().flat_map(|i| antennas.iter().map(|j| (*i, *j)));
    pairs.filter(|(i, j)| i >= j).collect()
}

/// Reference sum, and the largest allowed difference from it.
struct Sum {
    value: Complex<f64>,
    bound: f64,
}

impl Sum {
    fn agrees(&self, found: Complex<f64>) -> bool {
        (found - self.value).norm() <= self.bound
    }
}

/// Sums one baseline's products of two polarizations.
fn product(
    plan: &Plan,
    block: Block<'_>,
    channel: usize,
    (i, j, pair): (usize, usize, usize),
) -> Sum {
    let polarizations = plan.polarizations();
    let (x, y) =
        (i * polarizations + pair / polarizations, j * polarizations + pair % polarizations);
    let (mut value, mut power) = (Complex::ZERO, 0.0);
    for time in 0..block.times() {
        let product =
            block.value(plan, channel, x, time) * block.value(plan, channel, y, time).conj();
        value += product;
        power += product.norm();
    }
    let float = plan.encoding() == VoltageEncoding::ComplexF32;
    Sum { value, bound: if float { 2e-6 * power } else { 0.0 } }
}
