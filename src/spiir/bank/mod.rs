//! Design of filter banks: from waveforms and a power spectrum to filters with a known match.

mod design;
mod fit;
mod placement;
mod recursions;
mod whitened;

use num_complex::Complex;

use super::plan::{self, Filter, Plan, Resampler};
use super::trigger::{self, Autocorrelation, TriggerOptions};
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::strain::Waveform;
pub use crate::strain::{BankTemplate, LeftOut};
pub use design::{Designer, design};

/// Rates that filters may run at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rates {
    /// The strain's rate only.
    Single,
    /// The strain's rate and its halvings; each filter runs at the lowest that holds its band.
    Multi {
        /// Lowest rate of a branch in Hz.
        lowest_hz: f64,
    },
}

/// Design options of a bank.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Lowest frequency of the template band in Hz.
    pub f_low_hz: f64,
    /// Highest frequency of the template band in Hz; the Nyquist frequency by default.
    pub f_high_hz: Option<f64>,
    /// Initial tolerance: largest phase deviation between a filter and the template, in cycles.
    pub epsilon: f64,
    /// Position in a filter's interval of the template at which its frequency is set, as a fraction counted from the
    /// interval's end.
    pub alpha: f64,
    /// Decay exponent of a filter over its interval.
    pub beta: f64,
    /// Least ratio of the Nyquist frequency of a branch to the frequency of its filters.
    pub padding: f64,
    /// Requested match, from 0 to 1.
    pub minimum_match: f64,
    /// Match below which a template is left out. A template between this and the requested match is kept.
    pub match_floor: f64,
    /// Rates that filters may run at.
    pub rates: Rates,
    /// Filters for downsampling and upsampling by 2.
    pub resampler: Resampler,
    /// Early warning: the template ends this many seconds before its peak; 0 keeps all of it.
    pub before_s: f64,
    /// Early warning: the template ends when its frequency reaches this one in Hz, or `before_s` before its peak if that is earlier.
    pub f_stop_hz: Option<f64>,
    /// Length of the autocorrelation in samples, odd.
    pub autocorrelation_length: usize,
    /// Half-width in Hz of the running median over the power spectrum, and of the half maximum of the running mean
    /// after it; 0 uses the spectrum as it is.
    pub smoothing_hz: f64,
    /// Fraction of the template's power that filters follow; the slow beginning with the remainder is omitted.
    pub power: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            f_low_hz: 30.0,
            f_high_hz: None,
            epsilon: 0.02,
            alpha: 0.99,
            beta: 0.25,
            padding: 1.3,
            minimum_match: 0.97,
            match_floor: 0.9,
            rates: Rates::Multi { lowest_hz: 32.0 },
            resampler: Resampler::default(),
            before_s: 0.0,
            f_stop_hz: None,
            autocorrelation_length: 201,
            smoothing_hz: 4.0,
            power: 0.998,
        }
    }
}

/// Returns the usual length of the autocorrelation: 201 samples up to 4096 Hz, above it as many as have the same
/// duration. A shorter span contains less noise, so that the mismatch of a filter weighs more in xi-squared.
pub fn usual_autocorrelation_length(rate_hz: u32) -> usize {
    1 + 2 * (100 * rate_hz as usize).div_ceil(4096).max(100)
}

/// Filters of several templates for one power spectrum.
#[derive(Clone, Debug, PartialEq)]
pub struct Bank {
    /// Samples of the whitened strain per second.
    pub rate_hz: u32,
    /// Design options.
    pub options: Options,
    /// Power spectrum for whitening its templates, before smoothing.
    pub psd: PowerSpectrum,
    /// Filters for downsampling and upsampling by 2.
    pub resampler: Resampler,
    /// Templates.
    pub templates: Vec<BankTemplate>,
    /// Rejected templates, by their index among the waveforms.
    pub left_out: Vec<LeftOut>,
}

impl Bank {
    /// Returns the bytes of its templates.
    pub fn held_bytes(&self) -> usize {
        let bytes = |one: &BankTemplate| {
            let waves = one.autocorrelation.len() + one.whitened.len();
            size_of_val(one)
                + waves * size_of::<Complex<f32>>()
                + one.filters.filters() * size_of::<Filter>()
        };
        self.templates.iter().map(bytes).sum()
    }

