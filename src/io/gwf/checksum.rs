//! Checksum of frame files: POSIX `cksum`.
//!
//! # Source
//! LIGO-T970130 version 8, section 4.3.1; IEEE Std 1003.1, `cksum`: a cyclic redundancy check of 32 bits (0x04C11DB7,
//! highest bit first) over the bytes and their count.

/// Remainders of a byte followed by zero to seven zero bytes.
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            rest = (rest << 1) ^ (0x04C1_1DB7 & (rest >> 31).wrapping_neg());
            bit += 1;
        }
        tables[0][byte] = rest;
        byte += 1;
    }
    let mut place = 1;
    while place < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[place - 1][byte];
            tables[place][byte] = (before << 8) ^ tables[0][(before >> 24) as usize];
            byte += 1;
        }
        place += 1;
    }
    tables
}

/// Running checksum.
#[derive(Clone, Debug, Default)]
pub(super) struct Checksum {
    rest: u32,
    bytes: u64,
}

impl Checksum {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let (eights, last) = bytes.as_chunks::<8>();
        for eight in eights {
            let [a, b, c, d] = self.rest.to_be_bytes();
            self.rest = TABLES[7][usize::from(a ^ eight[0])]
                ^ TABLES[6][usize::from(b ^ eight[1])]
                ^ TABLES[5][usize::from(c ^ eight[2])]
                ^ TABLES[4][usize::from(d ^ eight[3])]
                ^ TABLES[3][usize::from(eight[4])]
                ^ TABLES[2][usize::from(eight[5])]
                ^ TABLES[1][usize::from(eight[6])]
                ^ TABLES[0][usize::from(eight[7])];
        }
        last.iter().for_each(|byte| self.one(*byte));
    }

    /// Returns the checksum of all bytes added.
    pub(super) fn finish(mut self) -> u32 {
        let mut left = self.bytes;
        while left > 0 {
            self.one(left as u8);
            left >>= 8;
        }
        !self.rest
    }

    fn one(&mut self, byte: u8) {
        let place = (self.rest >> 24) as u8 ^ byte;
        self.rest = (self.rest << 8) ^ TABLES[0][usize::from(place)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> u32 {
        let mut sum = Checksum::default();
        sum.add(bytes);
        sum.finish()
    }

    #[test]
    fn sums_are_those_of_cksum() {
        // Reference values from coreutils' `cksum`.
        let cases: [(&[u8], u32); 3] =
            [(b"", 4_294_967_295), (b"123456789", 930_766_865), (b"a", 1_220_704_766)];
        for (bytes, expected) in cases {
            assert_eq!(sum(bytes), expected, "{bytes:?}");
        }
        let long: Vec<u8> = (0..1000_u32).map(|n| (n * n % 251) as u8).collect();
        let mut pieces = Checksum::default();
        long.chunks(13).for_each(|piece| pieces.add(piece));
        assert_eq!(pieces.finish(), sum(&long));
    }
}
