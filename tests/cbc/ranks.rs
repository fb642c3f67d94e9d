//! A search whose templates are divided among ranks has the bits of a search by one process.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use crate::coincident::{Kept, RATE_HZ, SIGMA, bits, pair, search_options, spoilt, white};
use crate::connected::Connected;
use num_complex::Complex64;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::io::strain::{StrainHeader, StrainSource};
use sidereal::pipeline::cbc::{
    ChirpSearch, Input, Recording, Report, SearchObserver, SearchOptions, Source, Spectrum, Status,
    Strain, Whitening, design,
};
use sidereal::pipeline::{Ending, Ranks};
use sidereal::spiir::bank::{self, Bank, Rates};
use sidereal::spiir::coincidence::TimedTrigger;
use sidereal::spiir::trigger::Trigger;
use sidereal::spiir::whiten::{GateOptions, Method, WelchOptions};
use sidereal::state::Saved;
use sidereal::strain::Waveform;
use sidereal::{Error, Result};

/// A chirp of half a second that ends at another frequency than others.
fn wave(which: u32) -> Waveform {
    let sample = |k: usize| {
        let t = k as f64 / f64::from(RATE_HZ);
        let slope = 160.0 - 10.0 * f64::from(which);
        let phase = std::f64::consts::TAU * (40.0 * t + slope * t * t);
        Complex64::from_polar(SIGMA * (0.2 + t), -phase)
    };
    let samples = (0..512).map(sample).collect();
    Waveform::new(format!("chirp {which}"), None, RATE_HZ, samples, 1.0).unwrap()
}

/// Twelve templates, which the CPU computes four by four, and a third that is longer than the data.
fn source() -> Source {
    let mut waveforms: Vec<Waveform> = (0..12).map(wave).collect();
    let long = (0..17 * RATE_HZ).map(|k| Complex64::from_polar(SIGMA, -0.3 * f64::from(k)));
    waveforms.insert(2, Waveform::new("long", None, RATE_HZ, long.collect(), 1.0).unwrap());
    let options = bank::Options {
        f_low_hz: 30.0,
        minimum_match: 0.9,
        rates: Rates::Multi { lowest_hz: 256.0 },
        ..bank::Options::default()
    };
    Source { waveforms, options }
}

fn bank() -> Bank {
    let mut source = source();
    source.waveforms.remove(2);
    design(&source, &white(), &Threads::new(1)).unwrap()
}

/// Inputs of one process with templates whose filters are designed, or with a bank.
fn inputs(recordings: Vec<Recording>, is_designed: bool) -> Vec<(Strain, Input)> {
    dealt(recordings, is_designed, 0, 1)
}

/// Inputs of a rank: every `ranks`-th template, or a bank.
fn dealt(
    recordings: Vec<Recording>,
    is_designed: bool,
    rank: usize,
    ranks: usize,
) -> Vec<(Strain, Input)> {
    let Source { waveforms, options } = source();
    let waveforms = waveforms.into_iter().skip(rank).step_by(ranks).collect();
    let input = match is_designed {
        true => Input::Templates(Arc::new(Source { waveforms, options })),
        false => Input::Bank(Arc::new(bank())),
    };
    recordings.into_iter().map(|one| (one.into(), input.clone())).collect()
}

fn asked(method: Method) -> SearchOptions {
    let welch = WelchOptions { segment_s: 1.0, ..WelchOptions::default() };
    let gate = Some(GateOptions::default());
    let whitening = Whitening { spectrum: Spectrum::Welch(welch), method, gate };
    // Enough triggers in a few seconds of noise.
    SearchOptions { whitening, threshold: 2.5, ..search_options() }
}

