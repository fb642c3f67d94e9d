//! Received sources, their strengths and random seeds, and the samples of one recorded channel of an antenna over one
//! block: receiver noise and delayed sources.

use std::fmt;

use num_complex::{Complex, Complex32};

use super::delay::{Filter, HOP, POINTS, REACH, Track};
use super::options::{ArrayOptions, PointSource, Receiver};
use crate::error::{Error, Result};
use crate::simulate::random::{Key, Stream, fill_normal};
use crate::simulate::recording::Stored;
use crate::voltage::VoltageEncoding;

/// Delay of a source's wave at an antenna in seconds, as a function of the antenna's index and the seconds since the
/// start of the first sample.
pub type Delay = Box<dyn Fn(usize, f64) -> f64 + Send + Sync>;

/// Weights of two independent waves a and b of unit power in two polarizations: `first a`, and `common a + own b`.
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
            return Err(Error::parameter("sefd_jy", receiver.sefd_jy, rule));
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

/// Samples whose noise uses one row of random numbers; blocks are whole multiples.
const CHUNK: usize = 1024;

/// Working memory of one thread.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Counts in each polarization.
    pub(super) counts: [Vec<f32>; 2],
    /// Waves of a source: whole chunks that hold one transform's input.
    waves: [Vec<Complex32>; 2],
    delayed: Vec<Complex32>,
    changed: Vec<Complex32>,
    turns: Vec<Complex32>,
    transform: Vec<Complex32>,
}

impl Scratch {
    pub(super) fn new(filter: &Filter, polarizations: usize, numbers: usize) -> Self {
        let zero = Complex32::default();
        let counts =
            |p: usize| if p < polarizations { vec![0.0; HOP * numbers] } else { Vec::new() };
        let wave = || vec![zero; POINTS + CHUNK];
        Self {
            counts: [counts(0), counts(1)],
            waves: [wave(), wave()],
            delayed: vec![zero; POINTS],
            changed: vec![zero; POINTS],
            turns: Vec::with_capacity(HOP),
            transform: filter.scratch(),
        }
    }
}

impl Scene {
    /// Computes a channel's counts over a block, in every polarization.
    pub(super) fn make(
        &self,
        antenna: usize,
        channel: usize,
        block: u64,
        tracks: &[Track],
        scratch: &mut Scratch,
    ) {
        for polarization in 0..self.polarizations {
            self.fill_noise(
                antenna,
                channel,
                polarization,
                block,
                &mut scratch.counts[polarization],
            );
        }
        let zero_hz = self.zero_hz[channel];
        // A lower sideband holds the conjugate.
        let frequency_hz = if self.lower { -zero_hz } else { zero_hz };
        for (source, track) in self.received.iter().zip(tracks) {
            track.turns(frequency_hz, &mut scratch.turns);
            let start = (block * HOP as u64) as i64 - track.whole - REACH as i64;
            let place = self.fill_waves(source, channel, start, scratch);
            let amplitude = self.amplitude(antenna, source);
            for polarization in 0..self.polarizations {
                self.add(track, place, polarization, amplitude, scratch);
            }
        }
    }

    fn fill_noise(
        &self,
        antenna: usize,
        channel: usize,
        polarization: usize,
        block: u64,
        counts: &mut [f32],
    ) {
        let rms = self.noise_rms(antenna) as f32;
        if rms == 0.0 {
            counts.fill(0.0);
            return;
        }
        let seed = self.noise_seed(antenna, channel, polarization);
        let first = block * (HOP / CHUNK) as u64;
        for (number, counts) in counts.chunks_exact_mut(CHUNK * self.numbers).enumerate() {
            fill_normal(seed, first + number as u64, counts);
            counts.iter_mut().for_each(|x| *x *= rms);
        }
    }

    /// Generates a source's waves of unit power in each polarization from sample `start` on. Returns the index of
    /// that sample in the buffers.
    fn fill_waves(
        &self,
        source: &Received,
        channel: usize,
        start: i64,
        scratch: &mut Scratch,
    ) -> usize {
        let chunk = CHUNK as i64;
        for (component, wave) in scratch.waves.iter_mut().take(self.polarizations).enumerate() {
            let seed = source.seed(channel, component);
            for (number, part) in wave.chunks_exact_mut(CHUNK).enumerate() {
                let row = start.div_euclid(chunk) + number as i64;
                fill_normal(seed, row as u64, bytemuck::cast_slice_mut(part));
            }
        }
        let [a, b] = &mut scratch.waves;
        let weights = source.weights(self.lower);
        if self.polarizations == 1 {
            a.iter_mut().for_each(|a| *a *= weights.first);
        } else {
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a * weights.first, *a * weights.common + *b * weights.own);
            }
        }
        start.rem_euclid(chunk) as usize
    }

    /// Delays one polarization's wave and adds it to the counts.
    fn add(
        &self,
        track: &Track,
        place: usize,
        polarization: usize,
        amplitude: f32,
        scratch: &mut Scratch,
    ) {
        let Scratch { counts, waves, delayed, changed, turns, transform } = scratch;
        let spectrum = &mut waves[polarization][place..place + POINTS];
        self.filter.transform(spectrum, transform);
        self.filter.apply(spectrum, &track.response, delayed, transform);
        let delayed = &mut delayed[REACH..REACH + HOP];
        if !track.changes.is_empty() {
            self.filter.apply(spectrum, &track.change, changed, transform);
            let changed = &changed[REACH..REACH + HOP];
            for ((y, slope), change) in delayed.iter_mut().zip(changed).zip(&track.changes) {
                *y += slope * *change;
            }
        }
        let rotated = delayed.iter().zip(turns.iter()).map(|(y, turn)| y * turn * amplitude);
        let counts = counts[polarization].chunks_exact_mut(self.numbers);
        for (x, y) in counts.zip(rotated) {
            x[0] += y.re;
            if let Some(imaginary) = x.get_mut(1) {
                *imaginary += y.im;
            }
        }
    }
}
