//! The bitshuffle filter (HDF5 filter 32008), with or without LZ4, as in blimpy's files.
//!
//! A compressed chunk has its decoded length (8 bytes, big endian), the bytes per block (4 bytes, big endian) and,
//! for each block, its compressed length (4 bytes, big endian) and an LZ4 block. Within a block, bit b of byte k of
//! all elements is contiguous, the first element in the least significant bit. The last block holds the remaining
//! multiple of 8 elements; up to 7 further elements are stored unchanged after it.
//!
//! Invariant: whatever the bytes, decoding ends, stays inside its buffers, and allocates no more
//! than one block of the output's size.
//!
//! # Source
//! Masui et al. 2015, Astronomy and Computing 12, 181, and the format notes of the bitshuffle library's HDF5 filter.

use std::result::Result;

/// A block holds a multiple of this many elements.
const GROUP: usize = 8;
/// Default bytes per block.
const DEFAULT_BLOCK_BYTES: usize = 8192;
/// Minimum elements in a block of default size.
const MIN_BLOCK_ELEMENTS: usize = 128;
const HEADER_BYTES: usize = 12;

/// Decodes an LZ4-compressed chunk into `output`, which must have the decoded length.
///
/// # Errors
/// A message with the found and expected values, for an invalid chunk.
pub fn decode_lz4(chunk: &[u8], element_bytes: usize, output: &mut [u8]) -> Result<(), String> {
    let Some((header, mut rest)) = chunk.split_at_checked(HEADER_BYTES) else {
        return Err(format!("{} bytes found, expected a header of 12", chunk.len()));
    };
    let length = header[..8].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    if length != output.len() as u64 {
        return Err(format!("decoded length {length} found, expected {}", output.len()));
    }
    let block_bytes = big_endian_u32(&header[8..]);
    let block = block_elements(block_bytes, element_bytes)?;
    let mut shuffled = Vec::new();
    let (blocks, tail) = output.split_at_mut(shuffled_bytes(output.len(), element_bytes)?);
    for block in blocks.chunks_mut(block * element_bytes) {
        let Some((size, after)) = rest.split_at_checked(4) else {
            return Err("the chunk ends before its last block".to_string());
        };
        let size = big_endian_u32(size);
        let Some((packed, after)) = after.split_at_checked(size) else {
            return Err(format!("a block of {size} bytes found, but {} are left", after.len()));
        };
        shuffled.resize(block.len(), 0);
        match lz4_flex::block::decompress_into(packed, &mut shuffled) {
            Ok(bytes) if bytes == block.len() => {}
            Ok(bytes) => return Err(format!("a block of {bytes} bytes, expected {}", block.len())),
            Err(error) => return Err(format!("LZ4: {error}")),
        }
        unshuffle(&shuffled, element_bytes, block);
        rest = after;
    }
    copy_tail(rest, tail)
}

/// Decodes a chunk that is shuffled but not compressed.
///
/// # Errors
/// As [`decode_lz4`].
pub fn decode_bare(
    chunk: &[u8],
    element_bytes: usize,
    block_elements: usize,
    output: &mut [u8],
) -> Result<(), String> {
    if chunk.len() != output.len() {
        return Err(format!("{} bytes found, expected {}", chunk.len(), output.len()));
    }
    let block = self::block_elements(block_elements.saturating_mul(element_bytes), element_bytes)?;
    let (blocks, tail) = output.split_at_mut(shuffled_bytes(output.len(), element_bytes)?);
    let (shuffled, rest) = chunk.split_at(blocks.len());
    let bytes = block * element_bytes;
    for (input, output) in shuffled.chunks(bytes).zip(blocks.chunks_mut(bytes)) {
        unshuffle(input, element_bytes, output);
    }
    copy_tail(rest, tail)
}

fn big_endian_u32(bytes: &[u8]) -> usize {
    bytes[..4].iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte))
}

/// Computes the elements per block from its bytes; 0 selects the default.
fn block_elements(block_bytes: usize, element_bytes: usize) -> Result<usize, String> {
    if element_bytes == 0 {
        return Err("elements of 0 bytes".to_string());
    }
    if block_bytes == 0 {
        let elements = DEFAULT_BLOCK_BYTES / element_bytes / GROUP * GROUP;
        return Ok(elements.max(MIN_BLOCK_ELEMENTS));
    }
    if block_bytes.is_multiple_of(element_bytes * GROUP) {
        return Ok(block_bytes / element_bytes);
    }
    Err(format!("blocks of {block_bytes} bytes, expected a multiple of 8 x {element_bytes}"))
}

