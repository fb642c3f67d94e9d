//! Median of each bin over many segments, in memory that does not grow with their number.
//!
//! A few segments are held in memory. For many segments, values are compared as integers of the same order. A pass
//! over all segments counts the values in each part of the interval that holds a bin's median, which selects one
//! part. When few values remain, a last pass collects them.
//!
//! Invariant: the medians are those of all numbers sorted, bit for bit, whatever the memory.

use crate::error::Result;
use crate::view::check_memory;

/// Segments held regardless of the memory limit; the transforms of a segment take as much.
const FEW: usize = 16;

/// Calls its argument with the values of each segment, one slice of all bins per segment; returns the number of
/// segments.
pub(super) type Pass<'a> = dyn FnMut(&mut dyn FnMut(&[f64])) -> Result<usize> + 'a;

/// Returns the median of each of `bins` bins over at most `most` segments, and the number of segments. `bytes` limits
/// the memory of held segments, counts or collected values.
///
/// # Errors
/// Those of `pass`; [`crate::Error::Unavailable`] without memory.
pub(super) fn of_each(
    pass: &mut Pass<'_>,
    bins: usize,
    most: u64,
    bytes: usize,
) -> Result<(Vec<f64>, usize)> {
    let room = (bytes / 8 / bins).max(FEW);
    if most <= room as u64 {
        return held(pass, (bins, most as usize));
    }
    let buckets = 1_usize << (bytes / 4 / bins).clamp(16, 4096).ilog2();
    check_memory("the counts of all segments' spectra", bins.checked_mul(buckets * 4))?;
    let mut brackets = vec![Bracket::all(); bins];
    let mut segments;
    loop {
        let mut counts = vec![0_u32; bins * buckets];
        segments = pass(&mut |row| {
            let rows = counts.chunks_exact_mut(buckets);
            for ((value, bracket), counts) in row.iter().zip(&brackets).zip(rows) {
                if let Some(place) = bracket.place(key(*value)) {
                    counts[(place >> bracket.shift(buckets)) as usize] += 1;
                }
            }
        })?;
        for (bracket, counts) in brackets.iter_mut().zip(counts.chunks_exact(buckets)) {
            bracket.narrow(counts, segments / 2, buckets);
        }
        if brackets.iter().all(|bracket| bracket.inside <= room || bracket.bits == 0) {
            break;
        }
    }
    let mut rows: Vec<Collected> = vec![Collected::default(); bins];
    pass(&mut |row| {
        for ((value, bracket), collected) in row.iter().zip(&brackets).zip(&mut rows) {
            let key = key(*value);
            match bracket.place(key) {
                // All values in the bracket are equal and need no memory.
                Some(_) if bracket.bits == 0 => {}
                Some(_) => collected.inside.push(key),
                None if key < bracket.low => collected.below = collected.below.max(key),
                None => {}
            }
        }
    })?;
    let medians = brackets.iter().zip(rows);
    let medians = medians.map(|(bracket, collected)| collected.median(bracket, segments));
    Ok((medians.collect(), segments))
}

/// Computes the medians of segments held in memory.
fn held(pass: &mut Pass<'_>, (bins, most): (usize, usize)) -> Result<(Vec<f64>, usize)> {
    let numbers = bins.checked_mul(most);
    check_memory("the spectra of all segments", numbers.and_then(|n| n.checked_mul(8)))?;
    // Axes: segment, bin.
    let mut all = Vec::with_capacity(bins * most);
    let segments = pass(&mut |row| all.extend_from_slice(row))?;
    let mut column = vec![0.0; segments];
    let medians = (0..bins).map(|bin| {
        let values = all[bin..].iter().step_by(bins);
        column.iter_mut().zip(values).for_each(|(to, value)| *to = *value);
        median(&mut column)
    });
    Ok((medians.collect(), segments))
}

