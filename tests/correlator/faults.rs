//! Recordings and options that cannot be correlated: one clear error each.

use crate::support::array;
use crate::support::memory;
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::geometry::{Array, Location};
use sidereal::io::voltages::VoltageHeader;
use sidereal::pipeline::correlator::{
    ArrayCorrelator, ArrayInput, Baselines, CorrelateOptions, Gains, Integration, PhaseCentre,
    write_uvh5,
};
use sidereal::units::Epoch;
use sidereal::voltage::VoltageEncoding;

use array::{inputs, recording};
use memory::{Memory, noise};

const TIMES: usize = 4000;

fn recordings(antennas: usize) -> Vec<Memory> {
    let header = memory::header(&[1400.0, 1401.0], VoltageEncoding::Complex8);
    let own =
        |antenna| recording(&header, antenna, TIMES, |stream, time| noise(stream, time) * 9.0);
    (0..antennas).map(own).collect()
}

fn options() -> CorrelateOptions {
    CorrelateOptions { integration_s: 1e-3, ..CorrelateOptions::new(16) }
}

fn bind(
    recordings: &[Memory],
    change: impl Fn(&mut CorrelateOptions),
) -> sidereal::Result<ArrayCorrelator> {
    let mut options = options();
    change(&mut options);
    let array = array::array(recordings.len().max(1));
    ArrayCorrelator::new(&array, inputs(recordings), &options, &Backend::best(1))
}

/// Checks that an error contains the expected words.
fn holds(error: sidereal::Error, words: &[&str]) {
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}: {words:?}");
}

/// Message for a second recording that was changed.
fn second(change: impl Fn(&mut VoltageHeader), words: &[&str]) {
    let mut both = recordings(2);
    change(&mut both[1].header);
    let mut all = vec!["A0.dada", "A1.dada"];
    all.extend(words);
    holds(bind(&both, |_| {}).unwrap_err(), &all);
}

#[test]
fn recordings_that_do_not_belong_together_are_both_named() {
    assert!(bind(&recordings(2), |_| {}).is_ok());
    second(|header| header.times = Some(3999), &["length", "3999", "4000", "`shortest`"]);
    second(|header| header.tsamp_s = 1.1e-6, &["sample rate", "909090", "1000000"]);
    second(|header| header.start = header.start.plus_s(0.5e-6), &["start", "whole samples"]);
    let late = |header: &mut VoltageHeader| header.start = header.start.plus_s(2e-9);
    second(late, &["start", "0.002", "whole samples"]);
    second(|header| header.start = header.start.plus_s(5e-3), &["start", "ends before"]);
    second(|header| header.start = header.start.plus_s(-1.0), &["start", "ends before"]);
    second(|header| header.start = Epoch::default(), &["start", "unknown"]);
    second(|header| header.centres_hz[1] = 1402e6, &["centre", "1401", "1402"]);
    second(|header| header.centres_hz[1] += 0.1, &["centre", "1401", "1401.00000009"]);
    second(|header| header.centres_hz.truncate(1), &["recorded channels"]);
    second(|header| header.lower_sideband = true, &["sideband", "upper", "lower"]);
    second(|header| header.polarizations = 2, &["polarizations"]);
    second(|header| header.circular = Some(true), &["feeds", "circular"]);
    second(|header| header.encoding = VoltageEncoding::Real8, &["samples", "real"]);
}

#[test]
fn lengths_may_differ_when_asked() {
    let mut both = recordings(2);
    both[1].streams.iter_mut().for_each(|row| row.truncate(2 * 3000));
    both[1].header.times = Some(3000);
    let correlator = bind(&both, |options| options.shortest = true).unwrap();
    assert_eq!(correlator.header().spectra, (3000 - 128) / 16 + 1);
}

#[test]
fn a_recording_that_ends_early_is_an_error() {
    let mut both = recordings(2);
    both[1].streams.iter_mut().for_each(|row| row.truncate(2 * 3000));
    let mut correlator = bind(&both, |_| {}).unwrap();
    let mut integration = Integration::new();
    let error = loop {
        match correlator.next_integration(&mut integration) {
            Ok(more) => assert!(more, "it came to its end"),
            Err(error) => break error,
        }
    };
    holds(error, &["A1.dada", "3000", "4000"]);
}

#[test]
fn antennas_are_held_against_the_array() {
    let both = recordings(2);
    let backend = Backend::best(1);
    let named = |names: [&[&str]; 2], antennas: usize| {
        let input = |(memory, names): (&Memory, &[&str])| ArrayInput {
            antennas: names.iter().map(|name| (*name).to_owned()).collect(),
            source: memory.boxed(),
        };
        let inputs = both.iter().zip(names).map(input).collect();
        ArrayCorrelator::new(&array::array(antennas), inputs, &options(), &backend).unwrap_err()
    };
    holds(named([&["A0"], &["B7"]], 2), &["B7", "position", "A1.dada"]);
    holds(named([&["A0"], &["A0"]], 2), &["A0", "A0.dada", "A1.dada"]);
    holds(named([&["A0"], &["A1"]], 3), &["A2", "no recording", "`missing"]);
    holds(named([&["A0"], &["A1"]], 5), &["A2", "2 others"]);
    holds(named([&["A0"], &["A1", "A2"]], 3), &["names of antennas", "A1.dada"]);
    let none = ArrayCorrelator::new(&array::array(1), Vec::new(), &options(), &backend);
    holds(none.unwrap_err(), &["antennas is 0"]);
    let mut empty = recordings(1);
    empty[0].header.antennas = 0;
    let input = ArrayInput { antennas: Vec::new(), source: empty[0].boxed() };
    let none = ArrayCorrelator::new(&array::array(1), vec![input], &options(), &backend);
    holds(none.unwrap_err(), &["antennas is 0"]);
}

