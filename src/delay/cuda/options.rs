//! Options of the delay correction on a device, and the layouts of its buffers.

use crate::backend::cuda::{Buffer, Device};
use crate::delay::plan::Band;
use crate::error::{Error, Result};
use crate::view::check_length;
use crate::voltage::VoltageEncoding;

/// Alignment of rows in bytes.
pub(super) const ALIGNED: usize = 16;

/// Most inputs, recorded channels, and channels of each.
const MOST: usize = 1 << 20;

/// Kind of input samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// Single-precision spectra of a filter bank; axes time, antenna, polarization, recorded channel, channel.
    Spectra,
    /// Channelized voltages of a complex encoding, multiplied by `scale`; axes antenna, recorded channel,
    /// polarization, time.
    Voltages {
        /// Recorded encoding.
        encoding: VoltageEncoding,
        /// Value of one count.
        scale: f32,
    },
    /// Channelized voltages that the X-engine multiplies as recorded, without delays and gains.
    Recorded,
}

/// Options for antennas of one form.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceOptions {
    /// Index of each antenna's first input in the output.
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
    /// Conversion of delays to phases; `None` without delays.
    pub band: Option<Band>,
}

/// Layout of samples in a device buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSamples {
    /// Offset of the first sample: a multiple of 16 bytes for voltages, of 8 for spectra.
    pub first_byte: usize,
    /// For voltages, bytes from one stream to the next: a multiple of 16, with room for a multiple of 8 samples. For
    /// spectra, bytes from one time to the next.
    pub stride: usize,
    /// Samples of each stream, or spectra.
    pub times: usize,
}

/// Layout of delays in device memory.
#[derive(Clone, Copy, Debug)]
pub struct DeviceDelays<'a> {
    /// Axes antenna, time, (total, residual), in seconds.
    pub seconds: &'a Buffer<f64>,
    /// Index of the first delay, in pairs.
    pub first: usize,
    /// Pairs from one antenna to the next.
    pub stride: usize,
}

/// Layout of the output: axes channel, input, time, with rows at multiples of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Natural {
    /// Offset of the first input of the first channel.
    pub first_byte: usize,
    /// Bytes from one channel to the next.
    pub channel_stride: usize,
    /// Bytes from one input to the next, with room for a multiple of 16 bytes.
    pub input_stride: usize,
}

impl DeviceOptions {
    /// Returns the elements of an antenna's spectrum.
    pub(super) fn elements(&self) -> usize {
        self.polarizations * self.coarse_channels * self.channels
    }

    /// Returns the index after the last input.
    pub(super) fn inputs_end(&self) -> usize {
        self.inputs.iter().max().map_or(0, |last| last.saturating_add(self.polarizations))
    }

