//! Streams read to their end, and numbers to fill them with.

use sidereal::io::FilterbankSource;
use sidereal::sample::unpack_f32;

/// Every row as floats, read in gulps of an awkward size.
pub(crate) fn read_all(source: &mut dyn FilterbankSource) -> Vec<f32> {
    let header = source.header().clone();
    let mut gulp = vec![0xeeu8; 7 * header.row_bytes()];
    let mut values = Vec::new();
    loop {
        let times = source.read(&mut gulp).unwrap();
        for row in gulp.chunks_exact(header.row_bytes()).take(times) {
            let start = values.len();
            values.resize(start + header.channels(), 0.0);
            unpack_f32(row, header.encoding, &mut values[start..]);
        }
        if times < 7 {
            break;
        }
    }
    assert_eq!(Some((values.len() / header.channels()) as u64), header.times);
    values
}

/// Whole numbers of a range, the same in every run.
pub(crate) fn noise(count: usize, low: i64, high: i64) -> Vec<f64> {
    let mut state = count as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (low + ((state >> 33) as i64).rem_euclid(high - low + 1)) as f64
    };
    (0..count).map(|_| next()).collect()
}
