//! Coherent dedispersion: an impulse that was dispersed analytically becomes an impulse again in each channel, at the
//! delay of the channel's centre.

use crate::support::memory;
use crate::support::rows;
use std::f64::consts::TAU;

use num_complex::Complex;
use rustfft::FftPlanner;
use sidereal::backend::Backend;
use sidereal::channelize::Plan;
use sidereal::dedisperse::dm_plan::{DmPlan, DmRange};
use sidereal::io::FilterbankSource;
use sidereal::io::voltages::{Flag, VoltageHeader};
use sidereal::pipeline::burst::{self, SearchOptions};
use sidereal::pipeline::voltage::{ChannelizeOptions, VoltageFilterbank};
use sidereal::units::{DM_CONSTANT, dispersion_delay_s};
use sidereal::voltage::VoltageEncoding;

use memory::{Memory, header, noise};
use rows::{open, read_all};

const TIMES: usize = 1 << 15;
const DM: f64 = 800.0;
/// Arrival time of the impulse at the reference frequency, in samples.
const ARRIVAL: f64 = 5000.0;
const REFERENCE_HZ: f64 = 1402e6;

/// An impulse dispersed by multiplying its spectrum, one recorded channel.
///
/// Its phase is -2 pi times the integral of the delay over the sky frequency.
fn dispersed(header: &VoltageHeader, coarse: usize) -> Vec<Complex<f64>> {
    let rate = 1.0 / header.tsamp_s;
    let width = header.channel_width_hz();
    let sign = if header.lower_sideband { -1.0 } else { 1.0 };
    let complex = header.encoding.is_complex();
    let edge = if complex { 0.0 } else { 0.5 * width };
    let mut spectrum: Vec<_> = (0..TIMES)
        .map(|bin| {
            let signed = if bin < TIMES / 2 { bin as f64 } else { bin as f64 - TIMES as f64 };
            let frequency = signed * rate / TIMES as f64;
            if !complex && frequency <= 0.0 {
                return Complex::ZERO;
            }
            let sky = header.centres_hz[coarse] + sign * (frequency - edge);
            let (f, f0) = (sky / 1e6, REFERENCE_HZ / 1e6);
            // The integral of K DM (f^-2 - f0^-2), in s MHz: 1e6 turns.
            let integral = DM_CONSTANT * DM * (-1.0 / f + 1.0 / f0 - (f - f0) / (f0 * f0));
            let turns = sign * 1e6 * integral + frequency * ARRIVAL * header.tsamp_s;
            Complex::from_polar(1.0, -TAU * turns.fract())
        })
        .collect();
    FftPlanner::new().plan_fft_inverse(TIMES).process(&mut spectrum);
    let scale = 100.0 / (TIMES as f64).sqrt();
    spectrum.iter().map(|z| z * scale).collect()
}

fn impulse(header: &VoltageHeader) -> Memory {
    let channels: Vec<_> = (0..header.coarse_channels()).map(|c| dispersed(header, c)).collect();
    let polarizations = header.polarizations;
    Memory::new(header.clone(), TIMES, |stream, time| channels[stream / polarizations][time])
}

fn recordings() -> Vec<VoltageHeader> {
    let mut headers = Vec::new();
    for (encoding, centres) in [
        (VoltageEncoding::ComplexF32, [1401.0, 1400.0, 1399.0]),
        (VoltageEncoding::RealF32, [1400.0, 1400.5, 1401.0]),
    ] {
        for lower_sideband in [false, true] {
            for polarizations in [1, 2] {
                let header = header(&centres, encoding);
                headers.push(VoltageHeader { lower_sideband, polarizations, ..header });
            }
        }
    }
    headers
}

/// Fraction of the power of one channel in each row.
fn profile(rows: &[f32], channels: usize, channel: usize) -> Vec<f64> {
    let powers = rows.iter().skip(channel).step_by(channels).map(|x| f64::from(*x));
    normalized(powers.collect())
}

/// Returns the response of a channel to an impulse at a (fractional) sample: the square of the window.
fn ideal(plan: &Plan, sample: f64, rows: usize) -> Vec<f64> {
    let window = plan.coefficients();
    let value = |at: f64| {
        let (place, part) = (at.floor(), at - at.floor());
        let one = |k: f64| window.get(k as usize).copied().filter(|_| k >= 0.0).unwrap_or(0.0);
        (1.0 - part) * one(place) + part * one(place + 1.0)
    };
    let power = |row: usize| value(sample - (row * plan.hop()) as f64).powi(2);
    normalized((0..rows).map(power).collect())
}

