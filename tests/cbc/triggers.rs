//! Triggers: definition, invariance to the split of the stream, times, amplitudes, phases, xi-squared.

use std::collections::BTreeSet;

use crate::chirps::{Chirp, LENGTH, RATE_HZ, autocorrelation, filtered};
use crate::random::Random;
use num_complex::{Complex, Complex64};
use sidereal::backend::Backend;
use sidereal::spiir::trigger::{Autocorrelation, Finder, Plan, Ratios, Trigger, TriggerOptions};

/// Samples to either side in the autocorrelations.
const HALF: usize = 100;

fn finder(options: &TriggerOptions, autocorrelations: &[Autocorrelation]) -> Finder {
    let plan = Plan::new(options.clone(), autocorrelations.to_vec()).expect("a plan");
    Finder::new(plan, &Backend::best(1)).expect("a finder")
}

/// Returns all triggers of rows of `times` samples, in blocks of lengths that `next` returns.
fn in_blocks(
    finder: &mut Finder,
    z: &[Complex<f32>],
    valid: &[bool],
    mut next: impl FnMut() -> usize,
) -> Vec<Trigger> {
    let (times, templates) = (valid.len(), finder.plan().templates());
    let mut triggers = Vec::new();
    let mut done = 0;
    while done < times {
        let block = next().min(times - done);
        let stride = block + 3;
        let mut rows = vec![Complex::new(f32::NAN, 9e9); templates * stride];
        for (row, z) in rows.chunks_exact_mut(stride).zip(z.chunks_exact(times)) {
            row[..block].copy_from_slice(&z[done..done + block]);
        }
        let valid = &valid[done..done + block];
        let ratios = Ratios { z: &rows, stride, times: block };
        finder.run(ratios, valid, &mut triggers).expect("run");
        done += block;
    }
    finder.flush(&mut triggers).expect("flushed");
    triggers
}

fn whole(finder: &mut Finder, z: &[Complex<f32>], valid: &[bool]) -> Vec<Trigger> {
    in_blocks(finder, z, valid, || valid.len())
}

/// Correlated noise, with an approximate autocorrelation.
fn smooth_noise(rows: usize, times: usize, seed: u64) -> (Vec<Complex<f32>>, Vec<Autocorrelation>) {
    let mut random = Random::new(seed);
    let mut z = Vec::with_capacity(rows * times);
    for _ in 0..rows {
        let mut y = Complex64::default();
        for _ in 0..times {
            let next = Complex64::new(random.gaussian(), random.gaussian());
            y = y * Complex64::from_polar(0.9, 0.2) + next * (1.0_f64 - 0.81).sqrt();
            z.push(Complex::new(y.re as f32, y.im as f32));
        }
    }
    let a = |m: i32| Complex::from_polar(0.9_f32.powi(m.abs()), 0.2 * m as f32);
    let one = Autocorrelation::new((-40..=40).map(a).collect());
    (z, vec![one; rows])
}

