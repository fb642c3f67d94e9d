//! Prototype filters of a polyphase filter bank: windowed sinc with unit gain at zero frequency.
//!
//! Invariant: coefficients sum to 1, but for those that a user brings.

use std::f64::consts::PI;
use std::str::FromStr;

use crate::error::{Error, Result};

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
    /// User's coefficients (taps x points), applied without normalization.
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
                Error::parameter("--window", words, rule)
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
                Err(Error::parameter("--taps", taps, rule))
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
        let rule = "the window is 0 at all of so few points; take more taps or channels";
        return Err(Error::parameter("taps x points", coefficients.len(), rule));
    }
    coefficients.iter_mut().for_each(|b| *b /= sum);
    Ok(coefficients)
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
            assert!(error.contains("--window") && error.contains(words), "{error}");
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
}
