use std::ops::Range;

use num_complex::Complex;

use super::super::block::{Block, BlockBuffer};
use super::super::output::Output;
use super::super::plan::{Options, Plan};
use super::Engine;
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::voltage::VoltageEncoding;

use VoltageEncoding::{Complex4, Complex8, ComplexF32};

/// Numbers that look random.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Spectra, with holes if so wished.
    fn spectra(&mut self, plan: &Plan, times: usize, holes: bool) -> BlockBuffer {
        let mut buffer = BlockBuffer::new(plan, times);
        buffer.set_times(times).unwrap();
        self.fill(plan, buffer.bytes_mut());
        if holes {
            // About one word in three.
            let mut word = || if self.next() >> 62 == 0 { self.next() } else { u64::MAX };
            buffer.mask_mut().fill_with(&mut word);
        }
        buffer
    }

    fn fill(&mut self, plan: &Plan, bytes: &mut [u8]) {
        if plan.encoding() == ComplexF32 {
            let float = |bits: u64| (bits >> 40) as f32 / (1 << 24) as f32 - 0.5;
            let bytes = bytes.chunks_exact_mut(4);
            bytes.for_each(|to| to.copy_from_slice(&float(self.next()).to_le_bytes()));
            return;
        }
        // A quarter of the parts at their extremes.
        let byte = |bits: u64| match (bits >> 60, plan.encoding()) {
            (0..2, _) => 0x80,
            (2..4, Complex8) => 0x7f,
            (2..4, _) => 0x77,
            _ => (bits >> 40) as u8,
        };
        bytes.fill_with(|| byte(self.next()));
    }
}

fn plan(antennas: usize, polarizations: usize, channels: usize, encoding: VoltageEncoding) -> Plan {
    Plan::new(Options { antennas, polarizations, channels, encoding }).unwrap()
}

/// What an engine has at the end.
#[derive(Debug, PartialEq)]
struct Sums {
    integers: Vec<Complex<i64>>,
    floats: Vec<Complex<f64>>,
    counts: Vec<u64>,
}

fn read(engine: &mut Engine, channels: Range<usize>) -> Sums {
    let plan = engine.plan.clone();
    let elements = channels.len() * plan.row_elements();
    let mut counts = vec![9; channels.len() * plan.baselines()];
    let (mut integers, mut floats) = (Vec::new(), Vec::new());
    if plan.encoding() == ComplexF32 {
        floats = vec![Complex::new(9.0, 9.0); elements];
        engine.read(channels, Output::Float(&mut floats), &mut counts);
    } else {
        integers = vec![Complex::new(9, 9); elements];
        engine.read(channels, Output::Integer(&mut integers), &mut counts);
    }
    Sums { integers, floats, counts }
}

/// The equation, one product at a time.
fn expected(plan: &Plan, block: Block<'_>) -> Sums {
    let mut sums = Sums { integers: Vec::new(), floats: Vec::new(), counts: Vec::new() };
    let polarizations = plan.polarizations();
    for channel in 0..plan.channels() {
        for (i, j) in (0..plan.antennas()).flat_map(|i| (0..=i).map(move |j| (i, j))) {
            let valid = |antenna, time: &usize| block.is_valid(plan, channel, antenna, *time);
            let times = (0..block.times()).filter(|t| valid(i, t) && valid(j, t));
            let times: Vec<usize> = times.collect();
            sums.counts.push(times.len() as u64);
            for pair in 0..plan.pairs() {
                let value = |antenna: usize, polarization: usize, time: usize| {
                    block.value(plan, channel, antenna * polarizations + polarization, time)
                };
                let (p, q) = (pair / polarizations, pair % polarizations);
                let products = times.iter().map(|t| value(i, p, *t) * value(j, q, *t).conj());
                let sum: Complex<f64> = products.sum();
                if plan.encoding() == ComplexF32 {
                    sums.floats.push(sum);
                } else {
                    sums.integers.push(Complex::new(sum.re as i64, sum.im as i64));
                }
            }
        }
    }
    sums
}

fn compare(actual: &Sums, expected: &Sums, times: usize, name: &str) {
    assert_eq!(actual.counts, expected.counts, "{name}");
    assert_eq!(actual.integers, expected.integers, "{name}");
    assert_eq!(actual.floats.len(), expected.floats.len(), "{name}");
    // Samples are below one half; a run's error is a few roundings of its sum.
    let bound = 1e-5 * (times as f64).sqrt().max(1.0);
    for (a, b) in actual.floats.iter().zip(&expected.floats) {
        assert!((a - b).norm() < bound, "{name}: {a} is not {b}");
    }
}

#[test]
fn every_kernel_has_the_sums_of_the_equation() {
    let shapes = [(1, 1, 3), (1, 2, 1), (3, 1, 2), (17, 1, 1), (8, 2, 2), (9, 2, 1), (35, 2, 1)];
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for encoding in [Complex4, Complex8, ComplexF32] {
        for (antennas, polarizations, channels) in shapes {
            let plan = plan(antennas, polarizations, channels, encoding);
            for times in [0, 1, 2, 63, 67, 300] {
                for holes in [false, true] {
                    let buffer = noise.spectra(&plan, times, holes);
                    let block = buffer.block();
                    let expected = expected(&plan, block);
                    for level in Level::variants() {
                        let name = format!("{plan:?}, {times} times on {level:?}");
                        let mut engine = Engine::new(&plan, level, &Threads::new(1)).unwrap();
                        engine.run(block);
                        compare(&read(&mut engine, 0..channels), &expected, times, &name);
                    }
                }
            }
        }
    }
}
