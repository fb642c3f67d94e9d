//! Gaussian noise of a given power spectrum, any sample of which can be generated alone.

use std::f64::consts::PI;
use std::sync::Arc;

use num_complex::Complex64;
use rustfft::{Fft, FftPlanner};

use super::options::DetectorOptions;
use crate::simulate::noise;
use crate::simulate::rng::{Key, Stream};

/// Shortest block in seconds: its inverse is the width over which spectral lines are smeared.
const BLOCK_S: usize = 16;

/// Coloured noise as the sum of blocks that overlap by half with sine windows.
///
/// The squares of two overlapping windows sum to 1, so that the noise is stationary: at a lag `t` its covariance is
/// that of the spectrum times `cos(pi t / T)`, T the block's length. Block b covers samples `(b - 1) hop .. (b + 1)
/// hop`; blocks 2p and 2p + 1 are the real and the imaginary part of one transform of independent random numbers.
pub(super) struct Coloured {
    seed: u64,
    /// Standard deviation of both parts of each bin.
    gains: Vec<f64>,
    window: Vec<f64>,
    hop: usize,
    fft: Arc<dyn Fft<f64>>,
    /// Pairs of blocks, each stored at its number modulo 2.
    pairs: [Option<(u64, Vec<Complex64>)>; 2],
    scratch: Vec<Complex64>,
    random: Vec<f32>,
}

impl Coloured {
    /// Creates the noise of a detector, independent of the other detectors.
    pub(super) fn new(seed: u64, detector: &DetectorOptions, rate_hz: u32, lowest_hz: f64) -> Self {
        let length = (BLOCK_S * rate_hz as usize).next_power_of_two();
        let fft = FftPlanner::new().plan_fft_inverse(length);
        let spacing_hz = f64::from(rate_hz) / length as f64;
        let gain = |bin: usize| {
            let bin = bin.min(length - bin);
            if bin == 0 || bin == length / 2 {
                return 0.0;
            }
            let density = detector.simulated_density(bin as f64 * spacing_hz, lowest_hz);
            (density * spacing_hz / 2.0).sqrt()
        };
        let name = detector.interferometer.name.bytes();
        let item = name.fold(0, |number, letter| number << 8 | u64::from(letter));
        Self {
            seed: Key::new(seed, Stream::Strain, item).word(0),
            gains: (0..length).map(gain).collect(),
            window: (0..length).map(|n| (PI * (n as f64 + 0.5) / length as f64).sin()).collect(),
            hop: length / 2,
            scratch: vec![Complex64::ZERO; fft.get_inplace_scratch_len()],
            fft,
            pairs: [None, None],
            random: vec![0.0; 2 * length],
        }
    }

    /// Writes samples from number `start` on.
    pub(super) fn fill(&mut self, start: u64, mut samples: &mut [f64]) {
        let hop = self.hop as u64;
        let mut start = start;
        while !samples.is_empty() {
            let (block, offset) = (start / hop, (start % hop) as usize);
            let times = samples.len().min(self.hop - offset);
            let (now, later) = samples.split_at_mut(times);
            let whole = self.hop + offset;
            now.fill(0.0);
            self.add(block, whole, now);
            self.add(block + 1, offset, now);
            (samples, start) = (later, start + times as u64);
        }
    }

    /// Adds part of a block from its sample `offset` on.
    fn add(&mut self, block: u64, offset: usize, samples: &mut [f64]) {
        self.bring(block / 2);
        let Some((_, pair)) = &self.pairs[(block / 2 % 2) as usize] else { return };
        let windowed = pair[offset..].iter().zip(&self.window[offset..]);
        if block.is_multiple_of(2) {
            samples.iter_mut().zip(windowed).for_each(|(x, (z, w))| *x += w * z.re);
        } else {
            samples.iter_mut().zip(windowed).for_each(|(x, (z, w))| *x += w * z.im);
        }
    }

    /// Generates a pair of blocks, unless it is stored.
    fn bring(&mut self, pair: u64) {
        let slot = (pair % 2) as usize;
        if matches!(&self.pairs[slot], Some((there, _)) if *there == pair) {
            return;
        }
        noise::fill(self.seed, pair, &mut self.random);
        let mut bins = self.pairs[slot].take().map(|(_, bins)| bins).unwrap_or_default();
        bins.clear();
        let numbers = self.random.as_chunks::<2>().0;
        bins.extend(
            numbers.iter().zip(&self.gains).map(|([re, im], gain)| {
                Complex64::new(gain * f64::from(*re), gain * f64::from(*im))
            }),
        );
        self.fft.process_with_scratch(&mut bins, &mut self.scratch);
        self.pairs[slot] = Some((pair, bins));
    }
}
