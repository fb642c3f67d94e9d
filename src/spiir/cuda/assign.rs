//! Assignment of templates to warps and of filters to lanes, so that a load reads different bank groups of shared
//! memory.

use std::ops::Range;

/// Position of a filter's input in the window's copies, in samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowOffset(pub(super) u32);

impl WindowOffset {
    /// Position of an input that begins `offset` samples after the window's start. The copy shifted by `offset % 4`
    /// has it at a multiple of 4.
    pub(super) fn new(offset: usize, pitch: usize) -> Self {
        Self((offset % 4 * pitch + offset / 4 * 4) as u32)
    }

    pub(super) fn bank(self) -> usize {
        self.0 as usize / 4 % BANK_GROUPS
    }
}

/// Filter slot: the `filter`th filter of lane `lane`, with the template and index of the filter it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) filter: usize,
    pub(super) lane: usize,
    pub(super) place: WindowOffset,
    pub(super) of: Option<(usize, usize)>,
}

/// Filters of a warp's templates during assignment.
#[derive(Debug)]
pub(super) struct Warp<'a> {
    filters: usize,
    lanes: usize,
    places: &'a [Vec<WindowOffset>],
    /// Unassigned filters of each template by bank group.
    left: Vec<[Vec<usize>; BANK_GROUPS]>,
    /// Slots of each template that remain empty.
    idle: Vec<usize>,
    slots: Vec<Slot>,
}

impl<'a> Warp<'a> {
    /// Starts with `places`: the positions of each template's filters, at most `filters * lanes`.
    pub(super) fn new(filters: usize, lanes: usize, places: &'a [Vec<WindowOffset>]) -> Self {
        let of = |places: &Vec<WindowOffset>| {
            let mut banks: [Vec<usize>; BANK_GROUPS] = Default::default();
            places.iter().enumerate().for_each(|(index, place)| banks[place.bank()].push(index));
            banks
        };
        let left = places.iter().map(of).collect();
        let idle = places.iter().map(|places| filters * lanes - places.len()).collect();
        Self { filters, lanes, places, left, idle, slots: Vec::new() }
    }

    /// Returns every slot of the warp, including empty ones.
    pub(super) fn assign(mut self) -> Vec<Slot> {
        for filter in 0..self.filters {
            for part in 0..4 {
                let taken = self.next();
                self.give(filter, part * self.lanes / 4, &taken);
            }
        }
        self.slots
    }

    /// Returns the filters that the next eight lanes take.
    fn next(&self) -> Counts {
        let (mut left, mut needed) = ([[0; BANK_GROUPS]; TEMPLATES], [0; TEMPLATES]);
        for (template, banks) in self.left.iter().enumerate() {
            left[template] = banks.each_ref().map(Vec::len);
            needed[template] = (self.lanes / 4).saturating_sub(self.idle[template]);
        }
        matching(&left, &needed, self.lanes / 4)
    }

    /// Assigns these filters to eight lanes. Empty slots read the position of another lane, which adds no conflict.
    fn give(&mut self, filter: usize, first: usize, taken: &Counts) {
        let begin = self.slots.len();
        for (template, taken) in taken.iter().enumerate().take(self.places.len()) {
            let of_bank = |bank: usize| std::iter::repeat_n(bank, taken[bank]);
            let mut banks = (0..BANK_GROUPS).flat_map(of_bank);
            for part in first..first + self.lanes / 4 {
                let lane = template + 32 / self.lanes * part;
                let index = banks.next().and_then(|bank| self.left[template][bank].pop());
                let of = index.map(|index| (template, index));
                let place = index.map_or(WindowOffset(0), |index| self.places[template][index]);
                self.idle[template] -= usize::from(index.is_none());
                self.slots.push(Slot { filter, lane, place, of });
            }
        }
        let octet = &mut self.slots[begin..];
        let shared = octet.iter().find(|slot| slot.of.is_some()).map(|slot| slot.place);
        let idle = octet.iter_mut().filter(|slot| slot.of.is_none());
        idle.for_each(|slot| slot.place = shared.unwrap_or(WindowOffset(0)));
    }
}

