//! Simulated voltages: the same bytes for any split of reads; noise, tones, gaps and faults.

use std::f64::consts::TAU;

use num_complex::Complex;
use sidereal::Error;
use sidereal::backend::threads::Threads;
use sidereal::io::voltages::{Flag, VoltageSource};
use sidereal::math::normal::cumulative;
use sidereal::simulate::voltages::{Options, Pulse, Tone, VoltageSimulator};
use sidereal::voltage::{TWO_BIT_HIGH, VoltageBlock, VoltageEncoding};

/// The whole recording in one block.
fn record(options: Options) -> VoltageBlock<'static> {
    let mut simulator = VoltageSimulator::new(options).unwrap();
    let mut block = simulator.header().block(simulator.header().times.unwrap() as usize);
    assert_eq!(simulator.read(&mut block).unwrap() as u64, simulator.header().times.unwrap());
    block
}

/// One stream's values.
fn stream(block: &VoltageBlock, stream: usize) -> Vec<Complex<f64>> {
    let voltages = block.voltages();
    (0..voltages.times()).map(|n| voltages.value(stream, n)).collect()
}

/// Rows of bytes read in blocks of the given lengths, cyclically; 0 skips 4 samples.
fn bytes_in_blocks(options: &Options, lengths: &[usize], threads: usize) -> Vec<Vec<u8>> {
    let mut simulator = VoltageSimulator::new(options.clone()).unwrap();
    simulator = simulator.with_threads(Threads::new(threads));
    let mut rows = vec![Vec::new(); options.streams()];
    let largest = lengths.iter().max().unwrap();
    for length in lengths.iter().cycle() {
        if *length == 0 {
            let times = simulator.skip(4).unwrap() as usize;
            let bytes = options.encoding.bytes(times);
            rows.iter_mut().for_each(|row| row.extend(std::iter::repeat_n(0xee, bytes)));
            continue;
        }
        let mut block = simulator.header().block(*length.min(largest));
        block.rows_mut().for_each(|row| row.fill(0xa5));
        if simulator.read(&mut block).unwrap() == 0 {
            break;
        }
        let voltages = block.voltages();
        rows.iter_mut().enumerate().for_each(|(s, row)| row.extend_from_slice(voltages.row(s)));
    }
    rows
}

#[test]
fn bytes_depend_on_neither_blocks_nor_threads() {
    for (number, encoding) in VoltageEncoding::ALL.into_iter().enumerate() {
        let mut options = Options::new(400e6, 2e6, 2, 150_000).encoding(encoding);
        if number % 2 == 1 {
            options = options.lower_sideband();
        }
        options.antennas = 2;
        options.seed = number as u64;
        options.tones = vec![Tone::new(399.7e6, 0.5)];
        options.pulses = vec![Pulse::new(10.0, 0.02, 1e-3, 40.0), Pulse::impulse(3.0, 0.03, 20.0)];
        options.gaps = vec![(70_000, 4000), (4, 8)];
        let whole = bytes_in_blocks(&options, &[150_000], 1);
        assert_eq!(whole.len(), 8);
        for (lengths, threads) in [(&[150_000][..], 3), (&[4, 9000, 1024, 68], 1)] {
            assert!(bytes_in_blocks(&options, lengths, threads) == whole, "{encoding:?}");
        }
        let skipped = bytes_in_blocks(&options, &[40_000, 0], 2);
        for (row, skipped) in whole.iter().zip(&skipped) {
            let differ = row.iter().zip(skipped).filter(|(a, b)| a != b && **b != 0xee).count();
            assert_eq!((row.len(), differ), (skipped.len(), 0), "{encoding:?}");
        }
    }
}

/// Mean square of Gaussian noise that is stored as the nearest level.
fn stored_square(encoding: VoltageEncoding, rms: f64) -> f64 {
    let high = f64::from(TWO_BIT_HIGH);
    let levels: Vec<f64> = match encoding.bits() {
        2 => vec![-high, -1.0, 1.0, high],
        4 => (-8..8).map(f64::from).collect(),
        8 => (-128..128).map(f64::from).collect(),
        16 => return rms * rms + 1.0 / 12.0,
        _ => return rms * rms,
    };
    let below = |i: usize| match i {
        0 => 0.0,
        i if i == levels.len() => 1.0,
        i => cumulative(0.5 * (levels[i - 1] + levels[i]) / rms),
    };
    levels.iter().enumerate().map(|(i, level)| level * level * (below(i + 1) - below(i))).sum()
}

#[test]
fn noise_has_its_rms_and_streams_are_independent() {
    for encoding in VoltageEncoding::ALL {
        let mut options = Options::new(1400e6, 8e6, 2, 40_000).encoding(encoding);
        options.antennas = 2;
        let block = record(options.clone());
        let streams: Vec<Vec<Complex<f64>>> = (0..8).map(|s| stream(&block, s)).collect();
        let numbers = if encoding.is_complex() { 2.0 } else { 1.0 };
        let expected = stored_square(encoding, options.rms);
        for (a, x) in streams.iter().enumerate() {
            let power = x.iter().map(Complex::norm_sqr).sum::<f64>() / (40e3 * numbers);
            assert!((power / expected - 1.0).abs() < 0.03, "{encoding:?} {power} {expected}");
            let mean = x.iter().sum::<Complex<f64>>().norm() / 40e3;
            assert!(mean < 0.02 * options.rms, "{encoding:?} {mean}");
            for y in &streams[..a] {
                let cross = |lag: usize| {
                    let products = x[lag..].iter().zip(y).map(|(x, y)| x * y.conj());
                    products.sum::<Complex<f64>>().norm() / (40e3 * numbers * power)
                };
                assert!((0..4).all(|lag| cross(lag) < 0.025), "{encoding:?} {a}");
            }
            let lagged = |lag: usize| {
                let products = x[lag..].iter().zip(x).map(|(x, y)| x * y.conj());
                products.sum::<Complex<f64>>().norm() / (40e3 * numbers * power)
            };
            assert!((1..6).all(|lag| lagged(lag) < 0.025), "{encoding:?} {a}");
        }
        let other = record(Options { seed: 1, ..options });
        assert!(other.voltages().row(0) != block.voltages().row(0));
    }
}

