//! Counter-based random words and Gaussian noise: functions of a key and a counter, so that any row can be generated
//! alone.
//!
//! Invariant: a word depends on seed, stream, item and number alone, never on what was drawn before; a row's noise is a
//! function of seed and row number alone.

use std::sync::OnceLock;

use crate::math::normal;

/// Intervals of equal probability in the table of Gaussian numbers.
const BINS: usize = 1 << 16;

/// Samples per random word.
const SAMPLES_PER_WORD: usize = 4;

/// Counter increment: 2^64 over the golden ratio, odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Purpose of a stream of random words; streams of one seed are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Stream {
    Noise = 1,
    NoiseTail = 2,
    Narrow = 3,
    Broad = 4,
    Voltage = 5,
    VoltagePulse = 6,
    ArrayReceiver = 7,
    ArraySource = 8,
    ArrayLayout = 9,
    Strain = 10,
    Placement = 11,
}

/// Scrambles a word: each output bit depends on each input bit.
///
/// # Source
/// The finalizer of SplitMix64: Steele, Lea & Flood 2014, OOPSLA, fig. 16 (variant 13 of Stafford).
#[inline(always)]
pub(crate) fn scramble(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Key of one stream and one index of it (a row, a burst of interference).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) fn new(seed: u64, stream: Stream, item: u64) -> Self {
        let stream = scramble(scramble(seed ^ STEP).wrapping_add(STEP.wrapping_mul(stream as u64)));
        Self(scramble(stream ^ scramble(item.wrapping_mul(STEP))))
    }

    /// Returns random word `number`.
    #[inline(always)]
    pub(crate) fn word(self, number: u64) -> u64 {
        scramble(self.0.wrapping_add(number.wrapping_mul(STEP)))
    }

    /// Returns a number in [0, 1) with 53 random bits.
    pub(crate) fn uniform(self, number: u64) -> f64 {
        (self.word(number) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Returns the middle quantile of each of 65536 equally likely intervals, scaled to variance 1.
fn table() -> &'static [f32; BINS] {
    static TABLE: OnceLock<Box<[f32; BINS]>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Box::new([0f32; BINS]);
        for i in 0..BINS / 2 {
            let z = normal::quantile((i as f64 + 0.5) / BINS as f64);
            table[i] = z as f32;
            table[BINS - 1 - i] = -z as f32;
        }
        let inner = table[1..BINS - 1].iter().map(|z| f64::from(*z).powi(2)).sum::<f64>();
        let edge = -normal::quantile(1.0 / BINS as f64);
        // The two outermost intervals are sampled continuously: their second moment is z phi(z) + Q(z).
        let tails = 2.0 * (edge * normal::density(edge) + 1.0 / BINS as f64);
        let scale = ((1.0 - tails) / (inner / BINS as f64)).sqrt() as f32;
        table[1..BINS - 1].iter_mut().for_each(|z| *z *= scale);
        table
    })
}

/// Fills a row with independent standard normal noise, a function of seed and row number alone.
///
/// # Numerics
/// 65534 of 65536 samples take one of as many values up to 4.17 sigma; the outermost two intervals are sampled with
/// 32 more bits, up to 7.1 sigma. Mean 0 and variance 1 hold to 1e-6.
pub(super) fn fill_normal(seed: u64, row: u64, output: &mut [f32]) {
    let table = table();
    let key = Key::new(seed, Stream::Noise, row);
    let whole = output.len() / SAMPLES_PER_WORD * SAMPLES_PER_WORD;
    let (words, rest) = output.split_at_mut(whole);
    for (number, samples) in words.chunks_exact_mut(SAMPLES_PER_WORD).enumerate() {
        let word = key.word(number as u64);
        for (sample, bin) in samples.iter_mut().zip(bins(word)) {
            *sample = table[usize::from(bin)];
        }
        if has_outermost(word) {
            refine(seed, row, number, word, samples);
        }
    }
    let number = whole / SAMPLES_PER_WORD;
    let word = key.word(number as u64);
    for (sample, bin) in rest.iter_mut().zip(bins(word)) {
        *sample = table[usize::from(bin)];
    }
    refine(seed, row, number, word, rest);
}

/// Returns the table indices of a random word.
#[inline(always)]
fn bins(word: u64) -> [u16; SAMPLES_PER_WORD] {
    [word as u16, (word >> 16) as u16, (word >> 32) as u16, (word >> 48) as u16]
}

