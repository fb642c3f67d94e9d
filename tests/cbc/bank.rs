//! Filter banks from waveforms: number of filters, match, and properties of the filters.

use num_complex::{Complex, Complex64};
use sidereal::Error;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::io::templates::Templates;
use sidereal::math::{PowerSpectrum, advanced_ligo};
use sidereal::pipeline::cbc::{self, Source, waveforms};
use sidereal::spiir::bank::{Bank, BankTemplate, Options, Rates, design};
use sidereal::spiir::{Plan, Resampler, Spiir};
use sidereal::strain::{Binary, Waveform};
use sidereal::waveform::{InspiralOptions, inspiral};

const RATE_HZ: u32 = 2048;

fn spectrum() -> PowerSpectrum {
    advanced_ligo(0.125, 8193).expect("a spectrum")
}

/// Like the above with far more noise below 80 Hz and a line, as estimated from a short recording: the mean of few
/// segments.
fn rough(segments: usize) -> PowerSpectrum {
    let mut state = 1_u64;
    let mut uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    };
    let smooth = advanced_ligo(0.25, 4097).expect("a spectrum");
    let mut densities = smooth.densities().to_vec();
    for (density, bin) in densities.iter_mut().zip(0..) {
        let sum: f64 = (0..segments).map(|_| -uniform().ln()).sum();
        let frequency_hz = (0.25 * f64::from(bin)).max(1.0);
        *density *= sum / segments as f64 * (1.0 + (80.0 / frequency_hz).powi(8));
    }
    densities[240..243].iter_mut().for_each(|density| *density *= 1e4);
    PowerSpectrum::new(0.25, densities).expect("a spectrum")
}

fn wave(mass1: f64, mass2: f64, f_low_hz: f64) -> Waveform {
    let options = InspiralOptions { f_low_hz, rate_hz: RATE_HZ, ..InspiralOptions::default() };
    inspiral(&Binary::of_masses(mass1, mass2), &options).expect("an inspiral")
}

fn options(f_low_hz: f64) -> Options {
    Options { f_low_hz, ..Options::default() }
}

fn bank(waveform: &Waveform, options: &Options) -> Bank {
    Bank::design(std::slice::from_ref(waveform), &spectrum(), options).expect("a bank")
}

/// All ratios of a stream.
fn filtered(plan: &Plan, input: &[f32]) -> Vec<Complex64> {
    let mut spiir = Spiir::new(plan.clone(), &Backend::best(1)).expect("bound");
    let mut row = vec![Complex::<f32>::default(); input.len()];
    let mut output = Vec::new();
    let mut keep = |row: &[Complex<f32>]| {
        output.extend(row.iter().map(|z| Complex64::new(f64::from(z.re), f64::from(z.im))));
    };
    let stride = row.len();
    let produced = spiir.run(input, &mut row, stride).expect("run").produced;
    keep(&row[..produced]);
    loop {
        let produced = spiir.flush(&mut row, stride).expect("flush");
        if produced == 0 {
            return output;
        }
        keep(&row[..produced]);
    }
}

#[test]
fn filters_are_as_many_and_as_good_as_published_placements() {
    // Masses, lowest frequency; filters and match of the placement alone, at tolerances of 0.05, 0.02 and 0.005 cycles.
    let cases = [
        (1.4, 1.4, 30.0, [(246.0, 0.987), (386.0, 0.992), (770.0, 0.996)]),
        (1.4, 5.0, 30.0, [(146.0, 0.984), (231.0, 0.992), (451.0, 0.995)]),
        (10.0, 10.0, 20.0, [(65.0, 0.985), (102.0, 0.991), (194.0, 0.993)]),
        (30.0, 30.0, 20.0, [(29.0, 0.973), (42.0, 0.984), (79.0, 0.990)]),
    ];
    for (mass1, mass2, f_low_hz, published) in cases {
        let waveform = wave(mass1, mass2, f_low_hz);
        for (epsilon, (filters, fit)) in [0.05, 0.02, 0.005].into_iter().zip(published) {
            let made = bank(&waveform, &Options { epsilon, ..options(f_low_hz) });
            let template = &made.templates[0];
            let found = template.filters.filters() as f64;
            let what = format!(
                "{mass1} + {mass2} at {epsilon}: {found} filters, {:.4}, before the refit {:.4}",
                template.fit, template.placement_fit
            );
            eprintln!("{what}");
            // An inspiral ends without the merger, whose fast filters the finest tolerance would count.
            let most = if mass1 == 30.0 && epsilon == 0.005 { 0.25 } else { 0.2 };
            assert!((found / filters - 1.0).abs() < most, "{what}");
            assert!((template.placement_fit - fit).abs() < 0.01, "{what}");
            assert!(template.fit > 0.97 && template.fit > template.placement_fit, "{what}");
            assert!(template.filters.effective_filters() < 0.25 * found, "{what}");
            assert!(made.plan().is_ok());
        }
    }
}

