//! What an observer would check: bursts of known place are found there, whatever the gulp.
//!
//! Verification method: test against published values of a real recording, and against the truth of
//! simulations.

mod common;

use std::path::PathBuf;

use sidereal::backend::Backend;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::dedisperse::dm_plan::{DmPlan, ToleranceOptions};
use sidereal::io::{FilterbankSource, OpenOptions, join, open};
use sidereal::pipeline::burst::{Report, SearchOptions, search};
use sidereal::sample::Encoding;
use sidereal::simulate::burst::{Burst, Options, Simulator};
use sidereal::units::Band;

fn by_tolerance(source: &dyn FilterbankSource, dm_max: f64) -> DmPlan {
    let header = source.header();
    let tolerance = ToleranceOptions::default();
    DmPlan::tolerance(&header.band, header.tsamp_s, 0.0, dm_max, &tolerance).unwrap()
}

fn run(source: &mut dyn FilterbankSource, options: &SearchOptions, backend: &Backend) -> Report {
    search(source, options, backend, &mut |_| true).unwrap()
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

/// A mean over channels that is rounded to whole counts would leave steps of a count in all channels
/// at once, which at low DM are taken for pulses.
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
        let options = SearchOptions::new(by_tolerance(&source, 1500.0));
        let report = run(&mut source, &options, &Backend::best(2));
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
fn trials_longer_than_the_data_are_skipped_and_none_left_is_an_error() {
    let mut source = simulation(Encoding::U8);
    let plan = DmPlan::fixed(&[(0.0, 40_000.0, 100.0)]).unwrap();
    let report = run(&mut source, &SearchOptions::new(plan), &Backend::best(1));
    assert!(report.skipped_dms > 0 && report.dms.len() + report.skipped_dms == 400);
    let plan = DmPlan::fixed(&[(30_000.0, 40_000.0, 100.0)]).unwrap();
    let mut source = simulation(Encoding::U8);
    let outcome = search(&mut source, &SearchOptions::new(plan), &Backend::best(1), &mut |_| true);
    let message = outcome.unwrap_err().to_string();
    assert!(message.contains("no trial fits"), "{message}");
}

/// A fill has no noise: the windows round it must not seem quieter than they are.
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
