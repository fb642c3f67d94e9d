//! Triggers: peaks of each template's signal-to-noise ratio, interpolated in time, with a signal-consistency test.

mod cpu;
mod cuda;
mod gate;
mod measure;
mod plan;

pub use cpu::Finder;
pub use cuda::{DeviceFinder, kernels};
pub use plan::{Autocorrelation, Trigger, TriggerOptions, reweighted};
