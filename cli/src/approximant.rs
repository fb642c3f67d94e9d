//! `--approximant`: waveform approximants for masses.

use clap::ValueEnum;
use sidereal::strain::Binary;
use sidereal::waveform::{Approximant, PhenomD};

use crate::plots::plural;

/// Values of `--approximant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApproximantWord {
    /// IMRPhenomD above 4 solar masses in total, TaylorT4 below.
    #[value(name = "auto")]
    Auto,
    /// Inspiral, merger and ringdown.
    #[value(name = "IMRPhenomD")]
    IMRPhenomD,
    /// Inspiral only, `dv/dt` as a series.
    #[value(name = "TaylorT4")]
    TaylorT4,
    /// Inspiral only, `dt/dv` as a series.
    #[value(name = "TaylorT2")]
    TaylorT2,
}

impl ApproximantWord {
    /// Returns the approximant, or `None` if each binary uses its default.
    pub(crate) fn chosen(self) -> Option<Approximant> {
        match self {
            Self::Auto => None,
            Self::IMRPhenomD => Some(Approximant::IMRPhenomD),
            Self::TaylorT4 => Some(Approximant::TaylorT4),
            Self::TaylorT2 => Some(Approximant::TaylorT2),
        }
    }
}

/// Reports the number of waveforms that extrapolate IMRPhenomD, if there are any.
///
/// Each element has a name, a binary and an approximant.
pub(crate) fn extrapolated<'a>(
    waveforms: impl Iterator<Item = (&'a str, Option<Binary>, Option<&'a str>)>,
) -> Option<String> {
    let found: Vec<&str> = waveforms
        .filter(|(_, binary, approximant)| {
            *approximant == Some(Approximant::IMRPhenomD.name())
                && binary.is_some_and(|binary| !PhenomD::is_calibrated(&binary))
        })
        .map(|(name, ..)| name)
        .collect();
    let first = found.first()?;
    Some(format!(
        "{} of IMRPhenomD beyond its calibration (mass ratios to 18, spins to 0.85, of equal masses to 0.98), such as \
         {first}, by extrapolation",
        plural(found.len(), "waveform")
    ))
}
