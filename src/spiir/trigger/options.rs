//! Options of the peak search, and their checks.

use num_complex::Complex;

use crate::error::{Error, Result};

/// Longest window and longest pad of a gate, in seconds.
const LONGEST_S: f64 = 60.0;

/// Longest autocorrelation in samples.
const LONGEST_AUTOCORRELATION: usize = 1 << 16;

/// Definition of a trigger.
#[derive(Clone, Debug, PartialEq)]
pub struct TriggerOptions {
    /// Samples of the signal-to-noise ratio per second.
    pub rate_hz: u32,
    /// Least `|z|` of a trigger.
    pub threshold: f32,
    /// Seconds on either side within which a trigger has the largest `|z|` of its template.
    pub window_s: f64,
    /// Seconds around an invalid sample in which peaks are dropped.
    pub gate_pad_s: f64,
}

impl TriggerOptions {
    /// Returns the defaults at a rate: threshold 4.0, window 0.1 s, pad 0.25 s.
    pub fn new(rate_hz: u32) -> Self {
        Self { rate_hz, threshold: 4.0, window_s: 0.1, gate_pad_s: 0.25 }
    }

    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the unusable value.
    pub(super) fn check(&self) -> Result<()> {
        if self.rate_hz == 0 {
            let name = "rate of the signal-to-noise ratio (Hz)";
            return Err(Error::parameter(name, 0, "it must be above 0"));
        }
        if !(self.threshold.is_finite() && self.threshold > 0.0) {
            let rule = "it must be finite and above 0";
            return Err(Error::parameter("threshold of a trigger", self.threshold, rule));
        }
        let times = [("window of a trigger (s)", self.window_s), ("pad (s)", self.gate_pad_s)];
        for (name, seconds) in times {
            if !(0.0..=LONGEST_S).contains(&seconds) {
                let rule = format!("it must be 0 to {LONGEST_S}");
                return Err(Error::parameter(name, seconds, rule));
            }
        }
        Ok(())
    }

    /// Returns the window on either side in samples.
    pub(super) fn window(&self) -> usize {
        (self.window_s * f64::from(self.rate_hz)).round() as usize
    }

    /// Returns the pad of a gate on either side in samples.
    pub(super) fn gate_pad(&self) -> usize {
        (self.gate_pad_s * f64::from(self.rate_hz)).ceil() as usize
    }
}

/// Noise-free signal-to-noise ratio of a template around its own peak.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Autocorrelation {
    /// `A[m] = (u * h)[L - 1 + m] / (u * h)[L - 1]` (response `u` convolved with the whitened template `h` of `L`
    /// samples), an odd number of values with `A[0] = 1` in the middle.
    pub values: Vec<Complex<f32>>,
    /// `sum_m (2 - 2 |A[m]|^2)`: the mean residual of Gaussian noise.
    pub norm: f32,
}

impl Autocorrelation {
    /// Creates an autocorrelation and computes its norm.
    pub fn new(values: Vec<Complex<f32>>) -> Self {
        let norm = norm(&values);
        Self { values, norm }
    }

    /// Returns the samples on either side of the middle.
    pub(super) fn half(&self) -> usize {
        self.values.len() / 2
    }

    /// Checks that the values are finite, the middle is 1 and has samples on either side, and the norm is above 0.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming `template`.
    pub(super) fn check(&self, template: usize) -> Result<()> {
        let values = self.values.len();
        if values.is_multiple_of(2) || !(3..=LONGEST_AUTOCORRELATION).contains(&values) {
            let rule = format!(
                "it must be an odd number, 3 to {LONGEST_AUTOCORRELATION} (template {template})"
            );
            return Err(Error::parameter("length of an autocorrelation", values, rule));
        }
        if let Some(bad) = self.values.iter().find(|a| !(a.re.is_finite() && a.im.is_finite())) {
            let rule = format!("it must be finite (template {template})");
            return Err(Error::parameter("autocorrelation", bad, rule));
        }
        let middle = self.values[self.half()];
        if (middle - Complex::new(1.0, 0.0)).norm() > 1e-3 {
            let rule = format!("it must be 1 (template {template})");
            return Err(Error::parameter("middle of an autocorrelation", middle, rule));
        }
        if !(self.norm.is_finite() && self.norm > 0.0) {
            let rule = format!("it must be finite and above 0 (template {template})");
            return Err(Error::parameter("norm of an autocorrelation", self.norm, rule));
        }
        Ok(())
    }
}

/// Returns `sum_m (2 - 2 |A[m]|^2)`.
pub(super) fn norm(values: &[Complex<f32>]) -> f32 {
    let left = values.iter().map(|a| 2.0 - 2.0 * f64::from(a.norm_sqr()));
    left.sum::<f64>() as f32
}
