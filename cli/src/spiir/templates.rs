//! Options of templates: their placement, and the design of their filters.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::backend::threads::Threads;
use sidereal::io::templates::Templates;
use sidereal::math::PowerSpectrum;
use sidereal::pipeline::cbc::{
    Coverage, PlaceOptions, Placed, Range, Source, Space, coverage, place, waveforms,
};
use sidereal::spiir::Resampler;
use sidereal::spiir::bank::{Options, Rates, usual_autocorrelation_length};
use sidereal::strain::Binary;
use sidereal::waveform::InspiralOptions;
use sidereal::{Error, Result};

use crate::approximant::{ApproximantWord, extrapolated};
use crate::interrupt;
use crate::numbers::{self, within};
use crate::plots::{plural, short};
use crate::say::warning;

/// Closed interval of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    low: f64,
    high: f64,
}

fn parse_span(words: &str) -> std::result::Result<Span, String> {
    let (low, high) = words.split_once(':').unwrap_or((words, words));
    let span = Span { low: numbers::finite(low.trim())?, high: numbers::finite(high.trim())? };
    let rises = span.low <= span.high;
    rises.then_some(span).ok_or_else(|| "the first number must not be above the second".to_owned())
}

/// Options of template placement without a file.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Placement")]
pub(crate) struct Placement {
    /// Place templates for binaries of these component masses, LOW:HIGH in solar masses.
    ///
    /// Detector-frame (redshifted) masses. Each binary then matches a template with more than --min-match.
    #[arg(long, value_name = "LOW:HIGH", value_parser = parse_span)]
    masses: Option<Span>,
    /// Separate limits for the heavier body [default: those of --masses].
    #[arg(long, value_name = "LOW:HIGH", value_parser = parse_span, requires = "masses")]
    mass1: Option<Span>,
    /// Separate limits for the lighter body [default: those of --masses].
    #[arg(long, value_name = "LOW:HIGH", value_parser = parse_span, requires = "masses")]
    mass2: Option<Span>,
    /// Limits of the total mass, in solar masses.
    #[arg(long, value_name = "LOW:HIGH", value_parser = parse_span, requires = "masses")]
    total_mass: Option<Span>,
    /// Limits of the chirp mass, in solar masses.
    #[arg(long, value_name = "LOW:HIGH", value_parser = parse_span, requires = "masses")]
    chirp_mass: Option<Span>,
    /// Largest mass ratio, heavier over lighter.
    #[arg(
        long,
        value_name = "RATIO",
        default_value_t = 18.0,
        allow_negative_numbers = true,
        requires = "masses"
    )]
    max_mass_ratio: f64,
    /// Spins of both bodies along the orbit's angular momentum, LOW:HIGH from -1 to 1 [default: none].
    #[arg(
        long,
        value_name = "LOW:HIGH",
        value_parser = parse_span,
        allow_hyphen_values = true,
        requires = "masses"
    )]
    spins: Option<Span>,
    /// Separate spins for the heavier body.
    #[arg(
        long,
        value_name = "LOW:HIGH",
        value_parser = parse_span,
        allow_hyphen_values = true,
        requires = "masses"
    )]
    spin1: Option<Span>,
    /// Separate spins for the lighter body.
    #[arg(
        long,
        value_name = "LOW:HIGH",
        value_parser = parse_span,
        allow_hyphen_values = true,
        requires = "masses"
    )]
    spin2: Option<Span>,
    /// Lowest match of a binary with the nearest template, from 0.5 to 0.999.
    #[arg(
        long,
        value_name = "MATCH",
        default_value_t = 0.97,
        allow_negative_numbers = true,
        requires = "masses"
    )]
    min_match: f64,
    /// Seed of the random binaries proposed as templates; the same seed gives the same bank.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "masses")]
    placement_seed: u64,
    /// Largest number of templates; needing more is an error.
    #[arg(long, value_name = "N", default_value_t = 20_000, requires = "masses")]
    max_templates: usize,
    /// Estimate the coverage of masses and spins with this many random binaries; 0 disables it.
    #[arg(long, value_name = "N", default_value_t = 500, requires = "masses")]
    check_points: usize,
}

/// Report on a placed bank and its coverage.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Report {
    templates: usize,
    min_match: f64,
    /// Number of binaries proposed as templates.
    proposals: u64,
    /// Number of random binaries compared with the bank.
    points: usize,
    /// Number of those whose match with the nearest template reaches the minimum.
    points_above: usize,
    /// Lowest match of a random binary.
    lowest_match: Option<f64>,
    /// Masses of the binary with the lowest match, in solar masses.
    lowest_masses_msun: Option<[f64; 2]>,
    /// Spins of the binary with the lowest match.
    lowest_spins: Option<[f64; 2]>,
}

