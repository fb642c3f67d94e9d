//! Samples of any encoding, and antennas of different encodings, give the same visibilities for the same numbers;
//! non-finite samples are invalid: they change counts, and not the scale.

use array::{correlate, drain, inputs, polynomial, recording};
use memory::{Memory, noise};
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::io::voltages::{Flag, VoltageHeader};
use sidereal::pipeline::correlator::{ArrayCorrelator, CorrelateOptions, Gains, Integration};
use sidereal::voltage::{TWO_BIT_HIGH, VoltageEncoding};

use crate::support::{array, memory};

const TIMES: usize = 6000;

/// A sample of few values.
fn value(antenna: usize, stream: usize, time: usize) -> Complex<f64> {
    let z = noise(10 * antenna + stream, time);
    let level = |x: f64| match x.abs() < 0.6 {
        true => x.signum(),
        false => x.signum() * f64::from(TWO_BIT_HIGH),
    };
    Complex::new(level(z.re), level(z.im))
}

/// The same numbers, in 2 bits.
fn packed(memory: &Memory) -> Memory {
    let code = |bytes: &[u8]| {
        let x = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        [-TWO_BIT_HIGH, -1.0, 1.0, TWO_BIT_HIGH].iter().position(|level| *level == x).unwrap() as u8
    };
    let row = |row: &Vec<u8>| {
        let codes: Vec<u8> = row.chunks_exact(4).map(code).collect();
        codes
            .chunks_exact(4)
            .map(|four| four.iter().rev().fold(0, |sum, own| sum << 2 | own))
            .collect()
    };
    let mut other = memory.clone();
    other.header.encoding = VoltageEncoding::Real2;
    other.streams = memory.streams.iter().map(row).collect();
    other
}

/// Whole numbers in 8 bits, and in 4.
fn nibbles(memory: &Memory, encoding: VoltageEncoding) -> Memory {
    let pair = |pair: &[u8]| match encoding {
        VoltageEncoding::Complex4 => pair[0] << 4 | pair[1] & 15,
        _ => pair[1] << 4 | pair[0] & 15,
    };
    let mut other = memory.clone();
    other.header.encoding = encoding;
    let row = |row: &Vec<u8>| row.chunks_exact(2).map(pair).collect();
    other.streams = memory.streams.iter().map(row).collect();
    other
}

fn run(recordings: &[Memory], delayed: bool, options: &CorrelateOptions) -> Vec<Integration> {
    let (array, backend) = (array::array(recordings.len()), Backend::best(2));
    let tsamp_s = recordings[0].header.tsamp_s;
    let start = recordings[0].header.start;
    let delays: Vec<_> = (0..recordings.len())
        .map(|antenna| polynomial(start, &[1.7 * antenna as f64 * tsamp_s, 3e-4]))
        .collect();
    let inputs = inputs(recordings);
    let correlator = match delayed {
        true => ArrayCorrelator::with_delays(&array, inputs, &delays, options, &backend),
        false => ArrayCorrelator::new(&array, inputs, options, &backend),
    };
    drain(&mut correlator.unwrap())
}

fn options() -> CorrelateOptions {
    CorrelateOptions { integration_s: 1e-3, ..CorrelateOptions::new(16) }
}

fn recordings(encoding: VoltageEncoding, scale: f64) -> Vec<Memory> {
    let header = VoltageHeader { polarizations: 2, ..memory::header(&[20.0, 21.0], encoding) };
    let own = |antenna| {
        recording(&header, antenna, TIMES, |stream, time| value(antenna, stream, time) * scale)
    };
    (0..3).map(own).collect()
}

#[test]
fn two_bits_are_their_levels() {
    let floats = recordings(VoltageEncoding::RealF32, 1.0);
    let bits: Vec<Memory> = floats.iter().map(packed).collect();
    for delayed in [false, true] {
        let expected = run(&floats, delayed, &options());
        assert!(run(&bits, delayed, &options()) == expected, "{delayed}");
        let mixed = vec![floats[0].clone(), bits[1].clone(), floats[2].clone()];
        assert!(run(&mixed, delayed, &options()) == expected, "{delayed}");
    }
}

#[test]
fn four_bits_are_their_numbers() {
    use VoltageEncoding::{Complex4, Complex8, Real4, Real8};
    for (wide, narrow) in [(Real8, Real4), (Complex8, Complex4)] {
        let bytes = recordings(wide, 2.0);
        let half: Vec<Memory> = bytes.iter().map(|memory| nibbles(memory, narrow)).collect();
        for delayed in [false, true] {
            let expected = run(&bytes, delayed, &options());
            assert!(run(&half, delayed, &options()) == expected, "{wide:?} {delayed}");
            let mixed = vec![half[0].clone(), bytes[1].clone(), half[2].clone()];
            assert!(run(&mixed, delayed, &options()) == expected, "{wide:?} {delayed}");
        }
    }
}