/// Bank groups of shared memory, 16 bytes each.
pub(super) const BANK_GROUPS: usize = 8;
/// Most templates of a warp.
const TEMPLATES: usize = 8;

/// Filters of each template in each bank group.
type Counts = [[usize; BANK_GROUPS]; TEMPLATES];

/// Matching under construction for eight lanes.
#[derive(Debug)]
struct Matching<'a> {
    /// Remaining filters, and the fewest and most lanes to fill per template.
    left: &'a Counts,
    needed: &'a [usize; TEMPLATES],
    each: usize,
    /// Most filters of a bank group.
    most: usize,
    taken: Counts,
    of_template: [usize; TEMPLATES],
    of_bank: [usize; BANK_GROUPS],
}

/// Returns the filters that the next eight lanes take: at least `needed` and at most `each` of each template.
fn matching(left: &Counts, needed: &[usize; TEMPLATES], each: usize) -> Counts {
    let (taken, of_template) = ([[0; BANK_GROUPS]; TEMPLATES], [0; TEMPLATES]);
    let mut matching =
        Matching { left, needed, each, most: 1, taken, of_template, of_bank: [0; BANK_GROUPS] };
    while !matching.fill() {
        matching.most += 1;
    }
    matching.taken
}

impl Matching<'_> {
    /// Extends the matching with at most `most` filters per bank group, fullest bank groups first. Returns whether
    /// every template has its needed lanes.
    fn fill(&mut self) -> bool {
        let mut banks: Vec<(usize, usize)> = (0..BANK_GROUPS)
            .map(|bank| (self.left.iter().map(|left| left[bank]).sum::<usize>(), bank))
            .collect();
        banks.sort_unstable_by(|a, b| b.cmp(a));
        for (left, bank) in banks {
            if self.of_bank[bank] < left.min(self.most) && self.add_of_bank(bank, &mut 0) {
                self.of_bank[bank] += 1;
            }
        }
        (0..TEMPLATES).all(|template| {
            while self.of_template[template] < self.needed[template] {
                if !self.add_of_template(template, &mut 0) {
                    return false;
                }
                self.of_template[template] += 1;
            }
            true
        })
    }

    fn has(&self, template: usize, bank: usize) -> bool {
        self.taken[template][bank] < self.left[template][bank]
    }

    /// Takes one more filter of a bank group along an augmenting path; `seen` marks the bank groups on the path.
    fn add_of_bank(&mut self, bank: usize, seen: &mut u32) -> bool {
        *seen |= 1 << bank;
        let open = |template: &usize| self.of_template[*template] < self.each;
        let has = |template: &usize| self.has(*template, bank);
        let free = (0..TEMPLATES).filter(open).filter(has);
        if let Some(template) = free.max_by_key(|template| self.left[*template][bank]) {
            self.taken[template][bank] += 1;
            self.of_template[template] += 1;
            return true;
        }
        for template in 0..TEMPLATES {
            if !self.has(template, bank) {
                continue;
            }
            for other in 0..BANK_GROUPS {
                if self.taken[template][other] == 0 || *seen >> other & 1 == 1 {
                    continue;
                }
                if self.add_of_bank(other, seen) {
                    self.taken[template][other] -= 1;
                    self.taken[template][bank] += 1;
                    return true;
                }
            }
        }
        false
    }

    /// Takes one more filter of a template in the same way; a template that has more than it needs may release one.
    fn add_of_template(&mut self, template: usize, seen: &mut u32) -> bool {
        *seen |= 1 << template;
        for bank in 0..BANK_GROUPS {
            if !self.has(template, bank) {
                continue;
            }
            if self.of_bank[bank] < self.most {
                self.of_bank[bank] += 1;
                self.taken[template][bank] += 1;
                return true;
            }
            for other in 0..TEMPLATES {
                if self.taken[other][bank] == 0 || *seen >> other & 1 == 1 {
                    continue;
                }
                let spare = self.of_template[other] > self.needed[other];
                self.of_template[other] -= usize::from(spare);
                if spare || self.add_of_template(other, seen) {
                    self.taken[other][bank] -= 1;
                    self.taken[template][bank] += 1;
                    return true;
                }
            }
        }
        false
    }
}

