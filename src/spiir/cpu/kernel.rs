//! A bundle of templates over some tiles of time: filters in the lanes, their states in registers.
//!
//! A lane is a filter; a quad of lanes belongs to one template, a slot. A group of filters is one register; groups
//! are stepped two at a time, and what they add up to stays in the cache until the quads are summed.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::vector::{Portable, TILE, Vector};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::{Level, levels};

/// Slots of a bundle, at most.
pub(super) const SLOTS: usize = 4;

/// Registers of a group of ordinary filters: the state (re, im), the pole and the weight.
pub(super) const SHORT: usize = 6;

/// Registers of a group of filters with a long memory: the pole's 16th power in two parts, and the weights of the
/// inputs of a tile, too.
pub(super) const LONG: usize = SHORT + 4 + 2 * TILE;

/// Most tiles of a call.
pub(super) const TILES: usize = 4;

/// Floats of scratch memory that a call needs.
pub(super) const SCRATCH: usize = (TILES * TILE * 2 + 2 * TILE) * 16;

/// A bundle's work over some tiles.
#[derive(Debug)]
pub(super) struct Work {
    /// The first tile's first sample; all offsets reach back from it.
    pub(super) x: *const f32,
    pub(super) tiles: usize,
    /// Tiles after which the state is kept: all, or all but the last one, whose samples aren't all there.
    pub(super) complete: usize,
    /// Registers of each group, those with a long memory first.
    pub(super) values: *mut f32,
    /// One for each lane of each group.
    pub(super) offsets: *const u32,
    pub(super) long: usize,
    pub(super) groups: usize,
    pub(super) scratch: *mut f32,
    /// For each slot, the sums that are added to; null for a slot that nobody has.
    pub(super) rows: [*mut Complex<f32>; SLOTS],
}

levels!(filter, filter_body, (work: &Work));

/// # Safety
/// The instructions exist, and all pointers are valid: samples from the longest offset before `x` to the last
/// tile's end, registers and offsets of all groups, [`SCRATCH`] floats, and rows of all tiles.
#[inline(always)]
unsafe fn filter_body<V: Vector>(work: &Work) {
    // SAFETY: the caller's promise is handed on; groups are stepped through one after the other.
    unsafe {
        for at in 0..work.tiles * TILE * 2 {
            V::zero().store(work.scratch.add(at * V::LANES));
        }
        let mut groups = Groups { values: work.values, offsets: work.offsets };
        for _ in 0..work.long / 2 {
            groups.step::<V, 2, true>(work);
        }
        if work.long % 2 == 1 {
            groups.step::<V, 1, true>(work);
        }
        let short = work.groups - work.long;
        for _ in 0..short / 2 {
            groups.step::<V, 2, false>(work);
        }
        if short % 2 == 1 {
            groups.step::<V, 1, false>(work);
        }
        add_to_rows::<V>(work);
    }
}

/// The next groups.
struct Groups {
    values: *mut f32,
    offsets: *const u32,
}

