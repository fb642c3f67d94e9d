//! Rows built from numbers: sums of polarizations, and scaled samples.
//!
//! Invariant: a sum's encoding holds every sum of two samples exactly (f32 sums round once).

use crate::sample::Encoding;

/// The narrowest byte-aligned encoding that holds any sum of two samples.
pub(crate) const fn sum_encoding(encoding: Encoding) -> Encoding {
    match encoding {
        Encoding::U1 | Encoding::U2 | Encoding::U4 => Encoding::U8,
        Encoding::U8 => Encoding::U16,
        Encoding::I8 => Encoding::I16,
        Encoding::U16 | Encoding::I16 | Encoding::F32 => Encoding::F32,
    }
}

/// The encoding of whole bytes that holds every value of another one.
pub(crate) const fn byte_encoding(encoding: Encoding) -> Encoding {
    match encoding {
        Encoding::U1 | Encoding::U2 | Encoding::U4 => Encoding::U8,
        wide => wide,
    }
}

/// Writes values to a row; integer encodings expect whole numbers inside their range.
pub(crate) fn encode(values: &[f32], encoding: Encoding, row: &mut [u8]) {
    match encoding {
        Encoding::U8 => row.iter_mut().zip(values).for_each(|(y, x)| *y = *x as u8),
        Encoding::I8 => row.iter_mut().zip(values).for_each(|(y, x)| *y = *x as i8 as u8),
        Encoding::U16 => {
            let pairs = row.chunks_exact_mut(2).zip(values);
            pairs.for_each(|(y, x)| y.copy_from_slice(&(*x as u16).to_le_bytes()));
        }
        Encoding::I16 => {
            let pairs = row.chunks_exact_mut(2).zip(values);
            pairs.for_each(|(y, x)| y.copy_from_slice(&(*x as i16).to_le_bytes()));
        }
        Encoding::F32 => {
            let quads = row.chunks_exact_mut(4).zip(values);
            quads.for_each(|(y, x)| y.copy_from_slice(&x.to_le_bytes()));
        }
        Encoding::U1 => pack::<1>(values, row),
        Encoding::U2 => pack::<2>(values, row),
        Encoding::U4 => pack::<4>(values, row),
    }
}

fn pack<const BITS: usize>(values: &[f32], row: &mut [u8]) {
    for (byte, group) in row.iter_mut().zip(values.chunks(8 / BITS)) {
        let bits = group.iter().enumerate().map(|(k, value)| (*value as u8) << (k * BITS));
        *byte = bits.fold(0, |all, one| all | one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::unpack_f32;

    #[test]
    fn rows_survive_encoding() {
        for encoding in Encoding::ALL {
            let (low, high) = encoding.range().unwrap_or((-7, 9));
            let values: Vec<f32> =
                (0..16).map(|i| if i % 3 == 0 { low as f32 } else { high as f32 }).collect();
            let mut row = vec![0; values.len() * encoding.bits() / 8];
            encode(&values, encoding, &mut row);
            let mut back = vec![0.0; values.len()];
            unpack_f32(&row, encoding, &mut back);
            assert_eq!(back, values, "{encoding:?}");
        }
    }

    #[test]
    fn sums_fit() {
        for encoding in Encoding::ALL {
            let Some((low, high)) = encoding.range() else { continue };
            if let Some((sum_low, sum_high)) = sum_encoding(encoding).range() {
                assert!(sum_low <= 2 * low && 2 * high <= sum_high, "{encoding:?}");
            }
        }
    }
}
