//! Packs filters into bundles: assigns each filter to a lane.

use num_complex::Complex64;

use super::super::plan::{Branch, Filter, Plan};
use super::kernel::{AHEAD, LONG, SHORT};
use super::vector::TILE;
use crate::error::Result;
use crate::state::{Saved, Saving};

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

    /// Builds a bundle. If there are fewer templates than slots, each template has several slots.
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
        to.f32s(states.iter());
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
