//! Channelized voltages without delays: visibilities are the plain sums of products of integers.

use crate::support::array;
use crate::support::memory;
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::io::voltages::{Flag, VoltageHeader};
use sidereal::pipeline::correlator::{
    ArrayCorrelator, ArrayInput, Baselines, CorrelateOptions, Integration, Missing,
};
use sidereal::units::Epoch;
use sidereal::voltage::VoltageEncoding;

use array::{correlate, drain, inputs, recording};
use memory::{Memory, header, noise};

const TIMES: usize = 700;

fn options() -> CorrelateOptions {
    CorrelateOptions { channelize: Some(false), integration_s: 300e-6, ..CorrelateOptions::new(8) }
}

/// Centres out of order, in MHz.
const CENTRES: [f64; 4] = [1402.0, 1400.0, 1401.0, 1403.0];

fn voltages(header: &VoltageHeader, antennas: usize) -> Vec<Memory> {
    let antenna = |antenna| {
        recording(header, antenna, TIMES, |stream, time| {
            let z = noise(100 * antenna + stream, time);
            // Whole numbers to both ends: -128 comes from rounding less than -127.5.
            Complex::new((z.re * 127.9).round().max(-128.0), (z.im * 127.9).round())
        })
    };
    (0..antennas).map(antenna).collect()
}

/// A sample of an antenna.
fn sample(memory: &Memory, stream: usize, time: usize) -> Complex<i64> {
    let bytes = &memory.streams[stream][2 * time..];
    Complex::new(i64::from(bytes[0] as i8), i64::from(bytes[1] as i8))
}

/// Plain sums of one integration; axes baseline, channel (rising), pair.
fn plain(
    recordings: &[Memory],
    integration: &Integration,
    valid: impl Fn(usize, usize, usize) -> bool,
) -> (Vec<Complex<f64>>, Vec<u64>) {
    let polarizations = recordings[0].header.polarizations;
    let times = integration.first as usize..(integration.first + integration.spectra) as usize;
    let (mut sums, mut counts) = (Vec::new(), Vec::new());
    for i in 0..recordings.len() {
        for j in 0..=i {
            for coarse in [1, 2, 0, 3] {
                let good = |t: &usize| valid(i, coarse, *t) && valid(j, coarse, *t);
                counts.push(times.clone().filter(good).count() as u64);
                for pair in 0..polarizations * polarizations {
                    let stream = |polarization| coarse * polarizations + polarization;
                    let product = |t| {
                        let x = sample(&recordings[i], stream(pair / polarizations), t);
                        x * sample(&recordings[j], stream(pair % polarizations), t).conj()
                    };
                    let sum: Complex<i64> = times.clone().filter(good).map(product).sum();
                    sums.push(Complex::new(sum.re as f64, sum.im as f64));
                }
            }
        }
    }
    (sums, counts)
}

#[test]
fn visibilities_are_the_plain_sums() {
    for (antennas, polarizations) in [(1, 1), (2, 2), (5, 2), (4, 1)] {
        let header = VoltageHeader { polarizations, ..header(&CENTRES, VoltageEncoding::Complex8) };
        let recordings = voltages(&header, antennas);
        for (threads, gulp) in [(1, 0), (2, 64), (3, 100), (1, 7)] {
            let options = CorrelateOptions { gulp, ..options() };
            let (correlator, found) = correlate(&recordings, &options, threads);
            let about = correlator.header();
            assert!(about.bank.as_recorded && !about.bank.channelized_here);
            assert_eq!(about.frequencies_hz, [1400e6, 1401e6, 1402e6, 1403e6]);
            let spectra: Vec<u64> = found.iter().map(|integration| integration.spectra).collect();
            assert_eq!(spectra, [300, 300, 100]);
            for integration in &found {
                let (sums, counts) = plain(&recordings, integration, |_, _, _| true);
                assert_eq!(integration.counts, counts);
                assert_eq!(integration.sums, sums, "{antennas} {polarizations} {threads} {gulp}");
            }
            let middle = about.start.plus_s(450e-6);
            assert!(found[1].centre.seconds_since(&middle).abs() < 1e-10);
        }
    }
}

#[test]
fn a_lower_sideband_gives_the_conjugates() {
    let upper = header(&CENTRES, VoltageEncoding::Complex8);
    let lower = VoltageHeader { lower_sideband: true, ..upper.clone() };
    let (_, above) = correlate(&voltages(&upper, 3), &options(), 1);
    let (_, below) = correlate(&voltages(&lower, 3), &options(), 1);
    for (a, b) in above.iter().zip(&below) {
        let conjugates: Vec<Complex<f64>> = a.sums.iter().map(|z| z.conj()).collect();
        assert_eq!(b.sums, conjugates);
    }
}

