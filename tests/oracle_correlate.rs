//! Every backend's visibilities are plain sums: exactly where spectra are integers, and within the bounds
//! of single precision where they are floats.
//!
//! Bound, with `u = 2^-24`: the real part of a product is `a c + b d`, so a run of at most 256 products is
//! a sum of 512 terms. Each term is rounded once itself and at most once in each addition that follows,
//! in whatever order they come, so that a run is off by at most `514 u` times the sum of its terms'
//! magnitudes (to first order), and so is the sum of all runs; the sums in double precision add
//! `2^-53` of it for each run. The imaginary part is alike.

#[path = "common/correlate.rs"]
mod correlate;
#[path = "common/random.rs"]
mod random;
#[path = "common/sums.rs"]
mod sums;

use correlate::{Complex64, MISSING, Missing, Recording, Values, plan};
use num_complex::Complex;
use proptest::prelude::*;
use random::Random;
use sidereal::backend::Backend;
use sidereal::correlate::{Block, Correlator, Output, Plan};
use sidereal::voltage::VoltageEncoding::{self, Complex4, Complex8, ComplexF32};
use sums::{Sums, UNIT, backends, fast_backends, read, split, truth, whole};

const ENCODINGS: [VoltageEncoding; 3] = [Complex4, Complex8, ComplexF32];

/// Compares sums of all channels with plain ones.
fn compare(found: &Sums, recording: &Recording, exact: bool, name: &str) {
    let (sums, magnitudes, counts) = truth(recording);
    let name = format!("{name} {:?} {} times", recording.plan.options(), recording.times);
    assert_eq!(found.counts, counts, "{name}: counts");
    assert_eq!(found.integers.len().max(found.floats.len()), sums.len(), "{name}");
    for (at, (expected, magnitude)) in sums.iter().zip(&magnitudes).enumerate() {
        let value = found.value(at);
        let bound = if exact { 0.0 } else { 514.5 * UNIT };
        let near = |found: f64, expected: f64, of: f64| (found - expected).abs() <= bound * of;
        let fits = near(value.re, expected.re, magnitude.re);
        let fits = fits && near(value.im, expected.im, magnitude.im);
        assert!(fits, "{name}: {at}: {value}, not {expected} of {magnitude}");
    }
}

/// All backends and 1 to 3 threads, whole and in pieces.
fn check(random: &mut Random, recording: &Recording, exact: bool) {
    let first = random.below(3);
    let mut before: Vec<(String, Sums)> = Vec::new();
    for threads in [1 + first, 1 + (first + 1) % 3] {
        for backend in backends(threads) {
            if !is_fast_enough(recording, &backend) {
                continue;
            }
            let name = backend.name();
            let level = name.split(" x").next().unwrap_or(&name).to_owned();
            let found = split(recording, &backend, random);
            let other = before.iter().find(|(before, _)| *before == level);
            if let Some((_, other)) = other {
                // Other blocks, other threads: the same bits.
                assert_eq!(found.bits(), other.bits(), "{name} {:?}", recording.plan.options());
                assert_eq!(found.counts, other.counts, "{name}");
                continue;
            }
            compare(&found, recording, exact, &name);
            let at_once = whole(recording, &backend, random);
            assert_eq!(found.bits(), at_once.bits(), "{name} {:?}", recording.plan.options());
            assert_eq!(found.counts, at_once.counts, "{name}");
            before.push((level, found));
        }
    }
}

/// An emulated GPU gets small cases only.
fn is_fast_enough(recording: &Recording, backend: &Backend) -> bool {
    let plan = &recording.plan;
    let products = plan.row_elements() * plan.channels() * recording.times;
    products < 200_000 || !backend.name().contains("Emulated")
}

