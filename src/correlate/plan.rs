//! Options of an X-engine, and the packed order of its input spectra.
//!
//! Invariant: a plan that exists can be run; all sizes follow from it.

use crate::error::{Error, Result};
use crate::voltage::VoltageEncoding;

/// Maximum number of antennas.
pub const MAX_ANTENNAS: usize = 4096;

/// Maximum number of channels.
pub const MAX_CHANNELS: usize = 1 << 20;

/// Inputs of a panel, which are adjacent in the packed order.
pub const LANES: usize = 16;

/// Maximum number of samples in a 32-bit integer sum: two products of at most 2^14 per sample stay below 2^31.
pub(super) const MAX_INTEGER_TIMES: usize = 65_535;

/// Options of an X-engine.
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

/// Rounding of single-precision samples that a GPU may apply before the products. Sums are single precision in any
/// case. The CPU, and a GPU without matrix instructions, round nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// No rounding.
    #[default]
    F32,
    /// Split into two parts of 11 significant bits each: the same error bound as `F32`, and faster. With this and
    /// the following precisions, the last bits depend on the split of the stream.
    Split,
    /// Rounding to 11 significant bits: error of a sum at most 2^-10 of the sum of its terms' magnitudes.
    Tf32,
    /// Rounding to 16-bit floats: as `Tf32`, for magnitudes of 6.2e-5 to 65504; larger values become infinite.
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

/// Checked parameters of an X-engine: geometry and all sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    options: Options,
    precision: Precision,
}

impl Plan {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an option out of range, or when the sums of all baselines and channels exceed the
    /// address space.
    pub fn new(options: Options) -> Result<Self> {
        within("antennas", options.antennas, 1, MAX_ANTENNAS)?;
        within("polarizations", options.polarizations, 1, 2)?;
        within("channels", options.channels, 1, MAX_CHANNELS)?;
        use VoltageEncoding::{Complex4, Complex8, ComplexF32};
        if !matches!(options.encoding, Complex4 | Complex8 | ComplexF32) {
            let rule = "spectra must be complex, of 4 or 8 bit integers or 32-bit floats";
            return Err(Error::parameter("encoding", format!("{:?}", options.encoding), rule));
        }
        let plan = Self { options, precision: Precision::default() };
        // Both accumulators and their padding take less than 64 bytes per product.
        let fits = plan.row_elements().checked_mul(plan.channels().saturating_mul(64));
        if fits.is_none_or(|bytes| bytes > isize::MAX as usize) {
            let rule = "the visibilities of all channels can't be addressed";
            return Err(Error::parameter("channels", plan.channels(), rule));
        }
        Ok(plan)
    }

    /// Sets the rounding that a GPU may apply to samples.
    #[must_use]
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// Returns the rounding that a GPU may apply to samples.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the number of antennas.
    pub fn antennas(&self) -> usize {
        self.options.antennas
    }

    /// Returns the polarizations of each antenna.
    pub fn polarizations(&self) -> usize {
        self.options.polarizations
    }

    /// Returns the number of frequency channels.
    pub fn channels(&self) -> usize {
        self.options.channels
    }

    /// Returns the encoding of the spectra.
    pub fn encoding(&self) -> VoltageEncoding {
        self.options.encoding
    }

    /// Returns the number of inputs: antennas x polarizations, in the order antenna, polarization.
    pub fn inputs(&self) -> usize {
        self.antennas() * self.polarizations()
    }

    /// Returns the number of panels of [`LANES`] inputs; padding inputs fill up the last.
    pub fn panels(&self) -> usize {
        self.inputs().div_ceil(LANES)
    }

    /// Returns the number of baselines (i, j), i >= j, with autocorrelations, in the order i (i + 1) / 2 + j.
    pub fn baselines(&self) -> usize {
        self.antennas() * (self.antennas() + 1) / 2
    }

    /// Returns the index of baseline (i, j), i >= j.
    pub fn baseline(i: usize, j: usize) -> usize {
        i * (i + 1) / 2 + j
    }

    /// Returns the polarization pairs of a baseline: 1 (XX), or 4 (XX, XY, YX, YY).
    pub fn pairs(&self) -> usize {
        self.polarizations() * self.polarizations()
    }

    /// Returns the visibilities of one channel: baselines x pairs.
    pub fn row_elements(&self) -> usize {
        self.baselines() * self.pairs()
    }

    /// Returns the times per group of the packed order: 2 for integers, 1 for floats.
    pub fn group(&self) -> usize {
        if self.encoding() == VoltageEncoding::ComplexF32 { 1 } else { 2 }
    }

    /// Returns the bytes of a packed block of `times` spectra.
    ///
    /// | encoding   | axes                                                             | bytes |
    /// |------------|------------------------------------------------------------------|-------|
    /// | Complex4   | channel, panel, pair of times, input, time of the pair           | 1     |
    /// | Complex8   | channel, panel, pair of times, input, time of the pair, (re, im) | 1     |
    /// | ComplexF32 | channel, panel, time, (re, im), input                            | 4     |
    pub fn packed_bytes(&self, times: usize) -> usize {
        self.channels() * self.panels() * self.panel_bytes(times)
    }

    /// Returns the bytes of one channel's panel in a packed block of `times` spectra.
    pub fn panel_bytes(&self, times: usize) -> usize {
        let times = times.next_multiple_of(self.group());
        times * LANES * self.encoding().sample_bits() / 8
    }

    /// Returns the 64-bit words of the validity mask of one antenna in one channel.
    pub fn mask_words(times: usize) -> usize {
        times.div_ceil(64)
    }
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
