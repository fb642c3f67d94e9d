//! Ground truth of simulated voltages.

use super::options::Pulse;

/// Quantities that a search can find.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// Reference frequency of pulse times: the upper edge of the whole recorded band, in Hz.
    ///
    /// At another frequency f a pulse is later by [`crate::units::dispersion_delay_s`]`(dm, f, reference_hz,
    /// dm_constant)`; for the time that a search reports, f is the highest channel's centre.
    pub reference_hz: f64,
    /// Pulses, in the order of the options.
    pub pulses: Vec<PulseTruth>,
}

/// Pulse, and the boxcar with its S/N.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PulseTruth {
    /// Requested pulse.
    pub pulse: Pulse,
    /// Full width at half maximum of its power before dispersion, in seconds; for an impulse, the inverse of the
    /// recorded channel's width.
    pub width_s: f64,
    /// Length of the best boxcar in the coherently dedispersed total intensity, in seconds.
    pub boxcar_s: f64,
    /// Mean power over the boxcar relative to the noise: the instantaneous brightness.
    pub peak: f64,
}