fn draw(seed: u64, plan: &Plan, times: usize, kind: (usize, usize)) {
    let mut random = Random::new(seed);
    let values = [Values::Any, Values::Extremes, Values::Integers][kind.0];
    let recording = Recording::random(&mut random, plan, times, values, MISSING[kind.1]);
    let exact = plan.encoding() != ComplexF32 || values != Values::Any;
    check(&mut random, &recording, exact);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_backend_is_the_sum(
        (antennas, polarizations, channels) in (1usize..40, 1usize..=2, 1usize..5),
        (times, encoding, seed) in (0usize..700, 0usize..3, any::<u64>()),
        kind in (0usize..3, 0usize..MISSING.len()),
    ) {
        draw(seed, &plan(antennas, polarizations, channels, ENCODINGS[encoding]), times, kind);
    }
}

/// Few inputs and few times: edge tiles only.
#[test]
fn small_ones_of_every_shape() {
    let mut seed = 1;
    for encoding in ENCODINGS {
        for (antennas, polarizations) in [(1, 1), (1, 2), (2, 1), (8, 2), (16, 1), (17, 1), (9, 2)]
        {
            for times in [0, 1, 2, 3, 4, 5, 63, 64, 65] {
                seed += 1;
                let channels = 1 + seed as usize % 2;
                let plan = plan(antennas, polarizations, channels, encoding);
                draw(seed, &plan, times, (seed as usize % 3, seed as usize % MISSING.len()));
            }
        }
    }
}

/// More panels than a cache tile, with panels that are full or nearly empty.
#[test]
fn many_antennas() {
    for (index, (antennas, polarizations, times)) in
        [(64, 2, 37), (97, 1, 130), (128, 2, 21), (129, 1, 64), (200, 2, 9), (300, 1, 18)]
            .into_iter()
            .enumerate()
    {
        for encoding in ENCODINGS {
            let plan = plan(antennas, polarizations, 1, encoding);
            draw(index as u64, &plan, times, (index % 3, [0, 2, 4][index % 3]));
        }
    }
}

/// More times than a cache tile.
#[test]
fn long_blocks() {
    for (index, times) in [1023, 2048, 4097, 9999, 16_385].into_iter().enumerate() {
        for encoding in ENCODINGS {
            let plan = plan(5, 2, 1, encoding);
            draw(index as u64, &plan, times, (index % 3, [0, 2, 5][index % 3]));
        }
    }
}

/// Values of the samples of two inputs, and of their products.
#[derive(Clone, Copy, Debug)]
struct Constant {
    encoding: VoltageEncoding,
    x: Complex<i64>,
    y: Complex<i64>,
}

fn constants(encoding: VoltageEncoding) -> Vec<Constant> {
    let most = if encoding == Complex4 { 7 } else { 127 };
    let low = -most - 1;
    let corners = [(low, low), (low, most), (most, low), (most, most), (low, 0), (0, low)];
    let pairs = corners.into_iter().flat_map(|x| corners.map(|y| (x, y)));
    let part = |(re, im)| Complex::new(re, im);
    pairs.map(|(x, y)| Constant { encoding, x: part(x), y: part(y) }).collect()
}

/// Antennas of one polarization, even ones `x` and odd ones `y`; some are valid only at some times.
fn constant_block(
    constant: Constant,
    antennas: usize,
    times: usize,
    valid: impl Fn(usize) -> bool,
) -> Recording {
    let plan = plan(antennas, 1, 1, constant.encoding);
    let mut recording = Recording::new(&plan, times);
    for antenna in 0..antennas {
        let value = if antenna % 2 == 0 { constant.x } else { constant.y };
        for time in 0..times {
            recording.set(0, antenna, time, Complex64::new(value.re as f64, value.im as f64));
            recording.mark(0, antenna, time, antenna % 4 != 3 || valid(time));
        }
    }
    recording
}

