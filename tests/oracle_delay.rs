//! Every backend's aligned spectra equal the equation, within the documented bound of the stage.
//!
//! With `v` the exact value: a float is off by at most `2^-20 |v|`, and an integer is the rounding of a number within
//! that distance of `v`.

#[path = "common/random.rs"]
mod random;

use std::f64::consts::TAU;
use std::sync::LazyLock;

use num_complex::Complex;
use proptest::prelude::*;
use random::Random;
use sidereal::backend::Backend;
use sidereal::delay::{DelayCorrector, Options, Plan, Rows, Slope};
use sidereal::voltage::{VoltageEncoding, voltage};

type Complex64 = Complex<f64>;

/// Value of outputs before a call, and of the guard elements after them at all times.
const DIRT: u8 = 0xa5;

/// The largest error of a value, as a part of its magnitude.
const BOUND: f64 = 1.0 / (1 << 20) as f64;

/// All variants of the host, and all GPUs.
static BACKENDS: LazyLock<Vec<Backend>> = LazyLock::new(|| {
    let devices = Backend::available(1).into_iter().filter(Backend::is_gpu);
    Backend::variants(1).into_iter().chain(devices).collect()
});

/// Spectra with their slopes.
struct Input {
    spectra: Vec<Complex<f32>>,
    slopes: Vec<Slope>,
    times: usize,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    polarizations: usize,
    coarse_channels: usize,
    channels: usize,
    encoding: VoltageEncoding,
    times: usize,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    use VoltageEncoding::{Complex4, Complex8, ComplexF32};
    let encoding = prop_oneof![Just(Complex4), Just(Complex8), Just(ComplexF32)];
    // Phasors one by one; from anchors and offsets; several runs of either.
    let channels = prop_oneof![
        (1usize..40, 1usize..9),
        (250usize..400, 1usize..4),
        (1000usize..2300, 1usize..2),
        (1usize..3, 900usize..1300)
    ];
    (1usize..3, channels, encoding, 1usize..7, any::<u64>()).prop_map(
        |(polarizations, (channels, coarse_channels), encoding, times, seed)| Case {
            polarizations,
            coarse_channels,
            channels,
            encoding,
            times,
            seed,
        },
    )
}

fn plan(case: &Case, random: &mut Random) -> Plan {
    let Case { polarizations, coarse_channels, channels, encoding, .. } = *case;
    let elements = polarizations * coarse_channels * channels;
    let count = if random.below(2) == 0 { 1 } else { elements };
    let gains = (0..count).map(|_| complex(random, 2.0)).collect();
    let options = Options::one_antenna(polarizations, coarse_channels, channels, encoding);
    Plan::new(Options { gains, ..options }).unwrap()
}

fn complex(random: &mut Random, scale: f64) -> Complex<f32> {
    Complex::new((scale * random.gaussian()) as f32, (scale * random.gaussian()) as f32)
}

/// Integers overflow here and there; slopes are 0, small, or large.
fn input(plan: &Plan, times: usize, random: &mut Random) -> Input {
    let scale = if plan.options().encoding == VoltageEncoding::Complex4 { 1.5 } else { 25.0 };
    let spectra = (0..times * plan.row_elements()).map(|_| complex(random, scale)).collect();
    let coarse = plan.options().coarse_channels;
    let mut slopes = Vec::new();
    for _ in 0..times {
        let size = [0.0, 1e-3, 1.0, 1e6][random.below(4)];
        let mut slope =
            || Slope { start: size * random.gaussian(), step: size * random.gaussian() };
        slopes.extend((0..coarse).map(|_| slope()));
    }
    Input { spectra, slopes, times }
}

