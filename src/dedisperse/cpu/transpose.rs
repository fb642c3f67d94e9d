//! Corner turn of a block of elements: (time, channel) to (channel, time).
#![allow(unsafe_code)]

use super::history::{Element, TIMES};
use super::unpack::WIDTH;

/// Side of the squares that are transposed at once, so that both sides stay in few cache lines.
const TILE: usize = 16;

/// Computes `output[c][t] = input[t][c]` for the first `times` of the input, rounded up to whole squares.
pub(super) fn transpose<L: Element>(input: &[[L; WIDTH]], times: usize, output: &mut [[L; TIMES]]) {
    for time in (0..times).step_by(TILE) {
        for channel in (0..WIDTH).step_by(TILE) {
            if size_of::<L>() == 1 {
                let input: &[[u8; WIDTH]] = bytemuck::cast_slice(input);
                square_of_bytes(input, bytemuck::cast_slice_mut(output), time, channel);
            } else {
                square(input, output, time, channel);
            }
        }
    }
}

fn square<L: Element>(
    input: &[[L; WIDTH]],
    output: &mut [[L; TIMES]],
    time: usize,
    channel: usize,
) {
    for (c, row) in output[channel..channel + TILE].iter_mut().enumerate() {
        let row = &mut row[time..time + TILE];
        for (value, input) in row.iter_mut().zip(&input[time..time + TILE]) {
            *value = input[channel + c];
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn square_of_bytes(input: &[[u8; WIDTH]], output: &mut [[u8; TIMES]], time: usize, channel: usize) {
    square(input, output, time, channel);
}

/// Interleaves row k with row k + 8 four times: each round moves one bit of the row number into the column number, so
/// that four rounds exchange the two.
#[cfg(target_arch = "x86_64")]
fn square_of_bytes(input: &[[u8; WIDTH]], output: &mut [[u8; TIMES]], time: usize, channel: usize) {
    use std::arch::x86_64::{
        __m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_unpackhi_epi8, _mm_unpacklo_epi8,
    };
    let load = |t: usize| -> __m128i {
        let row: &[u8] = &input[time + t][channel..channel + TILE];
        // SAFETY: the slice has 16 bytes; SSE2 is part of every x86-64.
        unsafe { _mm_loadu_si128(row.as_ptr().cast()) }
    };
    let mut rows: [__m128i; TILE] = std::array::from_fn(load);
    for _ in 0..4 {
        // SAFETY: SSE2 is part of every x86-64.
        rows = std::array::from_fn(|k| unsafe {
            if k.is_multiple_of(2) {
                _mm_unpacklo_epi8(rows[k / 2], rows[k / 2 + TILE / 2])
            } else {
                _mm_unpackhi_epi8(rows[k / 2], rows[k / 2 + TILE / 2])
            }
        });
    }
    for (row, output) in rows.iter().zip(&mut output[channel..channel + TILE]) {
        let output = &mut output[time..time + TILE];
        // SAFETY: the slice has 16 bytes.
        unsafe { _mm_storeu_si128(output.as_mut_ptr().cast(), *row) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_and_times_change_places() {
        let bytes: Vec<[u8; WIDTH]> =
            (0..TIMES).map(|t| std::array::from_fn(|c| (t * 7 + c * 31) as u8)).collect();
        let words: Vec<[u16; WIDTH]> = bytes.iter().map(|row| row.map(u16::from)).collect();
        let mut turned = vec![[0u8; TIMES]; WIDTH];
        let mut turned_words = vec![[0u16; TIMES]; WIDTH];
        transpose(&bytes, TIMES, &mut turned);
        transpose(&words, TIMES, &mut turned_words);
        for (c, row) in turned.iter().enumerate() {
            for (t, value) in row.iter().enumerate() {
                assert_eq!(*value, bytes[t][c]);
                assert_eq!(turned_words[c][t], u16::from(*value));
            }
        }
    }
}