#[test]
fn low_frequencies_keep_their_filters() {
    // Placements that skip intervals of nearly linear phase lose all filters of the beginning of a long template.
    let template = &bank(&wave(10.0, 10.0, 15.0), &options(15.0)).templates[0];
    let deepest = template.filters.branches.last().expect("a branch");
    assert!(deepest.halvings >= 5 && deepest.filters.len() > 20, "{:?}", template.filters);
    assert!(template.fit > 0.98, "{}", template.fit);
}

/// Response to the whitened template that ends at `shift` samples more than its length, and the sample of its end.
fn answer(template: &BankTemplate, plan: &Plan, shift: usize) -> (Vec<Complex64>, usize) {
    let end = shift + template.whitened.len() - 1;
    let series = |part: fn(&Complex<f32>) -> f32| {
        let mut series = vec![0.0; shift];
        series.extend(template.whitened.iter().map(part));
        series.resize(end + 2000, 0.0);
        filtered(plan, &series)
    };
    let (re, im) = (series(|h| h.re), series(|h| h.im));
    let both = |(re, im): (&Complex64, &Complex64)| re + Complex64::i() * im;
    (re.iter().zip(&im).map(both).collect(), end)
}

#[test]
fn the_engine_reaches_the_stated_match_at_all_phases_of_its_rates() {
    let waveform = wave(30.0, 30.0, 20.0);
    for resampler in [Resampler::default(), Resampler::low_latency()] {
        let made = bank(&waveform, &Options { resampler, ..options(20.0) });
        let (template, plan) = (&made.templates[0], made.plan().expect("a plan"));
        assert_eq!(plan.levels(), 6);
        for shift in [512, 513, 519, 530, 543] {
            let (z, end) = answer(template, &plan, shift);
            // Both norms are 2: a whole match is 2, at phase 0.
            let (found, phase) = (z[end].norm() / 2.0, z[end].arg());
            // The match is the mean over phases: aliasing rises and falls with the phase.
            assert!((found - template.fit).abs() < 5e-3, "{found} against {}", template.fit);
            assert!(phase.abs() < 5e-3, "{phase}");
            let half = template.autocorrelation.len() / 2;
            for (a, m) in template.autocorrelation.iter().zip(0..) {
                let a = Complex64::new(f64::from(a.re), f64::from(a.im));
                let near = z[end + m - half] / z[end];
                assert!((near - a).norm() < 0.02, "{m}: {near} against {a}");
            }
        }
    }
}

#[test]
fn inspirals_that_end_abruptly_in_band_reach_the_match_with_few_filters() {
    let options = options(20.0);
    let binaries = [(41.7, 29.2), (54.0, 38.0), (31.0, 22.0), (50.0, 23.0)];
    let waveforms = binaries.map(|(mass1, mass2)| wave(mass1, mass2, 20.0));
    for segments in [13, 60] {
        let made = Bank::design(&waveforms, &rough(segments), &options).expect("a bank");
        assert!(made.left_out.is_empty(), "{:?}", made.left_out);
        for template in &made.templates {
            let filters = template.filters.filters();
            assert!(template.fit >= 0.97, "{}: {}", template.name, template.fit);
            assert!(filters <= 40, "{}: {filters} filters", template.name);
        }
        // The engine reaches it as well, with the filters that track no phase.
        let alone = Bank { templates: made.templates[..1].to_vec(), ..made };
        let (template, plan) = (&alone.templates[0], alone.plan().expect("a plan"));
        for shift in [512, 515, 526, 543] {
            let (z, end) = answer(template, &plan, shift);
            let found = z[end].norm() / 2.0;
            assert!((found - template.fit).abs() < 0.01, "{found} against {}", template.fit);
        }
    }
}

#[test]
fn each_quadrature_of_noise_has_unit_variance() {
    let made = bank(&wave(30.0, 30.0, 20.0), &options(20.0));
    let plan = made.plan().expect("a plan");
    let deepest = 1 << (plan.levels() - 1);
    // The mean over phases of an impulse's energy is the variance of z in white noise.
    let energy = |phase: usize| -> f64 {
        let mut input = vec![0.0; 16_384];
        input[8192 + phase] = 1.0;
        filtered(&plan, &input).iter().map(Complex64::norm_sqr).sum()
    };
    let mean = (0..deepest).map(energy).sum::<f64>() / deepest as f64;
    assert!((mean / 2.0 - 1.0).abs() < 0.01, "{mean}");
}

