//! Pipelines: each joins a source, stages and a sink.
//!
//! Invariant: the only modules that use both files and stages.

pub mod antennas;
mod budget;
pub mod burst;
pub mod cbc;
pub mod cleaned;
mod cleaning;
pub mod correlator;
pub mod cutout;
pub mod ending;
mod filled;
mod flagged;
pub mod kernels;
mod mitigated;
mod options;
mod range;
pub mod series;
mod tail;
mod trials;
pub mod voltage;
