//! Which filters eight lanes of a warp take that load at once: each lane one, of its own template, and of each bank as few
//! as can be.
//!
//! That is a matching of templates and banks, made as large as it can be by paths of exchanges. It holds the banks that most
//! filters are left of, and the templates that have no slot to spare. So where no bank has more filters left than there are
//! matchings to come, no matching asks one twice (König: a bipartite graph falls into as many as its largest degree).

/// Banks of 16 bytes of shared memory.
pub(super) const BANKS: usize = 8;
/// Most templates of a warp.
pub(super) const TEMPLATES: usize = 8;

/// How many filters each template has of each bank.
pub(super) type Counts = [[usize; BANKS]; TEMPLATES];

/// What eight lanes take so far.
#[derive(Debug)]
struct Matching<'a> {
    /// What is left in all, and how many lanes of a template are to be filled, at least and at most.
    left: &'a Counts,
    needed: &'a [usize; TEMPLATES],
    each: usize,
    /// Most filters of a bank.
    most: usize,
    taken: Counts,
    of_template: [usize; TEMPLATES],
    of_bank: [usize; BANKS],
}

/// What the next eight lanes take of what is left: of each template as many as it needs and at most `each`.
pub(super) fn matching(left: &Counts, needed: &[usize; TEMPLATES], each: usize) -> Counts {
    let (taken, of_template) = ([[0; BANKS]; TEMPLATES], [0; TEMPLATES]);
    let mut matching =
        Matching { left, needed, each, most: 1, taken, of_template, of_bank: [0; BANKS] };
    while !matching.fill() {
        matching.most += 1;
    }
    matching.taken
}

impl Matching<'_> {
    /// Adds what can be added with `most` filters of a bank, of the fullest banks first; whether that is enough.
    fn fill(&mut self) -> bool {
        let mut banks: Vec<(usize, usize)> = (0..BANKS)
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

    /// Takes one more of a bank along a path of exchanges; `seen` holds the banks on it.
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
            for other in 0..BANKS {
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

    /// The same for one more of a template, where one that has more than it needs may give up its own.
    fn add_of_template(&mut self, template: usize, seen: &mut u32) -> bool {
        *seen |= 1 << template;
        for bank in 0..BANKS {
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
