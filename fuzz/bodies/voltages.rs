//! Recordings of voltages, read, channelized and correlated; and coefficients of filter banks.

use std::path::PathBuf;

use sidereal::io;
use sidereal::io::voltages::{self, VoltageOptions, VoltageSource};

use super::{Outcome, Read, pipelines, with_file};

/// Longest block of voltages, in bytes, that is read at all.
const LONGEST_BLOCK: usize = 1 << 22;

/// Sky frequency for recordings that have none.
const CENTRE_HZ: Option<f64> = Some(1.4e9);

/// GUPPI raw: headers, blocks and their times.
pub(super) fn guppi(bytes: &[u8]) -> Outcome {
    let told = VoltageOptions { sample_rate_hz: Some(1e6), ..VoltageOptions::default() };
    recording(bytes, voltages::guppi::open, &[VoltageOptions::default(), told])
}

/// PSRDADA: header, samples in any order.
pub(super) fn dada(bytes: &[u8]) -> Outcome {
    let told = VoltageOptions { sample_rate_hz: Some(1e6), ..VoltageOptions::default() };
    recording(bytes, voltages::dada::open, &[VoltageOptions::default(), told])
}

/// VDIF: headers and data, at a given rate and at the rate that the file shows.
pub(super) fn vdif(bytes: &[u8]) -> Outcome {
    let known = VoltageOptions { centre_hz: CENTRE_HZ, ..VoltageOptions::default() };
    let given = VoltageOptions { sample_rate_hz: Some(1_024_000.0), ..known.clone() };
    let paired =
        VoltageOptions { sample_rate_hz: Some(6400.0), polarizations: Some(2), ..known.clone() };
    recording(bytes, voltages::open_vdif, &[given, known, paired])
}

/// Mark 5B: headers and data, in two modes.
pub(super) fn mark5b(bytes: &[u8]) -> Outcome {
    let wide = VoltageOptions {
        mark5b_channels: Some(8),
        sample_rate_hz: Some(8e6),
        centre_hz: CENTRE_HZ,
        ..VoltageOptions::default()
    };
    let found = VoltageOptions { sample_rate_hz: None, ..wide.clone() };
    let given = VoltageOptions {
        sample_rate_hz: Some(800_000.0),
        mark5b_channels: Some(1),
        mark5b_bits: Some(1),
        ..VoltageOptions::default()
    };
    recording(bytes, voltages::open_mark5b, &[wide, found, given])
}

/// Opens the files of a recording of voltages.
type OpenVoltages = fn(&[PathBuf], &VoltageOptions) -> sidereal::Result<Box<dyn VoltageSource>>;

/// Reads a recording with each of the options, and runs the pipelines with the first that fits.
fn recording(bytes: &[u8], open: OpenVoltages, options: &[VoltageOptions]) -> Outcome {
    with_file(bytes, |path| {
        let _ = voltages::is_voltages(path);
        let paths = [path.to_path_buf()];
        let read = |options| drain(open(&paths, options)?.as_mut());
        let mut outcomes: Vec<Outcome> = options.iter().map(read).collect();
        let whole = |outcome: &Outcome| matches!(outcome, Ok(Read::Whole | Read::Cut));
        let Some(fits) = outcomes.iter().position(whole) else { return outcomes.swap_remove(0) };
        pipelines::voltages(|| open(&paths, &options[fits]))?;
        outcomes.swap_remove(fits)
    })
}

/// Reads a source to its end, if that is near, and checks its declared properties and flags.
fn drain(source: &mut dyn VoltageSource) -> Outcome {
    let header = source.header().clone();
    let times = header.times.expect("a file's length is known");
    assert!(header.streams() > 0 && header.tsamp_s > 0.0 && header.scale > 0.0);
    assert!((0.0..86_400.0).contains(&header.start.seconds));
    let flags = source.flags();
    assert!(flags.is_sorted_by_key(|flag| flag.start));
    assert!(flags.iter().all(|flag| flag.times > 0 && flag.start + flag.times <= times));
    assert!(flags.iter().all(|flag| flag.streams.end <= header.streams()));
    if header.encoding.bytes(1000) * header.streams() > LONGEST_BLOCK {
        return Ok(Read::Part);
    }
    let mut block = header.block(1000);
    let mut read = source.skip(4)?;
    for _ in 0..100 {
        let new = source.read(&mut block)?;
        read += new as u64;
        if new < block.capacity() {
            assert_eq!(read, times);
            return Ok(if source.cut().is_some() { Read::Cut } else { Read::Whole });
        }
    }
    Ok(Read::Part)
}

/// A filter's coefficients, and a filter bank with them.
pub(super) fn window_file(bytes: &[u8]) -> Outcome {
    with_file(bytes, |path| {
        let window = io::read_window(path, 2, 8)?;
        pipelines::with_window(window)?;
        Ok(Read::Whole)
    })
}
