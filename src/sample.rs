//! Sample encodings and borrowed filterbank samples: axes time, channel.
//!
//! Invariant: sub-byte samples are packed least significant first, wider ones are little endian.
//! Readers of other formats convert to this order.

use crate::error::Result;
use crate::view::check_length;

/// Storage of one real sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Unsigned, 8 per byte, the first in the least significant bit.
    U1,
    /// Unsigned, 4 per byte, the first in the least significant bits.
    U2,
    /// Unsigned, 2 per byte, the first in the low nibble.
    U4,
    /// Unsigned byte.
    U8,
    /// Signed byte.
    I8,
    /// Unsigned 16 bit, little endian.
    U16,
    /// Signed 16 bit, little endian.
    I16,
    /// IEEE single precision, little endian.
    F32,
}

impl Encoding {
    /// Every encoding, narrowest first.
    pub const ALL: [Self; 8] =
        [Self::U1, Self::U2, Self::U4, Self::U8, Self::I8, Self::U16, Self::I16, Self::F32];

    /// Returns the bits per sample.
    pub const fn bits(self) -> usize {
        match self {
            Self::U1 => 1,
            Self::U2 => 2,
            Self::U4 => 4,
            Self::U8 | Self::I8 => 8,
            Self::U16 | Self::I16 => 16,
            Self::F32 => 32,
        }
    }

    /// Returns the smallest and largest value; `None` for floats.
    pub const fn range(self) -> Option<(i32, i32)> {
        match self {
            Self::U1 => Some((0, 1)),
            Self::U2 => Some((0, 3)),
            Self::U4 => Some((0, 15)),
            Self::U8 => Some((0, 255)),
            Self::I8 => Some((-128, 127)),
            Self::U16 => Some((0, 65535)),
            Self::I16 => Some((-32768, 32767)),
            Self::F32 => None,
        }
    }

    /// Returns the bytes in a row of `channels` samples; `None` if the row ends within a byte.
    pub const fn row_bytes(self, channels: usize) -> Option<usize> {
        let bits = channels * self.bits();
        if bits.is_multiple_of(8) { Some(bits / 8) } else { None }
    }
}

/// Borrowed filterbank samples: axes time, channel; each row is a whole number of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    bytes: &'a [u8],
    encoding: Encoding,
    times: usize,
    channels: usize,
}

impl<'a> Samples<'a> {
    /// Makes a view of `times` rows of `channels` samples.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless `bytes` holds exactly that many whole-byte rows.
    pub fn new(bytes: &'a [u8], encoding: Encoding, times: usize, channels: usize) -> Result<Self> {
        let bits = channels * encoding.bits();
        check_length("bits in a row, rounded up to whole bytes", bits.next_multiple_of(8), bits)?;
        check_length("samples (bytes)", times * bits / 8, bytes.len())?;
        Ok(Self { bytes, encoding, times, channels })
    }

    /// Makes a view of unsigned bytes.
    ///
    /// # Errors
    /// As [`Samples::new`].
    pub fn u8(values: &'a [u8], times: usize, channels: usize) -> Result<Self> {
        Self::new(values, Encoding::U8, times, channels)
    }

    /// Makes a view of single-precision floats; requires a little-endian machine.
    ///
    /// # Errors
    /// As [`Samples::new`].
    pub fn f32(values: &'a [f32], times: usize, channels: usize) -> Result<Self> {
        Self::new(bytemuck::cast_slice(values), Encoding::F32, times, channels)
    }

    /// Makes a view of signed 16-bit integers; requires a little-endian machine.
    ///
    /// # Errors
    /// As [`Samples::new`].
    pub fn i16(values: &'a [i16], times: usize, channels: usize) -> Result<Self> {
        Self::new(bytemuck::cast_slice(values), Encoding::I16, times, channels)
    }

    /// Returns the encoding.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the number of rows.
    pub fn times(&self) -> usize {
        self.times
    }

    /// Returns the samples per row.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns the bytes per row.
    pub fn row_bytes(&self) -> usize {
        self.channels * self.encoding.bits() / 8
    }

    /// Returns the bytes of all rows.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the bytes of one row.
    pub fn row(&self, time: usize) -> &'a [u8] {
        let bytes = self.row_bytes();
        &self.bytes[time * bytes..][..bytes]
    }

    /// Returns the rows `start .. start + times`.
    pub fn slice(&self, start: usize, times: usize) -> Self {
        let bytes = self.row_bytes();
        Self { bytes: &self.bytes[start * bytes..][..times * bytes], times, ..*self }
    }

    /// Returns one sample's value: slow, for references and tests.
    pub fn value(&self, time: usize, channel: usize) -> f64 {
        value(self.row(time), self.encoding, channel)
    }
}

/// Returns the value of sample `index` of a packed row.
pub fn value(row: &[u8], encoding: Encoding, index: usize) -> f64 {
    let packed = |bits: usize| {
        let bit = index * bits;
        f64::from((row[bit / 8] >> (bit % 8)) & ((1 << bits) - 1))
    };
    match encoding {
        Encoding::U1 => packed(1),
        Encoding::U2 => packed(2),
        Encoding::U4 => packed(4),
        Encoding::U8 => f64::from(row[index]),
        Encoding::I8 => f64::from(row[index] as i8),
        Encoding::U16 => f64::from(u16::from_le_bytes([row[2 * index], row[2 * index + 1]])),
        Encoding::I16 => f64::from(i16::from_le_bytes([row[2 * index], row[2 * index + 1]])),
        Encoding::F32 => {
            let bytes = [0, 1, 2, 3].map(|k| row[4 * index + k]);
            f64::from(f32::from_le_bytes(bytes))
        }
    }
}

