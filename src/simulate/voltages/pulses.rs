//! Dispersed pulses: their strength, and their waves in each recorded channel, in memory only while they last.
//!
//! # Strength
//! After coherent dedispersion, each recorded channel and polarization holds Nyquist samples of noise z at the
//! channel's width W with `<|z|^2> = 2 r^2`, where r is the rms in one real number (for real samples: of the analytic
//! signal, twice their power). |z|^2 is exponentially distributed, so its standard deviation equals its mean. The
//! total intensity of P polarizations and C channels, summed over a boxcar of w samples, has the deviation `2 r^2
//! sqrt(P C w)`. A pulse of energy E (the sum of |z|^2 over channels, polarizations and samples), of which the
//! fraction F(w) lies in the boxcar, has
//!
//! `S/N = E F(w) / (2 r^2 sqrt(P C w))`, for the w with the largest value.
//!
//! The noise is that before rounding to counts. Saturation and the pulse's own noise are neglected.
//!
//! # Waves
//! The undispersed pulse lies in a window with margins for the channel's whole sweep. Its spectrum is multiplied by the
//! dispersion phase within the channel and by the phases of the channel's sky frequency and the pulse's time, and
//! transformed back. The part that the band's sharp edges spread past the window's end wraps around to its start, so
//! that the energy is exact.

use std::f64::consts::TAU;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::cast_slice_mut;
use num_complex::{Complex, Complex32};
use rustfft::{Fft, FftPlanner};

use super::band::Band;
use super::options::{Carrier, Mixture, Pulse};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::math::sinc;
use crate::simulate::burst::{FWHM, best_boxcar};
use crate::simulate::random::fill_normal;

/// Width in samples from which the best boxcar of a continuous Gaussian applies.
const CONTINUOUS: f64 = 64.0;

/// Width in samples below which a noise pulse is generated on a finer grid than the channel's samples.
pub(super) const NARROW: f64 = 4.0;

/// Half-length of the evaluated Gaussian, in sigma of the power.
pub(super) const REACH: f64 = 6.5;

/// Best boxcar of a Gaussian in its sigmas, and the fraction of the area in it over the root of its length: the
/// maximum of `erf(x / sqrt(8)) / sqrt(x)`.
const GAUSSIAN_BOXCAR: (f64, f64) = (2.800_4, 0.501_0);

/// Steps of a narrow envelope per full width at half maximum.
const FINE_STEPS: f64 = 4.0;

/// Mean power of the intrinsic pulse over the samples of one recorded channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Profile {
    /// Full width at half maximum in samples of the channel's width; 0 for an impulse.
    pub(super) width: f64,
}

impl Profile {
    pub(super) fn new(carrier: Carrier, channel_width_hz: f64) -> Self {
        let width = match carrier {
            Carrier::Noise { width_s } => width_s * channel_width_hz,
            Carrier::Impulse => 0.0,
        };
        Self { width }
    }

    /// Returns whether the pulse needs a finer grid than the samples.
    pub(super) fn is_narrow(&self) -> bool {
        self.width < NARROW
    }

    /// Returns the half-length of the pulse in samples.
    pub(super) fn reach(&self) -> f64 {
        REACH * self.width / FWHM
    }

    /// Returns the root of the mean power at an offset in samples from the centre; 1 at the centre.
    pub(super) fn envelope(&self, offset: f64) -> f64 {
        let z = offset * FWHM / self.width;
        (-0.25 * z * z).exp()
    }

    /// Returns the points of a narrow pulse: offset in samples and root of the mean power.
    pub(super) fn points(&self) -> Vec<(f64, f64)> {
        if self.width == 0.0 {
            return vec![(0.0, 1.0)];
        }
        let each = (REACH / FWHM * FINE_STEPS).ceil() as i32;
        let offset = |i: i32| f64::from(i) * self.width / FINE_STEPS;
        (-each..=each).map(|i| (offset(i), self.envelope(offset(i)))).collect()
    }

    /// Returns the mean power of each sample around a centre that lies `fraction` of a sample after one of them.
    fn samples(&self, fraction: f64) -> Vec<f64> {
        let reach = self.reach().ceil() + 16.0;
        let offsets = (0..=2 * reach as i32).map(|i| f64::from(i) - reach - fraction);
        if !self.is_narrow() {
            return offsets.map(|offset| self.envelope(offset).powi(2)).collect();
        }
        let points = self.points();
        let power = |offset: f64| {
            let part = |point: &(f64, f64)| (point.1 * sinc(offset - point.0)).powi(2);
            points.iter().map(part).sum()
        };
        offsets.map(power).collect()
    }

