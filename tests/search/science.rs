//! End-to-end checks of a search: bursts of known time and DM are found there, for any gulp.
//!
//! Verification method: test against published values of a real recording, and against the truth of
//! simulations.

use crate::common;
use std::path::PathBuf;
use std::sync::Arc;

use sidereal::backend::Backend;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::dedisperse::dm_plan::{DmPlan, ToleranceOptions};
use sidereal::io::{FilterbankSource, OpenOptions, join, open};
use sidereal::pipeline::burst::{Report, SearchOptions, Source, search};
use sidereal::pipeline::detections::{Cell, Detections, ROWS};
use sidereal::sample::Encoding;
use sidereal::simulate::burst::{Burst, Options, Pulsar, Simulator};
use sidereal::units::{Band, DM_CONSTANT, dispersion_delay_s};

fn by_tolerance(source: &dyn FilterbankSource, dm_max: f64) -> DmPlan {
    let header = source.header();
    let tolerance = ToleranceOptions::default();
    DmPlan::tolerance(&header.band, header.tsamp_s, 0.0, dm_max, &tolerance).unwrap()
}

fn run(source: &mut dyn FilterbankSource, options: &SearchOptions, backend: &Backend) -> Report {
    search(Source::Rows(source), options, backend, &mut |_| true).unwrap()
}

/// The best candidate of FRB 180417 in ASKAP's recording: Heimdall published DM 475.284 at
/// 2.02888 s; a float64 brute force has its S/N peak, 15.6, between DM 473.5 and 476.
#[test]
fn frb180417_is_the_best_candidate_of_its_recording() {
    let Some(data) = common::data_dir() else { return };
    for name in ["FRB180417_askap_28.fil", "FRB180417_askap_28.fits"] {
        let path: PathBuf = data.join("frb").join(name);
        let mut source = open(&[path], &OpenOptions::default()).unwrap();
        let options = SearchOptions::new(by_tolerance(&*source, 2000.0));
        let report = run(&mut *source, &options, &Backend::best(2));
        let best = &report.candidates[0];
        assert!((best.dm - 475.0).abs() <= 3.0, "{name}: DM {}", best.dm);
        assert!((best.time_s - 2.0289).abs() <= 0.003, "{name}: {} s", best.time_s);
        assert!(best.snr > 13.0, "{name}: S/N {}", best.snr);
    }
}

/// Rounding a mean over channels to whole counts would leave steps of a count in all channels at once, which look
/// like pulses at low DM.
#[test]
fn zero_dm_leaves_no_steps_at_any_depth() {
    for encoding in [Encoding::U1, Encoding::U2, Encoding::U4, Encoding::U8, Encoding::U16] {
        let mut source = simulation(encoding);
        let mut options = SearchOptions::new(by_tolerance(&source, 1000.0));
        options.zero_dm = true;
        let report = run(&mut source, &options, &Backend::best(2));
        let best = &report.candidates[0];
        assert!((best.time_s - 2.0).abs() < 0.003 && best.snr > 20.0, "{encoding:?}: {best:?}");
        let low = report.candidates.iter().find(|candidate| candidate.dm < 10.0);
        assert!(low.is_none(), "{encoding:?}: {low:?}");
    }
}

fn simulation(encoding: Encoding) -> Simulator {
    let band = Band::uniform(1549.0, -2.0, 152).unwrap();
    let mut options = Options::new(band, 256e-6, 60_000);
    options.encoding = encoding;
    options.seed = 9;
    options.bursts = vec![
        Burst::new(150.0, 2.0, 3e-3, 25.0),
        Burst::new(700.0, 6.0, 8e-3, 18.0),
        // Its delay across the band ends with the data: only trials near its own DM hold it.
        Burst::new(30.0, 15.25, 2e-3, 20.0),
    ];
    Simulator::new(options).unwrap()
}

