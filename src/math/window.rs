//! Prototype filters of a polyphase filter bank, and their frequency response.
//!
//! Invariant: coefficients sum to 1, except those of [`Window::Custom`].

use std::f64::consts::{PI, TAU};
use std::fmt;
use std::str::FromStr;

use num_complex::Complex;
use rustfft::FftPlanner;

use crate::error::{Error, Result};
use crate::view::check_length;

/// Prototype filter of a polyphase filter bank.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Window {
    /// sinc x symmetric Hann.
    #[default]
    Hann,
    /// sinc x symmetric Hamming.
    Hamming,
    /// sinc x symmetric Blackman.
    Blackman,
    /// sinc x Kaiser with this stop-band attenuation in dB.
    Kaiser(f64),
    /// Equal coefficients: a plain Fourier transform with one tap.
    Rectangular,
    /// Coefficients of the user (taps x points), applied without normalization.
    Custom(Vec<f64>),
}

impl FromStr for Window {
    type Err = Error;

    /// Parses the output of [`Window::name`], except `custom`, whose coefficients come from a file.
    fn from_str(words: &str) -> Result<Self> {
        let kaiser = words.strip_prefix("kaiser:").and_then(|db| db.parse().ok());
        Ok(match words {
            "hann" => Self::Hann,
            "hamming" => Self::Hamming,
            "blackman" => Self::Blackman,
            "rectangular" => Self::Rectangular,
            _ => Self::Kaiser(kaiser.ok_or_else(|| {
                let rule = "there are hann, hamming, blackman, kaiser:DB and rectangular";
                Error::parameter("window", words, rule)
            })?),
        })
    }
}

impl Window {
    /// Returns `hann`, `hamming`, `blackman`, `kaiser:DB`, `rectangular` or `custom`.
    pub fn name(&self) -> String {
        match self {
            Self::Hann => "hann".to_owned(),
            Self::Hamming => "hamming".to_owned(),
            Self::Blackman => "blackman".to_owned(),
            Self::Kaiser(db) => format!("kaiser:{db}"),
            Self::Rectangular => "rectangular".to_owned(),
            Self::Custom(_) => "custom".to_owned(),
        }
    }

    /// Returns the coefficients `b[0 .. taps * points]`.
    ///
    /// `b[n] = w[n] sinc((n - (N - 1) / 2) / points) / sum`, `N = taps points`; without the sinc for
    /// [`Window::Rectangular`].
    ///
    /// # Errors
    /// [`Error::Parameter`] for more than one tap with a rectangular window, a stop-band attenuation outside 0 to 300
    /// dB, or a custom window with non-finite values; [`Error::Shape`] for a custom window of the wrong length.
    /// # Source
    /// Adamek, Novotny & Armour 2016 (sinc x Hann, Figure 2); Kaiser 1974, as in Oppenheim & Schafer,
    /// Discrete-Time Signal Processing (beta from a filter's stop-band).
    pub fn coefficients(&self, taps: usize, points: usize) -> Result<Vec<f64>> {
        let length = taps * points;
        let middle = (length as f64 - 1.0) / 2.0;
        let shaped = |w: &dyn Fn(f64) -> f64| -> Result<Vec<f64>> {
            let sinc = |n: usize| sinc((n as f64 - middle) / points as f64);
            // x runs from -1 to 1 over the window.
            let x = |n: usize| if middle > 0.0 { (n as f64 - middle) / middle } else { 0.0 };
            normalized((0..length).map(|n| w(x(n)) * sinc(n)).collect())
        };
        let cosine = |a0: f64, a1: f64, a2: f64| {
            move |x: f64| a0 + a1 * (PI * x).cos() + a2 * (2.0 * PI * x).cos()
        };
        match self {
            Self::Hann => shaped(&cosine(0.5, 0.5, 0.0)),
            Self::Hamming => shaped(&cosine(0.54, 0.46, 0.0)),
            Self::Blackman => shaped(&cosine(0.42, 0.5, 0.08)),
            Self::Kaiser(db) if !(0.0..=300.0).contains(db) => Err(Error::parameter(
                "stop-band of the Kaiser window (dB)",
                db,
                "0 to 300 are possible",
            )),
            Self::Kaiser(db) => {
                let beta = kaiser_beta(*db);
                let scale = bessel_i0(beta);
                shaped(&|x| bessel_i0(beta * (1.0 - x * x).max(0.0).sqrt()) / scale)
            }
            Self::Rectangular if taps != 1 => {
                let rule = "a rectangular window is a plain Fourier transform, which has 1 tap";
                Err(Error::parameter("taps", taps, rule))
            }
            Self::Rectangular => Ok(vec![1.0 / length as f64; length]),
            Self::Custom(own) => {
                crate::view::check_length("window (taps x points)", length, own.len())?;
                match own.iter().find(|b| !b.is_finite()) {
                    Some(bad) => {
                        Err(Error::parameter("window", bad, "coefficients must be finite"))
                    }
                    None => Ok(own.clone()),
                }
            }
        }
    }
}

