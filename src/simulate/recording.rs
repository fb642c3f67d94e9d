//! Recordings of simulated voltages: position and gaps, quantization, default noise level, and statistics of the
//! stored samples.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::io::voltages::{Flag, VoltageHeader};
use crate::math::normal::{cumulative, density};
use crate::view::check_length;
use crate::voltage::{TWO_BIT_HIGH, VoltageBlock, VoltageEncoding, ten_bits};

/// Header, gaps and position of a recording that is generated while it is read.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) header: VoltageHeader,
    pub(super) flags: Vec<Flag>,
    /// Number of the next sample.
    pub(super) next: u64,
}

impl Recording {
    /// Starts a recording; each gap is its first sample and its length.
    pub(super) fn new(header: VoltageHeader, gaps: &[(u64, u64)]) -> Self {
        let streams = header.streams();
        let flag = |gap: &(u64, u64)| Flag { streams: 0..streams, start: gap.0, times: gap.1 };
        let mut flags: Vec<Flag> = gaps.iter().map(flag).collect();
        flags.sort_unstable_by_key(|flag| (flag.start, flag.times));
        Self { header, flags, next: 0 }
    }

    fn left(&self) -> u64 {
        self.header.times.map_or(u64::MAX, |times| times - self.next)
    }

    /// Returns the number of samples that a read into a block gets.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of streams, [`Error::Parameter`] for another encoding.
    pub(super) fn times_into(&self, block: &VoltageBlock) -> Result<usize> {
        check_length("streams of a block", self.header.streams(), block.streams())?;
        let encoding = self.header.encoding;
        if block.encoding() != encoding {
            let rule = format!("the simulation's is {encoding:?}");
            let found = format!("{:?}", block.encoding());
            return Err(Error::parameter("encoding of a block", found, rule));
        }
        Ok(self.left().min(block.capacity() as u64) as usize)
    }

    /// Skips samples, and returns their number.
    ///
    /// # Errors
    /// [`Error::Parameter`] for samples that do not fill whole bytes.
    pub(super) fn skip(&mut self, times: u64) -> Result<u64> {
        let whole = self.header.encoding.group_samples() as u64;
        if !times.is_multiple_of(whole) {
            let rule = format!("samples are passed over in whole bytes, {whole} at a time");
            return Err(Error::parameter("samples to skip", times, rule));
        }
        let times = times.min(self.left());
        self.next += times;
        Ok(times)
    }

    /// Returns the bytes of `times` samples from sample `offset` of a row on, both in whole bytes.
    pub(super) fn bytes(&self, offset: usize, times: usize) -> Range<usize> {
        let encoding = self.header.encoding;
        encoding.bytes(offset)..encoding.bytes(offset + times)
    }

    /// Sets the gaps among `samples`, which a row holds, to 0.
    pub(super) fn fill_gaps(&self, samples: Range<u64>, row: &mut [u8]) {
        for flag in &self.flags {
            let start = flag.start.max(samples.start);
            let end = (flag.start + flag.times).min(samples.end);
            if start < end {
                let bytes = self.bytes((start - samples.start) as usize, (end - start) as usize);
                row[bytes].fill(self.header.encoding.zero_byte());
            }
        }
    }
}

/// Rms in counts at which the outer level of 2 bits starts 0.9816 sigma from 0.
const TWO_BIT_RMS: f64 = TWO_BIT_THRESHOLD as f64 / 0.9816;

/// Threshold of the outer level of 2 bits: halfway between the levels.
const TWO_BIT_THRESHOLD: f32 = 0.5 * (1.0 + TWO_BIT_HIGH);

/// Stores numbers, the real and imaginary part of each sample consecutively. Integers are rounded to nearest, ties to
/// even, and clipped to their range.
pub(super) fn store(x: &[f32], encoding: VoltageEncoding, output: &mut [u8]) {
    match encoding {
        VoltageEncoding::Complex8 | VoltageEncoding::Real8 => {
            each(x, output, |x| [rounded(x, -128.0, 127.0) as u8]);
        }
        VoltageEncoding::ComplexOffset8 | VoltageEncoding::RealOffset8 => {
            each(x, output, |x| [(rounded(x, -128.0, 127.0) + 128) as u8]);
        }
        VoltageEncoding::Complex16 | VoltageEncoding::Real16 => {
            each(x, output, |x| (rounded(x, -32768.0, 32767.0) as i16).to_le_bytes());
        }
        VoltageEncoding::ComplexF32 | VoltageEncoding::RealF32 => each(x, output, f32::to_le_bytes),
        VoltageEncoding::Complex4 => packed(x, output, 2, |x| (nibble(x[0]) << 4) | nibble(x[1])),
        VoltageEncoding::Real4 => packed(x, output, 2, |x| nibble(x[0]) | (nibble(x[1]) << 4)),
        VoltageEncoding::Real10 => {
            let (fours, _) = x.as_chunks::<4>();
            for (group, four) in output.as_chunks_mut::<5>().0.iter_mut().zip(fours) {
                *group = ten_bits::pack(four.map(|x| rounded(x, -512.0, 511.0) as i16));
            }
        }
        VoltageEncoding::Real2 => {
            packed(x, output, 4, |x| x.iter().rev().fold(0, |byte, x| (byte << 2) | two_bits(*x)))
        }
    }
}

