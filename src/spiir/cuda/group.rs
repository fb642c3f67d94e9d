//! Chooses the templates that share a warp, so that the shared-memory bank groups hold about equally many of a warp's
//! filters.
//!
//! Two templates swap positions if that evens out the bank groups of their warps. The pairs tried form a fixed
//! sequence, so the result depends on the filters alone.

use std::ops::Range;

/// Sweeps over all templates.
const SWEEPS: usize = 8;

/// Assignment of templates to positions; consecutive positions form a warp.
#[derive(Debug)]
pub(super) struct Groups<'a> {
    /// Filters of each template by bank group and pass.
    counts: &'a [Vec<i32>],
    /// Templates of a warp.
    each: usize,
    /// Template at each position.
    order: Vec<usize>,
    /// Filters of each warp by bank group and pass.
    sums: Vec<Vec<i32>>,
    random: u64,
}

impl<'a> Groups<'a> {
    /// Assigns the templates in the given order.
    pub(super) fn new(counts: &'a [Vec<i32>], each: usize) -> Self {
        let sum = |warp: &[Vec<i32>]| {
            let longest = warp.iter().map(Vec::len).max().unwrap_or(0);
            let add = |bank: usize| warp.iter().filter_map(|counts| counts.get(bank)).sum();
            (0..longest).map(add).collect()
        };
        let sums = counts.chunks(each).map(sum).collect();
        Self { counts, each, order: (0..counts.len()).collect(), sums, random: 1 }
    }

    /// Swaps templates within `places`; each sweep tries `partners` partners per template.
    pub(super) fn even(&mut self, places: Range<usize>, partners: usize) {
        if self.each == 1 || places.len() <= self.each {
            return;
        }
        for _ in 0..SWEEPS {
            let mut changed = false;
            for at in places.clone() {
                changed |= self.exchange(at, &places, partners);
            }
            if !changed {
                break;
            }
        }
    }

    /// Returns the template at each position.
    pub(super) fn order(self) -> Vec<usize> {
        self.order
    }

    /// Tries to swap one template with `partners` random others.
    fn exchange(&mut self, at: usize, places: &Range<usize>, partners: usize) -> bool {
        let mut changed = false;
        for _ in 0..partners {
            let other = places.start + self.random(places.len());
            let (a, b) = (at / self.each, other / self.each);
            if a != b && self.change(at, other) < 0 {
                self.swap(at, other);
                changed = true;
            }
        }
        changed
    }

    /// Returns half the change of the sum of squares over all warps and bank groups.
    fn change(&self, at: usize, other: usize) -> i64 {
        let (a, b) = (&self.sums[at / self.each], &self.sums[other / self.each]);
        let own = self.counts[self.order[at]].iter().zip(&self.counts[self.order[other]]);
        let change =
            |((x, y), (a, b)): ((&i32, &i32), (&i32, &i32))| i64::from((y - x) * (a - b + y - x));
        own.zip(a.iter().zip(b)).map(change).sum()
    }

    fn swap(&mut self, at: usize, other: usize) {
        let (x, y) = (&self.counts[self.order[at]], &self.counts[self.order[other]]);
        for (bank, (x, y)) in x.iter().zip(y).enumerate() {
            self.sums[at / self.each][bank] += y - x;
            self.sums[other / self.each][bank] += x - y;
        }
        self.order.swap(at, other);
    }

    fn random(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (((self.random >> 33) * below as u64) >> 31) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns templates of four filters in random bank groups.
    fn counts(templates: usize) -> Vec<Vec<i32>> {
        let mut random = Groups::new(&[], 1);
        let mut one = |_| {
            let mut counts = vec![0; 8];
            (0..4).for_each(|_| counts[random.random(8)] += 1);
            counts
        };
        (0..templates).map(&mut one).collect()
    }

    /// Counts the filters above the average over the bank groups of each warp.
    fn uneven(counts: &[Vec<i32>], order: &[usize]) -> i32 {
        let most = |warp: &[usize]| {
            let bank = |bank: usize| warp.iter().map(|at| counts[*at][bank]).sum::<i32>();
            (0..8).map(|at| (bank(at) - 4).max(0)).sum::<i32>()
        };
        order.chunks(8).map(most).sum()
    }

    #[test]
    fn banks_of_warps_become_even_and_other_places_stay() {
        let counts = counts(1024);
        let order = || {
            let mut groups = Groups::new(&counts, 8);
            groups.even(64..1000, 96);
            groups.order()
        };
        let found = order();
        assert_eq!(found, order());
        let as_it_was: Vec<usize> = (0..1024).collect();
        assert_eq!((&found[..64], &found[1000..]), (&as_it_was[..64], &as_it_was[1000..]));
        let mut each = found.clone();
        each.sort_unstable();
        assert_eq!(each, as_it_was);
        let (before, after) = (uneven(&counts, &as_it_was), uneven(&counts, &found));
        assert!(before > 600 && 4 * after < before, "{before} filters too many become {after}");
    }

    #[test]
    fn templates_that_fill_a_warp_or_ask_for_other_passes_stay() {
        let mut counts = counts(64);
        counts.iter_mut().skip(32).for_each(|counts| counts.extend([1; 8]));
        for each in [1, 64] {
            let mut groups = Groups::new(&counts, each);
            groups.even(0..64, 8);
            assert!(groups.order().into_iter().eq(0..64));
        }
        let mut groups = Groups::new(&counts, 8);
        groups.even(0..30, 8);
        groups.even(32..64, 8);
        let order = groups.order();
        assert!(order[..32].iter().all(|at| *at < 32) && order[30..32] == [30, 31]);
    }
}
