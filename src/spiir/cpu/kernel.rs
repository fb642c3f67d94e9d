//! Bundles of templates, with filters in lanes, and the kernel that runs one over a range of tiles with its states in
//! registers.
//!
//! A lane is a filter. A quad of lanes, called a slot, belongs to one template. A group of filters fills one
//! register. Groups are processed two at a time, and their sums stay in the cache until the quads are summed.
#![allow(unsafe_code)]

use num_complex::{Complex, Complex64};

use super::super::plan::{Branch, Filter, Plan};
use super::quads::{PARTS, Quads, TILE};
use crate::backend::vector::{levels, prefetch};
use crate::error::Result;
use crate::state::{Saved, Saving};

/// Most slots of a bundle.
pub(super) const SLOTS: usize = 4;

/// Registers of a group of short-memory filters: the state (re, im), the pole and the weight.
const SHORT: usize = 6;

/// Registers of a group of long-memory filters: also the pole's 16th power in two parts, and the weights of a tile's
/// inputs.
const LONG: usize = SHORT + 4 + 2 * TILE;

/// Groups whose inputs are transposed ahead.
const AHEAD: usize = 2;

/// Most tiles of a call.
pub(super) const TILES: usize = 8;

/// Floats of scratch memory that a call needs.
pub(super) const SCRATCH: usize = (TILES + 2) * TILE * 2 * 16;

/// Arguments of the kernel: a bundle and a range of tiles.
#[derive(Debug)]
pub(super) struct Work {
    /// First sample of the first tile; all offsets reach back from it.
    pub(super) x: *const f32,
    pub(super) tiles: usize,
    /// Number of tiles after which the state is saved: all, or all but an incomplete last tile.
    pub(super) complete: usize,
    /// Registers of each group, those with a long memory first.
    pub(super) values: *mut f32,
    /// Offsets of each lane of each group, and of [`AHEAD`] more groups.
    pub(super) offsets: *const u32,
    /// Number of long-memory groups: even, unless it equals `groups`.
    pub(super) long: usize,
    pub(super) groups: usize,
    pub(super) scratch: *mut f32,
    /// Sums to add to, for each slot; null for an unused slot.
    pub(super) rows: [*mut Complex<f32>; SLOTS],
}

levels!(filter, filter_body, (work: &Work));

