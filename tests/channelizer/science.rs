//! End-to-end checks of a filter bank: tones and noise have the power of its frequency response, and pulses their
//! true times.

use crate::support::channelize;
use crate::support::random;
use std::f64::consts::TAU;

use channelize::{Complex64, Recording, whole};
use random::Random;
use sidereal::backend::Backend;
use sidereal::channelize::{Detection, Feed, Form, Options, Order, Plan, Products};
use sidereal::math::Window;
use sidereal::voltage::VoltageEncoding;

const CHANNELS: usize = 64;

/// The channel around which tones are placed.
const CENTRE: usize = 20;

fn plan(window: &Window, taps: usize, oversampling: (usize, usize)) -> Plan {
    let mut options = Options::new(CHANNELS, taps, VoltageEncoding::ComplexF32);
    (options.window, options.order) = (window.clone(), Order::Natural);
    options.oversampling = oversampling;
    Plan::new(options).unwrap()
}

/// Every window, with the taps for its test.
fn windows() -> Vec<(Window, usize)> {
    let own = (0..CHANNELS * 3).map(|n| (0.05 * n as f64).sin().abs() * 0.01).collect();
    vec![
        (Window::Hann, 4),
        (Window::Hann, 8),
        (Window::Hann, 16),
        (Window::Hamming, 8),
        (Window::Blackman, 8),
        (Window::Kaiser(60.0), 8),
        (Window::Rectangular, 1),
        (Window::Custom(own), 3),
    ]
}

/// Returns the power in every channel, in dB relative to a tone at a channel's centre, for a tone offset by a number
/// of channels.
fn tone_db(plan: &Plan, backend: &Backend, channel: f64) -> Vec<f64> {
    let turns = |n: usize| (channel * n as f64 / CHANNELS as f64).fract();
    let tone = (0..plan.span() + 2 * plan.hop()).map(|n| Complex64::cis(TAU * turns(n)));
    let recording = Recording::complex(&[tone.collect()]);
    let gain: f64 = plan.coefficients().iter().sum();
    let spectra = whole(plan, backend, &recording).complex();
    let last = &spectra[2 * CHANNELS..3 * CHANNELS];
    last.iter().map(|y| 10.0 * (y.norm_sqr() / (gain * gain)).log10()).collect()
}

/// Verification method: a tone is swept over three channels, and the power in each of the three is compared at every
/// step with the frequency response of the window by its definition.
#[test]
fn a_tone_swept_over_three_channels_follows_the_response() {
    for (window, taps) in windows() {
        for oversampling in [(1, 1), (4, 3)] {
            let plan = plan(&window, taps, oversampling);
            for backend in Backend::available(2) {
                let (mut compared, mut worst) = (0, 0.0f64);
                for step in -60..=60 {
                    let offset = f64::from(step) / 40.0;
                    let found = tone_db(&plan, &backend, CENTRE as f64 + offset);
                    for channel in [CENTRE - 1, CENTRE, CENTRE + 1] {
                        let off = CENTRE as f64 + offset - channel as f64;
                        let expected = plan.response().db(off);
                        // Below this level, the residual of a main lobe is rounding error.
                        if off.abs() <= 1.0 && expected > -60.0 {
                            worst = worst.max((found[channel] - expected).abs());
                            compared += 1;
                        }
                    }
                }
                let name = format!("{} {} {taps} taps", backend.name(), window.name());
                assert!(worst < 0.01, "{name}: {worst} dB off");
                assert!(compared > 120, "{name}: {compared} compared");
            }
        }
    }
}

