//! The chain from strain to events: invariance to the split of the stream, gates, rejection of invalid options.

use crate::coincident::{
    self, RATE_HZ, SIGMA, around_a_gap, bits, chirp, chirp_bank, noise, recording, white,
};
use num_complex::Complex64;
use sidereal::Error;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::pipeline::Ending;
use sidereal::pipeline::cbc::{
    ChirpDetector, ChirpSearch, DetectorOptions, Input, Piece, Recording, SearchOptions, Source,
    Spectrum, Whitening, design, read_bank, series, write_bank,
};
use sidereal::spiir::bank::{self, Bank, Rates};
use sidereal::spiir::coincidence::{Ranking, Sample};
use sidereal::spiir::trigger::Trigger;
use sidereal::spiir::whiten::Method;
use sidereal::strain::{Binary, Waveform};
use sidereal::units::Gps;
use std::sync::Arc;

fn source() -> Source {
    let options = bank::Options {
        f_low_hz: 30.0,
        minimum_match: 0.9,
        rates: Rates::Multi { lowest_hz: 256.0 },
        ..bank::Options::default()
    };
    Source { waveforms: vec![chirp(0)], options }
}

fn bank() -> Bank {
    design(&source(), &white(), &Threads::new(1)).expect("a bank")
}

fn whitening(method: Method) -> Whitening {
    Whitening { spectrum: Spectrum::Given(white()), method, gate: None }
}

fn chain(method: Method) -> DetectorOptions {
    DetectorOptions {
        whitening: whitening(method).options(RATE_HZ, &white(), 30.0),
        threshold: 4.0,
        window_s: 0.1,
        gate_pad_s: 0.25,
    }
}

/// Whitened strain's bits, and the triggers.
fn run(one: &Recording, method: Method, block: usize) -> (Vec<u32>, Vec<Trigger>) {
    let bank = bank();
    let mut detector =
        ChirpDetector::new(one.start, &bank, &chain(method), &Backend::best(1)).expect("a chain");
    let mut whitened = Vec::new();
    let mut ratios = 0;
    let mut keep = |piece: Piece<'_>| match piece {
        Piece::Whitened { first, samples, .. } => {
            assert_eq!(first as usize, whitened.len());
            whitened.extend(samples.iter().map(|x| x.to_bits()));
        }
        Piece::Ratios { first, times, z, stride } => {
            assert_eq!(first, ratios);
            assert!(z[..times.min(stride)].iter().all(|z| z.re.is_finite() && z.im.is_finite()));
            ratios += times as u64;
        }
    };
    for (strain, valid) in one.samples.chunks(block).zip(one.valid.chunks(block)) {
        detector.run(strain, valid, &mut keep).expect("run");
    }
    detector.flush(&mut keep).expect("flushed");
    assert_eq!((ratios as usize, whitened.len()), (one.samples.len(), one.samples.len()));
    (whitened, detector.triggers().to_vec())
}

#[test]
fn any_split_gives_the_same_bits_from_strain_to_triggers() {
    let mut one = recording("H1", 7, 9000);
    one.samples[3000] = f64::NAN;
    one.valid[12_000..12_100].fill(false);
    for method in [Method::Overlap { fft_s: 1.0 }, Method::MinimumPhase { taps_s: 1.0 }] {
        let whole = run(&one, method, one.samples.len());
        assert!(whole.1.iter().any(|trigger| trigger.snr() > 12.0), "{method:?}: {:?}", whole.1);
        for block in [13, 1000, 4097] {
            assert_eq!(run(&one, method, block), whole, "{method:?}, blocks of {block}");
        }
    }
}

#[test]
fn nothing_that_is_not_finite_passes_its_gate() {
    let mut one = recording("H1", 11, 9000);
    one.samples[9500] = f64::NAN;
    one.samples[200] = f64::INFINITY;
    let (whitened, triggers) = run(&one, Method::Overlap { fft_s: 1.0 }, 777);
    assert!(whitened.iter().all(|x| f32::from_bits(*x).is_finite()));
    // The chirp lies inside the gate.
    assert!(triggers.iter().all(|trigger| trigger.snr() < 12.0), "{triggers:?}");
}

fn options() -> SearchOptions {
    SearchOptions {
        whitening: whitening(Method::Overlap { fft_s: 1.0 }),
        threshold: 4.0,
        window_s: 0.1,
        gate_pad_s: 0.25,
        window_pad_s: 0.002,
        slides: 20,
        slide_interval_s: 0.1,
        cluster_s: 0.5,
        background: Sample::Inclusive,
        ranking: Ranking::Snr,
        block: 0,
        memory: None,
    }
}

fn search(
    recordings: Vec<Recording>,
    asked: &SearchOptions,
) -> sidereal::Result<sidereal::pipeline::cbc::Report> {
    let inputs =
        recordings.into_iter().map(|one| (one, Input::Templates(source().into()))).collect();
    ChirpSearch::new(inputs, asked, &Backend::best(1))?.run(&mut |_| true)
}