/// Runs a block of constants many times, and compares every sum with the product times the count.
fn accumulate(
    constant: Constant,
    antennas: usize,
    (times, repeats): (usize, u64),
    masked: bool,
    backend: &Backend,
) {
    let recording = constant_block(constant, antennas, times, |time| !masked || time % 3 == 1);
    let plan = recording.plan.clone();
    let packed = recording.pack(0..times, &mut Random::new(times as u64));
    let mut correlator = Correlator::new(plan.clone(), backend).unwrap();
    for _ in 0..repeats {
        correlator.run(packed.block(&plan)).unwrap();
    }
    let found = read(&mut correlator, 0..1);
    let some = if masked { (times + 1) / 3 } else { times };
    for i in 0..antennas {
        for j in 0..=i {
            let own = if i % 4 == 3 || j % 4 == 3 { some } else { times } as u64 * repeats;
            let input = |antenna| if antenna % 2 == 0 { constant.x } else { constant.y };
            let expected = input(i) * input(j).conj() * own as i64;
            let at = Plan::baseline(i, j);
            let name = format!("{} {constant:?} {times} x {repeats}, {i}-{j}", backend.name());
            assert_eq!((found.integers[at], found.counts[at]), (expected, own), "{name}");
        }
    }
}

/// A product of the most extreme values is 2^15: a 32-bit sum holds 65535 of them, and no more.
#[test]
fn extremes_for_longer_than_32_bits_hold() {
    for backend in fast_backends(2).into_iter().skip(1) {
        for (index, constant) in constants(Complex8).into_iter().enumerate() {
            // About 100 000 samples, in blocks of several lengths, odd lengths included.
            let times = [33_000, 9_999, 65_536, 1_001][index % 4];
            let repeats = (100_000 / times + 1) as u64;
            accumulate(constant, 4, (times, repeats), index % 3 == 0, &backend);
        }
        let constants = constants(Complex8);
        for times in [65_535, 65_536, 65_537, 131_071, 131_072, 200_001] {
            accumulate(constants[0], 4, (times, 1), false, &backend);
        }
        for masked in [false, true] {
            accumulate(constants[0], 18, (60_001, 5), masked, &backend);
            accumulate(constants[2], 3, (60_001, 12), masked, &backend);
        }
    }
}

/// A product of the most extreme values of 4 bits is 2^7, so that 2^24 of them are too many.
#[test]
fn four_bit_extremes_for_longer_than_32_bits_hold() {
    for backend in fast_backends(2).into_iter().skip(1) {
        for (index, constant) in constants(Complex4).into_iter().enumerate() {
            let times = [65_537, 40_001][index % 2];
            accumulate(constant, 4, (times, 2), index % 3 == 0, &backend);
        }
        accumulate(constants(Complex4)[0], 1, (1 << 17, 130), false, &backend);
    }
}

/// A long sum of floats keeps small terms next to large ones: its precision is that of its runs.
#[test]
fn floats_for_long() {
    let times = 50_000;
    let plan = plan(3, 1, 1, ComplexF32);
    let mut recording = Recording::new(&plan, times);
    for antenna in 0..3 {
        for time in 0..times {
            let value = Complex64::new(f64::from(0.1f32), f64::from(-0.7f32));
            recording.set(0, antenna, time, value * (antenna + 1) as f64);
        }
    }
    recording.values.iter_mut().for_each(|value| value.re = f64::from(value.re as f32));
    recording.values.iter_mut().for_each(|value| value.im = f64::from(value.im as f32));
    check(&mut Random::new(1), &recording, false);
}