#[test]
fn triggers_are_what_their_definition_says_and_do_not_depend_on_splits() {
    let (rows, times) = (3, 9000);
    let (mut z, shapes) = smooth_noise(rows, times, 1);
    // Equal adjacent samples, non-finite values, and gates.
    z[700..704].fill(Complex::new(0.0, 6.0));
    z[times + 50] = Complex::new(f32::NAN, 1.0);
    z[times + 4000] = Complex::new(f32::INFINITY, 1.0);
    z[times + 4100] = Complex::new(3e19, 1.0);
    let gated = |t: &usize| !(3000..3100).contains(t) && *t != 6000 && *t > 4;
    let valid: Vec<bool> = (0..times).map(|t| gated(&t)).collect();
    let options =
        TriggerOptions { rate_hz: 1000, threshold: 2.0, window_s: 0.025, gate_pad_s: 0.03 };
    let (window, pad) = (25, 30);
    let mut finder = finder(&options, &shapes);
    let triggers = whole(&mut finder, &z, &valid);

    let power = |row: usize, t: i64| match usize::try_from(t) {
        Ok(t) if t < times && z[row * times + t].norm_sqr() < f32::INFINITY => {
            z[row * times + t].norm_sqr()
        }
        _ => 0.0,
    };
    let is_trigger = |row: usize, t: i64| {
        let here = power(row, t);
        let near = |away: i64| power(row, t - away) < here && power(row, t + away) <= here;
        let open = (-pad..=pad).all(|away| *valid.get((t + away) as usize).unwrap_or(&true));
        here >= 4.0 && (1..=window).all(near) && open
    };
    let expected: BTreeSet<(u64, u32)> = (0..rows)
        .flat_map(|row| (0..times as i64).map(move |t| (row, t)))
        .filter(|(row, t)| is_trigger(*row, *t))
        .map(|(row, t)| (t as u64, row as u32))
        .collect();
    let found: Vec<(u64, u32)> = triggers.iter().map(|one| (one.sample, one.template)).collect();
    assert!(found.len() > 100, "{}", found.len());
    assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    for one in &triggers {
        assert!(one.offset.abs() < 0.51 && one.xi2.is_finite() && one.xi2 >= 0.0, "{one:?}");
        assert!(one.z.re.is_finite() && one.z.im.is_finite(), "{one:?}");
    }

    let mut random = Random::new(2);
    for longest in [1, 2, 7, 40, 66, 100, 300, 3000] {
        let split = in_blocks(&mut finder, &z, &valid, || 1 + random.below(longest));
        assert_eq!(split, triggers, "blocks of up to {longest}");
    }
}

#[test]
fn triggers_do_not_depend_on_the_threads() {
    let (z, shapes) = smooth_noise(53, 3000, 4);
    let options = TriggerOptions { threshold: 2.5, ..TriggerOptions::new(1000) };
    let valid = vec![true; 3000];
    let expected = whole(&mut finder(&options, &shapes), &z, &valid);
    assert!(expected.len() > 100, "{}", expected.len());
    let mut random = Random::new(5);
    for threads in 2..5 {
        let plan = Plan::new(options.clone(), shapes.clone()).expect("a plan");
        let mut finder = Finder::new(plan, &Backend::best(threads)).expect("a finder");
        let found = in_blocks(&mut finder, &z, &valid, || 1 + random.below(700));
        assert_eq!(found, expected, "{threads} threads");
    }
}

#[test]
fn a_reset_forgets_and_wrong_shapes_are_refused() {
    let (z, shapes) = smooth_noise(2, 3000, 3);
    let options = TriggerOptions { threshold: 2.5, ..TriggerOptions::new(1000) };
    let mut finder = finder(&options, &shapes);
    assert_eq!(finder.plan().latency(), 250);
    let valid = vec![true; 3000];
    let first = whole(&mut finder, &z, &valid);
    let run = |finder: &mut Finder, z: &[_], stride: usize, times: usize, flags: usize| {
        let mut some = Vec::new();
        finder.run(Ratios { z, stride, times }, &valid[..flags], &mut some).map(|()| some)
    };
    let some = run(&mut finder, &z, 3000, 1234, 1234).expect("run");
    assert!(!some.is_empty() && first.starts_with(&some));
    finder.reset().expect("reset");
    assert_eq!(whole(&mut finder, &z, &valid), first);
    assert!(run(&mut finder, &z, 2999, 10, 10).is_err());
    assert!(run(&mut finder, &z, 3000, 10, 9).is_err());
    assert!(run(&mut finder, &z[..10], 5, 6, 6).is_err());
    let mut none = Vec::new();
    finder.flush(&mut none).expect("flushed");
    let nothing = Ratios { z: &[], stride: 0, times: 0 };
    finder.run(nothing, &[], &mut none).expect("an empty block");
    finder.flush(&mut none).expect("flushed");
    assert!(none.is_empty());
}

