//! Pseudorandom data, identical in every run.

/// Generator of pseudorandom words.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new() -> Self {
        Self(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 16) % end.max(1) as u64) as usize
    }
}

/// Returns `count` uniformly distributed bytes.
pub(super) fn bytes(count: usize) -> Vec<u8> {
    let mut random = Random::new();
    let mut bytes = vec![0; count];
    for chunk in bytes.chunks_mut(8) {
        // The generator's high bits are its best; the multiplication makes the low byte as good.
        let word = random.next().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// Returns the bytes of `count` floats from -0.5 to 0.5.
pub(super) fn floats(count: usize) -> Vec<u8> {
    let mut bytes = bytes(4 * count);
    for float in bytes.chunks_exact_mut(4) {
        let bits = u32::from_le_bytes([float[0], float[1], float[2], float[3]]);
        let value = (bits >> 8) as f32 / (1u32 << 24) as f32 - 0.5;
        float.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}
