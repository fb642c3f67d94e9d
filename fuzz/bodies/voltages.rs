//! Recordings of voltages.

use std::path::PathBuf;

use sidereal::io;
use sidereal::io::voltages::{self, VoltageOptions, VoltageSource};

use super::with_file;

/// Longest block of voltages, in bytes, that is read at all.
const LONGEST_BLOCK: usize = 1 << 22;

/// GUPPI raw: headers, blocks and their places in time.
pub fn guppi(bytes: &[u8]) {
    voltages(bytes, io::voltages::guppi::open);
}

/// PSRDADA: header, samples in any order.
pub fn dada(bytes: &[u8]) {
    voltages(bytes, io::voltages::dada::open);
}

/// Opens the files of a recording of voltages.
type OpenVoltages = fn(&[PathBuf], &VoltageOptions) -> sidereal::Result<Box<dyn VoltageSource>>;

fn voltages(bytes: &[u8], open: OpenVoltages) {
    let told = VoltageOptions { sample_rate_hz: Some(1e6), ..VoltageOptions::default() };
    with_file(bytes, |path| {
        for options in [&VoltageOptions::default(), &told] {
            if let Ok(mut source) = open(&[path.to_path_buf()], options) {
                drain_voltages(source.as_mut());
            }
        }
        let _ = io::voltages::is_voltages(path);
    });
}

/// VDIF: headers and data, at the rate that the file shows and at one that is given.
pub fn vdif(bytes: &[u8]) {
    let known = VoltageOptions::default();
    let given = VoltageOptions { sample_rate_hz: Some(6400.0), ..known.clone() };
    let paired =
        VoltageOptions { sample_rate_hz: Some(1e6), polarizations: Some(2), ..known.clone() };
    with_file(bytes, |path| {
        for options in [&known, &given, &paired] {
            if let Ok(mut source) = voltages::vdif::open(&[path.to_path_buf()], options) {
                drain_voltages(source.as_mut());
            }
        }
    });
}

/// Mark 5B: headers and data, in two modes.
pub fn mark5b(bytes: &[u8]) {
    let wide = VoltageOptions { mark5b_channels: Some(8), ..VoltageOptions::default() };
    let given = VoltageOptions {
        sample_rate_hz: Some(800_000.0),
        mark5b_channels: Some(1),
        mark5b_bits: Some(1),
        ..VoltageOptions::default()
    };
    with_file(bytes, |path| {
        for options in [&wide, &given] {
            if let Ok(mut source) = voltages::mark5b::open(&[path.to_path_buf()], options) {
                drain_voltages(source.as_mut());
            }
        }
    });
}

/// Reads a source to its end, if that is near, and holds it and its flags to what they promised.
fn drain_voltages(source: &mut dyn VoltageSource) {
    let header = source.header().clone();
    let times = header.times.expect("a file's length is known");
    assert!(header.streams() > 0 && header.tsamp_s > 0.0 && header.scale > 0.0);
    assert!((0.0..86_400.0).contains(&header.start.seconds));
    let flags = source.flags();
    assert!(flags.is_sorted_by_key(|flag| flag.start));
    assert!(flags.iter().all(|flag| flag.times > 0 && flag.start + flag.times <= times));
    assert!(flags.iter().all(|flag| flag.streams.end <= header.streams()));
    if header.encoding.bytes(1000) * header.streams() > LONGEST_BLOCK {
        return;
    }
    let mut block = header.block(1000);
    let mut read = source.skip(4).unwrap_or(0);
    for _ in 0..1000 {
        match source.read(&mut block) {
            Ok(new) if new == block.capacity() => read += new as u64,
            Ok(new) => {
                assert_eq!(read + new as u64, times);
                return;
            }
            Err(_) => return,
        }
    }
}
