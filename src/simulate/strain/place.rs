//! Sub-sample placement of signals with a long sinc and a Kaiser window.

use crate::math::{bessel_i0, sinc};
use crate::units::Gps;

/// Taps of the sinc on either side.
const HALF: i64 = 96;

/// Kaiser's beta: side lobes at -118 dB, flat response to 0.96 of the Nyquist frequency.
const BETA: f64 = 12.0;

/// Time as a sample number and the following fraction of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Position {
    pub(super) whole: i64,
    pub(super) part: f64,
}

impl Position {
    pub(super) fn new(gps: Gps, start: Gps, rate_hz: u32) -> Self {
        const NS: i128 = 1_000_000_000;
        let product = (i128::from(gps.ns) - i128::from(start.ns)) * i128::from(rate_hz);
        let part = product.rem_euclid(NS) as f64 / NS as f64;
        Self { whole: product.div_euclid(NS) as i64, part }
    }
}

/// Series of samples whose sample `origin` lies at a position.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// Numbers of the first sample that it contributes to, and of the first sample after it.
    pub(super) first: i64,
    pub(super) end: i64,
    taps: Vec<f64>,
}

impl Placed {
    pub(super) fn new(position: Position, origin: usize, length: usize) -> Self {
        let first = position.whole - origin as i64 - HALF + 1;
        let tap = |d: i64| {
            let x = d as f64 - position.part;
            let inside = 1.0 - (x / HALF as f64).powi(2);
            sinc(x) * bessel_i0(BETA * inside.max(0.0).sqrt()) / bessel_i0(BETA)
        };
        let taps = (1 - HALF..=HALF).map(tap).collect();
        Self { first, end: first + length as i64 + 2 * HALF - 1, taps }
    }

    /// Adds `series` to samples that start at number `start`.
    pub(super) fn add(&self, series: &[f64], start: u64, samples: &mut [f64]) {
        let start = start as i64;
        let from = self.first.max(start);
        let to = self.end.min(start + samples.len() as i64);
        for number in from..to {
            // Sample m of the series uses the tap number - first - m.
            let last = (number - self.first) as usize;
            let lowest = last.saturating_sub(self.taps.len() - 1);
            let highest = last.min(series.len() - 1);
            let terms = series[lowest..=highest].iter();
            let taps = self.taps[last - highest..=last - lowest].iter().rev();
            samples[(number - start) as usize] +=
                terms.zip(taps).map(|(h, tap)| h * tap).sum::<f64>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_is_moved_by_parts_of_a_sample() {
        let start = Gps::from_s(1e9);
        let at = Position::new(start.plus_s(1000.3 / 4096.0), start, 4096);
        assert!(at.whole == 1000 && (at.part - 0.3).abs() < 1e-5);
        let before = Position::new(start.plus_s(-0.25 / 4096.0), start, 4096);
        assert!(before.whole == -1 && (before.part - 0.75).abs() < 1e-5);
        for turns in [0.01, 0.3, 0.47] {
            let wave = |t: f64| (std::f64::consts::TAU * turns * t).cos();
            let series: Vec<f64> = (0..1000).map(|m| wave(f64::from(m) - 400.0)).collect();
            let placed = Placed::new(Position { whole: 1000, part: 0.3 }, 400, series.len());
            let mut samples = vec![0.0; 1800];
            let (one, two) = samples.split_at_mut(777);
            placed.add(&series, 0, one);
            placed.add(&series, 777, two);
            for (number, sample) in samples.iter().enumerate().take(1400).skip(800) {
                let expected = wave(number as f64 - 1000.3);
                assert!((sample - expected).abs() < 2e-5, "{turns} {number}");
            }
            assert!(samples[..500].iter().all(|x| *x == 0.0));
            assert_eq!((placed.first, placed.end), (505, 1696));
        }
    }
}
