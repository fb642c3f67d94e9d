//! Turns a square of elements: time, channel to channel, time.

use super::history::{Element, TIMES};
use super::unpack::WIDTH;

/// Squares of so many elements are turned at once, so that both sides stay in few cache lines.
const TILE: usize = 8;

/// `output[c][t] = input[t][c]`.
pub(super) fn transpose<L: Element>(input: &[[L; WIDTH]], output: &mut [[L; TIMES]]) {
    for time in (0..TIMES).step_by(TILE) {
        for channel in (0..WIDTH).step_by(TILE) {
            for c in channel..channel + TILE {
                for t in time..time + TILE {
                    output[c][t] = input[t][c];
                }
            }
        }
    }
}