#[test]
fn flags_change_counts_and_not_scale() {
    let header = VoltageHeader { polarizations: 2, ..header(&CENTRES, VoltageEncoding::Complex8) };
    let mut recordings = voltages(&header, 3);
    // Both polarizations of channels 1 and 2 by one of each; all channels of another antenna.
    let cell = |streams, start, times| Flag { streams, start, times };
    recordings[0].flags = vec![cell(3..5, 250, 90), cell(0..1, 5, 1)];
    recordings[2].flags = vec![cell(0..8, 299, 2), cell(0..8, 600, 1000)];
    let flagged: Vec<Vec<Flag>> = recordings.iter().map(|memory| memory.flags.clone()).collect();
    let valid = |antenna: usize, coarse: usize, time: usize| {
        flagged[antenna].iter().all(|flag| {
            let own = flag.streams.start / 2..flag.streams.end.div_ceil(2);
            let times = flag.start as usize..(flag.start + flag.times) as usize;
            !own.contains(&coarse) || !times.contains(&time)
        })
    };
    for (threads, gulp) in [(1, 0), (2, 64), (2, 111)] {
        let options = CorrelateOptions { gulp, ..options() };
        let (correlator, found) = correlate(&recordings, &options, threads);
        for integration in &found {
            let (sums, counts) = plain(&recordings, integration, valid);
            assert_eq!(integration.counts, counts, "{threads} {gulp}");
            assert_eq!(integration.sums, sums);
        }
        let masked = &correlator.summary().antennas[2].masked;
        assert!((masked - 102.0 / 700.0).abs() < 1e-12, "{masked}");
    }
}

#[test]
fn channels_are_averaged_by_valid_samples_and_baselines_chosen() {
    let header = VoltageHeader { polarizations: 2, ..header(&CENTRES, VoltageEncoding::Complex8) };
    let mut recordings = voltages(&header, 4);
    recordings[1].flags = vec![Flag { streams: 2..4, start: 0, times: 650 }];
    let (_, all) = correlate(&recordings, &options(), 2);
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let list = Baselines::List(vec![pair("A1", "A3"), pair("A2", "A2"), pair("A3", "A1")]);
    let options = CorrelateOptions { average_channels: 2, baselines: list, ..options() };
    let (correlator, found) = correlate(&recordings, &options, 2);
    let about = correlator.header();
    assert_eq!(about.baselines, [(2, 2), (3, 1)]);
    assert_eq!(about.frequencies_hz, [1400.5e6, 1402.5e6]);
    assert_eq!((about.channel_width_hz, about.full_count()), (2e6, 600));
    for (whole, averaged) in all.iter().zip(&found) {
        for (row, baseline) in [5, 7].into_iter().enumerate() {
            for channel in 0..2 {
                let from = baseline * 4 + 2 * channel;
                let count = whole.counts[from] + whole.counts[from + 1];
                assert_eq!(averaged.counts[row * 2 + channel], count);
                for pair in 0..4 {
                    let sum = whole.sums[4 * from + pair] + whole.sums[4 * (from + 1) + pair];
                    assert_eq!(averaged.sums[(row * 2 + channel) * 4 + pair], sum);
                }
            }
        }
    }
    let autos = CorrelateOptions { baselines: Baselines::Autos, ..options };
    let (correlator, _) = correlate(&recordings, &autos, 1);
    assert_eq!(correlator.header().baselines, [(0, 0), (1, 1), (2, 2), (3, 3)]);
}

