//! Options of a strain simulation, and their checks.

use std::f64::consts::{FRAC_PI_2, PI, TAU};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::geometry::Interferometer;
use crate::math::PowerSpectrum;
use crate::simulate::{above_zero, within};
use crate::strain::{Binary, Waveform};
use crate::units::Gps;
use crate::waveform::{InspiralOptions, inspiral};

/// Largest number of samples; their indices are exact in f64.
const MAX_TIMES: u64 = 1 << 50;

/// Highest sampling rate in Hz.
const MAX_RATE_HZ: u32 = 1 << 20;

/// Default of the lowest frequency with full noise.
const LOWEST_HZ: f64 = 8.0;

/// Options of a strain simulation.
#[derive(Clone, Debug)]
pub struct StrainOptions {
    /// Detectors.
    pub detectors: Vec<DetectorOptions>,
    /// Time of the first sample.
    pub start: Gps,
    /// Samples per second.
    pub rate_hz: u32,
    /// Number of samples.
    pub times: u64,
    /// Seed of the noise.
    pub seed: u64,
    /// Whether to add noise; it does not affect the strength of signals.
    pub noise: bool,
    /// Frequency from which the noise has the spectrum's density; below, it falls to zero at half this frequency.
    pub lowest_hz: f64,
    /// Waves that reach all detectors.
    pub injections: Vec<Injection>,
    /// Whether the injection bits mark the seconds that hold a part of a wave.
    pub marks_injections: bool,
}

/// One detector, and the defects of its data.
#[derive(Clone, Debug)]
pub struct DetectorOptions {
    /// Interferometer.
    pub interferometer: &'static Interferometer,
    /// Its noise spectrum, strain^2 per Hz, one-sided.
    pub psd: PowerSpectrum,
    /// Glitches of this detector.
    pub glitches: Vec<Glitch>,
    /// Seconds with a data-quality flag.
    pub flagged: Vec<Flagged>,
}

/// Range of whole seconds with a data-quality flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flagged {
    /// First second, counted from the first sample.
    pub first_s: u64,
    /// First second after the range.
    pub end_s: u64,
    /// Data quality.
    pub quality: Quality,
}

/// Data quality of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quality {
    /// Usable.
    #[default]
    Good,
    /// Recorded but flagged as bad.
    Bad,
    /// Not recorded.
    Missing,
}

/// Sine-Gaussian glitch in one detector: `exp(-(t/tau)^2) sin(2 pi f t)`, `tau = Q / (sqrt(2) pi f)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glitch {
    /// Time of its centre at the detector.
    pub gps: Gps,
    /// Optimal SNR.
    pub snr: f64,
    /// Frequency in Hz.
    pub frequency_hz: f64,
    /// Quality factor: approximate number of cycles.
    pub q: f64,
}

/// Waveform of an injection.
#[derive(Clone, Debug)]
pub enum Source {
    /// Sampled waveform at the simulation's rate.
    Waveform(Arc<Waveform>),
    /// Inspiral computed when needed; rate and distance of its options are ignored.
    Inspiral(Binary, InspiralOptions),
}

/// Wave that reaches the Earth.
#[derive(Clone, Debug)]
pub struct Injection {
    /// Waveform.
    pub source: Source,
    /// Luminosity distance in Mpc.
    pub distance_mpc: f64,
    /// Right ascension with LAL's convention: relative to the mean sidereal time of date.
    pub ra_rad: f64,
    /// Declination.
    pub dec_rad: f64,
    /// Angle between the orbit's angular momentum and the line of sight to the observer: 0 is face on.
    pub inclination_rad: f64,
    /// Polarization angle.
    pub polarization_rad: f64,
    /// Additional orbital phase; it rotates the wave by twice this angle, `h exp(-2 i phase)`.
    pub phase_rad: f64,
    /// Time at which `|h|` peaks at the Earth's centre.
    pub gps: Gps,
}

impl StrainOptions {
    /// Creates options for noise alone, with one spectrum for all detectors.
    pub fn new(
        detectors: &[&'static Interferometer],
        psd: &PowerSpectrum,
        start: Gps,
        rate_hz: u32,
        times: u64,
    ) -> Self {
        let detector = |interferometer: &&'static Interferometer| DetectorOptions {
            interferometer,
            psd: psd.clone(),
            glitches: Vec::new(),
            flagged: Vec::new(),
        };
        Self {
            detectors: detectors.iter().map(detector).collect(),
            start,
            rate_hz,
            times,
            seed: 0,
            noise: true,
            lowest_hz: LOWEST_HZ,
            injections: Vec::new(),
            marks_injections: false,
        }
    }

    /// Returns the time after the last sample.
    pub fn end(&self) -> Gps {
        self.start.plus_samples(self.times as i64, self.rate_hz)
    }

