//! From voltages to rows: frequencies, times, gaps, and the same bits for any split of reads.

use crate::support::memory;
use crate::support::rows;
use std::f64::consts::TAU;

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::channelize::{Feed, Products};
use sidereal::io::voltages::{Flag, VoltageHeader};
use sidereal::io::{FilterbankSource, Gap, Polarizations, sigproc};
use sidereal::pipeline::Ending;
use sidereal::pipeline::voltage::{
    ChannelizeOptions, Depth, Destination, VoltageFilterbank, write_filterbank,
};
use sidereal::voltage::VoltageEncoding;

use memory::{Memory, header, noise};
use rows::{open, read_all};

fn loudest(row: &[f32]) -> usize {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()
}

/// The voltage frequency of a sky frequency in a recorded channel.
fn in_voltages(header: &VoltageHeader, coarse: usize, sky_hz: f64) -> f64 {
    let sign = if header.lower_sideband { -1.0 } else { 1.0 };
    let edge = if header.encoding.is_complex() { 0.0 } else { 0.5 * header.channel_width_hz() };
    sign * (sky_hz - header.centres_hz[coarse]) + edge
}

/// Complex and real, both sidebands, one and several recorded channels in several orders.
fn recordings() -> Vec<VoltageHeader> {
    let mut headers = Vec::new();
    for encoding in [VoltageEncoding::ComplexF32, VoltageEncoding::RealF32] {
        let width = if encoding.is_complex() { 1.0 } else { 0.5 };
        for order in [&[0.0][..], &[2.0, 1.0, 0.0], &[0.0, 1.0, 2.0], &[1.0, 2.0, 0.0]] {
            let centres: Vec<f64> = order.iter().map(|place| 1400.0 + width * place).collect();
            for lower_sideband in [false, true] {
                headers.push(VoltageHeader { lower_sideband, ..header(&centres, encoding) });
            }
        }
    }
    headers
}

#[test]
fn a_tone_lands_in_the_channel_whose_centre_is_nearest() {
    for header in recordings() {
        for (ascending, average) in [(false, 1), (true, 1), (false, 2)] {
            let options = ChannelizeOptions {
                ascending,
                average_channels: average,
                ..ChannelizeOptions::new(8)
            };
            let silent = Memory::new(header.clone(), 256, |_, _| Complex::ZERO);
            let centres = open(&silent, &options).header().band.centres_hz().to_vec();
            let step = header.channel_width_hz() * average as f64 / 8.0;
            let sign = if ascending { 1.0 } else { -1.0 };
            for pair in centres.windows(2) {
                assert!((pair[1] - pair[0] - sign * step).abs() < 1e-3, "{header:?}");
            }
            for (channel, centre) in centres.iter().enumerate() {
                let mut coarse: Vec<usize> = (0..header.coarse_channels()).collect();
                coarse.sort_by(|a, b| {
                    (sign * header.centres_hz[*a]).total_cmp(&(sign * header.centres_hz[*b]))
                });
                let coarse = coarse[channel / (8 / average)];
                // Half of the power of the channel at the edge of a recorded band comes from the other edge.
                let inwards = (header.centres_hz[coarse] - centre).signum();
                let voltage_hz = in_voltages(&header, coarse, centre + 0.2 * step * inwards);
                let tone = |stream: usize, time: usize| {
                    let phase = TAU * voltage_hz * time as f64 * header.tsamp_s;
                    if stream == coarse { Complex::cis(phase) } else { Complex::ZERO }
                };
                let source = Memory::new(header.clone(), 256, tone);
                let mut filterbank = open(&source, &options);
                let rows = read_all(&mut filterbank, 100);
                for row in rows.chunks(centres.len()) {
                    assert_eq!(loudest(row), channel, "{header:?} {ascending} {average}");
                }
            }
        }
    }
}

#[test]
fn a_click_is_in_the_row_whose_time_covers_it() {
    for encoding in [VoltageEncoding::ComplexF32, VoltageEncoding::RealF32] {
        for (taps, integrate, oversampling) in [(1, 1, (1, 1)), (8, 1, (1, 1)), (4, 3, (4, 3))] {
            let taps_window = match taps {
                1 => sidereal::math::Window::Rectangular,
                _ => Default::default(),
            };
            let options = ChannelizeOptions {
                taps,
                window: taps_window,
                integrate,
                oversampling,
                ..ChannelizeOptions::new(16)
            };
            for click in [1000, 1003, 1519, 2222] {
                let value = |_, time| Complex::new(f64::from(u8::from(time == click)), 0.0);
                let header = header(&[1400.0], encoding);
                let source = Memory::new(header.clone(), 4000, value);
                let mut filterbank = open(&source, &options);
                let start = filterbank.header().tstart_mjd;
                let rows = read_all(&mut filterbank, 7);
                let power: Vec<f32> = rows.chunks(16).map(|row| row.iter().sum()).collect();
                let delay_s = filterbank.plan().delay_samples() * header.tsamp_s;
                assert!((start - header.start.plus_s(delay_s).mjd()).abs() < 1e-11);
                let time_s = (click as f64 + 0.5) * header.tsamp_s - delay_s;
                let row = (time_s / filterbank.header().tsamp_s) as usize;
                // At the exact edge of a row, the adjacent row has the same power.
                assert!(power[row] >= 0.999 * power[loudest(&power)], "{taps} {click}");
            }
        }
    }
}

