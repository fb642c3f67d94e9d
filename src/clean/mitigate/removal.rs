//! Removal of interference from the rows of a block, once it is known where it is.
//!
//! Invariant: a row without interference stays as it is; what a row becomes depends on it and on the block's decisions alone.

use std::sync::atomic::{AtomicBool, Ordering};

use super::broadband::{Decisions, Fate};
use super::profile::Terms;
use crate::sample::{Encoding, set_value, unpack_f32};

/// Largest fraction of a spectrum's samples at the encoding's maximum; with more, its broadband part is unknown.
const CLIPPED: f64 = 0.01;

/// Scratch rows of a thread.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Samples of a row, with the padding that group sums read.
    pub(super) row: Vec<f32>,
    pub(super) residual: Vec<f32>,
}

/// Change of a row's amplitudes, and factor of the remainder.
struct Change {
    from: [f32; 2],
    to: [f32; 2],
    scale: f32,
}

/// Treatment of the rows of a block.
pub(super) struct Removal<'a> {
    pub(super) terms: Terms,
    pub(super) level: &'a [f32],
    pub(super) encoding: Encoding,
    pub(super) offsets: &'a [f32],
    pub(super) decisions: Option<&'a Decisions>,
    pub(super) cells: &'a [Vec<bool>],
    pub(super) part_rows: usize,
    pub(super) masked: &'a [bool],
    pub(super) donors: &'a [u8],
    /// Set when a row is replaced by a donor.
    pub(super) has_replaced: &'a AtomicBool,
    pub(super) first_row: u64,
}

impl Removal<'_> {
    /// Treats the block's row at `time`.
    pub(super) fn row(&self, time: usize, row: &mut [u8], scratch: &mut Scratch) {
        let absolute = self.first_row + time as u64;
        let cells = self.cells.get(time / self.part_rows).or(self.cells.last());
        let fate = self.decisions.map_or(Fate::Kept, |decisions| decisions.fates[time]);
        let reference =
            self.decisions.and_then(|own| own.reference).filter(|(_, from)| time >= *from);
        let level = self.decisions.map(|decisions| decisions.levels[time]);
        // Amplitudes of a spectrum without interference.
        let target = reference.map(|(reference, _)| reference).or(level).unwrap_or([1.0, 0.0]);
        if fate == Fate::Lost && !self.donors.is_empty() {
            self.replace(row, absolute);
        } else if fate == Fate::Lost {
            self.fill(row, |c| !self.masked[c], target);
        } else if fate == Fate::Fitted || reference.is_some() {
            let values = &mut scratch.row[..self.level.len()];
            unpack_f32(row, self.encoding, values);
            if fate == Fate::Fitted && self.is_clipped(values) && !self.donors.is_empty() {
                self.replace(row, absolute);
            } else {
                let level = level.unwrap_or(target);
                let from = if fate == Fate::Fitted { self.terms.fit(values) } else { level };
                let is_scaled = self.decisions.is_some_and(|decisions| decisions.is_scaled);
                let scale = if is_scaled { target[0] / level[0] } else { 1.0 };
                let change = Change { from, to: target, scale };
                self.change(row, values, &mut scratch.residual, &change, absolute);
            }
        }
        if let Some(cells) = cells.filter(|cells| cells.iter().any(|bad| *bad)) {
            self.fill(row, |c| cells[c], target);
        }
    }

    /// Replaces a row without signal by another row.
    fn replace(&self, row: &mut [u8], absolute: u64) {
        self.has_replaced.store(true, Ordering::Relaxed);
        let count = self.donors.len() / row.len();
        let donor = (scattered(absolute) % count as u64) as usize;
        row.copy_from_slice(&self.donors[donor * row.len()..][..row.len()]);
    }

    /// Returns whether interference has clipped a spectrum.
    fn is_clipped(&self, values: &[f32]) -> bool {
        let Some((_, high)) = self.encoding.range() else { return false };
        let clipped = values.iter().filter(|x| **x >= high as f32).count();
        clipped as f64 > CLIPPED * values.len() as f64
    }

    /// Sets the amplitudes of both terms to a target and scales the remainder. Integers are rounded with offsets that
    /// spread over the channels.
    fn change(
        &self,
        row: &mut [u8],
        values: &mut [f32],
        residual: &mut [f32],
        change: &Change,
        absolute: u64,
    ) {
        residual.copy_from_slice(values);
        for (index, term) in [&self.terms.first, &self.terms.second].into_iter().enumerate() {
            let (from, to) = (change.from[index], change.to[index]);
            for ((x, rest), term) in values.iter_mut().zip(&mut *residual).zip(term) {
                *rest -= from * term;
                *x -= (from - to) * term;
            }
        }
        let shift = (absolute as f64 * 0.754_877_666_246_693).fract() as f32;
        for ((x, rest), offset) in values.iter_mut().zip(residual).zip(self.offsets) {
            *x += (change.scale - 1.0) * *rest;
            if self.encoding.range().is_some() {
                *x = (*x + (offset + shift).fract()).floor();
            }
        }
        for (channel, x) in values.iter().enumerate() {
            if self.terms.first[channel] != 0.0 {
                set_value(row, self.encoding, channel, f64::from(*x));
            }
        }
    }

    /// Sets channels to their level.
    fn fill(&self, row: &mut [u8], is_filled: impl Fn(usize) -> bool, target: [f32; 2]) {
        let scale = if self.terms.has_levels { target[0] } else { 1.0 };
        for channel in 0..self.level.len() {
            if is_filled(channel) {
                let level = scale * self.level[channel];
                set_level(row, self.encoding, channel, level, self.offsets[channel]);
            }
        }
    }
}

/// Sets a channel to a level; integers are rounded with the channel's offset.
pub(super) fn set_level(
    row: &mut [u8],
    encoding: Encoding,
    channel: usize,
    level: f32,
    offset: f32,
) {
    let value = match encoding.range() {
        Some((low, high)) => (level + offset).floor().clamp(low as f32, high as f32),
        None => level,
    };
    set_value(row, encoding, channel, f64::from(value));
}

/// Returns a pseudorandom number for a row (splitmix64).
fn scattered(row: u64) -> u64 {
    let mut x = row.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
