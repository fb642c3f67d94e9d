//! Pulse in one channel and row: a Gaussian, scattered, delayed and smeared by the dispersion within the channel.
//!
//! Invariant: a shape's area over all time is 1 and nothing is negative, to the precision of the tests; what a row gets
//! depends on the pulse and the row's times alone.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::math::normal;
use crate::units::{Band, dispersion_delay_s};

/// Reference frequency of scattering times.
pub(super) const SCATTER_REFERENCE_HZ: f64 = 1e9;

/// Exponent of the scattering time as a function of frequency.
const SCATTER_INDEX: i32 = -4;

/// Delays and scattering of each channel.
#[derive(Debug)]
pub(super) struct Channels {
    /// Delay of the centre relative to the band's highest centre, in seconds per unit of DM.
    pub(super) delays_s: Vec<f64>,
    /// Delays of the upper edge (negative) and of the lower edge relative to the centre.
    pub(super) edges_s: Vec<(f64, f64)>,
    /// Scattering time relative to that at 1 GHz.
    pub(super) scatter: Vec<f64>,
    /// Logarithm of the frequency relative to that of the highest centre.
    pub(super) ln_frequency: Vec<f64>,
    order: Order,
}

/// Order of the delays by channel number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Rising,
    Falling,
    None,
}

impl Channels {
    pub(super) fn new(band: &Band, dm_constant: f64) -> Result<Self> {
        let (reference, half) = (band.highest_hz(), 0.5 * band.channel_width_hz());
        if band.lowest_hz() <= half {
            let rule = "the lowest channel must lie above 0 MHz as a whole";
            return Err(Error::parameter("band.fch1_mhz", band.fch1_mhz(), rule));
        }
        let delay = |from: f64, to: f64| dispersion_delay_s(1.0, from, to, dm_constant);
        let centres = band.centres_hz();
        let delays_s: Vec<f64> = centres.iter().map(|f| delay(*f, reference)).collect();
        let edges_s = centres.iter().map(|f| (delay(f + half, *f), delay(f - half, *f))).collect();
        let scatter = centres.iter().map(|f| (f / SCATTER_REFERENCE_HZ).powi(SCATTER_INDEX));
        let ln_frequency = centres.iter().map(|f| (f / reference).ln());
        let order = if delays_s.is_sorted() {
            Order::Rising
        } else if delays_s.iter().rev().is_sorted() {
            Order::Falling
        } else {
            Order::None
        };
        Ok(Self {
            scatter: scatter.collect(),
            ln_frequency: ln_frequency.collect(),
            delays_s,
            edges_s,
            order,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.delays_s.len()
    }

    /// Returns the delay of the lowest frequency, in seconds per unit of DM.
    pub(super) fn largest_delay_s(&self) -> f64 {
        self.delays_s.iter().copied().fold(0.0, f64::max)
    }

    /// Returns a range of channels that includes all with delays within `low_s ..= high_s`.
    pub(super) fn within(&self, low_s: f64, high_s: f64) -> Range<usize> {
        let delays = &self.delays_s;
        match self.order {
            Order::None => 0..delays.len(),
            Order::Rising => {
                let start = delays.partition_point(|d| *d < low_s);
                start..delays.partition_point(|d| *d <= high_s).max(start)
            }
            Order::Falling => {
                let start = delays.partition_point(|d| *d > high_s);
                start..delays.partition_point(|d| *d >= low_s).max(start)
            }
        }
    }
}

/// Half-length of the evaluated Gaussian, in sigma.
const GAUSSIAN_REACH: f64 = 5.5;

/// Length of the evaluated scattering tail, in scattering times.
const TAIL_REACH: f64 = 12.0;

/// Sweeps shorter than this fraction of the rest of the pulse only shift it.
const SHORT_SWEEP: f64 = 0.05;

/// Scattering times shorter than this fraction of the Gaussian's sigma are ignored.
const SHORT_TAIL: f64 = 1e-3;

/// Full width at half maximum of a Gaussian of sigma 1.
pub(in crate::simulate) const FWHM: f64 = 2.354_820_045_030_949;

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

/// Shape parameters of a pulse, independent of its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulse {
    pub(super) dm: f64,
    /// Full width at half maximum before smearing.
    pub(super) width_s: f64,
    /// Scattering time at 1 GHz.
    pub(super) scatter_s: f64,
    pub(super) spectral_index: f64,
}

impl Pulse {
    /// Returns the pulse's shape in a channel.
    pub(super) fn shape(&self, channels: &Channels, channel: usize) -> Shape {
        let (early, late) = channels.edges_s[channel];
        Shape {
            sigma_s: self.width_s / FWHM,
            scatter_s: self.scatter_s * channels.scatter[channel],
            early_s: self.dm * early,
            late_s: self.dm * late,
        }
    }

