//! Delay of a band-limited signal by any number of samples: a long windowed sinc, applied by Fourier transform in
//! blocks of fixed length, and the delay of one source's wave over a block.

use std::f64::consts::{PI, TAU};
use std::fmt;
use std::sync::Arc;

use num_complex::{Complex, Complex32};
use rustfft::{Fft, FftPlanner};

use crate::math::{bessel_i0, kaiser_beta, sinc};

/// Points of a transform.
pub(super) const POINTS: usize = 8192;

/// Filter samples on either side of the centre.
pub(super) const REACH: usize = 1024;

/// Valid samples per transform.
pub(super) const HOP: usize = POINTS - 2 * REACH;

/// Stop band of the filter's Kaiser window, in dB.
const STOP_BAND_DB: f64 = 100.0;

/// Aliased gains below this fraction of the pass band are dropped.
const MIN_GAIN: f64 = 1e-6;

/// Size of the fine table of phasors, which are multiplied with coarse ones.
const FINE: usize = 64;

/// Filter for one kind of samples; computes the response to any delay.
///
/// For complex samples `g(x) = sinc(x) w(x / REACH)`, w a Kaiser window. For real samples, with the band from 0 to
/// half the sampling rate, `g(x) = sqrt(1/2) sinc(x / 2) exp(i pi x / 2) w(x / REACH)`. It converts complex noise
/// into an analytic signal whose real part has the mean square of the noise.
pub(super) struct Filter {
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    /// Gain at each bin's own frequency, divided by the transform's length.
    gains: Vec<f32>,
    /// Aliased contributions to a bin: bin, offset in sampling rates (-1 or 1), gain.
    folded: Vec<(usize, f64, f64)>,
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("folded", &self.folded.len()).finish_non_exhaustive()
    }
}

impl Filter {
    pub(super) fn new(complex: bool) -> Self {
        let mut planner = FftPlanner::new();
        let low = low_pass(if complex { 1.0 } else { 0.5 });
        let (middle, scale) = if complex { (0, 1.0) } else { (POINTS as i64 / 4, 2f64.sqrt()) };
        // Gain at a frequency in bins, which may exceed half the sampling rate.
        let gain = |bin: i64| {
            let off = bin - middle;
            let inside = off.unsigned_abs() < POINTS as u64;
            if inside { scale * low[off.rem_euclid(2 * POINTS as i64) as usize] } else { 0.0 }
        };
        let whole = POINTS as f64;
        let mut folded = Vec::new();
        for bin in 0..POINTS {
            for rates in [-1i64, 1] {
                let reached = gain(signed(bin) + rates * POINTS as i64);
                if reached.abs() > MIN_GAIN {
                    folded.push((bin, rates as f64, reached / whole));
                }
            }
        }
        Self {
            forward: planner.plan_fft_forward(POINTS),
            inverse: planner.plan_fft_inverse(POINTS),
            gains: (0..POINTS).map(|bin| (gain(signed(bin)) / whole) as f32).collect(),
            folded,
        }
    }

    /// Computes the response to a delay in samples, at most half a sample.
    pub(super) fn respond(&self, delay: f64, response: &mut Vec<Complex32>) {
        response.clear();
        let turn = |bins: f64| Complex::cis(-TAU * delay * bins / POINTS as f64);
        let fine: [Complex32; FINE] = std::array::from_fn(|bin| narrowed(turn(bin as f64)));
        for (group, gains) in self.gains.chunks_exact(FINE).enumerate() {
            let coarse = narrowed(turn(signed(group * FINE) as f64));
            response.extend(gains.iter().zip(&fine).map(|(gain, fine)| coarse * fine * *gain));
        }
        for (bin, rates, gain) in &self.folded {
            let bins = signed(*bin) as f64 + rates * POINTS as f64;
            response[*bin] += narrowed(turn(bins) * *gain);
        }
    }

    /// Computes the derivative of the response with respect to the delay.
    pub(super) fn respond_to_change(&self, delay: f64, response: &mut Vec<Complex32>) {
        self.respond(delay, response);
        let slope = |bins: f64| Complex::new(0.0, -TAU * bins / POINTS as f64);
        for (bin, value) in response.iter_mut().enumerate() {
            *value *= narrowed(slope(signed(bin) as f64));
        }
        for (bin, rates, gain) in &self.folded {
            // Aliased parts lie a whole number of sampling rates away.
            let bins = signed(*bin) as f64 + rates * POINTS as f64;
            let turn = Complex::cis(-TAU * delay * bins / POINTS as f64);
            response[*bin] += narrowed(turn * slope(rates * POINTS as f64) * *gain);
        }
    }

