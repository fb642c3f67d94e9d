//! Plots of gravitational-wave events: signal-to-noise ratios, whitened strain, time-frequency map, background.

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
pub(crate) use transform::{band, constant_q, overlay};
pub(crate) use whitened::{Whitened, WhitenedOf, whitened};

/// Heading of each plot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heading {
    /// Title: `Event 1 of 1 · network SNR 23.2`.
    pub(crate) title: String,
    /// Subtitle: template and false-alarm rate.
    pub(crate) subtitle: String,
}
