//! Pulse strength for a requested S/N: the radiometer equation.
//!
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

use super::options::Carrier;
use crate::simulate::amplitude::best_boxcar;
use crate::simulate::pulse_shape::FWHM;

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

fn sinc(x: f64) -> f64 {
    let x = std::f64::consts::PI * x;
    if x.abs() < 1e-8 { 1.0 } else { x.sin() / x }
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
