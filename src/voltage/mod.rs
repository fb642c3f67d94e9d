//! Voltage encodings and borrowed voltages of many streams: axes stream, time.
//!
//! Invariant: each stream's samples are contiguous; real samples of 2 and 4 bits are packed least significant
//! first, those of 10 bits most significant first ([`unpack_ten_bits`]), a complex sample is (real, imaginary),
//! wide values are little endian. Readers of other formats convert to this order.

mod block;
pub(crate) mod ten_bits;

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::view::check_length;
pub use block::{Flag, VoltageBlock};
pub use ten_bits::unpack_ten_bits;

/// Outer quantization level of optimally sampled 2-bit voltages, in units of the inner level.
///
/// # Source
/// Cooper 1970, Aust. J. Phys. 23, 521: thresholds at 0.9816 sigma; 7 digits, as in VLBI software.
pub const TWO_BIT_HIGH: f32 = 3.316_505;

/// Storage of one voltage sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VoltageEncoding {
    /// Complex, one byte: real part in the high nibble, imaginary part in the low, two's complement.
    Complex4,
    /// Complex, two signed bytes.
    Complex8,
    /// Complex, two unsigned bytes; 128 is 0.
    ComplexOffset8,
    /// Complex, two signed 16-bit integers.
    Complex16,
    /// Complex, two single-precision floats.
    ComplexF32,
    /// Real, 4 per byte, codes 0 to 3: the quantization levels -[`TWO_BIT_HIGH`], -1, 1, [`TWO_BIT_HIGH`].
    Real2,
    /// Real, 2 per byte, two's complement nibbles.
    Real4,
    /// Real, a signed byte.
    Real8,
    /// Real, an unsigned byte; 128 is 0.
    RealOffset8,
    /// Real, a signed 16-bit integer.
    Real16,
    /// Real, a single-precision float.
    RealF32,
    /// Real, 4 in 5 bytes, two's complement of 10 bits, the first sample in the most significant bits.
    Real10,
}

impl VoltageEncoding {
    /// Every encoding.
    pub const ALL: [Self; 12] = [
        Self::Complex4,
        Self::Complex8,
        Self::ComplexOffset8,
        Self::Complex16,
        Self::ComplexF32,
        Self::Real2,
        Self::Real4,
        Self::Real8,
        Self::RealOffset8,
        Self::Real16,
        Self::RealF32,
        Self::Real10,
    ];

    /// Returns whether samples are complex.
    pub const fn is_complex(self) -> bool {
        matches!(
            self,
            Self::Complex4
                | Self::Complex8
                | Self::ComplexOffset8
                | Self::Complex16
                | Self::ComplexF32
        )
    }

    /// Returns the bits per sample, both parts of a complex one included.
    pub const fn sample_bits(self) -> usize {
        match self {
            Self::Real2 => 2,
            Self::Real4 => 4,
            Self::Complex4 | Self::Real8 | Self::RealOffset8 => 8,
            Self::Real10 => 10,
            Self::Complex8 | Self::ComplexOffset8 | Self::Real16 => 16,
            Self::Complex16 | Self::RealF32 => 32,
            Self::ComplexF32 => 64,
        }
    }

    /// Returns the bits per real number: a header's bits per sample.
    pub const fn bits(self) -> usize {
        if self.is_complex() { self.sample_bits() / 2 } else { self.sample_bits() }
    }

    /// Returns the smallest number of samples that fill whole bytes: 4, 2 or 1. Samples are read, skipped and divided in such
    /// groups.
    pub const fn group_samples(self) -> usize {
        match self {
            Self::Real2 | Self::Real10 => 4,
            Self::Real4 => 2,
            _ => 1,
        }
    }

    /// Returns the encoding that holds the same values with whole bytes for each sample.
    pub const fn unpacked(self) -> Self {
        match self {
            Self::Real2 => Self::RealF32,
            Self::Real4 => Self::Real8,
            Self::Real10 => Self::Real16,
            whole => whole,
        }
    }

    /// Returns the bytes of `times` samples; the last byte may be partly filled.
    pub const fn bytes(self, times: usize) -> usize {
        (times * self.sample_bits()).div_ceil(8)
    }

    /// Returns the byte that, repeated, encodes zeros. 2-bit samples have no 0: their byte has the levels 1, 1, -1,
    /// -1.
    pub const fn zero_byte(self) -> u8 {
        match self {
            Self::ComplexOffset8 | Self::RealOffset8 => 0x80,
            Self::Real2 => 0b0101_1010,
            _ => 0,
        }
    }
}

