//! Frequency response of a prototype filter, and its characteristic numbers.

use std::f64::consts::TAU;
use std::fmt;

use num_complex::Complex;
use rustfft::FftPlanner;

use crate::error::Result;
use crate::view::check_length;

/// Offsets sampled per `1 / taps` of a channel; between two of them a lobe rises by less than 0.7 dB.
const STEPS_PER_LOBE: usize = 4;

/// Maximum number of lobes, within 1 dB of the highest sample, whose peaks are refined.
const LOBES: usize = 8;

/// Frequency response of a filter-bank channel.
///
/// `H(f) = sum_n b[n] exp(-2 pi i f n / points)`, with `f` in channels from the channel's centre. It has period
/// `points`, and `|H(-f)| = |H(f)|` because the coefficients are real. Each offset takes a sum over all coefficients;
/// [`Response::summary`] needs `2 taps` of them and as many transforms of `points` points.
///
/// # Source
/// The z-transform of the prototype filter on the unit circle. Critically sampled and oversampled filter banks differ
/// only in how often it is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    coefficients: &'a [f64],
    points: usize,
}

/// Characteristic numbers of a response.
///
/// # Source
/// Harris 1978, Proc. IEEE 66, 51 (scalloping loss, equivalent noise bandwidth).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Gain at the channel's centre: the sum of the coefficients.
    pub gain: f64,
    /// Loss of a tone midway between two channels, in dB (positive).
    pub scalloping_loss_db: f64,
    /// Response at the next channel's centre, in dB relative to the centre.
    pub adjacent_db: f64,
    /// Highest response at one or more channels from the centre, in dB relative to the centre: the remaining main
    /// lobe or a sidelobe.
    pub leakage_db: f64,
    /// Offset of the highest leakage, in channels from the centre.
    pub leakage_offset: f64,
    /// Equivalent noise bandwidth in channels: `points sum b^2 / (sum b)^2`.
    pub noise_bandwidth: f64,
}

impl<'a> Response<'a> {
    /// Creates the response of `coefficients`, which must be whole rows of `points`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless there is at least one row.
    pub fn new(coefficients: &'a [f64], points: usize) -> Result<Self> {
        let points = points.max(1);
        let rows = coefficients.len().div_ceil(points).max(1);
        check_length("coefficients (taps x points)", rows * points, coefficients.len())?;
        Ok(Self { coefficients, points })
    }

    /// Creates the response of coefficients that a plan has validated.
    pub(crate) fn of(coefficients: &'a [f64], points: usize) -> Self {
        Self { coefficients, points }
    }

    /// Returns the number of rows of coefficients.
    pub fn taps(&self) -> usize {
        self.coefficients.len() / self.points
    }

    /// Returns `H` at `offset` channels from the centre.
    pub fn gain(&self, offset: f64) -> Complex<f64> {
        self.folded(offset).iter().sum()
    }

    /// Returns the power response at `offset` channels from the centre, in dB relative to the centre.
    pub fn db(&self, offset: f64) -> f64 {
        decibels(self.gain(offset).norm_sqr() / self.gain(0.0).norm_sqr())
    }

    /// Returns the equivalent noise bandwidth `points sum b^2 / (sum b)^2`, in channels.
    pub fn noise_bandwidth(&self) -> f64 {
        let squares: f64 = self.coefficients.iter().map(|b| b * b).sum();
        let sum: f64 = self.coefficients.iter().sum();
        self.points as f64 * squares / (sum * sum)
    }

    /// Returns the characteristic numbers.
    pub fn summary(&self) -> Summary {
        let gain: f64 = self.coefficients.iter().sum();
        let (leakage_offset, leakage) = self.leakage();
        Summary {
            gain,
            scalloping_loss_db: -self.db(0.5),
            adjacent_db: self.db(1.0),
            leakage_db: decibels(leakage / (gain * gain)),
            leakage_offset,
            noise_bandwidth: self.noise_bandwidth(),
        }
    }

    /// Returns the terms of `H(offset)` summed over rows, for each column: `H(k + offset)` is bin `k` of their
    /// Fourier transform.
    fn folded(&self, offset: f64) -> Vec<Complex<f64>> {
        let turn = |turns: f64| Complex::cis(-TAU * turns.fract());
        let mut sums = vec![Complex::ZERO; self.points];
        for (tap, row) in self.coefficients.chunks_exact(self.points).enumerate() {
            let turn = turn(tap as f64 * offset);
            sums.iter_mut().zip(row).for_each(|(sum, b)| *sum += turn * b);
        }
        for (place, sum) in sums.iter_mut().enumerate() {
            *sum *= turn(offset * place as f64 / self.points as f64);
        }
        sums
    }

    /// Returns the offset and power of the highest response at 1 channel or more.
    fn leakage(&self) -> (f64, f64) {
        let furthest = self.points as f64 / 2.0;
        let step = 1.0 / (STEPS_PER_LOBE * self.taps()) as f64;
        let mut tried = self.grid(step);
        tried.retain(|(offset, _)| *offset >= 1.0);
        tried.push((1.0, self.gain(1.0).norm_sqr()));
        tried.sort_by(|a, b| b.1.total_cmp(&a.1));
        let highest = tried[0].1;
        let near = |power: f64| power > 0.79 * highest;
        let peaks =
            tried.iter().take(LOBES).filter(|(_, power)| near(*power)).map(|(offset, _)| {
                let most = furthest.max(1.0);
                self.peak((offset - step).clamp(1.0, most), (offset + step).clamp(1.0, most))
            });
        peaks.fold(tried[0], |best, peak| if peak.1 > best.1 { peak } else { best })
    }

