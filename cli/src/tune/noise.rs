//! Pseudorandom input, the same in every run.

/// Returns pseudorandom bytes.
pub(super) fn bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words: Vec<u64> = (0..count.div_ceil(8)).map(|_| next()).collect();
    bytemuck::cast_slice(&words)[..count].to_vec()
}

/// Returns the bytes of floats from -0.5 to 0.5: arbitrary bits would include NaN, and sums of NaN cannot be
/// compared.
pub(super) fn floats(count: usize) -> Vec<u8> {
    let mut bytes = bytes(count);
    for float in bytes.chunks_exact_mut(4) {
        let bits = u32::from_le_bytes([float[0], float[1], float[2], float[3]]);
        let value = (bits >> 8) as f32 / (1_u32 << 24) as f32 - 0.5;
        float.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_numbers_of_either_sign() {
        let floats = floats(4003);
        assert_eq!((floats.len(), bytes(4003).len()), (4003, 4003));
        let values: Vec<f32> = floats
            .chunks_exact(4)
            .map(|float| f32::from_le_bytes([float[0], float[1], float[2], float[3]]))
            .collect();
        assert!(values.iter().all(|value| (-0.5..=0.5).contains(value)));
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.05 && values.iter().any(|value| value.abs() > 0.4), "{mean}");
    }
}