impl Groups {
    /// Steps `N` groups through all tiles, adds up their states, and goes on to the next.
    ///
    /// Groups with a long memory gather a tile's inputs by themselves and add them to the state once a tile, so
    /// that it is rounded once in 16 samples.
    ///
    /// # Safety
    /// As for [`filter_body`].
    #[inline(always)]
    unsafe fn step<V: Vector, const N: usize, const L: bool>(&mut self, work: &Work) {
        let registers = if L { LONG } else { SHORT };
        let group = registers * V::LANES;
        let (values, offsets) = (self.values, self.offsets);
        let columns = work.scratch.wrapping_add(TILES * TILE * 2 * 16);
        // SAFETY: the caller's promise is handed on.
        unsafe {
            let [mut p, mut q, mut a_re, mut a_im, mut b_re, mut b_im] = [[V::zero(); N]; SHORT];
            for n in 0..N {
                let from = values.add(n * group);
                (p[n], q[n]) = (V::load(from), V::load(from.add(V::LANES)));
                a_re[n] = V::load(from.add(2 * V::LANES));
                a_im[n] = V::load(from.add(3 * V::LANES));
                b_re[n] = V::load(from.add(4 * V::LANES));
                b_im[n] = V::load(from.add(5 * V::LANES));
            }
            for tile in 0..work.tiles {
                if tile == work.complete {
                    keep(values, group, p, q);
                }
                for n in 0..N {
                    let to = columns.add(n * TILE * V::LANES);
                    V::delayed(work.x.add(tile * TILE), offsets.add(n * V::LANES), to);
                }
                let (first_p, first_q) = (p, q);
                let mut gathered = [[V::zero(); 2]; N];
                for sample in 0..TILE {
                    let last = L && sample == TILE - 1;
                    for n in 0..N {
                        let x = V::load(columns.add((n * TILE + sample) * V::LANES));
                        if L {
                            let at = n * group + (SHORT + 4 + 2 * sample) * V::LANES;
                            let (re, im) =
                                (V::load(values.add(at)), V::load(values.add(at + V::LANES)));
                            gathered[n][0] = re.mul_add(x, gathered[n][0]);
                            gathered[n][1] = im.mul_add(x, gathered[n][1]);
                        }
                        if !last {
                            let (old_p, old_q) = (p[n], q[n]);
                            let re = a_im[n].neg_mul_add(old_q, b_re[n].mul(x));
                            let im = a_im[n].mul_add(old_p, b_im[n].mul(x));
                            p[n] = a_re[n].mul_add(old_p, re);
                            q[n] = a_re[n].mul_add(old_q, im);
                        }
                    }
                    if last {
                        for n in 0..N {
                            let from = values.add(n * group + SHORT * V::LANES);
                            let coarse = [V::load(from), V::load(from.add(V::LANES))];
                            let from = from.add(2 * V::LANES);
                            let fine = [V::load(from), V::load(from.add(V::LANES))];
                            let state = [first_p[n], first_q[n]];
                            let sum = multiplied(fine, state, gathered[n]);
                            [p[n], q[n]] = multiplied(coarse, state, sum);
                        }
                    }
                    let to = work.scratch.add((tile * TILE + sample) * 2 * V::LANES);
                    let (mut re, mut im) = (p[0], q[0]);
                    for n in 1..N {
                        (re, im) = (re.add(p[n]), im.add(q[n]));
                    }
                    V::load(to).add(re).store(to);
                    V::load(to.add(V::LANES)).add(im).store(to.add(V::LANES));
                }
                for n in 0..N {
                    (p[n], q[n]) = (p[n].flush(), q[n].flush());
                }
            }
            if work.complete == work.tiles {
                keep(values, group, p, q);
            }
            self.values = values.add(N * group);
            self.offsets = offsets.add(N * V::LANES);
        }
    }
}

/// # Safety
/// The states' registers can be written.
#[inline(always)]
unsafe fn keep<V: Vector, const N: usize>(values: *mut f32, group: usize, p: [V; N], q: [V; N]) {
    for n in 0..N {
        // SAFETY: the caller's promise is handed on.
        unsafe {
            p[n].store(values.add(n * group));
            q[n].store(values.add(n * group + V::LANES));
        }
    }
}

/// `a y + addend`, complex.
///
/// # Safety
/// The instructions exist.
#[inline(always)]
unsafe fn multiplied<V: Vector>(a: [V; 2], y: [V; 2], addend: [V; 2]) -> [V; 2] {
    // SAFETY: the caller's promise is handed on.
    unsafe {
        let re = a[1].neg_mul_add(y[1], addend[0]);
        let im = a[1].mul_add(y[0], addend[1]);
        [a[0].mul_add(y[0], re), a[0].mul_add(y[1], im)]
    }
}

/// Sums the quads, and adds them to the rows.
///
/// # Safety
/// As for [`filter_body`].
#[inline(always)]
unsafe fn add_to_rows<V: Vector>(work: &Work) {
    // SAFETY: the caller's promise is handed on.
    unsafe {
        for four in 0..work.tiles * TILE / 4 {
            let mut parts = [[0f32; 16]; 2];
            for part in 0..2 {
                let mut rows = [V::zero(); 4];
                for s in 0..4 {
                    rows[s] = V::load(work.scratch.add(((four * 4 + s) * 2 + part) * V::LANES));
                }
                V::sum_quads(rows).store(parts[part].as_mut_ptr());
            }
            for (slot, row) in work.rows.iter().take(V::LANES / 4).enumerate() {
                if row.is_null() {
                    continue;
                }
                let row = row.add(four * 4);
                for s in 0..4 {
                    let at = slot * 4 + s;
                    *row.add(s) += Complex::new(parts[0][at], parts[1][at]);
                }
            }
        }
    }
}
