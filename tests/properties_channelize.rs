//! Response of a filter bank to impulses, tones, sums, delays and powers, on every backend.

#[path = "common/channelize.rs"]
mod channelize;
#[path = "common/random.rs"]
mod random;

use std::f64::consts::TAU;

use channelize::{Complex64, Recording, whole};
use random::Random;
use sidereal::backend::Backend;
use sidereal::channelize::{Detection, Feed, Form, Options, Order, Plan, Products};
use sidereal::math::Window;
use sidereal::voltage::VoltageEncoding;

/// Rounding errors of single precision, relative to the largest value.
const CLOSE: f64 = 3e-6;

fn plan(options: Options) -> Plan {
    Plan::new(options).unwrap()
}

fn complex(channels: usize, taps: usize) -> Options {
    Options::new(channels, taps, VoltageEncoding::ComplexF32)
}

fn real(channels: usize, taps: usize) -> Options {
    Options::new(channels, taps, VoltageEncoding::RealF32)
}

/// Spectra of one recording on every backend, one block each.
fn on_all(plan: &Plan, recording: &Recording, check: impl Fn(&[Complex64], &str)) {
    for backend in Backend::available(2) {
        check(&whole(plan, &backend, recording).complex(), &backend.name());
    }
}

fn noise(random: &mut Random, count: usize) -> Vec<Complex64> {
    (0..count).map(|_| Complex64::new(random.gaussian(), random.gaussian())).collect()
}

fn assert_close(found: &[Complex64], expected: &[Complex64], within: f64, name: &str) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).norm();
        assert!(error <= within, "{name}: {index}: {found} and {expected}");
    }
}

/// An impulse at sample `p` gives `b[p - s hop] exp(-2 pi i p m / N)` in bin `m` of spectrum `s`.
#[test]
fn an_impulse_gives_its_coefficient_and_its_phase() {
    let mut random = Random::new(5);
    let banks = [(8, 4, (1, 1)), (16, 3, (4, 3)), (5, 2, (1, 1)), (7, 3, (7, 1)), (64, 2, (2, 1))];
    for (channels, taps, oversampling) in banks {
        let own = (0..channels * taps).map(|_| random.gaussian()).collect();
        for window in [Window::Hann, Window::Custom(own)] {
            let order = Order::Natural;
            let options = Options { window, oversampling, order, ..complex(channels, taps) };
            let plan = plan(options);
            let times = plan.span() + 25 * plan.hop();
            for at in [0, 1, plan.hop(), plan.span() - 1, times / 2, times - 1] {
                let mut x = vec![Complex64::ZERO; times];
                x[at] = Complex64::new(0.6, -0.8);
                let value = |index: usize| {
                    let (spectrum, bin) = (index / channels, index % channels);
                    let place = at.checked_sub(spectrum * plan.hop()).unwrap_or(usize::MAX);
                    let b = plan.coefficients().get(place).copied().unwrap_or(0.0);
                    let turns = (at * bin % channels) as f64 / channels as f64;
                    x[at] * b * Complex64::cis(-TAU * turns)
                };
                let expected: Vec<_> = (0..26 * channels).map(value).collect();
                on_all(&plan, &Recording::complex(&[x.clone()]), |found, name| {
                    assert_close(found, &expected, CLOSE, name);
                });
            }
        }
    }
}