#[test]
fn any_gulp_and_any_way_of_passing_over_give_the_same_bits() {
    for (oversampling, integrate) in [((1, 1), 1), ((4, 3), 5), ((1, 1), 64)] {
        let mut source = Memory::new(
            VoltageHeader {
                antennas: 2,
                polarizations: 2,
                ..header(&[1401.0, 1400.0], VoltageEncoding::Complex8)
            },
            60_000,
            |stream, time| noise(stream, time) * 100.0,
        );
        let flag = |start, times| Flag { streams: 1..2, start, times };
        source.flags =
            vec![flag(3_000, 900), flag(20_000, 5), flag(20_500, 5), flag(50_000, 3_000)];
        let options = ChannelizeOptions {
            oversampling,
            integrate,
            products: Products::Iquv,
            ..ChannelizeOptions::new(12)
        };
        let mut whole = open(&source, &options);
        let elements = whole.row_elements();
        assert_eq!(elements, 4 * 24);
        let expected = read_all(&mut whole, 10_000);
        let total = whole.header().times.unwrap();
        assert_eq!(expected.len() as u64, total * elements as u64);
        for (gulp, rows) in [(1, 1), (7, 100), (1000, 3), (12_345, 17)] {
            let mut filterbank = open(&source, &ChannelizeOptions { gulp, ..options.clone() });
            assert_eq!(read_all(&mut filterbank, rows), expected, "{gulp}");
        }
        for first in [0, 1, total / 30, total / 3, total / 2, total - 5] {
            let mut filterbank = open(&source, &ChannelizeOptions { gulp: 99, ..options.clone() });
            assert_eq!(filterbank.skip(first).unwrap(), first);
            let mut some = vec![0.0; 3 * elements];
            assert_eq!(filterbank.read_rows(&mut some).unwrap(), 3);
            assert_eq!(some, expected[first as usize * elements..][..3 * elements], "{first}");
            let rest = (total - first - 3) / 2;
            assert_eq!(filterbank.skip(rest).unwrap(), rest);
            let left = read_all(&mut filterbank, 50);
            assert_eq!(left, expected[(first + 3 + rest) as usize * elements..], "{first}");
            assert_eq!(filterbank.skip(5).unwrap(), 0);
        }
    }
}

#[test]
fn gaps_have_their_rows_and_are_filled() {
    let header = header(&[1400.0], VoltageEncoding::ComplexF32);
    let mut source = Memory::new(header, 8 * 2000, |stream, time| {
        let missing = time < 160 || (8000..8080).contains(&time);
        if missing { Complex::ZERO } else { noise(stream, time) }
    });
    let flag = |start, times| Flag { streams: 0..1, start, times };
    source.flags = vec![flag(0, 160), flag(8000, 80)];
    let options = ChannelizeOptions { taps: 4, ..ChannelizeOptions::new(8) };
    let mut filterbank = open(&source, &options);
    // A window of 4 rows of 8 samples touches a gap from 3 rows before it.
    let expected = [Gap { start_time: 0, times: 20 }, Gap { start_time: 997, times: 13 }];
    assert_eq!(filterbank.gaps(), expected);
    assert_eq!(filterbank.header().times, Some(1997));
    let rows = read_all(&mut filterbank, 31);
    // The mean of the means of 16 segments, without outliers.
    let level = |first: usize, times: usize, channel: usize| {
        let part = |k: usize| (k * times).div_ceil(16)..((k + 1) * times).div_ceil(16);
        let value = |t: usize| f64::from(rows[8 * (first + t) + channel]);
        let mean = |k: usize| part(k).map(value).sum::<f64>() / part(k).len() as f64;
        ((0..16).map(mean).sum::<f64>() / 16.0) as f32
    };
    for channel in 0..8 {
        // The rows between the gaps.
        let first = level(20, 977, channel);
        assert!((0..20).all(|time| rows[8 * time + channel] == first));
        // The rows before the last multiple of 256.
        let second = level(20, 768 - 20, channel);
        assert!((997..1010).all(|time| rows[8 * time + channel] == second));
    }
}