#[test]
fn options_that_do_not_fit_name_themselves() {
    let both = recordings(2);
    let refused = |change: &dyn Fn(&mut CorrelateOptions), words: &[&str]| {
        holds(bind(&both, change).unwrap_err(), words);
    };
    refused(&|o| o.integration_s = 0.0041, &["integration_s", "0.0041", "0.004000 s", "A0.dada"]);
    refused(&|o| o.integration_s = 0.0, &["integration_s", "above 0"]);
    refused(&|o| o.integration_s = f64::NAN, &["integration_s"]);
    refused(&|o| o.channels = 1, &["channelize.channels"]);
    refused(&|o| o.taps = 251, &["4000", "taps", "4016"]);
    refused(&|o| o.nbits = 16, &["correlate.nbits", "16"]);
    refused(&|o| o.average_channels = 3, &["average_channels", "16"]);
    refused(&|o| o.average_channels = 0, &["average_channels"]);
    refused(&|o| o.gains = Gains::Fixed(0.0), &["gains"]);
    refused(&|o| o.gains = Gains::Table(vec![Complex::ONE; 5]), &["gains", "32", "64"]);
    refused(&|o| o.gains = Gains::Table(vec![Complex::new(f32::NAN, 0.0)]), &["gains", "finite"]);
    refused(&|o| o.time_range = Some((0.0, 0.0)), &["time_range"]);
    refused(&|o| o.time_range = Some((0.01, 0.02)), &["time_range", "0.004000"]);
    refused(&|o| o.cable_delays_s = vec![0.0; 3], &["cable delays", "3", "2"]);
    refused(&|o| o.cable_delays_s = vec![0.0, f64::INFINITY], &["cable delay"]);
    let list = |a: &str| Baselines::List(vec![("A0".to_owned(), a.to_owned())]);
    refused(&|o| o.baselines = list("A9"), &["baselines", "A9"]);
    refused(&|o| o.baselines = Baselines::List(Vec::new()), &["baselines"]);
    let centre = |ra_deg, dec_deg| PhaseCentre::Sidereal { ra_deg, dec_deg, name: "x".into() };
    refused(&|o| o.phase_centre = centre(10.0, 91.0), &["declination", "91"]);
}

#[test]
fn what_a_recording_does_not_say_is_asked_for() {
    let mut both = recordings(2);
    both.iter_mut().for_each(|memory| memory.header.start = Epoch::default());
    let centre = PhaseCentre::Sidereal { ra_deg: 10.0, dec_deg: 20.0, name: "x".into() };
    let tracked = bind(&both, |options| options.phase_centre = centre.clone());
    holds(tracked.unwrap_err(), &["start", "A0.dada"]);
    // A drift scan needs no time, but its file does.
    let mut correlator = bind(&both, |_| {}).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.uvh5");
    let error = write_uvh5(&mut correlator, &path, &Default::default(), &mut |_, _| true);
    holds(error.unwrap_err(), &["start"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let silent = |change: &dyn Fn(&mut VoltageHeader), words: &[&str]| {
        let mut both = recordings(2);
        both.iter_mut().for_each(|memory| change(&mut memory.header));
        holds(bind(&both, |_| {}).unwrap_err(), words);
    };
    silent(&|header| header.tsamp_s = 0.0, &["sample_rate_hz", "A0.dada"]);
    silent(&|header| header.centres_hz = vec![0.0, 0.0], &["centre_hz", "A0.dada"]);
    silent(&|header| header.centres_hz.clear(), &["recorded channels", "A0.dada"]);
    silent(&|header| header.times = None, &["length", "A0.dada"]);
    silent(&|header| header.times = Some(0), &["length", "A0.dada"]);
    silent(&|header| header.centres_hz[1] = 1400.5e6, &["overlap"]);
    let header = memory::header(&[1400.0], VoltageEncoding::Real8);
    let real = vec![recording(&header, 0, TIMES, |stream, time| noise(stream, time) * 9.0)];
    let refused = bind(&real, |options| options.channelize = Some(false));
    holds(refused.unwrap_err(), &["Real8", "channelized"]);
}

#[test]
fn what_does_not_fit_into_memory_is_one_error() {
    let known = memory::header(&[1400.0, 1401.0], VoltageEncoding::Complex8);
    let header = VoltageHeader { antennas: 4096, polarizations: 2, ..known };
    let mut memory = Memory::new(header, 0, |_, _| Complex::ZERO);
    memory.header.times = Some(10_000_000);
    let options = CorrelateOptions { integration_s: 1.0, ..CorrelateOptions::new(1 << 19) };
    let antennas: Vec<_> = (0..4096).map(|i| (array::name(i), [i as f64, 0.0, 0.0])).collect();
    let location = Location { longitude_deg: -107.6, latitude_deg: 37.0, height_m: 2100.0 };
    let array = Array::from_enu("large", &antennas, location).unwrap();
    let names = (0..4096).map(array::name).collect();
    let input = ArrayInput { antennas: names, source: memory.boxed() };
    let backend = Backend::best(1);
    let error = ArrayCorrelator::new(&array, vec![input], &options, &backend);
    holds(error.unwrap_err(), &["memory", "4096 antennas", "1048576 channels", "bytes"]);
}
