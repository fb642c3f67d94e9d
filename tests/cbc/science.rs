//! Gravitational waves: the recording of GW150914, searched from strain to events.
//!
//! Verification method: times and signal-to-noise ratios are those of the event's published tutorial for this template,
//! the times moved to where the template's amplitude is greatest.

use crate::common;
use std::path::Path;
use std::sync::Arc;

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::io::strain::{OpenOptions, open};
use sidereal::io::templates::{self, Templates};
use sidereal::pipeline::cbc::{
    ChirpSearch, DetectorReport, Input, Recording, Report, SearchOptions, Source, Spectrum,
    Whitening, series, waveforms,
};
use sidereal::spiir::Resampler;
use sidereal::spiir::bank::{self, Rates};
use sidereal::spiir::coincidence::{Ranking, Sample};
use sidereal::spiir::matched_whitened;
use sidereal::spiir::whiten::{Average, GateOptions, Method, WelchOptions};
use sidereal::strain::Binary;
use sidereal::waveform::InspiralOptions;

const RATE_HZ: u32 = 4096;

fn recordings(folder: &Path) -> Vec<Recording> {
    let names = ["H-H1_LOSC_4_V2-1126259446-32.hdf5", "L-L1_LOSC_4_V2-1126259446-32.hdf5"];
    let read = |name: &&str| {
        let path = folder.join("gw").join(name);
        let mut source = open(&path, &OpenOptions::default()).expect("opened");
        Recording::read(source.as_mut()).expect("read")
    };
    names.iter().map(read).collect()
}

fn source(folder: &Path, options: bank::Options) -> Source {
    let file = templates::open(&folder.join("gw/GW150914_4_template.hdf5")).expect("templates");
    let inspirals = InspiralOptions { rate_hz: RATE_HZ, ..InspiralOptions::default() };
    Source {
        waveforms: waveforms(file, &inspirals, None, &Threads::new(2)).expect("waveforms"),
        options,
    }
}

fn options(method: Method) -> SearchOptions {
    SearchOptions {
        whitening: Whitening {
            spectrum: Spectrum::Welch(WelchOptions {
                average: Average::Mean,
                ..WelchOptions::default()
            }),
            method,
            gate: Some(GateOptions::default()),
        },
        threshold: 4.0,
        window_s: 0.1,
        gate_pad_s: 0.25,
        window_pad_s: 0.002,
        slides: 100,
        slide_interval_s: 0.1,
        cluster_s: 0.5,
        background: Sample::Inclusive,
        ranking: Ranking::default(),
        block: 0,
        memory: None,
    }
}

fn design(rates: Rates, resampler: Resampler) -> bank::Options {
    bank::Options { f_low_hz: 20.0, rates, resampler, ..bank::Options::default() }
}

fn search(folder: &Path, design: bank::Options, asked: &SearchOptions) -> Report {
    search_for(folder, &source(folder, design), asked)
}

fn search_for(folder: &Path, source: &Source, asked: &SearchOptions) -> Report {
    let inputs = recordings(folder).into_iter();
    let source = Arc::new(source.clone());
    let with = |recording| (recording, Input::Templates(Arc::clone(&source)));
    let inputs = inputs.map(with).collect();
    let search = ChirpSearch::new(inputs, asked, &Backend::best(2)).expect("a search");
    search.run(&mut |_| true).expect("searched")
}

fn check(report: &Report, name: &str) {
    let [h1, l1] = [0, 1].map(|detector| {
        let event = &report.found.events[0];
        event.detectors[detector].expect("both see it")
    });
    let seconds = |gps: sidereal::units::Gps| gps.s() - 1_126_259_462.0;
    eprintln!(
        "{name}: H1 {:.2} at {:.4}, L1 {:.2} at {:.4}, xi-squared {:.2} and {:.2}, known {:.2} s later",
        h1.snr,
        seconds(h1.gps),
        l1.snr,
        seconds(l1.gps),
        h1.xi2,
        l1.xi2,
        report.latency().total_s(),
    );
    assert!((18.0..19.6).contains(&h1.snr), "{name}: H1 {}", h1.snr);
    assert!((12.6..13.9).contains(&l1.snr), "{name}: L1 {}", l1.snr);
    assert!((seconds(h1.gps) - 0.4236).abs() < 3e-3, "{name}: H1 at {}", seconds(h1.gps));
    assert!((seconds(l1.gps) - 0.4165).abs() < 3e-3, "{name}: L1 at {}", seconds(l1.gps));
    let late = h1.gps.seconds_since(l1.gps);
    assert!((late - 7.1e-3).abs() < 1e-3, "{name}: H1 {late} s after L1");
    for one in [h1, l1] {
        assert!((0.4..1.6).contains(&one.xi2), "{name}: xi-squared {}", one.xi2);
    }
    let others = report.found.events[1..].iter().map(|event| event.network_snr);
    let loudest = others.fold(0.0, f64::max);
    assert!(loudest < 9.0, "{name}: another event of {loudest}");
}