#[test]
fn one_rate_needs_no_resampler() {
    let waveform = wave(10.0, 10.0, 20.0);
    let made = bank(&waveform, &Options { rates: Rates::Single, ..options(20.0) });
    let template = &made.templates[0];
    assert_eq!((template.filters.branches.len(), template.filters.halvings()), (1, 0));
    assert_eq!(made.plan().expect("a plan").latency(), 0);
    let (z, end) = answer(template, &made.plan().expect("a plan"), 0);
    assert!((z[end].norm() / 2.0 - template.fit).abs() < 1e-3, "{}", z[end]);
    // The time of the peak is that of the wave's last sample.
    assert!(template.peak_offset_s.abs() < 0.003, "{}", template.peak_offset_s);
    assert!((template.duration_s - waveform.duration_s()).abs() < 0.6, "{}", template.duration_s);
    let power: f32 = template.whitened.iter().map(Complex::norm_sqr).sum();
    assert!((power - 2.0).abs() < 1e-5);
    // A 10 + 10 binary's horizon in Advanced LIGO at design, to its last stable orbit.
    assert!((1800.0..2200.0).contains(&template.horizon_mpc), "{}", template.horizon_mpc);
    assert_eq!(template.autocorrelation.len(), 201);
    assert!((template.autocorrelation[100] - 1.0).norm() < 1e-6);
    assert!(template.autocorrelation_norm > 100.0);
}

#[test]
fn an_early_warning_ends_before_the_peak() {
    let waveform = wave(10.0, 10.0, 20.0);
    let whole = &bank(&waveform, &options(20.0)).templates[0];
    let early = &bank(&waveform, &Options { before_s: 0.5, ..options(20.0) }).templates[0];
    assert!((early.peak_offset_s - 0.5).abs() < 1e-3, "{}", early.peak_offset_s);
    assert!(early.fit > 0.97 && early.sigma_1mpc < 0.9 * whole.sigma_1mpc);
    // Half a second before its end, a wave of this chirp mass has 50 Hz.
    assert!((40.0..60.0).contains(&early.f_final_hz), "{}", early.f_final_hz);
    assert!((150.0..260.0).contains(&whole.f_final_hz), "{}", whole.f_final_hz);
    // The same template by its last frequency, and by the earlier of the two.
    let f_stop_hz = Some(early.f_final_hz);
    let stopped = &bank(&waveform, &Options { f_stop_hz, ..options(20.0) }).templates[0];
    assert!((stopped.peak_offset_s - 0.5).abs() < 0.03, "{}", stopped.peak_offset_s);
    assert!((stopped.sigma_1mpc / early.sigma_1mpc - 1.0).abs() < 0.02);
    let both = Options { f_stop_hz, before_s: 1.0, ..options(20.0) };
    let earlier = &bank(&waveform, &both).templates[0];
    assert!((earlier.peak_offset_s - 1.0).abs() < 1e-3, "{}", earlier.peak_offset_s);
    // Beyond its merger it is whole.
    let beyond = Options { f_stop_hz: Some(1000.0), ..options(20.0) };
    assert_eq!(bank(&waveform, &beyond).templates[0].whitened, whole.whitened);
}

#[test]
fn a_finer_tolerance_is_taken_where_the_match_asks_for_it() {
    let waveform = wave(30.0, 30.0, 20.0);
    let coarse = Options { epsilon: 0.2, minimum_match: 0.0, ..options(20.0) };
    let coarse = &bank(&waveform, &coarse).templates[0];
    assert!(coarse.fit < 0.97 && coarse.epsilon == 0.2, "{}", coarse.fit);
    let fine = &bank(&waveform, &Options { epsilon: 0.2, ..options(20.0) }).templates[0];
    assert!(fine.fit >= 0.97, "{} at {}", fine.fit, fine.epsilon);
    // Added filters alone do not reach the match.
    let finer = Options { epsilon: 0.2, minimum_match: 0.996, ..options(20.0) };
    let finer = &bank(&waveform, &finer).templates[0];
    assert!(finer.fit >= 0.996 && finer.epsilon < 0.2, "{} at {}", finer.fit, finer.epsilon);
    assert!(fine.filters.filters() > coarse.filters.filters());
}

