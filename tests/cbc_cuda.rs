//! A gravitational-wave search on a GPU finds the results of the CPU: peaks, chains, events. The device is a real one
//! or the emulator of `tests/cuda_on_host`.
//!
//! Verification method: test against the processor, whose results have published and simulated truths of their own
//! (`cbc/science.rs`, `cbc/science_events.rs`, `cbc/triggers.rs`).

#[path = "common/coincident.rs"]
mod coincident;
mod common;
#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/random.rs"]
mod random;

use coincident::{
    around_a_gap, bits, chain, chirp_bank, gw150914, interrupted, pair, recording, search,
    search_options, spoilt,
};
use num_complex::{Complex, Complex64};
use random::Random;
use sidereal::backend::Backend;
use sidereal::backend::cuda::Device;
use sidereal::pipeline::cbc::{
    ChirpDetector, ChirpSearch, DetectorOptions, DetectorReport, Input, Piece, Report,
    SearchOptions,
};
use sidereal::spiir::bank::Bank;
use sidereal::spiir::trigger::{
    Autocorrelation, DeviceRatios, Finder, Plan, Ratios, Trigger, TriggerOptions,
};
use sidereal::state::{Saved, Saving};
use sidereal::units::Gps;
use std::sync::Arc;

/// Same samples and templates, and same statistics except for the order of sums.
fn assert_same(found: &[Trigger], expected: &[Trigger], what: &str) {
    assert!(!expected.is_empty(), "{what}: the processor finds nothing");
    let places = |list: &[Trigger]| -> Vec<(u64, u32)> {
        list.iter().map(|one| (one.sample, one.template)).collect()
    };
    assert_eq!(places(found), places(expected), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let near = |a: f32, b: f32, bound: f32| (a - b).abs() <= bound * (1.0 + b.abs());
        let same = near(found.offset, expected.offset, 1e-3)
            && (found.z - expected.z).norm() <= 1e-4 * expected.z.norm()
            && near(found.xi2, expected.xi2, 1e-3);
        assert!(same, "{what}: {found:?} {expected:?}");
    }
}

/// Returns correlated noise with shapes of several lengths, one of which peaks off its middle.
fn noise(rows: usize, times: usize) -> (Vec<Complex<f32>>, Vec<Autocorrelation>) {
    let mut random = Random::new(1);
    let mut z = Vec::with_capacity(rows * times);
    for _ in 0..rows {
        let mut y = Complex64::default();
        for _ in 0..times {
            let next = Complex64::new(random.gaussian(), random.gaussian());
            y = y * Complex64::from_polar(0.9, 0.2) + next * (1.0_f64 - 0.81).sqrt();
            z.push(Complex::new(y.re as f32, y.im as f32));
        }
    }
    let shape = |row: usize| {
        let late = if row == 1 { 0.6_f32 } else { 0.0 };
        let a = |m: i32| {
            let away = (m as f32 - late).abs();
            Complex::from_polar(0.9_f32.powf(away - late), 0.2 * m as f32)
        };
        let half = 30 + 10 * (row as i32 % 2);
        Autocorrelation { norm: 40.0, values: (-half..=half).map(a).collect() }
    };
    (z, (0..rows).map(shape).collect())
}

/// Searched on the device in blocks of random sizes, each on another of three streams.
fn on_device(
    finder: &mut Finder,
    device: &Device,
    (z, valid): (&[Complex<f32>], &[bool]),
    mut next: impl FnMut() -> usize,
) -> Vec<Trigger> {
    let times = valid.len();
    let streams = [(); 3].map(|()| device.stream().expect("a stream"));
    let mut streams = streams.iter().cycle();
    let mut stream = || streams.next().expect("endless");
    let (mut triggers, mut done) = (Vec::new(), 0);
    while done < times {
        let block = next().min(times - done);
        let stride = block + 3;
        let mut rows = vec![Complex::new(f32::NAN, 9e9); finder.plan().templates() * stride];
        for (row, z) in rows.chunks_exact_mut(stride).zip(z.chunks_exact(times)) {
            row[..block].copy_from_slice(&z[done..done + block]);
        }
        let z = device.upload(&rows).expect("room");
        let rows = DeviceRatios { z: &z, stride, times: block };
        let valid = &valid[done..done + block];
        finder.enqueue(rows, valid, &mut triggers, stream()).expect("queued");
        done += block;
    }
    finder.flush(&mut triggers).expect("flushed");
    triggers
}