/// Runs `work` as each rank, in a thread each; returns the results in ascending order of the ranks.
fn as_ranks<T: Send>(ranks: usize, work: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let begin = |own: Connected| {
            let work = &work;
            scope.spawn(move || work(Ranks::new(Box::new(own)).unwrap()))
        };
        let running: Vec<_> = Connected::all(ranks).into_iter().map(begin).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// Runs a search as one of the ranks; returns the report at rank 0, and the result of the others.
fn search(
    ranks: Ranks,
    inputs: Vec<(Strain, Input)>,
    asked: &SearchOptions,
    observer: &mut dyn SearchObserver,
) -> Result<Option<Report>> {
    let own = ranks.own();
    let search = ChirpSearch::divided(inputs, asked, &Backend::best(1), ranks)?;
    match own {
        0 => search.run_kept(observer).map(Some),
        _ => search.assist(&mut |status| observer.at(status)).map(|()| None),
    }
}

#[test]
fn ranks_find_the_bits_of_one_process() {
    for (method, is_designed) in [
        (Method::Overlap { fft_s: 1.0 }, true),
        (Method::MinimumPhase { taps_s: 1.0 }, true),
        (Method::Overlap { fft_s: 1.0 }, false),
    ] {
        let asked = asked(method);
        let one = ChirpSearch::new(inputs(spoilt(), is_designed), &asked, &Backend::best(2));
        let expected = one.unwrap().run(&mut |_| true).unwrap();
        let triggers = &expected.detectors[0].triggers;
        assert!(triggers.len() > 50 && !expected.found.events.is_empty());
        assert!(triggers.iter().any(|one| one.template != triggers[0].template));
        for (ranks, block) in [(1, 0), (2, 97), (3, 0), (3, 50)] {
            let mut results = as_ranks(ranks, |own| {
                // Ranks with blocks of their own agree on the least.
                let asked = SearchOptions { block: block * (1 + own.own()), ..asked.clone() };
                let inputs = dealt(spoilt(), is_designed, own.own(), ranks);
                search(own, inputs, &asked, &mut Kept::default())
            });
            let report = results.swap_remove(0).unwrap().unwrap();
            assert!(report.ending.is_complete());
            assert!(bits(&report) == bits(&expected), "{method:?}, {ranks} ranks, block {block}");
            for (own, other) in report.detectors.iter().zip(&expected.detectors) {
                assert!(*own.bank == *other.bank, "{ranks} ranks");
                assert_eq!(own.bank.left_out.len(), usize::from(is_designed));
            }
            assert!(results.into_iter().all(|one| one.unwrap().is_none()));
        }
    }
}

/// Observer that stops one rank at a sample, if it is that of rank `stops`.
fn stopping(own: usize, stops: usize, at: u64) -> Kept {
    let stop_at = (own == stops).then_some(at);
    Kept { stop_at, is_always_due: true, ..Kept::default() }
}

#[test]
fn ranks_that_are_stopped_and_resumed_find_the_bits_of_one_process() {
    let asked = SearchOptions { block: 31, ..asked(Method::Overlap { fft_s: 1.0 }) };
    let whole = ChirpSearch::new(inputs(spoilt(), true), &asked, &Backend::best(1)).unwrap();
    let whole = whole.run(&mut |_| true).unwrap();
    for (ranks, stops, is_killed) in [(2, 1, false), (3, 0, true), (3, 2, false)] {
        let folder = tempfile::tempdir().unwrap();
        let state = as_ranks(ranks, |own| {
            let mut kept = stopping(own.own(), stops, 12_000);
            let rank = own.own();
            let inputs = dealt(spoilt(), true, rank, ranks);
            let mut search = ChirpSearch::divided(inputs, &asked, &Backend::best(1), own).unwrap();
            if rank > 0 {
                let error = search.assist(&mut |status| kept.at(status)).unwrap_err();
                assert!(error.is_stop(), "{error}");
                return None;
            }
            search.store_in(folder.path()).unwrap();
            let report = search.run_kept(&mut kept).unwrap();
            assert!(matches!(report.ending, Ending::Stopped), "{:?}", report.ending);
            let last = kept.states.len() - 1;
            assert!(last > 2, "{last} states");
            Some(kept.states.swap_remove(if is_killed { last / 2 } else { last }))
        });
        let (state, triggers) = state.into_iter().next().flatten().unwrap();
        let reports = as_ranks(ranks, |own| {
            let rank = own.own();
            let inputs = dealt(spoilt(), true, rank, ranks);
            let mut search = ChirpSearch::divided(inputs, &asked, &Backend::best(1), own).unwrap();
            if rank > 0 {
                return search.assist(&mut |_| true).map(|()| None).unwrap();
            }
            let mut saved = Saved::new(Path::new("state"), 0, &state).unwrap();
            search.resume(folder.path(), &mut saved, triggers.clone()).unwrap();
            Some(search.run(&mut |_| true).unwrap())
        });
        let report = reports.into_iter().next().flatten().unwrap();
        assert!(bits(&report) == bits(&whole), "{ranks} ranks, stopped by {stops}");
    }
}

#[test]
fn states_of_another_number_of_ranks_are_refused_by_all() {
    let asked = SearchOptions { block: 64, ..asked(Method::Overlap { fft_s: 1.0 }) };
    let mut kept = Kept { stop_at: Some(9000), ..Kept::default() };
    let one = ChirpSearch::new(inputs(pair(), false), &asked, &Backend::best(1)).unwrap();
    one.run_kept(&mut kept).unwrap();
    let (state, triggers) = kept.states.pop().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let errors = as_ranks(2, |own| {
        let rank = own.own();
        let mut search =
            ChirpSearch::divided(inputs(pair(), false), &asked, &Backend::best(1), own).unwrap();
        if rank > 0 {
            return search.assist(&mut |_| true).unwrap_err().to_string();
        }
        let mut saved = Saved::new(Path::new("state"), 0, &state).unwrap();
        search.resume(folder.path(), &mut saved, triggers.clone()).unwrap_err().to_string()
    });
    assert!(errors[0].contains("saved state, ranks"), "{errors:?}");
    assert!(errors[1].contains("rank 0"), "{errors:?}");
}

/// Strain whose reads fail from a sample on.
struct Failing {
    header: StrainHeader,
    recording: Recording,
    next: usize,
    until: usize,
}

impl StrainSource for Failing {
    fn header(&self) -> &StrainHeader {
        &self.header
    }

    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize> {
        if self.next >= self.until {
            return Err(Error::format("disk", "strain", 0, "it cannot be read"));
        }
        let count = samples.len().min(self.recording.samples.len() - self.next);
        let range = self.next..self.next + count;
        samples[..count].copy_from_slice(&self.recording.samples[range.clone()]);
        valid[..count].copy_from_slice(&self.recording.valid[range]);
        self.next += count;
        Ok(count)
    }
}

fn failing(recording: &Recording, until: usize) -> Strain {
    let recording = recording.clone();
    let header = StrainHeader {
        path: recording.path.clone(),
        format: "test",
        detector: recording.detector.clone(),
        start: recording.start,
        rate_hz: recording.rate_hz,
        times: Some(recording.samples.len() as u64),
    };
    let open = move || -> Result<Box<dyn StrainSource>> {
        let (header, recording) = (header.clone(), recording.clone());
        Ok(Box::new(Failing { header, recording, next: 0, until }))
    };
    Strain::new(open).unwrap()
}

#[test]
fn a_rank_that_cannot_read_ends_all_and_rank_0_keeps_what_all_had_searched() {
    let whitening = Whitening {
        spectrum: Spectrum::Given(white()),
        ..asked(Method::Overlap { fft_s: 1.0 }).whitening
    };
    let asked = SearchOptions { block: 64, whitening, threshold: 2.5, ..search_options() };
    let run = |fails: usize, until: usize| {
        as_ranks(3, |own| {
            let rank = own.own();
            let of = |one: &Recording| {
                let until = if rank == fails { until } else { usize::MAX };
                (failing(one, until), Input::Bank(Arc::new(bank())))
            };
            let inputs = pair().iter().map(of).collect();
            search(own, inputs, &asked, &mut Kept::default())
        })
    };
    let whole = ChirpSearch::new(inputs(pair(), false), &asked, &Backend::best(1)).unwrap();
    let whole = whole.run(&mut |_| true).unwrap();
    for fails in [0, 2] {
        let mut results = run(fails, 11_000);
        let report = results.remove(0).unwrap().unwrap();
        let Ending::Failed(error) = &report.ending else { panic!("{:?}", report.ending) };
        let error = error.to_string();
        assert!(error.contains(if fails == 0 { "cannot be read" } else { "rank 2" }), "{error}");
        for (rank, result) in (1..).zip(&results) {
            let error = result.as_ref().map(|_| ()).unwrap_err().to_string();
            let own = if rank == fails { "cannot be read" } else { &format!("rank {fails}") };
            assert!(error.contains(own), "{error}");
        }
        for (own, all) in report.detectors.iter().zip(&whole.detectors) {
            assert!(own.duration_s > 6.0 && own.duration_s < 11_000.0 / f64::from(RATE_HZ));
            let end = own.start.plus_s(own.duration_s);
            let count = own.triggers.len();
            assert!(count > 10 && own.triggers == all.triggers[..count]);
            assert!(all.triggers[count].gps > end.plus_s(-1.0));
            assert!(own.valid.spans().iter().all(|(_, last)| *last <= end));
        }
    }
    for result in run(1, 0) {
        let error = result.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("cannot be read") || error.contains("rank 1"), "{error}");
    }
}

