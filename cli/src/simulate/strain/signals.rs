//! Parsers of binaries, glitches and intervals from the command line and from tables.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use sidereal::geometry::{INTERFEROMETERS, Interferometer};
use sidereal::io::templates::{self, Templates};
use sidereal::simulate::strain::{
    DetectorOptions, Flagged, Glitch, Injection, Quality, Source, StrainOptions,
};
use sidereal::strain::{Binary, Waveform};
use sidereal::units::Gps;
use sidereal::waveform::{Approximant, InspiralOptions};
use sidereal::{Error, Result};

use crate::approximant::ApproximantWord;
use crate::numbers::Fields;

/// Names of a binary's fields.
const NAMES: [&str; 12] = [
    "m1",
    "m2",
    "spin1",
    "spin2",
    "distance",
    "ra",
    "dec",
    "inclination",
    "polarization",
    "phase",
    "time",
    "f_low",
];

/// Alternative names in tables.
const OTHER_NAMES: [(&str, &str); 8] = [
    ("mass1", "m1"),
    ("mass2", "m2"),
    ("spin1z", "spin1"),
    ("spin2z", "spin2"),
    ("declination", "dec"),
    ("right_ascension", "ra"),
    ("coa_phase", "phase"),
    ("gps", "time"),
];

const GLITCH_FREQUENCY_HZ: f64 = 150.0;
const GLITCH_Q: f64 = 9.0;

/// Options of injected signals.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Signals")]
pub(crate) struct Signals {
    /// Inject a binary; may be repeated.
    ///
    /// m1=,m2= (solar masses),distance= (Mpc),ra=,dec= (radians),time= (GPS s at the Earth's centre) and optionally
    /// inclination=,polarization=,phase= (radians),spin1=,spin2=,f_low=.
    #[arg(long, value_name = "FIELDS")]
    pub(crate) inject: Vec<String>,
    /// Inject the binaries of a table.
    ///
    /// The first line has the names as in --inject, then each line one binary.
    #[arg(long, value_name = "CSV")]
    pub(crate) injections: Option<PathBuf>,
    /// Waveform for injections without masses (HDF5, plus and cross or complex, at the rate of the data).
    #[arg(long, value_name = "FILE")]
    pub(crate) waveform: Option<PathBuf>,
    /// Start frequency of waveforms generated from masses, in Hz.
    #[arg(long, value_name = "HZ", default_value_t = 15.0, allow_negative_numbers = true)]
    pub(crate) f_low: f64,
    /// Approximant of waveforms generated from masses, with aligned spins.
    ///
    /// auto is IMRPhenomD (inspiral, merger, ringdown) above 4 solar masses in total and TaylorT4 (inspiral, 3.5PN)
    /// below.
    #[arg(long, value_enum, value_name = "NAME", default_value = "auto", ignore_case = true)]
    pub(crate) approximant: ApproximantWord,
}

impl Signals {
    pub(crate) fn add(&self, options: &mut StrainOptions) -> Result<()> {
        let binaries = Binaries::new(self, options.rate_hz)?;
        for text in &self.inject {
            options.injections.push(binaries.injection("--inject", text)?);
        }
        if let Some(path) = &self.injections {
            options.injections.extend(binaries.table(path)?);
        }
        Ok(())
    }
}

/// Settings common to all injections.
struct Binaries {
    inspiral: InspiralOptions,
    /// `None` if each binary uses its default.
    approximant: Option<Approximant>,
    waveform: Option<Arc<Waveform>>,
}

impl Binaries {
    fn new(signals: &Signals, rate_hz: u32) -> Result<Self> {
        let f_low_hz = signals.f_low;
        let inspiral = InspiralOptions { f_low_hz, rate_hz, ..Default::default() };
        let waveform = signals.waveform.as_deref().map(waveform).transpose()?;
        Ok(Self { inspiral, approximant: signals.approximant.chosen(), waveform })
    }

    /// Parses an injection from `m1=30,m2=30,distance=800,...`.
    fn injection(&self, option: &'static str, text: &str) -> Result<Injection> {
        let fields = Fields::parse(option, text, &NAMES)?;
        let source = match (&self.waveform, fields.get("m1").or(fields.get("m2"))) {
            (Some(wave), None) => Source::Waveform(Arc::clone(wave)),
            _ => {
                let binary = Binary {
                    mass1_msun: fields.need("m1")?,
                    mass2_msun: fields.need("m2")?,
                    spin1z: fields.or("spin1", 0.0),
                    spin2z: fields.or("spin2", 0.0),
                };
                let f_low_hz = fields.or("f_low", self.inspiral.f_low_hz);
                let approximant = self.approximant.unwrap_or_else(|| Approximant::usual(&binary));
                let options = InspiralOptions { f_low_hz, approximant, ..self.inspiral };
                Source::Inspiral(binary, options)
            }
        };
        Ok(Injection {
            source,
            distance_mpc: fields.need("distance")?,
            ra_rad: fields.need("ra")?,
            dec_rad: fields.need("dec")?,
            inclination_rad: fields.or("inclination", 0.0),
            polarization_rad: fields.or("polarization", 0.0),
            phase_rad: fields.or("phase", 0.0),
            gps: gps(option, fields.need("time")?)?,
        })
    }

