//! Filter banks in HDF5: coefficients, template properties needed by a search, and the power spectrum.
//!
//! | path                       | contents                                                               |
//! |----------------------------|------------------------------------------------------------------------|
//! | `/` attributes             | `format`, `version`, `rate_hz`, `detector`, `comment`                  |
//! | `/options/name`, `value`   | design options, a number each                                          |
//! | `/psd/densities`           | one-sided power spectral density (`spacing_hz` its attribute)          |
//! | `/resampler/down`, `up`    | taps (`down_delay`, `up_delay` the attributes of `/resampler`)         |
//! | `/templates/NAME`          | one number (or the name) per template; masses, spins NaN if unknown    |
//! | `/templates/approximant`   | approximant of each waveform, empty if unknown; absent in older files  |
//! | `/filters/offset`          | index of each template's first filter, and the total                   |
//! | `/filters/halvings` ...    | `halvings`, `a`, `b`, `delay` of each filter                           |
//! | `/autocorrelation/offset`  | as `/filters/offset`, into `values`                                    |
//! | `/whitened/offset`         | as `/filters/offset`, into `values`                                    |
//! | `/left_out/index` ...      | `index`, `name`, `match` (NaN without one), `reason`, if any           |
//!
//! Complex numbers are compounds (r, i), as in h5py. Nothing is compressed: a write and a read preserve every bit.
//!
//! Invariant: a file that is read has templates of finite numbers, and nothing larger than the file was read.

mod contents;
mod read;
mod write;

use num_complex::Complex;

use crate::math::PowerSpectrum;
use crate::strain::Binary;

pub use read::{is_bank, read};
pub use write::write;

/// Value of the root attribute `format`.
const FORMAT: &str = "sidereal filter bank";

/// Version of the layout.
const VERSION: i64 = 1;

/// Contents of a filter bank file.
#[derive(Clone, Debug, PartialEq)]
pub struct BankFile {
    /// Sampling rate of the whitened strain.
    pub rate_hz: u32,
    /// Detector of the power spectrum; empty if none.
    pub detector: String,
    /// Origin of the bank, one line.
    pub comment: String,
    /// Design options: names and values.
    pub options: Vec<(String, f64)>,
    /// Power spectrum that whitens the templates.
    pub psd: PowerSpectrum,
    /// Resampling filters.
    pub resampler: ResamplerRecord,
    /// The templates.
    pub templates: Vec<TemplateRecord>,
    /// Candidate templates excluded from the bank.
    pub left_out: Vec<LeftOutRecord>,
}

impl BankFile {
    /// Returns the value of an option, if present.
    pub fn option(&self, name: &str) -> Option<f64> {
        self.options.iter().find(|(own, _)| own == name).map(|(_, number)| *number)
    }
}

/// Taps of the filters that halve and double the sampling rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResamplerRecord {
    /// Taps of the downsampling filter.
    pub down: Vec<f32>,
    /// Its delay, in samples of the higher rate.
    pub down_delay: u32,
    /// Taps of the upsampling filter.
    pub up: Vec<f32>,
    /// Its delay, in samples of the higher rate.
    pub up_delay: u32,
}

/// An IIR filter, `y[k] = a y[k - 1] + b x[k - delay]`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FilterRecord {
    /// Number of times its input rate is halved.
    pub halvings: u32,
    /// Pole.
    pub a: Complex<f32>,
    /// Weight of the input.
    pub b: Complex<f32>,
    /// Delay of the input, in samples at the filter's rate.
    pub delay: u32,
}

/// A template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateRecord {
    /// Its name.
    pub name: String,
    /// The binary, when known.
    pub binary: Option<Binary>,
    /// Approximant of its waveform, when known.
    pub approximant: Option<String>,
    /// Its filters, branch by branch.
    pub filters: Vec<FilterRecord>,
    /// Match between the filters and the whitened template.
    pub fit: f64,
    /// Match before the fit of the weights.
    pub placement_fit: f64,
    /// Phase tolerance of the filter placement, in cycles.
    pub epsilon: f64,
    /// Signal-to-noise ratio at 1 Mpc.
    pub sigma_1mpc: f64,
    /// Distance at signal-to-noise ratio 8, in Mpc.
    pub horizon_mpc: f64,
    /// Autocorrelation, lag 0 in the middle.
    pub autocorrelation: Vec<Complex<f32>>,
    /// Autocorrelation norm `sum(2 - 2 |A|^2)`.
    pub autocorrelation_norm: f32,
    /// Event time less the time of the output sample, in seconds.
    pub peak_offset_s: f64,
    /// Length of the whitened template in seconds.
    pub duration_s: f64,
    /// Lowest frequency used, in Hz.
    pub f_low_hz: f64,
    /// Frequency below which nearly all power is, in Hz.
    pub f_final_hz: f64,
    /// The whitened template; may be empty.
    pub whitened: Vec<Complex<f32>>,
}

/// A template excluded from the bank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeftOutRecord {
    /// Its index among the bank's candidate templates.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Best match of its filters, if any.
    pub fit: Option<f64>,
    /// Reason for the exclusion.
    pub reason: String,
}

#[cfg(test)]
mod tests;
