//! Counter-based random words: functions of a key and a counter, so that any row can be generated alone.
//!
//! Invariant: a word depends on seed, stream, item and number alone, never on what was drawn
//! before.

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

    /// Returns the random word with a number.
    #[inline(always)]
    pub(crate) fn word(self, number: u64) -> u64 {
        scramble(self.0.wrapping_add(number.wrapping_mul(STEP)))
    }

    /// Returns a number in [0, 1) with 53 random bits.
    pub(crate) fn uniform(self, number: u64) -> f64 {
        (self.word(number) >> 11) as f64 / (1u64 << 53) as f64
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
}