/// For masses, an inspiral without merger would have network SNRs of 13 to 16.
#[test]
fn gw150914_is_found_from_its_masses_as_with_the_published_template() {
    let Some(folder) = common::data_dir() else { return };
    for binary in [
        Binary::of_masses(39.0, 34.0),
        Binary { spin1z: 0.355, spin2z: -0.769, ..Binary::of_masses(41.743, 29.237) },
    ] {
        let inspirals =
            InspiralOptions { rate_hz: RATE_HZ, f_low_hz: 20.0, ..InspiralOptions::default() };
        let templates = Templates::Binaries(vec![(String::new(), binary)]);
        let waveforms =
            waveforms(templates, &inspirals, None, &Threads::new(2)).expect("waveforms");
        let options = design(Rates::Multi { lowest_hz: 128.0 }, Resampler::default());
        let source = Source { waveforms, options };
        let report = search_for(&folder, &source, &self::options(Method::Overlap { fft_s: 8.0 }));
        check(&report, &report.detectors[0].bank.templates[0].name);
    }
}

#[test]
fn gw150914_is_the_loudest_event_however_it_is_filtered() {
    let Some(folder) = common::data_dir() else { return };
    let multi = Rates::Multi { lowest_hz: 128.0 };
    let overlap = Method::Overlap { fft_s: 8.0 };
    let cases = [
        ("several rates", design(multi, Resampler::default()), overlap),
        ("low latency", design(multi, Resampler::low_latency()), overlap),
        ("one rate", design(Rates::Single, Resampler::default()), overlap),
        (
            "minimum phase",
            design(multi, Resampler::default()),
            Method::MinimumPhase { taps_s: 4.0 },
        ),
    ];
    for (name, design, method) in cases {
        check(&search(&folder, design, &options(method)), name);
    }
}

#[test]
fn gw150914_by_the_filters_is_what_a_matched_filter_finds() {
    let Some(folder) = common::data_dir() else { return };
    let design = design(Rates::Multi { lowest_hz: 128.0 }, Resampler::default());
    let report = search(&folder, design, &options(Method::Overlap { fft_s: 8.0 }));
    let event = &report.found.events[0];
    for (detector, trigger) in report.detectors.iter().zip(&event.detectors) {
        let trigger = trigger.expect("both see it");
        let template = &detector.bank.templates[0];
        let whitened = detector.whitened.samples(0..u64::MAX).expect("whitened strain");
        let truth = matched_whitened(&whitened, &template.whitened).expect("filtered");
        let series = series(detector, 0, trigger.gps, 205, &Backend::best(2)).expect("a series");
        let peak = series.z.iter().map(|z| z.norm()).fold(0.0, f32::max);
        let begin = series.start.plus_s(-template.peak_offset_s).seconds_since(detector.start);
        let first = (begin * f64::from(RATE_HZ)).round() as usize;
        let best = truth[first..][..series.z.len()].iter().map(|z| z.norm()).fold(0.0, f32::max);
        assert!(peak > 0.97 * best && peak < 1.03 * best, "{}: {peak} of {best}", detector.name);
        assert!((peak - trigger.snr).abs() < 0.02 * peak, "{peak} {}", trigger.snr);
        let overlap = overlap(detector, &truth);
        assert!(overlap > template.fit - 0.005, "{}: {overlap}", detector.name);
    }
}

/// Overlap of the filters' SNR with a matched filter's over the inner 24 s of the recording.
fn overlap(detector: &DetectorReport, truth: &[Complex<f32>]) -> f64 {
    let offset_s = detector.bank.templates[0].peak_offset_s;
    let middle = detector.start.plus_s(16.0 + offset_s);
    let z =
        series(detector, 0, middle, 12 * RATE_HZ as usize, &Backend::best(2)).expect("a series").z;
    let truth = &truth[4 * RATE_HZ as usize..][..z.len()];
    let product: Complex<f32> = z.iter().zip(truth).map(|(z, truth)| z * truth.conj()).sum();
    let power = |z: &[Complex<f32>]| z.iter().map(|z| f64::from(z.norm_sqr())).sum::<f64>();
    f64::from(product.norm()) / (power(&z) * power(truth)).sqrt()
}
