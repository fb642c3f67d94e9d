//! Placement of templates: coverage of the space, the same bank for any number of threads, clear errors.

use sidereal::Error;
use sidereal::backend::threads::Threads;
use sidereal::math::{PowerSpectrum, advanced_ligo};
use sidereal::pipeline::cbc::{PlaceOptions, Placed, Range, Space, coverage, harmonic_mean, place};
use sidereal::strain::Binary;
use sidereal::waveform::PhenomD;

fn design() -> PowerSpectrum {
    advanced_ligo(0.25, 4097).expect("a spectrum")
}

fn placed(options: &PlaceOptions, threads: usize) -> Placed {
    place(options, &design(), &Threads::new(threads), &mut |_| Ok(())).expect("a bank")
}

fn heavy() -> PlaceOptions {
    let spins = Range::new(-0.5, 0.5);
    let space = Space { spin1z: spins, spin2z: spins, ..Space::of_masses(Range::new(15.0, 50.0)) };
    PlaceOptions { f_low_hz: 20.0, f_high_hz: 1024.0, ..PlaceOptions::new(space) }
}

/// The match by direct sums: 1/4 Hz apart, at 801 times within 20 ms.
fn direct(one: &Binary, other: &Binary, psd: &PowerSpectrum, (low, high): (f64, f64)) -> f64 {
    let models = [one, other].map(|binary| PhenomD::new(binary).expect("a model"));
    let spacing = 0.25;
    let bins = (low / spacing) as usize..(high / spacing) as usize;
    let mut norms = [0.0; 2];
    let mut terms = Vec::new();
    for bin in bins {
        let f = bin as f64 * spacing;
        let [[a, p], [b, q]] = [models[0].at(f), models[1].at(f)];
        let weight = 1.0 / psd.at(f);
        norms[0] += a * a * weight;
        norms[1] += b * b * weight;
        terms.push((f, a * b * weight, p - q));
    }
    let best = (-400..=400)
        .map(|step| {
            let time = f64::from(step) * 5e-5;
            let (mut re, mut im) = (0.0, 0.0);
            for (f, weight, phase) in &terms {
                let (sin, cos) = (phase + std::f64::consts::TAU * f * time).sin_cos();
                re += weight * cos;
                im += weight * sin;
            }
            re.hypot(im)
        })
        .fold(0.0, f64::max);
    best / (norms[0] * norms[1]).sqrt()
}

#[test]
fn random_binaries_match_a_template_by_direct_sums() {
    let options = heavy();
    let bank = placed(&options, 2);
    assert!((100..600).contains(&bank.binaries.len()), "{}", bank.binaries.len());
    assert!(bank.binaries.iter().all(|binary| options.space.contains(binary)));
    let seen = coverage(&bank.binaries, &options, &design(), 100, &Threads::new(2));
    let seen = seen.expect("coverage");
    assert!(seen.above() >= 97, "{} of {}", seen.above(), seen.matches.len());
    // Checks the reported properties of three templates with sums that share only the waveform with the placement.
    for (binary, said) in &seen.matches[..3] {
        let mut near: Vec<&Binary> = bank.binaries.iter().collect();
        let far = |other: &&Binary| (other.chirp_mass_msun() / binary.chirp_mass_msun()).ln().abs();
        near.retain(|other| far(other) < 0.12);
        let times = (options.f_low_hz, options.f_high_hz);
        // The nearest in chirp mass and effective spin first: a few of them hold the best.
        let spin = |one: &Binary| one.spin1z * one.mass1_msun + one.spin2z * one.mass2_msun;
        let score = |other: &&Binary| {
            10.0 * far(other)
                + (spin(other) - spin(binary)).abs() / binary.total_mass_msun()
                + 0.3 * (other.mass1_msun / binary.mass1_msun).ln().abs()
        };
        near.sort_by(|a, b| score(a).total_cmp(&score(b)));
        let found = near.iter().take(12).map(|other| direct(binary, other, &design(), times));
        let best = found.fold(0.0, f64::max);
        assert!(best <= said + 1e-3, "{binary:?}: {best} by direct sums, {said} by coverage");
        assert!(best >= said - 0.02, "{binary:?}: {best} by direct sums, {said} by coverage");
    }
}

#[test]
fn a_bank_depends_on_its_seed_and_not_on_the_threads() {
    let options = heavy();
    let one = placed(&options, 1);
    assert_eq!(one, placed(&options, 3));
    let other = placed(&PlaceOptions { seed: 2, ..options.clone() }, 1);
    assert_ne!(one.binaries, other.binaries);
    let ratio = one.binaries.len() as f64 / other.binaries.len() as f64;
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
    // A bank of half the mismatch has more templates.
    let close = placed(&PlaceOptions { min_match: 0.985, ..options }, 1);
    assert!(close.binaries.len() > 3 * one.binaries.len() / 2, "{}", close.binaries.len());
}

#[test]
fn half_a_bank_covers_less() {
    let options = heavy();
    let mut half = placed(&options, 1).binaries;
    let mut keep = false;
    half.retain(|_| {
        keep = !keep;
        keep
    });
    let seen = coverage(&half, &options, &design(), 200, &Threads::new(2)).expect("coverage");
    assert!(seen.above() < 190, "{}", seen.above());
    let (_, worst) = seen.worst().expect("a worst point");
    assert!(worst < 0.97 && worst > 0.8, "{worst}");
}

#[test]
fn light_binaries_are_placed_too() {
    let space = Space::of_masses(Range::new(1.3, 1.5));
    let options = PlaceOptions { f_low_hz: 40.0, f_high_hz: 1024.0, ..PlaceOptions::new(space) };
    let bank = placed(&options, 2);
    assert!((50..2000).contains(&bank.binaries.len()), "{}", bank.binaries.len());
    let seen = coverage(&bank.binaries, &options, &design(), 100, &Threads::new(2));
    assert!(seen.expect("coverage").above() >= 95);
}

#[test]
fn what_can_not_be_placed_is_refused_clearly() {
    let refused =
        |options: &PlaceOptions| match place(options, &design(), &Threads::new(1), &mut |_| Ok(()))
        {
            Err(error @ Error::Parameter { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        };
    let few = refused(&PlaceOptions { most: 10, ..heavy() });
    assert!(few.contains("most templates is 10") && few.contains("allow more"), "{few}");
    let none = Space { total_msun: Range::new(1.0, 2.0), ..heavy().space };
    let none = refused(&PlaceOptions { space: none, ..heavy() });
    assert!(none.contains("no binary"), "{none}");
    let reversed = Space::of_masses(Range::new(60.0, 10.0));
    let reversed = refused(&PlaceOptions { space: reversed, ..heavy() });
    assert!(reversed.contains("60:10"), "{reversed}");
    let band = refused(&PlaceOptions { f_low_hz: 2000.0, ..heavy() });
    assert!(band.contains("2000"), "{band}");
    let stop = place(&heavy(), &design(), &Threads::new(1), &mut |count| match count {
        0..50 => Ok(()),
        _ => Err(Error::parameter("stop", count, "by the caller")),
    });
    assert!(stop.is_err());
}

#[test]
fn the_harmonic_mean_is_that_of_the_inverse_densities() {
    let flat = |density: f64| PowerSpectrum::new(1.0, vec![density; 9]).expect("a spectrum");
    let mean = harmonic_mean(&[flat(1.0), flat(3.0)]).expect("a mean");
    assert!(mean.densities().iter().all(|density| (density - 1.5).abs() < 1e-12));
    assert!(harmonic_mean(&[]).is_err());
}
