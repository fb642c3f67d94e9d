//! Response of an X-engine to exchanged, added, delayed and missing signals: the reference and every other backend.

#[path = "common/correlate.rs"]
mod correlate;
#[path = "common/random.rs"]
mod random;
#[path = "common/sums.rs"]
mod sums;

use std::f64::consts::TAU;

use correlate::{Complex64, MISSING, Missing, Recording, Values, plan};
use num_complex::Complex;
use random::Random;
use sidereal::correlate::{Correlator, Options, Plan};
use sidereal::voltage::VoltageEncoding::{Complex4, Complex8, ComplexF32};
use sums::{Sums, backends, whole};

/// Tolerance for the rounding of samples and products, relative to the power.
const CLOSE: f64 = 1e-5;

/// Sums of one recording on every backend.
fn on_all(recording: &Recording, mut check: impl FnMut(&Sums, &str)) {
    for backend in backends(2) {
        check(&whole(recording, &backend, &mut Random::new(1)), &backend.name());
    }
}

/// Index of an element: channel, antennas, polarizations.
fn places(plan: &Plan) -> impl Iterator<Item = (usize, [usize; 2], [usize; 2])> + '_ {
    let (antennas, polarizations) = (plan.antennas(), plan.polarizations());
    (0..plan.channels()).flat_map(move |channel| {
        let baselines = (0..antennas).flat_map(|i| (0..=i).map(move |j| [i, j]));
        baselines.flat_map(move |ij| {
            let pairs = 0..polarizations * polarizations;
            pairs.map(move |pair| (channel, ij, [pair / polarizations, pair % polarizations]))
        })
    })
}

/// The sum of `x conj(y)` of any two antennas, in either order.
fn sum(plan: &Plan, sums: &Sums, channel: usize, ij: [usize; 2], pq: [usize; 2]) -> Complex64 {
    let place = |[i, j]: [usize; 2], [p, q]: [usize; 2]| {
        let baseline = channel * plan.baselines() + Plan::baseline(i, j);
        baseline * plan.pairs() + p * plan.polarizations() + q
    };
    if ij[0] >= ij[1] {
        return sums.value(place(ij, pq));
    }
    sums.value(place([ij[1], ij[0]], [pq[1], pq[0]])).conj()
}

fn drawn(seed: u64, polarizations: usize, times: usize, missing: Missing) -> Recording {
    let mut random = Random::new(seed);
    let encoding = [Complex4, Complex8, ComplexF32][seed as usize % 3];
    let plan = plan(6, polarizations, 3, encoding);
    // Integers, also stored as floats: sums are exact.
    Recording::random(&mut random, &plan, times, Values::Integers, missing)
}

/// Antennas in the opposite order: every baseline is conjugated, XY and YX are exchanged.
#[test]
fn visibilities_are_hermitian() {
    for seed in 0..12 {
        let recording = drawn(seed, 1 + seed as usize % 2, 130, MISSING[seed as usize % 6]);
        let plan = recording.plan.clone();
        let mut turned = recording.clone();
        for channel in 0..plan.channels() {
            for antenna in 0..plan.antennas() {
                let other = plan.antennas() - 1 - antenna;
                for time in 0..recording.times {
                    turned.mark(channel, antenna, time, recording.is_valid(channel, other, time));
                    for p in 0..plan.polarizations() {
                        let value =
                            recording.value(channel, other * plan.polarizations() + p, time);
                        turned.set(channel, antenna * plan.polarizations() + p, time, value);
                    }
                }
            }
        }
        for backend in backends(2) {
            let sums = whole(&recording, &backend, &mut Random::new(2));
            let others = whole(&turned, &backend, &mut Random::new(3));
            for (channel, [i, j], pq) in places(&plan) {
                let opposite = [plan.antennas() - 1 - i, plan.antennas() - 1 - j];
                let found = sum(&plan, &others, channel, [i, j], pq);
                let expected = sum(&plan, &sums, channel, opposite, pq);
                assert_eq!(found, expected, "{} {i}-{j} {pq:?}", backend.name());
                if i == j {
                    let swapped = sum(&plan, &sums, channel, [i, j], [pq[1], pq[0]]);
                    let own = sum(&plan, &sums, channel, [i, j], pq);
                    assert_eq!(own, swapped.conj(), "{} {i} {pq:?}", backend.name());
                }
            }
        }
    }
}

/// Autocorrelations of a polarization are the energy of its valid samples: real and not negative. No
/// cross-correlation of antennas that are valid together exceeds the bound that they imply.
#[test]
fn autocorrelations_are_energies() {
    for seed in 0..12 {
        let recording = drawn(seed, 2, 200, MISSING[seed as usize % 6]);
        let plan = recording.plan.clone();
        on_all(&recording, |sums, name| {
            for (channel, [i, j], [p, q]) in places(&plan) {
                let auto = |antenna, p| sum(&plan, sums, channel, [antenna, antenna], [p, p]).re;
                let own = sum(&plan, sums, channel, [i, j], [p, q]);
                if i == j && p == q {
                    let times = (0..recording.times).filter(|t| recording.is_valid(channel, i, *t));
                    let energy = times.map(|t| recording.value(channel, i * 2 + p, t).norm_sqr());
                    assert_eq!(own, Complex64::new(energy.sum(), 0.0), "{name}");
                }
                let most = auto(i, p) * auto(j, q);
                assert!(own.norm_sqr() <= most, "{name} {i}-{j}: {own} {most}");
            }
        });
    }
}

