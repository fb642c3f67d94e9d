//! Mathematics shared by several stages.
//!
//! Invariant: results depend only on the arguments and, for [`RunningMedian`], on the observed samples.

pub mod normal;
mod running_median;
mod spectrum;
mod statistics;
mod transforms;
mod window;

pub use running_median::RunningMedian;
pub use spectrum::{PowerSpectrum, advanced_ligo};
pub use statistics::{
    SIGMA_PER_MAD, median, median_and_sigma, truncated_variance, untruncated_sigma,
};
pub(crate) use transforms::{Buffer, Transforms};
pub use window::{Response, ResponseSummary, Window, bessel_i0, kaiser_beta, sinc};
