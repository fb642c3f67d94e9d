//! What was put into a simulation.
//!
//! Invariant: lists stand in the order in which the options gave them.

use super::{Burst, Pulsar};

/// The most impulse times that a truth lists.
pub(super) const MOST_IMPULSES: usize = 1 << 20;

/// Everything that a search could find, or should not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Truth {
    /// The bursts, in the order given.
    pub bursts: Vec<BurstTruth>,
    /// The pulsars, in the order given.
    pub pulsars: Vec<PulsarTruth>,
    /// Channels with a tone, ascending.
    pub narrow_channels: Vec<usize>,
    /// Centres of the undispersed impulses in seconds, the first 2^20 of them.
    pub impulse_times_s: Vec<f64>,
}

/// A burst, and the boxcar that has its S/N.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstTruth {
    /// As asked for.
    pub burst: Burst,
    /// Start of the best boxcar in the series dedispersed at the exact DM, in seconds.
    pub boxcar_start_s: f64,
    /// Its length in seconds.
    pub boxcar_s: f64,
}

/// A pulsar, and the boxcar that has the S/N of one of its pulses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PulsarTruth {
    /// As asked for.
    pub pulsar: Pulsar,
    /// Length of the best boxcar in seconds.
    pub boxcar_s: f64,
}
