//! Effect of each channel on a pulse, per unit of DM and of scattering.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::units::{Band, dispersion_delay_s};

/// Reference frequency of scattering times.
pub(super) const SCATTER_REFERENCE_HZ: f64 = 1e9;

/// Exponent of the scattering time as a function of frequency.
const SCATTER_INDEX: i32 = -4;

/// Delays and scattering of each channel.
#[derive(Debug)]
pub(super) struct Channels {
    /// Delay of the centre relative to the band's highest centre, in seconds per unit of DM.
    pub(super) delays_s: Vec<f64>,
    /// Delays of the upper edge (negative) and of the lower edge relative to the centre.
    pub(super) edges_s: Vec<(f64, f64)>,
    /// Scattering time relative to that at 1 GHz.
    pub(super) scatter: Vec<f64>,
    /// Logarithm of the frequency relative to that of the highest centre.
    pub(super) ln_frequency: Vec<f64>,
    order: Order,
}

/// Order of the delays by channel number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Rising,
    Falling,
    None,
}

impl Channels {
    pub(super) fn new(band: &Band, dm_constant: f64) -> Result<Self> {
        let (reference, half) = (band.highest_hz(), 0.5 * band.channel_width_hz());
        if band.lowest_hz() <= half {
            let rule = "the lowest channel must lie above 0 MHz as a whole";
            return Err(Error::parameter("--fch1 and --foff", band.fch1_mhz(), rule));
        }
        let delay = |from: f64, to: f64| dispersion_delay_s(1.0, from, to, dm_constant);
        let centres = band.centres_hz();
        let delays_s: Vec<f64> = centres.iter().map(|f| delay(*f, reference)).collect();
        let edges_s = centres.iter().map(|f| (delay(f + half, *f), delay(f - half, *f))).collect();
        let scatter = centres.iter().map(|f| (f / SCATTER_REFERENCE_HZ).powi(SCATTER_INDEX));
        let ln_frequency = centres.iter().map(|f| (f / reference).ln());
        let order = if delays_s.is_sorted() {
            Order::Rising
        } else if delays_s.iter().rev().is_sorted() {
            Order::Falling
        } else {
            Order::None
        };
        Ok(Self {
            scatter: scatter.collect(),
            ln_frequency: ln_frequency.collect(),
            delays_s,
            edges_s,
            order,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.delays_s.len()
    }

    /// Returns the delay of the lowest frequency, in seconds per unit of DM.
    pub(super) fn largest_delay_s(&self) -> f64 {
        self.delays_s.iter().copied().fold(0.0, f64::max)
    }

    /// Returns a range of channels that includes all with delays within `low_s ..= high_s`.
    pub(super) fn within(&self, low_s: f64, high_s: f64) -> Range<usize> {
        let delays = &self.delays_s;
        match self.order {
            Order::None => 0..delays.len(),
            Order::Rising => {
                let start = delays.partition_point(|d| *d < low_s);
                start..delays.partition_point(|d| *d <= high_s).max(start)
            }
            Order::Falling => {
                let start = delays.partition_point(|d| *d > high_s);
                start..delays.partition_point(|d| *d >= low_s).max(start)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::DM_CONSTANT;

    #[test]
    fn windows_hold_what_they_promise() {
        for step in [-1.0, 1.0] {
            let first = if step < 0.0 { 1500.0 } else { 1401.0 };
            let band = Band::uniform(first, step, 100).unwrap();
            let channels = Channels::new(&band, DM_CONSTANT).unwrap();
            let (low, high) = (channels.delays_s[40], channels.delays_s[60]);
            let (low, high) = (low.min(high), low.max(high));
            assert_eq!(channels.within(low, high), 40..61);
            assert!(
                channels.within(-2.0, -1.0).is_empty() && channels.within(9.0, 99.0).is_empty()
            );
            assert_eq!(channels.within(-1.0, 1.0), 0..100);
        }
    }

    #[test]
    fn a_band_that_reaches_zero_is_refused() {
        let band = Band::uniform(99.6, -1.0, 100).unwrap();
        assert!(Channels::new(&band, DM_CONSTANT).is_ok());
        let band = Band::uniform(99.5, -1.0, 100).unwrap();
        assert!(Channels::new(&band, DM_CONSTANT).is_err());
    }
}
