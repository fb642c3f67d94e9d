//! Random filter banks, and recordings for them.
#![allow(dead_code, unreachable_pub, missing_docs)]

use sidereal::channelize::{Detection, Feed, Form, Input, Options, Order, Plan, Products};
use sidereal::math::Window;
use sidereal::voltage::VoltageEncoding;

use super::channelize::{Recording, Truth};
use super::random::Random;

/// Returns any window valid for the given number of points.
pub fn window(random: &mut Random, taps: usize, points: usize) -> Window {
    match random.below(7) {
        0 => Window::Hann,
        1 => Window::Hamming,
        2 => Window::Blackman,
        3 => Window::Kaiser(80.0 * random.uniform()),
        4 if taps == 1 => Window::Rectangular,
        4 => Window::Custom(vec![1.0; taps * points]),
        _ => Window::Custom((0..taps * points).map(|_| random.gaussian()).collect()),
    }
}

fn oversampling(random: &mut Random, points: usize) -> (usize, usize) {
    let all = [(1, 1), (1, 1), (4, 3), (2, 1), (8, 7), (32, 27), (3, 2), (5, 4), (points, 1)];
    let fits = |(p, q): (usize, usize)| (points * q).is_multiple_of(p);
    let chosen = all[random.below(all.len())];
    if fits(chosen) { chosen } else { (1, 1) }
}

fn detection(random: &mut Random, channels: usize, polarizations: usize) -> Detection {
    let divisors: Vec<_> = (1..=channels.min(8)).filter(|d| channels.is_multiple_of(*d)).collect();
    let all = [Products::Power, Products::I, Products::Iquv, Products::Aabbcrci];
    Detection {
        products: all[random.below(2 * polarizations)],
        feed: [Feed::Linear, Feed::Circular][random.below(2)],
        spectra: 1 + random.below(5),
        channels: divisors[random.below(divisors.len())],
        interpolate_dc: random.below(2) == 0,
    }
}

/// Gains that fill the range of `bits`, and sometimes exceed it.
fn gains(random: &mut Random, options: &Options, bits: usize, loudness: f64) -> Vec<f32> {
    let most = f64::from(1 << (bits - 1));
    let all = options.channels * options.input.coarse_channels;
    let count = if random.below(3) == 0 { 1 } else { all };
    let gain = |_| {
        let sign = if random.below(4) == 0 { -1.0 } else { 1.0 };
        (sign * most / loudness * (0.1 + random.uniform())) as f32
    };
    (0..count).map(gain).collect()
}

/// A random plan with the given channels and taps, and a recording for it.
pub fn case(random: &mut Random, index: usize, channels: usize, taps: usize) -> (Plan, Recording) {
    let encoding = VoltageEncoding::ALL[index % VoltageEncoding::ALL.len()];
    let points = if encoding.is_complex() { channels } else { 2 * channels };
    let mut options = Options::new(channels, taps, encoding);
    options.window = window(random, taps, points);
    if options.window.coefficients(taps, points).is_err() {
        // Hann and Blackman are 0 at both of two points.
        options.window = Window::Hamming;
    }
    let few = points > 1024;
    options.input = Input {
        encoding,
        scale: [1.0, 1.0, -0.37, 1e-3][random.below(4)],
        antennas: 1 + random.below(if few { 1 } else { 3 }),
        coarse_channels: 1 + random.below(if few { 2 } else { 3 }),
        polarizations: 1 + random.below(2),
    };
    options.oversampling = oversampling(random, points);
    options.order = [Order::Natural, Order::Ascending, Order::Descending][random.below(3)];
    options.reverse_coarse = random.below(2) == 0;
    // Long streams fill any batches and tiles more than once, within the time of the slow reference.
    let long = points <= 64 && random.below(6) == 0;
    let work = options.input.streams() * points * (taps + 24);
    let most = (12_000_000 / work).clamp(4, if long { 1500 } else { 40 });
    let spectra = 1 + random.below(most);
    let plan = Plan::new(options.clone()).unwrap();
    let unit = encoding.group_samples();
    let times = plan.span() + (spectra - 1) * plan.hop() + random.below(plan.hop());
    let times = times.next_multiple_of(unit);
    let recording = Recording::random(random, encoding, plan.input().streams(), times);
    options.form = match random.below(8) {
        0 => Form::Filtered,
        1..=3 => Form::Detected(detection(random, channels, options.input.polarizations)),
        4 | 5 => {
            let bits = [4, 8][random.below(2)];
            let loudness = loudness(&plan, &recording);
            Form::Requantized { bits, gains: gains(random, &options, bits, loudness) }
        }
        _ => Form::Spectra,
    };
    (Plan::new(options).unwrap(), recording)
}

/// Root mean square of the first spectrum of the first stream.
fn loudness(plan: &Plan, recording: &Recording) -> f64 {
    let sums = Truth::new(plan, recording).sums(0, 0);
    let power: f64 = sums.y.iter().map(|y| y.norm_sqr()).sum();
    power.sqrt().max(1e-3)
}

/// A plan without its coefficients.
pub struct Brief<'a>(pub &'a Plan);

impl std::fmt::Debug for Brief<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let options = self.0.options();
        let form = match &options.form {
            Form::Requantized { bits, gains } => format!("{bits} bits, {} gains", gains.len()),
            other => format!("{other:?}"),
        };
        write!(
            f,
            "{} channels, {} taps, {}, {:?}, {:?}, {:?}, {form}",
            options.channels,
            options.taps,
            options.window.name(),
            options.oversampling,
            options.input,
            options.order
        )
    }
}
