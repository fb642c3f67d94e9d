//! Correlations divided among ranks, which are threads here: rank 0 returns the bits of a single process, and all ranks
//! end when one ends.

use sidereal::backend::Backend;
use sidereal::io::voltages::{Flag, VoltageHeader};
use sidereal::pipeline::correlator::{
    ArrayCorrelator, ArrayInput, CorrelateOptions, Gains, Integration, Ranks, RemoteRecording,
    Summary,
};
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use crate::arriving::source::Arriving;
use crate::support::array::{self, drain, name, recording};
use crate::support::memory::{self, Memory, noise};
use crate::support::random::Random;
use crate::support::ranks::Connected;

/// Results of a rank.
#[derive(Debug)]
struct Returned {
    integrations: Vec<Integration>,
    summary: Option<Summary>,
    error: Option<Error>,
    /// Rank that ended the run early, and whether it was this one.
    early: (Option<usize>, bool),
}

/// Work of one rank with its ranks, until the end or an error.
fn follow(
    correlator: Result<ArrayCorrelator>,
    most: usize,
) -> (Vec<Integration>, Option<Summary>, Option<Error>) {
    let mut correlator = match correlator {
        Ok(correlator) => correlator,
        Err(error) => return (Vec::new(), None, Some(error)),
    };
    let (mut all, mut integration) = (Vec::new(), Integration::new());
    while all.len() < most {
        match correlator.next_integration(&mut integration) {
            Ok(true) => all.push(integration.clone()),
            Ok(false) => break,
            Err(error) => return (all, Some(correlator.summary()), Some(error)),
        }
    }
    (all, Some(correlator.summary()), None)
}