/// # Safety
/// The instructions must be available, and all pointers valid: samples from the longest offset before `x` to the last
/// tile's end, registers and offsets of all groups, [`SCRATCH`] floats, and rows of all tiles.
#[inline(always)]
unsafe fn filter_body<V: Quads>(work: &Work) {
    // SAFETY: upheld by the caller; groups are processed in sequence.
    unsafe {
        for at in 0..work.tiles * TILE * 2 {
            V::splat(0.0).store(work.scratch.add(at * V::LANES));
        }
        let columns = work.scratch.add(TILES * TILE * 2 * 16);
        let mut groups = Groups {
            values: work.values,
            offsets: work.offsets,
            columns: [columns, columns.add(2 * TILE * 16)],
        };
        groups.begin::<V>(work);
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

/// Position in the sequence of groups.
struct Groups {
    values: *mut f32,
    offsets: *const u32,
    /// Inputs of the lanes for this tile and for the next.
    columns: [*mut f32; 2],
}

impl Groups {
    /// Transposes the first tile of the first two groups.
    ///
    /// # Safety
    /// As for [`filter_body`].
    #[inline(always)]
    unsafe fn begin<V: Quads>(&mut self, work: &Work) {
        // SAFETY: upheld by the caller.
        unsafe {
            for n in 0..work.groups.min(2) {
                let mut turned = V::no_turned();
                let (offsets, to) =
                    (self.offsets.add(n * V::LANES), self.columns[0].add(n * TILE * V::LANES));
                for part in 0..PARTS {
                    V::turn(part, &mut turned, work.x, offsets, to);
                }
            }
        }
    }

    /// Runs `N` groups through all tiles, accumulates their outputs, and advances to the next groups.
    ///
    /// Long-memory groups accumulate the response to a tile's inputs separately and add it to the state once per
    /// tile, so that the state is rounded once in 16 samples.
    ///
    /// # Safety
    /// As for [`filter_body`].
    #[inline(always)]
    unsafe fn step<V: Quads, const N: usize, const L: bool>(&mut self, work: &Work) {
        let registers = if L { LONG } else { SHORT };
        let group = registers * V::LANES;
        let (values, offsets) = (self.values, self.offsets);
        // SAFETY: upheld by the caller.
        unsafe {
            let [mut p, mut q, mut a_re, mut a_im, mut b_re, mut b_im] =
                [[V::splat(0.0); N]; SHORT];
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
                let mut tile = Tile::<V, N> {
                    p,
                    q,
                    a_re,
                    a_im,
                    b_re,
                    b_im,
                    first: [p, q],
                    gathered: [[V::splat(0.0); 2]; N],
                    turned: V::no_turned(),
                    columns: self.columns,
                    next_x: if tile + 1 < work.tiles {
                        work.x.add((tile + 1) * TILE)
                    } else {
                        work.x
                    },
                    next_offsets: if tile + 1 < work.tiles {
                        offsets
                    } else {
                        offsets.add(N * V::LANES)
                    },
                    ahead_x: work.x.add(tile * TILE),
                    ahead_offsets: offsets.add(N * V::LANES),
                    values,
                    sums: work.scratch.add(tile * TILE * 2 * V::LANES),
                };
                tile.sample::<0, L>();
                tile.sample::<1, L>();
                tile.sample::<2, L>();
                tile.sample::<3, L>();
                tile.sample::<4, L>();
                tile.sample::<5, L>();
                tile.sample::<6, L>();
                tile.sample::<7, L>();
                tile.sample::<8, L>();
                tile.sample::<9, L>();
                tile.sample::<10, L>();
                tile.sample::<11, L>();
                tile.sample::<12, L>();
                tile.sample::<13, L>();
                tile.sample::<14, L>();
                tile.sample::<15, L>();
                (p, q) = (tile.p, tile.q);
                self.columns = [self.columns[1], self.columns[0]];
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

/// State of `N` groups within one tile.
struct Tile<V: Quads, const N: usize> {
    p: [V; N],
    q: [V; N],
    a_re: [V; N],
    a_im: [V; N],
    b_re: [V; N],
    b_im: [V; N],
    first: [[V; N]; 2],
    gathered: [[V; 2]; N],
    turned: V::Turned,
    columns: [*mut f32; 2],
    next_x: *const f32,
    next_offsets: *const u32,
    /// This tile's inputs for the next groups, to prefetch.
    ahead_x: *const f32,
    ahead_offsets: *const u32,
    values: *const f32,
    sums: *mut f32,
}

impl<V: Quads, const N: usize> Tile<V, N> {
    /// Advances all groups by sample `S` and transposes a part of the next tile: the shuffles overlap with
    /// arithmetic.
    ///
    /// # Safety
    /// As for [`filter_body`]; samples must be processed in order.
    #[inline(always)]
    unsafe fn sample<const S: usize, const L: bool>(&mut self) {
        let group = if L { LONG } else { SHORT } * V::LANES;
        // SAFETY: upheld by the caller.
        unsafe {
            if N == 2 || S.is_multiple_of(2) {
                let part = if N == 2 { S % PARTS } else { S / 2 };
                let n = if N == 2 { S / PARTS } else { 0 };
                let to = self.columns[1].add(n * TILE * V::LANES);
                V::turn(
                    part,
                    &mut self.turned,
                    self.next_x,
                    self.next_offsets.add(n * V::LANES),
                    to,
                );
            }
            let last = L && S == TILE - 1;
            for n in 0..N {
                if S < V::LANES {
                    let offset = *self.ahead_offsets.add(n * V::LANES + S);
                    prefetch(self.ahead_x.wrapping_sub(offset as usize));
                }
                let x = V::load(self.columns[0].add((n * TILE + S) * V::LANES));
                let values = self.values.add(n * group + SHORT * V::LANES);
                if L {
                    let from = values.add((4 + 2 * S) * V::LANES);
                    let (re, im) = (V::load(from), V::load(from.add(V::LANES)));
                    self.gathered[n][0] = re.mul_add(x, self.gathered[n][0]);
                    self.gathered[n][1] = im.mul_add(x, self.gathered[n][1]);
                }
                if last {
                    let coarse = [V::load(values), V::load(values.add(V::LANES))];
                    let from = values.add(2 * V::LANES);
                    let fine = [V::load(from), V::load(from.add(V::LANES))];
                    let state = [self.first[0][n], self.first[1][n]];
                    let sum = multiplied(fine, state, self.gathered[n]);
                    [self.p[n], self.q[n]] = multiplied(coarse, state, sum);
                } else {
                    let inputs = [self.b_re[n].mul(x), self.b_im[n].mul(x)];
                    let (a, y) = ([self.a_re[n], self.a_im[n]], [self.p[n], self.q[n]]);
                    [self.p[n], self.q[n]] = multiplied(a, y, inputs);
                }
            }
            let to = self.sums.add(S * 2 * V::LANES);
            let (mut re, mut im) = (self.p[0], self.q[0]);
            for n in 1..N {
                (re, im) = (re.add(self.p[n]), im.add(self.q[n]));
            }
            V::load(to).add(re).store(to);
            V::load(to.add(V::LANES)).add(im).store(to.add(V::LANES));
        }
    }
}

/// # Safety
/// The states' registers must be writable.
#[inline(always)]
unsafe fn keep<V: Quads, const N: usize>(values: *mut f32, group: usize, p: [V; N], q: [V; N]) {
    for n in 0..N {
        // SAFETY: upheld by the caller.
        unsafe {
            p[n].store(values.add(n * group));
            q[n].store(values.add(n * group + V::LANES));
        }
    }
}

/// Returns `a y + addend`, complex.
///
/// # Safety
/// The instructions must be available.
#[inline(always)]
unsafe fn multiplied<V: Quads>(a: [V; 2], y: [V; 2], addend: [V; 2]) -> [V; 2] {
    // SAFETY: upheld by the caller.
    unsafe {
        let re = a[1].neg_mul_add(y[1], addend[0]);
        let im = a[1].mul_add(y[0], addend[1]);
        [a[0].mul_add(y[0], re), a[0].mul_add(y[1], im)]
    }
}

/// Sums the quads and adds them to the rows.
///
/// # Safety
/// As for [`filter_body`].
#[inline(always)]
unsafe fn add_to_rows<V: Quads>(work: &Work) {
    // SAFETY: upheld by the caller.
    unsafe {
        for four in 0..work.tiles * TILE / 4 {
            let mut parts = [[0f32; 16]; 2];
            for (part, sums) in parts.iter_mut().enumerate() {
                let mut rows = [V::splat(0.0); 4];
                for (s, row) in rows.iter_mut().enumerate() {
                    *row = V::load(work.scratch.add(((four * 4 + s) * 2 + part) * V::LANES));
                }
                V::sum_quads(rows).store(sums.as_mut_ptr());
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

/// Memory in samples above which rounding the state once per sample would show.
const LONG_MEMORY: f64 = 5000.0;

/// Marks an unused slot.
pub(super) const UNUSED: usize = usize::MAX;

/// 16 floats, aligned to a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [f32; 16]);

/// Filters of as many templates as a register has quads, processed together.
#[derive(Debug)]
pub(super) struct Bundle {
    /// Template of each slot, as an index within the unit.
    pub(super) slots: Vec<usize>,
    /// Number of groups with a long memory, and of all groups.
    pub(super) long: usize,
    pub(super) groups: usize,
    /// Registers of each group.
    values: Vec<Line>,
    /// Samples that each lane of each group reaches back; zeros for the groups transposed ahead.
    offsets: Vec<u32>,
    lanes: usize,
}

impl Bundle {
    /// Packs one level's branches; `branches` holds templates as indices within the unit.
    pub(super) fn all(plan: &Plan, lanes: usize, branches: &[(usize, &Branch)]) -> Vec<Self> {
        let mut order: Vec<_> = branches.to_vec();
        order.sort_by_key(|(_, branch)| std::cmp::Reverse(branch.filters.len()));
        let slots = lanes / 4;
        order.chunks(slots).map(|some| Self::new(plan, lanes, some)).collect()
    }

    /// Builds a bundle. With at most half as many templates as slots, each template has several slots.
    fn new(plan: &Plan, lanes: usize, templates: &[(usize, &Branch)]) -> Self {
        let slots = lanes / 4;
        let share = slots / templates.len();
        let hands: Vec<Vec<Filter>> = (0..slots)
            .map(|slot| {
                templates.get(slot / share).map_or(Vec::new(), |t| hand(t.1, slot % share, share))
            })
            .collect();
        let owner = |slot: usize| templates.get(slot / share).map_or(UNUSED, |t| t.0);
        let level = templates[0].1.halvings as usize;
        let groups = hands.iter().map(|hand| hand.len().div_ceil(4)).max().unwrap_or(0);
        let lane = |group: usize, lane: usize| hands[lane / 4].get(group * 4 + lane % 4);
        let is_long =
            |group: &usize| (0..lanes).any(|l| lane(*group, l).is_some_and(has_long_memory));
        // Groups are processed in pairs of one kind.
        let long = (0..groups).take_while(is_long).count().next_multiple_of(2).min(groups);
        let mut bundle = Self {
            slots: (0..slots).map(owner).collect(),
            long,
            groups,
            values: Vec::new(),
            offsets: vec![0; (groups + AHEAD) * lanes],
            lanes,
        };
        let floats = bundle.registers() * lanes;
        bundle.values = vec![Line([0.0; 16]); floats.div_ceil(16)];
        for group in 0..groups {
            for l in 0..lanes {
                if let Some(filter) = lane(group, l) {
                    let offset = filter.delay as usize + plan.alignment(level);
                    bundle.offsets[group * lanes + l] = offset as u32;
                    bundle.set(group, l, filter);
                }
            }
        }
        bundle
    }

    fn registers(&self) -> usize {
        self.long * LONG + (self.groups - self.long) * SHORT
    }

    /// Returns the first register of a group.
    fn register(&self, group: usize) -> usize {
        group.min(self.long) * LONG + group.saturating_sub(self.long) * SHORT
    }

    fn set(&mut self, group: usize, lane: usize, filter: &Filter) {
        let (a, b) = (filter.pole(), filter.weight());
        let mut values = vec![0.0, 0.0, a.re, a.im, b.re, b.im];
        if group < self.long {
            let power = a.powu(TILE as u32);
            let coarse = Complex64::new((power.re as f32).into(), (power.im as f32).into());
            let fine = power - coarse;
            values.extend([coarse.re, coarse.im, fine.re, fine.im]);
            let weights = (0..TILE).map(|sample| b * a.powu((TILE - 1 - sample) as u32));
            values.extend(weights.flat_map(|weight| [weight.re, weight.im]));
        }
        let first = self.register(group);
        for (register, value) in values.into_iter().enumerate() {
            let at = (first + register) * self.lanes + lane;
            self.values[at / 16].0[at % 16] = value as f32;
        }
    }

    /// Sets all states to 0.
    pub(super) fn reset(&mut self) {
        for at in 0..self.states() {
            let place = self.state(at);
            self.values[place / 16].0[place % 16] = 0.0;
        }
    }

    /// Returns the number of states.
    fn states(&self) -> usize {
        self.groups * 2 * self.lanes
    }

    /// Returns the index of a state among the values.
    fn state(&self, at: usize) -> usize {
        let (group, within) = (at / (2 * self.lanes), at % (2 * self.lanes));
        self.register(group) * self.lanes + within
    }

    pub(super) fn save(&self, to: &mut Saving) {
        let states: Vec<f32> = (0..self.states())
            .map(|at| self.state(at))
            .map(|at| self.values[at / 16].0[at % 16])
            .collect();
        to.number(states.len() as u64);
        to.more_f32s(&states);
    }

    pub(super) fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        let mut states = vec![0.0; self.states()];
        from.fill_f32(&mut states)?;
        for (index, state) in states.into_iter().enumerate() {
            let at = self.state(index);
            self.values[at / 16].0[at % 16] = state;
        }
        Ok(())
    }

    pub(super) fn pointers(&mut self) -> (*mut f32, *const u32) {
        (self.values.as_mut_ptr().cast(), self.offsets.as_ptr())
    }

    /// Returns an upper estimate of the bytes of a plan's bundles.
    pub(super) fn bytes(plan: &Plan, lanes: usize) -> usize {
        let groups = plan.filters() / 4 + 2 * plan.templates() * plan.levels();
        groups.saturating_mul(LONG * 4 + 16).saturating_mul(4).saturating_mul(lanes.min(4))
    }
}

fn has_long_memory(filter: &Filter) -> bool {
    1.0 - filter.pole().norm() < 1.0 / LONG_MEMORY
}

/// Returns every `share`th run of four filters of a branch from run `part` on, longest memories first.
fn hand(branch: &Branch, part: usize, share: usize) -> Vec<Filter> {
    let mut filters = branch.filters.clone();
    filters.sort_by(|x, y| y.pole().norm_sqr().total_cmp(&x.pole().norm_sqr()));
    let fours = filters.chunks(4).skip(part).step_by(share);
    fours.flatten().copied().collect()
}