/// Verification method: scalloping loss and leakage are measured with tones, at the frequencies where the response is
/// worst and everywhere else in the band, and compared with its summary.
#[test]
fn scalloping_and_leakage_are_as_the_plan_says() {
    for (window, taps) in windows() {
        let plan = plan(&window, taps, (1, 1));
        let said = plan.response().summary();
        for backend in Backend::available(2) {
            let name = format!("{} {} {taps} taps", backend.name(), window.name());
            let half = tone_db(&plan, &backend, CENTRE as f64 + 0.5);
            let loss = -half[CENTRE].max(half[CENTRE + 1]);
            assert!((loss - said.scalloping_loss_db).abs() < 0.001, "{name}: {loss} {said}");
            let next = tone_db(&plan, &backend, CENTRE as f64)[CENTRE + 1];
            let close = |found: f64, expected: f64| (found - expected).abs() < 0.05;
            assert!(close(next, said.adjacent_db) || said.adjacent_db < -110.0, "{name}: {next}");
            let there = tone_db(&plan, &backend, CENTRE as f64 - said.leakage_offset)[CENTRE];
            assert!(close(there, said.leakage_db), "{name}: {there} {said}");
            for step in 0..30 {
                let tone = CENTRE as f64 + f64::from(step) / 30.0;
                for (channel, found) in tone_db(&plan, &backend, tone).iter().enumerate() {
                    let away = (tone - channel as f64).rem_euclid(CHANNELS as f64);
                    let away = away.min(CHANNELS as f64 - away);
                    let fits = away < 1.0 - 1e-9 || *found < said.leakage_db + 0.05;
                    assert!(fits, "{name}: {found} dB, {away} channels away: {said}");
                }
            }
        }
    }
}

/// Verification method: the mean power of white noise in all channels is its density times the noise
/// bandwidth.
#[test]
fn white_noise_has_the_noise_bandwidth_s_power() {
    let mut random = Random::new(1);
    let times = CHANNELS * 1000;
    let noise = (0..times).map(|_| Complex64::new(random.gaussian(), random.gaussian()));
    let recording = Recording::complex(&[noise.collect()]);
    for (window, taps) in windows() {
        let plan = plan(&window, taps, (1, 1));
        let said = plan.response().summary();
        // Two units of power over as many channels' widths as there are.
        let density = 2.0 / CHANNELS as f64 * said.gain * said.gain;
        for backend in Backend::available(2).into_iter().skip(1) {
            let spectra = whole(&plan, &backend, &recording).complex();
            let power: f64 = spectra.iter().map(|y| y.norm_sqr()).sum();
            let found = power / spectra.len() as f64 / density;
            let ratio = found / said.noise_bandwidth;
            assert!((ratio - 1.0).abs() < 0.02, "{} {}: {ratio}", window.name(), backend.name());
        }
    }
}

/// Verification method: a carrier under a symmetric envelope of known centre is detected; the centroid of its rows,
/// timed with the plan's delay, is the true centre.
#[test]
fn a_pulse_keeps_its_time() {
    let centre = 7003.5;
    let pulse = |n: usize| {
        let away = (n as f64 + 0.5 - centre) / 900.0;
        (-0.5 * away * away).exp() * Complex64::cis(TAU * 0.05 * n as f64)
    };
    let recording = Recording::complex(&[(0..14_000).map(pulse).collect()]);
    for (taps, oversampling, spectra) in
        [(1, (1, 1), 1), (4, (1, 1), 1), (8, (1, 1), 4), (8, (4, 3), 3), (16, (2, 1), 2)]
    {
        let mut options = plan(&Window::Hamming, taps, oversampling).options().clone();
        options.form = Form::Detected(Detection {
            products: Products::I,
            feed: Feed::Linear,
            spectra,
            channels: CHANNELS,
            interpolate_dc: false,
        });
        let plan = Plan::new(options).unwrap();
        for backend in Backend::available(2) {
            let rows = whole(&plan, &backend, &recording).floats();
            let total: f64 = rows.iter().sum();
            let timed = rows.iter().enumerate().map(|(row, power)| {
                let middle = (row as f64 + 0.5) * plan.samples_per_row() as f64;
                power * (plan.delay_samples() + middle)
            });
            let found = timed.sum::<f64>() / total;
            let name = format!("{} {taps} taps {oversampling:?}", backend.name());
            assert!((found - centre).abs() < 1.0, "{name}: {found}, not {centre}");
        }
    }
}
