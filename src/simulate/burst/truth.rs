//! Ground truth of a simulation.
//!
//! Invariant: lists stand in the order in which the options gave them.

use super::{Burst, Pulsar};

/// Largest number of listed impulse times.
pub(super) const MOST_IMPULSES: usize = 1 << 20;

/// Quantities that a search should find or reject.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Truth {
    /// Bursts, in the order of the options.
    pub bursts: Vec<BurstTruth>,
    /// Pulsars, in the order of the options.
    pub pulsars: Vec<PulsarTruth>,
    /// Channels with a tone, ascending.
    pub narrow_channels: Vec<usize>,
    /// Centres of the undispersed impulses in seconds, the first 2^20 of them.
    pub impulse_times_s: Vec<f64>,
}

/// Burst, and the boxcar with its S/N.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstTruth {
    /// Requested burst.
    pub burst: Burst,
    /// Start of the best boxcar in the series dedispersed at the exact DM, in seconds.
    pub boxcar_start_s: f64,
    /// Length of the boxcar in seconds.
    pub boxcar_s: f64,
}

/// Pulsar, and the boxcar with the S/N of one of its pulses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PulsarTruth {
    /// Requested pulsar.
    pub pulsar: Pulsar,
    /// Length of the best boxcar in seconds.
    pub boxcar_s: f64,
}