impl Report {
    fn new(placed: &Placed, min_match: f64, coverage: Option<&Coverage>) -> Self {
        let lowest = coverage.and_then(Coverage::worst);
        Self {
            templates: placed.binaries.len(),
            min_match,
            proposals: placed.proposals,
            points: coverage.map_or(0, |coverage| coverage.matches.len()),
            points_above: coverage.map_or(0, Coverage::above),
            lowest_match: lowest.map(|(_, found)| found),
            lowest_masses_msun: lowest.map(|(binary, _)| [binary.mass1_msun, binary.mass2_msun]),
            lowest_spins: lowest.map(|(binary, _)| [binary.spin1z, binary.spin2z]),
        }
    }

    /// Formats the report as one line.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} placed", plural(self.templates, "template"));
        if let (Some(found), Some([m1, m2])) = (self.lowest_match, self.lowest_masses_msun) {
            let [s1, s2] = self.lowest_spins.unwrap_or_default();
            let _ = write!(
                text,
                ": {} of {} random binaries match one by {} or more; the lowest match is {} ({}+{}, spins {}, {})",
                self.points_above,
                self.points,
                self.min_match,
                short(found, 4),
                short(m1, 4),
                short(m2, 4),
                short(s1, 3),
                short(s2, 3),
            );
        }
        text
    }
}

impl Placement {
    /// Returns whether templates are to be placed.
    pub(super) fn is_asked(&self) -> bool {
        self.masses.is_some()
    }

    /// Places the templates for noise of a spectrum, in the band of a design for strain of a rate.
    ///
    /// # Errors
    /// [`Error::Parameter`] for options out of range or a space without binaries; [`Error::Interrupted`].
    pub(super) fn place(
        &self,
        psd: &PowerSpectrum,
        design: &Design,
        rate_hz: u32,
        threads: &Threads,
    ) -> Result<(Placed, Report)> {
        within(
            "--min-match",
            self.min_match,
            0.5..=0.999,
            "the match of a binary with a template",
        )?;
        within("--max-mass-ratio", self.max_mass_ratio, 1.0..=100.0, "heavier over lighter")?;
        let options = PlaceOptions {
            min_match: self.min_match,
            f_low_hz: design.f_low,
            f_high_hz: design.f_high.unwrap_or(f64::from(rate_hz) / 2.0),
            seed: self.placement_seed,
            most: self.max_templates,
            ..PlaceOptions::new(self.space()?)
        };
        let placed = place(&options, psd, threads, &mut |_| interrupt::check())?;
        let coverage = match self.check_points {
            0 => None,
            points => Some(coverage(&placed.binaries, &options, psd, points, threads)?),
        };
        let report = Report::new(&placed, self.min_match, coverage.as_ref());
        Ok((placed, report))
    }

    fn space(&self) -> Result<Space> {
        let masses = self.masses.ok_or_else(|| {
            Error::parameter("--masses", "none", "a bank is placed for a range of masses")
        })?;
        let range = |span: Span| Range::new(span.low, span.high);
        let usual = Space::of_masses(range(masses));
        let spins = self.spins.map_or(usual.spin1z, range);
        Ok(Space {
            mass1_msun: self.mass1.map_or(usual.mass1_msun, range),
            mass2_msun: self.mass2.map_or(usual.mass2_msun, range),
            total_msun: self.total_mass.map_or(usual.total_msun, range),
            chirp_msun: self.chirp_mass.map_or(usual.chirp_msun, range),
            ratio: Range::new(1.0, self.max_mass_ratio),
            spin1z: self.spin1.map_or(spins, range),
            spin2z: self.spin2.map_or(spins, range),
        })
    }
}

/// Returns the placed binaries as templates.
pub(super) fn placed(placed: &Placed) -> Templates {
    Templates::Binaries(placed.binaries.iter().map(|binary| (String::new(), *binary)).collect())
}

/// Writes binaries in the CSV format of masses and spins that `spiir bank` and other programs read.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn write_csv(path: &Path, binaries: &[Binary]) -> Result<()> {
    let mut text = "mass1,mass2,spin1z,spin2z\n".to_owned();
    for Binary { mass1_msun, mass2_msun, spin1z, spin2z } in binaries {
        let _ = writeln!(text, "{mass1_msun},{mass2_msun},{spin1z},{spin2z}");
    }
    std::fs::write(path, text).map_err(|error| Error::io(path, error))
}

