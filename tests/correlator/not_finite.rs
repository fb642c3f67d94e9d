//! Non-finite samples are invalid: they change counts, and not the scale.

use crate::support::array;
use crate::support::memory;
use num_complex::Complex;
use sidereal::io::voltages::{Flag, VoltageHeader};
use sidereal::pipeline::correlator::CorrelateOptions;
use sidereal::voltage::VoltageEncoding;

use array::{correlate, recording};
use memory::{Memory, noise};

/// Channels of a recorded channel, where there is a filter bank.
const CHANNELS: usize = 8;

const TIMES: usize = 6000;

/// Lost data of an antenna: streams, first sample, samples.
fn lost(antenna: usize) -> Vec<Flag> {
    let flag = |streams, start, times| Flag { streams, start, times };
    match antenna {
        // One polarization of one recorded channel, repeatedly.
        0 => (0..TIMES as u64 / 600).map(|k| flag(2..3, 600 * k + 77, 1 + k)).collect(),
        // All of the beginning, for longer than the gain measurement.
        1 => vec![flag(0..4, 0, 2500), flag(1..2, 2600, 1), flag(1..2, 2610, 1)],
        _ => Vec::new(),
    }
}

/// Recordings with other values in place of lost samples, flagged or not.
fn recordings(encoding: VoltageEncoding, value: f64, is_said: bool) -> Vec<Memory> {
    let known = memory::header(&[1400.0, 1401.0], encoding);
    let header = VoltageHeader { polarizations: 2, ..known };
    let antenna = |antenna: usize| {
        let lost = lost(antenna);
        let is_lost = |stream: usize, time: usize| {
            lost.iter().any(|flag| {
                let times = flag.start..flag.start + flag.times;
                flag.streams.contains(&stream) && times.contains(&(time as u64))
            })
        };
        let mut memory =
            recording(&header, antenna, TIMES, |stream, time| match is_lost(stream, time) {
                true => Complex::new(value, 0.0),
                false => (noise(stream, time) + noise(10 * antenna + stream, time)) * 0.1,
            });
        if is_said {
            memory.flags = lost;
        }
        memory
    };
    (0..3).map(antenna).collect()
}

#[test]
fn they_count_as_flagged() {
    use VoltageEncoding::{ComplexF32, RealF32};
    for (encoding, channelize, nbits) in
        [(ComplexF32, false, 32), (ComplexF32, true, 32), (ComplexF32, true, 8), (RealF32, true, 8)]
    {
        for (threads, gulp) in [(1, 0), (2, 30), (3, 256)] {
            let options = CorrelateOptions {
                channelize: Some(channelize),
                integration_s: 1e-3,
                nbits,
                gulp,
                ..CorrelateOptions::new(CHANNELS)
            };
            let (flagged, expected) = correlate(&recordings(encoding, 0.0, true), &options, 1);
            assert_eq!(flagged.summary().not_finite, 0);
            for value in [f64::NAN, f64::INFINITY] {
                let spoilt = recordings(encoding, value, false);
                let (correlator, found) = correlate(&spoilt, &options, threads);
                let what = format!("{encoding:?} {channelize} {nbits} {threads} {gulp} {value}");
                for (a, b) in found.iter().zip(&expected) {
                    assert_eq!(a.counts, b.counts, "{what}");
                    assert!(a.sums == b.sums, "{what}");
                }
                let (own, theirs) = (correlator.summary(), flagged.summary());
                assert_eq!(own.not_finite, 55 + 4 * 2500 + 2);
                for (a, b) in own.antennas.iter().zip(&theirs.antennas) {
                    assert_eq!(a.masked, b.masked, "{what} {}", a.name);
                }
                assert!(own.antennas[1].masked > 0.4 && own.antennas[2].masked == 0.0);
            }
        }
    }
}