    /// Designs the filters of all waveforms, which share one rate.
    ///
    /// # Errors
    /// As [`Designer::new`] and [`Bank::of`]; [`Error::Parameter`] if there is no waveform or their rates differ.
    pub fn design(waveforms: &[Waveform], psd: &PowerSpectrum, options: &Options) -> Result<Self> {
        let Some(first) = waveforms.first() else {
            return Err(Error::parameter("templates", 0, "a filter bank has at least 1"));
        };
        if let Some(other) = waveforms.iter().find(|other| other.rate_hz != first.rate_hz) {
            let rule = format!("{} has {} Hz, and a bank one rate", first.name, first.rate_hz);
            return Err(Error::parameter("rate of the waveform (Hz)", other.rate_hz, rule));
        }
        let designer = Designer::new(psd, options, first.rate_hz)?;
        let made = waveforms.iter().map(|waveform| designer.design(waveform));
        Self::of(made, psd, options, first.rate_hz)
    }

    /// Collects designed templates, and those that were left out.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if no template remains, with the reason of the first.
    pub fn of(
        made: impl Iterator<Item = std::result::Result<BankTemplate, LeftOut>>,
        psd: &PowerSpectrum,
        options: &Options,
        rate_hz: u32,
    ) -> Result<Self> {
        let (mut templates, mut left_out) = (Vec::new(), Vec::new());
        for (index, one) in made.enumerate() {
            match one {
                Ok(template) => templates.push(template),
                Err(one) => left_out.push(LeftOut { index, ..one }),
            }
        }
        let bank = Self {
            rate_hz,
            options: options.clone(),
            psd: psd.clone(),
            resampler: options.resampler.clone(),
            templates,
            left_out,
        };
        bank.some_left()?;
        Ok(bank)
    }

    /// Removes the templates for which `reason` returns one. Its first argument is the index among the waveforms.
    pub fn leave_out(&mut self, reason: &mut dyn FnMut(usize, &BankTemplate) -> Option<String>) {
        let before: Vec<usize> = self.left_out.iter().map(|one| one.index).collect();
        let count = self.templates.len() + before.len();
        let mut indices = (0..count).filter(|index| !before.contains(index));
        let left_out = &mut self.left_out;
        self.templates.retain(|template| {
            let Some(index) = indices.next() else { return true };
            let Some(reason) = reason(index, template) else { return true };
            let (name, fit) = (template.name.clone(), Some(template.fit));
            left_out.push(LeftOut { index, name, fit, reason });
            false
        });
        left_out.sort_by_key(|one| one.index);
    }

    /// Checks that a template remains.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the first reason.
    pub fn some_left(&self) -> Result<()> {
        match (&self.templates[..], self.left_out.first()) {
            ([], Some(first)) => Err(Error::Unavailable {
                what: format!("a bank of any of {} templates", self.left_out.len()),
                why: format!("{}: {}", first.name, first.reason),
            }),
            ([], None) => Err(Error::parameter("templates", 0, "a filter bank has at least 1")),
            _ => Ok(()),
        }
    }

    /// Returns the plan of the search for the templates' peaks.
    ///
    /// # Errors
    /// As [`trigger::Plan::new`].
    pub fn trigger_plan(&self, options: TriggerOptions) -> Result<trigger::Plan> {
        let autocorrelation = |template: &BankTemplate| Autocorrelation {
            values: template.autocorrelation.clone(),
            norm: template.autocorrelation_norm,
        };
        trigger::Plan::new(options, self.templates.iter().map(autocorrelation).collect())
    }

    /// Returns the plan of the bank's filters.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(&self) -> Result<Plan> {
        Plan::new(plan::Options {
            rate_hz: self.rate_hz,
            templates: self.templates.iter().map(|template| template.filters.clone()).collect(),
            resampler: self.resampler.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn autocorrelations_last_as_long_at_higher_rates() {
        let lengths = [1024, 4096, 10_000, 16_384].map(usual_autocorrelation_length);
        assert_eq!(lengths, [201, 201, 491, 801]);
    }
}
