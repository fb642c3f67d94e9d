//! Receiver gain over the band.

use std::f64::consts::PI;

/// Fraction of the band at each edge over which the gain rolls off.
const EDGE: f64 = 0.08;

/// Gain at the edge.
const FLOOR: f64 = 0.1;

/// Relative amplitude and number of the ripples over the band.
const RIPPLE: f64 = 0.05;
const RIPPLES: f64 = 5.0;

/// Shape of the receiver's gain.
///
/// It applies to signal and noise alike. Data of 1, 2 and 4 bit are levelled in each channel before quantization, as
/// recorders do, so that they do not show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bandpass {
    /// Constant gain.
    #[default]
    Flat,
    /// Roll-off to a tenth over the outer 8 % at each edge, with ripples of 5 %.
    Rippled,
}

impl Bandpass {
    /// Returns the gain of each channel.
    pub fn gains(self, channels: usize) -> Vec<f64> {
        let gain = |channel: usize| match self {
            Self::Flat => 1.0,
            Self::Rippled => {
                let place = (channel as f64 + 0.5) / channels as f64;
                let from_edge = place.min(1.0 - place) / EDGE;
                let rise = 0.5 - 0.5 * (PI * from_edge.min(1.0)).cos();
                let ripple = 1.0 + RIPPLE * (2.0 * PI * RIPPLES * place).cos();
                ripple * (FLOOR + (1.0 - FLOOR) * rise)
            }
        };
        (0..channels).map(gain).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_low_and_the_middle_is_about_one() {
        let gains = Bandpass::Rippled.gains(1024);
        assert!(gains[0] < 0.12 && gains[1023] < 0.12);
        assert!(gains[100..900].iter().all(|g| (0.94..1.06).contains(g)));
        assert!(Bandpass::Flat.gains(8).iter().all(|g| *g == 1.0));
    }
}
