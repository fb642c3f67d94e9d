//! Signals of one detector: projected waves and glitches.

use std::f64::consts::{PI, SQRT_2, TAU};

use num_complex::Complex64;

use super::options::{DetectorOptions, Glitch, Source};
use super::place::{Placed, Position};
use super::truth::{Projection, Spectrum};
use crate::error::Result;
use crate::strain::Waveform;
use crate::units::Gps;

/// Half-length of a glitch in time constants; beyond it the glitch is below 1e-15 of its peak.
const GLITCH_TAUS: f64 = 6.0;

/// Injection in one detector; its samples are computed when needed and freed afterwards.
#[derive(Debug)]
pub(super) struct Signal {
    source: Source,
    factor: Complex64,
    placed: Placed,
    series: Vec<f64>,
}

impl Signal {
    pub(super) fn new(
        source: &Source,
        wave: &Waveform,
        projection: &Projection,
        start: Gps,
    ) -> Self {
        let position = Position::new(projection.gps, start, wave.rate_hz);
        let placed = Placed::new(position, wave.peak, wave.samples.len());
        Self { source: source.clone(), factor: projection.factor, placed, series: Vec::new() }
    }

    /// Adds it to samples that start at number `start`.
    pub(super) fn add(&mut self, start: u64, rate_hz: u32, samples: &mut [f64]) -> Result<()> {
        let end = (start + samples.len() as u64) as i64;
        if self.placed.end <= start as i64 {
            self.series = Vec::new();
            return Ok(());
        }
        if self.placed.first >= end {
            return Ok(());
        }
        if self.series.is_empty() {
            let wave = self.source.waveform(rate_hz)?;
            let factor = self.factor;
            self.series =
                wave.samples.iter().map(|h| factor.re * h.re - factor.im * h.im).collect();
        }
        self.placed.add(&self.series, start, samples);
        Ok(())
    }
}

/// Glitch in one detector.
#[derive(Clone, Copy, Debug)]
pub(super) struct SineGaussian {
    position: Position,
    rate_hz: f64,
    tau_s: f64,
    frequency_hz: f64,
    height: f64,
}

impl SineGaussian {
    pub(super) fn new(
        glitch: &Glitch,
        detector: &DetectorOptions,
        (start, rate_hz, lowest_hz): (Gps, u32, f64),
    ) -> Self {
        let mut unit = Self {
            position: Position { whole: 0, part: 0.0 },
            rate_hz: f64::from(rate_hz),
            tau_s: glitch.q / (SQRT_2 * PI * glitch.frequency_hz),
            frequency_hz: glitch.frequency_hz,
            height: 1.0,
        };
        let half = unit.half();
        let samples: Vec<Complex64> = (-half..=half).map(|n| unit.at(n).into()).collect();
        let power = Spectrum::new(&samples, rate_hz).products(detector, lowest_hz).plus;
        unit.position = Position::new(glitch.gps, start, rate_hz);
        unit.height = glitch.snr / power.sqrt();
        unit
    }

    /// Returns its half-length in samples.
    fn half(&self) -> i64 {
        (GLITCH_TAUS * self.tau_s * self.rate_hz).ceil() as i64
    }

    fn at(&self, number: i64) -> f64 {
        let t = ((number - self.position.whole) as f64 - self.position.part) / self.rate_hz;
        self.height * (-(t / self.tau_s).powi(2)).exp() * (TAU * self.frequency_hz * t).sin()
    }

    /// Adds it to samples that start at number `start`.
    pub(super) fn add(&self, start: u64, samples: &mut [f64]) {
        let start = start as i64;
        let from = (self.position.whole - self.half()).max(start);
        let to = (self.position.whole + self.half() + 1).min(start + samples.len() as i64);
        for number in from..to {
            samples[(number - start) as usize] += self.at(number);
        }
    }
}
