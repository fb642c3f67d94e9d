//! Conversion of noise in units of sigma to recorded counts, for any bit depth, and pulse strength for a requested S/N.
//!
//! The S/N of a series is that of its best boxcar, `sum / (sigma sqrt(width))`. The rows are dedispersed at the exact
//! DM with equal channel weights, and sigma is that of the summed counts after quantization. [`Levels::response`]
//! converts a signal to counts, so that the S/N of few-bit data includes its quantization loss.

use std::sync::OnceLock;

use super::pulse::{Channels, Pulse};
use crate::error::{Error, Result};
use crate::math::normal;
use crate::sample::Encoding;

/// Grid of the tabulated response of few-bit samples, in units of sigma.
const GRID: f64 = 1.0 / 64.0;
const GRID_POINTS: usize = 1024;

/// Addend that rounds a float to an integer: 1.5 times 2^23.
const ROUNDER: f32 = 12_582_912.0;

/// Variance of rounding to whole counts.
const ROUNDING_VARIANCE: f64 = 1.0 / 12.0;

/// Mean and sigma in counts at gain 1, and the range of counts.
#[derive(Clone, Copy, Debug)]
struct Scale {
    mean: f64,
    sigma: f64,
    range: Option<(f64, f64)>,
    /// Whether each channel is scaled to the same mean and sigma before quantization.
    levelled: bool,
}

/// Returns the noise level of an encoding.
///
/// | bits | mean | sigma | |
/// |------|------|-------|-|
/// | 1    | 0.5  | 1     | threshold at the mean |
/// | 2    | 1.5  | 1 / 0.9957 | least distortion of a uniform 4-level quantizer |
/// | 4    | 7.5  | 1 / 0.3352 | the same for 16 levels |
/// | 8    | 128 (signed: 0) | 12 | 10 sigma of headroom |
/// | 16   | 8192 (signed: 0) | 512 | 112 sigma of headroom |
/// | 32   | 100 | 10 | floats, neither rounded nor clipped |
///
/// # Source
/// The steps of 2 and 4 bit: Max 1960, IRE Trans. Inf. Theory 6, 7, table II.
fn scale(encoding: Encoding) -> Scale {
    let range = encoding.range().map(|(low, high)| (f64::from(low), f64::from(high)));
    let narrow = |mean, step: f64| Scale { mean, sigma: 1.0 / step, range, levelled: true };
    let wide = |mean, sigma| Scale { mean, sigma, range, levelled: false };
    match encoding {
        Encoding::U1 => narrow(0.5, 1.0),
        Encoding::U2 => narrow(1.5, 0.9957),
        Encoding::U4 => narrow(7.5, 0.3352),
        Encoding::U8 => wide(128.0, 12.0),
        Encoding::I8 => wide(0.0, 12.0),
        Encoding::U16 => wide(8192.0, 512.0),
        Encoding::I16 => wide(0.0, 512.0),
        Encoding::F32 => wide(100.0, 10.0),
    }
}

/// Conversion of each channel to counts.
#[derive(Debug)]
pub(super) struct Levels {
    encoding: Encoding,
    scale: Scale,
    means: Vec<f32>,
    sigmas: Vec<f32>,
    narrow_response: OnceLock<Vec<f64>>,
}

impl Levels {
    pub(super) fn new(encoding: Encoding, gains: &[f64]) -> Self {
        let scale = scale(encoding);
        let gain = |gain: &f64| if scale.levelled { 1.0 } else { *gain };
        Self {
            encoding,
            scale,
            means: gains.iter().map(|g| (gain(g) * scale.mean) as f32).collect(),
            sigmas: gains.iter().map(|g| (gain(g) * scale.sigma) as f32).collect(),
            narrow_response: OnceLock::new(),
        }
    }

    /// Returns the mean change of a channel's counts for a signal of `signal >= 0` sigma.
    pub(super) fn response(&self, channel: usize, signal: f64) -> f64 {
        if self.scale.levelled {
            return self.narrow_response(signal);
        }
        let sigma = f64::from(self.sigmas[channel]);
        let Some((_, high)) = self.scale.range else { return sigma * signal };
        let mean = f64::from(self.means[channel]) + sigma * signal;
        let headroom = (high - mean) / sigma;
        if headroom > 6.0 {
            return sigma * signal;
        }
        let lost = normal::density(headroom) - headroom * normal::cumulative(-headroom);
        sigma * (signal - lost)
    }

