//! Options of the delay correction: phases, gains, and output encoding.
//!
//! Invariant: a plan that exists can be run; all sizes follow from it.

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::view::check_length;
use crate::voltage::VoltageEncoding;

/// Maximum number of inputs, of recorded channels, and of channels per recorded channel.
const MAX_COUNT: usize = 1 << 20;

/// Kind of input samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// Single-precision spectra of a filter bank; axes time, antenna, polarization, recorded channel, channel.
    Spectra,
    /// Channelized voltages of a complex encoding, multiplied by `scale`; axes antenna, recorded channel,
    /// polarization, time. In GPU memory only.
    Voltages {
        /// Recorded encoding.
        encoding: VoltageEncoding,
        /// Factor from recorded values to voltages.
        scale: f32,
    },
    /// Channelized voltages that the X-engine multiplies as recorded, without delays and gains. In GPU memory only.
    Recorded,
}

/// Options for antennas of one form.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Index of each antenna's first input in the output, for samples in GPU memory. For spectra in host memory it has
    /// one element, whose value is not used.
    pub inputs: Vec<usize>,
    /// Polarizations, 1 or 2: the inputs of an antenna.
    pub polarizations: usize,
    /// Recorded (coarse) channels.
    pub coarse_channels: usize,
    /// Channels of each recorded channel; 1 for voltages that are channelized already.
    pub channels: usize,
    /// Output: [`VoltageEncoding::Complex4`], [`VoltageEncoding::Complex8`] or [`VoltageEncoding::ComplexF32`].
    pub encoding: VoltageEncoding,
    /// Kind of input.
    pub form: Form,
    /// Conversion of delays in GPU memory to phases; `None` without delays.
    pub band: Option<Band>,
    /// Complex gains that multiply the spectra of every antenna: one for all, or axes polarization, channel (of all
    /// recorded channels).
    pub gains: Vec<Complex<f32>>,
}

impl Options {
    /// Returns the options for spectra of one antenna with a gain of 1.
    pub fn one_antenna(
        polarizations: usize,
        coarse_channels: usize,
        channels: usize,
        encoding: VoltageEncoding,
    ) -> Self {
        Self {
            inputs: vec![0],
            polarizations,
            coarse_channels,
            channels,
            encoding,
            form: Form::Spectra,
            band: None,
            gains: vec![Complex::ONE],
        }
    }

    /// Returns the index after the last input.
    pub(super) fn inputs_end(&self) -> usize {
        self.inputs.iter().max().map_or(0, |last| last.saturating_add(self.polarizations))
    }
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

/// Destination rows in host memory; axes polarization, time, channel. A call writes its spectra from time `first` on.
#[derive(Debug)]
pub struct Rows<'a> {
    /// Bytes of all polarizations, `times` spectra and all channels.
    pub bytes: &'a mut [u8],
    /// Allocated spectra of each polarization.
    pub times: usize,
    /// Index of the first spectrum to write.
    pub first: usize,
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
    /// [`Error::Parameter`] for an option out of range; [`Error::Shape`] for gains or zero frequencies of the wrong
    /// length.
    pub fn new(options: Options) -> Result<Self> {
        use VoltageEncoding::{Complex4, Complex8, ComplexF32};
        within("antennas", options.inputs.len(), 65_535)?;
        within("polarizations", options.polarizations, 2)?;
        within("inputs", options.inputs_end(), MAX_COUNT)?;
        within("recorded channels", options.coarse_channels, MAX_COUNT)?;
        within("channels", options.channels, MAX_COUNT)?;
        if !matches!(options.encoding, Complex4 | Complex8 | ComplexF32) {
            let rule = "spectra must be complex, of 4 or 8 bit integers or 32-bit floats";
            return Err(Error::parameter("encoding", format!("{:?}", options.encoding), rule));
        }
        if let Form::Voltages { encoding, .. } = options.form
            && !encoding.is_complex()
        {
            let rule = "channelized voltages must be complex";
            return Err(Error::parameter("encoding", format!("{encoding:?}"), rule));
        }
        if options.form != Form::Spectra && options.channels != 1 {
            let rule = "voltages that are channelized already have one channel each";
            return Err(Error::parameter("channels", options.channels, rule));
        }
        if options.form == Form::Recorded && options.band.is_some() {
            let rule = "voltages that are correlated as recorded get no delay correction";
            return Err(Error::parameter("delays", "given", rule));
        }
        let zeros = options.band.as_ref().map_or(options.coarse_channels, |b| b.zeros_hz.len());
        check_length("zero frequencies (recorded channel)", options.coarse_channels, zeros)?;
        let plan = Self { options };
        plan.check_gains(&plan.options.gains)?;
        Ok(plan)
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the channels of all recorded channels together.
    pub fn channels(&self) -> usize {
        self.options.coarse_channels * self.options.channels
    }

    /// Returns the elements of one spectrum of all polarizations of an antenna.
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

    /// # Errors
    /// [`Error::Parameter`] for a gain that is not finite; [`Error::Shape`] for a number of gains other than 1 or
    /// the number of elements.
    pub(super) fn check_gains(&self, gains: &[Complex<f32>]) -> Result<()> {
        if let Some(bad) = gains.iter().find(|gain| !gain.is_finite()) {
            return Err(Error::parameter("gain", bad.to_string(), "gains must be finite"));
        }
        if gains.len() == 1 {
            return Ok(());
        }
        check_length("gains (polarization, channel)", self.row_elements(), gains.len())
    }

    /// # Errors
    /// [`Error::Unavailable`] if the samples are not one antenna's spectra.
    pub(super) fn check_host(&self) -> Result<()> {
        if self.options.inputs.len() == 1 && self.options.form == Form::Spectra {
            return Ok(());
        }
        Err(Error::Unavailable {
            what: "delay correction of several antennas or of recorded voltages".to_owned(),
            why: "host memory holds the spectra of one antenna".to_owned(),
        })
    }
}

fn within(name: &'static str, value: usize, most: usize) -> Result<()> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("it must be 1 to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_the_option() {
        let options = Options::one_antenna(2, 3, 4, VoltageEncoding::Complex8);
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
