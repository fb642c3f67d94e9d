//! Triggers: peaks of each template's signal-to-noise ratio, interpolated in time, with a signal-consistency test.

#[cfg(feature = "cuda")]
mod cuda;
mod finder;
mod gate;
mod interpolate;
mod options;
mod series;
mod shape;
mod triggers;

#[cfg(feature = "cuda")]
pub use cuda::{DeviceFinder, kernels};
pub use finder::Finder;
pub use options::{Autocorrelation, TriggerOptions};
pub use triggers::{Trigger, reweighted};
