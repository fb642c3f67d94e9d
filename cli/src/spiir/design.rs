//! Options of a bank's design.

use clap::{Args, ValueEnum};
use sidereal::io::templates::Templates;
use sidereal::pipeline::cbc::{Source, waveforms};
use sidereal::spiir::Resampler;
use sidereal::spiir::bank::{Options, Rates};
use sidereal::waveform::InspiralOptions;
use sidereal::{Error, Result};

use crate::approximant::{ApproximantWord, extrapolated};
use crate::say::warning;

/// Options for the conversion of templates to filters.
#[derive(Args, Clone, Debug)]
pub(crate) struct Design {
    /// Lowest frequency used, in Hz.
    #[arg(
        long,
        value_name = "HZ",
        default_value_t = 20.0,
        allow_negative_numbers = true,
        help_heading = "Templates"
    )]
    pub(super) f_low: f64,
    /// Highest frequency used, in Hz [default: half the rate].
    #[arg(long, value_name = "HZ", allow_negative_numbers = true, help_heading = "Templates")]
    pub(super) f_high: Option<f64>,
    /// Waveforms of templates given as masses, with aligned spins.
    ///
    /// auto chooses for each template: IMRPhenomD (inspiral, merger, ringdown) above 4 solar masses in total and
    /// TaylorT4 (inspiral, 3.5PN) below.
    #[arg(
        long,
        value_enum,
        value_name = "NAME",
        default_value = "auto",
        ignore_case = true,
        help_heading = "Templates"
    )]
    pub(super) approximant: ApproximantWord,
    /// Early warning: end the templates this many seconds before the merger.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        help_heading = "Templates"
    )]
    pub(super) before: f64,
    /// Largest deviation of a filter's phase from its template's, in cycles.
    ///
    /// Reduced until the match is reached.
    #[arg(
        long,
        value_name = "CYCLES",
        default_value_t = 0.02,
        allow_negative_numbers = true,
        help_heading = "Filters"
    )]
    pub(super) epsilon: f64,
    /// Requested match of filters and template, from 0 to 1.
    ///
    /// More filters are tried until it is reached.
    #[arg(
        long = "match",
        value_name = "MATCH",
        default_value_t = 0.97,
        allow_negative_numbers = true,
        help_heading = "Filters"
    )]
    pub(super) minimum_match: f64,
    /// Lowest match of a template that is kept.
    ///
    /// A template whose filters reach less is dropped and reported; one between this value and --match is kept and
    /// reported. At 0.9 a signal loses at most a tenth of its SNR.
    #[arg(
        long,
        value_name = "MATCH",
        default_value_t = 0.9,
        allow_negative_numbers = true,
        help_heading = "Filters"
    )]
    pub(super) match_floor: f64,
    /// Filters that halve and double the rate: as in the paper (384 and 32 taps of linear phase), or with less delay.
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        default_value = "paper",
        help_heading = "Filters"
    )]
    pub(super) resampling: Resampling,
    /// Stop-band attenuation of the paper's resampler, in dB.
    #[arg(
        long,
        value_name = "DB",
        default_value_t = 100.0,
        allow_negative_numbers = true,
        help_heading = "Filters"
    )]
    pub(super) stop_band: f64,
    /// Lowest rate of any filter, in Hz.
    #[arg(
        long,
        value_name = "HZ",
        default_value_t = 128.0,
        allow_negative_numbers = true,
        help_heading = "Filters"
    )]
    pub(super) lowest_rate: f64,
    /// Run all filters at the strain's rate.
    #[arg(long, conflicts_with_all = ["resampling", "stop_band", "lowest_rate"], help_heading = "Filters")]
    pub(super) single_rate: bool,
    /// Width of the smoothing of the spectrum that whitens templates, in Hz; 0 does not smooth.
    #[arg(
        long,
        value_name = "HZ",
        default_value_t = 4.0,
        allow_negative_numbers = true,
        help_heading = "Filters"
    )]
    pub(super) smoothing: f64,
    /// Number of autocorrelation samples for xi-squared: odd [default: 201; more above 4096 Hz for the same
    /// duration].
    #[arg(long, value_name = "N", help_heading = "Filters")]
    pub(super) autocorrelation_length: Option<usize>,
}

