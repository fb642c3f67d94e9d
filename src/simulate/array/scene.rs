//! Time-independent state of a simulation: received sources, their strengths and random seeds.

use std::fmt;

use num_complex::{Complex, Complex32};

use super::filter::Filter;
use super::options::{ArrayOptions, PointSource, Receiver};
use crate::error::{Error, Result};
use crate::math::normal::{cumulative, density};
use crate::simulate::rng::{Key, Stream};
use crate::voltage::{TWO_BIT_HIGH, VoltageEncoding};

/// Delay of a source's wave at an antenna in seconds, as a function of the antenna's index and the seconds since the
/// start of the first sample.
pub type Delay = Box<dyn Fn(usize, f64) -> f64 + Send + Sync>;

/// Weights of two waves of unit power in two polarizations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    pub(super) first: f32,
    pub(super) common: Complex32,
    pub(super) own: f32,
}

impl Weights {
    pub(super) fn new(first: f64, common: Complex<f64>, own: f64) -> Self {
        let common = Complex32::new(common.re as f32, common.im as f32);
        Self { first: first as f32, common, own: own as f32 }
    }
}

/// Source above the horizon.
pub(super) struct Received {
    pub(super) flux_jy: f64,
    /// Power in each polarization relative to an unpolarized source.
    pub(super) parts: [f64; 2],
    pub(super) delay: Delay,
    weights: Weights,
    key: u64,
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("flux_jy", &self.flux_jy).finish_non_exhaustive()
    }
}

impl Received {
    /// Creates source `number` of the options.
    pub(super) fn new(
        source: &PointSource,
        number: usize,
        options: &ArrayOptions,
        delay: Delay,
    ) -> Self {
        let mixture = source.polarization.mixture(options.circular);
        // A mixture's power is 1 in both polarizations together; an unpolarized source's is 1 in each.
        let both = 2f64.sqrt();
        let (first, common, own) =
            (both * mixture.first, mixture.common * both, both * mixture.own);
        Self {
            flux_jy: source.flux_jy,
            parts: [first * first, common.norm_sqr() + own * own],
            delay,
            weights: Weights::new(first, common, own),
            key: Key::new(options.seed, Stream::ArraySource, number as u64).word(0),
        }
    }

    /// Returns the seed of one of the two waves that make up the source.
    pub(super) fn seed(&self, channel: usize, component: usize) -> u64 {
        Key::new(self.key, Stream::ArraySource, (2 * channel + component) as u64).word(0)
    }

    /// Returns the weights of these waves; a lower sideband holds the conjugate of the sky's signal.
    pub(super) fn weights(&self, lower: bool) -> Weights {
        let common = if lower { self.weights.common.conj() } else { self.weights.common };
        Weights { common, ..self.weights }
    }
}

/// State shared by all antennas of a simulation.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) filter: Filter,
    pub(super) received: Vec<Received>,
    pub(super) receivers: Vec<Receiver>,
    /// Sky frequency that each channel records as frequency 0.
    pub(super) zero_hz: Vec<f64>,
    pub(super) lower: bool,
    pub(super) tsamp_s: f64,
    pub(super) polarizations: usize,
    pub(super) encoding: VoltageEncoding,
    /// Real numbers per sample.
    pub(super) numbers: usize,
    rms: f64,
    flux_jy: f64,
    seed: u64,
}

impl Scene {
    /// # Errors
    /// [`Error::Parameter`] for an antenna without any signal.
    pub(super) fn new(options: &ArrayOptions, received: Vec<Received>) -> Result<Self> {
        let flux_jy = received.iter().map(|source| source.flux_jy).sum();
        let silent = |receiver: &&Receiver| !receiver.dead && receiver.sefd_jy + flux_jy == 0.0;
        if let Some(receiver) = options.receivers.iter().find(silent) {
            let rule = "without a source above the horizon it must be above 0, or all would be 0";
            return Err(Error::parameter("--sefd (Jy)", receiver.sefd_jy, rule));
        }
        let complex = options.encoding.is_complex();
        let half = if complex { 0.0 } else { 0.5 * options.channel_width_hz };
        let edge = if options.lower_sideband { half } else { -half };
        Ok(Self {
            filter: Filter::new(complex),
            received,
            receivers: options.receivers.clone(),
            zero_hz: options.centres_hz.iter().map(|centre| centre + edge).collect(),
            lower: options.lower_sideband,
            tsamp_s: options.tsamp_s(),
            polarizations: options.polarizations,
            encoding: options.encoding,
            numbers: if complex { 2 } else { 1 },
            rms: options.rms,
            flux_jy,
            seed: options.seed,
        })
    }

    /// Returns the delay of a source at an antenna, including its cable, in seconds.
    pub(super) fn delay_s(&self, source: &Received, antenna: usize, seconds: f64) -> f64 {
        (source.delay)(antenna, seconds) + self.receivers[antenna].fixed_delay_s
    }

