//! Samples that packets hold in another width than the readers of voltages: 10 bits of MeerKAT's digitisers.
//!
//! Such samples keep their width from the packet through the window and its chunks. A source unpacks a block as it reads it, to
//! signed 16-bit integers, since every stage takes those.
//!
//! Four samples have five bytes: two's complement, the first sample in the most significant bits of the first byte. The unpacker
//! works on eight such groups at a time, each in a 64-bit word with a lane of 16 bits for each sample, so that compilers vectorize it.

use crate::error::{Error, Result};
use crate::voltage::VoltageEncoding;

/// Width of the samples in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// Samples have the encoding of the header.
    #[default]
    None,
    /// Samples have 10 bits, most significant bits first; the header says [`VoltageEncoding::Real16`].
    Ten,
}

impl Packing {
    /// Checks that a header has the encoding to which samples are unpacked.
    pub(crate) fn check(self, encoding: VoltageEncoding) -> Result<()> {
        if self == Self::Ten && encoding != VoltageEncoding::Real16 {
            let rule = "samples of 10 bits are unpacked to Real16";
            return Err(Error::parameter("encoding", format!("{encoding:?}"), rule));
        }
        Ok(())
    }

    /// Returns the bytes of unpacked samples that have `bytes` bytes in packets; `None` if they are not whole groups of samples.
    pub fn unpacked_bytes(self, bytes: usize) -> Option<usize> {
        match self {
            Self::None => Some(bytes),
            Self::Ten => bytes.is_multiple_of(GROUP_BYTES).then_some(bytes / GROUP_BYTES * 8),
        }
    }

    /// Returns the bytes in packets of whole groups of samples that have `bytes` bytes unpacked.
    pub(crate) fn packed_bytes(self, bytes: usize) -> usize {
        match self {
            Self::None => bytes,
            Self::Ten => bytes / 8 * GROUP_BYTES,
        }
    }

    /// Unpacks samples: `packed` has whole groups, `samples` their [`Packing::unpacked_bytes`], little endian.
    ///
    /// # Errors
    /// [`Error::Shape`] for lengths that do not fit each other.
    pub fn unpack(self, packed: &[u8], samples: &mut [u8]) -> Result<()> {
        let expected = self.unpacked_bytes(packed.len());
        if expected != Some(samples.len()) {
            let (what, actual) = ("unpacked samples (bytes)", samples.len());
            return Err(Error::Shape { what, expected: expected.unwrap_or(0), actual });
        }
        match self {
            Self::None => samples.copy_from_slice(packed),
            Self::Ten => unpack_ten(packed, samples),
        }
        Ok(())
    }
}

/// Bytes of four samples of 10 bits.
const GROUP_BYTES: usize = 5;

/// Groups that are unpacked at a time, and their bytes: five words of 64 bits.
const GROUPS: usize = 8;
const BLOCK_BYTES: usize = GROUPS * GROUP_BYTES;

fn unpack_ten(packed: &[u8], samples: &mut [u8]) {
    let (blocks, rest) = packed.as_chunks::<BLOCK_BYTES>();
    let (places, left) = samples.split_at_mut(blocks.len() * GROUPS * 8);
    for (block, place) in blocks.iter().zip(places.as_chunks_mut::<{ GROUPS * 8 }>().0) {
        for (group, four) in place.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            // The last word would reach beyond the block, and so ends with its group.
            let first = (group * GROUP_BYTES).min(BLOCK_BYTES - 8);
            let word = u64::from_be_bytes(*block[first..].first_chunk().unwrap_or(&[0; 8]));
            let below = 64 - 40 - 8 * (group * GROUP_BYTES - first);
            *four = lanes(word >> below & 0xff_ffff_ffff).to_le_bytes();
        }
    }
    let (groups, _) = rest.as_chunks::<GROUP_BYTES>();
    for (group, four) in groups.iter().zip(left.as_chunks_mut::<8>().0) {
        let bits = group.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        *four = lanes(bits).to_le_bytes();
    }
}

/// Spreads the four samples of 40 bits to lanes of 16 bits, the first sample lowest, and extends their signs.
#[inline(always)]
fn lanes(bits: u64) -> u64 {
    const LOW: u64 = 0x0000_03ff_0000_03ff;
    let pairs = bits >> 20 | (bits & 0xf_ffff) << 32;
    let lanes = pairs >> 10 & LOW | (pairs & LOW) << 16;
    // Per lane (x ^ 0x200) - 0x200, with its borrow replaced by a flip of the highest bit.
    ((lanes ^ 0x0200_0200_0200_0200) + 0x7e00_7e00_7e00_7e00) ^ 0x8000_8000_8000_8000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Packs samples bit by bit.
    fn pack(samples: &[i16]) -> Vec<u8> {
        let bits = samples.iter().flat_map(|x| (0..10).rev().map(move |bit| (x >> bit & 1) as u8));
        let bits: Vec<u8> = bits.collect();
        bits.chunks(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | bit)).collect()
    }

    /// Reads a sample by its definition: the sum of its bits' values, of which the first is negative.
    fn sample(packed: &[u8], index: usize) -> i16 {
        let bit = |at: usize| i16::from(packed[at / 8] >> (7 - at % 8) & 1);
        let value = |place: usize| bit(10 * index + place) << (9 - place);
        (1..10).map(value).sum::<i16>() - value(0)
    }

    fn unpacked(packed: &[u8]) -> Vec<i16> {
        let mut samples = vec![0xaa; Packing::Ten.unpacked_bytes(packed.len()).unwrap()];
        Packing::Ten.unpack(packed, &mut samples).unwrap();
        samples.as_chunks::<2>().0.iter().map(|bytes| i16::from_le_bytes(*bytes)).collect()
    }

    #[test]
    fn every_value_returns_at_every_place() {
        let samples: Vec<i16> = (-512..512).flat_map(|x| [x; 33]).collect();
        assert_eq!(unpacked(&pack(&samples)), samples);
        // Four samples as katgpucbf reads them.
        assert_eq!(unpacked(&[0x80, 0x1f, 0xf0, 0x07, 0xff]), [-512, 511, 1, -1]);
    }

    #[test]
    fn lengths_must_fit() {
        let unpack = |packed: &[u8], bytes| Packing::Ten.unpack(packed, &mut vec![0; bytes]);
        assert!(unpack(&[0; 10], 16).is_ok() && unpack(&[], 0).is_ok());
        assert!(unpack(&[0; 10], 15).is_err() && unpack(&[0; 9], 16).is_err());
        let mut same = [0; 3];
        Packing::None.unpack(&[1, 2, 3], &mut same).unwrap();
        assert_eq!(same, [1, 2, 3]);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_samples_of_the_reference(
            bytes in proptest::collection::vec(any::<u8>(), 0..1000),
            split in 0_usize..200,
        ) {
            let packed = &bytes[..bytes.len() / GROUP_BYTES * GROUP_BYTES];
            let expected: Vec<i16> =
                (0..packed.len() / GROUP_BYTES * 4).map(|index| sample(packed, index)).collect();
            let (head, tail) = packed.split_at((split * GROUP_BYTES).min(packed.len()));
            prop_assert_eq!(&[unpacked(head), unpacked(tail)].concat(), &expected);
            prop_assert_eq!(pack(&expected), packed);
            prop_assert_eq!(unpacked(packed), expected);
        }
    }
}
