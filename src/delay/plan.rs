//! Options of the delay correction of one antenna's spectra: phases, gains, and output encoding.
//!
//! Invariant: a plan that exists can be run; all sizes follow from it.

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::view::check_length;
use crate::voltage::VoltageEncoding;

/// Options for one antenna's spectra.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Polarizations, 1 or 2.
    pub polarizations: usize,
    /// Recorded (coarse) channels.
    pub coarse_channels: usize,
    /// Channels of each recorded channel; 1 for voltages that are channelized already.
    pub channels: usize,
    /// Output: [`VoltageEncoding::Complex4`], [`VoltageEncoding::Complex8`] or [`VoltageEncoding::ComplexF32`].
    pub encoding: VoltageEncoding,
    /// Complex gains that multiply the spectra: one for all, or axes polarization, channel (of all recorded
    /// channels).
    pub gains: Vec<Complex<f32>>,
}

/// Phase rotation of the channels of a recorded channel at one time: `start + k step` turns for channel `k`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slope {
    /// Phase of the first channel.
    pub start: f64,
    /// Phase difference of adjacent channels.
    pub step: f64,
}

/// Delay of the wave at an antenna, and its remainder after the correction by whole samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delay {
    /// Total delay, in seconds.
    pub total_s: f64,
    /// Remainder, in seconds.
    pub residual_s: f64,
}

/// Conversion of delays to phases: channel `k` of recorded channel `c` is rotated by
/// `zeros_hz[c] total_s + (first_hz + k step_hz) residual_s` turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Sky frequency of each recorded channel's zero frequency; negative for a lower sideband.
    pub zeros_hz: Vec<f64>,
    /// Voltage frequency of the first channel of a recorded channel.
    pub first_hz: f64,
    /// Voltage frequency difference of adjacent channels.
    pub step_hz: f64,
}

impl Band {
    /// Returns the phase rotation of a recorded channel's channels.
    pub fn slope(&self, coarse: usize, delay: Delay) -> Slope {
        Slope {
            start: self.zeros_hz[coarse] * delay.total_s + self.first_hz * delay.residual_s,
            step: self.step_hz * delay.residual_s,
        }
    }
}

/// Checked options and all sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    options: Options,
}

impl Plan {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an option out of range; [`Error::Shape`] for gains of the wrong length.
    pub fn new(options: Options) -> Result<Self> {
        within("polarizations", options.polarizations, 1, 2)?;
        within("recorded channels", options.coarse_channels, 1, 1 << 20)?;
        within("channels", options.channels, 1, 1 << 20)?;
        use VoltageEncoding::{Complex4, Complex8, ComplexF32};
        if !matches!(options.encoding, Complex4 | Complex8 | ComplexF32) {
            let rule = "spectra are complex, of 4 or 8 bit integers or 32-bit floats";
            return Err(Error::parameter("encoding", format!("{:?}", options.encoding), rule));
        }
        if let Some(bad) = options.gains.iter().find(|gain| !gain.is_finite()) {
            return Err(Error::parameter("gain", bad.to_string(), "gains must be finite"));
        }
        if options.gains.len() != 1 {
            let expected = options.polarizations * options.coarse_channels * options.channels;
            check_length("gains (polarization, channel)", expected, options.gains.len())?;
        }
        Ok(Self { options })
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the channels of all recorded channels together.
    pub fn channels(&self) -> usize {
        self.options.coarse_channels * self.options.channels
    }

    /// Returns the elements of one spectrum of all polarizations.
    pub fn row_elements(&self) -> usize {
        self.options.polarizations * self.channels()
    }

    /// Returns the bytes of one output element.
    pub fn element_bytes(&self) -> usize {
        self.options.encoding.sample_bits() / 8
    }

    /// Returns the gain of an element of a spectrum.
    pub fn gain(&self, element: usize) -> Complex<f32> {
        self.options.gains[element % self.options.gains.len()]
    }
}

fn within(name: &'static str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("it must be {least} to {most}")))
}

/// Destination rows; axes polarization, time, channel. A call writes its spectra from time `first` on.
#[derive(Debug)]
pub struct Rows<'a> {
    /// Bytes of all polarizations, `times` spectra and all channels.
    pub bytes: &'a mut [u8],
    /// Allocated spectra of each polarization.
    pub times: usize,
    /// Index of the first spectrum to write.
    pub first: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_the_option() {
        let options = Options {
            polarizations: 2,
            coarse_channels: 3,
            channels: 4,
            encoding: VoltageEncoding::Complex8,
            gains: vec![Complex::new(1.0, 0.0)],
        };
        let plan = Plan::new(options.clone()).unwrap();
        assert_eq!((plan.channels(), plan.row_elements(), plan.element_bytes()), (12, 24, 2));
        let refused = |change: &dyn Fn(&mut Options)| {
            let mut options = options.clone();
            change(&mut options);
            Plan::new(options).unwrap_err().to_string()
        };
        assert!(refused(&|o| o.polarizations = 3).contains("polarizations"));
        assert!(refused(&|o| o.encoding = VoltageEncoding::Real8).contains("encoding"));
        assert!(refused(&|o| o.gains = vec![Complex::new(1.0, 0.0); 2]).contains("gains"));
        assert!(refused(&|o| o.gains[0].re = f32::NAN).contains("gain"));
    }
}