#[test]
fn ranks_without_templates_or_with_other_strain_are_errors() {
    let asked = asked(Method::Overlap { fft_s: 1.0 });
    let errors = as_ranks(4, |own| {
        let result = search(own, inputs(pair(), false), &asked, &mut Kept::default());
        result.map(|_| ()).unwrap_err().to_string()
    });
    assert!(errors.iter().all(|one| one.contains("is 4") && one.contains("at most 3 ranks")));
    // Rank 1 has all templates.
    let errors = as_ranks(2, |own| {
        let inputs = dealt(pair(), true, 0, 2 - own.own());
        let result = search(own, inputs, &asked, &mut Kept::default());
        result.map(|_| ()).unwrap_err().to_string()
    });
    assert!(errors.iter().all(|one| one.contains("of 20 templates")), "{errors:?}");
    let errors = as_ranks(2, |own| {
        let mut recordings = pair();
        let scale = 1.0 + 1e-9 * own.own() as f64;
        recordings[1].samples.iter_mut().for_each(|sample| *sample *= scale);
        let result = search(own, inputs(recordings, false), &asked, &mut Kept::default());
        result.map(|_| ()).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("rank 1") && error.contains("power spectrum"), "{error}");
    }
}

/// Observer that cannot store triggers.
struct Full;

impl SearchObserver for Full {
    fn at(&mut self, _: &Status) -> bool {
        true
    }

    fn found(&mut self, _: usize, _: &[(Trigger, TimedTrigger)]) -> Result<()> {
        Err(Error::stopped("a full disk"))
    }
}

#[test]
fn an_observer_that_fails_ends_all_ranks() {
    let asked = SearchOptions { block: 64, ..asked(Method::Overlap { fft_s: 1.0 }) };
    let results =
        as_ranks(2, |own| search(own, inputs(pair(), false), &asked, &mut Full).map(|_| ()));
    assert!(results[1].is_err(), "{results:?}");
}