fn each<const N: usize>(x: &[f32], output: &mut [u8], store: impl Fn(f32) -> [u8; N]) {
    let places = output.as_chunks_mut::<N>().0;
    places.iter_mut().zip(x).for_each(|(place, x)| *place = store(*x));
}

fn packed(x: &[f32], output: &mut [u8], numbers: usize, store: impl Fn(&[f32]) -> u8) {
    output.iter_mut().zip(x.chunks_exact(numbers)).for_each(|(byte, x)| *byte = store(x));
}

/// Rounds to the nearest integer, ties to even, for bounds within 2^22.
///
/// 1.5 x 2^23 plus a number has no fractional bits, so the sum is rounded as required and its last bits hold the
/// integer. This needs no instruction that old processors lack.
fn rounded(x: f32, low: f32, high: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0;
    (x.clamp(low, high) + SHIFT).to_bits() as i32 - SHIFT.to_bits() as i32
}

fn nibble(x: f32) -> u8 {
    (rounded(x, -8.0, 7.0) as u8) & 15
}

fn two_bits(x: f32) -> u8 {
    match (x < 0.0, x.abs() >= TWO_BIT_THRESHOLD) {
        (true, true) => 0,
        (true, false) => 1,
        (false, false) => 2,
        (false, true) => 3,
    }
}

/// Returns the usual noise rms of an encoding, in counts of one real number: small rounding loss, and headroom above
/// the noise if possible.
///
/// # Source
/// 2 bits: thresholds at 0.9816 sigma (Cooper 1970, Aust. J. Phys. 23, 521); 4 bits: steps of 0.3352 sigma
/// (Max 1960, IRE Trans. Inf. Theory 6, 7, table II).
pub fn usual_rms(encoding: VoltageEncoding) -> f64 {
    match (encoding, encoding.bits()) {
        (VoltageEncoding::ComplexF32 | VoltageEncoding::RealF32, _) => 1.0,
        (_, 2) => TWO_BIT_RMS,
        (_, 4) => 1.0 / 0.3352,
        (_, 8) => 16.0,
        (_, 10) => 32.0,
        _ => 512.0,
    }
}

/// Statistics of a Gaussian number after rounding and clipping to its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stored {
    /// Mean square, counts^2.
    pub(super) power: f64,
    /// Factor on a small correlation with another number, for each of the two: `<q(x) x> / <x^2>`.
    pub(super) gain: f64,
}

impl Stored {
    /// Computes the statistics for an rms in counts.
    ///
    /// # Source
    /// Bussgang 1952, MIT Research Laboratory of Electronics Technical Report 216.
    pub(super) fn new(encoding: VoltageEncoding, rms: f64) -> Self {
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
    use crate::voltage::voltage;

    #[test]
    fn what_is_stored_is_the_nearest_level() {
        let x = [0.4f32, -0.6, 2.6, -3.4, 1.5, -200.0, 4e4, -4e4];
        for encoding in VoltageEncoding::ALL {
            let numbers = if encoding.is_complex() { 2 } else { 1 };
            let samples = x.len() / numbers;
            let mut bytes = vec![0xa5; encoding.bytes(samples)];
            store(&x, encoding, &mut bytes);
            for (i, x) in x.iter().enumerate() {
                let value = voltage(&bytes, encoding, i / numbers);
                let found = if i % numbers == 0 { value.re } else { value.im };
                let high = f64::from(TWO_BIT_HIGH);
                let levels: Vec<f64> = match encoding.bits() {
                    2 => vec![-high, -1.0, 1.0, high],
                    4 => (-8..8).map(f64::from).collect(),
                    8 => (-128..128).map(f64::from).collect(),
                    10 => (-512..512).map(f64::from).collect(),
                    16 => (-32768..32768).map(f64::from).collect(),
                    _ => vec![f64::from(*x)],
                };
                let off = |level: f64| (level - f64::from(*x)).abs();
                let best = levels.into_iter().map(off).fold(f64::MAX, f64::min);
                assert!(off(found) <= best + 1e-6, "{encoding:?} {x} {found}");
            }
        }
    }

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