#[test]
fn injected_bursts_are_found_where_they_were_put() {
    for encoding in [Encoding::U2, Encoding::U8, Encoding::F32] {
        let mut source = simulation(encoding);
        let detections = Arc::new(Detections::new(24.0, 1500.0));
        let options = SearchOptions {
            detections: Some(Arc::clone(&detections)),
            ..SearchOptions::new(by_tolerance(&source, 1500.0))
        };
        let report = run(&mut source, &options, &Backend::best(2));
        // 60 000 rows of 256 us.
        assert!((detections.end_s() - 15.36).abs() < 0.01, "{}", detections.end_s());
        let cells = detections.cells();
        for candidate in report.candidates.iter().filter(|found| found.band_fraction == 1.0) {
            let column = (candidate.time_s / detections.step_s()) as u32;
            let row = (candidate.dm / 1500.0 * ROWS as f64) as usize;
            let is_near = |cell: &&Cell| cell.row == row && cell.column.abs_diff(column) <= 1;
            let best = cells.iter().filter(is_near).map(|cell| cell.snr).fold(0.0, f32::max);
            assert!(f64::from(best) > 0.999 * candidate.snr, "{encoding:?}: {best} {candidate:?}");
        }
        for truth in &source.truth().bursts {
            let near = |time: f64| (time - truth.burst.time_s).abs() < truth.burst.width_s;
            let found = report.candidates.iter().find(|c| near(c.time_s));
            let found = found.unwrap_or_else(|| panic!("{encoding:?}: lost {:?}", truth.burst));
            assert!((found.dm - truth.burst.dm).abs() < 15.0, "{encoding:?}: {found:?}");
            assert!((found.snr / truth.burst.snr - 1.0).abs() < 0.25, "{encoding:?}: {found:?}");
        }
        assert!(report.candidates.len() <= 5, "{encoding:?}: {:?}", report.candidates);
    }
}

#[test]
fn a_search_is_the_same_whatever_gulp_threads_and_level() {
    let whole = |gulp: usize, backend: &Backend, zero_dm: bool| {
        let mut source = simulation(Encoding::U8);
        let mut options = SearchOptions::new(by_tolerance(&source, 800.0));
        (options.gulp, options.zero_dm) = (gulp, zero_dm);
        run(&mut source, &options, backend).candidates
    };
    for zero_dm in [false, true] {
        let expected = whole(0, &Backend::best(1), zero_dm);
        assert!(!expected.is_empty());
        for level in Level::available() {
            for (gulp, threads) in [(777, 1), (20_000, 2), (4096, 3)] {
                let backend = Backend::Cpu(level, Threads::new(threads));
                assert_eq!(whole(gulp, &backend, zero_dm), expected, "{} {gulp}", level.name());
            }
        }
    }
}

#[test]
fn ranges_that_wait_less_find_the_same() {
    let found = |max_wait_s: f64| {
        let mut source = simulation(Encoding::U8);
        let mut options = SearchOptions::new(by_tolerance(&source, 800.0));
        (options.max_wait_s, options.min_band, options.snr) = (max_wait_s, 1.0, 5.0);
        let mut candidates = run(&mut source, &options, &Backend::best(2)).candidates;
        let ranges = candidates.iter().map(|candidate| candidate.range).max();
        candidates.iter_mut().for_each(|candidate| candidate.range = 0);
        (candidates, ranges.unwrap())
    };
    let (expected, ranges) = found(f64::INFINITY);
    for max_wait_s in [0.3, 0.02] {
        let (candidates, split) = found(max_wait_s);
        assert_eq!(candidates, expected, "{max_wait_s}");
        assert!(split > ranges, "{split} {ranges}");
    }
}

#[test]
fn trials_longer_than_the_data_are_skipped_and_none_left_is_an_error() {
    let mut source = simulation(Encoding::U8);
    let plan = DmPlan::fixed(&[(0.0, 40_000.0, 100.0)]).unwrap();
    let report = run(&mut source, &SearchOptions::new(plan), &Backend::best(1));
    assert!(report.skipped_dms > 0 && report.dms.len() + report.skipped_dms == 400);
    let plan = DmPlan::fixed(&[(30_000.0, 40_000.0, 100.0)]).unwrap();
    let mut source = simulation(Encoding::U8);
    let outcome = search(
        Source::Rows(&mut source),
        &SearchOptions::new(plan),
        &Backend::best(1),
        &mut |_| true,
    );
    let message = outcome.unwrap_err().to_string();
    assert!(message.contains("no trial fits"), "{message}");
}

/// Returns whether a candidate is this burst: close in time, and in DM within smearing by twice its width.
fn is_found(report: &Report, band: &Band, burst: &Burst) -> bool {
    let smear_per_dm = dispersion_delay_s(1.0, band.lowest_hz(), band.highest_hz(), DM_CONSTANT);
    report.candidates.iter().any(|c| {
        let width = c.width_s.max(burst.width_s);
        c.width_s < 4.0 * burst.width_s + 0.02
            && (c.time_s - burst.time_s).abs() < width
            && (c.dm - burst.dm).abs() * smear_per_dm < 2.0 * width
    })
}

