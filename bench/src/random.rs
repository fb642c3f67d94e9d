//! Pseudorandom data, identical in every run.

/// Generator of pseudorandom numbers (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

/// Seed of most data.
pub(crate) const SEED: u64 = 0x2545_f491_4f6c_dd1d;

impl Random {
    pub(crate) fn new() -> Self {
        Self(SEED)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 16) % end.max(1) as u64) as usize
    }

    /// Returns a number from 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an approximately normal number of variance 1: the sum of 12 uniform ones.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// Returns `count` approximately normal numbers of variance 1.
pub(crate) fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random(seed);
    (0..count).map(|_| random.normal() as f32).collect()
}

/// Returns `count` uniformly distributed bytes.
pub(crate) fn bytes(count: usize) -> Vec<u8> {
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
pub(crate) fn floats(count: usize) -> Vec<u8> {
    let mut bytes = bytes(4 * count);
    for float in bytes.chunks_exact_mut(4) {
        let bits = u32::from_le_bytes([float[0], float[1], float[2], float[3]]);
        let value = (bits >> 8) as f32 / (1u32 << 24) as f32 - 0.5;
        float.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}
