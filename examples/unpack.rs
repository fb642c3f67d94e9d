//! Writes the samples of any filterbank that sidereal reads as a NumPy array: axes time, channel; f32.
//!
//!     cargo run --release --example unpack -- INPUT... OUTPUT.npy
//!
//! Several inputs are files of one observation, in order.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sidereal::Result;
use sidereal::io::npy::{Order, Writer};
use sidereal::io::{self, OpenOptions};
use sidereal::sample::unpack_f32;

/// Rows read at a time.
const GULP: usize = 4096;

fn main() -> ExitCode {
    let mut inputs: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (Some(output), false) = (inputs.pop(), inputs.is_empty()) else {
        eprintln!("usage: unpack INPUT... OUTPUT.npy");
        return ExitCode::from(2);
    };
    match unpack(&inputs, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unpack: {error}");
            ExitCode::FAILURE
        }
    }
}

fn unpack(inputs: &[PathBuf], output: &Path) -> Result<()> {
    let mut source = io::open(inputs, &OpenOptions::default())?;
    let header = source.header().clone();
    let (channels, row_bytes) = (header.channels(), header.row_bytes());
    let mut rows = vec![0; GULP * row_bytes];
    let mut values = vec![0.0; GULP * channels];
    let mut array = Writer::create(output, channels, Order::C)?;
    loop {
        let times = source.read(&mut rows)?;
        let packed = rows.chunks(row_bytes).take(times);
        for (row, values) in packed.zip(values.chunks_mut(channels)) {
            unpack_f32(row, header.encoding, values);
        }
        array.write(&values[..times * channels])?;
        if times < GULP {
            return array.finish();
        }
    }
}
