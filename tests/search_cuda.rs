//! A search on a GPU, with its rows in GPU memory, finds the candidates of the CPU. The device is a real one or the
//! emulator of `tests/cuda_on_host`.
//!
//! Verification method: test against the same search on the processor, whose results have published and
//! simulated truths of their own (`search/science.rs`).

mod common;
#[path = "common/cuda.rs"]
mod cuda;

use sidereal::backend::Backend;
use sidereal::clean::{Bandpass, Steps};
use sidereal::dedisperse::dm_plan::{DmPlan, ToleranceOptions};
use sidereal::io::{FilterbankSource, OpenOptions, open};
use sidereal::pipeline::burst::{
    Checkpoint, Observer, Report, Resident, SearchOptions, Source, Status, search, search_from,
};
use sidereal::sample::Encoding;
use sidereal::simulate::burst::BroadInterference;
use sidereal::simulate::burst::{Burst, Options, Simulator};
use sidereal::single_pulse::Candidate;
use sidereal::units::Band;

/// Two bursts, one of which ends with the data.
fn simulation(encoding: Encoding) -> Simulator {
    let mut options = Options::new(Band::uniform(1500.0, -4.0, 32).unwrap(), 1e-3, 4500);
    options.encoding = encoding;
    options.seed = 5;
    let snr = if encoding == Encoding::U2 { 14.0 } else { 25.0 };
    options.bursts = vec![Burst::new(60.0, 1.3, 4e-3, snr), Burst::new(20.0, 4.45, 3e-3, snr)];
    Simulator::new(options).unwrap()
}

fn options() -> SearchOptions {
    // Steps of two sizes, which share a history, and a range of binned samples.
    let ranges = DmPlan::fixed(&[(0.0, 30.0, 3.0), (30.0, 100.0, 6.0)]).unwrap();
    let mut plan = ranges.clone();
    plan.ranges.extend(DmPlan::fixed(&[(100.0, 160.0, 12.0)]).unwrap().ranges);
    plan.ranges.last_mut().unwrap().downsample = 2;
    let mut options = SearchOptions::new(plan);
    (options.baseline_s, options.max_width_s) = (1.0, 0.03);
    options
}

fn run(source: &mut dyn FilterbankSource, options: &SearchOptions, backend: &Backend) -> Report {
    search(Source::Rows(source), options, backend, &mut |_| true).unwrap()
}

fn assert_same(found: &[Candidate], expected: &[Candidate], what: &str) {
    assert!(!expected.is_empty(), "{what}: the processor finds nothing");
    assert_eq!(found.len(), expected.len(), "{what}: {found:?} {expected:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!((found.dm, found.time_s), (expected.dm, expected.time_s), "{what}");
        assert_eq!((found.width_s, found.members), (expected.width_s, expected.members), "{what}");
        assert!((found.snr / expected.snr - 1.0).abs() < 1e-5, "{what}: {found:?} {expected:?}");
    }
}

#[test]
fn candidates_are_those_of_the_processor() {
    let Some(gpu) = cuda::backend(2) else { return };
    for (encoding, zero_dm, gulp, max_wait_s) in [
        (Encoding::U8, false, 0, f64::INFINITY),
        (Encoding::U8, true, 700, f64::INFINITY),
        (Encoding::U2, false, 1111, 0.02),
        (Encoding::F32, false, 999, f64::INFINITY),
    ] {
        let mut options = options();
        (options.zero_dm, options.gulp, options.max_wait_s) = (zero_dm, gulp, max_wait_s);
        let expected = run(&mut simulation(encoding), &options, &Backend::best(2));
        let found = run(&mut simulation(encoding), &options, &gpu);
        let what = format!("{encoding:?}, zero-DM {zero_dm}, gulp {gulp}");
        assert_same(&found.candidates, &expected.candidates, &what);
        assert_eq!(found.dms, expected.dms, "{what}");
        assert_eq!(found.skipped_dms, expected.skipped_dms, "{what}");
        assert_eq!(found.masked_channels, expected.masked_channels, "{what}");
        assert_eq!(found.times, expected.times, "{what}");
    }
}