/// Returns the median; for an even number of values the mean of the middle two.
fn median(values: &mut [f64]) -> f64 {
    let half = values.len() / 2;
    let is_even = values.len().is_multiple_of(2);
    let (below, middle, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    let middle = *middle;
    if !is_even {
        return middle;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    0.5 * (lower + middle)
}

/// Returns an integer key in the order of `f64::total_cmp`.
fn key(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// Returns the value of a key.
fn value(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key })
}

/// Keys `low .. low + 2^bits`, which include a median.
#[derive(Clone, Copy)]
struct Bracket {
    low: u64,
    bits: u32,
    /// Number of values below and inside the bracket.
    below: usize,
    inside: usize,
}

impl Bracket {
    fn all() -> Self {
        Self { low: 0, bits: 64, below: 0, inside: usize::MAX }
    }

    /// Returns a key's offset in the bracket.
    fn place(&self, key: u64) -> Option<u64> {
        let place = key.checked_sub(self.low)?;
        (place.checked_shr(self.bits).unwrap_or(0) == 0).then_some(place)
    }

    /// Returns the bits of an offset within its bucket.
    fn shift(&self, buckets: usize) -> u32 {
        self.bits.saturating_sub(buckets.ilog2())
    }

    /// Narrows the bracket to the bucket that holds the value of this rank.
    fn narrow(&mut self, counts: &[u32], rank: usize, buckets: usize) {
        let shift = self.shift(buckets);
        let mut below = self.below;
        for (bucket, count) in (0_u64..).zip(counts) {
            let count = *count as usize;
            if rank < below + count {
                self.low += bucket << shift;
                (self.bits, self.below, self.inside) = (shift, below, count);
                return;
            }
            below += count;
        }
    }
}

/// Values of a bin that the last pass collects.
#[derive(Clone, Default)]
struct Collected {
    /// Greatest key below the bracket.
    below: u64,
    /// All keys in the bracket, unless they are equal.
    inside: Vec<u64>,
}

impl Collected {
    fn median(mut self, bracket: &Bracket, segments: usize) -> f64 {
        let rank = segments / 2 - bracket.below;
        self.inside.sort_unstable();
        let at = |rank: usize| self.inside.get(rank).copied().unwrap_or(bracket.low);
        let middle = value(at(rank));
        if !segments.is_multiple_of(2) {
            return middle;
        }
        let lower = if rank == 0 { value(self.below) } else { value(at(rank - 1)) };
        0.5 * (lower + middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns values over many orders of magnitude, some of them equal.
    fn numbers(segments: usize, bins: usize) -> Vec<Vec<f64>> {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut number = |bin: usize| match bin % 4 {
            0 => -(next().max(1e-9)).ln(),
            1 => (next() * 8.0).floor(),
            2 => 10_f64.powf(80.0 * next() - 60.0),
            _ => 1e-46 * (1.0 + 1e-9 * next()),
        };
        (0..segments).map(|_| (0..bins).map(&mut number).collect()).collect()
    }

    #[test]
    fn medians_are_the_same_bits_whatever_the_memory() {
        for segments in [40, 41, 3000] {
            let rows = numbers(segments, 8);
            let mut passes = 0;
            let mut pass = |take: &mut dyn FnMut(&[f64])| {
                passes += 1;
                rows.iter().for_each(|row| take(row));
                Ok(segments)
            };
            let whole = of_each(&mut pass, 8, segments as u64, 1 << 20).expect("held");
            for bytes in [1, 2000, 20_000] {
                let found = of_each(&mut pass, 8, segments as u64, bytes).expect("counted");
                let bits = |(medians, count): &(Vec<f64>, usize)| {
                    (medians.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), *count)
                };
                assert_eq!(bits(&found), bits(&whole), "{segments} segments, {bytes} bytes");
            }
            assert!(passes > 4 && passes < 70, "{passes}");
        }
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0, 10.0]), 2.5);
    }
}
