//! Mark 5B: frames made here and read back to their samples, including gaps and faults.

use crate::support::random;
use crate::support::vlbi;
use std::path::PathBuf;

use random::Random;
use sidereal::Error;
use sidereal::io::voltages::{Flag, VoltageOptions, VoltageSource, open_mark5b};
use sidereal::units::Epoch;
use sidereal::voltage::VoltageEncoding;
use vlbi::{Folder, level, read_all};

const FRAME: usize = 10_016;

fn options(channels: usize, bits: usize, per_second: usize) -> VoltageOptions {
    VoltageOptions {
        sample_rate_hz: Some((80_000 / channels / bits * per_second) as f64),
        mark5b_channels: Some(channels),
        mark5b_bits: Some(bits),
        ..VoltageOptions::default()
    }
}

fn open(paths: &[PathBuf], options: &VoltageOptions) -> Box<dyn VoltageSource> {
    open_mark5b(paths, options).unwrap_or_else(|error| panic!("{error}"))
}

fn noise(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..10_000).map(|_| random.bits() as u8).collect()
}

/// A frame with a payload of its own.
fn frame(second: u32, number: u32) -> Vec<u8> {
    vlbi::mark5b(821, second, number, 0, &noise(u64::from(second * 1000 + number)))
}

/// A channel's samples by the words of the manual: sign in the lower bit, magnitude above it.
fn samples(payload: &[u8], channels: usize, bits: usize, channel: usize) -> Vec<(f64, f64)> {
    let bit = |place: usize| u32::from(payload[place / 8] >> (place % 8) & 1);
    let value = |time: usize| {
        let place = (time * channels + channel) * bits;
        match bits {
            1 => 1.0 - 2.0 * f64::from(bit(place)),
            _ => level(2 * bit(place) + bit(place + 1), 2),
        }
    };
    (0..80_000 / channels / bits).map(|time| (value(time), 0.0)).collect()
}

#[test]
fn every_mode_reads_exactly() {
    let folder = Folder::new();
    let bytes = [frame(100, 0), frame(100, 1)].concat();
    let path = [folder.file("x.m5b", &bytes)];
    for bits in [1, 2] {
        for channels in [1, 2, 4, 8, 16, 32] {
            let options = options(channels, bits, 4);
            if channels * bits > 32 {
                assert!(open_mark5b(&path, &options).is_err());
                continue;
            }
            let mut source = open(&path, &options);
            let header = source.header().clone();
            assert_eq!((header.format, header.coarse_channels()), ("Mark 5B", channels));
            assert_eq!(header.start, Epoch { day: 56_821, seconds: 100.0 });
            let wide = if bits == 1 { VoltageEncoding::Real8 } else { VoltageEncoding::Real2 };
            assert_eq!(header.encoding, wide);
            let found = read_all(source.as_mut(), 777);
            for (channel, found) in found.iter().enumerate() {
                let mut expected = samples(&bytes[16..FRAME], channels, bits, channel);
                expected.extend(samples(&bytes[FRAME + 16..], channels, bits, channel));
                assert_eq!(found, &expected, "{bits} bits, {channels} channels");
            }
        }
    }
}

#[test]
fn what_is_missing_or_filled_is_flagged_and_shifts_nothing() {
    let folder = Folder::new();
    // Four frames a second: one missing, one of the fill pattern, one that only begins like it.
    let fill = [0x44, 0x33, 0x22, 0x11].repeat(2500);
    let mut nearly = fill.clone();
    nearly[9_000] = 0;
    let mut bytes = frame(7, 2);
    bytes.extend(vlbi::mark5b(821, 8, 0, 0, &fill));
    bytes.extend(vlbi::mark5b(821, 8, 1, 0, &nearly));
    bytes.extend(b"bytes that belong to no frame \xed\xde\xad\xab, and a false sync word");
    bytes.extend(frame(8, 2));
    let late = bytes.len() - 5000;
    let paths = [folder.file("late", &bytes[..late]), folder.file("early", &frame(7, 1))];
    let mut source = open(&paths, &options(4, 2, 4));
    assert_eq!((source.header().start.seconds, source.header().times), (7.25, Some(5 * 10_000)));
    let expected = [Flag { streams: 0..4, start: 20_000, times: 20_000 }];
    assert_eq!(source.flags(), expected);
    let found = read_all(source.as_mut(), 4096);
    assert_eq!(found[1][..10_000], samples(&frame(7, 1)[16..], 4, 2, 1));
    assert_eq!(found[1][10_000..20_000], samples(&frame(7, 2)[16..], 4, 2, 1));
    assert_eq!(found[1][20_000..40_000].iter().map(|sample| sample.0).sum::<f64>(), 0.0);
    assert_eq!(found[1][40_000..], samples(&nearly, 4, 2, 1));
    // The frame after the stray bytes is found again, complete.
    let path = [folder.file("late", &bytes)];
    let mut source = open(&path, &options(4, 2, 4));
    assert_eq!(source.header().times, Some(5 * 10_000));
    let found = read_all(source.as_mut(), 1 << 16);
    assert_eq!(found[3][40_000..], samples(&frame(8, 2)[16..], 4, 2, 3));
    // A file may begin within a frame.
    let path = [folder.file("x", &[&frame(8, 1)[300..], &frame(8, 2), &frame(8, 3)].concat())];
    assert_eq!(open(&path, &options(4, 2, 4)).header().start.seconds, 8.5);
}