    fn narrow_response(&self, signal: f64) -> f64 {
        let table = self.narrow_response.get_or_init(|| {
            let base = self.narrow_mean(0.0);
            (0..GRID_POINTS).map(|i| self.narrow_mean(i as f64 * GRID) - base).collect()
        });
        let place = (signal / GRID).min((GRID_POINTS - 2) as f64);
        let index = place as usize;
        table[index] + (place - index as f64) * (table[index + 1] - table[index])
    }

    /// Returns the probability of each step up in counts, for a signal in units of sigma.
    fn narrow_steps(&self, signal: f64) -> impl Iterator<Item = f64> {
        let Scale { mean, sigma, range, .. } = self.scale;
        let highest = range.map_or(0, |(_, high)| high as usize);
        let threshold = move |k: usize| (k as f64 - 0.5 - mean) / sigma;
        (1..=highest).map(move |k| normal::cumulative(signal - threshold(k)))
    }

    fn narrow_mean(&self, signal: f64) -> f64 {
        self.narrow_steps(signal).sum()
    }

    /// Returns the variance of a channel's counts for noise alone, including rounding.
    pub(super) fn variance(&self, channel: usize) -> f64 {
        if self.scale.levelled {
            // E[q^2] is the sum of (2 k - 1) P(q >= k).
            let square: f64 =
                self.narrow_steps(0.0).zip(1u32..).map(|(p, k)| f64::from(2 * k - 1) * p).sum();
            return square - self.narrow_mean(0.0).powi(2);
        }
        let rounding = if self.scale.range.is_some() { ROUNDING_VARIANCE } else { 0.0 };
        f64::from(self.sigmas[channel]).powi(2) + rounding
    }

    /// Converts a row from units of sigma to packed counts; overwrites `row`.
    pub(super) fn quantize(&self, row: &mut [f32], output: &mut [u8]) {
        for ((x, mean), sigma) in row.iter_mut().zip(&self.means).zip(&self.sigmas) {
            *x = mean + sigma * *x;
        }
        let (low, high) = self.scale.range.map_or((0.0, 0.0), |r| (r.0 as f32, r.1 as f32));
        // At this magnitude a float's last bit is worth 1: the addition rounds to nearest, ties to even.
        let count = |x: f32| {
            let rounded = x.max(low).min(high) + ROUNDER;
            rounded.to_bits().wrapping_sub(ROUNDER.to_bits()) as i32
        };
        match self.encoding {
            Encoding::U1 => pack::<1>(row, output, count),
            Encoding::U2 => pack::<2>(row, output, count),
            Encoding::U4 => pack::<4>(row, output, count),
            Encoding::U8 | Encoding::I8 => {
                output.iter_mut().zip(row).for_each(|(y, x)| *y = count(*x) as u8);
            }
            Encoding::U16 | Encoding::I16 => {
                let pairs = output.chunks_exact_mut(2).zip(row);
                pairs.for_each(|(y, x)| y.copy_from_slice(&(count(*x) as u16).to_le_bytes()));
            }
            Encoding::F32 => {
                let quads = output.chunks_exact_mut(4).zip(row);
                quads.for_each(|(y, x)| y.copy_from_slice(&x.to_le_bytes()));
            }
        }
    }
}

fn pack<const BITS: usize>(row: &[f32], output: &mut [u8], count: impl Fn(f32) -> i32) {
    for (byte, samples) in output.iter_mut().zip(row.chunks(8 / BITS)) {
        let bits = samples.iter().enumerate().map(|(k, x)| (count(*x) as u8) << (k * BITS));
        *byte = bits.fold(0, |all, one| all | one);
    }
}

/// Relative tolerance of the S/N.
const SNR_TOLERANCE: f64 = 1e-4;

/// Boxcar width from which widths grow in relative steps, and the relative step.
const MAX_UNIT_STEP_WIDTH: usize = 64;
const WIDTH_STEP: f64 = 0.02;

/// Requested pulse and S/N.
pub(super) struct Wanted {
    pub(super) pulse: Pulse,
    pub(super) time_s: f64,
    pub(super) snr: f64,
}