fn normalized(powers: Vec<f64>) -> Vec<f64> {
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

#[test]
fn a_dispersed_impulse_is_restored_at_its_channels_delay() {
    for header in recordings() {
        let source = impulse(&header);
        let mut worst = 0.0f64;
        // The width is the same for real samples, which have half the band.
        let channels = if header.encoding.is_complex() { 16 } else { 8 };
        for average in [1, 2] {
            let plain =
                ChannelizeOptions { average_channels: average, ..ChannelizeOptions::new(channels) };
            let coherent = ChannelizeOptions { coherent_dm: Some(DM), ..plain.clone() };
            let filterbank =
                VoltageFilterbank::new(source.boxed(), &coherent, &Backend::best(2)).unwrap();
            let plan = filterbank.plan().clone();
            let times = filterbank.header().times.unwrap() as usize;
            let centres = filterbank.header().band.centres_hz().to_vec();
            let (smeared, restored) = (
                read_all(&mut open(&source, &plain), 100),
                read_all(&mut open(&source, &coherent), 100),
            );
            assert_eq!(smeared.len(), restored.len());
            let step = header.channel_width_hz() * average as f64 / channels as f64;
            for (channel, centre) in centres.iter().enumerate() {
                // Half of the power of the channel at the edge of a recorded band comes from the other edge.
                let at_edge = header.centres_hz.iter().any(|coarse| {
                    ((centre - coarse).abs() - 0.5 * header.channel_width_hz()).abs() < 0.6 * step
                });
                if at_edge {
                    continue;
                }
                let late = dispersion_delay_s(DM, *centre, REFERENCE_HZ, DM_CONSTANT);
                let expected = ideal(&plan, ARRIVAL + late / header.tsamp_s, times);
                let before = profile(&smeared, centres.len(), channel);
                let after = profile(&restored, centres.len(), channel);
                let error = expected.iter().zip(&after).map(|(a, b)| (a - b).abs());
                worst = worst.max(largest(error));
                assert!(largest(before.into_iter()) < 0.3, "{header:?}");
            }
        }
        assert!(worst < 0.004, "{worst} {header:?}");
    }
}

/// Noise of two antennas, with some of it flagged.
fn recording() -> Memory {
    let header = VoltageHeader {
        antennas: 2,
        polarizations: 2,
        ..header(&[1400.0, 1401.0], VoltageEncoding::Complex8)
    };
    let mut source = Memory::new(header, 30_001, |stream, time| noise(stream, time) * 100.0);
    source.flags = vec![Flag { streams: 0..8, start: 10_000, times: 100 }];
    source
}

#[test]
fn bits_do_not_depend_on_gulp_or_on_what_is_passed_over() {
    let source = recording();
    let options = ChannelizeOptions { coherent_dm: Some(300.0), ..ChannelizeOptions::new(16) };
    let expected = read_all(&mut open(&source, &options), 100);
    for (gulp, rows) in [(1, 64), (333, 7), (100_000, 10_000)] {
        let options = ChannelizeOptions { gulp, ..options.clone() };
        assert_eq!(read_all(&mut open(&source, &options), rows), expected, "{gulp}");
    }
    let elements = 32;
    let total = expected.len() / elements;
    for first in [1, 200, 217, 300, 1000, total - 2] {
        let mut filterbank =
            VoltageFilterbank::new(source.boxed(), &options, &Backend::best(1)).unwrap();
        assert_eq!(filterbank.skip(first as u64).unwrap(), first as u64);
        let mut row = vec![0.0; elements];
        assert_eq!(filterbank.read_rows(&mut row).unwrap(), 1);
        assert_eq!(row, expected[first * elements..][..elements], "{first}");
        let left = (total - first - 1) as u64;
        assert_eq!(filterbank.skip(u64::MAX).unwrap(), left);
        assert_eq!(filterbank.read_rows(&mut row).unwrap(), 0);
    }
}

#[test]
fn no_dispersion_changes_nothing() {
    let source = recording();
    let plain = read_all(&mut open(&source, &ChannelizeOptions::new(16)), 100);
    let options = ChannelizeOptions { coherent_dm: Some(0.0), ..ChannelizeOptions::new(16) };
    let none = read_all(&mut open(&source, &options), 100);
    let scale = plain.iter().copied().fold(0.0, f32::max);
    assert_eq!(plain.len(), none.len());
    assert!(plain.iter().zip(&none).all(|(a, b)| (a - b).abs() < 2e-6 * scale));
}

#[test]
fn gaps_reach_as_far_as_the_filters() {
    let source = recording();
    let options = ChannelizeOptions::new(16);
    let open =
        |options| VoltageFilterbank::new(source.boxed(), options, &Backend::best(1)).unwrap();
    let plain = open(&options).gaps()[0];
    let wide = open(&ChannelizeOptions { coherent_dm: Some(300.0), ..options.clone() }).gaps()[0];
    // The delay over a channel's width, 62.5 kHz at 1400 MHz.
    let reach = dispersion_delay_s(300.0, 1399.5e6, 1399.5625e6, DM_CONSTANT) * 1e6 / 16.0;
    let before = plain.start_time - wide.start_time;
    assert!(before as f64 >= reach.floor() && before as f64 <= reach + 1.0, "{before} {reach}");
    assert!(wide.times >= plain.times + 2 * before - 1);
}

#[test]
fn what_cannot_be_dedispersed_is_refused() {
    let source = recording();
    let refused = |dm, channels| {
        let options =
            ChannelizeOptions { coherent_dm: Some(dm), ..ChannelizeOptions::new(channels) };
        let made = VoltageFilterbank::new(source.boxed(), &options, &Backend::best(1));
        made.unwrap_err().to_string()
    };
    for dm in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(refused(dm, 16).contains("coherent_dm"));
    }
    let error = refused(1e8, 2);
    assert!(error.contains("0.5") && error.contains("more channels"), "{error}");
}