/// A sum of two signals in one antenna gives the sum of their visibilities; a factor of the second antenna appears
/// conjugated.
#[test]
fn visibilities_are_linear() {
    let mut random = Random::new(5);
    for encoding in [Complex8, ComplexF32] {
        let plan = plan(4, 2, 2, encoding);
        let draw = |random: &mut Random| {
            let mut recording =
                Recording::random(random, &plan, 150, Values::Any, Missing::Nothing);
            for value in &mut recording.values {
                *value =
                    Complex64::new(random.below(60) as f64 - 30.0, random.below(60) as f64 - 30.0);
            }
            recording
        };
        let (one, other) = (draw(&mut random), draw(&mut random));
        let mut mixed = one.clone();
        let inputs = plan.inputs();
        let (a, b) = (Complex64::new(1.0, 1.0), Complex64::new(0.0, -1.0));
        // Antenna 2 sees both, phase-rotated; the other antennas are unchanged.
        let mut second = one.clone();
        for row in (0..plan.channels() * inputs).filter(|row| row % inputs / 2 == 2) {
            for at in row * 150..(row + 1) * 150 {
                mixed.values[at] = a * one.values[at] + b * other.values[at];
                second.values[at] = other.values[at];
            }
        }
        for backend in backends(1) {
            let [one, second, mixed] =
                [&one, &second, &mixed].map(|r| whole(r, &backend, &mut Random::new(6)));
            for (channel, [i, j], pq) in
                places(&plan).filter(|(_, [i, j], _)| (*i == 2) != (*j == 2))
            {
                let [one, second, mixed] =
                    [&one, &second, &mixed].map(|sums| sum(&plan, sums, channel, [i, j], pq));
                let (a, b) = if i == 2 { (a, b) } else { (a.conj(), b.conj()) };
                assert_eq!(mixed, a * one + b * second, "{} {i}-{j}", backend.name());
            }
        }
    }
}

/// `sum_ij conj(w_i) V_ij w_j` is the energy of the sum of all inputs under those weights (Parseval), with
/// the lower triangle's conjugates above; missing samples of an antenna add no energy.
#[test]
fn weighted_sums_have_the_beam_s_energy() {
    for seed in 0..9 {
        // All antennas miss the same samples, so that all baselines have the same count.
        let mut recording = drawn(seed, 2, 170, Missing::Nothing);
        let plan = recording.plan.clone();
        let mut random = Random::new(seed);
        for time in (0..170).filter(|time| seed > 2 && time % 3 == 1) {
            (0..6).for_each(|antenna| recording.mark(1, antenna, time, false));
        }
        let weight = |random: &mut Random| {
            Complex64::new(random.below(7) as f64 - 3.0, random.below(7) as f64 - 3.0)
        };
        let weights: Vec<_> = (0..plan.inputs()).map(|_| weight(&mut random)).collect();
        on_all(&recording, |sums, name| {
            for channel in 0..plan.channels() {
                let times = (0..170).filter(|time| recording.is_valid(channel, 0, *time));
                let beam = |time| -> Complex64 {
                    (0..plan.inputs())
                        .map(|n| weights[n].conj() * recording.value(channel, n, time))
                        .sum()
                };
                let energy: f64 = times.clone().map(|time| beam(time).norm_sqr()).sum();
                let mut found = Complex64::ZERO;
                for m in 0..plan.inputs() {
                    for n in 0..plan.inputs() {
                        let own = sum(&plan, sums, channel, [m / 2, n / 2], [m % 2, n % 2]);
                        found += weights[m].conj() * own * weights[n];
                    }
                }
                assert_eq!(found, Complex64::new(energy, 0.0), "{name} {channel}");
                let counts = sums.counts.chunks_exact(plan.baselines()).nth(channel).unwrap();
                assert!(
                    counts.iter().all(|count| *count == times.clone().count() as u64),
                    "{name}"
                );
            }
        });
    }
}

