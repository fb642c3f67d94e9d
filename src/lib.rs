#![doc = include_str!("../README.md")]

pub mod backend;
pub mod channelize;
pub mod clean;
pub mod correlate;
pub mod dedisperse;
pub mod delay;
pub mod error;
pub mod geometry;
pub mod io;
pub mod math;
pub mod pipeline;
pub mod sample;
pub mod simulate;
pub mod single_pulse;
pub mod spiir;
pub mod state;
pub mod strain;
pub mod units;
pub mod view;
pub mod voltage;
pub mod waveform;

pub use error::{Error, Result};

// The helpers of tests/common name the crate as other crates do.
#[cfg(test)]
extern crate self as sidereal;
