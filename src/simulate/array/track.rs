//! Delay of one source's wave at one antenna, over one block of samples.

use std::f64::consts::{PI, TAU};

use num_complex::{Complex, Complex32};

use super::filter::{Filter, HOP};

/// Samples between exact delays, if samples are so short that the delay is linear between them.
const STEP: usize = 64;

/// Longest sample for which delays are linear over [`STEP`] samples, in seconds.
const SHORT_S: f64 = 1e-5;

/// Phase change at the band edge, in radians, below which a delay change within a block is ignored.
const SMALL_CHANGE: f64 = 1e-5;

/// Largest delay in samples that is resolved; larger ones are clamped.
const MOST_SAMPLES: f64 = (1u64 << 51) as f64;

/// Delays over a block, and the filter's response to the delay at its middle.
#[derive(Debug, Default)]
pub(super) struct Track {
    /// Integer part of the delay at the middle, in samples.
    pub(super) whole: i64,
    /// Delay in seconds at every step of samples, and at the end of the block.
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
        let whole = middle.round().clamp(-MOST_SAMPLES, MOST_SAMPLES);
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