/// Returns the value of sample `index` of a stream: slow, for references and tests.
pub fn voltage(row: &[u8], encoding: VoltageEncoding, index: usize) -> Complex<f64> {
    let real = |value: f64| Complex::new(value, 0.0);
    let signed = |at: usize| f64::from(row[at] as i8);
    let offset = |at: usize| f64::from(row[at]) - 128.0;
    let short = |at: usize| f64::from(i16::from_le_bytes([row[at], row[at + 1]]));
    let float =
        |at: usize| f64::from(f32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]));
    // An arithmetic shift right sign-extends the high nibble.
    let high = |byte: u8| f64::from((byte as i8) >> 4);
    let low = |byte: u8| high(byte << 4);
    match encoding {
        VoltageEncoding::Complex4 => Complex::new(high(row[index]), low(row[index])),
        VoltageEncoding::Complex8 => Complex::new(signed(2 * index), signed(2 * index + 1)),
        VoltageEncoding::ComplexOffset8 => Complex::new(offset(2 * index), offset(2 * index + 1)),
        VoltageEncoding::Complex16 => Complex::new(short(4 * index), short(4 * index + 2)),
        VoltageEncoding::ComplexF32 => Complex::new(float(8 * index), float(8 * index + 4)),
        VoltageEncoding::Real2 => {
            let level = f64::from(TWO_BIT_HIGH);
            let code = (row[index / 4] >> (2 * (index % 4))) & 3;
            real([-level, -1.0, 1.0, level][usize::from(code)])
        }
        VoltageEncoding::Real4 => {
            let byte = row[index / 2];
            real(if index.is_multiple_of(2) { low(byte) } else { high(byte) })
        }
        VoltageEncoding::Real8 => real(signed(index)),
        VoltageEncoding::RealOffset8 => real(offset(index)),
        VoltageEncoding::Real16 => real(short(2 * index)),
        VoltageEncoding::RealF32 => real(float(4 * index)),
        VoltageEncoding::Real10 => real(f64::from(ten_bits::sample(row, index))),
    }
}

/// Borrowed voltages: axes stream, time; one row of bytes per stream, `stride` bytes apart.
///
/// Streams are in the order antenna, recorded channel, polarization.
#[derive(Clone, Copy, Debug)]
pub struct Voltages<'a> {
    bytes: &'a [u8],
    encoding: VoltageEncoding,
    streams: usize,
    stride: usize,
    times: usize,
}

impl<'a> Voltages<'a> {
    /// Makes a view of the first `times` samples of each of `streams` rows, which begin `stride` bytes apart.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `times` fill whole bytes and fit into `stride`, and `bytes` reaches to the end of the
    /// last row.
    pub fn new(
        bytes: &'a [u8],
        encoding: VoltageEncoding,
        streams: usize,
        stride: usize,
        times: usize,
    ) -> Result<Self> {
        let whole = times.next_multiple_of(encoding.group_samples());
        check_length("times, rounded up to whole bytes", whole, times)?;
        let row = encoding.bytes(times);
        if row > stride && streams > 1 {
            return Err(Error::Shape { what: "stride (bytes)", expected: row, actual: stride });
        }
        let expected = streams.saturating_sub(1) * stride + if streams > 0 { row } else { 0 };
        if bytes.len() < expected {
            return Err(Error::Shape { what: "voltages (bytes)", expected, actual: bytes.len() });
        }
        Ok(Self { bytes, encoding, streams, stride, times })
    }

    /// Makes a view of one stream that fills the buffer.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `bytes` holds whole samples.
    pub fn one(bytes: &'a [u8], encoding: VoltageEncoding) -> Result<Self> {
        let times = bytes.len() * 8 / encoding.sample_bits();
        check_length("voltages (bytes)", encoding.bytes(times), bytes.len())?;
        Self::new(bytes, encoding, 1, bytes.len(), times)
    }

    /// Returns the encoding.
    pub fn encoding(&self) -> VoltageEncoding {
        self.encoding
    }

    /// Returns the number of streams.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// Returns the samples per stream.
    pub fn times(&self) -> usize {
        self.times
    }