#[test]
fn fixed_subset_peaks_are_those_of_the_host_for_any_split() {
    let Some(gpu) = cuda::backend(1) else { return };
    let Backend::Cuda(device, _) = &gpu else { return };
    let (rows, times) = (3, 5000);
    let (mut z, shapes) = noise(rows, times);
    // Equal adjacent samples, non-finite values, peaks at both ends, and gates.
    z[700..704].fill(Complex::new(0.0, 6.0));
    z[0] = Complex::new(0.0, 7.0);
    z[times - 1] = Complex::new(5.0, 5.0);
    z[times + 50] = Complex::new(f32::NAN, 1.0);
    z[times + 4000] = Complex::new(f32::INFINITY, 1.0);
    z[times + 4100] = Complex::new(3e19, 1.0);
    let valid: Vec<bool> =
        (0..times).map(|t| !(3000..3100).contains(&t) && t != 3600 && t != 40).collect();
    for (window_s, gate_pad_s, threshold) in
        [(0.025, 0.03, 2.0), (0.025, 0.2, 2.0), (0.0, 0.0, 2.5), (0.3, 0.01, 2.0)]
    {
        let options = TriggerOptions { rate_hz: 1000, threshold, window_s, gate_pad_s };
        let plan = Plan::new(options, shapes.clone()).expect("a plan");
        let on_host = |finder: &mut Finder| {
            let mut triggers = Vec::new();
            let ratios = Ratios { z: &z, stride: times, times };
            finder.run(ratios, &valid, &mut triggers).expect("searched");
            finder.flush(&mut triggers).expect("flushed");
            triggers
        };
        let expected = on_host(&mut Finder::new(plan.clone(), &gpu.on_host()).expect("a finder"));
        let mut finder = Finder::new(plan, &gpu).expect("a finder");
        let mut random = Random::new(3);
        let data = (&z[..], &valid[..]);
        let whole = on_device(&mut finder, device, data, || times);
        assert_same(&whole, &expected, &format!("window {window_s} s"));
        assert_eq!(on_host(&mut finder), whole, "window {window_s} s, ratios of the host");
        for most in [100, 1500] {
            let split = on_device(&mut finder, device, data, || 1 + random.below(most));
            assert_eq!(split, whole, "window {window_s} s, blocks of up to {most}");
        }
        finder.reset().expect("reset");
    }
}

#[test]
fn nonsense_is_refused_by_name() {
    let Some(gpu) = cuda::backend(1) else { return };
    let Backend::Cuda(device, _) = &gpu else { return };
    let (z, shapes) = noise(2, 100);
    let options = TriggerOptions::new(1000);
    let plan = Plan::new(options.clone(), shapes).expect("a plan");
    let mut finder = Finder::new(plan, &gpu).expect("a finder");
    let (stream, z) = (device.stream().expect("a stream"), device.upload(&z).expect("room"));
    let mut try_with = |stride: usize, times: usize, valid: &[bool]| {
        let rows = DeviceRatios { z: &z, stride, times };
        let error = finder.enqueue(rows, valid, &mut Vec::new(), &stream).expect_err("refused");
        error.to_string()
    };
    assert!(try_with(100, 100, &[true; 99]).contains("valid samples"));
    assert!(try_with(50, 60, &[true; 60]).contains("row of signal-to-noise ratios"));
    assert!(try_with(101, 60, &[true; 60]).contains("template, time"));
    let none = Plan::new(options, Vec::new()).map(|_| ());
    assert!(none.expect_err("refused").to_string().contains("templates"));
}

/// Triggers of a recording, and the number of whitened samples passed to the observer.
fn run(backend: &Backend, block: usize) -> (Vec<Trigger>, usize) {
    let mut one = recording("H1", 7, 9000);
    one.samples[3000] = f64::NAN;
    one.valid[12_000..12_100].fill(false);
    let mut detector =
        ChirpDetector::of_triggers(one.start, &chirp_bank(), &chain(), backend).expect("a chain");
    let (mut whitened, mut ratios) = (0, 0);
    let mut count = |piece: Piece<'_>| match piece {
        Piece::Whitened { samples, .. } => whitened += samples.len(),
        Piece::Ratios { times, .. } => ratios += times,
    };
    for (strain, valid) in one.samples.chunks(block).zip(one.valid.chunks(block)) {
        detector.run(strain, valid, &mut count).expect("run");
    }
    detector.settle().expect("settled");
    let early = detector.triggers().len();
    detector.flush(&mut count).expect("flushed");
    assert!(early <= detector.triggers().len());
    assert_eq!(ratios, if backend.is_gpu() { 0 } else { one.samples.len() });
    (detector.triggers().to_vec(), whitened)
}

#[test]
fn a_chain_gives_the_same_triggers_for_any_split() {
    let Some(gpu) = cuda::backend(2) else { return };
    let expected = run(&Backend::best(2), 5000);
    let whole = run(&gpu, 16_384);
    assert_same(&whole.0, &expected.0, "chain");
    assert_eq!(whole.1, expected.1);
    assert_eq!(run(&gpu, 777), whole, "blocks of 777");
}