#[test]
fn unusable_options_are_refused() {
    let (_, shapes) = smooth_noise(1, 1, 4);
    let fine = TriggerOptions::new(2048);
    let bad = [
        TriggerOptions { rate_hz: 0, ..fine.clone() },
        TriggerOptions { threshold: 0.0, ..fine.clone() },
        TriggerOptions { threshold: f32::NAN, ..fine.clone() },
        TriggerOptions { window_s: -0.1, ..fine.clone() },
        TriggerOptions { window_s: 1e9, ..fine.clone() },
        TriggerOptions { gate_pad_s: f64::NAN, ..fine.clone() },
    ];
    for options in bad {
        assert!(Plan::new(options.clone(), shapes.clone()).is_err(), "{options:?}");
    }
    let is_refused = |shapes: Vec<_>| Plan::new(fine.clone(), shapes).is_err();
    assert!(is_refused(Vec::new()));
    let one = Complex::new(1.0, 0.0);
    for values in [vec![], vec![one], vec![one; 4], vec![one; 3], vec![one * 0.5; 5]] {
        let shape = Autocorrelation::new(values.clone());
        assert!(is_refused(vec![shape]), "{values:?}");
    }
    let spoilt = vec![Complex::new(f32::NAN, 0.0), one, one * 0.5];
    assert!(is_refused(vec![Autocorrelation { values: spoilt, norm: 1.0 }]));
}

/// An injected signal.
struct Injection {
    /// Time of its last sample, in samples.
    end: f64,
    /// Returns `z` at its peak for filters with a perfect match.
    z: Complex64,
}

/// White noise with a chirp every second and a half, at any sub-sample time and of any phase.
fn campaign(chirp: &Chirp, count: usize, seed: u64) -> (Vec<f32>, Vec<Injection>) {
    let step = 3 * RATE_HZ as usize / 2;
    let mut random = Random::new(seed);
    let times = (count + 2) * step;
    let mut x: Vec<f64> = (0..times).map(|_| random.gaussian()).collect();
    let mut injections = Vec::new();
    for index in 0..count {
        let end = ((index + 2) * step) as f64 + 40.0 * random.uniform();
        let snr = 8.0 + 32.0 * (index as f64 / count as f64).powi(2);
        let z = Complex64::from_polar(snr, std::f64::consts::TAU * random.uniform());
        let begin = end - (LENGTH as f64 - 1.0);
        for (t, x) in x.iter_mut().enumerate().skip(begin.floor() as usize).take(LENGTH + 1) {
            *x += (z * chirp.at(t as f64 - begin)).re;
        }
        injections.push(Injection { end, z });
    }
    (x.iter().map(|x| *x as f32).collect(), injections)
}

/// The mean of some numbers, and the uncertainty of the mean.
fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}