#[test]
fn a_part_of_the_time_and_one_antenna() {
    let header = VoltageHeader { antennas: 3, ..header(&[1400.0], VoltageEncoding::ComplexF32) };
    let source = Memory::new(header, 4000, noise);
    let options = ChannelizeOptions::new(8);
    let mut each = Vec::new();
    for antenna in 0..3 {
        let one = ChannelizeOptions { antenna: Some(antenna), ..options.clone() };
        each.push(read_all(&mut open(&source, &one), 50));
    }
    let sum: Vec<f32> = (0..each[0].len()).map(|k| each[0][k] + each[1][k] + each[2][k]).collect();
    assert_eq!(read_all(&mut open(&source, &options), 50), sum);
    let range = ChannelizeOptions { time_range: Some((800e-6, 1600e-6)), ..options.clone() };
    let mut part = open(&source, &range);
    let (all, start) = (open(&source, &options), part.header().tstart_mjd);
    assert!((start - all.header().tstart_mjd - 800e-6 / 86400.0).abs() < 1e-11);
    assert_eq!(part.header().times, Some(93));
    assert_eq!(read_all(&mut part, 10), sum[8 * 100..][..8 * 93]);
    let refused = |options: ChannelizeOptions| {
        let made = VoltageFilterbank::new(source.boxed(), &options, &Backend::best(1));
        made.unwrap_err().to_string()
    };
    let error = refused(ChannelizeOptions { antenna: Some(3), ..options.clone() });
    assert!(error.contains("channelize.antenna") && error.contains('3'), "{error}");
    for range in [(1.0, 2.0), (2e-3, 1e-3), (f64::NAN, 1.0), (-1.0, 1.0)] {
        let error = refused(ChannelizeOptions { time_range: Some(range), ..options.clone() });
        assert!(error.contains("time_range"), "{error}");
    }
    let error = refused(ChannelizeOptions { integrate: 1000, ..options.clone() });
    assert!(error.contains("8056 samples") && error.contains("4000"), "{error}");
    assert!(error.starts_with("integrate is 1000"), "{error}");
    let error = refused(ChannelizeOptions { channels: 1000, ..options.clone() });
    assert!(error.starts_with("taps is 8"), "{error}");
    let error = refused(ChannelizeOptions { channels: 8000, ..options.clone() });
    assert!(error.starts_with("channelize.channels is 8000"), "{error}");
    let error = refused(ChannelizeOptions { time_range: Some((0.0, 63e-6)), ..options });
    assert!(error.contains("time_range") && error.contains("64 samples"), "{error}");
}

#[test]
fn recorded_channels_that_overlap_are_refused() {
    let overlapping = |spacing: f64| {
        let header = header(&[1400.0 + spacing, 1400.0], VoltageEncoding::ComplexF32);
        let source = Memory::new(header, 4000, noise);
        let options = ChannelizeOptions::new(8);
        VoltageFilterbank::new(source.boxed(), &options, &Backend::best(1))
    };
    assert!(overlapping(0.9995).is_ok() && overlapping(1.5).is_ok());
    let error = overlapping(0.75).unwrap_err().to_string();
    assert!(error.contains("0.75") && error.contains("1.000000 MHz wide"), "{error}");
}

#[test]
fn a_search_takes_one_product() {
    let header = VoltageHeader { polarizations: 2, ..header(&[1400.0], VoltageEncoding::Complex8) };
    let source = Memory::new(header, 4000, |stream, time| noise(stream, time) * 50.0);
    let options = ChannelizeOptions::new(8);
    let stokes = ChannelizeOptions { products: Products::Iquv, ..options.clone() };
    let error = open(&source, &stokes).read(&mut [0; 320]).unwrap_err().to_string();
    assert!(error.contains("products") && error.contains("IQUV"), "{error}");
    let mut bytes = vec![0; 4 * 8 * 50 + 1];
    for offset in [0, 1] {
        let rows = &mut bytes[offset..][..4 * 8 * 50];
        assert_eq!(open(&source, &options).read(rows).unwrap(), 50);
        let intensity = read_all(&mut open(&source, &options), 50);
        let found = rows.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        assert!(found.eq(intensity[..400].iter().copied()));
    }
}

