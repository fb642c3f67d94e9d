//! Terrestrial interference: tones in a few channels, and broadband impulses at DM 0.
//!
//! Invariant: tones and impulses are functions of the seed, whichever rows are asked for.

use std::f64::consts::TAU;

use super::rng::{Key, Stream};

/// Range of the tones' modulation periods, in seconds.
const PERIODS_S: (f64, f64) = (0.005, 0.5);

/// Amplitude-modulated tones, each in a channel chosen by the seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NarrowInterference {
    /// Number of channels.
    pub channels: usize,
    /// Largest strength, in units of the channel's noise sigma.
    pub strength: f64,
}

/// Broadband impulses without dispersion, at random times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BroadInterference {
    /// Mean number of impulses per second.
    pub rate_hz: f64,
    /// S/N of each, defined as for a burst.
    pub snr: f64,
    /// Full width at half maximum in seconds.
    pub width_s: f64,
}

/// Tone of one channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tone {
    pub(super) channel: usize,
    rate_hz: f64,
    phase: f64,
    strength: f64,
}

/// Returns the tones of a seed, each in a channel of its own.
pub(super) fn tones(narrow: &NarrowInterference, seed: u64, channels: usize) -> Vec<Tone> {
    let key = Key::new(seed, Stream::Narrow, 0);
    let mut order: Vec<usize> = (0..channels).collect();
    let tone = |i: usize| {
        let word = 4 * i as u64;
        let other = i + (key.uniform(word) * (channels - i) as f64) as usize;
        order.swap(i, other);
        let period = PERIODS_S.0 * (PERIODS_S.1 / PERIODS_S.0).powf(key.uniform(word + 1));
        let phase = TAU * key.uniform(word + 2);
        let strength = narrow.strength * (0.5 + 0.5 * key.uniform(word + 3));
        Tone { channel: order[i], rate_hz: 1.0 / period, phase, strength }
    };
    let mut tones: Vec<Tone> = (0..narrow.channels.min(channels)).map(tone).collect();
    tones.sort_by_key(|tone| tone.channel);
    tones
}

impl Tone {
    /// Adds the tone at a time to a row, in units of sigma.
    pub(super) fn add(&self, time_s: f64, row: &mut [f32]) {
        let wave = (TAU * self.rate_hz * time_s + self.phase).sin();
        row[self.channel] += (self.strength * (0.5 + 0.5 * wave)) as f32;
    }
}

/// Returns the times of the impulses that can reach `from_s .. to_s`: one random time in each period of the rate.
pub(super) fn impulses(
    broad: &BroadInterference,
    seed: u64,
    from_s: f64,
    to_s: f64,
) -> impl Iterator<Item = f64> + use<> {
    let rate = broad.rate_hz;
    let first = (from_s * rate).floor().max(0.0) as u64;
    let last = (to_s * rate).ceil().max(0.0) as u64;
    (first..last).map(move |slot| {
        let part = Key::new(seed, Stream::Broad, slot).uniform(0);
        (slot as f64 + part) / rate
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tones_have_channels_of_their_own() {
        let narrow = NarrowInterference { channels: 20, strength: 3.0 };
        let tones = tones(&narrow, 3, 32);
        assert!(tones.len() == 20 && tones.windows(2).all(|w| w[0].channel < w[1].channel));
    }

    #[test]
    fn impulses_do_not_depend_on_who_asks() {
        let broad = BroadInterference { rate_hz: 2.0, snr: 20.0, width_s: 1e-3 };
        let all: Vec<f64> = impulses(&broad, 5, 0.0, 10.0).collect();
        assert_eq!(all.len(), 20);
        let late: Vec<f64> = impulses(&broad, 5, 4.9, 5.4).collect();
        assert!(late.iter().all(|time| all.contains(time)));
        assert!(all.iter().filter(|t| (4.9..5.4).contains(*t)).all(|t| late.contains(t)));
    }
}