/// Verification method: 200 chirps of SNR 8 to 40 in white noise, through filters of match about 0.98. Each must give
/// the loudest trigger of its time, and the means over all of them must agree with theory.
#[test]
fn two_hundred_injections_are_measured_as_they_were_made() {
    let chirp = Chirp::new(30.0);
    let template = chirp.filters(0.02);
    let (fit, shape) = autocorrelation(&template, &chirp, HALF);
    assert!(
        fit.norm() > 0.94 && fit.norm() < 0.999,
        "the filters are to be good, not perfect: {fit}"
    );
    let (x, injections) = campaign(&chirp, 200, 5);
    let z = filtered(vec![template], &x);
    let options = TriggerOptions::new(RATE_HZ);
    let triggers =
        whole(&mut finder(&options, std::slice::from_ref(&shape)), &z, &vec![true; x.len()]);

    // Near its peak |A[m]|^2 = 1 + slope m - (width m)^2, width being that of the signal's spectrum in radians a
    // sample, and a slope that of filters that do not match it quite.
    let [before, _, after] = [HALF - 1, HALF, HALF + 1].map(|m| shape.values[m]);
    let [early, late] = [before, after].map(|a| f64::from(a.norm_sqr()));
    let width = (1.0 - 0.5 * (early + late)).sqrt();
    let turn = f64::from((after / before).arg()) / 2.0;
    let [mut snr, mut time, mut phase, mut xi2] = [const { Vec::new() }; 4];
    for Injection { end, z } in &injections {
        let lag = |one: &Trigger| one.sample as f64 + f64::from(one.offset) - end;
        let near = triggers.iter().filter(|one| lag(one).abs() < 0.1 * f64::from(RATE_HZ));
        let best = near.max_by(|a, b| a.snr().total_cmp(&b.snr())).expect("a trigger");
        let expected = z * fit;
        snr.push(f64::from(best.snr()) - expected.norm());
        // Errors of time and amplitude in units of their expected deviation in noise.
        time.push(lag(best) * expected.norm() * width);
        let turned = f64::from(best.phase()) - expected.arg() - turn * lag(best);
        phase.push(turned.sin() * expected.norm());
        xi2.push(f64::from(best.xi2));
        assert!(lag(best).abs() * expected.norm() * width < 5.0, "{best:?} for {end}");
    }
    let rms =
        |values: &[f64]| (values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64).sqrt();
    for some in [0..71, 71..122, 122..200, 0..200] {
        let loud = |index: usize| injections[index].z.norm() * fit.norm();
        let (low, high) = (loud(some.start), loud(some.end - 1));
        let [snr, time, phase, xi2] = [&snr, &time, &phase, &xi2].map(|of| &of[some.clone()]);
        eprintln!(
            "| {low:.1} to {high:.1} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.3} +- {:.3} |",
            some.len(),
            mean(snr).0,
            rms(snr),
            mean(time).0,
            rms(time),
            mean(phase).0,
            rms(phase),
            mean(xi2).0,
            mean(xi2).1
        );
    }
    assert!(mean(&snr).0.abs() < 0.25 && (rms(&snr) - 1.0).abs() < 0.15);
    // The unit is the bound for matching filters; these pass noise outside the spectrum of the chirp.
    assert!(mean(&time).0.abs() < 0.3 && rms(&time) > 0.85 && rms(&time) < 1.4);
    assert!(mean(&phase).0.abs() < 0.25 && (rms(&phase) - 1.0).abs() < 0.15);
    assert!((mean(&xi2).0 - 1.0).abs() < 0.05);
}

/// Verification method: without selection (at the true time of a signal, and at any time in noise), the mean of
/// `sum_m |z[t + m] - z[t] A[m]|^2 / sum_m (2 - 2 |A[m]|^2)` is 1.
#[test]
fn xi_squared_is_1_in_the_mean_for_signals_and_for_noise() {
    let chirp = Chirp::new(30.0);
    let template = chirp.filters(0.02);
    let (_, shape) = autocorrelation(&template, &chirp, HALF);
    let mut random = Random::new(8);
    let (step, count) = (3 * RATE_HZ as usize / 2, 300);
    let noise: Vec<f64> = (0..(count + 3) * step).map(|_| random.gaussian()).collect();
    let mean_of = |snr: f64| {
        let mut x = noise.clone();
        for (index, x) in x.chunks_exact_mut(step).enumerate() {
            let z = Complex64::from_polar(snr, index as f64);
            for (t, x) in x.iter_mut().take(LENGTH).enumerate() {
                *x += (z * chirp.at(t as f64)).re;
            }
        }
        let x: Vec<f32> = x.iter().map(|x| *x as f32).collect();
        let z = filtered(vec![template.clone()], &x);
        let xi2 = |index: usize| {
            let t = index * step + LENGTH - 1;
            let around = &z[t - HALF..=t + HALF];
            let left =
                around.iter().zip(&shape.values).map(|(other, a)| (other - z[t] * a).norm_sqr());
            f64::from(left.sum::<f32>() / shape.norm)
        };
        mean(&(1..=count).map(xi2).collect::<Vec<_>>())
    };
    // A loud signal also leaves a residual of its negative frequencies.
    for snr in [0.0, 8.0, 20.0, 100.0] {
        let (mean, sigma) = mean_of(snr);
        eprintln!("snr {snr}: xi2 {mean:.4} +- {sigma:.4}");
        assert!((mean - 1.0).abs() < 0.04 + 3e-5 * snr * snr, "{mean} +- {sigma} at {snr}");
    }
}

