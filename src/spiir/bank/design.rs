//! From a waveform to its filters.

use super::{BankTemplate, Options};
use crate::error::{Error, Result};
use crate::math::power_spectrum::PowerSpectrum;
use crate::strain::Waveform;

/// Designs the filters of one waveform for strain with this power spectrum.
///
/// # Errors
/// [`Error::Unavailable`] when the match that is asked for can't be reached.
pub fn design(
    waveform: &Waveform,
    _psd: &PowerSpectrum,
    _options: &Options,
) -> Result<BankTemplate> {
    let why = "its design is not written yet".to_owned();
    Err(Error::Unavailable { what: format!("a bank for {}", waveform.name), why })
}
