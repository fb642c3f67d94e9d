//! Real samples of 10 bits, as MeerKAT's digitisers send them: four samples have five bytes, two's complement, the first sample in
//! the most significant bits of the first byte.
//!
//! The unpacker works on eight such groups at a time, each in a 64-bit word with a lane of 16 bits for each sample, so that compilers
//! vectorize it.

use crate::error::Result;
use crate::view::check_length;

/// Bytes of a group of four samples.
pub(super) const GROUP_BYTES: usize = 5;

/// Groups that are unpacked at a time, and their bytes: five words of 64 bits.
const GROUPS: usize = 8;
const BLOCK_BYTES: usize = GROUPS * GROUP_BYTES;

/// Unpacks whole groups of samples to signed integers of 16 bits, little endian.
///
/// # Errors
/// [`crate::Error::Shape`] unless `packed` has whole groups and `samples` two bytes for each of their samples.
pub fn unpack_ten_bits(packed: &[u8], samples: &mut [u8]) -> Result<()> {
    let groups = packed.len() / GROUP_BYTES;
    check_length(
        "samples of 10 bits, in whole groups (bytes)",
        groups * GROUP_BYTES,
        packed.len(),
    )?;
    check_length("unpacked samples (bytes)", 8 * groups, samples.len())?;
    unpack(packed, samples);
    Ok(())
}

/// Unpacks as many whole groups as both have.
#[inline]
pub(crate) fn unpack(packed: &[u8], samples: &mut [u8]) {
    let groups = (packed.len() / GROUP_BYTES).min(samples.len() / 8);
    let (packed, samples) = (&packed[..groups * GROUP_BYTES], &mut samples[..groups * 8]);
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

/// Packs four samples, of which the lower 10 bits count.
pub(crate) fn pack(samples: [i16; 4]) -> [u8; GROUP_BYTES] {
    let bits = samples.iter().fold(0, |bits, sample| bits << 10 | (*sample as u64 & 0x3ff));
    let [_, _, _, packed @ ..] = bits.to_be_bytes();
    packed
}

/// Returns one sample of a row: slow, for references and tests.
pub(super) fn sample(row: &[u8], index: usize) -> i16 {
    let group = &row[index / 4 * GROUP_BYTES..];
    let at = 10 * (index % 4);
    let pair = u16::from_be_bytes([group[at / 8], group[at / 8 + 1]]);
    ((pair << (at % 8)) as i16) >> 6
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
    fn pack_bits(samples: &[i16]) -> Vec<u8> {
        let bits = samples.iter().flat_map(|x| (0..10).rev().map(move |bit| (x >> bit & 1) as u8));
        let bits: Vec<u8> = bits.collect();
        bits.chunks(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | bit)).collect()
    }

    /// Reads a sample by its definition: the sum of its bits' values, of which the first is negative.
    fn defined(packed: &[u8], index: usize) -> i16 {
        let bit = |at: usize| i16::from(packed[at / 8] >> (7 - at % 8) & 1);
        let value = |place: usize| bit(10 * index + place) << (9 - place);
        (1..10).map(value).sum::<i16>() - value(0)
    }

    fn unpacked(packed: &[u8]) -> Vec<i16> {
        let mut samples = vec![0xaa; packed.len() / GROUP_BYTES * 8];
        unpack_ten_bits(packed, &mut samples).unwrap();
        samples.as_chunks::<2>().0.iter().map(|bytes| i16::from_le_bytes(*bytes)).collect()
    }

    #[test]
    fn every_value_returns_at_every_place() {
        let samples: Vec<i16> = (-512..512).flat_map(|x| [x; 33]).collect();
        assert_eq!(unpacked(&pack_bits(&samples)), samples);
        let packed: Vec<u8> = samples.as_chunks().0.iter().flat_map(|four| pack(*four)).collect();
        assert_eq!(packed, pack_bits(&samples));
        // Four samples as katgpucbf reads them.
        assert_eq!(unpacked(&[0x80, 0x1f, 0xf0, 0x07, 0xff]), [-512, 511, 1, -1]);
    }

    #[test]
    fn lengths_must_fit() {
        let unpack = |packed: &[u8], bytes| unpack_ten_bits(packed, &mut vec![0; bytes]);
        assert!(unpack(&[0; 10], 16).is_ok() && unpack(&[], 0).is_ok());
        assert!(unpack(&[0; 10], 15).is_err() && unpack(&[0; 9], 16).is_err());
    }

    proptest! {
        #[test]
        fn any_split_gives_the_samples_of_the_definition(
            bytes in proptest::collection::vec(any::<u8>(), 0..1000),
            split in 0_usize..200,
        ) {
            let packed = &bytes[..bytes.len() / GROUP_BYTES * GROUP_BYTES];
            let places = 0..packed.len() / GROUP_BYTES * 4;
            let expected: Vec<i16> = places.clone().map(|index| defined(packed, index)).collect();
            let (head, tail) = packed.split_at((split * GROUP_BYTES).min(packed.len()));
            prop_assert_eq!(&[unpacked(head), unpacked(tail)].concat(), &expected);
            prop_assert_eq!(unpacked(packed), expected.clone());
            prop_assert_eq!(places.map(|index| sample(packed, index)).collect::<Vec<_>>(), expected);
        }
    }
}