#[test]
fn a_chain_restarts_in_a_long_gap_as_on_the_processor() {
    let Some(gpu) = cuda::backend(2) else { return };
    let start = Gps::from_s(1e9);
    let begun = |backend: &Backend| {
        ChirpDetector::of_triggers(start, &chirp_bank(), &chain(), backend).expect("a chain")
    };
    let (expected, restarts) = around_a_gap(begun(&Backend::best(2)), 5000, true);
    assert_eq!(restarts, 1);
    let found = around_a_gap(begun(&gpu), 5000, true);
    assert_same(&found.0, &expected, "gap");
    assert_eq!(found, around_a_gap(begun(&gpu), 777, false), "as invalid samples");
}

#[test]
fn fixed_subset_a_chain_that_was_saved_goes_on_with_the_same_triggers() {
    let Some(gpu) = cuda::backend(2) else { return };
    let one = spoilt().swap_remove(0);
    let begun = || {
        let asked = DetectorOptions { threshold: 3.5, ..chain() };
        ChirpDetector::of_triggers(one.start, &chirp_bank(), &asked, &gpu).expect("a chain")
    };
    let run = |chain: &mut ChirpDetector, range: std::ops::Range<usize>| {
        let blocks = one.samples[range.clone()].chunks(777).zip(one.valid[range].chunks(777));
        for (strain, valid) in blocks {
            chain.run(strain, valid, &mut |_| {}).expect("run");
        }
    };
    let times = one.samples.len();
    let mut whole = begun();
    run(&mut whole, 0..times);
    whole.flush(&mut |_| {}).expect("flushed");
    assert!(whole.triggers().len() > 10);
    for at in [0, 100, 4000, 12_050] {
        let mut before = begun();
        run(&mut before, 0..at);
        before.settle().expect("settled");
        let mut saving = Saving::default();
        assert!(before.save(&mut saving).expect("saved"));
        let bytes = saving.finish();
        let mut saved = Saved::new("state".as_ref(), 0, &bytes).expect("whole");
        let mut after = begun();
        after.load(&mut saved, before.triggers().to_vec()).expect("loaded");
        saved.end().expect("all of it");
        run(&mut after, at..times);
        after.flush(&mut |_| {}).expect("flushed");
        assert_eq!(after.triggers(), whole.triggers(), "saved behind {at} samples");
    }
}

/// Returns a bank that two GPUs divide: 1100 templates with some filters of the chirps' templates and different weights.
fn large_bank() -> Bank {
    let bank = chirp_bank();
    let template = |at: usize| {
        let mut one = bank.templates[at % bank.templates.len()].clone();
        one.name = format!("{} {at}", one.name);
        for branch in &mut one.filters.branches {
            branch.filters.truncate(2 + at % 3);
            branch.filters.iter_mut().for_each(|filter| filter.b *= 8.0 + at as f32 / 512.0);
        }
        one
    };
    Bank { templates: (0..1100).map(template).collect(), ..bank }
}

/// Several GPUs have a share of the templates each, and find the triggers of one, also after a saved state.
#[test]
fn several_gpus_find_the_triggers_of_one() {
    let Some((one, all)) = cuda::several(2) else { return };
    let bank = large_bank();
    let mut strain = recording("H1", 7, 9000);
    strain.samples.truncate(5000);
    strain.valid.truncate(5000);
    strain.valid[3000..3010].fill(false);
    let begun = |backend: &Backend| {
        let asked = DetectorOptions { threshold: 3.0, ..chain() };
        ChirpDetector::of_triggers(strain.start, &bank, &asked, backend).expect("a chain")
    };
    let run = |chain: &mut ChirpDetector, range: std::ops::Range<usize>| {
        let blocks = strain.samples[range.clone()].chunks(999).zip(strain.valid[range].chunks(999));
        for (strain, valid) in blocks {
            chain.run(strain, valid, &mut |_| {}).expect("run");
            let places: Vec<_> = chain.triggers().iter().map(|t| (t.sample, t.template)).collect();
            assert!(places.is_sorted());
        }
    };
    let found = |backend: &Backend| {
        let mut chain = begun(backend);
        run(&mut chain, 0..5000);
        chain.flush(&mut |_| {}).expect("flushed");
        chain.triggers().to_vec()
    };
    let expected = found(&one);
    assert!(expected.iter().any(|trigger| trigger.template < 500));
    assert!(expected.iter().any(|trigger| trigger.template > 600));
    assert!(found(&all) == expected);

    let mut before = begun(&all);
    run(&mut before, 0..3100);
    before.settle().expect("settled");
    let mut saving = Saving::default();
    assert!(before.save(&mut saving).expect("saved"));
    let bytes = saving.finish();
    let saved = || Saved::new("state".as_ref(), 0, &bytes).expect("whole");
    let mut after = begun(&all);
    after.load(&mut saved(), before.triggers().to_vec()).expect("loaded");
    run(&mut after, 2100..5000);
    after.flush(&mut |_| {}).expect("flushed");
    assert!(after.triggers() == expected);
    let error = begun(&one).load(&mut saved(), Vec::new()).expect_err("other devices");
    assert!(error.to_string().contains("devices"), "{error}");
}