/// Options for the conversion of templates to filters.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Design {
    /// Lowest frequency used, in Hz.
    #[arg(
        long,
        value_name = "HZ",
        default_value_t = 20.0,
        allow_negative_numbers = true,
        help_heading = "Templates"
    )]
    f_low: f64,
    /// Highest frequency used, in Hz [default: half the rate].
    #[arg(long, value_name = "HZ", allow_negative_numbers = true, help_heading = "Templates")]
    f_high: Option<f64>,
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
    approximant: ApproximantWord,
    /// Early warning: end the templates this many seconds before the merger.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        help_heading = "Templates"
    )]
    before: f64,
    /// Early warning: end the templates when their frequency reaches this one, in Hz.
    ///
    /// With --before too, the earlier of the two ends counts.
    #[arg(long, value_name = "HZ", allow_negative_numbers = true, help_heading = "Templates")]
    f_stop: Option<f64>,
    /// Largest deviation of a filter's phase from its template's, in cycles.
    ///
    /// Reduced until the match is reached.
    #[arg(long, value_name = "CYCLES", default_value_t = 0.02, allow_negative_numbers = true)]
    epsilon: f64,
    /// Requested match of filters and template, from 0 to 1.
    ///
    /// More filters are tried until it is reached.
    #[arg(
        long = "match",
        value_name = "MATCH",
        default_value_t = 0.97,
        allow_negative_numbers = true
    )]
    minimum_match: f64,
    /// Lowest match of a template that is kept.
    ///
    /// A template whose filters reach less is dropped and reported; one between this value and --match is kept and
    /// reported. At 0.9 a signal loses at most a tenth of its SNR.
    #[arg(long, value_name = "MATCH", default_value_t = 0.9, allow_negative_numbers = true)]
    match_floor: f64,
    /// Filters that halve and double the rate: as in the paper (384 and 32 taps of linear phase), or with less delay.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "paper")]
    resampling: Resampling,
    /// Stop-band attenuation of the paper's resampler, in dB.
    #[arg(long, value_name = "DB", default_value_t = 100.0, allow_negative_numbers = true)]
    stop_band: f64,
    /// Lowest rate of any filter, in Hz.
    #[arg(long, value_name = "HZ", default_value_t = 128.0, allow_negative_numbers = true)]
    lowest_rate: f64,
    /// Run all filters at the strain's rate.
    #[arg(long, conflicts_with_all = ["resampling", "stop_band", "lowest_rate"])]
    single_rate: bool,
    /// Width of the smoothing of the spectrum that whitens templates, in Hz; 0 does not smooth.
    #[arg(long, value_name = "HZ", default_value_t = 4.0, allow_negative_numbers = true)]
    smoothing: f64,
    /// Number of autocorrelation samples for xi-squared: odd [default: 201; more above 4096 Hz for the same
    /// duration].
    #[arg(long, value_name = "N")]
    autocorrelation_length: Option<usize>,
}

/// Resampling filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Resampling {
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
    pub(super) fn source(
        &self,
        templates: Templates,
        rate_hz: u32,
        threads: &Threads,
        quiet: bool,
    ) -> Result<Source> {
        let options = self.options(rate_hz)?;
        let inspirals =
            InspiralOptions { f_low_hz: self.f_low, rate_hz, ..InspiralOptions::default() };
        let waveforms = waveforms(templates, &inspirals, self.approximant.chosen(), threads)?;
        let parts = waveforms.iter().map(|w| (&*w.name, w.binary, w.approximant.as_deref()));
        if let Some(words) = extrapolated(parts) {
            warning!(quiet: quiet, "{words}");
        }
        Ok(Source { waveforms, options })
    }

    /// Returns the design options.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option that is out of range.
    fn options(&self, rate_hz: u32) -> Result<Options> {
        let nyquist = f64::from(rate_hz) / 2.0;
        within("--f-low", self.f_low, 0.1..=nyquist, "half the rate")?;
        if let Some(f_high) = self.f_high {
            within("--f-high", f_high, self.f_low..=nyquist, "half the rate")?;
        }
        within("--before", self.before, 0.0..=86_400.0, "a day")?;
        if let Some(f_stop) = self.f_stop {
            within("--f-stop", f_stop, self.f_low..=nyquist, "half the rate")?;
            if f_stop <= self.f_low {
                let rule = format!("it must be above --f-low, {}", self.f_low);
                return Err(Error::parameter("--f-stop", f_stop, rule));
            }
        }
        within("--epsilon", self.epsilon, 1e-4..=0.5, "half a cycle")?;
        within("--match", self.minimum_match, 0.01..=0.9999, "what filters can reach")?;
        within("--match-floor", self.match_floor, 0.0..=0.9999, "what filters can reach")?;
        within("--stop-band", self.stop_band, 20.0..=150.0, "what single precision holds")?;
        within("--lowest-rate", self.lowest_rate, 1.0..=f64::from(rate_hz), "the rate")?;
        within("--smoothing", self.smoothing, 0.0..=nyquist, "half the rate")?;
        let autocorrelation_length =
            self.autocorrelation_length.unwrap_or_else(|| usual_autocorrelation_length(rate_hz));
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
            f_stop_hz: self.f_stop,
            autocorrelation_length,
            smoothing_hz: self.smoothing,
            ..Options::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_rise() {
        assert_eq!(parse_span("-0.9:0.9"), Ok(Span { low: -0.9, high: 0.9 }));
        assert_eq!(parse_span("1.4"), Ok(Span { low: 1.4, high: 1.4 }));
        for bad in ["", "60:10", "1:", "a:b", "nan:1", "1:inf"] {
            assert!(parse_span(bad).is_err(), "{bad}");
        }
    }
}
