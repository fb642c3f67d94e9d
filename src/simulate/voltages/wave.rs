//! Dispersed pulse in one recorded channel, generated as a whole by Fourier transform.
//!
//! The undispersed pulse lies in a window with room for the channel's whole sweep. Its spectrum is multiplied by the
//! dispersion phase within the channel and by the phases of the channel's sky frequency and the pulse's time, and
//! transformed back. The part that the band's sharp edges spread past the window's end wraps around to its start, so
//! that the energy is exact.

use std::f64::consts::TAU;
use std::sync::Arc;

use bytemuck::cast_slice_mut;
use num_complex::{Complex, Complex32};
use rustfft::{Fft, FftPlanner};

use super::band::Band;
use super::options::Pulse;
use super::polarization::Mixture;
use super::strength::Profile;
use crate::simulate::noise;

/// Spare samples at either end of a window, in addition to a fraction of the sweep.
const ROOM: f64 = 512.0;
const ROOM_PART: f64 = 1.0 / 32.0;

/// Longest window in samples of the channel's width.
pub(super) const MAX_WINDOW: f64 = (1u64 << 27) as f64;

/// Extent of a pulse in one recorded channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    /// Number of the first sample.
    pub(super) start: i64,
    /// Length in samples of the channel's width: complex ones, or pairs of real ones.
    pub(super) window: usize,
}

/// Pulse in one recorded channel.
#[derive(Debug)]
pub(super) struct Wave {
    pub(super) channel: usize,
    /// Number of the first sample.
    pub(super) start: i64,
    /// Counts in each polarization; complex ones as pairs.
    pub(super) values: Vec<Vec<f32>>,
}

/// Pulse with everything needed to generate its waves.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) pulse: Pulse,
    pub(super) profile: Profile,
    pub(super) mixture: Mixture,
    pub(super) polarizations: usize,
    /// Energy in each recorded channel, counts^2.
    pub(super) energy: f64,
    /// Seed of its carrier noise.
    pub(super) seed: u64,
}

impl Source {
    /// Returns the pulse's extent in a channel; `None` if its window would exceed [`MAX_WINDOW`].
    pub(super) fn span(&self, band: &Band, channel: usize) -> Option<Span> {
        let (centre, half) = (band.centres_hz[channel], 0.5 * band.width_hz);
        let delay = |f: f64| self.pulse.time_s + band.delay_s(self.pulse.dm, f);
        let (first, last) = (delay(centre + half), delay(centre - half));
        let sweep = (last - first) * band.width_hz;
        let room = ROOM + self.profile.reach() + ROOM_PART * sweep;
        let length = sweep + 2.0 * room;
        if length.is_nan() || length > MAX_WINDOW {
            return None;
        }
        let start = (first - room / band.width_hz) / band.tsamp_s;
        Some(Span { start: start.floor() as i64, window: fast_length(length.ceil() as usize) })
    }

    /// Generates the pulse in a channel.
    pub(super) fn wave(&self, band: &Band, channel: usize, span: Span) -> Wave {
        let start_s = (span.start as f64 + 0.5) * band.tsamp_s;
        let centre_s = self.pulse.time_s + band.delay_s(self.pulse.dm, band.centres_hz[channel]);
        let middle = (centre_s - start_s) * band.width_hz;
        let mut planner = FftPlanner::new();
        let forward = planner.plan_fft_forward(span.window);
        let component = |number: usize| {
            let row = (2 * channel + number) as u64;
            let mut spectrum = if self.profile.is_narrow() {
                self.narrow(row, middle, span.window)
            } else {
                self.wide(row, middle, &*forward)
            };
            let constant = self.constant_phase(band, channel, start_s);
            self.disperse(band, channel, constant, &mut spectrum);
            spectrum
        };
        let spectra = self.mix(component);
        let numbers = if band.complex { span.window } else { 2 * span.window };
        let inverse = planner.plan_fft_inverse(numbers);
        let scale = self.scale(&spectra) / span.window as f64;
        let values = spectra.into_iter().map(|s| to_times(band, s, &inverse, scale as f32));
        Wave { channel, start: span.start, values: values.collect() }
    }

    /// Returns the spectrum of Gaussian noise with the envelope, whose centre lies `middle` samples after the
    /// window's start.
    fn wide(&self, row: u64, middle: f64, forward: &dyn Fft<f32>) -> Vec<Complex32> {
        let mut spectrum = vec![Complex32::default(); forward.len()];
        let reach = self.profile.reach();
        let first = (middle - reach).ceil().max(0.0) as usize;
        let last = ((middle + reach).floor() as usize).min(spectrum.len() - 1);
        let lit = &mut spectrum[first..=last];
        noise::fill(self.seed, row, cast_slice_mut(lit));
        for (n, value) in lit.iter_mut().enumerate() {
            *value *= self.profile.envelope((first + n) as f64 - middle) as f32;
        }
        forward.process(&mut spectrum);
        spectrum
    }

