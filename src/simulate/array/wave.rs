//! Samples of one recorded channel of an antenna over one block: receiver noise and delayed sources.

use num_complex::Complex32;

use super::filter::{Filter, HOP, POINTS, REACH};
use super::scene::{Received, Scene};
use super::track::Track;
use crate::simulate::noise;

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
        (antenna, channel, block): (usize, usize, u64),
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
            noise::fill(seed, first + number as u64, counts);
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
                noise::fill(seed, row as u64, bytemuck::cast_slice_mut(part));
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
        let turned = delayed.iter().zip(turns.iter()).map(|(y, turn)| y * turn * amplitude);
        let counts = counts[polarization].chunks_exact_mut(self.numbers);
        for (x, y) in counts.zip(turned) {
            x[0] += y.re;
            if let Some(imaginary) = x.get_mut(1) {
                *imaginary += y.im;
            }
        }
    }
}
