//! Assigns filters to the threads of a warp so that threads that load at once read different shared-memory bank
//! groups.

use super::matching::{BANK_GROUPS, Counts, TEMPLATES, matching};

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
}
