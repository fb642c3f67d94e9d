//! Options of template placement: the binaries to cover and the match to reach.

use std::fmt::Write as _;
use std::path::Path;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::backend::threads::Threads;
use sidereal::io::templates::Templates;
use sidereal::math::PowerSpectrum;
use sidereal::pipeline::cbc::placement::{Coverage, PlaceOptions, Placed, Space, coverage, place};
use sidereal::strain::Binary;
use sidereal::{Error, Result};

use super::design::within;
use crate::plots::{plural, short};
use crate::{interrupt, numbers};

/// Closed interval of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
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
pub(crate) struct Placement {
    /// Place templates for binaries of these component masses, LOW:HIGH in solar masses.
    ///
    /// Detector-frame (redshifted) masses. Each binary then matches a template with more than --min-match.
    #[arg(long, value_name = "LOW:HIGH", value_parser = parse_span, help_heading = "Placement")]
    masses: Option<Span>,
    /// Separate limits for the heavier body [default: those of --masses].
    #[arg(long, value_name = "LOW:HIGH", value_parser = parse_span, requires = "masses", help_heading = "Placement")]
    mass1: Option<Span>,
    /// Separate limits for the lighter body [default: those of --masses].
    #[arg(long, value_name = "LOW:HIGH", value_parser = parse_span, requires = "masses", help_heading = "Placement")]
    mass2: Option<Span>,
    /// Limits of the total mass, in solar masses.
    #[arg(long, value_name = "LOW:HIGH", value_parser = parse_span, requires = "masses", help_heading = "Placement")]
    total_mass: Option<Span>,
    /// Limits of the chirp mass, in solar masses.
    #[arg(long, value_name = "LOW:HIGH", value_parser = parse_span, requires = "masses", help_heading = "Placement")]
    chirp_mass: Option<Span>,
    /// Largest mass ratio, heavier over lighter.
    #[arg(
        long,
        value_name = "RATIO",
        default_value_t = 18.0,
        allow_negative_numbers = true,
        requires = "masses",
        help_heading = "Placement"
    )]
    max_mass_ratio: f64,
    /// Spins of both bodies along the orbit's angular momentum, LOW:HIGH from -1 to 1 [default: none].
    #[arg(
        long,
        value_name = "LOW:HIGH",
        value_parser = parse_span,
        allow_hyphen_values = true,
        requires = "masses",
        help_heading = "Placement"
    )]
    spins: Option<Span>,
    /// Separate spins for the heavier body.
    #[arg(
        long,
        value_name = "LOW:HIGH",
        value_parser = parse_span,
        allow_hyphen_values = true,
        requires = "masses",
        help_heading = "Placement"
    )]
    spin1: Option<Span>,
    /// Separate spins for the lighter body.
    #[arg(
        long,
        value_name = "LOW:HIGH",
        value_parser = parse_span,
        allow_hyphen_values = true,
        requires = "masses",
        help_heading = "Placement"
    )]
    spin2: Option<Span>,
    /// Lowest match of a binary with the nearest template, from 0.5 to 0.999.
    #[arg(
        long,
        value_name = "MATCH",
        default_value_t = 0.97,
        allow_negative_numbers = true,
        requires = "masses",
        help_heading = "Placement"
    )]
    min_match: f64,
    /// Seed of the random binaries proposed as templates; the same seed gives the same bank.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        requires = "masses",
        help_heading = "Placement"
    )]
    placement_seed: u64,
    /// Largest number of templates; needing more is an error.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20_000,
        requires = "masses",
        help_heading = "Placement"
    )]
    max_templates: usize,
    /// Estimate the coverage of masses and spins with this many random binaries; 0 disables it.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 500,
        requires = "masses",
        help_heading = "Placement"
    )]
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
    /// Lowest match among them, and the binary that has it.
    lowest_match: Option<f64>,
    lowest_masses_msun: Option<[f64; 2]>,
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

    /// Places the templates for noise of a spectrum, in a band in Hz.
    ///
    /// # Errors
    /// [`Error::Parameter`] for options out of range or a space without binaries; [`Error::Interrupted`].
    pub(super) fn place(
        &self,
        psd: &PowerSpectrum,
        (f_low_hz, f_high_hz): (f64, f64),
        threads: &Threads,
    ) -> Result<(Placed, Report)> {
        within(
            "--min-match",
            self.min_match,
            (0.5, 0.999),
            "the match of a binary with a template",
        )?;
        within("--max-mass-ratio", self.max_mass_ratio, (1.0, 100.0), "heavier over lighter")?;
        let options = PlaceOptions {
            min_match: self.min_match,
            f_low_hz,
            f_high_hz,
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
        let pair = |span: Span| (span.low, span.high);
        let usual = Space::of_masses(pair(masses));
        let spins = self.spins.map_or((0.0, 0.0), pair);
        Ok(Space {
            mass1_msun: self.mass1.map_or(usual.mass1_msun, pair),
            mass2_msun: self.mass2.map_or(usual.mass2_msun, pair),
            total_msun: self.total_mass.map_or(usual.total_msun, pair),
            chirp_msun: self.chirp_mass.map_or(usual.chirp_msun, pair),
            ratio: (1.0, self.max_mass_ratio),
            spin1z: self.spin1.map_or(spins, pair),
            spin2z: self.spin2.map_or(spins, pair),
        })
    }
}

/// Returns the placed binaries as templates.
pub(super) fn templates(placed: &Placed) -> Templates {
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