/// Largest number of sweeps over all templates.
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

    /// Evens out the bank groups of the warps by swapping templates within `places`; each sweep tries `partners`
    /// partners per template.
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

    /// Pseudorandom numbers below `below`.
    struct Random(u64);

    impl Random {
        fn below(&mut self, below: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((self.0 >> 33) as usize * below) >> 31
        }
    }

    /// Returns the wavefronts of all loads, after checking that each filter is assigned to one thread of its
    /// template.
    fn wavefronts(filters: usize, lanes: usize, places: &[Vec<WindowOffset>]) -> usize {
        let slots = Warp::new(filters, lanes, places).assign();
        let templates = 32 / lanes;
        let mut seen: Vec<Vec<bool>> = places.iter().map(|p| vec![false; p.len()]).collect();
        for slot in &slots {
            let Some((template, index)) = slot.of else { continue };
            assert_eq!(slot.lane % templates, template);
            assert_eq!(slot.place, places[template][index]);
            assert!(!std::mem::replace(&mut seen[template][index], true));
        }
        assert!(seen.iter().flatten().all(|seen| *seen));
        let mut all: Vec<&Slot> = slots.iter().collect();
        all.sort_unstable_by_key(|slot| (slot.filter, slot.lane));
        assert!(
            all.iter()
                .map(|slot| (slot.filter, slot.lane))
                .eq((0..filters * 32).map(|at| (at / 32, at % 32)))
        );
        let wavefronts = |octet: &[&Slot]| {
            let of = |bank: usize| {
                let mut places: Vec<u32> = octet.iter().map(|slot| slot.place.0).collect();
                places.retain(|place| *place as usize / 4 % BANK_GROUPS == bank);
                places.sort_unstable();
                places.dedup();
                places.len()
            };
            (0..BANK_GROUPS).map(of).max().unwrap_or(0)
        };
        all.chunks(8).map(wavefronts).sum()
    }

    #[test]
    fn no_bank_is_asked_twice_at_once_where_none_has_too_many() {
        let mut random = Random(5);
        for (filters, lanes) in [(1, 4), (1, 8), (2, 16), (2, 32), (4, 8), (16, 8), (16, 4)] {
            for left_out in [0, 3, 16 * filters] {
                // Equally many filters of each bank group, dealt to random templates, with some removed.
                let mut deck: Vec<WindowOffset> = (0..filters * 32)
                    .map(|at| WindowOffset((4 * (at % BANK_GROUPS) + 32 * at) as u32))
                    .collect();
                (1..deck.len()).rev().for_each(|at| deck.swap(at, random.below(at + 1)));
                let mut places: Vec<Vec<WindowOffset>> =
                    deck.chunks(filters * lanes).map(<[WindowOffset]>::to_vec).collect();
                for _ in 0..left_out {
                    let template = random.below(places.len());
                    places[template].pop();
                }
                let found = wavefronts(filters, lanes, &places);
                assert_eq!(found, 4 * filters, "{filters} filters, {lanes} lanes, less {left_out}");
            }
        }
    }

    #[test]
    fn hardly_more_turns_are_taken_than_the_fullest_and_the_emptiest_bank_ask_for() {
        let mut random = Random(9);
        for (filters, lanes) in [(1, 4), (1, 8), (4, 8), (16, 16), (2, 32), (16, 4)] {
            for _ in 0..20 {
                let mut place = |_| WindowOffset(4 * random.below(2000) as u32);
                let places: Vec<Vec<WindowOffset>> = (0..32 / lanes)
                    .map(|_| (0..filters * lanes).map(&mut place).collect())
                    .collect();
                let mut banks = [0; BANK_GROUPS];
                places.iter().flatten().for_each(|place| banks[place.bank()] += 1);
                let octets = 4 * filters;
                let (least, most) = (banks.iter().min(), banks.iter().max());
                let asked = most.max(Some(&octets)).copied().unwrap_or(0);
                let asked = asked.max(2 * octets - least.copied().unwrap_or(0).min(octets));
                let found = wavefronts(filters, lanes, &places);
                assert!(found <= asked + octets.div_ceil(4), "{found} for {asked}: {banks:?}");
            }
        }
    }

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