/// Resampling filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Resampling {
    /// Linear phase, 384 and 32 taps.
    Paper,
    /// Filters with less delay.
    LowLatency,
}

impl Design {
    /// Returns the templates for strain of a sampling rate, with the design options.
    ///
    /// # Errors
    /// [`Error::Parameter`] for masses without a wave in band, or another rate.
    pub(super) fn source(&self, templates: Templates, rate_hz: u32, quiet: bool) -> Result<Source> {
        let options = self.options(rate_hz)?;
        let inspirals =
            InspiralOptions { f_low_hz: self.f_low, rate_hz, ..InspiralOptions::default() };
        let waveforms = waveforms(templates, &inspirals, self.approximant.chosen())?;
        let parts = waveforms.iter().map(|w| (&*w.name, w.binary, w.approximant.as_deref()));
        if let Some(words) = extrapolated(parts) {
            warning!(quiet: quiet, "{words}");
        }
        Ok(Source { waveforms, options })
    }

    /// Returns the band of templates, in Hz.
    pub(super) fn band_hz(&self, rate_hz: u32) -> (f64, f64) {
        (self.f_low, self.f_high.unwrap_or(f64::from(rate_hz) / 2.0))
    }

    /// Returns the design options.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option that is out of range.
    fn options(&self, rate_hz: u32) -> Result<Options> {
        let nyquist = f64::from(rate_hz) / 2.0;
        within("--f-low", self.f_low, (0.1, nyquist), "half the rate")?;
        if let Some(f_high) = self.f_high {
            within("--f-high", f_high, (self.f_low, nyquist), "half the rate")?;
        }
        within("--before", self.before, (0.0, 86_400.0), "a day")?;
        within("--epsilon", self.epsilon, (1e-4, 0.5), "half a cycle")?;
        within("--match", self.minimum_match, (0.01, 0.9999), "what filters can reach")?;
        within("--match-floor", self.match_floor, (0.0, 0.9999), "what filters can reach")?;
        within("--stop-band", self.stop_band, (20.0, 150.0), "what single precision holds")?;
        within("--lowest-rate", self.lowest_rate, (1.0, f64::from(rate_hz)), "the rate")?;
        within("--smoothing", self.smoothing, (0.0, nyquist), "half the rate")?;
        let autocorrelation_length =
            self.autocorrelation_length.unwrap_or_else(|| usual_length(rate_hz));
        if autocorrelation_length.is_multiple_of(2) || autocorrelation_length < 3 {
            let rule = "it must be odd, 3 at least";
            return Err(Error::parameter("--autocorrelation-length", autocorrelation_length, rule));
        }
        Ok(Options {
            f_low_hz: self.f_low,
            f_high_hz: self.f_high,
            epsilon: self.epsilon,
            minimum_match: self.minimum_match,
            match_floor: self.match_floor,
            rates: match self.single_rate {
                true => Rates::Single,
                false => Rates::Multi { lowest_hz: self.lowest_rate },
            },
            resampler: match self.resampling {
                Resampling::Paper => Resampler::linear_phase(384, 32, self.stop_band),
                Resampling::LowLatency => Resampler::low_latency(),
            },
            before_s: self.before,
            autocorrelation_length,
            smoothing_hz: self.smoothing,
            ..Options::default()
        })
    }
}

/// Returns the default length of the autocorrelation: 201 samples up to 4096 Hz, above it as many as have the same
/// duration. Over a shorter span less of the noise remains, and the small errors of any match weigh more beside it.
fn usual_length(rate_hz: u32) -> usize {
    1 + 2 * (100 * rate_hz as usize).div_ceil(4096).max(100)
}

/// Fails unless a number is within its range.
///
/// # Errors
/// [`Error::Parameter`] naming the option.
pub(super) fn within(
    name: &'static str,
    value: f64,
    (least, most): (f64, f64),
    why: &str,
) -> Result<()> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("it must be {least} to {most} ({why})")))
}

#[cfg(test)]
mod tests {
    use super::usual_length;

    #[test]
    fn autocorrelations_last_as_long_at_higher_rates() {
        let lengths = [1024, 4096, 10_000, 16_384].map(usual_length);
        assert_eq!(lengths, [201, 201, 491, 801]);
    }
}
