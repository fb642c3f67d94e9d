//! Recorded channels, the dispersion phase of each of their frequencies, and tones in them.

use std::f64::consts::TAU;

use num_complex::Complex;

use super::options::{Options, Tone};
use crate::error::{Error, Result};
use crate::units::{HZ_PER_MHZ, dispersion_delay_s};

/// Recorded band.
#[derive(Clone, Debug)]
pub(super) struct Band {
    pub(super) centres_hz: Vec<f64>,
    pub(super) width_hz: f64,
    pub(super) tsamp_s: f64,
    pub(super) complex: bool,
    /// Whether sky frequency decreases with the voltage's frequency.
    pub(super) lower: bool,
    pub(super) reference_hz: f64,
    dm_constant: f64,
}

impl Band {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            centres_hz: options.centres_hz.clone(),
            width_hz: options.channel_width_hz,
            tsamp_s: options.tsamp_s(),
            complex: options.encoding.is_complex(),
            lower: options.lower_sideband,
            reference_hz: options.reference_hz(),
            dm_constant: options.dm_constant,
        }
    }

    /// Returns the sky frequency that a channel records as frequency 0.
    pub(super) fn zero_hz(&self, channel: usize) -> f64 {
        let half = if self.complex { 0.0 } else { 0.5 * self.width_hz };
        self.centres_hz[channel] + if self.lower { half } else { -half }
    }

    /// Returns the channel that records a sky frequency.
    pub(super) fn channel_of(&self, frequency_hz: f64) -> Option<usize> {
        let inside = |centre: &f64| (frequency_hz - centre).abs() <= 0.5 * self.width_hz;
        self.centres_hz.iter().position(inside)
    }

    /// Returns the delay relative to the reference frequency, in seconds.
    pub(super) fn delay_s(&self, dm: f64, frequency_hz: f64) -> f64 {
        dispersion_delay_s(dm, frequency_hz, self.reference_hz, self.dm_constant)
    }

    /// Returns the dispersion phase in cycles of a frequency `offset_hz` above a channel's centre, without the
    /// constant and the delay of the centre: `K DM d^2 / ((f + d) f^2)`.
    ///
    /// Its derivative is minus the delay relative to the centre, `K DM ((f + d)^-2 - f^-2)`.
    pub(super) fn phase_within(&self, dm: f64, channel: usize, offset_hz: f64) -> f64 {
        self.phase(dm, self.centres_hz[channel], offset_hz)
    }

    /// Returns the dispersion phase in cycles of a channel's centre: like [`Band::phase_within`], but relative to the
    /// reference frequency.
    pub(super) fn phase_of_centre(&self, dm: f64, channel: usize) -> f64 {
        self.phase(dm, self.reference_hz, self.centres_hz[channel] - self.reference_hz)
    }

    fn phase(&self, dm: f64, from_hz: f64, offset_hz: f64) -> f64 {
        // Converts the constant's MHz^2 to Hz^2.
        let constant = self.dm_constant * dm * HZ_PER_MHZ * HZ_PER_MHZ;
        constant * (offset_hz / from_hz).powi(2) / (from_hz + offset_hz)
    }
}

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
        // Sign for an upper sideband; a lower sideband holds the conjugate.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_delay_is_the_delay_law() {
        let band = Band::new(&Options::new(350e6, 80e6, 2, 8));
        for dm in [10.0, 1000.0] {
            for channel in 0..2 {
                let centre = band.centres_hz[channel];
                for step in -10..=10 {
                    let offset = f64::from(step) * 2e6;
                    let phase = |f: f64| band.phase_within(dm, channel, f);
                    // Fourth-order differences, because phases are rounded to 1e-8 cycles.
                    let difference = |h: f64| phase(offset + h) - phase(offset - h);
                    let delay = -(8.0 * difference(5e3) - difference(1e4)) / 6e4;
                    let law = band.delay_s(dm, centre + offset) - band.delay_s(dm, centre);
                    // A thousandth of a sample of a 40 MHz channel.
                    assert!((delay - law).abs() < 1e-3 / 40e6, "{dm} {offset} {delay} {law}");
                }
            }
        }
    }

    #[test]
    fn the_phases_of_channels_join() {
        // Phase from the reference to a frequency shared by two channels, via each centre.
        let band = Band::new(&Options::new(350e6, 80e6, 2, 8));
        let dm = 50.0;
        let through = |channel: usize, offset: f64| {
            let delay = band.delay_s(dm, band.centres_hz[channel]);
            band.phase_of_centre(dm, channel) - delay * offset
                + band.phase_within(dm, channel, offset)
        };
        assert!((through(0, 20e6) - through(1, -20e6)).abs() < 1e-4);
    }
}
