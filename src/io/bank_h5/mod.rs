//! Filter banks in HDF5: coefficients, what a search must know of each template, and the power spectrum.
//!
//! | place                      | holds                                                                  |
//! |----------------------------|------------------------------------------------------------------------|
//! | `/` attributes             | `format`, `version`, `rate_hz`, `detector`, `comment`                  |
//! | `/options/name`, `value`   | how the bank was designed, a number each                               |
//! | `/psd/densities`           | one-sided power spectral density (`spacing_hz` its attribute)          |
//! | `/resampler/down`, `up`    | taps (`down_delay`, `up_delay` the attributes of `/resampler`)         |
//! | `/templates/NAME`          | one number (or the name) a template; masses and spins NaN if not known |
//! | `/templates/approximant`   | the waveforms' approximants, empty if not known; older files have none |
//! | `/filters/offset`          | the first filter of each template, and the end                         |
//! | `/filters/halvings` ...    | `halvings`, `a`, `b`, `delay` of each filter                           |
//! | `/autocorrelation/offset`  | as `/filters/offset`, into `values`                                    |
//! | `/whitened/offset`         | as `/filters/offset`, into `values`                                    |
//! | `/left_out/index` ...      | `index`, `name`, `match` (NaN without one), `reason`, if any           |
//!
//! Complex numbers are compounds (r, i), as h5py has them. Nothing is compressed: what is read has the bits that were
//! written.
//!
//! Invariant: a file that is read has templates of finite numbers, and nothing larger than the file was read.

mod contents;
mod read;
mod write;

use num_complex::Complex;

use crate::math::power_spectrum::PowerSpectrum;
use crate::strain::Binary;

pub use read::{is_bank, read};
pub use write::write;

/// What the root says that it is.
const FORMAT: &str = "sidereal filter bank";

/// The layout's version.
const VERSION: i64 = 1;

/// A filter bank as a file holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct BankFile {
    /// Samples of the whitened strain in a second.
    pub rate_hz: u32,
    /// The detector whose power spectrum it is for; empty when none in particular.
    pub detector: String,
    /// How it came about, one line.
    pub comment: String,
    /// How it was designed: names and numbers.
    pub options: Vec<(String, f64)>,
    /// The power spectrum that its templates are whitened with.
    pub psd: PowerSpectrum,
    /// How rates are halved and doubled.
    pub resampler: ResamplerRecord,
    /// The templates.
    pub templates: Vec<TemplateRecord>,
    /// The templates that it was made of and that are no part of it.
    pub left_out: Vec<LeftOutRecord>,
}

impl BankFile {
    /// The number of an option, if the file has it.
    pub fn option(&self, name: &str) -> Option<f64> {
        self.options.iter().find(|(own, _)| own == name).map(|(_, number)| *number)
    }
}

/// Taps of the filters that halve and double rates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResamplerRecord {
    /// Taps on the way down.
    pub down: Vec<f32>,
    /// Their delay, in samples of the higher rate.
    pub down_delay: u32,
    /// Taps on the way up.
    pub up: Vec<f32>,
    /// Their delay, in samples of the higher rate.
    pub up_delay: u32,
}

/// One filter, `y[k] = a y[k - 1] + b x[k - delay]`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FilterRecord {
    /// How often the rate is halved for it.
    pub halvings: u32,
    /// The pole.
    pub a: Complex<f32>,
    /// The input's weight.
    pub b: Complex<f32>,
    /// Delay of the input, in samples of its rate.
    pub delay: u32,
}

/// One template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateRecord {
    /// Its name.
    pub name: String,
    /// The binary, where known.
    pub binary: Option<Binary>,
    /// The approximant of its waveform, where known.
    pub approximant: Option<String>,
    /// Its filters, branch by branch.
    pub filters: Vec<FilterRecord>,
    /// The match of filters and whitened template.
    pub fit: f64,
    /// The same before the weights were fitted.
    pub placement_fit: f64,
    /// The tolerance at which filters were placed, in cycles.
    pub epsilon: f64,
    /// Signal-to-noise ratio at 1 Mpc.
    pub sigma_1mpc: f64,
    /// Distance at which it is 8, in Mpc.
    pub horizon_mpc: f64,
    /// The autocorrelation, lag 0 in the middle.
    pub autocorrelation: Vec<Complex<f32>>,
    /// `sum(2 - 2 |A|^2)`.
    pub autocorrelation_norm: f32,
    /// The event's time less that of the output sample, in seconds.
    pub peak_offset_s: f64,
    /// Length of the whitened template in seconds.
    pub duration_s: f64,
    /// Lowest frequency used, in Hz.
    pub f_low_hz: f64,
    /// Frequency below which nearly all power lies, in Hz.
    pub f_final_hz: f64,
    /// The whitened template; it may be left out.
    pub whitened: Vec<Complex<f32>>,
}

/// A template that the bank leaves out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeftOutRecord {
    /// Its place among the templates that the bank was made of.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// The best match that filters reached, where there were any.
    pub fit: Option<f64>,
    /// Why it was left out.
    pub reason: String,
}

#[cfg(test)]
mod tests;