#[test]
fn waveforms_and_banks_do_not_depend_on_threads() {
    let masses = [(1.4, 1.4), (2.0, 1.5), (10.0, 9.0), (12.0, 3.0), (30.0, 29.0), (50.0, 20.0)];
    let binaries: Vec<(String, Binary)> =
        masses.iter().map(|(a, b)| (String::new(), Binary::of_masses(*a, *b))).collect();
    let inspirals =
        InspiralOptions { f_low_hz: 50.0, rate_hz: RATE_HZ, ..InspiralOptions::default() };
    let (psd, options) = (rough(8), options(50.0));
    let made = |count: usize, binaries: &[(String, Binary)]| {
        let templates = Templates::Binaries(binaries.to_vec());
        waveforms(templates, &inspirals, None, &Threads::new(count))
    };
    let alone: Vec<Waveform> = binaries
        .iter()
        .map(|one| made(1, std::slice::from_ref(one)).expect("a wave").swap_remove(0))
        .collect();
    let serial = Bank::design(&alone, &psd, &options).expect("a bank");
    assert!(serial.templates.len() >= 5, "{:?}", serial.left_out);
    for count in [1, 2, 5] {
        let source =
            Source { waveforms: made(count, &binaries).expect("waves"), options: options.clone() };
        assert_eq!(source.waveforms, alone);
        let bank = cbc::design(&source, &psd, &Threads::new(count)).expect("a bank");
        assert_eq!(bank, serial, "{count} threads");
    }
    // The error is that of the first binary without a wave.
    let mut bad = binaries;
    bad[1].1.mass1_msun = -3.0;
    bad[3].1.mass1_msun = f64::NAN;
    let error = made(3, &bad).expect_err("no wave").to_string();
    assert!(error.contains("-3"), "{error}");
}

fn fault(waveform: &Waveform, psd: &PowerSpectrum, options: &Options) -> String {
    design(waveform, psd, options).expect_err("must be refused").to_string()
}

#[test]
fn what_can_not_be_made_is_refused_with_its_reason() {
    let waveform = wave(30.0, 30.0, 20.0);
    let psd = spectrum();
    let good = options(20.0);
    let nearly_whole = Options { minimum_match: 0.99999, match_floor: 0.99999, ..good.clone() };
    let error = design(&waveform, &psd, &nearly_whole).expect_err("out of reach");
    assert!(
        matches!(error, Error::Unavailable { .. })
            && error.to_string().contains("the best match is 0.99")
    );
    // A template above the floor is used.
    let kept = Options { match_floor: 0.9, ..nearly_whole };
    let fit = bank(&waveform, &kept).templates[0].fit;
    assert!((0.99..0.99999).contains(&fit), "{fit}");
    let above_nyquist = Options { f_low_hz: 1100.0, ..good.clone() };
    assert!(fault(&waveform, &psd, &above_nyquist).contains("lowest frequency"));
    let short = advanced_ligo(0.125, 4000).expect("a spectrum");
    assert!(fault(&waveform, &short, &good).contains("power spectrum"));
    let closed = PowerSpectrum::new(1.0, vec![f64::INFINITY; 2000]).expect("a spectrum");
    assert!(fault(&waveform, &closed, &good).contains("nowhere finite"));
    let out_of_band = Options { f_low_hz: 900.0, ..good.clone() };
    let long_before = Options { before_s: 100.0, ..good.clone() };
    for options in [out_of_band, long_before] {
        let text = fault(&waveform, &psd, &options);
        assert!(text.contains("left") || text.contains("match"), "{text}");
    }
    let bad = [
        Options { epsilon: 0.0, ..good.clone() },
        Options { epsilon: f64::NAN, ..good.clone() },
        Options { alpha: -1.0, ..good.clone() },
        Options { beta: 0.0, ..good.clone() },
        Options { padding: 0.5, ..good.clone() },
        Options { minimum_match: 1.0, ..good.clone() },
        Options { rates: Rates::Multi { lowest_hz: 0.0 }, ..good.clone() },
        Options { before_s: -1.0, ..good.clone() },
        Options { f_stop_hz: Some(good.f_low_hz), ..good.clone() },
        Options { autocorrelation_length: 200, ..good.clone() },
        Options { autocorrelation_length: 1, ..good.clone() },
        Options { autocorrelation_length: 65_537, ..good.clone() },
        Options { smoothing_hz: -4.0, ..good.clone() },
        Options { smoothing_hz: 1e-9, ..good.clone() },
        Options { power: 0.0, ..good.clone() },
    ];
    for options in bad {
        let error = design(&waveform, &psd, &options).expect_err("must be refused");
        assert!(matches!(error, Error::Parameter { .. }), "{error}");
    }
    assert!(Bank::design(&[], &psd, &good).is_err());
}
