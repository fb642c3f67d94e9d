//! An X-engine run whole and in pieces, and its expected sums.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::ops::Range;

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::correlate::{Correlator, Output, Plan};
use sidereal::voltage::VoltageEncoding;

use super::correlate::{Complex64, Recording};
use super::random::Random;

/// Unit roundoff of single precision.
pub const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// Value of outputs before a call, and of the guard elements around them at all times.
const DIRT: i64 = -0x5a5a_5a5a_5a5a;

/// The host's backends with all their variants, and GPUs.
pub fn backends(threads: usize) -> Vec<Backend> {
    let gpus = Backend::available(threads).into_iter().filter(Backend::is_gpu);
    Backend::variants(threads).into_iter().chain(gpus).collect()
}

/// The same without an emulated GPU, which is thousands of times slower than a real one.
pub fn fast_backends(threads: usize) -> Vec<Backend> {
    let is_fast = |backend: &Backend| !backend.name().contains("Emulated");
    backends(threads).into_iter().filter(is_fast).collect()
}

/// Sums and counts of some channels; of the two kinds of sums one is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums {
    pub integers: Vec<Complex<i64>>,
    pub floats: Vec<Complex64>,
    pub counts: Vec<u64>,
}

impl Sums {
    /// Sums as numbers to compare bit by bit, or not at all.
    pub fn bits(&self) -> Vec<[u64; 2]> {
        let floats = self.floats.iter().map(|sum| [sum.re.to_bits(), sum.im.to_bits()]);
        let integers = self.integers.iter().map(|sum| [sum.re as u64, sum.im as u64]);
        floats.chain(integers).collect()
    }

    pub fn value(&self, at: usize) -> Complex64 {
        match self.integers.get(at) {
            Some(sum) => Complex64::new(sum.re as f64, sum.im as f64),
            None => self.floats[at],
        }
    }

    /// Selects the sums of some channels from those of all.
    pub fn channels(&self, plan: &Plan, channels: Range<usize>) -> Self {
        let row = plan.row_elements();
        let part = channels.start * row..channels.end * row;
        let baselines = channels.start * plan.baselines()..channels.end * plan.baselines();
        Self {
            integers: self.integers.get(part.clone()).unwrap_or_default().to_vec(),
            floats: self.floats.get(part).unwrap_or_default().to_vec(),
            counts: self.counts[baselines].to_vec(),
        }
    }
}

/// Reads some channels into dirty outputs between guards.
pub fn read(correlator: &mut Correlator, channels: Range<usize>) -> Sums {
    let plan = correlator.plan().clone();
    let (sums, counts) = (channels.len() * plan.row_elements(), channels.len() * plan.baselines());
    let mut numbers = vec![DIRT as u64; counts + 6];
    let own = 3..3 + counts;
    let mut read = Sums::default();
    if plan.encoding() == VoltageEncoding::ComplexF32 {
        let mut words = vec![Complex64::new(DIRT as f64, f64::NAN); sums + 10];
        let output = Output::Float(&mut words[5..5 + sums]);
        correlator.read(channels, output, &mut numbers[own.clone()]).unwrap();
        let mut guards = words[..5].iter().chain(&words[5 + sums..]);
        assert!(guards.all(|word| word.re == DIRT as f64 && word.im.is_nan()), "guards written");
        read.floats = words[5..5 + sums].to_vec();
    } else {
        let mut words = vec![Complex::new(DIRT, DIRT); sums + 10];
        let output = Output::Integer(&mut words[5..5 + sums]);
        correlator.read(channels, output, &mut numbers[own.clone()]).unwrap();
        let mut guards = words[..5].iter().chain(&words[5 + sums..]);
        assert!(guards.all(|word| word.re == DIRT && word.im == DIRT), "guards written");
        read.integers = words[5..5 + sums].to_vec();
    }
    let mut guards = numbers[..3].iter().chain(&numbers[3 + counts..]);
    assert!(guards.all(|word| *word == DIRT as u64), "guards written");
    read.counts = numbers[own].to_vec();
    read
}

/// Runs one block on one thread.
pub fn whole(recording: &Recording, backend: &Backend, random: &mut Random) -> Sums {
    let mut correlator = Correlator::new(recording.plan.clone(), backend).unwrap();
    let packed = recording.pack(0..recording.times, random);
    correlator.run(packed.block(&recording.plan)).unwrap();
    assert_eq!(correlator.times(), recording.times as u64);
    read(&mut correlator, 0..recording.plan.channels())
}

/// Random blocks, on an X-engine that has processed others before, with reads in between.
pub fn split(recording: &Recording, backend: &Backend, random: &mut Random) -> Sums {
    let plan = &recording.plan;
    let mut correlator = Correlator::new(plan.clone(), backend).unwrap();
    if random.below(2) == 0 {
        let part = random.below(recording.times + 1);
        correlator.run(recording.pack(0..part, random).block(plan)).unwrap();
        correlator.reset();
        assert_eq!(correlator.times(), 0);
        let sums = read(&mut correlator, 0..plan.channels());
        assert!(sums.counts.iter().all(|count| *count == 0));
        assert!(sums.bits().iter().all(|bits| *bits == [0, 0]), "sums are left after a reset");
    }
    let largest = [1, 3, 70, 300, recording.times][random.below(5)].max(recording.times / 40);
    let mut taken = 0;
    while taken < recording.times {
        // Empty blocks are blocks too.
        let times = random.below(largest + 1).min(recording.times - taken);
        correlator.run(recording.pack(taken..taken + times, random).block(plan)).unwrap();
        taken += times;
        assert_eq!(correlator.times(), taken as u64);
        if random.below(4) == 0 {
            let start = random.below(plan.channels() + 1);
            read(&mut correlator, start..start + random.below(plan.channels() + 1 - start));
        }
    }
    read(&mut correlator, 0..plan.channels())
}

/// Plain sums over valid samples, and sums of magnitudes: `|a c| + |b d|` and `|b c| + |a d|`.
pub fn truth(recording: &Recording) -> (Vec<Complex64>, Vec<Complex64>, Vec<u64>) {
    let plan = &recording.plan;
    let (times, polarizations) = (recording.times, plan.polarizations());
    let (mut sums, mut magnitudes, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for channel in 0..plan.channels() {
        let mask =
            |antenna| &recording.valid[(channel * plan.antennas() + antenna) * times..][..times];
        let row = |input| &recording.values[(channel * plan.inputs() + input) * times..][..times];
        for i in 0..plan.antennas() {
            for j in 0..=i {
                let both: Vec<usize> =
                    (0..times).filter(|time| mask(i)[*time] && mask(j)[*time]).collect();
                counts.push(both.len() as u64);
                for pair in 0..plan.pairs() {
                    let x = row(i * polarizations + pair / polarizations);
                    let y = row(j * polarizations + pair % polarizations);
                    let (mut sum, mut magnitude) = (Complex64::ZERO, Complex64::ZERO);
                    for time in &both {
                        let (x, y) = (x[*time], y[*time]);
                        sum += Complex64::new(x.re * y.re + x.im * y.im, x.im * y.re - x.re * y.im);
                        let (re, im) = ((x.re * y.re).abs(), (x.im * y.re).abs());
                        magnitude.re += re + (x.im * y.im).abs();
                        magnitude.im += im + (x.re * y.im).abs();
                    }
                    sums.push(sum);
                    magnitudes.push(magnitude);
                }
            }
        }
    }
    (sums, magnitudes, counts)
}
