//! Bursts whose sweep is truncated by the recording's start or end are found in the recorded channels.
//!
//! Verification method: test against the truth of simulations.

use sidereal::backend::Backend;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::dedisperse::dm_plan::{DmPlan, DmRange};
use sidereal::io::FilterbankSource;
use sidereal::pipeline::burst::{Report, SearchOptions, Source, search};
use sidereal::sample::Encoding;
use sidereal::simulate::burst::{Burst, Options, Simulator};
use sidereal::single_pulse::Candidate;
use sidereal::units::{Band, DM_CONSTANT, dispersion_delay_s};

const TSAMP_S: f64 = 256e-6;

fn band() -> Band {
    Band::uniform(1500.0, -300.0 / 128.0, 128).unwrap()
}

/// Seconds of delay across the band.
fn sweep_s(dm: f64) -> f64 {
    dispersion_delay_s(dm, band().lowest_hz(), band().highest_hz(), DM_CONSTANT)
}

/// Fraction of the channels in which the recording holds a burst.
fn band_fraction(burst: &Burst, length_s: f64) -> f64 {
    let band = band();
    let centres = band.centres_hz();
    let arrival =
        |hz: &f64| burst.time_s + dispersion_delay_s(burst.dm, *hz, band.highest_hz(), DM_CONSTANT);
    let there = centres.iter().map(arrival).filter(|time| (0.0..length_s).contains(time)).count();
    there as f64 / centres.len() as f64
}

fn simulation(encoding: Encoding, times: u64, bursts: Vec<Burst>) -> Simulator {
    let mut options = Options::new(band(), TSAMP_S, times);
    (options.encoding, options.seed, options.bursts) = (encoding, 11, bursts);
    Simulator::new(options).unwrap()
}

fn options() -> SearchOptions {
    let coarse = DmRange { downsample: 2, ..DmRange::new(400.0, 700.0, 4.0) };
    let plan = DmPlan::from_ranges(vec![DmRange::new(0.0, 400.0, 2.0), coarse]).unwrap();
    SearchOptions { max_width_s: 0.03, ..SearchOptions::new(plan) }
}

fn run(source: &mut dyn FilterbankSource, options: &SearchOptions, backend: &Backend) -> Report {
    search(Source::Rows(source), options, backend, &mut |_| true).unwrap()
}

fn near<'a>(report: &'a Report, burst: &Burst) -> Option<&'a Candidate> {
    report.candidates.iter().find(|candidate| {
        let drift_s = sweep_s((candidate.dm - burst.dm).abs());
        (candidate.time_s - burst.time_s).abs() < burst.width_s + drift_s && drift_s < 0.1
    })
}

/// Bursts that lose half of their sweep at either edge, and one that is complete.
fn cut_bursts(length_s: f64, snr: f64) -> Vec<Burst> {
    vec![
        Burst::new(300.0, -0.4 * sweep_s(300.0), 4e-3, snr),
        Burst::new(550.0, -0.55 * sweep_s(550.0), 6e-3, snr),
        Burst::new(200.0, 0.5 * length_s, 4e-3, snr),
        Burst::new(250.0, length_s - 0.5 * sweep_s(250.0), 4e-3, snr),
        Burst::new(600.0, length_s - 0.35 * sweep_s(600.0), 6e-3, snr),
    ]
}

#[test]
fn a_burst_cut_by_the_start_or_the_end_is_found_with_the_ratio_of_its_channels() {
    for (encoding, times, zero_dm) in [
        (Encoding::U8, 60_000, false),
        (Encoding::F32, 60_000, false),
        (Encoding::U2, 60_000, false),
        (Encoding::U8, 60_000, true),
        // Short enough that start and end are searched together.
        (Encoding::U8, 9000, false),
    ] {
        let length_s = times as f64 * TSAMP_S;
        // Two bits cannot hold brighter bursts.
        let snr = if encoding == Encoding::U2 { 30.0 } else { 60.0 };
        let mut source = simulation(encoding, times, cut_bursts(length_s, snr));
        let mut options = SearchOptions { zero_dm, ..options() };
        let report = run(&mut source, &options, &Backend::best(2));
        let mut source = simulation(encoding, times, cut_bursts(length_s, snr));
        options.min_band = 1.0;
        let whole = run(&mut source, &options, &Backend::best(2));
        for burst in &source.truth().bursts {
            let name = format!("{encoding:?} {times} {zero_dm} {:?}", burst.burst);
            let fraction = band_fraction(&burst.burst, length_s);
            let found = near(&report, &burst.burst).unwrap_or_else(|| panic!("lost {name}"));
            let ratio = found.snr / (burst.burst.snr * fraction.sqrt());
            assert!((ratio - 1.0).abs() < 0.15, "{name}: {ratio} {found:?}");
            assert!((found.band_fraction - fraction).abs() < 0.1, "{name}: {fraction} {found:?}");
            let is_whole = fraction == 1.0;
            assert_eq!(found.band_fraction == 1.0, is_whole, "{name}");
            assert_eq!(near(&whole, &burst.burst).is_some(), is_whole, "{name}");
        }
        assert!(report.candidates.len() <= 6, "{encoding:?}: {:?}", report.candidates);
    }
}

#[test]
fn partial_candidates_are_the_same_whatever_gulp_threads_and_level() {
    for encoding in [Encoding::U8, Encoding::F32] {
        let times = 20_000;
        let found = |gulp: usize, backend: &Backend| {
            let length_s = times as f64 * TSAMP_S;
            let mut source = simulation(encoding, times, cut_bursts(length_s, 30.0));
            let options = SearchOptions { gulp, snr: 5.0, ..options() };
            run(&mut source, &options, backend).candidates
        };
        let expected = found(0, &Backend::best(1));
        assert!(expected.iter().filter(|candidate| candidate.band_fraction < 1.0).count() > 3);
        assert!(expected.iter().any(|candidate| candidate.time_s < 0.0));
        for level in Level::available() {
            for (gulp, threads) in [(777, 1), (20_000, 2), (4096, 3)] {
                let backend = Backend::Cpu(level, Threads::new(threads));
                assert_eq!(found(gulp, &backend), expected, "{encoding:?} {} {gulp}", level.name());
            }
        }
    }
}

#[test]
fn noise_gives_no_candidates_at_the_edges() {
    let mut counts = (0, 0);
    for seed in 1..=6 {
        let mut options = Options::new(band(), TSAMP_S, 12_000);
        (options.encoding, options.seed) = (Encoding::U8, seed);
        let mut source = Simulator::new(options).unwrap();
        let report = run(&mut source, &self::options(), &Backend::best(2));
        let partial = report.candidates.iter().filter(|candidate| candidate.band_fraction < 1.0);
        counts = (counts.0 + report.candidates.len(), counts.1 + partial.count());
    }
    assert!(counts.1 <= 1, "{counts:?}");
}
