//! Tone in a recorded channel, generated sample by sample.

use std::f64::consts::TAU;

use num_complex::Complex;

use super::band::Band;
use super::options::Tone;
use crate::error::{Error, Result};
use crate::units::HZ_PER_MHZ;

/// Samples between exact phases; a table of phasors covers the others.
const STEP: usize = 64;

/// Tone as recorded by one channel.
#[derive(Debug)]
pub(super) struct RecordedTone {
    pub(super) channel: usize,
    /// Cycles per sample.
    cycles: f64,
    /// Value of the first sample in each polarization, in counts.
    first: [Complex<f64>; 2],
    /// Phasors after 0 to `STEP - 1` samples.
    turns: Vec<Complex<f64>>,
}

impl RecordedTone {
    pub(super) fn new(tone: &Tone, band: &Band, rms: f64) -> Result<Self> {
        let Some(channel) = band.channel_of(tone.frequency_hz) else {
            let rule = "it must lie in one of the recorded channels";
            let frequency = tone.frequency_hz / HZ_PER_MHZ;
            return Err(Error::parameter("frequency of a tone (MHz)", frequency, rule));
        };
        // Sign for rising sky frequency; a lower sideband holds the conjugate.
        let cycles = (tone.frequency_hz - band.zero_hz(channel)) * band.tsamp_s;
        let amplitude = tone.amplitude * rms;
        let sky = [
            Complex::from_polar(amplitude, tone.phase_rad),
            Complex::from_polar(
                amplitude * tone.second_ratio,
                tone.phase_rad + tone.second_phase_rad,
            ),
        ];
        let (cycles, first) =
            if band.lower { (-cycles, sky.map(|v| v.conj())) } else { (cycles, sky) };
        let turns = (0..STEP).map(|n| Complex::cis(TAU * cycles * n as f64)).collect();
        Ok(Self { channel, cycles, first, turns })
    }

    /// Adds the tone to a polarization's samples from number `start` on, a multiple of 64.
    pub(super) fn add(&self, polarization: usize, start: u64, complex: bool, x: &mut [f32]) {
        let numbers = if complex { 2 } else { 1 };
        for (group, x) in x.chunks_mut(STEP * numbers).enumerate() {
            let sample = (start + (group * STEP) as u64) as f64;
            let cycles = (self.cycles * sample).fract();
            let value = self.first[polarization] * Complex::cis(TAU * cycles);
            for (x, turn) in x.chunks_exact_mut(numbers).zip(&self.turns) {
                let value = value * turn;
                x[0] += value.re as f32;
                if complex {
                    x[1] += value.im as f32;
                }
            }
        }
    }
}