    /// Returns the counts in one real number per square root of 1 Jy.
    fn gain(&self, antenna: usize) -> f64 {
        let receiver = &self.receivers[antenna];
        if receiver.dead {
            return 0.0;
        }
        self.rms / (receiver.sefd_jy + self.flux_jy).sqrt()
    }

    /// Returns the rms of a receiver's noise in one real number, in counts.
    pub(super) fn noise_rms(&self, antenna: usize) -> f64 {
        self.gain(antenna) * self.receivers[antenna].sefd_jy.sqrt()
    }

    /// Returns the rms of an unpolarized source's wave in one real number, in counts.
    pub(super) fn amplitude(&self, antenna: usize, source: &Received) -> f32 {
        (self.gain(antenna) * source.flux_jy.sqrt()) as f32
    }

    pub(super) fn noise_seed(&self, antenna: usize, channel: usize, polarization: usize) -> u64 {
        let receiver = Key::new(self.seed, Stream::ArrayReceiver, antenna as u64).word(0);
        Key::new(receiver, Stream::ArrayReceiver, (2 * channel + polarization) as u64).word(0)
    }

    /// Returns the effect of quantization on an antenna's polarization.
    fn stored(&self, antenna: usize, polarization: usize) -> Stored {
        let flux = |source: &Received| source.flux_jy * source.parts[polarization];
        let sources: f64 = self.received.iter().map(flux).sum();
        let power = self.gain(antenna).powi(2) * (self.receivers[antenna].sefd_jy + sources);
        Stored::new(self.encoding, power.sqrt())
    }

    /// Returns the mean of |x|^2 in each polarization, as stored, in counts^2.
    pub(super) fn autocorrelations(&self, antenna: usize) -> Vec<f64> {
        let power = |p: usize| self.numbers as f64 * self.stored(antenna, p).power;
        (0..self.polarizations).map(power).collect()
    }

    /// Returns the square root of a source's share of |x|^2 in each polarization, as stored, in counts.
    pub(super) fn amplitudes(&self, antenna: usize, source: &Received) -> Vec<f64> {
        let gain = self.gain(antenna) * (self.numbers as f64 * source.flux_jy).sqrt();
        let amplitude = |p: usize| gain * source.parts[p].sqrt() * self.stored(antenna, p).gain;
        (0..self.polarizations).map(amplitude).collect()
    }
}

/// Statistics of a Gaussian number after rounding and clipping to its range.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stored {
    /// Mean square, counts^2.
    power: f64,
    /// Factor on a small correlation with another number, for each of the two: `<q(x) x> / <x^2>`.
    gain: f64,
}

impl Stored {
    /// Computes the statistics for an rms in counts.
    ///
    /// # Source
    /// Bussgang 1952, MIT Research Laboratory of Electronics Technical Report 216.
    fn new(encoding: VoltageEncoding, rms: f64) -> Self {
        let exact = Self { power: rms * rms, gain: 1.0 };
        if rms <= 0.0 {
            return exact;
        }
        let high = f64::from(TWO_BIT_HIGH);
        let levels: Vec<f64> = match encoding.bits() {
            2 => vec![-high, -1.0, 1.0, high],
            32 => return exact,
            bits => {
                let half = 1i32 << (bits - 1);
                (-half..half).map(f64::from).collect()
            }
        };
        let thresholds: Vec<f64> =
            levels.windows(2).map(|pair| 0.5 * (pair[0] + pair[1]) / rms).collect();
        let mut stored = Self { power: levels[0] * levels[0], gain: 0.0 };
        for (pair, threshold) in levels.windows(2).zip(&thresholds) {
            // Sums the mean square in steps: a value above a threshold has the next level's square.
            let step = pair[1] * pair[1] - pair[0] * pair[0];
            stored.power += step * cumulative(-threshold);
            stored.gain += (pair[1] - pair[0]) * density(*threshold) / rms;
        }
        stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fine_levels_change_little() {
        let stored = Stored::new(VoltageEncoding::Complex8, 16.0);
        assert!((stored.power - 256.0 - 1.0 / 12.0).abs() < 1e-6, "{stored:?}");
        assert!((stored.gain - 1.0).abs() < 1e-9);
        let stored = Stored::new(VoltageEncoding::Real16, 512.0);
        assert!((stored.power - 512.0f64.powi(2) - 1.0 / 12.0).abs() < 1e-4, "{stored:?}");
        assert_eq!(Stored::new(VoltageEncoding::ComplexF32, 3.0), Stored { power: 9.0, gain: 1.0 });
    }

    #[test]
    fn two_bits_keep_what_the_books_say() {
        // The efficiency of 2 bits at thresholds of 0.9816 sigma is 0.881 in a correlation: Cooper 1970.
        let rms = 0.5 * (1.0 + f64::from(TWO_BIT_HIGH)) / 0.9816;
        let stored = Stored::new(VoltageEncoding::Real2, rms);
        let efficiency = stored.gain.powi(2) * rms * rms / stored.power;
        assert!((efficiency - 0.881).abs() < 2e-3, "{efficiency}");
    }
}