#[test]
fn interference_is_taken_away_as_on_the_processor() {
    let Some(gpu) = cuda::backend(2) else { return };
    let steps = Steps { iqrm: true, bandpass: Bandpass::Outliers, time: true };
    for (encoding, gulp) in [(Encoding::U8, 0), (Encoding::F32, 777)] {
        let simulation = || {
            let mut options = Options::new(Band::uniform(1500.0, -2.0, 128).unwrap(), 1e-3, 4500);
            options.encoding = encoding;
            options.bursts = vec![Burst::new(60.0, 1.3, 4e-3, 25.0)];
            options.broad = Some(BroadInterference { rate_hz: 3.0, snr: 60.0, width_s: 5e-3 });
            Simulator::new(options).unwrap()
        };
        let options = SearchOptions { mitigation: Some(steps), gulp, ..options() };
        let expected = run(&mut simulation(), &options, &Backend::best(2));
        let found = run(&mut simulation(), &options, &gpu);
        assert_same(&found.candidates, &expected.candidates, "mitigated");
        assert_eq!(found.mitigated, expected.mitigated);
        assert!(expected.mitigated.is_some_and(|own| own.broadband_rows > 20));
        let plain = SearchOptions { mitigation: None, ..options };
        let plain = run(&mut simulation(), &plain, &Backend::best(2));
        assert!(plain.candidates.len() > expected.candidates.len());
    }
}

#[test]
fn bursts_that_start_and_end_cut_are_those_of_the_processor() {
    let Some(gpu) = cuda::backend(2) else { return };
    for (encoding, zero_dm, gulp) in [(Encoding::U8, false, 700), (Encoding::U8, true, 0)] {
        let mut simulated = Options::new(Band::uniform(1500.0, -4.0, 32).unwrap(), 1e-3, 4500);
        (simulated.encoding, simulated.seed) = (encoding, 5);
        simulated.bursts =
            vec![Burst::new(90.0, -0.02, 4e-3, 30.0), Burst::new(140.0, 4.48, 4e-3, 30.0)];
        let mut options = options();
        (options.zero_dm, options.gulp, options.baseline_s) = (zero_dm, gulp, 0.5);
        let source = || Simulator::new(simulated.clone()).unwrap();
        let expected = run(&mut source(), &options, &Backend::best(2));
        let cut = expected.candidates.iter().filter(|candidate| candidate.band_fraction < 1.0);
        assert!(cut.count() >= 2, "{:?}", expected.candidates);
        let found = run(&mut source(), &options, &gpu);
        assert_same(&found.candidates, &expected.candidates, &format!("zero-DM {zero_dm}"));
    }
}

#[test]
fn a_resident_recording_can_be_searched_again() {
    let Some(gpu) = cuda::backend(2) else { return };
    let options = SearchOptions { gulp: 1500, ..options() };
    let expected = run(&mut simulation(Encoding::U8), &options, &Backend::best(2));
    let mut resident = Resident::new(&mut simulation(Encoding::U8), &options, &gpu).unwrap();
    for round in ["first", "second"] {
        let found = resident.search().unwrap();
        assert_same(&found.candidates, &expected.candidates, round);
    }
    let refused = Resident::new(&mut simulation(Encoding::U8), &options, &Backend::best(1));
    assert!(refused.unwrap_err().to_string().contains("GPU"));
}

/// Stops at a row, with a checkpoint there, and stores the final candidates.
struct Keeper {
    stop: u64,
    found: Vec<Candidate>,
    checkpoint: Option<Checkpoint>,
}

impl Observer for Keeper {
    fn observe(&mut self, status: &Status) -> bool {
        status.times < self.stop
    }

    fn found(&mut self, candidates: &[Candidate]) -> sidereal::Result<()> {
        self.found.extend_from_slice(candidates);
        Ok(())
    }

    fn taken(&mut self) -> sidereal::Result<Vec<Candidate>> {
        Ok(self.found.clone())
    }

