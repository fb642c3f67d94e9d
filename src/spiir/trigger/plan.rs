//! Options of the peak search, their checks and derived sizes; its input, and triggers with their ranking.

use std::ops::Range;

use num_complex::Complex;

use crate::error::{Error, Result};

/// Longest window and longest pad of a gate, in seconds.
const MAX_S: f64 = 60.0;

/// Longest autocorrelation in samples.
const MAX_AUTOCORRELATION: usize = 1 << 16;

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
    fn check(&self) -> Result<()> {
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
            if !(0.0..=MAX_S).contains(&seconds) {
                let rule = format!("it must be 0 to {MAX_S}");
                return Err(Error::parameter(name, seconds, rule));
            }
        }
        Ok(())
    }

    /// Returns the window on either side in samples.
    fn window(&self) -> usize {
        (self.window_s * f64::from(self.rate_hz)).round() as usize
    }

    /// Returns the pad of a gate on either side in samples.
    fn gate_pad(&self) -> usize {
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
    fn check(&self, template: usize) -> Result<()> {
        let values = self.values.len();
        if values.is_multiple_of(2) || !(3..=MAX_AUTOCORRELATION).contains(&values) {
            let rule = format!(
                "it must be an odd number, 3 to {MAX_AUTOCORRELATION} (template {template})"
            );
            return Err(Error::parameter("length of an autocorrelation", values, rule));
        }
        if let Some(bad) = self.values.iter().find(|a| !(a.re.is_finite() && a.im.is_finite())) {
            let rule = format!("it must be finite (template {template})");
            return Err(Error::parameter("autocorrelation", bad.to_string(), rule));
        }
        let middle = self.values[self.half()];
        if (middle - Complex::new(1.0, 0.0)).norm() > 1e-3 {
            let rule = format!("it must be 1 (template {template})");
            return Err(Error::parameter("middle of an autocorrelation", middle.to_string(), rule));
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

/// Signal-to-noise ratios in host memory: the next `times` samples of each template, at the start of its row of
/// `stride` elements.
#[derive(Clone, Copy, Debug)]
pub struct Ratios<'a> {
    /// Rows of the templates.
    pub z: &'a [Complex<f32>],
    /// Elements between rows.
    pub stride: usize,
    /// Samples of a row.
    pub times: usize,
}

impl<'a> Ratios<'a> {
    /// Returns the samples of one template; none if there are none at all.
    pub(super) fn row(&self, template: usize) -> &'a [Complex<f32>] {
        if self.times == 0 { &[] } else { &self.z[template * self.stride..][..self.times] }
    }
}

/// Peak of one template's signal-to-noise ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trigger {
    /// Index of the template in its bank.
    pub template: u32,
    /// Sample of the stream, from 0, at which `|z|` is the maximum.
    pub sample: u64,
    /// Time of the signal's end relative to that sample, in samples: -0.5 to 0.5, unless the filters' own peak is
    /// offset from the end of their template.
    pub offset: f32,
    /// Signal-to-noise ratio at that time, interpolated between samples.
    pub z: Complex<f32>,
    /// Mean square of the residual of `z` around the peak after subtracting the template's own shape, relative to
    /// Gaussian noise: 1 on average for a signal in noise, more for a glitch.
    pub xi2: f32,
}

impl Trigger {
    /// Returns the signal-to-noise ratio `|z|`.
    pub fn snr(&self) -> f32 {
        self.z.norm()
    }

    /// Returns the phase of `z` in radians.
    pub fn phase(&self) -> f32 {
        self.z.arg()
    }

    /// Returns the signal-to-noise ratio reduced by a mismatch of the shape: see [`reweighted`].
    pub fn reweighted(&self) -> f32 {
        reweighted(self.snr(), self.xi2)
    }
}

