//! Pulse strength for a requested S/N.
//!
//! The S/N of a series is that of its best boxcar, `sum / (sigma sqrt(width))`. The rows are dedispersed at the exact
//! DM with equal channel weights, and sigma is that of the summed counts after quantization. Counts respond to a
//! signal according to [`Levels::response`], so that the S/N of 1-bit data is that of 1-bit data.

use super::channels::Channels;
use super::levels::Levels;
use super::signal::Pulse;
use crate::error::{Error, Result};

/// Relative tolerance of the S/N.
const CLOSE: f64 = 1e-4;

/// Boxcar width from which widths are tried in steps, and the relative step.
const EVERY_WIDTH: usize = 64;
const WIDTH_STEP: f64 = 0.02;

/// Requested pulse and S/N.
pub(super) struct Wanted {
    pub(super) pulse: Pulse,
    pub(super) time_s: f64,
    pub(super) snr: f64,
}

/// Strength, and the boxcar that detects it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Amplitude for [`super::signal::Signal`].
    pub(super) amplitude: f64,
    /// First row of the best boxcar, in dedispersed rows.
    pub(super) first: i64,
    /// Width of the boxcar in rows.
    pub(super) width: usize,
}

/// Largest number of channel-time cells that a pulse may cover after dedispersion.
const MAX_CELLS: f64 = 4e9;

/// Finds the strength for a requested S/N.
///
/// # Errors
/// [`Error::Parameter`] for an S/N that saturated samples cannot reach, or a pulse of too many samples to sum.
pub(super) fn find(
    wanted: &Wanted,
    channels: &Channels,
    levels: &Levels,
    tsamp_s: f64,
) -> Result<Found> {
    let (before, after) = wanted.pulse.reach_s(channels);
    let first = ((wanted.time_s - before) / tsamp_s).floor() - 1.0;
    let last = ((wanted.time_s + after) / tsamp_s).ceil() + 1.0;
    if (last - first) * channels.count() as f64 > MAX_CELLS {
        let rule = "the pulse covers too many samples; use a shorter width or scattering time";
        return Err(Error::parameter("width or scatter", wanted.pulse.width_s, rule));
    }
    let model = Model { wanted, channels, levels, tsamp_s, first, times: (last - first) as usize };
    model.solve()
}

struct Model<'a> {
    wanted: &'a Wanted,
    channels: &'a Channels,
    levels: &'a Levels,
    tsamp_s: f64,
    first: f64,
    times: usize,
}

impl Model<'_> {
    fn solve(&self) -> Result<Found> {
        let sigma = (0..self.channels.count()).map(|c| self.levels.variance(c)).sum::<f64>().sqrt();
        let target = self.wanted.snr * sigma;
        // The response of a weak pulse is linear, so this first guess is close for all but bright ones.
        let mut amplitude = self.tsamp_s;
        let (mut low, mut high) = (0.0, f64::INFINITY);
        for _ in 0..80 {
            let (height, first, width) = best_boxcar(&self.series(amplitude));
            if (height / target - 1.0).abs() < CLOSE {
                let first = self.first as i64 + first as i64;
                return Ok(Found { amplitude, first, width });
            }
            if height < target {
                low = amplitude
            } else {
                high = amplitude
            }
            let next = amplitude * (target / height.max(1e-9 * target)).min(1e6);
            let bisected = if high.is_finite() { 0.5 * (low + high) } else { 2.0 * low };
            amplitude = if next > low && next < high { next } else { bisected };
            if !amplitude.is_finite() || amplitude > 1e12 * self.tsamp_s {
                break;
            }
        }
        let rule = "samples of this bit depth saturate before that; ask for less";
        Err(Error::parameter("snr", self.wanted.snr, rule))
    }

    /// Returns the noise-free dedispersed series; rows are aligned by whole samples, as in a search.
    fn series(&self, amplitude: f64) -> Vec<f64> {
        let Self { channels, levels, tsamp_s, .. } = *self;
        let pulse = &self.wanted.pulse;
        let mut series = vec![0.0; self.times];
        for channel in 0..channels.count() {
            let delay = pulse.dm * channels.delays_s[channel];
            let shift = (delay / tsamp_s).round_ties_even();
            let shape = pulse.shape(channels, channel);
            let brightness = amplitude * pulse.brightness(channels, channel);
            let start = (self.first + shift) * tsamp_s - self.wanted.time_s - delay;
            let lit = |edge: f64| ((edge - start) / tsamp_s).clamp(0.0, self.times as f64) as usize;
            let (begin, end) = (lit(-shape.before_s()), lit(shape.after_s() + tsamp_s));
            for (time, sum) in series.iter_mut().enumerate().take(end).skip(begin) {
                let from = start + time as f64 * tsamp_s;
                let signal = (brightness * shape.mean(from, from + tsamp_s)).max(0.0);
                *sum += levels.response(channel, signal);
            }
        }
        series
    }
}

/// Returns the height over the square root of the width, the first sample and the width of the best boxcar.
pub(super) fn best_boxcar(series: &[f64]) -> (f64, usize, usize) {
    let mut sums = vec![0.0];
    for value in series {
        sums.push(sums[sums.len() - 1] + value);
    }
    let mut best = (0.0, 0, 1);
    let mut width = 1;
    while width <= series.len() {
        let scale = (width as f64).sqrt();
        for (first, (begin, end)) in sums.iter().zip(&sums[width..]).enumerate() {
            if end - begin > best.0 * scale {
                best = ((end - begin) / scale, first, width);
            }
        }
        let step = if width < EVERY_WIDTH { 0.0 } else { width as f64 * WIDTH_STEP };
        width += (step as usize).max(1);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Encoding;
    use crate::units::{Band, DM_CONSTANT};

    fn wanted(snr: f64) -> Wanted {
        let pulse = Pulse { dm: 100.0, width_s: 2e-3, scatter_s: 0.0, spectral_index: 0.0 };
        Wanted { pulse, time_s: 1.0, snr }
    }

    #[test]
    fn the_best_boxcar_of_a_box_is_the_box() {
        let mut series = [0.0; 50];
        series[20..29].fill(3.0);
        assert_eq!(best_boxcar(&series), (9.0, 20, 9));
    }

    #[test]
    fn fewer_bits_need_a_brighter_pulse() {
        let channels =
            Channels::new(&Band::uniform(1500.0, -4.0, 64).unwrap(), DM_CONSTANT).unwrap();
        let strength = |encoding| {
            let levels = Levels::new(encoding, &[1.0; 64]);
            find(&wanted(2.0), &channels, &levels, 1e-3).unwrap().amplitude
        };
        let ideal = strength(Encoding::F32);
        // Losses of a weak signal: sqrt(pi / 2) for 1 bit, a few per cent for 2 bits.
        assert!((strength(Encoding::U1) / ideal / 1.2533 - 1.0).abs() < 0.06);
        let two = strength(Encoding::U2) / ideal;
        assert!(two > 1.03 && two < 1.1, "{two}");
        assert!((strength(Encoding::U8) / ideal - 1.0).abs() < 1e-3);
    }

    #[test]
    fn what_cannot_be_reached_is_an_error() {
        let channels =
            Channels::new(&Band::uniform(1500.0, -4.0, 64).unwrap(), DM_CONSTANT).unwrap();
        let levels = Levels::new(Encoding::U1, &[1.0; 64]);
        assert!(find(&wanted(1e3), &channels, &levels, 1e-3).is_err());
        let levels = Levels::new(Encoding::F32, &[1.0; 64]);
        assert!(find(&wanted(1e3), &channels, &levels, 1e-3).is_ok());
    }
}