/// Stores `value` as sample `index` of a packed row, rounded to nearest (ties to even) and clipped to the encoding's
/// range.
pub fn set_value(row: &mut [u8], encoding: Encoding, index: usize, value: f64) {
    let Some((least, most)) = encoding.range() else {
        row[4 * index..][..4].copy_from_slice(&(value as f32).to_le_bytes());
        return;
    };
    let whole = (value.round_ties_even() as i32).clamp(least, most);
    let bits = encoding.bits();
    match bits {
        8 => row[index] = whole as u8,
        16 => row[2 * index..][..2].copy_from_slice(&(whole as u16).to_le_bytes()),
        _ => {
            let (byte, shift) = (index * bits / 8, index * bits % 8);
            let mask = ((1u16 << bits) - 1) as u8;
            row[byte] = row[byte] & !(mask << shift) | (whole as u8) << shift;
        }
    }
}

/// Unpacks the first `output.len()` samples of a row to floats.
pub fn unpack_f32(row: &[u8], encoding: Encoding, output: &mut [f32]) {
    unpack_f32_inline(row, encoding, output);
}

/// Inlined [`unpack_f32`], compiled for the vector instructions of the caller.
#[inline(always)]
pub(crate) fn unpack_f32_inline(row: &[u8], encoding: Encoding, output: &mut [f32]) {
    match encoding {
        Encoding::U1 => unpack_bits::<1, 8>(row, output),
        Encoding::U2 => unpack_bits::<2, 4>(row, output),
        Encoding::U4 => unpack_bits::<4, 2>(row, output),
        Encoding::U8 => output.iter_mut().zip(row).for_each(|(y, x)| *y = f32::from(*x)),
        Encoding::I8 => output.iter_mut().zip(row).for_each(|(y, x)| *y = f32::from(*x as i8)),
        Encoding::U16 => {
            let pairs = row.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
            output.iter_mut().zip(pairs).for_each(|(y, x)| *y = f32::from(x));
        }
        Encoding::I16 => {
            let pairs = row.chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]]));
            output.iter_mut().zip(pairs).for_each(|(y, x)| *y = f32::from(x));
        }
        Encoding::F32 => {
            let quads = row.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            output.iter_mut().zip(quads).for_each(|(y, x)| *y = x);
        }
    }
}

#[inline(always)]
fn unpack_bits<const BITS: usize, const PER_BYTE: usize>(row: &[u8], output: &mut [f32]) {
    let mask = (1u32 << BITS) - 1;
    let of = |byte: &u8, k: usize| ((u32::from(*byte) >> (k * BITS)) & mask) as i32 as f32;
    let (whole, rest) = output.as_chunks_mut::<PER_BYTE>();
    for (values, byte) in whole.iter_mut().zip(row) {
        for (k, value) in values.iter_mut().enumerate() {
            *value = of(byte, k);
        }
    }
    if let Some(byte) = row.get(whole.len()) {
        rest.iter_mut().enumerate().for_each(|(k, value)| *value = of(byte, k));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_samples_come_least_significant_first() {
        let byte = [0b1110_0100u8];
        let two: Vec<f64> = (0..4).map(|i| value(&byte, Encoding::U2, i)).collect();
        assert_eq!(two, [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(value(&byte, Encoding::U4, 0), 4.0);
        assert_eq!(value(&byte, Encoding::U1, 2), 1.0);
    }

    #[test]
    fn unpacking_a_row_agrees_with_value() {
        let row: Vec<u8> = (0..=255).rev().collect();
        for encoding in Encoding::ALL {
            let channels = row.len() * 8 / encoding.bits();
            let mut floats = vec![f32::NAN; channels];
            unpack_f32(&row, encoding, &mut floats);
            for (c, float) in floats.iter().enumerate() {
                let truth = value(&row, encoding, c) as f32;
                assert!(*float == truth || (float.is_nan() && truth.is_nan()), "{encoding:?} {c}");
            }
        }
    }

    #[test]
    fn a_stored_value_is_read_back_and_moves_no_other() {
        for encoding in Encoding::ALL {
            let mut row = vec![0x55; 16];
            let before = value(&row, encoding, 1);
            let most = encoding.range().map_or(1.5, |(_, most)| f64::from(most));
            set_value(&mut row, encoding, 2, most);
            assert_eq!(value(&row, encoding, 2), most);
            assert_eq!(value(&row, encoding, 1), before);
            set_value(&mut row, encoding, 2, 1e9);
            assert_eq!(value(&row, encoding, 2), encoding.range().map_or(1e9, |_| most));
            set_value(&mut row, encoding, 2, -1e9);
            let least = encoding.range().map_or(-1e9, |(least, _)| f64::from(least));
            assert_eq!(value(&row, encoding, 2), least);
            set_value(&mut row, encoding, 2, 0.625);
            let rounded = if encoding == Encoding::F32 { 0.625 } else { 1.0 };
            assert_eq!(value(&row, encoding, 2), rounded);
            assert_eq!(value(&row, encoding, 1), before);
        }
    }

    #[test]
    fn rows_must_be_whole_bytes() {
        assert!(Samples::new(&[0; 3], Encoding::U1, 2, 12).is_err());
        assert!(Samples::new(&[0; 3], Encoding::U4, 2, 3).is_err());
        assert!(Samples::new(&[0; 6], Encoding::U4, 3, 4).is_ok());
    }
}
