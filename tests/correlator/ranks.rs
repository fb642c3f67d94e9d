//! Correlations divided among ranks, which are threads here: rank 0 returns the bits of a single process, and all ranks
//! end when one ends.

use sidereal::backend::Backend;
use sidereal::pipeline::correlator::{
    ArrayCorrelator, ArrayInput, CorrelateOptions, Integration, Ranks, RemoteRecording,
};
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use crate::support::array::{self, drain, recording};
use crate::support::divided::{Case, case, divided};
use crate::support::memory::{self, noise};
use crate::support::random::Random;
use crate::support::ranks::Connected;

/// Returns the backend of a rank: ranks may have other numbers of threads.
fn of_rank(rank: usize) -> Backend {
    Backend::best(1 + rank % 2)
}

/// Returns the integrations of a single process.
fn one(case: &Case) -> Vec<Integration> {
    case.one(&Backend::best(2)).0
}

#[test]
fn ranks_return_the_bits_of_one_process() {
    let mut random = Random::new(11);
    let mut checked = [0; 5];
    for _ in 0..60 {
        let case = case(&mut random, 9000);
        let ranks = case.ranks(&mut random);
        case.check(ranks, &Backend::best(2), of_rank);
        checked[ranks] += 1;
    }
    assert!(checked[1..].iter().all(|count| *count > 4), "{checked:?}");
}

/// Returns the recordings of a rank: its own, whose ranks are `readers`, and the headers of the others.
fn own_inputs(case: &Case, readers: &[usize], ranks: &mut Ranks) -> Result<Vec<ArrayInput>> {
    let inputs = case.inputs();
    let names: Vec<Vec<String>> = inputs.iter().map(|input| input.antennas.clone()).collect();
    let opened: Vec<_> = inputs
        .into_iter()
        .zip(readers)
        .map(|(input, reader)| (*reader == ranks.own()).then_some(input.source))
        .collect();
    let headers = RemoteRecording::share(&opened, ranks)?;
    let sources = opened.into_iter().zip(headers);
    let sources = sources.map(|(own, header)| own.unwrap_or_else(|| Box::new(header)));
    let inputs = names.into_iter().zip(sources);
    Ok(inputs.map(|(antennas, source)| ArrayInput { antennas, source }).collect())
}

#[test]
fn recordings_that_only_one_rank_can_read_give_the_bits_of_one_process() {
    let mut random = Random::new(5);
    let mut checked = 0;
    while checked < 12 {
        let case = case(&mut random, 9000);
        let options = &case.options;
        let channels = case.recordings[0].header.centres_hz.len() * options.channels;
        let recordings = case.recordings.len();
        let ranks = recordings.min(channels / options.average_channels).min(3);
        if ranks < 2 {
            continue;
        }
        // Shares of any length, of at least one recording.
        let mut readers: Vec<usize> = (0..recordings).map(|_| random.below(ranks)).collect();
        readers[..ranks].copy_from_slice(&(0..ranks).collect::<Vec<_>>());
        readers.sort_unstable();
        let array = array::array(case.antennas.iter().sum());
        let returned = divided(
            ranks,
            |_| usize::MAX,
            |mut ranks| {
                let inputs = own_inputs(&case, &readers, &mut ranks)?;
                let ranks = ranks.read_by(readers.clone());
                let backend = Backend::best(1);
                ArrayCorrelator::divided(&array, inputs, &case.options, &backend, ranks)
            },
        );
        let what = format!("{ranks} ranks, {readers:?}, {options:?}");
        assert!(returned.iter().all(|own| own.error.is_none()), "{what}: {returned:?}");
        assert!(returned[0].integrations == one(&case), "{what}");
        checked += 1;
    }
}

#[test]
fn a_recording_that_no_rank_reads_is_an_error() {
    let case = six();
    let array = array::array(6);
    let run = |readers: [usize; 6], share: bool| {
        let returned = divided(
            2,
            |_| usize::MAX,
            |mut ranks| {
                let inputs = match share {
                    true => own_inputs(&case, &readers, &mut ranks)?,
                    false => case.inputs(),
                };
                let ranks = ranks.read_by(readers.to_vec());
                let backend = Backend::best(1);
                ArrayCorrelator::divided(&array, inputs, &case.options, &backend, ranks)
            },
        );
        returned.into_iter().map(|own| own.error.unwrap().to_string()).collect::<Vec<_>>()
    };
    for error in run([0, 0, 0, 1, 1, 7], true) {
        assert!(error.contains("no rank has opened") && error.contains(" is 1"), "{error}");
    }
    for error in run([0; 6], false) {
        assert!(error.contains("rank without antennas is 1"), "{error}");
    }
    for error in run([0, 1, 0, 1, 0, 1], true) {
        assert!(error.contains("order"), "{error}");
    }
}

#[test]
fn the_same_ranks_correlate_one_observation_after_another() {
    let mut live = six();
    live.is_live = true;
    live.recordings[4].header.times = Some(23_456);
    let cases = [six(), live.clone(), six(), live];
    let array = array::array(6);
    let work = |exchange: Connected| {
        let (cases, array) = (&cases, &array);
        move || {
            let mut ranks = Some(Ranks::new(Box::new(exchange)).unwrap().repeating());
            let early = ranks.as_ref().unwrap().early_end();
            let mut all = Vec::new();
            for case in cases {
                let (inputs, own) = (case.inputs(), ranks.take().unwrap());
                let backend = Backend::best(1);
                let made = ArrayCorrelator::divided(array, inputs, &case.options, &backend, own);
                let mut correlator = made.unwrap();
                all.push(drain(&mut correlator));
                ranks = correlator.into_ranks().unwrap();
            }
            ranks.iter_mut().for_each(Ranks::finish);
            drop(ranks);
            assert_eq!(early.rank(), None);
            all
        }
    };
    let found = std::thread::scope(|scope| {
        let threads: Vec<_> =
            Connected::all(2).into_iter().map(|own| scope.spawn(work(own))).collect();
        threads.into_iter().map(|own| own.join().unwrap()).collect::<Vec<_>>()
    });
    for (case, found) in cases.iter().zip(&found[0]) {
        assert!(*found == one(case));
    }
}

