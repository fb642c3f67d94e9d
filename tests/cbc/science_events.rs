//! Binaries in simulated strain of two detectors, from strain to events: SNRs, times and phases for every whitener
//! and resampler, any start of the recordings, and faults elsewhere in them.

use crate::binaries::{Scene, bank_options, errors, record, search, search_options, truth};
use sidereal::pipeline::cbc::{Recording, Report};
use sidereal::simulate::strain::{DetectorTruth, Flagged, Glitch, Quality, StrainOptions};
use sidereal::spiir::Resampler;
use sidereal::spiir::bank::{Options, Rates};
use sidereal::spiir::whiten::Method;

const RATE_HZ: u32 = 2048;
const OVERLAP: Method = Method::Overlap { fft_s: 4.0 };
const MINIMUM_PHASE: Method = Method::MinimumPhase { taps_s: 4.0 };

/// The loudest event is the injection in both detectors, with SNR, time and phase within 4.5 sigma; no other is loud.
fn check(name: &str, report: &Report, truths: &[DetectorTruth]) {
    let event = report.found.events.first().unwrap_or_else(|| panic!("{name}: no event"));
    for ((detector, found), truth) in report.detectors.iter().zip(&event.detectors).zip(truths) {
        let found = found.unwrap_or_else(|| panic!("{name}: {} saw nothing", detector.name));
        let kept = detector.bank.templates[0].fit;
        let errors = errors(detector, &found, truth, kept);
        eprintln!(
            "{name}: {} {:.2} of {:.2}, errors in sigma: {:+.1} time {:+.1} ({:+.3} ms) phase {:+.1}, xi-squared {:.2}",
            detector.name,
            found.snr,
            truth.snr,
            errors[0],
            errors[1],
            errors[3] * 1e3,
            errors[2],
            found.xi2
        );
        for error in &errors[..3] {
            assert!(error.abs() < 4.5, "{name}: {} {errors:?}", detector.name);
        }
        assert!((0.3..1.9).contains(&found.xi2), "{name}: xi-squared {}", found.xi2);
    }
    let others = report.found.events[1..].iter().map(|event| event.network_snr);
    let loudest = others.fold(0.0, f64::max);
    assert!(loudest < 9.0, "{name}: another event of {loudest}");
}

fn both(scene: &Scene) -> (Vec<StrainOptions>, Vec<DetectorTruth>) {
    let options = scene.simulations();
    let truths = options.iter().map(truth).collect();
    (options, truths)
}

fn records(options: &[StrainOptions]) -> Vec<Recording> {
    options.iter().map(record).collect()
}

fn run(name: &str, scene: &Scene, design: Options, method: Method) -> Report {
    let (options, truths) = both(scene);
    let asked = search_options(scene.rate_hz, method);
    let report = search(records(&options), &scene.source(design), &asked);
    check(name, &report, &truths);
    report
}

#[test]
fn an_event_is_what_was_injected_however_it_is_whitened_and_filtered() {
    let scene = Scene::new(RATE_HZ, (12.0, 9.0));
    let low = Options { resampler: Resampler::low_latency(), ..bank_options() };
    let single = Options { rates: Rates::Single, ..bank_options() };
    for (name, method) in [("zero phase", OVERLAP), ("minimum phase", MINIMUM_PHASE)] {
        run(&format!("{name}, many rates"), &scene, bank_options(), method);
        run(&format!("{name}, low latency"), &scene, low.clone(), method);
        run(&format!("{name}, one rate"), &scene, single.clone(), method);
    }
}

#[test]
fn recordings_may_begin_at_any_time_and_overlap_in_part() {
    let sample_s = 1.0 / f64::from(RATE_HZ);
    let spans = [
        ("whole seconds apart", [(0.0, 28.0), (3.0, 25.0)]),
        ("samples apart", [(0.0, 28.0), (2.0 + 37.0 * sample_s, 25.0)]),
        ("parts of a sample apart", [(0.25 * sample_s, 28.0), (1.0 + 11.618 * sample_s, 25.0)]),
        ("partly common", [(0.0, 24.0), (9.0, 28.0)]),
    ];
    for (name, spans_s) in spans {
        let scene = Scene { spans_s, seed: 9, ..Scene::new(RATE_HZ, (12.0, 9.0)) };
        let report = run(name, &scene, bank_options(), OVERLAP);
        let common = report.found.livetime_s;
        assert!((10.0..27.0).contains(&common), "{name}: {common} s");
    }
}