    /// Returns the bytes of one stream.
    pub fn row(&self, stream: usize) -> &'a [u8] {
        &self.bytes[stream * self.stride..][..self.encoding.bytes(self.times)]
    }

    /// Returns the samples `start .. start + times` of every stream.
    ///
    /// # Errors
    /// [`Error::Shape`] if they begin or end within a byte, or are out of range.
    pub fn slice(&self, start: usize, times: usize) -> Result<Self> {
        let whole = start.next_multiple_of(self.encoding.group_samples());
        check_length("start of a slice, in whole bytes", whole, start)?;
        if start + times > self.times {
            let (expected, actual) = (self.times, start + times);
            return Err(Error::Shape { what: "end of a slice (times)", expected, actual });
        }
        let bytes = &self.bytes[self.encoding.bytes(start).min(self.bytes.len())..];
        Self::new(bytes, self.encoding, self.streams, self.stride, times)
    }

    /// Writes all samples to the start of a block of the encoding [`VoltageEncoding::unpacked`]; flags are kept.
    ///
    /// # Errors
    /// [`Error::Shape`] for a block of another encoding, of another number of streams or with too little space.
    pub fn unpack(&self, block: &mut VoltageBlock<'_>) -> Result<()> {
        let (from, to) = (self.encoding, self.encoding.unpacked());
        check_length("streams of unpacked voltages", self.streams, block.streams())?;
        check_length("bits of unpacked samples", to.sample_bits(), block.encoding().sample_bits())?;
        block.set_times(self.times)?;
        for (stream, row) in block.rows_mut().enumerate() {
            let (packed, times) = (self.row(stream), 0..self.times);
            match from {
                VoltageEncoding::Real10 => ten_bits::unpack(packed, row),
                VoltageEncoding::Real4 => {
                    let value = |time| voltage(packed, from, time).re as i8 as u8;
                    row.iter_mut().zip(times).for_each(|(byte, time)| *byte = value(time));
                }
                VoltageEncoding::Real2 => {
                    let value = |time| (voltage(packed, from, time).re as f32).to_le_bytes();
                    let values = row.as_chunks_mut::<4>().0;
                    values.iter_mut().zip(times).for_each(|(bytes, time)| *bytes = value(time));
                }
                _ => row[..packed.len()].copy_from_slice(packed),
            }
        }
        Ok(())
    }

    /// Returns one sample's value: slow, for references and tests.
    pub fn value(&self, stream: usize, time: usize) -> Complex<f64> {
        voltage(self.row(stream), self.encoding, time)
    }
}

/// Layout of the voltages in a device buffer: stream `s` begins at byte `first_byte + s * stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceVoltages {
    /// First byte of the first stream.
    pub first_byte: usize,
    /// Bytes from stream to stream.
    pub stride: usize,
    /// Samples of each stream.
    pub times: usize,
}

impl DeviceVoltages {
    /// Checks that `bytes` bytes of memory hold whole bytes of samples of `streams` streams, in rows that do not
    /// overlap.
    ///
    /// # Errors
    /// [`Error::Shape`] naming what does not fit.
    pub fn check(&self, encoding: VoltageEncoding, streams: usize, bytes: usize) -> Result<()> {
        let whole = self.times.next_multiple_of(encoding.group_samples());
        check_length("times, rounded up to whole bytes", whole, self.times)?;
        let row = encoding.bytes(self.times);
        if row > self.stride && streams > 1 {
            let (expected, actual) = (row, self.stride);
            return Err(Error::Shape { what: "stride (bytes)", expected, actual });
        }
        let rows = streams.saturating_sub(1).saturating_mul(self.stride);
        let expected = self.first_byte.saturating_add(rows).saturating_add(row);
        if expected > bytes {
            return Err(Error::Shape { what: "voltages (bytes)", expected, actual: bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_are_exact() {
        let complex = |row: &[u8], encoding| voltage(row, encoding, 0);
        assert_eq!(complex(&[0x87], VoltageEncoding::Complex4), Complex::new(-8.0, 7.0));
        assert_eq!(complex(&[0x80, 0x7f], VoltageEncoding::Complex8), Complex::new(-128.0, 127.0));
        assert_eq!(
            complex(&[0, 255], VoltageEncoding::ComplexOffset8),
            Complex::new(-128.0, 127.0)
        );
        assert_eq!(
            complex(&[0, 0x80, 0xff, 0x7f], VoltageEncoding::Complex16),
            Complex::new(-32768.0, 32767.0)
        );
        let levels: Vec<f64> =
            (0..4).map(|i| voltage(&[0b1110_0100], VoltageEncoding::Real2, i).re).collect();
        let high = f64::from(TWO_BIT_HIGH);
        assert_eq!(levels, [-high, -1.0, 1.0, high]);
        let nibbles = [0, 1].map(|i| voltage(&[0x78], VoltageEncoding::Real4, i).re);
        assert_eq!(nibbles, [-8.0, 7.0]);
    }

    #[test]
    fn the_zero_byte_is_zero() {
        for encoding in VoltageEncoding::ALL {
            let row = [encoding.zero_byte(); 40];
            let sum: Complex<f64> =
                (0..320 / encoding.sample_bits()).map(|i| voltage(&row, encoding, i)).sum();
            assert_eq!(sum, Complex::new(0.0, 0.0), "{encoding:?}");
        }
    }

    #[test]
    fn views_must_fit_their_bytes() {
        let bytes = [0u8; 24];
        let view = |streams, stride, times| {
            Voltages::new(&bytes, VoltageEncoding::Complex8, streams, stride, times)
        };
        assert!(view(2, 12, 6).is_ok() && view(2, 16, 4).is_ok());
        assert!(view(2, 12, 7).is_err() && view(3, 12, 1).is_err());
        let part = view(2, 12, 6).unwrap().slice(2, 4).unwrap();
        assert_eq!((part.times(), part.row(1).len()), (4, 8));
        assert!(view(2, 12, 6).unwrap().slice(3, 4).is_err());
        assert!(Voltages::new(&bytes, VoltageEncoding::Real2, 1, 24, 3).is_err());
    }
}