/// Antennas with delays and a filter bank, of which rank r of three has the antennas 2 r and 2 r + 1.
fn six() -> Case {
    let header = memory::header(&[1400.0, 1401.0], VoltageEncoding::Complex8);
    let own = |antenna| {
        recording(&header, antenna, 40_000, |stream, time| noise(10 * antenna + stream, time) * 9.0)
    };
    let options = CorrelateOptions { integration_s: 0.01, gulp: 100, ..CorrelateOptions::new(16) };
    Case { recordings: (0..6).map(own).collect(), antennas: vec![1; 6], options, is_live: false }
}

#[test]
fn a_source_that_fails_at_one_rank_ends_all_of_them() {
    let whole = one(&six());
    for (broken, culprit) in [(0, 0), (3, 1), (5, 2)] {
        let mut case = six();
        case.options.gulp = 0;
        case.recordings[broken].broken_from = Some(30_000);
        let returned = case.divided(3, of_rank);
        for (rank, own) in returned.iter().enumerate() {
            let error = own.error.as_ref().unwrap().to_string();
            let expected = if rank == culprit { "a sector is broken" } else { "rank " };
            assert!(error.contains(expected), "{error}");
            assert!(rank == culprit || error.contains(&format!("rank {culprit}")), "{error}");
            assert_eq!(own.early, (Some(culprit), rank == culprit));
            assert_eq!(own.integrations.len(), returned[0].integrations.len());
        }
        let (last, before) = returned[0].integrations.split_last().unwrap();
        assert!(before == &whole[..before.len()] && !before.is_empty());
        // The last, shorter integration is that of recordings that end there.
        let mut short = six();
        for own in &mut short.recordings {
            own.header.times = Some(128 + (last.first + last.spectra - 1) * 16);
        }
        assert_eq!(Some(last), one(&short).last());
    }
}

#[test]
fn a_stop_at_one_rank_stops_all_of_them() {
    let whole = one(&six());
    let case = six();
    let array = array::array(6);
    let returned = divided(
        3,
        |_| usize::MAX,
        |ranks| {
            let own = ranks.own();
            let backend = Backend::best(1);
            let made =
                ArrayCorrelator::divided(&array, case.inputs(), &case.options, &backend, ranks);
            made.map(|mut correlator| {
                correlator.watched_by(Box::new(move |spectra| own != 1 || spectra < 700));
                correlator
            })
        },
    );
    for (rank, own) in returned.iter().enumerate() {
        assert!(own.error.as_ref().unwrap().is_stop(), "{:?}", own.error);
        assert_eq!(own.early, (Some(1), rank == 1));
    }
    let found = &returned[0].integrations;
    assert_eq!((found.len(), &found[0]), (2, &whole[0]));
    assert!(found[1].spectra < whole[1].spectra);
}

#[test]
fn a_rank_that_gives_up_ends_the_others() {
    // Rank 2 takes no more than one integration, as does a program that cannot go on.
    let case = six();
    let array = array::array(6);
    let most = |rank: usize| if rank == 2 { 1 } else { usize::MAX };
    let bind = |ranks: Ranks| {
        ArrayCorrelator::divided(&array, case.inputs(), &case.options, &Backend::best(1), ranks)
    };
    let returned = divided(3, most, bind);
    assert!(returned[2].error.is_none());
    for own in &returned[..2] {
        assert!(own.error.as_ref().unwrap().to_string().contains("rank 2"), "{:?}", own.error);
        assert_eq!(own.early, (Some(2), false));
    }
    // A rank that cannot even begin.
    let returned = divided(
        3,
        |_| usize::MAX,
        |ranks| match ranks.own() {
            1 => Err(Error::stopped("its options")),
            _ => bind(ranks),
        },
    );
    for own in [&returned[0], &returned[2]] {
        assert!(own.error.as_ref().unwrap().to_string().contains("rank 1"), "{:?}", own.error);
    }
}

#[test]
fn more_ranks_than_antennas_or_channels_are_an_error() {
    let mut case = six();
    for (ranks, channels, words) in [(7, 16, ["7", "6 antennas"]), (5, 2, ["5", "4 channels"])] {
        case.options.channels = channels;
        for own in case.divided(ranks, of_rank) {
            let error = own.error.unwrap().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }
}

#[test]
fn messages_count_as_memory() {
    let case = six();
    let array = array::array(6);
    let backend = Backend::best(1);
    let limit = |memory| CorrelateOptions { memory: Some(memory), gulp: 0, ..case.options.clone() };
    let returned = divided(
        2,
        |_| usize::MAX,
        |ranks| ArrayCorrelator::divided(&array, case.inputs(), &limit(1000), &backend, ranks),
    );
    for own in returned {
        assert!(own.error.unwrap().to_string().contains("memory"));
    }
    // A limit makes gulps shorter, and changes no bit.
    let memory = 1 << 20;
    let returned = divided(
        2,
        |_| usize::MAX,
        |ranks| ArrayCorrelator::divided(&array, case.inputs(), &limit(memory), &backend, ranks),
    );
    assert!(returned[0].error.is_none(), "{:?}", returned[0].error);
    assert!(returned[0].integrations == one(&case));
}