#[test]
fn sixteen_kilohertz_are_filtered_as_well() {
    // 100 ms of the autocorrelation, as at 2048 Hz: the fewer there are, the wider xi-squared scatters.
    let design = Options { autocorrelation_length: 1601, ..bank_options() };
    let scene = Scene { spans_s: [(0.0, 22.0); 2], ..Scene::new(16_384, (12.0, 9.0)) };
    run("16384 Hz", &scene, design, OVERLAP);
}

#[test]
fn an_early_warning_gives_the_time_of_the_merger() {
    let scene = Scene { network_snr: 40.0, ..Scene::new(RATE_HZ, (4.0, 3.0)) };
    let (options, truths) = both(&scene);
    let design = Options { before_s: 0.3, ..bank_options() };
    let report =
        search(records(&options), &scene.source(design), &search_options(RATE_HZ, OVERLAP));
    let event = &report.found.events[0];
    for ((detector, found), truth) in report.detectors.iter().zip(&event.detectors).zip(&truths) {
        let found = found.expect("both see it");
        let template = &detector.bank.templates[0];
        assert!((template.peak_offset_s - 0.3).abs() < 0.01, "{}", template.peak_offset_s);
        let kept = f64::from(found.snr) / truth.snr;
        let errors = errors(detector, &found, truth, kept);
        eprintln!(
            "{}: {kept:.3} of the ratio, {:+.3} ms, {:+.1} sigma",
            detector.name,
            errors[3] * 1e3,
            errors[1]
        );
        assert!((0.6..1.0).contains(&kept), "{kept}");
        assert!(errors[1].abs() < 4.5, "{errors:?}");
    }
}

#[test]
fn holes_bad_seconds_and_glitches_stay_where_they_are() {
    for (name, method) in [("zero phase", OVERLAP), ("minimum phase", MINIMUM_PHASE)] {
        let scene =
            Scene { spans_s: [(0.0, 36.0); 2], after_s: 25.6, ..Scene::new(RATE_HZ, (12.0, 9.0)) };
        let (mut options, truths) = both(&scene);
        let start = options[0].start;
        let glitch = |after_s: f64, snr: f64| Glitch {
            gps: start.plus_s(after_s),
            snr,
            frequency_hz: 120.0,
            q: 6.0,
        };
        options[0].detectors[0].glitches = vec![glitch(20.3, 40.0), glitch(30.2, 3000.0)];
        options[1].detectors[0].flagged = vec![
            Flagged { first_s: 5, end_s: 7, quality: Quality::Missing },
            Flagged { first_s: 32, end_s: 33, quality: Quality::Bad },
        ];
        let mut recordings = records(&options);
        let rate = RATE_HZ as usize;
        recordings[0].samples[10 * rate + 5] = f64::NAN;
        recordings[0].samples[12 * rate + 5] = f64::INFINITY;
        recordings[1].samples[14 * rate..14 * rate + 100].fill(f64::NAN);
        let asked = search_options(RATE_HZ, method);
        let report = search(recordings, &scene.source(bank_options()), &asked);
        check(name, &report, &truths);
        for detector in &report.detectors {
            let whitened = detector.whitened.samples(0..u64::MAX).expect("whitened strain");
            assert!(whitened.iter().all(|x| x.is_finite()), "{name}");
            let loudest = whitened.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            eprintln!("{name}: {} whitened up to {loudest:.1}", detector.name);
        }
        // The loud glitch is gated; the quiet one makes triggers that xi-squared rejects.
        let seconds =
            |one: &sidereal::spiir::coincidence::TimedTrigger| one.gps.seconds_since(start);
        for one in &report.detectors[0].triggers {
            let at = seconds(one);
            eprintln!("{name}: H1 {:.2} at {at:.3}, xi-squared {:.2}", one.snr, one.xi2);
            assert!(!(30.0..30.4).contains(&at), "{name}: a trigger in the gate, {at}");
            assert!(
                one.snr < 7.0 || one.xi2 > 3.0 || (at - 25.6).abs() < 0.3,
                "{name}: {at} {}",
                one.snr
            );
        }
        let bad =
            [(0, 10.0, 10.01), (0, 12.0, 12.01), (1, 5.0, 7.0), (1, 14.0, 14.05), (1, 32.0, 33.0)];
        for (detector, from, until) in bad {
            let inside = |at: f64| (from..until).contains(&at);
            let own = &report.detectors[detector].triggers;
            assert!(
                own.iter().all(|one| !inside(seconds(one))),
                "{name}: a trigger in {from} to {until}"
            );
        }
        for one in &report.detectors[1].triggers {
            let at = seconds(one);
            assert!(one.snr < 6.5 || (at - 25.6).abs() < 0.3, "{name}: L1 {} at {at}", one.snr);
        }
    }
}