    /// Returns the best boxcar: its length in samples, and the fraction of the energy in it over the root of that
    /// length. `fraction` is the centre's offset from a sample.
    pub(super) fn boxcar(&self, fraction: f64) -> (f64, f64) {
        if self.width > CONTINUOUS {
            let sigma = self.width / FWHM;
            let (length, part) = GAUSSIAN_BOXCAR;
            return (length * sigma, part / sigma.sqrt());
        }
        let samples = self.samples(fraction);
        let (height, _, width) = best_boxcar(&samples);
        (width as f64, height / samples.iter().sum::<f64>())
    }
}

/// Returns the energy E of a pulse in counts^2, over all channels and polarizations. `streams` is P C; `part` comes
/// from [`Profile::boxcar`].
pub(super) fn energy(snr: f64, rms: f64, streams: usize, part: f64) -> f64 {
    snr * 2.0 * rms * rms * (streams as f64).sqrt() / part
}

/// Spare samples at either end of a window, in addition to a fraction of the sweep.
const MARGIN: f64 = 512.0;
const SWEEP_MARGIN: f64 = 1.0 / 32.0;

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
        let margin = MARGIN + self.profile.reach() + SWEEP_MARGIN * sweep;
        let length = sweep + 2.0 * margin;
        if length.is_nan() || length > MAX_WINDOW {
            return None;
        }
        let start = (first - margin / band.width_hz) / band.tsamp_s;
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
        fill_normal(self.seed, row, cast_slice_mut(lit));
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
            fill_normal(self.seed, row, &mut noise);
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

/// Largest total memory of waves in bytes.
const MAX_BYTES: f64 = (4u64 << 30) as f64;

/// Bytes per window sample during generation: spectra, their transforms and scratch.
const WORK_BYTES: f64 = 64.0;

/// Window length above which windows are generated sequentially.
const TOGETHER: usize = 1 << 20;

/// Wave to be generated.
#[derive(Clone, Copy, Debug)]
struct Planned {
    source: usize,
    channel: usize,
    span: Span,
    /// Numbers of the recorded samples that it covers.
    samples: (u64, u64),
}

/// Pulses, and their waves in memory.
#[derive(Debug)]
pub(super) struct Waves {
    sources: Vec<Source>,
    /// Sorted by first sample.
    planned: Vec<Planned>,
    next: usize,
    /// Sorted by channel; each with its end.
    live: Vec<(u64, Wave)>,
    /// Real numbers per sample: 2 if complex.
    numbers: i64,
}

