//! Options of the detectors' noise.

use std::path::{Path, PathBuf};

use clap::Args;
use sidereal::geometry::{INTERFEROMETERS, Interferometer};
use sidereal::io::psd;
use sidereal::io::psd::Density;
use sidereal::math::{PowerSpectrum, advanced_ligo};
use sidereal::simulate::strain::StrainOptions;
use sidereal::units::Gps;
use sidereal::{Error, Result};

/// Frequency spacing of the design curve, in Hz.
const SPACING_HZ: f64 = 0.125;

/// Default amplitude spectral density of white noise, in 1/sqrt(Hz): about the design curve's minimum.
const WHITE: f64 = 4e-24;

/// Highest sampling rate, in Hz.
const MAX_RATE_HZ: u32 = 1 << 20;

/// Options of the noise.
#[derive(Args, Clone, Debug)]
pub(super) struct NoiseArguments {
    /// Power spectral density of the noise; may be repeated.
    ///
    /// aligo (Advanced LIGO's design), white, white:ASD (1/sqrt(Hz)), a file of frequencies and densities (1/Hz), or
    /// asd:FILE (1/sqrt(Hz)). The prefix V1= limits it to one detector.
    #[arg(long, value_name = "[DETECTOR=]WHICH", default_value = "aligo", help_heading = "Noise")]
    pub(super) psd: Vec<String>,
    /// Lowest frequency at which the noise has its full density, in Hz.
    ///
    /// Below, the density falls to zero at half of this frequency.
    #[arg(
        long,
        value_name = "HZ",
        default_value_t = 8.0,
        allow_negative_numbers = true,
        help_heading = "Noise"
    )]
    noise_low: f64,
    /// Make no noise: only signals, at the strength that they would have with it.
    #[arg(long, help_heading = "Noise")]
    no_noise: bool,
}

impl NoiseArguments {
    /// Returns the simulation options of these detectors, with noise only.
    pub(super) fn options(
        &self,
        detectors: &[&'static Interferometer],
        (start, rate_hz, times): (Gps, u32, u64),
    ) -> Result<StrainOptions> {
        let mut common = None;
        let mut own = Vec::new();
        for text in &self.psd {
            match text.split_once('=') {
                Some((name, which)) => {
                    let site = detector("--psd", name)?;
                    if !detectors.contains(&site) {
                        let rule = "that detector is not among --detectors";
                        return Err(Error::parameter("--psd", text, rule));
                    }
                    own.push((site, spectrum(which, rate_hz)?));
                }
                None if common.is_some() => {
                    let rule = "only one may be for all detectors";
                    return Err(Error::parameter("--psd", text, rule));
                }
                None => common = Some(spectrum(text, rate_hz)?),
            }
        }
        let common = common.map_or_else(|| spectrum("aligo", rate_hz), Ok)?;
        let mut options = StrainOptions::new(detectors, &common, start, rate_hz, times);
        for (site, psd) in own {
            let is_it = |one: &&mut sidereal::simulate::strain::DetectorOptions| {
                one.interferometer.name == site.name
            };
            options.detectors.iter_mut().filter(is_it).for_each(|one| one.psd = psd.clone());
        }
        options.lowest_hz = self.noise_low;
        options.noise = !self.no_noise;
        Ok(options)
    }

    /// Returns every file that a density may be read from; a word without such a file is a name.
    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> + use<'_> {
        let which = |text: &String| {
            let own = text.split_once('=').map_or(text.as_str(), |(_, which)| which);
            PathBuf::from(own.strip_prefix("asd:").unwrap_or(own))
        };
        self.psd.iter().map(which)
    }
}

fn spectrum(which: &str, rate_hz: u32) -> Result<PowerSpectrum> {
    let nyquist_hz = f64::from(rate_hz) / 2.0;
    let white = |amplitude: f64| PowerSpectrum::new(nyquist_hz, vec![amplitude * amplitude; 2]);
    if !(16..=MAX_RATE_HZ).contains(&rate_hz) {
        return Err(Error::parameter("--rate", rate_hz, format!("it must be 16 to {MAX_RATE_HZ}")));
    }
    if let Some(path) = which.strip_prefix("asd:") {
        return psd::read(Path::new(path), Density::Amplitude);
    }
    match which {
        "aligo" => {
            let bins = (nyquist_hz / SPACING_HZ).ceil() as usize + 1;
            advanced_ligo(SPACING_HZ, bins)
        }
        "white" => white(WHITE),
        _ => match which.strip_prefix("white:").map(str::parse) {
            Some(Ok(amplitude)) => white(amplitude),
            Some(Err(_)) => {
                let rule = "after white: comes a number, the density in 1/sqrt(Hz)";
                Err(Error::parameter("--psd", which, rule))
            }
            None => psd::read(Path::new(which), Density::Power),
        },
    }
}

pub(crate) fn detector(option: &'static str, name: &str) -> Result<&'static Interferometer> {
    Interferometer::by_name(name.trim()).ok_or_else(|| {
        let names: Vec<&str> = INTERFEROMETERS.iter().map(|one| one.name).collect();
        Error::parameter(option, name, format!("there are {}", names.join(", ")))
    })
}
