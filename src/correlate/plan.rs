//! What an X-engine is asked for, and the packed order in which it takes spectra.
//!
//! Invariant: a plan that exists can be run; all sizes follow from it.

use crate::error::{Error, Result};
use crate::voltage::VoltageEncoding;

/// The most antennas.
pub const MAX_ANTENNAS: usize = 4096;

/// The most channels.
pub const MAX_CHANNELS: usize = 1 << 20;

/// Inputs that stand side by side in the packed order.
pub const LANES: usize = 16;

/// Products of integers that a 32-bit sum holds for certain: two of 2^14 a sample stay below 2^31.
pub const MAX_INTEGER_TIMES: usize = 65_535;

/// What is correlated.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Antennas, 1 to [`MAX_ANTENNAS`].
    pub antennas: usize,
    /// Polarizations of each antenna, 1 or 2.
    pub polarizations: usize,
    /// Frequency channels.
    pub channels: usize,
    /// [`VoltageEncoding::Complex4`], [`VoltageEncoding::Complex8`] or [`VoltageEncoding::ComplexF32`].
    pub encoding: VoltageEncoding,
}

/// How a GPU may round single-precision samples before it multiplies them; sums are single precision in any case. The
/// CPU, and a GPU without matrix instructions, round nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Not at all.
    #[default]
    F32,
    /// In two parts of 11 significant bits each: within the same bound as `F32`, and faster. Of this and all that follow
    /// the last bits depend on how a stream was split.
    Split,
    /// To 11 significant bits: a sum errs by at most 2^-10 of that of its terms' magnitudes.
    Tf32,
    /// To 16-bit floats: as `Tf32`, for magnitudes of 6.2e-5 to 65504; what is larger becomes infinite.
    F16,
}

impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Split => "split",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
        })
    }
}

/// A checked X-engine: geometry and all sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    options: Options,
    precision: Precision,
}

impl Plan {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option that is out of range, or saying that the sums of all
    /// baselines and channels can't be addressed.
    pub fn new(options: Options) -> Result<Self> {
        within("antennas", options.antennas, 1, MAX_ANTENNAS)?;
        within("polarizations", options.polarizations, 1, 2)?;
        within("channels", options.channels, 1, MAX_CHANNELS)?;
        use VoltageEncoding::{Complex4, Complex8, ComplexF32};
        if !matches!(options.encoding, Complex4 | Complex8 | ComplexF32) {
            let rule = "spectra are complex, of 4 or 8 bit integers or 32-bit floats";
            return Err(Error::parameter("encoding", format!("{:?}", options.encoding), rule));
        }
        let plan = Self { options, precision: Precision::default() };
        // Both accumulators and their padding take less than 64 bytes a product.
        let fits = plan.row_elements().checked_mul(options_bytes(plan.channels()));
        if fits.is_none_or(|bytes| bytes > isize::MAX as usize) {
            let rule = "the visibilities of all channels can't be addressed";
            return Err(Error::parameter("channels", plan.channels(), rule));
        }
        Ok(plan)
    }

    /// Lets a GPU round samples.
    #[must_use]
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// How a GPU may round samples.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// What was asked for.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Antennas.
    pub fn antennas(&self) -> usize {
        self.options.antennas
    }

    /// Polarizations of each antenna.
    pub fn polarizations(&self) -> usize {
        self.options.polarizations
    }

    /// Frequency channels.
    pub fn channels(&self) -> usize {
        self.options.channels
    }

    /// How spectra are encoded.
    pub fn encoding(&self) -> VoltageEncoding {
        self.options.encoding
    }

    /// Inputs: antennas x polarizations, in the order antenna, polarization.
    pub fn inputs(&self) -> usize {
        self.antennas() * self.polarizations()
    }

    /// Panels of [`LANES`] inputs, the last filled up with inputs that are nobody's.
    pub fn panels(&self) -> usize {
        self.inputs().div_ceil(LANES)
    }

    /// Baselines (i, j), i >= j, with autocorrelations, in the order i (i + 1) / 2 + j.
    pub fn baselines(&self) -> usize {
        self.antennas() * (self.antennas() + 1) / 2
    }

    /// The place of baseline (i, j), i >= j.
    pub fn baseline(i: usize, j: usize) -> usize {
        i * (i + 1) / 2 + j
    }

    /// Polarization pairs of a baseline: 1 (XX), or 4 (XX, XY, YX, YY).
    pub fn pairs(&self) -> usize {
        self.polarizations() * self.polarizations()
    }

    /// Visibilities of one channel: baselines x pairs.
    pub fn row_elements(&self) -> usize {
        self.baselines() * self.pairs()
    }

    /// Times that stand together in the packed order: 2 of integers, 1 of floats.
    pub fn group(&self) -> usize {
        if self.encoding() == VoltageEncoding::ComplexF32 { 1 } else { 2 }
    }

    /// Bytes of a packed block of `times` spectra.
    ///
    /// | encoding   | axes                                                             | bytes |
    /// |------------|------------------------------------------------------------------|-------|
    /// | Complex4   | channel, panel, pair of times, input, time of the pair           | 1     |
    /// | Complex8   | channel, panel, pair of times, input, time of the pair, (re, im) | 1     |
    /// | ComplexF32 | channel, panel, time, (re, im), input                            | 4     |
    pub fn packed_bytes(&self, times: usize) -> usize {
        self.channels() * self.panels() * self.panel_bytes(times)
    }

    /// Bytes of one channel's panel in a packed block of `times` spectra.
    pub fn panel_bytes(&self, times: usize) -> usize {
        let times = times.next_multiple_of(self.group());
        times * LANES * self.encoding().sample_bits() / 8
    }

    /// Words of 64 bits that say which of `times` samples are valid, of one antenna in one channel.
    pub fn mask_words(times: usize) -> usize {
        times.div_ceil(64)
    }
}

/// Bytes that one product of all channels takes at most.
fn options_bytes(channels: usize) -> usize {
    channels.saturating_mul(64)
}

fn within(name: &'static str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("it must be {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options { antennas: 5, polarizations: 2, channels: 3, encoding: VoltageEncoding::Complex8 }
    }

    #[test]
    fn sizes_follow_from_the_geometry() {
        let plan = Plan::new(options()).unwrap();
        assert_eq!((plan.inputs(), plan.panels(), plan.baselines(), plan.pairs()), (10, 1, 15, 4));
        assert_eq!(plan.packed_bytes(7), 3 * 8 * 16 * 2);
        assert_eq!(Plan::baseline(4, 4) + 1, plan.baselines());
        let float = Options { encoding: VoltageEncoding::ComplexF32, ..options() };
        assert_eq!(Plan::new(float).unwrap().packed_bytes(7), 3 * 7 * 16 * 8);
    }

    #[test]
    fn rules_name_the_option() {
        let refused = |change: &dyn Fn(&mut Options)| {
            let mut options = options();
            change(&mut options);
            Plan::new(options).unwrap_err().to_string()
        };
        assert!(refused(&|o| o.antennas = 0).contains("antennas"));
        assert!(refused(&|o| o.antennas = 4097).contains("antennas"));
        assert!(refused(&|o| o.polarizations = 3).contains("polarizations"));
        assert!(refused(&|o| o.channels = 0).contains("channels"));
        assert!(refused(&|o| o.encoding = VoltageEncoding::Real8).contains("encoding"));
    }
}
