//! Gravitational-wave events: ratios round the event, whitened strain, time and frequency, the background.

mod axes;
mod background;
mod map;
mod snr;
#[cfg(test)]
mod tests;
mod transform;
mod whitened;

pub(crate) use background::{Background, background};
pub(crate) use map::{Map, MapOf, map};
pub(crate) use snr::{Peak, Snr, SnrOf, snr};
pub(crate) use transform::overlay;
pub(crate) use whitened::{Whitened, WhitenedOf, whitened};

/// What stands above each picture.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heading {
    /// Of first rank: `Event 1 of 1 · network SNR 23.2`.
    pub(crate) title: String,
    /// Of second rank: the template, the rate of false alarms.
    pub(crate) subtitle: String,
}
