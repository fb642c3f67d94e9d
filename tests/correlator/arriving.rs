//! Antennas whose samples arrive, of unknown length and with missing samples known block by block, are correlated to the bits of
//! their recordings.

use std::ops::Range;

use num_complex::Complex;
use sidereal::Error;
use sidereal::backend::Backend;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::pipeline::correlator::{
    ArrayCorrelator, ArrayHeader, ArrayInput, CorrelateOptions, Gains, Integration, PhaseCentre,
};
use sidereal::simulate::array::ArraySimulator;
use sidereal::voltage::{VoltageBlock, VoltageEncoding};

use crate::support::arriving::Arriving;
use crate::support::memory::Memory;
use crate::support::random::Random;
use crate::support::tracked::{ANTENNAS, Case, PLAIN, array};

/// The recording of an antenna, without its first `late` samples.
fn recording(simulator: &ArraySimulator, antenna: usize, late: u64) -> Memory {
    let mut source = simulator.antenna(antenna).unwrap();
    let mut header = source.header().clone();
    let mut block = header.block(header.times.unwrap() as usize);
    assert_eq!(source.skip(late).unwrap(), late);
    let times = source.read(&mut block).unwrap();
    header.start = header.start.plus_s(late as f64 * header.tsamp_s);
    let mut memory = Memory::new(header, 0, |_, _| Complex::ZERO);
    memory.header.times = Some(times as u64);
    let voltages = block.voltages();
    memory.streams = (0..voltages.streams()).map(|stream| voltages.row(stream).to_vec()).collect();
    memory
}

/// Missing samples of some streams: short and long, at the start, in the middle and at the end.
fn flags(random: &mut Random, streams: usize, times: u64) -> Vec<Flag> {
    let mut flags: Vec<Flag> = (0..random.below(5))
        .map(|_| {
            let longest = [40, 3000, 60_000][random.below(3)];
            let length = 1 + random.below(longest) as u64;
            let start = match random.below(4) {
                0 => 0,
                1 => times - length,
                _ => random.below((times - length) as usize) as u64,
            };
            let streams: Range<usize> = match random.below(2) {
                0 => 0..streams,
                _ => streams - 1..streams,
            };
            Flag { streams, start, times: length }
        })
        .collect();
    flags.sort_by_key(|flag| flag.start);
    flags
}

fn correlator(
    recordings: &[Memory],
    options: &CorrelateOptions,
    wrap: impl Fn(Box<dyn VoltageSource>) -> Box<dyn VoltageSource>,
) -> ArrayCorrelator {
    let input = |(antenna, recording): (usize, &Memory)| ArrayInput {
        antennas: vec![array().antennas[antenna].name.clone()],
        source: wrap(recording.boxed()),
    };
    let inputs = recordings.iter().enumerate().map(input).collect();
    ArrayCorrelator::new(&array(), inputs, options, &Backend::best(2)).unwrap()
}

fn integrations(correlator: &mut ArrayCorrelator) -> Vec<Integration> {
    let (mut all, mut integration) = (Vec::new(), Integration::new());
    while correlator.next_integration(&mut integration).unwrap() {
        all.push(integration.clone());
    }
    all
}