/// Returns sin(pi x) / (pi x).
pub fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

/// Returns Kaiser's beta for a stop-band attenuation in dB.
pub fn kaiser_beta(db: f64) -> f64 {
    if db > 50.0 {
        0.1102 * (db - 8.7)
    } else if db > 21.0 {
        0.5842 * (db - 21.0).powf(0.4) + 0.07886 * (db - 21.0)
    } else {
        0.0
    }
}

/// Returns the modified Bessel function of order 0, by its power series.
pub fn bessel_i0(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut term, mut sum, mut k) = (1.0, 1.0, 1.0);
    while term > 1e-17 * sum {
        term *= quarter / (k * k);
        sum += term;
        k += 1.0;
    }
    sum
}

fn normalized(mut coefficients: Vec<f64>) -> Result<Vec<f64>> {
    let sum: f64 = coefficients.iter().sum();
    if sum <= f64::EPSILON {
        // A Hann or Blackman window of two points is 0 at both.
        let rule =
            "the window is 0 at every point because there are so few; take more taps or channels";
        return Err(Error::parameter("taps x points", coefficients.len(), rule));
    }
    coefficients.iter_mut().for_each(|b| *b /= sum);
    Ok(coefficients)
}

/// Offsets sampled per `1 / taps` of a channel; between two of them the response rises by less than 0.7 dB.
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
pub struct ResponseSummary {
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
    pub fn summary(&self) -> ResponseSummary {
        let gain: f64 = self.coefficients.iter().sum();
        let (leakage_offset, leakage) = self.leakage();
        ResponseSummary {
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

impl fmt::Display for ResponseSummary {
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

    #[test]
    fn windows_are_symmetric_and_sum_to_one() {
        let all = [
            Window::Hann,
            Window::Hamming,
            Window::Blackman,
            Window::Kaiser(70.0),
            Window::Kaiser(0.0),
        ];
        for window in all {
            for (taps, points) in [(2, 2), (1, 16), (4, 8), (3, 5), (8, 64)] {
                let b = window.coefficients(taps, points).unwrap();
                assert!((b.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{window:?} {taps} {points}");
                let pairs = b.iter().zip(b.iter().rev());
                assert!(pairs.into_iter().all(|(a, z)| (a - z).abs() < 1e-12));
            }
        }
    }

    #[test]
    fn names_are_read_back() {
        let all = [Window::Hann, Window::Hamming, Window::Blackman, Window::Rectangular];
        for window in all.into_iter().chain([Window::Kaiser(62.5)]) {
            assert_eq!(window.name().parse::<Window>().unwrap(), window);
        }
        for words in ["", "Hann", "kaiser", "kaiser:x", "custom"] {
            let error = words.parse::<Window>().unwrap_err().to_string();
            assert!(error.contains("window") && error.contains(words), "{error}");
        }
    }

    #[test]
    fn bad_windows_are_refused() {
        assert!(Window::Rectangular.coefficients(4, 8).is_err());
        assert!(Window::Custom(vec![1.0; 31]).coefficients(4, 8).is_err());
        assert!(Window::Custom(vec![f64::NAN; 32]).coefficients(4, 8).is_err());
        assert!(Window::Hann.coefficients(1, 2).is_err());
        assert!(Window::Kaiser(-1.0).coefficients(4, 8).is_err());
    }

    #[test]
    fn the_bessel_function_is_right() {
        // Abramowitz & Stegun, table 9.8: exp(-x) I0(x) at x = 5.
        assert!((bessel_i0(5.0) * (-5.0f64).exp() - 0.183_540_813).abs() < 1e-9);
    }

    fn summary(window: &Window, taps: usize, points: usize) -> ResponseSummary {
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
