//! Conversion of noise in units of sigma to recorded counts, for any bit depth.

use std::sync::OnceLock;

use crate::math::normal;
use crate::sample::Encoding;

/// Grid of the tabulated response of narrow samples, in units of sigma.
const GRID: f64 = 1.0 / 64.0;
const GRID_POINTS: usize = 1024;

/// 1.5 times 2^23.
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
        let room = (high - mean) / sigma;
        if room > 6.0 {
            return sigma * signal;
        }
        let lost = normal::density(room) - room * normal::cumulative(-room);
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