/// The loudest event of both, the number of all, and their rates.
fn assert_same_events(found: &Report, expected: &Report) {
    let (found, expected) = (&found.found, &expected.found);
    assert_eq!(found.events.len(), expected.events.len());
    assert_eq!(found.livetime_s, expected.livetime_s);
    assert_eq!(found.background.rankings.len(), expected.background.rankings.len());
    for (found, expected) in found.events.iter().zip(&expected.events).take(3) {
        let ratio = found.network_snr / expected.network_snr;
        assert!((ratio - 1.0).abs() < 1e-4, "{found:?} {expected:?}");
        assert_eq!((found.template, found.louder), (expected.template, expected.louder));
        for (a, b) in found.detectors.iter().zip(&expected.detectors) {
            let (Some(a), Some(b)) = (a, b) else {
                assert_eq!(a, b);
                continue;
            };
            assert!((a.snr / b.snr - 1.0).abs() < 1e-4, "{a:?} {b:?}");
            assert!(a.gps.seconds_since(b.gps).abs() < 1e-6, "{a:?} {b:?}");
            assert!((a.xi2 - b.xi2).abs() < 1e-2 && (a.phase - b.phase).abs() < 1e-3);
        }
    }
}

#[test]
fn a_simulated_chirp_is_found_as_on_the_processor() {
    let Some(gpu) = cuda::backend(2) else { return };
    let expected = search(pair(), &Backend::best(2));
    let found = search(pair(), &gpu);
    assert!((25.0..31.0).contains(&found.found.events[0].network_snr));
    assert_same_events(&found, &expected);
    for (a, b) in found.detectors.iter().zip(&expected.detectors) {
        let whitened = |one: &DetectorReport| one.whitened.read(0..u64::MAX).expect("samples");
        assert_eq!((&a.name, a.latency, whitened(a)), (&b.name, b.latency, whitened(b)));
        let times = a.triggers.iter().zip(&b.triggers);
        assert!(times.into_iter().all(|(a, b)| a.gps.seconds_since(b.gps).abs() < 1e-5));
    }
}

#[test]
fn a_search_that_goes_on_gives_the_bits_of_one_that_was_not_stopped() {
    let Some(gpu) = cuda::backend(2) else { return };
    let begun = |block: usize| {
        let bank = || Input::Bank(Arc::new(chirp_bank()));
        let inputs = spoilt().into_iter().map(|one| (one, bank())).collect();
        let asked = SearchOptions { threshold: 3.5, block, ..search_options() };
        ChirpSearch::new(inputs, &asked, &gpu).expect("a search")
    };
    let whole = begun(0).run(&mut |_| true).expect("searched");
    assert!(whole.ending.is_complete() && whole.detectors[0].triggers.len() > 10);
    let expected = bits(&whole);
    // The blocks of a round count against the time of both detectors; some triggers are always in flight.
    for (stop_at, block, is_killed) in
        [(1, 100, false), (9000, 777, false), (20_000, 31, true), (30_000, 333, true)]
    {
        let report = interrupted(begun(block), stop_at, is_killed, begun(1000));
        assert!(bits(&report) == expected, "stop at {stop_at}, killed {is_killed}");
    }
}

#[test]
fn gw150914_is_found_as_on_the_processor() {
    let Some(gpu) = cuda::backend(2) else { return };
    let Some(folder) = common::data_dir() else { return };
    if cuda::is_emulated(&gpu) {
        eprintln!("skipped: GW150914 takes too long on an emulated device");
        return;
    }
    let expected = gw150914(&folder, &Backend::best(2));
    let found = gw150914(&folder, &gpu);
    let event = &found.found.events[0];
    let snr = |detector: usize| event.detectors[detector].expect("both see it").snr;
    eprintln!("GW150914 on {}: H1 {:.4}, L1 {:.4}", gpu.name(), snr(0), snr(1));
    assert!((18.0..19.6).contains(&snr(0)) && (12.6..13.9).contains(&snr(1)));
    assert_same_events(&found, &expected);
}