    /// Allocates the scratch of [`Filter::transform`] and [`Filter::apply`].
    pub(super) fn scratch(&self) -> Vec<Complex32> {
        let needed =
            self.forward.get_inplace_scratch_len().max(self.inverse.get_inplace_scratch_len());
        vec![Complex32::default(); needed]
    }

    /// Transforms a block in place.
    pub(super) fn transform(&self, block: &mut [Complex32], scratch: &mut [Complex32]) {
        self.forward.process_with_scratch(block, scratch);
    }

    /// Applies a response to a spectrum; samples `REACH .. REACH + HOP` of the result are valid.
    pub(super) fn apply(
        &self,
        spectrum: &[Complex32],
        response: &[Complex32],
        block: &mut [Complex32],
        scratch: &mut [Complex32],
    ) {
        let products = spectrum.iter().zip(response).map(|(x, h)| x * h);
        block.iter_mut().zip(products).for_each(|(place, product)| *place = product);
        self.inverse.process_with_scratch(block, scratch);
    }
}

/// Returns the gains of a windowed sinc that passes `width` sampling rates around 0, in steps of one bin: from 0 up
/// to one sampling rate, then from one below 0.
fn low_pass(width: f64) -> Vec<f64> {
    let beta = kaiser_beta(STOP_BAND_DB);
    let scale = bessel_i0(beta);
    // Half-sample steps double the frequency range.
    let mut taps = vec![Complex::new(0.0, 0.0); 2 * POINTS];
    for half in -2 * REACH as i64..=2 * REACH as i64 {
        let x = 0.5 * half as f64;
        let part = x / REACH as f64;
        let window = bessel_i0(beta * (1.0 - part * part).max(0.0).sqrt()) / scale;
        let tap = 0.5 * width * sinc(width * x) * window;
        taps[half.rem_euclid(2 * POINTS as i64) as usize] = Complex::new(tap, 0.0);
    }
    FftPlanner::new().plan_fft_forward(taps.len()).process(&mut taps);
    taps.iter().map(|gain| gain.re).collect()
}

/// Returns the signed frequency index of a bin: negative in the upper half.
fn signed(bin: usize) -> i64 {
    if bin < POINTS / 2 { bin as i64 } else { bin as i64 - POINTS as i64 }
}

fn narrowed(value: Complex<f64>) -> Complex32 {
    Complex32::new(value.re as f32, value.im as f32)
}

/// Samples between exactly computed delays, if the delay is linear between them.
const STEP: usize = 64;

/// Longest sampling time for which delays are linear over [`STEP`] samples, in seconds.
const SHORT_S: f64 = 1e-5;

/// Phase change at the band edge, in radians, below which a delay change within a block is ignored.
const SMALL_CHANGE: f64 = 1e-5;

/// Largest delay in samples that is resolved; larger ones are clamped.
const MAX_SAMPLES: f64 = (1u64 << 51) as f64;

/// Delays over a block, and the filter's response to the delay at its middle.
#[derive(Debug, Default)]
pub(super) struct Track {
    /// Integer part of the delay at the middle, in samples.
    pub(super) whole: i64,
    /// Delay in seconds every `step` samples, and at the end of the block.
    delays_s: Vec<f64>,
    step: usize,
    /// Filter response to the fractional part of the delay.
    pub(super) response: Vec<Complex32>,
    /// Derivative of the response, which the delay change over the block multiplies.
    pub(super) change: Vec<Complex32>,
    /// Delay change in samples; empty if negligible.
    pub(super) changes: Vec<f32>,
}