/// Returns the bytes in whole groups of 8 elements.
fn shuffled_bytes(bytes: usize, element_bytes: usize) -> Result<usize, String> {
    if !bytes.is_multiple_of(element_bytes) {
        return Err(format!(
            "{bytes} bytes are not a multiple of elements of {element_bytes} bytes"
        ));
    }
    Ok(bytes / element_bytes / GROUP * GROUP * element_bytes)
}

fn copy_tail(rest: &[u8], tail: &mut [u8]) -> Result<(), String> {
    if rest.len() != tail.len() {
        return Err(format!("{} bytes after the last block, expected {}", rest.len(), tail.len()));
    }
    tail.copy_from_slice(rest);
    Ok(())
}

/// Inverts the bit transposition of a block; both slices have the length of the same multiple of 8 elements.
fn unshuffle(input: &[u8], element_bytes: usize, output: &mut [u8]) {
    let plane = input.len() / element_bytes / GROUP;
    for byte in 0..element_bytes {
        for group in 0..plane {
            let bits = [0, 1, 2, 3, 4, 5, 6, 7].map(|bit| input[(byte * 8 + bit) * plane + group]);
            let elements = transpose(u64::from_le_bytes(bits)).to_le_bytes();
            for (index, value) in elements.into_iter().enumerate() {
                output[(group * GROUP + index) * element_bytes + byte] = value;
            }
        }
    }
}

/// Transposes 8 x 8 bits, one byte per row (Hacker's Delight, 2nd ed., section 7-3).
const fn transpose(x: u64) -> u64 {
    const fn swap(x: u64, shift: u32, mask: u64) -> u64 {
        let moved = (x ^ (x >> shift)) & mask;
        x ^ moved ^ (moved << shift)
    }
    let x = swap(x, 7, 0x00aa_00aa_00aa_00aa);
    let x = swap(x, 14, 0x0000_cccc_0000_cccc);
    swap(x, 28, 0x0000_0000_f0f0_f0f0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forward transformation by definition, bit by bit.
    fn shuffle(input: &[u8], element_bytes: usize) -> Vec<u8> {
        let elements = input.len() / element_bytes;
        let mut output = vec![0; input.len()];
        for (index, element) in input.chunks_exact(element_bytes).enumerate() {
            for bit in 0..8 * element_bytes {
                let value = (element[bit / 8] >> (bit % 8)) & 1;
                output[bit * elements / 8 + index / 8] |= value << (index % 8);
            }
        }
        output
    }

    fn encode(input: &[u8], element_bytes: usize, block: usize) -> Vec<u8> {
        let mut chunk = (input.len() as u64).to_be_bytes().to_vec();
        chunk.extend(((block * element_bytes) as u32).to_be_bytes());
        let whole = shuffled_bytes(input.len(), element_bytes).unwrap();
        for part in input[..whole].chunks(block * element_bytes) {
            let packed = lz4_flex::block::compress(&shuffle(part, element_bytes));
            chunk.extend((packed.len() as u32).to_be_bytes());
            chunk.extend(packed);
        }
        chunk.extend(&input[whole..]);
        chunk
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8 & 0x1f
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn chunks_of_every_shape_go_round() {
        for element in [1, 2, 4] {
            for elements in [0, 1, 7, 8, 9, 63, 64, 65, 1000, 5003] {
                let input = noise(elements * element);
                let chunk = encode(&input, element, 64);
                let mut output = vec![0xee; input.len()];
                decode_lz4(&chunk, element, &mut output).unwrap();
                assert_eq!(output, input, "{element} {elements}");
            }
        }
    }

    #[test]
    fn bare_chunks_go_round() {
        let input = noise(4 * 2053);
        let whole = shuffled_bytes(input.len(), 4).unwrap();
        let mut chunk: Vec<u8> =
            input[..whole].chunks(4 * 2048).flat_map(|part| shuffle(part, 4)).collect();
        chunk.extend(&input[whole..]);
        let mut output = vec![0; input.len()];
        decode_bare(&chunk, 4, 0, &mut output).unwrap();
        assert_eq!(output, input);
    }

    #[test]
    fn damaged_chunks_are_refused_and_never_panic() {
        let input = noise(3000);
        let chunk = encode(&input, 4, 64);
        let mut output = vec![0; input.len()];
        for length in 0..chunk.len() {
            assert!(decode_lz4(&chunk[..length], 4, &mut output).is_err(), "{length}");
        }
        let mut longer = chunk.clone();
        longer.push(0);
        assert!(decode_lz4(&longer, 4, &mut output).is_err());
        for position in 0..chunk.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = chunk.clone();
                damaged[position] = value;
                let _ = decode_lz4(&damaged, 4, &mut output);
            }
        }
        assert!(decode_lz4(&chunk, 3, &mut output).is_err());
        assert!(decode_lz4(&chunk, 0, &mut output).is_err());
        assert!(decode_bare(&input, 4, usize::MAX, &mut output).is_err());
    }
}