    fn wants_checkpoint(&mut self, is_last: bool) -> bool {
        is_last
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> sidereal::Result<()> {
        self.checkpoint = Some(checkpoint.clone());
        Ok(())
    }
}

#[test]
fn an_interrupted_search_goes_on() {
    let Some(gpu) = cuda::backend(2) else { return };
    for (encoding, stop) in [(Encoding::U8, 1500), (Encoding::U8, 3500), (Encoding::F32, 2500)] {
        // Noise above the threshold, so that events are open at the edges of windows.
        let options = SearchOptions { gulp: 500, snr: 3.5, ..options() };
        let expected = run(&mut simulation(encoding), &options, &gpu);
        let run = |resumed: Option<&Checkpoint>, keeper: &mut Keeper| {
            let mut source = simulation(encoding);
            search_from(Source::Rows(&mut source), &options, &gpu, resumed, keeper).unwrap()
        };
        let mut keeper = Keeper { stop, found: Vec::new(), checkpoint: None };
        assert!(!run(None, &mut keeper).ending.is_complete());
        let checkpoint = keeper.checkpoint.take().unwrap();
        keeper.stop = u64::MAX;
        let report = run(Some(&checkpoint), &mut keeper);
        assert!(report.ending.is_complete() && report.candidates.len() > 5);
        assert_eq!(report.candidates, expected.candidates, "{encoding:?}, stopped at {stop}");
    }
}

/// A plan whose ranges are divided among devices: 480 trials of whole samples and 96 of binned ones.
fn divided() -> SearchOptions {
    let mut plan = DmPlan::fixed(&[(0.0, 120.0, 0.25)]).unwrap();
    plan.ranges.extend(DmPlan::fixed(&[(120.0, 168.0, 0.5)]).unwrap().ranges);
    plan.ranges.last_mut().unwrap().downsample = 2;
    let mut options = SearchOptions::new(plan);
    (options.baseline_s, options.max_width_s, options.snr) = (0.5, 0.03, 5.0);
    options.list_absorbed = true;
    options
}

#[test]
fn several_gpus_find_what_one_finds() {
    let Some((one, all)) = cuda::several(2) else { return };
    let numbers = |numbers: &str| all.name().starts_with(&format!("cuda:{numbers}"));
    assert!(numbers("0,1") || numbers("0 ") && all.name().contains(" + cuda:1"), "{}", all.name());
    for (encoding, zero_dm, gulp, mitigation, max_wait_s) in [
        (Encoding::U8, false, 0, None, f64::INFINITY),
        (Encoding::U8, true, 700, None, 0.02),
        (Encoding::U2, false, 1111, None, f64::INFINITY),
        (Encoding::F32, false, 999, None, f64::INFINITY),
        (Encoding::U8, false, 0, Some(Steps::default()), f64::INFINITY),
    ] {
        let options = SearchOptions { zero_dm, gulp, mitigation, max_wait_s, ..divided() };
        let expected = run(&mut simulation(encoding), &options, &one);
        let found = run(&mut simulation(encoding), &options, &all);
        let what = format!("{encoding:?}, zero-DM {zero_dm}, gulp {gulp}");
        assert!(expected.candidates.len() > 1, "{what}");
        assert_eq!(found.candidates, expected.candidates, "{what}");
        assert_eq!(found.absorbed, expected.absorbed, "{what}");
        assert_eq!(found.dms, expected.dms, "{what}");
        assert_eq!(found.skipped_dms, expected.skipped_dms, "{what}");
        assert_eq!(found.times, expected.times, "{what}");
    }
}

#[test]
fn several_gpus_find_cut_bursts_as_one_does() {
    let Some((one, all)) = cuda::several(2) else { return };
    for zero_dm in [false, true] {
        let mut simulated = Options::new(Band::uniform(1500.0, -4.0, 32).unwrap(), 1e-3, 4500);
        (simulated.encoding, simulated.seed) = (Encoding::U8, 5);
        simulated.bursts =
            vec![Burst::new(90.0, -0.02, 4e-3, 30.0), Burst::new(140.0, 4.48, 4e-3, 30.0)];
        let options = SearchOptions { zero_dm, ..divided() };
        let source = || Simulator::new(simulated.clone()).unwrap();
        let expected = run(&mut source(), &options, &one);
        let cut = expected.candidates.iter().filter(|candidate| candidate.band_fraction < 1.0);
        assert!(cut.count() >= 2, "{:?}", expected.candidates);
        let found = run(&mut source(), &options, &all);
        assert_eq!(found.candidates, expected.candidates, "zero-DM {zero_dm}");
    }
}

/// The gulp that a GPU has begun when a search is stopped belongs to its rows.
#[test]
fn a_stopped_search_finds_what_a_search_of_its_rows_finds() {
    let Some(gpu) = cuda::backend(2) else { return };
    let several = cuda::several(2).map(|(_, all)| all);
    for backend in [Some(gpu), several].into_iter().flatten() {
        for (encoding, stop) in [(Encoding::U8, 500), (Encoding::F32, 1500), (Encoding::U8, 3500)] {
            let options = SearchOptions { gulp: 500, snr: 4.0, auto_mask: false, ..divided() };
            let mut goes_on = |status: &Status| status.times < stop;
            let mut source = simulation(encoding);
            let stopped = search(Source::Rows(&mut source), &options, &backend, &mut goes_on);
            let stopped = stopped.unwrap();
            let what = format!("{encoding:?}, {stop}, {}", backend.name());
            assert!(!stopped.ending.is_complete() && stopped.times >= stop, "{what}");
            assert!(stopped.times < 4500, "{what}: {}", stopped.times);
            let end_s = stopped.times as f64 * 1e-3;
            let part = SearchOptions { time_range: Some((0.0, end_s)), ..options };
            let expected = run(&mut simulation(encoding), &part, &backend);
            assert!(!expected.candidates.is_empty(), "{what}");
            assert_eq!(stopped.times, expected.times, "{what}");
            assert_eq!(stopped.candidates, expected.candidates, "{what}");
            assert_eq!(stopped.absorbed, expected.absorbed, "{what}");
        }
    }
}

#[test]
fn a_search_on_several_gpus_goes_on_after_an_interruption() {
    let Some((one, all)) = cuda::several(2) else { return };
    let options = SearchOptions { gulp: 500, snr: 3.5, list_absorbed: false, ..divided() };
    let expected = run(&mut simulation(Encoding::U8), &options, &one);
    let run = |resumed: Option<&Checkpoint>, backend: &Backend, keeper: &mut Keeper| {
        let mut source = simulation(Encoding::U8);
        search_from(Source::Rows(&mut source), &options, backend, resumed, keeper)
    };
    let mut keeper = Keeper { stop: 2500, found: Vec::new(), checkpoint: None };
    assert!(!run(None, &all, &mut keeper).unwrap().ending.is_complete());
    let checkpoint = keeper.checkpoint.take().unwrap();
    keeper.stop = u64::MAX;
    let refused = run(Some(&checkpoint), &one, &mut keeper).unwrap_err().to_string();
    assert!(refused.contains("as many GPUs"), "{refused}");
    let report = run(Some(&checkpoint), &all, &mut keeper).unwrap();
    assert_eq!(report.candidates, expected.candidates);
}

#[test]
fn frb180417_is_found_as_on_the_processor() {
    let Some(gpu) = cuda::backend(2) else { return };
    if cuda::is_emulated(&gpu) {
        eprintln!("skipped: the emulator is too slow for a real recording");
        return;
    }
    let Some(data) = common::data_dir() else { return };
    let path = data.join("frb").join("FRB180417_askap_28.fil");
    let open = || open(std::slice::from_ref(&path), &OpenOptions::default()).unwrap();
    let source = open();
    let header = source.header();
    let tolerance = ToleranceOptions::default();
    let plan = DmPlan::tolerance(&header.band, header.tsamp_s, 0.0, 2000.0, &tolerance).unwrap();
    let options = SearchOptions::new(plan);
    let expected = run(&mut *open(), &options, &Backend::best(2));
    let found = run(&mut *open(), &options, &gpu);
    assert_same(&found.candidates, &expected.candidates, "FRB 180417");
}