impl Track {
    /// Tracks `delay_s`, a function of seconds since the start of the recording, over a block.
    pub(super) fn follow(
        &mut self,
        filter: &Filter,
        tsamp_s: f64,
        block: u64,
        delay_s: impl Fn(f64) -> f64,
    ) {
        let first = (block * HOP as u64) as f64 + 0.5;
        let at = |sample: f64| delay_s((first + sample) * tsamp_s);
        let middle = at(0.5 * HOP as f64) / tsamp_s;
        let middle = if middle.is_finite() { middle } else { 0.0 };
        let whole = middle.round().clamp(-MAX_SAMPLES, MAX_SAMPLES);
        self.whole = whole as i64;
        self.step = if tsamp_s <= SHORT_S { STEP } else { 1 };
        self.delays_s.clear();
        self.delays_s.extend((0..=HOP / self.step).map(|n| at((n * self.step) as f64)));
        let rest = (middle - whole).clamp(-0.5, 0.5);
        filter.respond(rest, &mut self.response);
        let change = |delay_s: f64| delay_s / tsamp_s - middle;
        let largest = self.delays_s.iter().map(|d| change(*d).abs()).fold(0.0, f64::max);
        self.changes.clear();
        if PI * largest > SMALL_CHANGE {
            filter.respond_to_change(rest, &mut self.change);
            let step = self.step;
            for ends in self.delays_s.windows(2) {
                let (from, to) = (change(ends[0]), change(ends[1]));
                let slope = (to - from) / step as f64;
                self.changes.extend((0..step).map(|n| (from + n as f64 * slope) as f32));
            }
        }
    }

    /// Computes the phasors `exp(-2 pi i f delay)` of every sample, f in Hz.
    pub(super) fn turns(&self, frequency_hz: f64, turns: &mut Vec<Complex32>) {
        turns.clear();
        for ends in self.delays_s.windows(2) {
            let cycles = (frequency_hz * ends[0]).fract();
            let slope = frequency_hz * (ends[1] - ends[0]) / self.step as f64;
            let mut turn = Complex::cis(-TAU * cycles);
            let next = Complex::cis(-TAU * slope);
            turns.extend((0..self.step).map(|_| {
                let now = Complex32::new(turn.re as f32, turn.im as f32);
                turn *= next;
                now
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the response in double precision per unit of input.
    fn response(filter: &Filter, delay: f64, change: bool) -> Vec<Complex<f64>> {
        let mut response = Vec::new();
        if change {
            filter.respond_to_change(delay, &mut response);
        } else {
            filter.respond(delay, &mut response);
        }
        let wide = |h: &Complex32| Complex::new(f64::from(h.re), f64::from(h.im)) * POINTS as f64;
        response.iter().map(wide).collect()
    }

    #[test]
    fn a_delay_is_a_phase_slope_over_all_but_the_edges() {
        let filter = Filter::new(true);
        for delay in [0.0, 0.5, -0.5, 0.123, -0.371] {
            let found = response(&filter, delay, false);
            let slope = response(&filter, delay, true);
            let inner = (POINTS as f64 * 0.498) as i64;
            for bin in (0..POINTS).filter(|bin| signed(*bin).abs() < inner) {
                let cycles = signed(bin) as f64 / POINTS as f64;
                let expected = Complex::cis(-TAU * delay * cycles);
                assert!((found[bin] - expected).norm() < 3e-5, "{delay} {bin} {}", found[bin]);
                let expected = expected * Complex::new(0.0, -TAU * cycles);
                assert!((slope[bin] - expected).norm() < 1e-4, "{delay} {bin} {}", slope[bin]);
            }
        }
    }

    #[test]
    fn no_delay_is_no_change() {
        for h in response(&Filter::new(true), 0.0, false) {
            assert!((h - 1.0).norm() < 1e-5, "{h}");
        }
    }

    #[test]
    fn the_filter_reaches_no_further_than_it_says() {
        for complex in [true, false] {
            let filter = Filter::new(complex);
            let mut spectrum = Vec::new();
            filter.respond(0.3, &mut spectrum);
            let mut scratch = filter.scratch();
            filter.inverse.process_with_scratch(&mut spectrum, &mut scratch);
            let outside = REACH + 1..POINTS - REACH;
            let largest = spectrum[outside].iter().map(|h| h.norm()).fold(0.0, f32::max);
            assert!(largest < 1e-6, "{largest}");
        }
    }

    #[test]
    fn real_samples_get_one_side_of_the_band() {
        let found = response(&Filter::new(false), 0.25, false);
        for (bin, h) in found.iter().enumerate() {
            let cycles = signed(bin) as f64 / POINTS as f64;
            if cycles.abs() < 0.005 || cycles.abs() > 0.495 {
                continue;
            }
            let passed = if cycles > 0.0 { 2f64.sqrt() } else { 0.0 };
            let expected = passed * Complex::cis(-TAU * 0.25 * cycles);
            assert!((h - expected).norm() < 5e-5, "{bin} {h}");
        }
    }
}