#[test]
fn rows_are_written_as_floats_and_as_counts() {
    let folder = tempfile::tempdir().unwrap();
    let header = VoltageHeader {
        polarizations: 2,
        ..header(&[1401.0, 1400.0], VoltageEncoding::ComplexF32)
    };
    let mut source = Memory::new(header.clone(), 40_000, noise);
    source.flags = vec![Flag { streams: 0..1, start: 0, times: 900 }];
    let options = ChannelizeOptions { products: Products::Iquv, ..ChannelizeOptions::new(8) };
    let mut filterbank = open(&source, &options);
    let expected = read_all(&mut filterbank, 1000);
    let elements = filterbank.row_elements();
    let mut files = Vec::new();
    for (name, depth) in [("a.fil", Depth::F32), ("b.fil", Depth::U8)] {
        let path = folder.path().join(name);
        let mut filterbank = open(&source, &options);
        let destination = Destination::File(&path);
        let report = write_filterbank(&mut filterbank, destination, depth, &mut |_| true).unwrap();
        assert!(report.ending.is_complete());
        assert_eq!((report.rows, report.gaps.len()), (4993, 1));
        assert_eq!(report.scaling.is_some(), depth == Depth::U8);
        files.push((path, report));
    }
    for number in 0..4 {
        let read = |path| sigproc::open(path, Polarizations::One(number)).unwrap();
        let rows = 4993 * 16;
        let mut floats = vec![0u8; 4 * rows];
        let mut reader = read(&files[0].0);
        assert_eq!(reader.header().band.centres_hz(), filterbank.header().band.centres_hz());
        assert_eq!(reader.header().tstart_mjd, filterbank.header().tstart_mjd);
        assert_eq!(reader.read(&mut floats).unwrap(), 4993);
        let mut counts = vec![0u8; rows];
        assert_eq!(read(&files[1].0).read(&mut counts).unwrap(), 4993);
        let scaling = files[1].1.scaling.as_ref().unwrap();
        for (time, row) in expected.chunks(elements).enumerate() {
            for channel in 0..16 {
                let element = number * 16 + channel;
                let place = time * 16 + channel;
                let float: [u8; 4] = floats[4 * place..][..4].try_into().unwrap();
                assert_eq!(f32::from_le_bytes(float), row[element]);
                let gain = scaling.gains[element];
                let back = scaling.means[element] + (f32::from(counts[place]) - 64.0) / gain;
                let limited = matches!(counts[place], 0 | 255);
                assert!(limited || (back - row[element]).abs() < 0.51 / gain);
            }
        }
    }
    // Longer than all blocks that are made before a stop: those are still written.
    let long = Memory::new(header, 1_000_000, noise);
    let mut filterbank = open(&long, &options);
    let path = folder.path().join("c.fil");
    let destination = Destination::File(&path);
    let report =
        write_filterbank(&mut filterbank, destination, Depth::F32, &mut |_| false).unwrap();
    assert!(matches!(report.ending, Ending::Stopped));
    assert!(report.rows > 0 && report.rows < 124_993 && path.exists());
}

#[test]
fn polarization_is_that_of_the_sky_in_either_sideband() {
    // On the sky X = 1 and Y = exp(i phase): X Y* = exp(-i phase).
    let (phase, points) = (0.7f64, 8);
    for (lower_sideband, feed, antennas) in [
        (false, Feed::Linear, 1),
        (true, Feed::Linear, 1),
        (false, Feed::Circular, 1),
        (true, Feed::Circular, 2),
    ] {
        let one = header(&[1400.0, 1401.0], VoltageEncoding::ComplexF32);
        let header = VoltageHeader { lower_sideband, polarizations: 2, antennas, ..one };
        let source = Memory::new(header, 512, |stream, time| {
            let turn = TAU * time as f64 / points as f64 + phase * (stream % 2) as f64;
            Complex::cis(if lower_sideband { -turn } else { turn })
        });
        for products in [Products::Iquv, Products::Aabbcrci] {
            let options =
                ChannelizeOptions { products, feed: Some(feed), ..ChannelizeOptions::new(points) };
            let rows = read_all(&mut open(&source, &options), 5);
            let channel = loudest(&rows[..2 * points]);
            let found: Vec<f64> =
                (0..4).map(|p| f64::from(rows[2 * points * p + channel])).collect();
            let (re, im) = (phase.cos(), -phase.sin());
            let expected = match (products, feed) {
                (Products::Aabbcrci, _) => [1.0, 1.0, re, im],
                (_, Feed::Linear) => [2.0, 0.0, 2.0 * re, 2.0 * im],
                (_, Feed::Circular) => [2.0, 2.0 * re, 2.0 * im, 0.0],
            };
            for (found, expected) in found.iter().zip(expected) {
                let expected = expected * antennas as f64;
                assert!((found - expected).abs() < 1e-5, "{lower_sideband} {feed:?}: {found}");
            }
        }
    }
}
