//! A search for binaries that is stopped and resumed gives the bits of an uninterrupted one; a stopped search saves
//! its results so far.

use std::path::Path;
use std::sync::Arc;

use crate::coincident::{
    Kept, RATE_HZ, bits, chirp_bank, interrupted, noise, pair, recording, search_options, spoilt,
};
use sidereal::backend::Backend;
use sidereal::io::strain::{StrainHeader, StrainSource};
use sidereal::pipeline::Ending;
use sidereal::pipeline::cbc::{
    ChirpSearch, Input, Recording, SearchOptions, Spectrum, Strain, Whitening,
};
use sidereal::spiir::whiten::{GateOptions, Method, RunningOptions, WelchOptions};
use sidereal::state::{Saved, Saving};
use sidereal::{Error, Result};

fn search(recordings: Vec<Recording>, asked: &SearchOptions) -> ChirpSearch {
    let with = |one| (one, Input::Bank(Arc::new(chirp_bank())));
    let inputs = recordings.into_iter().map(with).collect();
    ChirpSearch::new(inputs, asked, &Backend::best(2)).expect("a search")
}

fn options(method: Method, running: bool) -> SearchOptions {
    let welch = WelchOptions { segment_s: 1.0, ..WelchOptions::default() };
    let follow = RunningOptions { segment_s: 1.0, settle: 3, ..RunningOptions::default() };
    let spectrum = if running { Spectrum::Running(follow, welch) } else { Spectrum::Welch(welch) };
    let gate = Some(GateOptions::default());
    SearchOptions { whitening: Whitening { spectrum, method, gate }, ..search_options() }
}

#[test]
fn a_search_that_goes_on_gives_the_bits_of_one_that_was_not_stopped() {
    let total = 32 * u64::from(RATE_HZ);
    for (method, running) in [
        (Method::Overlap { fft_s: 1.0 }, false),
        (Method::Overlap { fft_s: 1.0 }, true),
        (Method::MinimumPhase { taps_s: 1.0 }, true),
    ] {
        let asked = SearchOptions { block: 777, ..options(method, running) };
        let whole = search(spoilt(), &asked).run(&mut |_| true).expect("searched");
        assert!(whole.ending.is_complete() && !whole.detectors[0].triggers.is_empty());
        let expected = bits(&whole);
        for (stop_at, block) in [(1, 100), (9000, 777), (total / 2, 4096), (total - 10, 13)] {
            let first = search(spoilt(), &SearchOptions { block, ..asked.clone() });
            let report = interrupted(first, stop_at, false, search(spoilt(), &asked));
            assert!(bits(&report) == expected, "{method:?}, running {running}, stop at {stop_at}");
        }
    }
}

#[test]
fn a_damaged_state_is_refused_and_never_panics() {
    let asked = options(Method::Overlap { fft_s: 1.0 }, false);
    let mut kept = Kept { stop_at: Some(20_000), ..Kept::default() };
    search(spoilt(), &asked).run_kept(&mut kept).expect("stopped");
    let (state, triggers) = kept.states.pop().expect("a state");
    let folder = tempfile::tempdir().expect("a folder");
    let path = Path::new("state");
    assert!(Saved::new(path, 0, &state[..state.len() - 1]).is_err());
    let mut random = noise(3, 60).into_iter().map(|x| (x.abs() * 1e9) as u64);
    let mut refused = 0;
    while let (Some(place), Some(value)) = (random.next(), random.next()) {
        // The damaged state has a valid checksum.
        let mut damaged = state[..state.len() - 8].to_vec();
        // Numbers occur at the beginning and at scattered offsets: the damage hits both.
        let place = place as usize % if refused % 2 == 0 { 400 } else { damaged.len() };
        damaged[place] = damaged[place].wrapping_add(1 + value as u8 % 255);
        let damaged = Saving::sealed(damaged);
        let mut again = search(spoilt(), &asked);
        let mut saved = Saved::new(path, 0, &damaged).expect("sealed");
        // The whitened strain of the first search was not saved, so a state that passes the check fails there.
        let error = again.resume(folder.path(), &mut saved, triggers.clone()).expect_err("damaged");
        assert!(matches!(error, Error::Format { .. }), "{error}");
        refused += 1;
    }
    assert_eq!(refused, 30);
    // The state of a search with another filter bank, or without its triggers.
    let mut other = search(spoilt(), &options(Method::MinimumPhase { taps_s: 1.0 }, false));
    let mut saved = Saved::new(path, 0, &state).expect("whole");
    assert!(other.resume(folder.path(), &mut saved, triggers).is_err());
    let mut again = search(spoilt(), &asked);
    let mut saved = Saved::new(path, 0, &state).expect("whole");
    let error = again.resume(folder.path(), &mut saved, Vec::new()).expect_err("no triggers");
    assert!(error.to_string().contains("triggers in the journal"), "{error}");
}