/// Boxcar that detects a pulse.
#[derive(Clone, Copy, Debug)]
pub(super) struct Boxcar {
    /// First row of the best boxcar, in dedispersed rows.
    pub(super) first: i64,
    /// Width of the boxcar in rows.
    pub(super) width: usize,
}

/// Largest number of channel-time cells that a pulse may cover after dedispersion.
const MAX_CELLS: f64 = 4e9;

/// Finds the strength for a requested S/N: the amplitude for [`super::pulse::Signal`], and the best boxcar.
///
/// # Errors
/// [`Error::Parameter`] for an S/N that saturated samples cannot reach, or a pulse of too many samples to sum.
pub(super) fn strength(
    wanted: &Wanted,
    channels: &Channels,
    levels: &Levels,
    tsamp_s: f64,
) -> Result<(f64, Boxcar)> {
    let reach = wanted.pulse.reach_s(channels);
    let first = ((wanted.time_s - reach.before_s) / tsamp_s).floor() - 1.0;
    let last = ((wanted.time_s + reach.after_s) / tsamp_s).ceil() + 1.0;
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
    fn solve(&self) -> Result<(f64, Boxcar)> {
        let sigma = (0..self.channels.count()).map(|c| self.levels.variance(c)).sum::<f64>().sqrt();
        let target = self.wanted.snr * sigma;
        // The response of a weak pulse is linear, so this first guess is close for all but bright ones.
        let mut amplitude = self.tsamp_s;
        let (mut low, mut high) = (0.0, f64::INFINITY);
        for _ in 0..80 {
            let (height, first, width) = best_boxcar(&self.series(amplitude));
            if (height / target - 1.0).abs() < SNR_TOLERANCE {
                let first = self.first as i64 + first as i64;
                return Ok((amplitude, Boxcar { first, width }));
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
pub(in crate::simulate) fn best_boxcar(series: &[f64]) -> (f64, usize, usize) {
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
        let step = if width < MAX_UNIT_STEP_WIDTH { 0.0 } else { width as f64 * WIDTH_STEP };
        width += (step as usize).max(1);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Encoding;
    use crate::units::{Band, DM_CONSTANT};

    #[test]
    fn a_one_bit_sample_answers_as_the_error_function() {
        let levels = Levels::new(Encoding::U1, &[1.0]);
        assert!((levels.variance(0) - 0.25).abs() < 1e-12);
        assert!((levels.response(0, 1.0) - (normal::cumulative(1.0) - 0.5)).abs() < 1e-5);
        assert!((levels.response(0, 100.0) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn wide_samples_answer_in_proportion_until_they_saturate() {
        let levels = Levels::new(Encoding::U8, &[1.0, 0.5]);
        assert_eq!(levels.response(0, 2.0), 24.0);
        assert_eq!(levels.response(1, 2.0), 12.0);
        assert!((levels.response(0, 50.0) - 127.0).abs() < 1e-9);
        assert!((levels.variance(0) - (144.0 + 1.0 / 12.0)).abs() < 1e-6);
    }

    #[test]
    fn counts_stay_in_range_and_keep_their_order() {
        for encoding in Encoding::ALL {
            let mut row: Vec<f32> = (0..64).map(|i| (i as f32 - 32.0) * 8.0).collect();
            let levels = Levels::new(encoding, &[1.0; 64]);
            let mut bytes = vec![0; 64 * encoding.bits() / 8];
            levels.quantize(&mut row, &mut bytes);
            let values: Vec<_> =
                (0..64).map(|c| crate::sample::value(&bytes, encoding, c)).collect();
            assert!(values.windows(2).all(|w| w[0] <= w[1]), "{encoding:?}");
            if let Some((low, _)) = encoding.range() {
                assert!(values[0] == f64::from(low) || encoding.bits() == 16);
            }
        }
    }

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
            super::strength(&wanted(2.0), &channels, &levels, 1e-3).unwrap().0
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
        assert!(strength(&wanted(1e3), &channels, &levels, 1e-3).is_err());
        let levels = Levels::new(Encoding::F32, &[1.0; 64]);
        assert!(strength(&wanted(1e3), &channels, &levels, 1e-3).is_ok());
    }
}
