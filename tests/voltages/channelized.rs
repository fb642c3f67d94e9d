//! Channelized voltages as integers have the power, frequencies, times and flags of the rows of a filterbank of the
//! same recording.

use crate::support::memory;
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::channelize::Products;
use sidereal::io::FilterbankSource;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::pipeline::voltage::{
    ChannelizeOptions, ChannelizedVoltages, Gains, Requantization, VoltageFilterbank,
};
use sidereal::voltage::VoltageEncoding;

use memory::{Memory, header, noise};

const TIMES: usize = 12_000;

fn recording(header: VoltageHeader) -> Memory {
    // Recorded channels and times of different power.
    let polarizations = header.polarizations;
    Memory::new(header, TIMES, |stream, time| {
        noise(stream, time) * (1.0 + (stream / polarizations % 3) as f64) * 10.0
    })
}

fn open(
    source: &Memory,
    options: &ChannelizeOptions,
    requantization: &Requantization,
) -> ChannelizedVoltages {
    let backend = Backend::best(2);
    ChannelizedVoltages::new(source.boxed(), options, requantization, &backend).unwrap()
}

fn automatic(bits: usize) -> Requantization {
    Requantization { bits, gains: Gains::Automatic }
}

/// Every stream's samples, read `gulp` at a time.
fn read_all(voltages: &mut ChannelizedVoltages, gulp: usize) -> Vec<Vec<Complex<f64>>> {
    let mut block = voltages.header().block(gulp);
    let mut streams = vec![Vec::new(); voltages.header().streams()];
    loop {
        let times = voltages.read(&mut block).unwrap();
        for (index, stream) in streams.iter_mut().enumerate() {
            stream.extend((0..times).map(|time| block.voltages().value(index, time)));
        }
        if times < gulp {
            return streams;
        }
    }
}

fn recordings() -> Vec<VoltageHeader> {
    let mut headers = Vec::new();
    for encoding in [VoltageEncoding::Complex8, VoltageEncoding::RealF32] {
        for centres in [&[1400.0][..], &[1402.0, 1401.0, 1400.0], &[1401.0, 1402.0, 1400.0]] {
            for lower_sideband in [false, true] {
                let header = header(centres, encoding);
                headers.push(VoltageHeader {
                    lower_sideband,
                    antennas: 2,
                    polarizations: 2,
                    ..header
                });
            }
        }
    }
    headers
}