/// All rows and counts of a stream read in blocks of at most `most` spectra.
fn run(plan: &Plan, backend: &Backend, input: &Input, most: usize) -> (Vec<u8>, Vec<u64>) {
    let mut corrector = DelayCorrector::new(plan.clone(), backend).unwrap();
    let coarse = plan.options().coarse_channels;
    let (room, front) = (input.times + 1, 1);
    let length = room * plan.row_elements() * plan.element_bytes();
    let mut bytes = vec![DIRT; front + length + 64];
    let mut first = 0;
    while first < input.times {
        let times = most.min(input.times - first);
        let elements = first * plan.row_elements()..(first + times) * plan.row_elements();
        let rows = Rows { bytes: &mut bytes[front..front + length], times: room, first };
        let slopes = &input.slopes[first * coarse..(first + times) * coarse];
        corrector.run(&input.spectra[elements], slopes, rows).unwrap();
        first += times;
    }
    let (row, behind) = (plan.channels() * plan.element_bytes(), &bytes[front + length..]);
    let rows: Vec<&[u8]> = bytes[front..front + length].chunks_exact(row).collect();
    let spare = rows.chunks_exact(room).all(|rows| rows[room - 1].iter().all(|b| *b == DIRT));
    assert!(spare && bytes[0] == DIRT && behind.iter().all(|b| *b == DIRT), "written elsewhere");
    let kept = rows.chunks_exact(room).flat_map(|rows| rows[..room - 1].concat()).collect();
    (kept, corrector.saturated().unwrap())
}

fn exact(plan: &Plan, input: &Input, time: usize, element: usize) -> Complex64 {
    let wide = |z: Complex<f32>| Complex64::new(f64::from(z.re), f64::from(z.im));
    let (channel, fine) = (element % plan.channels(), plan.options().channels);
    let slope = input.slopes[time * plan.options().coarse_channels + channel / fine];
    let turns = slope.start.fract() + (channel % fine) as f64 * slope.step.fract();
    let value = wide(input.spectra[time * plan.row_elements() + element]);
    value * wide(plan.gain(element)) * Complex64::cis(TAU * turns.fract())
}

/// Tests whether an integer is the rounded and clipped value of a number close to `value`.
fn is_rounded(found: f64, value: f64, off: f64, most: f64) -> bool {
    let limit = |x: f64| x.round_ties_even().clamp(-most - 1.0, most);
    (limit(value - off)..=limit(value + off)).contains(&found)
}

fn check(name: &str, plan: &Plan, input: &Input, bytes: &[u8], saturated: &[u64]) {
    let encoding = plan.options().encoding;
    assert_eq!(saturated.len(), plan.options().polarizations, "{name}");
    let most = f64::from(1 << (encoding.bits().min(8) - 1)) - 1.0;
    for (polarization, saturated) in saturated.iter().enumerate() {
        let (mut least, mut largest) = (0, 0);
        let places = (0..plan.channels()).flat_map(|k| (0..input.times).map(move |t| (k, t)));
        for (channel, time) in places {
            let element = polarization * plan.channels() + channel;
            let value = exact(plan, input, time, element);
            let off = BOUND * value.norm();
            let at = (polarization * input.times + time) * plan.channels() + channel;
            let found = voltage(bytes, encoding, at);
            if encoding == VoltageEncoding::ComplexF32 {
                let error = (found - value).norm();
                assert!(error <= off, "{name}: {element} at {time}: off by {error:e}, not {off:e}");
                continue;
            }
            for (found, value) in [(found.re, value.re), (found.im, value.im)] {
                let right = is_rounded(found, value, off, most);
                assert!(right, "{name}: {element} at {time}: {found} is not {value}");
            }
            let beyond = |x: f64| (x - most - 0.5).max(-x - most - 1.5);
            let beyond = beyond(value.re).max(beyond(value.im));
            least += u64::from(beyond > off);
            largest += u64::from(beyond >= -off);
        }
        let counts = least..=largest;
        assert!(counts.contains(saturated), "{name}: {polarization}: not {counts:?} limited");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_backend_aligns_and_any_split_gives_the_same_bits(case in cases()) {
        let mut random = Random::new(case.seed);
        let plan = plan(&case, &mut random);
        let input = input(&plan, case.times, &mut random);
        for backend in BACKENDS.iter() {
            let name = format!("{case:?} on {}", backend.name());
            let whole = run(&plan, backend, &input, case.times);
            check(&name, &plan, &input, &whole.0, &whole.1);
            let split = run(&plan, backend, &input, 1 + random.below(case.times));
            prop_assert_eq!(whole, split, "{}", name);
        }
    }
}

#[test]
fn samples_that_are_not_finite_become_zero_and_touch_no_other() {
    use VoltageEncoding::{Complex4, Complex8, ComplexF32};
    for encoding in [Complex4, Complex8, ComplexF32] {
        for channels in [37, 300] {
            let case = Case {
                polarizations: 2,
                coarse_channels: 2,
                channels,
                encoding,
                times: 3,
                seed: 3,
            };
            let mut random = Random::new(case.seed);
            let plan = plan(&case, &mut random);
            let good = input(&plan, case.times, &mut random);
            let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX];
            let mut spectra = good.spectra.clone();
            let at: Vec<usize> = (0..spectra.len()).filter(|i| i % 7 == 3).collect();
            for (i, at) in at.iter().enumerate() {
                let part = if i % 2 == 0 { &mut spectra[*at].re } else { &mut spectra[*at].im };
                *part = bad[i / 2 % 4];
            }
            let spoilt = Input { spectra, slopes: good.slopes.clone(), ..good };
            for backend in BACKENDS.iter() {
                let whole = run(&plan, backend, &good, 3).0;
                let found = run(&plan, backend, &spoilt, 3).0;
                for i in 0..good.spectra.len() {
                    let (time, element) = (i / plan.row_elements(), i % plan.row_elements());
                    let row = element / plan.channels() * good.times + time;
                    let place = row * plan.channels() + element % plan.channels();
                    let expected = if at.contains(&i) {
                        Complex64::ZERO
                    } else {
                        voltage(&whole, encoding, place)
                    };
                    let name = backend.name();
                    assert_eq!(voltage(&found, encoding, place), expected, "{i} on {name}");
                }
            }
        }
    }
}