#[test]
fn a_chirp_in_two_detectors_is_the_loudest_event_whatever_the_block() {
    let pair = || vec![recording("H1", 1, 9000), recording("L1", 2, 9004)];
    let report = search(pair(), &options()).expect("searched");
    let event = &report.found.events[0];
    assert!((25.0..31.0).contains(&event.network_snr), "{}", event.network_snr);
    let times: Vec<f64> = event.detectors.iter().flatten().map(|one| one.gps.s() - 1e9).collect();
    let peak = chirp(0).peak as f64;
    for (time, at) in times.iter().zip([9000.0, 9004.0]) {
        let expected = (at + peak) / f64::from(RATE_HZ);
        assert!((time - expected).abs() < 2e-3, "{time} {expected}");
    }
    let asked = SearchOptions { block: 1234, ..options() };
    let again = search(pair(), &asked).expect("searched");
    assert_eq!(again.found, report.found);
    let alone = search(vec![recording("H1", 1, 9000)], &options()).expect("one");
    assert!((18.0..22.5).contains(&alone.found.events[0].network_snr));
    assert!(alone.found.events[0].far_hz.is_none());
}

#[test]
fn a_limit_on_memory_makes_blocks_shorter_and_changes_no_bit() {
    // The bits, and the most samples between two looks at the observer.
    let run = |memory: Option<u64>| {
        let inputs = vec![recording("H1", 1, 9000), recording("L1", 2, 9004)];
        let inputs = inputs.into_iter().map(|one| (one, Input::Bank(Arc::new(bank()))));
        let asked = SearchOptions { memory, ..options() };
        let search = ChirpSearch::new(inputs.collect(), &asked, &Backend::best(1))?;
        let (mut longest, mut before) = (0, 0);
        let report = search.run(&mut |status| {
            longest = longest.max(status.times - before);
            before = status.times;
            true
        })?;
        Ok::<_, Error>((longest, bits(&report)))
    };
    let (usual, expected) = run(None).expect("searched");
    // The least limit that is enough, within 4 kB.
    let (mut low, mut high) = (0, 64 << 20);
    while high - low > 4096 {
        let middle = (low + high) / 2;
        let asked = SearchOptions { memory: Some(middle), ..options() };
        let input = |one| (one, Input::Bank(Arc::new(bank())));
        let inputs = vec![recording("H1", 1, 9000), recording("L1", 2, 9004)];
        let inputs = inputs.into_iter().map(input).collect();
        let fits = ChirpSearch::new(inputs, &asked, &Backend::best(1)).is_ok();
        (low, high) = if fits { (low, middle) } else { (middle, high) };
    }
    let told = run(Some(low)).map(|_| ()).expect_err("refused").to_string();
    assert!(told.contains("the search for binaries") && told.contains("needed at least"), "{told}");
    for (memory, most) in [(high, 100), (high + 40_000, 1500)] {
        let (longest, found) = run(Some(memory)).expect("searched");
        assert!(found == expected && longest < most.min(usual), "{longest} of {usual} samples");
    }
}

#[test]
fn a_bank_from_a_file_is_the_same_bank() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.h5");
    let bank = bank();
    write_bank(&path, &bank, "H1", "a test").expect("written");
    let (read, detector) = read_bank(&path).expect("read");
    assert_eq!((read, detector.as_str()), (bank, "H1"));
}

#[test]
fn nonsense_is_refused_in_whole_sentences() {
    let refused = |recordings: Vec<Recording>, asked: &SearchOptions, words: &[&str]| {
        let error =
            search(recordings, asked).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
    };
    let h1 = || recording("H1", 1, 9000);
    let late = || Recording { start: Gps::from_s(1e9 + 16.0), ..recording("L1", 2, 9000) };
    refused(vec![h1(), late()], &options(), &["don't overlap in time", "H1 GPS", "L1 GPS"]);
    refused(vec![h1(), h1()], &options(), &["twice"]);
    refused(vec![recording("Q9", 1, 9000)], &options(), &["Q9", "known are"]);
    refused(Vec::new(), &options(), &["at least one recording"]);
    let other = Recording { rate_hz: 2048, ..h1() };
    refused(vec![other], &options(), &["1024", "2048 Hz"]);
    let mut short = h1();
    short.samples.truncate(300);
    short.valid.truncate(300);
    refused(vec![short], &options(), &["longer than the data"]);
    let inputs = vec![(Recording { rate_hz: 512, ..h1() }, Input::Bank(Arc::new(bank())))];
    let error = ChirpSearch::new(inputs, &options(), &Backend::best(1)).err();
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("made for strain of 1024 Hz"), "{error}");
    let mut other = bank();
    other.templates[0].binary = Some(Binary::of_masses(1.0, 2.0));
    let with = |bank: Bank| Input::Bank(Arc::new(bank));
    let templates_differ = |[one, two]: [Bank; 2]| {
        let inputs = vec![(h1(), with(one)), (recording("L1", 2, 9000), with(two))];
        let error = ChirpSearch::new(inputs, &options(), &Backend::best(1)).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    let error = templates_differ([bank(), other]);
    let parts = [
        "chirp 0 (masses 1 and 2, spins 0 and 0) at index 0",
        "L1 must have the same templates in the same order as H1, which has chirp 0",
    ];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    let by = |approximant: &str| {
        let mut bank = bank();
        bank.templates[0].binary = Some(Binary::of_masses(1.0, 2.0));
        bank.templates[0].approximant = Some(approximant.to_owned());
        bank
    };
    let error = templates_differ([by("TaylorT4"), by("IMRPhenomD")]);
    assert!(error.contains("spins 0 and 0, IMRPhenomD) at index 0"), "{error}");
    let mut more = bank();
    more.templates.push(more.templates[0].clone());
    let error = templates_differ([bank(), more]);
    assert!(error.contains("templates is 2") && error.contains("which has 1"), "{error}");
    let asked = SearchOptions { block: 1000, ..options() };
    let inputs = vec![(h1(), Input::Templates(source().into()))];
    let stopped = ChirpSearch::new(inputs, &asked, &Backend::best(1));
    let report = stopped.expect("a search").run(&mut |_| false).expect("stopped");
    assert!(matches!(report.ending, Ending::Stopped) && report.found.events.is_empty());
}

