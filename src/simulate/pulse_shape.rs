//! Pulse in one channel: a Gaussian, scattered and smeared by the dispersion within the channel.
//!
//! Invariant: the area over all time is 1 and nothing is negative, to the precision of the tests.

use crate::math::normal;

/// Half-length of the evaluated Gaussian, in sigma.
const GAUSSIAN_REACH: f64 = 5.5;

/// Length of the evaluated scattering tail, in scattering times.
const TAIL_REACH: f64 = 12.0;

/// Sweeps shorter than this fraction of the rest of the pulse only shift it.
const SHORT_SWEEP: f64 = 0.05;

/// Scattering times shorter than this fraction of the Gaussian's sigma are ignored.
const SHORT_TAIL: f64 = 1e-3;

/// Full width at half maximum of a Gaussian of sigma 1.
pub(super) const FWHM: f64 = 2.354_820_045_030_949;

/// Pulse shape of area 1; times count from the unscattered centre at the channel's centre.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) sigma_s: f64,
    pub(super) scatter_s: f64,
    /// Arrival of the channel's upper edge, 0 or negative.
    pub(super) early_s: f64,
    /// Arrival of its lower edge, 0 or positive.
    pub(super) late_s: f64,
}

impl Shape {
    /// Returns the seconds before the centre at which the pulse starts.
    pub(super) fn before_s(&self) -> f64 {
        GAUSSIAN_REACH * self.sigma_s - self.early_s
    }

    /// Returns the seconds after the centre at which the pulse ends.
    pub(super) fn after_s(&self) -> f64 {
        GAUSSIAN_REACH * self.sigma_s + TAIL_REACH * self.scatter_s + self.late_s
    }

    /// Returns the mean of the pulse over `begin_s .. end_s`, in 1/s.
    pub(super) fn mean(&self, begin_s: f64, end_s: f64) -> f64 {
        let (length, sweep) = (end_s - begin_s, self.late_s - self.early_s);
        if sweep < SHORT_SWEEP * (self.sigma_s + length) {
            let middle = 0.5 * (self.late_s + self.early_s);
            return (self.cumulative(end_s - middle) - self.cumulative(begin_s - middle)) / length;
        }
        let swept = |t: f64| self.integral(t - self.early_s) - self.integral(t - self.late_s);
        (swept(end_s) - swept(begin_s)) / (sweep * length)
    }

    /// Returns the fraction of the unsmeared pulse before `t_s`: a Gaussian convolved with an exponential.
    fn cumulative(&self, t_s: f64) -> f64 {
        let z = t_s / self.sigma_s;
        if self.scatter_s < SHORT_TAIL * self.sigma_s {
            return normal::cumulative(z);
        }
        let ratio = self.sigma_s / self.scatter_s;
        let late = if ratio >= z {
            // erfcx is finite where the exponential alone would overflow.
            let u = (ratio - z) * std::f64::consts::FRAC_1_SQRT_2;
            0.5 * (-0.5 * z * z).exp() * normal::erfcx(u)
        } else {
            (0.5 * ratio * ratio - t_s / self.scatter_s).exp() * normal::cumulative(z - ratio)
        };
        normal::cumulative(z) - late
    }

    /// Returns the integral of [`Shape::cumulative`] up to `t_s`.
    ///
    /// With `F` the scattered and `P` the unscattered probability, `F + scatter F' = P`.
    fn integral(&self, t_s: f64) -> f64 {
        let z = t_s / self.sigma_s;
        let unscattered = self.sigma_s * (z * normal::cumulative(z) + normal::density(z));
        if self.scatter_s < SHORT_TAIL * self.sigma_s {
            return unscattered;
        }
        unscattered - self.scatter_s * self.cumulative(t_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(scatter_s: f64, sweep_s: f64) -> Shape {
        let half = 0.5 * sweep_s;
        Shape { sigma_s: 1e-3, scatter_s, early_s: -half, late_s: half }
    }

    fn moments(shape: &Shape) -> (f64, f64, f64) {
        let step = 1e-4;
        let (mut area, mut first, mut second) = (0.0, 0.0, 0.0);
        let begin = (-shape.before_s() / step).floor() as i64;
        let end = (shape.after_s() / step).ceil() as i64;
        for i in begin..end {
            let t = i as f64 * step;
            let mass = shape.mean(t, t + step) * step;
            area += mass;
            first += mass * (t + 0.5 * step);
            second += mass * (t + 0.5 * step).powi(2);
        }
        (area, first / area, (second / area - (first / area).powi(2)).sqrt())
    }

    #[test]
    fn area_mean_and_width_are_those_of_the_convolution() {
        for scatter in [0.0, 1e-5, 1e-4, 1e-3, 5e-3] {
            for sweep in [0.0, 1e-5, 1e-4, 1e-3, 1e-2] {
                let (area, mean, sigma) = moments(&shape(scatter, sweep));
                assert!((area - 1.0).abs() < 1e-4, "{scatter} {sweep} {area}");
                assert!((mean - scatter).abs() < 1e-5 + 1e-3 * scatter, "{scatter} {sweep} {mean}");
                let expected = (1e-6 + scatter * scatter + sweep * sweep / 12.0).sqrt();
                assert!((sigma / expected - 1.0).abs() < 2e-3, "{scatter} {sweep} {sigma}");
            }
        }
    }

    #[test]
    fn nothing_is_negative_or_lost_far_away() {
        for scatter in [0.0, 2e-6, 1e-3, 10.0] {
            let shape = shape(scatter, 1e-3);
            for i in -100..100 {
                let value = shape.mean(f64::from(i) * 1e-3, f64::from(i + 1) * 1e-3);
                assert!(value.is_finite() && value > -1e-6, "{scatter} {i} {value}");
            }
        }
    }
}