    /// Like `wide`, from a few points that need not lie on samples.
    fn narrow(&self, row: u64, middle: f64, window: usize) -> Vec<Complex32> {
        let points = self.profile.points();
        let step = if points.len() > 1 { points[1].0 - points[0].0 } else { 0.0 };
        let mut noise = vec![1.0, 0.0];
        if points.len() > 1 {
            noise = vec![0f32; 2 * points.len()];
            noise::fill(self.seed, row, &mut noise);
        }
        let weight = |(noise, point): (&[f32], &(f64, f64))| {
            Complex::new(f64::from(noise[0]), f64::from(noise[1])) * point.1
        };
        let weights: Vec<Complex<f64>> = noise.chunks_exact(2).zip(&points).map(weight).collect();
        let bin = |number: usize| {
            let frequency = signed_bin(number, window) / window as f64;
            let turn = Complex::cis(-TAU * frequency * step);
            let zero = Complex::new(0.0, 0.0);
            let sum = weights.iter().rev().fold(zero, |sum, weight| sum * turn + weight);
            let sum = sum * Complex::cis(-TAU * (frequency * (middle + points[0].0)).fract());
            Complex32::new(sum.re as f32, sum.im as f32)
        };
        (0..window).map(bin).collect()
    }

    /// Returns the phase in cycles common to all frequencies of the channel; all channels' oscillators have phase 0
    /// at time 0.
    fn constant_phase(&self, band: &Band, channel: usize, start_s: f64) -> f64 {
        let centre = band.centres_hz[channel];
        let oscillator = (centre - band.zero_hz(channel)) * start_s;
        let carrier = (centre * self.pulse.time_s).fract();
        band.phase_of_centre(self.pulse.dm, channel).fract() - carrier + oscillator.fract()
    }

    fn disperse(&self, band: &Band, channel: usize, constant: f64, spectrum: &mut [Complex32]) {
        let window = spectrum.len();
        for (number, value) in spectrum.iter_mut().enumerate() {
            let offset = signed_bin(number, window) * band.width_hz / window as f64;
            let cycles = band.phase_within(self.pulse.dm, channel, offset).fract() + constant;
            let (sin, cos) = (TAU * cycles).sin_cos();
            *value *= Complex32::new(cos as f32, sin as f32);
        }
    }

    /// Mixes the spectra of the independent components into the recorded polarizations.
    fn mix(&self, component: impl Fn(usize) -> Vec<Complex32>) -> Vec<Vec<Complex32>> {
        let Mixture { first, common, own } = self.mixture;
        let mut a = component(0);
        if self.polarizations == 1 {
            a.iter_mut().for_each(|a| *a *= first as f32);
            return vec![a];
        }
        let mut b = if own > 0.0 { component(1) } else { vec![Complex32::default(); a.len()] };
        let common = Complex32::new(common.re as f32, common.im as f32);
        for (a, b) in a.iter_mut().zip(&mut b) {
            (*a, *b) = (*a * first as f32, *a * common + *b * own as f32);
        }
        vec![a, b]
    }

    /// Returns the factor that scales the spectra to the channel's energy.
    fn scale(&self, spectra: &[Vec<Complex32>]) -> f64 {
        let power = |value: &Complex32| f64::from(value.norm_sqr());
        let sum: f64 = spectra.iter().flatten().map(power).sum();
        let found = sum / spectra[0].len() as f64;
        if found > 0.0 { (self.energy / found).sqrt() } else { 0.0 }
    }
}

/// Transforms a spectrum around the channel's centre into voltages.
fn to_times(
    band: &Band,
    mut spectrum: Vec<Complex32>,
    inverse: &Arc<dyn Fft<f32>>,
    scale: f32,
) -> Vec<f32> {
    let window = spectrum.len();
    if band.complex {
        inverse.process(&mut spectrum);
        // A lower sideband holds the conjugate.
        let sign = if band.lower { -scale } else { scale };
        return spectrum.iter().flat_map(|z| [scale * z.re, sign * z.im]).collect();
    }
    // Shifts the band's centre to a quarter of the sampling rate, above 0 or (reversed) below it; the real part is
    // the same.
    let mut whole = vec![Complex32::default(); 2 * window];
    let band_start = if band.lower { window } else { 0 };
    let place = |number: usize| band_start + (number + window / 2) % window;
    spectrum.iter().enumerate().for_each(|(number, z)| whole[place(number)] = *z);
    drop(spectrum);
    inverse.process(&mut whole);
    whole.iter().map(|z| scale * z.re).collect()
}

/// Returns the signed frequency index of a bin: negative in the upper half.
fn signed_bin(number: usize, window: usize) -> f64 {
    if number < window / 2 { number as f64 } else { number as f64 - window as f64 }
}

/// Returns the next even length of the form 5, 6, 7 or 8 times a power of two.
fn fast_length(length: usize) -> usize {
    let step = (length.next_power_of_two() / 8).max(2);
    length.next_multiple_of(step)
}