#[test]
fn a_filter_longer_than_the_recording_is_refused() {
    let source = Memory::new(header(&[1400.0], VoltageEncoding::ComplexF32), 2000, noise);
    let options = |dm| ChannelizeOptions { coherent_dm: Some(dm), ..ChannelizeOptions::new(2) };
    let made = |dm| VoltageFilterbank::new(source.boxed(), &options(dm), &Backend::best(1));
    assert!(made(10.0).is_ok());
    let error = made(10_000.0).unwrap_err().to_string();
    assert!(error.contains("coherent_dm") && error.contains("2000"), "{error}");
}

#[test]
fn zero_frequency_is_interpolated_between_its_true_neighbours() {
    for encoding in [VoltageEncoding::ComplexF32, VoltageEncoding::RealF32] {
        let source = Memory::new(
            VoltageHeader { antennas: 2, ..header(&[1401.0, 1400.0], encoding) },
            8000,
            noise,
        );
        let with = |interpolate_dc| ChannelizeOptions {
            interpolate_dc,
            ascending: true,
            coherent_dm: Some(DM),
            ..ChannelizeOptions::new(16)
        };
        let mut expected = read_all(&mut open(&source, &with(false)), 100);
        let (zero, below) = if encoding.is_complex() { (8, 7) } else { (0, 1) };
        for own in expected.chunks_mut(16) {
            own[zero] = 0.5 * (own[zero + 1] + own[below]);
        }
        assert_eq!(read_all(&mut open(&source, &with(true)), 100), expected);
        let both = ChannelizeOptions { average_channels: 2, ..with(true) };
        let error = VoltageFilterbank::new(source.boxed(), &both, &Backend::best(1)).unwrap_err();
        assert!(error.to_string().contains("interpolate_dc"), "{error}");
    }
}

#[test]
fn a_search_finds_the_pulse_at_its_measure_and_time() {
    let header = header(&[1401.0, 1400.0, 1399.0], VoltageEncoding::ComplexF32);
    let channels: Vec<_> = (0..3).map(|coarse| dispersed(&header, coarse)).collect();
    // Weak in each channel: its power, spread over the delay, is far below the noise.
    let source = Memory::new(header.clone(), TIMES, |stream, time| {
        channels[stream][time] * 0.0004 + noise(stream, time)
    });
    let found = |coherent_dm| {
        let options = ChannelizeOptions { coherent_dm, ..ChannelizeOptions::new(16) };
        let mut filterbank =
            VoltageFilterbank::new(source.boxed(), &options, &Backend::best(2)).unwrap();
        let delay = filterbank.plan().delay_samples();
        let late = dispersion_delay_s(
            DM,
            filterbank.header().band.highest_hz(),
            REFERENCE_HZ,
            DM_CONSTANT,
        );
        let time_s = (ARRIVAL - delay) * header.tsamp_s + late;
        let range = DmRange::new(700.0, 900.0, 1.0);
        let search = SearchOptions {
            auto_mask: false,
            max_width_s: 1e-3,
            baseline_s: 0.02,
            ..SearchOptions::new(DmPlan { ranges: vec![range] })
        };
        let report = burst::search(
            burst::Source::Voltages(&mut filterbank),
            &search,
            &Backend::best(2),
            &mut |_| true,
        )
        .unwrap();
        (report.candidates.into_iter().next(), time_s)
    };
    let (best, time_s) = found(Some(DM));
    let best = best.expect("a pulse");
    assert!((best.dm - DM).abs() <= 3.0 && best.snr > 20.0, "{best:?}");
    // Rows are 16 us apart.
    assert!((best.time_s - time_s).abs() < 20e-6 && best.width_s < 33e-6, "{best:?} {time_s}");
    let smeared = found(None).0.map_or(0.0, |candidate| candidate.snr);
    assert!(best.snr > 2.0 * smeared, "{best:?} {smeared}");
}
