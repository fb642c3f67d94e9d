//! Triggers: peaks of each template's signal-to-noise ratio, interpolated in time, with a signal-consistency test.

mod cuda;
mod finder;
mod gate;
mod interpolate;
mod options;
mod series;
mod shape;
mod triggers;

pub use cuda::{DeviceFinder, kernels};
pub use finder::Finder;
pub use options::{Autocorrelation, TriggerOptions};
pub use triggers::{Trigger, reweighted};