#[test]
fn several_antennas_of_one_file_and_missing_ones() {
    let header = VoltageHeader { polarizations: 2, ..header(&CENTRES, VoltageEncoding::Complex8) };
    let recordings = voltages(&header, 3);
    let (_, separate) = correlate(&recordings, &options(), 1);
    let together = VoltageHeader { antennas: 3, ..recordings[0].header.clone() };
    let mut one = Memory::new(VoltageHeader { times: None, ..together }, 0, |_, _| Complex::ZERO);
    one.header.times = Some(TIMES as u64);
    one.streams = recordings.iter().flat_map(|memory| memory.streams.clone()).collect();
    // The array has five antennas, and those of the file are its numbers 4, 0 and 2.
    let names = ["A4", "A0", "A2"].map(str::to_owned).to_vec();
    let input = || vec![ArrayInput { antennas: names.clone(), source: one.boxed() }];
    let array = array::array(5);
    let backend = Backend::best(2);
    let error = ArrayCorrelator::new(&array, input(), &options(), &backend).unwrap_err();
    assert!(error.to_string().contains("A1") && error.to_string().contains("1 other"), "{error}");
    let options = CorrelateOptions { missing: Missing::Flag, ..options() };
    let mut correlator = ArrayCorrelator::new(&array, input(), &options, &backend).unwrap();
    assert_eq!(correlator.header().present, [true, false, true, false, true]);
    let found = drain(&mut correlator);
    assert_eq!(correlator.summary().missing, ["A1", "A3"]);
    // Index in the array of each antenna of the file.
    let places = [Some(1), None, Some(2), None, Some(0)];
    for (integration, other) in found.iter().zip(&separate) {
        for (row, (i, j)) in correlator.header().baselines.iter().enumerate() {
            let sums = &integration.sums[row * 16..][..16];
            let counts = &integration.counts[row * 4..][..4];
            let Some((a, b)) = places[*i].zip(places[*j]) else {
                assert!(counts.iter().all(|count| *count == 0));
                assert!(sums.iter().all(|sum| *sum == Complex::ZERO));
                continue;
            };
            let at = a.max(b) * (a.max(b) + 1) / 2 + a.min(b);
            assert_eq!(counts, &other.counts[at * 4..][..4]);
            for (channel, own) in sums.chunks_exact(4).enumerate() {
                let theirs = &other.sums[(at * 4 + channel) * 4..][..4];
                for pair in 0..4 {
                    let expected = match a >= b {
                        true => theirs[pair],
                        false => theirs[[0, 2, 1, 3][pair]].conj(),
                    };
                    assert_eq!(own[pair], expected, "{i} {j}");
                }
            }
        }
    }
}

#[test]
fn starts_that_lie_whole_samples_apart_are_aligned() {
    let header = VoltageHeader { polarizations: 2, ..header(&CENTRES, VoltageEncoding::Complex8) };
    let recordings = voltages(&header, 2);
    let (_, expected) = correlate(
        &recordings,
        &CorrelateOptions { time_range: Some((40e-6, 640e-6)), ..options() },
        1,
    );
    // The second recording starts 40 samples later, and both end at the same time.
    let mut late = recordings.clone();
    late[1].streams.iter_mut().for_each(|row| drop(row.drain(..80)));
    late[1].header.times = Some(TIMES as u64 - 40);
    late[1].header.start = header.start.plus_s(40e-6);
    let asked = CorrelateOptions { time_range: Some((0.0, 600e-6)), shortest: true, ..options() };
    let (correlator, found) = correlate(&late, &asked, 1);
    assert!(correlator.header().start.seconds_since(&late[1].header.start).abs() < 1e-10);
    assert_eq!(found.len(), 2);
    for (a, b) in found.iter().zip(&expected) {
        assert_eq!((&a.sums, &a.counts), (&b.sums, &b.counts));
    }
    // And so are inputs in any order.
    let swapped = vec![inputs(&late).remove(1), inputs(&late).remove(0)];
    let backend = Backend::best(1);
    let mut correlator = ArrayCorrelator::new(&array::array(2), swapped, &asked, &backend).unwrap();
    assert_eq!(drain(&mut correlator), found);
}

#[test]
fn starts_on_both_sides_of_a_leap_second_are_aligned() {
    let known = header(&CENTRES, VoltageEncoding::Complex8);
    let header = VoltageHeader { tsamp_s: 1e-2, start: Epoch::new(57753, 86397.0), ..known };
    let recordings = voltages(&header, 2);
    let asked = CorrelateOptions { integration_s: 1.0, ..options() };
    let part = CorrelateOptions { time_range: Some((4.0, 7.0)), ..asked.clone() };
    let (correlator, expected) = correlate(&recordings, &part, 1);
    assert_eq!(correlator.header().start, Epoch::new(57754, 0.0));
    // The second starts at midnight, 4 s after the first.
    let mut late = recordings.clone();
    late[1].streams.iter_mut().for_each(|row| drop(row.drain(..800)));
    late[1].header.times = Some(TIMES as u64 - 400);
    late[1].header.start = Epoch::new(57754, 0.0);
    let (correlator, found) = correlate(&late, &CorrelateOptions { shortest: true, ..asked }, 1);
    assert_eq!(correlator.header().start, Epoch::new(57754, 0.0));
    assert_eq!(found, expected);
}

#[test]
fn what_both_polarizations_lack_is_masked_once() {
    let header = VoltageHeader { polarizations: 2, ..header(&CENTRES, VoltageEncoding::Complex8) };
    let mut recordings = voltages(&header, 2);
    let cell = |streams, start, times| Flag { streams, start, times };
    recordings[1].flags =
        vec![cell(0..1, 0, 500), cell(1..2, 0, 700), cell(0..2, 100, 10), cell(7..8, 5, 70)];
    let (correlator, _) = correlate(&recordings, &options(), 1);
    let masked = correlator.summary().antennas[1].masked;
    assert!((masked - 770.0 / 2800.0).abs() < 1e-12, "{masked}");
}