/// The other forms of the autocorrelation: conjugated and reversed (which, for filters that match well, is nearly the
/// conjugate). Only the right one leaves noise.
#[test]
fn xi_squared_tells_the_orientation_of_the_autocorrelation() {
    let chirp = Chirp::new(30.0);
    let template = chirp.filters(0.02);
    let (_, shape) = autocorrelation(&template, &chirp, HALF);
    let (x, _) = campaign(&chirp, 40, 6);
    let z = filtered(vec![template], &x);
    let values = &shape.values;
    let ways = [
        values.clone(),
        values.iter().map(Complex::conj).collect(),
        values.iter().rev().copied().collect(),
        values.iter().rev().map(Complex::conj).collect(),
    ];
    let options = TriggerOptions { threshold: 8.0, ..TriggerOptions::new(RATE_HZ) };
    let xi2 = ways.map(|values| {
        let mut finder = finder(&options, &[Autocorrelation::new(values)]);
        let triggers = whole(&mut finder, &z, &vec![true; x.len()]);
        mean(&triggers.iter().map(|one| f64::from(one.xi2)).collect::<Vec<_>>()).0
    });
    eprintln!("{xi2:?}");
    assert!((xi2[0] - 1.0).abs() < 0.1, "{xi2:?}");
    assert!(xi2[1] > 5.0 && xi2[2] > 5.0, "{xi2:?}");
    assert!(xi2[3] > xi2[0], "filters that miss a part of the chirp tell even this: {xi2:?}");
}

#[test]
fn noise_alone_and_loud_signals_have_the_shape_too_and_a_glitch_does_not() {
    let chirp = Chirp::new(30.0);
    let template = chirp.filters(0.02);
    let (_, shape) = autocorrelation(&template, &chirp, HALF);
    let mut random = Random::new(7);
    let times = 300 * RATE_HZ as usize;
    let mut x: Vec<f32> = (0..times).map(|_| random.gaussian() as f32).collect();
    let valid = vec![true; times];
    let options = TriggerOptions { threshold: 3.0, ..TriggerOptions::new(RATE_HZ) };
    let mut finder = finder(&options, &[shape]);
    let noise = whole(&mut finder, &filtered(vec![template.clone()], &x), &valid);
    let xi2: Vec<f64> = noise.iter().map(|one| f64::from(one.xi2)).collect();
    eprintln!("{} triggers of noise, xi2 {:?}", xi2.len(), mean(&xi2));
    // Below 1: a sample selected as a peak falls off to both sides.
    assert!(xi2.len() > 200 && mean(&xi2).0 > 0.75 && mean(&xi2).0 < 1.0);

    // A signal of a hundred times the noise between two samples, and a click of the same strength.
    for t in 0..LENGTH {
        x[10_000 + t] += (100.0 * chirp.at(t as f64 - 0.5)).re as f32;
    }
    x[100_000] += 4000.0;
    let triggers = whole(&mut finder, &filtered(vec![template], &x), &valid);
    let loudest = |from: u64, until: u64| {
        let within = triggers.iter().filter(|one| (from..until).contains(&one.sample));
        *within.max_by(|a, b| a.snr().total_cmp(&b.snr())).expect("a trigger")
    };
    let (signal, glitch) = (loudest(11_000, 13_000), loudest(99_000, 103_000));
    eprintln!("{signal:?} {glitch:?}");
    let ends = signal.sample as f64 + f64::from(signal.offset);
    assert!((ends - (10_000.5 + LENGTH as f64 - 1.0)).abs() < 0.5);
    assert!(signal.snr() > 95.0 && signal.xi2 < 1.6, "{signal:?}");
    assert!(glitch.snr() > 50.0 && glitch.xi2 > 100.0, "{glitch:?}");
    assert!(glitch.reweighted() < 0.2 * glitch.snr());
}