/// A source that fails at a sample, or ends there.
struct Failing {
    header: StrainHeader,
    recording: Arc<Recording>,
    next: usize,
    until: usize,
    is_cut: bool,
}

impl StrainSource for Failing {
    fn header(&self) -> &StrainHeader {
        &self.header
    }

    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize> {
        let count = samples.len().min(self.until - self.next);
        if count == 0 && !samples.is_empty() && !self.is_cut {
            return Err(Error::io("H1.hdf5", std::io::ErrorKind::TimedOut.into()));
        }
        let place = self.next..self.next + count;
        samples[..count].copy_from_slice(&self.recording.samples[place.clone()]);
        valid[..count].copy_from_slice(&self.recording.valid[place]);
        self.next += count;
        Ok(count)
    }

    fn cut(&self) -> Option<&str> {
        self.is_cut.then_some("H1.hdf5: half of it is missing")
    }
}

fn failing(recording: Recording, until: usize, is_cut: bool) -> Strain {
    let recording = Arc::new(recording);
    let open = move || -> Result<Box<dyn StrainSource>> {
        let times = if is_cut { until } else { recording.samples.len() };
        let header = StrainHeader {
            path: "H1.hdf5".into(),
            format: "test",
            detector: recording.detector.clone(),
            start: recording.start,
            rate_hz: recording.rate_hz,
            times: Some(times as u64),
        };
        let recording = Arc::clone(&recording);
        Ok(Box::new(Failing { header, recording, next: 0, until, is_cut }))
    };
    Strain::new(open).expect("opened")
}

#[test]
fn what_was_searched_before_a_fault_or_a_cut_is_reported() {
    let asked = options(Method::Overlap { fft_s: 1.0 }, false);
    let mut short = pair();
    let until = 12_000;
    for one in &mut short {
        one.samples.truncate(until);
        one.valid.truncate(until);
    }
    let expected = search(short, &asked).run(&mut |_| true).expect("searched");
    assert!(expected.found.events[0].network_snr > 20.0, "the chirp lies before the fault");
    for is_cut in [false, true] {
        let bank = || Input::Bank(Arc::new(chirp_bank()));
        let [h1, mut l1] = [recording("H1", 1, 9000), recording("L1", 2, 9004)];
        l1.samples.truncate(until);
        l1.valid.truncate(until);
        let inputs = vec![(failing(h1, until, is_cut), bank()), (l1.into(), bank())];
        let search = ChirpSearch::new(inputs, &asked, &Backend::best(2)).expect("a search");
        let report = search.run(&mut |_| true).expect("a report");
        match (&report.ending, is_cut) {
            (Ending::Failed(error), false) => {
                assert!(error.to_string().contains("H1.hdf5"), "{error}");
            }
            (Ending::Cut(why), true) => assert!(why.contains("half"), "{why}"),
            other => panic!("{other:?}"),
        }
        assert!(bits(&report) == bits(&expected), "cut {is_cut}");
    }
}