/// Correlates with several ranks; `bind` builds the correlator of each, and each returns `most` integrations at most.
fn divided(
    ranks: usize,
    most: impl Fn(usize) -> usize + Sync,
    bind: impl Fn(Ranks) -> Result<ArrayCorrelator> + Sync,
) -> Vec<Returned> {
    std::thread::scope(|scope| {
        let (bind, most) = (&bind, &most);
        let work = |exchange: Connected| {
            move || {
                let rank = exchange.rank;
                let ranks = Ranks::new(Box::new(exchange)).unwrap();
                let early = ranks.early_end();
                let (integrations, summary, error) = follow(bind(ranks), most(rank));
                assert!(!early.is_broken(), "rank {rank}: {error:?}");
                Returned { integrations, summary, error, early: (early.rank(), early.is_own()) }
            }
        };
        let threads: Vec<_> =
            Connected::all(ranks).into_iter().map(|own| scope.spawn(work(own))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A correlation of recordings, some with several antennas.
#[derive(Clone, Debug)]
struct Case {
    recordings: Vec<Memory>,
    /// Antennas of each recording.
    antennas: Vec<usize>,
    options: CorrelateOptions,
    /// Whether the samples arrive, of unknown length.
    is_live: bool,
}

impl Case {
    fn inputs(&self) -> Vec<ArrayInput> {
        let mut first = 0;
        let input = |(memory, antennas): (&Memory, &usize)| {
            first += antennas;
            let names = (first - antennas..first).map(name).collect();
            let source = memory.boxed();
            let source = if self.is_live { Arriving::boxed(source) } else { source };
            ArrayInput { antennas: names, source }
        };
        self.recordings.iter().zip(&self.antennas).map(input).collect()
    }

    fn one(&self) -> (Vec<Integration>, Summary) {
        let (array, backend) = (array::array(self.antennas.iter().sum()), Backend::best(2));
        let correlator = ArrayCorrelator::new(&array, self.inputs(), &self.options, &backend);
        let mut correlator = correlator.unwrap();
        let all = drain(&mut correlator);
        let summary = correlator.summary();
        (all, summary)
    }

    fn divided(&self, ranks: usize) -> Vec<Returned> {
        let array = array::array(self.antennas.iter().sum());
        divided(
            ranks,
            |_| usize::MAX,
            |ranks| {
                // Ranks may have other threads, and other gulps.
                let backend = Backend::best(1 + ranks.own() % 2);
                let gulp = self.options.gulp * (1 + ranks.own());
                let options = CorrelateOptions { gulp, ..self.options.clone() };
                ArrayCorrelator::divided(&array, self.inputs(), &options, &backend, ranks)
            },
        )
    }

    /// Checks that ranks return what a single process returns.
    fn check(&self, ranks: usize) {
        let (expected, summary) = self.one();
        let returned = self.divided(ranks);
        for (rank, own) in returned.iter().enumerate() {
            assert!(own.error.is_none(), "{:?}", own.error);
            assert_eq!(own.integrations.len(), expected.len());
            let is_empty = |own: &Integration| own.sums.is_empty() && own.counts.is_empty();
            assert!(rank == 0 || own.integrations.iter().all(is_empty));
        }
        let found = &returned[0];
        assert!(found.integrations == expected, "{ranks} ranks, {:?}", self.options);
        let own = found.summary.as_ref().unwrap();
        assert_eq!(own.antennas, summary.antennas);
        assert_eq!(own.not_finite, summary.not_finite);
        assert_eq!((own.spectra, own.integrations), (summary.spectra, summary.integrations));
    }
}

const TIMES: usize = 9000;

/// Recordings of random shape with flags, and random options.
fn case(random: &mut Random) -> Case {
    use VoltageEncoding::{Complex8, ComplexF32, Real8};
    let encoding = [Complex8, Complex8, ComplexF32, Real8][random.below(4)];
    let mut centres: Vec<f64> = (0..1 + random.below(4)).map(|own| 20.0 + own as f64).collect();
    if random.below(2) == 0 {
        centres.reverse();
    }
    let polarizations = 1 + random.below(2);
    let is_direct = encoding != Real8 && random.below(2) == 0;
    let lower_sideband = random.below(4) == 0;
    let antennas: Vec<usize> = (0..1 + random.below(5)).map(|_| 1 + random.below(7) / 5).collect();
    let own = |recording_: usize, random: &mut Random| {
        let header = VoltageHeader {
            polarizations,
            lower_sideband,
            antennas: antennas[recording_],
            ..memory::header(&centres, encoding)
        };
        let amplitude = 5.0 + random.uniform() * 20.0;
        let mut memory = recording(&header, recording_, TIMES, |stream, time| {
            noise(100 * recording_ + stream, time) * amplitude
        });
        for _ in 0..random.below(3) {
            let start = random.below(header.streams());
            let end = start + 1 + random.below(header.streams() - start);
            let (first, times) = (random.below(TIMES) as u64, 1 + random.below(900) as u64);
            memory.flags.push(Flag { streams: start..end, start: first, times });
        }
        memory.flags.sort_by_key(|flag| flag.start);
        if encoding == ComplexF32 && random.below(2) == 0 {
            let place = 8 * random.below(TIMES);
            memory.streams[0][place..place + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        memory
    };
    let recordings = (0..antennas.len()).map(|place| own(place, random)).collect();
    let channels = if is_direct { 1 } else { [8, 16, 30][random.below(3)] };
    let divisors: Vec<usize> = [1, 2, 5].into_iter().filter(|own| channels % own == 0).collect();
    let hop = if encoding == Real8 { 2 * channels } else { channels };
    let spectra = TIMES / hop;
    let cables = (0..antennas.iter().sum()).map(|own| 0.37e-6 * own as f64).collect();
    let options = CorrelateOptions {
        channelize: Some(!is_direct),
        nbits: [8, 4, 32][random.below(3)].max(if is_direct { 8 } else { 4 }),
        gains: if random.below(3) == 0 { Gains::Fixed(0.3) } else { Gains::Auto },
        average_channels: divisors[random.below(divisors.len())],
        integration_s: (1 + random.below(spectra / 2)) as f64 * hop as f64 * 1e-6,
        gulp: [0, 7, 64, 100][random.below(4)],
        cable_delays_s: if random.below(2) == 0 { cables } else { Vec::new() },
        ..CorrelateOptions::new(channels)
    };
    Case { recordings, antennas, options, is_live: false }
}

#[test]
fn ranks_return_the_bits_of_one_process() {
    let mut random = Random::new(11);
    let mut checked = [0; 5];
    for _ in 0..60 {
        let mut case = case(&mut random);
        case.is_live = random.below(3) == 0;
        if case.is_live {
            for own in &mut case.recordings {
                own.header.times = Some((TIMES - random.below(3) * 1500) as u64);
            }
        }
        let options = &case.options;
        let channels = case.recordings[0].header.centres_hz.len() * options.channels;
        let most = case.antennas.iter().sum::<usize>().min(channels / options.average_channels);
        let ranks = 1 + random.below(most.min(4));
        case.check(ranks);
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
        let mut case = case(&mut random);
        case.is_live = random.below(2) == 0;
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
        assert!(returned[0].integrations == case.one().0, "{what}");
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
        assert!(*found == case.one().0);
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
    let (whole, _) = six().one();
    for (broken, culprit) in [(0, 0), (3, 1), (5, 2)] {
        let mut case = six();
        case.options.gulp = 0;
        case.recordings[broken].broken_from = Some(30_000);
        let returned = case.divided(3);
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
        assert_eq!(Some(last), short.one().0.last());
    }
}

#[test]
fn a_stop_at_one_rank_stops_all_of_them() {
    let (whole, _) = six().one();
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
        for own in case.divided(ranks) {
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
    assert!(returned[0].integrations == case.one().0);
}