/// Returns the ranking of a trigger, `rho / ((1 + xi2^3) / 2)^(1/6)` for `xi2 > 1` and `rho` otherwise.
///
/// # Source
/// Babak et al. 2013, Phys. Rev. D 87, 024033; Usman et al. 2016, Class. Quantum Grav. 33, 215004: their reweighted
/// signal-to-noise ratio, with xi-squared in place of the reduced chi-squared.
pub fn reweighted(snr: f32, xi2: f32) -> f32 {
    if xi2 > 1.0 {
        let xi2 = f64::from(xi2);
        (f64::from(snr) / ((1.0 + xi2.powi(3)) / 2.0).powf(1.0 / 6.0)) as f32
    } else {
        snr
    }
}

/// Taps of the interpolation on either side of a sample.
pub(super) const HALF: usize = 8;
/// Largest distance of an autocorrelation's peak from its middle, in samples.
pub(super) const MAX_SHIFT: usize = 8;

/// Largest distance of a trigger's time from its sample, in samples: that of an interpolated peak, half a sample, and
/// that of the autocorrelation's peak.
pub(crate) const MOST_OFFSET: i64 = MAX_SHIFT as i64 + 2;

/// Returns the samples needed on either side of a peak for an autocorrelation of `half` samples on either side.
const fn reach(half: usize) -> usize {
    half + HALF + MAX_SHIFT + 1
}

/// Checked peak search: options, the templates' autocorrelations, and derived sizes in samples.
#[derive(Clone, Debug)]
pub struct Plan {
    options: TriggerOptions,
    autocorrelations: Vec<Autocorrelation>,
    /// Half-length of the longest autocorrelation.
    pub(super) half: usize,
    /// Samples on either side within which a trigger is the maximum.
    pub(super) window: usize,
    /// Samples by which a gate is extended.
    pub(super) pad: usize,
    /// Samples before and after a sample that its detection and measurement read.
    pub(super) back: usize,
    latency: usize,
}

impl Plan {
    /// Checks the options, for templates with these autocorrelations.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an unusable rate, threshold, window or pad, no template, or an autocorrelation
    /// without a middle of 1 and a norm above 0.
    pub fn new(options: TriggerOptions, autocorrelations: Vec<Autocorrelation>) -> Result<Self> {
        options.check()?;
        if autocorrelations.is_empty() || u32::try_from(autocorrelations.len()).is_err() {
            let rule = "there must be 1 to 2^32 - 1";
            return Err(Error::parameter("templates", autocorrelations.len(), rule));
        }
        for (template, autocorrelation) in autocorrelations.iter().enumerate() {
            autocorrelation.check(template)?;
        }
        let half = autocorrelations.iter().map(Autocorrelation::half).max().unwrap_or(0);
        let (window, pad) = (options.window(), options.gate_pad());
        let back = window.max(reach(half));
        let latency = back.max(pad);
        Ok(Self { options, autocorrelations, half, window, pad, back, latency })
    }

    /// Returns the search of some of the templates, with the latency of this one; its triggers number them from 0.
    pub fn part(&self, templates: Range<usize>) -> Self {
        Self { autocorrelations: self.autocorrelations[templates].to_vec(), ..self.clone() }
    }

    /// Returns the options.
    pub fn options(&self) -> &TriggerOptions {
        &self.options
    }

    /// Returns the templates' autocorrelations.
    pub fn autocorrelations(&self) -> &[Autocorrelation] {
        &self.autocorrelations
    }

    /// Returns the number of templates.
    pub fn templates(&self) -> usize {
        self.autocorrelations.len()
    }

    /// Returns how many samples must follow a sample before it can be decided.
    pub fn latency(&self) -> usize {
        self.latency
    }

    /// Returns the least `|z|^2` of a trigger.
    pub(super) fn threshold(&self) -> f32 {
        self.options.threshold * self.options.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bad_shapes_cost_rank() {
        assert_eq!(reweighted(8.0, 0.5), 8.0);
        assert_eq!(reweighted(8.0, 1.0), 8.0);
        assert!((reweighted(8.0, 2.0) - 8.0 / 4.5_f32.powf(1.0 / 6.0)).abs() < 1e-5);
        assert!(reweighted(8.0, f32::MAX) < 1e-10);
    }
}
