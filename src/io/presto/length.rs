//! Series lengths that PRESTO's programs accept.

/// Largest prime factor of a good length.
const LARGEST_FACTOR: u64 = 11;

/// Returns the length to which prepsubband pads a series of `times` samples: even, and without large prime factors,
/// so that Fourier transforms are fast. `realfft` and `accelsearch` reject odd lengths.
///
/// Good factors of four digits are 1000 and the multiples of 16 without a prime factor above 11. The result is the
/// smaller of the next good factor times a power of ten and the next power of two.
///
/// # Source
/// PRESTO's documented output lengths: 531000 samples become 537600 (its tutorial), and its list of 114 factors.
pub fn good_length(times: u64) -> u64 {
    let mut scale = 1;
    while times.div_ceil(scale) > 10_000 {
        scale *= 10;
    }
    let factor = (times.div_ceil(scale).max(1000)..=10_000).find(|factor| is_good(*factor));
    let even = factor.unwrap_or(10_000).saturating_mul(scale);
    // At least 2: the power of two 1 is odd.
    even.min(times.max(2).checked_next_power_of_two().unwrap_or(u64::MAX - 1))
}

fn is_good(factor: u64) -> bool {
    let mut rest = factor;
    for prime in 2..=LARGEST_FACTOR {
        while rest.is_multiple_of(prime) {
            rest /= prime;
        }
    }
    rest == 1 && (factor.is_multiple_of(16) || factor == 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_prepsubband() {
        assert_eq!((1000..=10_000).filter(|factor| is_good(*factor)).count(), 114);
        for (times, length) in [
            (1, 2),
            (2, 2),
            (12, 16),
            (700, 1000),
            (1000, 1000),
            (1001, 1008),
            (1017, 1024),
            (9857, 10_000),
            (10_000, 10_000),
            (10_001, 10_080),
            (131_072, 131_072),
            (131_000, 131_072),
            (531_000, 537_600),
            (1_048_000, 1_048_576),
            (123_456_789, 128_000_000),
        ] {
            assert_eq!(good_length(times), length, "{times}");
        }
        assert!(good_length(u64::MAX).is_multiple_of(2));
    }
}