/// NaN spoils the visibilities of its own input in its channel, and no others.
#[test]
fn a_sample_that_is_not_finite_spoils_its_own_input_only() {
    let mut random = Random::new(3);
    for case in 0..60 {
        let (antennas, polarizations) = (1 + random.below(24), 1 + random.below(2));
        let (channels, times) = (1 + random.below(3), 1 + random.below(300));
        let plan = plan(antennas, polarizations, channels, ComplexF32);
        let missing = MISSING[[0, 2, 3, 4][case % 4]];
        let mut recording = Recording::random(&mut random, &plan, times, Values::Integers, missing);
        let (clean, _, counts) = truth(&recording);
        let (channel, input, time) =
            (random.below(channels), random.below(plan.inputs()), random.below(times));
        let mut bad = recording.value(channel, input, time);
        let number = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][case % 3];
        if random.below(2) == 0 {
            bad.re = number
        } else {
            bad.im = number
        }
        recording.set(channel, input, time, bad);
        let counted = recording.is_valid(channel, input / polarizations, time);
        for backend in fast_backends(1 + case % 3) {
            let found = split(&recording, &backend, &mut random);
            assert_eq!(found.counts, counts);
            for (at, expected) in clean.iter().enumerate() {
                let (own, element) =
                    (at / plan.row_elements() == channel, at % plan.row_elements());
                let (i, j) = pair_of(element / plan.pairs());
                let pair = element % plan.pairs();
                let inputs = [(i, pair / polarizations), (j, pair % polarizations)]
                    .map(|(a, p)| a * polarizations + p);
                let name =
                    format!("{} {case}: {i}-{j} {pair} in {}", backend.name(), plan.antennas());
                if !(own && counted && inputs.contains(&input)) {
                    assert_eq!(found.floats[at], *expected, "{name}: spoilt");
                } else if [i, j].iter().all(|antenna| recording.is_valid(channel, *antenna, time)) {
                    let sum = found.floats[at];
                    assert!(!sum.re.is_finite() || !sum.im.is_finite(), "{name}: {sum}");
                }
            }
            // A reset clears it as well.
            let mut correlator = Correlator::new(plan.clone(), &backend).unwrap();
            correlator.run(recording.pack(0..times, &mut random).block(&plan)).unwrap();
            correlator.reset();
            assert!(
                read(&mut correlator, 0..channels).floats.iter().all(|sum| *sum == Complex64::ZERO)
            );
        }
    }
}

/// The antennas of a baseline.
fn pair_of(baseline: usize) -> (usize, usize) {
    let i = (0..).find(|i| Plan::baseline(i + 1, 0) > baseline).unwrap_or(0);
    (i, baseline - Plan::baseline(i, 0))
}

#[test]
fn channels_are_read_by_ranges() {
    let mut random = Random::new(4);
    for encoding in ENCODINGS {
        let plan = plan(7, 2, 6, encoding);
        let recording = Recording::random(&mut random, &plan, 90, Values::Any, Missing::Some);
        for backend in backends(2) {
            let mut correlator = Correlator::new(plan.clone(), &backend).unwrap();
            correlator.run(recording.pack(0..90, &mut random).block(&plan)).unwrap();
            let all = read(&mut correlator, 0..6);
            for start in 0..=6 {
                for end in start..=6 {
                    let part = read(&mut correlator, start..end);
                    assert_eq!(part, all.channels(&plan, start..end), "{}", backend.name());
                }
            }
        }
    }
}

#[test]
fn wrong_use_is_said() {
    let (plan, other) = (plan(3, 2, 4, Complex8), plan(3, 2, 5, Complex8));
    let recording = Recording::new(&other, 8);
    let packed = recording.pack(0..8, &mut Random::new(5));
    for backend in backends(1) {
        let mut correlator = Correlator::new(plan.clone(), &backend).unwrap();
        let fault = correlator.run(packed.block(&other)).unwrap_err().to_string();
        assert!(fault.contains("packed spectra"), "{fault}");
        let (mut sums, mut floats) = (vec![Complex::new(0, 0); 24], vec![Complex64::ZERO; 24]);
        let mut counts = vec![0; 6];
        let mut read =
            |channels: std::ops::Range<usize>, output: Output<'_>, counts: &mut [u64]| {
                correlator.read(channels, output, counts).unwrap_err().to_string()
            };
        assert!(read(0..1, Output::Float(&mut floats), &mut counts).contains("output"));
        assert!(read(0..1, Output::Integer(&mut sums), &mut counts[..5]).contains("counts"));
        assert!(read(0..2, Output::Integer(&mut sums), &mut counts).contains("visibilities"));
        assert!(read(4..5, Output::Integer(&mut sums), &mut counts).contains("channels"));
        let backwards = std::ops::Range { start: 2, end: 1 };
        assert!(read(backwards, Output::Integer(&mut sums), &mut counts).contains("channels"));
    }
    assert!(Block::new(&plan, &[0; 10], 8, None).is_err());
    let bytes = vec![0; plan.packed_bytes(8)];
    assert!(Block::new(&plan, &bytes, 8, Some(&[0; 11])).is_err());
}