    /// # Errors
    /// [`Error::Parameter`] for unsupported options.
    pub(super) fn check(&self) -> Result<()> {
        use VoltageEncoding::{Complex4, Complex8, ComplexF32};
        let within = |name: &'static str, value: usize, most: usize| match value {
            value if (1..=most).contains(&value) => Ok(()),
            value => Err(Error::parameter(name, value, format!("it must be 1 to {most}"))),
        };
        within("antennas", self.inputs.len(), 65_535)?;
        within("polarizations", self.polarizations, 2)?;
        within("inputs", self.inputs_end(), MOST)?;
        within("recorded channels", self.coarse_channels, MOST)?;
        within("channels", self.channels, MOST)?;
        if !matches!(self.encoding, Complex4 | Complex8 | ComplexF32) {
            let rule = "spectra are complex, of 4 or 8 bit integers or 32-bit floats";
            return Err(Error::parameter("encoding", format!("{:?}", self.encoding), rule));
        }
        if let Form::Voltages { encoding, .. } = self.form
            && !encoding.is_complex()
        {
            let rule = "voltages that are channelized are complex";
            return Err(Error::parameter("encoding", format!("{encoding:?}"), rule));
        }
        if self.form != Form::Spectra && self.channels != 1 {
            let rule = "voltages that are channelized already have one channel each";
            return Err(Error::parameter("channels", self.channels, rule));
        }
        if self.form == Form::Recorded && self.band.is_some() {
            let rule = "voltages that are multiplied as they were recorded are not turned";
            return Err(Error::parameter("delays", "given", rule));
        }
        let zeros = self.band.as_ref().map_or(self.coarse_channels, |band| band.zeros_hz.len());
        check_length("zero frequencies (recorded channel)", self.coarse_channels, zeros)
    }

    /// # Errors
    /// [`Error::Parameter`] for misaligned addresses; [`Error::Shape`] when the samples exceed the buffer.
    pub(super) fn check_samples(&self, buffer: &Buffer<u8>, at: DeviceSamples) -> Result<()> {
        let streams = self.inputs.len() * self.polarizations * self.coarse_channels;
        let (unit, row, rows) = match self.form {
            Form::Spectra => (8, 8 * self.inputs.len() * self.elements(), at.times),
            Form::Voltages { encoding, .. } => {
                (ALIGNED, encoding.bytes(at.times.next_multiple_of(8)), streams)
            }
            Form::Recorded => {
                (ALIGNED, self.encoding.bytes(at.times).next_multiple_of(ALIGNED), streams)
            }
        };
        check_multiple("first byte of samples", at.first_byte, unit)?;
        check_multiple("stride of samples (bytes)", at.stride, unit)?;
        at_least("stride of samples (bytes)", row, at.stride)?;
        let end = at.first_byte.saturating_add((rows.max(1) - 1).saturating_mul(at.stride));
        at_least("samples (bytes)", end.saturating_add(row), buffer.len())
    }

    /// # Errors
    /// As for [`Self::check_samples`].
    pub(super) fn check_natural(
        &self,
        buffer: &Buffer<u8>,
        at: Natural,
        times: usize,
    ) -> Result<()> {
        for (name, bytes) in [
            ("first byte of inputs", at.first_byte),
            ("stride of channels (bytes)", at.channel_stride),
            ("stride of inputs (bytes)", at.input_stride),
        ] {
            check_multiple(name, bytes, ALIGNED)?;
        }
        let row = self.encoding.bytes(times).next_multiple_of(ALIGNED);
        at_least("stride of inputs (bytes)", row, at.input_stride)?;
        let channel = (self.inputs_end() - 1).saturating_mul(at.input_stride).saturating_add(row);
        at_least("stride of channels (bytes)", channel, at.channel_stride)?;
        let others = self.coarse_channels * self.channels - 1;
        let end = others.saturating_mul(at.channel_stride).saturating_add(channel);
        at_least("inputs (bytes)", at.first_byte.saturating_add(end), buffer.len())
    }

    /// # Errors
    /// [`Error::Parameter`] when required delays are missing or on another device; [`Error::Shape`] when they exceed
    /// their buffer. Delays without a band are ignored.
    pub(super) fn check_delays(
        &self,
        delays: Option<&DeviceDelays<'_>>,
        times: usize,
        device: &Device,
    ) -> Result<()> {
        let at = match (&self.band, delays) {
            (None, _) => return Ok(()),
            (Some(_), None) => {
                let rule = "antennas are turned by their delays";
                return Err(Error::parameter("delays", "none", rule));
            }
            (Some(_), Some(at)) => at,
        };
        at.seconds.check_on(device)?;
        let last = (self.inputs.len() - 1).saturating_mul(at.stride).saturating_add(times);
        let end = at.first.saturating_add(last).saturating_mul(2);
        at_least("delays (antenna, time, 2)", end, at.seconds.len())
    }
}

fn at_least(what: &'static str, expected: usize, actual: usize) -> Result<()> {
    if actual >= expected { Ok(()) } else { Err(Error::Shape { what, expected, actual }) }
}

fn check_multiple(name: &'static str, bytes: usize, unit: usize) -> Result<()> {
    if bytes.is_multiple_of(unit) {
        return Ok(());
    }
    Err(Error::parameter(name, bytes, format!("it must be a multiple of {unit}")))
}