#[test]
fn integers_have_the_power_of_a_filterbank_of_the_same() {
    for header in recordings() {
        let source = recording(header.clone());
        for coherent_dm in [None, Some(200.0)] {
            let options = ChannelizeOptions {
                coherent_dm,
                products: Products::Power,
                ascending: !header.lower_sideband,
                ..ChannelizeOptions::new(8)
            };
            let mut voltages = open(&source, &options, &automatic(8));
            let streams = read_all(&mut voltages, 100);
            let gains = voltages.gains().to_vec();
            for antenna in 0..2 {
                let one = ChannelizeOptions { antenna: Some(antenna), ..options.clone() };
                let mut filterbank =
                    VoltageFilterbank::new(source.boxed(), &one, &Backend::best(1)).unwrap();
                let fil = filterbank.header().clone();
                let made = voltages.header();
                assert_eq!(made.centres_hz, fil.band.centres_hz());
                assert_eq!((made.tsamp_s, made.times), (fil.tsamp_s, fil.times));
                assert!((made.start.mjd() - fil.tstart_mjd).abs() < 1e-11);
                let rows = fil.times.unwrap() as usize;
                let mut powers = vec![0.0; rows * filterbank.row_elements()];
                assert_eq!(filterbank.read_rows(&mut powers).unwrap(), rows);
                let channels = made.coarse_channels();
                for stream in 0..2 * channels {
                    let (channel, polarization) = (stream / 2, stream % 2);
                    let found = &streams[2 * antenna * channels + stream];
                    for (time, z) in found.iter().enumerate() {
                        let element = polarization * channels + channel;
                        let power = f64::from(powers[2 * time * channels + element]);
                        let amplitude = power.sqrt() * f64::from(gains[channel]);
                        // Rounding moves each part by half a count at most.
                        assert!((z.norm() - amplitude).abs() < 0.708, "{header:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn automatic_gains_give_their_deviation_and_limit_little() {
    for (bits, target) in [(8, 20.0), (4, 2.8)] {
        let source = recording(header(&[1401.0, 1400.0], VoltageEncoding::Complex8));
        let options = ChannelizeOptions::new(8);
        let mut voltages = open(&source, &options, &automatic(bits));
        let streams = read_all(&mut voltages, 1000);
        assert_eq!(voltages.header().encoding.bits(), bits);
        let mut limited = 0;
        for stream in &streams {
            let power: f64 = stream.iter().map(Complex::norm_sqr).sum();
            let deviation = (0.5 * power / stream.len() as f64).sqrt();
            assert!((deviation - target).abs() < 0.06 * target, "{bits} {deviation}");
            let edge = |x: f64| x >= f64::from((1 << (bits - 1)) - 1);
            limited += stream.iter().filter(|z| edge(z.re.abs()) || edge(z.im.abs())).count();
        }
        let saturated: u64 = voltages.saturated().iter().sum();
        assert!(saturated <= limited as u64);
        assert!(if bits == 8 { saturated == 0 } else { saturated > 0 });
    }
}

#[test]
fn automatic_gains_are_those_of_spectra_that_are_not_flagged() {
    let header = header(&[1401.0, 1400.0], VoltageEncoding::ComplexF32);
    let mut source = Memory::new(header, TIMES, |stream, time| {
        noise(stream, time) * if time < 9000 { 0.0 } else { 10.0 }
    });
    // The filter bank measures the first 8248 samples, or those after the samples that all streams lack.
    source.flags = vec![Flag { streams: 0..2, start: 0, times: 9000 }];
    let options = ChannelizeOptions::new(8);
    let mut voltages = open(&source, &options, &automatic(8));
    let gains = voltages.gains().to_vec();
    let streams = read_all(&mut voltages, 100);
    for stream in &streams {
        assert!(stream[..1100].iter().all(|z| *z == Complex::ZERO));
        let power = stream[1125..].iter().map(|z| z.norm_sqr()).sum::<f64>();
        let deviation = (0.5 * power / (stream.len() - 1125) as f64).sqrt();
        assert!((deviation - 20.0).abs() < 2.0, "{deviation}");
    }
    let given = Requantization { bits: 8, gains: Gains::Given(gains.clone()) };
    assert!(read_all(&mut open(&source, &options, &given), 333) == streams);
    for first in [5, 1030, 1110, 1200] {
        let mut voltages = open(&source, &options, &automatic(8));
        assert_eq!(voltages.skip(first).unwrap(), first);
        let rest = read_all(&mut voltages, 77);
        assert!(rest.iter().zip(&streams).all(|(rest, all)| *rest == all[first as usize..]));
    }
    // A recorded channel without valid data takes the median of the other.
    source.flags = vec![Flag { streams: 0..1, start: 0, times: 9000 }];
    source.streams[1] = source.streams[1][8 * 9000..].repeat(4);
    let gains = open(&source, &options, &automatic(8)).gains().to_vec();
    let mut known = gains[..8].to_vec();
    known.sort_by(f32::total_cmp);
    assert!(gains[8..].iter().all(|gain| *gain == known[4]), "{gains:?}");
}

#[test]
fn limiting_is_counted_for_each_stream() {
    let source = recording(header(&[1400.0], VoltageEncoding::Complex8));
    let mut gains = vec![1.0; 8];
    gains[2] = 1e6;
    let requantization = Requantization { bits: 8, gains: Gains::Given(gains) };
    let mut voltages = open(&source, &ChannelizeOptions::new(8), &requantization);
    let times = read_all(&mut voltages, 10)[0].len() as u64;
    let saturated = voltages.saturated();
    assert!(saturated[2] >= times - 1);
    assert_eq!(saturated.iter().sum::<u64>(), saturated[2]);
    let short = Requantization { bits: 8, gains: Gains::Given(vec![1.0; 7]) };
    let made = ChannelizedVoltages::new(
        source.boxed(),
        &ChannelizeOptions::new(8),
        &short,
        &Backend::best(1),
    );
    assert!(made.unwrap_err().to_string().contains("gains"));
}

/// Deviation, in counts, at which requantized Gaussian noise is closest to the original.
#[test]
fn four_bits_lose_least_near_a_deviation_of_2_8() {
    let error = |deviation: f64| {
        let step = 1e-3;
        let terms = (-6000..6000).map(|k| {
            let x = f64::from(k) * step;
            let found = (x * deviation).round().clamp(-8.0, 7.0) / deviation;
            (x - found).powi(2) * (-0.5 * x * x).exp() * step
        });
        terms.sum::<f64>() / std::f64::consts::TAU.sqrt()
    };
    let best = (200..400)
        .min_by(|a, b| error(f64::from(*a) / 100.0).total_cmp(&error(f64::from(*b) / 100.0)));
    let best = f64::from(best.unwrap()) / 100.0;
    assert!(error(2.8) < 1.03 * error(best) && error(2.8) < 0.0125, "{best} {}", error(2.8));
    assert!(error(2.3) > 1.1 * error(best) && error(3.6) > 1.1 * error(best));
}

#[test]
fn flags_carry_over_and_flagged_samples_are_zero() {
    let header = VoltageHeader {
        antennas: 2,
        polarizations: 2,
        ..header(&[1400.0, 1401.0, 1402.0], VoltageEncoding::Complex8)
    };
    let mut source = recording(VoltageHeader { lower_sideband: true, ..header });
    let flag = |streams, start, times| Flag { streams, start, times };
    source.flags = vec![flag(0..12, 0, 100), flag(8..9, 4000, 80), flag(8..9, 4080, 8)];
    let options = ChannelizeOptions { taps: 4, ..ChannelizeOptions::new(8) };
    let mut voltages = open(&source, &options, &automatic(8));
    // The channels of a lower sideband descend: the middle one of the second antenna stays the middle one.
    let streams = 2 * 24 + 16..2 * 24 + 32;
    let expected = [flag(0..96, 0, 13), flag(streams.clone(), 497, 14)];
    assert_eq!(voltages.flags(), expected);
    let read = read_all(&mut voltages, 77);
    let is_zero = |stream: usize, time: usize| read[stream][time] == Complex::ZERO;
    for stream in 0..96 {
        assert!((0..13).all(|time| is_zero(stream, time)));
        let zeros = (490..520).filter(|time| is_zero(stream, *time)).count();
        assert!(if streams.contains(&stream) { zeros >= 14 } else { zeros < 3 }, "{stream}");
        assert!(!streams.contains(&stream) || (497..511).all(|time| is_zero(stream, time)));
    }
}

#[test]
fn bits_do_not_depend_on_gulp_or_on_what_is_passed_over() {
    let source = recording(VoltageHeader {
        polarizations: 2,
        ..header(&[1400.0, 1401.0], VoltageEncoding::Complex8)
    });
    let options = ChannelizeOptions { oversampling: (4, 3), ..ChannelizeOptions::new(12) };
    for requantization in [automatic(4), automatic(8)] {
        let expected = read_all(&mut open(&source, &options, &requantization), 1000);
        for (gulp, times) in [(1, 100), (97, 7), (5000, 3)] {
            let options = ChannelizeOptions { gulp, ..options.clone() };
            assert_eq!(read_all(&mut open(&source, &options, &requantization), times), expected);
        }
        let total = expected[0].len();
        for first in [1, 100, 700, 1100, total - 1] {
            let mut voltages = open(&source, &options, &requantization);
            assert_eq!(voltages.skip(first as u64).unwrap(), first as u64);
            let left = read_all(&mut voltages, 50);
            for (left, all) in left.iter().zip(&expected) {
                assert_eq!(left[..], all[first..]);
            }
        }
    }
}

#[test]
fn sums_have_no_meaning() {
    let source = recording(header(&[1400.0], VoltageEncoding::Complex8));
    let options = ChannelizeOptions::new(8);
    let refused = |options| {
        let made =
            ChannelizedVoltages::new(source.boxed(), &options, &automatic(8), &Backend::best(1));
        made.unwrap_err().to_string()
    };
    let error = refused(ChannelizeOptions { integrate: 2, ..options.clone() });
    assert!(error.contains("integrate"), "{error}");
    let error = refused(ChannelizeOptions { average_channels: 2, ..options.clone() });
    assert!(error.contains("average_channels"), "{error}");
    let error = refused(ChannelizeOptions { interpolate_dc: true, ..options });
    assert!(error.contains("interpolate_dc"), "{error}");
}