    pub(super) fn check(&self) -> Result<()> {
        let rate_hz = self.rate_hz;
        if !(16..=MAX_RATE_HZ).contains(&rate_hz) {
            let rule = format!("it must be 16 to {MAX_RATE_HZ}");
            return Err(Error::parameter("rate_hz", rate_hz, rule));
        }
        if !(1..=MAX_TIMES).contains(&self.times) {
            let rule = format!("there must be 1 to {MAX_TIMES}");
            return Err(Error::parameter("samples", self.times, rule));
        }
        within(
            "lowest frequency of the noise (Hz)",
            self.lowest_hz,
            0.0,
            f64::from(rate_hz) / 2.0,
        )?;
        if self.detectors.is_empty() {
            return Err(Error::parameter("detectors", 0, "there must be one at least"));
        }
        for (index, detector) in self.detectors.iter().enumerate() {
            let name = detector.interferometer.name;
            if self.detectors[..index].iter().any(|other| other.interferometer.name == name) {
                return Err(Error::parameter("detectors", name, "each may be named once only"));
            }
            self.check_detector(detector)?;
        }
        self.injections.iter().try_for_each(|injection| self.check_injection(injection))
    }

    fn check_detector(&self, detector: &DetectorOptions) -> Result<()> {
        let nyquist_hz = f64::from(self.rate_hz) / 2.0;
        let highest_hz = detector.psd.highest_hz();
        // Files may omit the bin at the Nyquist frequency.
        if highest_hz + detector.psd.spacing_hz().min(0.01 * nyquist_hz) < nyquist_hz {
            let rule = format!(
                "at {} Hz it must reach Nyquist's frequency, {nyquist_hz} Hz",
                self.rate_hz
            );
            return Err(Error::parameter("end of the power spectrum (Hz)", highest_hz, rule));
        }
        for glitch in &detector.glitches {
            above_zero("snr of a glitch", glitch.snr, 1e6)?;
            above_zero("q of a glitch", glitch.q, 1e4)?;
            if !(glitch.frequency_hz >= 1.0 && glitch.frequency_hz < nyquist_hz) {
                let rule = format!("it must be 1 to {nyquist_hz}, Nyquist's frequency");
                return Err(Error::parameter("frequency of a glitch", glitch.frequency_hz, rule));
            }
            self.check_time("time of a glitch (GPS s)", glitch.gps)?;
        }
        let seconds = self.times.div_ceil(u64::from(self.rate_hz));
        for flagged in &detector.flagged {
            if flagged.first_s >= flagged.end_s || flagged.end_s > seconds {
                let value = format!("{}:{}", flagged.first_s, flagged.end_s);
                let rule = format!("the data last from second 0 to {seconds}");
                return Err(Error::parameter("seconds of bad quality", value, rule));
            }
        }
        Ok(())
    }

    fn check_time(&self, name: &'static str, gps: Gps) -> Result<()> {
        if (self.start..self.end()).contains(&gps) {
            return Ok(());
        }
        let rule = format!("the data last from {} to {}", self.start.s(), self.end().s());
        Err(Error::parameter(name, gps.s(), rule))
    }

    fn check_injection(&self, injection: &Injection) -> Result<()> {
        above_zero("distance of an injection (Mpc)", injection.distance_mpc, 1e12)?;
        within("ra of an injection (rad)", injection.ra_rad, -TAU, TAU)?;
        within("dec of an injection (rad)", injection.dec_rad, -FRAC_PI_2, FRAC_PI_2)?;
        within("inclination of an injection (rad)", injection.inclination_rad, 0.0, PI)?;
        within("polarization of an injection (rad)", injection.polarization_rad, -TAU, TAU)?;
        within("phase of an injection (rad)", injection.phase_rad, -TAU, TAU)?;
        self.check_time("time of an injection (GPS s)", injection.gps)?;
        match &injection.source {
            Source::Waveform(wave) if wave.rate_hz != self.rate_hz => {
                let rule = format!("the simulation's is {}", self.rate_hz);
                Err(Error::parameter("rate of the waveform (Hz)", wave.rate_hz, rule))
            }
            _ => Ok(()),
        }
    }
}

impl DetectorOptions {
    /// Returns the density of the simulated noise, strain^2 per Hz; 0 where the spectrum is undefined.
    pub(super) fn simulated_density(&self, frequency_hz: f64, lowest_hz: f64) -> f64 {
        let density = self.psd.at(frequency_hz.max(lowest_hz));
        if density.is_infinite() {
            return 0.0;
        }
        if frequency_hz >= lowest_hz {
            return density;
        }
        let part = (2.0 * frequency_hz / lowest_hz - 1.0).max(0.0);
        density * (FRAC_PI_2 * part).sin().powi(2)
    }

    /// Returns the quality of a second, counted from the first sample.
    pub(super) fn quality(&self, second: u64) -> Quality {
        let here = |flagged: &&Flagged| (flagged.first_s..flagged.end_s).contains(&second);
        self.flagged.iter().filter(here).map(|flagged| flagged.quality).max().unwrap_or_default()
    }
}

impl Source {
    /// Returns the waveform at a sampling rate.
    ///
    /// # Errors
    /// As [`inspiral`].
    pub(super) fn waveform(&self, rate_hz: u32) -> Result<Arc<Waveform>> {
        match self {
            Self::Waveform(wave) => Ok(Arc::clone(wave)),
            Self::Inspiral(binary, options) => {
                Ok(Arc::new(inspiral(binary, &InspiralOptions { rate_hz, ..*options })?))
            }
        }
    }
}