/// A tone at a channel's centre: 1 at all times in that channel, in all three orders.
#[test]
fn a_tone_at_a_channel_s_centre_has_unit_gain_and_constant_phase() {
    let banks = [
        (8, (1, 1)),
        (8, (2, 1)),
        (8, (8, 7)),
        (12, (4, 3)),
        (12, (3, 2)),
        (32, (32, 27)),
        (9, (9, 8)),
        (7, (7, 1)),
        (64, (8, 5)),
    ];
    for (channels, oversampling) in banks {
        for order in [Order::Natural, Order::Ascending, Order::Descending] {
            let plan = plan(Options { oversampling, order, ..complex(channels, 8) });
            let times = plan.span() + 20 * plan.hop();
            // Frequency in channels, of the voltages: 0, highest, lowest, another negative one.
            let lowest = -(channels as i64 / 2);
            for frequency in [0, lowest + channels as i64 - 1, lowest, -2] {
                let phase = Complex64::cis(0.7);
                let turns = |n: usize| (n as i64 * frequency).rem_euclid(channels as i64) as f64;
                let tone = |n| phase * Complex64::cis(TAU * turns(n) / channels as f64);
                let recording = Recording::complex(&[(0..times).map(tone).collect()]);
                let place = match order {
                    Order::Natural => frequency.rem_euclid(channels as i64),
                    Order::Ascending => frequency - lowest,
                    Order::Descending => lowest + channels as i64 - 1 - frequency,
                };
                on_all(&plan, &recording, |found, name| {
                    assert_eq!(found.len(), 21 * channels);
                    for spectrum in found.chunks_exact(channels) {
                        let error = (spectrum[place as usize] - phase).norm();
                        assert!(error < CLOSE, "{name}: {channels} {order:?} {frequency}: {error}");
                    }
                });
            }
        }
    }
}

/// A real tone `2 cos` of `m` channels has unit amplitude in channel `m`; at frequency 0 both halves coincide.
#[test]
fn real_tones_stand_in_their_channel() {
    for (channels, oversampling) in [(8, (1, 1)), (8, (4, 3)), (6, (12, 11)), (32, (2, 1))] {
        for order in [Order::Ascending, Order::Natural, Order::Descending] {
            let plan = plan(Options { oversampling, order, ..real(channels, 16) });
            let times = plan.span() + 12 * plan.hop();
            for frequency in [2, channels / 2, channels - 2] {
                let phase = |n: usize| TAU * (n * frequency) as f64 / (2 * channels) as f64 + 0.4;
                let tone = (0..times).map(|n| 2.0 * phase(n).cos()).collect();
                let flipped = order == Order::Descending;
                let place = if flipped { channels - 1 - frequency } else { frequency };
                on_all(&plan, &Recording::real(&[tone]), |found, name| {
                    for spectrum in found.chunks_exact(channels) {
                        // The image of the tone leaks in from at least four channels away.
                        let error = (spectrum[place] - Complex64::cis(0.4)).norm();
                        assert!(error < 1e-4, "{name}: {channels} {order:?} {frequency}: {error}");
                    }
                });
            }
        }
    }
}

/// Real voltages as complex ones with zero imaginary part: conjugate-symmetric spectra, whose half without the
/// Nyquist channel equals that of real input.
#[test]
fn real_input_is_half_of_a_symmetric_spectrum() {
    let mut random = Random::new(6);
    for (channels, taps, oversampling) in [(8, 4, (1, 1)), (5, 3, (10, 7)), (64, 2, (4, 3))] {
        let half = plan(Options { oversampling, ..real(channels, taps) });
        let order = Order::Natural;
        let full = plan(Options { oversampling, order, ..complex(2 * channels, taps) });
        let x: Vec<f64> = (0..half.span() + 20 * half.hop()).map(|_| random.gaussian()).collect();
        let as_complex = x.iter().map(|x| Complex64::new(*x, 0.0)).collect();
        let full_recording = Recording::complex(&[as_complex]);
        for backend in Backend::available(2) {
            let spectra = whole(&full, &backend, &full_recording).complex();
            let name = backend.name();
            let mut expected = Vec::new();
            for spectrum in spectra.chunks_exact(2 * channels) {
                for bin in 1..channels {
                    let error = (spectrum[bin] - spectrum[2 * channels - bin].conj()).norm();
                    assert!(error < CLOSE, "{name}: {error}");
                }
                expected.extend(&spectrum[..channels]);
            }
            let found =
                whole(&half, &backend, &Recording::real(std::slice::from_ref(&x))).complex();
            assert_close(&found, &expected, CLOSE, &name);
        }
    }
}

