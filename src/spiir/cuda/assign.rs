//! Which thread of a warp holds which filter: such that threads that load at once find their inputs in different banks.

/// Banks of 16 bytes of shared memory.
const BANKS: usize = 8;

/// Where a filter's input begins in the window's copies, in samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(pub(super) u32);

impl Place {
    /// Of an input that begins `offset` samples behind the window's begin: the copy that is shifted by what is left of
    /// a multiple of 4 has it at such a multiple.
    pub(super) fn new(offset: usize, pitch: usize) -> Self {
        Self((offset % 4 * pitch + offset / 4 * 4) as u32)
    }

    fn bank(self) -> usize {
        self.0 as usize / 4 % BANKS
    }
}

/// A thread's filter: the `filter`th of lane `lane`, and which one of which template it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) filter: usize,
    pub(super) lane: usize,
    pub(super) place: Place,
    pub(super) of: Option<(usize, usize)>,
}

/// The filters of a warp's templates.
#[derive(Debug)]
pub(super) struct Warp<'a> {
    filters: usize,
    lanes: usize,
    places: &'a [Vec<Place>],
    /// For each template and bank, filters that no thread has yet.
    left: Vec<[Vec<usize>; BANKS]>,
    slots: Vec<Slot>,
}

/// Eight lanes that load at once.
struct Octet {
    filter: usize,
    first: usize,
    /// For each template, lanes that are taken.
    taken: Vec<usize>,
    used: [usize; BANKS],
}

impl<'a> Warp<'a> {
    /// `places` holds each template's filters, at most `filters * lanes`.
    pub(super) fn new(filters: usize, lanes: usize, places: &'a [Vec<Place>]) -> Self {
        let of = |places: &Vec<Place>| {
            let mut banks: [Vec<usize>; BANKS] = Default::default();
            places.iter().enumerate().for_each(|(index, place)| banks[place.bank()].push(index));
            banks
        };
        let left = places.iter().map(of).collect();
        Self { filters, lanes, places, left, slots: Vec::new() }
    }

    /// Every slot of the warp, those without a filter too.
    pub(super) fn assign(mut self) -> Vec<Slot> {
        let each = self.lanes / 4;
        for filter in 0..self.filters {
            for part in 0..4 {
                let taken = vec![0; self.places.len()];
                let mut octet = Octet { filter, first: part * each, taken, used: [0; BANKS] };
                self.fill_free_banks(&mut octet, each);
                self.fill_lanes(&mut octet, each);
            }
        }
        self.slots
    }

    /// Takes a filter of each bank, those first that most are left of.
    fn fill_free_banks(&mut self, octet: &mut Octet, each: usize) {
        loop {
            let left = |bank: usize| self.left.iter().map(|banks| banks[bank].len()).sum::<usize>();
            let open = |template: &usize| octet.taken[*template] < each;
            let best = |bank: usize| {
                let has = |template: &usize| !self.left[*template][bank].is_empty();
                let templates = (0..self.places.len()).filter(open).filter(has);
                templates.max_by_key(|template| self.left[*template][bank].len())
            };
            let free = (0..BANKS).filter(|bank| octet.used[*bank] == 0);
            let found =
                free.filter_map(|bank| best(bank).map(|template| (left(bank), bank, template)));
            let Some((_, bank, template)) = found.max() else { return };
            self.give(octet, template, Some(bank));
        }
    }

    /// Gives each lane that is left what its template has left.
    fn fill_lanes(&mut self, octet: &mut Octet, each: usize) {
        for template in 0..self.places.len() {
            while octet.taken[template] < each {
                let left = &self.left[template];
                let some = (0..BANKS).filter(|bank| !left[*bank].is_empty());
                let key = |bank: &usize| (octet.used[*bank], usize::MAX - left[*bank].len());
                let bank = some.min_by_key(key);
                self.give(octet, template, bank);
            }
        }
    }

    fn give(&mut self, octet: &mut Octet, template: usize, bank: Option<usize>) {
        let index = bank.and_then(|bank| self.left[template][bank].pop());
        let idle = || (0..BANKS).find(|bank| octet.used[*bank] == 0).unwrap_or(0);
        let place =
            index.map_or_else(|| Place(4 * idle() as u32), |index| self.places[template][index]);
        octet.used[place.bank()] += 1;
        let part = octet.first + octet.taken[template];
        octet.taken[template] += 1;
        let lane = template + 32 / self.lanes * part;
        let of = index.map(|index| (template, index));
        self.slots.push(Slot { filter: octet.filter, lane, place, of });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_has_one_thread_and_banks_are_spread() {
        for (filters, lanes) in [(1, 4), (4, 8), (16, 8), (2, 32)] {
            let number = |template: usize, index: usize| (template * 977 + index * 331) % 5000;
            let templates = 32 / lanes;
            let count = |template: usize| filters * lanes - template % 2;
            let places: Vec<Vec<Place>> = (0..templates)
                .map(|t| (0..count(t)).map(|i| Place::new(number(t, i), 6004)).collect())
                .collect();
            let slots = Warp::new(filters, lanes, &places).assign();
            assert_eq!(slots.len(), filters * 32);
            let mut seen: Vec<Vec<bool>> = places.iter().map(|p| vec![false; p.len()]).collect();
            for slot in &slots {
                let Some((template, index)) = slot.of else { continue };
                assert_eq!(slot.lane % templates, template);
                assert_eq!(slot.place, places[template][index]);
                assert!(!std::mem::replace(&mut seen[template][index], true));
            }
            assert!(seen.iter().flatten().all(|seen| *seen));
            let mut places: Vec<(usize, usize)> =
                slots.iter().map(|s| (s.filter, s.lane)).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), filters * 32);
            let turns = |octet: &[Slot]| {
                (0..BANKS).map(|b| octet.iter().filter(|s| s.place.bank() == b).count()).max()
            };
            let all: usize = slots.chunks(8).filter_map(turns).sum();
            assert!(all <= 2 * slots.len() / 8, "{all} turns for {} octets", slots.len() / 8);
        }
    }
}
