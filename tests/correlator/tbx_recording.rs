//! Real voltages of 64 stands, correlated: every visibility is the plain sum of its products.

use crate::support::common;
use crate::support::correlate;
use crate::support::random;
use crate::support::sums;
use crate::support::tbx;
use correlate::{Complex64, Recording, plan};
use random::Random;
use sidereal::backend::Backend;
use sidereal::correlate::Plan;
use sidereal::voltage::VoltageEncoding::{Complex4, Complex8};
use sums::{split, truth};
use tbx::Frame;

fn frames() -> Option<Vec<Frame>> {
    Some(tbx::read(&common::data_dir()?.join("baseband/lsl_tbx-test.dat")))
}

fn nibbles(byte: u8) -> Complex64 {
    let part = |nibble: u8| f64::from((nibble << 4) as i8 >> 4);
    Complex64::new(part(byte >> 4), part(byte & 15))
}

/// Puts frames in order: `place` returns the channels and time of a frame.
fn recording(
    frames: &[Frame],
    plan: &Plan,
    times: usize,
    place: impl Fn(usize) -> (usize, usize),
) -> Recording {
    let mut recording = Recording::new(plan, times);
    for (index, frame) in frames.iter().enumerate() {
        let (first, time) = place(index);
        for channel in 0..frame.channels {
            for (input, byte) in frame.channel(channel).iter().enumerate() {
                recording.set(first + channel, input, time, nibbles(*byte));
            }
        }
    }
    recording
}

#[test]
fn frames_are_what_they_are_known_to_be() {
    let Some(frames) = frames() else { return };
    // Known of the recording: 26 whole frames, in steps of 12 channels from 2176 on, all of one time.
    assert_eq!(frames.len(), 26);
    for (index, frame) in frames.iter().enumerate() {
        assert_eq!((frame.stands, frame.channels), (64, 12));
        assert_eq!(frame.first_channel, 2176 + 12 * index as u32);
        assert_eq!(frame.time, frames[0].time);
        // Every level that 4 bits have but the lowest, and noise round zero.
        let samples = frame.samples.iter().map(|byte| nibbles(*byte));
        let mean = samples.sum::<Complex64>() / frame.samples.len() as f64;
        assert!(mean.norm() < 0.5, "{mean}");
    }
}

/// As recorded: 312 channels, one spectrum.
#[test]
fn one_spectrum_of_all_channels() {
    let Some(frames) = frames() else { return };
    for encoding in [Complex4, Complex8] {
        let plan = plan(64, 2, 12 * frames.len(), encoding);
        let recording = recording(&frames, &plan, 1, |frame| (12 * frame, 0));
        same(&recording);
    }
}

/// The frames as if they were 26 spectra of 12 channels: real values in sums over time, blocks and masks.
#[test]
fn frames_as_spectra() {
    let Some(frames) = frames() else { return };
    let plan = plan(64, 2, 12, Complex4);
    let mut recording = recording(&frames, &plan, frames.len(), |frame| (0, frame));
    same(&recording);
    for antenna in 0..64 {
        recording.mark(antenna % 12, antenna, antenna % 26, false);
        (0..12).for_each(|channel| recording.mark(channel, 13, 7, false));
    }
    same(&recording);
}

fn same(recording: &Recording) {
    let (sums, _, counts) = truth(recording);
    for backend in Backend::variants(2).into_iter().skip(1) {
        let found = split(recording, &backend, &mut Random::new(1));
        assert_eq!(found.counts, counts, "{}", backend.name());
        for (at, sum) in sums.iter().enumerate() {
            assert_eq!(found.value(at), *sum, "{} {at}", backend.name());
        }
    }
}
