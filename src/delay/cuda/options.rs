//! What a device is asked to do with antennas' samples, and where they lie.

use crate::backend::cuda::{Buffer, Device};
use crate::delay::plan::Band;
use crate::error::{Error, Result};
use crate::view::check_length;
use crate::voltage::VoltageEncoding;

/// Bytes that rows begin at a multiple of.
pub(super) const ALIGNED: usize = 16;

/// The most inputs, recorded channels, and channels of each.
const MOST: usize = 1 << 20;

/// What samples are, and whether their values change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// A filter bank's spectra, single precision; axes time, antenna, polarization, recorded channel, channel.
    Spectra,
    /// Voltages that are channelized already, of a complex encoding, times `scale`; axes antenna, recorded channel,
    /// polarization, time.
    Voltages {
        /// How they were recorded.
        encoding: VoltageEncoding,
        /// What one count means.
        scale: f32,
    },
    /// The same voltages, which are multiplied as they were recorded: without delays and gains.
    Recorded,
}

/// Antennas of one form, and what becomes of their samples.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceOptions {
    /// The number of each antenna's first input out.
    pub inputs: Vec<usize>,
    /// Polarizations, 1 or 2: an antenna's inputs.
    pub polarizations: usize,
    /// Recorded (coarse) channels.
    pub coarse_channels: usize,
    /// Channels of each recorded channel; 1 for voltages that are channelized already.
    pub channels: usize,
    /// Out: [`VoltageEncoding::Complex4`], [`VoltageEncoding::Complex8`] or [`VoltageEncoding::ComplexF32`].
    pub encoding: VoltageEncoding,
    /// What comes in.
    pub form: Form,
    /// What delays mean; `None`: there are none.
    pub band: Option<Band>,
}

/// Where samples lie in a device's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSamples {
    /// The first sample's byte: a multiple of 16 for voltages, of 8 for spectra.
    pub first_byte: usize,
    /// Bytes from stream to stream of voltages, a multiple of 16 that has room for a multiple of 8 samples; from time to
    /// time of spectra.
    pub stride: usize,
    /// Samples of each stream, or spectra.
    pub times: usize,
}

/// Where delays lie in a device's memory.
#[derive(Clone, Copy, Debug)]
pub struct DeviceDelays<'a> {
    /// Axes antenna, time, (late, rest), in seconds.
    pub seconds: &'a Buffer<f64>,
    /// The first delay's place, in pairs.
    pub first: usize,
    /// Pairs from antenna to antenna.
    pub stride: usize,
}

/// Where samples are written: axes channel, input, time, all rows at multiples of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Natural {
    /// The first channel's first input.
    pub first_byte: usize,
    /// Bytes from channel to channel.
    pub channel_stride: usize,
    /// Bytes from input to input, with room for a multiple of 16 bytes.
    pub input_stride: usize,
}

impl DeviceOptions {
    /// Elements of an antenna's spectrum.
    pub(super) fn elements(&self) -> usize {
        self.polarizations * self.coarse_channels * self.channels
    }

    /// One past the last input.
    pub(super) fn inputs_end(&self) -> usize {
        self.inputs.iter().max().map_or(0, |last| last.saturating_add(self.polarizations))
    }

    /// # Errors
    /// [`Error::Parameter`] for what no kernel does.
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
    /// [`Error::Parameter`] for addresses that kernels can't read; [`Error::Shape`] when the samples do not lie in the
    /// buffer.
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
    /// As [`Self::check_samples`].
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
    /// [`Error::Parameter`] unless there are delays where they are needed, in this device's memory; [`Error::Shape`]
    /// when they do not lie in their buffer. Without a band nobody looks at them.
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