/// Options of coincidence are looked at before anything is made or searched.
#[test]
fn windows_and_slides_that_do_not_fit_are_refused_at_once() {
    let begun = |names: &[&str], asked: SearchOptions| {
        let with = |name: &&str| (recording(name, 1, 9000), Input::Templates(source().into()));
        let inputs = names.iter().map(with).collect();
        let error = ChirpSearch::new(inputs, &asked, &Backend::best(1)).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    let pad = SearchOptions { window_pad_s: 0.05, ..options() };
    let error = begun(&["H1", "L1"], pad);
    assert!(error.contains("interval of time slides"), "{error}");
    let interval = SearchOptions { slide_interval_s: 0.02, ..options() };
    let error = begun(&["H1", "L1"], interval.clone());
    assert!(error.contains("interval of time slides"), "{error}");
    assert_eq!(begun(&["H1"], interval), "", "one detector has no slides");
    let error = begun(&["H1", "L1", "V1", "K1", "G1"], options());
    assert!(error.contains("detectors") && error.contains("2 to 4"), "{error}");
}

#[test]
fn ratios_round_an_event_are_those_of_the_whole_stream() {
    // A wave so slow that its filters remember seconds.
    let sample = |k: usize| {
        let t = k as f64 / f64::from(RATE_HZ);
        Complex64::from_polar(SIGMA, -std::f64::consts::TAU * (40.0 * t + 0.2 * t * t))
    };
    let samples = (0..8 * RATE_HZ as usize).map(sample).collect();
    let wave = Waveform::new("slow", None, RATE_HZ, samples, 1.0).expect("a wave");
    let source = Source { waveforms: vec![wave], ..source() };
    let mut one = recording("H1", 5, 9000);
    one.samples = noise(5, 32 * RATE_HZ as usize).iter().map(|x| x * SIGMA).collect();
    one.valid = vec![true; one.samples.len()];
    let total = one.samples.len();
    let inputs = vec![(one, Input::Templates(source.into()))];
    let search = ChirpSearch::new(inputs, &options(), &Backend::best(1)).expect("a search");
    let report = search.run(&mut |_| true).expect("searched");
    let detector = &report.detectors[0];
    let time = |seconds: f64| {
        let offset_s = detector.bank.templates[0].peak_offset_s;
        detector.start.plus_s(seconds + offset_s)
    };
    let ratios =
        |middle, half| series(detector, 0, middle, half, &Backend::best(1)).expect("a series").z;
    let whole = ratios(time(0.0), total);
    assert_eq!(whole.len(), total);
    let part = ratios(time(28.0), 500);
    let expected = &whole[28 * RATE_HZ as usize - 500..][..1001];
    let worst = part.iter().zip(expected).map(|(a, b)| (a - b).norm()).fold(0.0, f32::max);
    assert_eq!(part.len(), 1001);
    assert!(worst < 2e-5, "{worst}");
}

#[test]
fn a_gap_at_once_gives_the_triggers_of_one_that_is_processed() {
    let (start, backend) = (Gps::from_s(1e9), Backend::best(2));
    let begun = || {
        ChirpDetector::of_triggers(start, &chirp_bank(), &coincident::chain(), &backend)
            .expect("a chain")
    };
    let whole = around_a_gap(begun(), 5000, false);
    assert_eq!(whole.1, 1);
    assert!(whole.0.len() > 10, "{}", whole.0.len());
    assert_eq!(around_a_gap(begun(), 5000, true), whole);
    assert_eq!(around_a_gap(begun(), 777, true), whole);
    // A chain that never restarts has the same triggers, but for what its filters remember.
    let never =
        ChirpDetector::new(start, &chirp_bank(), &coincident::chain(), &backend).expect("a chain");
    let (never, restarts) = around_a_gap(never, 5000, false);
    assert_eq!((restarts, never.len()), (0, whole.0.len()));
    for (a, b) in never.iter().zip(&whole.0) {
        assert_eq!((a.sample, a.template), (b.sample, b.template));
        assert!((a.z - b.z).norm() <= 1e-5 * b.z.norm(), "{a:?} {b:?}");
    }
}
