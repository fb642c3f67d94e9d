//! Quantization of voltages.

use crate::voltage::{TWO_BIT_HIGH, VoltageEncoding};

/// Rms in counts at which the outer level of 2 bits starts 0.9816 sigma from 0.
pub(super) const TWO_BIT_RMS: f64 = TWO_BIT_THRESHOLD as f64 / 0.9816;

/// Threshold of the outer level of 2 bits: halfway between the levels.
const TWO_BIT_THRESHOLD: f32 = 0.5 * (1.0 + TWO_BIT_HIGH);

/// Stores numbers, the real and imaginary part of each sample consecutively. Integers are rounded to nearest, ties to
/// even, and clipped to their range.
pub(in crate::simulate) fn store(x: &[f32], encoding: VoltageEncoding, output: &mut [u8]) {
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
                    16 => (-32768..32768).map(f64::from).collect(),
                    _ => vec![f64::from(*x)],
                };
                let off = |level: f64| (level - f64::from(*x)).abs();
                let best = levels.into_iter().map(off).fold(f64::MAX, f64::min);
                assert!(off(found) <= best + 1e-6, "{encoding:?} {x} {found}");
            }
        }
    }
}
