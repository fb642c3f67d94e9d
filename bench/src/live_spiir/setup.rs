//! Strain, mergers and templates that are measured.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use sidereal::backend::threads::Threads;
use sidereal::geometry::Interferometer;
use sidereal::math::{PowerSpectrum, advanced_ligo};
use sidereal::pipeline::cbc::{PlaceOptions, Range, Space, place};
use sidereal::strain::Binary;
use sidereal::{Error, Result};

use crate::runner::Session;

/// Options of what is measured.
#[derive(Args, Clone, Debug)]
pub(super) struct Setup {
    /// Templates of each detector.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) templates: u32,
    /// Detectors: H1, L1, V1, K1, G1.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "H1,L1")]
    pub(super) detectors: Vec<String>,
    /// Component masses of the templates that are placed, in solar masses, at a match of 0.97.
    ///
    /// If they are fewer than --templates, they are repeated with masses that differ by parts in 10,000, for timing alone.
    #[arg(long, value_name = "LOW:HIGH", default_value = "10:60")]
    pub(super) masses: Span,
    /// Aligned spins of the templates.
    #[arg(long, value_name = "LOW:HIGH", default_value = "-0.9:0.9", allow_hyphen_values = true)]
    pub(super) spins: Span,
    /// Lowest frequency of the templates, in Hz.
    #[arg(long, value_name = "HZ", default_value_t = 20.0)]
    pub(super) f_low: f64,
    /// Sampling rate of the strain, in Hz.
    #[arg(long, value_name = "HZ", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(256..=65_536))]
    pub(super) rate: u32,
    /// Length of a frame, in seconds, as in `simulate strain --live`.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(super) frame: f64,
    /// Length of the strain of each part.
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u32).range(24..=86_400))]
    pub(super) seconds: u32,
    /// Interval of the search's checkpoints in seconds, as in `live spiir`; 0 writes none.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub(super) checkpoint: f64,
    /// Folder for frames and products, which are deleted at the end [default: the temporary folder].
    #[arg(long, value_name = "DIR")]
    pub(super) folder: Option<PathBuf>,
}

/// Closed interval, written LOW:HIGH.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let ends = text.split_once(':').map(|(low, high)| (low.parse(), high.parse()));
        match ends {
            Some((Ok(low), Ok(high))) if low <= high => Ok(Self { low, high }),
            _ => Err(format!("found {text}, expected LOW:HIGH")),
        }
    }
}

impl From<Span> for Range {
    fn from(span: Span) -> Self {
        Self::new(span.low, span.high)
    }
}

/// GPS second of the first sample.
pub(super) const START_S: i64 = 1_400_000_000;

/// Strain before the first merger, in which filters and spectrum fill, and after the last one.
pub(super) const BEFORE_S: f64 = 12.3;
const AFTER_S: f64 = 3.0;

/// Time between mergers: the golden ratio spreads them evenly over the frames.
const SPACING_S: f64 = 1.618_033_988_749_895;

/// Masses in solar masses and distance of the binaries, face-on near the zenith of H1 and L1.
pub(super) const SOURCE_MSUN: [f64; 2] = [30.0, 30.0];
pub(super) const DISTANCE_MPC: f64 = 3000.0;

/// Relative difference of the masses of a template and its first repetition.
const PERTURBATION: f64 = 1e-4;

/// Bank of the benchmark.
pub(super) struct Templates {
    pub(super) binaries: Vec<Binary>,
    /// Number that was placed; the others repeat them.
    pub(super) placed: usize,
}

impl Setup {
    pub(super) fn check(&self) -> Result<()> {
        for name in &self.detectors {
            if Interferometer::by_name(name).is_none() {
                return Err(Error::parameter("--detectors", name, "it is no known detector"));
            }
        }
        if !(1.0 / 64.0..=4.0).contains(&self.frame) {
            return Err(Error::parameter("--frame", self.frame, "it must be 1/64 to 4 seconds"));
        }
        Ok(())
    }

    pub(super) fn psd(&self) -> Result<PowerSpectrum> {
        advanced_ligo(0.25, 2 * self.rate as usize + 1)
    }

    /// Places templates, and repeats them up to the number asked for.
    pub(super) fn bank(&self, threads: &Threads, session: &Session<'_>) -> Result<Templates> {
        let wanted = self.templates as usize;
        let spins = self.spins.into();
        let space = Space { spin1z: spins, spin2z: spins, ..Space::of_masses(self.masses.into()) };
        let options = PlaceOptions {
            f_low_hz: self.f_low,
            f_high_hz: f64::from(self.rate) / 2.0,
            most: usize::MAX,
            ..PlaceOptions::new(space)
        };
        let mut go_on = |_| session.caller.check_interrupt();
        let placed = place(&options, &self.psd()?, threads, &mut go_on)?.binaries;
        let count = placed.len();
        if count >= wanted {
            // Evenly over all masses.
            let binaries = (0..wanted).map(|index| placed[index * count / wanted]).collect();
            return Ok(Templates { binaries, placed: wanted });
        }
        let repeated = |index: usize| {
            let factor = 1.0 + PERTURBATION * (index / count) as f64;
            let Binary { mass1_msun, mass2_msun, .. } = placed[index % count];
            let (mass1_msun, mass2_msun) = (factor * mass1_msun, factor * mass2_msun);
            Binary { mass1_msun, mass2_msun, ..placed[index % count] }
        };
        Ok(Templates { binaries: (0..wanted).map(repeated).collect(), placed: count })
    }

    /// Returns the times of mergers at the Earth's centre, in seconds from the start.
    pub(super) fn mergers(&self) -> impl Iterator<Item = f64> + use<> {
        let end_s = f64::from(self.seconds) - AFTER_S;
        (0..)
            .map(|index| BEFORE_S + f64::from(index) * SPACING_S)
            .take_while(move |time| *time < end_s)
    }

    /// Returns the table of the binaries that `simulate strain` injects.
    pub(super) fn injections(&self) -> String {
        let [mass1, mass2] = SOURCE_MSUN;
        let mut text = "m1,m2,distance,ra,dec,inclination,time\n".to_owned();
        for time_s in self.mergers() {
            let gps = START_S as f64 + time_s;
            let _ = writeln!(text, "{mass1},{mass2},{DISTANCE_MPC},1.2,0.7,0.2,{gps:.6}");
        }
        text
    }
}

/// Mergers in the strain, and those of which an event was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    pub(super) found: usize,
    pub(super) mergers: usize,
}

impl Count {
    /// Fails if one in ten mergers or more is missing.
    pub(super) fn check(self) -> Result<()> {
        let Self { found, mergers } = self;
        if 10 * (mergers - found) < mergers {
            return Ok(());
        }
        let why = format!("{found} of {mergers} mergers have an event");
        Err(Error::Unavailable { what: "the measurement of a live search".into(), why })
    }
}

/// Makes a row of the table; a quantity that does not vary has no 99th percentile.
pub(super) fn row(name: impl Into<String>, median: String, most: Option<String>) -> Vec<String> {
    vec![name.into(), median, most.unwrap_or_default()]
}