/// Bursts in the wing of a bright pulse at another DM, narrower or stronger than the wing, are found.
#[test]
fn a_burst_in_the_wing_of_a_brighter_one_is_found() {
    let band = Band::uniform(1499.70703125, -0.5859375, 512).unwrap();
    let pairs = [
        ((300.0, 3.0, 60.0), (500.0, 2.9, 12.0)),
        ((300.0, 3.0, 60.0), (420.0, 2.94, 14.0)),
        ((300.0, 3.0, 60.0), (360.0, 2.97, 20.0)),
        ((300.0, 3.0, 30.0), (400.0, 2.95, 10.0)),
        ((0.0, 3.0, 135.0), (800.0, 2.5, 15.0)),
    ];
    for (index, pair) in pairs.into_iter().enumerate() {
        let burst = |(dm, time_s, snr): (f64, f64, f64)| Burst::new(dm, time_s, 5e-3, snr);
        let mut options = Options::new(band.clone(), 256e-6, 20_000);
        options.seed = 1 + index as u64;
        options.bursts = vec![burst(pair.0), burst(pair.1)];
        let bursts = options.bursts.clone();
        let mut source = Simulator::new(options).unwrap();
        let options =
            SearchOptions { auto_mask: false, ..SearchOptions::new(by_tolerance(&source, 2000.0)) };
        let report = run(&mut source, &options, &Backend::best(2));
        for burst in &bursts {
            assert!(is_found(&report, &band, burst), "{burst:?}: {:#?}", report.candidates);
        }
        // One noise peak may exceed the threshold.
        assert!(report.candidates.len() <= 3, "{pair:?}: {:#?}", report.candidates);
    }
}

/// Bursts of DM 350 to 2000 among zero-DM radar pulses each 0.9 s: the numbers injected and found.
fn bursts_among_radar(count: usize, channels: usize) -> (usize, usize) {
    let band = Band::uniform(1500.0, -300.0 / channels as f64, channels).unwrap();
    let spacing_s = 4.0;
    let part = |i: usize, step: f64| ((i as f64 + 0.5) * step).fract();
    let burst = |i: usize| {
        let (dm, width_s) =
            (350.0 + 1650.0 * part(i, 0.618), 10f64.powf(-3.0 + 1.7 * part(i, 0.755)));
        let time_s = spacing_s * (i as f64 + 0.5 + 0.4 * part(i, 0.570));
        Burst::new(dm, time_s, width_s, 10.0 + 20.0 * part(i, 0.820))
    };
    let seconds = spacing_s * count as f64 + 3.0;
    let mut options = Options::new(band.clone(), 512e-6, (seconds / 512e-6) as u64);
    options.bursts = (0..count).map(burst).collect();
    options.pulsars = vec![Pulsar {
        period_s: 0.9,
        dm: 0.0,
        width_s: 0.01,
        snr: 135.0,
        time_s: 0.3,
        scatter_s: 0.0,
        spectral_index: 0.0,
    }];
    let bursts = options.bursts.clone();
    let mut source = Simulator::new(options).unwrap().with_threads(Threads::new(2));
    let options =
        SearchOptions { auto_mask: false, ..SearchOptions::new(by_tolerance(&source, 2000.0)) };
    let report = run(&mut source, &options, &Backend::best(2));
    let found = bursts.iter().filter(|burst| is_found(&report, &band, burst)).count();
    eprintln!("{found} of {count} found, {} candidates", report.candidates.len());
    (found, report.candidates.len())
}

#[test]
fn bursts_among_a_radars_pulses_are_found() {
    let (found, candidates) = bursts_among_radar(12, 96);
    assert!(found >= 10, "{found}");
    // 56 radar pulses, and their remnants.
    assert!(candidates < 12 + 56 + 4, "{candidates}");
}

/// A fill has no noise: it must not lower the noise estimate of the windows around it.
#[test]
fn a_filled_gap_makes_no_candidates() {
    let tsamp_s = 256e-6;
    let part = |seed: u64, start: u64| -> Box<dyn FilterbankSource> {
        let mut options = Options::new(Band::uniform(1549.0, -2.0, 152).unwrap(), tsamp_s, 20_000);
        options.seed = seed;
        options.tstart_mjd = 60_000.0 + start as f64 * tsamp_s / 86_400.0;
        Box::new(Simulator::new(options).unwrap())
    };
    let mut source = join(vec![part(1, 0), part(2, 24_000), part(3, 49_000)], true).unwrap();
    let report = run(
        &mut *source,
        &SearchOptions::new(DmPlan::fixed(&[(0.0, 500.0, 2.0)]).unwrap()),
        &Backend::best(2),
    );
    assert_eq!(report.gaps.len(), 2);
    assert!(report.candidates.is_empty(), "{:?}", report.candidates);
}