/// Visibilities divided by their counts do not depend on missing samples if the signal is constant.
#[test]
fn counts_normalize() {
    let mut random = Random::new(7);
    for (index, missing) in MISSING.into_iter().enumerate() {
        let plan = plan(9, 2, 2, [Complex4, Complex8, ComplexF32][index % 3]);
        let mut recording = Recording::random(&mut random, &plan, 300, Values::Any, missing);
        let level = |row: usize| Complex64::new((row % 15) as f64 - 8.0, 7.0 - (row % 13) as f64);
        for (row, values) in recording.values.chunks_exact_mut(300).enumerate() {
            values.fill(level(row));
        }
        on_all(&recording, |sums, name| {
            for (channel, [i, j], [p, q]) in places(&plan) {
                let baseline = channel * plan.baselines() + Plan::baseline(i, j);
                let count = sums.counts[baseline];
                let both = |t: &usize| [i, j].iter().all(|a| recording.is_valid(channel, *a, *t));
                assert_eq!(count, (0..300).filter(both).count() as u64, "{name} {i}-{j}");
                let input = |a: usize, p: usize| level(channel * plan.inputs() + a * 2 + p);
                let expected = input(i, p) * input(j, q).conj() * count as f64;
                assert_eq!(sum(&plan, sums, channel, [i, j], [p, q]), expected, "{name} {i}-{j}");
            }
        });
    }
}

/// A tone with antenna delays: the phase of `V_ij` is `-2 pi f (delay_i - delay_j)`.
#[test]
fn a_delayed_tone_turns_by_the_difference_of_delays() {
    let (times, frequencies) = (400, [0.11, -0.23, 0.4]);
    let plan = plan(5, 1, frequencies.len(), ComplexF32);
    let delays = [0.0, 3.25, -1.5, 7.0, 0.125];
    let mut recording = Recording::new(&plan, times);
    for (channel, frequency) in frequencies.iter().enumerate() {
        for (antenna, delay) in delays.iter().enumerate() {
            for time in 0..times {
                let turns = frequency * (time as f64 - delay);
                let part = |x: f64| f64::from(x as f32);
                let value = Complex64::cis(TAU * turns.fract());
                recording.set(channel, antenna, time, Complex::new(part(value.re), part(value.im)));
            }
        }
    }
    on_all(&recording, |sums, name| {
        for (channel, [i, j], pq) in places(&plan) {
            let turns = -frequencies[channel] * (delays[i] - delays[j]);
            let expected = Complex64::cis(TAU * turns) * times as f64;
            let found = sum(&plan, sums, channel, [i, j], pq);
            assert!((found - expected).norm() < CLOSE * times as f64, "{name} {i}-{j}: {found}");
        }
    });
}

/// Noise delayed by whole samples, as the channels of a Fourier transform: the phase of the cross-spectrum is linear
/// in the channel, and the power of all channels equals that of all samples (Parseval).
#[test]
fn delayed_noise_has_a_phase_slope_and_keeps_its_energy() {
    let (points, spectra) = (16, 40);
    let mut random = Random::new(8);
    let delays = [0usize, 2, 5];
    let plan = plan(delays.len(), 1, points, ComplexF32);
    let mut recording = Recording::new(&plan, spectra);
    let mut energy = 0.0;
    for spectrum in 0..spectra {
        let noise: Vec<_> =
            (0..points).map(|_| Complex64::new(random.gaussian(), random.gaussian())).collect();
        energy += noise.iter().map(|x| x.norm_sqr()).sum::<f64>();
        for (antenna, delay) in delays.iter().enumerate() {
            for channel in 0..points {
                // Delayed circularly, so that the theorem of the transform is exact.
                let term = |n: usize| {
                    let turns = (n * channel % points) as f64 / points as f64;
                    noise[(n + points - delay) % points] * Complex64::cis(-TAU * turns)
                };
                let value: Complex64 = (0..points).map(term).sum();
                let part = |x: f64| f64::from(x as f32);
                recording.set(
                    channel,
                    antenna,
                    spectrum,
                    Complex64::new(part(value.re), part(value.im)),
                );
            }
        }
    }
    on_all(&recording, |sums, name| {
        let total: Complex64 = (0..points).map(|c| sum(&plan, sums, c, [0, 0], [0, 0])).sum();
        assert!(
            (total / points as f64 - energy).norm() < CLOSE * energy,
            "{name}: {total} {energy}"
        );
        for (channel, [i, j], pq) in places(&plan) {
            let power = sum(&plan, sums, channel, [j, j], pq);
            let steps = delays[i] as f64 - delays[j] as f64;
            let expected = power * Complex64::cis(-TAU * channel as f64 * steps / points as f64);
            let found = sum(&plan, sums, channel, [i, j], pq);
            assert!((found - expected).norm() < CLOSE * power.re, "{name} {i}-{j}: {found}");
        }
    });
}

#[test]
fn sums_that_do_not_fit_into_memory_are_an_error() {
    let (antennas, polarizations, channels) = (4096, 2, 1 << 20);
    let options = Options { antennas, polarizations, channels, encoding: Complex8 };
    let plan = Plan::new(options).unwrap();
    for backend in backends(2) {
        let error = Correlator::new(plan.clone(), &backend).unwrap_err().to_string();
        let bytes = Correlator::bytes(&plan, &backend).unwrap().to_string();
        assert!(error.contains("memory") && error.contains(&bytes), "{error}");
    }
}
