//! Serialized state of processing stages: a resumed run continues with bit-identical results.
//!
//! Invariant: reading arbitrary bytes returns an error at worst, and allocates no more memory than the bytes occupy.

use std::path::{Path, PathBuf};

use num_complex::Complex;

use crate::error::{Error, Result};

/// Exclusive upper bound of numbers in a state, so that their sums do not overflow.
pub(crate) const GREATEST: u64 = 1 << 60;

/// Serializer of a state.
#[derive(Clone, Debug, Default)]
pub struct Saving {
    bytes: Vec<u8>,
}

impl Saving {
    /// Starts in the memory of earlier bytes, which are discarded.
    pub fn reusing(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self { bytes }
    }

    /// Returns the bytes, followed by their checksum.
    pub fn finish(self) -> Vec<u8> {
        Self::sealed(self.bytes)
    }

    /// Appends a checksum to any bytes.
    pub fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Begins a section with this name.
    pub fn part(&mut self, name: &str) {
        self.number(checksum(name.as_bytes()) % GREATEST);
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) {
        self.bytes.extend(number.to_le_bytes());
    }

    /// Adds an optional number: 0 for `None`, otherwise the number plus 1.
    pub fn maybe(&mut self, number: Option<u64>) {
        self.number(number.map_or(0, |number| number + 1));
    }

    /// Adds any number of either sign.
    pub fn signed(&mut self, number: i64) {
        self.number((number as u64) >> 32);
        self.number(number as u64 & u64::from(u32::MAX));
    }

    /// Adds flags, preceded by their count.
    pub fn flags(&mut self, flags: impl ExactSizeIterator<Item = bool>) {
        self.number(flags.len() as u64);
        self.bytes.extend(flags.map(u8::from));
    }

    /// Adds bytes, preceded by their count.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds `f64` values, preceded by their count.
    pub fn f64s<'a>(&mut self, values: impl ExactSizeIterator<Item = &'a f64>) {
        self.number(values.len() as u64);
        self.bytes.reserve(8 * values.len());
        values.for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
    }

    /// Adds `f32` values, preceded by their count.
    pub fn f32s<'a>(&mut self, values: impl ExactSizeIterator<Item = &'a f32>) {
        self.number(values.len() as u64);
        self.bytes.reserve(4 * values.len());
        values.for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
    }

    /// Adds complex numbers, preceded by the count of their `f32` components.
    pub fn complex(&mut self, values: &[Complex<f32>]) {
        self.number(2 * values.len() as u64);
        self.more_f32s(bytemuck::cast_slice(values));
    }

    /// Adds `f32` values whose count has been added.
    pub fn more_f32s(&mut self, values: &[f32]) {
        self.bulk(values, f32::to_le_bytes);
    }

    /// Adds numbers: as a whole where the byte order allows it, since they are the bulk of a state.
    fn bulk<T: bytemuck::Pod, const N: usize>(&mut self, values: &[T], bytes: fn(T) -> [u8; N]) {
        if cfg!(target_endian = "big") {
            return values.iter().for_each(|value| self.bytes.extend_from_slice(&bytes(*value)));
        }
        self.bytes.extend_from_slice(bytemuck::cast_slice(values));
    }

    /// Adds double-precision complex numbers, preceded by the count of their `f64` components.
    pub fn complex64(&mut self, values: &[Complex<f64>]) {
        self.number(2 * values.len() as u64);
        self.bulk::<f64, 8>(bytemuck::cast_slice(values), f64::to_le_bytes);
    }
}

