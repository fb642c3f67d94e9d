//! Correlations of random recordings, by one process and divided among ranks, which are threads here.
use sidereal::backend::Backend;
use sidereal::io::voltages::{Flag, VoltageHeader};
use sidereal::pipeline::correlator::{
    ArrayCorrelator, ArrayInput, CorrelateOptions, Gains, Integration, Ranks, Summary,
};
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use super::array::{self, drain, name, recording};
use super::arriving::Arriving;
use super::memory::{self, Memory, noise};
use super::random::Random;
use super::ranks::Connected;

/// Results of a rank.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) integrations: Vec<Integration>,
    pub(crate) summary: Option<Summary>,
    pub(crate) error: Option<Error>,
    /// Rank that ended the run early, and whether it was this one.
    pub(crate) early: (Option<usize>, bool),
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
pub(crate) fn divided(
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
pub(crate) struct Case {
    pub(crate) recordings: Vec<Memory>,
    /// Antennas of each recording.
    pub(crate) antennas: Vec<usize>,
    pub(crate) options: CorrelateOptions,
    /// Whether the samples arrive, of unknown length.
    pub(crate) is_live: bool,
}

impl Case {
    pub(crate) fn inputs(&self) -> Vec<ArrayInput> {
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

    /// Results of a single process.
    pub(crate) fn one(&self, backend: &Backend) -> (Vec<Integration>, Summary) {
        let array = array::array(self.antennas.iter().sum());
        let correlator = ArrayCorrelator::new(&array, self.inputs(), &self.options, backend);
        let mut correlator = correlator.unwrap();
        let all = drain(&mut correlator);
        let summary = correlator.summary();
        (all, summary)
    }

    /// Results of ranks, of which each has a backend.
    pub(crate) fn divided(
        &self,
        ranks: usize,
        backend: impl Fn(usize) -> Backend + Sync,
    ) -> Vec<Returned> {
        let array = array::array(self.antennas.iter().sum());
        divided(
            ranks,
            |_| usize::MAX,
            |ranks| {
                // Ranks may have other gulps.
                let gulp = self.options.gulp * (1 + ranks.own());
                let options = CorrelateOptions { gulp, ..self.options.clone() };
                let backend = backend(ranks.own());
                ArrayCorrelator::divided(&array, self.inputs(), &options, &backend, ranks)
            },
        )
    }

    /// Checks that ranks return what a single process returns.
    pub(crate) fn check(
        &self,
        ranks: usize,
        one: &Backend,
        backend: impl Fn(usize) -> Backend + Sync,
    ) {
        let (expected, summary) = self.one(one);
        let returned = self.divided(ranks, backend);
        for (rank, own) in returned.iter().enumerate() {
            assert!(own.error.is_none(), "{:?}", own.error);
            assert_eq!(own.integrations.len(), expected.len());
            let is_empty = |own: &Integration| own.sums.is_empty() && own.counts.is_empty();
            assert!(rank == 0 || own.integrations.iter().all(is_empty));
            let own = own.summary.as_ref().unwrap();
            assert_eq!(own.made_on_device, summary.made_on_device, "{:?}", own.not_on_device);
        }
        let found = &returned[0];
        assert!(found.integrations == expected, "{ranks} ranks, {:?}", self.options);
        let own = found.summary.as_ref().unwrap();
        assert_eq!(own.antennas, summary.antennas);
        assert_eq!(own.not_finite, summary.not_finite);
        assert_eq!((own.spectra, own.integrations), (summary.spectra, summary.integrations));
    }

    /// Returns a random number of ranks, up to four, that can share the work.
    pub(crate) fn ranks(&self, random: &mut Random) -> usize {
        let options = &self.options;
        let channels = self.recordings[0].header.centres_hz.len() * options.channels;
        let most = self.antennas.iter().sum::<usize>().min(channels / options.average_channels);
        1 + random.below(most.min(4))
    }
}

/// Recordings of random shape with flags, of `times` samples or fewer of some that arrive, and random options.
pub(crate) fn case(random: &mut Random, times: usize) -> Case {
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
        let mut memory = recording(&header, recording_, times, |stream, time| {
            noise(100 * recording_ + stream, time) * amplitude
        });
        for _ in 0..random.below(3) {
            let start = random.below(header.streams());
            let end = start + 1 + random.below(header.streams() - start);
            let (first, length) = (random.below(times) as u64, 1 + random.below(times / 10) as u64);
            memory.flags.push(Flag { streams: start..end, start: first, times: length });
        }
        memory.flags.sort_by_key(|flag| flag.start);
        if encoding == ComplexF32 && random.below(2) == 0 {
            let place = 8 * random.below(times);
            memory.streams[0][place..place + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        memory
    };
    let recordings = (0..antennas.len()).map(|place| own(place, random)).collect();
    let channels = if is_direct { 1 } else { [8, 16, 30][random.below(3)] };
    let divisors: Vec<usize> = [1, 2, 5].into_iter().filter(|own| channels % own == 0).collect();
    let hop = if encoding == Real8 { 2 * channels } else { channels };
    let spectra = times / hop;
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
    let mut case = Case { recordings, antennas, options, is_live: random.below(3) == 0 };
    if case.is_live {
        for own in &mut case.recordings {
            own.header.times = Some((times - random.below(3) * times / 6) as u64);
        }
    }
    case
}
