//! FX correlator of an antenna array: voltages to visibilities.
//!
//! Invariant: visibilities depend on the recordings and the options alone, never on threads, nor on the gulp unless a
//! GPU may round floats.

mod antenna;
mod device;
mod f_engine;
mod fx;
mod gains;
mod header;
mod inputs;
mod options;
mod setup;
mod tracking;
mod window;
mod write;
mod x_engine;

pub use fx::{AntennaSummary, ArrayCorrelator, Steps, Summary, Watch};
pub use header::{ArrayHeader, BankHeader, Integration};
pub use inputs::ArrayInput;
pub use options::{Baselines, CorrelateOptions, Gains, Missing, PhaseCentre};
pub use write::{Labels, WriteReport, history, write_uvh5};
