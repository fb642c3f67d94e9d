//! Mathematics shared by several stages.
//!
//! Invariant: pure functions of their arguments.

pub mod design_psd;
pub mod normal;
pub mod power_spectrum;
pub mod response;
pub mod running_median;
pub mod statistics;
pub mod window;
