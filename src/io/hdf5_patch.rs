//! Patches lengths and addresses of data sets in a small HDF5 file whose rows follow it.
//!
//! Only version 2 object headers and superblocks of version 2 or 3 are changed, and only if their checksums confirm
//! the parsed structure.
//!
//! # Source
//! HDF5 File Format Specification, version 3.0: II.A (superblock), IV.A.1.b (object headers), IV.A.2.b (dataspace),
//! IV.A.2.i (data layout).

/// A data set to be patched.
#[derive(Clone, Debug)]
pub(super) struct DatasetPatch {
    /// Address of its placeholder in the small file, which is unique.
    pub(super) placeholder: u64,
    /// Its axes; the rank must be that in the small file.
    pub(super) axes: Vec<u64>,
    /// Address of its first row.
    pub(super) start: u64,
    /// Bytes of all rows.
    pub(super) bytes: u64,
}

const SUPERBLOCK_BYTES: usize = 48;
const DATASPACE: u8 = 1;
const DATA_LAYOUT: u8 = 8;

/// Patches `file`, whose rows will end at byte `end`. Returns false, with the bytes modified, unless each data set
/// was found exactly once.
pub(super) fn patch(file: &mut [u8], places: &[DatasetPatch], end: u64) -> bool {
    let mut found = vec![0; places.len()];
    let mut at = 0;
    while let Some(step) = find(&file[at..], b"OHDR") {
        at += step;
        if let Some(header) = ObjectHeader::parse(&file[at..]) {
            for (place, found) in places.iter().zip(&mut found) {
                *found += usize::from(header.give(&mut file[at..], place));
            }
        }
        at += 4;
    }
    found.iter().all(|times| *times == 1) && patch_end(file, end)
}

/// Patches the superblock's end-of-file address.
fn patch_end(file: &mut [u8], end: u64) -> bool {
    let Some(block) = file.first_chunk_mut::<SUPERBLOCK_BYTES>() else { return false };
    let is_known = block.starts_with(b"\x89HDF\r\n\x1a\n") && matches!(block[8], 2 | 3);
    if !is_known || block[9..11] != [8, 8] || !is_sealed(block) {
        return false;
    }
    block[28..36].copy_from_slice(&end.to_le_bytes());
    seal(block);
    true
}

/// Message offsets in a version 2 object header without continuation blocks.
struct ObjectHeader {
    bytes: usize,
    /// Start and length of the bodies of the dataspace and data layout messages.
    dataspace: (usize, usize),
    layout: (usize, usize),
}

impl ObjectHeader {
    /// Parses a header; `None` if it is not such a header or has no data.
    fn parse(bytes: &[u8]) -> Option<Self> {
        if *bytes.get(4)? != 2 {
            return None;
        }
        let flags = *bytes.get(5)?;
        let mut at =
            6 + if flags & 0x20 != 0 { 16 } else { 0 } + if flags & 0x10 != 0 { 4 } else { 0 };
        let width = 1 << (flags & 3);
        let mut messages = 0_usize;
        for (place, byte) in bytes.get(at..at + width)?.iter().enumerate().take(8) {
            messages |= usize::from(*byte).checked_shl(8 * place as u32)?;
        }
        at += width;
        let end = at.checked_add(messages)?;
        let whole = bytes.get(..end.checked_add(4)?)?;
        if !is_sealed(whole) {
            return None;
        }
        let head = if flags & 4 != 0 { 6 } else { 4 };
        let (mut dataspace, mut layout) = (None, None);
        while at + head <= end {
            let length = usize::from(u16::from_le_bytes([bytes[at + 1], bytes[at + 2]]));
            let body = (at + head, length);
            match bytes[at] {
                DATASPACE => dataspace = Some(body),
                DATA_LAYOUT => layout = Some(body),
                _ => {}
            }
            at += head + length;
        }
        let parsed = Self { bytes: end + 4, dataspace: dataspace?, layout: layout? };
        (at <= end).then_some(parsed)
    }

    /// Patches the header if it belongs to the data set.
    fn give(&self, bytes: &mut [u8], place: &DatasetPatch) -> bool {
        let (start, length) = self.layout;
        let layout = &mut bytes[start..start + length];
        // Version 3 or 4, contiguous: an address and a size.
        let is_contiguous = length == 18 && matches!(layout[0], 3 | 4) && layout[1] == 1;
        if !is_contiguous || layout[2..10] != place.placeholder.to_le_bytes() {
            return false;
        }
        layout[2..10].copy_from_slice(&place.start.to_le_bytes());
        layout[10..18].copy_from_slice(&place.bytes.to_le_bytes());
        let (start, length) = self.dataspace;
        let space = &mut bytes[start..start + length];
        let axes: Vec<u8> = place.axes.iter().flat_map(|length| length.to_le_bytes()).collect();
        // Version 2, the rank, no maximum lengths, a simple shape.
        let is_simple = space.first_chunk() == Some(&[2, place.axes.len() as u8, 0, 1]);
        if !is_simple || length != 4 + axes.len() {
            return false;
        }
        space[4..].copy_from_slice(&axes);
        seal(&mut bytes[..self.bytes]);
        true
    }
}

fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|window| window == word)
}

/// Returns whether a block ends with the checksum of its other bytes.
fn is_sealed(block: &[u8]) -> bool {
    block.split_last_chunk::<4>().is_some_and(|(body, sum)| lookup3(body).to_le_bytes() == *sum)
}

fn seal(block: &mut [u8]) {
    if let Some((body, sum)) = block.split_last_chunk_mut::<4>() {
        *sum = lookup3(body).to_le_bytes();
    }
}

/// Computes Bob Jenkins's lookup3 hash (`hashlittle` with the initial value 0), HDF5's metadata checksum.
fn lookup3(bytes: &[u8]) -> u32 {
    let mut state = [0xdead_beef_u32.wrapping_add(bytes.len() as u32); 3];
    // All blocks of 12 bytes except the last, which may be complete.
    let mixed = bytes.len().saturating_sub(1) / 12 * 12;
    let (blocks, tail) = bytes.split_at(mixed);
    for block in blocks.chunks_exact(12) {
        add(&mut state, block);
        mix(&mut state);
    }
    if !tail.is_empty() {
        add(&mut state, tail);
        finish(&mut state);
    }
    state[2]
}

/// Adds up to 12 bytes, as little-endian words.
fn add(state: &mut [u32; 3], bytes: &[u8]) {
    for (place, byte) in bytes.iter().enumerate() {
        let word = &mut state[place / 4];
        *word = word.wrapping_add(u32::from(*byte) << (8 * (place % 4)));
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: &mut u32, z: &mut u32, turn: u32| {
        *x = x.wrapping_sub(*z) ^ z.rotate_left(turn);
        *z = z.wrapping_add(*y);
    };
    step(a, b, c, 4);
    step(b, c, a, 6);
    step(c, a, b, 8);
    step(a, b, c, 16);
    step(b, c, a, 19);
    step(c, a, b, 4);
}

fn finish([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: &u32, turn: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(turn));
    step(c, b, 14);
    step(a, c, 11);
    step(b, a, 25);
    step(c, b, 16);
    step(a, c, 4);
    step(b, a, 14);
    step(c, b, 24);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_lookup3() {
        // Values from lookup3.c's own self test.
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }
}