    /// Returns the brightness of a channel relative to the highest.
    pub(super) fn brightness(&self, channels: &Channels, channel: usize) -> f64 {
        if self.spectral_index == 0.0 {
            return 1.0;
        }
        (self.spectral_index * channels.ln_frequency[channel]).exp()
    }

    /// Returns the longest extent of the pulse before and after a channel's delay.
    pub(super) fn reach_s(&self, channels: &Channels) -> Reach {
        let mut reach = Reach { before_s: 0.0, after_s: 0.0 };
        for channel in 0..channels.count() {
            let shape = self.shape(channels, channel);
            reach.before_s = reach.before_s.max(shape.before_s());
            reach.after_s = reach.after_s.max(shape.after_s());
        }
        reach
    }
}

/// Extent of a pulse around its time in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) before_s: f64,
    pub(super) after_s: f64,
}

/// Pulse of a known strength.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    pulse: Pulse,
    /// Fluence at the highest channel, in units of that channel's noise sigma times seconds.
    amplitude: f64,
    reach: Reach,
    sweep_s: f64,
}

impl Signal {
    pub(super) fn new(pulse: Pulse, amplitude: f64, channels: &Channels) -> Self {
        let sweep_s = pulse.dm * channels.largest_delay_s();
        Self { pulse, amplitude, reach: pulse.reach_s(channels), sweep_s }
    }

    /// Returns the seconds from a pulse's time to its first and last contribution in any channel.
    pub(super) fn span_s(&self) -> Range<f64> {
        -self.reach.before_s..self.sweep_s + self.reach.after_s
    }

    /// Adds the contribution of a pulse at `time_s` to the row that covers `row_s`, in units of sigma.
    pub(super) fn add(
        &self,
        time_s: f64,
        row_s: &Range<f64>,
        channels: &Channels,
        row: &mut [f32],
    ) {
        let (begin, end) = (row_s.start - time_s, row_s.end - time_s);
        let span_s = self.span_s();
        if end < span_s.start || begin > span_s.end {
            return;
        }
        let window = if self.pulse.dm == 0.0 {
            0..channels.count()
        } else {
            let dm = self.pulse.dm;
            channels.within((begin - self.reach.after_s) / dm, (end + self.reach.before_s) / dm)
        };
        for channel in window {
            let delay = self.pulse.dm * channels.delays_s[channel];
            let shape = self.pulse.shape(channels, channel);
            if end - delay < -shape.before_s() || begin - delay > shape.after_s() {
                continue;
            }
            let brightness = self.amplitude * self.pulse.brightness(channels, channel);
            row[channel] += (brightness * shape.mean(begin - delay, end - delay)) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::DM_CONSTANT;

    #[test]
    fn windows_hold_what_they_promise() {
        for step in [-1.0, 1.0] {
            let first = if step < 0.0 { 1500.0 } else { 1401.0 };
            let band = Band::uniform(first, step, 100).unwrap();
            let channels = Channels::new(&band, DM_CONSTANT).unwrap();
            let (low, high) = (channels.delays_s[40], channels.delays_s[60]);
            let (low, high) = (low.min(high), low.max(high));
            assert_eq!(channels.within(low, high), 40..61);
            assert!(
                channels.within(-2.0, -1.0).is_empty() && channels.within(9.0, 99.0).is_empty()
            );
            assert_eq!(channels.within(-1.0, 1.0), 0..100);
        }
    }

    #[test]
    fn a_band_that_reaches_zero_is_refused() {
        let band = Band::uniform(99.6, -1.0, 100).unwrap();
        assert!(Channels::new(&band, DM_CONSTANT).is_ok());
        let band = Band::uniform(99.5, -1.0, 100).unwrap();
        assert!(Channels::new(&band, DM_CONSTANT).is_err());
    }

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
