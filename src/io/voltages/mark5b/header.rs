//! Header of a Mark 5B frame: four little-endian words.
//!
//! Invariant: a header that was parsed has the sync word and a time code of decimal digits.

use std::path::Path;

use crate::error::{Error, Result};

/// Bytes per header.
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes per payload.
pub(super) const PAYLOAD_BYTES: usize = 10_000;
/// Bytes per frame.
pub(super) const FRAME_BYTES: u64 = (HEADER_BYTES + PAYLOAD_BYTES) as u64;
/// 0xABADDEED in file byte order.
pub(super) const SYNC: [u8; 4] = [0xed, 0xde, 0xad, 0xab];

/// Frames per second at 2 Mbit/s; other rates are this times a power of two.
const LEAST_FRAMES: u64 = 25;
/// Number of frame rates: [`LEAST_FRAMES`] times powers of two.
const RATES: u32 = 11;

/// Fields of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Frame number within its second.
    pub(super) number: u32,
    /// The last three digits of the modified Julian day.
    pub(super) day: u32,
    /// Seconds of the day.
    pub(super) second: u32,
    /// Time within the second in 0.1 ms, rounded down; some recorders always write 0.
    pub(super) fraction: u32,
}

impl Header {
    /// Parses the header at byte `at` of a file.
    ///
    /// # Errors
    /// [`Error::Format`] for a wrong sync word or an invalid time code.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES], path: &Path, at: u64) -> Result<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |index: usize| u32::from_le_bytes(words[index]);
        if words[0] != SYNC {
            let why = format!("found 0x{:08x}, expected 0xabaddeed", word(0));
            return Err(Error::format(path, "sync word", at, why));
        }
        let digits = |code: u32, field: &str, byte: u64| {
            decimal(code).ok_or_else(|| {
                let why = format!("found 0x{code:x}, expected decimal digits");
                Error::format(path, field, at + byte, why)
            })
        };
        let header = Self {
            number: word(1) & 0x7fff,
            day: digits(word(2) >> 20, "day", 8)?,
            second: digits(word(2) & 0xf_ffff, "seconds", 8)?,
            fraction: decimal(word(3) >> 16).unwrap_or(0),
        };
        if header.second > 86_400 {
            let why = format!("found {}, expected a second of a day", header.second);
            return Err(Error::format(path, "seconds", at + 8, why));
        }
        Ok(header)
    }

    /// Infers the frames per second from the fraction of the second: the only standard rate consistent with it.
    pub(super) fn frames_per_second(&self) -> Option<u64> {
        let (number, fraction) = (u64::from(self.number), u64::from(self.fraction));
        let fits = |rate: &u64| fraction > 0 && number * 10_000 / rate == fraction;
        let mut rates = (0..RATES).map(|power| LEAST_FRAMES << power).filter(fits);
        rates.next().filter(|_| rates.next().is_none())
    }

    /// Returns the modified Julian day nearest to `near` with these three digits.
    pub(super) fn mjd(&self, near: i64) -> i64 {
        let day = i64::from(self.day);
        (near - day + 500).div_euclid(1000).max(0) * 1000 + day
    }
}

/// Decodes a binary-coded decimal number; `None` for a digit above 9.
fn decimal(code: u32) -> Option<u32> {
    (0..8)
        .rev()
        .map(|digit| code >> (4 * digit) & 0xf)
        .try_fold(0, |number, digit| (digit < 10).then_some(number * 10 + digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: [u32; 4]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(words.map(u32::to_le_bytes).as_flattened());
        bytes
    }

    #[test]
    fn a_header_reads() {
        let words = [0xabad_deed, 0xbead_0003, 0x8211_9801, 0x0004_1746];
        let header = Header::parse(&bytes(words), Path::new("x"), 0).unwrap();
        assert_eq!(header, Header { number: 3, day: 821, second: 19_801, fraction: 4 });
        assert_eq!(header.frames_per_second(), Some(6400));
        assert_eq!((header.mjd(57_000), header.mjd(57_400), header.mjd(0)), (56_821, 57_821, 821));
        let zero = Header { fraction: 0, ..header };
        assert_eq!(zero.frames_per_second(), None);
        let early = Header { number: 1, fraction: 1, ..header };
        assert_eq!(early.frames_per_second(), Some(6400), "1.56 ms / 10, no other rate");
    }

    #[test]
    fn what_is_no_header_is_named() {
        let message =
            |words| Header::parse(&bytes(words), Path::new("x"), 7).unwrap_err().to_string();
        let found = message([0xabad_dead, 0, 0, 0]);
        assert!(found.contains("0xabaddead") && found.contains("byte 7"), "{found}");
        assert!(message([0xabad_deed, 0, 0xa21f_9801, 0]).contains("0xa21"));
        assert!(message([0xabad_deed, 0, 0x8219_9801, 0]).contains("99801"));
    }
}