/// Amplitude and phase of a frequency in cycles a sample.
fn component(x: &[Complex<f64>], cycles: f64) -> Complex<f64> {
    let turn = |n: usize| Complex::cis(-TAU * (cycles * n as f64).fract());
    x.iter().enumerate().map(|(n, x)| x * turn(n)).sum::<Complex<f64>>() / x.len() as f64
}

#[test]
fn a_tone_lies_at_its_sky_frequency() {
    for (encoding, lower) in [
        (VoltageEncoding::ComplexF32, false),
        (VoltageEncoding::ComplexF32, true),
        (VoltageEncoding::RealF32, false),
        (VoltageEncoding::RealF32, true),
    ] {
        let mut options = Options::new(150e6, 4e6, 4, 1 << 16).encoding(encoding);
        if lower {
            options = options.lower_sideband();
        }
        let tone = Tone { second_ratio: 0.5, second_phase_rad: 0.7, ..Tone::new(149.2e6, 3.0) };
        options.tones = vec![Tone { phase_rad: 1.1, ..tone }];
        options.noise = false;
        options.rms = 2.0;
        // Channels of 1 MHz: 149.2 MHz lies in the one around 149.5 MHz.
        let channel = if lower { 2 } else { 1 };
        assert_eq!(options.centres_hz[channel], 149.5e6);
        let complex = encoding.is_complex();
        let zero = match (complex, lower) {
            (true, _) => 149.5e6,
            (false, false) => 149.0e6,
            (false, true) => 150.0e6,
        };
        let sign = if lower { -1.0 } else { 1.0 };
        let cycles = sign * (149.2e6 - zero) * options.tsamp_s();
        let block = record(options);
        // A cosine has half its amplitude at each of two frequencies.
        let amplitude = if complex { 6.0 } else { 3.0 };
        for (polarization, (ratio, phase)) in [(1.0, 1.1), (0.5, 1.8)].into_iter().enumerate() {
            let expected = Complex::from_polar(amplitude * ratio, sign * phase);
            let found = component(&stream(&block, 2 * channel + polarization), cycles);
            assert!((found - expected).norm() < 1e-3, "{encoding:?} {lower} {found} {expected}");
        }
        let other = stream(&block, 2 * ((channel + 1) % 4));
        assert!(other.iter().all(|x| x.norm_sqr() == 0.0));
    }
}

#[test]
fn gaps_are_flagged_and_zero() {
    for encoding in VoltageEncoding::ALL {
        let mut options = Options::new(1400e6, 1e6, 1, 4096).encoding(encoding);
        options.gaps = vec![(2000, 100), (8, 16)];
        let whole = record(Options { gaps: Vec::new(), ..options.clone() });
        let block = record(options.clone());
        let simulator = VoltageSimulator::new(options).unwrap();
        let flag = |start, times| Flag { streams: 0..2, start, times };
        assert_eq!(simulator.flags(), [flag(8, 16), flag(2000, 100)]);
        for stream in 0..2 {
            let (row, full) = (block.voltages().row(stream), whole.voltages().row(stream));
            let zero = |from, to| {
                let bytes = encoding.bytes(from)..encoding.bytes(to);
                row[bytes].iter().all(|byte| *byte == encoding.zero_byte())
            };
            assert!(zero(8, 24) && zero(2000, 2100), "{encoding:?}");
            let rest = encoding.bytes(24)..encoding.bytes(2000);
            assert_eq!(row[rest.clone()], full[rest]);
            assert_eq!(row[encoding.bytes(2100)..], full[encoding.bytes(2100)..]);
        }
    }
}

#[test]
fn what_cannot_be_made_is_an_error() {
    let fault = |change: fn(&mut Options)| {
        let mut options = Options::new(1400e6, 400e6, 1, 1 << 30);
        change(&mut options);
        match VoltageSimulator::new(options) {
            Err(Error::Parameter { name, rule, .. }) => format!("{name}: {rule}"),
            other => panic!("{other:?}"),
        }
    };
    let long = fault(|o| o.pulses = vec![Pulse::new(3000.0, 0.1, 1e-3, 20.0)]);
    assert!(long.contains("dm of a pulse") && long.contains("GiB"), "{long}");
    let many = fault(|o| o.pulses = vec![Pulse::new(200.0, 0.1, 1e-3, 20.0); 30]);
    assert!(many.contains("fewer pulses at a time"), "{many}");
    let tone = fault(|o| o.tones = vec![Tone::new(1700e6, 1.0)]);
    assert!(tone.contains("recorded channels"), "{tone}");
    let mut simulator = VoltageSimulator::new(Options::new(1400e6, 1e6, 2, 100)).unwrap();
    let mut block = VoltageBlock::new(VoltageEncoding::Complex8, 3, 100);
    assert!(simulator.read(&mut block).is_err());
    let mut block = VoltageBlock::new(VoltageEncoding::Real8, 4, 100);
    assert!(simulator.read(&mut block).is_err());
}