#[test]
fn ten_bits_are_their_numbers() {
    let wide = recordings(VoltageEncoding::Real16, 100.0);
    let packed: Vec<Memory> = wide
        .iter()
        .map(|memory| {
            let short = |bytes: &[u8]| i16::from_le_bytes([bytes[0], bytes[1]]);
            let row = |row: &Vec<u8>| {
                let samples: Vec<i16> = row.chunks_exact(2).map(short).collect();
                samples.chunks_exact(4).flat_map(memory::ten_bits).collect()
            };
            let mut packed = memory.clone();
            packed.header.encoding = VoltageEncoding::Real10;
            packed.streams = memory.streams.iter().map(row).collect();
            packed
        })
        .collect();
    for delayed in [false, true] {
        let expected = run(&wide, delayed, &options());
        assert!(run(&packed, delayed, &options()) == expected, "{delayed}");
        let mixed = vec![packed[0].clone(), wide[1].clone(), packed[2].clone()];
        assert!(run(&mixed, delayed, &options()) == expected, "{delayed}");
    }
}

#[test]
fn antennas_of_unlike_encoding_are_not_taken_as_recorded_but_agree() {
    let bytes = recordings(VoltageEncoding::Complex8, 2.0);
    let mixed =
        vec![bytes[0].clone(), nibbles(&bytes[1], VoltageEncoding::Complex4), bytes[2].clone()];
    let recorded = CorrelateOptions { channelize: Some(false), ..options() };
    let exact = run(&bytes, false, &recorded);
    let fixed = CorrelateOptions { gains: Gains::Fixed(1.0), ..recorded };
    assert!(run(&mixed, false, &fixed) == exact);
}

#[test]
fn the_reference_agrees() {
    let recordings = recordings(VoltageEncoding::Complex8, 10.0);
    let array = array::array(3);
    let start = recordings[0].header.start;
    let delays = [1.3e-6, -4.6e-6, 0.0].map(|delay| polynomial(start, &[delay, 2e-4]));
    let options = CorrelateOptions { nbits: 32, ..options() };
    let all = [Backend::Reference, Backend::best(2)].map(|backend| {
        let inputs = inputs(&recordings);
        let made = ArrayCorrelator::with_delays(&array, inputs, &delays, &options, &backend);
        drain(&mut made.unwrap())
    });
    for (a, b) in all[0].iter().zip(&all[1]) {
        assert_eq!(a.counts, b.counts);
        let largest = a.sums.iter().map(|z| z.norm()).fold(0.0, f64::max);
        assert!(a.sums.iter().zip(&b.sums).all(|(x, y)| (x - y).norm() < 1e-5 * largest));
    }
}

#[test]
fn numbers_that_are_not_finite_are_counted() {
    let mut floats = recordings(VoltageEncoding::ComplexF32, 1.0);
    floats[1].streams[0][800..804].copy_from_slice(&f32::NAN.to_le_bytes());
    let array = array::array(3);
    let made = ArrayCorrelator::new(&array, inputs(&floats), &options(), &Backend::best(1));
    let mut correlator = made.unwrap();
    let all = drain(&mut correlator);
    assert!(all.iter().all(|own| own.sums.iter().all(|z| z.re.is_finite() && z.im.is_finite())));
    assert_eq!(correlator.summary().not_finite, 1);
}

#[test]
fn antennas_of_one_file_far_apart_keep_their_samples_in_small_gulps() {
    // The second antenna joins the recording long after the first.
    let header = VoltageHeader {
        antennas: 2,
        path: "A0.dada".into(),
        ..memory::header(&[20.0], VoltageEncoding::Complex8)
    };
    let one = Memory::new(header, TIMES, |stream, time| noise(stream, time) * 50.0);
    let start = one.header.start;
    let delays = [polynomial(start, &[900e-6]), polynomial(start, &[-900e-6])];
    let array = array::array(2);
    let run = |gulp| {
        let antennas = vec![array::name(0), array::name(1)];
        let input = sidereal::pipeline::correlator::ArrayInput { antennas, source: one.boxed() };
        let options = CorrelateOptions { gulp, ..options() };
        let backend = Backend::best(1);
        let made = ArrayCorrelator::with_delays(&array, vec![input], &delays, &options, &backend);
        drain(&mut made.unwrap())
    };
    let whole = run(0);
    assert!(run(1) == whole && run(10) == whole);
    assert!(whole[2].counts.iter().all(|count| *count > 0));
}

/// Channels of a recorded channel, where there is a filter bank.
const CHANNELS: usize = 8;

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
fn marked_recordings(encoding: VoltageEncoding, value: f64, is_said: bool) -> Vec<Memory> {
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
            let (flagged, expected) =
                correlate(&marked_recordings(encoding, 0.0, true), &options, 1);
            assert_eq!(flagged.summary().not_finite, 0);
            for value in [f64::NAN, f64::INFINITY] {
                let spoilt = marked_recordings(encoding, value, false);
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
