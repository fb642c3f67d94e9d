//! VDIF files opened at a rate that they do not say.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::path::PathBuf;

use sidereal::Error;
use sidereal::io::voltages::{VoltageOptions, VoltageSource, open_vdif};

use super::vlbi::Vdif;

/// Frames a second of most of these recordings.
pub const PER_SECOND: usize = 10;

pub fn at_rate(frame: &Vdif) -> VoltageOptions {
    let rate = (frame.times() * PER_SECOND) as f64;
    VoltageOptions { sample_rate_hz: Some(rate), ..VoltageOptions::default() }
}

pub fn open(path: &PathBuf, options: &VoltageOptions) -> Box<dyn VoltageSource> {
    open_vdif(std::slice::from_ref(path), options).unwrap_or_else(|error| panic!("{error}"))
}

pub fn fault(paths: &[PathBuf], options: &VoltageOptions) -> Error {
    match open_vdif(paths, options) {
        Ok(_) => panic!("{paths:?} opened"),
        Err(error) => error,
    }
}
