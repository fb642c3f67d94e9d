//! Writes the samples of any filterbank that sidereal reads as a NumPy array: axes time, channel; f32.
//!
//!     cargo run --release --example unpack -- INPUT... OUTPUT.npy
//!
//! Several inputs are files of one observation, in order.

use std::path::PathBuf;
use std::process::ExitCode;

use sidereal::Result;
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