    /// Reads the injections of a table; skips empty lines and those that begin with #.
    fn table(&self, path: &Path) -> Result<Vec<Injection>> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
        let lines = text.lines().map(str::trim).enumerate();
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let Some((_, head)) = lines.next() else {
            return Err(Error::format(path, "line 1", 0, "there is no line of names"));
        };
        let names: Vec<&str> = head.split(',').map(|name| known(name.trim())).collect();
        let mut injections = Vec::new();
        for (number, line) in lines {
            let fault = |why: String| Error::format(path, format!("line {}", number + 1), 0, why);
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            if cells.len() != names.len() {
                let (found, expected) = (cells.len(), names.len());
                return Err(fault(format!("{found} cells found, expected {expected}")));
            }
            let fields: Vec<String> = names
                .iter()
                .zip(cells)
                .filter(|(_, cell)| !cell.is_empty())
                .map(|(name, cell)| format!("{name}={cell}"))
                .collect();
            let made = self.injection("--injections", &fields.join(","));
            injections.push(made.map_err(|error| fault(error.to_string()))?);
        }
        if injections.is_empty() {
            let why = "found 0 binaries, expected one a line after the line of names";
            return Err(Error::format(path, "binaries", 0, why));
        }
        Ok(injections)
    }
}

/// Returns the field's own name for a table's name.
fn known(name: &str) -> &str {
    OTHER_NAMES.iter().find(|(other, _)| *other == name).map_or(name, |(_, own)| own)
}

/// Converts GPS seconds.
fn gps(option: &'static str, seconds: f64) -> Result<Gps> {
    if (0.0..4e9).contains(&seconds) {
        return Ok(Gps::from_s(seconds));
    }
    Err(Error::parameter(option, format!("time={seconds}"), "a time must be 0 to 4e9 GPS seconds"))
}

fn waveform(path: &Path) -> Result<Arc<Waveform>> {
    match templates::open(path)? {
        Templates::Waveforms(waves) if waves.len() == 1 => {
            Ok(Arc::new(waves.into_iter().next().ok_or_else(|| missing(path, 0))?))
        }
        Templates::Waveforms(waves) => Err(missing(path, waves.len())),
        Templates::Binaries(_) => {
            let rule = "it has masses, not series; give it with --inject or --injections";
            Err(Error::parameter("--waveform", path.display(), rule))
        }
    }
}

fn missing(path: &Path, found: usize) -> Error {
    let rule = format!("it has {found} waveforms, and must have one");
    Error::parameter("--waveform", path.display(), rule)
}

/// Parses a glitch from `H1:time=1400000012.5,snr=30,...`; returns its detector's name with it.
pub(super) fn glitch(text: &str) -> Result<(&str, Glitch)> {
    let Some((name, fields)) = text.split_once(':') else {
        let rule = "it begins with a detector's name, as H1:time=1400000012.5,snr=30";
        return Err(Error::parameter("--glitch", text, rule));
    };
    let fields = Fields::parse("--glitch", fields, &["time", "snr", "frequency", "q"])?;
    let glitch = Glitch {
        gps: gps("--glitch", fields.need("time")?)?,
        snr: fields.need("snr")?,
        frequency_hz: fields.or("frequency", GLITCH_FREQUENCY_HZ),
        q: fields.or("q", GLITCH_Q),
    };
    Ok((name, glitch))
}

/// Parses an interval in seconds from `3:5` or `H1:3:5`; returns the detector's name, if given, with it.
pub(super) fn seconds<'a>(
    option: &'static str,
    text: &'a str,
    quality: Quality,
) -> Result<(Option<&'a str>, Flagged)> {
    let parts: Vec<&str> = text.split(':').collect();
    let (name, first, end) = match parts[..] {
        [first, end] => (None, first, end),
        [name, first, end] => (Some(name), first, end),
        _ => (None, "", ""),
    };
    match (first.trim().parse(), end.trim().parse()) {
        (Ok(first_s), Ok(end_s)) => Ok((name, Flagged { first_s, end_s, quality })),
        _ => {
            let rule = "it has the form A:B or H1:A:B, whole seconds from the start";
            Err(Error::parameter(option, text, rule))
        }
    }
}

/// Returns the detector of that name, or all detectors.
pub(super) fn of_detectors<'a>(
    option: &'static str,
    name: Option<&'a str>,
    options: &'a mut StrainOptions,
) -> Result<impl Iterator<Item = &'a mut DetectorOptions>> {
    let wanted = name.map(|name| detector(option, name)).transpose()?;
    if let Some(wanted) = wanted
        && options.detectors.iter().all(|one| one.interferometer.name != wanted.name)
    {
        let rule = "that detector is not among --detectors";
        return Err(Error::parameter(option, wanted.name, rule));
    }
    let is_wanted = move |one: &&mut DetectorOptions| {
        wanted.is_none_or(|it| it.name == one.interferometer.name)
    };
    Ok(options.detectors.iter_mut().filter(is_wanted))
}

/// Returns the interferometer of a name that an option gives.
pub(crate) fn detector(option: &'static str, name: &str) -> Result<&'static Interferometer> {
    Interferometer::by_name(name.trim()).ok_or_else(|| {
        let names: Vec<&str> = INTERFEROMETERS.iter().map(|one| one.name).collect();
        Error::parameter(option, name, format!("there are {}", names.join(", ")))
    })
}