/// Deserializer of a state.
#[derive(Clone, Debug)]
pub struct Saved<'a> {
    path: PathBuf,
    /// Byte offset of the state in the file.
    origin: u64,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Saved<'a> {
    /// Opens a state written by [`Saving::finish`], which begins at byte `origin` of a file.
    ///
    /// # Errors
    /// [`Error::Format`] if the checksum does not match.
    pub fn new(path: &Path, origin: u64, bytes: &'a [u8]) -> Result<Self> {
        let whole = Self { path: path.to_path_buf(), origin, bytes, at: 0 };
        let Some((bytes, sum)) = bytes.split_last_chunk::<8>() else {
            return Err(whole.fault("checksum", format!("{} bytes found, expected 8", bytes.len())));
        };
        if checksum(bytes) != u64::from_le_bytes(*sum) {
            return Err(whole.fault("checksum", "the bytes are not those that were saved".into()));
        }
        Ok(Self { bytes, ..whole })
    }

    /// Makes an [`Error::Format`] at the current position.
    pub fn fault(&self, field: &str, why: String) -> Error {
        Error::format(
            &self.path,
            format!("saved state, {field}"),
            self.origin + self.at as u64,
            why,
        )
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let found = self.bytes.len() - self.at;
        if count > found {
            return Err(self.fault("bytes", format!("{found} left, expected {count}")));
        }
        self.at += count;
        Ok(&self.bytes[self.at - count..self.at])
    }

    /// Reads the start of the section with this name.
    ///
    /// # Errors
    /// [`Error::Format`] if another section begins here.
    pub fn part(&mut self, name: &str) -> Result<()> {
        if self.number()? == checksum(name.as_bytes()) % GREATEST {
            return Ok(());
        }
        Err(self.fault(name, "another part found".into()))
    }

    /// Reads a number.
    ///
    /// # Errors
    /// [`Error::Format`] for 2^60 or more, or at the end of the bytes.
    pub fn number(&mut self) -> Result<u64> {
        let bytes = self.take(8)?;
        let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        if number < GREATEST {
            return Ok(number);
        }
        Err(self.fault("number", format!("{number} found, expected less than {GREATEST}")))
    }

    /// Reads a number of at most `most`.
    ///
    /// # Errors
    /// [`Error::Format`] for a greater one, or at the end of the bytes.
    pub fn at_most(&mut self, most: usize) -> Result<usize> {
        match self.number()? {
            number if number <= most as u64 => Ok(number as usize),
            number => Err(self.fault("number", format!("{number} found, expected at most {most}"))),
        }
    }

    /// Reads a number and fails unless it equals `expected`.
    ///
    /// # Errors
    /// [`Error::Format`] for another number, or at the end of the bytes.
    pub fn expect(&mut self, what: &str, expected: u64) -> Result<()> {
        match self.number()? {
            number if number == expected => Ok(()),
            number => Err(self.fault(what, format!("{number} found, expected {expected}"))),
        }
    }

    /// Reads an optional number.
    ///
    /// # Errors
    /// As [`Self::number`].
    pub fn maybe(&mut self) -> Result<Option<u64>> {
        Ok(self.number()?.checked_sub(1))
    }

    /// Reads a number of either sign.
    ///
    /// # Errors
    /// As [`Self::at_most`].
    pub fn signed(&mut self) -> Result<i64> {
        let most = u32::MAX as usize;
        let (high, low) = (self.at_most(most)? as u64, self.at_most(most)? as u64);
        Ok((high << 32 | low) as i64)
    }

    /// Reads at most `most` flags.
    ///
    /// # Errors
    /// [`Error::Format`] for more, or a byte other than 0 and 1.
    pub fn flags(&mut self, most: usize) -> Result<Vec<bool>> {
        let count = self.at_most(most)?;
        let bytes = self.take(count)?;
        match bytes.iter().find(|byte| **byte > 1) {
            None => Ok(bytes.iter().map(|byte| *byte == 1).collect()),
            Some(byte) => Err(self.fault("flag", format!("{byte} found, expected 0 or 1"))),
        }
    }

    /// Reads exactly `COUNT` flags.
    ///
    /// # Errors
    /// [`Error::Format`] for another count, or a byte other than 0 and 1.
    pub fn flag_array<const COUNT: usize>(&mut self) -> Result<[bool; COUNT]> {
        let flags = self.flags(COUNT)?;
        let found = flags.len();
        let fault = |_| self.fault("flags", format!("{found} found, expected {COUNT}"));
        flags.try_into().map_err(fault)
    }

    /// Reads at most `most` bytes.
    ///
    /// # Errors
    /// [`Error::Format`] for more.
    pub fn bytes(&mut self, most: usize) -> Result<Vec<u8>> {
        let count = self.at_most(most)?;
        Ok(self.take(count)?.to_vec())
    }

    /// Reads a text of at most `most` bytes.
    ///
    /// # Errors
    /// [`Error::Format`] for more, or bytes that are not UTF-8.
    pub fn text(&mut self, most: usize) -> Result<String> {
        let bytes = self.bytes(most)?;
        String::from_utf8(bytes).map_err(|error| self.fault("text", error.to_string()))
    }

    /// Reads at most `most` values.
    ///
    /// # Errors
    /// [`Error::Format`] for more.
    pub fn f64s(&mut self, most: usize) -> Result<Vec<f64>> {
        let count = self.at_most(most)?;
        let bytes = self.take(count.saturating_mul(8))?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
    }

    /// Reads exactly `COUNT` values.
    ///
    /// # Errors
    /// [`Error::Format`] for another count.
    pub fn f64_array<const COUNT: usize>(&mut self) -> Result<[f64; COUNT]> {
        let mut values = [0.0; COUNT];
        self.fill_f64(&mut values)?;
        Ok(values)
    }

    /// Reads exactly `to.len()` values.
    ///
    /// # Errors
    /// [`Error::Format`] for another count.
    pub fn fill_f64(&mut self, to: &mut [f64]) -> Result<()> {
        self.expect("length", to.len() as u64)?;
        let bytes = self.take(to.len() * 8)?;
        let values = bytes.as_chunks::<8>().0.iter();
        to.iter_mut().zip(values).for_each(|(to, bytes)| *to = f64::from_le_bytes(*bytes));
        Ok(())
    }

    /// Reads exactly `to.len()` values.
    ///
    /// # Errors
    /// [`Error::Format`] for another count.
    pub fn fill_f32(&mut self, to: &mut [f32]) -> Result<()> {
        self.expect("length", to.len() as u64)?;
        let bytes = self.take(to.len() * 4)?;
        let values = bytes.as_chunks::<4>().0.iter();
        to.iter_mut().zip(values).for_each(|(to, bytes)| *to = f32::from_le_bytes(*bytes));
        Ok(())
    }

    /// Reads exactly `to.len()` complex numbers.
    ///
    /// # Errors
    /// [`Error::Format`] for another count.
    pub fn fill_complex(&mut self, to: &mut [Complex<f32>]) -> Result<()> {
        self.fill_f32(bytemuck::cast_slice_mut(to))
    }

    /// Reads at most `most` complex numbers.
    ///
    /// # Errors
    /// [`Error::Format`] for more, or for an odd count of components.
    pub fn complex(&mut self, most: usize) -> Result<Vec<Complex<f32>>> {
        let count = self.at_most(most.saturating_mul(2))?;
        if !count.is_multiple_of(2) {
            return Err(self.fault("complex numbers", format!("{count} components found")));
        }
        let bytes = self.take(count.saturating_mul(4))?;
        let float = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
        let pairs = bytes.as_chunks::<4>().0.chunks_exact(2);
        Ok(pairs.map(|pair| Complex::new(float(&pair[0]), float(&pair[1]))).collect())
    }

    /// Reads exactly `to.len()` double-precision complex numbers.
    ///
    /// # Errors
    /// [`Error::Format`] for another count.
    pub fn fill_complex64(&mut self, to: &mut [Complex<f64>]) -> Result<()> {
        self.fill_f64(bytemuck::cast_slice_mut(to))
    }

    /// Fails unless all bytes were read.
    ///
    /// # Errors
    /// [`Error::Format`] if bytes remain.
    pub fn end(&self) -> Result<()> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            left => Err(self.fault("end", format!("{left} bytes found after it"))),
        }
    }
}