    /// Returns the power at every multiple of `step` (which divides half a channel) up to half the points.
    fn grid(&self, step: f64) -> Vec<(f64, f64)> {
        let fft = FftPlanner::new().plan_fft_forward(self.points);
        let steps = (0.5 / step).round() as usize;
        let mut powers = Vec::with_capacity((steps + 1) * self.points);
        for fraction in (0..=steps).map(|index| index as f64 * step) {
            let mut bins = self.folded(fraction);
            fft.process(&mut bins);
            powers.extend(bins.iter().enumerate().map(|(bin, gain)| {
                let offset = bin as f64 + fraction;
                (offset.min((self.points as f64 - offset).abs()), gain.norm_sqr())
            }));
        }
        powers
    }

    /// Returns the highest power between two offsets that enclose one peak, by golden-section search.
    fn peak(&self, mut low: f64, mut high: f64) -> (f64, f64) {
        let section = (5f64.sqrt() - 1.0) / 2.0;
        let power = |offset: f64| self.gain(offset).norm_sqr();
        let (mut a, mut b) = (high - section * (high - low), low + section * (high - low));
        let (mut at_a, mut at_b) = (power(a), power(b));
        // Each step keeps 0.618 of the interval, so 1e-5 of it remains.
        for _ in 0..24 {
            if at_a > at_b {
                (high, b, at_b) = (b, a, at_a);
                a = high - section * (high - low);
                at_a = power(a);
            } else {
                (low, a, at_a) = (a, b, at_b);
                b = low + section * (high - low);
                at_b = power(b);
            }
        }
        let middle = 0.5 * (low + high);
        (middle, power(middle))
    }
}

impl fmt::Display for Response<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} taps of {} points: {}", self.taps(), self.points, self.summary())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "scalloping loss {:.2} dB, {} at the next channel's centre, worst leakage {} ({:.2} \
             channels away), noise bandwidth {:.3} channels",
            self.scalloping_loss_db,
            level(self.adjacent_db),
            level(self.leakage_db),
            self.leakage_offset,
            self.noise_bandwidth
        )?;
        if (self.gain - 1.0).abs() > 1e-6 {
            write!(f, ", gain {:.6}", self.gain)?;
        }
        Ok(())
    }
}

/// Formats a level; double-precision sums are meaningless below -300 dB.
fn level(db: f64) -> String {
    if db < -300.0 { "nothing".to_owned() } else { format!("{db:.1} dB") }
}

fn decibels(power: f64) -> f64 {
    10.0 * power.log10()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::window::Window;

    fn summary(window: &Window, taps: usize, points: usize) -> Summary {
        let coefficients = window.coefficients(taps, points).unwrap();
        Response::new(&coefficients, points).unwrap().summary()
    }

    #[test]
    fn a_plain_transform_has_the_rectangle_s_known_numbers() {
        let all = summary(&Window::Rectangular, 1, 512);
        // sin(pi f) / (pi f) at f = 1/2, and the peak of its first sidelobe.
        assert!((all.scalloping_loss_db - 3.9224).abs() < 1e-3, "{all}");
        assert!((all.leakage_db + 13.2615).abs() < 1e-3, "{all}");
        assert!((all.leakage_offset - 1.4303).abs() < 1e-3, "{all}");
        assert!((all.noise_bandwidth - 1.0).abs() < 1e-12 && all.adjacent_db < -280.0, "{all}");
        assert!(all.to_string().contains("nothing at the next"), "{all}");
    }

    #[test]
    fn the_worst_leakage_is_what_a_fine_search_finds() {
        let own = (0..48).map(|n| f64::from(n * 37 % 23) - 3.0).collect();
        let windows = [Window::Hann, Window::Hamming, Window::Kaiser(60.0), Window::Custom(own)];
        for window in windows {
            for (taps, points) in [(4, 12), (3, 16), (16, 3), (24, 2), (1, 48)] {
                let coefficients = window.coefficients(taps, points).unwrap();
                let response = Response::new(&coefficients, points).unwrap();
                let found = response.summary();
                let width = (points as f64 / 2.0 - 1.0).max(0.0);
                let fine = (0..=20_000).map(|k| response.db(1.0 + f64::from(k) / 20_000.0 * width));
                let highest = fine.fold(f64::NEG_INFINITY, f64::max);
                let name = window.name();
                assert!((found.leakage_db - highest).abs() < 0.01, "{name} {taps}: {found}");
                let there = response.db(found.leakage_offset);
                assert!(
                    (there - found.leakage_db).abs() < 1e-6,
                    "{name} {taps}: {there} {found:?}"
                );
                assert!(found.leakage_offset >= 1.0);
            }
        }
    }

    #[test]
    fn the_response_is_the_sum_over_the_coefficients() {
        let coefficients = Window::Blackman.coefficients(5, 7).unwrap();
        let response = Response::new(&coefficients, 7).unwrap();
        for offset in [0.0, 0.3, -1.7, 3.5, 12.25] {
            let terms = coefficients.iter().enumerate();
            let sum: Complex<f64> =
                terms.map(|(n, b)| Complex::cis(-TAU * offset * n as f64 / 7.0) * b).sum();
            assert!((response.gain(offset) - sum).norm() < 1e-14);
        }
    }

    #[test]
    fn rows_must_be_whole() {
        assert!(Response::new(&[1.0; 7], 4).is_err());
        assert!(
            Response::new(&[], 4).is_err() && Response::new(&[1.0], 0).is_ok_and(|r| r.points == 1)
        );
    }

    #[test]
    fn the_largest_banks_are_done_in_seconds() {
        let all = summary(&Window::Hann, 64, 65536);
        assert!((all.scalloping_loss_db - 6.0).abs() < 0.1 && all.leakage_db < -80.0, "{all}");
    }
}