#[test]
fn a_sum_of_voltages_gives_the_sum_of_spectra() {
    let mut random = Random::new(7);
    for (channels, taps) in [(16, 4), (27, 3), (128, 8), (1000, 2)] {
        let plan = plan(complex(channels, taps));
        let times = plan.span() + 18 * plan.hop();
        let (a, b) = (noise(&mut random, times), noise(&mut random, times));
        let turn = Complex64::new(0.3, -1.1);
        let both = a.iter().zip(&b).map(|(a, b)| a + turn * b).collect();
        for backend in Backend::available(2) {
            let spectra = |x: &Vec<Complex64>| {
                whole(&plan, &backend, &Recording::complex(std::slice::from_ref(x))).complex()
            };
            let pairs: Vec<_> = spectra(&a).into_iter().zip(spectra(&b)).collect();
            let expected: Vec<_> = pairs.into_iter().map(|(a, b)| a + turn * b).collect();
            assert_close(&spectra(&both), &expected, CLOSE, &backend.name());
        }
    }
}

/// Each spectrum holds `N` times the energy of its windowed sums. Those of a plain transform are its samples over
/// `N`, so critical sampling preserves all energy.
#[test]
fn energy_is_kept() {
    let mut random = Random::new(8);
    for (channels, taps) in [(8, 1), (11, 1), (256, 1), (16, 4), (30, 7)] {
        let window = if taps == 1 { Window::Rectangular } else { Window::Hann };
        let spectra = plan(Options { window: window.clone(), ..complex(channels, taps) });
        let form = Form::Filtered;
        let sums = plan(Options { window, form, ..complex(channels, taps) });
        let x = noise(&mut random, spectra.span() + 30 * spectra.hop());
        let recording = Recording::complex(std::slice::from_ref(&x));
        let energy = |values: &[Complex64]| values.iter().map(|z| z.norm_sqr()).sum::<f64>();
        for backend in Backend::available(2) {
            let found = whole(&spectra, &backend, &recording).complex();
            let filtered = whole(&sums, &backend, &recording).complex();
            for (y, sums) in found.chunks_exact(channels).zip(filtered.chunks_exact(channels)) {
                let ratio = energy(y) / (channels as f64 * energy(sums));
                assert!((ratio - 1.0).abs() < CLOSE, "{}: {ratio}", backend.name());
            }
            if taps == 1 {
                let ratio = energy(&found) * channels as f64 / energy(&x);
                assert!((ratio - 1.0).abs() < CLOSE, "{}: {ratio}", backend.name());
            }
        }
    }
}

/// A stream that starts one hop later gives the later spectra, phase-rotated by that hop.
#[test]
fn a_delay_of_one_hop_is_a_shift_by_one_spectrum() {
    let mut random = Random::new(9);
    for (channels, taps, oversampling) in [(8, 4, (1, 1)), (12, 5, (4, 3)), (35, 3, (7, 5))] {
        let order = Order::Natural;
        let plan = plan(Options { oversampling, order, ..complex(channels, taps) });
        let x = noise(&mut random, plan.span() + 25 * plan.hop());
        let late = Recording::complex(&[x[plan.hop()..].to_vec()]);
        let early = Recording::complex(&[x]);
        let turn = |bin: usize| Complex64::cis(TAU * (plan.hop() * bin) as f64 / channels as f64);
        for backend in Backend::available(2) {
            let spectra = whole(&plan, &backend, &early).complex();
            let later = spectra[channels..].iter().enumerate();
            let expected: Vec<_> = later.map(|(index, y)| y * turn(index % channels)).collect();
            let found = whole(&plan, &backend, &late).complex();
            assert_close(&found, &expected, CLOSE, &backend.name());
        }
    }
}

fn detected(products: Products, feed: Feed, polarizations: usize) -> Plan {
    let detection = Detection { products, feed, spectra: 1, channels: 1, interpolate_dc: false };
    let mut options = Options::new(32, 4, VoltageEncoding::Complex8);
    options.input.polarizations = polarizations;
    options.form = Form::Detected(detection);
    plan(options)
}

