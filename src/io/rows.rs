//! Selection and sums of polarizations, and encoding of rows.
//!
//! Invariant: a sum's encoding holds every sum of two samples exactly (f32 sums round once).

use crate::error::{Error, Result};
use crate::io::Polarizations;
use crate::sample::{Encoding, unpack_f32};

/// Samples summed at once.
const BLOCK: usize = 256;

/// Recorded polarizations that make up a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The only one, or the first of two.
    pub(crate) first: usize,
    /// The second of two summed polarizations.
    pub(crate) second: Option<usize>,
}

impl Chosen {
    /// Selects polarizations of a file that does not identify them: total intensity is the only one, or the sum of
    /// the first two of 2 or 4.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an index that the file lacks, and for the total of another count.
    pub(crate) fn new(wanted: Polarizations, recorded: usize) -> Result<Self> {
        match (wanted, recorded) {
            (Polarizations::One(number), _) => Self::one(number, recorded),
            (Polarizations::Total, 1) => Ok(Self { first: 0, second: None }),
            (Polarizations::Total, 2 | 4) => Ok(Self { first: 0, second: Some(1) }),
            (Polarizations::Total, _) => {
                let rule = format!("of the file's {recorded} one must be chosen, from 0");
                Err(Error::parameter("polarization", "total", rule))
            }
        }
    }

    /// Selects the polarization with this index.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an index that the file lacks.
    pub(crate) fn one(number: usize, recorded: usize) -> Result<Self> {
        if number >= recorded {
            let rule = format!("the file has {recorded}, counted from 0");
            return Err(Error::parameter("polarization", number, rule));
        }
        Ok(Self { first: number, second: None })
    }

    /// Returns the encoding of rows: the recorded one, or a wider one for a sum.
    pub(crate) fn encoding(self, recorded: Encoding) -> Encoding {
        self.second.map_or(recorded, |_| sum_encoding(recorded))
    }
}

/// Sums two polarizations of a row: exactly for integers, with one rounding for floats.
pub(crate) fn add(first: &[u8], second: &[u8], encoding: Encoding, sum: &mut [u8]) {
    let wide = sum_encoding(encoding);
    let (bytes, sum_bytes) = (BLOCK * encoding.bits() / 8, BLOCK * wide.bits() / 8);
    let parts = first.chunks(bytes).zip(second.chunks(bytes)).zip(sum.chunks_mut(sum_bytes));
    let (mut values, mut addend) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
    for ((first, second), sum) in parts {
        let samples = first.len() * 8 / encoding.bits();
        let (values, addend) = (&mut values[..samples], &mut addend[..samples]);
        unpack_f32(first, encoding, values);
        unpack_f32(second, encoding, addend);
        values.iter_mut().zip(addend).for_each(|(y, x)| *y += *x);
        encode(values, wide, sum);
    }
}

/// Returns the narrowest byte-aligned encoding that holds any sum of two samples.
pub(crate) const fn sum_encoding(encoding: Encoding) -> Encoding {
    match encoding {
        Encoding::U1 | Encoding::U2 | Encoding::U4 => Encoding::U8,
        Encoding::U8 => Encoding::U16,
        Encoding::I8 => Encoding::I16,
        Encoding::U16 | Encoding::I16 | Encoding::F32 => Encoding::F32,
    }
}

/// Returns the whole-byte encoding that holds every value of another encoding.
pub(crate) const fn byte_encoding(encoding: Encoding) -> Encoding {
    match encoding {
        Encoding::U1 | Encoding::U2 | Encoding::U4 => Encoding::U8,
        wide => wide,
    }
}

/// Encodes values to a row; integer encodings require integers within their range.
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
    use crate::sample::value;

    #[test]
    fn the_choice_follows_the_file() {
        let chosen = |wanted, recorded| Chosen::new(wanted, recorded).ok();
        let (one, two) = (Chosen { first: 0, second: None }, Chosen { first: 0, second: Some(1) });
        assert_eq!(chosen(Polarizations::Total, 1), Some(one));
        assert_eq!(chosen(Polarizations::One(0), 1), Some(one));
        assert_eq!(chosen(Polarizations::Total, 4), Some(two));
        assert_eq!(chosen(Polarizations::One(3), 4), Some(Chosen { first: 3, second: None }));
        assert_eq!(chosen(Polarizations::One(2), 2), None);
        assert_eq!(chosen(Polarizations::Total, 3), None);
        assert_eq!(two.encoding(Encoding::U4), Encoding::U8);
        assert_eq!(one.encoding(Encoding::U4), Encoding::U4);
    }

    #[test]
    fn sums_are_exact_at_every_depth() {
        for encoding in Encoding::ALL {
            // More than two blocks, with a partial last one; no NaN among the floats.
            let channels = 2 * BLOCK + 24;
            let line = channels * encoding.bits() / 8;
            let mut recorded: Vec<u8> = (0..2 * line).map(|k| (k * 151 + 77) as u8).collect();
            if encoding == Encoding::F32 {
                recorded.iter_mut().skip(3).step_by(4).for_each(|byte| *byte = 0x42);
            }
            let (first, second) = recorded.split_at(line);
            let mut sums = vec![0xff; channels * sum_encoding(encoding).bits() / 8];
            add(first, second, encoding, &mut sums);
            for channel in 0..channels {
                let sum = value(first, encoding, channel) + value(second, encoding, channel);
                let found = value(&sums, sum_encoding(encoding), channel);
                assert_eq!(found as f32, sum as f32, "{encoding:?}");
            }
        }
    }

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