#[test]
fn integrations_are_those_of_the_recordings_in_any_parts() {
    let cases = [
        PLAIN,
        Case { polarizations: 2, coarse: 3, lower: true, ..PLAIN },
        Case { encoding: VoltageEncoding::Real8, nbits: 4, ..PLAIN },
        Case { encoding: VoltageEncoding::ComplexF32, average: 4, ..PLAIN },
    ];
    for (seed, case) in cases.iter().enumerate() {
        let mut random = Random::new(seed as u64);
        let simulator = ArraySimulator::new(case.simulation()).unwrap();
        for is_tracking in [true, false] {
            let late: Vec<u64> = (0..ANTENNAS).map(|_| 4 * random.below(500) as u64).collect();
            let recordings: Vec<Memory> = (0..ANTENNAS)
                .map(|antenna| {
                    let mut memory = recording(&simulator, antenna, late[antenna]);
                    let times = memory.header.times.unwrap();
                    memory.flags = flags(&mut random, memory.streams.len(), times);
                    memory
                })
                .collect();
            let mut options =
                CorrelateOptions { shortest: true, gulp: random.below(700), ..case.options() };
            if !is_tracking {
                options.phase_centre = PhaseCentre::Drift;
                options.cable_delays_s = Vec::new();
                options.gains = Gains::Fixed(0.5);
            }
            let what = format!("case {seed}, tracking {is_tracking}");
            let mut known = correlator(&recordings, &options, |source| source);
            let expected = integrations(&mut known);
            let mut arriving = correlator(&recordings, &options, Arriving::boxed);
            assert!(arriving.header().spectra > known.header().spectra);
            let found = integrations(&mut arriving);
            assert!(found == expected, "{what}");
            assert_eq!(arriving.header(), known.header(), "{what}");
            let steps = |correlator: &ArrayCorrelator| {
                let mut summary = correlator.summary();
                (summary.steps, summary.altitudes_deg) = Default::default();
                summary.lowest_altitude_deg = None;
                summary
            };
            assert_eq!(steps(&arriving), steps(&known), "{what}");
            let mut parts = correlator(&recordings, &options, Arriving::boxed);
            let (mut found, mut spectra) = (Vec::new(), 0);
            loop {
                parts.begin_part(2);
                let header: ArrayHeader = parts.part_header().unwrap();
                let seconds = header.start.seconds_since(&known.header().start);
                assert!((seconds - spectra as f64 * header.spectrum_s).abs() < 1e-9, "{what}");
                assert!(header.integrations <= 2);
                let part = integrations(&mut parts);
                let own: u64 = part.iter().map(|integration| integration.spectra).sum();
                assert_eq!((parts.summary().spectra, part.len() <= 2), (own, true), "{what}");
                spectra += own;
                if part.is_empty() {
                    break;
                }
                found.extend(part);
            }
            assert!(found == expected, "{what}, in parts");
        }
    }
}

/// Live source that is stopped: it gives the samples in hand, and then says so.
struct Stopped {
    source: Box<dyn VoltageSource>,
    left: usize,
}

impl VoltageSource for Stopped {
    fn header(&self) -> &VoltageHeader {
        self.source.header()
    }

    fn read(&mut self, block: &mut VoltageBlock) -> sidereal::Result<usize> {
        if self.left == 0 {
            return Err(Error::stopped("memory"));
        }
        let times = self.source.read(block)?.min(self.left);
        self.left -= times;
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> sidereal::Result<u64> {
        self.source.skip(times)
    }

    fn is_live(&self) -> bool {
        true
    }
}

#[test]
fn a_stop_is_no_end_of_the_observation() {
    let simulator = ArraySimulator::new(PLAIN.simulation()).unwrap();
    let recordings: Vec<Memory> =
        (0..ANTENNAS).map(|antenna| recording(&simulator, antenna, 0)).collect();
    let options =
        CorrelateOptions { phase_centre: PhaseCentre::Drift, gulp: 300, ..PLAIN.options() };
    let stopped = |source| -> Box<dyn VoltageSource> {
        Box::new(Stopped { source: Arriving::boxed(source), left: 100_000 })
    };
    let mut correlator = correlator(&recordings, &options, stopped);
    let (mut spectra, mut integration) = (0, Integration::new());
    let error = loop {
        match correlator.next_integration(&mut integration) {
            Ok(true) => spectra += integration.spectra,
            Ok(false) => panic!("the observation has not ended"),
            Err(error) => break error,
        }
    };
    assert!(error.is_stop(), "{error}");
    assert!(spectra > 2000, "{spectra}");
}
