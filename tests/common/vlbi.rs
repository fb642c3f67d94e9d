//! VDIF and Mark 5B frames written bit by bit.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::path::PathBuf;

use sidereal::io::voltages::VoltageSource;
use sidereal::voltage::{TWO_BIT_HIGH, voltage};

use super::random::Random;

/// A VDIF frame's header fields.
#[derive(Clone, Copy, Debug)]
pub struct Vdif {
    pub legacy: bool,
    pub invalid: bool,
    pub seconds: u32,
    pub epoch: u32,
    pub number: u32,
    pub version: u32,
    pub channels_log2: u32,
    pub payload: usize,
    pub complex: bool,
    pub bits: u32,
    pub thread: u32,
    pub station: u32,
    pub extended: [u32; 4],
}

pub const SYNC: u32 = 0xacab_feed;

/// A frame of 64 real 2-bit samples of one channel, extended data version 0.
pub const PLAIN: Vdif = Vdif {
    legacy: false,
    invalid: false,
    seconds: 1000,
    epoch: 40,
    number: 0,
    version: 1,
    channels_log2: 0,
    payload: 16,
    complex: false,
    bits: 2,
    thread: 0,
    station: 0x4161,
    extended: [0; 4],
};

impl Vdif {
    pub fn header(&self) -> Vec<u8> {
        let header_bytes = if self.legacy { 16 } else { 32 };
        let frame = ((self.payload + header_bytes) / 8) as u32;
        let bit = |flag: bool, place: u32| u32::from(flag) << place;
        let mut words = vec![
            bit(self.invalid, 31) | bit(self.legacy, 30) | self.seconds,
            self.epoch << 24 | self.number,
            self.version << 29 | self.channels_log2 << 24 | frame,
            bit(self.complex, 31) | (self.bits - 1) << 26 | self.thread << 16 | self.station,
        ];
        if !self.legacy {
            words.extend(self.extended);
        }
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    /// The frame with this payload.
    pub fn frame(&self, payload: &[u8]) -> Vec<u8> {
        assert_eq!(payload.len(), self.payload);
        [self.header(), payload.to_vec()].concat()
    }

    /// A payload that is different for every thread, second and frame.
    pub fn noise(&self) -> Vec<u8> {
        let seed = (u64::from(self.seconds) << 24 | u64::from(self.number)) * 1031
            + u64::from(self.thread) * 7
            + u64::from(self.station);
        let mut random = Random::new(seed);
        (0..self.payload).map(|_| random.bits() as u8).collect()
    }

    pub fn noise_frame(&self) -> Vec<u8> {
        self.frame(&self.noise())
    }

    /// Samples of each channel in a frame.
    pub fn times(&self) -> usize {
        let bits = self.bits as usize * if self.complex { 2 } else { 1 };
        if bits.is_power_of_two() {
            self.payload * 8 / (bits << self.channels_log2)
        } else {
            self.payload / 4 * (32 / bits)
        }
    }

    /// A channel's samples in the payload: (real, imaginary), by the words of the standard.
    pub fn samples(&self, payload: &[u8], channel: usize) -> Vec<(f64, f64)> {
        let parts = if self.complex { 2 } else { 1 };
        let bits = self.bits as usize;
        let sample = |time: usize, part: usize| {
            let start = if bits.is_power_of_two() {
                ((time << self.channels_log2) + channel) * parts * bits
            } else {
                let several = 32 / (bits * parts);
                time / several * 32 + time % several * bits * parts
            };
            let code = (0..bits).fold(0u32, |code, k| {
                let bit = start + part * bits + k;
                code | u32::from(payload[bit / 8] >> (bit % 8) & 1) << k
            });
            level(code, self.bits)
        };
        let imaginary = |time| if self.complex { sample(time, 1) } else { 0.0 };
        (0..self.times()).map(|time| (sample(time, 0), imaginary(time))).collect()
    }
}

/// The value of an offset binary code, as in VLBI software.
pub fn level(code: u32, bits: u32) -> f64 {
    let high = f64::from(TWO_BIT_HIGH);
    match bits {
        1 => [-1.0, 1.0][code as usize],
        2 => [-high, -1.0, 1.0, high][code as usize],
        4 => (f64::from(code) - 8.0) / 2.95,
        8 => (f64::from(code) - 127.5) / 35.5,
        _ => f64::from(code) - f64::from(1u32 << (bits - 1)),
    }
}

/// A Mark 5B frame.
pub fn mark5b(day: u32, second: u32, number: u32, fraction: u32, payload: &[u8]) -> Vec<u8> {
    assert_eq!(payload.len(), 10_000);
    let bcd = |value: u32| {
        (0..8).fold(0, |code, digit| code | (value / 10u32.pow(digit) % 10) << (4 * digit))
    };
    let words = [0xabad_deed, number, bcd(day) << 20 | bcd(second), bcd(fraction) << 16];
    [words.map(u32::to_le_bytes).concat(), payload.to_vec()].concat()
}

/// Files in a temporary folder.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

/// All of every stream, scaled, read in blocks of `gulp` samples.
pub fn read_all(source: &mut dyn VoltageSource, gulp: usize) -> Vec<Vec<(f64, f64)>> {
    let header = source.header().clone();
    let mut streams = vec![Vec::new(); header.streams()];
    let mut block = header.block(gulp);
    loop {
        block.rows_mut().for_each(|row| row.fill(0xa5));
        let times = source.read(&mut block).unwrap();
        assert_eq!(times, block.times());
        let voltages = block.voltages();
        for (stream, samples) in streams.iter_mut().enumerate() {
            samples.extend((0..times).map(|time| {
                let value = voltage(voltages.row(stream), header.encoding, time) * header.scale;
                (value.re, value.im)
            }));
        }
        if times < block.capacity() {
            assert_eq!(header.times, Some(streams[0].len() as u64));
            return streams.into_iter().collect();
        }
    }
}

/// Whether samples agree within rounding.
pub fn agree(found: &[(f64, f64)], expected: &[(f64, f64)]) -> bool {
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs();
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(a, b)| close(a.0, b.0) && close(a.1, b.1))
}
