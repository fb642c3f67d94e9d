//! Triggers: peaks of each template's signal-to-noise ratio, interpolated in time, with a signal-consistency test.

#[cfg(feature = "cuda")]
mod cuda;
mod finder;
mod found;
mod gate;
mod interpolate;
mod options;
mod series;
mod shape;
mod sizes;

#[cfg(feature = "cuda")]
pub use cuda::{DeviceFinder, kernels};
pub use finder::Finder;
pub use found::{Trigger, reweighted};
pub use options::{Autocorrelation, TriggerOptions};
