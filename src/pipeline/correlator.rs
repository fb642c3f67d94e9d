//! FX correlator of an antenna array: voltages to visibilities.
//!
//! Invariant: visibilities depend on the recordings and the options alone, never on threads, nor on the gulp unless a
//! GPU may round floats.

mod bank;
mod baselines;
mod channels;
mod cross;
mod delays;
#[cfg(feature = "cuda")]
mod device;
mod flags;
mod front;
mod fx;
mod gains;
mod header;
mod inputs;
mod integration;
mod level;
mod lost;
mod options;
mod place;
mod setup;
mod sizes;
mod station;
mod summary;
mod tracking;
mod widened;
mod window;
mod write;

pub use fx::{ArrayCorrelator, Watch};
pub use header::{ArrayHeader, BankHeader};
pub use inputs::ArrayInput;
pub use integration::Integration;
pub use options::{Baselines, CorrelateOptions, Gains, Missing, PhaseCentre};
pub use summary::{AntennaSummary, Steps, Summary};
pub use write::{Labels, WriteReport, history, write_uvh5};
