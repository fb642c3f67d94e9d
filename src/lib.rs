//! Sidereal: from what an antenna or an interferometer records to what an astronomer looks for.
//!
//! | modules | content |
//! |---|---|
//! | [`pipeline`] | whole chains: burst search, voltages, correlator, compact binaries |
//! | [`channelize`], [`delay`], [`correlate`] | F-engine, delay correction and X-engine |
//! | [`clean`], [`dedisperse`], [`single_pulse`] | interference, trial dispersion measures, boxcar search |
//! | [`spiir`], [`waveform`] | matched filters for gravitational waves, waveforms |
//! | [`io`], [`live`] | formats; packets and PSRDADA rings |
//! | [`simulate`], [`geometry`] | simulated recordings, arrays and delays |
//! | [`backend`] | vector levels, threads, CUDA devices |
//! | [`view`], [`sample`], [`voltage`], [`strain`], [`state`], [`units`], [`math`], [`error`], [`trace`] | shared types |
//!
//! Every stage is bound to a backend by `new(plan, &backend)` and streams by `run`, `flush` and `reset`. ARCHITECTURE.md of the
//! repository has the layers and the data flow.

pub mod backend;
pub mod channelize;
pub mod clean;
pub mod coherent;
pub mod correlate;
pub mod dedisperse;
pub mod delay;
pub mod error;
pub mod geometry;
pub mod io;
pub mod live;
pub mod math;
pub mod pipeline;
pub mod sample;
pub mod simulate;
pub mod single_pulse;
pub mod spiir;
pub mod state;
pub mod strain;
pub mod trace;
pub mod units;
pub mod view;
pub mod voltage;
pub mod waveform;

pub use error::{Error, Result};
// Complex samples are of this crate's types.
pub use num_complex;

// The helpers of tests/common name the crate as other crates do.
#[cfg(test)]
extern crate self as sidereal;

/// The README's example, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