/// Rows of products: one vector for each.
fn rows(plan: &Plan, backend: &Backend, recording: &Recording) -> Vec<Vec<f64>> {
    let values = whole(plan, backend, recording).floats();
    let products = plan.output_products();
    let product = |product| -> Vec<f64> {
        let rows = values.chunks_exact(plan.row_elements());
        rows.flat_map(|row| row[product * 32..(product + 1) * 32].to_vec()).collect()
    };
    (0..products).map(product).collect()
}

#[test]
fn detection_keeps_its_identities() {
    let mut random = Random::new(10);
    let times = 32 * 40;
    let recording = Recording::random(&mut random, VoltageEncoding::Complex8, 2, times);
    for backend in Backend::available(2) {
        let all = |products, feed| rows(&detected(products, feed, 2), &backend, &recording);
        let same = |a: f64, b: f64, of: f64| assert!((a - b).abs() <= 1e-5 * of, "{a} {b} {of}");
        let powers = all(Products::Power, Feed::Linear);
        let intensity = all(Products::I, Feed::Linear);
        let cross = all(Products::Aabbcrci, Feed::Linear);
        let linear = all(Products::Iquv, Feed::Linear);
        let circular = all(Products::Iquv, Feed::Circular);
        for k in 0..powers[0].len() {
            let (aa, bb) = (powers[0][k], powers[1][k]);
            let i = intensity[0][k];
            same(i, aa + bb, i);
            same(cross[0][k], aa, i);
            same(cross[1][k], bb, i);
            for stokes in [&linear, &circular] {
                let polarized: f64 = (1..4).map(|p| stokes[p][k].powi(2)).sum();
                // One spectrum is fully polarized.
                same(stokes[0][k], i, i);
                same(polarized.sqrt(), i, i);
            }
            let (re, im) = (2.0 * cross[2][k], 2.0 * cross[3][k]);
            let pairs = [(linear[1][k], aa - bb), (linear[2][k], re), (linear[3][k], im)];
            pairs.into_iter().for_each(|(found, expected)| same(found, expected, i));
            let pairs = [(circular[1][k], re), (circular[2][k], im), (circular[3][k], aa - bb)];
            pairs.into_iter().for_each(|(found, expected)| same(found, expected, i));
        }
    }
}

/// Integrations and sums over channels equal sums of the output without them, and an integrated spectrum is at most
/// fully polarized.
#[test]
fn integrations_are_sums() {
    let mut random = Random::new(11);
    let single = detected(Products::Iquv, Feed::Linear, 2);
    let mut options = single.options().clone();
    let Form::Detected(detection) = &mut options.form else { unreachable!() };
    (detection.spectra, detection.channels) = (5, 4);
    let summed = plan(options);
    let times = summed.span() + 33 * summed.hop();
    let recording = Recording::random(&mut random, VoltageEncoding::Complex8, 2, times);
    for backend in Backend::available(2) {
        let fine = rows(&single, &backend, &recording);
        let coarse = whole(&summed, &backend, &recording).floats();
        assert_eq!(coarse.len(), 34 / 5 * 4 * 8);
        for (row, values) in coarse.chunks_exact(4 * 8).enumerate() {
            for channel in 0..8 {
                let sum = |product: usize| -> f64 {
                    let cells = (row * 5..row * 5 + 5)
                        .flat_map(|s| (0..4).map(move |c| s * 32 + channel * 4 + c));
                    cells.map(|cell| fine[product][cell]).sum()
                };
                let sums = [0, 1, 2, 3].map(sum);
                for (product, sum) in sums.iter().enumerate() {
                    let found = values[product * 8 + channel];
                    assert!((found - sum).abs() <= 1e-5 * sums[0], "{} {found}", backend.name());
                }
                let polarized: f64 = sums[1..].iter().map(|x| x * x).sum();
                assert!(sums[0] * sums[0] * (1.0 + 1e-5) >= polarized);
            }
        }
    }
}
