//! Checks an X-engine's sums on a device against sums of single products.

use num_complex::Complex;
use sidereal::Result;
use sidereal::correlate::{Correlator, DeviceSpectra, Output, Plan, Precision};
use sidereal::voltage::{VoltageEncoding, voltage};

use super::super::random::Random;

/// Most inputs whose products are compared: some of every tile.
const INPUTS: usize = 60;

/// Returns the allowed difference of a sum of random samples relative to the sum of magnitudes; for rounded inputs,
/// less than the worst case.
fn bound(plan: &Plan) -> f64 {
    match (plan.encoding(), plan.precision()) {
        (VoltageEncoding::ComplexF32, Precision::F32 | Precision::Split) => {
            514.5 / f64::from(1 << 24)
        }
        (VoltageEncoding::ComplexF32, _) => 1.0 / 4096.0,
        _ => 0.0,
    }
}

/// Compares products of some inputs in three channels, and the counts.
///
/// # Errors
/// Those of the device.
pub(super) fn is_right(
    correlator: &mut Correlator,
    host: &[u8],
    layout: DeviceSpectra,
) -> Result<bool> {
    let plan = correlator.plan().clone();
    let mut random = Random::new();
    let last = plan.channels() - 1;
    let mut right = true;
    for channel in [0, last, random.below(last + 1)] {
        let (sums, counts) = read(&plan, correlator, channel)?;
        right &= counts.iter().all(|count| *count == layout.times as u64);
        let rows = rows(&plan, host, (layout, channel), &mut random);
        right &= rows.iter().all(|left| {
            let others = rows.iter().filter(|right| right.input <= left.input);
            others.into_iter().all(|right| left.agrees(right, &plan, &sums))
        });
    }
    Ok(right)
}

/// Reads a channel's sums, as floats (integer sums here are far below 2^53), and its counts.
fn read(
    plan: &Plan,
    correlator: &mut Correlator,
    channel: usize,
) -> Result<(Vec<Complex<f64>>, Vec<u64>)> {
    let mut counts = vec![0; plan.baselines()];
    let channels = channel..channel + 1;
    if plan.encoding() == VoltageEncoding::ComplexF32 {
        let mut floats = vec![Complex::ZERO; plan.row_elements()];
        correlator.read(channels, Output::Float(&mut floats), &mut counts)?;
        return Ok((floats, counts));
    }
    let mut integers = vec![Complex::new(0i64, 0); plan.row_elements()];
    correlator.read(channels, Output::Integer(&mut integers), &mut counts)?;
    Ok((integers.iter().map(|z| Complex::new(z.re as f64, z.im as f64)).collect(), counts))
}

/// Samples of an input in a channel.
struct Row {
    input: usize,
    values: Vec<Complex<f64>>,
}

/// Returns the first, the last and some other inputs, unordered; all inputs when they are few.
fn rows(
    plan: &Plan,
    host: &[u8],
    (layout, channel): (DeviceSpectra, usize),
    random: &mut Random,
) -> Vec<Row> {
    let inputs = plan.inputs();
    let mut chosen: Vec<usize> = (0..inputs).collect();
    if inputs > INPUTS {
        let spread = |k: usize| k * inputs / INPUTS + random.below(inputs / INPUTS);
        chosen = (0..INPUTS).map(spread).collect();
        (chosen[0], chosen[INPUTS - 1]) = (0, inputs - 1);
    }
    let encoding = plan.encoding();
    let row = |input: usize| {
        let first =
            layout.first_byte + channel * layout.channel_stride + input * layout.input_stride;
        let bytes = &host[first..first + encoding.bytes(layout.times)];
        let values = (0..layout.times).map(|time| voltage(bytes, encoding, time)).collect();
        Row { input, values }
    };
    chosen.into_iter().map(row).collect()
}

impl Row {
    fn agrees(&self, other: &Self, plan: &Plan, sums: &[Complex<f64>]) -> bool {
        let polarizations = plan.polarizations();
        let (i, j) = (self.input / polarizations, other.input / polarizations);
        let pair = self.input % polarizations * polarizations + other.input % polarizations;
        let found = sums[Plan::baseline(i, j) * plan.pairs() + pair];
        let products = self.values.iter().zip(&other.values).map(|(x, y)| x * y.conj());
        let (sum, size) = products.fold((Complex::ZERO, 0.0), |(sum, size), product| {
            (sum + product, size + product.norm())
        });
        (found - sum).norm() <= bound(plan) * size
    }
}