/// Returns whether one of the four indices is 0 or 65535: those with 16 equal bits.
#[inline(always)]
fn has_outermost(word: u64) -> bool {
    const ONES: u64 = 0x0001_0001_0001_0001;
    let changes = (word ^ (word << 1)) & !ONES;
    // A lane without bit changes is zero; only such a lane borrows its top bit.
    changes.wrapping_sub(ONES) & !changes & (ONES << 15) != 0
}

/// Samples the two outermost intervals continuously.
#[cold]
fn refine(seed: u64, row: u64, number: usize, word: u64, samples: &mut [f32]) {
    let key = Key::new(seed, Stream::NoiseTail, row);
    for (lane, (sample, bin)) in samples.iter_mut().zip(bins(word)).enumerate() {
        if bin != 0 && bin != u16::MAX {
            continue;
        }
        let random = key.word((number * SAMPLES_PER_WORD + lane) as u64) >> 32;
        let part = (random as f64 + 0.5) / (1u64 << 32) as f64;
        let z = normal::quantile(part / BINS as f64) as f32;
        *sample = if bin == 0 { z } else { -z };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_balanced_and_streams_differ() {
        let mut ones = [0u32; 64];
        for item in 0..4000 {
            let word = Key::new(1, Stream::Noise, item).word(item % 7);
            ones.iter_mut().enumerate().for_each(|(bit, n)| *n += (word >> bit & 1) as u32);
        }
        assert!(ones.iter().all(|n| (1800..2200).contains(n)), "{ones:?}");
        let words = [Stream::Noise, Stream::Narrow].map(|s| Key::new(1, s, 5).word(0));
        assert_ne!(words[0], words[1]);
        assert_ne!(Key::new(1, Stream::Noise, 5).word(0), Key::new(2, Stream::Noise, 5).word(0));
    }

    #[test]
    fn uniform_numbers_fill_the_unit_interval() {
        let key = Key::new(9, Stream::Broad, 0);
        let mean = (0..10_000).map(|i| key.uniform(i)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02);
    }

    #[test]
    fn moments_and_tails_are_gaussian() {
        let mut row = vec![0f32; 1 << 16];
        let (mut sums, mut beyond, mut largest) = ([0f64; 4], [0u32; 3], 0f32);
        let rows = 64;
        for number in 0..rows {
            fill_normal(7, number, &mut row);
            for x in &row {
                let z = f64::from(*x);
                sums.iter_mut().enumerate().for_each(|(k, sum)| *sum += z.powi(k as i32 + 1));
                beyond.iter_mut().zip([3.0, 4.0, 4.5]).for_each(|(n, limit)| {
                    *n += u32::from(z > limit);
                });
                largest = largest.max(*x);
            }
        }
        let samples = (row.len() as u64 * rows) as f64;
        let moments = sums.map(|sum| sum / samples);
        assert!(moments[0].abs() < 0.002 && (moments[1] - 1.0).abs() < 0.003, "{moments:?}");
        assert!(moments[2].abs() < 0.01 && (moments[3] - 3.0).abs() < 0.02, "{moments:?}");
        for (count, limit) in beyond.iter().zip([3.0, 4.0, 4.5]) {
            let expected = samples * normal::cumulative(-limit);
            let off = (f64::from(*count) - expected).abs();
            assert!(off < 4.5 * expected.sqrt(), "{count} {expected}");
        }
        assert!(largest > 4.6, "{largest}");
    }

    #[test]
    fn the_outermost_bins_are_seen_in_every_lane() {
        for lane in 0..4 {
            let inner = 0x1234_5678_9abc_8001u64 & !(0xffff << (16 * lane));
            assert!(has_outermost(inner) && has_outermost(inner | 0xffff << (16 * lane)));
            assert!(!has_outermost(inner | 1 << (16 * lane)));
            assert!(!has_outermost(inner | 0x8000 << (16 * lane)));
            assert!(!has_outermost(inner | 0xfffe << (16 * lane)));
        }
    }

    #[test]
    fn the_table_has_unit_variance() {
        let table = table();
        let edge = -normal::quantile(1.0 / BINS as f64);
        let tails = 2.0 * (edge * normal::density(edge) + 1.0 / BINS as f64);
        let inner: f64 = table[1..BINS - 1].iter().map(|z| f64::from(*z).powi(2)).sum();
        assert!((inner / BINS as f64 + tails - 1.0).abs() < 1e-6);
    }
}