impl Waves {
    /// Plans the waves that touch the first `times` samples; each read covers at most `gulp` samples.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the waves need too much memory at once.
    pub(super) fn new(sources: Vec<Source>, band: &Band, times: u64, gulp: usize) -> Result<Self> {
        let mut planned = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            for channel in 0..band.centres_hz.len() {
                let Some(span) = source.span(band, channel) else {
                    return Err(too_long(source.pulse.dm));
                };
                let samples = if band.complex { span.window } else { 2 * span.window } as i64;
                let end = span.start.saturating_add(samples).clamp(0, times as i64) as u64;
                let start = span.start.clamp(0, times as i64) as u64;
                if start < end {
                    planned.push(Planned { source: number, channel, span, samples: (start, end) });
                }
            }
        }
        planned.sort_by_key(|wave| wave.samples);
        let numbers = if band.complex { 2 } else { 1 };
        let waves = Self { sources, planned, next: 0, live: Vec::new(), numbers };
        waves.check_memory(gulp as u64)?;
        Ok(waves)
    }

    fn check_memory(&self, gulp: u64) -> Result<()> {
        let bytes = |wave: &Planned| {
            let polarizations = self.sources[wave.source].polarizations;
            (wave.span.window * polarizations * size_of::<[f32; 2]>()) as f64
        };
        let mut changes: Vec<(u64, f64, f64)> = Vec::new();
        for wave in &self.planned {
            let (start, end) = wave.samples;
            changes.push((
                start.saturating_sub(gulp),
                bytes(wave),
                self.sources[wave.source].pulse.dm,
            ));
            changes.push((end + gulp, -bytes(wave), 0.0));
        }
        changes.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let longest = self.planned.iter().map(|wave| wave.span.window).max().unwrap_or(0);
        let mut held = longest as f64 * WORK_BYTES;
        for (_, change, dm) in changes {
            held += change;
            if held > MAX_BYTES {
                return Err(too_long(dm));
            }
        }
        Ok(())
    }

    /// Generates the waves needed for a range of samples, and drops those that ended before it.
    pub(super) fn generate(&mut self, samples: Range<u64>, band: &Band, threads: &Threads) {
        self.live.retain(|(end, _)| *end > samples.start);
        let begun = self.planned[self.next..].partition_point(|w| w.samples.0 < samples.end);
        let needed = &self.planned[self.next..self.next + begun];
        self.next += begun;
        let needed: Vec<Planned> =
            needed.iter().filter(|w| w.samples.1 > samples.start).copied().collect();
        if needed.is_empty() {
            return;
        }
        let mut made: Vec<Option<Wave>> = needed.iter().map(|_| None).collect();
        let make = |index: usize, place: &mut Option<Wave>| {
            let wave = &needed[index];
            *place = Some(self.sources[wave.source].wave(band, wave.channel, wave.span));
        };
        if needed.iter().all(|wave| wave.span.window <= TOGETHER) {
            let mut scratch = vec![(); threads.count()];
            threads.for_each_chunk(&mut scratch, &mut made, 1, |(), i, part| make(i, &mut part[0]));
        } else {
            made.iter_mut().enumerate().for_each(|(i, place)| make(i, place));
        }
        let ends = needed.iter().map(|wave| wave.samples.1);
        self.live.extend(ends.zip(made.into_iter().flatten()));
        // Stable, so that waves of one channel are added in the order of their starts.
        self.live.sort_by_key(|(_, wave)| wave.channel);
    }

    /// Adds the waves to a stream from sample `start` on, in counts.
    pub(super) fn add(&self, channel: usize, polarization: usize, start: u64, x: &mut [f32]) {
        let first = self.live.partition_point(|(_, wave)| wave.channel < channel);
        for (_, wave) in self.live[first..].iter().take_while(|(_, w)| w.channel == channel) {
            let values = &wave.values[polarization];
            // Index of x[0] in the wave, in real numbers.
            let offset = (start as i64 - wave.start) * self.numbers;
            let skipped = (-offset).clamp(0, x.len() as i64) as usize;
            let from = offset.clamp(0, values.len() as i64) as usize;
            x[skipped..].iter_mut().zip(&values[from..]).for_each(|(x, value)| *x += value);
        }
    }
}

fn too_long(dm: f64) -> Error {
    let most = MAX_BYTES / f64::from(1 << 30);
    let rule = format!(
        "the pulse needs more than {most} GiB at once to be dispersed; use more coarse channels, a lower \
         DM, a shorter width or fewer pulses at a time"
    );
    Error::parameter("dm of a pulse", dm, rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::normal;

    /// Returns the fraction of a Gaussian within half a length of its centre, both in sigma.
    fn within(length: f64) -> f64 {
        1.0 - 2.0 * normal::cumulative(-0.5 * length)
    }

    #[test]
    fn the_continuous_boxcar_is_the_best() {
        let (length, part) = GAUSSIAN_BOXCAR;
        let height = |x: f64| within(x) / x.sqrt();
        assert!((height(length) - part).abs() < 1e-4, "{}", height(length));
        assert!(height(length) > height(length + 0.02) && height(length) > height(length - 0.02));
    }

    #[test]
    fn profiles_of_all_widths_agree_where_they_meet() {
        let part = |width: f64, fraction| Profile { width }.boxcar(fraction).1 * width.sqrt();
        for fraction in [0.0, 0.3] {
            // The band's sharp edges spread some of a narrow pulse over other samples.
            let narrow = part(NARROW - 1e-9, fraction) / part(NARROW, fraction);
            assert!(narrow > 0.9 && narrow < 1.0, "{narrow}");
            let wide = part(CONTINUOUS, fraction) / part(CONTINUOUS + 1e-9, fraction);
            assert!((wide - 1.0).abs() < 1e-3, "{wide}");
        }
    }

    #[test]
    fn an_impulse_is_one_or_two_samples() {
        let impulse = Profile { width: 0.0 };
        assert_eq!(impulse.boxcar(0.0).0, 1.0);
        assert_eq!(impulse.boxcar(0.5).0, 2.0);
        assert!((impulse.boxcar(0.0).1 - 1.0).abs() < 1e-9);
    }
}