/// One sample with zero phase rotation.
fn one(backend: &Backend, encoding: VoltageEncoding, value: Complex<f32>) -> (Complex64, u64) {
    let plan = Plan::new(Options::one_antenna(1, 1, 1, encoding)).unwrap();
    let input = Input { spectra: vec![value], slopes: vec![Slope::default()], times: 1 };
    let (bytes, saturated) = run(&plan, backend, &input, 1);
    (voltage(&bytes, encoding, 0), saturated[0])
}

#[test]
fn ties_and_limits_are_those_of_the_rule() {
    for backend in BACKENDS.iter() {
        for (encoding, most) in
            [(VoltageEncoding::Complex4, 7f32), (VoltageEncoding::Complex8, 127.0)]
        {
            let cases = [
                (0.5, 0.0, 0),
                (1.5, 2.0, 0),
                (-2.5, -2.0, 0),
                (most + 0.25, most, 0),
                (most + 0.5, most, 1),
                (-most - 1.5, -most - 1.0, 0),
                (-most - 1.75, -most - 1.0, 1),
                (3e9, most, 1),
                (-3e38, -most - 1.0, 1),
                (f32::INFINITY, 0.0, 0),
                (f32::NAN, 0.0, 0),
            ];
            for (value, expected, limited) in cases {
                for turned in [false, true] {
                    let (re, im) = if turned { (0.0, value) } else { (value, 0.0) };
                    let found = one(backend, encoding, Complex::new(re, im));
                    let (re, im) = if turned { (0.0, expected) } else { (expected, 0.0) };
                    let expected = Complex64::new(f64::from(re), f64::from(im));
                    assert_eq!(found, (expected, limited), "{value} on {}", backend.name());
                }
            }
        }
    }
}

#[test]
fn slopes_that_are_not_finite_void_their_recorded_channel_alone() {
    let encoding = VoltageEncoding::Complex8;
    let plan = Plan::new(Options::one_antenna(1, 2, 20, encoding)).unwrap();
    let slopes = vec![Slope { start: f64::NAN, step: 0.0 }, Slope { start: 0.5, step: 1.0 }];
    let input = Input { spectra: vec![Complex::new(3.0, -4.0); 40], slopes, times: 1 };
    for backend in BACKENDS.iter() {
        let (bytes, saturated) = run(&plan, backend, &input, 1);
        let turned = [(-3i8) as u8, 4];
        let expected = [vec![0u8; 40], turned.repeat(20)].concat();
        assert_eq!((bytes, saturated), (expected, vec![0]), "{}", backend.name());
    }
}
