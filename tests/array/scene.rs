//! Three antennas that see tones through delays that change.

use std::f64::consts::TAU;

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::geometry::DelayPolynomial;
use sidereal::io::voltages::VoltageHeader;
use sidereal::pipeline::correlator::{ArrayCorrelator, CorrelateOptions};
use sidereal::units::Epoch;
use sidereal::voltage::VoltageEncoding;

use super::array::{self, inputs, polynomial, recording};
use super::memory::{self, Memory};

/// Channels of a recorded channel.
pub(crate) const CHANNELS: usize = 16;

/// Spectra.
pub(crate) const SPECTRA: usize = 2200;

/// Seconds of a complex sample.
const TSAMP_S: f64 = 1e-6;

/// Delays in seconds: one constant, one rising and one falling by a sample every few hundred spectra.
fn delays(start: Epoch, hop: usize, tsamp_s: f64) -> Vec<DelayPolynomial> {
    let rate = |spectra: f64| 1.0 / (spectra * hop as f64);
    let samples = |count: f64| count * tsamp_s;
    vec![
        polynomial(start, &[samples(0.4)]),
        polynomial(start, &[samples(3.3), rate(600.0), 0.3 * rate(600.0) / 0.05]),
        polynomial(start, &[samples(-5.7), -rate(900.0)]),
    ]
}

/// A recording with one tone in the middle of each channel, each of its own amplitude.
pub(crate) struct Scene {
    pub(crate) header: VoltageHeader,
    /// Each recorded channel's tones: voltage frequency and sky frequency.
    tones: Vec<Vec<(f64, f64)>>,
    pub(crate) delays: Vec<DelayPolynomial>,
    /// Sub-sample delays of the antennas.
    pub(crate) late: [f64; 3],
    pub(crate) times: usize,
}

impl Scene {
    /// A scene of recorded channels at these centres.
    pub(crate) fn new(
        centres_mhz: &[f64],
        encoding: VoltageEncoding,
        lower_sideband: bool,
    ) -> Self {
        let real = !encoding.is_complex();
        let tsamp_s = if real { 0.5 * TSAMP_S } else { TSAMP_S };
        let hop = if real { 2 * CHANNELS } else { CHANNELS };
        let header =
            VoltageHeader { lower_sideband, tsamp_s, ..memory::header(centres_mhz, encoding) };
        let sideband = if lower_sideband { -1.0 } else { 1.0 };
        let step = 1e6 / CHANNELS as f64;
        let tones = centres_mhz.iter().map(|mhz| {
            let centre = mhz * 1e6;
            // Real samples: zero frequency is the band's edge, and its tone has no phase.
            let (zero, first) = if real { (centre - sideband * 0.5e6, 1) } else { (centre, 0) };
            let offset = if real { 0.0 } else { -0.5e6 };
            let tone = |k: usize| {
                let voltage = offset + k as f64 * step;
                (voltage, zero + sideband * voltage)
            };
            (first..CHANNELS).map(tone).collect()
        });
        let delays = delays(header.start, hop, tsamp_s);
        let times = (SPECTRA + 7) * hop;
        Self { tones: tones.collect(), header, delays, late: [0.0; 3], times }
    }

    fn amplitude(&self, coarse: usize, tone: usize) -> f64 {
        1.0 + 0.3 * ((coarse * 7 + tone) as f64).sin()
    }

    /// Returns the samples that an antenna records, at `scale` counts per unit.
    fn recording(&self, antenna: usize, scale: f64) -> Memory {
        let lower = self.header.lower_sideband;
        let real = !self.header.encoding.is_complex();
        let late_s = self.late[antenna] * self.header.tsamp_s;
        let start = self.header.start.plus_s(late_s);
        let header = VoltageHeader { start, ..self.header.clone() };
        recording(&header, antenna, self.times, |stream, time| {
            let t = time as f64 * self.header.tsamp_s + late_s;
            let coarse = stream / self.header.polarizations;
            // A sample is of the middle of its time.
            let delay = self.delays[antenna].at(t + 0.5 * self.header.tsamp_s);
            let tone = |(index, (voltage, sky)): (usize, &(f64, f64))| {
                // The sky phase falls with the delay; in a lower sideband everything is conjugate.
                let late = if lower { sky * delay } else { -sky * delay };
                let start = 0.37 * (index * index) as f64 + stream as f64;
                let turns = (voltage * t).fract() + late.fract() + start;
                let z = Complex::from_polar(scale * self.amplitude(coarse, index), TAU * turns);
                if real { Complex::new(2.0 * z.re, 0.0) } else { z }
            };
            self.tones[coarse].iter().enumerate().map(tone).sum()
        })
    }

    /// Returns the samples of all antennas.
    pub(crate) fn recordings(&self, scale: f64) -> Vec<Memory> {
        (0..self.delays.len()).map(|antenna| self.recording(antenna, scale)).collect()
    }

    /// A correlator that tracks the delays.
    pub(crate) fn correlator(
        &self,
        recordings: &[Memory],
        options: &CorrelateOptions,
        threads: usize,
    ) -> ArrayCorrelator {
        let array = array::array(self.delays.len());
        let (inputs, backend) = (inputs(recordings), Backend::best(threads));
        ArrayCorrelator::with_delays(&array, inputs, &self.delays, options, &backend).unwrap()
    }

    /// The amplitude of each channel by rising sky frequency; none where there is no tone.
    pub(crate) fn expected(&self) -> Vec<Option<f64>> {
        let mut all: Vec<(f64, Option<f64>)> = Vec::new();
        for (coarse, tones) in self.tones.iter().enumerate() {
            for (index, (_, sky)) in tones.iter().enumerate() {
                all.push((*sky, Some(self.amplitude(coarse, index))));
            }
            if tones.len() < CHANNELS {
                let sideband = if self.header.lower_sideband { -1.0 } else { 1.0 };
                all.push((self.header.centres_hz[coarse] - sideband * 0.5e6, None));
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.into_iter().map(|(_, amplitude)| amplitude).collect()
    }
}
