//! What was put into simulated voltages.

use super::options::Pulse;

/// Everything that a search could find.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// The frequency at which pulses have their time: the upper edge of the whole recorded band, in Hz.
    ///
    /// At another frequency f a pulse's time is later by
    /// [`crate::units::dispersion_delay_s`]`(dm, f, reference_hz, dm_constant)`: for a search's time, f is
    /// the highest channel's centre.
    pub reference_hz: f64,
    /// The pulses, in the order in which the options gave them.
    pub pulses: Vec<PulseTruth>,
}

/// A pulse, and the boxcar that has its S/N.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PulseTruth {
    /// As asked for.
    pub pulse: Pulse,
    /// Full width at half maximum of its power before dispersion, in seconds: for an impulse, the
    /// inverse of the recorded channel's width.
    pub width_s: f64,
    /// Length of the best boxcar in the coherently dedispersed total intensity, in seconds.
    pub boxcar_s: f64,
    /// Mean power over the boxcar in units of the noise's: how bright it is at once.
    pub peak: f64,
}