#[test]
fn the_rate_and_the_day_come_from_where_they_stand() {
    let folder = Folder::new();
    let open_as = |bytes: &[u8], options: &VoltageOptions| {
        let source = open_mark5b(&[folder.file("x.m5b", bytes)], options)?;
        let header = source.header();
        Ok::<_, Error>((header.start, (1.0 / header.tsamp_s).round()))
    };
    let plain = VoltageOptions { mark5b_channels: Some(8), ..VoltageOptions::default() };
    // 6400 frames a second: frame 5 begins 0.78 ms after the second.
    let timed = vlbi::mark5b(821, 3600, 5, 7, &noise(1));
    let (start, rate) = open_as(&timed, &plain).unwrap();
    assert_eq!(rate, 32e6);
    assert_eq!(start, Epoch { day: 56_821, seconds: 3600.0 + 5.0 / 6400.0 });
    let near = |day| VoltageOptions { mark5b_near_mjd: Some(day), ..plain.clone() };
    for (day, found) in [(59_000, 58_821), (59_400, 59_821), (55_400, 55_821), (0, 821)] {
        assert_eq!(open_as(&timed, &near(day)).unwrap().0.day, found, "near {day}");
    }
    assert!(matches!(open_as(&timed, &near(-1)), Err(Error::Parameter { .. })));
    // Three digits wrap at midnight; the rate shows in the last frame of the second before.
    let wrap: Vec<u8> = [(999, 86_399, 48), (999, 86_399, 49), (0, 0, 0)]
        .iter()
        .flat_map(|(day, second, number)| vlbi::mark5b(*day, *second, *number, 0, &noise(2)))
        .collect();
    let (start, rate) = open_as(&wrap, &plain).unwrap();
    assert_eq!((start.day, rate), (56_999, 50.0 * 5000.0));
    assert!((start.seconds - 86_399.96).abs() < 1e-9);
    let error = open_as(&frame(1, 3), &plain).unwrap_err().to_string();
    assert!(error.contains("sample_rate_hz") && error.contains("x.m5b"), "{error}");
}

#[test]
fn faults_are_named() {
    let folder = Folder::new();
    let message = |bytes: &[u8], options: &VoltageOptions| {
        let path = folder.file("x.m5b", bytes);
        open_mark5b(&[path], options).map(|_| ()).expect_err("a fault").to_string()
    };
    let mut bad_day = frame(1, 0);
    bad_day[11] = 0xfa;
    let cases: [(Vec<u8>, &str); 6] = [
        (bad_day, "day (at byte 8)"),
        ([frame(1, 0), frame(1, 0)].concat(), "the one at byte 0"),
        ([frame(1, 0), frame(1, 4)].concat(), "frame 4 within a second"),
        (frame(1, 0)[..10_000].to_vec(), "no whole frame"),
        (vec![0x55; 30_000], "no whole frame"),
        (vec![], "empty"),
    ];
    for (bytes, expected) in cases {
        let found = message(&bytes, &options(4, 2, 4));
        assert!(found.contains(expected) && found.contains("x.m5b"), "{found}");
    }
    let whole = frame(1, 0);
    assert!(message(&whole, &VoltageOptions::default()).contains("mark5b_channels is not given"));
    for channels in [0, 3, 64] {
        let wrong = VoltageOptions { mark5b_channels: Some(channels), ..options(4, 2, 4) };
        assert!(message(&whole, &wrong).contains(&format!("mark5b_channels is {channels}")));
    }
    let wrong = VoltageOptions { mark5b_bits: Some(4), ..options(4, 2, 4) };
    assert!(message(&whole, &wrong).contains("mark5b_bits is 4"));
}

#[test]
fn any_bytes_give_samples_or_an_error() {
    let folder = Folder::new();
    let mut random = Random::new(8);
    let whole: Vec<u8> = (0..3).flat_map(|number| frame(1, number)).collect();
    let mut opened = 0;
    for _ in 0..300 {
        let mut bytes = whole.clone();
        bytes.truncate(random.below(bytes.len()) + 1);
        bytes.drain(..random.below(2) * random.below(bytes.len()));
        for _ in 0..random.below(4) {
            let at = random.below(3) * FRAME + random.below(16);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        let path = folder.file("x.m5b", &bytes);
        let Ok(mut source) = open_mark5b(&[path], &options(4, 2, 4)) else { continue };
        let mut block = source.header().block(1000);
        let _ = source.read(&mut block);
        opened += 1;
    }
    assert!(opened > 50, "{opened}");
}