/// Computes the FNV-1a hash.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_comes_back_and_nothing_else_passes() {
        let mut saving = Saving::default();
        saving.part("a part");
        saving.number(7);
        saving.maybe(None);
        saving.signed(-7);
        saving.signed(i64::MIN / 4);
        saving.bytes(b"some");
        saving.flags([true, false].into_iter());
        saving.f64s([1.5, -0.0].iter());
        saving.complex(&[Complex::new(1.0, 2.0)]);
        let bytes = saving.finish();
        let path = Path::new("state");
        let mut saved = Saved::new(path, 0, &bytes).expect("whole");
        saved.part("a part").expect("the part");
        assert_eq!((saved.number().ok(), saved.maybe().ok()), (Some(7), Some(None)));
        assert_eq!((saved.signed().ok(), saved.signed().ok()), (Some(-7), Some(i64::MIN / 4)));
        assert!(saved.clone().bytes(3).is_err());
        assert_eq!(saved.bytes(4).ok().as_deref(), Some(&b"some"[..]));
        assert_eq!(saved.flags(2).ok(), Some(vec![true, false]));
        assert!(saved.end().is_err());
        let mut again = saved.clone();
        assert!(again.f64s(1).is_err() && saved.clone().fill_f64(&mut [0.0; 3]).is_err());
        let floats = saved.f64s(2).expect("two");
        assert_eq!((floats[0], floats[1].to_bits()), (1.5, (-0.0_f64).to_bits()));
        let mut z = [Complex::default()];
        assert!(saved.clone().complex(0).is_err());
        assert_eq!(saved.clone().complex(1).ok().as_deref(), Some(&[Complex::new(1.0, 2.0)][..]));
        saved.fill_complex(&mut z).expect("one");
        assert_eq!(z, [Complex::new(1.0, 2.0)]);
        saved.end().expect("all");
        assert!(saved.number().is_err() && saved.part("b").is_err());
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 4;
            assert!(
                Saved::new(path, 0, &damaged).is_err()
                    && Saved::new(path, 0, &bytes[..place]).is_err()
            );
        }
    }
}
